/* guest/origin: are files still what they were? */
#include "guest/warm/origin.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char list[] = "d\0d/a\0d/absent";
static const struct timespec far = {.tv_sec = 1LL << 40};

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int enter(void **state)
{
	char *dir = strdup("/tmp/test-origin-XXXXXX");

	*state = dir;
	if (!mkdtemp(dir) || chdir(dir) < 0 || mkdir("d", 0755) < 0)
		return -1;
	put("d/a", "text");
	return 0;
}

static int leave(void **state)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -rf %s", (char *)*state);
	free(*state);
	return chdir("/") < 0 || system(command) ? -1 : 0;
}

static void nothing_changes(void **state)
{
	struct origin o = {0};

	(void)state;
	assert_false(origin_has_changed(&o));
	origin_note(&o, list, sizeof(list), &far);
	assert_int_equal(o.count, 3);
	assert_false(o.is_doubtful);
	assert_false(origin_has_changed(&o));
	/* Reading is no change. */
	close(open("d/a", O_RDONLY));
	assert_false(origin_has_changed(&o));
	origin_done(&o);
	assert_false(origin_has_changed(&o));
}

static void write_in_place(void)
{
	/* Same size, same inode, same directory. */
	int fd = open("d/a", O_WRONLY);

	assert_int_equal(write(fd, "TEXT", 4), 4);
	close(fd);
}

static void replace(void)
{
	put("b", "text");
	rename("b", "d/a");
}

static void drop(void)
{
	unlink("d/a");
}

static void appear(void)
{
	put("d/absent", "");
}

static void keep_times(void)
{
	struct stat st;

	stat("d/a", &st);
	write_in_place();
	utimensat(AT_FDCWD, "d/a", (struct timespec[]){st.st_atim, st.st_mtim}, 0);
}

static void add_another(void)
{
	put("d/other", "");
}

static void changes(void **state)
{
	static void (*const ways[])(void) = {write_in_place, replace,	 drop,
					     appear,	     keep_times, add_another};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct origin o = {0};

		put("d/a", "text");
		unlink("d/absent");
		/* The times of files are coarse: ours must be another than those to come. */
		utimensat(AT_FDCWD, "d/a", (struct timespec[]){{1, 0}, {1, 0}}, 0);
		usleep(20000);
		origin_note(&o, list, sizeof(list), &far);
		ways[i]();
		if (!origin_has_changed(&o))
			fail_msg("way %zu was not noticed", i);
		origin_done(&o);
	}
}

static void doubts(void **state)
{
	const struct timespec long_ago = {.tv_sec = 1};
	struct origin o = {0};

	(void)state;
	origin_note(&o, list, sizeof(list), &long_ago);
	assert_true(o.is_doubtful);
	origin_note(&o, list, sizeof(list), &far);
	assert_false(o.is_doubtful);
	origin_done(&o);
}

static void foreign_lists(void **state)
{
	static const char empty[] = "", twice[] = "\0";
	struct origin o = {0};

	(void)state;
	origin_note(&o, empty, sizeof(empty), &far);
	assert_int_equal(o.count, 1);
	origin_note(&o, twice, sizeof(twice), &far);
	assert_int_equal(o.count, 2);
	assert_false(origin_has_changed(&o));
	origin_done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_changes, enter, leave),
		cmocka_unit_test_setup_teardown(changes, enter, leave),
		cmocka_unit_test_setup_teardown(doubts, enter, leave),
		cmocka_unit_test_setup_teardown(foreign_lists, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

int workspace_make(void **state)
{
	struct workspace *w = calloc(1, sizeof(*w));

	strcpy(w->top, "/tmp/cloche-changes-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	w->cwd = getcwd(NULL, 0);
	assert_int_equal(chdir(w->top), 0);
	assert_int_equal(mkdir("upper", 0755) | mkdir("lower", 0755), 0);
	w->upper = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w->lower = open("lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->upper >= 0 && w->lower >= 0);
	umask(022);
	*state = w;
	return 0;
}

int workspace_drop(void **state)
{
	struct workspace *w = *state;
	char command[128];

	close(w->upper);
	close(w->lower);
	assert_int_equal(chdir(w->cwd), 0);
	/* Some trees are too deep for a path: rm goes by directory fd. */
	snprintf(command, sizeof(command), "rm -rf %s", w->top);
	assert_int_equal(system(command), 0);
	free(w->cwd);
	free(w);
	return 0;
}

void put(const char *path, const char *text)
{
	char *copy = strdup(path);
	int fd;

	for (char *p = strchr(copy, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(copy, 0755);
		*p = '/';
	}
	free(copy);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

bool holds(const char *path, const char *text)
{
	char buf[4096];
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf));
	close(fd);
	return n == (ssize_t)strlen(text) && memcmp(buf, text, (size_t)n) == 0;
}

bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

void whiteout(const char *path)
{
	assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(0, 0)), 0);
}

bool opaque(const char *path)
{
	/* As the overlay of whoever runs this would write it. */
	const char *name = geteuid() == 0 ? "trusted.overlay.opaque" : "user.overlay.opaque";

	return setxattr(path, name, "y", 1, 0) == 0;
}

/* "kind path\n" for each change, as one string to compare with. */
const char *lines(const struct change_list *l)
{
	static char text[65536];
	size_t len = 0;

	text[0] = '\0';
	for (size_t i = 0; i < l->count; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %s\n", l->items[i].kind,
					l->items[i].path);
	return text;
}

static const struct change_options defaults = CHANGE_OPTIONS_DEFAULT;

struct change_list run(struct workspace *w, bool apply, const struct change_options *limits)
{
	struct change_options options = limits ? *limits : defaults;
	struct change_list l;
	struct err e;

	options.apply = apply;
	if (changes_collect(w->upper, w->lower, &options, &l, &e) < 0)
		fail_msg("%s", e.msg);
	return l;
}

void expect(struct workspace *w, bool apply, const char *want)
{
	struct change_list l = run(w, apply, NULL);

	assert_string_equal(lines(&l), want);
	assert_false(l.cut || l.incomplete);
	change_list_done(&l);
}

void expect_no_temp_files(void)
{
	assert_int_equal(system("test -z \"$(find lower -name '.cloche-*')\""), 0);
}

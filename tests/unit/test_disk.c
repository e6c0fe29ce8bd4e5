/* disk: sizes, copies, and what a sandbox finds on a disk that another one has used. Mounts are tests/e2e's. */
#include "disk/disk.h"

#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/vfs.h>

#include <cmocka.h>

#define MB ((uint64_t)1 << 20)

struct fixture {
	char path[64];
	int dir;
	struct err err;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->path, sizeof(f->path), "/tmp/cloche-disk-XXXXXX");
	assert_non_null(mkdtemp(f->path));
	f->dir = open(f->path, O_RDONLY | O_DIRECTORY);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", f->path, f->path);
	assert_int_equal(system(command), 0);
	close(f->dir);
	free(f);
	return 0;
}

static void bounds(void **state)
{
	struct statfs fs = {.f_type = EXT4_SUPER_MAGIC, .f_bsize = 4096};

	assert_true(disk_file_bytes(64 << 10) >= 16 * MB);
	assert_true(disk_file_bytes(1024 * MB) >= 1024 * MB + 1024 * MB / 32);
	assert_int_equal(disk_file_bytes(123456789) % MB, 0);
	fs.f_blocks = 1024 * MB / 4096;
	assert_true(disk_is_bounded(&fs, 1024 * MB));
	assert_false(disk_is_bounded(&fs, 512 * MB));
	fs.f_type = TMPFS_MAGIC;
	assert_false(disk_is_bounded(&fs, 1024 * MB));
	fs = (struct statfs){.f_type = EXT4_SUPER_MAGIC};
	assert_false(disk_is_bounded(&fs, 1024 * MB));
}

static int file(struct fixture *f, const char *name)
{
	int fd = openat(f->dir, name, O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	return fd;
}

static void copies_keep_holes(void **state)
{
	struct fixture *f = *state;
	struct disk_copy c = {.from = file(f, "from"), .to = file(f, "to")};
	struct stat st;
	char byte = 0;

	assert_int_equal(ftruncate(c.from, 64 * MB), 0);
	assert_int_equal(pwrite(c.from, "x", 1, 40 * MB), 1);
	assert_int_equal(disk_copy(&c, &f->err), 0);
	assert_int_equal(fstat(c.to, &st), 0);
	assert_int_equal(st.st_size, 64 * MB);
	assert_true((uint64_t)st.st_blocks * 512 < MB);
	assert_int_equal(pread(c.to, &byte, 1, 40 * MB), 1);
	assert_int_equal(byte, 'x');
	/* What is reserved is there, not a hole any more. */
	c.reserves = true;
	assert_int_equal(disk_copy(&c, &f->err), 0);
	assert_int_equal(fstat(c.to, &st), 0);
	if (!c.shared)
		assert_true((uint64_t)st.st_blocks * 512 >= 64 * MB);
	c = (struct disk_copy){.from = c.from, .to = c.to, .max_bytes = 1};
	if (disk_copy(&c, &f->err) < 0)
		assert_int_equal(f->err.kind, ERR_LIMIT);
	else
		assert_true(c.shared);
	close(c.from);
	close(c.to);
}

static bool exists(struct fixture *f, const char *name)
{
	return faccessat(f->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void make(struct fixture *f, const char *name)
{
	assert_int_equal(mkdirat(f->dir, name, 0755), 0);
}

static void used_disks_are_cleared(void **state)
{
	static const char *const places[] = {"ws",  "home", "rootup",  "root",
					     "tmp", "shm",  "rootwork"};
	struct fixture *f = *state;

	assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		make(f, places[i]);
	make(f, "root/first");
	make(f, "ws/kept");
	/* Code inside may take its own permissions away, and link to elsewhere. */
	make(f, "tmp/a");
	make(f, "tmp/a/b");
	assert_int_equal(symlinkat("../../ws", f->dir, "tmp/a/link"), 0);
	assert_int_equal(fchmodat(f->dir, "tmp/a", 0, 0), 0);
	assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
	assert_true(exists(f, "ws/kept") && exists(f, "home") && exists(f, "rootup"));
	assert_false(exists(f, "tmp") || exists(f, "shm") || exists(f, "rootwork"));
	/* As often as an earlier one was not emptied. */
	assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
	assert_true(exists(f, "trash/0/tmp") && exists(f, "trash/1"));
	disk_empty_trash(f->dir);
	assert_false(exists(f, "trash"));
	assert_true(disk_has_was(f->dir) && exists(f, "was/first") && !exists(f, "root"));
}

/* A start that did not finish must not count as what the user has left. */
static void an_unfinished_start_loses_nothing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
	make(f, "root");
	make(f, "root/first");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
		assert_true(exists(f, "was/first"));
		make(f, "root");
	}
	make(f, "root/second");
	assert_int_equal(disk_was_is_back(f->dir, &f->err), 0);
	assert_false(disk_has_was(f->dir));
	assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
	assert_true(exists(f, "was/second") && !exists(f, "was/first") && !exists(f, "old"));
}

/* Directories of ours in the one could be links of the user's in the other. */
static void another_root_is_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(disk_prepare(f->dir, "overlay host", true, &f->err), 0);
	make(f, "tmp");
	assert_int_equal(disk_prepare(f->dir, "overlay /srv/image", false, &f->err), -1);
	assert_int_equal(f->err.kind, ERR_CONFLICT);
	assert_int_equal(disk_prepare(f->dir, "ro host", false, &f->err), -1);
	assert_true(exists(f, "tmp"));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounds),      CASE(copies_keep_holes),
		CASE(used_disks_are_cleared),  CASE(an_unfinished_start_loses_nothing),
		CASE(another_root_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Changes of a copy-on-write workspace: listed and applied. Most trees are made by hand in the
 * overlay's own conventions; one test asks a real overlay.
 */
#include "base/auto.h"
#include "base/str.h"
#include "sandbox/workspace/changes.h"
#include "workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static int collect(int upper, int lower, bool apply, struct change_list *ret, struct err *e)
{
	struct change_options options = CHANGE_OPTIONS_DEFAULT;

	options.apply = apply;
	return changes_collect(upper, lower, apply ? &options : NULL, ret, e);
}

/* ---- listing -----------------------------------------------------------------------------------
 */

static void test_nothing_changed(void **state)
{
	put("lower/src/a.c", "int a;\n");
	put("upper/src/a.c", "int a;\n");
	mkdir("lower/docs", 0755);
	mkdir("upper/docs", 0755);
	expect(*state, false, "");
}

static void test_kinds(void **state)
{
	put("lower/a", "old");
	put("lower/b", "old");
	put("lower/c", "same");
	put("lower/d/e", "old");
	put("lower/m", "mode");
	put("upper/a", "new");
	whiteout("upper/b");
	put("upper/c", "same");
	whiteout("upper/d");
	put("upper/m", "mode");
	chmod("upper/m", 0755);
	put("upper/n/o/p", "new");
	mkdir("upper/empty", 0755);
	whiteout("upper/never-there");
	expect(*state, false,
	       "modified a\ndeleted b\ndeleted d/\nadded empty/\nmodified m\nadded n/o/p\n");
	expect(*state, true,
	       "modified a\ndeleted b\ndeleted d/\nadded empty/\nmodified m\nadded n/o/p\n");
	assert_true(holds("lower/a", "new") && holds("lower/n/o/p", "new"));
	assert_true(!exists("lower/b") && !exists("lower/d") && exists("lower/empty"));
	expect_no_temp_files();
}

static void test_types_change(void **state)
{
	put("lower/dir/x", "x");
	put("lower/dir/y/z", "z");
	put("upper/dir", "now a file");
	put("lower/file", "f");
	put("upper/file/below", "now a directory");
	put("lower/link", "l");
	assert_int_equal(symlink("file", "upper/link"), 0);
	expect(*state, false,
	       "added dir\ndeleted dir/\ndeleted file\nadded file/below\nmodified link\n");
	expect(*state, true,
	       "added dir\ndeleted dir/\ndeleted file\nadded file/below\nmodified link\n");
	assert_true(holds("lower/dir", "now a file"));
	assert_true(holds("lower/file/below", "now a directory"));
	whiteout("upper/gone");
	expect(*state, true, "");
}

static void test_opaque_directory(void **state)
{
	put("lower/d/kept", "same");
	put("lower/d/changed", "old");
	put("lower/d/gone", "old");
	put("lower/d/sub/gone", "old");
	put("lower/d/sub/kept", "same");
	put("upper/d/kept", "same");
	put("upper/d/changed", "new");
	put("upper/d/fresh", "new");
	put("upper/d/sub/kept", "same");
	if (!opaque("upper/d"))
		skip();
	expect(*state, false,
	       "modified d/changed\nadded d/fresh\ndeleted d/gone\ndeleted d/sub/gone\n");
	expect(*state, true,
	       "modified d/changed\nadded d/fresh\ndeleted d/gone\ndeleted d/sub/gone\n");
	assert_true(!exists("lower/d/gone") && !exists("lower/d/sub/gone"));
	assert_true(holds("lower/d/sub/kept", "same"));
	expect(*state, true, "");
}

/* Whoever can write user.* attributes could otherwise have files deleted that are not theirs. */
static void test_attributes_delete_nothing(void **state)
{
	put("lower/f", "old");
	put("upper/f", "");
	put("lower/d/kept", "old");
	put("upper/d/new", "new");
	if (setxattr("upper/f", "user.overlay.whiteout", "y", 1, 0) < 0 || geteuid() != 0)
		skip();
	assert_int_equal(setxattr("upper/d", "user.overlay.opaque", "y", 1, 0), 0);
	expect(*state, false, "added d/new\nmodified f\n");
}

static void test_limits(void **state)
{
	struct change_options few = CHANGE_OPTIONS_DEFAULT, narrow = few, small = few;
	struct change_list l;
	char name[32];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "upper/f%02d", i);
		put(name, "0123456789");
	}
	few.records = 3;
	l = run(*state, false, &few);
	assert_string_equal(lines(&l), "added f00\nadded f01\nadded f02\n");
	assert_true(l.cut && !l.incomplete);
	assert_int_equal(l.total, 20);
	change_list_done(&l);
	narrow.entries = 5;
	l = run(*state, false, &narrow);
	assert_true(l.incomplete && !l.cut && l.count == 5);
	change_list_done(&l);
	small.bytes = 25;
	l = run(*state, true, &small);
	assert_int_equal(l.skipped, 18);
	assert_true(l.incomplete);
	assert_true(exists("lower/f01") && !exists("lower/f02"));
	change_list_done(&l);
	few = (struct change_options)CHANGE_OPTIONS_DEFAULT;
	few.compared =
		5; /* not enough to find out that they are equal: then they count as changed */
	l = run(*state, false, &few);
	assert_int_equal(l.total, 20);
	change_list_done(&l);
}

/* ---- hostile trees -----------------------------------------------------------------------------
 */

static void test_links_are_never_followed(void **state)
{
	struct change_list l;

	put("secret/file", "secret");
	assert_int_equal(symlink("../secret/file", "upper/steal"), 0);
	assert_int_equal(symlink("../secret", "upper/dir"), 0);
	assert_int_equal(symlink("/etc/passwd", "lower/f"), 0);
	put("upper/f", "mine");
	/* Below, the parent is a link that leads out: what is written must not go through it. */
	assert_int_equal(symlink("../secret", "lower/out"), 0);
	put("upper/out/file", "overwritten");
	l = run(*state, true, NULL);
	assert_string_equal(
		lines(&l), "skipped dir\nmodified f\ndeleted out\nadded out/file\nskipped steal\n");
	assert_string_equal(l.items[0].note, "a link that leads out of the workspace");
	assert_string_equal(l.items[4].note, "a link that leads out of the workspace");
	change_list_done(&l);
	assert_true(holds("secret/file", "secret"));
	assert_true(!exists("lower/dir") && !exists("lower/steal"));
	assert_true(holds("lower/f", "mine") && holds("lower/out/file", "overwritten"));
	expect_no_temp_files();
}

static void test_links_inside_have_no_note(void **state)
{
	/* A `..` behind a name: the name may be a link to the workspace's top, or become one. */
	static const struct {
		const char *target;
		bool stays;
	} rows[] = {{"f", true},       {"./f", true},	  {"a//f", true}, {"a/./f", true},
		    {"..f", true},     {".", true},	  {"..", false},  {"./..", false},
		    {"a/../f", false}, {"b/..", false},	  {"/", false},	  {"/etc/passwd", false},
		    {"../f", false},   {"a/../..", false}};
	struct change_list l;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(symlink(rows[i].target, "upper/link"), 0);
		l = run(*state, true, NULL);
		assert_int_equal(l.count, 1);
		assert_int_equal(!l.items[0].note, rows[i].stays);
		assert_int_equal(exists("lower/link"), rows[i].stays);
		change_list_done(&l);
		unlink("upper/link");
		unlink("lower/link");
	}
	mkdir("upper/d", 0755);
	assert_int_equal(symlink("../f", "upper/d/link"), 0);
	l = run(*state, false, NULL);
	assert_null(l.items[0].note);
	change_list_done(&l);
	unlink("upper/d/link");
	assert_int_equal(symlink("../../f", "upper/d/link"), 0);
	l = run(*state, false, NULL);
	assert_non_null(l.items[0].note);
	change_list_done(&l);
}

static void test_special_files_are_skipped(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "upper/socket"};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool device = mknod("upper/device", S_IFCHR | 0666, makedev(1, 5)) == 0;

	assert_int_equal(mkfifo("upper/fifo", 0644), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	put("lower/fifo", "kept");
	expect(*state, true,
	       device ? "skipped device\nskipped fifo\nskipped socket\n"
		      : "skipped fifo\nskipped socket\n");
	assert_true(holds("lower/fifo", "kept") && !exists("lower/device"));
}

static void test_special_files_below_do_not_block(void **state)
{
	assert_int_equal(mkfifo("lower/fifo", 0644), 0);
	put("upper/fifo", "now a file");
	expect(*state, true, "modified fifo\n");
	assert_true(holds("lower/fifo", "now a file"));
}

static void test_set_id_bits_are_dropped(void **state)
{
	struct stat st;

	put("upper/tool", "#!/bin/sh\n");
	assert_int_equal(chmod("upper/tool", 06755), 0);
	assert_int_equal(mkdir("upper/shared", 0755), 0);
	assert_int_equal(chmod("upper/shared", 03777), 0);
	expect(*state, true, "added shared/\nadded tool\n");
	assert_int_equal(stat("lower/tool", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(stat("lower/shared", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
}

static void test_owner_is_the_workspace_owner(void **state)
{
	struct stat st;

	if (geteuid() != 0) {
		print_message("SKIP owner: needs root\n");
		skip();
	}
	assert_int_equal(chown("lower", 4321, 5432), 0);
	put("upper/d/f", "x");
	assert_int_equal(symlink("f", "upper/d/l"), 0);
	assert_int_equal(chown("upper/d/f", 101000, 101000), 0);
	expect(*state, true, "added d/f\nadded d/l\n");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(lstat(i == 0	? "lower/d"
				       : i == 1 ? "lower/d/f"
						: "lower/d/l",
				       &st),
				 0);
		assert_true(st.st_uid == 4321 && st.st_gid == 5432);
	}
}

static void test_times_stay(void **state)
{
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000000000, .tv_nsec = 5}};
	struct stat st;

	put("upper/f", "x");
	assert_int_equal(utimensat(AT_FDCWD, "upper/f", times, 0), 0);
	expect(*state, true, "added f\n");
	assert_int_equal(stat("lower/f", &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1000000000);
}

static void test_odd_names(void **state)
{
	char longest[256], path[300], want[600];

	memset(longest, 'n', 255);
	longest[255] = '\0';
	snprintf(path, sizeof(path), "upper/%s", longest);
	put(path, "long");
	put("upper/line\nbreak\x1b[2J", "odd");
	put("upper/\xff\xfe", "not UTF-8");
	put("upper/ -rf *", "shell");
	snprintf(want, sizeof(want),
		 "added  -rf *\nadded line\nbreak\x1b[2J\nadded %s\nadded \xff\xfe\n", longest);
	expect(*state, true, want);
	snprintf(path, sizeof(path), "lower/%s", longest);
	assert_true(holds(path, "long"));
	assert_true(holds("lower/line\nbreak\x1b[2J", "odd"));
}

static void test_deep_nesting(void **state)
{
	struct workspace *w = *state;
	struct change_list l;
	int dir = dup(w->upper);

	for (int i = 0; i < 400; i++) {
		int next;

		assert_int_equal(mkdirat(dir, "d", 0755), 0);
		next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(dir);
		dir = next;
	}
	close(dir);
	l = run(w, true, NULL);
	assert_int_equal(l.count, 1);
	assert_string_equal(l.items[0].kind, "skipped");
	assert_string_equal(l.items[0].note, "nested too deep");
	assert_true(l.incomplete);
	change_list_done(&l);
}

/* Names so long that their path does not fit: cut, and said. */
static void test_long_path(void **state)
{
	struct workspace *w = *state;
	struct change_list l;
	int dir = dup(w->upper);
	char name[251];

	memset(name, 'p', 250);
	name[250] = '\0';
	for (int i = 0; i < 20; i++) {
		int next;

		assert_int_equal(mkdirat(dir, name, 0755), 0);
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(dir);
		dir = next;
	}
	close(dir);
	l = run(w, false, NULL);
	assert_true(l.incomplete);
	change_list_done(&l);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

/* A private file stays private, whatever mode a sandbox leaves; only +x is for all who read it. */
static void test_modes_only_get_tighter(void **state)
{
	static const struct {
		mode_t below, above, want;
	} rows[] = {{0600, 0644, 0600}, {0600, 0777, 0700}, {0640, 0666, 0640},
		    {0644, 0755, 0755}, {0644, 0600, 0600}, {0755, 0644, 0644},
		    {0400, 0600, 0400}, {0711, 0755, 0711}, {0600, 06755, 0700}};
	mode_t before = umask(027);
	struct change_list l;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		put("lower/f", "old");
		put("upper/f", "new");
		mkdir("lower/d", 0700);
		mkdir("upper/d", 0700);
		chmod("lower/f", rows[i].below);
		chmod("upper/f", rows[i].above);
		chmod("lower/d", 0700 | rows[i].below);
		chmod("upper/d", 0700 | rows[i].above);
		put("upper/new", "new");
		chmod("upper/new", 0777);
		l = run(*state, true, NULL);
		assert_int_equal(mode_of("lower/f"), rows[i].want);
		assert_int_equal(mode_of("lower/d"), 0700 | (rows[i].below & rows[i].above));
		assert_int_equal(mode_of("lower/new"), 0750);
		change_list_done(&l);
		unlink("lower/f");
		unlink("lower/new");
		rmdir("lower/d");
	}
	/* Only the mode differs: nothing to do, and it is said why. */
	put("lower/f", "new");
	chmod("lower/f", 0600);
	chmod("upper/f", 0644);
	mkdir("lower/d", 0700);
	chmod("upper/d", 0777);
	unlink("upper/new");
	expect(*state, true, "skipped d/\nskipped f\n");
	umask(before);
}

static void test_sparse_file_stays_sparse(void **state)
{
	struct stat st;
	int fd = open("upper/sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_int_equal(pwrite(fd, "mid", 3, 1 << 29), 3);
	assert_int_equal(ftruncate(fd, 1LL << 30), 0);
	close(fd);
	expect(*state, true, "added sparse\n");
	assert_int_equal(stat("lower/sparse", &st), 0);
	assert_true(st.st_size == 1LL << 30);
	assert_true(st.st_blocks < 4096);
	fd = open("lower/sparse", O_RDONLY | O_CLOEXEC);
	char text[3];

	assert_int_equal(pread(fd, text, 3, 1 << 29), 3);
	assert_memory_equal(text, "mid", 3);
	close(fd);
}

/* A copy that cannot be finished leaves the old file, and nothing beside it. */
static void test_failed_copy_leaves_nothing(void **state)
{
	const struct rlimit small = {4096, RLIM_INFINITY};
	struct rlimit before;
	struct change_list l;
	char text[8192];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	put("lower/f", "old");
	put("upper/f", text);
	put("upper/d/new", text);
	put("upper/small", "new");
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	l = run(*state, true, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(l.failed, 2);
	change_list_done(&l);
	assert_true(holds("lower/f", "old") && holds("lower/small", "new"));
	assert_false(exists("lower/d/new"));
	expect_no_temp_files();
}

static void test_unwritable_directory_below(void **state)
{
	struct change_list l;

	if (geteuid() == 0) {
		print_message("SKIP unwritable: root may write anywhere\n");
		skip();
	}
	put("lower/d/f", "old");
	chmod("lower/d", 0555);
	put("upper/d/f", "new");
	chmod("upper/d", 0555);
	l = run(*state, true, NULL);
	assert_string_equal(lines(&l), "skipped d/f\n");
	assert_string_equal(l.items[0].note, strerror(EACCES));
	change_list_done(&l);
	chmod("lower/d", 0755);
	chmod("upper/d", 0755);
}

static void test_read_only_directories_are_filled(void **state)
{
	struct stat st;

	put("upper/d/f", "x");
	chmod("upper/d", 0555);
	expect(*state, true, "added d/f\n");
	assert_int_equal(stat("lower/d", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0555);
	chmod("upper/d", 0755);
	chmod("lower/d", 0755);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		print_message("%s: %s\n", path, strerror(errno));
	close(fd);
}

/* A mount namespace of our own, in a user namespace where needed; false if it cannot be had. */
static bool enter_namespace(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0)
		return false;
	if (uid) {
		write_text("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		write_text("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		write_text("/proc/self/gid_map", map);
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* A mount below the workspace is not ours to write to. */
static void test_mounts_below_are_not_entered(void **state)
{
	struct workspace *w = *state;
	int status;
	pid_t pid;

	put("upper/m/f", "x");
	mkdir("lower/m", 0755);
	pid = fork();
	if (pid == 0) {
		struct change_list l;
		struct err e;

		if (!enter_namespace() || mount("none", "lower/m", "tmpfs", 0, NULL) < 0)
			_exit(77);
		w->lower = open("lower", O_RDONLY | O_DIRECTORY);
		if (collect(w->upper, w->lower, true, &l, &e) < 0 || exists("lower/m/f"))
			_exit(1);
		_exit(str_equal(lines(&l), "skipped m/f\n") ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("SKIP mounts: no mount namespace\n");
		skip();
	}
	assert_int_equal(status, 0);
}

/* ---- a real overlay ----------------------------------------------------------------------------
 */

static const char overlay_script[] =
	"cd merged && echo new >added && echo more >>grown && rm gone && rm -r tree && mkdir tree "
	"&&"
	" echo 1 >tree/fresh && touch same && : >>opened && mv name renamed && chmod 700 tool &&"
	" rm file && mkdir file && echo 2 >file/in";

static int overlay_child(struct workspace *w)
{
	static const char want[] =
		"added added\ndeleted file\nadded file/in\ndeleted gone\nmodified grown\n"
		"deleted name\nadded renamed\nmodified tool\nadded tree/fresh\ndeleted tree/old\n";
	bool rootless = geteuid() != 0;
	struct change_list l;
	struct err e;
	int upper;

	if (!enter_namespace() || mount("none", "t", "tmpfs", 0, NULL) < 0 ||
	    mkdir("t/up", 0755) < 0 || mkdir("t/work", 0755) < 0)
		return 77;
	if (mount("none", "merged", "overlay", 0,
		  rootless ? "lowerdir=lower,upperdir=t/up,workdir=t/work,redirect_dir=nofollow,"
			     "userxattr"
			   : "lowerdir=lower,upperdir=t/up,workdir=t/work,redirect_dir=off,"
			     "metacopy=off") < 0)
		return 77;
	if (system(overlay_script) != 0)
		return 3;
	upper = open("t/up", O_RDONLY | O_DIRECTORY);
	if (collect(upper, w->lower, false, &l, &e) < 0)
		return 4;
	if (!str_equal(lines(&l), want)) {
		print_message("%s", lines(&l));
		return 5;
	}
	change_list_done(&l);
	if (umount("merged") < 0 || collect(upper, w->lower, true, &l, &e) < 0)
		return 6;
	if (!str_equal(lines(&l), want) || l.skipped)
		return 7;
	change_list_done(&l);
	return 0;
}

static void test_real_overlay(void **state)
{
	static const char *const names[] = {"grown",  "gone", "tree/old", "same",
					    "opened", "name", "tool",	  "file"};
	struct workspace *w = *state;
	char path[64];
	int status;
	pid_t pid;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "lower/%s", names[i]);
		put(path, "line\n");
	}
	mkdir("t", 0755);
	mkdir("merged", 0755);
	pid = fork();
	if (pid == 0)
		_exit(overlay_child(w));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("SKIP overlay: cannot be mounted here\n");
		skip();
	}
	assert_int_equal(status, 0);
	assert_true(holds("lower/renamed", "line\n") && !exists("lower/name"));
	assert_true(holds("lower/tree/fresh", "1\n") && !exists("lower/tree/old"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, workspace_make, workspace_drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nothing_changed),
		TEST(test_kinds),
		TEST(test_types_change),
		TEST(test_opaque_directory),
		TEST(test_attributes_delete_nothing),
		TEST(test_limits),
		TEST(test_links_are_never_followed),
		TEST(test_links_inside_have_no_note),
		TEST(test_special_files_are_skipped),
		TEST(test_special_files_below_do_not_block),
		TEST(test_set_id_bits_are_dropped),
		TEST(test_owner_is_the_workspace_owner),
		TEST(test_times_stay),
		TEST(test_odd_names),
		TEST(test_deep_nesting),
		TEST(test_long_path),
		TEST(test_modes_only_get_tighter),
		TEST(test_sparse_file_stays_sparse),
		TEST(test_failed_copy_leaves_nothing),
		TEST(test_unwritable_directory_below),
		TEST(test_read_only_directories_are_filled),
		TEST(test_mounts_below_are_not_entered),
		TEST(test_real_overlay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

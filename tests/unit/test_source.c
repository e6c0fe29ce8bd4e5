/* Sources: where a path really leads, and what is never shown. */
#include "base/auto.h"
#include "base/str.h"
#include "kern/mountinfo.h"
#include "policy/paths/source.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A small world: base/home is HOME, with secrets and a project; base/data is anywhere else. */
struct world {
	char base[PATH_MAX];
	struct sandbox_spec spec;
};

static void make_dir(const char *path)
{
	assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static void make_file(const char *path)
{
	auto_close int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
}

static int set_up(void **state)
{
	static const char *const dirs[] = {
		"home",	       "home/.ssh",	  "home/project", "home/project/sub",
		"home/.cargo", "home/.cargo/bin", "data",	  "data/in",
		"empty"};
	struct world *w = must_alloc(calloc(1, sizeof(*w)));

	strcpy(w->base, "/tmp/cloche-source-XXXXXX");
	if (!mkdtemp(w->base) || chdir(w->base) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		make_dir(dirs[i]);
	make_file("home/.netrc");
	make_file("data/file");
	auto_free char *home = str_format("%s/home", w->base);
	setenv("HOME", home, 1);
	unsetenv("CLOCHE_STATE_DIR");
	unsetenv("CLOCHE_RUNTIME_DIR");
	spec_init(&w->spec);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	auto_free char *command = str_format("rm -rf '%s'", w->base);
	int rc = chdir("/") < 0 || system(command) != 0 ? -1 : 0;

	spec_done(&w->spec);
	free(w);
	return rc;
}

/* 0 or the kind of error; the message must name the field and, if it is about a rule, the path. */
static enum err_kind open_as(struct world *w, const char *path, enum source_use use)
{
	struct source s = {.fd = -1};
	struct err e = {0};

	if (source_open(&w->spec, "mount", path, use, &s, &e) == 0) {
		assert_true(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
		assert_true(fcntl(s.fd, F_GETFL) & O_PATH);
		close(s.fd);
		return ERR_NONE;
	}
	assert_int_equal(s.fd, -1);
	assert_string_equal(e.field, "mount");
	assert_true(str_starts(e.msg, "mount: "));
	return e.kind;
}

static void assert_opens(struct world *w, const char *path)
{
	assert_int_equal(open_as(w, path, SOURCE_READ), ERR_NONE);
	assert_int_equal(open_as(w, path, SOURCE_WRITE), ERR_NONE);
	assert_int_equal(open_as(w, path, SOURCE_COPY), ERR_NONE);
}

static void assert_denied(struct world *w, const char *path)
{
	assert_int_equal(open_as(w, path, SOURCE_READ), ERR_DENIED);
	assert_int_equal(open_as(w, path, SOURCE_WRITE), ERR_DENIED);
	assert_int_equal(open_as(w, path, SOURCE_COPY), ERR_DENIED);
}

static void test_reports_real_path(void **state)
{
	struct world *w = *state;
	auto_free char *expected = str_format("%s/data/in", w->base);
	struct source s;
	struct err e = {0};
	struct stat st;

	assert_int_equal(symlink("data/in", "link"), 0);
	assert_int_equal(source_open(&w->spec, "mount", "home/../link/.", SOURCE_READ, &s, &e), 0);
	assert_string_equal(s.path, expected);
	assert_int_equal(stat("data/in", &st), 0);
	assert_int_equal(s.st.st_ino, st.st_ino);
	close(s.fd);
}

static void test_host_places(void **state)
{
	static const char *const bad[] = {
		"/",	   "/proc",	  "/proc/self",		"/sys",	 "/dev", "/dev/shm",
		"/etc",	   "/etc/passwd", "/etc/../etc/passwd", "/home", "/run", "/var",
		"/var/lib"};
	static const char *const good[] = {"/usr", "/usr/lib", "/etc/ssl/certs", "/etc/hosts"};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_denied(w, bad[i]);
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (access(good[i], F_OK) == 0)
			assert_opens(w, good[i]);
}

static void test_root_home(void **state)
{
	if (geteuid() != 0)
		skip();
	assert_denied(*state, "/root");
}

static void test_own_home(void **state)
{
	struct world *w = *state;

	assert_denied(w, "home");
	assert_denied(w, ".");
	assert_denied(w, "home/.ssh");
	assert_denied(w, "home/.netrc");
	assert_opens(w, "home/project");
	assert_opens(w, "home/project/sub");
	assert_opens(w, "home/.cargo/bin");
	/* .cargo may hold credentials: it contains a forbidden name, even one not there yet */
	assert_denied(w, "home/.cargo");
}

static void test_symlinks_and_dots(void **state)
{
	struct world *w = *state;

	assert_int_equal(symlink("../home/.ssh", "data/key"), 0);
	assert_int_equal(symlink("key", "data/key2"), 0);
	assert_int_equal(symlink("/", "data/root"), 0);
	assert_int_equal(symlink("loop", "data/loop"), 0);
	assert_denied(w, "data/key");
	assert_denied(w, "data/key2");
	assert_denied(w, "data/root");
	assert_denied(w, "data/root/proc");
	assert_denied(w, "home/project/../.ssh");
	assert_denied(w, "data/loop");
	assert_opens(w, "home/.ssh/../project");
}

static void test_magic_links(void **state)
{
	auto_free char *root = NULL, *cwd = NULL;
	struct world *w = *state;

	root = str_format("/proc/self/root%s/data", w->base);
	cwd = str_format("/proc/%d/cwd/data", getpid());
	assert_denied(w, root);
	assert_denied(w, cwd);
	assert_denied(w, "/dev/fd/0");
}

/* ~/.ssh kept elsewhere: that place and what contains it are as secret. */
static void test_forbidden_symlink_target(void **state)
{
	struct world *w = *state;

	make_dir("data/keys");
	make_dir("data/keys/old");
	assert_opens(w, "data");
	assert_int_equal(symlink("../data/keys", "home/.gnupg"), 0);
	assert_denied(w, "data/keys");
	assert_denied(w, "data/keys/old");
	assert_denied(w, "data");
	assert_opens(w, "data/in");
}

static void test_symlinked_home(void **state)
{
	struct world *w = *state;
	auto_free char *home = str_format("%s/people", w->base);

	assert_int_equal(symlink("home", "people"), 0);
	setenv("HOME", home, 1);
	assert_denied(w, "home");
	assert_denied(w, "home/.netrc");
	assert_denied(w, "people/.netrc");
	assert_opens(w, "people/project");
}

static void test_hard_link(void **state)
{
	struct world *w = *state;

	assert_opens(w, "data/file");
	assert_int_equal(link("home/.netrc", "data/copy"), 0);
	assert_denied(w, "data/copy");
}

/* Some names hold nothing but secrets, wherever they are. */
static void test_anywhere(void **state)
{
	struct world *w = *state;

	make_dir("data/.ssh");
	make_dir("data/.ssh/x");
	make_dir("data/.sshd");
	assert_denied(w, "data/.ssh");
	assert_denied(w, "data/.ssh/x");
	assert_opens(w, "data/.sshd");
	assert_opens(w, "data");
}

static void test_forbid_list(void **state)
{
	struct world *w = *state;
	struct err e = {0};

	assert_opens(w, "data/in");
	assert_int_equal(spec_set(&w->spec, "forbid", "data/../data/in", &e), 0);
	assert_denied(w, "data/in");
	assert_denied(w, "data");
	assert_opens(w, "empty");
	/* a name that is not there yet */
	assert_int_equal(spec_set(&w->spec, "forbid", "empty/later", &e), 0);
	assert_denied(w, "empty");
}

static void test_forbid_unusable(void **state)
{
	struct world *w = *state;
	struct source s;
	struct err e = {0};

	assert_int_equal(spec_set(&w->spec, "forbid", "nowhere/../x", &e), 0);
	assert_int_equal(source_open(&w->spec, "mount", "data", SOURCE_READ, &s, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_string_equal(e.field, "forbid");
}

static void test_own_state(void **state)
{
	struct world *w = *state;
	auto_free char *dir = str_format("%s/data/in", w->base);

	assert_opens(w, "data");
	setenv("CLOCHE_RUNTIME_DIR", dir, 1);
	assert_denied(w, "data");
	assert_denied(w, "data/in");
	assert_opens(w, "empty");
}

static void test_allow_lists(void **state)
{
	struct world *w = *state;
	struct err e = {0};

	spec_set(&w->spec, "mount_read", "data", &e);
	assert_int_equal(open_as(w, "data/in", SOURCE_READ), ERR_NONE);
	assert_int_equal(open_as(w, "data/in", SOURCE_WRITE), ERR_NONE);
	assert_int_equal(open_as(w, "empty", SOURCE_READ), ERR_DENIED);
	assert_int_equal(open_as(w, "empty", SOURCE_WRITE), ERR_DENIED);
	spec_set(&w->spec, "mount_write", "home/project", &e);
	assert_int_equal(open_as(w, "data/in", SOURCE_WRITE), ERR_DENIED);
	assert_int_equal(open_as(w, "home/project/sub", SOURCE_WRITE), ERR_NONE);
	assert_int_equal(open_as(w, "home/project/sub", SOURCE_READ), ERR_NONE);
	/* a link from an allowed directory to one that is not */
	assert_int_equal(symlink("../empty", "data/out"), 0);
	assert_int_equal(open_as(w, "data/out", SOURCE_READ), ERR_DENIED);
	/* the forbidden list wins */
	spec_set(&w->spec, "mount_read", "home", &e);
	assert_int_equal(open_as(w, "home/.ssh", SOURCE_READ), ERR_DENIED);
	/* "database" is not below "data" */
	make_dir("database");
	assert_int_equal(open_as(w, "database", SOURCE_READ), ERR_DENIED);
}

static void test_missing_and_removed(void **state)
{
	struct world *w = *state;

	assert_int_equal(open_as(w, "nope", SOURCE_READ), ERR_NOT_FOUND);
	assert_int_equal(open_as(w, "", SOURCE_READ), ERR_NOT_FOUND);
	assert_int_equal(open_as(w, "data/file/x", SOURCE_READ), ERR_NOT_FOUND);
	make_dir("gone");
	assert_int_equal(chdir("gone"), 0);
	assert_int_equal(rmdir("../gone"), 0);
	assert_int_equal(open_as(w, ".", SOURCE_COPY), ERR_NOT_FOUND);
	assert_int_equal(chdir(w->base), 0);
	/* a name that only looks like the kernel's mark */
	make_dir("old (deleted)");
	assert_opens(w, "old (deleted)");
}

static void test_special_files(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sock"};
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct world *w = *state;

	assert_int_equal(mkfifo("data/fifo", 0600), 0);
	assert_int_equal(bind(fd, (void *)&address, sizeof(address)), 0);
	assert_denied(w, "data/fifo");
	assert_denied(w, "sock");
}

static void test_tmp_sockets(void **state)
{
	struct world *w = *state;

	/* HOME of this test lies in /tmp, which would forbid /tmp by itself */
	setenv("HOME", "/root", 1);
	assert_int_equal(open_as(w, "/tmp", SOURCE_READ), ERR_DENIED);
	assert_int_equal(open_as(w, "/tmp", SOURCE_COPY), ERR_NONE);
}

static void test_message(void **state)
{
	struct world *w = *state;
	auto_free char *real = str_format("%s/home/.ssh", w->base);
	struct source s;
	struct err e = {0};

	assert_int_equal(symlink("../home/.ssh", "data/\033key"), 0);
	assert_int_equal(source_open(&w->spec, "workspace", "data/\033key", SOURCE_WRITE, &s, &e),
			 -1);
	assert_non_null(strstr(e.msg, "workspace: 'data/?key'"));
	assert_non_null(strstr(e.msg, real));
	assert_non_null(strstr(e.msg, "; name a directory elsewhere"));
}

/* In a child: a failed assertion of cmocka would go on with the next test there. */
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void child_dir(const char *path)
{
	CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static void write_text(const char *path, const char *text)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* As root a mount namespace is enough; others need a user namespace, in which they are root. */
static bool enter_own_mounts(void)
{
	auto_free char *uid = str_format("0 %u 1", geteuid()),
		       *gid = str_format("0 %u 1", getegid());

	if (unshare(CLONE_NEWNS) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			return false;
		write_text("/proc/self/setgroups", "deny");
		write_text("/proc/self/uid_map", uid);
		write_text("/proc/self/gid_map", gid);
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Runs fn in a mount namespace of its own; the result of the child is the test's. */
static void in_own_mounts(struct world *w, void (*fn)(struct world *))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (!enter_own_mounts())
			_exit(77);
		fn(w);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("no mount namespace here\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static enum err_kind kind_of(struct world *w, const char *path, enum source_use use)
{
	struct source s;
	struct err e = {0};

	return source_open(&w->spec, "mount", path, use, &s, &e) == 0 ? ERR_NONE : e.kind;
}

static bool denied(struct world *w, const char *path)
{
	return kind_of(w, path, SOURCE_READ) == ERR_DENIED &&
	       kind_of(w, path, SOURCE_WRITE) == ERR_DENIED &&
	       kind_of(w, path, SOURCE_COPY) == ERR_DENIED;
}

static bool opens(struct world *w, const char *path)
{
	return kind_of(w, path, SOURCE_READ) == ERR_NONE &&
	       kind_of(w, path, SOURCE_WRITE) == ERR_NONE &&
	       kind_of(w, path, SOURCE_COPY) == ERR_NONE;
}

static bool bind_dir(const char *from, const char *to)
{
	return mount(from, to, NULL, MS_BIND, NULL) == 0;
}

/* The secret, the home and a part of the secret, each shown somewhere else. */
static void bound_elsewhere(struct world *w)
{
	child_dir("home/.ssh/part");
	child_dir("data/a");
	child_dir("data/b");
	child_dir("data/c");
	child_dir("data/d");
	CHECK(bind_dir("home/.ssh", "data/a"));
	CHECK(bind_dir("home", "data/b"));
	CHECK(bind_dir("home/.ssh/part", "data/c"));
	CHECK(bind_dir("home/project", "data/d"));
	CHECK(denied(w, "data/a"));
	CHECK(denied(w, "data/a/part"));
	CHECK(denied(w, "data/b"));
	CHECK(denied(w, "data/b/.ssh/part"));
	CHECK(denied(w, "data/b/.netrc"));
	CHECK(opens(w, "data/b/project"));
	CHECK(denied(w, "data/c"));
	CHECK(opens(w, "data/d"));
	CHECK(opens(w, "data/d/sub"));
	CHECK(opens(w, "data/in"));
}

/* What is mounted below the source comes along, unless it is only the lower of an overlay. */
static void bound_below(struct world *w)
{
	child_dir("data/in/deep");
	CHECK(bind_dir("home/.ssh", "data/in/deep"));
	CHECK(kind_of(w, "data", SOURCE_READ) == ERR_DENIED);
	CHECK(kind_of(w, "data", SOURCE_WRITE) == ERR_DENIED);
	CHECK(kind_of(w, "data", SOURCE_COPY) == ERR_NONE);
	CHECK(opens(w, "empty"));
}

/* Another directory mounted over the secret: then that directory is the secret. */
static void bound_over(struct world *w)
{
	child_dir("data/keys");
	child_dir("data/keys/old");
	CHECK(opens(w, "data"));
	CHECK(bind_dir("data/keys", "home/.ssh"));
	CHECK(denied(w, "data/keys"));
	CHECK(denied(w, "data/keys/old"));
	CHECK(denied(w, "data"));
	CHECK(opens(w, "data/in"));
}

static void kernel_file_systems(struct world *w)
{
	child_dir("data/in/proc");
	CHECK(mount("/proc", "data/in/proc", NULL, MS_BIND | MS_REC, NULL) == 0);
	CHECK(denied(w, "data/in/proc"));
	CHECK(denied(w, "data/in/proc/sys"));
	CHECK(kind_of(w, "data/in", SOURCE_READ) == ERR_DENIED);
	CHECK(kind_of(w, "data/in", SOURCE_COPY) == ERR_NONE);
}

/* Services keep their sockets in /run, and desktops mount removable disks there. */
static void run_directory(struct world *w)
{
	CHECK(mount("tmpfs", "/run", "tmpfs", 0, NULL) == 0);
	child_dir("/run/media");
	child_dir("/run/media/disk");
	child_dir("/run/podman");
	child_dir("/run/user");
	child_dir("/run/user/1000");
	CHECK(opens(w, "/run/media/disk"));
	CHECK(denied(w, "/run/podman"));
	CHECK(denied(w, "/run/user/1000"));
	CHECK(denied(w, "/run"));
	if (access("/var/run/podman", F_OK) == 0)
		CHECK(denied(w, "/var/run/podman"));
}

static void test_run_directory(void **state)
{
	in_own_mounts(*state, run_directory);
}

static void test_bound_elsewhere(void **state)
{
	in_own_mounts(*state, bound_elsewhere);
}

static void test_bound_below(void **state)
{
	in_own_mounts(*state, bound_below);
}

static void test_bound_over(void **state)
{
	in_own_mounts(*state, bound_over);
}

static void test_kernel_file_systems(void **state)
{
	in_own_mounts(*state, kernel_file_systems);
}

static void test_mountinfo(void **state)
{
	struct mountinfo m;
	struct err e = {0};

	(void)state;
	assert_int_equal(mountinfo_parse(str_copy("27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n"
						  "30 27 0:9 /a\\040b /x\\134y rw - tmpfs t rw\n"),
					 &m, &e),
			 0);
	assert_int_equal(m.count, 2);
	assert_int_equal(m.entries[1].id, 30);
	assert_string_equal(m.entries[1].dev, "0:9");
	assert_string_equal(m.entries[1].root, "/a b");
	assert_string_equal(m.entries[1].point, "/x\\y");
	assert_string_equal(m.entries[0].type, "ext4");
	mountinfo_done(&m);
	assert_int_equal(mountinfo_parse(str_copy("27 1 254:0 / / rw ext4\n"), &m, &e), -1);
	assert_int_equal(mountinfo_parse(str_copy("27\n"), &m, &e), -1);
}

struct mount_case {
	const char *text, *source, *target; /* target NULL: refused */
	bool writable;
};

/* Another directory, a link to another, and none in its place. */
static void test_a_swapped_source_is_refused(void **state)
{
	struct world *w = *state;
	struct err e = {0};
	struct source s;
	int fd;

	assert_int_equal(source_open(&w->spec, "mount", "data", SOURCE_READ, &s, &e), 0);
	fd = source_reopen(&s, &e);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(rename("data", "old"), 0);
	assert_int_equal(source_reopen(&s, &e), -1);
	assert_int_equal(rename("empty", "data"), 0);
	assert_int_equal(source_reopen(&s, &e), -1);
	assert_int_equal(e.kind, ERR_CONFLICT);
	assert_int_equal(rename("data", "empty"), 0);
	/* The same directory, but by a link. */
	assert_int_equal(symlink("old", "data"), 0);
	assert_int_equal(source_reopen(&s, &e), -1);
	close(s.fd);
}

static void test_mount_request(void **state)
{
	static const struct mount_case cases[] = {
		{"/a:/b", "/a", "/b", false},
		{"/a:/b:ro", "/a", "/b", false},
		{"/a:/b:rw", "/a", "/b", true},
		{"rel/x:/b", "rel/x", "/b", false},
		{"a:b:/c", "a:b", "/c", false},
		{".://b//./c/", ".", "/b/c", false},
		{"/a:/procedure", "/a", "/procedure", false},
		{"", NULL, NULL, false},
		{"/a", NULL, NULL, false},
		{"/a:", NULL, NULL, false},
		{":/b", NULL, NULL, false},
		{":", NULL, NULL, false},
		{"/a:b", NULL, NULL, false},
		{"/a:ro", NULL, NULL, false},
		{"/a:/b:wr", NULL, NULL, false},
		{"/a:/b/../c", NULL, NULL, false},
		{"/a:/..", NULL, NULL, false},
		{"/a:/", NULL, NULL, false},
		{"/a://", NULL, NULL, false},
		{"/a:/proc", NULL, NULL, false},
		{"/a:/proc/x", NULL, NULL, false},
		{"/a:/./sys", NULL, NULL, false},
		{"/a:/dev/shm:rw", NULL, NULL, false},
		{"/a:/b\nc", NULL, NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct mount_request m = {.source = "untouched"};
		struct err e = {0};
		int rc = mount_request_parse(cases[i].text, &m, &e);

		if (rc != (cases[i].target ? 0 : -1))
			fail_msg("'%s': %d", cases[i].text, rc);
		if (rc < 0) {
			assert_string_equal(m.source, "untouched");
			assert_string_equal(e.field, "mount");
			continue;
		}
		assert_string_equal(m.source, cases[i].source);
		assert_string_equal(m.target, cases[i].target);
		assert_int_equal(m.writable, cases[i].writable);
	}
}

static void test_mount_request_long(void **state)
{
	static char text[3 * PATH_MAX];
	struct mount_request m;
	struct err e = {0};

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	memcpy(text + sizeof(text) - 4, ":/b", 4);
	assert_int_equal(mount_request_parse(text, &m, &e), -1);
	memset(text, 'a', sizeof(text) - 1);
	text[1] = ':';
	text[2] = '/';
	assert_int_equal(mount_request_parse(text, &m, &e), -1);
}

#define WORLD(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD(test_reports_real_path),
		WORLD(test_host_places),
		WORLD(test_root_home),
		WORLD(test_own_home),
		WORLD(test_symlinks_and_dots),
		WORLD(test_magic_links),
		WORLD(test_forbidden_symlink_target),
		WORLD(test_symlinked_home),
		WORLD(test_hard_link),
		WORLD(test_anywhere),
		WORLD(test_forbid_list),
		WORLD(test_forbid_unusable),
		WORLD(test_own_state),
		WORLD(test_allow_lists),
		WORLD(test_missing_and_removed),
		WORLD(test_special_files),
		WORLD(test_tmp_sockets),
		WORLD(test_message),
		WORLD(test_run_directory),
		WORLD(test_bound_elsewhere),
		WORLD(test_bound_below),
		WORLD(test_bound_over),
		WORLD(test_kernel_file_systems),
		cmocka_unit_test(test_mountinfo),
		cmocka_unit_test_setup_teardown(test_a_swapped_source_is_refused, set_up,
						tear_down),
		cmocka_unit_test(test_mount_request),
		cmocka_unit_test(test_mount_request_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The overlay is mounted by a child, rootless in a user namespace of its own, and only a file descriptor of it comes
 * back: it is attached nowhere.
 */
#include "image/build/view.h"

#include "base/fd_message.h"
#include "image/links.h"
#include "kern/caps.h"
#include "kern/mount.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <sys/socket.h>
#include <sys/wait.h>

/*
 * Below the maker's directory: links to layers, and empty layers, because an overlay needs two. It goes by a path,
 * because what was opened before belongs to mounts that a new namespace does not have.
 */
static char *make_place(struct image_maker *m, struct err *e)
{
	auto_free char *path =
		str_format("%s/tmp/%s/view-%u", m->store.path, m->tmp_name, m->made++);
	auto_close int dir = -1;

	if (mkdir(path, 0700) == 0)
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0 && mkdirat(dir, "0", 0755) == 0 && mkdirat(dir, "1", 0755) == 0)
		return take_ptr(path);
	err_sys(e, "cannot make %s", path);
	return NULL;
}

static int mount_view(const struct list *layers, struct err *e)
{
	char names[256 + 8];
	const char *options[] = {"lowerdir", names, "userxattr", NULL, NULL};

	if (image_link_layers(layers, "../../../layers", names, e) < 0)
		return -1;
	strcat(names, *names ? ":0" : "0:1");
	return mount_new("overlay", MOUNT_READ_ONLY | MOUNT_NO_EXEC, options, e);
}

struct viewer {
	const struct list *layers;
	const char *place;
	int sock;
	bool rootless;
	uid_t uid;
	gid_t gid;
};

static void run_child(const struct viewer *v)
{
	struct err e = {0};
	int fd = -1;

	if (v->rootless && userns_map_self(0, v->uid, 0, v->gid, &e) < 0)
		_exit(1);
	if (chdir(v->place) == 0)
		fd = mount_view(v->layers, &e);
	fd_message_send(v->sock, &e, sizeof(e), &fd, fd >= 0, 0);
	_exit(0);
}

int view_open(struct image_maker *m, const struct list *layers, struct err *e)
{
	bool rootless = !caps_can_administer();
	struct clone_args args = {.flags = CLONE_NEWNS | (rootless ? CLONE_NEWUSER : 0),
				  .exit_signal = SIGCHLD};
	auto_free char *place = make_place(m, e);
	struct viewer v = {layers, place, -1, rootless, geteuid(), getegid()};
	struct err why = {0};
	int socks[2], view = -1;
	ssize_t n;
	pid_t pid;

	if (!place)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return err_sys(e, "cannot make a socket");
	v.sock = socks[1];
	pid = sys_clone3(&args);
	if (pid == 0)
		run_child(&v);
	close(socks[1]);
	n = pid < 0 ? -1 : fd_message_receive(socks[0], &why, sizeof(why), &view, 1, 0);
	close(socks[0]);
	if (pid < 0)
		return err_sys(e, "cannot create a process");
	waitpid(pid, NULL, 0);
	if (n != (ssize_t)sizeof(why) || view < 0) {
		*e = why;
		return why.kind ? err_wrap(e, "cannot show the layers")
				: err_set(e, ERR_UNSUPPORTED, "cannot show the layers as one tree");
	}
	return view;
}

char *view_clean(const char *dir, const char *path)
{
	auto_free char *all = *path == '/' ? str_copy(path) : str_format("%s/%s", dir, path);
	char *to = must_alloc(malloc(strlen(all) + 2)), *rest = all, *part;
	size_t len = 0;

	while ((part = strsep(&rest, "/"))) {
		if (!*part || str_equal(part, "."))
			continue;
		if (str_equal(part, "..")) {
			while (len > 0 && to[--len] != '/')
				;
			continue;
		}
		to[len++] = '/';
		memcpy(to + len, part, strlen(part));
		len += strlen(part);
	}
	if (len == 0)
		to[len++] = '/';
	to[len] = '\0';
	return to;
}

/* The path of what was opened, in a tree that is attached nowhere. */
static char *path_of(int fd)
{
	char path[PATH_MAX];

	return io_fd_path(fd, path, sizeof(path)) < 0 || path[0] != '/' ? NULL : str_copy(path);
}

char *view_resolve(int view, const char *path, bool *ret_exists, struct err *e)
{
	auto_free char *clean = view_clean("/", path);
	size_t len = strlen(clean);
	struct stat st;

	/* The longest part of it that is there. */
	for (;;) {
		auto_free char *start = must_alloc(strndup(clean, len ? len : 1));
		auto_close int fd = sys_openat2(view, start, O_PATH | O_CLOEXEC,
						RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

		if (fd >= 0) {
			auto_free char *found = path_of(fd);
			bool is_dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);

			*ret_exists = !clean[len];
			if (!found || (clean[len] && !is_dir))
				break;
			return str_format("%s%s", found[1] || !clean[len] ? found : "",
					  clean + len);
		}
		if (errno != ENOENT || view_stat(view, start, &st))
			break;
		while (len > 0 && clean[--len] != '/')
			;
	}
	err_set(e, ERR_INVALID, "'%.200s' leads through a link to nowhere, or through a file",
		path);
	return NULL;
}

bool view_stat(int view, const char *path, struct stat *ret)
{
	auto_close int fd =
		sys_openat2(view, path[1] ? path + 1 : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC,
			    RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);

	return fd >= 0 && fstat(fd, ret) == 0;
}

bool view_read(int view, const char *path, size_t max, struct buf *ret)
{
	auto_close int fd = sys_openat2(view, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
					RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	auto_free char *text = NULL;
	size_t len;

	if (fd < 0 || io_read_whole(fd, max, &text, &len) < 0)
		return false;
	buf_add(ret, text, len);
	return true;
}

/* Tasks of warm sandboxes: their reports to the warm host, and how a command receives its order. */
#include "base/exec_path.h"
#include "guest/exec/command.h"
#include "guest/warm/host_internal.h"
#include "guest/link/server.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "model/snippet.h"
#include "sandbox/inside/message.h"

#include <sys/mman.h>

static void check_report(struct lane *s, int listener)
{
	if (s->told.err.kind != ERR_NONE || lane_watch_listener(s, listener) < 0) {
		close_fd(&listener);
		s->host->why = s->told.err;
		s->host->failures++;
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
		return;
	}
	if (s->state == LANE_ORDERED && s->task)
		lane_set_ready(s);
}

void lane_take_task(struct lane *s, const struct warm_report *told, int listener)
{
	s->told = *told;
	s->task = s->host->pages[s->index].task;
	/* A task that was reaped before its lane was known will not be reaped again. */
	if (kill(s->task, 0) < 0)
		s->task = 0;
	check_report(s, listener);
}

void lane_take_report(void *arg, uint32_t events)
{
	struct lane *s = arg;
	struct warm_message m = {0};
	int fds[KEEPER_MAX_FDS];

	(void)!message_receive(s->report.fd, &m, sizeof(m), fds, &m.told.err);
	s->told = m.told;
	lane_unwatch(s, &s->report);
	check_report(s, fds[0]);
}

/* ---- for commands, in the task ---- */

#define USUAL_BYTES 4096
#define KEPT_BYTES (64u << 10)

/*
 * The memory belongs to the spawner as well and stays there: the spawner's next task uses it again,
 * or unmaps it. There is no heap to take it from, since a lane has dropped its heap.
 */
static char *take_memory(size_t size)
{
	static char *place;
	static size_t place_size;

	if (place && (place_size < size || place_size > KEPT_BYTES)) {
		munmap(place, place_size);
		place = NULL;
	}
	if (place)
		return place;
	place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	place_size = size;
	if (place == MAP_FAILED)
		_exit(125);
	return place;
}

static void read_whole(char *to, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = read(0, to + got, size - got);

		if (n <= 0)
			_exit(0); /* the warm host closed the stream: the task is not needed */
		got += (size_t)n;
	}
}

/* Executes what spawn_pack_order wrote. `at` has room for a pointer to each part, and two more. */
static int exec_order(char *bytes, size_t len, char **at)
{
	size_t n = 0, argc = 0;

	for (size_t i = 0; i < len; i += strlen(bytes + i) + 1) {
		at[n++] = bytes + i;
		if (n == 2)
			argc = (size_t)atoi(at[1]);
		if (n > 2 && n == 2 + argc)
			at[n++] = NULL;
	}
	at[n] = NULL;
	return chdir(at[0]) < 0 ? errno : exec_path_run(at + 2, at + 3 + argc, NULL, NULL);
}

/* ---- files that come with an order ---- */

/* The text up to the next NUL; the block ends with one (read_block). */
static char *take_text(char **at, const char *end)
{
	char *text = *at;

	*at += strlen(text) + 1;
	return *at > end ? "" : text;
}

static void make_parents(char *path)
{
	if (str_starts(path, "/run/code/"))
		(void)mkdir(WARM_CODE_PLACE, 0755);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(path, 0755);
		*slash = '/';
	}
}

/* As the front packs them (api/rest/run_task.c). Whoever asked has made sure that they can be written. */
static void place_files(char *at, size_t len)
{
	const char *end = at + len;

	while (at < end) {
		char *path = take_text(&at, end);
		mode_t mode = (mode_t)strtoul(take_text(&at, end), NULL, 8);
		size_t size = strtoul(take_text(&at, end), NULL, 10);
		int fd;

		if (at > end || size > (size_t)(end - at))
			_exit(125);
		make_parents(path);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (fd < 0 || io_write_all(fd, at, size) < 0)
			_exit(125);
		close(fd);
		at += size;
	}
}

/* The memory is the spawner's, too: what is mapped here is unmapped before the exec. */
static void take_files(void)
{
	uint32_t size;
	char *bytes;

	read_whole((char *)&size, sizeof(size));
	if (size == 0)
		return;
	bytes = mmap(NULL, (size_t)size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	if (bytes == MAP_FAILED)
		_exit(125);
	read_whole(bytes, size);
	place_files(bytes, size);
	munmap(bytes, (size_t)size + 1);
}

void task_run(void *arg)
{
	struct lane_page *page = arg;
	size_t room;
	uint32_t size;
	struct err e;
	char *bytes;

	umask(022);
	/* Most orders name this directory: its path is in the kernel's caches by then. */
	(void)!chdir("/workspace");
	*take_memory(USUAL_BYTES) = '\0';
	/* Four bytes of length, then so many bytes. */
	read_whole((char *)&size, sizeof(size));
	room = (size_t)size + 1 + sizeof(char *) - ((size_t)size + 1) % sizeof(char *);
	bytes = take_memory(room + (size + 2) * sizeof(char *));
	read_whole(bytes, size);
	bytes[size] = '\0';
	take_files();
	if (seccomp_own_apply(&e) < 0)
		_exit(125);
	page->exec_errno = exec_order(bytes, size, (char **)(void *)(bytes + room));
	_exit(page->exec_errno == ENOENT ? 127 : 126);
}

/* ---- Node.js ---- */

/* Not on the heap, which a lane drops. */
static struct {
	char path[PATH_MAX]; /* "": there is none */
	char text[8192];
	char *env[128];
} node;

void task_find_node(const struct guest *g)
{
	auto_list struct list env = {0};
	const char *dirs, *found;
	char room[PATH_MAX];
	size_t at = 0, count = 0;

	env_make(g, "", "/workspace", false, &env);
	for (size_t i = 0; i < env.count && count + 1 < ARRAY_LEN(node.env); i++) {
		size_t len = strlen(env.items[i]) + 1;

		if (at + len > sizeof(node.text))
			return;
		node.env[count++] = memcpy(node.text + at, env.items[i], len);
		at += len;
	}
	dirs = exec_path_of(node.env);
	while ((found = exec_path_next("node", &dirs, room)))
		if (access(found, X_OK) == 0) {
			snprintf(node.path, sizeof(node.path), "%s", found);
			return;
		}
}

const char *task_node(void)
{
	return node.path[0] ? node.path : NULL;
}

void task_run_node(void *arg)
{
	static char *argv[] = {"node", "-r", "/run/cloche/waiter.js", SNIPPET_NODE_PROGRAM, NULL};
	struct lane_page *page = arg;

	(void)!chdir("/workspace");
	execve(node.path, argv, node.env);
	page->exec_errno = errno;
	_exit(126);
}

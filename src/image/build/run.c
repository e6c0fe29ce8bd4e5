/*
 * Starts `cloche image-step` (cli/launcher/image_step.c), which runs the command and then sends its layer. Output is
 * passed on as it comes.
 */
#include "image/build/run.h"

#include "image/make/process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FIRST_FD 500 /* above all that this process has */
#define GIVEN 6	     /* of them, before the files */
/* The digest of a tar without entries. */
#define EMPTY_TAR "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"

enum { LAYER, CACHE, PARTS };

struct running {
	const struct run *run;
	pid_t pid;
	int out;	  /* of the command, with its errors */
	int parts[PARTS]; /* tars */
};

void run_add_file(struct run *r, const char *path, const void *bytes, size_t len, mode_t mode)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	if (fd < 0 || io_write_all(fd, path, strlen(path)) < 0 || io_write_all(fd, "\n", 1) < 0 ||
	    io_write_all(fd, bytes, len) < 0 || fchmod(fd, mode) < 0)
		must_alloc(NULL);
	r->files = must_alloc(realloc(r->files, (r->file_count + 1) * sizeof(*r->files)));
	r->files[r->file_count++] = (struct run_file){str_copy(path), fd};
}

void run_done(struct run *r)
{
	for (size_t i = 0; i < r->file_count; i++) {
		free(r->files[i].path);
		close(r->files[i].memfd);
	}
	free(r->files);
	list_done(&r->argv);
	list_done(&r->env);
	list_done(&r->left_out);
	list_done(&r->cached);
}

/* ---- starting ---- */

static bool is_of_network(const char *option)
{
	static const char *const names[] = {"--net", "--allow", "--deny"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_equal(option, names[i]))
			return true;
	return false;
}

static void set_arguments(const struct run *r, struct list *to)
{
	const struct list *options = r->build->run_options;
	const char *const first[] = {r->build->launcher, "image-step", NULL};
	static const char *const usual[] = {"--root", "overlay",   "--empty", "--user",
					    "root",   "--memory",  "4G",      "--disk",
					    "4G",     "--timeout", "1800s",   NULL};

	list_add_all(to, first);
	list_take(to, str_format("%d", FIRST_FD));
	list_take(to, str_format("%u:%u", r->uid, r->gid));
	list_add_all(to, usual);
	for (size_t i = 0; options && i + 1 < options->count; i += 2) {
		if (r->no_network && is_of_network(options->items[i]))
			continue;
		list_add(to, options->items[i]);
		list_add(to, options->items[i + 1]);
	}
	list_add(to, "--image");
	list_take(to, str_format("sha256:%s", r->image));
	list_add(to, "--workdir");
	list_add(to, r->workdir);
	for (size_t i = 0; i < r->env.count; i++) {
		list_add(to, "--env");
		list_add(to, r->env.items[i]);
	}
	list_add(to, "--");
	for (size_t i = 0; i < r->argv.count; i++)
		list_add(to, r->argv.items[i]);
}

/* The store is all that the launcher has to know. */
static void set_variables(const struct run *r, struct list *to)
{
	const char *path = r->maker->store.path, *slash = strrchr(path, '/');

	list_add(to, "LC_ALL=C");
	list_take(to, str_format("CLOCHE_STATE_DIR=%.*s", slash ? (int)(slash - path) : 0, path));
}

static int paths_file(const struct list *left_out, const struct list *taken)
{
	int fd = memfd_create("paths", MFD_CLOEXEC);

	for (size_t i = 0; left_out && i < left_out->count; i++)
		dprintf(fd, "-%s\n", left_out->items[i]);
	for (size_t i = 0; taken && i < taken->count; i++)
		dprintf(fd, "+%s\n", taken->items[i]);
	return fd < 0 || lseek(fd, 0, SEEK_SET) < 0 ? -1 : fd;
}

/* given: fds that the child gets from FIRST_FD on. */
static int spawn(struct running *g, const int *given, size_t count, int out, struct err *e)
{
	posix_spawn_file_actions_t actions;
	auto_list struct list argv = {0}, env = {0};
	int rc;

	set_arguments(g->run, &argv);
	set_variables(g->run, &env);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, out, 2);
	for (size_t i = 0; i < count; i++)
		posix_spawn_file_actions_adddup2(&actions, given[i], FIRST_FD + (int)i);
	rc = posix_spawn(&g->pid, argv.items[0], &actions, NULL, argv.items, env.items);
	posix_spawn_file_actions_destroy(&actions);
	if (rc == 0)
		return 0;
	g->pid = -1;
	errno = rc;
	return err_sys(e, "cannot run %s", argv.items[0]);
}

/* The rules of the network, or /dev/null. */
static int rules_file(const struct run *r, int null)
{
	const struct buf *rules = r->no_network ? NULL : r->build->rules;
	int fd = rules ? memfd_create("rules", MFD_CLOEXEC) : fcntl(null, F_DUPFD_CLOEXEC, 3);

	if (fd >= 0 && rules && io_write_all(fd, buf_head(rules), rules->len) < 0)
		close_fd(&fd);
	return fd;
}

static int start(struct running *g, struct err *e)
{
	const struct run *r = g->run;
	bool caches = r->cached.count > 0;
	auto_close int left = paths_file(&r->left_out, NULL), taken = paths_file(NULL, &r->cached);
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	auto_close int rules = rules_file(r, null);
	int layer[2] = {-1, -1}, cache[2] = {-1, -1}, out[2] = {-1, -1}, rc;
	auto_free int *given = must_alloc(calloc(GIVEN + r->file_count, sizeof(*given)));

	if (left < 0 || taken < 0 || null < 0 || rules < 0 || pipe2(layer, O_CLOEXEC) < 0 ||
	    pipe2(cache, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make a pipe");
	memcpy(given,
	       (const int[GIVEN]){r->maker->guest, layer[1], left, caches ? cache[1] : null, taken,
				  rules},
	       GIVEN * sizeof(*given));
	for (size_t i = 0; i < r->file_count; i++)
		given[GIVEN + i] = r->files[i].memfd;
	rc = spawn(g, given, GIVEN + r->file_count, out[1], e);
	close(layer[1]);
	close(cache[1]);
	close(out[1]);
	g->parts[LAYER] = layer[0];
	g->parts[CACHE] = cache[0];
	g->out = out[0];
	return rc;
}

/* ---- while it runs ---- */

/* False at the end. */
static bool pass_output(struct running *g)
{
	const struct image_build *b = g->run->build;
	char bytes[16384];
	ssize_t n = read(g->out, bytes, sizeof(bytes));

	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0)
		return false;
	if (b->event)
		b->event(b->arg, &(struct build_event){
					 .kind = BUILD_OUTPUT, .text = bytes, .len = (size_t)n});
	return true;
}

/* Waits until the layer comes. False: the command failed. */
static bool await_layer(struct running *g)
{
	struct pollfd polls[] = {{g->out, POLLIN, 0}, {g->parts[LAYER], POLLIN, 0}};

	for (;;) {
		if (poll(polls, 2, -1) < 0 && errno != EINTR)
			return false;
		if (polls[1].revents & POLLIN)
			return true;
		if (polls[0].revents && !pass_output(g))
			polls[0].fd = -1;
		if (polls[1].revents & (POLLHUP | POLLERR))
			return false;
	}
}

static int take_part(struct running *g, int part, char hex[IMAGE_HEX + 1], struct err *e)
{
	struct image_layer l = {.blob = g->parts[part]};

	if (image_layer_unpack(g->run->maker, &l, e) < 0)
		return -1;
	close_fd(&g->parts[part]);
	hex[0] = '\0';
	if (str_equal(l.hex, EMPTY_TAR))
		return 0;
	memcpy(hex, l.hex, sizeof(l.hex));
	return image_layer_keep(g->run->maker, &l, e);
}

static int take_parts(struct running *g, char layer[IMAGE_HEX + 1], char cache[IMAGE_HEX + 1],
		      struct err *e)
{
	cache[0] = '\0';
	if (take_part(g, LAYER, layer, e) < 0)
		return -1;
	return g->run->cached.count ? take_part(g, CACHE, cache, e) : 0;
}

/* 0: it ended well, and sent all. */
static int end(struct running *g, struct err *e)
{
	const struct run *r = g->run;
	int status = 0;

	while (g->out >= 0 && pass_output(g))
		;
	while (waitpid(g->pid, &status, 0) < 0 && errno == EINTR)
		;
	g->pid = -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (!WIFEXITED(status))
		return err_set(e, ERR_SYSTEM, "the sandbox was ended by signal %d",
			       WTERMSIG(status));
	return err_set(e, ERR_INVALID, "the command failed with exit status %d%s",
		       WEXITSTATUS(status),
		       WEXITSTATUS(status) != 125 && (r->no_network || !r->build->has_network)
			       ? r->build->is_closed ? " (it had no network)"
						     : " (it had no network; --net and "
						       "--allow give it one)"
			       : "");
}

static void stop(struct running *g)
{
	if (g->pid > 0) {
		kill(g->pid, SIGKILL);
		waitpid(g->pid, NULL, 0);
	}
	close_fd(&g->out);
	for (int i = 0; i < PARTS; i++)
		close_fd(&g->parts[i]);
}

int run_command(struct run *r, char layer[IMAGE_HEX + 1], char cache[IMAGE_HEX + 1], struct err *e)
{
	struct running g = {.run = r, .pid = -1, .out = -1, .parts = {-1, -1}};
	struct err why = {0};
	int rc = start(&g, e);

	if (rc == 0) {
		bool comes = await_layer(&g);

		rc = comes ? take_parts(&g, layer, cache, e) : 0;
		/* Whoever ended too early says why; but it may wait for us, if we failed. */
		if (rc == 0 && end(&g, &why) < 0) {
			*e = why;
			rc = -1;
		} else if (rc == 0 && !comes) {
			rc = err_set(e, ERR_SYSTEM, "the sandbox sent no layer");
		}
	}
	stop(&g);
	return rc;
}

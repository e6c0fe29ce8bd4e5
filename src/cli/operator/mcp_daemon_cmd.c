/* Starts and ends an ephemeral daemon: its directory, its configuration, its process. */
#include "cli/operator/mcp_daemon_cmd.h"

#include "cli/cli.h"
#include "policy/paths/source.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STOP_MS 1500

/* ---- mounts of the host ---- */

struct host_mount {
	char source[PATH_MAX], target[PATH_MAX];
	bool writable;
};

/* The i-th of --workspace and --mount. 1: it is in ret; 0: there are no more; -1. */
static int mount_at(const struct sandbox_spec *s, size_t i, struct host_mount *ret, struct err *e)
{
	struct mount_request m;

	if (s->workspace && i-- == 0) {
		snprintf(ret->source, sizeof(ret->source), "%s", s->workspace);
		snprintf(ret->target, sizeof(ret->target), "/workspace");
		ret->writable = true;
		return 1;
	}
	if (i >= s->mounts.count)
		return 0;
	if (mount_request_parse(s->mounts.items[i], &m, e) < 0)
		return -1;
	memcpy(ret->source, m.source, sizeof(ret->source));
	memcpy(ret->target, m.target, sizeof(ret->target));
	ret->writable = m.writable;
	return 1;
}

int ephemeral_daemon_check(const struct sandbox_spec *s, struct err *e)
{
	struct host_mount m;
	struct source source;
	int rc;

	for (size_t i = 0; (rc = mount_at(s, i, &m, e)) > 0; i++) {
		if (source_open(s, i == 0 && s->workspace ? "workspace" : "mount", m.source,
				m.writable ? SOURCE_WRITE : SOURCE_READ, &source, e) < 0)
			return -1;
		close(source.fd);
	}
	return rc;
}

json_t *ephemeral_daemon_volumes(const struct sandbox_spec *s)
{
	json_t *list = json_array();
	struct err e = {0};
	struct host_mount m;

	for (size_t i = 0; mount_at(s, i, &m, &e) > 0; i++) {
		auto_free char *name = str_format("shown-%zu", i);

		json_array_append_new(list, json_pack("{s:s, s:s, s:b}", "name", name, "target",
						      m.target, "writable", m.writable));
	}
	return list;
}

/* ---- its configuration ---- */

/* JSON, which is YAML as well. The sandboxes end with the daemon, and it with its client: years are no bound. */
static int write_config(const struct ephemeral_daemon *d, const struct sandbox_spec *s,
			struct err *e)
{
	auto_free char *path = str_format("%s/config.yaml", d->dir),
		       *listen = str_format("unix:%s", d->target.unix_path),
		       *state = str_format("%s/state", d->dir), *run = str_format("%s/run", d->dir);
	json_auto_t *config =
		json_pack("{s:[s], s:s, s:s, s:{}, s:{s:s}}", "listen", listen, "state_dir", state,
			  "runtime_dir", run, "volumes", "ceilings", "ttl", "87600h");
	json_t *volumes = json_object_get(config, "volumes");
	struct host_mount m;
	char real[PATH_MAX];

	for (size_t i = 0; mount_at(s, i, &m, e) > 0; i++) {
		auto_free char *name = str_format("shown-%zu", i);

		if (!realpath(m.source, real))
			return err_sys(e, "%s", m.source);
		json_object_set_new(
			volumes, name,
			json_pack("{s:s, s:b}", "path", real, "read_only", !m.writable));
	}
	if (!json_object_size(volumes))
		json_object_del(config, "volumes");
	return json_dump_file(config, path, JSON_INDENT(2)) < 0
		       ? err_sys(e, "cannot write %s", path)
		       : 0;
}

/* ---- its life ---- */

static int make_daemon_dir(struct ephemeral_daemon *d, struct err *e)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	char path[128];

	if (!base || base[0] != '/' || strlen(base) > 48 || access(base, W_OK) < 0)
		base = "/tmp";
	snprintf(d->dir, sizeof(d->dir), "%s/cloche-mcp-XXXXXX", base);
	if (!mkdtemp(d->dir)) {
		d->dir[0] = '\0';
		return err_sys(e, "cannot make a directory in %s", base);
	}
	/* Roles of the daemon run as other users and must pass this directory. */
	chmod(d->dir, 0711);
	snprintf(path, sizeof(path), "%s/state", d->dir);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/run", d->dir);
	mkdir(path, 0700);
	snprintf(d->target.unix_path, sizeof(d->target.unix_path), "%s/run/mcp.sock", d->dir);
	return 0;
}

/* The daemon removes its directory itself, unless it was killed. */
static void remove_daemon_dir(struct ephemeral_daemon *d)
{
	if (d->dir[0])
		cli_remove_tree(d->dir);
	d->dir[0] = '\0';
}

/* Between fork and exec. The end of the daemon's stdin tells it to end; its stderr is ours. */
static void become_daemon(const char *program, const struct ephemeral_daemon *d, const char *config,
			  int life)
{
	char *argv[] = {(char *)program, "serve",	 "--private", (char *)d->dir,
			"--config",	 (char *)config, NULL};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(life, 0);
	dup2(2, 1);
	setsid();
	setenv("CLOCHE_LOG", "warn", 0);
	unsetenv("CLOCHE_STATE_DIR");
	unsetenv("CLOCHE_RUNTIME_DIR");
	execv(program, argv);
	_exit(125);
}

int ephemeral_daemon_start(struct ephemeral_daemon *d, const struct sandbox_spec *s, struct err *e)
{
	char program[PATH_MAX], config[128];
	int pipe_fds[2];

	*d = (struct ephemeral_daemon){.life = -1};
	if (cli_find_helper("cloched", program, sizeof(program)) < 0)
		return err_set(e, ERR_SYSTEM, "cloched cannot be found");
	if (make_daemon_dir(d, e) < 0)
		return -1;
	if (write_config(d, s, e) < 0) {
		remove_daemon_dir(d);
		return -1;
	}
	snprintf(config, sizeof(config), "%s/config.yaml", d->dir);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make a pipe");
	d->pid = fork();
	if (d->pid == 0)
		become_daemon(program, d, config, pipe_fds[0]);
	close(pipe_fds[0]);
	d->life = pipe_fds[1];
	if (d->pid < 0) {
		d->pid = 0;
		return err_sys(e, "cannot start a daemon");
	}
	return 0;
}

bool ephemeral_daemon_has_ended(struct ephemeral_daemon *d)
{
	if (!d->pid || waitpid(d->pid, NULL, WNOHANG) != d->pid)
		return false;
	d->pid = 0;
	close_fd(&d->life);
	remove_daemon_dir(d);
	return true;
}

void ephemeral_daemon_stop(struct ephemeral_daemon *d)
{
	auto_close int pidfd = -1;
	struct pollfd p = {.events = POLLIN};

	if (!d->pid)
		return;
	pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
	close_fd(&d->life);
	p.fd = pidfd;
	/*
	 * The daemon cleans up after itself. A client that waits for us should not wait long for
	 * that.
	 */
	if (pidfd >= 0)
		poll(&p, 1, STOP_MS);
	if (waitpid(d->pid, NULL, WNOHANG) == d->pid)
		remove_daemon_dir(d);
	d->pid = 0;
}

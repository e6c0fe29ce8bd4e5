/* The broker's side of boot workers: starts them, queues boots, and hands each boot to a free worker. */
#include "provider/ns/ns_internal.h"

#include "base/log.h"
#include "provider/ns/worker/worker.h"
#include "kern/sys.h"
#include "sandbox/inside/message.h"

#include <sys/socket.h>
#include <sys/wait.h>

#define RESTART_MS 1000
#define DEADLINE_MS 12000 /* a little more than boot_sandbox itself has */
/* A journal may be replayed. */
#define DISK_DEADLINE_MS 60000

static void next_job(struct boot_worker *w);

static void fail_job(struct boot_worker *w, const char *why)
{
	struct ns_sandbox *s = take_ptr(w->busy);
	struct err e = {0};

	if (!s)
		return;
	err_set(&e, ERR_SYSTEM, "the sandbox could not be booted: %s", why);
	ns_booted(s, NULL, -1, &e);
}

static void stop_boot_worker(struct boot_worker *w)
{
	loop_unwatch(w->ns->host->loop, &w->watch);
	loop_timer_stop(w->ns->host->loop, &w->timer);
	close_fd(&w->sock);
	if (w->pid > 0)
		kill(w->pid, SIGKILL);
}

static void on_deadline(void *arg)
{
	struct boot_worker *w = arg;

	log_error("a boot worker hangs and is killed", "id", w->busy ? w->busy->i->info.id : "");
	/* The unfinished sandbox dies with it; the worker is started again once it is reaped. */
	stop_boot_worker(w);
	fail_job(w, "it took too long");
}

static void on_result(void *arg, uint32_t events)
{
	static struct boot_result result;
	struct boot_worker *w = arg;
	struct ns_sandbox *s = w->busy;
	int fds[KEEPER_MAX_FDS];
	struct err e = {0};

	if (message_receive(w->sock, &result, sizeof(result), fds, &e) < 0 || !s) {
		stop_boot_worker(w);
		fail_job(w, "the process that made it died");
		return;
	}
	w->busy = NULL;
	s->disk_has_was = result.has_was;
	w->has_worked = true;
	loop_timer_stop(w->ns->host->loop, &w->timer);
	if (fds[0] < 0 && result.err.kind == ERR_NONE)
		err_set(&result.err, ERR_SYSTEM, "the sandbox has no pidfd");
	ns_booted(s, &result.booted, fds[0], result.err.kind ? &result.err : NULL);
	next_job(w);
}

/* All other fds of the broker are close-on-exec. */
static void exec_boot_worker(const struct provider_host *h, pid_t broker, int sock)
{
	char parent[16];
	char *argv[] = {"cloche-boot", parent, NULL};
	int program = fcntl(h->boot_worker, F_DUPFD_CLOEXEC, 64);
	int lifted[] = {fcntl(sock, F_DUPFD_CLOEXEC, 64), fcntl(h->guest, F_DUPFD_CLOEXEC, 64),
			h->own_seccomp ? fcntl(h->own_seccomp, F_DUPFD_CLOEXEC, 64) : 0};

	snprintf(parent, sizeof(parent), "%d", (int)broker);
	if (dup2(lifted[0], BOOT_WORKER_FD_BROKER) >= 0 &&
	    dup2(lifted[1], BOOT_WORKER_FD_GUEST) >= 0 &&
	    (!h->own_seccomp || dup2(lifted[2], BOOT_WORKER_FD_SECCOMP) >= 0))
		syscall(SYS_execveat, program, "", argv, environ, AT_EMPTY_PATH);
	_exit(125);
}

static int start_boot_worker(struct boot_worker *w)
{
	pid_t broker = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	w->pid = fork();
	if (w->pid == 0)
		exec_boot_worker(w->ns->host, broker, pair[1]);
	close(pair[1]);
	if (w->pid < 0) {
		w->pid = 0;
		close(pair[0]);
		return -1;
	}
	w->sock = pair[0];
	w->has_worked = false;
	w->watch =
		(struct loop_watch){.fd = w->sock, .events = EPOLLIN, .call = on_result, .arg = w};
	w->timer = (struct loop_timer){.call = on_deadline, .arg = w};
	if (loop_watch(w->ns->host->loop, &w->watch) < 0)
		stop_boot_worker(w); /* it is started again once it is reaped */
	return 0;
}

/* What the boot worker shows as the root: a directory, or an image of the store. */
static void set_image(struct boot_job *job, const struct config *c, const char *id)
{
	const struct config_image *dir =
		str_starts(id, "dir:") ? config_image_find(c, id + strlen("dir:")) : NULL;

	snprintf(job->image, sizeof(job->image), "%s", dir ? dir->path : id);
	snprintf(job->images, sizeof(job->images), "%s/images", c->state_dir);
}

/* Below the operator's directory, whatever the name (rule 4). */
static int open_directory(const struct provider_host *h, const struct ipc_volume *v, struct err *e)
{
	const struct config_volume *known = config_volume_find(h->config, v->name);
	int top, fd;

	if (!known)
		return err_set(e, ERR_NOT_FOUND, "volumes: there is no '%s'", v->name);
	top = h->volumes[known - h->config->volumes];
	fd = sys_openat2(top, v->sub[0] ? v->sub : ".", O_PATH | O_DIRECTORY | O_CLOEXEC,
			 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (fd < 0)
		return err_field(e, ERR_NOT_FOUND, "volumes", "volumes: '%s' has no directory '%s'",
				 v->name, v->sub);
	return fd;
}

/* The file of a disk, or a directory. */
static int open_volume(const struct ns_sandbox *s, uint32_t number, struct boot_job_volume *ret,
		       struct err *e)
{
	const struct instance_volume *v = s->i->volumes ? &s->i->volumes[number] : NULL;
	int fd;

	if (!v || v->file < 0)
		return open_directory(s->ns->host, &s->boot->volumes[number], e);
	*ret = (struct boot_job_volume){.bytes = v->bytes, .has_key = v->has_key};
	memcpy(ret->key, v->key, sizeof(ret->key));
	fd = fcntl(v->file, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? err_sys(e, "cannot hand over a volume") : fd;
}

static int send_job(struct boot_worker *w, struct ns_sandbox *s, struct err *e)
{
	static struct boot_job job;
	const struct provider_host *h = w->ns->host;
	int fds[2 + IPC_VOLUMES], count = 1, rc = -1;

	job = (struct boot_job){.boot = *s->boot,
				.id_base = s->at.id_base,
				.root = s->i->info.root,
				.has_disk = s->boot->disk_type == DISK_IMAGE,
				.is_ephemeral = h->is_ephemeral,
				.lanes = h->config->warm.lanes,
				.preload_count = h->config->warm.preload_count};
	memcpy(job.preload, h->config->warm.preload, sizeof(job.preload));
	ns_cgroup_choose(s);
	snprintf(job.cgroup, sizeof(job.cgroup), "%s", s->cgroup);
	set_image(&job, h->config, s->boot->image);
	fds[0] = s->listener;
	for (uint32_t i = 0; i < s->boot->volume_count; i++) {
		fds[count] = open_volume(s, i, &job.volumes[i], e);
		if (fds[count] < 0)
			goto out;
		count++;
	}
	if (job.has_disk) {
		fds[count] = ns_disk_open(s, e);
		if (fds[count] < 0)
			goto out;
		count++;
	}
	job.has_disk_key = s->i->has_disk_key;
	memcpy(job.disk_key, s->i->disk_key, sizeof(job.disk_key));
	rc = message_send(w->sock, &job, sizeof(job), fds, count, e);
	explicit_bzero(s->i->disk_key, sizeof(s->i->disk_key));
out:
	explicit_bzero(job.disk_key, sizeof(job.disk_key));
	explicit_bzero(job.volumes, sizeof(job.volumes));
	while (--count > 0)
		close(fds[count]);
	return rc;
}

static void next_job(struct boot_worker *w)
{
	struct ns *ns = w->ns;

	while (w->pid > 0 && w->sock >= 0 && !w->busy && ns->first) {
		struct ns_sandbox *s = ns->first;
		struct err e = {0};

		ns->first = s->next;
		if (!ns->first)
			ns->last = &ns->first;
		w->busy = s;
		if (s->i->is_doomed)
			err_set(&e, ERR_CONFLICT, "it was destroyed meanwhile");
		if (e.kind || send_job(w, s, &e) < 0) {
			w->busy = NULL;
			ns_booted(s, NULL, -1, &e);
			continue;
		}
		loop_timer_set(ns->host->loop, &w->timer,
			       s->boot->disk_type == DISK_IMAGE || s->i->volumes ? DISK_DEADLINE_MS
										 : DEADLINE_MS);
	}
}

void boot_workers_add(struct ns_sandbox *s)
{
	struct ns *ns = s->ns;

	s->next = NULL;
	*ns->last = s;
	ns->last = &s->next;
	for (int i = 0; i < BOOT_WORKERS; i++)
		next_job(&ns->boot_workers[i]);
}

static void on_restart(void *arg)
{
	struct boot_worker *w = arg;

	if (start_boot_worker(w) == 0) {
		next_job(w);
		return;
	}
	/* The host may be short of files or memory just now. */
	log_error("cannot start a boot worker", "error", strerror(errno));
	w->timer = (struct loop_timer){.call = on_restart, .arg = w};
	loop_timer_set(w->ns->host->loop, &w->timer, RESTART_MS);
}

void boot_workers_start(struct ns *ns)
{
	ns->last = &ns->first;
	for (int i = 0; i < BOOT_WORKERS; i++) {
		ns->boot_workers[i] = (struct boot_worker){.ns = ns, .sock = -1};
		on_restart(&ns->boot_workers[i]);
	}
}

void boot_workers_stop(struct provider_host *h)
{
	struct ns *ns = ns_of(h);

	for (int i = 0; ns && i < BOOT_WORKERS; i++) {
		struct boot_worker *w = &ns->boot_workers[i];

		stop_boot_worker(w);
		if (w->pid > 0)
			waitpid(w->pid, NULL, 0);
	}
}

bool boot_workers_reaped(struct provider_host *h, pid_t pid)
{
	struct ns *ns = ns_of(h);

	for (int i = 0; i < BOOT_WORKERS; i++) {
		struct boot_worker *w = &ns->boot_workers[i];

		if (w->pid != pid)
			continue;
		w->pid = 0;
		stop_boot_worker(w);
		fail_job(w, "the process that made it died");
		/* A worker that dies again and again must not keep the broker busy. */
		w->timer = (struct loop_timer){.call = on_restart, .arg = w};
		loop_timer_set(ns->host->loop, &w->timer, w->has_worked ? 0 : RESTART_MS);
		return true;
	}
	return false;
}

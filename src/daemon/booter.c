#include "daemon/booter.h"

#include "base/auto.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/state.h"
#include "kern/sys.h"
#include "model/guest_files.h"
#include "sandbox/message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PATIENCE_MS 12000 /* a little more than boot_sandbox itself has */

/* To a booter, with the listener and the volumes. */
struct boot_job {
	struct ipc_boot boot;
	uint32_t id_base;
	uint8_t root;
	uint8_t is_private;	 /* the daemon is somebody's own: nothing outlives it */
	char image[CONFIG_PATH]; /* "host", or the operator's path */
	char cgroup[64];
	uint32_t slots;		/* of a nest, for each kind, from the beginning */
	uint32_t preload_count; /* of its interpreter */
	char preload[CONFIG_ITEMS][CONFIG_NAME];
};

/* And back, with the pidfd unless it failed. */
struct boot_result {
	struct err err;
	struct booted booted;
};

/* ---- in the booter ---- */

/* What every job needs. */
struct workshop {
	struct cgroup_place cgroups;
	int guest;
	int nest;     /* the same, for nests */
	char *zygote; /* preloaded into a warm interpreter */
	size_t zygote_size;
};

static bool is_nest(const struct boot_job *job)
{
	return job->boot.nest[0] + job->boot.nest[1] > 0;
}

/* The interpreter and what makes cells must not starve where those who run in them may have little. */
static void widen_for_nest(struct limits *l)
{
	static const struct limits least = {
		.memory_bytes = 1 << 30, .cpus_milli = 1000, .pids = 256, .open_files = 1024};

	l->memory_bytes =
		l->memory_bytes < least.memory_bytes ? least.memory_bytes : l->memory_bytes;
	l->cpus_milli = l->cpus_milli < least.cpus_milli ? least.cpus_milli : l->cpus_milli;
	l->pids = l->pids < least.pids ? least.pids : l->pids;
	l->open_files = l->open_files < least.open_files ? least.open_files : l->open_files;
	l->cpu_time_ms = 0;
}

static int make_spec(const struct boot_job *job, struct sandbox_spec *s, struct err *e)
{
	spec_init(s);
	s->level = LEVEL_CONTAINER;
	s->root = job->root;
	s->limits = job->boot.limits;
	if (is_nest(job))
		widen_for_nest(&s->limits);
	s->empty = true;
	free(s->image);
	s->image = str_copy(job->image);
	free(s->hostname);
	s->hostname = str_copy(job->boot.hostname);
	if (spec_finish(s, e) < 0)
		return -1;
	s->required_layers |= job->boot.required_layers & (LAYER_BIT(LAYER_COUNT) - 1);
	/* Those of its cells are another matter (cell_enter.c). */
	if (is_nest(job))
		s->required_layers &= ~(LAYER_BIT(LAYER_CAPS) | LAYER_BIT(LAYER_LANDLOCK));
	return 0;
}

static int boot_nest(const struct boot_job *job, struct boot_request *r, const struct workshop *p,
		     struct boot_result *ret)
{
	const struct guest_file *script = &guest_file_zygote_py;
	struct placed_file files[] = {
		{"/run/cloche/zygote.py", (char *)script->bytes, script->size, 0444},
		{"/run/cloche/zygote.so", p->zygote, p->zygote_size, 0555},
	};
	struct boot_nest nest = {.slots = {job->boot.nest[0], job->boot.nest[1]},
				 .first = {job->slots, job->slots},
				 .limits = job->boot.limits,
				 .required = r->spec->required_layers | LAYER_BIT(LAYER_CAPS),
				 .files = files,
				 .file_count = ARRAY_LEN(files)};
	int rc;

	if (!p->zygote_size || p->nest < 0)
		return err_set(&ret->err, ERR_UNSUPPORTED, "cloche-zygote.so is not there");
	for (uint32_t i = 0; i < job->preload_count; i++)
		list_add(&nest.modules, job->preload[i]);
	r->nest = &nest;
	r->guest = p->nest;
	rc = boot_sandbox(r, &ret->booted, &ret->err);
	list_done(&nest.modules);
	return rc;
}

static int run_job(const struct boot_job *job, const int *fds, const struct workshop *shop,
		   struct boot_result *ret)
{
	struct boot_volume volumes[IPC_VOLUMES];
	struct sandbox_spec spec;
	struct boot_request r = {.spec = &spec,
				 .id = job->boot.id,
				 .id_base = job->id_base,
				 .guest = shop->guest,
				 .listener = fds[0],
				 .volumes = volumes,
				 .volume_count = job->boot.volume_count,
				 .cgroup_name = job->cgroup,
				 .cgroups = &shop->cgroups,
				 .dies_with_caller = job->boot.transient || job->is_private};
	int rc = -1;

	for (uint32_t i = 0; i < job->boot.volume_count; i++) {
		volumes[i] = (struct boot_volume){.fd = fds[1 + i],
						  .writable = job->boot.volumes[i].writable != 0};
		snprintf(volumes[i].target, sizeof(volumes[i].target), "%s",
			 job->boot.volumes[i].target);
	}
	if (make_spec(job, &spec, &ret->err) == 0)
		rc = is_nest(job) ? boot_nest(job, &r, shop, ret)
				  : boot_sandbox(&r, &ret->booted, &ret->err);
	spec_done(&spec);
	return rc;
}

static void serve(int sock, const struct workshop *shop)
{
	static struct boot_job job;
	static struct boot_result result;
	int fds[KEEPER_MAX_FDS];

	for (;;) {
		struct err e = {0};
		int version, rc;

		if (message_receive(sock, &job, sizeof(job), fds, &e) < 0)
			_exit(0);
		result = (struct boot_result){.booted.pidfd = -1};
		rc = run_job(&job, fds, shop, &result);
		for (int i = 0; i < KEEPER_MAX_FDS; i++)
			close_fd(&fds[i]);
		version = result.booted.cgroup.version;
		if (rc == 0)
			cgroup_close(&result.booted.cgroup);
		result.booted.cgroup.version = version;
		if (message_send(sock, &result, sizeof(result), &result.booted.pidfd, rc == 0, &e) <
		    0)
			_exit(1);
		close_fd(&result.booted.pidfd);
	}
}

/*
 * The kernel lets nobody with capabilities only over a nest's own user namespace look into a program
 * that its user cannot read, and the guest is such a one (prepare.c). Pid 1 of a nest has to find the
 * namespaces of its own descendants.
 */
static void copy_guest(struct workshop *p)
{
	off_t at = 0;
	struct stat st;
	char path[64];
	auto_close int to = memfd_create("cloche-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	p->nest = -1;
	if (to < 0 || fstat(p->guest, &st) < 0)
		return;
	while (at < st.st_size)
		if (sendfile(to, p->guest, &at, (size_t)(st.st_size - at)) <= 0)
			return;
	if (fchmod(to, 0555) < 0 ||
	    fcntl(to, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	p->nest = open(path, O_RDONLY | O_CLOEXEC);
}

/* Beside our own program; without it there are no nests. */
static void load_zygote(struct workshop *p)
{
	char path[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	struct stat st;
	char *slash;

	if (n <= 0)
		return;
	path[n] = '\0';
	slash = strrchr(path, '/');
	snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), "cloche-zygote.so");
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > (16 << 20))
		return;
	p->zygote = must_alloc(malloc((size_t)st.st_size + 1));
	if (read(fd, p->zygote, (size_t)st.st_size) == st.st_size)
		p->zygote_size = (size_t)st.st_size;
}

/* The daemon may be spared when memory runs out; sandboxes are not to inherit that. */
static void be_ordinary(void)
{
	auto_close int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	char now[16] = "";

	if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 && now[0] == '-')
		(void)!pwrite(fd, "0", 1, 0);
}

static void booter_main(pid_t broker, int sock, int guest)
{
	struct workshop shop = {0};
	sigset_t none;
	int keep[2];

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != broker)
		_exit(1);
	prctl(PR_SET_NAME, "cloche-booter", 0, 0, 0);
	be_ordinary();
	/* Sandboxes that end need no wait. */
	signal(SIGCHLD, SIG_IGN);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Nothing of the broker's stays open here. */
	keep[0] = fcntl(sock, F_DUPFD_CLOEXEC, 1000);
	keep[1] = fcntl(guest, F_DUPFD_CLOEXEC, 1000);
	if (keep[0] < 0 || keep[1] < 0)
		_exit(1);
	sys_close_range(3, (unsigned)(keep[0] < keep[1] ? keep[0] : keep[1]) - 1, 0);
	sys_close_range((unsigned)(keep[0] > keep[1] ? keep[0] : keep[1]) + 1, ~0u, 0);
	shop.guest = keep[1];
	cgroup_place_open(&shop.cgroups, NULL);
	copy_guest(&shop);
	load_zygote(&shop);
	serve(keep[0], &shop);
}

/* ---- in the broker ---- */

static void next_job(struct booter *w);

static void fail_job(struct booter *w, const char *why)
{
	struct box *b = take_ptr(w->busy);
	struct err e = {0};

	if (!b)
		return;
	err_set(&e, ERR_SYSTEM, "the sandbox could not be booted: %s", why);
	box_booted(b, NULL, -1, &e);
}

static void stop(struct booter *w)
{
	loop_unwatch(w->d->loop, &w->watch);
	loop_timer_stop(w->d->loop, &w->timer);
	close_fd(&w->sock);
	if (w->pid > 0)
		kill(w->pid, SIGKILL);
}

static void on_patience(void *arg)
{
	struct booter *w = arg;

	log_error("a booter hangs and is killed", "id", w->busy ? w->busy->info.id : "");
	/* What it was building dies with it; it is started anew once it is reaped. */
	stop(w);
	fail_job(w, "it took too long");
}

static void on_result(void *arg, uint32_t events)
{
	static struct boot_result result;
	struct booter *w = arg;
	struct box *b = w->busy;
	int fds[KEEPER_MAX_FDS];
	struct err e = {0};

	(void)events;
	if (message_receive(w->sock, &result, sizeof(result), fds, &e) < 0 || !b) {
		stop(w);
		fail_job(w, "the process that made it died");
		return;
	}
	w->busy = NULL;
	b->nest_slots = b->boot ? b->boot->nest[0] + b->boot->nest[1] : 0u;
	loop_timer_stop(w->d->loop, &w->timer);
	if (fds[0] < 0 && result.err.kind == ERR_NONE)
		err_set(&result.err, ERR_SYSTEM, "the sandbox has no pidfd");
	box_booted(b, &result.booted, fds[0], result.err.kind ? &result.err : NULL);
	next_job(w);
}

static int start(struct booter *w)
{
	pid_t broker = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	w->pid = fork();
	if (w->pid == 0)
		booter_main(broker, pair[1], w->d->guest);
	close(pair[1]);
	if (w->pid < 0) {
		w->pid = 0;
		close(pair[0]);
		return -1;
	}
	w->sock = pair[0];
	w->watch =
		(struct loop_watch){.fd = w->sock, .events = EPOLLIN, .call = on_result, .arg = w};
	w->timer = (struct loop_timer){.call = on_patience, .arg = w};
	return loop_watch(w->d->loop, &w->watch);
}

/* Below the operator's directory, whatever the name (rule 4). */
static int open_volume(struct daemon *d, const struct ipc_volume *v, struct err *e)
{
	const struct config_volume *known = config_volume_find(d->config, v->name);
	int top, fd;

	if (!known)
		return err_set(e, ERR_NOT_FOUND, "volumes: there is no '%s'", v->name);
	top = d->volumes[known - d->config->volumes];
	fd = sys_openat2(top, v->sub[0] ? v->sub : ".", O_PATH | O_DIRECTORY | O_CLOEXEC,
			 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (fd < 0)
		return err_field(e, ERR_NOT_FOUND, "volumes", "volumes: '%s' has no directory '%s'",
				 v->name, v->sub);
	return fd;
}

static int send_job(struct booter *w, struct box *b, struct err *e)
{
	static struct boot_job job;
	const struct config_image *image = config_image_find(w->d->config, b->boot->image);
	int fds[1 + IPC_VOLUMES], count = 1, rc = -1;

	job = (struct boot_job){.boot = *b->boot,
				.id_base = b->id_base,
				.root = b->info.root,
				.is_private = b->d->private_dir != NULL,
				.slots = w->d->config->warm.slots,
				.preload_count = w->d->config->warm.preload_count};
	memcpy(job.preload, w->d->config->warm.preload, sizeof(job.preload));
	snprintf(job.image, sizeof(job.image), "%s", image ? image->path : "host");
	box_cgroup_name(b, job.cgroup, sizeof(job.cgroup));
	fds[0] = b->listener;
	for (uint32_t i = 0; i < b->boot->volume_count; i++) {
		fds[count] = open_volume(w->d, &b->boot->volumes[i], e);
		if (fds[count] < 0)
			goto out;
		count++;
	}
	rc = message_send(w->sock, &job, sizeof(job), fds, count, e);
out:
	while (--count > 0)
		close(fds[count]);
	return rc;
}

static void next_job(struct booter *w)
{
	struct daemon *d = w->d;

	while (w->pid > 0 && w->sock >= 0 && !w->busy && d->boot_first) {
		struct box *b = d->boot_first;
		struct err e = {0};

		d->boot_first = b->boot_next;
		if (!d->boot_first)
			d->boot_last = &d->boot_first;
		if (b->is_doomed) {
			err_set(&e, ERR_CONFLICT, "it was destroyed meanwhile");
			box_booted(b, NULL, -1, &e);
			continue;
		}
		b->state = BOX_BOOTING;
		w->busy = b;
		if (send_job(w, b, &e) < 0) {
			w->busy = NULL;
			box_booted(b, NULL, -1, &e);
			continue;
		}
		loop_timer_set(d->loop, &w->timer, PATIENCE_MS);
	}
}

void booters_add(struct daemon *d, struct box *b)
{
	b->state = BOX_WAITING;
	b->boot_next = NULL;
	*d->boot_last = b;
	d->boot_last = &b->boot_next;
	for (int i = 0; i < BOOTERS; i++)
		next_job(&d->booters[i]);
}

void booters_start(struct daemon *d)
{
	d->boot_last = &d->boot_first;
	for (int i = 0; i < BOOTERS; i++) {
		d->booters[i] = (struct booter){.d = d, .sock = -1};
		if (start(&d->booters[i]) < 0)
			log_error("cannot start a booter", "error", strerror(errno));
	}
}

void booters_stop(struct daemon *d)
{
	/* Some may never have been started. */
	for (int i = 0; i < BOOTERS && d->booters[i].d; i++) {
		stop(&d->booters[i]);
		if (d->booters[i].pid > 0)
			waitpid(d->booters[i].pid, NULL, 0);
	}
}

bool booters_reaped(struct daemon *d, pid_t pid)
{
	for (int i = 0; i < BOOTERS; i++) {
		struct booter *w = &d->booters[i];

		if (w->pid != pid)
			continue;
		w->pid = 0;
		stop(w);
		fail_job(w, "the process that made it died");
		if (!d->stopping && start(w) == 0)
			next_job(w);
		return true;
	}
	return false;
}

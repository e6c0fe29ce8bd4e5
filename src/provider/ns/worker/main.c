#include "provider/ns/worker/worker.h"

#include "provider/ns/worker/boot_mounts.h"

#include "disk/disk.h"
#include "model/guest_files.h"
#include "sandbox/inside/inside.h"
#include "sandbox/inside/message.h"
#include "sandbox/inside/verify.h"

#include <sys/prctl.h>
#include <sys/resource.h>

/* What every job needs. */
struct workshop {
	struct cgroup_place cgroups;
	struct boot_mounts *place;
	struct host host;
	int nice;	/* of this process */
	bool can_raise; /* the priority of a process with a worse one */
	int guest;
	int own_seccomp; /* 0: none */
	int warm_host;	 /* the same, for warm hosts */
	char *zygote;	 /* preloaded into a warm interpreter */
	size_t zygote_size;
};

static bool is_warm_host(const struct boot_job *job)
{
	return ipc_boot_lanes(&job->boot) > 0;
}

static void raise_to(uint64_t *value, uint64_t least)
{
	if (*value < least)
		*value = least;
}

/* The interpreter and the spawners need more than the small limits that a run in a warm sandbox may have. */
static void widen_for_warm_host(struct limits *l)
{
	raise_to(&l->memory_bytes, 1 << 30);
	raise_to(&l->cpus_milli, 1000);
	raise_to(&l->pids, 256);
	raise_to(&l->open_files, 1024);
	l->cpu_time_ms = 0;
}

static int make_spec(const struct boot_job *job, struct sandbox_spec *s, struct err *e)
{
	spec_init(s);
	s->level = LEVEL_CONTAINER;
	s->root = job->root;
	s->disk_type = job->boot.disk_type;
	s->limits = job->boot.limits;
	if (is_warm_host(job))
		widen_for_warm_host(&s->limits);
	s->empty = true;
	free(s->image);
	s->image = str_copy(job->image);
	free(s->hostname);
	s->hostname = str_copy(job->boot.hostname);
	if (job->boot.user_root)
		s->user = str_copy("root");
	if (spec_finish(s, e) < 0)
		return -1;
	s->tmpfs_mounts = job->boot.tmpfs;
	s->required_layers |= job->boot.required_layers & (LAYER_BIT(LAYER_COUNT) - 1);
	/* The warm sandboxes in it have these layers (warm_enter.c). */
	if (is_warm_host(job))
		s->required_layers &= ~(LAYER_BIT(LAYER_CAPS) | LAYER_BIT(LAYER_LANDLOCK));
	return 0;
}

static int boot_warm_host(const struct boot_job *job, struct boot_request *r,
			  const struct workshop *p, struct boot_result *ret)
{
	const struct guest_file *script = &guest_file_zygote_py, *waiter = &guest_file_waiter_js;
	struct injected_file files[] = {
		{"/run/cloche/zygote.py", (char *)script->bytes, script->size, 0444},
		{"/run/cloche/zygote.so", p->zygote, p->zygote_size, 0555},
		{"/run/cloche/waiter.js", (char *)waiter->bytes, waiter->size, 0444},
	};
	struct boot_warm_host warm_host = {
		.lanes = {job->boot.warm_host[0], job->boot.warm_host[1], job->boot.warm_host[2]},
		.first = {job->lanes, job->lanes, 0},
		.limits = job->boot.limits,
		.required = r->spec->required_layers | LAYER_BIT(LAYER_CAPS),
		.files = files,
		.file_count = ARRAY_LEN(files)};
	int rc;

	/* Interpreters that wait write files for the task, which the operator's profile may refuse. */
	if (p->own_seccomp)
		for (int kind = 1; kind < WARM_KINDS; kind++)
			warm_host.lanes[kind] = warm_host.first[kind] = 0;
	if (!p->zygote_size || p->warm_host < 0)
		return err_set(&ret->err, ERR_UNSUPPORTED, "cloche-zygote.so is not there");
	for (uint32_t i = 0; i < job->preload_count; i++)
		list_add(&warm_host.modules, job->preload[i]);
	r->warm_host = &warm_host;
	r->guest = p->warm_host;
	rc = boot_sandbox(r, &ret->booted, &ret->err);
	list_done(&warm_host.modules);
	return rc;
}

#define POOL_NICE 10

/* Tried out, since a capability may be valid in a user namespace only. */
static void find_nice(struct workshop *shop)
{
	shop->nice = getpriority(PRIO_PROCESS, 0);
	shop->can_raise = setpriority(PRIO_PROCESS, 0, shop->nice - 1) == 0;
	(void)setpriority(PRIO_PROCESS, 0, shop->nice);
}

/*
 * Nobody waits for a sandbox of the pool, so it is made with a low priority, and gets the usual one back
 * before anything runs in it. Where the priority cannot be raised again, it is not lowered.
 */
static bool gives_way(const struct boot_job *job, const struct workshop *shop)
{
	return str_equal(job->boot.owner, "-") && shop->can_raise;
}

/* What its files on the disk are changes of. */
static void name_root(const struct boot_job *job, char *ret, size_t size)
{
	snprintf(ret, size, "%s %s%s", job->root == ROOT_OVERLAY ? "overlay" : "ro",
		 job->boot.user_root ? "root " : "", job->image);
}

/* The mount of the disk, or -1. */
static int open_disk(const struct boot_job *job, int file, struct boot_result *ret)
{
	const struct disk_use use = {.file = file,
				     .id_base = job->id_base,
				     .key = job->has_disk_key ? job->disk_key : NULL};
	bool has_skeleton = job->root == ROOT_OVERLAY && str_equal(job->image, "host");
	auto_close int tree = disk_mount(&use, &ret->err);
	char root[CONFIG_PATH + 32];

	name_root(job, root, sizeof(root));
	if (tree < 0 || disk_prepare(tree, root, has_skeleton, &ret->err) < 0)
		return -1;
	ret->has_was = disk_has_was(tree);
	return take_fd(&tree);
}

/* The fds are the caller's; of a disk its mount takes the place of its file. */
static int open_volumes(struct boot_job *job, int *fds, struct boot_volume *ret, struct err *e)
{
	int rc = 0;

	for (uint32_t i = 0; i < job->boot.volume_count; i++) {
		const struct ipc_volume *v = &job->boot.volumes[i];
		const struct disk_use use = {.file = fds[i],
					     .id_base = job->id_base,
					     .read_only = !v->writable,
					     .key = job->volumes[i].has_key ? job->volumes[i].key
									    : NULL};

		if (job->volumes[i].bytes) {
			int mount = disk_mount(&use, e);

			close(fds[i]);
			fds[i] = mount;
			rc = mount < 0 ? -1 : rc;
		}
		ret[i] = (struct boot_volume){.fd = fds[i],
					      .disk_bytes = job->volumes[i].bytes,
					      .writable = v->writable != 0};
		snprintf(ret[i].target, sizeof(ret[i].target), "%s", v->target);
	}
	explicit_bzero(job->volumes, sizeof(job->volumes));
	return rc;
}

static int run_job(struct boot_job *job, int *fds, const struct workshop *shop,
		   struct boot_result *ret)
{
	struct boot_volume volumes[IPC_VOLUMES];
	struct sandbox_spec spec;
	struct boot_request r = {.spec = &spec,
				 .id = job->boot.id,
				 .id_base = job->id_base,
				 .guest = shop->guest,
				 .own_seccomp = shop->own_seccomp,
				 .listener = fds[0],
				 .images = job->images,
				 .volumes = volumes,
				 .volume_count = job->boot.volume_count,
				 .cgroup_name = job->cgroup,
				 .cgroups = &shop->cgroups,
				 .host = &shop->host,
				 .dies_with_caller = job->boot.transient || job->is_ephemeral};
	auto_close int disk = -1;
	int rc = -1;

	if (job->has_disk) {
		disk = open_disk(job, fds[1 + job->boot.volume_count], ret);
		/* Before pid 1 is cloned from this process. */
		explicit_bzero(job->disk_key, sizeof(job->disk_key));
		if (disk < 0)
			return -1;
		r.disk = &disk;
	}
	if (open_volumes(job, fds + 1, volumes, &ret->err) < 0)
		return -1;
	if (gives_way(job, shop))
		(void)setpriority(PRIO_PROCESS, 0, shop->nice + POOL_NICE);
	boot_mounts_follow(shop->place);
	if (job->root == ROOT_OVERLAY && str_equal(job->image, "host"))
		r.template = boot_mounts_template(shop->place);
	if (make_spec(job, &spec, &ret->err) == 0)
		rc = is_warm_host(job) ? boot_warm_host(job, &r, shop, ret)
				       : boot_sandbox(&r, &ret->booted, &ret->err);
	spec_done(&spec);
	if (gives_way(job, shop)) {
		(void)setpriority(PRIO_PROCESS, 0, shop->nice);
		if (rc == 0)
			(void)setpriority(PRIO_PROCESS, (id_t)ret->booted.pid, shop->nice);
	}
	return rc;
}

static void serve_jobs(int sock, const struct workshop *shop)
{
	static struct boot_job job;
	static struct boot_result result;
	int fds[KEEPER_MAX_FDS];

	for (;;) {
		struct err e = {0};
		int version, rc;

		boot_mounts_wait(shop->place, sock);
		if (message_receive(sock, &job, sizeof(job), fds, &e) < 0)
			return;
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
			return;
		close_fd(&result.booted.pidfd);
	}
}

/*
 * Pid 1 of a warm host has to look into its own descendants to find their namespaces. Its capabilities are
 * valid in its own user namespace only, and with those the kernel does not let it look into a program that
 * its user cannot read, as the guest is (daemon/broker/setup.c). So warm hosts get a readable copy.
 */
static void copy_guest(struct workshop *p)
{
	auto_close int to = io_sealed_copy(p->guest, "cloche-guest");

	p->warm_host = to < 0 || fchmod(to, 0555) < 0 ? -1 : io_reopen(to, O_RDONLY);
}

/* Beside our own program; without this file there are no warm hosts. */
static void load_zygote(struct workshop *p)
{
	char path[PATH_MAX + 32];

	if (io_beside_program("cloche-zygote.so", path, sizeof(path)) < 0)
		return;
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!io_read_whole(fd, 16 << 20, &p->zygote, &p->zygote_size);
}

/* The daemon may be protected from the OOM killer; sandboxes must not inherit that. */
static void be_ordinary(void)
{
	auto_close int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	char now[16] = "";

	if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 && now[0] == '-')
		(void)!pwrite(fd, "0", 1, 0);
}

/* No signal is ignored: every guest would inherit that. */
static void set_signals(void)
{
	/* Sandboxes that end need not be waited for. */
	const struct sigaction no_wait = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
	sigset_t blocked;

	command_reset_signals();
	sigaction(SIGCHLD, &no_wait, NULL);
	/* Signals of a terminal: only the broker reacts to them. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGHUP);
	sigaddset(&blocked, SIGINT);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
}

int main(int argc, char **argv)
{
	struct boot_mounts place;
	struct workshop shop = {.guest = BOOT_WORKER_FD_GUEST, .place = &place};
	struct err ignored;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (argc != 2 || atoi(argv[1]) != getppid() ||
	    fcntl(BOOT_WORKER_FD_BROKER, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(BOOT_WORKER_FD_GUEST, F_SETFD, FD_CLOEXEC) < 0) {
		fprintf(stderr, "cloche-boot: it is started by cloched\n");
		return 125;
	}
	if (fcntl(BOOT_WORKER_FD_SECCOMP, F_SETFD, FD_CLOEXEC) == 0)
		shop.own_seccomp = BOOT_WORKER_FD_SECCOMP;
	prctl(PR_SET_NAME, "cloche-boot", 0, 0, 0);
	be_ordinary();
	find_nice(&shop);
	set_signals();
	cgroup_place_open(&shop.cgroups, NULL);
	copy_guest(&shop);
	load_zygote(&shop);
	/* Last, because it hides the cgroup file systems. */
	boot_mounts_enter(&place);
	if (plan_look_at_host(&shop.host, &ignored) < 0)
		return 125;
	verify_read_namespaces(&shop.host.ns, false);
	serve_jobs(BOOT_WORKER_FD_BROKER, &shop);
	return 0;
}

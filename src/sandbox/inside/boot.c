/* Boots a sandbox that lives on, and makes the cgroups of a warm host's lanes. */
#include "sandbox/inside/boot.h"

#include "kern/procs.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "sandbox/inside/warm_settings.h"
#include "sandbox/outside/keeper.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DEADLINE_MS 10000

/* ---- identity of a process ---- */

static int read_inode(pid_t pid, const char *name, ino_t *ret, struct err *e)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	if (stat(path, &st) < 0)
		return err_sys(e, "cannot look at %s", path);
	*ret = st.st_ino;
	return 0;
}

int boot_identify(pid_t pid, struct boot_identity *ret, struct err *e)
{
	long long fields[PROCS_FIELDS];

	if (!procs_stat(pid, fields))
		return err_set(e, ERR_SYSTEM, "cannot read /proc/%d/stat", (int)pid);
	ret->start_time = (uint64_t)fields[PROCS_START];
	if (read_inode(pid, "pid", &ret->pid_ns, e) < 0)
		return -1;
	return read_inode(pid, "mnt", &ret->mount_ns, e);
}

/* ---- booting ---- */

/* pid 1 closes its end of the socket when it executes the guest, or dies. */
static int await_exec(struct keeper *k, struct err *e)
{
	const struct status_page *b = k->plan.page;
	struct pollfd poll_control = {k->control, 0, 0};
	int n;

	do
		n = poll(&poll_control, 1, DEADLINE_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return err_set(e, ERR_SYSTEM, "the sandbox does not get ready");
	if (b->err.kind != ERR_NONE) {
		*e = b->err;
		return -1;
	}
	if (b->exec_errno) {
		errno = b->exec_errno;
		return err_sys(e, "cannot execute the guest");
	}
	return b->stage == STAGE_RUNNING
		       ? 0
		       : err_set(e, ERR_SYSTEM, "the sandbox died while it was built");
}

/* As much of its digest as there is room for. */
static void name_own_seccomp(int file, struct booted *ret)
{
	char digest[sizeof(((struct seccomp_own *)0)->digest)] = "";

	if (file > 0 && ret->seccomp[0] && pread(file, digest, sizeof(digest) - 1, 0) > 0)
		str_append(ret->seccomp, sizeof(ret->seccomp), " ", "own@%.10s",
			   digest + strlen("sha256:"));
}

static void describe_booted(struct keeper *k, int own_seccomp, struct booted *ret)
{
	const struct seccomp_profile *profile = plan_profile(&k->plan);
	const struct status_page *b = k->plan.page;

	ret->pid = k->pid;
	ret->proven = b->proven;
	ret->missing = ~b->proven & (LAYER_BIT(LAYER_COUNT) - 1);
	ret->landlock_abi = b->proven & LAYER_BIT(LAYER_LANDLOCK) ? b->landlock_abi : 0;
	ret->listening = b->listening;
	ret->rootless = k->plan.rootless;
	ret->root_inside = plan_root_inside(&k->plan);
	if (b->proven & LAYER_BIT(LAYER_SECCOMP))
		snprintf(ret->seccomp, sizeof(ret->seccomp), "%s@%s", profile->name,
			 profile->digest);
	name_own_seccomp(own_seccomp, ret);
	if (b->unmapped)
		snprintf(ret->note, sizeof(ret->note),
			 "%s file system cannot map ids: files that only their owner may read "
			 "cannot be read inside.",
			 b->unmapped & UNMAPPED_MOUNT ? "A volume's" : "The image's");
	ret->pidfd = take_fd(&k->pidfd);
	ret->cgroup = k->cgroup;
	k->cgroup = (struct cgroup)CGROUP_NONE;
	ret->net = k->net.made;
	k->net.made = (struct net_made)NET_MADE_NONE;
}

/* Rootless, pid 1 has made the network. */
static int take_listeners(struct keeper *k, struct err *e)
{
	int terminal = -1;

	if (!k->plan.net || !k->plan.rootless)
		return 0;
	if (keeper_take_back(k, &terminal) < 0 || k->net.made.anchor < 0)
		return err_set(e, ERR_SYSTEM, "the sandbox did not pass its network on");
	return 0;
}

static int boot_guest(struct keeper *k, int own_seccomp, struct booted *ret, struct err *e)
{
	struct inside_fds fds = INSIDE_FDS_NONE;
	int rc;

	if (launch_start(k, &fds, e) < 0)
		return -1;
	rc = launch_send(k, e);
	launch_release(k);
	/* If pid 1 died while we were sending, its own error says why. */
	if (rc < 0 && k->plan.page->err.kind != ERR_NONE)
		*e = k->plan.page->err;
	if (rc == 0 && await_exec(k, e) == 0 && take_listeners(k, e) == 0 &&
	    boot_identify(k->pid, &ret->identity, e) == 0) {
		describe_booted(k, own_seccomp, ret);
		return 0;
	}
	sys_pidfd_send_signal(k->pidfd, SIGKILL);
	waitpid(k->pid, NULL, __WALL);
	return -1;
}

/* ---- warm hosts ---- */

/*
 * The files by which a lane is joined. The kernel checks the rights of the opener, not of the
 * writer.
 */
static int open_joins(const struct cgroup *c, int *fds)
{
	if (c->version != 2)
		return cgroup_join_fds(c, fds);
	fds[0] = openat(c->dirs[0], "cgroup.procs", O_WRONLY | O_CLOEXEC);
	return fds[0] < 0 ? -1 : 1;
}

static void close_joins(struct guest_start *g)
{
	while (g->join_count > 0)
		close_fd(&g->joins[--g->join_count]);
}

static void name_lane(char *ret, size_t size, const char *cgroup_name, unsigned lane)
{
	snprintf(ret, size, "%.*s-%u", CGROUP_NAME - 16, cgroup_name, lane);
}

/* Opens the cgroup of one lane; false: there is none. */
static bool open_lane(struct cgroup *c, const struct cgroup_place *cgroups, const char *cgroup_name,
		      unsigned lane)
{
	char name[CGROUP_NAME];

	name_lane(name, sizeof(name), cgroup_name, lane);
	return lane < WARM_HOST_LANES && cgroup_open_at(c, cgroups, name);
}

bool boot_remove_lanes(const struct cgroup_place *cgroups, const char *cgroup_name)
{
	struct cgroup c;
	bool all = true;

	/* Any of them may be left: a cgroup whose processes died slowly was not removed earlier. */
	for (unsigned i = 0; i < WARM_HOST_LANES; i++) {
		if (!open_lane(&c, cgroups, cgroup_name, i) || cgroup_try_remove(&c))
			continue;
		cgroup_kill(&c);
		cgroup_close(&c);
		all = false;
	}
	return all;
}

void boot_add_lane_stats(const struct cgroup_place *cgroups, const char *cgroup_name,
			 struct cgroup_stats *ret)
{
	struct cgroup_stats one;
	struct cgroup c;

	for (unsigned i = 0; open_lane(&c, cgroups, cgroup_name, i); i++) {
		cgroup_read_stats(&c, &one);
		ret->oom_kills += one.oom_kills;
		ret->pids_refused += one.pids_refused;
		cgroup_close(&c);
	}
}

static void remove_own_lanes(const struct boot_request *r)
{
	for (int tries = 0; tries < 1000 && !boot_remove_lanes(r->cgroups, r->cgroup_name); tries++)
		poll(NULL, 0, 1);
}

/* Either each lane has a cgroup with the limits of one run, or no lane has one. */
static void make_lanes(const struct boot_request *r, struct guest_start *g,
		       struct warm_host_settings *settings)
{
	unsigned count = 0, kind = 0, of_kind = 0;
	struct limits limits;
	struct cgroup c;
	char name[CGROUP_NAME];
	int joins = 0;

	for (unsigned k = 0; k < WARM_KINDS; k++)
		count += r->warm_host->lanes[k];
	for (unsigned i = 0; i < count && joins >= 0; i++, of_kind++) {
		for (; of_kind == r->warm_host->lanes[kind]; of_kind = 0)
			kind++;
		name_lane(name, sizeof(name), r->cgroup_name, i);
		cgroup_init_at(&c, r->cgroups, name);
		/* A lane is not paused or measured alone, and each controller costs a join. */
		c.lives_on = false;
		limits = r->warm_host->limits;
		/*
		 * cgroup_create already allows for pid 1; a lane for commands has further processes
		 * of ours.
		 */
		if (kind != WARM_FORKED_KIND)
			limits.pids += LANE_OWN_PIDS - 1;
		cgroup_create(&c, &limits);
		/* The process that passes on requests and answers gets the processor first. */
		cgroup_give_way(&c);
		joins = c.version ? open_joins(&c, g->joins + g->join_count) : -1;
		if (joins > 0) {
			g->join_count += joins;
			cgroup_open_events(&c, &g->joins[g->join_count],
					   &g->joins[g->join_count + 1]);
			g->joins[g->join_count + 2] = cgroup_open_peak(&c);
			g->join_count += WARM_FILES - WARM_JOINS;
		}
		settings->sandbox.cgroup_layers = c.layers | LAYER_BIT(LAYER_CGROUP);
		cgroup_close(&c);
	}
	if (joins > 0) {
		settings->sandbox.join_count = joins;
		return;
	}
	close_joins(g);
	settings->sandbox.cgroup_layers = 0;
	remove_own_lanes(r);
}

/* Behind the settings. */
static int add_own_seccomp(int from, int to)
{
	static struct seccomp_own own;
	ssize_t n = pread(from, &own, sizeof(own), 0);

	return n > 0 && pwrite(to, &own, (size_t)n, sizeof(struct warm_host_settings)) == n ? 0
											    : -1;
}

static int plan_warm_host(struct plan *p, const struct boot_request *r, struct guest_start *g,
			  struct err *e)
{
	struct warm_host_settings settings = {.sandbox.limits = r->warm_host->limits,
					      .sandbox.required = r->warm_host->required,
					      .sandbox.rootless = p->rootless,
					      .sandbox.image_is_host = p->image_is_host,
					      .sandbox.caller_is_root = p->rootless && p->uid == 0};

	memcpy(settings.lanes, r->warm_host->lanes, sizeof(settings.lanes));
	memcpy(settings.first, r->warm_host->first, sizeof(settings.first));
	settings.has_own_seccomp = r->own_seccomp > 0;
	make_lanes(r, g, &settings);
	g->settings = memfd_create("settings", MFD_CLOEXEC);
	if (g->settings < 0 ||
	    pwrite(g->settings, &settings, sizeof(settings), 0) != (ssize_t)sizeof(settings) ||
	    (settings.has_own_seccomp && add_own_seccomp(r->own_seccomp, g->settings) < 0))
		return err_sys(e, "cannot write the settings of a warm host");
	p->files = r->warm_host->files;
	p->file_count = r->warm_host->file_count;
	return 0;
}

static void end_warm_host(struct plan *p, struct guest_start *g)
{
	close_joins(g);
	close_fd(&g->settings);
	/* The files belong to the caller. */
	p->files = NULL;
	p->file_count = 0;
}

int boot_sandbox(const struct boot_request *r, struct booted *ret, struct err *e)
{
	int joins[WARM_HOST_LANES * WARM_FILES];
	struct guest_start guest = {.program = r->guest,
				    .listener = r->listener,
				    .survives = !r->dies_with_caller,
				    .warm_host = r->warm_host,
				    .settings = -1,
				    .joins = joins};
	struct keeper k;
	int rc = -1;

	if (keeper_init(&k, e) < 0)
		return -1;
	k.plan.guest = &guest;
	if (r->own_seccomp > 0 && !r->warm_host)
		guest.settings = r->own_seccomp;
	*ret = (struct booted){.pidfd = -1, .net = NET_MADE_NONE};
	cgroup_init_at(&k.cgroup, r->cgroups, r->cgroup_name);
	if (plan_make_boot(&k.plan, r, e) == 0 &&
	    (!r->warm_host || plan_warm_host(&k.plan, r, &guest, e) == 0))
		rc = boot_guest(&k, r->own_seccomp, ret, e);
	if (rc < 0 && r->warm_host)
		remove_own_lanes(r);
	if (r->warm_host)
		end_warm_host(&k.plan, &guest);
	keeper_done(&k);
	return rc;
}

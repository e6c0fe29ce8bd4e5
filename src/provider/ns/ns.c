/*
 * The native provider: sandboxes that are processes of this host. Boot workers make them (boot_workers.c);
 * this file adopts, watches and removes them.
 */
#include "provider/ns/ns_internal.h"

#include "base/log.h"
#include "kern/cgroup_group.h"
#include "image/reference.h"
#include "kern/sys.h"
#include "provider/record_0_1.h"
#include "wire/guest.h"

#include <assert.h>
#include <dirent.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

static_assert(sizeof(struct ns_blob) <= PROVIDER_BLOB, "what is written down is bounded");

struct ns *ns_of(const struct provider_host *h)
{
	return h->rows[PROVIDER_NS];
}

struct ns_sandbox *ns_sandbox(struct instance *i)
{
	struct ns_sandbox *s = i->own;

	if (s)
		return s;
	i->own = s = must_alloc(calloc(1, sizeof(*s)));
	s->ns = ns_of(i->host);
	s->i = i;
	s->pidfd = s->listener = s->range = s->frozen_disk = -1;
	return s;
}

void ns_answer(struct ns_sandbox *s, const struct provider_result *r, const struct err *e)
{
	provider_done done = take_ptr(s->done);

	if (done)
		done(s->arg, r, e);
}

/* ---- id ranges ---- */

static int take_range(struct ns_sandbox *s, struct err *e)
{
	struct ns *ns = s->ns;

	for (uint32_t i = 0; i < ID_RANGES; i++) {
		uint32_t range = (ns->next_range + i) % ID_RANGES;

		if (ns->ranges[range])
			continue;
		ns->ranges[range] = 1;
		/* Continue behind it next time, so that a range rests before it is used again. */
		ns->next_range = range + 1;
		s->range = (int32_t)range;
		s->at.id_base = (ID_RANGE_FIRST + range) << 16;
		return 0;
	}
	return err_set(e, ERR_LIMIT, "no id range is left");
}

/* Reserves the range of an adopted sandbox. */
static void keep_range(struct ns_sandbox *s)
{
	uint32_t range = (s->at.id_base >> 16) - ID_RANGE_FIRST;

	if (s->at.id_base && range < ID_RANGES && !s->ns->ranges[range]) {
		s->ns->ranges[range] = 1;
		s->range = (int32_t)range;
	}
}

/*
 * Reserves the ranges of sandboxes whose records cannot be read: every range of which a process runs.
 * Ranges of another daemon's sandboxes are reserved with them, which does no harm.
 */
static void keep_ranges_in_use(struct ns *ns)
{
	DIR *d = opendir("/proc");
	struct stat st;

	for (struct dirent *at; d && (at = readdir(d));)
		if (fstatat(dirfd(d), at->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (st.st_uid >> 16) - ID_RANGE_FIRST < ID_RANGES)
			ns->ranges[(st.st_uid >> 16) - ID_RANGE_FIRST] = 1;
	if (d)
		closedir(d);
}

/* ---- its cgroup ---- */

#define BOX "cloche-box-%s-"
#define GROUP "cloche-for-%s-"

static void name_alone(const struct ns_sandbox *s, char ret[CGROUP_NAME])
{
	snprintf(ret, CGROUP_NAME, BOX "%s", s->ns->host->tag, s->i->info.id);
}

/*
 * All cgroups of an owner are in one group, so that each owner has the same share of the processors: it does
 * not matter how many sandboxes and lanes of warm hosts compute. Two owners in one group would only share.
 */
static void name_in_group(const struct ns_sandbox *s, char ret[CGROUP_NAME])
{
	uint32_t sum = 2166136261;

	for (const char *c = s->i->info.owner; *c; c++)
		sum = (sum ^ (uint8_t)*c) * 16777619;
	snprintf(ret, CGROUP_NAME, GROUP "%08x/" BOX "%s", s->ns->host->tag, sum, s->ns->host->tag,
		 s->i->info.id);
}

void ns_cgroup_choose(struct ns_sandbox *s)
{
	/* Nobody knows whose a sandbox of the pool will be, and a cgroup stays where it is: see weights.c. */
	if (str_equal(s->boot->owner, "-"))
		name_alone(s, s->cgroup);
	else
		name_in_group(s, s->cgroup);
}

/* A daemon in other cgroups made it, so its cgroup is elsewhere. */
static bool is_of_another(const struct ns_sandbox *s)
{
	return s->at.cgroup_table[0] && !str_equal(s->at.cgroup_table, s->ns->cgroup_table);
}

const char *ns_cgroup_name(struct ns_sandbox *s)
{
	char alone[CGROUP_NAME], likely[CGROUP_NAME], groups[CGROUP_NAME];
	struct cgroup_place other;

	if (s->cgroup[0])
		return s->cgroup;
	name_alone(s, alone);
	name_in_group(s, likely);
	snprintf(groups, sizeof(groups), GROUP, s->ns->host->tag);
	if (!is_of_another(s)) {
		cgroup_group_find(&s->ns->cgroups, groups, likely, alone, s->cgroup);
		return s->cgroup;
	}
	cgroup_place_open(&other, s->at.cgroup_table);
	cgroup_group_find(&other, groups, likely, alone, s->cgroup);
	cgroup_place_close(&other);
	return s->cgroup;
}

bool ns_cgroup(struct ns_sandbox *s, struct cgroup *ret)
{
	const char *name = ns_cgroup_name(s);

	return is_of_another(s) ? cgroup_open(ret, s->at.cgroup_table, name)
				: cgroup_open_at(ret, &s->ns->cgroups, name);
}

/*
 * Shortens /proc/self/cgroup to one line per path: most hierarchies have the same path. False: the result
 * does not fit.
 */
static bool shorten_table(const char *table, char *ret, size_t size)
{
	auto_free char *copy = str_copy(table);
	struct list paths = {0}, names = {0};
	size_t len = 0, i;
	char *save = NULL;

	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *name = strchr(line, ':'), *path = name ? strchr(name + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		/* The unified hierarchy has no name, and stays by itself. */
		for (i = name[1] ? 0 : paths.count; i < paths.count; i++)
			if (names.items[i][0] && str_equal(paths.items[i], path))
				break;
		if (i == paths.count) {
			list_add(&paths, path);
			list_add(&names, name + 1);
		} else {
			char *joined = str_format("%s,%s", names.items[i], name + 1);

			free(names.items[i]);
			names.items[i] = joined;
		}
	}
	for (i = 0; i < paths.count && len < size; i++)
		len += (size_t)snprintf(ret + len, size - len, "%d:%s:%s\n", names.items[i][0] != 0,
					names.items[i], paths.items[i]);
	list_done(&paths);
	list_done(&names);
	return len < size;
}

/* ---- its files ---- */

static int get_scratch(const struct ns_sandbox *s, struct stat *ret)
{
	auto_close int fd = (int)syscall(SYS_pidfd_getfd, s->pidfd, GUEST_FD_SCRATCH, 0);

	return fd < 0 || fstat(fd, ret) < 0 ? -1 : take_fd(&fd);
}

/* Called before anything else runs in the sandbox. */
static void note_scratch(struct ns_sandbox *s)
{
	struct stat st;
	auto_close int fd = get_scratch(s, &st);

	s->at.scratch_dev = fd < 0 ? 0 : (uint64_t)st.st_dev;
}

/* A hijacked pid 1 may have put another directory there, even one of the host's. */
int ns_scratch(const struct ns_sandbox *s, struct err *e)
{
	struct stat st;
	auto_close int fd = get_scratch(s, &st);

	if (fd < 0)
		return err_sys(e, "cannot reach the files of sandbox %s", s->i->info.id);
	if ((uint64_t)st.st_dev != s->at.scratch_dev)
		return err_set(e, ERR_CONFLICT, "the files of sandbox %s are not where they were",
			       s->i->info.id);
	return take_fd(&fd);
}

/* ---- its link ---- */

/* By the directory's fd: its path may be longer than a socket's address. */
static void socket_address(const struct ns_sandbox *s, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s.sock",
		 s->ns->host->boxes_dir, s->i->info.id);
}

static int open_listener(struct ns_sandbox *s, struct err *e)
{
	struct sockaddr_un address;

	socket_address(s, &address);
	s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->listener < 0 || bind(s->listener, (void *)&address, sizeof(address)) < 0 ||
	    listen(s->listener, 16) < 0)
		return err_sys(e, "cannot make the socket of sandbox %s", s->i->info.id);
	return 0;
}

static int open_link(const struct ns_sandbox *s, struct err *e)
{
	struct sockaddr_un address;
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(e, "cannot create a socket");
	socket_address(s, &address);
	if (connect(fd, (void *)&address, sizeof(address)) < 0)
		return err_sys(e, "cannot connect to the guest of %s", s->i->info.id);
	return take_fd(&fd);
}

/* ---- death ---- */

#define CLEAR_STEP_MS 3
#define CLEAR_MS 30000
#define INSIST_MS 50

/* False: not yet. Tasks leave a cgroup a moment after they are dead. */
static bool clear_cgroups(struct ns_sandbox *s)
{
	const char *name = ns_cgroup_name(s);
	struct cgroup c;

	/* What was left without a record (no pid) may have been a warm host. */
	if ((s->at.warm_host_lanes || !s->at.pid) && !boot_remove_lanes(&s->ns->cgroups, name))
		return false;
	if (!is_of_another(s) && cgroup_try_remove_at(&s->ns->cgroups, name))
		return true;
	if (!ns_cgroup(s, &c) || cgroup_try_remove(&c))
		return true;
	cgroup_kill(&c);
	cgroup_close(&c);
	return false;
}

/*
 * Does its pid 1 still listen, although the pid is unknown? Then the record could not be read, and no cgroup
 * led to its processes. Of a boot that failed here pid 1 is dead, and only a fork of ours may have the socket.
 */
static bool still_listens(const struct ns_sandbox *s)
{
	struct err ignored;
	auto_close int link = s->at.pid || s->is_ours ? -1 : open_link(s, &ignored);

	return link >= 0;
}

/* Only its socket and our memory of it are left. */
static void finish_destroy(struct ns_sandbox *s)
{
	struct provider_host *h = s->ns->host;
	provider_done done = s->destroyed;
	void *arg = s->destroyed_arg;
	char name[IPC_ID + 8];
	struct err e = {0};

	if (still_listens(s)) {
		err_set(&e, ERR_CONFLICT,
			"its record cannot be read and it has no cgroup, so its processes must be "
			"ended by hand");
		loop_timer_stop(h->loop, &s->timer);
		done(arg, NULL, &e);
		return;
	}

	snprintf(name, sizeof(name), "%s.sock", s->i->info.id);
	unlinkat(h->boxes_dir, name, 0);
	ns_disk_remove(s);
	ns_weigh_no_more(s);
	if (s->range >= 0)
		s->ns->ranges[s->range] = 0;
	loop_timer_stop(h->loop, &s->timer);
	free(s->stopped.own);
	s->i->own = NULL;
	free(s);
	done(arg, NULL, NULL);
}

static void clear_step(void *arg)
{
	struct ns_sandbox *s = arg;

	if (!clear_cgroups(s)) {
		if (now_ns() - s->dying_since_ns < CLEAR_MS * 1000000LL) {
			loop_timer_set(s->ns->host->loop, &s->timer, CLEAR_STEP_MS);
			return;
		}
		log_error("cgroup cannot be removed", "id", s->i->info.id);
	}
	finish_destroy(s);
}

static void begin_to_clear(struct ns_sandbox *s)
{
	loop_timer_stop(s->ns->host->loop, &s->timer);
	s->timer = (struct loop_timer){.call = clear_step, .arg = s};
	clear_step(s);
}

static void kill_again(void *arg)
{
	struct ns_sandbox *s = arg;
	struct cgroup c;

	if (!ns_cgroup(s, &c))
		return;
	/* On v1 frozen tasks die only when they are thawed (rule 23); and dying takes cpu time. */
	cgroup_lift_cpu(&c);
	cgroup_kill(&c);
	cgroup_freeze(&c, false);
	cgroup_close(&c);
}

/*
 * Killing pid 1 kills its whole pid namespace, and usually nothing else is to be done. Pid 1 takes its mounts
 * down before it is dead, and the requester waits for that: answering earlier delays the next sandbox by
 * more than the client gains.
 */
static void ns_destroy(struct instance *i, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);
	bool may_be_frozen = i->info.paused || s->frozen || s->snapshot_worker.loop;

	s->destroyed = done;
	s->destroyed_arg = arg;
	s->dying_since_ns = now_ns();
	close_fd(&s->listener);
	ns_stop_freezing(s);
	if (s->pidfd >= 0)
		sys_pidfd_send_signal(s->pidfd, SIGKILL);
	if (!s->death.active) {
		close_fd(&s->pidfd);
		begin_to_clear(s);
		return;
	}
	s->timer = (struct loop_timer){.call = kill_again, .arg = s};
	loop_timer_set(s->ns->host->loop, &s->timer, may_be_frozen ? 0 : INSIST_MS);
}

static void on_death(void *arg, uint32_t events)
{
	struct ns_sandbox *s = arg;
	struct cgroup_stats stats = {0};
	struct cgroup c;

	loop_unwatch(s->ns->host->loop, &s->death);
	close_fd(&s->pidfd);
	if (s->destroyed) {
		begin_to_clear(s);
		return;
	}
	/* The kernel tells from outside only whether memory was the reason. */
	if (ns_cgroup(s, &c)) {
		cgroup_read_stats(&c, &stats);
		cgroup_close(&c);
	}
	s->ns->host->on_ended(s->i, stats.oom_kills > 0,
			      stats.oom_kills
				      ? "its pid 1 is gone; the kernel killed in it for memory"
				      : "its pid 1 is gone");
}

/* From now on on_death is called when pid 1 ends. */
static int watch_death(struct ns_sandbox *s, struct err *e)
{
	s->death =
		(struct loop_watch){.fd = s->pidfd, .events = EPOLLIN, .call = on_death, .arg = s};
	if (loop_watch(s->ns->host->loop, &s->death) < 0)
		return err_sys(e, "cannot watch sandbox %s", s->i->info.id);
	return 0;
}

/* ---- another link ---- */

static void ns_connect(struct instance *i, provider_done done, void *arg)
{
	struct err e = {0};
	auto_close int fd = open_link(ns_sandbox(i), &e);

	done(arg, &(struct provider_result){.fd = fd}, fd < 0 ? &e : NULL);
}

/* ---- booting ---- */

static void ns_probe(struct provider_host *h, provider_done done, void *arg)
{
	struct err e = {0};

	if (!ns_of(h)->has_table)
		err_set(&e, ERR_SYSTEM,
			"the paths of the daemon's cgroups are too long to be written down");
	done(arg, NULL, e.kind ? &e : NULL);
}

static void ns_boot(struct instance *i, const struct ipc_boot *b, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);
	struct err e = {0};

	s->is_ours = true;
	s->done = done;
	s->arg = arg;
	/* The host's files belong to root, so only root can put a layer over them. */
	/* Layers of the store can be shown below a writable one by any user. */
	i->info.root = i->host->rootless && !image_is_digest(b->image) ? ROOT_RO : b->root;
	memcpy(s->at.cgroup_table, s->ns->cgroup_table, sizeof(s->at.cgroup_table));
	if ((!i->host->rootless && take_range(s, &e) < 0) || open_listener(s, &e) < 0) {
		ns_answer(s, NULL, &e);
		return;
	}
	s->boot = must_alloc(malloc(sizeof(*s->boot)));
	*s->boot = *b;
	if (b->disk_type == DISK_IMAGE)
		ns_disk_begin(s);
	else
		boot_workers_add(s);
}

static void describe_booted(struct ns_sandbox *s, const struct booted *r)
{
	struct ipc_booted *i = &s->i->info;

	i->rootless = r->rootless;
	i->cgroup_version = r->proven & LAYER_BIT(LAYER_CGROUP) ? (uint8_t)r->cgroup.version : 0;
	i->memory_by_cgroup = (r->proven & LAYER_BIT(LAYER_MEMORY)) != 0;
	i->listening = r->listening;
	i->landlock_abi = r->landlock_abi;
	i->proven = r->proven;
	i->root_inside = (uint8_t)r->root_inside;
	i->missing = r->missing;
	memcpy(i->seccomp, r->seccomp, sizeof(i->seccomp));
	snprintf(i->disk, sizeof(i->disk), "%s",
		 !(r->proven & LAYER_BIT(LAYER_DISK)) ? "none"
		 : s->boot->disk_type == DISK_IMAGE   ? "image"
						      : "tmpfs");
	if (s->boot->disk_type == DISK_IMAGE)
		i->has_disk = IPC_HAS_DISK | (s->i->has_disk_key ? IPC_DISK_ENCRYPTED : 0) |
			      (s->disk_has_files ? IPC_DISK_HAS_FILES : 0) |
			      (s->disk_has_was ? IPC_DISK_HAS_WAS : 0);
	memcpy(i->note, r->note, sizeof(i->note));
	if (s->boot->root == ROOT_OVERLAY && i->root == ROOT_RO && !i->note[0])
		snprintf(i->note, sizeof(i->note),
			 "The root is read-only, since a layer over the host's files needs a "
			 "daemon that is root; home, /tmp and the workspace can be written.");
}

void ns_booted(struct ns_sandbox *s, const struct booted *result, int pidfd,
	       const struct err *error)
{
	struct err e = {0};
	auto_close int link = -1;

	close_fd(&s->listener);
	if (error) {
		free(take_ptr(s->boot));
		ns_answer(s, NULL, error);
		return;
	}
	describe_booted(s, result);
	s->at.pid = result->pid;
	s->at.identity = result->identity;
	s->at.warm_host_lanes = ipc_boot_lanes(s->boot);
	s->pidfd = pidfd;
	note_scratch(s);
	ns_disk_clean(s);
	memcpy(s->i->blob, &s->at, sizeof(s->at));
	free(take_ptr(s->boot));
	ns_weigh(s);
	if (watch_death(s, &e) == 0 && !s->i->is_doomed)
		link = open_link(s, &e);
	ns_answer(s, &(struct provider_result){.fd = link}, e.kind ? &e : NULL);
}

/* ---- adopting ---- */

#define ADOPT_TRIES 5
#define ADOPT_AGAIN_MS 10

static int refuse_adoption(struct err *e, const char *why)
{
	return err_set(e, ERR_CONFLICT, "%s", why);
}

/* ERR_CONFLICT only if pid 1 has ended: a call may fail because the host is short of files or memory. */
static int cannot_compare(const struct ns_sandbox *s, struct err *e)
{
	struct pollfd end = {s->pidfd, POLLIN, 0};

	if (poll(&end, 1, 0) == 1)
		return refuse_adoption(e, "its pid 1 is gone");
	return err_set(e, ERR_SYSTEM, "its pid 1 cannot be looked at");
}

/* Is pid 1 in the cgroup of the record? Its /proc entry, which only the kernel writes, tells. */
static int compare_cgroup(const struct ns_sandbox *s, struct err *e)
{
	char name[CGROUP_NAME], text[4096];

	if (!s->i->info.cgroup_version)
		return 0;
	if (io_read_path(text, sizeof(text), "/proc/%d/cgroup", (int)s->at.pid) <= 0)
		return cannot_compare(s, e);
	name_alone(s, name);
	return strstr(text, name) ? 0 : refuse_adoption(e, "it is not in its cgroup");
}

/*
 * The pidfd is opened first, so that all comparisons are about this very process (rule 21). ERR_CONFLICT: the
 * sandbox of the record is gone. Other errors: nothing is known.
 */
static int compare_record(struct ns_sandbox *s, struct err *e)
{
	struct boot_identity now;

	if (s->at.pid < 2 || s->at.pid > INT32_MAX ||
	    !memchr(s->at.cgroup_table, '\0', sizeof(s->at.cgroup_table)))
		return refuse_adoption(e, "its record is none of ours");
	s->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)s->at.pid, 0);
	if (s->pidfd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return err_sys(e, "cannot look for its pid 1");
	if (s->pidfd < 0)
		return refuse_adoption(e, "its pid 1 is gone");
	if (boot_identify((pid_t)s->at.pid, &now, e) < 0)
		return cannot_compare(s, e);
	if (now.start_time != s->at.identity.start_time)
		return refuse_adoption(e, "its pid is somebody else's now");
	if (now.pid_ns != s->at.identity.pid_ns || now.mount_ns != s->at.identity.mount_ns)
		return refuse_adoption(e, "its namespaces are not those of the record");
	return compare_cgroup(s, e) < 0 ? -1 : watch_death(s, e);
}

static int ns_import_0_1(struct instance *i, const struct record_0_1 *r, struct err *e)
{
	struct ns_blob at = {.pid = r->pid,
			     .scratch_dev = r->scratch_dev,
			     .identity = {.start_time = r->identity.start_time,
					  .pid_ns = r->identity.pid_ns,
					  .mount_ns = r->identity.mount_ns},
			     .id_base = r->id_base,
			     /* The record does not say; but every warm host is transient. */
			     .warm_host_lanes = r->info.transient};

	if (!shorten_table(r->cgroup_table, at.cgroup_table, sizeof(at.cgroup_table)))
		return err_set(e, ERR_UNSUPPORTED, "the paths of its cgroups are too long");
	memcpy(i->blob, &at, sizeof(at));
	return 0;
}

static void ns_adopt(struct instance *i, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);
	struct err e = {0};

	memcpy(&s->at, i->blob, sizeof(s->at));
	keep_range(s);
	for (int tries = 1; compare_record(s, &e) < 0; tries++) {
		close_fd(&s->pidfd);
		if (e.kind == ERR_CONFLICT || tries == ADOPT_TRIES)
			break;
		e = (struct err){0};
		poll(NULL, 0, ADOPT_AGAIN_MS);
	}
	if (!e.kind) {
		ns_disk_thaw(s);
		if (!i->info.paused)
			ns_thaw_leftover(s);
		ns_weigh(s);
		done(arg, NULL, NULL);
		return;
	}
	/* A process that has its pid now is not killed; processes in its cgroup are. */
	s->at.cgroup_table[sizeof(s->at.cgroup_table) - 1] = '\0';
	s->at.warm_host_lanes = 1;
	if (e.kind != ERR_CONFLICT)
		s->at.pid = 0;
	done(arg, NULL, &e);
}

/* Reports this daemon's cgroups, so that those without a record are removed. */
static void ns_find_leftovers(struct provider_host *h)
{
	struct list names = {0};
	char prefix[CGROUP_NAME], groups[CGROUP_NAME];

	snprintf(prefix, sizeof(prefix), BOX, h->tag);
	snprintf(groups, sizeof(groups), GROUP, h->tag);
	cgroup_list(ns_of(h)->cgroups.table, prefix, groups, &names);
	for (size_t i = 0; i < names.count; i++) {
		const char *rest = names.items[i] + strlen(prefix);
		char id[IPC_ID] = "";

		/* A warm host's lanes have a number behind its id. */
		memcpy(id, rest, strnlen(rest, 20));
		if (ipc_id_is_valid(id) && (!rest[20] || rest[20] == '-'))
			h->on_leftover(h, &provider_ns, id);
	}
	list_done(&names);
	if (h->has_foreign)
		keep_ranges_in_use(ns_of(h));
}

/* ---- the row ---- */

static void ns_net_enter(struct instance *i, int family, int type, provider_done done, void *arg)
{
	struct err e = {0};
	auto_close int fd = -1;

	if ((family != AF_INET && family != AF_INET6) ||
	    (type != SOCK_STREAM && type != SOCK_DGRAM))
		err_set(&e, ERR_INVALID, "no socket of this kind is opened in a sandbox");
	else
		fd = net_enter(ns_sandbox(i)->pidfd, i->host->rootless, family, type, &e);

	done(arg, &(struct provider_result){.fd = fd}, fd < 0 ? &e : NULL);
}

static void ns_net_prepare(struct instance *i, const struct net_setup *setup, provider_done done,
			   void *arg)
{
	struct net_listeners listeners = {.count = 0};
	struct err e = {0};
	int rc = net_prepare(ns_sandbox(i)->pidfd, i->host->rootless, setup, &listeners, &e);

	done(arg, &(struct provider_result){.fd = -1, .listeners = &listeners}, rc < 0 ? &e : NULL);
}

static void ns_trust(struct instance *i, const char *pem, size_t len, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);
	const struct trust_visit v = {.pidfd = s->pidfd,
				      .rootless = i->host->rootless,
				      .uid = s->at.id_base + SANDBOX_UID,
				      .pem = pem,
				      .len = len,
				      .dev = s->at.trust_dev};
	struct err e = {0};
	int rc = trust_enter(&v, &s->at.trust_dev, &e);

	memcpy(i->blob, &s->at, sizeof(s->at));
	done(arg, NULL, rc < 0 ? &e : NULL);
}

static void ns_start(struct provider_host *h)
{
	struct ns *ns = must_alloc(calloc(1, sizeof(*ns)));

	h->rows[PROVIDER_NS] = ns;
	ns->host = h;
	TAILQ_INIT(&ns->weigh.all);
	(void)!getrandom(&ns->next_range, sizeof(ns->next_range), 0);
	cgroup_enter_leaf("cloche-daemon");
	cgroup_place_open(&ns->cgroups, NULL);
	ns->has_table =
		shorten_table(ns->cgroups.table, ns->cgroup_table, sizeof(ns->cgroup_table));
	ns->disks.file = -1;
	boot_workers_start(ns);
}

static void ns_stop(struct provider_host *h)
{
	if (ns_of(h))
		ns_disks_stop(ns_of(h));
	boot_workers_stop(h);
}

const struct provider_row provider_ns = {
	.name = "ns",
	.can = CAN_PAUSE | CAN_SNAPSHOT | CAN_FORK | CAN_UPDATE | CAN_NET | CAN_PORTS |
	       CAN_VOLUMES | CAN_IMAGE | CAN_PROVE | CAN_PREPARE | CAN_DISK,
	.connects_at_once = true,
	.start = ns_start,
	.stop = ns_stop,
	.reaped = boot_workers_reaped,
	.find_leftovers = ns_find_leftovers,
	.probe = ns_probe,
	.boot = ns_boot,
	.import_0_1 = ns_import_0_1,
	.adopt = ns_adopt,
	.connect = ns_connect,
	.update = ns_update,
	.pause = ns_pause,
	.resume = ns_resume,
	.snapshot = ns_snapshot,
	.disk_read = ns_disk_read,
	.disk_done = ns_disk_done,
	.stats = ns_stats,
	.destroy = ns_destroy,
	.net_enter = ns_net_enter,
	.net_prepare = ns_net_prepare,
	.trust = ns_trust,
};

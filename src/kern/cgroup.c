#include "kern/cgroup.h"

#include "kern/cgroup_group.h"
#include "kern/dirents.h"
#include "kern/sys.h"

#include <assert.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/vfs.h>

#define PREFIX "cloche-"
#define SOCKETS(l) ((l)->memory_bytes / 8 + (16u << 20)) /* in TCP and UDP; less makes them slow */

static const char *const controllers[] = {
	[CGROUP_MEMORY] = "memory",   [CGROUP_CPU] = "cpu",	    [CGROUP_PIDS] = "pids",
	[CGROUP_CPUACCT] = "cpuacct", [CGROUP_FREEZER] = "freezer", [CGROUP_BLKIO] = "blkio",
};
static_assert(ARRAY_LEN(controllers) == CGROUP_CONTROLLERS, "a name per controller");

static const layer_set layer_of[CGROUP_CONTROLLERS] = {
	[CGROUP_MEMORY] = LAYER_BIT(LAYER_MEMORY),
	[CGROUP_CPU] = LAYER_BIT(LAYER_CPU),
	[CGROUP_PIDS] = LAYER_BIT(LAYER_PIDS),
};

/* Writes a number and reads it back: what cannot be read back was not applied (rule 1). */
static int set_number(int dir, const char *name, uint64_t value)
{
	auto_close int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	char text[32], back[32] = "";
	int len = snprintf(text, sizeof(text), "%" PRIu64, value);

	if (fd < 0 || write(fd, text, (size_t)len) != len ||
	    pread(fd, back, sizeof(back) - 1, 0) <= 0)
		return -1;
	return strtoull(back, NULL, 10) <= value ? 0 : -1;
}

static uint64_t get_number(int dir, const char *name)
{
	char text[32];

	return io_read_at(dir, name, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

/* The number behind "key " at the start of a line. */
static uint64_t find_keyed(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, len) == 0 && line[len] == ' ')
			return strtoull(line + len + 1, NULL, 10);
	}
	return 0;
}

static uint64_t get_keyed(int dir, const char *name, const char *key)
{
	char text[1024];

	return io_read_at(dir, name, text, sizeof(text)) <= 0 ? 0 : find_keyed(text, key);
}

static uint64_t get_keyed_fd(int fd, const char *key)
{
	char text[1024];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return find_keyed(text, key);
}

/* The directory with the files of a controller; v2 has one for all. -1: there is none. */
static int dir_of(const struct cgroup *c, enum cgroup_controller which)
{
	return c->version == 2 ? c->dirs[0] : c->version == 1 ? c->dirs[which] : -1;
}

/* A file has one name in v2 and another in v1. */
static const char *either(const struct cgroup *c, const char *v2, const char *v1)
{
	return c->version == 2 ? v2 : v1;
}

/*
 * What is written to the sandbox's tmpfs is charged to its memory. A disk that is as large as
 * memory must still be full before memory is (rule 13), so it gets some room beside it.
 */
static uint64_t memory_limit(const struct limits *l)
{
	uint64_t with_disk = l->disk_bytes + l->memory_bytes / 8;

	return with_disk > l->memory_bytes ? with_disk : l->memory_bytes;
}

void cgroup_init(struct cgroup *c, ino_t pid_ns)
{
	*c = (struct cgroup){0};
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		c->parents[i] = c->dirs[i] = -1;
	/* The pid alone would not be enough: keepers in other pid namespaces share this tree. */
	io_read_at(AT_FDCWD, "/proc/self/cgroup", c->table, sizeof(c->table));
	snprintf(c->name, sizeof(c->name), PREFIX "%lu-%d", (unsigned long)pid_ns, (int)getpid());
}

void cgroup_init_at(struct cgroup *c, const struct cgroup_place *p, const char *name)
{
	*c = (struct cgroup){.lives_on = true, .place = p};
	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		c->parents[i] = p->parents[i];
		c->dirs[i] = -1;
	}
	snprintf(c->name, sizeof(c->name), "%s", name);
}

/* Parents that belong to a place stay open. */
static void close_parent(struct cgroup *c, int i)
{
	if (!c->place)
		close_fd(&c->parents[i]);
	c->parents[i] = -1;
}

/* A leftover of a dead keeper with our pid is taken away first. */
static int make_new(int parent, const char *name)
{
	int rc = -1;

	errno = ENOENT;
	/* Somebody else may remove the group as soon as it is made, since it is empty. */
	for (int tries = 0; rc < 0 && errno == ENOENT && tries < 100; tries++)
		if (cgroup_group_make(parent, name) == 0)
			rc = mkdirat(parent, name, 0755);
	if (rc < 0 && errno == EEXIST && unlinkat(parent, name, AT_REMOVEDIR) == 0)
		rc = mkdirat(parent, name, 0755);
	return rc;
}

/* Makes c->name below parent. */
static int make_dir(struct cgroup *c, int parent)
{
	int fd;

	if (make_new(parent, c->name) < 0)
		return -1;
	fd = openat(parent, c->name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		unlinkat(parent, c->name, AT_REMOVEDIR);
	return fd;
}

/* ---- v2 ---- */

static bool has_controllers(int dir, const char *file)
{
	static const char *const needed[] = {"memory", "cpu", "pids"};
	char text[256], words[260];

	if (io_read_at(dir, file, text, sizeof(text)) <= 0)
		return false;
	snprintf(words, sizeof(words), " %s", text);
	for (char *p = words; *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
		char word[16];

		snprintf(word, sizeof(word), " %s ", needed[i]);
		if (!strstr(words, word))
			return false;
	}
	return true;
}

/* May children of this directory have all our controllers, after asking for them if need be? */
static bool hands_out_controllers(int dir)
{
	if (has_controllers(dir, "cgroup.subtree_control"))
		return true;
	return has_controllers(dir, "cgroup.controllers") &&
	       io_write_at(dir, "cgroup.subtree_control", "+memory +cpu +pids") == 0 &&
	       has_controllers(dir, "cgroup.subtree_control");
}

/*
 * The nearest ancestor of our own cgroup below which a child with controllers can be made. Writing
 * access to its cgroup.procs is what the kernel asks of the process that moves a task between two of its
 * descendants (cgroups(7)), so it doubles as the test for delegation.
 */
static int find_parent_v2(const char *own)
{
	char path[PATH_MAX + 64];
	size_t len;

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s", str_equal(own, "/") ? "" : own);
	len = strlen("/sys/fs/cgroup");
	for (;;) {
		int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		char *slash = strrchr(path + len, '/');

		if (dir >= 0 && faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) == 0 &&
		    faccessat(dir, ".", W_OK, AT_EACCESS) == 0 && hands_out_controllers(dir))
			return dir;
		close_fd(&dir);
		if (!slash)
			return -1;
		*slash = '\0';
	}
}

static int limit_v2(struct cgroup *c, const struct limits *l)
{
	int dir = c->dirs[0];
	char cpu[64];

	snprintf(cpu, sizeof(cpu), "%" PRIu64 " 100000", l->cpus_milli * 100);
	if (set_number(dir, "memory.max", memory_limit(l)) == 0 &&
	    (set_number(dir, "memory.swap.max", 0) == 0 || errno == ENOENT))
		c->layers |= LAYER_BIT(LAYER_MEMORY);
	if (io_write_at(dir, "cpu.max", cpu) == 0)
		c->layers |= LAYER_BIT(LAYER_CPU);
	/* One more for our own pid 1. */
	if (set_number(dir, "pids.max", l->pids + !c->all_foreign) == 0)
		c->layers |= LAYER_BIT(LAYER_PIDS);
	return c->layers ? 0 : -1;
}

static int create_v2(struct cgroup *c, const char *own, const struct limits *l)
{
	if (!c->place)
		c->parents[0] = find_parent_v2(own);
	if (c->parents[0] < 0)
		return -1;
	c->dirs[0] = make_dir(c, c->parents[0]);
	if (c->dirs[0] < 0)
		return -1;
	c->version = 2;
	return limit_v2(c, l);
}

/* ---- v1 ---- */

/* Our cgroup in one v1 hierarchy: the line "N:...,controller,...:PATH" of /proc/self/cgroup. */
static bool own_path_v1(const char *table, const char *controller, char *ret, size_t size)
{
	size_t len = strlen(controller);

	for (const char *line = table; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *p = strchr(line, ':');
		const char *end = line + strcspn(line, "\n");

		if (!p || p > end)
			continue;
		for (p++; p < end && *p != ':'; p += *p == ',') {
			size_t n = strcspn(p, ",:");

			if (n == len && strncmp(p, controller, len) == 0) {
				p = memchr(p, ':', (size_t)(end - p));
				if (!p)
					return false;
				snprintf(ret, size, "%.*s", (int)(end - p - 1), p + 1);
				return true;
			}
			p += n;
		}
	}
	return false;
}

static int open_parent_v1(const char *table, const char *controller)
{
	char own[PATH_MAX], path[PATH_MAX + 64];
	struct statfs fs;
	int dir;

	if (!own_path_v1(table, controller, own, sizeof(own)))
		return -1;
	snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s", controller, own);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		/* In a container the mount may show our cgroup as its root. */
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", controller);
		dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (dir >= 0 && (fstatfs(dir, &fs) < 0 || fs.f_type != CGROUP_SUPER_MAGIC))
		close_fd(&dir);
	return dir;
}

static int limit_v1(struct cgroup *c, enum cgroup_controller which, const struct limits *l)
{
	int dir = c->dirs[which];

	switch (which) {
	case CGROUP_MEMORY:
		if (set_number(dir, "memory.limit_in_bytes", memory_limit(l)) < 0 ||
		    (set_number(dir, "memory.kmem.tcp.limit_in_bytes", SOCKETS(l)) < 0 &&
		     errno != ENOENT))
			return -1;
		if (set_number(dir, "memory.memsw.limit_in_bytes", memory_limit(l)) == 0)
			return 0;
		return errno == ENOENT ? set_number(dir, "memory.swappiness", 0) : -1;
	case CGROUP_CPU:
		/* Less is read back if a parent has less to give; it holds all the same. */
		return set_number(dir, "cpu.cfs_quota_us", l->cpus_milli * 100);
	case CGROUP_PIDS:
		return set_number(dir, "pids.max", l->pids + !c->all_foreign);
	default:
		return 0;
	}
}

static int create_v1(struct cgroup *c, const char *table, const struct limits *l)
{
	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		/* rusage tells the processor time at the end; only a limit needs it before. */
		if (i >= CGROUP_CPUACCT && !c->lives_on && !(i == CGROUP_CPUACCT && l->cpu_time_ms))
			continue;
		if (!c->place)
			c->parents[i] = open_parent_v1(table, controllers[i]);
		if (c->parents[i] < 0)
			continue;
		c->dirs[i] = make_dir(c, c->parents[i]);
		if (c->dirs[i] < 0)
			continue;
		c->version = 1;
		if (limit_v1(c, i, l) == 0)
			c->layers |= layer_of[i];
	}
	return c->version ? 0 : -1;
}

/* ---- both ---- */

static bool is_unified(const char *table)
{
	char own[PATH_MAX];

	return !own_path_v1(table, "memory", own, sizeof(own));
}

bool cgroup_is_unified(const struct cgroup *c)
{
	return c->place ? c->place->version == 2 : is_unified(c->table);
}

bool cgroup_may_be_unified(void)
{
	struct statfs fs;

	return statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Our cgroup in the v2 hierarchy. */
static void own_path_v2(const char *table, char *ret, size_t size)
{
	const char *unified = str_starts(table, "0::") ? table : strstr(table, "\n0::");

	snprintf(ret, size, "/");
	if (!unified)
		return;
	unified = strstr(unified, "0::") + 3;
	snprintf(ret, size, "%.*s", (int)strcspn(unified, "\n"), unified);
}

void cgroup_create(struct cgroup *c, const struct limits *limits)
{
	char own[PATH_MAX];
	int rc;

	own_path_v2(c->table, own, sizeof(own));
	rc = cgroup_is_unified(c) ? create_v2(c, own, limits) : create_v1(c, c->table, limits);
	if (rc < 0)
		cgroup_remove(c);
}

bool cgroup_contains(const struct cgroup *c, pid_t pid)
{
	char text[256], *at = text;

	if (io_read_at(c->dirs[0], "cgroup.procs", text, sizeof(text)) <= 0)
		return false;
	while (*at) {
		if (strtol(at, &at, 10) == pid)
			return true;
		at += *at == '\n';
	}
	return false;
}

int cgroup_join_fds(const struct cgroup *c, int fds[CGROUP_CONTROLLERS])
{
	int n = 0;

	for (int i = 0; c->version == 1 && i < CGROUP_CONTROLLERS; i++) {
		if (c->dirs[i] < 0)
			continue;
		fds[n] = openat(c->dirs[i], "tasks", O_RDWR | O_CLOEXEC);
		if (fds[n] < 0) {
			while (n > 0)
				close(fds[--n]);
			return -1;
		}
		n++;
	}
	return n;
}

uint64_t cgroup_cpu_us(const struct cgroup *c)
{
	int dir = dir_of(c, CGROUP_CPUACCT);

	if (dir < 0)
		return 0;
	return c->version == 2 ? get_keyed(dir, "cpu.stat", "usage_usec")
			       : get_number(dir, "cpuacct.usage") / 1000;
}

void cgroup_read_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
	int memory = dir_of(c, CGROUP_MEMORY), pids = dir_of(c, CGROUP_PIDS);
	char text[32];

	*ret = (struct cgroup_stats){.pids_peak = -1};
	if (memory >= 0) {
		ret->oom_kills = get_keyed(memory, either(c, "memory.events", "memory.oom_control"),
					   "oom_kill");
		ret->memory_peak_bytes =
			get_number(memory, either(c, "memory.peak", "memory.max_usage_in_bytes"));
	}
	if (pids >= 0) {
		ret->pids_refused = get_keyed(pids, "pids.events", "max");
		if (io_read_at(pids, "pids.peak", text, sizeof(text)) > 0)
			ret->pids_peak = (int64_t)strtoull(text, NULL, 10) - !c->all_foreign;
	}
	ret->cpu_us = cgroup_cpu_us(c);
}

static int open_file_of(const struct cgroup *c, enum cgroup_controller which, const char *name,
			int flags)
{
	int dir = dir_of(c, which);

	return dir < 0 ? -1 : openat(dir, name, flags | O_CLOEXEC);
}

void cgroup_open_events(const struct cgroup *c, int *ret_memory, int *ret_pids)
{
	*ret_memory = open_file_of(c, CGROUP_MEMORY,
				   either(c, "memory.events", "memory.oom_control"), O_RDONLY);
	*ret_pids = open_file_of(c, CGROUP_PIDS, "pids.events", O_RDONLY);
}

uint64_t cgroup_count_oom_kills(int memory_events)
{
	return get_keyed_fd(memory_events, "oom_kill");
}

uint64_t cgroup_count_pids_refused(int pids_events)
{
	return get_keyed_fd(pids_events, "max");
}

int cgroup_open_peak(const struct cgroup *c)
{
	return open_file_of(c, CGROUP_MEMORY, either(c, "memory.peak", "memory.max_usage_in_bytes"),
			    O_RDWR);
}

int cgroup_reset_peak(int peak)
{
	return pwrite(peak, "0", 1, 0) == 1 ? 0 : -1;
}

uint64_t cgroup_read_peak(int peak)
{
	char text[32];
	ssize_t n = pread(peak, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return strtoull(text, NULL, 10);
}

/* -1 with errno; ENOENT: it does not have the controller. */
static int write_file_of(const struct cgroup *c, enum cgroup_controller which, const char *name,
			 const char *text)
{
	int dir = dir_of(c, which);

	if (dir >= 0)
		return io_write_at(dir, name, text);
	errno = ENOENT;
	return -1;
}

void cgroup_weigh(const struct cgroup *c, unsigned share)
{
	unsigned v2 = share * 100 / 1024, v1 = share > 2 ? share : 2;
	char text[16];

	snprintf(text, sizeof(text), "%u", c->version == 1 ? v1 : v2 ? v2 : 1);
	write_file_of(c, CGROUP_CPU, either(c, "cpu.weight", "cpu.shares"), text);
}

void cgroup_give_way(const struct cgroup *c)
{
	cgroup_weigh(c, CGROUP_SHARE_USUAL);
}

void cgroup_lift_cpu(const struct cgroup *c)
{
	write_file_of(c, CGROUP_CPU, either(c, "cpu.max", "cpu.cfs_quota_us"),
		      either(c, "max", "-1"));
}

void cgroup_kill(const struct cgroup *c)
{
	int dir = dir_of(c, CGROUP_PIDS);
	char text[8192], *at = text;

	if (dir < 0 || (c->version == 2 && io_write_at(dir, "cgroup.kill", "1") == 0) ||
	    io_read_at(dir, "cgroup.procs", text, sizeof(text)) <= 0)
		return;
	/* Only members of our own cgroup, and only ones that the kernel shows as such just now. */
	for (long pid; (pid = strtol(at, &at, 10)) > 1;)
		kill((pid_t)pid, SIGKILL);
}

static void remove_dir(const struct cgroup *c, int parent)
{
	/* The last task may still be on its way out (EBUSY): a moment is enough. */
	for (int tries = 0; tries < 200; tries++) {
		if (unlinkat(parent, c->name, AT_REMOVEDIR) == 0 || errno != EBUSY)
			break;
		poll(NULL, 0, 1);
	}
	cgroup_group_drop(parent, c->name);
}

/* Last made, first removed: a keeper that dies meanwhile leaves at least the first; see cgroup_sweep. */
void cgroup_remove(struct cgroup *c)
{
	for (int i = CGROUP_CONTROLLERS - 1; i >= 0; i--) {
		if (c->dirs[i] >= 0)
			remove_dir(c, c->parents[i]);
		close_fd(&c->dirs[i]);
		close_parent(c, i);
	}
	c->version = 0;
	c->layers = 0;
}

/* ---- cgroups of sandboxes that outlive a request ---- */

void cgroup_place_open(struct cgroup_place *p, const char *table)
{
	char own[PATH_MAX];

	*p = (struct cgroup_place){0};
	if (table)
		snprintf(p->table, sizeof(p->table), "%s", table);
	else
		io_read_at(AT_FDCWD, "/proc/self/cgroup", p->table, sizeof(p->table));
	p->version = is_unified(p->table) ? 2 : 1;
	own_path_v2(p->table, own, sizeof(own));
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		p->parents[i] = p->version == 1 ? open_parent_v1(p->table, controllers[i])
				: i == 0	? find_parent_v2(own)
						: -1;
}

void cgroup_place_close(struct cgroup_place *p)
{
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		close_fd(&p->parents[i]);
}

static bool open_dirs(struct cgroup *c)
{
	bool any = false;

	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		if (c->parents[i] >= 0)
			c->dirs[i] =
				openat(c->parents[i], c->name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		any = any || c->dirs[i] >= 0;
	}
	if (!any)
		cgroup_close(c);
	return any;
}

bool cgroup_open_at(struct cgroup *c, const struct cgroup_place *p, const char *name)
{
	cgroup_init_at(c, p, name);
	c->version = p->version;
	return open_dirs(c);
}

bool cgroup_open(struct cgroup *c, const char *table, const char *name)
{
	struct cgroup_place p;

	cgroup_place_open(&p, table);
	cgroup_init_at(c, &p, name);
	c->version = p.version;
	/* The parents belong to c itself. */
	c->place = NULL;
	return open_dirs(c);
}

void cgroup_close(struct cgroup *c)
{
	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		close_fd(&c->dirs[i]);
		close_parent(c, i);
	}
	c->version = 0;
}

static bool try_remove(const int parents[CGROUP_CONTROLLERS], const char *name)
{
	for (int i = CGROUP_CONTROLLERS - 1; i >= 0; i--) {
		if (parents[i] < 0)
			continue;
		if (unlinkat(parents[i], name, AT_REMOVEDIR) < 0 && errno == EBUSY)
			return false;
		cgroup_group_drop(parents[i], name);
	}
	return true;
}

bool cgroup_try_remove(struct cgroup *c)
{
	bool gone = try_remove(c->parents, c->name);

	if (gone)
		cgroup_close(c);
	return gone;
}

bool cgroup_try_remove_at(const struct cgroup_place *p, const char *name)
{
	return try_remove(p->parents, name);
}

/* The sums of "MAJOR:MINOR ... rbytes=N wbytes=N" (v2), or of "MAJOR:MINOR Read N" (v1). */
static void sum_io(const char *text, struct cgroup_usage *ret)
{
	static const char *const reads[] = {"rbytes=", "Read "};
	static const char *const writes[] = {"wbytes=", "Write "};

	for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
		for (const char *at = text; (at = strstr(at, reads[i])); at++)
			ret->io_read_bytes += strtoull(at + strlen(reads[i]), NULL, 10);
		for (const char *at = text; (at = strstr(at, writes[i])); at++)
			ret->io_write_bytes += strtoull(at + strlen(writes[i]), NULL, 10);
	}
}

void cgroup_read_usage(const struct cgroup *c, struct cgroup_usage *ret)
{
	int memory = dir_of(c, CGROUP_MEMORY), pids = dir_of(c, CGROUP_PIDS);
	int io = dir_of(c, CGROUP_BLKIO);
	char text[4096];

	*ret = (struct cgroup_usage){0};
	if (memory >= 0) {
		ret->memory_bytes =
			get_number(memory, either(c, "memory.current", "memory.usage_in_bytes"));
		ret->memory_limit_bytes =
			get_number(memory, either(c, "memory.max", "memory.limit_in_bytes"));
	}
	if (pids >= 0)
		ret->pids = get_number(pids, "pids.current");
	if (io >= 0 && io_read_at(io, either(c, "io.stat", "blkio.throttle.io_service_bytes"), text,
				  sizeof(text)) > 0)
		sum_io(text, ret);
}

int cgroup_update(struct cgroup *c, const struct limits *limits)
{
	layer_set before = c->layers;
	int rc = 0;

	if (c->version == 2) {
		c->layers = 0;
		rc = limit_v2(c, limits);
		if (rc == 0 && before & ~c->layers)
			rc = -1;
		c->layers |= before;
		return rc;
	}
	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		if (c->dirs[i] < 0)
			continue;
		/* v1 insists on memory <= memory+swap at every moment, in both directions. */
		if (i == CGROUP_MEMORY)
			set_number(c->dirs[i], "memory.memsw.limit_in_bytes", memory_limit(limits));
		if (limit_v1(c, i, limits) < 0)
			rc = -1;
	}
	return rc;
}

int cgroup_freeze(const struct cgroup *c, bool frozen)
{
	return write_file_of(c, CGROUP_FREEZER, either(c, "cgroup.freeze", "freezer.state"),
			     frozen ? either(c, "1", "FROZEN") : either(c, "0", "THAWED"));
}

bool cgroup_is_frozen(const struct cgroup *c)
{
	int dir = dir_of(c, CGROUP_FREEZER);
	char text[32];

	if (c->version == 2)
		return get_keyed(dir, "cgroup.events", "frozen") == 1;
	return dir >= 0 && io_read_at(dir, "freezer.state", text, sizeof(text)) > 0 &&
	       str_starts(text, "FROZEN");
}

/* Is this process the only one in it? */
static bool is_alone(int dir)
{
	char text[64];
	char *end;

	return io_read_at(dir, "cgroup.procs", text, sizeof(text)) > 0 &&
	       strtol(text, &end, 10) == getpid() && (*end == '\0' || end[1] == '\0');
}

void cgroup_enter_leaf(const char *leaf)
{
	char own[PATH_MAX], path[PATH_MAX + 64];
	struct cgroup c;

	cgroup_init(&c, 0);
	if (!cgroup_is_unified(&c))
		return;
	own_path_v2(c.table, own, sizeof(own));
	auto_close int parent = find_parent_v2(own);

	if (parent >= 0)
		return;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s", own);
	auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || !is_alone(dir) || (mkdirat(dir, leaf, 0755) < 0 && errno != EEXIST))
		return;
	auto_close int below = openat(dir, leaf, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (below >= 0)
		(void)io_write_at(below, "cgroup.procs", "0");
}

/* A dead keeper's cgroup is always left in the first hierarchy; the others are removed with it. */
void cgroup_sweep(const struct cgroup *c)
{
	size_t own = (size_t)(strrchr(c->name, '-') + 1 - c->name);
	struct dirents_entry d;
	struct dirents list;
	int first = 0;

	while (first < CGROUP_CONTROLLERS - 1 && c->parents[first] < 0)
		first++;
	auto_close int fd =
		c->parents[first] < 0 ? -1 : openat(c->parents[first], ".", O_RDONLY | O_CLOEXEC);

	dirents_start(&list, fd);
	while (fd >= 0 && dirents_next(&list, &d)) {
		/* Only keepers of our pid namespace can be told dead or alive. */
		if (strncmp(d.name, c->name, own) != 0 || str_equal(d.name, c->name) ||
		    kill(atoi(d.name + own), 0) == 0 || errno != ESRCH)
			continue;
		/* One that is still in use (its tasks are dying) keeps the first for the next sweep. */
		for (int i = CGROUP_CONTROLLERS - 1; i >= first; i--)
			if (c->parents[i] >= 0 &&
			    unlinkat(c->parents[i], d.name, AT_REMOVEDIR) < 0 && errno != ENOENT)
				break;
	}
}

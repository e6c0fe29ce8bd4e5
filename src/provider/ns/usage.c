/* Changes the limits of a running sandbox, and reads what it uses. */
#include "provider/ns/ns_internal.h"

#include "kern/sys.h"
#include "kern/userns.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/root.h"

#include <assert.h>
#include <sys/resource.h>
#include <sys/vfs.h>

/* ---- limits ---- */

/* The tmpfs is mounted nowhere any more; the guest keeps an fd of it. */
static int resize_disk(const struct ns_sandbox *s, uint64_t bytes, struct err *e)
{
	auto_close int scratch = ns_scratch(s, e);
	char size[32];

	if (scratch < 0)
		return -1;
	auto_close int fs =
		(int)syscall(SYS_fspick, scratch, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);

	snprintf(size, sizeof(size), "%llu", (unsigned long long)(bytes + ROOT_SKELETON_BYTES));
	if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", size) < 0 ||
	    sys_fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL) < 0)
		return err_field(e, errno == EPERM ? ERR_UNSUPPORTED : ERR_SYSTEM, "disk",
				 "disk: cannot be changed while the sandbox runs: %s",
				 strerror(errno));
	return 0;
}

static uint64_t disk_of(const struct limits *l)
{
	return l->disk_bytes ? l->disk_bytes : l->memory_bytes / 2;
}

/* Commands that pid 1 starts from now on inherit the limit. */
static int resize_files(const struct ns_sandbox *s, const struct limits *l, struct err *e)
{
	uint64_t size = restrict_file_size(l);
	struct rlimit r = {size, size};

	if (size == restrict_file_size(&s->i->info.limits) ||
	    userns_prlimit((pid_t)s->at.pid, RLIMIT_FSIZE, &r, s->at.id_base) == 0)
		return 0;
	return err_field(e, errno == EPERM ? ERR_UNSUPPORTED : ERR_SYSTEM, "file_size",
			 "file_size: cannot be changed while the sandbox runs: %s",
			 strerror(errno));
}

/* A sandbox of the pool mostly has the limits already: they were read back when it was booted. */
static bool has_limits(const struct limits *before, const struct limits *wanted)
{
	struct limits now = *before;

	now.disk_bytes = disk_of(&now);
	static_assert(sizeof(now) == 9 * sizeof(uint64_t), "no bytes that say nothing");
	return memcmp(&now, wanted, sizeof(now)) == 0;
}

static int resize_cgroup(struct ns_sandbox *s, const struct limits *l, struct err *e)
{
	const struct limits *now = &s->i->info.limits;
	struct cgroup c;
	int rc;

	if (s->i->info.cgroup_version && ns_cgroup(s, &c)) {
		rc = cgroup_update(&c, l);
		if (rc < 0)
			err_sys(e, "cannot change the limits");
		cgroup_close(&c);
		return rc;
	}
	if (l->memory_bytes == now->memory_bytes && l->cpus_milli == now->cpus_milli &&
	    l->pids == now->pids)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "limits cannot be changed while the sandbox runs: it has no cgroup");
}

static int apply_limits(struct ns_sandbox *s, const struct limits *wanted, struct err *e)
{
	struct limits *now = &s->i->info.limits, l = *wanted;

	l.disk_bytes = disk_of(wanted);
	if (has_limits(now, &l))
		return 0;
	if (l.open_files != now->open_files || l.cpu_time_ms != now->cpu_time_ms)
		return err_set(e, ERR_UNSUPPORTED,
			       "open_files and cpu_time cannot be changed while the sandbox runs");
	if (s->i->info.has_disk && l.disk_bytes != disk_of(now))
		return err_field(e, ERR_UNSUPPORTED, "disk",
				 "disk: a disk keeps the size that it was made with");
	if (!s->i->info.has_disk && l.disk_bytes > l.memory_bytes)
		return err_field(e, ERR_INVALID, "disk",
				 "disk: more than memory, which holds what is written");
	if (l.disk_bytes != disk_of(now) && resize_disk(s, l.disk_bytes, e) < 0)
		return -1;
	if (resize_files(s, &l, e) < 0 || resize_cgroup(s, &l, e) < 0)
		return -1;
	*now = l;
	return 0;
}

void ns_update(struct instance *i, const struct limits *l, provider_done done, void *arg)
{
	struct err e = {0};

	done(arg, NULL, apply_limits(ns_sandbox(i), l, &e) < 0 ? &e : NULL);
}

/* ---- stats ---- */

static void add_cgroup(struct ns_sandbox *s, struct ipc_stats *ret)
{
	struct cgroup_usage usage;
	struct cgroup_stats stats;
	struct cgroup c;

	if (!ns_cgroup(s, &c))
		return;
	cgroup_read_usage(&c, &usage);
	cgroup_read_stats(&c, &stats);
	cgroup_close(&c);
	if (s->at.warm_host_lanes)
		boot_add_lane_stats(&s->ns->cgroups, ns_cgroup_name(s), &stats);
	ret->memory_bytes = usage.memory_bytes;
	ret->memory_peak_bytes = stats.memory_peak_bytes;
	ret->cpu_us = stats.cpu_us;
	/* Not counting our own pid 1. */
	ret->pids = usage.pids ? usage.pids - 1 : 0;
	ret->io_read_bytes = usage.io_read_bytes;
	ret->io_write_bytes = usage.io_write_bytes;
	ret->oom_kills = stats.oom_kills;
	ret->pids_refused = stats.pids_refused;
	ret->pids_peak = stats.pids_peak;
}

void ns_stats(struct instance *i, provider_done done, void *arg)
{
	struct provider_result r = {.fd = -1, .stats.pids_peak = -1};
	struct ns_sandbox *s = ns_sandbox(i);
	struct err ignored;
	struct statfs fs;

	r.stats.memory_limit_bytes = i->info.limits.memory_bytes;
	r.stats.disk_limit_bytes = disk_of(&i->info.limits);
	add_cgroup(s, &r.stats);
	auto_close int scratch = ns_scratch(s, &ignored);

	if (scratch >= 0 && fstatfs(scratch, &fs) == 0)
		r.stats.disk_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	done(arg, &r, NULL);
}

/* Says how a run ended: status, usage, layers, denials, changed and captured files. */
#include "sandbox/outside/keeper.h"

#include "kern/seccomp.h"
#include "kern/dirents.h"
#include "sandbox/workspace/safe_walk.h"
#include "sandbox/workspace/capture.h"
#include "sandbox/workspace/changes.h"
#include "sandbox/inside/message.h"
#include "sandbox/outside/run_net.h"
#include "sandbox/workspace/inject.h"

#include <sys/vfs.h>

/* ---- how it ended ---- */

static void judge_ending(const struct keeper *k, struct result *r)
{
	const struct status_page *b = k->plan.page;
	struct ending from = {.wait_status = b->wait_status,
			      .exec_errno = b->exec_errno,
			      .was_ended = true,
			      .reason_signal = SIGKILL,
			      .has_cpu_limit = k->plan.spec->limits.cpu_time_ms};

	if (k->was_ended) {
		from.reason = k->reason;
		from.reason_signal = k->reason_signal;
	} else if (b->verdict != WATCH_NONE) {
		from.reason = b->verdict == WATCH_MEMORY ? STATUS_OOM : STATUS_CPU_TIME;
	} else if (b->stage == STAGE_ENDED) {
		from.was_ended = false;
	} else {
		/* pid 1 itself was killed; nothing inside can do that. */
		from.reason = STATUS_KILLED;
	}
	outcome_judge(&from, &r->end);
	r->end.oom_killed = r->end.status == STATUS_OOM;
	if (b->exec_errno)
		memcpy(r->exec_missing, b->exec_missing, sizeof(r->exec_missing));
}

static double ms_between(int64_t from_ns, int64_t to_ns)
{
	return to_ns > from_ns && from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

static void measure_usage(struct keeper *k, struct result *r)
{
	const struct status_page *b = k->plan.page;
	const struct rusage *u = &k->usage;
	int64_t end = b->ended_ns ? b->ended_ns : k->ended_ns;
	struct statfs fs;

	r->setup_ms = ms_between(k->started_ns, b->started_ns);
	r->end.duration_ms = ms_between(b->started_ns, end);
	r->end.cpu_ms = (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e3 +
			(double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e3;
	if (k->stats.cpu_us / 1e3 > r->end.cpu_ms)
		r->end.cpu_ms = (double)k->stats.cpu_us / 1e3;
	if ((double)b->watched_cpu_ns / 1e6 > r->end.cpu_ms)
		r->end.cpu_ms = (double)b->watched_cpu_ns / 1e6;
	r->end.max_rss_bytes = (uint64_t)u->ru_maxrss << 10;
	r->end.pids_peak = k->stats.pids_peak;
	if (k->stats.pids_refused || b->pids_reached)
		r->end.limits_hit |= HIT_PIDS;
	if (k->plan.spec->level == LEVEL_PROCESS || k->scratch < 0 || fstatfs(k->scratch, &fs) < 0)
		return;
	r->end.disk_bytes = (int64_t)((fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize) -
			    (int64_t)b->scratch_bytes;
	if (r->end.disk_bytes < 0)
		r->end.disk_bytes = 0;
	if (fs.f_bfree == 0 || fs.f_ffree == 0)
		r->end.limits_hit |= HIT_DISK;
}

/*
 * A program that ignores SIGXFSZ, such as Python, only sees an error. A file that is exactly as
 * large as the limit gives it away.
 */
static bool has_file_of_size(int dir, uint64_t size, int depth, unsigned *budget)
{
	auto_list struct list names = {0};
	bool found = false;

	if (depth > 16 || dirents_names(dir, 10000, &names, NULL) < 0)
		return false;
	for (size_t i = 0; i < names.count && !found && *budget > 0; i++, (*budget)--) {
		struct stat st;

		if (!safe_walk_stat(dir, names.items[i], &st))
			continue;
		if (S_ISREG(st.st_mode))
			found = (uint64_t)st.st_size == size;
		if (S_ISDIR(st.st_mode)) {
			auto_close int below = safe_walk_open_dir(dir, names.items[i]);

			found = below >= 0 && has_file_of_size(below, size, depth + 1, budget);
		}
	}
	return found;
}

static void look_for_large_files(const struct keeper *k, struct result *r)
{
	static const char *const places[] = {"ws", "git0", "tmp", "home", "shm", "vartmp", "open"};
	uint64_t limit = k->plan.spec->limits.file_size_bytes;
	unsigned budget = 20000;

	for (size_t i = 0; limit && k->scratch >= 0 && i < ARRAY_LEN(places); i++) {
		auto_close int dir = safe_walk_open_dir(k->scratch, places[i]);

		if (dir >= 0 && has_file_of_size(dir, limit, 0, &budget))
			r->end.limits_hit |= HIT_FILE_SIZE;
	}
}

/* ---- layers ---- */

static void list_layers(const struct keeper *k, struct result *r)
{
	const struct plan *p = &k->plan;
	const struct status_page *b = p->page;
	bool process = p->spec->level == LEVEL_PROCESS;
	const struct seccomp_profile *profile = plan_profile(&k->plan);
	size_t kinds = 0;

	r->level = p->spec->level;
	r->rootless = p->rootless;
	r->proven = b->proven;
	r->missing = ~b->proven & (LAYER_BIT(LAYER_COUNT) - 1);
	if (b->proven & LAYER_BIT(LAYER_SECCOMP))
		snprintf(r->seccomp, sizeof(r->seccomp), "%s@%s", profile->name, profile->digest);
	/* Without it the command would not have started. */
	if (p->seccomp)
		str_append(r->seccomp, sizeof(r->seccomp), " ", "%s@%s", p->seccomp->name,
			   p->seccomp->digest);
	if (b->listening)
		r->denial_kinds[kinds++] = "syscall";
	if (b->listening && !process)
		r->denial_kinds[kinds++] = "connect";
	if (!process)
		r->denial_kinds[kinds++] = "resolve";
	r->denial_kinds[kinds++] = "limit";
	if (p->spec->guard != GUARD_OFF)
		r->denial_kinds[kinds] = "guard";
	r->caps = b->caps;
	r->root_inside = root_inside_name(plan_root_inside(p));
	if (b->proven & LAYER_BIT(LAYER_LANDLOCK))
		r->landlock_abi = b->landlock_abi;
	r->cgroup = !(b->proven & LAYER_BIT(LAYER_CGROUP)) ? "none"
		    : k->cgroup.version == 2		   ? "v2"
							   : "v1";
	r->memory = b->proven & LAYER_BIT(LAYER_MEMORY) ? "cgroup" : "watch";
	r->disk = b->proven & LAYER_BIT(LAYER_DISK) ? "tmpfs" : "none";
	if (p->net)
		r->network = b->redirect == NET_REDIRECT_PORTS ? "ports" : "tproxy";
}

/* ---- files ---- */

/* One directory that is shown copy-on-write. */
struct changed_dir {
	const char *upper; /* in the scratch */
	int lower;
	const char *inner; /* its directory that paths are told from; NULL: they are told from / */
	const char *path;
};

/* A path of the tree as seen from its directory `inner`: "a", "../b". The caller frees it. */
static char *path_from(const char *path, const char *inner)
{
	char up[PATH_MAX] = "";

	while (*inner) {
		size_t len = strcspn(inner, "/");

		if (*up || strncmp(path, inner, len) != 0 || path[len] != '/')
			str_append(up, sizeof(up), "", "../");
		else
			path += len + 1;
		inner += len + (inner[len] == '/');
	}
	return str_format("%s%s", up, *up || *path ? path : "./");
}

/* The caller names control files as seen from its own directory. */
static void name_also(const struct sandbox_spec *s, const char *inner, struct list *ret)
{
	for (size_t i = 0; i < s->apply_also.count; i++)
		list_take(ret,
			  str_format("%s%s%s", inner, *inner ? "/" : "", s->apply_also.items[i]));
}

static int collect_below(struct keeper *k, const struct changed_dir *d, bool apply,
			 struct result *r, struct err *e)
{
	struct change_options options = CHANGE_OPTIONS_DEFAULT;
	struct change_list list = {0};
	auto_list struct list also = {0};
	auto_close int upper = openat(k->scratch, d->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int lower = io_reopen(d->lower, O_RDONLY | O_DIRECTORY);

	if (upper < 0 || lower < 0)
		return err_sys(e, "cannot open the workspace to look at what changed");
	options.apply = apply;
	options.also = &also;
	options.since_ns = (int64_t)unix_ms() * 1000000 - (now_ns() - k->started_ns);
	if (d->inner)
		name_also(k->plan.spec, d->inner, &also);
	if (changes_collect(upper, lower, &options, &list, e) < 0)
		return -1;
	r->changes = must_alloc(
		realloc(r->changes, (r->change_count + list.count + 1) * sizeof(*r->changes)));
	for (size_t i = 0; i < list.count; i++) {
		char *path = list.items[i].path;

		list.items[i].path =
			d->inner ? path_from(path, d->inner) : str_format("%s/%s", d->path, path);
		free(path);
		r->changes[r->change_count++] = list.items[i];
	}
	free(list.items);
	r->changes_cut |= list.cut;
	r->changes_incomplete |= list.incomplete;
	r->apply_failed |= apply && (list.failed > 0 || list.incomplete);
	return 0;
}

static int collect_changes(struct keeper *k, struct result *r, struct err *e)
{
	const struct plan *p = &k->plan;
	const struct sandbox_spec *s = p->spec;
	bool apply = s->apply == APPLY_ALWAYS ||
		     (s->apply == APPLY_ON_SUCCESS && outcome_is_success(&r->end));
	const struct changed_dir workspace = {
		.upper = "ws", .lower = p->workspace.fd, .inner = plan_inner(p)};

	if (k->plan.workspace_mode != WORKSPACE_COW || s->level == LEVEL_PROCESS || k->scratch < 0)
		return 0;
	if (!s->json && !s->diff && !apply && !isatty(2))
		return 0;
	if (collect_below(k, &workspace, apply, r, e) < 0)
		return -1;
	for (size_t i = 0; p->git && i < p->git->view_count; i++) {
		const struct cow_view *v = &p->git->views[i];
		const struct changed_dir view = {
			.upper = v->upper, .lower = v->source.fd, .path = v->source.path};

		if (collect_below(k, &view, apply, r, e) < 0)
			return -1;
	}
	return 0;
}

static int collect_files(struct keeper *k, struct result *r, struct err *e)
{
	const struct sandbox_spec *s = k->plan.spec;
	struct capture_view view;
	struct captured found = {0};
	auto_close int upper = -1;
	auto_close int lower = -1;

	if (!s->capture.count)
		return 0;
	if (k->plan.workspace.fd >= 0)
		lower = io_reopen(k->plan.workspace.fd, O_RDONLY | O_DIRECTORY);
	if (k->plan.workspace_mode != WORKSPACE_DIRECT && k->scratch >= 0)
		upper = openat(k->scratch, s->level == LEVEL_PROCESS ? "open/workspace" : "ws",
			       O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	view = (struct capture_view){.upper_fd = upper, .lower_fd = lower};
	capture_enter(&view, plan_inner(&k->plan));
	upper = view.upper_fd;
	lower = view.lower_fd;
	if (capture_files(&view, &s->capture, NULL, &found, e) < 0)
		return -1;
	r->files = found.items;
	r->file_count = found.count;
	if (found.cut)
		plan_note(&k->plan,
			  "More files match capture than are taken (256), or the tree is too "
			  "large to look at all of it.");
	return 0;
}

/* The command writes it, so it is any text; who uses it as a path has to judge it. */
static void collect_cwd(const struct keeper *k, struct result *r)
{
	auto_close int home = -1;
	auto_close int fd = -1;
	char text[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (!k->plan.spec->cwd_file || k->scratch < 0)
		return;
	home = safe_walk_open_dir(k->scratch, "home");
	fd = home < 0 ? -1 : safe_walk_open_file(home, SPEC_CWD_NAME, &st);
	n = fd < 0 ? -1 : io_read_all(fd, text, sizeof(text));
	if (n < 2 || n == (ssize_t)sizeof(text) || text[0] != '/' || text[n - 1] != '\n' ||
	    memchr(text, '\0', (size_t)n))
		return;
	text[n - 1] = '\0';
	r->cwd = str_copy(text);
}

/* ---- all of it ---- */

#define UNMAPPED " cannot map ids: files that only their owner may read cannot be read inside."

static const struct {
	unsigned what;
	const char *text;
} unmapped_notes[] = {
	{UNMAPPED_WORKSPACE, "The workspace's file system" UNMAPPED
			     " Nor can anything be changed in directories that it has."},
	{UNMAPPED_MOUNT, "The file system of what a mount shows" UNMAPPED},
	{UNMAPPED_ROOT, "The image's file system" UNMAPPED},
};

int outcome_collect(struct keeper *k, struct result *r, struct err *e)
{
	struct plan *p = &k->plan;
	int terminal = -1;

	if (p->page->err.kind != ERR_NONE && !k->was_ended) {
		*e = p->page->err;
		return -1;
	}
	*r = (struct result){0};
	memcpy(r->id, p->id, sizeof(r->id));
	if (k->scratch < 0)
		keeper_take_back(k, &terminal);
	close_fd(&terminal);
	judge_ending(k, r);
	/* After a plain success no output shows them, and reading them takes a while. */
	if (p->spec->json || isatty(2) || !outcome_is_success(&r->end))
		cgroup_read_stats(&k->cgroup, &k->stats);
	measure_usage(k, r);
	if (k->stats.oom_kills > 0)
		outcome_add_oom(&r->end, k->was_ended);
	hints_add(p, r);
	look_for_large_files(k, r);
	head_tail_finish(&k->out, &r->out);
	head_tail_finish(&k->err, &r->err);
	r->output_errno = k->out.relay_errno ? k->out.relay_errno : k->err.relay_errno;
	if (r->out.tail || r->err.tail)
		r->end.limits_hit |= HIT_OUTPUT;
	memcpy(r->exec_path, p->page->exec_path, sizeof(r->exec_path));
	list_layers(k, r);
	collect_cwd(k, r);
	denials_list(k, r);
	run_net_report(k, r);
	if (p->spec->level == LEVEL_PROCESS && p->rootless)
		plan_note(p, "Level process shares your user id: Landlock does not keep the "
			     "command from "
			     "changing modes and times of your files.");
	if (p->page->upper_limited)
		plan_note(p, "This kernel's tmpfs has no user attributes (Linux 6.6 has): "
			     "directories that "
			     "the workspace already had cannot be removed or renamed inside.");
	for (size_t i = 0; i < ARRAY_LEN(unmapped_notes); i++)
		if (p->page->unmapped & unmapped_notes[i].what)
			plan_note(p, unmapped_notes[i].text);
	if (plan_follow_workspace(p, e) == 0)
		inject_remove_points(p, k->scratch);
	if (collect_files(k, r, e) == 0) {
		inject_remove_files(p, k->scratch);
		memcpy(r->notes, p->notes, sizeof(r->notes));
		if (collect_changes(k, r, e) == 0)
			return 0;
	}
	result_done(r);
	return -1;
}

/* The directory in /tmp that a run at level process has instead of a root of its own. */
#include "sandbox/outside/keeper.h"

#include "kern/dirents.h"
#include "kern/empty_tree.h"
#include "sandbox/workspace/safe_walk.h"
#include "sandbox/inside/skeleton.h"

#include <sys/file.h>

#define PREFIX ".cloche-lair-"

static int fill_dir(const struct keeper *k, struct err *e)
{
	static const char *const names[] = {"open", "open/home", "open/tmp", "open/workspace"};
	const struct plan *p = &k->plan;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (mkdirat(k->scratch, names[i], 0700) < 0)
			return err_sys(e, "cannot create %s", names[i]);
		if (plan_give_to_user(p, k->scratch, names[i], e) < 0)
			return -1;
	}
	if (skeleton_file(k->scratch, "canary", "", 0, 0666, e) < 0)
		return -1;
	/* Regardless of the umask: only Landlock may refuse it. */
	if (fchmodat(k->scratch, "canary", 0666, 0) < 0)
		return err_sys(e, "cannot open up the canary");
	for (size_t i = 0; i < p->file_count; i++) {
		const struct injected_file *f = &p->files[i];
		const char *name;
		char path[PATH_MAX];
		auto_close int parent = -1;

		snprintf(path, sizeof(path), "open%s", f->path);
		parent = skeleton_parent(k->scratch, path, &name, e);
		if (parent < 0 || skeleton_file(parent, name, f->data, f->size, f->mode, e) < 0)
			return -1;
	}
	return 0;
}

/* "/run/..." in the arguments of sandbox_run is open/run/... here. */
static void move_arguments(struct keeper *k)
{
	struct list *argv = (struct list *)&k->plan.spec->argv;

	for (size_t i = 0; i < k->plan.file_count; i++)
		for (size_t j = 0; j < argv->count; j++)
			if (str_equal(argv->items[j], k->plan.files[i].path)) {
				char *moved = str_format("%s/open%s", k->plan.process_dir,
							 argv->items[j]);

				free(argv->items[j]);
				argv->items[j] = moved;
			}
}

static void point_plan_to_dir(struct keeper *k)
{
	struct plan *p = &k->plan;
	char home[sizeof(p->process_dir) + 16], tmp[sizeof(p->process_dir) + 16];

	snprintf(home, sizeof(home), "%s/open/home", p->process_dir);
	snprintf(tmp, sizeof(tmp), "%s/open/tmp", p->process_dir);
	if (p->workspace_mode == WORKSPACE_EMPTY) {
		snprintf(p->workspace_path, sizeof(p->workspace_path), "%s/open/workspace",
			 k->plan.process_dir);
		plan_choose_workdir(p);
	}
	environment_move(p, home, tmp);
	move_arguments(k);
}

/*
 * Removes directories of keepers that were killed together with their init: owned by us, not in use
 * (keeper and init hold a lock), and not just being made.
 */
static void sweep_old_dirs(void)
{
	auto_close int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirents_entry d;
	struct dirents list;

	dirents_start(&list, tmp);
	while (dirents_next(&list, &d)) {
		auto_close int fd = -1;
		struct stat st;

		if (!str_starts(d.name, PREFIX))
			continue;
		fd = safe_walk_open_dir(tmp, d.name);
		if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
		    time(NULL) - st.st_mtime > 10 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
			char path[NAME_MAX + 8];

			snprintf(path, sizeof(path), "/tmp/%s", d.name);
			process_dir_remove(path);
		}
	}
}

int process_dir_make(struct keeper *k, struct err *e)
{
	char path[] = "/tmp/" PREFIX "XXXXXX";

	if (k->plan.spec->level != LEVEL_PROCESS)
		return 0;
	if (plan_judge(&k->plan, e) < 0)
		return -1;
	sweep_old_dirs();
	if (!mkdtemp(path))
		return err_sys(e, "cannot create a directory in /tmp");
	snprintf(k->plan.process_dir, sizeof(k->plan.process_dir), "%s", path);
	/* The command must be able to reach `open`, and nothing else. */
	if (chmod(path, k->plan.rootless ? 0700 : 0711) < 0)
		return err_sys(e, "cannot open up %s", path);
	k->scratch = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->scratch < 0 || flock(k->scratch, LOCK_EX | LOCK_NB) < 0)
		return err_sys(e, "cannot open %s", path);
	if (fill_dir(k, e) < 0)
		return -1;
	point_plan_to_dir(k);
	return 0;
}

void process_dir_remove(const char *path)
{
	auto_close int tmp = *path ? open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	auto_close int top = tmp < 0 ? -1 : safe_walk_open_dir(tmp, path + strlen("/tmp/"));

	empty_tree(top);
	if (tmp >= 0)
		unlinkat(tmp, path + strlen("/tmp/"), AT_REMOVEDIR);
}

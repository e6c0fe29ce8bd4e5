/* Cgroups that are there for their members only. */
#include "kern/cgroup_group.h"

#include "kern/dirents.h"

/* False: this name has no group. */
static bool group_of(const char *name, char ret[CGROUP_NAME])
{
	const char *slash = strchr(name, '/');

	if (slash)
		snprintf(ret, CGROUP_NAME, "%.*s", (int)(slash - name), name);
	return slash;
}

/* On v2 members have only the controllers that their group hands out. */
static int hand_out(int group)
{
	if (faccessat(group, "cgroup.subtree_control", F_OK, 0) < 0)
		return 0;
	if (io_write_at(group, "cgroup.subtree_control", "+memory +cpu +pids") < 0)
		return -1;
	/* Only figures come from it. */
	(void)io_write_at(group, "cgroup.subtree_control", "+io");
	return 0;
}

int cgroup_group_make(int parent, const char *name)
{
	char group[CGROUP_NAME];

	if (!group_of(name, group))
		return 0;
	if (mkdirat(parent, group, 0755) < 0 && errno != EEXIST)
		return -1;
	auto_close int dir = openat(parent, group, O_PATH | O_DIRECTORY | O_CLOEXEC);

	/* Also if it was there: who made it may not have come this far yet. */
	return dir < 0 ? -1 : hand_out(dir);
}

void cgroup_group_drop(int parent, const char *name)
{
	char group[CGROUP_NAME];

	if (group_of(name, group))
		(void)unlinkat(parent, group, AT_REMOVEDIR);
}

/* Calls for each directory below dir whose name begins with prefix, until a call is true. */
static bool any_below(int dir, const char *prefix,
		      bool (*call)(void *arg, int dir, const char *name), void *arg)
{
	auto_close int fd = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirents_entry at;
	struct dirents list;
	bool found = false;

	dirents_start(&list, fd);
	while (fd >= 0 && !found && dirents_next(&list, &at))
		found = str_starts(at.name, prefix) && call(arg, dir, at.name);
	return found;
}

struct search {
	const char *name;
	char *ret;
};

static bool is_one(void *arg, int dir, const char *name)
{
	return true;
}

/* Of a warm host that was killed while it was made, a lane may be left only: NAME-3. */
static bool is_in(void *arg, int dir, const char *group)
{
	const struct search *s = arg;
	auto_close int fd = openat(dir, group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	snprintf(s->ret, CGROUP_NAME, "%s/%s", group, s->name);
	return any_below(fd, s->name, is_one, NULL);
}

static bool exists(const struct cgroup_place *p, const char *name)
{
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		if (p->parents[i] >= 0 && faccessat(p->parents[i], name, F_OK, 0) == 0)
			return true;
	return false;
}

void cgroup_group_find(const struct cgroup_place *p, const char *prefix, const char *likely,
		       const char *name, char ret[CGROUP_NAME])
{
	struct search s = {name, ret};

	snprintf(ret, CGROUP_NAME, "%s", likely);
	if (exists(p, likely))
		return;
	for (int i = 0; i < CGROUP_CONTROLLERS && !exists(p, name); i++)
		if (any_below(p->parents[i], prefix, is_in, &s))
			return;
	snprintf(ret, CGROUP_NAME, "%s", name);
}

struct listing {
	const char *prefix;
	struct list *names;
};

static bool list_one(void *arg, int dir, const char *name)
{
	const struct listing *l = arg;

	for (size_t i = 0; i < l->names->count; i++)
		if (str_equal(l->names->items[i], name))
			return false;
	list_add(l->names, name);
	return false;
}

static bool list_group(void *arg, int dir, const char *group)
{
	const struct listing *l = arg;
	auto_close int fd = openat(dir, group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	any_below(fd, l->prefix, list_one, arg);
	(void)unlinkat(dir, group, AT_REMOVEDIR);
	return false;
}

void cgroup_list(const char *table, const char *prefix, const char *group_prefix, struct list *ret)
{
	struct listing l = {prefix, ret};
	struct cgroup_place p;

	cgroup_place_open(&p, table);
	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		any_below(p.parents[i], prefix, list_one, &l);
		any_below(p.parents[i], group_prefix, list_group, &l);
	}
	cgroup_place_close(&p);
}

/*
 * Verifies a warm sandbox from inside where verify.c does not: its cgroup and its own directories.
 */
#include "warm/warm_internal.h"

#include "sandbox/inside/privileges.h"
#include "sandbox/inside/verify.h"

void warm_look_around(struct warm_settings *t)
{
	struct stat st;

	verify_read_namespaces(&t->outside, true);
	t->outside_proc = stat(WARM_ROOT "/proc", &st) == 0 ? st.st_dev : 0;
}

/*
 * Counts the lines of /proc/self/cgroup with a controller that limits, and those of them that say
 * "/".
 */
static int count_cgroups(int *ret_at_root)
{
	static const char *const wanted[] = {":memory:", ":pids:", ":cpu:", ":cpu,", ",cpu:"};
	char text[4096];
	int seen = 0;

	*ret_at_root = 0;
	io_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		bool counts = false;

		*end = '\0';
		for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
			counts = counts || strstr(line, wanted[i]);
		/* On v2 this is the only line. */
		counts = counts ||
			 (str_starts(line, "0::") && line == text && !strchr(end + 1, '\n'));
		seen += counts;
		*ret_at_root += counts && str_equal(strrchr(line, ':'), ":/");
	}
	return seen;
}

bool warm_is_in_cgroup(void)
{
	int at_root, seen = count_cgroups(&at_root);

	return seen > 0 && at_root == seen;
}

bool warm_left_cgroup(void)
{
	int at_root, seen = count_cgroups(&at_root);

	return seen > 0 && at_root == 0;
}

bool warm_places_are_own(const struct warm_settings *t, int scratch)
{
	struct stat own, st = {.st_dev = t->outside_proc};

	if (fstat(scratch, &own) < 0)
		return false;
	for (size_t i = 0; i < WRITABLE_PLACES; i++)
		if (stat(writable_places[i].shown, &st) < 0 || st.st_dev != own.st_dev)
			return false;
	/* The warm host's own root shows WARM_ROOT, with a /proc that shows all its processes. */
	if (stat(WARM_ROOT "/proc", &st) == 0 || errno != ENOENT)
		return false;
	/* /proc must be neither the warm host's nor part of the scratch. */
	return t->outside_proc && stat("/proc", &st) == 0 && st.st_dev != t->outside_proc &&
	       st.st_dev != own.st_dev;
}

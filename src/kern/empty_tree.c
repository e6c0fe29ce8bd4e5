#include "kern/empty_tree.h"

#include "base/base.h"
#include "kern/dirents.h"
#include "kern/sys.h"

static int open_below(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Removes the entries of one directory. Directories in it move up to top, to be emptied later. */
static bool empty_directory(int top, const char *name, unsigned *moved)
{
	struct dirents_entry d;
	struct dirents list;
	auto_close int fd = -1;

	/* Code inside may have removed its permissions. */
	(void)!fchmodat(top, name, 0700, AT_SYMLINK_NOFOLLOW);
	fd = open_below(top, name);
	dirents_start(&list, fd);
	while (dirents_next(&list, &d)) {
		char up[32];

		if (str_equal(d.name, ".") || str_equal(d.name, ".."))
			continue;
		snprintf(up, sizeof(up), ".cloche-%u", (*moved)++);
		if (unlinkat(fd, d.name, 0) < 0 && errno == EISDIR)
			(void)!renameat(fd, d.name, top, up);
	}
	return unlinkat(top, name, AT_REMOVEDIR) == 0;
}

/*
 * There is no recursion and no list of names: subdirectories move up, as long as a round makes progress.
 */
void empty_tree(int top)
{
	unsigned moved = 0;
	bool progress = top >= 0;
	struct dirents_entry d;
	struct dirents list;

	while (progress && lseek(top, 0, SEEK_SET) == 0) {
		progress = false;
		dirents_start(&list, top);
		while (dirents_next(&list, &d)) {
			if (str_equal(d.name, ".") || str_equal(d.name, ".."))
				continue;
			if (unlinkat(top, d.name, 0) == 0 || empty_directory(top, d.name, &moved))
				progress = true;
		}
	}
}

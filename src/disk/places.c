/*
 * What a sandbox finds on a disk that another one has used: its workspace, its home, and what was changed in
 * its root. Everything else is made anew, as for a sandbox that starts from a snapshot.
 */
#include "disk/disk.h"

#include "kern/dirents.h"
#include "kern/empty_tree.h"
#include "kern/sys.h"

#define TRASH "trash"
#define OWNER "root-is"
#define OWNER_MAX 1200

/* As guest/files/pack.c has them. */
static bool is_kept(const char *name)
{
	static const char *const kept[] = {"rootup", "ws", "home", DISK_WAS,
					   ".",	     "..", TRASH,  OWNER};

	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (str_equal(name, kept[i]))
			return true;
	return false;
}

static bool exists(int tree, const char *name)
{
	return faccessat(tree, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool disk_has_was(int tree)
{
	return exists(tree, DISK_WAS);
}

int disk_was_is_back(int tree, struct err *e)
{
	/* The next start throws it away: only its name matters now. */
	if (renameat(tree, DISK_WAS, tree, "old") < 0 && errno != ENOENT)
		return err_sys(e, "cannot finish the start of a disk");
	return 0;
}

/* A new directory in the trash: what earlier starts threw away may still be there. */
static int open_trash(int tree, struct err *e)
{
	auto_close int trash = -1;
	char name[16];

	if (mkdirat(tree, TRASH, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "cannot clear a disk");
	trash = openat(tree, TRASH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (unsigned i = 0; trash >= 0; i++) {
		snprintf(name, sizeof(name), "%u", i);
		if (mkdirat(trash, name, 0700) == 0)
			return openat(trash, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (errno != EEXIST)
			break;
	}
	return err_sys(e, "cannot clear a disk");
}

/*
 * Throws away all places but those that are kept, in a moment, however much is in them. The names in `d` are ours;
 * what is below them may be anything.
 */
static int remove_others(int tree, struct err *e)
{
	auto_close int top = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int trash = open_trash(tree, e);
	struct dirents_entry d;
	struct dirents list;

	if (trash < 0)
		return -1;
	if (top < 0)
		return err_sys(e, "cannot clear a disk");
	dirents_start(&list, top);
	while (dirents_next(&list, &d))
		if (!is_kept(d.name) && renameat(tree, d.name, trash, d.name) < 0)
			return err_sys(e, "cannot clear a disk");
	return 0;
}

void disk_empty_trash(int tree)
{
	auto_close int trash = openat(tree, TRASH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	empty_tree(trash);
	if (trash >= 0)
		(void)unlinkat(tree, TRASH, AT_REMOVEDIR);
}

/*
 * The root that the disk was made for is the target of a link, since a link is made whole or not at all, without
 * waiting for the disk.
 */
int disk_prepare(int tree, const char *root, bool keeps_root, struct err *e)
{
	char was[OWNER_MAX] = "";

	if (symlinkat(root, tree, OWNER) == 0)
		return 0;
	if (errno != EEXIST || readlinkat(tree, OWNER, was, sizeof(was) - 1) < 0)
		return err_sys(e, "cannot prepare a disk");
	if (!str_equal(was, root))
		return err_field(e, ERR_CONFLICT, "snapshot",
				 "snapshot: its disk was made with another image or root; start it "
				 "with the same, or with disk_type memory");
	/* If it is there already, an earlier start did not finish, and `root` is what that one made. */
	if (keeps_root && !disk_has_was(tree) && renameat(tree, "root", tree, DISK_WAS) < 0 &&
	    errno != ENOENT)
		return err_sys(e, "cannot keep what was changed in a root");
	return remove_others(tree, e);
}

/*
 * Snapshots: pack archives what a sandbox has written, check judges an archive that claims to be a
 * snapshot. Each runs as a confined helper of the broker.
 */
#include "guest/guest.h"
#include "guest/files/tar_tree.h"

static int write_out(void *file, const void *bytes, size_t len)
{
	return fwrite(bytes, 1, len, file) == len ? 0 : -1;
}

static int print_error(const struct err *e)
{
	fprintf(stderr, "%s\n", e->msg);
	return 1;
}

/* What the user changed or added in the skeleton of the root, such as /etc. */
static int pack_skeleton(struct tar_tree *t, int cwd, const char *dir, struct err *e)
{
	int rc;

	t->only_own = true;
	rc = tar_tree_write(t, cwd, dir, "", e);
	t->only_own = false;
	return rc;
}

static bool exists(int cwd, const char *name)
{
	return faccessat(cwd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What cloche itself has put below an image's root is there in every sandbox, and is not the user's to replace. */
static bool is_kept(void *arg, const char *name)
{
	return !str_equal(name, "run/cloche");
}

static int pack_all(struct tar_tree *t, int cwd, struct err *e)
{
	static const struct {
		const char *dir, *as;
	} trees[] = {{"rootup", ""}, {"ws", "workspace"}, {"home", "home/user"}};

	/* With a writable root. On a disk whose start did not finish the truth is in `was`. */
	if (exists(cwd, "rootup") &&
	    pack_skeleton(t, cwd, exists(cwd, "was") ? "was" : "root", e) < 0)
		return -1;
	t->takes = is_kept;
	for (size_t i = 0; i < ARRAY_LEN(trees); i++)
		if (exists(cwd, trees[i].dir) &&
		    tar_tree_write(t, cwd, trees[i].dir, trees[i].as, e) < 0)
			return -1;
	return 0;
}

static int pack_was(struct tar_tree *t, int cwd, struct err *e)
{
	return exists(cwd, "was") ? pack_skeleton(t, cwd, "was", e) : 0;
}

static int pack(int (*what)(struct tar_tree *t, int cwd, struct err *e))
{
	static char gathered[65536];
	struct tar_tree t = {.out = {.write = write_out, .arg = stdout}, .upper = true};
	struct err e = {0};
	auto_close int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A tar header is a small write: they are gathered. */
	setvbuf(stdout, gathered, _IOFBF, sizeof(gathered));
	if (what(&t, cwd, &e) < 0)
		return print_error(&e);
	if (tar_out_end(&t.out, &e) == 0 && fflush(stdout) != 0)
		err_sys(&e, "cannot write the archive");
	return e.kind != ERR_NONE ? print_error(&e) : 0;
}

int guest_pack(void)
{
	return pack(pack_all);
}

int guest_pack_was(void)
{
	return pack(pack_was);
}

static ssize_t read_in(void *arg, void *bytes, size_t len)
{
	ssize_t n;

	do
		n = read(0, bytes, len);
	while (n < 0 && errno == EINTR);
	return n;
}

int guest_check(void)
{
	struct tar_in t = {.read = read_in};
	struct tar_extract x = {.root = -1, .upper = true, .strict = true, .dry = true};
	struct err e = {0};

	return tar_extract(&x, &t, &e) < 0 ? print_error(&e) : 0;
}

/*
 * Snapshots: pack writes what a sandbox wrote, check judges what somebody says to be such an archive.
 * Both run in a throwaway process of their own that the broker confines.
 */
#include "guest/guest.h"
#include "guest/files/tar.h"
#include "guest/files/walk.h"

/* Writes are gathered: a header is a small one. */
struct gather {
	int fd;
	size_t len;
	char bytes[65536];
};

static int flush(struct gather *g)
{
	size_t len = g->len;

	g->len = 0;
	return walk_write_fd(&g->fd, g->bytes, len);
}

static int gather(void *arg, const void *bytes, size_t len)
{
	struct gather *g = arg;

	if (g->len + len > sizeof(g->bytes) && flush(g) < 0)
		return -1;
	if (len > sizeof(g->bytes))
		return walk_write_fd(&g->fd, bytes, len);
	memcpy(g->bytes + g->len, bytes, len);
	g->len += len;
	return 0;
}

static int fail(const struct err *e)
{
	fprintf(stderr, "%s\n", e->msg);
	return 1;
}

int guest_pack(void)
{
	static const struct {
		const char *dir, *as;
	} trees[] = {{"rootup", ""}, {"ws", "workspace"}, {"home", "home/user"}};
	static struct gather g = {.fd = 1};
	struct tar_out t = {.write = gather, .arg = &g, .upper = true};
	struct err e = {0};
	auto_close int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* The skeleton of a root that can be written: what the user changed in /etc, or put beside it. */
	if (faccessat(cwd, "rootup", F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		t.only_own = true;
		if (tar_out_tree(&t, cwd, "root", "", &e) < 0)
			return fail(&e);
		t.only_own = false;
	}
	for (size_t i = 0; i < ARRAY_LEN(trees); i++)
		if (faccessat(cwd, trees[i].dir, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
		    tar_out_tree(&t, cwd, trees[i].dir, trees[i].as, &e) < 0)
			return fail(&e);
	if (tar_out_end(&t, &e) < 0)
		return fail(&e);
	if (flush(&g) < 0) {
		err_sys(&e, "cannot write the archive");
		return fail(&e);
	}
	return 0;
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

	return tar_extract(&x, &t, &e) < 0 ? fail(&e) : 0;
}

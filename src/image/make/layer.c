/*
 * One layer from a compressed tar to a directory of the store. The tar passes through three processes:
 * cloche-image decompresses it, this one hashes it, and `cloche-guest unpack` writes files. So neither the
 * decompressor nor the reader of the tar can claim another digest than that of the bytes that were unpacked.
 */
#include "image/make/make.h"

#include "image/make/process.h"
#include "kern/caps.h"
#include "kern/confined_helper.h"
#include "kern/mount.h"

#include <signal.h>
#include <sodium.h>
#include <sys/wait.h>

#define PIECE (256u << 10)

/* Ids of the host that no user has; the same ranges as for sandboxes. */
static uint32_t id_base(void)
{
	return (0x1000u + (uint32_t)getpid() % 0x3000u) << 16;
}

static bool is_root(void)
{
	return caps_can_administer();
}

/* As root a mount of the directory, for the ids; otherwise the directory. */
static int open_tree_of(int dir, const char *name, struct err *e)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, "cannot open a layer");
	return is_root() ? mount_clone(fd, "", MOUNT_NO_EXEC, e) : take_fd(&fd);
}

/* A confined helper and the pipes to it. */
struct helper {
	pid_t pid;
	int in;	 /* our end, or -1 */
	int out; /* the same */
	int said;
};

static int helper_start(struct helper *h, struct confined_helper *c, struct err *e)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, said[2] = {-1, -1};

	*h = (struct helper){.pid = -1};
	c->rootless = !is_root();
	c->id_base = id_base();
	c->mapped = !c->rootless;
	if ((c->in < 0 && pipe2(in, O_CLOEXEC) < 0) || (c->out < 0 && pipe2(out, O_CLOEXEC) < 0) ||
	    pipe2(said, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	if (c->in < 0)
		fcntl(in[1], F_SETPIPE_SZ, 1 << 20);
	c->in = c->in < 0 ? in[0] : c->in;
	c->out = c->out < 0 ? out[1] : c->out;
	c->err = said[1];
	h->pid = confined_helper_start(c, e);
	close_fd(&in[0]);
	close_fd(&out[1]);
	close(said[1]);
	h->in = in[1];
	h->out = out[0];
	h->said = said[0];
	return h->pid < 0 ? -1 : 0;
}

static void helper_stop(struct helper *h)
{
	close_fd(&h->in);
	close_fd(&h->out);
	close_fd(&h->said);
	if (h->pid > 0) {
		kill(h->pid, SIGKILL);
		waitpid(h->pid, NULL, 0);
	}
}

struct copy {
	int from, to;
	uint64_t room;		 /* at most so many bytes */
	uint64_t size;		 /* results */
	char hex[IMAGE_HEX + 1]; /* digest */
};

/* Reads until the end, hashes, and writes. */
static int copy_and_hash(struct copy *c, struct err *e)
{
	auto_free char *bytes = must_alloc(malloc(PIECE));
	unsigned char hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state state;
	ssize_t n;

	crypto_hash_sha256_init(&state);
	while ((n = read(c->from, bytes, PIECE)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "cannot read the layer");
		c->size += (uint64_t)n;
		if (c->size > c->room)
			return err_set(e, ERR_LIMIT, "the image is larger than there is room for");
		crypto_hash_sha256_update(&state, (unsigned char *)bytes, (unsigned long long)n);
		if (io_write_all(c->to, bytes, (size_t)n) < 0)
			return err_sys(e, "cannot write the layer");
	}
	crypto_hash_sha256_final(&state, hash);
	sodium_bin2hex(c->hex, sizeof(c->hex), hash, sizeof(hash));
	return 0;
}

/* ---- what the helper reports ---- */

static void note_left_out(struct image_maker *m, const char *name, uint64_t count)
{
	static const struct {
		const char *name, *text;
	} notes[] = {
		{"devices", "device nodes were left out (a sandbox has its own)"},
		{"set_ids", "files lost their set-user-id or set-group-id bit"},
		{"xattrs", "extended attributes other than user.* were left out"},
		{"ids", "entries of an id above 65535 belong to nobody (65534)"},
	};
	char line[160];

	for (size_t i = 0; m->note && count && i < ARRAY_LEN(notes); i++)
		if (str_equal(name, notes[i].name)) {
			snprintf(line, sizeof(line), "%llu %s", (unsigned long long)count,
				 notes[i].text);
			m->note(line);
		}
}

static void read_report(struct image_maker *m, struct image_layer *l, struct buf *said)
{
	char name[16], *rest, *line;
	unsigned long long count;

	buf_add(said, "", 1);
	rest = buf_head(said);
	while ((line = strsep(&rest, "\n"))) {
		if (sscanf(line, "%15s %llu", name, &count) != 2)
			continue;
		if (str_equal(name, "bytes"))
			l->size = count;
		note_left_out(m, name, count);
	}
}

/* ---- unpacking ---- */

static int make_places(struct image_maker *m, struct image_layer *l, int *ret_dir, struct err *e)
{
	auto_close int dir = -1;

	snprintf(l->dir, sizeof(l->dir), "%u", m->made++);
	if (mkdirat(m->tmp, l->dir, 0700) == 0)
		dir = openat(m->tmp, l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || mkdirat(dir, "fs", 0700) < 0 || fchmodat(dir, "fs", 0755, 0) < 0)
		return err_sys(e, "cannot make a directory");
	*ret_dir = take_fd(&dir);
	return 0;
}

static int run_unpack(struct image_maker *m, struct image_layer *l, int dir, struct err *e)
{
	auto_close int root = open_tree_of(dir, "fs", e);
	auto_close int rest = openat(dir, "tar", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char *argv[] = {(char *)m->worker, "inflate", NULL};
	struct confined_helper c = {.verb = is_root() ? "unpack" : "unpack-as-user",
				    .guest = m->guest,
				    .root = root,
				    .in = -1,
				    .out = rest,
				    .writes = true};
	auto_buf struct buf said = {0};
	struct worker inflater;
	struct copy copy;
	struct helper h;
	struct err why = {0};
	int rc;

	if (root < 0)
		return -1;
	if (rest < 0)
		return err_sys(e, "cannot make a file");
	if (worker_start(&inflater, argv, l->blob, -1, e) < 0)
		return -1;
	if (helper_start(&h, &c, e) < 0) {
		worker_stop(&inflater);
		return -1;
	}
	copy = (struct copy){inflater.out, h.in, .room = m->room ? m->room - m->added : UINT64_MAX};
	rc = copy_and_hash(&copy, e);
	if (rc < 0 && e->kind == ERR_LIMIT) {
		helper_stop(&h);
		worker_stop(&inflater);
		return -1;
	}
	m->added += copy.size;
	memcpy(l->hex, copy.hex, sizeof(l->hex));
	close_fd(&h.in);
	/* Whoever ended too early knows why. */
	if (process_await(h.pid, h.said, "the layer cannot be unpacked", &said, &why) < 0) {
		worker_stop(&inflater);
		*e = why;
		return -1;
	}
	if (worker_end(&inflater, "the layer cannot be read", &why) < 0) {
		*e = why;
		return -1;
	}
	read_report(m, l, &said);
	return rc == 0 && fsync(rest) < 0 ? err_sys(e, "cannot write the layer") : rc;
}

int image_layer_unpack(struct image_maker *m, struct image_layer *l, struct err *e)
{
	auto_close int dir = -1;
	char size[32];

	if (make_places(m, l, &dir, e) < 0 || run_unpack(m, l, dir, e) < 0)
		return -1;
	if (l->want && !str_equal(l->want, l->hex))
		return err_set(
			e, ERR_INVALID,
			"a layer is damaged: its digest is sha256:%s and should be sha256:%s",
			l->hex, l->want);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)l->size);
	return image_write_file(dir, "size", size, strlen(size), e);
}

int image_layer_keep(struct image_maker *m, struct image_layer *l, struct err *e)
{
	list_add(&m->held, l->hex);
	return image_move_layer(&m->store, m->tmp, l->dir, l->hex, e);
}

/* ---- the way back ---- */

int image_layer_write(struct image_maker *m, const char *hex, int to, struct err *e)
{
	char path[IMAGE_HEX + 16], name[IMAGE_HEX + 16];
	struct copy copy = {.to = to, .room = UINT64_MAX};
	struct err why = {0};
	struct helper h;
	int rc;

	snprintf(path, sizeof(path), "layers/%s/fs", hex);
	snprintf(name, sizeof(name), "layers/%s/tar", hex);
	auto_close int root = open_tree_of(m->store.dir, path, e);
	auto_close int rest = openat(m->store.dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct confined_helper c = {
		.verb = "assemble", .guest = m->guest, .root = root, .in = rest, .out = -1};

	if (root < 0)
		return -1;
	if (rest < 0)
		return err_sys(e, "cannot open layer %s", hex);
	if (helper_start(&h, &c, e) < 0)
		return -1;
	copy.from = h.out;
	rc = copy_and_hash(&copy, e);
	if (rc < 0) {
		helper_stop(&h);
		return -1;
	}
	close_fd(&h.out);
	if (process_await(h.pid, h.said, "the layer cannot be written", NULL, &why) < 0) {
		*e = why;
		return -1;
	}
	if (!str_equal(copy.hex, hex))
		return err_set(
			e, ERR_UNSUPPORTED,
			"layer %s cannot be written as it was: its archive had some file twice, "
			"or the layer was changed",
			hex);
	return 0;
}

/*
 * Layers of images, in a confined helper. Unpacking also writes the rest: all bytes of the tar that are not
 * content of files, so that the very same tar can be assembled later, without storing content twice.
 *
 * The rest is a sequence of records: 'B' LENGTH bytes; 'Z' LENGTH, so many zeros; 'F' OFFSET SIZE NAME_LENGTH
 * name, content of a file. Numbers are little-endian, of 8 bytes.
 */
#include "guest/guest.h"

#include "guest/files/walk.h"
#include "wire/tar.h"

#define MOST_ENTRIES 1000000u
#define MOST_BYTES (20ull << 30)
#define MOST_DEPTH 128
#define MOST_SECONDS 600
#define TRAILER_MAX (16u << 20)
#define ZEROS 32 /* shorter runs are not worth a record */

struct unpacking {
	FILE *rest;
	char bytes[65536]; /* read ahead, since headers are small */
	size_t at, len;
	bool in_content;
};

static int say(const struct err *e)
{
	dprintf(2, "%s\n", e->msg);
	return 1;
}

/* ---- unpacking ---- */

static void put_number(FILE *to, uint64_t n)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(n >> 8 * i);
	fwrite(bytes, 1, sizeof(bytes), to);
}

static void put_part(FILE *to, char kind, const char *bytes, size_t len)
{
	if (len == 0)
		return;
	fputc(kind, to);
	put_number(to, len);
	if (kind == 'B')
		fwrite(bytes, 1, len, to);
}

/* Headers consist of zeros for the most part. */
static void put_bytes(FILE *to, const char *bytes, size_t len)
{
	size_t from = 0, at = 0;

	while (at < len) {
		size_t run = 0;

		while (at + run < len && !bytes[at + run])
			run++;
		if (run >= ZEROS) {
			put_part(to, 'B', bytes + from, at - from);
			put_part(to, 'Z', NULL, run);
			from = at + run;
		}
		at += run ? run : 1;
	}
	put_part(to, 'B', bytes + from, len - from);
}

static ssize_t read_tar(void *arg, void *bytes, size_t len)
{
	struct unpacking *u = arg;
	ssize_t n = 0;

	while (u->at == u->len && (n = read(0, u->bytes, sizeof(u->bytes))) != 0) {
		if (n < 0 && errno != EINTR)
			return -1;
		u->at = 0;
		u->len = n > 0 ? (size_t)n : 0;
	}
	if (len > u->len - u->at)
		len = u->len - u->at;
	memcpy(bytes, u->bytes + u->at, len);
	u->at += len;
	if (!u->in_content)
		put_bytes(u->rest, bytes, len);
	return (ssize_t)len;
}

static void content_begins(void *arg, const char *name, struct tar_range r)
{
	struct unpacking *u = arg;
	size_t len = strlen(name);

	fputc('F', u->rest);
	put_number(u->rest, r.offset);
	put_number(u->rest, r.size);
	put_number(u->rest, len);
	fwrite(name, 1, len, u->rest);
	u->in_content = true;
}

static void content_ends(void *arg)
{
	((struct unpacking *)arg)->in_content = false;
}

static int read_trailer(struct unpacking *u, struct err *e)
{
	static char bytes[65536];
	size_t total = 0;
	ssize_t n;

	while ((n = read_tar(u, bytes, sizeof(bytes))) > 0) {
		total += (size_t)n;
		if (total > TRAILER_MAX)
			return err_set(e, ERR_INVALID, "the archive goes on after its end");
	}
	return n < 0 ? err_sys(e, "cannot read the archive") : 0;
}

int guest_unpack(bool owners)
{
	static struct unpacking u;
	struct tar_layer layer = {.owners = owners,
				  .max_entries = MOST_ENTRIES,
				  .max_bytes = MOST_BYTES,
				  .max_depth = MOST_DEPTH,
				  .content = content_begins,
				  .content_ends = content_ends,
				  .arg = &u};
	/* With headers and all that is left out, which is kept as well. */
	struct tar_in tar = {.read = read_tar, .arg = &u, .most = MOST_BYTES};
	auto_close int root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct tar_extract x = {.root = root, .layer = &layer, .remove_tree = walk_remove_at};
	static char gathered[65536];
	struct err e = {0};

	u.rest = stdout;
	umask(0);
	alarm(MOST_SECONDS);
	setvbuf(stdout, gathered, _IOFBF, sizeof(gathered));
	if (tar_extract(&x, &tar, &e) < 0 || read_trailer(&u, &e) < 0)
		return say(&e);
	if (fflush(stdout) != 0) {
		err_sys(&e, "cannot write the layer");
		return say(&e);
	}
	dprintf(2, "entries %llu\nbytes %llu\ndevices %llu\nset_ids %llu\nxattrs %llu\nids %llu\n",
		(unsigned long long)x.entries, (unsigned long long)layer.bytes,
		(unsigned long long)layer.devices, (unsigned long long)layer.set_ids,
		(unsigned long long)layer.xattrs, (unsigned long long)layer.foreign_ids);
	return 0;
}

/* ---- assembling ---- */

static bool get_number(uint64_t *ret)
{
	unsigned char bytes[8];

	if (fread(bytes, 1, sizeof(bytes), stdin) != sizeof(bytes))
		return false;
	*ret = 0;
	for (size_t i = sizeof(bytes); i-- > 0;)
		*ret = *ret << 8 | bytes[i];
	return true;
}

static int damaged(struct err *e)
{
	return err_set(e, ERR_SYSTEM, "the layer's record is damaged");
}

/* fd -1: from stdin. With `zeros`: nothing is read. */
static int copy(int fd, uint64_t offset, uint64_t len, bool zeros, struct err *e)
{
	static char bytes[65536];

	memset(bytes, 0, sizeof(bytes));
	while (len > 0) {
		size_t part = len < sizeof(bytes) ? (size_t)len : sizeof(bytes);

		if (fd >= 0) {
			ssize_t n = pread(fd, bytes, part, (off_t)offset);

			part = n > 0 ? (size_t)n : 0;
		} else if (!zeros) {
			part = fread(bytes, 1, part, stdin);
		}
		if (part == 0)
			return damaged(e);
		if (fwrite(bytes, 1, part, stdout) != part)
			return err_sys(e, "cannot write the archive");
		offset += part;
		len -= part;
	}
	return 0;
}

static int copy_content(struct err *e)
{
	uint64_t offset, size, len;
	char name[TAR_MAX_NAME];
	auto_close int fd = -1;
	struct stat st;

	if (!get_number(&offset) || !get_number(&size) || !get_number(&len) ||
	    len >= sizeof(name) || fread(name, 1, (size_t)len, stdin) != len)
		return damaged(e);
	name[len] = '\0';
	fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_sys(e, "cannot read %.200s", name);
	return copy(fd, offset, size, false, e);
}

int guest_assemble(void)
{
	static char in[65536], out[65536];
	struct err e = {0};
	uint64_t len;
	int kind, rc = 0;

	setvbuf(stdin, in, _IOFBF, sizeof(in));
	setvbuf(stdout, out, _IOFBF, sizeof(out));
	while (rc == 0 && (kind = getchar()) != EOF) {
		if (kind == 'F')
			rc = copy_content(&e);
		else if ((kind != 'B' && kind != 'Z') || !get_number(&len))
			rc = damaged(&e);
		else
			rc = copy(-1, 0, len, kind == 'Z', &e);
	}
	if (rc == 0 && fflush(stdout) != 0)
		rc = err_sys(&e, "cannot write the archive");
	return rc < 0 ? say(&e) : 0;
}

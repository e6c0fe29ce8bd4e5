/*
 * Theory of operation
 *
 * The file is read as git reads it, and refused where git's readings could differ: the length of each name is
 * given twice, and must agree; the two tables with which several threads find their entries (EOIE, IEOT) must
 * lead to the entries that one thread finds. The checksum is not looked at: git does not either.
 */
#include "sandbox/workspace/git_index.h"

#include "sandbox/workspace/control.h"
#include "sandbox/workspace/safe_walk.h"

#include <strings.h>
#include <sys/mman.h>

enum {
	HEADER_SIZE = 12,
	STAT_SIZE = 40, /* of an entry, before the hash */
	NAME_MASK = 0xfff,
	EXTENDED = 0x4000,
	EXTENSION_HEADER = 8,
};

struct index_file {
	const unsigned char *bytes;
	size_t size;
	size_t hash_size;
	uint32_t version, count;
	struct entry {
		uint32_t start;
		bool is_whole; /* its name needs no name before it */
	} * entries;
	size_t end; /* of the entries */
	char name[PATH_MAX];
	size_t name_len;
};

static uint32_t number_at(const struct index_file *f, size_t at)
{
	const unsigned char *b = f->bytes + at;

	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* ---- names ---- */

/* An empty name is one that a shared index has. A directory of a sparse index ends in a slash. */
static bool is_safe_name(const char *name)
{
	char part[NAME_MAX + 1];

	if (*name == '/')
		return false;
	while (*name) {
		size_t len = strcspn(name, "/");

		if (len == 0 || len > NAME_MAX)
			return false;
		memcpy(part, name, len);
		part[len] = '\0';
		if (str_equal(part, ".") || str_equal(part, "..") || control_is_git_name(part))
			return false;
		name += len + (name[len] == '/');
	}
	return true;
}

/* In version 4 a name begins with how many bytes of the one before it do not count. */
static bool read_cut(const struct index_file *f, size_t *at, size_t *ret)
{
	size_t value = 0;

	for (bool more = true; more; (*at)++) {
		if (*at >= f->end || value > PATH_MAX)
			return false;
		more = f->bytes[*at] & 0x80;
		value = (value << 7) + (f->bytes[*at] & 0x7f) + more;
	}
	*ret = value;
	return true;
}

/* Reads the name at *at, of `len` bytes, and steps behind it. */
static bool read_name(struct index_file *f, size_t *at, size_t len, bool *ret_whole)
{
	size_t kept = 0, cut = 0, rest;

	if (f->version == 4) {
		if (!read_cut(f, at, &cut) || cut > f->name_len)
			return false;
		kept = f->name_len - cut;
	}
	*ret_whole = kept == 0;
	rest = strnlen((const char *)f->bytes + *at, f->end - *at);
	if (*at + rest >= f->end || kept + rest >= sizeof(f->name) ||
	    (len == NAME_MASK ? kept + rest < len : kept + rest != len))
		return false;
	memcpy(f->name + kept, f->bytes + *at, rest + 1);
	f->name_len = kept + rest;
	*at += rest;
	return is_safe_name(f->name);
}

/* ---- entries ---- */

static bool read_entries(struct index_file *f)
{
	size_t at = HEADER_SIZE;

	f->end = f->size - f->hash_size;
	for (uint32_t i = 0; i < f->count; i++) {
		size_t start = at, flags = at + STAT_SIZE + f->hash_size, len;

		f->entries[i].start = (uint32_t)start;
		if (flags + 4 > f->end)
			return false;
		at = flags + (f->bytes[flags] << 8 & EXTENDED ? 4 : 2);
		len = (size_t)(f->bytes[flags] << 8 | f->bytes[flags + 1]) & NAME_MASK;
		if (!read_name(f, &at, len, &f->entries[i].is_whole))
			return false;
		/* The name ends in one to eight zeros, in version 4 in one. */
		at = f->version == 4 ? at + 1 : start + ((at - start + 8) & ~(size_t)7);
	}
	f->end = at;
	return at <= f->size - f->hash_size;
}

/* ---- extensions ---- */

static bool find_start(const struct index_file *f, uint32_t start, uint32_t *ret)
{
	uint32_t low = 0, high = f->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (f->entries[middle].start < start)
			low = middle + 1;
		else
			high = middle;
	}
	*ret = low;
	return low < f->count && f->entries[low].start == start;
}

/* Blocks of entries, for one thread each, which does not know the name before its first one. */
static bool is_safe_table(const struct index_file *f, size_t at, size_t size)
{
	uint32_t first;

	if (size % 8 != 4)
		return false;
	for (size_t i = at + 4; i < at + size; i += 8)
		if (!find_start(f, number_at(f, i), &first) || !f->entries[first].is_whole ||
		    number_at(f, i + 4) > f->count - first)
			return false;
	return true;
}

/*
 * Where the other extensions begin. git looks for this one at the end of the file. Of which hash it has the size, depends
 * on the version of git.
 */
static bool is_safe_pointer(const struct index_file *f, size_t hash_size)
{
	size_t last = f->size - f->hash_size, size = EXTENSION_HEADER + 4 + hash_size;

	if (last < f->end + size || memcmp(f->bytes + last - size, "EOIE", 4) != 0)
		return true;
	return number_at(f, last - size + EXTENSION_HEADER) == f->end;
}

static bool check_extensions(const struct index_file *f)
{
	size_t last = f->size - f->hash_size;

	for (size_t at = f->end; at + EXTENSION_HEADER <= last;) {
		size_t size = number_at(f, at + 4);

		if (size > last - at - EXTENSION_HEADER)
			return false;
		if (memcmp(f->bytes + at, "IEOT", 4) == 0 &&
		    !is_safe_table(f, at + EXTENSION_HEADER, size))
			return false;
		at += EXTENSION_HEADER + size;
	}
	return is_safe_pointer(f, 20) && is_safe_pointer(f, f->hash_size);
}

/* ---- the file ---- */

static bool is_safe_file(struct index_file *f)
{
	bool ok;

	if (f->size < HEADER_SIZE + f->hash_size || memcmp(f->bytes, "DIRC", 4) != 0)
		return false;
	f->version = number_at(f, 4);
	f->count = number_at(f, 8);
	if (f->version < 2 || f->version > 4 || f->count > f->size / (STAT_SIZE + f->hash_size))
		return false;
	f->entries = must_alloc(calloc(f->count + 1, sizeof(*f->entries)));
	ok = read_entries(f) && check_extensions(f);
	free(f->entries);
	return ok;
}

bool git_index_is_one(const char *name)
{
	return strcasecmp(name, "index") == 0 || strncasecmp(name, "sharedindex.", 12) == 0;
}

bool git_index_is_safe(int fd, bool is_sha256)
{
	auto_free struct index_file *f = must_alloc(calloc(1, sizeof(*f)));
	struct stat st;
	void *bytes;
	bool ok;

	/* No process is left that could shorten the file. */
	if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > UINT32_MAX)
		return false;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return false;
	f->bytes = bytes;
	f->size = (size_t)st.st_size;
	f->hash_size = is_sha256 ? 32 : 20;
	ok = is_safe_file(f);
	munmap(bytes, (size_t)st.st_size);
	return ok;
}

bool git_index_uses_sha256(int git_dir)
{
	struct stat st;
	auto_close int fd = safe_walk_open_file(git_dir, "config", &st);
	auto_free char *text = NULL;
	size_t len;

	return fd >= 0 && io_read_whole(fd, 1u << 20, &text, &len) == 0 &&
	       memmem(text, len, "sha256", 6);
}

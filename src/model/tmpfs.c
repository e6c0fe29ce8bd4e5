/* Parses and checks the file systems in memory that a caller asks for. */
#include "model/tmpfs.h"

#include "model/spec.h"

#define SMALLEST (64u << 10)

static int refuse(const char *path, const char *why, struct err *e)
{
	char shown[TMPFS_PATH];

	str_sanitise(shown, sizeof(shown), path, strlen(path));
	return err_field(e, ERR_INVALID, "tmpfs", "tmpfs: '%s' %s", shown, why);
}

/* Places that the sandbox itself needs, or that a layer is proven by. */
static int check_place(const char *path, struct err *e)
{
	static const char *const kept[] = {"/proc", "/sys",  "/dev", "/run", "/etc",  "/usr",
					   "/bin",  "/sbin", "/lib", "/opt", "/lib64"};
	char clean[TMPFS_PATH];

	if (!path_clean(path, clean, sizeof(clean)) || !str_equal(clean, path) ||
	    !str_is_printable(path))
		return refuse(path, "must be an absolute path without '..', such as /tmp", e);
	if (str_equal(path, "/dev/shm"))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (path_below(path, kept[i]) || str_equal(path, "/"))
			return refuse(path, "belongs to the sandbox itself", e);
	if (str_equal(path, "/workspace"))
		return refuse(path, "is the workspace; --empty starts with an empty one", e);
	return 0;
}

int tmpfs_check(const struct tmpfs_mounts *t, const struct limits *l, struct err *e)
{
	uint64_t left = l->memory_bytes > l->disk_bytes ? l->memory_bytes - l->disk_bytes : 0;

	if (t->count > TMPFS_MOUNTS)
		return err_field(e, ERR_LIMIT, "tmpfs", "tmpfs: more than %d", TMPFS_MOUNTS);
	for (uint32_t i = 0; i < t->count; i++) {
		const struct tmpfs_mount *m = &t->items[i];

		if (check_place(m->path, e) < 0)
			return -1;
		for (uint32_t j = 0; j < i; j++)
			if (path_below(t->items[j].path, m->path))
				return refuse(m->path, "is there twice, or covers another", e);
		if (m->bytes < SMALLEST)
			return refuse(m->path, "is too small; at least 64K", e);
		if (m->bytes > left)
			return refuse(
				m->path,
				"does not fit into memory, which also holds what the disk limit "
				"allows; raise memory or lower disk",
				e);
		left -= m->bytes;
	}
	return 0;
}

static int parse_one(const char *text, uint64_t usual, struct tmpfs_mount *ret, struct err *e)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);
	auto_free char *path = must_alloc(strndup(text, len));
	struct err inner = {0};

	*ret = (struct tmpfs_mount){.bytes = usual};
	if (!path_clean(path, ret->path, sizeof(ret->path)))
		return refuse(path, "must be an absolute path without '..', such as /tmp", e);
	if (!colon)
		return 0;
	if (!str_starts(colon, ":size="))
		return refuse(text, "is not PATH[:size=SIZE]", e);
	if (parse_size(colon + strlen(":size="), &ret->bytes, &inner) < 0)
		return err_field(e, ERR_INVALID, "tmpfs", "tmpfs: %s", inner.msg);
	return 0;
}

int tmpfs_parse(const struct list *texts, const struct limits *l, struct tmpfs_mounts *ret,
		struct err *e)
{
	struct tmpfs_mounts t = {0};

	if (texts->count > TMPFS_MOUNTS)
		return err_field(e, ERR_LIMIT, "tmpfs", "tmpfs: more than %d", TMPFS_MOUNTS);
	for (size_t i = 0; i < texts->count; i++) {
		struct tmpfs_mount m;
		uint32_t at = t.count++;

		if (parse_one(texts->items[i], l->memory_bytes / 4, &m, e) < 0)
			return -1;
		/* Shorter paths first: what is mounted later must not cover what is there. */
		for (; at > 0 && strlen(t.items[at - 1].path) > strlen(m.path); at--)
			t.items[at] = t.items[at - 1];
		t.items[at] = m;
	}
	if (tmpfs_check(&t, l, e) < 0)
		return -1;
	*ret = t;
	return 0;
}

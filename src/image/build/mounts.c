/* Parses "type=cache,target=/x,..."; what is not known is refused by name, because it would be missing inside. */
#include "image/build/mounts.h"

static const char *const types[] = {
	[MOUNT_TYPE_BIND] = "bind",
	[MOUNT_TYPE_CACHE] = "cache",
	[MOUNT_TYPE_TMPFS] = "tmpfs",
	[MOUNT_TYPE_SECRET] = "secret",
};

#define OF(type) (1u << MOUNT_TYPE_##type)
#define ALL (OF(BIND) | OF(CACHE) | OF(TMPFS) | OF(SECRET))

static const struct mount_key {
	const char *name, *also;
	unsigned types;
	enum { KEY_TYPE, KEY_TEXT, KEY_ID, KEY_MODE, KEY_FLAG, KEY_NOTHING } kind;
	size_t offset;
} keys[] = {
#define AT(member) offsetof(struct run_mount, member)
	{"type", NULL, ALL, KEY_TYPE, 0},
	{"target", "dst", ALL, KEY_TEXT, AT(target)},
	{"destination", NULL, ALL, KEY_TEXT, AT(target)},
	{"source", "src", OF(BIND), KEY_TEXT, AT(source)},
	{"from", NULL, OF(BIND), KEY_TEXT, AT(from)},
	{"id", NULL, OF(CACHE) | OF(SECRET), KEY_TEXT, AT(id)},
	{"uid", NULL, OF(CACHE) | OF(SECRET), KEY_ID, AT(uid)},
	{"gid", NULL, OF(CACHE) | OF(SECRET), KEY_ID, AT(gid)},
	{"mode", NULL, OF(CACHE) | OF(SECRET), KEY_MODE, AT(mode)},
	{"required", NULL, OF(SECRET), KEY_FLAG, AT(required)},
	/* All writes to a bind mount go; each build has caches of its own, and the last one's are kept. */
	{"rw", "readwrite", OF(BIND), KEY_NOTHING, 0},
	{"ro", "readonly", OF(BIND), KEY_NOTHING, 0},
	{"sharing", NULL, OF(CACHE), KEY_NOTHING, 0},
	{"size", NULL, OF(TMPFS), KEY_NOTHING, 0}, /* --disk bounds all */
#undef AT
};

static int set_type(struct run_mount *m, const char *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (str_equal(types[i], value)) {
			m->type = (enum mount_type)i;
			return 0;
		}
	return err_set(e, ERR_UNSUPPORTED, "--mount=type=%.40s is not possible here", value);
}

static int set_key(struct run_mount *m, const struct mount_key *k, const char *value, struct err *e)
{
	void *member = (char *)m + k->offset;
	uint64_t number;
	char *end;
	long mode;

	switch (k->kind) {
	case KEY_TEXT:
		free(*(char **)member);
		*(char **)member = str_copy(value);
		return 0;
	case KEY_ID:
		if (parse_count(value, &number, e) < 0 || number > 65534)
			return err_set(e, ERR_INVALID, "--mount: %s is no id", k->name);
		*(uint32_t *)member = (uint32_t)number;
		return 0;
	case KEY_MODE:
		mode = strtol(value, &end, 8);
		if (*end || end == value || mode < 0 || mode > 01777)
			return err_set(e, ERR_INVALID, "--mount: mode is no octal number");
		*(int *)member = (int)mode;
		return 0;
	case KEY_FLAG:
		*(bool *)member = !*value || str_equal(value, "true");
		return 0;
	default:
		return 0;
	}
}

/* "K=V" or "K"; with only_type just the type. */
static int take_pair(struct run_mount *m, const char *pair, bool only_type, struct err *e)
{
	size_t len = strcspn(pair, "=");
	const char *value = pair + len + (pair[len] == '=');

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct mount_key *k = &keys[i];
		bool is_it = (strlen(k->name) == len && memcmp(k->name, pair, len) == 0) ||
			     (k->also && strlen(k->also) == len && memcmp(k->also, pair, len) == 0);

		if (!is_it)
			continue;
		if (k->kind == KEY_TYPE)
			return only_type ? set_type(m, value, e) : 0;
		if (!only_type && (k->types & 1u << m->type))
			return set_key(m, k, value, e);
		if (only_type)
			return 0;
	}
	return only_type ? 0
			 : err_set(e, ERR_UNSUPPORTED, "--mount=type=%s has no %.*s here",
				   types[m->type], (int)(len < 40 ? len : 40), pair);
}

static int take_pairs(struct run_mount *m, const char *text, bool only_type, struct err *e)
{
	auto_free char *copy = str_copy(text);
	char *rest = copy, *pair;

	while ((pair = strsep(&rest, ",")))
		if (*pair && take_pair(m, pair, only_type, e) < 0)
			return -1;
	return 0;
}

int run_mounts_add(struct run_mounts *m, const char *text, struct err *e)
{
	struct run_mount *n;

	m->items = must_alloc(realloc(m->items, (m->count + 1) * sizeof(*m->items)));
	n = &m->items[m->count++];
	*n = (struct run_mount){.type = MOUNT_TYPE_BIND, .mode = -1};
	if (take_pairs(n, text, true, e) < 0 || take_pairs(n, text, false, e) < 0)
		return -1;
	if (n->type == MOUNT_TYPE_SECRET && !n->id)
		return err_set(e, ERR_INVALID, "--mount=type=secret needs an id");
	if (n->type == MOUNT_TYPE_SECRET && !n->target)
		n->target = str_format("/run/secrets/%s", n->id);
	return n->target ? 0 : err_set(e, ERR_INVALID, "--mount needs a target");
}

void run_mounts_done(struct run_mounts *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->items[i].target);
		free(m->items[i].source);
		free(m->items[i].from);
		free(m->items[i].id);
	}
	free(m->items);
	*m = (struct run_mounts){0};
}

/* The record of an image. Its text comes from a parser that may have been taken over, so it is judged here. */
#include "image/image.h"

#define VALUES_MAX 1024 /* of one key */

static const struct key {
	const char *name;
	enum { KEY_LIST, KEY_TEXT, KEY_NUMBER } kind;
	size_t offset;
} keys[] = {
	{"layer", KEY_LIST, offsetof(struct image_record, layers)},
	{"env", KEY_LIST, offsetof(struct image_record, env)},
	{"entrypoint", KEY_LIST, offsetof(struct image_record, entrypoint)},
	{"cmd", KEY_LIST, offsetof(struct image_record, cmd)},
	{"workdir", KEY_TEXT, offsetof(struct image_record, workdir)},
	{"user", KEY_TEXT, offsetof(struct image_record, user)},
	{"platform", KEY_TEXT, offsetof(struct image_record, platform)},
	{"created", KEY_TEXT, offsetof(struct image_record, created)},
	{"template", KEY_TEXT, offsetof(struct image_record, template)},
	{"start", KEY_TEXT, offsetof(struct image_record, start)},
	{"ready", KEY_TEXT, offsetof(struct image_record, ready)},
	{"cpus", KEY_TEXT, offsetof(struct image_record, cpus)},
	{"memory", KEY_TEXT, offsetof(struct image_record, memory)},
	{"size", KEY_NUMBER, offsetof(struct image_record, size)},
};

static int damaged(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID, "the image's record is damaged: %s", what);
}

static int put_value(struct image_record *r, const struct key *k, const char *value, struct err *e)
{
	void *member = (char *)r + k->offset;
	struct list *list = member;
	char **text = member;

	switch (k->kind) {
	case KEY_NUMBER:
		return parse_count(value, member, e);
	case KEY_TEXT:
		if (*text)
			return damaged(e, "a key is there twice");
		*text = str_copy(value);
		return 0;
	default:
		if (list->count == VALUES_MAX)
			return damaged(e, "it has too many values");
		list_add(list, value);
		return 0;
	}
}

static int put_line(struct image_record *r, const char *line, struct err *e)
{
	size_t len = strcspn(line, " ");

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (strlen(keys[i].name) == len && memcmp(keys[i].name, line, len) == 0 &&
		    line[len] == ' ')
			return put_value(r, &keys[i], line + len + 1, e);
	return damaged(e, "an unknown key");
}

static int check(const struct image_record *r, struct err *e)
{
	if (r->layers.count == 0 || r->layers.count > IMAGE_LAYERS)
		return err_set(e, ERR_UNSUPPORTED,
			       "the image has %zu layers; an image of 1 to %d can be used",
			       r->layers.count, IMAGE_LAYERS);
	for (size_t i = 0; i < r->layers.count; i++)
		if (!image_is_hex(r->layers.items[i]))
			return damaged(e, "a layer");
	for (size_t i = 0; i < r->env.count; i++)
		if (!strchr(r->env.items[i], '='))
			return damaged(e, "a variable");
	if (r->workdir && r->workdir[0] != '/')
		return damaged(e, "the working directory");
	return 0;
}

int image_record_parse(const char *bytes, size_t len, struct image_record *ret, struct err *e)
{
	struct image_record r = {0};
	int rc = 0;

	if (len == 0 || len > IMAGE_RECORD_MAX || bytes[len - 1] != '\0')
		return damaged(e, "its length");
	for (const char *line = bytes; rc == 0 && line < bytes + len; line += strlen(line) + 1)
		rc = put_line(&r, line, e);
	if (rc == 0)
		rc = check(&r, e);
	if (rc < 0) {
		image_record_done(&r);
		return -1;
	}
	*ret = r;
	return 0;
}

static void put_text(struct buf *to, const char *key, const char *value)
{
	buf_add(to, key, strlen(key));
	buf_add(to, " ", 1);
	buf_add(to, value, strlen(value) + 1);
}

void image_record_format(const struct image_record *r, struct buf *to)
{
	char number[24];

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const void *member = (const char *)r + keys[i].offset;
		const struct list *list = member;
		char *const *text = member;

		if (keys[i].kind == KEY_NUMBER) {
			snprintf(number, sizeof(number), "%llu",
				 (unsigned long long)*(const uint64_t *)member);
			put_text(to, keys[i].name, number);
		} else if (keys[i].kind == KEY_TEXT) {
			if (*text)
				put_text(to, keys[i].name, *text);
		} else {
			for (size_t v = 0; v < list->count; v++)
				put_text(to, keys[i].name, list->items[v]);
		}
	}
}

bool image_user_is_root(const struct image_record *r)
{
	const char *user = r->user;

	return !user || !*user || str_equal(user, "root") || str_starts(user, "root:") ||
	       str_equal(user, "0") || str_starts(user, "0:");
}

void image_command(const struct image_record *r, struct list *argv)
{
	const struct list *const parts[] = {&r->entrypoint, &r->cmd};

	for (size_t p = 0; p < ARRAY_LEN(parts); p++)
		for (size_t i = 0; i < parts[p]->count; i++)
			list_add(argv, parts[p]->items[i]);
}

void image_record_done(struct image_record *r)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		void *member = (char *)r + keys[i].offset;

		if (keys[i].kind == KEY_LIST)
			list_done(member);
		else if (keys[i].kind == KEY_TEXT)
			free(*(char **)member);
	}
	*r = (struct image_record){0};
}

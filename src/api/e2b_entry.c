/*
 * EntryInfo: what the filesystem service says of a file. A link is shown with the kind and mode of
 * what it leads to, metadata are the extended attributes user.e2b.*: two more questions to the guest.
 */
#include "api/e2b.h"

#include "base/auto.h"
#include "base/clock.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <stdlib.h>
#include <string.h>

#define XATTR "user.e2b."

static char *take_string(struct unpack *u)
{
	size_t len;
	const char *p = unpack_bytes(u, &len);
	char *s = must_alloc(malloc(len + 1));

	memcpy(s, p, len);
	s[len] = '\0';
	return s;
}

bool e2b_entry_unpack(const void *payload, size_t len, struct e2b_entry *ret)
{
	struct unpack u = unpack_from(payload, len);

	*ret = (struct e2b_entry){.path = take_string(&u)};
	ret->kind = unpack_u8(&u);
	ret->mode = unpack_u32(&u);
	unpack_u32(&u);
	unpack_u32(&u);
	ret->size = unpack_u64(&u);
	ret->mtime_ns = unpack_u64(&u);
	unpack_str(&u, ret->owner, sizeof(ret->owner));
	unpack_str(&u, ret->group, sizeof(ret->group));
	ret->target = take_string(&u);
	if (!u.bad)
		return true;
	e2b_entry_done(ret);
	return false;
}

void e2b_entry_done(struct e2b_entry *e)
{
	free(e->path);
	free(e->target);
	*e = (struct e2b_entry){0};
}

static const char *type_name(uint8_t kind)
{
	return kind == 'f'   ? "FILE_TYPE_FILE"
	       : kind == 'd' ? "FILE_TYPE_DIRECTORY"
			     : "FILE_TYPE_UNSPECIFIED";
}

/* As Go prints a mode: "drwxr-xr-x", links with 'L'. */
static void permissions(uint8_t kind, uint32_t mode, char text[16])
{
	static const char bits[] = "rwxrwxrwx";

	text[0] = kind == 'd' ? 'd' : kind == 'l' ? 'L' : '-';
	for (unsigned i = 0; i < 9; i++)
		text[i + 1] = mode & (0400u >> i) ? bits[i] : '-';
	text[10] = '\0';
}

static json_t *time_json(uint64_t ns)
{
	char text[UTC_TEXT];

	return json_string(utc_text(ns / 1000000000u, (uint32_t)(ns % 1000000000u), 9, text));
}

/* Names may hold any bytes, JSON may not. */
static json_t *text_json(const char *s)
{
	json_t *text = json_string(s);
	auto_free char *clean = NULL;

	if (text)
		return text;
	clean = must_alloc(malloc(strlen(s) * 3 + 1));
	str_sanitise(clean, strlen(s) * 3 + 1, s, strlen(s));
	return must_alloc(json_string(clean));
}

json_t *e2b_entry_plain(const struct e2b_entry *e)
{
	const char *slash = strrchr(e->path, '/');
	char size[24], mode[16];
	json_t *o;

	snprintf(size, sizeof(size), "%llu", (unsigned long long)e->size);
	permissions(e->kind, e->mode, mode);
	o = must_alloc(json_pack("{s:o,s:s,s:o,s:s,s:i,s:s,s:o,s:o,s:o}", "name",
				 text_json(slash && slash[1] ? slash + 1 : e->path), "type",
				 type_name(e->kind), "path", text_json(e->path), "size", size,
				 "mode", (int)(e->mode & 0777), "permissions", mode, "owner",
				 text_json(e->owner), "group", text_json(e->group), "modifiedTime",
				 time_json(e->mtime_ns)));
	return o;
}

/* ---- completing it ---- */

struct completion {
	struct e2b_request *q;
	struct e2b_entry entry;
	json_t *info;
	void (*done)(struct e2b_request *q, json_t *info, void *arg);
	void *arg;
};

static void complete(struct completion *c)
{
	c->done(c->q, c->info, c->arg);
	e2b_entry_done(&c->entry);
	free(c);
}

static void on_xattrs(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct completion *c = arg;
	struct unpack u = unpack_from(payload, len);
	json_t *all = must_alloc(json_object());
	uint32_t count = e ? 0 : unpack_u32(&u);

	while (count-- > 0 && !u.bad) {
		auto_free char *name = take_string(&u);
		auto_free char *value = take_string(&u);

		if (!u.bad && str_starts(name, XATTR))
			json_object_set_new(all, name + strlen(XATTR), text_json(value));
	}
	if (json_object_size(all))
		json_object_set(c->info, "metadata", all);
	json_decref(all);
	complete(c);
}

static void ask_metadata(struct completion *c)
{
	struct sandbox *s = manager_find_any(c->q->x->api->manager, c->q->id);
	struct buf b = {0};

	if (!s || c->entry.kind != 'f') {
		complete(c);
		return;
	}
	pack_str(&b, c->entry.path);
	e2b_ask(c->q->x, s, G_XATTR_LIST, &b, on_xattrs, c);
}

/* Where a link leads, seen from where it is. */
static json_t *target_json(const struct e2b_entry *e)
{
	const char *slash = strrchr(e->path, '/');
	int len = slash ? (int)(slash - e->path) : 0;
	struct err ignored;
	auto_free char *joined = str_format("%.*s/%s", len, e->path, e->target);
	auto_free char *clean =
		e2b_path(e->target[0] == '/' ? e->target : joined, "user", &ignored);

	return text_json(clean ? clean : e->target);
}

/* A link that leads nowhere stays without a kind; lists leave it out. */
static void on_target(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct completion *c = arg;
	struct e2b_entry to;

	if (!e && e2b_entry_unpack(payload, len, &to)) {
		json_object_set_new(c->info, "type", json_string(type_name(to.kind)));
		json_object_set_new(c->info, "mode", json_integer(to.mode & 0777));
		e2b_entry_done(&to);
	}
	json_object_set_new(c->info, "symlinkTarget", target_json(&c->entry));
	complete(c);
}

void e2b_entry_complete(struct e2b_request *q, struct e2b_entry *entry,
			void (*done)(struct e2b_request *q, json_t *info, void *arg), void *arg)
{
	struct completion *c = must_alloc(calloc(1, sizeof(*c)));
	struct sandbox *s = manager_find_any(q->x->api->manager, q->id);
	struct buf b = {0};

	*c = (struct completion){.q = q, .entry = *entry, .done = done, .arg = arg};
	*entry = (struct e2b_entry){0};
	c->info = e2b_entry_plain(&c->entry);
	if (c->entry.kind != 'l' || !s) {
		ask_metadata(c);
		return;
	}
	pack_str(&b, c->entry.path);
	pack_u8(&b, 1);
	e2b_ask(q->x, s, G_STAT, &b, on_target, c);
}

static void on_info(struct e2b_request *q, json_t *info, void *arg)
{
	(void)arg;
	e2b_rpc_ok(q, json_pack("{s:o}", "entry", info));
}

static void on_stat(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct e2b_request *q = arg;
	struct e2b_entry entry;

	if (e)
		e2b_rpc_error(q, e);
	else if (!e2b_entry_unpack(payload, len, &entry))
		e2b_rpc_fail(q, CONNECT_INTERNAL, "the sandbox gave a malformed answer");
	else
		e2b_entry_complete(q, &entry, on_info, NULL);
}

void e2b_entry_reply(struct e2b_request *q, struct sandbox *s, const char *path)
{
	struct buf b = {0};

	pack_str(&b, path);
	pack_u8(&b, 0);
	e2b_ask(q->x, s, G_STAT, &b, on_stat, q);
}

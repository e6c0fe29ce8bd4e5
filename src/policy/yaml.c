/*
 * Theory of operation
 *
 * The events of libyaml are read one by one, and each is either what the grammar wants next or an
 * error; nothing is built up in between, so depth and size cannot hurt:
 *
 *   file  = { key: value ... }                         one document
 *   value = scalar | [ item ... ] for list fields | { K: V ... } for env and file
 *   item  = scalar | { source: S, target: T, mode: M } for mount
 *   limits: { ... } and description: TEXT are the only keys that are not fields
 *
 * Anchors, aliases and tags have no use here and are refused: a reader should see what there is.
 */
#include "policy/yaml.h"

#include "base/auto.h"
#include "base/str.h"
#include "policy/events.h"
#include "policy/source.h"

#include <inttypes.h>
#include <string.h>

struct reader {
	struct events ev;
	struct policy *policy;
	uint64_t seen; /* fields, by index */
	size_t room;   /* of policy->lines */
};

/* ---- values ---- */

enum path_form { PATH_WHOLE, PATH_UNLESS_HOST, PATH_AFTER_EQUALS, PATH_OF_MOUNT };

struct path_field {
	const char *name;
	enum path_form form;
};

/* Fields that name host paths, which are relative to the file's directory. */
static const struct path_field path_fields[] = {
	{"mount", PATH_OF_MOUNT},    {"mount_read", PATH_WHOLE}, {"mount_write", PATH_WHOLE},
	{"forbid", PATH_WHOLE},	     {"workspace", PATH_WHOLE},	 {"image", PATH_UNLESS_HOST},
	{"file", PATH_AFTER_EQUALS},
};

/* Makes a host path absolute; NULL (after an error) if it starts with '~'. */
static char *absolute(struct reader *r, const char *field, const char *path)
{
	if (path[0] == '~') {
		events_fail(&r->ev, events_line(&r->ev), field,
			    "%s: '~' is not expanded; write the whole path", field);
		return NULL;
	}
	return path[0] == '/' || !*path ? str_copy(path)
					: str_format("%s/%s", r->policy->dir, path);
}

static char *absolute_mount(struct reader *r, const char *value)
{
	struct mount_request m;
	struct err inner = {0};
	auto_free char *source = NULL;

	if (mount_request_parse(value, &m, &inner) < 0) {
		events_fail(&r->ev, events_line(&r->ev), "mount", "%s", inner.msg);
		return NULL;
	}
	source = absolute(r, "mount", m.source);
	return source ? str_format("%s:%s:%s", source, m.target, m.writable ? "rw" : "ro") : NULL;
}

static char *absolute_after_equals(struct reader *r, const char *field, const char *value)
{
	const char *equals = strchr(value, '=');
	auto_free char *path = NULL;

	if (!equals || equals == value || !equals[1]) {
		events_fail(&r->ev, events_line(&r->ev), field,
			    "%s: '%s' is not of the form NAME=PATH", field, value);
		return NULL;
	}
	path = absolute(r, field, equals + 1);
	return path ? str_format("%.*s=%s", (int)(equals - value), value, path) : NULL;
}

static char *resolve(struct reader *r, const struct field *f, const char *value)
{
	for (size_t i = 0; i < ARRAY_LEN(path_fields); i++) {
		if (!str_equal(f->name, path_fields[i].name))
			continue;
		switch (path_fields[i].form) {
		case PATH_OF_MOUNT:
			return absolute_mount(r, value);
		case PATH_AFTER_EQUALS:
			return absolute_after_equals(r, f->name, value);
		case PATH_UNLESS_HOST:
			return str_equal(value, "host") ? str_copy(value)
							: absolute(r, f->name, value);
		case PATH_WHOLE:
			return absolute(r, f->name, value);
		}
	}
	return str_copy(value);
}

/* One value of a field, in words: resolved, checked, set and kept. */
static int put(struct reader *r, const struct field *f, const char *value)
{
	struct policy *p = r->policy;
	auto_free char *full = NULL;
	struct err inner = {0};

	if (!str_equal(f->name, "env") && strchr(value, '\n'))
		return events_fail(&r->ev, events_line(&r->ev), f->name, "%s: must be one line",
				   f->name);
	full = resolve(r, f, value);
	if (!full)
		return -1;
	if (spec_set(&p->spec, f->name, full, &inner) < 0) {
		events_fail(&r->ev, events_line(&r->ev), f->name, "%s", inner.msg);
		r->ev.e->kind = inner.kind;
		return -1;
	}
	if (p->names.count == r->room) {
		r->room = r->room ? r->room * 2 : 32;
		p->lines = must_alloc(realloc(p->lines, r->room * sizeof(*p->lines)));
	}
	p->lines[p->names.count] = (unsigned)events_line(&r->ev);
	list_add(&p->names, f->name);
	list_add(&p->values, full);
	return 0;
}

static int put_scalar(struct reader *r, const struct field *f)
{
	if (events_at_null(&r->ev))
		return events_fail(&r->ev, events_line(&r->ev), f->name,
				   "%s: has no value; remove the key, or say what", f->name);
	return put(r, f, events_text(&r->ev));
}

/* {source: S, target: T, mode: ro}; the event is the mapping's start, and at return its end. */
static int put_mount_mapping(struct reader *r, const struct field *f)
{
	static const char *const keys[] = {"source", "target", "mode"};
	auto_free char *source = NULL, *target = NULL, *mode = NULL, *joined = NULL;
	char **slots[] = {&source, &target, &mode};

	while (events_next(&r->ev) == 0 && r->ev.event.type != YAML_MAPPING_END_EVENT) {
		size_t i = 0;

		while (events_at_scalar(&r->ev) && i < ARRAY_LEN(keys) &&
		       !str_equal(events_text(&r->ev), keys[i]))
			i++;
		if (!events_at_scalar(&r->ev) || i == ARRAY_LEN(keys) || *slots[i])
			return events_fail(&r->ev, events_line(&r->ev), f->name,
					   "mount: wants each of source, target and mode once");
		if (events_next(&r->ev) < 0)
			return -1;
		if (!events_at_scalar(&r->ev) || events_at_null(&r->ev))
			return events_wrong_type(&r->ev, keys[i], "a single value");
		*slots[i] = str_copy(events_text(&r->ev));
	}
	if (r->ev.event.type != YAML_MAPPING_END_EVENT)
		return -1;
	if (!source || !target)
		return events_fail(&r->ev, events_line(&r->ev), f->name,
				   "mount: needs source and target");
	if (mode && !str_equal(mode, "ro") && !str_equal(mode, "rw"))
		return events_fail(&r->ev, events_line(&r->ev), f->name,
				   "mount: mode '%s' is neither ro nor rw", mode);
	if (strchr(target, ':'))
		return events_fail(&r->ev, events_line(&r->ev), f->name,
				   "mount: a target cannot contain ':'");
	joined = str_format("%s:%s:%s", source, target, mode ? mode : "ro");
	return put(r, f, joined);
}

/* {K: V ...} for env and file. */
static int put_pairs(struct reader *r, const struct field *f)
{
	while (events_next(&r->ev) == 0 && r->ev.event.type != YAML_MAPPING_END_EVENT) {
		const struct list *values = &r->policy->values;
		auto_free char *key = NULL, *pair = NULL;

		if (!events_at_scalar(&r->ev) || !*events_text(&r->ev) ||
		    strpbrk(events_text(&r->ev), "=\n"))
			return events_fail(&r->ev, events_line(&r->ev), f->name,
					   "%s: this name cannot be used", f->name);
		key = str_format("%s=", events_text(&r->ev));
		for (size_t i = 0; i < values->count; i++)
			if (str_equal(r->policy->names.items[i], f->name) &&
			    str_starts(values->items[i], key))
				return events_fail(&r->ev, events_line(&r->ev), f->name,
						   "%s: %s is given twice", f->name,
						   events_text(&r->ev));
		if (events_next(&r->ev) < 0)
			return -1;
		if (!events_at_scalar(&r->ev) || events_at_null(&r->ev))
			return events_wrong_type(&r->ev, f->name, "a single value for each name");
		pair = str_format("%s%s", key, events_text(&r->ev));
		if (put(r, f, pair) < 0)
			return -1;
	}
	return r->ev.event.type == YAML_MAPPING_END_EVENT ? 0 : -1;
}

static int put_list(struct reader *r, const struct field *f)
{
	while (events_next(&r->ev) == 0 && r->ev.event.type != YAML_SEQUENCE_END_EVENT) {
		int rc;

		if (r->ev.event.type == YAML_MAPPING_START_EVENT && str_equal(f->name, "mount"))
			rc = put_mount_mapping(r, f);
		else if (events_at_scalar(&r->ev))
			rc = put_scalar(r, f);
		else
			rc = events_wrong_type(&r->ev, f->name, "a list of single values");
		if (rc < 0)
			return -1;
	}
	return r->ev.event.type == YAML_SEQUENCE_END_EVENT ? 0 : -1;
}

static int put_value(struct reader *r, const struct field *f)
{
	bool mapping = r->ev.event.type == YAML_MAPPING_START_EVENT;

	if (events_at_scalar(&r->ev))
		return put_scalar(r, f);
	if (f->type != FIELD_LIST)
		return events_wrong_type(&r->ev, f->name, "a single value");
	if (!mapping)
		return put_list(r, f);
	if (str_equal(f->name, "mount"))
		return put_mount_mapping(r, f);
	if (str_equal(f->name, "env") || str_equal(f->name, "file"))
		return put_pairs(r, f);
	return events_wrong_type(&r->ev, f->name, "a list");
}

/* ---- keys ---- */

struct synonym {
	const char *key, *name;
};

/* A list reads better in the plural. */
static const struct synonym synonyms[] = {{"mounts", "mount"}, {"files", "file"}};

static bool is_limit(const struct field *f)
{
	return f->offset >= offsetof(struct sandbox_spec, limits) &&
	       f->offset < offsetof(struct sandbox_spec, limits) + sizeof(struct limits);
}

static int unknown_key(struct reader *r, const char *key)
{
	const char *near = spec_field_near(key);
	const struct field *f = near ? spec_field_find(near) : NULL;

	if (f && f->flags & FIELD_CLI_ONLY && str_equal(near, key))
		return events_fail(&r->ev, events_line(&r->ev), key,
				   "unknown key '%s': it is an option of the command line only",
				   key);
	if (!f || f->flags & FIELD_CLI_ONLY)
		return events_fail(&r->ev, events_line(&r->ev), key,
				   "unknown key '%s'; cloche-policy(5) lists the known ones", key);
	return events_fail(&r->ev, events_line(&r->ev), key, "unknown key '%s'; did you mean '%s'?",
			   key, near);
}

static const struct field *find_key(const char *key)
{
	const struct field *f;

	for (size_t i = 0; i < ARRAY_LEN(synonyms); i++)
		if (str_equal(key, synonyms[i].key))
			key = synonyms[i].name;
	f = spec_field_find(key);
	/* spec_field_find takes dashes, too; a file is written with underscores only. */
	return f && str_equal(f->name, key) && !(f->flags & FIELD_CLI_ONLY) ? f : NULL;
}

static int read_field(struct reader *r, bool in_limits)
{
	const struct field *f = find_key(events_text(&r->ev));
	uint64_t bit;

	if (!f)
		return unknown_key(r, events_text(&r->ev));
	if (in_limits && !is_limit(f))
		return events_fail(&r->ev, events_line(&r->ev), f->name,
				   "limits: '%s' is not a limit; put it outside", f->name);
	bit = 1ULL << (f - spec_fields);
	if (r->seen & bit)
		return events_fail(&r->ev, events_line(&r->ev), f->name, "%s: is given twice",
				   f->name);
	r->seen |= bit;
	return events_next(&r->ev) < 0 ? -1 : put_value(r, f);
}

static int read_description(struct reader *r)
{
	if (r->policy->description)
		return events_fail(&r->ev, events_line(&r->ev), "description",
				   "description: is given twice");
	if (events_next(&r->ev) < 0)
		return -1;
	if (!events_at_scalar(&r->ev) || events_at_null(&r->ev))
		return events_wrong_type(&r->ev, "description", "a single value");
	r->policy->description = str_copy(events_text(&r->ev));
	return 0;
}

/* The event is a mapping's start, and at return its end. */
static int read_mapping(struct reader *r, bool in_limits)
{
	bool limits_seen = false;

	while (events_next(&r->ev) == 0 && r->ev.event.type != YAML_MAPPING_END_EVENT) {
		int rc;

		if (!events_at_scalar(&r->ev))
			return events_fail(&r->ev, events_line(&r->ev), "",
					   "a key must be a word, not %s", events_type(&r->ev));
		if (!in_limits && str_equal(events_text(&r->ev), "description")) {
			rc = read_description(r);
		} else if (!in_limits && str_equal(events_text(&r->ev), "limits")) {
			if (limits_seen)
				return events_fail(&r->ev, events_line(&r->ev), "limits",
						   "limits: is given twice");
			limits_seen = true;
			rc = events_next(&r->ev);
			if (rc == 0)
				rc = r->ev.event.type == YAML_MAPPING_START_EVENT
					     ? read_mapping(r, true)
					     : events_wrong_type(&r->ev, "limits", "a mapping");
		} else {
			rc = read_field(r, in_limits);
		}
		if (rc < 0)
			return -1;
	}
	return r->ev.event.type == YAML_MAPPING_END_EVENT ? 0 : -1;
}

static int read_stream(struct reader *r)
{
	/* STREAM-START, then DOCUMENT-START or the end */
	if (events_next(&r->ev) < 0 || events_next(&r->ev) < 0)
		return -1;
	if (r->ev.event.type == YAML_STREAM_END_EVENT)
		return events_fail(&r->ev, 1, "", "the file is empty");
	if (events_next(&r->ev) < 0)
		return -1;
	if (r->ev.event.type != YAML_MAPPING_START_EVENT)
		return events_fail(&r->ev, events_line(&r->ev), "",
				   "a policy is a mapping of keys, not %s", events_type(&r->ev));
	if (read_mapping(r, false) < 0)
		return -1;
	/* DOCUMENT-END, STREAM-END */
	if (events_next(&r->ev) < 0 || events_next(&r->ev) < 0)
		return -1;
	if (r->ev.event.type != YAML_STREAM_END_EVENT)
		return events_fail(&r->ev, events_line(&r->ev), "",
				   "a policy is one document; remove the second");
	return 0;
}

int yaml_read_policy(struct policy *p, const char *text, size_t len, struct err *e)
{
	struct reader r = {.policy = p};
	int rc;

	events_init(&r.ev, p->file, text, len, e);
	rc = read_stream(&r);
	events_done(&r.ev);
	return rc;
}

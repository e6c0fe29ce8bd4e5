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
#include "policy/source.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <yaml.h>

struct reader {
	yaml_parser_t parser;
	yaml_event_t event;
	struct policy *policy;
	uint64_t seen; /* fields, by index */
	size_t room;   /* of policy->lines */
	struct err *e;
};

static int fail_at(struct reader *r, size_t line, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static int fail_at(struct reader *r, size_t line, const char *field, const char *fmt, ...)
{
	char text[400], clean[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	return err_field(r->e, ERR_INVALID, field, "%s:%zu: %s", r->policy->file, line, clean);
}

static size_t line_of(const struct reader *r)
{
	return r->event.start_mark.line + 1;
}

static int syntax_error(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	size_t line = p->problem_mark.line;

	/* The reader knows only a byte offset, and has no mark. */
	if (p->error == YAML_READER_ERROR)
		return fail_at(r, p->mark.line + 1, "", "%s (byte %zu)",
			       p->problem ? p->problem : "bad bytes", p->problem_offset);
	return fail_at(r, line + 1, "", "not YAML: %s%s%s", p->problem ? p->problem : "bad syntax",
		       p->context ? " " : "", p->context ? p->context : "");
}

static bool has_anchor_or_tag(const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		return ev->data.scalar.anchor || ev->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return ev->data.sequence_start.anchor || ev->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return ev->data.mapping_start.anchor || ev->data.mapping_start.tag;
	case YAML_DOCUMENT_START_EVENT:
		return ev->data.document_start.tag_directives.start !=
		       ev->data.document_start.tag_directives.end;
	default:
		return ev->type == YAML_ALIAS_EVENT;
	}
}

static bool has_odd_bytes(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)s[i] < 0x20 && s[i] != '\n' && s[i] != '\t') || s[i] == 0x7f)
			return true;
	return false;
}

static const char *text_of(const struct reader *r)
{
	return (const char *)r->event.data.scalar.value;
}

/* Goes on to the next event, which is then r->event. */
static int next(struct reader *r)
{
	yaml_event_delete(&r->event);
	if (!yaml_parser_parse(&r->parser, &r->event))
		return syntax_error(r);
	if (has_anchor_or_tag(&r->event))
		return fail_at(r, line_of(r), "", "anchors, aliases and tags are not used here");
	if (r->event.type == YAML_SCALAR_EVENT &&
	    has_odd_bytes(text_of(r), r->event.data.scalar.length))
		return fail_at(r, line_of(r), "", "control bytes are not allowed in a value");
	return 0;
}

static bool at_scalar(const struct reader *r)
{
	return r->event.type == YAML_SCALAR_EVENT;
}

/* `key:` with nothing behind it, or the ways to write null. */
static bool at_null(const struct reader *r)
{
	static const char *const words[] = {"", "~", "null", "Null", "NULL"};

	if (!at_scalar(r) || r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_equal(text_of(r), words[i]))
			return true;
	return false;
}

static const char *type_at(const struct reader *r)
{
	return r->event.type == YAML_SEQUENCE_START_EVENT  ? "a list"
	       : r->event.type == YAML_MAPPING_START_EVENT ? "a mapping"
	       : at_null(r)				   ? "nothing"
							   : "a single value";
}

static int wrong_type(struct reader *r, const char *key, const char *wanted)
{
	return fail_at(r, line_of(r), key, "%s: must be %s, not %s", key, wanted, type_at(r));
}

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
		fail_at(r, line_of(r), field, "%s: '~' is not expanded; write the whole path",
			field);
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
		fail_at(r, line_of(r), "mount", "%s", inner.msg);
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
		fail_at(r, line_of(r), field, "%s: '%s' is not of the form NAME=PATH", field,
			value);
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
		return fail_at(r, line_of(r), f->name, "%s: must be one line", f->name);
	full = resolve(r, f, value);
	if (!full)
		return -1;
	if (spec_set(&p->spec, f->name, full, &inner) < 0) {
		fail_at(r, line_of(r), f->name, "%s", inner.msg);
		r->e->kind = inner.kind;
		return -1;
	}
	if (p->names.count == r->room) {
		r->room = r->room ? r->room * 2 : 32;
		p->lines = must_alloc(realloc(p->lines, r->room * sizeof(*p->lines)));
	}
	p->lines[p->names.count] = (unsigned)line_of(r);
	list_add(&p->names, f->name);
	list_add(&p->values, full);
	return 0;
}

static int put_scalar(struct reader *r, const struct field *f)
{
	if (at_null(r))
		return fail_at(r, line_of(r), f->name,
			       "%s: has no value; remove the key, or say what", f->name);
	return put(r, f, text_of(r));
}

/* {source: S, target: T, mode: ro}; the event is the mapping's start, and at return its end. */
static int put_mount_mapping(struct reader *r, const struct field *f)
{
	static const char *const keys[] = {"source", "target", "mode"};
	auto_free char *source = NULL, *target = NULL, *mode = NULL, *joined = NULL;
	char **slots[] = {&source, &target, &mode};

	while (next(r) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		size_t i = 0;

		while (at_scalar(r) && i < ARRAY_LEN(keys) && !str_equal(text_of(r), keys[i]))
			i++;
		if (!at_scalar(r) || i == ARRAY_LEN(keys) || *slots[i])
			return fail_at(r, line_of(r), f->name,
				       "mount: wants each of source, target and mode once");
		if (next(r) < 0)
			return -1;
		if (!at_scalar(r) || at_null(r))
			return wrong_type(r, keys[i], "a single value");
		*slots[i] = str_copy(text_of(r));
	}
	if (r->event.type != YAML_MAPPING_END_EVENT)
		return -1;
	if (!source || !target)
		return fail_at(r, line_of(r), f->name, "mount: needs source and target");
	if (mode && !str_equal(mode, "ro") && !str_equal(mode, "rw"))
		return fail_at(r, line_of(r), f->name, "mount: mode '%s' is neither ro nor rw",
			       mode);
	if (strchr(target, ':'))
		return fail_at(r, line_of(r), f->name, "mount: a target cannot contain ':'");
	joined = str_format("%s:%s:%s", source, target, mode ? mode : "ro");
	return put(r, f, joined);
}

/* {K: V ...} for env and file. */
static int put_pairs(struct reader *r, const struct field *f)
{
	while (next(r) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		const struct list *values = &r->policy->values;
		auto_free char *key = NULL, *pair = NULL;

		if (!at_scalar(r) || !*text_of(r) || strpbrk(text_of(r), "=\n"))
			return fail_at(r, line_of(r), f->name, "%s: this name cannot be used",
				       f->name);
		key = str_format("%s=", text_of(r));
		for (size_t i = 0; i < values->count; i++)
			if (str_equal(r->policy->names.items[i], f->name) &&
			    str_starts(values->items[i], key))
				return fail_at(r, line_of(r), f->name, "%s: %s is given twice",
					       f->name, text_of(r));
		if (next(r) < 0)
			return -1;
		if (!at_scalar(r) || at_null(r))
			return wrong_type(r, f->name, "a single value for each name");
		pair = str_format("%s%s", key, text_of(r));
		if (put(r, f, pair) < 0)
			return -1;
	}
	return r->event.type == YAML_MAPPING_END_EVENT ? 0 : -1;
}

static int put_list(struct reader *r, const struct field *f)
{
	while (next(r) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT) {
		int rc;

		if (r->event.type == YAML_MAPPING_START_EVENT && str_equal(f->name, "mount"))
			rc = put_mount_mapping(r, f);
		else if (at_scalar(r))
			rc = put_scalar(r, f);
		else
			rc = wrong_type(r, f->name, "a list of single values");
		if (rc < 0)
			return -1;
	}
	return r->event.type == YAML_SEQUENCE_END_EVENT ? 0 : -1;
}

static int put_value(struct reader *r, const struct field *f)
{
	bool mapping = r->event.type == YAML_MAPPING_START_EVENT;

	if (at_scalar(r))
		return put_scalar(r, f);
	if (f->type != FIELD_LIST)
		return wrong_type(r, f->name, "a single value");
	if (!mapping)
		return put_list(r, f);
	if (str_equal(f->name, "mount"))
		return put_mount_mapping(r, f);
	if (str_equal(f->name, "env") || str_equal(f->name, "file"))
		return put_pairs(r, f);
	return wrong_type(r, f->name, "a list");
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
		return fail_at(r, line_of(r), key,
			       "unknown key '%s': it is an option of the command line only", key);
	if (!f || f->flags & FIELD_CLI_ONLY)
		return fail_at(r, line_of(r), key,
			       "unknown key '%s'; cloche-policy(5) lists the known ones", key);
	return fail_at(r, line_of(r), key, "unknown key '%s'; did you mean '%s'?", key, near);
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
	const struct field *f = find_key(text_of(r));
	uint64_t bit;

	if (!f)
		return unknown_key(r, text_of(r));
	if (in_limits && !is_limit(f))
		return fail_at(r, line_of(r), f->name,
			       "limits: '%s' is not a limit; put it outside", f->name);
	bit = 1ULL << (f - spec_fields);
	if (r->seen & bit)
		return fail_at(r, line_of(r), f->name, "%s: is given twice", f->name);
	r->seen |= bit;
	return next(r) < 0 ? -1 : put_value(r, f);
}

static int read_description(struct reader *r)
{
	if (r->policy->description)
		return fail_at(r, line_of(r), "description", "description: is given twice");
	if (next(r) < 0)
		return -1;
	if (!at_scalar(r) || at_null(r))
		return wrong_type(r, "description", "a single value");
	r->policy->description = str_copy(text_of(r));
	return 0;
}

/* The event is a mapping's start, and at return its end. */
static int read_mapping(struct reader *r, bool in_limits)
{
	bool limits_seen = false;

	while (next(r) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		int rc;

		if (!at_scalar(r))
			return fail_at(r, line_of(r), "", "a key must be a word, not %s",
				       type_at(r));
		if (!in_limits && str_equal(text_of(r), "description")) {
			rc = read_description(r);
		} else if (!in_limits && str_equal(text_of(r), "limits")) {
			if (limits_seen)
				return fail_at(r, line_of(r), "limits", "limits: is given twice");
			limits_seen = true;
			rc = next(r);
			if (rc == 0)
				rc = r->event.type == YAML_MAPPING_START_EVENT
					     ? read_mapping(r, true)
					     : wrong_type(r, "limits", "a mapping");
		} else {
			rc = read_field(r, in_limits);
		}
		if (rc < 0)
			return -1;
	}
	return r->event.type == YAML_MAPPING_END_EVENT ? 0 : -1;
}

static int read_stream(struct reader *r)
{
	/* STREAM-START, then DOCUMENT-START or the end */
	if (next(r) < 0 || next(r) < 0)
		return -1;
	if (r->event.type == YAML_STREAM_END_EVENT)
		return fail_at(r, 1, "", "the file is empty");
	if (next(r) < 0)
		return -1;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(r, line_of(r), "", "a policy is a mapping of keys, not %s",
			       type_at(r));
	if (read_mapping(r, false) < 0)
		return -1;
	/* DOCUMENT-END, STREAM-END */
	if (next(r) < 0 || next(r) < 0)
		return -1;
	if (r->event.type != YAML_STREAM_END_EVENT)
		return fail_at(r, line_of(r), "", "a policy is one document; remove the second");
	return 0;
}

int yaml_read_policy(struct policy *p, const char *text, size_t len, struct err *e)
{
	struct reader r = {.policy = p, .e = e};
	int rc;

	must_alloc(yaml_parser_initialize(&r.parser) ? &r : NULL);
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
	rc = read_stream(&r);
	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	return rc;
}

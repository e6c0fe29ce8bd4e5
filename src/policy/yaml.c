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

#include "policy/events.h"
#include "policy/paths/source.h"
#include "policy/secret_yaml.h"

struct policy_reader {
	struct events ev;
	struct policy *policy;
	const struct field *field; /* whose value is read */
	uint64_t seen;		   /* fields, by index */
	bool limits_seen, in_limits;
	size_t room; /* of policy->lines */
};

/* ---- values ---- */

enum path_form { PATH_WHOLE, PATH_OF_IMAGE, PATH_AFTER_EQUALS, PATH_OF_MOUNT };

struct path_field {
	const char *name;
	enum path_form form;
};

/* Fields that name host paths, which are relative to the file's directory. */
static const struct path_field path_fields[] = {
	{"mount", PATH_OF_MOUNT},    {"mount_read", PATH_WHOLE}, {"mount_write", PATH_WHOLE},
	{"forbid", PATH_WHOLE},	     {"workspace", PATH_WHOLE},	 {"image", PATH_OF_IMAGE},
	{"file", PATH_AFTER_EQUALS},
};

/* Makes a host path absolute; NULL (after an error) if it starts with '~'. */
static char *absolute(struct policy_reader *r, const char *field, const char *path)
{
	if (path[0] == '~') {
		events_fail(&r->ev, field, "%s: '~' is not expanded; write the whole path", field);
		return NULL;
	}
	return path[0] == '/' || !*path ? str_copy(path)
					: str_format("%s/%s", r->policy->dir, path);
}

/* A path begins with '/' or '.', or is there; else it is the name of an image. */
static char *absolute_image(struct policy_reader *r, const char *value)
{
	auto_free char *path = str_format("%s/%s", r->policy->dir, value);
	bool is_path = strchr("/.~", value[0]) || access(path, F_OK) == 0;

	return str_equal(value, "host") || !is_path ? str_copy(value) : absolute(r, "image", value);
}

static char *absolute_mount(struct policy_reader *r, const char *value)
{
	struct mount_request m;
	struct err inner = {0};
	auto_free char *source = NULL;

	if (mount_request_parse(value, &m, &inner) < 0) {
		events_fail(&r->ev, "mount", "%s", inner.msg);
		return NULL;
	}
	source = absolute(r, "mount", m.source);
	return source ? str_format("%s:%s:%s", source, m.target, m.writable ? "rw" : "ro") : NULL;
}

static char *absolute_after_equals(struct policy_reader *r, const char *field, const char *value)
{
	const char *equals = strchr(value, '=');
	auto_free char *path = NULL;

	if (!equals || equals == value || !equals[1]) {
		events_fail(&r->ev, field, "%s: '%s' is not of the form NAME=PATH", field, value);
		return NULL;
	}
	path = absolute(r, field, equals + 1);
	return path ? str_format("%.*s=%s", (int)(equals - value), value, path) : NULL;
}

static char *resolve(struct policy_reader *r, const struct field *f, const char *value)
{
	for (size_t i = 0; i < ARRAY_LEN(path_fields); i++) {
		if (!str_equal(f->name, path_fields[i].name))
			continue;
		switch (path_fields[i].form) {
		case PATH_OF_MOUNT:
			return absolute_mount(r, value);
		case PATH_AFTER_EQUALS:
			return absolute_after_equals(r, f->name, value);
		case PATH_OF_IMAGE:
			return absolute_image(r, value);
		case PATH_WHOLE:
			return absolute(r, f->name, value);
		}
	}
	return str_copy(value);
}

/* Resolves, checks, sets and keeps one value of a field. */
static int put_text(struct policy_reader *r, const struct field *f, const char *value)
{
	struct policy *p = r->policy;
	auto_free char *full = NULL;
	struct err inner = {0};

	if (!str_equal(f->name, "env") && strchr(value, '\n'))
		return events_fail(&r->ev, f->name, "%s: must be one line", f->name);
	full = resolve(r, f, value);
	if (!full)
		return -1;
	if (spec_set(&p->spec, f->name, full, &inner) < 0) {
		events_fail(&r->ev, f->name, "%s", inner.msg);
		r->ev.e->kind = inner.kind;
		return -1;
	}
	p->lines = array_room(p->lines, p->names.count, &r->room, sizeof(*p->lines));
	p->lines[p->names.count] = (unsigned)events_line(&r->ev);
	list_add(&p->names, f->name);
	list_add(&p->values, full);
	return 0;
}

static int put_scalar(struct policy_reader *r, const struct field *f)
{
	if (events_at_null(&r->ev))
		return events_fail(&r->ev, f->name, "%s: has no value; remove the key, or say what",
				   f->name);
	return put_text(r, f, events_text(&r->ev));
}

/* {source: S, target: T, mode: ro}; the event is the mapping's start, and at return its end. */
static int put_mount_mapping(struct policy_reader *r, const struct field *f)
{
	static const char *const keys[] = {"source", "target", "mode"};
	auto_free char *source = NULL, *target = NULL, *mode = NULL, *joined = NULL;
	char **parts[] = {&source, &target, &mode};

	while (events_next(&r->ev) == 0 && r->ev.event.type != YAML_MAPPING_END_EVENT) {
		size_t i = 0;

		while (events_at_scalar(&r->ev) && i < ARRAY_LEN(keys) &&
		       !str_equal(events_text(&r->ev), keys[i]))
			i++;
		if (!events_at_scalar(&r->ev) || i == ARRAY_LEN(keys) || *parts[i])
			return events_fail(&r->ev, f->name,
					   "mount: wants each of source, target and mode once");
		if (events_next(&r->ev) < 0 ||
		    events_want_scalar(&r->ev, keys[i], "a single value") < 0)
			return -1;
		*parts[i] = str_copy(events_text(&r->ev));
	}
	if (r->ev.event.type != YAML_MAPPING_END_EVENT)
		return -1;
	if (!source || !target)
		return events_fail(&r->ev, f->name, "mount: needs source and target");
	if (mode && !str_equal(mode, "ro") && !str_equal(mode, "rw"))
		return events_fail(&r->ev, f->name, "mount: mode '%s' is neither ro nor rw", mode);
	if (strchr(target, ':'))
		return events_fail(&r->ev, f->name, "mount: a target cannot contain ':'");
	joined = str_format("%s:%s:%s", source, target, mode ? mode : "ro");
	return put_text(r, f, joined);
}

/* One K: V of env and file. */
static int put_pair(void *arg)
{
	struct policy_reader *r = arg;
	const struct list *values = &r->policy->values;
	const char *field = r->field->name;
	auto_free char *key = NULL, *pair = NULL;

	if (!events_at_scalar(&r->ev) || !*events_text(&r->ev) ||
	    strpbrk(events_text(&r->ev), "=\n"))
		return events_fail(&r->ev, field, "%s: this name cannot be used", field);
	key = str_format("%s=", events_text(&r->ev));
	for (size_t i = 0; i < values->count; i++)
		if (str_equal(r->policy->names.items[i], field) &&
		    str_starts(values->items[i], key))
			return events_fail(&r->ev, field, "%s: %s is given twice", field,
					   events_text(&r->ev));
	if (events_next(&r->ev) < 0 ||
	    events_want_scalar(&r->ev, field, "a single value for each name") < 0)
		return -1;
	pair = str_format("%s%s", key, events_text(&r->ev));
	return put_text(r, r->field, pair);
}

/* One NAME: {from, hosts, header ...} of secrets, as the text that the option takes. */
static int put_secret(void *arg)
{
	struct policy_reader *r = arg;
	const struct secret_yaml_in in = {.dir = r->policy->dir};
	auto_free char *name = NULL, *text = NULL;
	struct secret_def def;

	if (!events_at_scalar(&r->ev))
		return events_fail(&r->ev, "secrets", "secrets: a name must be a word");
	name = str_copy(events_text(&r->ev));
	if (events_next(&r->ev) < 0 || secret_yaml_read(&r->ev, name, &in, &def) < 0)
		return -1;
	text = secret_format(&def);
	return put_text(r, r->field, text);
}

static int put_item(void *arg)
{
	struct policy_reader *r = arg;

	if (r->ev.event.type == YAML_MAPPING_START_EVENT && str_equal(r->field->name, "mount"))
		return put_mount_mapping(r, r->field);
	if (events_at_scalar(&r->ev))
		return put_scalar(r, r->field);
	return events_wrong_type(&r->ev, r->field->name, "a list of single values");
}

static int put_value(struct policy_reader *r, const struct field *f)
{
	bool mapping = r->ev.event.type == YAML_MAPPING_START_EVENT;

	if (events_at_scalar(&r->ev))
		return put_scalar(r, f);
	if (f->type != FIELD_LIST)
		return events_wrong_type(&r->ev, f->name, "a single value");
	r->field = f;
	if (!mapping)
		return events_each(&r->ev, put_item, r);
	if (str_equal(f->name, "mount"))
		return put_mount_mapping(r, f);
	if (str_equal(f->name, "secret"))
		return events_each(&r->ev, put_secret, r);
	if (str_equal(f->name, "env") || str_equal(f->name, "file"))
		return events_each(&r->ev, put_pair, r);
	return events_wrong_type(&r->ev, f->name, "a list");
}

/* ---- keys ---- */

struct synonym {
	const char *key, *name;
};

/* A list reads better in the plural. */
static const struct synonym synonyms[] = {
	{"mounts", "mount"}, {"files", "file"}, {"secrets", "secret"}};

static int unknown_key(struct policy_reader *r, const char *key)
{
	const char *near = spec_field_near(key);
	const struct field *f = near ? spec_field_find(near) : NULL;

	if (f && f->flags & FIELD_CLI_ONLY && str_equal(near, key))
		return events_fail(&r->ev, key,
				   "unknown key '%s': it is an option of the command line only",
				   key);
	if (!f || f->flags & FIELD_CLI_ONLY)
		return events_fail(&r->ev, key,
				   "unknown key '%s'; cloche-policy(5) lists the known ones", key);
	return events_fail(&r->ev, key, "unknown key '%s'; did you mean '%s'?", key, near);
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

static int read_field(struct policy_reader *r)
{
	const struct field *f = find_key(events_text(&r->ev));
	uint64_t bit;

	if (!f)
		return unknown_key(r, events_text(&r->ev));
	if (r->in_limits && !spec_field_is_limit(f))
		return events_fail(&r->ev, f->name, "limits: '%s' is not a limit; put it outside",
				   f->name);
	bit = 1ULL << (f - spec_fields);
	if (r->seen & bit)
		return events_fail(&r->ev, f->name, "%s: is given twice", f->name);
	r->seen |= bit;
	return events_next(&r->ev) < 0 ? -1 : put_value(r, f);
}

static int read_description(struct policy_reader *r)
{
	if (r->policy->description)
		return events_fail(&r->ev, "description", "description: is given twice");
	if (events_next(&r->ev) < 0 ||
	    events_want_scalar(&r->ev, "description", "a single value") < 0)
		return -1;
	r->policy->description = str_copy(events_text(&r->ev));
	return 0;
}

static int read_key(void *arg);

static int read_limits(struct policy_reader *r)
{
	int rc;

	if (r->limits_seen)
		return events_fail(&r->ev, "limits", "limits: is given twice");
	r->limits_seen = true;
	if (events_next(&r->ev) < 0)
		return -1;
	if (r->ev.event.type != YAML_MAPPING_START_EVENT)
		return events_wrong_type(&r->ev, "limits", "a mapping");
	r->in_limits = true;
	rc = events_each(&r->ev, read_key, r);
	r->in_limits = false;
	return rc;
}

static int read_key(void *arg)
{
	struct policy_reader *r = arg;

	if (!events_at_scalar(&r->ev))
		return events_fail(&r->ev, "", "a key must be a word, not %s", events_type(&r->ev));
	if (!r->in_limits && str_equal(events_text(&r->ev), "description"))
		return read_description(r);
	if (!r->in_limits && str_equal(events_text(&r->ev), "limits"))
		return read_limits(r);
	return read_field(r);
}

int yaml_read_policy(struct policy *p, const char *text, size_t len, struct err *e)
{
	struct policy_reader r = {.policy = p};
	int rc;

	events_init(&r.ev, p->file, text, len, e);
	rc = events_document(&r.ev, "a policy", false, read_key, &r);
	events_done(&r.ev);
	return rc;
}

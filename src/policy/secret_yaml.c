/* Reads the definition of a secret, or the place of a key, from YAML. */
#include "policy/secret_yaml.h"

struct secret_reader_state {
	struct events *ev;
	const char *name, *key;
	const struct secret_yaml_in *in;
	struct secret_def *def;
	bool is_key; /* of the settings' keys: */
};

static int set_key(struct secret_reader_state *r, const char *key, const char *value)
{
	struct err inner = {0};

	if (secret_set(r->def, key, value, &inner) == 0)
		return 0;
	return events_fail(r->ev, "secrets", "%s: %s", r->name, inner.msg);
}

static int add_item(void *arg)
{
	struct secret_reader_state *r = arg;

	if (events_want_scalar(r->ev, r->key, "a list of single values") < 0)
		return -1;
	return set_key(r, r->key, events_text(r->ev));
}

/* A list, or one item without brackets. */
static int add_items(struct secret_reader_state *r, const char *key)
{
	r->key = key;
	if (events_at_scalar(r->ev))
		return add_item(r);
	if (r->ev->event.type != YAML_SEQUENCE_START_EVENT)
		return events_wrong_type(r->ev, key, "a list");
	return events_each(r->ev, add_item, r);
}

static int put_file(struct secret_reader_state *r, const char *path)
{
	auto_free char *full = NULL;

	if (path[0] == '/')
		return set_key(r, "file", path);
	if (path[0] == '~' || !r->in || !r->in->dir)
		return events_fail(r->ev, "secrets", "%s: file: needs an absolute path", r->name);
	full = str_format("%s/%s", r->in->dir, path);
	return set_key(r, "file", full);
}

static int put_credential(struct secret_reader_state *r, const char *name)
{
	const char *dir = getenv("CREDENTIALS_DIRECTORY");
	auto_free char *path = NULL;

	if (!str_only(name, STR_ALNUM "-_.", 1, 200) || name[0] == '.')
		return events_fail(r->ev, r->name, "%s: credential: '%s' is no name", r->name,
				   name);
	if (!dir)
		return events_fail(r->ev, r->name,
				   "%s: credential: there are none; systemd passes them "
				   "(LoadCredential=)",
				   r->name);
	path = str_format("%s/%s", dir, name);
	return set_key(r, "file", path);
}

static int read_source_key(void *arg)
{
	struct secret_reader_state *r = arg;
	auto_free char *key = NULL;

	if (!events_at_scalar(r->ev))
		return events_fail(r->ev, r->name, "%s: a key must be a word", r->name);
	key = str_copy(events_text(r->ev));
	if (events_next(r->ev) < 0)
		return -1;
	if (str_equal(key, "command"))
		return add_items(r, "command");
	if (events_want_scalar(r->ev, key, "a single value") < 0)
		return -1;
	if (str_equal(key, "file"))
		return put_file(r, events_text(r->ev));
	if (r->is_key && str_equal(key, "credential"))
		return put_credential(r, events_text(r->ev));
	if (!r->is_key && str_equal(key, "env"))
		return set_key(r, key, events_text(r->ev));
	return events_fail(r->ev, r->name, "%s: unknown source '%s'; known are %s", r->name, key,
			   r->is_key ? "file, credential, command" : "env, file, command");
}

static int read_source(struct secret_reader_state *r)
{
	if (r->ev->event.type != YAML_MAPPING_START_EVENT)
		return events_wrong_type(r->ev, r->name, "a mapping such as {file: PATH}");
	return events_each(r->ev, read_source_key, r);
}

static int read_secret_key(void *arg)
{
	struct secret_reader_state *r = arg;
	auto_free char *key = NULL;

	if (!events_at_scalar(r->ev))
		return events_fail(r->ev, "secrets", "%s: a key must be a word", r->name);
	key = str_copy(events_text(r->ev));
	if (events_next(r->ev) < 0)
		return -1;
	if (str_equal(key, "from"))
		return read_source(r);
	if (str_equal(key, "hosts"))
		return add_items(r, "host");
	if (r->in->other_key && str_equal(key, "tokens"))
		return r->in->other_key(r->in->arg, key);
	if (!str_equal(key, "header") && !str_equal(key, "prefix") && !str_equal(key, "uses"))
		return events_fail(r->ev, "secrets",
				   "%s: unknown key '%s'; known are from, hosts, header, prefix, "
				   "uses%s",
				   r->name, key, r->in->other_key ? ", tokens" : "");
	if (events_want_scalar(r->ev, key, "a single value") < 0)
		return -1;
	return set_key(r, key, events_text(r->ev));
}

int secret_yaml_read(struct events *ev, const char *name, const struct secret_yaml_in *in,
		     struct secret_def *ret)
{
	struct secret_reader_state r = {.ev = ev, .name = name, .in = in, .def = ret};
	struct err inner = {0};

	memset(ret, 0, sizeof(*ret));
	if (strlen(name) >= sizeof(ret->rule.name))
		return events_fail(ev, "secrets", "secrets: a name is too long");
	snprintf(ret->rule.name, sizeof(ret->rule.name), "%s", name);
	if (ev->event.type != YAML_MAPPING_START_EVENT)
		return events_wrong_type(ev, "secrets", "a mapping for each name");
	if (events_each(ev, read_secret_key, &r) < 0)
		return -1;
	if (secret_finish(ret, &inner) < 0)
		return events_fail(ev, "secrets", "%s", inner.msg);
	return 0;
}

int secret_yaml_source(struct events *ev, const char *key, struct secret_source *ret)
{
	struct secret_def def = {0};
	struct secret_reader_state r = {.ev = ev, .name = key, .def = &def, .is_key = true};

	if (read_source(&r) < 0)
		return -1;
	if ((def.from.file[0] != 0) + (def.from.argc != 0) != 1)
		return events_fail(ev, key, "%s: wants one of file, credential and command", key);
	*ret = def.from;
	return 0;
}

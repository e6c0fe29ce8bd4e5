/* Containers as JSON: the list, and all about one. */
#include "api/docker/docker_internal.h"

/* ---- words for people ---- */

/* As Docker's clients say it: "About a minute", "3 hours". */
static void write_age(uint64_t seconds, char *ret, size_t size)
{
	static const struct {
		uint64_t below, unit;
		const char *text;
	} rows[] = {{1, 0, "Less than a second"},
		    {2, 0, "1 second"},
		    {60, 1, "seconds"},
		    {120, 0, "About a minute"},
		    {3600, 60, "minutes"},
		    {7200, 0, "About an hour"},
		    {48 * 3600, 3600, "hours"},
		    {14 * 86400, 86400, "days"},
		    {60 * 86400, 7 * 86400, "weeks"},
		    {2 * 365 * 86400, 30 * 86400, "months"},
		    {UINT64_MAX, 365 * 86400, "years"}};
	size_t i = 0;

	while (seconds >= rows[i].below && i + 1 < ARRAY_LEN(rows))
		i++;
	if (rows[i].unit)
		snprintf(ret, size, "%llu %s", (unsigned long long)(seconds / rows[i].unit),
			 rows[i].text);
	else
		snprintf(ret, size, "%s", rows[i].text);
}

static json_t *status_text(const struct container *c)
{
	uint64_t since = c->state == BOX_EXITED ? c->finished_ns : c->started_ns,
		 now = docker_now_ns();
	char age[48];

	write_age(now > since ? (now - since) / 1000000000 : 0, age, sizeof(age));
	if (c->state == BOX_RUNNING)
		return json_sprintf("Up %s%s", age, container_is_paused(c) ? " (Paused)" : "");
	if (c->state == BOX_EXITED)
		return json_sprintf("Exited (%d) %s ago", c->code, age);
	return json_string("Created");
}

/* The command as one line, each word that has blanks in quotes. */
static json_t *command_text(const struct container *c)
{
	const json_t *argv = json_object_get(c->record, "argv"), *word;
	char text[256] = "";
	size_t i;

	json_array_foreach ((json_t *)argv, i, word) {
		const char *w = json_string_value(word);

		str_append(text, sizeof(text), " ", strchr(w, ' ') ? "'%s'" : "%s", w);
	}
	return text_json_of(text);
}

/* ---- parts ---- */

static const char *image_name(const struct container *c)
{
	const char *name = body_text(container_config(c), "Image");

	return name ? name : "";
}

static json_t *networks_json(const struct container *c)
{
	json_t *aliases = json_object_get(c->record, "aliases"), *all = json_array();
	const char *name = container_network(c);
	char short_id[13];

	snprintf(short_id, sizeof(short_id), "%s", c->id);
	json_array_extend(all, aliases);
	/* By this one clients see that the container has all that they asked for. */
	json_array_append_new(all, json_string(short_id));
	return json_pack("{s:{s:s,s:s,s:s,s:s,s:i,s:s,s:n,s:o}}", name, "NetworkID", name,
			 "EndpointID", "", "Gateway", "", "IPAddress", "", "IPPrefixLen", 0,
			 "MacAddress", "", "Links", "Aliases", all);
}

/* "[ADDRESS:]PORT:PORT" of the sandbox, taken apart from behind. */
static bool split_port(const char *text, char address[64], char port[8], char inner[8])
{
	const char *last = strrchr(text, ':'), *before = last;

	while (before && before > text && before[-1] != ':')
		before--;
	if (!last || !before)
		return false;
	snprintf(inner, 8, "%s", last + 1);
	snprintf(port, 8, "%.*s", (int)(last - before), before);
	snprintf(address, 64, "%.*s", before > text ? (int)(before - text) - 1 : 0, text);
	return true;
}

/* For inspect {"80/tcp":[{"HostIp","HostPort"}]}, for the list [{"IP","PrivatePort",...}]. */
static json_t *ports_json(const struct container *c, bool as_list)
{
	const struct list *all = c->s ? sandbox_publish(c->s) : NULL;
	json_t *list = json_array(), *map = json_object(), *one;
	char address[64], port[8], inner[8], key[16];

	for (size_t i = 0; all && i < all->count; i++) {
		if (!split_port(all->items[i], address, port, inner))
			continue;
		json_array_append_new(list, json_pack("{s:s,s:i,s:i,s:s}", "IP", address,
						      "PrivatePort", atoi(inner), "PublicPort",
						      atoi(port), "Type", "tcp"));
		snprintf(key, sizeof(key), "%s/tcp", inner);
		one = json_object_get(map, key);
		if (!one) {
			one = json_array();
			json_object_set_new(map, key, one);
		}
		json_array_append_new(one,
				      json_pack("{s:s,s:s}", "HostIp", address, "HostPort", port));
	}
	json_decref(as_list ? map : list);
	return as_list ? list : map;
}

static json_t *mounts_json(const struct container *c)
{
	json_t *all = json_array();
	const json_t *bind;
	size_t i;

	json_array_foreach (json_object_get(container_host(c), "Binds"), i, bind) {
		const char *text = json_string_value(bind), *target = strchr(text, ':');
		size_t len = target ? strcspn(target + 1, ":") : 0;
		bool writable = target && !str_starts(target + 1 + len, ":ro");

		if (target)
			json_array_append_new(
				all, json_pack("{s:s,s:s#,s:s,s:s#,s:s,s:s,s:b,s:s}", "Type",
					       "volume", "Name", text, (int)(target - text),
					       "Source", "", "Destination", target + 1, (int)len,
					       "Driver", "local", "Mode", writable ? "rw" : "ro",
					       "RW", writable, "Propagation", ""));
	}
	return all;
}

/* ---- the list ---- */

static json_t *listed_json(const struct container *c, bool with_size)
{
	json_t *labels = json_object_get(container_config(c), "Labels");
	json_t *o = json_pack("{s:s,s:[o],s:s,s:s,s:o,s:I,s:o,s:O,s:s,s:o,s:{s:s},s:{s:o},s:o}",
			      "Id", c->id, "Names", json_sprintf("/%s", c->name), "Image",
			      image_name(c), "ImageID", container_text(c, "image"), "Command",
			      command_text(c), "Created", (json_int_t)(c->created_ns / 1000000000),
			      "Ports", ports_json(c, true), "Labels", labels, "State",
			      container_state_name(c), "Status", status_text(c), "HostConfig",
			      "NetworkMode", container_network(c), "NetworkSettings", "Networks",
			      networks_json(c), "Mounts", mounts_json(c));

	if (with_size)
		json_object_update_new(o, json_pack("{s:i,s:i}", "SizeRw", 0, "SizeRootFs", 0));
	return o;
}

static bool match_name(const struct container *c, const char *value)
{
	return strstr(c->name, value + (value[0] == '/')) != NULL ||
	       (value[0] == '^' && str_starts(value + 1, "/") && strlen(value) > 3 &&
		strncmp(value + 2, c->name, strlen(c->name)) == 0 &&
		str_equal(value + 2 + strlen(c->name), "$")) ||
	       (value[0] == '^' && strncmp(value + 1, c->name, strlen(c->name)) == 0 &&
		str_equal(value + 1 + strlen(c->name), "$"));
}

static bool match_id(const struct container *c, const char *value)
{
	return str_starts(c->id, value);
}

static bool match_status(const struct container *c, const char *value)
{
	return str_equal(container_state_name(c), value);
}

static bool match_image(const struct container *c, const char *value)
{
	const char *name = image_name(c);
	size_t len = strlen(value);

	return str_equal(name, value) || str_starts(container_text(c, "image"), value) ||
	       (str_starts(name, value) && (name[len] == ':' || name[len] == '@')) ||
	       (len > 7 && str_equal(value + len - 7, ":latest") && strlen(name) == len - 7 &&
		str_starts(value, name));
}

static bool match_code(const struct container *c, const char *value)
{
	return c->state == BOX_EXITED && c->code == atoi(value);
}

static bool match_network(const struct container *c, const char *value)
{
	return str_equal(container_network(c), value);
}

static bool match_nothing(const struct container *c, const char *value)
{
	return str_equal(value, "none");
}

static const struct filter {
	const char *name;
	bool (*match)(const struct container *c, const char *value); /* NULL: labels */
	bool shows_all;
} filters[] = {
	{"ancestor", match_image, false},
	{"exited", match_code, true},
	{"health", match_nothing, false},
	{"id", match_id, false},
	{"label", NULL, false},
	{"name", match_name, false},
	{"network", match_network, false},
	{"status", match_status, true},
};

static bool fits(const struct container *c, const json_t *wanted, bool *ret_all)
{
	for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
		const json_t *values = docker_filter(wanted, filters[i].name), *v;
		bool any = !values;
		size_t j;

		*ret_all |= values && filters[i].shows_all;
		if (!filters[i].match)
			any = docker_labels_match(json_object_get(container_config(c), "Labels"),
						  values);
		else
			json_array_foreach ((json_t *)values, j, v)
				any |= filters[i].match(c, json_string_value(v));
		if (!any)
			return false;
	}
	return true;
}

static bool is_state(const char *name)
{
	static const char *const states[] = {"created", "running",  "paused", "restarting",
					     "exited",	"removing", "dead"};

	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		if (str_equal(states[i], name))
			return true;
	return false;
}

static bool knows_filters(struct exchange *x, const json_t *wanted)
{
	const json_t *values;
	const char *name;

	json_t *one;
	size_t i;

	json_array_foreach ((json_t *)docker_filter(wanted, "status"), i, one)
		if (!is_state(json_string_value(one))) {
			docker_fail(x, 400, "invalid filter 'status=%.40s'",
				    json_string_value(one));
			return false;
		}
	json_object_foreach ((json_t *)wanted, name, values) {
		bool is_known = false;

		for (i = 0; i < ARRAY_LEN(filters); i++)
			is_known |= str_equal(filters[i].name, name);
		if (!is_known) {
			docker_fail(x, 400, "invalid filter '%.40s'", name);
			return false;
		}
	}
	return true;
}

void docker_containers(struct exchange *x)
{
	bool all = docker_flag(x, "all", false), with_size = docker_flag(x, "size", false), whole;
	json_t *wanted = docker_filters(x), *list;
	uint64_t limit;
	struct err e = {0};

	if (!wanted || !knows_filters(x, wanted)) {
		json_decref(wanted);
		return;
	}
	if (exchange_arg_uint(x, "limit", 0, INT32_MAX, &limit, &e) < 0)
		limit = 0; /* -1: no limit */
	list = json_array();
	for (struct container *c = container_first(x); c; c = c->next) {
		whole = all || limit;
		if (c->s && fits(c, wanted, &whole) && (whole || container_is_running(c)) &&
		    (!limit || json_array_size(list) < limit))
			json_array_append_new(list, listed_json(c, with_size));
	}
	json_decref(wanted);
	exchange_json(x, 200, list);
}

/* ---- one ---- */

static json_t *state_json(const struct container *c)
{
	return json_pack("{s:s,s:b,s:b,s:b,s:b,s:b,s:I,s:i,s:s,s:o,s:o}", "Status",
			 container_state_name(c), "Running", container_is_running(c), "Paused",
			 container_is_paused(c), "Restarting", 0, "OOMKilled", c->oom_killed,
			 "Dead", 0, "Pid", (json_int_t)c->pid, "ExitCode", c->code, "Error",
			 c->error, "StartedAt", docker_time(c->started_ns), "FinishedAt",
			 docker_time(c->finished_ns));
}

static json_t *host_json(const struct container *c)
{
	json_t *o = json_deep_copy(container_host(c));

	json_object_set_new(o, "LogConfig", json_pack("{s:s,s:{}}", "Type", "json-file", "Config"));
	json_object_update_missing_new(
		o, json_pack("{s:b,s:b,s:b,s:{},s:{s:s,s:i},s:n,s:s}", "AutoRemove", 0,
			     "Privileged", 0, "ReadonlyRootfs", 0, "PortBindings", "RestartPolicy",
			     "Name", "no", "MaximumRetryCount", 0, "Binds", "IpcMode", "private"));
	return o;
}

static json_t *config_json(const struct container *c)
{
	json_t *o = json_deep_copy(container_config(c));

	json_object_update_missing_new(o, json_pack("{s:s,s:s,s:b,s:b,s:b,s:b,s:b,s:b,s:n,s:n,s:n}",
						    "User", "", "Domainname", "", "AttachStdin", 0,
						    "AttachStdout", 0, "AttachStderr", 0, "Tty", 0,
						    "OpenStdin", 0, "StdinOnce", 0, "Cmd",
						    "Entrypoint", "Volumes"));
	return o;
}

void docker_inspect(struct exchange *x)
{
	const struct container *c = docker_of(x)->c;
	json_t *args = json_array(), *argv = json_object_get(c->record, "argv");
	const char *path = json_string_value(json_array_get(argv, 0));

	json_array_extend(args, argv);
	json_array_remove(args, 0);
	exchange_json(
		x, 200,
		json_pack(
			"{s:s,s:o,s:s,s:o,s:o,s:s,s:o,s:s,s:s,s:i,s:o,s:o,s:o,s:{s:s,s:s,s:o,s:o},"
			"s:s,s:s}",
			"Id", c->id, "Created", docker_time(c->created_ns), "Path",
			path ? path : "", "Args", args, "State", state_json(c), "Image",
			container_text(c, "image"), "Name", json_sprintf("/%s", c->name), "Driver",
			"overlay2", "Platform", "linux", "RestartCount", (int)c->restarts,
			"HostConfig", host_json(c), "Config", config_json(c), "Mounts",
			mounts_json(c), "NetworkSettings", "IPAddress", "", "Gateway", "", "Ports",
			ports_json(c, false), "Networks", networks_json(c), "ClocheSandbox",
			sandbox_id(c->s), "LogPath", ""));
}

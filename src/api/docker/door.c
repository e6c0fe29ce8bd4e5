/* The routes of the Docker door, its errors, and how queries and bodies of its clients are read. */
#include "api/docker/docker_internal.h"

#include "policy/config.h"

#include <sodium.h>
#include <stdarg.h>
#include <strings.h>

#define BOX "/containers/{id}"
#define LABELS_MAX 256
#define LABELS_BYTES 16384

#define READ SCOPE_READ
#define RUN SCOPE_RUN
#define FILES SCOPE_FILES

static const struct route routes[] = {
	{"GET", "/_ping", docker_ping, 0, BODY_NONE, ROUTE_OPEN, "Is it there?", NULL},
	{"GET", "/version", docker_version, 0, BODY_NONE, 0, "Versions", NULL},
	{"GET", "/info", docker_info, READ, BODY_NONE, 0, "What there is", NULL},
	{"POST", "/auth", docker_auth, 0, BODY_JSON, 0, "Refused", NULL},

	{"POST", "/containers/create", docker_create, RUN, BODY_JSON, 0, "Makes one", NULL},
	{"GET", "/containers/json", docker_containers, READ, BODY_NONE, 0, "Lists them", NULL},
	{"GET", BOX "/json", docker_inspect, READ, BODY_NONE, ROUTE_SANDBOX, "Shows one", NULL},
	{"POST", BOX "/start", docker_start, RUN, BODY_JSON, ROUTE_SANDBOX, "Starts it", NULL},
	{"POST", BOX "/stop", docker_stop, RUN, BODY_JSON, ROUTE_SANDBOX, "Stops it", NULL},
	{"POST", BOX "/restart", docker_restart, RUN, BODY_JSON, ROUTE_SANDBOX, "Starts it anew",
	 NULL},
	{"POST", BOX "/kill", docker_kill, RUN, BODY_JSON, ROUTE_SANDBOX, "Sends a signal", NULL},
	{"POST", BOX "/wait", docker_wait, READ, BODY_JSON, ROUTE_SANDBOX, "Waits for its end",
	 NULL},
	{"POST", BOX "/pause", docker_pause, RUN, BODY_JSON, ROUTE_SANDBOX, "Freezes it", NULL},
	{"POST", BOX "/unpause", docker_unpause, RUN, BODY_JSON, ROUTE_SANDBOX, "Thaws it", NULL},
	{"POST", BOX "/rename", docker_rename, RUN, BODY_JSON, ROUTE_SANDBOX, "Renames it", NULL},
	{"POST", BOX "/resize", docker_resize, RUN, BODY_JSON, ROUTE_SANDBOX, "Its terminal", NULL},
	{"POST", BOX "/attach", docker_attach, RUN, BODY_BYTES, ROUTE_SANDBOX,
	 "Input and output of its main process", NULL},
	{"GET", BOX "/logs", docker_logs, READ, BODY_NONE, ROUTE_SANDBOX, "Its output so far",
	 NULL},
	{"GET", BOX "/stats", docker_stats, READ, BODY_NONE, ROUTE_SANDBOX, "What it uses", NULL},
	{"GET", BOX "/top", docker_top, READ, BODY_NONE, ROUTE_SANDBOX, "Its processes", NULL},
	{"POST", BOX "/update", docker_update, RUN, BODY_JSON, ROUTE_SANDBOX, "Its limits", NULL},
	{"POST", BOX "/exec", docker_exec_create, RUN, BODY_JSON, ROUTE_SANDBOX,
	 "Another command in it", NULL},
	{"POST", "/exec/{id}/start", docker_exec_start, RUN, BODY_JSON, 0, "Starts that", NULL},
	{"POST", "/exec/{id}/resize", docker_exec_resize, RUN, BODY_JSON, 0, "Its terminal", NULL},
	{"GET", "/exec/{id}/json", docker_exec_inspect, READ, BODY_NONE, 0, "Shows it", NULL},
	{"GET", BOX "/archive", docker_archive_get, FILES, BODY_NONE, ROUTE_SANDBOX,
	 "Files as a tar", NULL},
	{"PUT", BOX "/archive", docker_archive_put, FILES, BODY_STREAM, ROUTE_SANDBOX,
	 "Unpacks a tar", NULL},
	{"POST", "/containers/prune", docker_prune, RUN, BODY_JSON, 0, "Removes what has ended",
	 NULL},
	{"DELETE", BOX, docker_remove, RUN, BODY_JSON, ROUTE_SANDBOX, "Removes it", NULL},

	{"GET", "/images/json", docker_images, READ, BODY_NONE, 0, "Lists images", NULL},
	{"POST", "/images/create", docker_image_create, RUN, BODY_STREAM, 0, "Pulls, or imports",
	 NULL},
	{"POST", "/images/load", docker_image_load, FILES, BODY_STREAM, 0, "Loads an archive",
	 NULL},
	{"POST", "/images/prune", docker_images_prune, RUN, BODY_JSON, 0, "Removes nothing", NULL},
	{"GET", "/images/*", docker_image_get, READ, BODY_NONE, 0, "Shows one, or its history",
	 NULL},
	{"POST", "/images/*", docker_image_post, RUN, BODY_JSON, 0, "Tags one", NULL},
	{"DELETE", "/images/*", docker_image_delete, RUN, BODY_JSON, 0, "Removes a name", NULL},

	{"GET", "/events", docker_events_get, READ, BODY_NONE, 0, "What happens", NULL},
	{"GET", "/system/df", docker_df, READ, BODY_NONE, 0, "What takes space", NULL},

	{"GET", "/networks", docker_networks, READ, BODY_NONE, 0, "Lists networks", NULL},
	{"POST", "/networks/create", docker_network_create, RUN, BODY_JSON, 0, "Makes one", NULL},
	{"POST", "/networks/prune", docker_networks_prune, RUN, BODY_JSON, 0,
	 "Removes those without containers", NULL},
	{"GET", "/networks/{id}", docker_network, READ, BODY_NONE, 0, "Shows one", NULL},
	{"DELETE", "/networks/{id}", docker_network_delete, RUN, BODY_JSON, 0, "Removes one", NULL},
	{"POST", "/networks/{id}/connect", docker_network_connect, RUN, BODY_JSON, 0,
	 "Of a container that is not started yet", NULL},
	{"POST", "/networks/{id}/disconnect", docker_network_disconnect, RUN, BODY_JSON, 0,
	 "Refused", NULL},

	{"GET", "/volumes", docker_volumes, READ, BODY_NONE, 0, "Lists volumes", NULL},
	{"POST", "/volumes/create", docker_volume_create, RUN, BODY_JSON, 0, "Makes one", NULL},
	{"POST", "/volumes/prune", docker_volumes_prune, RUN, BODY_JSON, 0, "Removes nothing",
	 NULL},
	{"GET", "/volumes/{name}", docker_volume, READ, BODY_NONE, 0, "Shows one", NULL},
	{"DELETE", "/volumes/{name}", docker_volume_delete, RUN, BODY_JSON, 0, "Removes one", NULL},

	{"POST", "/build", docker_refuse_session, RUN, BODY_STREAM, 0, "Refused", NULL},
	{"POST", "/session", docker_refuse_session, RUN, BODY_STREAM, 0, "Refused", NULL},
	{"POST", "/grpc", docker_refuse_session, RUN, BODY_STREAM, 0, "Refused", NULL},
};

/* ---- paths ---- */

/* "/v1.47/info": behind the version. */
static const char *behind_version(const char *path)
{
	size_t digits;

	if (!str_starts(path, "/v1."))
		return NULL;
	path += strlen("/v1.");
	digits = strspn(path, STR_DIGITS);
	return digits && path[digits] == '/' ? path + digits : NULL;
}

static const char *docker_path(const struct exchange *x)
{
	const char *path = behind_version(x->path);

	return path ? path : x->path;
}

static bool docker_claims(const struct exchange *x)
{
	return exchange_is_docker(x) || x->api->config->docker;
}

/* ---- errors ---- */

static void docker_error(struct exchange *x, int status, const struct err *e)
{
	char clean[sizeof(e->msg)];

	str_sanitise(clean, sizeof(clean), e->msg, strnlen(e->msg, sizeof(e->msg)));
	/* Clients look for this text of paths that are not there. */
	if (status == 404 && !x->route)
		snprintf(clean, sizeof(clean), "page not found");
	exchange_json(x, status, json_pack("{s:o}", "message", text_json_of(clean)));
}

void docker_fail(struct exchange *x, int status, const char *fmt, ...)
{
	struct err e = {.kind = status == 403	? ERR_DENIED
				: status == 404 ? ERR_NOT_FOUND
				: status == 409 ? ERR_CONFLICT
				: status == 501 ? ERR_UNSUPPORTED
				: status >= 500 ? ERR_SYSTEM
						: ERR_INVALID};
	va_list args;

	va_start(args, fmt);
	vsnprintf(e.msg, sizeof(e.msg), fmt, args);
	va_end(args);
	exchange_error_as(x, status, &e);
}

void docker_empty(struct exchange *x, int status)
{
	exchange_reply(x, status, NULL, "", 0);
}

/* ---- reading ---- */

bool docker_flag(const struct exchange *x, const char *name, bool dflt)
{
	static const char *const off[] = {"", "0", "no", "false", "none"};
	const char *value = exchange_arg(x, name);

	for (size_t i = 0; value && i < ARRAY_LEN(off); i++)
		if (strcasecmp(value, off[i]) == 0)
			return false;
	return value ? true : dflt;
}

bool docker_is_set(const json_t *value)
{
	if (json_is_string(value))
		return json_string_length(value) > 0;
	if (json_is_number(value))
		return json_number_value(value) != 0;
	return json_is_true(value) || json_array_size(value) > 0 || json_object_size(value) > 0;
}

bool docker_labels_fit(const json_t *labels, struct err *e)
{
	if (json_object_size(labels) <= LABELS_MAX &&
	    json_dumpb(labels, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) <= LABELS_BYTES)
		return true;
	err_field(e, ERR_LIMIT, "Labels", "Labels: more than %d, or more than %d bytes of them",
		  LABELS_MAX, LABELS_BYTES);
	return false;
}

json_t *docker_body(const json_t *in, const struct body_table *t, struct err *e)
{
	json_t *out = json_object();

	if (in && !json_is_object(in) && !json_is_null(in)) {
		err_set(e, ERR_INVALID, "the body is not a JSON object");
		json_decref(out);
		return NULL;
	}
	for (size_t i = 0; i < t->count; i++) {
		json_t *value = json_object_get(in, t->fields[i].name);

		if (docker_is_set(value))
			json_object_set(out, t->fields[i].name, value);
	}
	if (body_check(out, t, e) == 0)
		return out;
	json_decref(out);
	return NULL;
}

json_t *docker_time(uint64_t unix_ns)
{
	char text[UTC_TEXT];

	if (!unix_ns)
		return json_string("0001-01-01T00:00:00Z");
	return json_string(
		utc_text(unix_ns / 1000000000, (uint32_t)(unix_ns % 1000000000), 9, text));
}

uint64_t docker_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void docker_id_make(char ret[DOCKER_ID])
{
	unsigned char bytes[(DOCKER_ID - 1) / 2];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2hex(ret, DOCKER_ID, bytes, sizeof(bytes));
}

int docker_arg_time(const struct exchange *x, const char *name, uint64_t *ret_ns, struct err *e)
{
	const char *text = exchange_arg(x, name);
	char *end;
	double seconds = text && *text ? strtod(text, &end) : 0;

	if (text && *text && (*end || !(seconds >= 0 && seconds < 1e10)))
		return err_field(e, ERR_INVALID, name, "%s: '%.40s' is no time in seconds", name,
				 text);
	*ret_ns = (uint64_t)(seconds * 1e9);
	return 0;
}

void terminal_size(const json_t *size, struct exec_request *ret)
{
	json_int_t rows = json_integer_value(json_array_get(size, 0)),
		   cols = json_integer_value(json_array_get(size, 1));
	bool is_fine = rows > 0 && cols > 0 && rows <= 10000 && cols <= 10000;

	ret->rows = is_fine ? (uint32_t)rows : 24;
	ret->cols = is_fine ? (uint32_t)cols : 80;
}

/* ---- filters ---- */

#define FILTER_VALUES 64

static int read_filter(json_t *all, const char *name, const json_t *values, struct err *e)
{
	json_t *list = json_array();
	const json_t *value;
	const char *key;
	size_t i;

	json_object_set_new(all, name, list);
	json_object_foreach ((json_t *)values, key, value)
		if (json_is_true(value))
			json_array_append_new(list, json_string(key));
	json_array_foreach ((json_t *)values, i, value)
		json_array_append(list, (json_t *)value);
	if (json_array_size(list) <= FILTER_VALUES && body_has_type(list, BODY_LIST))
		return 0;
	return err_field(e, ERR_INVALID, "filters",
			 "filters: '%.40s' has no values, more than %d, or others than strings",
			 name, FILTER_VALUES);
}

json_t *docker_filters(struct exchange *x)
{
	const char *text = exchange_arg(x, "filters"), *name;
	json_t *in = text && *text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : json_object(),
	       *all = json_object(), *values;
	struct err e = {0};

	if (!json_is_object(in))
		err_field(&e, ERR_INVALID, "filters", "filters: not a JSON object");
	json_object_foreach (in, name, values)
		if (!e.kind)
			(void)!read_filter(all, name, values, &e);
	json_decref(in);
	if (!e.kind)
		return all;
	json_decref(all);
	exchange_error(x, &e);
	return NULL;
}

const json_t *docker_filter(const json_t *filters, const char *name)
{
	return json_object_get(filters, name);
}

bool docker_labels_match(const json_t *labels, const json_t *wanted)
{
	json_t *one;
	size_t i;

	json_array_foreach ((json_t *)wanted, i, one) {
		const char *text = json_string_value(one), *equals = strchr(text, '=');
		auto_free char *key = str_format(
			"%.*s", (int)(equals ? equals - text : (long)strlen(text)), text);
		const char *value = json_string_value(json_object_get(labels, key));

		if (!value || (equals && !str_equal(value, equals + 1)))
			return false;
	}
	return true;
}

/* ---- from the route to its handler ---- */

static void request_done(void *data)
{
	struct docker_request *q = data;

	if (q->c)
		container_release(q->c);
}

static void docker_enter(struct exchange *x)
{
	struct docker_request *q = exchange_attach(x, sizeof(*q), request_done);
	struct err e = {0};

	q->x = x;
	exchange_set_header(x, "Api-Version", DOCKER_API);
	exchange_set_header(x, "Docker-Experimental", "false");
	exchange_set_header(x, "Ostype", "linux");
	exchange_set_header(x, "Server", "cloche/" CLOCHE_VERSION " (linux)");
	if (!(x->route->flags & ROUTE_SANDBOX)) {
		x->route->handle(x);
		return;
	}
	q->c = container_find(x, x->params[0], &e);
	if (q->c) {
		container_hold(q->c);
		x->route->handle(x);
	} else {
		exchange_error(x, &e);
	}
}

const struct door docker_door = {
	.id = DOOR_DOCKER,
	.name = "docker",
	.routes = routes,
	.route_count = ARRAY_LEN(routes),
	.claims = docker_claims,
	.error = docker_error,
	.enter = docker_enter,
	.path = docker_path,
};

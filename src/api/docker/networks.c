/*
 * Networks: bridge (what the token's sandboxes may reach), none, and those that clients make: isolated segments, in
 * which containers reach each other by name and nothing else. A network is a name; its id follows from that, so that
 * after a restart the containers say which there are.
 */
#include "api/docker/docker_internal.h"

#include <sodium.h>

#define NETWORKS_MAX 64 /* of one owner */

static const struct docker_network builtin[] = {{.name = "bridge"}, {.name = "none"}};

static void make_id(const char *owner, const char *name, char ret[DOCKER_ID])
{
	unsigned char hash[(DOCKER_ID - 1) / 2];
	crypto_generichash_state st;

	crypto_generichash_init(&st, NULL, 0, sizeof(hash));
	crypto_generichash_update(&st, (const unsigned char *)owner, strlen(owner) + 1);
	crypto_generichash_update(&st, (const unsigned char *)name, strlen(name));
	crypto_generichash_final(&st, hash, sizeof(hash));
	sodium_bin2hex(ret, DOCKER_ID, hash, sizeof(hash));
}

struct docker_network *segment_find(struct docker_network *all, const char *what)
{
	size_t len = strlen(what);

	for (struct docker_network *n = all; n; n = n->next)
		if (str_equal(n->name, what))
			return n;
	for (struct docker_network *n = all; n && len >= 12; n = n->next)
		if (str_starts(n->id, what))
			return n;
	return NULL;
}

struct docker_network *segment_add(struct docker_network **all, const char *owner, const char *name,
				   json_t *labels)
{
	struct docker_network *n = must_alloc(calloc(1, sizeof(*n)));

	snprintf(n->name, sizeof(n->name), "%s", name);
	make_id(owner, name, n->id);
	n->labels = json_is_object(labels) ? json_incref(labels) : json_object();
	n->created_ns = docker_now_ns();
	n->next = *all;
	return *all = n;
}

void segment_free(struct docker_network *n)
{
	json_decref(n->labels);
	free(n);
}

/* ---- looking ---- */

static json_t *members_json(const struct exchange *x, const struct docker_network *n, bool *ret_any)
{
	json_t *all = json_object();

	for (const struct container *c = container_first(x); c; c = c->next)
		if (str_equal(container_network(c), n->name)) {
			*ret_any = true;
			if (container_is_running(c))
				json_object_set_new(all, c->id,
						    json_pack("{s:s,s:s,s:s,s:s,s:s}", "Name",
							      c->name, "EndpointID", "",
							      "MacAddress", "", "IPv4Address", "",
							      "IPv6Address", ""));
		}
	return all;
}

static json_t *network_json(const struct exchange *x, const struct docker_network *n)
{
	bool is_made = n->id[0], any = false;
	char id[DOCKER_ID];

	make_id("", n->name, id);
	return json_pack(
		"{s:s,s:s,s:o,s:s,s:s,s:b,s:b,s:b,s:b,s:b,s:{s:s},s:{s:s,s:n,s:[]},s:o,s:{},s:o}",
		"Name", n->name, "Id", is_made ? n->id : id, "Created", docker_time(n->created_ns),
		"Scope", "local", "Driver", str_equal(n->name, "none") ? "null" : "bridge",
		"EnableIPv6", 0, "Internal", is_made, "Attachable", 0, "Ingress", 0, "ConfigOnly",
		0, "ConfigFrom", "Network", "", "IPAM", "Driver", "default", "Options", "Config",
		"Containers", members_json(x, n, &any), "Options", "Labels",
		n->labels ? json_incref(n->labels) : json_object());
}

static bool is_wanted(const struct docker_network *n, const json_t *filters)
{
	const json_t *names = docker_filter(filters, "name"), *ids = docker_filter(filters, "id"),
		     *one;
	bool fits = !names && !ids;
	size_t i;

	json_array_foreach ((json_t *)names, i, one)
		fits |= strstr(n->name, json_string_value(one)) != NULL;
	json_array_foreach ((json_t *)ids, i, one)
		fits |= str_starts(n->id, json_string_value(one));
	return fits && docker_labels_match(n->labels, docker_filter(filters, "label"));
}

void docker_networks(struct exchange *x)
{
	json_t *filters = docker_filters(x), *all;

	if (!filters)
		return;
	all = json_array();
	for (size_t i = 0; i < ARRAY_LEN(builtin); i++)
		if (is_wanted(&builtin[i], filters))
			json_array_append_new(all, network_json(x, &builtin[i]));
	for (const struct docker_network *n = *exchange_networks(x); n; n = n->next)
		if (is_wanted(n, filters))
			json_array_append_new(all, network_json(x, n));
	json_decref(filters);
	exchange_json(x, 200, all);
}

void docker_network(struct exchange *x)
{
	const struct docker_network *n = segment_find(*exchange_networks(x), x->params[0]);

	for (size_t i = 0; !n && i < ARRAY_LEN(builtin); i++)
		if (str_equal(builtin[i].name, x->params[0]))
			n = &builtin[i];
	if (n)
		exchange_json(x, 200, network_json(x, n));
	else
		docker_fail(x, 404, "network %.80s not found", x->params[0]);
}

/* ---- making ---- */

static const struct body_table network_table = BODY_TABLE(
	BODY_ALONE, FIELD("Driver", BODY_TEXT, "bridge"), FIELD("Labels", BODY_MAP, "labels"),
	FIELD("Name", BODY_TEXT, "its name", .flags = BODY_REQUIRED));

static int check_network(struct exchange *x, const json_t *in, struct err *e)
{
	const char *name = body_text(in, "Name"), *driver = body_text(in, "Driver");
	size_t count = 0;

	for (const struct docker_network *n = *exchange_networks(x); n; n = n->next)
		count++;
	if (driver && !str_equal(driver, "bridge") && !str_equal(driver, "default"))
		return err_field(e, ERR_UNSUPPORTED, "Driver",
				 "Driver: %.40s is not offered: networks are isolated segments; "
				 "leave it out",
				 driver);
	if (!str_only(name, STR_ALNUM "_.-", 1, DOCKER_NAME - 1))
		return err_field(e, ERR_INVALID, "Name", "Name: '%.60s' is no name of a network",
				 name);
	if (segment_find(*exchange_networks(x), name) || str_equal(name, "bridge") ||
	    str_equal(name, "none") || str_equal(name, "host") || str_equal(name, "default"))
		return err_field(e, ERR_CONFLICT, "Name", "network with name %.60s already exists",
				 name);
	if (!docker_labels_fit(json_object_get(in, "Labels"), e))
		return -1;
	if (count >= NETWORKS_MAX)
		return err_field(e, ERR_LIMIT, "Name", "Name: more than %d networks", NETWORKS_MAX);
	return 0;
}

void docker_network_create(struct exchange *x)
{
	const struct docker_network *n;
	struct err e = {0};
	json_t *in = docker_body(x->json, &network_table, &e);

	if (!in || check_network(x, in, &e) < 0) {
		exchange_error(x, &e);
	} else {
		n = segment_add(exchange_networks(x), x->caller.token, body_text(in, "Name"),
				json_object_get(in, "Labels"));
		exchange_json(
			x, 201,
			json_pack("{s:s,s:s}", "Id", n->id, "Warning",
				  "the network is isolated: its containers reach each other by "
				  "name, and nothing else"));
	}
	json_decref(in);
}

void docker_network_delete(struct exchange *x)
{
	struct docker_network **at = exchange_networks(x), *n = segment_find(*at, x->params[0]);
	bool any = false;

	if (!n) {
		docker_fail(x, 404, "network %.80s not found", x->params[0]);
		return;
	}
	json_decref(members_json(x, n, &any));
	if (any) {
		docker_fail(x, 403,
			    "error while removing network: network %s has containers; "
			    "remove them first",
			    n->name);
		return;
	}
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	segment_free(n);
	docker_empty(x, 204);
}

/* ---- joining ---- */

int network_spec(const struct docker_network *n, struct sandbox_spec *s, struct err *e)
{
	char group[SPEC_GROUP_MAX + 1];

	snprintf(group, sizeof(group), "%.*s", SPEC_GROUP_MAX, n->id);
	return spec_set(s, "net", "isolated", e) < 0 ? -1 : spec_set(s, "net_group", group, e);
}

struct joining {
	struct exchange *x;
	struct container *c; /* held */
	char network[DOCKER_NAME];
	json_t *aliases;
};

static void joining_done(void *data)
{
	struct joining *j = data;

	container_release(j->c);
	json_decref(j->aliases);
}

static void on_joined(void *arg, struct sandbox *s, const struct err *e)
{
	struct joining *j = arg;
	struct err why = {0};

	if (!s) {
		exchange_error(j->x, e);
		return;
	}
	container_join(j->c, j->network, j->aliases);
	if (container_save(j->c, &why) < 0)
		exchange_error(j->x, &why);
	else
		docker_empty(j->x, 200);
}

static void join(struct exchange *x, const struct docker_network *n, struct container *c)
{
	const json_t *ends = json_object_get(x->json, "EndpointConfig");
	struct joining *j = must_alloc(calloc(1, sizeof(*j)));
	char name[IPC_NAME];
	struct sandbox_spec spec;
	struct err e = {0};

	*j = (struct joining){.x = x, .c = container_hold(c)};
	snprintf(j->network, sizeof(j->network), "%s", n->name);
	j->aliases = json_incref(json_object_get(ends, "Aliases"));
	exchange_also_free(x, j, joining_done);
	spec_init(&spec);
	if (network_spec(n, &spec, &e) < 0 || spec_finish(&spec, &e) < 0) {
		exchange_error(x, &e);
	} else {
		snprintf(name, sizeof(name), "%.*s", IPC_NAME - 1, c->name);
		choose_alias(j->aliases, c->id, name);
		sandbox_set_name(c->s, name);
		sandbox_set_network(c->s, &x->caller, &spec, on_joined, j);
	}
	spec_done(&spec);
}

/* Clients make a container, connect it, and start it: until then nothing has used the network that it had. */
void docker_network_connect(struct exchange *x)
{
	const struct docker_network *n = segment_find(*exchange_networks(x), x->params[0]);
	const char *what = body_text(x->json, "Container");
	struct container *c;
	struct err e = {0};

	if (!n) {
		docker_fail(x, 404, "network %.80s not found", x->params[0]);
		return;
	}
	c = container_find(x, what ? what : "", &e);
	if (!c)
		exchange_error(x, &e);
	else if (c->state != BOX_CREATED || json_is_true(json_object_get(c->record, "segment")))
		docker_fail(x, 501,
			    "a container has one network, from its start on: name it when the "
			    "container is made, or connect it before it is started");
	else
		join(x, n, c);
}

void docker_network_disconnect(struct exchange *x)
{
	docker_fail(x, 501, "a container keeps the one network that it has");
}

void docker_networks_prune(struct exchange *x)
{
	struct docker_network **at = exchange_networks(x), *n;
	json_t *gone = json_array();
	bool any;

	while ((n = *at)) {
		any = false;
		json_decref(members_json(x, n, &any));
		if (any) {
			at = &n->next;
			continue;
		}
		json_array_append_new(gone, json_string(n->name));
		*at = n->next;
		segment_free(n);
	}
	exchange_json(x, 200, json_pack("{s:o}", "NetworksDeleted", gone));
}

/* The data that these doors store with a sandbox: template, access token, traffic token. */
#include "api/e2b/e2b_internal.h"

#include <sodium.h>

/* 20 random bytes in hex behind a prefix that names the kind of token. */
static void make_token(const char *prefix, char token[E2B_TOKEN])
{
	unsigned char bytes[20];
	char hex[sizeof(bytes) * 2 + 1];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2hex(hex, sizeof(hex), bytes, sizeof(bytes));
	snprintf(token, E2B_TOKEN, "%s_%s", prefix, hex);
}

json_t *e2b_data_new(const char *template, bool public_traffic)
{
	char access[E2B_TOKEN], traffic[E2B_TOKEN] = "";

	make_token("ea", access);
	if (!public_traffic)
		make_token("ta", traffic);
	return must_alloc(json_pack("{s:s,s:s,s:s}", "template", template, "access", access,
				    "traffic", traffic));
}

const json_t *e2b_data(struct sandbox *s)
{
	struct err ignored;
	json_t *data;

	if (e2b_is_open(s))
		return sandbox_door_data(s);
	/* A sandbox of another door keeps its ports closed to clients that only know its id. */
	data = e2b_data_new("base", false);
	/* The data of the other door stays. */
	json_object_update_missing(data, (json_t *)sandbox_door_data(s));
	/* Tokens that could not be stored are not handed out: the sandbox stays closed to this door. */
	(void)sandbox_set_door_data(s, data, &ignored);
	return sandbox_door_data(s);
}

bool e2b_is_open(const struct sandbox *s)
{
	return *e2b_data_text(s, "access");
}

const char *e2b_data_text(const struct sandbox *s, const char *key)
{
	const char *text = json_string_value(json_object_get(sandbox_door_data(s), key));

	return text ? text : "";
}

void e2b_env(const struct sandbox *s, struct list *ret)
{
	list_add(ret, "E2B_SANDBOX=true");
	list_take(ret, str_format("E2B_SANDBOX_ID=%s", sandbox_id(s)));
	list_take(ret, str_format("E2B_TEMPLATE_ID=%s", e2b_data_text(s, "template")));
}

const char *e2b_access_token(const struct sandbox *s)
{
	/* As long as a real token, so that comparing takes the same time. */
	static const char none[] = "ea_----------------------------------------";
	const char *token = s ? e2b_data_text(s, "access") : "";

	return *token ? token : none;
}

bool e2b_holds_access(const struct exchange *x, const struct sandbox *s)
{
	const char *token = exchange_header(x, "X-Access-Token");
	bool same = e2b_same_secret(token ? token : "", e2b_access_token(s));

	return same && s && e2b_is_open(s);
}

bool e2b_same_secret(const char *a, const char *b)
{
	size_t len = strlen(a);

	return len > 0 && len == strlen(b) && sodium_memcmp(a, b, len) == 0;
}

struct sandbox *e2b_running(const struct api *api, const char *id)
{
	struct sandbox *s = manager_find_any(api->manager, id);

	return s && sandbox_state(s) == STATE_RUNNING ? s : NULL;
}

struct e2b_state *e2b_state_of(struct api *api)
{
	if (!api->door_state[DOOR_E2B])
		api->door_state[DOOR_E2B] = must_alloc(calloc(1, sizeof(struct e2b_state)));
	return api->door_state[DOOR_E2B];
}

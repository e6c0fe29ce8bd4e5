/* Stored secrets over REST: values go in, and never out. */
#include "api/rest/rest.h"

#define SECRET_FIELDS                                                                              \
	FIELD("hosts", BODY_LIST, "names, or name:port, to which the value may go"),               \
		FIELD("header", BODY_TEXT,                                                         \
		      "where it goes: \"Name: text {}\" (Authorization: Bearer {}), basic, "       \
		      "query:NAME"),                                                               \
		FIELD("prefix", BODY_TEXT, "how the placeholder begins"),                          \
		FIELD("uses", BODY_COUNT, "requests of one sandbox that get it (no bound)"),       \
		FIELD("metadata", BODY_MAP, "the caller's own")

const struct body_table v1_secret_create_table =
	BODY_TABLE(BODY_ALONE, NEEDED("name", BODY_TEXT, "letters, digits, '_', '-', '.'"),
		   NEEDED("value", BODY_TEXT, "never shown again"), SECRET_FIELDS);
const struct body_table v1_secret_put_table = BODY_TABLE(
	BODY_ALONE, FIELD("value", BODY_TEXT, "never shown again; missing: that of before"),
	SECRET_FIELDS);

/* ---- in bodies of others ---- */

int v1_imply_network(const json_t *body, struct sandbox_spec *s, struct err *e)
{
	if (!json_array_size(json_object_get(body, "secrets")))
		return 0;
	if (spec_is_set(s, "net") && s->net == NET_NONE)
		return err_field(e, ERR_INVALID, "secrets",
				 "secrets: net is none; they need a network");
	return spec_is_set(s, "net") ? 0 : spec_set(s, "net", "allow", e);
}

int v1_take_secrets(const json_t *body, struct sandbox_spec *s, struct err *e)
{
	const json_t *names = json_object_get(body, "secrets"), *name;
	size_t i;

	if (json_array_size(names) > SECRETS_PER_SANDBOX)
		return err_field(e, ERR_LIMIT, "secrets", "secrets: more than %d",
				 SECRETS_PER_SANDBOX);
	json_array_foreach ((json_t *)names, i, name) {
		const char *text = json_string_value(name);

		if (!secret_name_is_variable(text))
			return err_field(e, ERR_INVALID, "secrets",
					 "secrets: '%.60s' cannot be the name of a variable", text);
		for (size_t k = 0; k < s->secrets.count; k++)
			if (str_equal(s->secrets.items[k], text))
				return err_field(e, ERR_INVALID, "secrets",
						 "secrets: %s is there twice", text);
		list_add(&s->secrets, text);
	}
	return 0;
}

/* ---- storing ---- */

/* Overwrites the value in the request's body: it is needed no longer. */
static void wipe_value(const json_t *body)
{
	const json_t *value = json_object_get(body, "value");

	if (value)
		explicit_bzero((char *)json_string_value(value), json_string_length(value));
}

static int read_rule(const json_t *body, const char *name, struct secret_rule *ret, struct err *e)
{
	struct secret_def d = {0};
	static const char *const texts[] = {"header", "prefix"};
	struct list hosts = {0};
	int rc = 0;

	if (strlen(name) >= sizeof(d.rule.name) || !str_only(name, STR_ALNUM "_-.", 1, SIZE_MAX))
		return err_field(e, ERR_INVALID, "name",
				 "name: 1 to %d letters, digits, '_', '-', '.'", SECRET_NAME - 1);
	snprintf(d.rule.name, sizeof(d.rule.name), "%s", name);
	body_list(body, "hosts", &hosts);
	for (size_t i = 0; rc == 0 && i < hosts.count; i++)
		rc = secret_set(&d, "host", hosts.items[i], e);
	list_done(&hosts);
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(texts); i++)
		if (body_text(body, texts[i]))
			rc = secret_set(&d, texts[i], body_text(body, texts[i]), e);
	d.rule.uses_max = body_count(body, "uses", 0);
	*ret = d.rule;
	return rc;
}

static void put_secret(struct exchange *x, const char *name, bool is_new, json_done done)
{
	const json_t *value = json_object_get(x->json, "value"),
		     *metadata = json_object_get(x->json, "metadata");
	auto_free char *text = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
	struct secret_put put = {.metadata = text, .is_new = is_new};
	struct err e = {0};

	if (value) {
		put.value = json_string_value(value);
		put.value_len = json_string_length(value);
	}
	if (text && strlen(text) >= sizeof(((struct ipc_secret *)0)->metadata))
		err_field(&e, ERR_INVALID, "metadata", "metadata: too long");
	else
		(void)read_rule(x->json, name, &put.rule, &e);
	if (e.kind)
		exchange_error(x, &e);
	else
		manager_secret_put(x->api->manager, &x->caller, &put, done, x);
	wipe_value(x->json);
}

void v1_secret_create(struct exchange *x)
{
	put_secret(x, body_text(x->json, "name"), true, v1_answer_created);
}

void v1_secret_put(struct exchange *x)
{
	put_secret(x, x->params[0], false, v1_answer_json);
}

void v1_secrets(struct exchange *x)
{
	manager_secrets(x->api->manager, &x->caller, NULL, v1_answer_json, x);
}

void v1_secret_get(struct exchange *x)
{
	manager_secrets(x->api->manager, &x->caller, x->params[0], v1_answer_json, x);
}

void v1_secret_delete(struct exchange *x)
{
	manager_secret_delete(x->api->manager, &x->caller, x->params[0], v1_answer_empty, x);
}

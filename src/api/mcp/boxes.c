/* Tools for sandboxes and snapshots. A client sees only its own. */
#include "api/mcp/mcp_internal.h"

#include "api/http/server.h"

static json_t *describe_box(const struct mcp_session *s, const struct sandbox *box)
{
	json_t *full = sandbox_describe(box);
	const char *name = body_text(full, "name");
	json_t *out = json_pack("{s:s, s:s, s:s, s:b}", "sandbox_id", sandbox_id(box), "name",
				name ? name : "", "state", state_name(sandbox_state(box)),
				"default", str_equal(s->sandbox, sandbox_id(box)));

	json_decref(full);
	return out;
}

static void on_box_created(void *arg, struct sandbox *box, const struct err *e)
{
	struct mcp_call *c = arg;

	if (box && c->cancelled)
		sandbox_destroy(box, &c->session->caller, NULL, NULL);
	if (mcp_call_is_over(c))
		return;
	if (!box)
		mcp_call_error(c, e);
	else
		mcp_call_structured(c, describe_box(c->session, box));
}

void mcp_sandbox_create(struct mcp_call *c)
{
	mcp_session_make(c->session, mcp_arg_text(c, "name", ""), NULL, on_box_created, c);
}

void mcp_sandbox_list(struct mcp_call *c)
{
	json_t *all = json_array();
	struct list ids = {0};

	mcp_session_ids(c->session, &ids);
	for (size_t i = 0; i < ids.count; i++)
		json_array_append_new(
			all, describe_box(c->session, mcp_session_box(c->session, ids.items[i])));
	list_done(&ids);
	mcp_call_structured(c, json_pack("{s:o}", "sandboxes", all));
}

static void on_box_destroyed(void *arg, struct sandbox *box, const struct err *e)
{
	mcp_call_answer_json(arg, NULL, e);
}

void mcp_sandbox_destroy(struct mcp_call *c)
{
	struct mcp_session *s = c->session;
	const char *id = mcp_arg_text(c, "sandbox_id", "");
	struct sandbox *box = mcp_session_box(s, id);

	if (!box) {
		mcp_call_refuse(
			c, "There is no sandbox '%.64s'. sandbox_list shows those that there are.",
			str_equal(id, "default") ? s->sandbox : id);
		return;
	}
	if (str_equal(s->sandbox, sandbox_id(box)))
		s->sandbox[0] = '\0';
	sandbox_destroy(box, &c->session->caller, on_box_destroyed, c);
}

static void on_snapshot_made(void *arg, json_t *value, const struct err *e)
{
	struct mcp_call *c = arg;
	const char *id = body_text(value, "id");
	json_int_t size = json_integer_value(json_object_get(value, "size_bytes"));

	if (id)
		list_add(&c->session->snapshots, id);
	if (!mcp_call_is_over(c)) {
		if (id)
			mcp_call_structured(
				c, json_pack("{s:s, s:I}", "snapshot_id", id, "size", size));
		else
			mcp_call_error(c, e);
	}
	json_decref(value);
}

void mcp_snapshot(struct mcp_call *c)
{
	sandbox_snapshot(c->box, &c->session->caller, mcp_arg_text(c, "name", ""), on_snapshot_made,
			 c);
}

/* The restored sandbox becomes the default one; the previous one stays until it is destroyed. */
static void on_restored(void *arg, struct sandbox *box, const struct err *e)
{
	struct mcp_call *c = arg;

	if (box)
		snprintf(c->session->sandbox, sizeof(c->session->sandbox), "%s", sandbox_id(box));
	on_box_created(arg, box, e);
}

void mcp_restore(struct mcp_call *c)
{
	const char *id = mcp_arg_text(c, "snapshot_id", "");
	const struct list *known = &c->session->snapshots;

	for (size_t i = 0; i < known->count; i++)
		if (str_equal(known->items[i], id)) {
			mcp_session_make(c->session, "", id, on_restored, c);
			return;
		}
	mcp_call_refuse(c,
			"This client has no snapshot '%.64s'. Only those that it took with "
			"snapshot can be restored.",
			id);
}

/* The address for browsers: as the client reached the daemon, else the listening address. */
static bool find_host(const struct mcp_call *c, char *ret, size_t size)
{
	const char *host = exchange_header(c->x, "Host");

	if (!host || !strchr(host, ':') || strlen(host) >= size)
		return server_address(c->session->state->api->server, ret, size);
	snprintf(ret, size, "%s", host);
	return true;
}

void mcp_get_url(struct mcp_call *c)
{
	int port = (int)mcp_arg_number(c, "port", 0);
	char host[300];
	auto_free char *url = NULL;

	if (!find_host(c, host, sizeof(host))) {
		mcp_call_refuse(c,
				"This server has no address that a browser could open: it was "
				"started without one. Tell the user to start `cloche serve`; to "
				"look at port %d yourself, use curl in run_command.",
				port);
		return;
	}
	url = str_format("http://%s/v1/sandboxes/%s/ports/%d/", host, c->box_id, port);
	mcp_call_structured(
		c, json_pack("{s:s, s:s}", "url", url, "note",
			     "It needs the header Authorization: Bearer with the user's token. "
			     "From inside the sandbox use http://127.0.0.1 and the port."));
}

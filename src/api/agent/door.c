#include "api/agent/agent.h"

const struct ipc_agent *agent_self(const struct exchange *x)
{
	struct sandbox *s = exchange_agent_box(x);
	const struct ipc_agent *a = s ? agents_find(x->api->agents, sandbox_agent(s)) : NULL;

	return a && str_equal(a->uid, sandbox_agent_uid(s)) ? a : NULL;
}

json_t *agent_list(const struct exchange *x, const struct ipc_agent *self)
{
	return json_pack("{s:o,s:o}", "self", agent_describe(self), "agents",
			 agents_around(x->api->agents, self));
}

/* Before any of the body is read. */
static void admit(struct exchange *x)
{
	struct sandbox *s = exchange_agent_box(x);
	struct err e = {0};

	if (!agent_self(x)) {
		err_set(&e, ERR_DENIED, "nobody registered this agent");
		exchange_error(x, &e);
		return;
	}
	sandbox_act_as_owner(s, &x->caller);
	if (exchange_admit(x, x->caller.token, &e) < 0)
		exchange_error_as(x, 429, &e);
}

/* While the body was read, the agent may have been removed. */
static void enter(struct exchange *x)
{
	if (!agent_self(x))
		exchange_fail(x, ERR_DENIED, "nobody registered this agent");
	else if (x->route->body != BODY_JSON || v1_body(x))
		x->route->handle(x);
}

static void list(struct exchange *x)
{
	exchange_json(x, 200, agent_list(x, agent_self(x)));
}

static void send_one(struct exchange *x)
{
	message_send_as(x, agent_self(x)->name);
}

static void read_some(struct exchange *x)
{
	message_read_as(x, agent_self(x)->name);
}

static void ack(struct exchange *x)
{
	message_ack_as(x, agent_self(x)->name);
}

static void verify(struct exchange *x)
{
	mail_verify(x->api->mail, agent_self(x)->name, json_object_get(x->json, "message"),
		    v1_answer_json, x);
}

static const struct route routes[] = {
	{"GET", "/v1/agents", list, 0, BODY_NONE, ROUTE_OPEN, "", NULL},
	{"GET", "/v1/messages", read_some, 0, BODY_NONE, ROUTE_OPEN, "", NULL},
	{"POST", "/v1/messages", send_one, 0, BODY_JSON, ROUTE_OPEN, "", &v1_message_table},
	{"DELETE", "/v1/messages", ack, 0, BODY_NONE, ROUTE_OPEN, "", NULL},
	{"POST", "/v1/verify", verify, 0, BODY_JSON, ROUTE_OPEN, "", &v1_verify_table},
	{"POST", "/mcp", agent_mcp, 0, BODY_RPC, ROUTE_OPEN, "", NULL},
};

const struct door agent_door = {
	.id = DOOR_AGENT,
	.name = "agent",
	.routes = routes,
	.route_count = ARRAY_LEN(routes),
	.enter = enter,
	.admit = admit,
};

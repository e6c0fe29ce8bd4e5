/* Registered agents over REST: who there is, and who may talk to whom. Changes are the admins'. */
#include "api/rest/rest.h"

#include "agent/registry.h"
#include "auth/trust.h"
#include "manager/broker.h"

const struct body_table v1_agent_create_table = BODY_TABLE(
	BODY_ALONE, NEEDED("id", BODY_TEXT, "small letters, digits, '.', '_', '-'; a letter first"),
	NEEDED("trust", BODY_COUNT, "its level, from 0 to 5; not above that of its owner's tokens"),
	FIELD("owner", BODY_TEXT, "a token's id, or @TENANT (the caller's own)"),
	FIELD("outside", BODY_FLAG, "it has no sandbox: its owner's token speaks for it"));
const struct body_table v1_agent_patch_table = BODY_TABLE(
	BODY_ALONE, FIELD("trust", BODY_COUNT, "its level, from 0 to 5"),
	FIELD("rotate", BODY_FLAG, "a new key; messages of the one before are accepted for a day"));

/* ---- looking ---- */

void v1_agents(struct exchange *x)
{
	exchange_json(x, 200, agents_list(x->api->agents, &x->caller));
}

void v1_agent(struct exchange *x)
{
	struct err e = {0};
	const struct ipc_agent *a = agents_see(x->api->agents, &x->caller, x->params[0], &e);

	if (a)
		exchange_json(x, 200, agent_describe(a));
	else
		exchange_error(x, &e);
}

static json_t *level_json(int level)
{
	const struct trust_level *l = trust_level(level);
	json_t *to = json_array();

	for (int i = 0; i < TRUST_LEVELS; i++)
		if (trust_may_talk(level, i))
			json_array_append_new(to, json_integer(i));
	return json_pack("{s:i,s:s,s:o,s:s,s:s,s:b}", "trust", level, "level", l->name, "talks_to",
			 to, "network", net_mode_name(l->net), "sandbox",
			 l->wants_vm ? "vm" : "container", "elsewhere", l->may_leave);
}

void v1_trust(struct exchange *x)
{
	const char *from = exchange_arg(x, "from"), *to = exchange_arg(x, "to");
	const struct agents *a = x->api->agents;
	struct err ignored;
	json_t *levels = json_array(), *rule = json_null();

	for (int i = 0; i < TRUST_LEVELS; i++)
		json_array_append_new(levels, level_json(i));
	/* What the caller does not see is not registered, as far as the caller knows. */
	if (from && to)
		rule = agents_judge(a, agents_see(a, &x->caller, from, &ignored) ? from : "",
				    agents_see(a, &x->caller, to, &ignored) ? to : "");
	exchange_json(x, 200, json_pack("{s:o,s:o}", "levels", levels, "rule", rule));
}

/* ---- changing ---- */

struct agent_change {
	struct exchange *x;
	char name[IPC_NAME];
	int status;
};

static void on_changed(void *arg, const struct ipc *reply, int fd)
{
	struct agent_change c = *(struct agent_change *)arg;
	const struct ipc_agent *a = agents_find(c.x->api->agents, c.name);

	close_fd(&fd);
	free(arg);
	if (reply->err.kind)
		exchange_error(c.x, &reply->err);
	else if (c.status == 204 || !a)
		exchange_reply(c.x, 204, NULL, "", 0);
	else
		exchange_json(c.x, c.status, agent_describe(a));
}

static void ask(struct exchange *x, const struct ipc *m, int status)
{
	struct agent_change *c = must_alloc(malloc(sizeof(*c)));

	*c = (struct agent_change){.x = x, .status = status};
	memcpy(c->name, m->agent.name, sizeof(c->name));
	broker_ask(x->api->broker, m, -1, on_changed, c);
}

static int copy_text(char *ret, size_t size, const char *text, const char *field, struct err *e)
{
	if (strlen(text) >= size)
		return err_field(e, ERR_INVALID, field, "%s: longer than %zu bytes", field,
				 size - 1);
	snprintf(ret, size, "%s", text);
	return 0;
}

static int take_level(const json_t *body, struct ipc_agent *a, struct err *e)
{
	uint64_t level = body_count(body, "trust", 0);

	if (level >= TRUST_LEVELS)
		return err_field(e, ERR_INVALID, "trust", "trust: is a level from 0 to %d",
				 TRUST_LEVELS - 1);
	a->level = (uint8_t)level;
	a->has_level = body_has(body, "trust");
	return 0;
}

void v1_agent_create(struct exchange *x)
{
	struct ipc m = {.type = IPC_AGENT_PUT, .agent.is_new = 1};
	const char *owner = body_text(x->json, "owner");
	struct err e = {0};

	m.agent.is_outside = body_flag(x->json, "outside");
	if (copy_text(m.agent.name, sizeof(m.agent.name), body_text(x->json, "id"), "id", &e) < 0 ||
	    copy_text(m.agent.owner, sizeof(m.agent.owner), owner ? owner : x->caller.token,
		      "owner", &e) < 0 ||
	    take_level(x->json, &m.agent, &e) < 0)
		exchange_error(x, &e);
	else
		ask(x, &m, 201);
}

void v1_agent_patch(struct exchange *x)
{
	struct ipc m = {.type = IPC_AGENT_PUT};
	struct err e = {0};

	m.agent.rotates = body_flag(x->json, "rotate");
	if (!agents_see(x->api->agents, &x->caller, x->params[0], &e) ||
	    copy_text(m.agent.name, sizeof(m.agent.name), x->params[0], "id", &e) < 0 ||
	    take_level(x->json, &m.agent, &e) < 0)
		exchange_error(x, &e);
	else
		ask(x, &m, 200);
}

void v1_agent_delete(struct exchange *x)
{
	struct ipc m = {.type = IPC_AGENT_DELETE};
	struct err e = {0};

	if (!agents_see(x->api->agents, &x->caller, x->params[0], &e) ||
	    copy_text(m.agent.name, sizeof(m.agent.name), x->params[0], "id", &e) < 0)
		exchange_error(x, &e);
	else
		ask(x, &m, 204);
}

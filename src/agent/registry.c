#include "agent/registry.h"

#include "auth/trust.h"

struct agents {
	struct ipc_agent *rows;
	size_t count;
};

struct agents *agents_new(void)
{
	return must_alloc(calloc(1, sizeof(struct agents)));
}

void agents_free(struct agents *a)
{
	if (!a)
		return;
	free(a->rows);
	free(a);
}

int agents_take(struct agents *a, int fd, struct err *e)
{
	char *bytes = NULL;
	size_t len = 0;

	if (io_read_whole(fd, AGENTS_MAX * sizeof(struct ipc_agent), &bytes, &len) < 0)
		return err_sys(e, "cannot read the agents");
	if (len % sizeof(struct ipc_agent) != 0) {
		free(bytes);
		return err_set(e, ERR_SYSTEM, "the list of agents is cut short");
	}
	free(a->rows);
	a->rows = (void *)bytes;
	a->count = len / sizeof(struct ipc_agent);
	return 0;
}

const struct ipc_agent *agents_find(const struct agents *a, const char *name)
{
	for (size_t i = 0; i < a->count; i++)
		if (str_equal(a->rows[i].name, name))
			return &a->rows[i];
	return NULL;
}

static bool is_owned_by(const struct ipc_agent *a, const struct caller *who)
{
	return str_equal(a->owner, who->token);
}

static bool sees(const struct caller *who, const struct ipc_agent *a)
{
	return caller_sees_all(who) || is_owned_by(a, who);
}

const struct ipc_agent *agents_see(const struct agents *a, const struct caller *who,
				   const char *name, struct err *e)
{
	const struct ipc_agent *found = agents_find(a, name);

	if (found && sees(who, found))
		return found;
	err_set(e, ERR_NOT_FOUND, "there is no such agent");
	return NULL;
}

int agents_level(const struct agents *a, const char *name)
{
	const struct ipc_agent *found = agents_find(a, name);

	return found ? found->effective : 0;
}

json_t *agent_describe(const struct ipc_agent *a)
{
	return json_pack("{s:s,s:s,s:i,s:i,s:s,s:b,s:I,s:o,s:o}", "id", a->name, "owner", a->owner,
			 "trust", a->level, "effective_trust", a->effective, "level",
			 trust_level(a->effective)->name, "outside", a->is_outside, "epoch",
			 (json_int_t)a->epoch, "created_at", time_json(a->created_ms), "rotated_at",
			 time_json(a->rotated_ms));
}

json_t *agents_list(const struct agents *a, const struct caller *who)
{
	json_t *all = json_array();

	for (size_t i = 0; i < a->count; i++)
		if (sees(who, &a->rows[i]))
			json_array_append_new(all, agent_describe(&a->rows[i]));
	return json_pack("{s:o}", "agents", all);
}

json_t *agents_around(const struct agents *a, const struct ipc_agent *self)
{
	json_t *all = json_array();

	for (size_t i = 0; i < a->count; i++) {
		const struct ipc_agent *other = &a->rows[i];

		if (other == self || !str_equal(other->owner, self->owner))
			continue;
		json_array_append_new(
			all,
			json_pack("{s:s,s:i,s:b,s:b}", "id", other->name, "trust", other->effective,
				  "may_talk", trust_may_talk(self->effective, other->effective),
				  "may_delegate",
				  trust_may_delegate(self->effective, other->effective)));
	}
	return all;
}

json_t *agents_judge(const struct agents *a, const char *from, const char *to)
{
	int x = agents_level(a, from), y = agents_level(a, to);

	return json_pack("{s:s,s:s,s:i,s:i,s:b,s:b}", "from", from, "to", to, "from_trust", x,
			 "to_trust", y, "may_talk", trust_may_talk(x, y), "may_delegate",
			 trust_may_delegate(x, y));
}

/* ---- sandboxes ---- */

int agents_check_net(const struct agents *a, const char *name, const struct sandbox_spec *spec,
		     struct err *e)
{
	int level = agents_level(a, name), most = trust_net(level);

	if (!name[0] || spec->net <= most || (spec->net == NET_ISOLATED && most != NET_NONE))
		return 0;
	return err_field(e, ERR_DENIED, "net",
			 "net: '%s' is more than an agent of trust level %d may have, '%s'",
			 net_mode_name(spec->net), level, net_mode_name(most));
}

int agents_fit(const struct agents *a, const struct manager *m, const struct caller *who,
	       const char *name, struct create_options *o, struct err *e)
{
	const struct ipc_agent *agent = name[0] ? agents_find(a, name) : NULL;
	int level = agent && agent->effective < who->trust ? agent->effective : who->trust;
	int most = network_most(m, who);

	/* Nobody runs an agent of somebody else: its owner would answer for it. */
	if (name[0] && (!agent || !is_owned_by(agent, who)))
		return err_field(e, ERR_NOT_FOUND, "agent", "agent: you have no agent %.60s", name);
	if (agent && agent->is_outside)
		return err_field(e, ERR_CONFLICT, "agent", "agent: %s is outside of sandboxes",
				 name);
	if (agent) {
		memcpy(o->agent, agent->name, sizeof(o->agent));
		memcpy(o->agent_uid, agent->uid, sizeof(o->agent_uid));
	}
	o->wants_vm = trust_level(level)->wants_vm;
	if (o->spec.provider != PROVIDER_NS && !trust_level(level)->may_leave)
		return err_field(e, ERR_DENIED, "provider",
				 "provider: sandboxes of trust level %d stay on this host", level);
	if (o->spec.provider == PROVIDER_NS && !spec_is_set(&o->spec, "net") &&
	    o->spec.net == NET_NONE) {
		int usual = trust_usual_net(level, who->net_has_rules);

		o->spec.net = usual < most ? usual : most;
		/* Whatever the token's own list has. */
		if (o->spec.net == NET_ALLOW)
			list_add(&o->spec.allow, "*");
	}
	return agents_check_net(a, name, &o->spec, e);
}

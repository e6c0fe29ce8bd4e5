/*
 * The secrets that a sandbox uses. The program inside has a placeholder for each; the broker has the signer give
 * the values to egress. A sandbox keeps its placeholders for its life, also over a stop; a fork gets its own.
 */
#include "manager/manager_internal.h"

/* False: it is none, or has no secret. */
static bool header_read(const char *text, struct ipc_secret_use_item *ret)
{
	char name[IPC_NAME] = "";
	int at = 0;

	*ret = (struct ipc_secret_use_item){.used = 0};
	if (sscanf(text, "@%127s %63s %n", ret->host, name, &at) < 2 || !at)
		return false;
	if (!str_equal(name, "-"))
		memcpy(ret->name, name, sizeof(ret->name));
	snprintf(ret->header, sizeof(ret->header), "%s", text + at);
	return ret->name[0];
}

/* What is known of the secrets of one specification, one after the other. */
struct search {
	struct job *j;
	const struct list *names; /* of the job, or of its sandbox */
	size_t at;
	char name[IPC_NAME];
	bool found;
	job_step step;
	struct err err;
};

static void look_for_next(struct search *a);

static void end_search(struct search *a, const struct err *e)
{
	struct job *j = a->j;
	job_step step = a->step;
	struct err why = {0};

	if (e)
		why = *e;
	free(a);
	if (!job_is_current(j))
		job_end(j, NULL);
	else
		step(j, e ? &why : NULL);
}

/* The one that the sandbox has, if the secret still has the same form. */
static const char *old_placeholder(const struct sandbox *s, const struct secret_rule *r)
{
	const char *old = variables_get(&s->o.placeholders, r->name);

	return old && secret_is_placeholder(r, old) ? old : NULL;
}

static int add_secret(struct search *a, const struct secret_rule *r, struct err *e)
{
	struct job_secrets *to = &a->j->secrets;
	char fresh[SECRET_PLACEHOLDER];
	const char *text = old_placeholder(a->j->s, r);

	if (!r->host_count)
		return err_field(e, ERR_INVALID, "secrets", "secrets: %s has no host", r->name);
	if (!text && secret_placeholder(r, fresh) < 0)
		return err_sys(e, "cannot get random bytes");
	list_take(&to->placeholders, str_format("%s=%s", r->name, text ? text : fresh));
	for (uint32_t i = 0; i < r->host_count && i < SECRET_HOSTS; i++)
		list_take(&to->allow,
			  str_format("%s%s", r->hosts[i], strchr(r->hosts[i], ':') ? "" : ":443"));
	return 0;
}

static void on_rule(void *arg, const struct ipc *reply, int fd)
{
	struct search *a = arg;

	close_fd(&fd);
	if (reply->type == IPC_SECRET_IS) {
		/* The first one counts: those of the settings come before stored ones. */
		if (!a->found && !a->err.kind && str_equal(reply->secret.rule.name, a->name)) {
			a->found = true;
			if (!secret_is_header(a->names->items[a->at]))
				(void)!add_secret(a, &reply->secret.rule, &a->err);
		}
		return;
	}
	if (reply->err.kind)
		a->err = reply->err;
	else if (!a->found && !a->err.kind)
		err_field(&a->err, ERR_NOT_FOUND, "secrets", "secrets: there is no secret %s",
			  a->name);
	a->at++;
	a->found = false;
	look_for_next(a);
}

static void look_for_next(struct search *a)
{
	struct ipc m = {.type = IPC_SECRET_LIST};
	struct ipc_secret_use_item header;

	while (!a->err.kind && a->at < a->names->count &&
	       secret_is_header(a->names->items[a->at]) &&
	       !header_read(a->names->items[a->at], &header))
		a->at++;
	if (a->err.kind || a->at == a->names->count || !job_is_current(a->j)) {
		end_search(a, a->err.kind ? &a->err : NULL);
		return;
	}
	memcpy(m.secret.owner, a->j->s->owner.token, sizeof(m.secret.owner));
	snprintf(a->name, sizeof(a->name), "%s",
		 secret_is_header(a->names->items[a->at]) ? header.name : a->names->items[a->at]);
	memcpy(m.secret.rule.name, a->name, sizeof(a->name));
	broker_ask(a->j->s->m->p.broker, &m, -1, on_rule, a);
}

void secrets_look_up(struct job *j, const struct list *names, job_step step)
{
	struct search *a;

	if (!names->count) {
		step(j, NULL);
		return;
	}
	a = must_alloc(calloc(1, sizeof(*a)));
	*a = (struct search){.j = j, .names = names, .step = step};
	look_for_next(a);
}

void secrets_swap(struct job *j)
{
	struct list placeholders = j->s->o.placeholders, allow = j->s->secret_allow;

	j->s->o.placeholders = j->secrets.placeholders;
	j->s->secret_allow = j->secrets.allow;
	j->secrets.placeholders = placeholders;
	j->secrets.allow = allow;
}

void job_secrets_done(struct job_secrets *s)
{
	list_done(&s->placeholders);
	list_done(&s->allow);
}

static void fill_use(const struct sandbox *s, struct ipc *ret)
{
	const struct list *l = &s->o.placeholders;

	*ret = (struct ipc){.type = IPC_SECRET_USE};
	memcpy(ret->use.id, s->id, sizeof(ret->use.id));
	for (size_t i = 0; i < l->count && i < SECRETS_PER_SANDBOX; i++) {
		const char *equals = strchr(l->items[i], '=');

		snprintf(ret->use.items[i].name, IPC_NAME, "%.*s", (int)(equals - l->items[i]),
			 l->items[i]);
		snprintf(ret->use.items[i].placeholder, SECRET_PLACEHOLDER, "%s", equals + 1);
		ret->use.count++;
	}
	l = &s->o.spec.secrets;
	for (size_t i = 0; i < l->count && ret->use.count < SECRETS_PER_SANDBOX; i++)
		if (secret_is_header(l->items[i])) {
			(void)!header_read(l->items[i], &ret->use.items[ret->use.count]);
			ret->use.count++;
		}
}

json_t *secrets_names(const struct list *texts)
{
	json_t *all = json_array();

	for (size_t i = 0; i < texts->count; i++)
		if (!secret_is_header(texts->items[i]))
			json_array_append_new(all, json_string(texts->items[i]));
	return all;
}

/* False: there are none, and there were none. */
static bool fill_change(const struct job *j, struct ipc *ret)
{
	fill_use(j->s, ret);
	return ret->use.count || j->secrets.placeholders.count ||
	       (j->kind == JOB_NETWORK && j->network.secrets.count);
}

void secrets_give(struct job *j, job_step step)
{
	struct ipc m;

	if (fill_change(j, &m))
		job_ask(j, &m, step);
	else
		step(j, NULL);
}

void secrets_give_back(struct job *j)
{
	struct ipc m;

	if (fill_change(j, &m))
		broker_ask(j->s->m->p.broker, &m, -1, NULL, NULL);
}

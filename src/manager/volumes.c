/*
 * Volumes, as clients see them: directories that the operator offers, and disks of the caller's own, which the broker
 * keeps. A request looks the broker's list up first: by name among the caller's own, or by id.
 */
#include "manager/manager_internal.h"

struct volume_errand {
	struct manager *m;
	struct caller who;
	const char *audit; /* the audit entry; NULL: it only looks */
	char *what;	   /* name or id; NULL: all */
	struct ipc msg;	   /* to be sent in the end, if it has a type */
	json_t *all;	   /* what was found */
	struct ipc_disk_volume found;
	json_done done;
	void *arg;
	struct err err;
	struct loop_task task;
};

/* ---- descriptions ---- */

struct volume_uses {
	const char *owner, *name;
	json_t *all;
};

static bool add_uses(void *arg, struct sandbox *s)
{
	struct volume_uses *u = arg;

	if (!str_equal(sandbox_owner(s), u->owner) || s->state == STATE_DESTROYED ||
	    s->state == STATE_FAILED)
		return true;
	for (uint32_t i = 0; i < s->o.volume_count; i++)
		if (str_equal(s->o.volumes[i].name, u->name))
			json_array_append_new(u->all,
					      json_pack("{s:s, s:s, s:b}", "sandbox", s->id, "path",
							s->o.volumes[i].target, "writable",
							s->o.volumes[i].writable));
	return true;
}

/* The sandboxes that have it, also those that are stopped. */
static json_t *uses_json(struct manager *m, const struct ipc_disk_volume *v)
{
	struct volume_uses u = {v->owner, v->name, json_array()};

	manager_each(m, NULL, add_uses, &u);
	return u.all;
}

static json_t *volume_json(struct manager *m, const struct ipc_disk_volume *v)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:I, s:b, s:o, s:o}", "name", v->name, "id",
			      v->id, "kind", "disk", "read_only", 0, "size_bytes",
			      (json_int_t)v->bytes, "encrypted", v->key[0] != '\0', "created_at",
			      time_json(v->created_ms), "sandboxes", uses_json(m, v));

	if (v->from[0]) {
		json_object_set_new(o, "from", json_string(v->from));
		json_object_set_new(o, "shared", json_boolean(v->is_shared));
	}
	return o;
}

static void add_offered(const struct volume_errand *a)
{
	const struct config *c = a->m->p.config;
	/* A tenant's sandboxes are open to all of its tokens: the name of one counts for nothing. */
	const char *name = a->who.token[0] == '@' ? "" : a->who.name;

	for (size_t i = 0; i < c->volume_count; i++) {
		const struct config_volume *v = &c->volumes[i];

		if (!config_volume_allows(v, a->who.token, name) ||
		    (a->what && !str_equal(a->what, v->name)))
			continue;
		json_array_append_new(a->all, json_pack("{s:s, s:s, s:b}", "name", v->name, "kind",
							"directory", "read_only", v->read_only));
	}
}

/* ---- errands ---- */

static void errand_end(struct volume_errand *a, json_t *value, const struct err *e)
{
	a->done(a->arg, value, e);
	json_decref(a->all);
	free(a->what);
	free(a);
}

static void refuse(void *arg)
{
	struct volume_errand *a = arg;

	errand_end(a, NULL, &a->err);
}

static void on_answer(void *arg, const struct ipc *reply, int fd)
{
	struct volume_errand *a = arg;

	close_fd(&fd);
	if (reply->err.kind)
		errand_end(a, NULL, &reply->err);
	else if (reply->type == IPC_VOLUME_IS)
		errand_end(a, volume_json(a->m, &reply->volume), NULL);
	else
		errand_end(a, json_object(), NULL);
}

static void ask(void *arg, const struct err *unwritten)
{
	struct volume_errand *a = arg;

	if (!unwritten) {
		broker_ask(a->m->p.broker, &a->msg, -1, on_answer, a);
		return;
	}
	audit_refused(a->m, unwritten, &a->err);
	refuse(a);
}

static void ask_audited(struct volume_errand *a, const char *target)
{
	struct audit_entry entry = {0};

	if (!a->m->p.audit) {
		ask(a, NULL);
		return;
	}
	snprintf(entry.what, sizeof(entry.what), "%s", a->audit);
	snprintf(entry.target, sizeof(entry.target), "%s", target);
	audit_caller(a->m, &a->who, &entry, ask, a);
}

/* A stopped sandbox could not start without it. */
static int check_unused(struct volume_errand *a, struct err *e)
{
	json_auto_t *uses = uses_json(a->m, &a->found);
	const json_t *first = json_array_get(uses, 0);

	if (!first)
		return 0;
	return err_set(e, ERR_CONFLICT, "volume %s belongs to sandbox %s%s; destroy it first",
		       a->found.name, json_string_value(json_object_get(first, "sandbox")),
		       json_array_size(uses) > 1 ? " and others" : "");
}

static void end_list(struct volume_errand *a)
{
	struct err e = {0};

	if (!a->what) {
		add_offered(a);
		errand_end(a, json_pack("{s:O}", "volumes", a->all), NULL);
		return;
	}
	if (a->msg.type == IPC_VOLUME_DELETE && a->found.id[0]) {
		a->msg.volume = a->found;
		if (check_unused(a, &e) < 0)
			errand_end(a, NULL, &e);
		else
			ask_audited(a, a->found.name);
		return;
	}
	if (!a->found.id[0])
		add_offered(a);
	if (json_array_size(a->all) == 0)
		err_set(&e, ERR_NOT_FOUND, "there is no such volume");
	else if (a->msg.type == IPC_VOLUME_DELETE)
		err_set(&e, ERR_DENIED, "volume %.63s is the operator's", a->what);
	errand_end(a, e.kind ? NULL : json_incref(json_array_get(a->all, 0)), e.kind ? &e : NULL);
}

static void on_listed(void *arg, const struct ipc *reply, int fd)
{
	struct volume_errand *a = arg;
	const struct ipc_disk_volume *v = &reply->volume;

	close_fd(&fd);
	if (reply->type != IPC_VOLUME_IS) {
		if (reply->err.kind)
			errand_end(a, NULL, &reply->err);
		else
			end_list(a);
		return;
	}
	if (!str_equal(v->owner, a->who.token) && !caller_sees_all(&a->who))
		return;
	/* The names of other owners count for nothing. */
	if (a->what && !str_equal(a->what, v->id) &&
	    !(str_equal(a->what, v->name) && str_equal(v->owner, a->who.token)))
		return;
	a->found = *v;
	json_array_append_new(a->all, volume_json(a->m, v));
}

static struct volume_errand *errand_new(struct manager *m, const struct caller *who,
					const char *what, json_done done, void *arg)
{
	struct volume_errand *a = must_alloc(calloc(1, sizeof(*a)));

	*a = (struct volume_errand){.m = m,
				    .who = *who,
				    .what = what ? str_copy(what) : NULL,
				    .all = json_array(),
				    .done = done,
				    .arg = arg};
	return a;
}

static void errand_list(struct volume_errand *a)
{
	struct ipc list = {.type = IPC_VOLUME_LIST};

	broker_ask(a->m->p.broker, &list, -1, on_listed, a);
}

void manager_volumes(struct manager *m, const struct caller *who, const char *what, json_done done,
		     void *arg)
{
	errand_list(errand_new(m, who, what, done, arg));
}

void manager_volume_delete(struct manager *m, const struct caller *who, const char *what,
			   json_done done, void *arg)
{
	struct volume_errand *a = errand_new(m, who, what, done, arg);

	a->audit = "volume.delete";
	a->msg.type = IPC_VOLUME_DELETE;
	errand_list(a);
}

static int put_name(char ret[IPC_NAME], const char *field, const char *text, struct err *e)
{
	return (size_t)snprintf(ret, IPC_NAME, "%s", text ? text : "") < IPC_NAME
		       ? 0
		       : err_field(e, ERR_INVALID, field, "%s: longer than %d bytes", field,
				   IPC_NAME - 1);
}

void manager_volume_make(struct manager *m, const struct caller *who, const struct volume_wish *w,
			 json_done done, void *arg)
{
	struct volume_errand *a = errand_new(m, who, NULL, done, arg);
	struct ipc_disk_volume *v = &a->msg.volume;

	a->audit = "volume.create";
	a->msg.type = IPC_VOLUME_MAKE;
	memcpy(v->owner, who->token, sizeof(v->owner));
	v->bytes = w->bytes;
	if (put_name(v->name, "name", w->name, &a->err) == 0 &&
	    put_name(v->from, "from", w->from, &a->err) == 0) {
		ask_audited(a, v->name);
		return;
	}
	a->task = (struct loop_task){.call = refuse, .arg = a};
	loop_task_add(m->p.loop, &a->task);
}

/*
 * Stored secrets, as the front sees them. A value that a client sends is sealed to the signer's exchange key at
 * once; nothing here can open it again, and no answer has one.
 */
#include "manager/manager_internal.h"

#include <sodium.h>
#include <sys/mman.h>

void secrets_news(struct manager *m, const struct ipc_signer *news)
{
	m->signer = *news;
}

static json_t *hosts_json(const struct secret_rule *r)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < r->host_count && i < SECRET_HOSTS; i++)
		json_array_append_new(all, json_string(r->hosts[i]));
	return all;
}

static json_t *secret_json(const struct ipc_secret *s)
{
	json_t *metadata = s->metadata[0] ? json_loads(s->metadata, 0, NULL) : NULL;
	json_t *uses = s->rule.uses_max ? json_integer((json_int_t)s->rule.uses_max) : json_null();

	return json_pack("{s:s*,s:s,s:o,s:s,s:o,s:b,s:I,s:o,s:o,s:o}", "id",
			 s->is_configured ? NULL : s->id, "name", s->rule.name, "hosts",
			 hosts_json(&s->rule), "header", s->rule.header, "uses", uses, "configured",
			 s->is_configured, "version", (json_int_t)s->version, "metadata",
			 metadata ? metadata : json_object(), "created_at",
			 s->created_ms ? time_json(s->created_ms) : json_null(), "updated_at",
			 s->updated_ms ? time_json(s->updated_ms) : json_null());
}

/* One request, audited first unless it only looks. */
struct secret_errand {
	struct manager *m;
	struct caller who;
	struct ipc msg;
	int fd;	     /* of a put: the sealed value, or -1 */
	json_t *all; /* of a list */
	bool wants_one;
	json_done done;
	void *arg;
	struct err err;
	struct loop_task task;
};

static void errand_end(struct secret_errand *a, json_t *value, const struct err *e)
{
	a->done(a->arg, value, e);
	close_fd(&a->fd);
	json_decref(a->all);
	free(a);
}

static void refuse_errand(void *arg)
{
	struct secret_errand *a = arg;

	errand_end(a, NULL, &a->err);
}

static void end_list(struct secret_errand *a)
{
	struct err e = {0};

	if (!a->wants_one)
		errand_end(a, json_pack("{s:O}", "secrets", a->all), NULL);
	else if (json_array_size(a->all) == 0)
		errand_end(a, NULL, (err_set(&e, ERR_NOT_FOUND, "there is no such secret"), &e));
	else
		errand_end(a, json_incref(json_array_get(a->all, 0)), NULL);
}

static void on_answer(void *arg, const struct ipc *reply, int fd)
{
	struct secret_errand *a = arg;

	close_fd(&fd);
	if (reply->err.kind)
		errand_end(a, NULL, &reply->err);
	else if (a->all && reply->type == IPC_SECRET_IS)
		json_array_append_new(a->all, secret_json(&reply->secret));
	else if (a->all)
		end_list(a);
	else if (reply->type == IPC_SECRET_IS)
		errand_end(a, secret_json(&reply->secret), NULL);
	else
		errand_end(a, json_object(), NULL);
}

static void ask(void *arg, const struct err *unwritten)
{
	struct secret_errand *a = arg;

	if (!unwritten) {
		broker_ask(a->m->p.broker, &a->msg, a->fd, on_answer, a);
		return;
	}
	audit_refused(a->m, unwritten, &a->err);
	refuse_errand(a);
}

static struct secret_errand *errand_new(struct manager *m, const struct caller *who, json_done done,
					void *arg)
{
	struct secret_errand *a = must_alloc(calloc(1, sizeof(*a)));

	*a = (struct secret_errand){.m = m, .who = *who, .fd = -1, .done = done, .arg = arg};
	memcpy(a->msg.secret.owner, who->token, sizeof(who->token));
	return a;
}

static void errand_run(struct secret_errand *a, const char *what)
{
	struct audit_entry entry = {0};

	if (a->err.kind) {
		a->task = (struct loop_task){.call = refuse_errand, .arg = a};
		loop_task_add(a->m->p.loop, &a->task);
		return;
	}
	if (!what || !a->m->p.audit) {
		ask(a, NULL);
		return;
	}
	snprintf(entry.what, sizeof(entry.what), "%s", what);
	snprintf(entry.target, sizeof(entry.target), "%s", a->msg.secret.rule.name);
	audit_caller(a->m, &a->who, &entry, ask, a);
}

static void put_name(struct secret_errand *a, const char *name)
{
	/* A name that cannot be one is answered like an unknown one. */
	if (strlen(name) < SECRET_NAME)
		snprintf(a->msg.secret.rule.name, SECRET_NAME, "%s", name);
	else
		err_set(&a->err, ERR_NOT_FOUND, "there is no such secret");
}

/* A memfd with the value, sealed. */
static int seal_value(const struct manager *m, const char *value, size_t len, struct err *e)
{
	unsigned char box[SECRET_VALUE + crypto_box_SEALBYTES];
	auto_close int fd = -1;

	if (!m->signer.can_store)
		return err_set(e, strstr(m->signer.why, "try again") ? ERR_SYSTEM : ERR_UNSUPPORTED,
			       "%s", m->signer.why);
	if (len == 0 || len > SECRET_VALUE)
		return err_field(e, ERR_INVALID, "value", "value: from 1 to %d bytes",
				 SECRET_VALUE);
	if (crypto_box_seal(box, (const unsigned char *)value, len, m->signer.exchange_key) < 0)
		return err_set(e, ERR_SYSTEM, "cannot seal the value");
	fd = memfd_create("secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || io_write_all(fd, box, len + crypto_box_SEALBYTES) < 0 || io_seal(fd) < 0)
		return err_sys(e, "cannot hand over the value");
	return take_fd(&fd);
}

void manager_secret_put(struct manager *m, const struct caller *who, const struct secret_put *put,
			json_done done, void *arg)
{
	struct secret_errand *a = errand_new(m, who, done, arg);

	a->msg.type = IPC_SECRET_PUT;
	a->msg.secret.rule = put->rule;
	a->msg.secret.is_new = put->is_new;
	snprintf(a->msg.secret.metadata, sizeof(a->msg.secret.metadata), "%s",
		 put->metadata ? put->metadata : "");
	if (put->value)
		a->fd = seal_value(m, put->value, put->value_len, &a->err);
	errand_run(a, "secret.put");
}

void manager_secret_delete(struct manager *m, const struct caller *who, const char *name,
			   json_done done, void *arg)
{
	struct secret_errand *a = errand_new(m, who, done, arg);

	a->msg.type = IPC_SECRET_DELETE;
	put_name(a, name);
	errand_run(a, "secret.delete");
}

void manager_secrets(struct manager *m, const struct caller *who, const char *name, json_done done,
		     void *arg)
{
	struct secret_errand *a = errand_new(m, who, done, arg);

	a->msg.type = IPC_SECRET_LIST;
	a->all = json_array();
	a->wants_one = name != NULL;
	if (name)
		put_name(a, name);
	errand_run(a, NULL);
}

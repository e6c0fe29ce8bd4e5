/*
 * The broker's end of the channel to role signer. The front's requests about secrets go on to it, with the owner
 * that the broker knows; values for a sandbox come back as a sealed memfd, which goes on to egress unread.
 */
#include "auth/tokens.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#define MOST_WAITING 4096
#define NO_MASTER "secrets cannot be stored: the settings have no keys.master"
#define NOT_NOW "the keys are not at hand just now; try again"

struct signer_request {
	struct signer_request *next;
	uint32_t serial, type;
	struct requester who;
	signer_done *done; /* of the broker's own questions; else NULL */
	void *arg;
	char box[IPC_ID]; /* IPC_SECRET_USE */
	struct ipc_secret_use
		*before; /* what the box used, in case that the front's wish is refused; or NULL */
	bool is_wish;
	char owner[IPC_ID], name[IPC_NAME];
};

static void request_free(struct signer_request *r)
{
	free(r->before);
	free(r);
}

bool signer_is_wanted(const struct daemon *d)
{
	const struct config_keys *k = &d->config->keys;

	return k->master.file[0] || k->master.argc || d->config->secret_count;
}

/* ---- requests ---- */

static void refuse(struct daemon *d, struct requester who, enum err_kind kind, const char *why)
{
	struct err e = {0};

	err_set(&e, kind, "%s", why);
	front_done(d, who, "", &e);
}

static bool is_running(struct daemon *d, struct requester who)
{
	struct signer_side *s = &d->signer;
	size_t waiting = 0;

	for (const struct signer_request *r = s->requests; r; r = r->next)
		waiting++;
	if (!signer_is_wanted(d))
		refuse(d, who, ERR_UNSUPPORTED, NO_MASTER);
	else if (s->channel.watch.fd < 0 || waiting >= MOST_WAITING)
		refuse(d, who, ERR_SYSTEM, NOT_NOW);
	else
		return true;
	return false;
}

static struct signer_request *ask(struct daemon *d, struct requester who, struct ipc *m, int fd)
{
	struct signer_request *r = must_alloc(calloc(1, sizeof(*r)));

	if (++d->signer.last_serial == 0)
		d->signer.last_serial = 1;
	*r = (struct signer_request){.next = d->signer.requests,
				     .serial = d->signer.last_serial,
				     .type = m->type,
				     .who = who};
	d->signer.requests = r;
	m->serial = r->serial;
	ipc_channel_send(&d->signer.channel, m, fd);
	return r;
}

void signer_ask(struct daemon *d, struct requester who, struct ipc *m)
{
	const struct secret_source *master = &d->config->keys.master;

	if (!master->file[0] && !master->argc)
		refuse(d, who, ERR_UNSUPPORTED,
		       "messages cannot be signed: the settings have no keys.master");
	else if (is_running(d, who))
		ask(d, who, m, -1);
}

void signer_question(struct daemon *d, struct ipc *m, int fd, signer_done *done, void *arg)
{
	struct ipc refusal = {.type = IPC_DONE};
	struct signer_request *r;

	if (!signer_is_wanted(d) || d->signer.channel.watch.fd < 0) {
		err_set(&refusal.err, ERR_SYSTEM, "%s",
			signer_is_wanted(d) ? NOT_NOW : "the settings have no keys.master");
		done(arg, &refusal);
		return;
	}
	r = ask(d, (struct requester){0}, m, fd);
	r->done = done;
	r->arg = arg;
}

void signer_pass_on(struct daemon *d, struct requester who, const struct ipc *m, int fd)
{
	struct signer_request *r;
	struct ipc copy = *m;

	if (m->type == IPC_SECRET_LIST && !signer_is_wanted(d)) {
		front_done(d, who, "", NULL);
		return;
	}
	if (!is_running(d, who))
		return;
	/* In a question this member is not used: it tells the owner's name. */
	if (m->type == IPC_SECRET_LIST)
		snprintf(copy.secret.metadata, sizeof(copy.secret.metadata), "%s",
			 daemon_owner_name(d, m->secret.owner));
	r = ask(d, who, &copy, fd);
	memcpy(r->owner, m->secret.owner, sizeof(r->owner));
	memcpy(r->name, m->secret.rule.name, sizeof(r->name));
}

static struct signer_request *ask_use(struct box *b, struct requester who)
{
	struct ipc m = {.type = IPC_SECRET_USE, .use = *b->use};
	struct signer_request *r;

	m.use.is_again = who.serial == 0;
	snprintf(m.use.owner_name, sizeof(m.use.owner_name), "%s",
		 daemon_owner_name(b->d, b->i.info.owner));
	r = ask(b->d, who, &m, -1);
	memcpy(r->box, b->i.info.id, sizeof(r->box));
	return r;
}

void signer_renew(struct box *b)
{
	if (b->use && b->d->signer.channel.watch.fd >= 0)
		ask_use(b, (struct requester){0});
}

static uint64_t used_before(const struct ipc_secret_use *old, const char *name)
{
	for (uint32_t i = 0; old && i < old->count; i++)
		if (str_equal(old->items[i].name, name))
			return old->items[i].used;
	return 0;
}

/* The owner is the sandbox's, and what was used is used, whatever the front says. Returns what it used before. */
static struct ipc_secret_use *take_use(struct box *b, const struct ipc_secret_use *wanted)
{
	struct ipc_secret_use *old = b->use;

	b->use = must_alloc(malloc(sizeof(*b->use)));
	*b->use = *wanted;
	for (uint32_t i = 0; i < b->use->count; i++)
		b->use->items[i].used = used_before(old, b->use->items[i].name);
	memcpy(b->use->owner, b->i.info.owner, sizeof(b->use->owner));
	return old;
}

/* The wish was refused: what was given before stays. */
static void put_back(struct box *b, struct ipc_secret_use *old)
{
	struct err e;

	free(b->use);
	b->use = old;
	if (!old)
		secrets_forget(b);
	else if (secrets_write_down(b, &e) < 0)
		log_error("what a sandbox uses is not up to date", "error", e.msg);
}

void signer_request_use(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = box_find_live(d, m->use.id);
	struct ipc_secret_use *old;
	struct signer_request *r;
	struct err e = {0};

	if (!b) {
		refuse(d, who, ERR_NOT_FOUND, "there is no such sandbox");
		return;
	}
	if (m->use.count && !is_running(d, who))
		return;
	old = take_use(b, &m->use);
	if (secrets_write_down(b, &e) < 0) {
		put_back(b, old);
		front_done(d, who, m->use.id, &e);
	} else if (m->use.count) {
		r = ask_use(b, who);
		r->is_wish = true;
		r->before = old;
	} else {
		free(old);
		box_give_secrets(b, -1);
		front_done(d, who, m->use.id, NULL);
	}
}

/* ---- answers ---- */

static struct signer_request *take_request(struct daemon *d, const struct ipc *m)
{
	struct signer_request **at = &d->signer.requests, *r;

	while (*at && (*at)->serial != m->serial)
		at = &(*at)->next;
	r = *at;
	/* One of a list; IPC_DONE is its end. */
	if (r && !(r->type == IPC_SECRET_LIST && m->type == IPC_SECRET_IS))
		*at = r->next;
	return r;
}

static void renew_users(struct daemon *d, const char *owner, const char *name)
{
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = d->boxes[i]; b; b = b->next)
			for (uint32_t k = 0; b->use && k < b->use->count; k++)
				if ((!owner || (str_equal(b->use->owner, owner) &&
						str_equal(b->use->items[k].name, name)))) {
					signer_renew(b);
					break;
				}
}

/* Values that the role no longer gives are taken from egress as well. */
static void give_rows(struct daemon *d, struct signer_request *r, const struct ipc *m, int fd)
{
	struct box *b = box_find_live(d, r->box);

	if (!b)
		return;
	if (r->is_wish && m->err.kind) {
		put_back(b, take_ptr(r->before));
		return;
	}
	if (m->err.kind)
		log_warn("a sandbox has no secrets", "id", r->box, "error", m->err.msg);
	box_give_secrets(b, m->err.kind ? -1 : fd);
	daemon_note(d, "secret.give", r->box, m->err.kind ? "fail" : "done", m->err.msg);
}

static void take_answer(struct daemon *d, const struct ipc *m, int fd)
{
	struct signer_request *r = take_request(d, m);
	struct ipc copy = *m;

	if (!r)
		return;
	if (r->done) {
		r->done(r->arg, m);
		request_free(r);
		return;
	}
	if (r->type == IPC_SECRET_USE)
		give_rows(d, r, m, fd);
	front_answer(d, r->who, &copy, -1);
	if (!m->err.kind && (r->type == IPC_SECRET_PUT || r->type == IPC_SECRET_DELETE))
		renew_users(d, r->owner, r->name);
	if (!(r->type == IPC_SECRET_LIST && m->type == IPC_SECRET_IS))
		request_free(r);
}

void signer_tell_front(struct daemon *d)
{
	struct ipc m = {.type = IPC_SIGNER, .signer = d->signer.hello};

	if (!m.signer.can_store && !m.signer.why[0])
		snprintf(m.signer.why, sizeof(m.signer.why), "%s",
			 signer_is_wanted(d) ? NOT_NOW : NO_MASTER);
	front_news(d, &m, -1);
}

static void on_message(void *arg, const struct ipc *m, int fd)
{
	struct daemon *d = arg;

	if (m->type == IPC_SIGNER) {
		d->signer.hello = m->signer;
		signer_tell_front(d);
		renew_users(d, NULL, NULL);
	} else if (m->type == IPC_PONG) {
		roles_answered(d, ROLE_SIGNER);
	} else if (m->type == IPC_DONE || m->type == IPC_SECRET_IS || m->type == IPC_MESSAGE_IS ||
		   m->type == IPC_AGENT_KEY_IS || m->type == IPC_DISK_KEY_IS) {
		take_answer(d, m, fd);
	} else {
		roles_end(d, ROLE_SIGNER, "it does not keep to the protocol");
	}
	close_fd(&fd);
}

static void on_broken(void *arg, int errnum)
{
	if (errnum == EBADMSG)
		roles_end(arg, ROLE_SIGNER, "it does not keep to the protocol");
}

void signer_attach(struct daemon *d, int sock)
{
	d->signer.channel = (struct ipc_channel){
		.loop = d->loop, .on_message = on_message, .on_broken = on_broken, .arg = d};
	ipc_channel_open(&d->signer.channel, sock);
	disk_keys_tell(d);
}

void signer_detach(struct daemon *d)
{
	struct signer_request *r;
	struct box *b;

	if (d->signer.channel.watch.fd < 0)
		return;
	ipc_channel_close(&d->signer.channel);
	d->signer.hello = (struct ipc_signer){.why = NOT_NOW};
	while ((r = d->signer.requests)) {
		d->signer.requests = r->next;
		b = r->is_wish ? box_find_live(d, r->box) : NULL;
		if (b)
			put_back(b, take_ptr(r->before));
		if (r->done) {
			struct ipc gone = {.type = IPC_DONE};

			err_set(&gone.err, ERR_SYSTEM, NOT_NOW);
			r->done(r->arg, &gone);
		} else {
			refuse(d, r->who, ERR_SYSTEM, NOT_NOW);
		}
		request_free(r);
	}
	signer_tell_front(d);
}

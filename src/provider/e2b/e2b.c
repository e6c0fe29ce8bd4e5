/*
 * The provider for sandboxes of an E2B-compatible service. The role `remote` speaks with the service; this
 * file is the broker's end of the channel to that role.
 */
#include "provider/provider.h"

#include "provider/record_0_1.h"
#include "wire/ipc_channel.h"

#include <assert.h>

static_assert(REMOTE_ID <= PROVIDER_BLOB, "the blob is the sandbox's name at the service");

/* A request that the role has not answered yet. */
struct remote_call {
	struct remote_call *next;
	uint32_t serial;
	enum ipc_type type;
	struct instance *i;
	provider_done done;
	void *arg;
};

struct e2b {
	struct provider_host *host;
	struct ipc_channel channel; /* not watched: the role does not run */
	uint32_t next_serial;
	struct remote_call *calls;
};

static struct e2b *e2b_of(const struct provider_host *h)
{
	return h->rows[PROVIDER_E2B];
}

/* The service's name of the sandbox; "" before the service has made it. */
static char *name_of(struct instance *i)
{
	return (char *)i->blob;
}

/* ---- requests and answers ---- */

static void describe_remote(struct ipc_booted *i, const struct config_e2b *s)
{
	/* No layer was observed from here, so none is claimed. */
	i->proven = 0;
	i->missing = LAYER_BIT(LAYER_COUNT) - 1;
	snprintf(i->seccomp, sizeof(i->seccomp), "none");
	snprintf(i->disk, sizeof(i->disk), "none");
	snprintf(i->note, sizeof(i->note),
		 "It runs on the service at %.100s, template %.60s: what separates it from others "
		 "there was not measured.",
		 s->api_url, s->template);
}

/* Frees the call. */
static void answer_call(struct remote_call *c, const struct ipc *m, int fd)
{
	struct provider_result r = {.fd = fd};
	struct instance *i = c->i;
	struct err e = m->err;

	if (!e.kind && c->type == IPC_REMOTE_CREATE) {
		if (!m->remote.name[0])
			err_set(&e, ERR_SYSTEM, "the role remote answers nonsense");
		memcpy(i->blob, m->remote.name, sizeof(m->remote.name));
		describe_remote(&i->info, &i->host->config->e2b);
	}
	if (!e.kind && fd < 0 && (c->type == IPC_REMOTE_CREATE || c->type == IPC_REMOTE_CONNECT))
		err_set(&e, ERR_SYSTEM, "the role remote gave no link");
	c->done(c->arg, &r, e.kind ? &e : NULL);
	free(c);
}

static void fail_call(struct remote_call *c, enum err_kind kind, const char *why)
{
	struct ipc m = {.type = IPC_REMOTE_DONE};

	err_set(&m.err, kind, "%s", why);
	answer_call(c, &m, -1);
}

static void ask_role(struct instance *i, enum ipc_type type, provider_done done, void *arg)
{
	struct e2b *r = e2b_of(i->host);
	struct remote_call *c = must_alloc(calloc(1, sizeof(*c)));
	struct ipc m = {.type = type};

	if (++r->next_serial == 0)
		r->next_serial = 1;
	*c = (struct remote_call){r->calls, r->next_serial, type, i, done, arg};
	m.serial = c->serial;
	memcpy(m.remote.id, i->info.id, sizeof(m.remote.id));
	memcpy(m.remote.name, name_of(i), sizeof(m.remote.name));
	if (!r->channel.watch.active) {
		fail_call(c, ERR_SYSTEM,
			  "the role remote, which speaks with the E2B service, does not run");
		return;
	}
	r->calls = c;
	ipc_channel_send(&r->channel, &m, -1);
}

/* Takes the first that matches out of the list; serial 0, i NULL: any. */
static struct remote_call *take_call(struct e2b *r, uint32_t serial, const struct instance *i)
{
	struct remote_call **at = &r->calls, *c;

	while (*at && ((serial && (*at)->serial != serial) || (i && (*at)->i != i)))
		at = &(*at)->next;
	c = *at;
	if (c)
		*at = c->next;
	return c;
}

/* ---- the row ---- */

static void e2b_probe(struct provider_host *h, provider_done done, void *arg)
{
	struct err e = {0};

	if (!h->config->e2b.api_url[0])
		err_field(&e, ERR_UNSUPPORTED, "provider",
			  "provider: e2b: the daemon's configuration names no service (section "
			  "e2b)");
	done(arg, NULL, e.kind ? &e : NULL);
}

static void e2b_boot(struct instance *i, const struct ipc_boot *b, provider_done done, void *arg)
{
	i->info.root = b->root;
	i->own = i;
	ask_role(i, IPC_REMOTE_CREATE, done, arg);
}

static int e2b_import_0_1(struct instance *i, const struct record_0_1 *r, struct err *e)
{
	memcpy(i->blob, r->remote, sizeof(r->remote));
	return 0;
}

/* Only the service knows whether it exists; the first link will tell. */
static void e2b_adopt(struct instance *i, provider_done done, void *arg)
{
	struct err e = {0};

	if (!i->host->config->e2b.api_url[0])
		err_set(&e, ERR_SYSTEM, "no E2B service is configured");
	else if (!remote_name_is_valid(name_of(i)))
		err_set(&e, ERR_CONFLICT, "its record is none of ours");
	else
		i->own = i;
	done(arg, NULL, e.kind ? &e : NULL);
}

static void e2b_connect(struct instance *i, provider_done done, void *arg)
{
	ask_role(i, IPC_REMOTE_CONNECT, done, arg);
}

static void e2b_pause(struct instance *i, provider_done done, void *arg)
{
	ask_role(i, IPC_REMOTE_PAUSE, done, arg);
}

static void e2b_resume(struct instance *i, provider_done done, void *arg)
{
	ask_role(i, IPC_REMOTE_RESUME, done, arg);
}

/* The guest's own numbers are the only ones. */
static void e2b_stats(struct instance *i, provider_done done, void *arg)
{
	done(arg, &(struct provider_result){.fd = -1, .stats.pids_peak = -1}, NULL);
}

static void e2b_destroy(struct instance *i, provider_done done, void *arg)
{
	struct remote_call *c;

	while ((c = take_call(e2b_of(i->host), 0, i)))
		fail_call(c, ERR_CONFLICT, "the sandbox is gone");
	/* A sandbox that was never booted or adopted does not exist. */
	if (i->own && name_of(i)[0])
		ask_role(i, IPC_REMOTE_DESTROY, done, arg);
	else
		done(arg, NULL, NULL);
}

/* ---- the role ---- */

/* The service no longer has this sandbox. */
static void take_gone(struct e2b *r, const struct ipc_remote *at)
{
	struct instance *i = r->host->find(r->host, at->id);

	if (i && i->row == &provider_e2b && str_equal(name_of(i), at->name))
		r->host->on_ended(i, false, "the E2B service has it no more");
}

/* A role that has ended is reaped elsewhere; one that breaks the protocol is killed. */
static void on_role_broken(void *arg, int errnum)
{
	struct e2b *r = arg;

	if (errnum == EBADMSG)
		r->host->end_role(r->host, "it does not keep to the protocol");
}

static void on_role_message(void *arg, const struct ipc *m, int fd)
{
	struct e2b *r = arg;
	struct remote_call *c = NULL;

	if (m->type == IPC_REMOTE_GONE)
		take_gone(r, &m->remote);
	else if (m->type == IPC_PONG)
		r->host->role_answered(r->host);
	else if (m->type == IPC_REMOTE_DONE && m->serial)
		c = take_call(r, m->serial, NULL);
	else
		on_role_broken(r, EBADMSG);
	if (c)
		answer_call(c, m, fd);
	close_fd(&fd);
}

static void e2b_role_started(struct provider_host *h, int sock)
{
	ipc_channel_open(&e2b_of(h)->channel, sock);
}

static void e2b_role_ended(struct provider_host *h)
{
	struct e2b *r = e2b_of(h);
	struct remote_call *c;

	ipc_channel_close(&r->channel);
	while ((c = take_call(r, 0, NULL)))
		fail_call(c, ERR_SYSTEM,
			  "the role remote, which speaks with the E2B service, ended");
}

static void e2b_role_ping(struct provider_host *h)
{
	struct ipc m = {.type = IPC_PING};

	ipc_channel_send(&e2b_of(h)->channel, &m, -1);
}

static void e2b_start(struct provider_host *h)
{
	struct e2b *r = must_alloc(calloc(1, sizeof(*r)));

	r->host = h;
	r->channel = (struct ipc_channel){.loop = h->loop,
					  .on_message = on_role_message,
					  .on_broken = on_role_broken,
					  .arg = r,
					  .watch.fd = -1};
	h->rows[PROVIDER_E2B] = r;
}

const struct provider_row provider_e2b = {
	.name = "e2b",
	.can = CAN_PAUSE | CAN_PORTS,
	.start = e2b_start,
	.role_started = e2b_role_started,
	.role_ended = e2b_role_ended,
	.role_ping = e2b_role_ping,
	.probe = e2b_probe,
	.boot = e2b_boot,
	.import_0_1 = e2b_import_0_1,
	.adopt = e2b_adopt,
	.connect = e2b_connect,
	.pause = e2b_pause,
	.resume = e2b_resume,
	.stats = e2b_stats,
	.destroy = e2b_destroy,
};

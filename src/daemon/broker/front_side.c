/* The broker's end of the channel to the front: its requests, their answers, and news. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include "policy/document.h"
#include "policy/policy.h"

#include <sys/mman.h>

#define MOST_WAITING 20000 /* a front that leaves so many messages unread is stuck */
#define SLOW 256

/* ---- sending ---- */

static void send_front(struct daemon *d, const struct ipc *m, int fd)
{
	struct ipc_channel *c = &d->front.channel;

	if (c->waiting >= MOST_WAITING)
		roles_end(d, ROLE_FRONT, "it does not read");
	ipc_channel_send(c, m, fd);
}

void front_news(struct daemon *d, struct ipc *m, int fd)
{
	m->serial = 0;
	/* A front that was not told everything yet hears of this when it is. */
	if (d->front.was_told)
		send_front(d, m, fd);
}

void front_news_early(struct daemon *d, struct ipc *m, int fd)
{
	m->serial = 0;
	send_front(d, m, fd);
}

void front_answer(struct daemon *d, struct requester who, struct ipc *m, int fd)
{
	m->serial = who.serial;
	if (who.serial && who.epoch == d->front.epoch)
		send_front(d, m, fd);
}

void front_done(struct daemon *d, struct requester who, const char *id, const struct err *e)
{
	struct ipc m = {.type = IPC_DONE};

	if (e)
		m.err = *e;
	strncpy(m.id, id, sizeof(m.id) - 1);
	front_answer(d, who, &m, -1);
}

bool front_is_slow(const struct daemon *d)
{
	return !d->front.was_told || d->front.channel.waiting >= SLOW;
}

/* ---- receiving ---- */

static void request_quit(struct daemon *d, struct requester who, const struct ipc *m)
{
	if (d->stopping)
		daemon_front_is_done(d);
	else
		roles_end(d, ROLE_FRONT, "it quit");
}

static void request_pong(struct daemon *d, struct requester who, const struct ipc *m)
{
	roles_answered(d, ROLE_FRONT);
}

static broker_request *const requests[] = {
	[IPC_BOOT] = box_request_boot,
	[IPC_CONNECT] = box_request_connect,
	[IPC_DESTROY] = box_request_destroy,
	[IPC_PAUSE] = box_request_pause,
	[IPC_RESUME] = box_request_pause,
	[IPC_UPDATE] = box_request_update,
	[IPC_CLAIM] = box_request_update,
	[IPC_STATS] = box_request_stats,
	[IPC_SNAPSHOT] = snapshot_request_make,
	[IPC_SNAPSHOT_LIST] = snapshot_request_list,
	[IPC_SNAPSHOT_DELETE] = snapshot_request_delete,
	[IPC_SNAPSHOT_READ] = snapshot_request_read,
	[IPC_SNAPSHOT_WRITE] = snapshot_request_write,
	[IPC_SNAPSHOT_KEEP] = snapshot_request_keep,
	[IPC_ROW_PUT] = row_request_put,
	[IPC_ROW_GET] = row_request_get,
	[IPC_NETWORK] = network_request,
	[IPC_NET_ANSWER] = network_request_answer,
	[IPC_NET_FLUSH] = egress_request_flush,
	[IPC_PUBLISH] = publish_request,
	[IPC_DISK_READ] = disk_request_read,
	[IPC_DISK_DONE] = disk_request_done,
	[IPC_IMAGE] = images_request,
	[IPC_IMAGES_LOOK] = images_request_look,
	[IPC_QUIT] = request_quit,
	[IPC_SECRET_USE] = signer_request_use,
	[IPC_PONG] = request_pong,
	[IPC_AGENT_PUT] = agent_request_put,
	[IPC_AGENT_DELETE] = agent_request_delete,
	[IPC_MESSAGE_SIGN] = message_request_sign,
	[IPC_MESSAGE_VERIFY] = message_request_verify,
	[IPC_AGENT_KEY] = message_request_key,
	[IPC_VOLUME_MAKE] = volume_request_make,
	[IPC_VOLUME_LIST] = volume_request_list,
	[IPC_VOLUME_DELETE] = volume_request_delete,
};

static bool dispatch_request(struct daemon *d, const struct ipc *m)
{
	broker_request *run = m->type < ARRAY_LEN(requests) ? requests[m->type] : NULL;

	/* Only these two need no answer. */
	bool has_none = m->type == IPC_QUIT || m->type == IPC_PONG;

	if (!run || (m->serial == 0) != has_none)
		return false;
	run(d, (struct requester){d->front.epoch, m->serial}, m);
	return true;
}

static void on_broken(void *arg, int errnum)
{
	/* A front that has ended is reaped elsewhere. */
	if (errnum == EBADMSG)
		roles_end(arg, ROLE_FRONT, "it does not keep to the protocol");
}

static void on_message(void *arg, const struct ipc *m, int fd)
{
	struct daemon *d = arg;

	/* Only the value of a secret comes with an fd, for role signer; and rules of a network. */
	d->front.request_fd = fd;
	if (m->type >= IPC_SECRET_PUT && m->type <= IPC_SECRET_DELETE && m->serial)
		signer_pass_on(d, (struct requester){d->front.epoch, m->serial}, m, fd);
	else if (!dispatch_request(d, m))
		on_broken(d, EBADMSG);
	d->front.request_fd = -1;
	close_fd(&fd);
}

/* ---- a new front ---- */

void front_send_config(struct daemon *d)
{
	struct ipc m = {.type = IPC_CONFIG};
	struct err e = {0};
	auto_close int fd = config_write(d->config, &e);

	if (fd < 0)
		log_error("cannot hand on the configuration", "error", e.msg);
	else
		send_front(d, &m, fd);
}

static void leave_out(const char *file, const struct err *e)
{
	log_error("agent type left out", "file", file, "error", e->msg);
}

/* The front reads no file, so it gets what the operator's have in them. */
void front_send_agent_types(struct daemon *d)
{
	struct ipc m = {.type = IPC_AGENT_TYPES};
	auto_free char *shipped = policy_find_shipped_directory("agents");
	const char *const dirs[] = {shipped, d->config->agent_types};
	json_auto_t *all = documents_read(dirs, ARRAY_LEN(dirs), leave_out);
	auto_free char *text = json_dumps(all, JSON_COMPACT);
	auto_close int fd = memfd_create("agent-types", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (!text || fd < 0 || io_write_all(fd, text, strlen(text)) < 0 || io_seal(fd) < 0)
		log_error("cannot hand on the agent types");
	else
		send_front(d, &m, fd);
}

static void send_listeners(struct daemon *d)
{
	for (size_t i = 0; i < d->listener_count; i++) {
		struct ipc m = {.type = IPC_LISTENER};

		if (!d->listeners[i].is_unix && !config_has_tls(d->config))
			send_front(d, &m, d->listeners[i].fd);
	}
}

static void send_boxes(struct daemon *d)
{
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = d->boxes[i], *next; b; b = next) {
			struct ipc foreign = {.type = IPC_FOREIGN};

			next = b->next;
			memcpy(foreign.id, b->i.info.id, sizeof(foreign.id));
			if (b->state == BOX_FOREIGN)
				front_news(d, &foreign, -1);
			if (b->state != BOX_LIVE)
				continue;
			/* The client that waited for it was lost with the earlier front. */
			if (b->i.info.transient)
				box_destroy(b, (struct requester){0});
			else
				box_announce(b);
		}
}

void front_attach(struct daemon *d, int sock)
{
	struct front_side *f = &d->front;
	struct ipc ready = {.type = IPC_READY};

	f->epoch++;
	f->channel = (struct ipc_channel){
		.loop = d->loop, .on_message = on_message, .on_broken = on_broken, .arg = d};
	ipc_channel_open(&f->channel, sock);
	front_send_config(d);
	front_send_agent_types(d);
	front_send_tokens(d);
	images_tell_all(d);
	send_listeners(d);
	f->was_told = true;
	signer_tell_front(d);
	agents_tell_front(d);
	snapshots_tell_stopped(d);
	send_boxes(d);
	front_news(d, &ready, -1);
}

void front_detach(struct daemon *d)
{
	struct front_side *f = &d->front;

	if (f->channel.watch.fd < 0)
		return;
	ipc_channel_close(&f->channel);
	snapshots_drop_written(d);
	f->was_told = false;
	/* From now on answers to this front are dropped. */
	f->epoch++;
}

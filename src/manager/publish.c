/* Asks the broker for the listening sockets of a sandbox's published ports. */
#include "manager/manager_internal.h"

#include "net/publish.h"

struct publish_job {
	struct sandbox *s;
	publish_done done;
	void *arg;
};

const struct list *sandbox_publish(const struct sandbox *s)
{
	return &s->o.publish;
}

static void on_published(void *arg, const struct ipc *reply, int fd)
{
	struct publish_job *j = arg;
	struct err e = reply->err;

	if (!e.kind && fd < 0)
		err_set(&e, ERR_SYSTEM, "publish: the broker gave no socket");
	j->done(j->arg, j->s, fd, e.kind ? &e : NULL);
	sandbox_release(j->s);
	free(j);
}

int sandbox_publish_port(struct sandbox *s, const char *text, publish_done done, void *arg,
			 struct err *e)
{
	struct ipc m = {.type = IPC_PUBLISH};
	struct publish_job *j;
	struct net_publish p;

	if (net_publish_parse(text, &p, e) < 0)
		return -1;
	memcpy(m.publish.id, s->id, sizeof(m.publish.id));
	memcpy(m.publish.address, p.address, sizeof(m.publish.address));
	m.publish.port = p.port;
	m.publish.inner = p.inner;
	j = must_alloc(calloc(1, sizeof(*j)));
	*j = (struct publish_job){sandbox_hold(s), done, arg};
	broker_ask(s->m->p.broker, &m, -1, on_published, j);
	return 0;
}

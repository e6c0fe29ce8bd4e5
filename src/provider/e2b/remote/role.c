/*
 * Theory of operation
 *
 * One request of the broker's is one job: a row of calls to the service, each begun when the one
 * before was answered. A job that made a sandbox and then fails ends that sandbox before it answers.
 * A box is a sandbox of the service that runs: it may have a link, and its time there is renewed
 * as long as it is in our table. Nobody renews the time of what we have forgotten, so that ends by
 * itself.
 */
#include "provider/e2b/remote/role.h"

#include "base/log.h"
#include "provider/e2b/remote/link.h"
#include "wire/ipc_channel.h"

#define KILL_TRIES 4
#define AGAIN_MS 300
#define MOST_JOBS 4096

struct role {
	struct loop *loop;
	struct service *service;
	struct ipc_channel broker;
	struct box *boxes;
	size_t job_count;
	int status;
};

struct box {
	struct role *role;
	struct box *next, **back;
	char id[IPC_ID];
	struct service_sandbox at;
	struct remote_link *link;
	struct job *job; /* that waits for the link, or NULL */
	struct loop_timer keep;
	struct http_call *keeping;
};

struct job {
	struct role *role;
	uint32_t type, serial;
	struct ipc_remote at;
	struct err err; /* why it fails, once that is known */
	struct http_call *call;
	unsigned tries;
	struct loop_timer again;
	bool is_late; /* looks for a sandbox whose making was not answered */
};

/* ---- answers ---- */

static void job_end(struct job *j, const struct err *e, int fd)
{
	struct ipc m = {.type = IPC_REMOTE_DONE, .serial = j->serial, .remote = j->at};

	if (e)
		m.err = *e;
	ipc_channel_send(&j->role->broker, &m, fd);
	http_stop(j->call);
	loop_timer_stop(j->role->loop, &j->again);
	j->role->job_count--;
	free(j);
}

/* The service refused what was asked of a sandbox, since it has none of this name. */
static void say_gone(struct role *r, const struct ipc_remote *at, const char *what,
		     const struct buf *body)
{
	struct ipc m = {.type = IPC_REMOTE_GONE, .remote = *at};

	service_refusal(what, 404, buf_head(body), body->len, &m.err);
	ipc_channel_send(&r->broker, &m, -1);
}

/* ---- boxes ---- */

static struct box *box_find(struct role *r, const char *id)
{
	struct box *b = r->boxes;

	while (b && !str_equal(b->id, id))
		b = b->next;
	return b;
}

static void box_free(struct box *b)
{
	struct err e = {0};
	struct job *j;

	if (!b)
		return;
	j = take_ptr(b->job);
	loop_timer_stop(b->role->loop, &b->keep);
	http_stop(b->keeping);
	remote_link_close(b->link);
	*b->back = b->next;
	if (b->next)
		b->next->back = b->back;
	free(b);
	if (!j)
		return;
	err_set(&e, ERR_CONFLICT, "the sandbox was ended meanwhile");
	job_end(j, &e, -1);
}

static void on_kept(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct box *b = arg;
	uint64_t next = b->role->service->settings.timeout_ms / 3;
	struct ipc_remote at = {0};

	b->keeping = NULL;
	if (status == 404) {
		memcpy(at.id, b->id, sizeof(at.id));
		memcpy(at.name, b->at.name, sizeof(at.name));
		say_gone(b->role, &at, "keep the sandbox", body);
		box_free(b);
		return;
	}
	if (status / 100 != 2) {
		log_warn("cannot keep a sandbox", "id", b->id, "error",
			 status ? "it was refused" : e->msg);
		next = next < 5000 ? next : 5000;
	}
	loop_timer_set(b->role->loop, &b->keep, next);
}

static void keep(void *arg)
{
	struct box *b = arg;

	b->keeping = service_ask(b->role->service, SERVICE_KEEP, b->at.name, on_kept, b);
}

static struct box *box_new(struct role *r, const char *id, const struct service_sandbox *at)
{
	struct box *b = must_alloc(calloc(1, sizeof(*b)));

	b->role = r;
	memcpy(b->id, id, sizeof(b->id));
	b->at = *at;
	b->keep = (struct loop_timer){.call = keep, .arg = b};
	b->next = r->boxes;
	b->back = &r->boxes;
	if (b->next)
		b->next->back = &b->next;
	r->boxes = b;
	loop_timer_set(r->loop, &b->keep, r->service->settings.timeout_ms / 3);
	return b;
}

/* ---- ending a sandbox ---- */

static void kill_there(struct job *j);

static void kill_again(void *arg)
{
	kill_there(arg);
}

static void on_killed(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct job *j = arg;
	struct err refused = {0};

	j->call = NULL;
	if (status / 100 == 2 || status == 404) {
		job_end(j, j->err.kind ? &j->err : NULL, -1);
		return;
	}
	if (++j->tries < KILL_TRIES && (status == 0 || status == 429 || status >= 500)) {
		j->again = (struct loop_timer){.call = kill_again, .arg = j};
		loop_timer_set(j->role->loop, &j->again, AGAIN_MS << j->tries);
		return;
	}
	if (status)
		service_refusal("end the sandbox", status, buf_head(body), body->len, &refused);
	else
		refused = *e;
	log_warn("a sandbox is left to its time-out", "id", j->at.id, "name", j->at.name, "error",
		 refused.msg);
	job_end(j, j->err.kind ? &j->err : &refused, -1);
}

static void kill_there(struct job *j)
{
	j->call = service_ask(j->role->service, SERVICE_KILL, j->at.name, on_killed, j);
}

/* Was it made all the same? Then it has our id. */
static void on_listed(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct job *j = arg;
	struct err ignored = {0};

	j->call = NULL;
	if (status == 200 &&
	    service_list_parse(buf_head(body), body->len, j->at.id, j->at.name, &ignored) > 0)
		kill_there(j);
	else
		job_end(j, &j->err, -1);
}

/* Whatever the job made there goes first. */
static void job_fail(struct job *j, const struct err *e)
{
	struct box *b = j->type == IPC_REMOTE_CREATE ? box_find(j->role, j->at.id) : NULL;

	j->err = *e;
	if (b) {
		b->job = NULL;
		box_free(b);
	}
	if (j->type != IPC_REMOTE_CREATE) {
		job_end(j, e, -1);
	} else if (j->at.name[0]) {
		kill_there(j);
	} else if (j->is_late) {
		j->call = service_ask(j->role->service, SERVICE_LIST, j->at.id, on_listed, j);
	} else {
		job_end(j, e, -1);
	}
}

/* An answer that is none, or a refusal, is the job's end. */
static bool job_goes_on(struct job *j, const char *what, long status, const struct buf *body,
			const struct err *e)
{
	struct err refused = {0};

	j->call = NULL;
	if (status / 100 == 2)
		return true;
	if (status == 0) {
		job_fail(j, e);
	} else {
		service_refusal(what, status, buf_head(body), body->len, &refused);
		job_fail(j, &refused);
	}
	return false;
}

/* ---- the link ---- */

static void on_up(void *arg, int fd)
{
	struct box *b = arg;
	struct job *j = take_ptr(b->job);

	if (j)
		job_end(j, NULL, fd);
	close(fd);
}

static void on_link_end(void *arg, const struct err *e)
{
	struct box *b = arg;
	struct job *j = take_ptr(b->job);

	b->link = NULL;
	/* The front sees that it ended, and asks for another. */
	log_info("link to a sandbox ended", "id", b->id, "why", e->msg);
	if (j)
		job_fail(j, e);
}

static const struct remote_link_ops link_ops = {.on_up = on_up, .on_end = on_link_end};

static void open_link(struct box *b, struct job *j)
{
	struct job *older = take_ptr(b->job);
	struct err e = {0};

	if (older) {
		err_set(&e, ERR_CONFLICT, "another link was asked for meanwhile");
		job_end(older, &e, -1);
	}
	remote_link_close(b->link);
	b->job = j;
	b->link = remote_link_open(b->role->loop, b->role->service, &b->at, b->id, &link_ops, b);
}

/* ---- create ---- */

static void on_uploaded(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct job *j = arg;
	struct box *b = box_find(j->role, j->at.id);
	struct err gone = {0};

	if (!job_goes_on(j, "take our program", status, body, e))
		return;
	if (b) {
		open_link(b, j);
		return;
	}
	err_set(&gone, ERR_CONFLICT, "the sandbox was ended meanwhile");
	job_fail(j, &gone);
}

static void on_created(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct job *j = arg;
	struct service_sandbox at;
	struct err bad = {0};

	/* It may have been made though we heard nothing, or nothing that makes sense. */
	j->is_late = status == 0 || status / 100 == 2 || status >= 500;
	if (!job_goes_on(j, "make a sandbox", status, body, e))
		return;
	if (service_sandbox_parse(buf_head(body), body->len, &at, &bad) < 0) {
		job_fail(j, &bad);
		return;
	}
	memcpy(j->at.name, at.name, sizeof(j->at.name));
	box_new(j->role, j->at.id, &at);
	j->call = service_upload(j->role->service, &at, j->at.id, on_uploaded, j);
}

static void begin_create(struct job *j)
{
	struct err e = {0};

	if (box_find(j->role, j->at.id)) {
		err_set(&e, ERR_CONFLICT, "there is such a sandbox already");
		job_end(j, &e, -1);
		return;
	}
	j->at.name[0] = '\0';
	j->call = service_create(j->role->service, j->at.id, on_created, j);
}

/* ---- connect, resume ---- */

static void on_connected(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct job *j = arg;
	struct role *r = j->role;
	struct service_sandbox at;
	struct err bad = {0};
	struct box *b = box_find(r, j->at.id);

	if (status == 404) {
		say_gone(r, &j->at, "reach the sandbox", body);
		if (b && b->job != j)
			box_free(b);
	}
	if (!job_goes_on(j, "reach the sandbox", status, body, e))
		return;
	if (service_sandbox_parse(buf_head(body), body->len, &at, &bad) < 0 ||
	    !str_equal(at.name, j->at.name)) {
		if (!bad.kind)
			err_set(&bad, ERR_SYSTEM, "the service answers for another sandbox");
		job_fail(j, &bad);
		return;
	}
	if (!b)
		b = box_new(r, j->at.id, &at);
	if (at.token[0])
		memcpy(b->at.token, at.token, sizeof(b->at.token));
	if (j->type == IPC_REMOTE_RESUME)
		job_end(j, NULL, -1);
	else
		open_link(b, j);
}

static void begin_connect(struct job *j)
{
	j->call = service_ask(j->role->service, SERVICE_CONNECT, j->at.name, on_connected, j);
}

/* ---- pause, destroy ---- */

static void on_paused(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct job *j = arg;

	/* 409: it is paused already. */
	if (status == 409 || job_goes_on(j, "pause the sandbox", status, body, e)) {
		j->call = NULL;
		box_free(box_find(j->role, j->at.id));
		job_end(j, NULL, -1);
	}
}

static void begin_pause(struct job *j)
{
	j->call = service_ask(j->role->service, SERVICE_PAUSE, j->at.name, on_paused, j);
}

static void begin_destroy(struct job *j)
{
	box_free(box_find(j->role, j->at.id));
	kill_there(j);
}

/* ---- the broker ---- */

#define FIRST IPC_REMOTE_CREATE

static void (*const begins[])(struct job *j) = {
	[IPC_REMOTE_CREATE - FIRST] = begin_create,   [IPC_REMOTE_CONNECT - FIRST] = begin_connect,
	[IPC_REMOTE_DESTROY - FIRST] = begin_destroy, [IPC_REMOTE_PAUSE - FIRST] = begin_pause,
	[IPC_REMOTE_RESUME - FIRST] = begin_connect,
};

static bool take_message(struct role *r, const struct ipc *m)
{
	struct job *j;

	if (m->type < FIRST || m->type - FIRST >= ARRAY_LEN(begins) || !m->serial ||
	    r->job_count >= MOST_JOBS || (m->type != IPC_REMOTE_CREATE && !m->remote.name[0]))
		return false;
	j = must_alloc(calloc(1, sizeof(*j)));
	*j = (struct job){.role = r, .type = m->type, .serial = m->serial, .at = m->remote};
	r->job_count++;
	begins[m->type - FIRST](j);
	return true;
}

static void on_broken(void *arg, int errnum)
{
	struct role *r = arg;

	r->status = errnum ? 125 : 0;
	loop_stop(r->loop);
}

static void on_message(void *arg, const struct ipc *m, int fd)
{
	close_fd(&fd);
	if (!take_message(arg, m))
		on_broken(arg, EBADMSG);
}

int remote_role_run(struct loop *l, int broker, struct service *s)
{
	struct role r = {.loop = l, .service = s};

	r.broker = (struct ipc_channel){
		.loop = l, .on_message = on_message, .on_broken = on_broken, .arg = &r};
	ipc_channel_open(&r.broker, broker);
	loop_run(l);
	return r.status;
}

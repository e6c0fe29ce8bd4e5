/*
 * Theory of operation
 *
 * One request of the broker is one job: a sequence of calls to the service, each begun when the call
 * before it was answered. A job that made a sandbox and then fails ends that sandbox before it answers.
 * A remote_sandbox is a running sandbox of the service. It may have a link, and its time at the service is
 * renewed as long as it is in the role's table. A sandbox that is not in the table times out by itself.
 */
#include "provider/e2b/remote/remote_internal.h"

#include "base/log.h"
#include "wire/ipc_channel.h"

#define KILL_TRIES 4
#define AGAIN_MS 300
#define MOST_JOBS 4096

struct remote_role {
	struct loop *loop;
	struct service *service;
	struct ipc_channel broker;
	struct remote_sandbox *sandboxes;
	size_t job_count;
	int status;
};

struct remote_sandbox {
	struct remote_role *role;
	struct remote_sandbox *next, **back;
	char id[IPC_ID];
	struct service_sandbox at;
	struct remote_link *link;
	struct remote_job *job; /* that waits for the link, or NULL */
	struct loop_timer keep;
	struct http_call *keeping;
};

struct remote_job {
	struct remote_role *role;
	uint32_t type, serial;
	struct ipc_remote at;
	struct err err; /* why it fails, once that is known */
	struct http_call *call;
	unsigned tries;
	struct loop_timer again;
	bool is_late; /* the service may have made a sandbox without our hearing of it */
};

/* ---- answers ---- */

static void job_end(struct remote_job *j, const struct err *e, int fd)
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

/* Tells the broker that the service has no sandbox of this name. */
static void say_gone(struct remote_role *r, const struct ipc_remote *at, const char *what,
		     const struct buf *body)
{
	struct ipc m = {.type = IPC_REMOTE_GONE, .remote = *at};

	service_refusal(what, 404, buf_head(body), body->len, &m.err);
	ipc_channel_send(&r->broker, &m, -1);
}

/* ---- sandboxes ---- */

static struct remote_sandbox *remote_sandbox_find(struct remote_role *r, const char *id)
{
	struct remote_sandbox *s = r->sandboxes;

	while (s && !str_equal(s->id, id))
		s = s->next;
	return s;
}

static void remote_sandbox_free(struct remote_sandbox *s)
{
	struct err e = {0};
	struct remote_job *j;

	if (!s)
		return;
	j = take_ptr(s->job);
	loop_timer_stop(s->role->loop, &s->keep);
	http_stop(s->keeping);
	remote_link_close(s->link);
	*s->back = s->next;
	if (s->next)
		s->next->back = s->back;
	free(s);
	if (!j)
		return;
	err_set(&e, ERR_CONFLICT, "the sandbox was ended meanwhile");
	job_end(j, &e, -1);
}

static void on_kept(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_sandbox *s = arg;
	uint64_t next = s->role->service->settings.timeout_ms / 3;
	struct ipc_remote at = {0};

	s->keeping = NULL;
	if (status == 404) {
		memcpy(at.id, s->id, sizeof(at.id));
		memcpy(at.name, s->at.name, sizeof(at.name));
		say_gone(s->role, &at, "keep the sandbox", body);
		remote_sandbox_free(s);
		return;
	}
	if (status / 100 != 2) {
		log_warn("cannot keep a sandbox", "id", s->id, "error",
			 status ? "it was refused" : e->msg);
		next = next < 5000 ? next : 5000;
	}
	loop_timer_set(s->role->loop, &s->keep, next);
}

static void renew_time(void *arg)
{
	struct remote_sandbox *s = arg;

	s->keeping = service_ask(s->role->service, SERVICE_KEEP, s->at.name, on_kept, s);
}

static struct remote_sandbox *remote_sandbox_new(struct remote_role *r, const char *id,
						 const struct service_sandbox *at)
{
	struct remote_sandbox *s = must_alloc(calloc(1, sizeof(*s)));

	s->role = r;
	memcpy(s->id, id, sizeof(s->id));
	s->at = *at;
	s->keep = (struct loop_timer){.call = renew_time, .arg = s};
	s->next = r->sandboxes;
	s->back = &r->sandboxes;
	if (s->next)
		s->next->back = &s->next;
	r->sandboxes = s;
	loop_timer_set(r->loop, &s->keep, r->service->settings.timeout_ms / 3);
	return s;
}

/* ---- ending a sandbox ---- */

static void kill_there(void *job);

static void on_killed(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_job *j = arg;
	struct err failed = {0};

	j->call = NULL;
	if (status / 100 == 2 || status == 404) {
		job_end(j, j->err.kind ? &j->err : NULL, -1);
		return;
	}
	if (++j->tries < KILL_TRIES && (status == 0 || status == 429 || status >= 500)) {
		j->again = (struct loop_timer){.call = kill_there, .arg = j};
		loop_timer_set(j->role->loop, &j->again, AGAIN_MS << j->tries);
		return;
	}
	failed = service_failure("end the sandbox", status, body, e);
	log_warn("a sandbox is left to its time-out", "id", j->at.id, "name", j->at.name, "error",
		 failed.msg);
	job_end(j, j->err.kind ? &j->err : &failed, -1);
}

static void kill_there(void *job)
{
	struct remote_job *j = job;

	j->call = service_ask(j->role->service, SERVICE_KILL, j->at.name, on_killed, j);
}

/* If the sandbox was made all the same, its metadata has our id. */
static void on_listed(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_job *j = arg;
	struct err ignored = {0};

	j->call = NULL;
	if (status == 200 &&
	    service_list_parse(buf_head(body), body->len, j->at.id, j->at.name, &ignored) > 0)
		kill_there(j);
	else
		job_end(j, &j->err, -1);
}

/* Ends the sandbox that the job made, then answers. */
static void job_fail(struct remote_job *j, const struct err *e)
{
	struct remote_sandbox *s =
		j->type == IPC_REMOTE_CREATE ? remote_sandbox_find(j->role, j->at.id) : NULL;

	j->err = *e;
	if (s) {
		s->job = NULL;
		remote_sandbox_free(s);
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

/* A failed request or a refusal ends the job. */
static bool job_goes_on(struct remote_job *j, const char *what, long status, const struct buf *body,
			const struct err *e)
{
	struct err failed = {0};

	j->call = NULL;
	if (status / 100 == 2)
		return true;
	failed = service_failure(what, status, body, e);
	job_fail(j, &failed);
	return false;
}

/* ---- the link ---- */

static void on_up(void *arg, int fd)
{
	struct remote_sandbox *s = arg;
	struct remote_job *j = take_ptr(s->job);

	if (j)
		job_end(j, NULL, fd);
	close(fd);
}

static void on_link_end(void *arg, const struct err *e)
{
	struct remote_sandbox *s = arg;
	struct remote_job *j = take_ptr(s->job);

	s->link = NULL;
	/* The front notices, and asks for another link. */
	log_info("link to a sandbox ended", "id", s->id, "why", e->msg);
	if (j)
		job_fail(j, e);
}

static const struct remote_link_ops link_ops = {.on_up = on_up, .on_end = on_link_end};

static void open_link(struct remote_sandbox *s, struct remote_job *j)
{
	struct remote_job *older = take_ptr(s->job);
	struct err e = {0};

	if (older) {
		err_set(&e, ERR_CONFLICT, "another link was asked for meanwhile");
		job_end(older, &e, -1);
	}
	remote_link_close(s->link);
	s->job = j;
	s->link = remote_link_open(s->role->loop, s->role->service, &s->at, s->id, &link_ops, s);
}

/* ---- create ---- */

static void on_uploaded(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_job *j = arg;
	struct remote_sandbox *s = remote_sandbox_find(j->role, j->at.id);
	struct err gone = {0};

	if (!job_goes_on(j, "take our program", status, body, e))
		return;
	if (s) {
		open_link(s, j);
		return;
	}
	err_set(&gone, ERR_CONFLICT, "the sandbox was ended meanwhile");
	job_fail(j, &gone);
}

static void on_created(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_job *j = arg;
	struct service_sandbox at;
	struct err bad = {0};

	/* The sandbox may have been made although the answer is missing or makes no sense. */
	j->is_late = status == 0 || status / 100 == 2 || status >= 500;
	if (!job_goes_on(j, "make a sandbox", status, body, e))
		return;
	if (service_sandbox_parse(buf_head(body), body->len, &at, &bad) < 0) {
		job_fail(j, &bad);
		return;
	}
	memcpy(j->at.name, at.name, sizeof(j->at.name));
	remote_sandbox_new(j->role, j->at.id, &at);
	j->call = service_upload(j->role->service, &at, j->at.id, on_uploaded, j);
}

static void begin_create(struct remote_job *j)
{
	struct err e = {0};

	if (remote_sandbox_find(j->role, j->at.id)) {
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
	struct remote_job *j = arg;
	struct remote_role *r = j->role;
	struct service_sandbox at;
	struct err bad = {0};
	struct remote_sandbox *s = remote_sandbox_find(r, j->at.id);

	if (status == 404) {
		say_gone(r, &j->at, "reach the sandbox", body);
		if (s && s->job != j)
			remote_sandbox_free(s);
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
	if (!s)
		s = remote_sandbox_new(r, j->at.id, &at);
	if (at.token[0])
		memcpy(s->at.token, at.token, sizeof(s->at.token));
	if (j->type == IPC_REMOTE_RESUME)
		job_end(j, NULL, -1);
	else
		open_link(s, j);
}

/* ---- pause, destroy ---- */

static void on_paused(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_job *j = arg;

	/* 409: it is paused already. */
	if (status == 409 || job_goes_on(j, "pause the sandbox", status, body, e)) {
		j->call = NULL;
		remote_sandbox_free(remote_sandbox_find(j->role, j->at.id));
		job_end(j, NULL, -1);
	}
}

/* Connect, resume and pause: one request, whose answer is the rest of the job. */
static void begin_ask(struct remote_job *j)
{
	bool pauses = j->type == IPC_REMOTE_PAUSE;

	j->call = service_ask(j->role->service, pauses ? SERVICE_PAUSE : SERVICE_CONNECT,
			      j->at.name, pauses ? on_paused : on_connected, j);
}

static void begin_destroy(struct remote_job *j)
{
	remote_sandbox_free(remote_sandbox_find(j->role, j->at.id));
	kill_there(j);
}

/* ---- the broker ---- */

#define FIRST IPC_REMOTE_CREATE

static void (*const begins[])(struct remote_job *j) = {
	[IPC_REMOTE_CREATE - FIRST] = begin_create,   [IPC_REMOTE_CONNECT - FIRST] = begin_ask,
	[IPC_REMOTE_DESTROY - FIRST] = begin_destroy, [IPC_REMOTE_PAUSE - FIRST] = begin_ask,
	[IPC_REMOTE_RESUME - FIRST] = begin_ask,
};

static bool take_message(struct remote_role *r, const struct ipc *m)
{
	struct ipc pong = {.type = IPC_PONG};
	struct remote_job *j;

	if (m->type == IPC_PING) {
		ipc_channel_send(&r->broker, &pong, -1);
		return true;
	}
	if (m->type < FIRST || m->type - FIRST >= ARRAY_LEN(begins) || !m->serial ||
	    r->job_count >= MOST_JOBS || (m->type != IPC_REMOTE_CREATE && !m->remote.name[0]))
		return false;
	j = must_alloc(calloc(1, sizeof(*j)));
	*j = (struct remote_job){.role = r, .type = m->type, .serial = m->serial, .at = m->remote};
	r->job_count++;
	begins[m->type - FIRST](j);
	return true;
}

static void on_broken(void *arg, int errnum)
{
	struct remote_role *r = arg;

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
	struct remote_role r = {.loop = l, .service = s};

	r.broker = (struct ipc_channel){
		.loop = l, .on_message = on_message, .on_broken = on_broken, .arg = &r};
	ipc_channel_open(&r.broker, broker);
	loop_run(l);
	return r.status;
}

/*
 * Snapshots, which the broker stores. Internal ones have names that clients cannot use: ".stop" holds
 * the files of a stopped sandbox, ".fork" those of a fork that is being made.
 */
#include "manager/manager_internal.h"

#include "wire/guest.h"
#include "wire/pack.h"

#define STOP_NAME ".stop" /* the broker knows it, too (SNAPSHOT_OF_STOP) */
#define FORK_NAME ".fork"
#define FORK_MAX 100

static json_t *excluded_json(const char *words)
{
	json_t *all = json_array();
	char copy[256], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		json_array_append_new(all, json_string(w));
	return all;
}

static json_t *snapshot_json(const struct ipc_snapshot *s)
{
	json_t *o = json_pack("{s:s,s:s,s:s,s:I,s:o,s:o,s:s,s:s}", "id", s->id, "name", s->name,
			      "digest", s->digest, "size_bytes", (json_int_t)s->size_bytes,
			      "excluded", excluded_json(s->excluded), "created_at",
			      time_json(s->created_ms), "sandbox", s->sandbox, "kind",
			      s->kind == IPC_SNAPSHOT_DISK ? "disk" : "tar");

	if (s->kind == IPC_SNAPSHOT_DISK) {
		json_object_set_new(o, "shared", json_boolean(s->is_shared));
		json_object_set_new(o, "frozen_ms", json_integer(s->frozen_ms));
	}
	if (s->image[0])
		json_object_set_new(o, "image", json_string(s->image));
	return o;
}

static int check_name(const char *name, struct err *e)
{
	if (strlen(name) >= IPC_NAME || name[0] == '.')
		return err_field(e, ERR_INVALID, "name", "name: at most %d bytes, no leading dot",
				 IPC_NAME - 1);
	for (const char *c = name, *end = name + strlen(name); c < end;) {
		size_t n = utf8_sequence(c, (size_t)(end - c));

		if (!n || (unsigned char)*c < ' ' || *c == 127)
			return err_field(e, ERR_INVALID, "name",
					 "name: has control characters, or is not UTF-8");
		c += n;
	}
	return 0;
}

/* ---- taking one ---- */

static void thawed(struct sandbox *s)
{
	if (s->state == STATE_RUNNING)
		link_suspend(s->link, false);
}

static void take_snapshot(struct job *j, const char *name, broker_done done)
{
	struct sandbox *s = j->s;
	struct ipc m = {.type = IPC_SNAPSHOT};

	link_suspend(s->link, true);
	id_make(m.snapshot.id);
	memcpy(m.snapshot.sandbox, s->id, sizeof(m.snapshot.sandbox));
	memcpy(m.snapshot.owner, s->owner.token, sizeof(m.snapshot.owner));
	snprintf(m.snapshot.name, sizeof(m.snapshot.name), "%s", name);
	broker_ask(s->m->p.broker, &m, -1, done, j);
}

static void on_taken(void *arg, const struct ipc *reply, int fd)
{
	struct job *j = arg;

	close_fd(&fd);
	thawed(j->s);
	if (reply->err.kind != ERR_NONE) {
		job_end(j, &reply->err);
		return;
	}
	j->snapshot = reply->snapshot;
	j->value = snapshot_json(&reply->snapshot);
	if (reply->snapshot.name[0] != '.')
		event_add(j->s, "snapshot.created",
			  json_pack("{s:s}", "snapshot", reply->snapshot.id));
	job_end(j, NULL);
}

void snapshot_begin(struct job *j)
{
	take_snapshot(j, j->snapshot.name, on_taken);
}

static void submit_snapshot(struct sandbox *s, const struct caller *who, const char *name,
			    json_done done, void *arg)
{
	struct job *j = job_new_for(s, JOB_SNAPSHOT, who);

	j->done_json = done;
	j->arg = arg;
	snprintf(j->snapshot.name, sizeof(j->snapshot.name), "%s", name);
	job_submit(j);
}

void sandbox_snapshot(struct sandbox *s, const struct caller *who, const char *name, json_done done,
		      void *arg)
{
	struct err e;

	if (check_name(name ? name : "", &e) < 0)
		answer_json_later(s->m, done, arg, &e);
	else
		submit_snapshot(s, who, name ? name : "", done, arg);
}

void sandbox_snapshot_aside(struct sandbox *s, const struct caller *who, json_done done, void *arg)
{
	submit_snapshot(s, who, FORK_NAME, done, arg);
}

void snapshot_drop(struct manager *m, const char *id, const char *owner)
{
	struct ipc msg = {.type = IPC_SNAPSHOT_DELETE};

	snprintf(msg.snapshot.id, sizeof(msg.snapshot.id), "%s", id);
	snprintf(msg.snapshot.owner, sizeof(msg.snapshot.owner), "%s", owner);
	broker_ask(m->p.broker, &msg, -1, NULL, NULL);
}

/* ---- stopping: the files are kept, everything else ends ---- */

static void on_stopped(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	if (!e) {
		timers_stop(s);
		sandbox_follow_expiry(s);
		sandbox_move(s, STATE_STOPPED, BY_CLIENT);
		/* Only for readers of the row: with kept in it, recovery finds the sandbox stopped. */
		sandbox_save_back(s);
	} else if (!broker_is_lost(s->m->p.broker)) {
		/* Otherwise it may be destroyed already, and the snapshot all that is left of it. */
		snapshot_drop(s->m, s->kept, s->owner.token);
		s->kept[0] = '\0';
		sandbox_save_back(s);
	}
	job_end(j, e);
}

static void on_kept(void *arg, const struct ipc *reply, int fd)
{
	struct job *j = arg;
	struct sandbox *s = j->s;
	struct err e = reply->err;
	bool is_taken = e.kind == ERR_NONE;

	close_fd(&fd);
	/* Stored before the only other copy of the files is destroyed. */
	if (is_taken && job_is_current(j)) {
		memcpy(s->kept, reply->snapshot.id, sizeof(s->kept));
		if (sandbox_save(s, &e) < 0)
			s->kept[0] = '\0';
	}
	if (!job_is_current(j) || e.kind != ERR_NONE) {
		thawed(s);
		if (is_taken)
			snapshot_drop(s->m, reply->snapshot.id, s->owner.token);
		job_end(j, e.kind == ERR_NONE ? NULL : &e);
		return;
	}
	sandbox_close_link(s);
	job_ask_for(j, IPC_DESTROY, on_stopped);
}

void stop_begin(struct job *j)
{
	take_snapshot(j, STOP_NAME, on_kept);
}

/* ---- bringing files back ---- */

struct restore {
	struct job *j;
	int tar;
	bool closed;
	void (*then)(struct job *j);
	struct call *call;
};

static void restore_end(struct restore *r, const struct err *e)
{
	struct job *j = r->j;
	void (*then)(struct job * j) = r->then;

	close_fd(&r->tar);
	free(r);
	if (!job_is_current(j))
		job_end(j, NULL);
	else if (e)
		boot_failed(j, e);
	else
		then(j);
}

static void on_restored(void *arg, const struct err *e)
{
	struct restore *r = arg;

	r->call = NULL;
	restore_end(r, e);
}

static void send_tar(void *arg)
{
	static char bytes[GUEST_MAX_PAYLOAD];
	struct restore *r = arg;
	struct err e;

	while (!r->closed && call_room(r->call) >= sizeof(bytes)) {
		ssize_t n = read(r->tar, bytes, sizeof(bytes));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err_sys(&e, "cannot read the snapshot");
			call_drop(r->call);
			restore_end(r, &e);
			return;
		}
		if (n == 0) {
			r->closed = true;
			call_close(r->call);
		} else {
			call_send(r->call, bytes, (size_t)n);
		}
	}
}

static void on_restore_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	if (type == G_OK)
		send_tar(arg);
}

static const struct call_ops restore_ops = {
	.on_frame = on_restore_frame, .on_end = on_restored, .on_room = send_tar};

static void on_tar_opened(void *arg, const struct ipc *reply, int fd)
{
	struct restore *r = arg;
	struct sandbox *s = r->j->s;
	struct buf b = {0};
	struct err e;

	r->tar = fd;
	if (reply->err.kind != ERR_NONE || fd < 0 || !job_is_current(r->j) || !s->link) {
		err_set(&e, ERR_SYSTEM, "the snapshot cannot be read");
		restore_end(r, reply->err.kind != ERR_NONE ? &reply->err : &e);
		return;
	}
	pack_str(&b, "/");
	pack_u8(&b, GUEST_TAR_UPPER | GUEST_TAR_STRICT);
	r->call = link_call(s->link, G_TAR_IN, buf_head(&b), b.len, &restore_ops, r);
	buf_done(&b);
}

void restore(struct job *j, const char *snapshot, void (*then)(struct job *j))
{
	struct restore *r = must_alloc(calloc(1, sizeof(*r)));
	struct ipc m = {.type = IPC_SNAPSHOT_READ};

	*r = (struct restore){.j = j, .tar = -1, .then = then};
	if (!snapshot) {
		broker_ask_id(j->s->m->p.broker, IPC_DISK_READ, j->s->id, on_tar_opened, r);
		return;
	}
	snprintf(m.snapshot.id, sizeof(m.snapshot.id), "%s", snapshot);
	memcpy(m.snapshot.owner, j->s->owner.token, sizeof(m.snapshot.owner));
	broker_ask(j->s->m->p.broker, &m, -1, on_tar_opened, r);
}

/* ---- forks ---- */

struct fork {
	struct sandbox *s;
	struct caller who;
	size_t count, open;
	json_t *all;
	char snapshot[IPC_ID];
	json_done done;
	void *arg;
};

struct fork_one {
	struct fork *f;
	size_t place;
};

static json_t *error_json(const struct err *e)
{
	return json_pack("{s:{s:s,s:s}}", "error", "kind", err_kind_name(e->kind), "message",
			 e->msg);
}

static void fork_end(struct fork *f, const struct err *e)
{
	f->done(f->arg, e ? NULL : json_pack("{s:o}", "sandboxes", f->all), e);
	sandbox_release(f->s);
	free(f);
}

static void on_forked(void *arg, struct sandbox *s, const struct err *e)
{
	struct fork_one *one = arg;
	struct fork *f = one->f;
	json_t *value = s ? json_pack("{s:o}", "sandbox", sandbox_describe(s)) : error_json(e);

	json_array_set_new(f->all, one->place, value);
	free(one);
	if (--f->open > 0)
		return;
	snapshot_drop(f->s->m, f->snapshot, f->s->owner.token);
	fork_end(f, NULL);
}

static void on_fork_taken(void *arg, json_t *value, const struct err *e)
{
	struct fork *f = arg;

	if (e) {
		fork_end(f, e);
		return;
	}
	snprintf(f->snapshot, sizeof(f->snapshot), "%s",
		 json_string_value(json_object_get(value, "id")));
	json_decref(value);
	f->open = f->count;
	f->all = json_array();
	for (size_t i = 0; i < f->count; i++) {
		struct fork_one *one = must_alloc(calloc(1, sizeof(*one)));
		struct create_options o;

		*one = (struct fork_one){f, i};
		create_options_inherit(&o, f->s);
		memcpy(o.snapshot, f->snapshot, sizeof(o.snapshot));
		json_array_append_new(f->all, json_null());
		manager_create_for(f->s->m, &f->s->owner, &f->who, &o,
				   (struct create_done){on_forked, one});
	}
}

void sandbox_fork(struct sandbox *s, const struct caller *who, size_t count, json_done done,
		  void *arg)
{
	struct fork *f;
	struct err e = {0};

	if (count == 0 || count > FORK_MAX)
		err_field(&e, ERR_INVALID, "count", "count: from 1 to %d", FORK_MAX);
	else
		(void)provider_check(s->o.spec.provider, CAN_FORK, &e);
	if (e.kind) {
		answer_json_later(s->m, done, arg, &e);
		return;
	}
	f = must_alloc(calloc(1, sizeof(*f)));
	*f = (struct fork){
		.s = sandbox_hold(s), .who = *who, .count = count, .done = done, .arg = arg};
	submit_snapshot(s, who, FORK_NAME, on_fork_taken, f);
}

/* ---- those that exist ---- */

struct snapshot_listing {
	struct manager *m;
	struct caller who;
	bool of_all;
	json_t *all;
	json_done done;
	void *arg;
};

static void on_listed(void *arg, const struct ipc *reply, int fd)
{
	struct snapshot_listing *l = arg;
	const struct ipc_snapshot *s = &reply->snapshot;

	close_fd(&fd);
	if (reply->type == IPC_SNAPSHOT_IS) {
		if (s->name[0] != '.' && (l->of_all || strcmp(s->owner, l->who.token) == 0))
			json_array_append_new(l->all, snapshot_json(s));
		return;
	}
	if (reply->err.kind == ERR_NONE) {
		l->done(l->arg, json_pack("{s:o}", "snapshots", l->all), NULL);
	} else {
		json_decref(l->all);
		l->done(l->arg, NULL, &reply->err);
	}
	free(l);
}

static void list_snapshots(const struct snapshot_listing *what)
{
	struct snapshot_listing *l = must_alloc(calloc(1, sizeof(*l)));
	struct ipc msg = {.type = IPC_SNAPSHOT_LIST};

	*l = *what;
	l->all = json_array();
	broker_ask(l->m->p.broker, &msg, -1, on_listed, l);
}

void manager_snapshots(struct manager *m, const struct caller *who, json_done done, void *arg)
{
	list_snapshots(&(struct snapshot_listing){
		.m = m, .who = *who, .of_all = caller_sees_all(who), .done = done, .arg = arg});
}

void manager_own_snapshots(struct manager *m, const struct caller *who, json_done done, void *arg)
{
	list_snapshots(&(struct snapshot_listing){.m = m, .who = *who, .done = done, .arg = arg});
}

/* Files of forks, and of stops that were not finished, are left over. */
static void on_swept(void *arg, const struct ipc *reply, int fd)
{
	struct manager *m = arg;
	const struct ipc_snapshot *s = &reply->snapshot;
	struct sandbox *of;

	close_fd(&fd);
	if (reply->type != IPC_SNAPSHOT_IS) {
		if (rows_are_lost(m))
			recover_step(m);
		return;
	}
	of = manager_lookup(m, s->sandbox);
	if (strcmp(s->name, STOP_NAME) == 0 && !of) {
		recover_stopped(m, s);
	} else if (strcmp(s->name, FORK_NAME) == 0 ||
		   (strcmp(s->name, STOP_NAME) == 0 && strcmp(of->kept, s->id) != 0)) {
		manager_log(m, "snapshot %s is left over; removed", s->id);
		snapshot_drop(m, s->id, s->owner);
	}
}

void snapshots_sweep(struct manager *m)
{
	struct ipc msg = {.type = IPC_SNAPSHOT_LIST};

	/* With a new database the stopped sandboxes have to be known before any client is served. */
	m->recovering += rows_are_lost(m);
	broker_ask(m->p.broker, &msg, -1, on_swept, m);
}

/* ---- reading, writing, deleting ---- */

/* One request to the broker about a snapshot, audited first. */
struct errand {
	struct manager *m;
	struct caller who;
	const char *audit; /* the audit entry, or NULL */
	struct ipc msg;
	json_done done_json; /* or: */
	fd_done done_fd;
	void *arg;
	struct err err;
	struct loop_task task;
};

static void errand_end(struct errand *a, const struct ipc *reply, int fd, const struct err *e)
{
	if (a->done_fd) {
		a->done_fd(a->arg, fd, e ? NULL : &reply->snapshot, e);
	} else {
		close_fd(&fd);
		a->done_json(a->arg,
			     e				      ? NULL
			     : reply->type == IPC_SNAPSHOT_IS ? snapshot_json(&reply->snapshot)
							      : json_object(),
			     e);
	}
	free(a);
}

static void errand_refuse(void *arg)
{
	struct errand *a = arg;

	errand_end(a, NULL, -1, &a->err);
}

static void on_errand_done(void *arg, const struct ipc *reply, int fd)
{
	errand_end(arg, reply, fd, reply->err.kind == ERR_NONE ? NULL : &reply->err);
}

static void errand_ask(void *arg, const struct err *unwritten)
{
	struct errand *a = arg;

	if (!unwritten) {
		broker_ask(a->m->p.broker, &a->msg, -1, on_errand_done, a);
		return;
	}
	audit_refused(a->m, unwritten, &a->err);
	errand_refuse(a);
}

static void errand_audit(struct errand *a)
{
	struct audit_entry entry = {0};

	if (!a->m->p.audit || !a->audit) {
		errand_ask(a, NULL);
		return;
	}
	snprintf(entry.what, sizeof(entry.what), "%s", a->audit);
	snprintf(entry.target, sizeof(entry.target), "%s", a->msg.snapshot.id);
	audit_caller(a->m, &a->who, &entry, errand_ask, a);
}

static void on_owner(void *arg, const struct ipc *reply, int fd)
{
	struct errand *a = arg;
	struct ipc_snapshot *s = &a->msg.snapshot;

	close_fd(&fd);
	if (reply->type != IPC_SNAPSHOT_IS)
		errand_audit(a);
	else if (str_equal(reply->snapshot.id, s->id))
		memcpy(s->owner, reply->snapshot.owner, sizeof(s->owner));
}

/* what has all but manager and caller. If its err is set, the request is refused with it. */
static void errand_run(struct manager *m, const struct caller *who, const struct errand *what)
{
	struct ipc list = {.type = IPC_SNAPSHOT_LIST};
	struct errand *a = must_alloc(calloc(1, sizeof(*a)));
	bool exists = what->msg.type == IPC_SNAPSHOT_READ || what->msg.type == IPC_SNAPSHOT_DELETE;

	*a = *what;
	a->m = m;
	a->who = *who;
	/* A new snapshot belongs to the caller, also if the caller sees all. */
	memcpy(a->msg.snapshot.owner, who->token, sizeof(who->token));
	/* A malformed id is answered like an unknown one (rule 28). */
	if (!a->err.kind && !ipc_id_is_valid(a->msg.snapshot.id))
		err_set(&a->err, ERR_NOT_FOUND, "there is no such snapshot");
	if (a->err.kind) {
		a->task = (struct loop_task){.call = errand_refuse, .arg = a};
		loop_task_add(m->p.loop, &a->task);
	} else if (exists && caller_sees_all(who)) {
		/* The broker finds a snapshot by its owner, so the owner is looked up first. */
		broker_ask(m->p.broker, &list, -1, on_owner, a);
	} else {
		errand_audit(a);
	}
}

/* An id that is too long becomes "", which is malformed. */
static struct ipc_snapshot snapshot_of_id(const char *id)
{
	struct ipc_snapshot s = {0};

	if (strlen(id) < sizeof(s.id))
		memcpy(s.id, id, strlen(id));
	return s;
}

void manager_snapshot_delete(struct manager *m, const struct caller *who, const char *id,
			     json_done done, void *arg)
{
	struct errand a = {.audit = "snapshot.delete", .done_json = done, .arg = arg};

	a.msg = (struct ipc){.type = IPC_SNAPSHOT_DELETE, .snapshot = snapshot_of_id(id)};
	errand_run(m, who, &a);
}

void manager_snapshot_read(struct manager *m, const struct caller *who, const char *id,
			   fd_done done, void *arg)
{
	struct errand a = {.audit = "snapshot.read", .done_fd = done, .arg = arg};

	a.msg = (struct ipc){.type = IPC_SNAPSHOT_READ, .snapshot = snapshot_of_id(id)};
	errand_run(m, who, &a);
}

void manager_snapshot_write(struct manager *m, const struct caller *who, const char *name,
			    fd_done done, void *arg)
{
	struct errand a = {.audit = "snapshot.import", .done_fd = done, .arg = arg};

	a.msg.type = IPC_SNAPSHOT_WRITE;
	id_make(a.msg.snapshot.id);
	if (check_name(name, &a.err) == 0)
		snprintf(a.msg.snapshot.name, sizeof(a.msg.snapshot.name), "%s", name);
	errand_run(m, who, &a);
}

void manager_snapshot_abandon(struct manager *m, const struct ipc_snapshot *info)
{
	snapshot_drop(m, info->id, info->owner);
}

void manager_snapshot_keep(struct manager *m, const struct caller *who,
			   const struct ipc_snapshot *info, json_done done, void *arg)
{
	struct errand a = {.done_json = done, .arg = arg};

	a.msg = (struct ipc){.type = IPC_SNAPSHOT_KEEP, .snapshot = *info};
	errand_run(m, who, &a);
}

/*
 * Creating, starting and reconnecting sandboxes: the request is checked, a pool member is claimed or a
 * sandbox booted, its guest configured, and its files restored.
 */
#include "manager/manager_internal.h"

#include "auth/trust.h"
#include "wire/guest.h"
#include "wire/pack.h"

#define CONNECT_TRIES 4 /* of a new sandbox */
#define RECONNECT_TRIES 2
#define ENV_BYTES (48u << 10) /* leaves room in the frame for the other settings */

/* The settings of a guest must fit one frame; a malformed frame would break the link. */
static int check_words(const struct create_options *o, const struct image_record *image,
		       struct err *e)
{
	const char *workdir = o->spec.workdir ? o->spec.workdir : "";
	size_t bytes = 0, count = 0;

	if (image && image->workdir && !o->spec.workdir)
		workdir = image->workdir;
	for (size_t i = 0; image && i < image->env.count; i++, count++)
		bytes += strlen(image->env.items[i]) + sizeof(uint32_t);
	for (size_t i = 0; i < o->env.count; i++, count++)
		bytes += strlen(o->env.items[i]) + sizeof(uint32_t);
	if (count > GUEST_MAX_ARGS)
		return err_field(e, ERR_INVALID, "env", "env: more than %d variables",
				 GUEST_MAX_ARGS);
	if (bytes > ENV_BYTES)
		return err_field(e, ERR_INVALID, "env",
				 "env: more than %u KB; put what is long "
				 "into a file",
				 ENV_BYTES >> 10);
	if (strlen(workdir) >= GUEST_MAX_PATH)
		return err_field(e, ERR_INVALID, "workdir", "workdir: has more than %d bytes",
				 GUEST_MAX_PATH - 1);
	return 0;
}

int create_check(struct manager *m, const struct caller *who, const struct create_options *o,
		 struct err *e)
{
	if (m->draining || !m->ready) {
		err_set(e, ERR_SYSTEM,
			m->draining ? "the daemon is shutting down" : "the daemon is starting");
		e->errnum = EBUSY;
		return -1;
	}
	if (spec_wants_root(&o->spec) && !who->root && who->token[0])
		return err_field(e, ERR_DENIED, "user",
				 "user: root inside is a right of the token (cloche token create "
				 "--root), and this one has not got it");
	/* First what no retry can mend. Sandboxes without a TTL end with their client, or are warm hosts. */
	if (check_words(o, manager_image_record(m, o->image_id), e) < 0 ||
	    limits_check(m, who, &o->spec.limits, e) < 0 ||
	    network_check(m, who, &o->spec, e) < 0 ||
	    (o->ttl_ms && manager_times_check(m, &o->ttl_ms, NULL, e) < 0))
		return -1;
	if (!options_are_warm_host(o) && quota_check(m, who, &o->spec.limits, e) < 0)
		return -1;
	return admission_check(m, who, e);
}

/* ---- asking for one ---- */

/* Unique, so that lists keep the order of the requests. */
static uint64_t creation_time(struct manager *m)
{
	uint64_t now = unix_ms();

	/* If the clock was set back, the new time counts. */
	if (now <= m->last_created_ms && m->last_created_ms - now < 1000)
		now = m->last_created_ms + 1;
	m->last_created_ms = now;
	return now;
}

void manager_create_for(struct manager *m, const struct caller *owner, const struct caller *who,
			struct create_options *o, struct create_done done)
{
	struct sandbox *s;
	struct job *j;
	struct err e;

	if (images_ask_origin(m, owner, who, o, done))
		return;
	if (manager_choose_image(m, owner, o, &e) < 0 || create_check(m, owner, o, &e) < 0) {
		create_options_done(o);
		answer_later(m, done.call, done.arg, &e);
		return;
	}
	s = pool_take(m, o);
	if (!s)
		s = sandbox_new(m, NULL);
	create_options_done(&s->o);
	s->o = *o;
	*o = (struct create_options){0};
	s->owner = *owner;
	s->o.wants_vm |= trust_level(owner->trust)->wants_vm;
	s->created_ms = creation_time(m);
	sandbox_add(s);
	if (!options_are_warm_host(&s->o))
		quota_add(s);
	j = job_new_for(s, JOB_CREATE, who);
	j->done = done.call;
	j->arg = done.arg;
	event_add(s, "sandbox.creating", NULL);
	job_submit(j);
}

void manager_create(struct manager *m, const struct caller *who, struct create_options *o,
		    sandbox_done done, void *arg)
{
	manager_create_for(m, who, who, o, (struct create_done){done, arg});
}

void fill_boot(const struct sandbox *s, struct ipc_boot *b)
{
	const struct sandbox_spec *spec = &s->o.spec;

	*b = (struct ipc_boot){.limits = spec->limits,
			       .level = (uint8_t)spec->level,
			       .root = (uint8_t)spec->root,
			       .provider = (uint8_t)spec->provider,
			       .user_root = spec_wants_root(spec),
			       .disk_type = (uint8_t)spec->disk_type,
			       .transient = s->o.transient,
			       .tmpfs = spec->tmpfs_mounts,
			       .volume_count = s->o.volume_count,
			       .required_layers = spec->required_layers};
	memcpy(b->warm_host, s->o.warm_host, sizeof(b->warm_host));
	memcpy(b->id, s->id, sizeof(b->id));
	memcpy(b->owner, s->owner.token, sizeof(b->owner));
	memcpy(b->agent, s->o.agent, sizeof(b->agent));
	memcpy(b->agent_uid, s->o.agent_uid, sizeof(b->agent_uid));
	/* Rows of earlier versions have no id. */
	if (s->o.image_id[0])
		memcpy(b->image, s->o.image_id, sizeof(b->image));
	else if (!spec->image || str_equal(spec->image, "host"))
		snprintf(b->image, sizeof(b->image), "host");
	else
		snprintf(b->image, sizeof(b->image), "dir:%.70s", spec->image);
	memcpy(b->snapshot, s->kept[0] ? s->kept : s->o.snapshot, sizeof(b->snapshot));
	snprintf(b->hostname, sizeof(b->hostname), "%s",
		 spec->hostname ? spec->hostname : "cloche");
	memcpy(b->volumes, s->o.volumes, sizeof(b->volumes));
}

/* ---- the link ---- */

static void on_link_lost(void *arg, const struct err *e)
{
	struct sandbox *s = arg;

	s->m->metrics.links_lost++;
	manager_log(s->m, "sandbox %s: %s", s->id, e->msg);
	sandbox_close_link(s);
	if (s->pooled)
		pool_lost(s);
	else if (s->state == STATE_RUNNING)
		loop_task_add(s->m->p.loop, &s->next_task);
}

void sandbox_open_link(struct sandbox *s, int fd, uint64_t generation)
{
	sandbox_close_link(s);
	s->link = link_open(s->m->p.loop, fd, generation, on_link_lost, s);
	if (!s->pooled)
		link_set_user(s->link, shares_user(s->m->shares, s->owner.token));
	if (s->state == STATE_PAUSED)
		link_suspend(s->link, true);
}

void sandbox_close_link(struct sandbox *s)
{
	link_close(take_ptr(s->link));
}

void sandbox_configure(struct sandbox *s, uint64_t ttl_ms, const struct call_ops *ops, void *arg)
{
	const struct config *c = s->m->p.config;
	const struct image_record *image = manager_image_record(s->m, s->o.image_id);
	const struct list none = {0}, *image_env = image ? &image->env : &none;
	const char *workdir = s->o.spec.workdir;
	struct buf b = {0};

	if (!workdir && image)
		workdir = image->workdir;
	pack_u64(&b, ttl_ms);
	pack_u64(&b, c->log_bytes);
	pack_u32(&b, (uint32_t)(image_env->count + s->o.env.count + s->o.placeholders.count));
	/* Below the request's own. */
	for (size_t i = 0; i < image_env->count; i++)
		pack_str(&b, image_env->items[i]);
	for (size_t i = 0; i < s->o.env.count; i++)
		pack_str(&b, s->o.env.items[i]);
	for (size_t i = 0; i < s->o.placeholders.count; i++)
		pack_str(&b, s->o.placeholders.items[i]);
	pack_str(&b, workdir		      ? workdir
		     : c->sandbox.work_dir[0] ? c->sandbox.work_dir
					      : "/workspace");
	pack_u32(&b, (uint32_t)s->o.spec.limits.cpus_milli);
	/* Guests of earlier versions know no more than this. */
	if (s->o.spec.net != NET_NONE)
		pack_u8(&b, 1);
	link_call(s->link, G_CONFIGURE, buf_head(&b), b.len, ops, arg);
	buf_done(&b);
}

/* ---- running ---- */

/* The guest has its settings and its files: the sandbox runs. */
static void come_up(struct job *j)
{
	struct sandbox *s = j->s;
	char kept[IPC_ID];
	struct err e;

	s->started_ms = unix_ms();
	s->setup_ms = (double)(now_ns() - j->begun_ns) / 1e6;
	/* The new state is stored before the other copy of the files is removed. */
	memcpy(kept, s->kept, sizeof(kept));
	s->kept[0] = s->o.snapshot[0] = '\0';
	if (sandbox_save_as(s, STATE_RUNNING, &e) < 0) {
		memcpy(s->kept, kept, sizeof(kept));
		boot_failed(j, &e);
		return;
	}
	sandbox_move(s, STATE_RUNNING, BY_GUEST);
	if (kept[0])
		snapshot_drop(s->m, kept, s->owner.token);
	sandbox_used(s);
	if (j->kind == JOB_CREATE) {
		s->m->metrics.created++;
		histogram_add(&s->m->metrics.create_ms, s->setup_ms);
	}
	job_end(j, NULL);
}

static void on_services(void *arg, const struct err *e)
{
	struct job *j = arg;

	if (!job_is_current(j))
		job_end(j, NULL);
	else if (e)
		boot_failed(j, e);
	else
		come_up(j);
}

/* Last: they find everything as commands do. */
static void start_services(struct job *j)
{
	static const struct call_ops ops = {.on_end = on_services};
	const struct list *lines = &j->s->o.services;
	auto_buf struct buf b = {0};

	if (!lines->count || !j->s->link) {
		come_up(j);
		return;
	}
	pack_u32(&b, (uint32_t)lines->count);
	for (size_t i = 0; i < lines->count; i++)
		pack_str(&b, lines->items[i]);
	if (j->s->o.services_user[0])
		pack_str(&b, j->s->o.services_user);
	link_call(j->s->link, G_SERVICES, buf_head(&b), b.len, &ops, j);
}

static void on_network(struct job *j, const struct err *e)
{
	if (e) {
		boot_failed(j, e);
		return;
	}
	network_is(j->s, j->reply->network.mode, j->reply->network.how);
	start_services(j);
}

static void on_given(struct job *j, const struct err *e)
{
	if (e)
		boot_failed(j, e);
	else
		network_bring(j, on_network);
}

/* Behind its files, before anything runs in it. */
static void bring_network(struct job *j)
{
	if (j->s->o.spec.net == NET_NONE)
		start_services(j);
	else
		secrets_give(j, on_given);
}

static void reconnect(struct job *j);

/* The snapshot that it is started from, or "". */
static const char *begins_with(const struct job *j)
{
	return j->kind == JOB_START ? j->s->kept : j->s->o.snapshot;
}

static void on_disk_done(struct job *j, const struct err *e)
{
	if (e)
		boot_failed(j, e);
	else
		bring_network(j);
}

/* Its disk is whole again: until now it counted as the one of the snapshot. */
static void finish_disk(struct job *j)
{
	job_ask_for(j, IPC_DISK_DONE, on_disk_done);
}

static void on_configured(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;
	if (e && !s->link)
		reconnect(j);
	else if (e)
		boot_failed(j, e);
	else if (s->booted.has_disk & IPC_DISK_HAS_WAS)
		restore(j, NULL, finish_disk);
	else if (begins_with(j)[0] && !(s->booted.has_disk & IPC_DISK_HAS_FILES))
		restore(j, begins_with(j), bring_network);
	else
		bring_network(j);
}

static void configure_guest(struct job *j)
{
	sandbox_set_ttl(j->s, j->s->o.ttl_ms);
	job_configure(j, sandbox_ttl_left_ms(j->s), on_configured);
}

/* ---- booting ---- */

/* Only errors that may go away are worth a retry. */
static bool is_worth_a_retry(const struct job *j, const struct err *e)
{
	return e->kind == ERR_SYSTEM && j->tries < j->s->m->p.config->boot_retries;
}

static void on_booted(void *arg, const struct ipc *reply, int fd)
{
	struct job *j = arg;
	struct sandbox *s = j->s;
	struct manager *m = s->m;

	s->booting = false;
	if (!job_is_current(j)) {
		close_fd(&fd);
		destroy_go_on(s);
		job_end(j, NULL);
	} else if (reply->err.kind == ERR_NONE && fd >= 0) {
		s->booted = reply->booted;
		sandbox_open_link(s, fd, reply->booted.generation);
		configure_guest(j);
	} else {
		close_fd(&fd);
		m->metrics.boot_failures++;
		if (admission_again(j, &reply->err)) {
			m->metrics.boot_retries++;
		} else if (!is_worth_a_retry(j, &reply->err)) {
			boot_failed(j, &reply->err);
		} else {
			m->metrics.boot_retries++;
			manager_log(m, "sandbox %s: boot failed, will be tried again: %s", s->id,
				    reply->err.msg);
			job_retry(j, 50u << (2 * j->tries++), admission_add);
		}
	}
	admission_booted(m);
	pool_refill(m);
}

void boot_now(struct job *j)
{
	struct sandbox *s = j->s;
	struct ipc m = {.type = IPC_BOOT};

	fill_boot(s, &m.boot);
	s->booting = true;
	s->m->metrics.boots++;
	broker_ask(s->m->p.broker, &m, -1, on_booted, j);
}

/* ---- claiming from the pool ---- */

/* The pool member cannot be used after all: a sandbox is booted under a new id. */
static void boot_instead(struct job *j)
{
	struct sandbox *s = j->s;

	broker_ask_id(s->m->p.broker, IPC_DESTROY, s->id, NULL, NULL);
	sandbox_close_link(s);
	sandbox_hold(s);
	sandbox_remove(s);
	id_make(s->id);
	sandbox_add(s);
	sandbox_release(s);
	admission_add(j);
}

static void claim_step(struct job *j)
{
	struct sandbox *s = j->s;

	if (--j->open > 0)
		return;
	if (!job_is_current(j)) {
		job_end(j, NULL);
	} else if (j->err.kind != ERR_NONE || !s->link) {
		manager_log(s->m, "sandbox %s of the pool cannot be claimed: %s", s->id,
			    j->err.msg);
		j->err = (struct err){0};
		boot_instead(j);
	} else {
		s->m->metrics.pool_hits++;
		bring_network(j);
	}
}

static void on_claimed(void *arg, const struct ipc *reply, int fd)
{
	struct job *j = arg;

	close_fd(&fd);
	if (reply->err.kind != ERR_NONE)
		j->err = reply->err;
	else
		j->s->booted.limits = j->s->o.spec.limits;
	claim_step(j);
}

static void on_claim_configured(void *arg, const struct err *e)
{
	struct job *j = arg;

	if (e)
		j->err = *e;
	claim_step(j);
}

static const struct call_ops claim_ops = {.on_end = on_claim_configured};

static void claim_member(struct job *j)
{
	struct sandbox *s = j->s;
	struct ipc m = {.type = IPC_CLAIM};

	fill_boot(s, &m.boot);
	link_set_user(s->link, shares_user(s->m->shares, s->owner.token));
	sandbox_set_ttl(s, s->o.ttl_ms);
	j->open = 2;
	broker_ask(s->m->p.broker, &m, -1, on_claimed, j);
	sandbox_configure(s, sandbox_ttl_left_ms(s), &claim_ops, j);
}

static void begin_with_secrets(struct job *j, const struct err *e)
{
	if (e) {
		boot_failed(j, e);
		return;
	}
	secrets_swap(j);
	if (j->kind == JOB_START) {
		admission_add(j);
	} else if (j->s->link) {
		claim_member(j);
		pool_taken(j->s->m);
	} else if (j->s->booted.id[0]) {
		/* The link broke just after the member was taken from the pool. */
		boot_instead(j);
	} else {
		admission_add(j);
	}
}

void create_begin(struct job *j)
{
	secrets_look_up(j, &j->s->o.spec.secrets, begin_with_secrets);
}

void start_begin(struct job *j)
{
	j->old.expires_ms = j->s->expires_ms;
	sandbox_move(j->s, STATE_STARTING, BY_CLIENT);
	secrets_look_up(j, &j->s->o.spec.secrets, begin_with_secrets);
}

/* ---- failing ---- */

static void on_start_undone(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	/* Its row was not changed, and its time goes on as before. */
	sandbox_move(s, STATE_STOPPED, BY_BROKER);
	loop_timer_stop(s->m->p.loop, &s->ttl);
	s->expires_ms = j->old.expires_ms;
	sandbox_follow_expiry(s);
	job_end(j, &j->err);
}

/* After a failed start the sandbox is stopped again and keeps its files; a failed create leaves nothing. */
void boot_failed(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	if (j->kind == JOB_START && s->kept[0]) {
		j->err = *e;
		sandbox_close_link(s);
		job_ask_for(j, IPC_DESTROY, on_start_undone);
		return;
	}
	/* A request that cannot be met has its answer; no failed sandbox is listed. */
	s->refused = j->kind == JOB_CREATE && e->kind != ERR_SYSTEM;
	sandbox_end(s, STATE_FAILED, BY_BROKER, e->msg);
	job_end(j, e);
}

/* ---- a new link ---- */

static void on_reconnected(struct job *j, const struct err *e)
{
	if (e) {
		boot_failed(j, e);
		return;
	}
	sandbox_open_link(j->s, take_fd(&j->fd), j->reply->booted.generation);
	configure_guest(j);
}

/* The guest of a new sandbox did not greet in time; the machine may be busy, so it is tried again. */
static void reconnect(struct job *j)
{
	struct err e;

	if (++j->connects < CONNECT_TRIES) {
		job_ask_for(j, IPC_CONNECT, on_reconnected);
		return;
	}
	err_set(&e, ERR_SYSTEM, "the sandbox does not answer");
	boot_failed(j, &e);
}

static void connect_failed(struct job *j, const char *why)
{
	struct sandbox *s = j->s;
	struct err e;

	sandbox_close_link(s);
	if (s->state == STATE_RUNNING && ++j->connects < RECONNECT_TRIES) {
		job_retry(j, 100u << (2 * j->connects), connect_begin);
		return;
	}
	err_set(&e, ERR_SYSTEM, "the sandbox cannot be reached: %.300s", why);
	/* Its files and processes are there: a guest may only be slow, frozen or out of memory. */
	if (s->state == STATE_RUNNING) {
		s->reach_tries = 0;
		snprintf(s->reason, sizeof(s->reason), "its guest does not answer: %.200s", why);
		sandbox_move(s, STATE_UNREACHABLE, BY_GUEST);
	}
	sandbox_reach_later(s);
	job_end(j, &e);
}

static void on_answered(struct job *j, const struct err *e)
{
	if (e) {
		connect_failed(j, e->msg);
		return;
	}
	event_add(j->s, "sandbox.reconnected", NULL);
	if (j->s->state == STATE_UNREACHABLE)
		sandbox_move(j->s, STATE_RUNNING, BY_GUEST);
	sandbox_used(j->s);
	job_end(j, NULL);
}

static void on_connected(struct job *j, const struct err *e)
{
	if (e) {
		connect_failed(j, e->msg);
		return;
	}
	j->s->booted.generation = j->reply->booted.generation;
	sandbox_open_link(j->s, take_fd(&j->fd), j->reply->booted.generation);
	/* The last settings may have been lost with the link. */
	job_configure(j, sandbox_ttl_left_ms(j->s), on_answered);
}

void connect_begin(struct job *j)
{
	job_ask_for(j, IPC_CONNECT, on_connected);
}

/* Requests of the front about sandboxes. The broker checks each of them, whatever the front checked. */
#include "auth/tokens.h"
#include "base/log.h"
#include "daemon/broker/check.h"
#include "daemon/broker/broker_internal.h"

#include <sys/statvfs.h>

#define POOL_MARGIN 16 /* while some are handed out and others are made */

/* A request that its sandbox's provider works on. */
struct box_request {
	struct box *b;
	struct requester who;
	bool pauses;
	struct err err;	      /* why a change is undone */
	struct limits limits; /* as they were */
	/* a claim: */
	bool claims, transient;
	char owner[IPC_ID], agent[IPC_NAME];
};

static struct box_request *request_new(struct box *b, struct requester who)
{
	struct box_request *r = must_alloc(calloc(1, sizeof(*r)));

	*r = (struct box_request){.b = b, .who = who};
	return r;
}

static void request_end(struct box_request *r, const struct err *e)
{
	front_done(r->b->d, r->who, r->b->i.info.id, e);
	free(r);
}

/* Counts a new link. The record is written first, so that a later broker finds the sandbox (rule 21). */
static int count_link(struct box *b, struct err *e)
{
	b->i.info.generation++;
	return record_write(b, e);
}

static void answer_with_link(const struct box_request *r, int link)
{
	struct ipc m = {.type = IPC_BOOTED, .booted = r->b->i.info};

	front_answer(r->b->d, r->who, &m, link);
}

/* ---- boot ---- */

/* The ceiling that the operator gave this token; of a tenant, the widest of its tokens' (the front knows which). */
static int check_token(const struct daemon *d, const char *owner, const struct limits *l,
		       struct err *e)
{
	int rc = 0;

	for (size_t i = 0; owner[0] && i < tokens_count(d->tokens); i++) {
		const struct token *t = tokens_at(d->tokens, i);

		if (token_is_of(t, owner) && (rc = check_ceiling(l, &t->ceiling, e)) == 0)
			return 0;
	}
	return rc;
}

/* Of a tenant the front knows which of its tokens asks. */
static int check_root(const struct daemon *d, const char *owner, struct err *e)
{
	bool has = !owner[0];

	for (size_t i = 0; i < tokens_count(d->tokens) && !has; i++)
		has = tokens_at(d->tokens, i)->root && token_is_of(tokens_at(d->tokens, i), owner);
	return has ? 0
		   : err_field(e, ERR_DENIED, "user",
			       "user: root inside is a right of the token, and this one has not "
			       "got it");
}

int request_check_build(const struct daemon *d, const char *owner, const struct limits *l,
			struct err *e)
{
	if (check_limits(l, d->config, e) < 0 || check_token(d, owner, l, e) < 0)
		return -1;
	return check_root(d, owner, e);
}

/* Counted apart: sandboxes that clients keep, those for one run, and those of the pool. */
enum kind { KIND_KEPT, KIND_TRANSIENT, KIND_POOL, KIND_COUNT };

static enum kind kind_of(const char *owner, bool transient)
{
	return str_equal(owner, "-") ? KIND_POOL : transient ? KIND_TRANSIENT : KIND_KEPT;
}

static uint32_t count_kind(const struct daemon *d, enum kind kind)
{
	uint32_t n = 0;

	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (const struct box *b = d->boxes[i]; b; b = b->next)
			n += b->state != BOX_DYING && !b->i.is_doomed &&
			     kind_of(b->i.info.owner, b->i.info.transient) == kind;
	return n;
}

/* The front has counts of its own; these bounds hold even if the front lies. */
static int check_count(const struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	enum kind kind = kind_of(boot->owner, boot->transient);
	uint32_t most = d->config->max_sandboxes;

	if (kind == KIND_POOL)
		most = d->config->pool_size + POOL_MARGIN;
	/* The total is a cheap upper bound. */
	if (!most || d->box_count < most || count_kind(d, kind) < most)
		return 0;
	return err_set(e, ERR_LIMIT, "this daemon has as many sandboxes as it may have, %u", most);
}

static int check_totals(struct daemon *d, const struct box *b, const struct ipc_boot *boot,
			struct err *e)
{
	return totals_check(
		d, b, &(struct new_totals){boot->owner, boot->transient != 0, &boot->limits}, e);
}

#define LOOK_NS 20000000      /* the host is looked at no more often */
#define RUNNABLE_PER_CPU 32   /* tasks that wait for each processor */
#define DISK_LEAST (2u << 20) /* of the state directory's file system */

/* A number in a file of /proc, so many words after the mark; 0 if there is none. */
static uint64_t read_number(const char *file, const char *mark, int words)
{
	auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);
	char text[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *at;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strstr(text, mark);
	for (; at && words > 0; words--) {
		at += strcspn(at, " ");
		at += strspn(at, " ");
	}
	return at ? strtoull(at, NULL, 10) : 0;
}

/* EAGAIN: it will do later. */
static int look_at_host(const struct daemon *d, struct err *e)
{
	uint64_t free_memory = read_number("/proc/meminfo", "MemAvailable:", 1) << 10;
	uint64_t runnable = read_number("/proc/loadavg", "", 3);
	struct statvfs disk;

	if (fstatvfs(d->state, &disk) == 0 && disk.f_bavail * disk.f_frsize < DISK_LEAST)
		return err_set(e, ERR_LIMIT, "the disk of the state directory is full");
	if (free_memory && free_memory < d->config->memory_reserve)
		err_set(e, ERR_LIMIT, "the host is short of memory (memory_reserve)");
	else if (runnable > RUNNABLE_PER_CPU * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN))
		err_set(e, ERR_LIMIT, "the host is short of processors");
	else
		return 0;
	e->errnum = EAGAIN;
	return -1;
}

static int check_host(struct daemon *d, struct err *e)
{
	if (now_ns() - d->host_state.looked_ns > LOOK_NS) {
		d->host_state.err = (struct err){0};
		(void)look_at_host(d, &d->host_state.err);
		d->host_state.looked_ns = now_ns();
	}
	if (!d->host_state.err.kind)
		return 0;
	*e = d->host_state.err;
	return -1;
}

static int may_boot(struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	if (d->stopping)
		return err_set(e, ERR_CONFLICT, "the daemon is being stopped");
	if (check_boot(boot, d->config, e) < 0 || check_token(d, boot->owner, &boot->limits, e) < 0)
		return -1;
	if (boot->user_root && check_root(d, boot->owner, e) < 0)
		return -1;
	if (agent_check_boot(d, boot, e) < 0 || images_check(d, boot, e) < 0 ||
	    volumes_check(d, boot, e) < 0)
		return -1;
	if (d->unusable[boot->provider].kind) {
		*e = d->unusable[boot->provider];
		return -1;
	}
	if (box_find(d, boot->id))
		return err_set(e, ERR_CONFLICT, "there is a sandbox %s already", boot->id);
	if (check_count(d, boot, e) < 0 || check_host(d, e) < 0)
		return -1;
	return str_equal(boot->owner, "-") ? 0 : check_totals(d, NULL, boot, e);
}

static void on_booted(void *arg, const struct provider_result *result, const struct err *error)
{
	struct box_request *r = arg;
	struct box *b = r->b;
	struct err e = {0};

	bool is_same_front = r->who.epoch == b->d->front.epoch;

	volumes_drop(&b->i);
	b->state = BOX_LIVE;
	b->i.info.started_ms = unix_ms();
	if (error)
		e = *error;
	else if (b->i.is_doomed)
		err_set(&e, ERR_CONFLICT, "it was destroyed meanwhile");
	else if (count_link(b, &e) == 0 && b->i.info.has_disk)
		(void)disk_describe(b, &e);
	if (e.kind) {
		log_warn("sandbox not booted", "id", b->i.info.id, "error", e.msg);
		front_done(b->d, r->who, b->i.info.id, &e);
	} else if (is_same_front) {
		answer_with_link(r, result->fd);
	} else if (!b->i.info.transient) {
		/* The next front hears of it as of an adopted sandbox. */
		box_announce(b);
	}
	if (e.kind || (!is_same_front && b->i.info.transient))
		box_destroy(b, (struct requester){0});
	free(r);
}

void box_request_boot(struct daemon *d, struct requester who, const struct ipc *m)
{
	const struct provider_row *row;
	struct ipc_booted *info;
	struct err e = {0};
	struct box *b;

	if (may_boot(d, &m->boot, &e) < 0) {
		front_done(d, who, m->boot.id, &e);
		return;
	}
	row = provider_row(m->boot.provider);
	b = box_new(d, row, m->boot.id);
	info = &b->i.info;
	snprintf(info->owner, sizeof(info->owner), "%s", m->boot.owner);
	info->limits = m->boot.limits;
	info->transient = m->boot.transient != 0;
	info->level = m->boot.level;
	info->provider = m->boot.provider;
	info->of_host = str_equal(m->boot.image, "host");
	agent_take_box(d, m->boot.agent, info);
	memcpy(info->image, m->boot.image, sizeof(info->image));
	if (images_hold(b, m->boot.disk_type == DISK_IMAGE, &e) < 0) {
		on_booted(request_new(b, who), NULL, &e);
		return;
	}
	volumes_boot(b, &m->boot, on_booted, request_new(b, who));
}

/* ---- sandboxes that exist ---- */

/* A live sandbox that can do this; otherwise the requester is told why not. */
static struct box *find_able(struct daemon *d, struct requester who, const char *id, unsigned can)
{
	struct box *b = box_find_live(d, id);
	struct err e = {0};

	if (!b)
		err_set(&e, ERR_NOT_FOUND, "there is no such sandbox");
	else if (can && b->is_busy)
		err_set(&e, ERR_CONFLICT, "the sandbox is being paused or copied just now");
	else if (provider_check(b->i.info.provider, can, &e) == 0)
		return b;
	front_done(d, who, id, &e);
	return NULL;
}

static void on_connected(void *arg, const struct provider_result *result, const struct err *error)
{
	struct box_request *r = arg;
	struct err e = {0};

	if (error)
		e = *error;
	else
		(void)count_link(r->b, &e);
	if (!e.kind) {
		answer_with_link(r, result->fd);
		r->who.serial = 0; /* was answered */
	}
	request_end(r, e.kind ? &e : NULL);
}

void box_request_connect(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = find_able(d, who, m->id, 0);

	if (b)
		b->i.row->connect(&b->i, on_connected, request_new(b, who));
}

void box_request_destroy(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = ipc_id_is_valid(m->id) ? box_find(d, m->id) : NULL;

	/* Only its owner or the operator asks for that; the front by itself leaves it alone. */
	if (b && b->state == BOX_FOREIGN)
		b->state = BOX_LIVE;
	if (b)
		box_destroy(b, who);
	else
		front_done(d, who, m->id, NULL);
}

/* ---- pause and resume ---- */

static void on_undone(void *arg, const struct provider_result *result, const struct err *e)
{
	struct box_request *r = arg;

	r->b->is_busy = false;
	if (e)
		log_error("a change that has no record stays", "id", r->b->i.info.id, "error",
			  e->msg);
	request_end(r, &r->err);
}

/* What is not in the record is undone: a later broker would take the sandbox for what the record says. */
static void on_changed(void *arg, const struct provider_result *result, const struct err *e)
{
	struct box_request *r = arg;
	struct box *b = r->b;

	b->i.info.paused = e ? b->i.info.paused : r->pauses;
	if (!e && record_write(b, &r->err) < 0) {
		b->i.info.paused = !r->pauses;
		(r->pauses ? b->i.row->resume : b->i.row->pause)(&b->i, on_undone, r);
		return;
	}
	b->is_busy = false;
	request_end(r, e);
}

void box_request_pause(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = find_able(d, who, m->id, CAN_PAUSE);
	bool pauses = m->type == IPC_PAUSE;
	struct box_request *r;

	if (!b)
		return;
	r = request_new(b, who);
	r->pauses = pauses;
	if (b->i.info.paused == pauses) {
		request_end(r, NULL);
		return;
	}
	b->is_busy = true;
	(pauses ? b->i.row->pause : b->i.row->resume)(&b->i, on_changed, r);
}

/* ---- limits, and claims of sandboxes of the pool ---- */

static void on_updated(void *arg, const struct provider_result *result, const struct err *error)
{
	struct box_request *r = arg;
	struct box *b = r->b;
	struct ipc_booted *info = &b->i.info;

	if (!error && r->claims) {
		memcpy(info->owner, r->owner, sizeof(info->owner));
		info->transient = r->transient;
		agent_take_box(b->d, r->agent, info);
	}
	if (!error && record_write(b, &r->err) < 0) {
		b->i.row->update(&b->i, &r->limits, on_undone, r);
		return;
	}
	b->is_busy = false;
	request_end(r, error);
}

static int check_claim(struct box *b, const struct ipc_boot *boot, struct err *e)
{
	if (!str_equal(b->i.info.owner, "-"))
		return err_set(e, ERR_CONFLICT, "the sandbox has an owner already");
	if (check_boot(boot, b->d->config, e) < 0)
		return -1;
	if (str_equal(boot->owner, "-"))
		return err_set(e, ERR_INVALID, "the pool claims nothing");
	/* From now on it counts as a client's sandbox. */
	if (check_count(b->d, boot, e) < 0)
		return -1;
	if (b->i.info.image[0] && !str_equal(b->i.info.image, boot->image))
		return err_set(e, ERR_CONFLICT, "a prepared sandbox cannot be given an image");
	if (images_check(b->d, boot, e) < 0)
		return -1;
	if (boot->volume_count || boot->tmpfs.count || boot->user_root)
		return err_set(e, ERR_CONFLICT,
			       "a prepared sandbox cannot be given volumes, a tmpfs or root");
	if (agent_check_boot(b->d, boot, e) < 0)
		return -1;
	if (check_token(b->d, boot->owner, &boot->limits, e) < 0)
		return -1;
	return check_totals(b->d, b, boot, e);
}

static int check_update(struct box *b, const struct ipc_boot *boot, struct err *e)
{
	const struct new_totals n = {b->i.info.owner, b->i.info.transient, &boot->limits};

	if (check_limits(&boot->limits, b->d->config, e) < 0 ||
	    check_token(b->d, n.owner, &boot->limits, e) < 0)
		return -1;
	return str_equal(n.owner, "-") ? 0 : totals_check(b->d, b, &n, e);
}

void box_request_update(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = find_able(d, who, m->boot.id, CAN_UPDATE);
	bool claims = m->type == IPC_CLAIM;
	struct box_request *r;
	struct err e = {0};

	if (!b)
		return;
	if ((claims ? check_claim : check_update)(b, &m->boot, &e) < 0) {
		front_done(d, who, m->boot.id, &e);
		return;
	}
	r = request_new(b, who);
	r->claims = claims;
	r->transient = m->boot.transient != 0;
	r->limits = b->i.info.limits;
	memcpy(r->owner, m->boot.owner, sizeof(r->owner));
	memcpy(r->agent, m->boot.agent, sizeof(r->agent));
	b->is_busy = true;
	b->i.row->update(&b->i, &m->boot.limits, on_updated, r);
}

/* ---- stats ---- */

static void on_stats(void *arg, const struct provider_result *result, const struct err *e)
{
	struct box_request *r = arg;
	struct ipc reply = {.type = IPC_STATS_ARE};

	if (!e) {
		reply.stats = result->stats;
		if (r->b->net) {
			reply.stats.net_tx_bytes =
				r->b->net->before.tx_bytes + r->b->net->now.tx_bytes;
			reply.stats.net_rx_bytes =
				r->b->net->before.rx_bytes + r->b->net->now.rx_bytes;
		}
		memcpy(reply.stats.id, r->b->i.info.id, sizeof(reply.stats.id));
		front_answer(r->b->d, r->who, &reply, -1);
		r->who.serial = 0;
	}
	request_end(r, e);
}

void box_request_stats(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = find_able(d, who, m->id, 0);

	if (b)
		b->i.row->stats(&b->i, on_stats, request_new(b, who));
}

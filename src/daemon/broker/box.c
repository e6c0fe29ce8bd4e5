/* The broker's table of sandboxes, their end, and the events that providers report. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

/* ---- the table ---- */

static struct box **bucket(struct daemon *d, const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return &d->boxes[hash % BOX_BUCKETS];
}

struct box *box_find(struct daemon *d, const char *id)
{
	struct box *b = *bucket(d, id);

	while (b && !str_equal(b->i.info.id, id))
		b = b->next;
	return b;
}

struct box *box_find_live(struct daemon *d, const char *id)
{
	struct box *b = ipc_id_is_valid(id) ? box_find(d, id) : NULL;

	return b && b->state == BOX_LIVE ? b : NULL;
}

static void destroy_again(void *arg);

struct box *box_new(struct daemon *d, const struct provider_row *row, const char *id)
{
	struct box *b = must_alloc(calloc(1, sizeof(*b)));
	struct box **place = bucket(d, id);

	b->d = d;
	b->i.host = &d->host;
	b->i.row = row;
	b->i.disk_from = -1;
	snprintf(b->i.info.id, sizeof(b->i.info.id), "%s", id);
	b->again = (struct loop_timer){.call = destroy_again, .arg = b};
	b->next = *place;
	*place = b;
	d->box_count++;
	return b;
}

static void box_free(struct box *b)
{
	struct box **place = bucket(b->d, b->i.info.id);

	while (*place != b)
		place = &(*place)->next;
	*place = b->next;
	b->d->box_count--;
	loop_timer_stop(b->d->loop, &b->again);
	secrets_remove(b);
	network_remove(b);
	close_fd(&b->i.disk_from);
	volumes_drop(&b->i);
	explicit_bzero(b->i.disk_key, sizeof(b->i.disk_key));
	free(b->destroyers);
	free(b);
}

/* ---- telling the front ---- */

static void send_adopted(void *arg, const struct provider_result *r, const struct err *e)
{
	struct ipc m = {.type = IPC_ADOPTED};
	struct box *b = arg;
	struct err why = {0};
	int fd = r ? r->fd : -1;

	if (fd >= 0) {
		b->i.info.generation++;
		if (record_write(b, &why) < 0) {
			fd = -1;
			e = &why;
		}
	}
	/* The sandbox lives without a link, too; the front asks for another one. */
	if (e)
		log_warn("no link to a sandbox", "id", b->i.info.id, "error", e->msg);
	m.booted = b->i.info;
	m.booted.has_row = row_exists(b);
	front_news(b->d, &m, fd);
}

void box_announce(struct box *b)
{
	if (b->i.row->connects_at_once)
		b->i.row->connect(&b->i, send_adopted, b);
	else
		send_adopted(b, NULL, NULL);
}

/* ---- the end ---- */

#define DESTROY_AGAIN_MS 10000

static void destroy_again(void *arg)
{
	struct box *b = arg;

	if (b->state == BOX_LIVE)
		box_destroy(b, (struct requester){0});
}

static void on_destroyed(void *arg, const struct provider_result *r, const struct err *e)
{
	struct box *b = arg;

	/* While the record exists, a new broker looks for what is left of the sandbox. */
	if (!e) {
		row_remove(b);
		disk_forget(b);
		record_remove(b);
		images_leave(b);
	}
	for (size_t i = 0; i < b->destroyer_count; i++)
		front_done(b->d, b->destroyers[i], b->i.info.id, e);
	b->destroyer_count = 0;
	if (!e) {
		snapshots_drop_waiting(b->d, b->i.info.id);
		box_free(b);
		return;
	}
	/* The sandbox may still exist: the requester may ask again, and the timer does. */
	loop_timer_set(b->d->loop, &b->again, DESTROY_AGAIN_MS);
	b->state = BOX_LIVE;
}

void box_destroy(struct box *b, struct requester who)
{
	if (who.serial) {
		b->destroyers = must_alloc(
			realloc(b->destroyers, (b->destroyer_count + 1) * sizeof(*b->destroyers)));
		b->destroyers[b->destroyer_count++] = who;
	}
	if (b->state == BOX_BOOTING)
		b->i.is_doomed = true;
	if (b->state != BOX_LIVE)
		return;
	b->state = BOX_DYING;
	b->i.row->destroy(&b->i, on_destroyed, b);
}

/* ---- events of providers ---- */

static void on_ended(struct instance *i, bool by_oom, const char *why)
{
	struct box *b = (struct box *)i;
	struct ipc m = {.type = IPC_DIED, .died.by_oom = by_oom};

	if (b->state != BOX_LIVE)
		return;
	snprintf(m.died.id, sizeof(m.died.id), "%s", i->info.id);
	snprintf(m.died.why, sizeof(m.died.why), "%s", why);
	log_info("sandbox ended", "id", i->info.id, "oom", by_oom ? "yes" : "no", "why", why);
	front_news(b->d, &m, -1);
	box_destroy(b, (struct requester){0});
}

static void on_leftover(struct provider_host *h, const struct provider_row *row, const char *id)
{
	struct daemon *d = h->daemon;
	struct box *b;

	if (box_find(d, id))
		return;
	d->found.strays++;
	b = box_new(d, row, id);
	b->state = BOX_LIVE;
	box_destroy(b, (struct requester){0});
}

static struct instance *find_instance(struct provider_host *h, const char *id)
{
	struct box *b = box_find_live(h->daemon, id);

	return b ? &b->i : NULL;
}

static void end_role(struct provider_host *h, const char *why)
{
	roles_end(h->daemon, ROLE_REMOTE, why);
}

static void role_answered(struct provider_host *h)
{
	roles_answered(h->daemon, ROLE_REMOTE);
}

void box_init_host(struct daemon *d)
{
	struct provider_host *h = &d->host;

	h->daemon = d;
	h->loop = d->loop;
	h->config = d->config;
	h->rootless = d->rootless;
	h->is_ephemeral = d->ephemeral_dir != NULL;
	h->find = find_instance;
	h->on_ended = on_ended;
	h->on_leftover = on_leftover;
	h->end_role = end_role;
	h->role_answered = role_answered;
}

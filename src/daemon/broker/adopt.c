/* Adopts the sandboxes of an earlier broker when the daemon starts, and removes debris. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

/* It stays in the table, so that nothing of it is taken for a leftover. */
static void leave_alone(struct box *b, const struct err *e)
{
	b->state = BOX_FOREIGN;
	b->d->host.has_foreign = true;
	log_warn("sandbox left alone", "id", b->i.info.id, "why", e->msg);
	daemon_note(b->d, "sandbox.keep", b->i.info.id, "done", e->msg);
}

static void on_adopted(void *arg, const struct provider_result *r, const struct err *e)
{
	struct box *b = arg;
	const char *why = e ? e->msg : b->i.info.transient ? "it was to end with the daemon" : NULL;

	/* Nobody knows whether it lives: a later daemon will. */
	if (e && e->kind == ERR_SYSTEM && !b->i.info.transient) {
		leave_alone(b, e);
		return;
	}
	b->state = BOX_LIVE;
	if (!why) {
		b->d->found.adopted++;
		secrets_adopt(b);
		network_adopt(b);
		log_info("sandbox adopted", "id", b->i.info.id, "owner", b->i.info.owner);
		daemon_note(b->d, "sandbox.adopt", b->i.info.id, "allow",
			    "it is the one of the record");
		return;
	}
	b->d->found.reaped++;
	log_info("sandbox reaped", "id", b->i.info.id, "why", why);
	daemon_note(b->d, "sandbox.reap", b->i.info.id, "done", why);
	disk_keep(b->d, b->i.info.id);
	box_destroy(b, (struct requester){0});
}

static void adopt_one(struct daemon *d, const char *id)
{
	memset(d->let_in, 0, sizeof(d->let_in));
	/* Until its record names another provider. No other provider leaves anything on this host. */
	struct box *b = box_new(d, provider_row(PROVIDER_NS), id);
	struct err e = {0};

	switch (record_read(b, &e)) {
	case RECORD_GOOD:
		b->i.row->adopt(&b->i, on_adopted, b);
		break;
	case RECORD_EMPTY:
		on_adopted(b, NULL, &e);
		break;
	case RECORD_FOREIGN:
		leave_alone(b, &e);
		break;
	}
}

/* Removes sockets and drafts without a record, which a boot that did not finish left. */
static void remove_litter(struct daemon *d, const struct list *names)
{
	for (size_t i = 0; i < names->count; i++) {
		char id[IPC_ID] = "";

		if (ipc_id_is_valid(names->items[i]))
			continue;
		if (strlen(names->items[i]) > 20)
			memcpy(id, names->items[i], 20);
		if (ipc_id_is_valid(id) && box_find(d, id))
			continue;
		unlinkat(d->host.boxes_dir, names->items[i], 0);
		d->found.strays++;
	}
}

void adopt_all(struct daemon *d)
{
	struct list names = {0};
	char adopted[16], reaped[16], strays[16];

	list_names(d->host.boxes_dir, &names);
	for (size_t i = 0; i < names.count; i++)
		if (ipc_id_is_valid(names.items[i]))
			adopt_one(d, names.items[i]);
	remove_litter(d, &names);
	disks_sweep(d);
	for (int i = 0; i < PROVIDER_COUNT; i++)
		if (provider_row(i) && provider_row(i)->find_leftovers)
			provider_row(i)->find_leftovers(&d->host);
	list_done(&names);
	snprintf(adopted, sizeof(adopted), "%u", d->found.adopted);
	snprintf(reaped, sizeof(reaped), "%u", d->found.reaped);
	snprintf(strays, sizeof(strays), "%u", d->found.strays);
	if (d->found.adopted || d->found.reaped || d->found.strays)
		log_info("looked at what an earlier daemon left", "adopted", adopted, "reaped",
			 reaped, "strays", strays);
}

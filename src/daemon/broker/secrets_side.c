/*
 * What a box needs before its network is of use: the values of its secrets at egress, and trust in its CA inside.
 * A request for a network is answered when both are there. <runtime>/boxes/ID.use has which secrets it uses, with
 * their placeholders and how often they were used, for a later broker; never a value.
 *
 * Whatever fails here fails closed: without its rows egress passes placeholders on as they are, and without the
 * CA programs inside refuse the connection.
 */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "net/rules.h"

#define MAGIC "cluse01"
#define IN_FORCE_MS 20000
#define PEM_MAX 65536

struct use_file {
	char magic[8];
	uint32_t size;
	struct ipc_secret_use use;
};

/* ---- the file ---- */

static void file_name(const struct box *b, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%s.use", b->i.info.id);
}

int secrets_write_down(const struct box *b, struct err *e)
{
	struct use_file file = {.magic = MAGIC, .size = sizeof(file), .use = *b->use};
	char name[IPC_ID + 8], draft[IPC_ID + 8];
	auto_close int fd = -1;

	file_name(b, name);
	snprintf(draft, sizeof(draft), "%s.unw", b->i.info.id);
	fd = openat(b->d->host.boxes_dir, draft,
		    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || io_write_all(fd, &file, sizeof(file)) < 0 ||
	    renameat(b->d->host.boxes_dir, draft, b->d->host.boxes_dir, name) < 0)
		return err_sys(e, "cannot write down the secrets of %s", b->i.info.id);
	return 0;
}

/* The numbers only: a use must not cost much. */
static void write_down_used(const struct box *b, uint32_t item)
{
	char name[IPC_ID + 8];
	auto_close int fd = -1;

	file_name(b, name);
	fd = openat(b->d->host.boxes_dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 ||
	    pwrite(fd, &b->use->items[item].used, sizeof(b->use->items[item].used),
		   (off_t)(offsetof(struct use_file, use) + offsetof(struct ipc_secret_use, items) +
			   item * sizeof(b->use->items[item]) +
			   ((const char *)&b->use->items[item].used -
			    (const char *)&b->use->items[item]))) < 0)
		log_warn("the uses of a secret could not be written down", "id", b->i.info.id);
}

void secrets_adopt(struct box *b)
{
	auto_free char *text = NULL;
	const struct use_file *file;
	char name[IPC_ID + 8];
	auto_close int fd = -1;
	size_t len = 0;

	file_name(b, name);
	fd = openat(b->d->host.boxes_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || io_read_whole(fd, sizeof(*file), &text, &len) < 0 || len != sizeof(*file)) {
		log_error("a sandbox comes back without its secrets", "id", b->i.info.id);
		return;
	}
	file = (const void *)text;
	if (memcmp(file->magic, MAGIC, sizeof(file->magic)) != 0 || file->size != sizeof(*file) ||
	    file->use.count > SECRETS_PER_SANDBOX || !str_equal(file->use.id, b->i.info.id) ||
	    !str_equal(file->use.owner, b->i.info.owner)) {
		log_error("a sandbox comes back without its secrets", "id", b->i.info.id);
		return;
	}
	b->use = must_alloc(malloc(sizeof(*b->use)));
	*b->use = file->use;
}

void secrets_forget(const struct box *b)
{
	char name[IPC_ID + 8];

	file_name(b, name);
	unlinkat(b->d->host.boxes_dir, name, 0);
}

void secrets_remove(struct box *b)
{
	secrets_forget(b);
	loop_timer_stop(b->d->loop, &b->force.timer);
	free(b->use);
	b->use = NULL;
}

/* ---- is everything in force? ---- */

static bool uses_secrets(const struct box *b)
{
	return b->use && b->use->count;
}

static bool inspects(const struct box *b)
{
	return b->net->rules.len && net_policy_inspects(buf_head(&b->net->rules));
}

static bool is_in_force(const struct box *b)
{
	if (!b->net || b->i.info.net == NET_NONE || (!uses_secrets(b) && !inspects(b)))
		return true;
	return b->net->is_prepared && b->force.has_ca && (b->force.has_rows || !uses_secrets(b));
}

static void answer(struct box *b, const struct err *e)
{
	struct ipc reply = {.type = IPC_NETWORK_IS};
	struct requester who = b->force.who;

	loop_timer_stop(b->d->loop, &b->force.timer);
	b->force.who = (struct requester){0};
	if (e) {
		front_done(b->d, who, b->i.info.id, e);
		return;
	}
	memcpy(reply.network.id, b->i.info.id, sizeof(reply.network.id));
	reply.network.mode = b->i.info.net;
	reply.network.how = b->i.info.net_how;
	front_answer(b->d, who, &reply, -1);
}

static void look_again(struct box *b)
{
	if (b->force.who.serial && is_in_force(b))
		answer(b, NULL);
}

static void on_late(void *arg)
{
	struct box *b = arg;
	struct err e;

	err_set(&e, ERR_SYSTEM,
		uses_secrets(b) && !b->force.has_rows
			? "the secrets of the sandbox are not at hand just now; try again"
			: "egress has made no CA for the sandbox; try again");
	answer(b, &e);
}

void secrets_answer_in_force(struct box *b, struct requester who)
{
	struct err e;

	if (b->force.who.serial)
		answer(b, (err_set(&e, ERR_CONFLICT, "the network was changed again"), &e));
	b->force.who = who;
	b->force.timer = (struct loop_timer){.call = on_late, .arg = b};
	/* Without a network there is nothing to wait for. */
	if (!b->net->is_prepared || is_in_force(b))
		answer(b, NULL);
	else
		loop_timer_set(b->d->loop, &b->force.timer, IN_FORCE_MS);
}

void secrets_prepared(struct box *b)
{
	b->force.has_rows = b->force.has_ca = false;
	signer_renew(b);
}

/* ---- values, CA, uses ---- */

void box_give_secrets(struct box *b, int rows)
{
	struct egress m = {.type = EGRESS_SECRETS};

	/* Later, when it is prepared, they are asked for again. */
	if (!b->net || !b->net->is_prepared)
		return;
	memcpy(m.id, b->i.info.id, sizeof(m.id));
	if (rows >= 0)
		egress_tell(b->d, &m, &rows, 1);
	else
		egress_tell_bytes(b->d, &m, "", 0);
	b->force.has_rows = rows >= 0;
	look_again(b);
}

static void on_trusted(void *arg, const struct provider_result *r, const struct err *e)
{
	struct box *b = arg;
	struct err why;

	if (e) {
		log_error("a sandbox does not trust its CA", "id", b->i.info.id, "error", e->msg);
		if (b->force.who.serial)
			answer(b, e);
		return;
	}
	b->force.has_ca = true;
	/* Where the files are is in the record. */
	if (record_write(b, &why) < 0)
		log_error("a record is not up to date", "error", why.msg);
	look_again(b);
}

void secrets_take_ca(struct box *b, int fd)
{
	auto_free char *pem = NULL;
	size_t len = 0;

	if (io_read_whole(fd, PEM_MAX, &pem, &len) < 0 ||
	    !str_starts(pem, "-----BEGIN CERTIFICATE-----") || strlen(pem) != len)
		roles_end(b->d, ROLE_EGRESS, "it does not keep to the protocol");
	else if (b->i.row->trust)
		b->i.row->trust(&b->i, pem, len, on_trusted, b);
}

void secrets_count_use(struct box *b, const struct egress_record *r)
{
	uint64_t count = r->count ? r->count : 1;

	/* All items of a name are one secret; the first one has the number. */
	for (uint32_t i = 0; b->use && i < b->use->count; i++)
		if (str_equal(b->use->items[i].name, r->secret)) {
			b->use->items[i].used += count;
			write_down_used(b, i);
			return;
		}
}

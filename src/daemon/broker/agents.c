/*
 * Registered agents: <state>/agents, rewritten whole with each change. The broker keeps them, because trust levels
 * bound what the front may ask for: a front cannot give an agent more trust than its owner's tokens have, and an
 * agent that nobody registered has level 0. Whether a client may register agents is the front's to decide.
 */
#include "auth/tokens.h"
#include "base/id.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "daemon/broker/check.h"
#include "keys/keyring.h"

#include <sys/mman.h>

#define MAGIC "CLOCHEA1"
#define FILE_NAME "agents"

struct head {
	char magic[8];
	uint32_t rows, row_size;
};

/* ---- the file ---- */

static bool row_makes_sense(const struct ipc_agent *a)
{
	return str_has_end(a->name, sizeof(a->name)) && str_has_end(a->owner, sizeof(a->owner)) &&
	       str_has_end(a->uid, sizeof(a->uid)) && a->name[0] && a->uid[0] &&
	       a->level < TRUST_LEVELS;
}

static int read_file(struct daemon *d, struct err *e)
{
	auto_close int fd = openat(d->state, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *bytes = NULL;
	struct head head;
	size_t len = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open the list of agents");
	if (io_read_whole(fd, sizeof(head) + AGENTS_MAX * sizeof(struct ipc_agent), &bytes, &len) <
	    0)
		return err_sys(e, "cannot read the list of agents");
	if (len >= sizeof(head))
		memcpy(&head, bytes, sizeof(head));
	if (len < sizeof(head) || memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0 ||
	    head.row_size != sizeof(struct ipc_agent) || head.rows > AGENTS_MAX ||
	    len != sizeof(head) + head.rows * sizeof(struct ipc_agent))
		return err_set(e, ERR_SYSTEM,
			       "the list of agents is damaged, or of a later version");
	d->agents.rows = must_alloc(malloc(len));
	d->agents.count = head.rows;
	memcpy(d->agents.rows, bytes + sizeof(head), len - sizeof(head));
	for (size_t i = 0; i < head.rows; i++)
		if (!row_makes_sense(&d->agents.rows[i]))
			return err_set(e, ERR_SYSTEM, "the list of agents is damaged: row %zu", i);
	return 0;
}

void agents_load(struct daemon *d)
{
	if (read_file(d, &d->agents.err) == 0)
		return;
	log_error("no agent is registered", "error", d->agents.err.msg);
	agents_done(d);
}

void agents_done(struct daemon *d)
{
	free(take_ptr(d->agents.rows));
	d->agents.count = 0;
}

/* Takes rows; on failure those of before stay. */
static int replace_rows(struct daemon *d, struct ipc_agent *rows, size_t count, struct err *e)
{
	struct head head = {
		.magic = MAGIC, .rows = (uint32_t)count, .row_size = sizeof(struct ipc_agent)};
	auto_buf struct buf b = {0};

	buf_add(&b, &head, sizeof(head));
	buf_add(&b, rows, count * sizeof(*rows));
	if (keyring_save(d->state, FILE_NAME, buf_head(&b), b.len, e) < 0) {
		free(rows);
		return -1;
	}
	free(d->agents.rows);
	d->agents.rows = rows;
	d->agents.count = count;
	return 0;
}

/* ---- levels ---- */

int owner_trust(const struct daemon *d, const char *owner)
{
	int most = 0;

	if (!owner[0])
		return TRUST_LEVELS - 1;
	for (size_t i = 0; i < tokens_count(d->tokens); i++) {
		const struct token *t = tokens_at(d->tokens, i);

		if (token_is_of(t, owner) && t->trust > most)
			most = t->trust;
	}
	return most;
}

int agent_level_now(const struct daemon *d, const struct ipc_agent *a)
{
	int most = owner_trust(d, a->owner);

	return a->level < most ? a->level : most;
}

static struct ipc_agent *find(const struct daemon *d, const char *name)
{
	for (size_t i = 0; i < d->agents.count; i++)
		if (str_equal(d->agents.rows[i].name, name))
			return &d->agents.rows[i];
	return NULL;
}

const struct ipc_agent *agent_find(const struct daemon *d, const char *name)
{
	return find(d, name);
}

int agent_level_of(const struct box *b)
{
	const struct ipc_agent *a = find(b->d, b->i.info.agent);

	if (!b->i.info.agent[0])
		return -1;
	return a && str_equal(a->uid, b->i.info.agent_uid) ? agent_level_now(b->d, a) : 0;
}

/* ---- sandboxes ---- */

int agent_check_boot(const struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	const struct ipc_agent *a = find(d, boot->agent);
	int level = boot->agent[0] && a ? agent_level_now(d, a) : owner_trust(d, boot->owner);

	if (boot->agent[0] &&
	    (!a || !str_equal(a->owner, boot->owner) || !str_equal(a->uid, boot->agent_uid)))
		return err_field(e, ERR_NOT_FOUND, "agent", "agent: there is no agent %s",
				 boot->agent);
	if (boot->agent[0] && a->is_outside)
		return err_field(e, ERR_CONFLICT, "agent", "agent: %s is outside of sandboxes",
				 boot->agent);
	if (boot->provider != PROVIDER_NS && boot->owner[0] && !trust_level(level)->may_leave)
		return err_field(e, ERR_DENIED, "provider",
				 "provider: sandboxes of trust level %d stay on this host", level);
	return 0;
}

void agent_take_box(const struct daemon *d, const char *name, struct ipc_booted *info)
{
	const struct ipc_agent *a = name[0] ? find(d, name) : NULL;

	memset(info->agent, 0, sizeof(info->agent));
	memset(info->agent_uid, 0, sizeof(info->agent_uid));
	if (!a)
		return;
	memcpy(info->agent, a->name, sizeof(info->agent));
	memcpy(info->agent_uid, a->uid, sizeof(info->agent_uid));
}

/* ---- the front ---- */

void agents_tell_front(struct daemon *d)
{
	struct ipc m = {.type = IPC_AGENTS};
	auto_close int fd = memfd_create("agents", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool good = fd >= 0;

	for (size_t i = 0; good && i < d->agents.count; i++) {
		struct ipc_agent a = d->agents.rows[i];

		a.effective = (uint8_t)agent_level_now(d, &a);
		good = io_write_all(fd, &a, sizeof(a)) == 0;
	}
	if (!good || io_seal(fd) < 0)
		log_error("cannot hand on the agents");
	else
		front_news(d, &m, fd);
}

static int check_level(const struct daemon *d, const struct ipc_agent *a, struct err *e)
{
	int most = owner_trust(d, a->owner);

	if (a->level >= TRUST_LEVELS)
		return err_field(e, ERR_INVALID, "trust", "trust: is a level from 0 to %d",
				 TRUST_LEVELS - 1);
	if (a->level > most)
		return err_field(e, ERR_DENIED, "trust",
				 "trust: %d is more than its owner's tokens have, %d", a->level,
				 most);
	return 0;
}

static int fill_new(struct daemon *d, const struct ipc_agent *asked, struct ipc_agent *ret,
		    struct err *e)
{
	struct ipc_agent a = {.level = asked->level, .is_outside = asked->is_outside != 0};

	if (!str_only(asked->name, STR_LOWER STR_DIGITS "._-", 1, IPC_NAME - 1) ||
	    !strchr(STR_LOWER, asked->name[0]))
		return err_field(e, ERR_INVALID, "id",
				 "id: a small letter, then up to %d small letters, digits, '.', "
				 "'_', '-'",
				 IPC_NAME - 2);
	if (find(d, asked->name))
		return err_field(e, ERR_CONFLICT, "id", "id: there is an agent %s already",
				 asked->name);
	if (d->agents.count == AGENTS_MAX)
		return err_set(e, ERR_LIMIT, "there are %d agents already", AGENTS_MAX);
	if (!check_owner(asked->owner) || str_equal(asked->owner, "-"))
		return err_field(e, ERR_INVALID, "owner", "owner: not a token's id or @TENANT");
	memcpy(a.name, asked->name, sizeof(a.name));
	memcpy(a.owner, asked->owner, sizeof(a.owner));
	if (id_letters(a.uid, ID_LETTERS) < 0)
		return err_sys(e, "cannot get random numbers");
	a.created_ms = unix_ms();
	*ret = a;
	return check_level(d, &a, e);
}

static int put_agent(struct daemon *d, const struct ipc_agent *asked, struct err *e)
{
	struct ipc_agent *rows, *now = find(d, asked->name), made;
	size_t at = now ? (size_t)(now - d->agents.rows) : d->agents.count;

	if (d->agents.err.kind) {
		*e = d->agents.err;
		return -1;
	}
	if (asked->is_new) {
		if (fill_new(d, asked, &made, e) < 0)
			return -1;
	} else if (!now) {
		return err_set(e, ERR_NOT_FOUND, "there is no such agent");
	} else {
		made = *now;
		if (asked->has_level) {
			made.level = asked->level;
			if (check_level(d, &made, e) < 0)
				return -1;
		}
		if (asked->rotates) {
			made.epoch++;
			made.rotated_ms = unix_ms();
		}
	}
	rows = must_alloc(calloc(d->agents.count + 1, sizeof(*rows)));
	if (d->agents.count)
		memcpy(rows, d->agents.rows, d->agents.count * sizeof(*rows));
	rows[at] = made;
	return replace_rows(d, rows, now ? d->agents.count : d->agents.count + 1, e);
}

static int delete_agent(struct daemon *d, const char *name, struct err *e)
{
	struct ipc_agent *rows, *now = find(d, name);
	size_t n = 0;

	if (!now)
		return err_set(e, ERR_NOT_FOUND, "there is no such agent");
	rows = must_alloc(calloc(d->agents.count, sizeof(*rows)));
	for (size_t i = 0; i < d->agents.count; i++)
		if (&d->agents.rows[i] != now)
			rows[n++] = d->agents.rows[i];
	return replace_rows(d, rows, n, e);
}

/* The list goes ahead of the answer: whoever has the answer sees the change. */
static void answer(struct daemon *d, struct requester who, const struct ipc *m, const char *what,
		   const struct err *e)
{
	if (!e->kind) {
		agents_tell_front(d);
		network_judge_all(d);
	}
	daemon_note(d, what, m->agent.name, e->kind ? "deny" : "done", e->msg);
	front_done(d, who, "", e->kind ? e : NULL);
}

void agent_request_put(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct err e = {0};

	(void)!put_agent(d, &m->agent, &e);
	answer(d, who, m, "agent.put", &e);
}

void agent_request_delete(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct err e = {0};

	(void)!delete_agent(d, m->agent.name, &e);
	answer(d, who, m, "agent.delete", &e);
}

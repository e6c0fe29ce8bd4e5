/*
 * The networks of sandboxes. A sandbox is booted without one. The front then sends the rules of the request; the
 * broker puts the operator's and the owner's stages in front of them, so that a front that lies cannot widen
 * anything, makes the namespace lead to listeners, and hands those to egress. <runtime>/boxes/ID.net has what a
 * later broker needs to do that again.
 */
#include "auth/tokens.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "net/stages.h"

#include <sys/mman.h>

#define MAGIC "clnet02"

struct net_file {
	char magic[8];
	uint32_t size; /* of the rules behind this */
	uint8_t asks;
	struct net_setup setup;
	char group[IPC_NAME], name[IPC_NAME];
	struct egress_meter before;
};

/* ---- rules ---- */

static void add_budget(struct net_policy_maker *m, const struct config_network *n)
{
	struct net_budget b = n->budget;

	if (!b.names)
		b.names = n->names_max;
	net_policy_budget(m, &b);
}

static int add_operator(struct net_policy_maker *m, const struct config_network *n, int request,
			struct err *e)
{
	net_policy_ceiling(m, NET_BY_OPERATOR, n->ceiling, n->allow_count > 0, request);
	for (uint32_t i = 0; i < n->allow_count; i++)
		if (net_policy_add(m, NET_RULE_ALLOW, n->allow[i], e) < 0)
			return -1;
	for (uint32_t i = 0; i < n->deny_count; i++)
		if (net_policy_add(m, NET_RULE_DENY, n->deny[i], e) < 0)
			return -1;
	add_budget(m, n);
	return 0;
}

/* Of a tenant the widest of its tokens' ceilings counts, with the rules of all (the front knows which it was). */
static int add_owner(const struct daemon *d, struct net_policy_maker *m, const char *owner,
		     int request, struct err *e)
{
	int most = NET_NONE;
	bool has_rules = true;

	for (size_t i = 0; i < tokens_count(d->tokens); i++) {
		const struct token *t = tokens_at(d->tokens, i);

		if (!token_is_of(t, owner))
			continue;
		most = token_net(t) > most ? token_net(t) : most;
		has_rules = has_rules && t->net_allow[0];
	}
	net_policy_ceiling(m, NET_BY_TOKEN, most, has_rules, request);
	for (size_t i = 0; i < tokens_count(d->tokens); i++) {
		const struct token *t = tokens_at(d->tokens, i);

		if (token_is_of(t, owner) && token_net(t) != NET_NONE &&
		    net_policy_add_words(m, NET_RULE_ALLOW, t->net_allow, e) < 0)
			return -1;
	}
	return 0;
}

static uint64_t left(uint64_t budget, uint64_t used)
{
	return !budget ? 0 : used < budget ? budget - used : 1;
}

/* The budgets are of its life, and egress counts from its own start. */
static void take_used(struct net_policy *p, const struct egress_meter *used)
{
	p->budget.tx_bytes = left(p->budget.tx_bytes, used->tx_bytes);
	p->budget.rx_bytes = left(p->budget.rx_bytes, used->rx_bytes);
	p->budget.connections = (uint32_t)left(p->budget.connections, used->connections);
}

int network_join(const struct daemon *d, const char *owner, int level, const void *request,
		 struct buf *ret, struct err *e)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf front = {0};
	int mode = net_policy_mode(request), rc;

	rc = add_operator(m, &d->config->network, mode, e);
	if (rc == 0 && owner[0])
		rc = add_owner(d, m, owner, mode, e);
	if (level >= 0)
		net_policy_ceiling(m, NET_BY_TRUST, trust_net(level), false, mode);
	if (rc == 0)
		rc = net_policy_write(m, &front, e);
	net_policy_free(m);
	return rc < 0 ? -1 : net_policy_join(buf_head(&front), request, ret, e);
}

/* Puts all stages together. */
static int judge(struct box *b, struct err *e)
{
	struct box_net *n = b->net;
	int rc;

	buf_drop(&n->rules, n->rules.len);
	rc = network_join(b->d, b->i.info.owner, agent_level_of(b), n->request, &n->rules, e);
	if (rc == 0)
		take_used((struct net_policy *)(void *)buf_head(&n->rules), &n->before);
	else
		buf_drop(&n->rules, n->rules.len);
	return rc;
}

static int mode_of(const struct box *b)
{
	return b->net && b->net->rules.len ? net_policy_mode(buf_head(&b->net->rules)) : NET_NONE;
}

/* ---- addresses and names ---- */

static bool has_network(const struct net_setup *s, const struct network *a)
{
	for (unsigned i = 0; i < s->network_count; i++)
		if (memcmp(&s->networks[i], a, sizeof(*a)) == 0)
			return true;
	return false;
}

static bool has_port(const uint16_t *ports, size_t count, uint16_t port)
{
	for (size_t i = 0; i < count; i++)
		if (ports[i] == port)
			return true;
	return false;
}

/* Does the namespace redirect all this already? More than that does no harm: egress refuses. */
static bool setup_suffices(const struct net_setup *now, const struct net_setup *wanted)
{
	bool good = now->everything || !wanted->everything;

	for (unsigned i = 0; good && i < wanted->network_count; i++)
		good = has_network(now, &wanted->networks[i]);
	for (unsigned i = 0; good && i < wanted->udp_count; i++)
		good = has_port(now->udp_ports, now->udp_count, wanted->udp_ports[i]);
	for (unsigned i = 0; good && wanted->localhost_ports[i]; i++)
		good = has_port(now->localhost_ports, ARRAY_LEN(now->localhost_ports),
				wanted->localhost_ports[i]);
	for (unsigned i = 0; good && wanted->tcp_ports[i]; i++)
		good = has_port(now->tcp_ports, ARRAY_LEN(now->tcp_ports), wanted->tcp_ports[i]);
	return good;
}

/* A namespace keeps the routes that it was given, and egress refuses what is asked for there. */
static void keep_routes(struct net_setup *s, const struct net_setup *old)
{
	memcpy(s->own4, old->own4, sizeof(s->own4));
	memcpy(s->own6, old->own6, sizeof(s->own6));
	memcpy(s->prefix6, old->prefix6, sizeof(s->prefix6));
	s->everything |= old->everything;
	for (unsigned i = 0; i < old->network_count; i++) {
		if (has_network(s, &old->networks[i]))
			continue;
		if (s->network_count < ARRAY_LEN(s->networks))
			s->networks[s->network_count++] = old->networks[i];
		else
			s->everything = 1;
	}
}

/* What the namespace must redirect may change with the rules; its addresses stay. True: it must be made again. */
static bool make_setup(struct box *b)
{
	struct box_net *n = b->net;
	struct net_setup fresh = {0};

	net_setup_from(&fresh, buf_head(&n->rules));
	/* Any address may be a question. */
	fresh.everything |= n->asks;
	if (n->setup.own4[0])
		keep_routes(&fresh, &n->setup);
	if (n->is_prepared && n->asks == n->egress_asks && setup_suffices(&n->setup, &fresh))
		return false;
	n->setup = fresh;
	return true;
}

static void tell_names(struct box *b)
{
	struct daemon *d = b->d;
	struct egress m = {.type = EGRESS_NAMES};
	auto_close int fd = openat(d->names_dir, b->i.info.id,
				   O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	memcpy(m.id, b->i.info.id, sizeof(m.id));
	if (fd < 0)
		log_error("cannot open a name file", "id", b->i.info.id, "error", strerror(errno));
	else
		egress_tell(d, &m, &fd, 1);
}

static char *read_names(int dir, const char *name, size_t *ret_len)
{
	auto_close int in = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *text = NULL;

	return in >= 0 && io_read_whole(in, 64 << 20, &text, ret_len) == 0 ? text : NULL;
}

static void write_names(int dir, const char *name, const char *head, const char *text, size_t len)
{
	auto_close int out =
		openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (out < 0 || io_write_all(out, head, strlen(head)) < 0 ||
	    io_write_all(out, text, len) < 0)
		log_warn("names of a sandbox could not be copied", "to", name);
}

static void names_of_snapshot(const char *snapshot, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%.20s.names", snapshot);
}

/*
 * Names keep their indexes. In front is what the sandbox has used of its budgets, for itself when it is started
 * again; egress skips that line.
 */
void network_names_save(struct daemon *d, const char *sandbox, const char *snapshot)
{
	struct box *b = box_find_live(d, sandbox);
	auto_free char *text = NULL;
	char name[IPC_ID + 8], head[128];
	struct egress_meter used;
	size_t len = 0;

	if (!b || !b->net)
		return;
	used = network_used(b->net);
	snprintf(head, sizeof(head), "# %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sandbox,
		 used.tx_bytes, used.rx_bytes, used.connections);
	names_of_snapshot(snapshot, name);
	text = read_names(d->names_dir, sandbox, &len);
	write_names(d->snapshots_dir, name, head, text ? text : "", text ? len : 0);
}

/* Only into a sandbox that has no names yet. */
static void load_names(struct box *b, const char *snapshot)
{
	const char *id = b->i.info.id;
	struct egress_meter used = {0};
	char name[IPC_ID + 8], of[IPC_ID];
	auto_free char *text = NULL;
	const char *end;
	size_t len = 0;

	if (!ipc_id_is_valid(snapshot) || faccessat(b->d->names_dir, id, F_OK, 0) == 0)
		return;
	names_of_snapshot(snapshot, name);
	text = read_names(b->d->snapshots_dir, name, &len);
	end = text ? memchr(text, '\n', len) : NULL;
	if (!end)
		return;
	write_names(b->d->names_dir, id, "", end + 1, len - (size_t)(end + 1 - text));
	/* A fork begins with budgets of its own. */
	if (sscanf(text, "# %20s %" SCNu64 " %" SCNu64 " %" SCNu64, of, &used.tx_bytes,
		   &used.rx_bytes, &used.connections) == 4 &&
	    str_equal(of, id))
		b->net->before = used;
}

/* ---- egress ---- */

static void tell_rules(struct box *b)
{
	struct egress m = {.type = EGRESS_RULES};

	memcpy(m.id, b->i.info.id, sizeof(m.id));
	egress_tell_bytes(b->d, &m, buf_head(&b->net->rules), b->net->rules.len);
}

/* type: EGRESS_ADD or EGRESS_LISTENERS. */
static void tell_sandbox(struct box *b, uint32_t type, const struct net_listeners *l)
{
	struct egress m = {.type = type};
	const struct net_setup *s = &b->net->setup;

	memcpy(m.add.id, b->i.info.id, sizeof(m.add.id));
	memcpy(m.add.owner, b->i.info.owner, sizeof(m.add.owner));
	m.add.how = b->i.info.net_how;
	m.add.asks = b->net->egress_asks = b->net->asks;
	m.add.fd_count = (uint8_t)l->count;
	memcpy(m.add.own4, s->own4, sizeof(m.add.own4));
	memcpy(m.add.own6, s->own6, sizeof(m.add.own6));
	memcpy(m.add.prefix6, s->prefix6, sizeof(m.add.prefix6));
	m.add.names_max = b->d->config->network.names_max;
	egress_tell(b->d, &m, l->fds, l->count);
}

struct preparation {
	struct box *b;
	struct err err;
};

/* The listeners come after the rules: without rules egress would refuse what is asked for already. */
static void on_prepared(void *arg, const struct provider_result *r, const struct err *e)
{
	static const struct net_listeners none;
	struct preparation *p = arg;
	struct box *b = p->b;
	struct net_listeners *l = r->listeners;

	b->i.info.net_how = e ? NET_REDIRECT_LOST : (uint8_t)l->how;
	if (e) {
		p->err = *e;
		return;
	}
	tell_sandbox(b, EGRESS_ADD, &none);
	tell_names(b);
	tell_rules(b);
	segment_tell(b);
	tell_sandbox(b, EGRESS_LISTENERS, l);
	/* No copy stays here: connections would wait in it when the role is gone. */
	net_listeners_close(l);
	b->net->is_prepared = true;
	secrets_prepared(b);
}

static int prepare_network(struct box *b, struct err *e)
{
	struct preparation p = {.b = b};

	if (!b->i.row->net_prepare)
		return err_set(e, ERR_UNSUPPORTED, "net: not with provider %s", b->i.row->name);
	if (b->d->egress.watch.fd < 0 && roles_start_egress(b->d, e) < 0)
		return -1;
	b->i.row->net_prepare(&b->i, &b->net->setup, on_prepared, &p);
	if (p.err.kind)
		*e = p.err;
	return p.err.kind ? -1 : 0;
}

/* ---- what the front is told ---- */

static void tell_front(struct box *b)
{
	struct ipc m = {.type = IPC_NETWORK_IS};
	struct box_net *n = b->net;

	b->i.info.net = (uint8_t)mode_of(b);
	if (n->told_mode == b->i.info.net && n->told_how == b->i.info.net_how)
		return;
	n->told_mode = m.network.mode = b->i.info.net;
	n->told_how = m.network.how = b->i.info.net_how;
	memcpy(m.network.id, b->i.info.id, sizeof(m.network.id));
	front_news(b->d, &m, -1);
}

/* A change that needed other listeners is done. */
static void answer_change(struct box *b)
{
	struct requester who = b->net->changer;

	b->net->changer = (struct requester){0};
	b->i.info.net = b->net->told_mode = (uint8_t)mode_of(b);
	b->net->told_how = b->i.info.net_how;
	if (who.serial)
		secrets_answer_in_force(b, who);
}

void network_restore(struct box *b)
{
	struct err e = {0};

	if (judge(b, &e) < 0 || (mode_of(b) != NET_NONE && prepare_network(b, &e) < 0)) {
		log_error("a sandbox has lost its network", "id", b->i.info.id, "error", e.msg);
		b->i.info.net_how = NET_REDIRECT_LOST;
	}
	tell_front(b);
	answer_change(b);
}

void network_lost(struct box *b)
{
	network_keep_meter(b->net);
	if (mode_of(b) == NET_NONE)
		return;
	b->i.info.net_how = NET_REDIRECT_LOST;
	tell_front(b);
}

/* ---- the file ---- */

static void file_name(const struct box *b, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%s.net", b->i.info.id);
}

static int write_file(const struct box *b, struct err *e)
{
	const struct box_net *n = b->net;
	const struct net_policy *p = n->request;
	struct net_file head = {.magic = MAGIC,
				.size = p->size,
				.asks = n->asks,
				.setup = n->setup,
				.before = network_used(n)};
	char name[IPC_ID + 8], draft[IPC_ID + 8];
	auto_close int fd = -1;

	file_name(b, name);
	snprintf(draft, sizeof(draft), "%s.nnw", b->i.info.id);
	memcpy(head.group, n->group, sizeof(head.group));
	memcpy(head.name, n->name, sizeof(head.name));
	fd = openat(b->d->host.boxes_dir, draft,
		    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || io_write_all(fd, &head, sizeof(head)) < 0 ||
	    io_write_all(fd, p, p->size) < 0 ||
	    renameat(b->d->host.boxes_dir, draft, b->d->host.boxes_dir, name) < 0)
		return err_sys(e, "cannot write down the network of %s", b->i.info.id);
	return 0;
}

/* Takes bytes, which were checked. */
static struct box_net *net_new(void *bytes)
{
	struct box_net *n = must_alloc(calloc(1, sizeof(*n)));

	n->request = bytes;
	return n;
}

static void net_free(struct box_net *n)
{
	if (!n)
		return;
	free(n->request);
	free(n->groups);
	buf_done(&n->rules);
	free(n);
}

static int read_file(struct box *b, struct err *e)
{
	char name[IPC_ID + 8];
	auto_close int fd = -1;
	auto_free char *text = NULL;
	struct net_file *head;
	size_t len;
	void *rules;

	file_name(b, name);
	fd = openat(b->d->host.boxes_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot read its network");
	if (io_read_whole(fd, sizeof(*head) + NET_POLICY_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read its network");
	head = (void *)text;
	if (len < sizeof(*head) || memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0 ||
	    head->size != len - sizeof(*head))
		return err_set(e, ERR_INVALID, "what is written down of its network is not whole");
	rules = must_alloc(malloc(head->size));
	memcpy(rules, head + 1, head->size);
	if (net_policy_check(rules, head->size, e) < 0) {
		free(rules);
		return -1;
	}
	b->net = net_new(rules);
	b->net->asks = head->asks;
	b->net->before = head->before;
	b->net->setup = head->setup;
	snprintf(b->net->group, sizeof(b->net->group), "%s", head->group);
	snprintf(b->net->name, sizeof(b->net->name), "%s", head->name);
	return 0;
}

void network_adopt(struct box *b)
{
	struct err e = {0};

	if (read_file(b, &e) < 0 || (b->net && judge(b, &e) < 0)) {
		/* It has none until somebody asks for one: whatever is inside is refused. */
		log_error("a sandbox comes back without its network", "id", b->i.info.id, "error",
			  e.msg);
		net_free(take_ptr(b->net));
		b->i.info.net_how = NET_REDIRECT_LOST;
		return;
	}
	if (!b->net)
		return;
	make_setup(b);
	b->i.info.net = (uint8_t)mode_of(b);
	/* Until egress has it again. */
	b->i.info.net_how = mode_of(b) == NET_NONE ? NET_REDIRECT_NONE : NET_REDIRECT_LOST;
	if (b->d->egress.watch.fd < 0 && mode_of(b) != NET_NONE && roles_start_egress(b->d, &e) < 0)
		log_error("role egress cannot be started", "error", e.msg);
}

void network_remove(struct box *b)
{
	struct egress m = {.type = EGRESS_REMOVE};
	char name[IPC_ID + 8];

	file_name(b, name);
	unlinkat(b->d->host.boxes_dir, name, 0);
	unlinkat(b->d->names_dir, b->i.info.id, 0);
	if (!b->net)
		return;
	answer_change(b);
	attempts_flush(b);
	memcpy(m.id, b->i.info.id, sizeof(m.id));
	if (b->net->is_prepared)
		egress_tell(b->d, &m, NULL, 0);
	net_free(take_ptr(b->net));
}

/* ---- requests of the front ---- */

/* A copy of the front's memfd: nobody changes it while it is judged. */
static void *read_request(int fd, struct err *e)
{
	char *bytes = NULL;
	size_t len = 0;

	if (fd < 0 || fcntl(fd, F_GET_SEALS) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
	    io_read_whole(fd, NET_POLICY_MAX, &bytes, &len) < 0) {
		err_set(e, ERR_INVALID, "the rules cannot be read");
		return NULL;
	}
	if (net_policy_check(bytes, len, e) == 0 &&
	    ((struct net_policy *)(void *)bytes)->stage_count == 1)
		return bytes;
	if (!e->kind)
		err_set(e, ERR_INVALID, "a request has one stage of rules");
	free(bytes);
	return NULL;
}

/* The ports are free for new listeners once egress has closed the old ones; network_left goes on then. */
static void leave_egress(struct box *b)
{
	struct egress m = {.type = EGRESS_REMOVE};

	memcpy(m.id, b->i.info.id, sizeof(m.id));
	egress_tell(b->d, &m, NULL, 0);
	b->net->is_leaving = true;
}

void network_left(struct box *b)
{
	if (!b->net || !b->net->is_leaving)
		return;
	network_keep_meter(b->net);
	network_restore(b);
}

struct egress_meter network_used(const struct box_net *n)
{
	struct egress_meter all = n->now;

	all.tx_bytes += n->before.tx_bytes;
	all.rx_bytes += n->before.rx_bytes;
	all.connections += n->before.connections;
	all.denied += n->before.denied;
	return all;
}

void network_keep_meter(struct box_net *n)
{
	n->before = network_used(n);
	n->before.open = 0;
	n->now = (struct egress_meter){.open = 0};
	n->is_prepared = n->is_leaving = false;
}

void network_metered(struct box *b, const struct egress_meter *now)
{
	struct box_net *n = b->net;
	const struct net_policy *p = n->rules.len ? (void *)buf_head(&n->rules) : NULL;
	struct err e;

	n->now = *now;
	if (p && (p->budget.tx_bytes || p->budget.rx_bytes || p->budget.connections) &&
	    write_file(b, &e) < 0)
		log_warn("what a sandbox used of its budgets is not written down", "id",
			 b->i.info.id, "error", e.msg);
}

/* Makes rules and setup out of the request, and hands them on. */
static int enforce(struct box *b, struct err *e)
{
	bool changed;

	if (judge(b, e) < 0)
		return -1;
	changed = make_setup(b);
	if (write_file(b, e) < 0)
		return -1;
	if (b->net->is_prepared && !changed) {
		tell_rules(b);
		segment_tell(b);
	}
	if (b->net->is_prepared && changed)
		leave_egress(b);
	else if (!b->net->is_prepared && !b->net->is_leaving && mode_of(b) != NET_NONE)
		return prepare_network(b, e);
	return 0;
}

/* The new rules are in force, or the old ones stay. */
static int change_network(struct box *b, struct box_net *fresh, const char *snapshot, struct err *e)
{
	struct box_net *old = b->net;
	struct err ignored;

	if (old) {
		fresh->setup = old->setup;
		fresh->before = old->before;
		fresh->now = old->now;
		fresh->is_prepared = old->is_prepared;
		fresh->is_leaving = old->is_leaving;
		fresh->egress_asks = old->egress_asks;
		fresh->changer = old->changer;
		fresh->told_mode = old->told_mode;
		fresh->told_how = old->told_how;
		fresh->groups = old->groups;
	}
	b->net = fresh;
	load_names(b, snapshot);
	if (enforce(b, e) == 0) {
		if (old)
			old->groups = NULL;
		net_free(old);
		return 0;
	}
	b->net = old;
	fresh->groups = NULL;
	net_free(fresh);
	if (old && write_file(b, &ignored) < 0)
		log_error("cannot write down a network", "id", b->i.info.id);
	return -1;
}

void network_request(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = box_find_live(d, m->network.id);
	struct err e = {0};
	struct box_net *fresh;
	void *bytes = NULL;

	if (!b)
		err_set(&e, ERR_NOT_FOUND, "there is no such sandbox");
	else if (provider_check(b->i.info.provider, CAN_NET, &e) == 0)
		bytes = read_request(d->front.request_fd, &e);
	if (bytes) {
		fresh = net_new(bytes);
		fresh->asks = m->network.asks;
		if (segment_take(fresh, &m->network, &e) == 0)
			(void)!change_network(b, fresh, m->network.snapshot, &e);
		else
			net_free(fresh);
	}
	if (e.kind) {
		front_done(d, who, m->network.id, &e);
		return;
	}
	/* One that still waits for an earlier change hears of this one. */
	answer_change(b);
	b->net->changer = who;
	if (!b->net->is_leaving)
		answer_change(b);
}

void network_request_answer(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct egress verdict = {
		.type = EGRESS_VERDICT,
		.verdict = {.serial = m->network.serial, .allow = m->network.allows != 0}};
	struct box *b = box_find_live(d, m->network.id);
	struct err e = {0};

	if (b && b->net && b->net->asks) {
		memcpy(verdict.verdict.id, b->i.info.id, sizeof(verdict.verdict.id));
		egress_tell(d, &verdict, NULL, 0);
	} else {
		err_set(&e, ERR_NOT_FOUND, "this sandbox asks nothing");
	}
	front_done(d, who, m->network.id, e.kind ? &e : NULL);
}

void network_judge_all(struct daemon *d)
{
	struct err e;

	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = d->boxes[i]; b; b = b->next) {
			if (b->state != BOX_LIVE || !b->net)
				continue;
			e = (struct err){0};
			(void)!enforce(b, &e);
			/* Without rules egress refuses everything. */
			if (e.kind && b->net->is_prepared)
				tell_rules(b);
			if (e.kind)
				log_error("the rules of a sandbox cannot be made", "id",
					  b->i.info.id, "error", e.msg);
			tell_front(b);
		}
}

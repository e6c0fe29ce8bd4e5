/*
 * The network of a sandbox as the front sees it: the rules of its request go to the broker, which enforces them;
 * counters and attempts come back. The last attempts are kept for clients, who can also follow them.
 */
#include "manager/manager_internal.h"

#include "net/redirect.h"
#include "net/stages.h"

#include <sys/mman.h>

#define ATTEMPTS 128 /* kept for each sandbox */
#define SYNC_MS 1000

struct net_follower {
	struct sandbox *s; /* held */
	void (*call)(void *arg, const json_t *attempt);
	void *arg;
	struct net_follower *next, **back;
};

struct sandbox_net {
	uint8_t mode, how; /* as the broker says */
	struct egress_meter meter;
	json_t *attempts[ATTEMPTS];
	bool is_metered; /* a first meter of an earlier front's time is not news */
	uint64_t next_seq;
	struct net_follower *followers;
};

static const char *const mode_names[] = {"none", "allow", "public", "isolated"};
static const char *const how_names[] = {"none", "tproxy", "ports", "lost"};
static const char *const phase_names[] = {[EGRESS_OPENED] = "opened",
					  [EGRESS_DENIED] = "denied",
					  [EGRESS_CLOSED] = "closed",
					  [EGRESS_FAILED] = "failed",
					  [EGRESS_LOOKUP] = "lookup"};

static const char *name_in(const char *const *names, size_t count, unsigned i)
{
	return i < count && names[i] ? names[i] : "unknown";
}

const char *net_mode_name(int mode)
{
	return name_in(mode_names, ARRAY_LEN(mode_names), (unsigned)mode);
}

static struct sandbox_net *net_of(struct sandbox *s)
{
	if (!s->net)
		s->net = must_alloc(calloc(1, sizeof(*s->net)));
	return s->net;
}

void network_free(struct sandbox *s)
{
	struct sandbox_net *n = take_ptr(s->net);

	if (!n)
		return;
	for (size_t i = 0; i < ATTEMPTS; i++)
		json_decref(n->attempts[i]);
	free(n);
}

/* ---- ceilings ---- */

int network_most(const struct manager *m, const struct caller *who)
{
	int most = m->p.config->network.ceiling;

	/* The operator has no token. */
	return who->token[0] && who->net < most ? who->net : most;
}

int network_check(struct manager *m, const struct caller *who, const struct sandbox_spec *spec,
		  struct err *e)
{
	int most = network_most(m, who);
	auto_buf struct buf rules = {0};

	if (spec->net == NET_NONE)
		return 0;
	if (provider_check(spec->provider, CAN_NET, e) < 0)
		return -1;
	if (spec->net != NET_ISOLATED && spec->net > most)
		return err_field(e, ERR_DENIED, "net", "net: '%s' is more than %s may have, '%s'",
				 net_mode_name(spec->net),
				 m->p.config->network.ceiling <= most && !who->token[0]
					 ? "a sandbox of this daemon"
					 : "this token",
				 net_mode_name(most));
	return net_policy_from_spec(spec, &rules, e);
}

/* ---- asking the broker ---- */

/* The hosts of its secrets are allowed: without that they would be of no use. */
static int rules_of(const struct sandbox *s, struct buf *ret, struct err *e)
{
	struct sandbox_spec spec = s->o.spec;
	auto_list struct list allow = {0};

	for (size_t i = 0; i < spec.allow.count; i++)
		list_add(&allow, spec.allow.items[i]);
	for (size_t i = 0; spec.net != NET_NONE && i < s->secret_allow.count; i++)
		list_add(&allow, s->secret_allow.items[i]);
	spec.allow = allow;
	return net_policy_from_spec(&spec, ret, e);
}

static int rules_fd(const struct sandbox *s, struct err *e)
{
	auto_buf struct buf rules = {0};
	auto_close int fd = -1;

	if (rules_of(s, &rules, e) < 0)
		return -1;
	fd = memfd_create("rules", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || io_write_all(fd, buf_head(&rules), rules.len) < 0 || io_seal(fd) < 0)
		return err_sys(e, "cannot hand over the rules");
	return take_fd(&fd);
}

void network_bring(struct job *j, job_step step)
{
	struct sandbox *s = j->s;
	struct ipc m = {.type = IPC_NETWORK};
	struct err e = {0};
	auto_close int fd = rules_fd(s, &e);

	if (fd < 0) {
		step(j, &e);
		return;
	}
	m.network.asks = s->o.spec.net_asks;
	memcpy(m.network.id, s->id, sizeof(m.network.id));
	memcpy(m.network.snapshot, j->kind == JOB_START ? s->kept : s->o.snapshot,
	       sizeof(m.network.snapshot));
	segment_fill(s, &m.network);
	job_ask_with(j, &m, fd, step);
}

void network_is(struct sandbox *s, int mode, int how)
{
	struct sandbox_net *n = net_of(s);

	if (n->mode == mode && n->how == how)
		return;
	n->mode = (uint8_t)mode;
	n->how = (uint8_t)how;
	json_decref(take_ptr(s->layers));
}

const char *network_how(const struct sandbox *s)
{
	return s->net && s->net->mode != NET_NONE
		       ? name_in(how_names, ARRAY_LEN(how_names), s->net->how)
		       : "none";
}

/* ---- changing it ---- */

/* Exchanges all that concerns the network. */
static void swap_network(struct sandbox_spec *a, struct sandbox_spec *b)
{
	struct sandbox_spec old = *a;

	a->net = b->net;
	a->net_asks = b->net_asks;
	a->allow = b->allow;
	a->deny = b->deny;
	a->net_limits = b->net_limits;
	a->secrets = b->secrets;
	a->net_group = b->net_group;
	b->net = old.net;
	b->net_asks = old.net_asks;
	b->allow = old.allow;
	b->deny = old.deny;
	b->net_limits = old.net_limits;
	b->secrets = old.secrets;
	b->net_group = old.net_group;
}

static void change_failed(struct job *j, const struct err *e)
{
	swap_network(&j->s->o.spec, &j->network);
	secrets_swap(j);
	secrets_give_back(j);
	sandbox_save_back(j->s);
	job_end(j, e);
}

static void on_changed(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	if (e) {
		change_failed(j, e);
		return;
	}
	network_is(s, j->reply->network.mode, j->reply->network.how);
	event_add(s, "sandbox.network",
		  json_pack("{s:s}", "network", net_mode_name(j->reply->network.mode)));
	job_end(j, NULL);
}

static void on_given(struct job *j, const struct err *e)
{
	if (e)
		change_failed(j, e);
	else
		network_bring(j, on_changed);
}

/* The guest has left port 53 to egress, and gives commands their placeholders. */
static void on_configured(struct job *j, const struct err *e)
{
	if (e)
		change_failed(j, e);
	else
		secrets_give(j, on_given);
}

static bool has_new_placeholders(const struct job *j)
{
	const struct list *a = &j->secrets.placeholders, *b = &j->s->o.placeholders;
	bool same = a->count == b->count;

	for (size_t i = 0; same && i < a->count; i++)
		same = str_equal(a->items[i], b->items[i]);
	return !same;
}

static void on_looked_up(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;
	bool configures = (!s->net && j->network.net != NET_NONE) || has_new_placeholders(j);
	struct err why;

	if (!e && configures && s->state == STATE_PAUSED)
		e = (err_set(&why, ERR_CONFLICT, "the sandbox is paused; resume it first"), &why);
	if (e) {
		job_end(j, e);
		return;
	}
	swap_network(&s->o.spec, &j->network);
	secrets_swap(j);
	if (sandbox_save(s, &why) < 0) {
		swap_network(&s->o.spec, &j->network);
		secrets_swap(j);
		job_end(j, &why);
	} else if (s->state == STATE_STOPPED) {
		job_end(j, NULL);
	} else if (configures) {
		job_configure(j, sandbox_ttl_left_ms(s), on_configured);
	} else {
		on_configured(j, NULL);
	}
}

void network_begin(struct job *j)
{
	struct sandbox *s = j->s;
	struct err e = {0};

	if (network_check(s->m, &j->who, &j->network, &e) < 0) {
		job_end(j, &e);
		return;
	}
	if (s->state != STATE_STOPPED && !s->link) {
		err_set(&e, ERR_CONFLICT, "the sandbox cannot be reached just now");
		job_end(j, &e);
		return;
	}
	secrets_look_up(j, &j->network.secrets, on_looked_up);
}

void sandbox_set_network(struct sandbox *s, const struct caller *who, struct sandbox_spec *spec,
			 sandbox_done done, void *arg)
{
	struct job *j = job_new_for(s, JOB_NETWORK, who);

	j->done = done;
	j->arg = arg;
	spec_init(&j->network);
	swap_network(&j->network, spec);
	j->network.provider = s->o.spec.provider;
	job_submit(j);
}

/* ---- attempts ---- */

static json_t *attempt_json(const struct egress_record *r, uint64_t seq)
{
	bool allowed = r->phase == EGRESS_OPENED || r->phase == EGRESS_CLOSED;

	return json_pack(
		"{s:I,s:o,s:s,s:s,s:I,s:o,s:o,s:i,s:s,s:o,s:o,s:o,s:o,s:b,s:I,s:I,s:f,s:I}", "seq",
		(json_int_t)seq, "time", time_json(r->started_ms), "event",
		name_in(phase_names, ARRAY_LEN(phase_names), r->phase), "verdict",
		allowed			    ? "allow"
		: r->phase == EGRESS_FAILED ? "fail"
					    : "deny",
		"connection", (json_int_t)r->serial, "name", text_or_null(r->name), "address",
		text_or_null(r->address), "port", r->port, "protocol", r->udp ? "udp" : "tcp",
		"rule", text_or_null(r->rule), "why", text_or_null(r->why), "remedy",
		text_or_null(r->remedy), "secret", text_or_null(r->secret), "inspected",
		r->inspected, "tx_bytes", (json_int_t)r->tx_bytes, "rx_bytes",
		(json_int_t)r->rx_bytes, "duration_ms", (double)r->duration_ms, "count",
		(json_int_t)(r->count ? r->count : 1));
}

static void add_attempt(struct sandbox *s, const struct egress_record *r)
{
	struct sandbox_net *n = net_of(s);
	json_t **place = &n->attempts[n->next_seq % ATTEMPTS], *attempt;

	n->next_seq++;
	attempt = attempt_json(r, n->next_seq);
	json_decref(*place);
	*place = attempt;
	if (r->phase == EGRESS_DENIED || r->phase == EGRESS_LOOKUP)
		denials_told(s, r->phase == EGRESS_LOOKUP, r->count ? r->count : 1);
	for (struct net_follower *f = n->followers, *next; f; f = next) {
		next = f->next;
		f->call(f->arg, attempt);
	}
}

/* Counters of a sandbox's life, so also after a new front has begun to count. */
static void take_meter(struct sandbox *s, const struct egress_meter *now)
{
	struct manager_metrics *all = &s->m->metrics;
	struct sandbox_net *n = net_of(s);
	const struct egress_meter *old = &n->meter;

	if (n->is_metered) {
		all->net_tx_bytes += now->tx_bytes - old->tx_bytes;
		all->net_rx_bytes += now->rx_bytes - old->rx_bytes;
		all->net_connections += now->connections - old->connections;
		all->net_denied += now->denied - old->denied;
	}
	n->is_metered = true;
	n->meter = *now;
}

void network_usage(const struct sandbox *s, struct ipc_stats *st)
{
	if (!s->net)
		return;
	st->net_tx_bytes = s->net->meter.tx_bytes;
	st->net_rx_bytes = s->net->meter.rx_bytes;
}

void network_news(struct manager *m, const struct ipc *news)
{
	/* Each of these begins with it. */
	struct sandbox *s = manager_lookup(m, news->id);

	if (!s)
		return;
	sandbox_hold(s);
	if (news->type == IPC_NETWORK_IS)
		network_is(s, news->network.mode, news->network.how);
	else if (news->type == IPC_NET_METER)
		take_meter(s, &news->net_meter);
	else if (news->type == IPC_NET_ASKS)
		question_add(s, &news->net_record);
	else
		add_attempt(s, &news->net_record);
	sandbox_release(s);
}

/* ---- the record of a command ---- */

struct sync_wait {
	struct sandbox *s; /* held */
	void (*done)(void *arg);
	void *arg;
	struct loop_timer timer;
};

static void end_sync(struct sync_wait *w)
{
	loop_timer_stop(w->s->m->p.loop, &w->timer);
	if (w->done)
		w->done(w->arg);
	w->done = NULL;
}

static void on_sync_late(void *arg)
{
	end_sync(arg);
}

static void on_synced(void *arg, const struct ipc *reply, int fd)
{
	struct sync_wait *w = arg;

	close_fd(&fd);
	end_sync(w);
	sandbox_release(w->s);
	free(w);
}

void network_sync(struct sandbox *s, void (*done)(void *arg), void *arg)
{
	struct sync_wait *w = must_alloc(calloc(1, sizeof(*w)));

	*w = (struct sync_wait){sandbox_hold(s), done, arg, {.call = on_sync_late, .arg = w}};
	/* A role that is stopped must not hold up a record. */
	loop_timer_set(s->m->p.loop, &w->timer, SYNC_MS);
	broker_ask_id(s->m->p.broker, IPC_NET_FLUSH, s->id, on_synced, w);
}

void network_mark(const struct sandbox *s, struct network_mark *ret)
{
	if (s->net)
		*ret = (struct network_mark){s->net->next_seq, s->net->meter.tx_bytes,
					     s->net->meter.rx_bytes};
}

static const char *attempt_text(const json_t *attempt, const char *key)
{
	const char *text = json_string_value(json_object_get(attempt, key));

	return text ? text : "";
}

/* False: it is no denial. */
static bool attempt_denial(const json_t *attempt, struct denial *d)
{
	const char *name = attempt_text(attempt, "name"), *remedy = attempt_text(attempt, "remedy");
	bool is_lookup = str_equal(attempt_text(attempt, "event"), "lookup");
	int port = (int)json_integer_value(json_object_get(attempt, "port"));

	if (!str_equal(attempt_text(attempt, "verdict"), "deny"))
		return false;
	*d = (struct denial){
		.count = (uint64_t)json_integer_value(json_object_get(attempt, "count"))};
	if (!name[0])
		name = attempt_text(attempt, "address");
	snprintf(d->what, sizeof(d->what), is_lookup ? "resolve" : "connect");
	if (port)
		snprintf(d->target, sizeof(d->target),
			 strchr(name, ':') ? "[%.200s]:%d" : "%.200s:%d", name, port);
	else
		snprintf(d->target, sizeof(d->target), "%s", name);
	snprintf(d->rule, sizeof(d->rule), "%s", attempt_text(attempt, "rule"));
	snprintf(d->explain, sizeof(d->explain), "%s%s%s", attempt_text(attempt, "why"),
		 remedy[0] ? "; if it is needed: " : "", remedy);
	return true;
}

/* The guest sees a connection that cannot even begin, egress one that it was asked for. */
static void add_denial(struct result *r, const struct denial *d)
{
	for (size_t i = 0; i < r->denial_count; i++)
		if (str_equal(r->denials[i].what, d->what) &&
		    str_equal(r->denials[i].target, d->target)) {
			r->denials[i] = *d;
			return;
		}
	result_add_denials(r, d, 1);
}

/* Of several the first. */
static void say_failure(const json_t *attempt, struct result *r)
{
	const char *name = attempt_text(attempt, "name");

	snprintf(r->net_note, sizeof(r->net_note), "%.100s:%d: %s",
		 name[0] ? name : attempt_text(attempt, "address"),
		 (int)json_integer_value(json_object_get(attempt, "port")),
		 attempt_text(attempt, "why"));
	result_add_note(r, r->net_note);
}

void network_since(struct sandbox *s, const struct network_mark *mark, struct result *r)
{
	const struct sandbox_net *n = s->net;
	uint64_t from = mark->seq;

	if (!n)
		return;
	r->net_tx_bytes = n->meter.tx_bytes - mark->tx_bytes;
	r->net_rx_bytes = n->meter.rx_bytes - mark->rx_bytes;
	if (n->next_seq - from > ATTEMPTS)
		from = n->next_seq - ATTEMPTS;
	for (uint64_t i = from; i < n->next_seq; i++) {
		const json_t *attempt = n->attempts[i % ATTEMPTS];
		struct denial d;

		if (attempt_denial(attempt, &d))
			add_denial(r, &d);
		else if (str_equal(attempt_text(attempt, "event"), "failed") && !r->net_note[0])
			say_failure(attempt, r);
	}
}

/* "10.0.0.1:80" or "[fd00::1]:80" */
static bool read_target(const char *target, struct network *ret, uint16_t *ret_port)
{
	const char *colon = strrchr(target, ':');
	bool in_brackets = target[0] == '[';
	size_t len = colon ? (size_t)(colon - target) : 0;
	char host[64];

	if (len < 3 || len >= sizeof(host))
		return false;
	memcpy(host, target + in_brackets, len - 2u * in_brackets);
	host[len - 2u * in_brackets] = '\0';
	*ret_port = (uint16_t)strtoul(colon + 1, NULL, 10);
	return network_parse(host, ret);
}

/* Addresses that egress makes up for names. */
static bool is_made_up(const struct network *n)
{
	struct network v4, v6;

	return (network_parse("198.18.0.0/15", &v4) && network_has(&v4, n)) ||
	       (network_parse("fd00::/8", &v6) && network_has(&v6, n));
}

bool network_corrects(const struct sandbox *s, struct denial *d)
{
	struct net_question q = {.port = 0};
	struct net_answer a = {.rule = ""};
	auto_buf struct buf rules = {0};
	struct net_index *index;
	struct network at;
	struct err e = {0};

	if (sandbox_network_mode(s) == NET_NONE || !str_equal(d->what, "connect") ||
	    !read_target(d->target, &at, &q.port))
		return false;
	if (is_made_up(&at))
		return true;
	if (net_policy_from_spec(&s->o.spec, &rules, &e) < 0)
		return false;
	index = net_index_new(buf_head(&rules), rules.len, &e);
	if (!index)
		return false;
	q.address = at.address;
	net_decide(index, &q, &a);
	snprintf(d->rule, sizeof(d->rule), "%s", a.rule);
	snprintf(d->explain, sizeof(d->explain), "%s%s%s", a.why,
		 a.remedy[0] ? "; if it is needed: " : "", a.remedy);
	net_index_free(index);
	return a.allowed;
}

struct net_follower *
sandbox_follow_network(struct sandbox *s, void (*call)(void *arg, const json_t *attempt), void *arg)
{
	struct net_follower *f = must_alloc(calloc(1, sizeof(*f)));
	struct sandbox_net *n = net_of(s);

	*f = (struct net_follower){sandbox_hold(s), call, arg, n->followers, &n->followers};
	if (f->next)
		f->next->back = &f->next;
	n->followers = f;
	return f;
}

void sandbox_unfollow_network(struct net_follower *f)
{
	if (!f)
		return;
	*f->back = f->next;
	if (f->next)
		f->next->back = f->back;
	sandbox_release(f->s);
	free(f);
}

/* ---- as JSON ---- */

static json_t *words_json(const struct list *l)
{
	json_t *all = json_array();

	for (size_t i = 0; i < l->count; i++)
		json_array_append_new(all, json_string(l->items[i]));
	return all;
}

int sandbox_network_mode(const struct sandbox *s)
{
	return s->net ? s->net->mode : NET_NONE;
}

static json_t *attempts_json(const struct sandbox_net *n)
{
	json_t *all = json_array();
	uint64_t from = n && n->next_seq > ATTEMPTS ? n->next_seq - ATTEMPTS : 0;

	for (uint64_t i = from; n && i < n->next_seq; i++)
		json_array_append(all, n->attempts[i % ATTEMPTS]);
	return all;
}

json_t *sandbox_describe_network(const struct sandbox *s)
{
	static const struct egress_meter none;
	const struct egress_meter *meter = s->net ? &s->net->meter : &none;

	return json_pack("{s:s,s:s,s:o,s:o,s:o,s:s,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "mode",
			 net_mode_name(sandbox_network_mode(s)), "requested",
			 s->o.spec.net_asks ? "ask" : net_mode_name(s->o.spec.net), "allow",
			 words_json(&s->o.spec.allow), "deny", words_json(&s->o.spec.deny),
			 "secrets", secrets_names(&s->o.spec.secrets), "layer", network_how(s),
			 "tx_bytes", (json_int_t)meter->tx_bytes, "rx_bytes",
			 (json_int_t)meter->rx_bytes, "connections", (json_int_t)meter->connections,
			 "open", (json_int_t)meter->open, "denied", (json_int_t)meter->denied,
			 "attempts", attempts_json(s->net), "questions", questions_json(s));
}

struct network_question {
	struct sandbox *s; /* held */
	json_done done;
	void *arg;
};

static void on_up_to_date(void *arg)
{
	struct network_question *q = arg;

	q->done(q->arg, sandbox_describe_network(q->s), NULL);
	sandbox_release(q->s);
	free(q);
}

void sandbox_network(struct sandbox *s, json_done done, void *arg)
{
	struct network_question *q = must_alloc(malloc(sizeof(*q)));

	*q = (struct network_question){sandbox_hold(s), done, arg};
	network_sync(s, on_up_to_date, q);
}

/* Starts cloche-egress for one run, speaks with it, and ends it. */
#include "sandbox/outside/run_net.h"

#include "model/variables.h"
#include "net/stages.h"
#include "sandbox/inside/trust.h"
#include "sandbox/outside/ask.h"
#include "sandbox/outside/attempts.h"
#include "sandbox/outside/published.h"
#include "sandbox/outside/secrets.h"
#include "sandbox/sandbox.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MESSAGES_AT_ONCE 64
#define LAST_MS 2000 /* for the last records */

struct run_net {
	const char *program;
	struct buf rules;
	struct net_setup setup;
	struct run_secrets secrets;
	struct attempts attempts;
	struct ask ask;
	struct published published;
	size_t polled;			   /* of published: how many entries of the last poll */
	struct egress_meter meter, before; /* of this instance, of earlier ones */
	int sock;			   /* to egress; -1: it was not started, or is gone */
	pid_t pid;			   /* 0: not started */
	int names;			   /* memfd: addresses that stand for names; -1: none yet */
	unsigned starts, ended;
	bool are_given; /* the rules */
	bool is_known;	/* to egress: the sandbox was added */
	bool is_lost;
	char *ca; /* PEM; NULL: there is none */
};

/* ---- the program ---- */

/*
 * In a session of its own, since signals typed at the caller's terminal are not meant for it. It gets none of the
 * caller's variables: there may be secrets among them.
 */
static int spawn(struct run_net *n, int theirs, struct err *e)
{
	char *argv[] = {"cloche-egress", "run", NULL}, *envp[] = {"PATH=/usr/bin:/bin", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&files, theirs, 3);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	rc = posix_spawn(&n->pid, n->program, &files, &attr, argv, envp);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	if (rc == 0)
		return 0;
	n->pid = 0;
	errno = rc;
	return err_sys(e, "cannot start %s", n->program);
}

static int tell(struct run_net *n, struct egress *m, const char *id, const int *fds, size_t count,
		struct err *e)
{
	if (id)
		snprintf(m->id, sizeof(m->id), "%s", id);
	return egress_send(n->sock, m, fds, count) < 0 ? err_sys(e, "cannot send to cloche-egress")
						       : 0;
}

static int tell_settings(struct run_net *n, struct err *e)
{
	struct egress_settings *s = must_alloc(calloc(1, sizeof(*s)));
	auto_close int fd = egress_settings_fd(s, e);

	free(s);
	return fd < 0 ? -1 : tell(n, &(struct egress){.type = EGRESS_SETTINGS}, NULL, &fd, 1, e);
}

static uint64_t left(uint64_t budget, uint64_t used)
{
	return !budget ? 0 : used < budget ? budget - used : 1;
}

/* Budgets are of the run, and egress counts from its own start. */
static void take_used(struct net_policy *p, const struct egress_meter *used)
{
	p->budget.tx_bytes = left(p->budget.tx_bytes, used->tx_bytes);
	p->budget.rx_bytes = left(p->budget.rx_bytes, used->rx_bytes);
	p->budget.connections = (uint32_t)left(p->budget.connections, used->connections);
}

static int add_learned(struct net_policy_maker *m, enum net_verdict verdict,
		       const struct list *rules, struct err *e)
{
	for (size_t i = 0; i < rules->count; i++)
		if (net_policy_add(m, verdict, rules->items[i], e) < 0)
			return -1;
	return 0;
}

/* Somebody else's stages are in them already. */
static int take_rules(struct run_net *n, int file, struct err *e)
{
	auto_free char *bytes = NULL;
	size_t len;

	if (lseek(file, 0, SEEK_SET) < 0 || io_read_whole(file, NET_POLICY_MAX, &bytes, &len) < 0)
		return err_sys(e, "cannot read the rules of the network");
	if (net_policy_check(bytes, len, e) < 0)
		return -1;
	n->are_given = true;
	buf_add(&n->rules, bytes, len);
	return 0;
}

/* The rules of the spec and those that were learned. */
static int compile(struct run_net *n, const struct sandbox_spec *s, struct err *e)
{
	struct net_policy_maker *m;
	int rc;

	if (n->are_given) {
		take_used((struct net_policy *)(void *)buf_head(&n->rules), &n->before);
		return 0;
	}
	m = net_policy_new();
	rc = net_from_spec(m, s, NET_BY_REQUEST, e);
	if (rc == 0 && (add_learned(m, NET_RULE_ALLOW, &n->ask.allow, e) < 0 ||
			add_learned(m, NET_RULE_DENY, &n->ask.deny, e) < 0))
		rc = -1;
	if (rc == 0)
		rc = net_policy_write(m, &n->rules, e);
	net_policy_free(m);
	if (rc == 0)
		take_used((struct net_policy *)(void *)buf_head(&n->rules), &n->before);
	return rc;
}

static int tell_rules(struct run_net *n, const char *id, struct err *e)
{
	auto_close int fd = memfd_create("rules", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || io_write_all(fd, buf_head(&n->rules), n->rules.len) < 0 || io_seal(fd) < 0)
		return err_sys(e, "cannot hand over the rules");
	return tell(n, &(struct egress){.type = EGRESS_RULES}, id, &fd, 1, e);
}

/* type: EGRESS_ADD or EGRESS_LISTENERS. */
static int tell_sandbox(struct run_net *n, uint32_t type, const struct plan *p,
			const struct net_listeners *l, struct err *e)
{
	struct egress m = {.type = type};

	m.add.how = (uint8_t)l->how;
	m.add.fd_count = (uint8_t)l->count;
	m.add.asks = p->spec->net_asks;
	m.add.names_max = (uint32_t)p->spec->net_limits.names;
	memcpy(m.add.own4, n->setup.own4, sizeof(m.add.own4));
	memcpy(m.add.own6, n->setup.own6, sizeof(m.add.own6));
	memcpy(m.add.prefix6, n->setup.prefix6, sizeof(m.add.prefix6));
	return tell(n, &m, p->id, l->fds, l->count, e);
}

static int start(struct run_net *n, struct err *e)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	n->sock = pair[0];
	rc = spawn(n, pair[1], e);
	close(pair[1]);
	if (rc == 0 && fcntl(n->sock, F_SETFL, O_NONBLOCK) < 0)
		rc = err_sys(e, "cannot set up a socket");
	return rc < 0 ? -1 : tell_settings(n, e);
}

/* Its listeners end with it, so what is connected afterwards is refused at once. */
static void end_program(struct run_net *n)
{
	close_fd(&n->sock);
	if (n->pid <= 0)
		return;
	kill(n->pid, SIGKILL);
	while (waitpid(n->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	n->pid = 0;
}

/* An address stands for the same name whichever instance gave it away. */
static int tell_names(struct run_net *n, const char *id, struct err *e)
{
	auto_close int fd = -1;

	if (n->names < 0) {
		n->names = memfd_create("names", MFD_CLOEXEC);
		if (n->names < 0 || fcntl(n->names, F_SETFL, O_APPEND) < 0)
			return err_sys(e, "cannot keep the names of the sandbox");
	}
	fd = fcntl(n->names, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? err_sys(e, "cannot hand over the names of the sandbox")
		      : tell(n, &(struct egress){.type = EGRESS_NAMES}, id, &fd, 1, e);
}

/*
 * Once for each program that is started. The listeners come last: without rules egress would refuse what is asked
 * for already.
 */
static int introduce(struct run_net *n, const struct plan *p, struct err *e)
{
	const struct net_listeners none = {0};

	if (start(n, e) < 0 || tell_sandbox(n, EGRESS_ADD, p, &none, e) < 0 ||
	    tell_names(n, p->id, e) < 0)
		return -1;
	n->is_known = true;
	n->starts++;
	if (run_secrets_send(&n->secrets, n->sock, p->id) < 0)
		return err_sys(e, "cannot hand over the secrets");
	return tell_rules(n, p->id, e);
}

/* No copy of a listener stays here: connections would wait in it when the program is gone. */
static void hand_over(struct keeper *k)
{
	struct err ignored;
	struct run_net *n = k->network;
	struct net_listeners *l = &k->net.made.listeners;

	if ((!n->is_known && introduce(n, &k->plan, &ignored) < 0) ||
	    tell_sandbox(n, EGRESS_LISTENERS, &k->plan, l, &ignored) < 0) {
		n->is_lost = true;
		end_program(n);
	}
	net_listeners_close(l);
}

struct renewal {
	const struct net_setup *setup;
	struct net_listeners listeners;
	struct err err;
};

static void renew(void *arg)
{
	struct renewal *r = arg;

	(void)!net_redirect(r->setup, &r->listeners, &r->err);
}

#define STARTS_MOST 5 /* of one run: whatever ends the program may be inside */

/*
 * The program has ended, and its listeners with it. New ones wait for the next connection. A CA ends with the
 * program that made it, and programs inside would not believe another one.
 */
static void lose(struct keeper *k)
{
	struct err ignored;
	struct run_net *n = k->network;
	struct renewal r = {.setup = &n->setup};

	end_program(n);
	n->before.tx_bytes += n->meter.tx_bytes;
	n->before.rx_bytes += n->meter.rx_bytes;
	n->before.connections += n->meter.connections;
	n->meter = (struct egress_meter){.open = 0};
	n->ask.count = 0;
	n->ended++;
	n->is_known = false;
	n->is_lost = compile(n, k->plan.spec, &ignored) < 0 || n->ca || n->starts >= STARTS_MOST ||
		     net_visit(k->net.made.anchor, renew, &r, &ignored) < 0 || !r.listeners.count;
	if (!n->is_lost)
		k->net.made.listeners = r.listeners;
}

/* ---- while it runs ---- */

size_t run_net_polls(const struct keeper *k, struct pollfd polls[RUN_NET_POLLS])
{
	const struct net_listeners *l = &k->net.made.listeners;
	size_t count = 0;

	if (!k->network)
		return 0;
	if (k->network->ask.count)
		polls[count++] = (struct pollfd){k->network->ask.tty, POLLIN, 0};
	if (k->network->sock >= 0)
		polls[count++] = (struct pollfd){k->network->sock, POLLIN, 0};
	for (uint32_t i = 0; i < l->count; i++)
		polls[count++] = (struct pollfd){l->fds[i], POLLIN, 0};
	/* Where to connect is known once the namespace is. */
	k->network->polled =
		k->net.made.anchor < 0 ? 0 : published_polls(&k->network->published, polls + count);
	return count + k->network->polled;
}

static void take_ca(struct run_net *n, int fd)
{
	size_t len;

	if (!n->ca && io_read_whole(fd, EGRESS_PEM_MAX, &n->ca, &len) < 0)
		n->ca = NULL;
}

static void give_verdict(struct run_net *n, const char *id, uint64_t serial, bool allow)
{
	struct egress m = {.type = EGRESS_VERDICT, .verdict = {.serial = serial, .allow = allow}};
	struct err ignored;

	(void)!tell(n, &m, id, NULL, 0, &ignored);
}

/* What was decided for good is a rule first, so that the next connection need not be asked about. */
static void take_answer(struct keeper *k)
{
	struct run_net *n = k->network;
	struct ask_answer answer;
	struct err ignored;

	if (!ask_read(&n->ask, &answer) || n->sock < 0)
		return;
	if (answer.learned && compile(n, k->plan.spec, &ignored) == 0)
		(void)!tell_rules(n, k->plan.id, &ignored);
	give_verdict(n, k->plan.id, answer.serial, answer.allow);
}

static void take_message(struct run_net *n, const struct egress *m, int fd)
{
	switch (m->type) {
	case EGRESS_METER:
	case EGRESS_GONE:
		n->meter = m->meter;
		break;
	case EGRESS_RECORD:
		attempts_add(&n->attempts, &m->record);
		break;
	case EGRESS_ASK:
		if (!ask_add(&n->ask, &m->record))
			give_verdict(n, m->record.id, m->record.serial, false);
		break;
	case EGRESS_CA:
		take_ca(n, fd);
		break;
	}
}

/* 1: there was one; 0: there is none just now; -1: egress is gone, or does not keep to the protocol. */
static int receive(struct run_net *n, uint32_t *ret_type)
{
	int fd[1] = {-1}, rc;
	struct egress m;
	size_t count = 0;

	rc = egress_receive(n->sock, &m, fd, 1, &count);
	if (rc < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (rc <= 0)
		return -1;
	take_message(n, &m, fd[0]);
	close_fd(&fd[0]);
	*ret_type = m.type;
	return 1;
}

static void receive_all(struct keeper *k)
{
	struct run_net *n = k->network;
	int rc = 1;

	for (int i = 0; i < MESSAGES_AT_ONCE && rc > 0; i++)
		rc = receive(n, &(uint32_t){0});
	if (rc < 0)
		lose(k);
}

static void serve_egress(struct keeper *k, const struct pollfd *polls, size_t count)
{
	struct run_net *n = k->network;

	for (size_t i = 0; i < count; i++) {
		if (!polls[i].revents)
			continue;
		if (n->ask.count && polls[i].fd == n->ask.tty) {
			take_answer(k);
			return;
		}
		if (polls[i].fd == n->sock) {
			receive_all(k);
			return;
		} else {
			hand_over(k);
			return;
		}
	}
}

void run_net_serve(struct keeper *k, const struct pollfd *polls, size_t count)
{
	struct run_net *n = k->network;
	size_t own = count - n->polled;

	serve_egress(k, polls, own);
	if (n->polled)
		published_serve(&n->published, polls + own, k->net.made.anchor);
}

/* ---- before the run ---- */

/* The variable would hold either the value or the placeholder. */
static int refuse_double(const struct sandbox_spec *s, const struct run_secrets *secrets,
			 struct err *e)
{
	for (size_t i = 0; i < secrets->env.count; i++)
		for (size_t j = 0; j < s->env.count; j++) {
			size_t len = strcspn(s->env.items[j], "=");

			if (len == strcspn(secrets->env.items[i], "=") &&
			    memcmp(s->env.items[j], secrets->env.items[i], len) == 0)
				return err_field(e, ERR_INVALID, "env",
						 "env: %.*s is a secret, whose variable is set to "
						 "its placeholder",
						 (int)len, s->env.items[j]);
		}
	return 0;
}

int run_net_make(struct keeper *k, const struct sandbox_request *request, struct err *e)
{
	const struct sandbox_spec *s = request->spec;
	struct run_net *n;

	if (s->net_group)
		return err_field(e, ERR_UNSUPPORTED, "net_group",
				 "net_group: a run has no group; sandboxes of the daemon do");
	/* Isolated leaves its own loopback. What is published needs a way in. */
	if (s->net != NET_ALLOW && s->net != NET_PUBLIC && !s->publish.count)
		return 0;
	if (!request->egress)
		return err_field(e, ERR_UNSUPPORTED, "net",
				 "net: cloche-egress, which serves networks, is not installed");
	n = must_alloc(calloc(1, sizeof(*n)));
	n->sock = n->names = -1;
	n->program = request->egress;
	k->network = n;
	if (published_open(&n->published, &s->publish, e) < 0 ||
	    attempts_open(&n->attempts, s->net_log, e) < 0 ||
	    (s->net_asks && ask_open(&n->ask, e) < 0) ||
	    (request->net_rules && take_rules(n, request->net_rules, e) < 0) ||
	    compile(n, s, e) < 0 || run_secrets_read(&s->secrets, &n->secrets, e) < 0)
		return -1;
	return refuse_double(s, &n->secrets, e);
}

#define CA_MS 20000

static int await_ca(struct run_net *n, struct err *e)
{
	int64_t until = now_ns() + CA_MS * 1000000LL;
	struct pollfd p = {n->sock, POLLIN, 0};
	int rc = 1;

	while (!n->ca && rc >= 0 && now_ns() < until) {
		(void)!poll(&p, 1, 100);
		rc = receive(n, &(uint32_t){0});
	}
	return n->ca ? 0 : err_set(e, ERR_SYSTEM, "cloche-egress does not make a CA");
}

static void trust(struct plan *p, const char *pem)
{
	auto_list struct list env = {0};
	auto_close int root = p->image_is_host ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
					       : io_reopen(p->image.fd, O_PATH | O_DIRECTORY);

	p->ca = (struct plan_ca){.pem = pem, .len = strlen(pem)};
	trust_variables(root, &env);
	/* The caller's own values stay. */
	for (size_t i = 0; i < env.count; i++) {
		auto_free char *name =
			str_format("%.*s", (int)strcspn(env.items[i], "="), env.items[i]);

		if (!variables_get(&p->env, name))
			variables_set(&p->env, env.items[i]);
	}
}

int run_net_plan(struct keeper *k, struct err *e)
{
	struct run_net *n = k->network;

	if (!n)
		return 0;
	net_setup_from(&n->setup, buf_head(&n->rules));
	/* Whatever is asked for must arrive, so that it can be asked about. */
	n->setup.everything |= k->plan.spec->net_asks;
	k->plan.net = &n->setup;
	for (size_t i = 0; i < n->secrets.env.count; i++)
		variables_set(&k->plan.env, n->secrets.env.items[i]);
	if (!n->secrets.rows && !net_policy_inspects(buf_head(&n->rules)))
		return 0;
	/* Programs must find the CA from the start. */
	if (introduce(n, &k->plan, e) < 0 || await_ca(n, e) < 0)
		return -1;
	trust(&k->plan, n->ca);
	return 0;
}

/* ---- at the end ---- */

void run_net_end(struct keeper *k)
{
	struct egress m = {.type = EGRESS_REMOVE};
	struct run_net *n = k->network;
	int64_t until = now_ns() + LAST_MS * 1000000LL;
	struct pollfd p = {.events = POLLIN};
	uint32_t type = 0;
	struct err ignored;

	if (!n)
		return;
	net_listeners_close(&k->net.made.listeners);
	p.fd = n->sock;
	if (n->sock >= 0 && tell(n, &m, k->plan.id, NULL, 0, &ignored) == 0)
		while (type != EGRESS_GONE && now_ns() < until && receive(n, &type) >= 0)
			(void)!poll(&p, type == EGRESS_GONE ? 0 : 1, 100);
	end_program(n);
}

void run_net_report(struct keeper *k, struct result *r)
{
	struct run_net *n = k->network;

	if (!n)
		return;
	r->net_tx_bytes = n->before.tx_bytes + n->meter.tx_bytes;
	r->net_rx_bytes = n->before.rx_bytes + n->meter.rx_bytes;
	attempts_report(&n->attempts, k->plan.spec->net, r);
	if (n->is_lost)
		plan_note(&k->plan,
			  "The network was lost: cloche-egress could not be started or has ended. "
			  "Everything was refused from then on.");
	else if (n->ended)
		plan_note(&k->plan, "cloche-egress has ended and was started again: connections "
				    "of that moment were lost.");
}

void run_net_done(struct keeper *k)
{
	struct run_net *n = take_ptr(k->network);

	if (!n)
		return;
	end_program(n);
	close_fd(&n->names);
	run_secrets_done(&n->secrets);
	published_done(&n->published);
	attempts_done(&n->attempts);
	ask_done(&n->ask);
	free(n->ca);
	buf_done(&n->rules);
	free(n);
}

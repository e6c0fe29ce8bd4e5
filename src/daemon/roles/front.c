/*
 * Runs as: an unprivileged user without a capability, in its database directory as root, behind a
 * seccomp filter. roles.c confines the process before it calls front_main.
 * Holds: the channels to broker and audit, the database, the connections of clients and guests.
 * May: speak HTTP with anybody, keep state, ask the broker for sandboxes.
 * Must not: open a host file, make a process, make a token. The broker checks the front's requests again;
 * the front checks everything that clients and guests send.
 */
#include "daemon/roles/front.h"

#include "agent/mail.h"
#include "api/docker/docker.h"
#include "api/http/server.h"
#include "api/rest/rest.h"
#include "audit/audit.h"
#include "auth/tokens.h"
#include "base/log.h"
#include "manager/broker.h"
#include "manager/manager.h"
#include "policy/config.h"
#include "store/store.h"

#define TOKENS_TEXT_MAX (8u << 20)
#define AGENT_TYPES_TEXT_MAX (64u << 20)
#define DRAIN_LOOK_MS 20
#define FAREWELL_MS 20
#define WAITING 256

/* A connection or listener that came before serving began. */
struct early {
	int fd;
	bool is_listener;
	struct ipc_peer peer;
};

struct front {
	struct loop *loop;
	struct broker *broker;
	struct audit *audit;
	struct store *store;
	struct tokens *tokens;
	struct manager *manager;
	struct agents *agents;
	struct mail *mail;
	struct config *config, *old_config;
	struct api api;
	bool serving, draining;
	struct early early[WAITING];
	size_t early_count;
	int64_t drain_until_ns;
	struct loop_timer drain_timer;
	int status;
};

static void to_log(const char *text)
{
	log_info(text);
}

/* ---- settings ---- */

/* Handlers may use the old configuration until the end of this round, so it is freed with the next reload. */
static void take_config(struct front *f, int fd)
{
	struct config *next = must_alloc(malloc(sizeof(*next)));
	struct err e;

	if (config_read(fd, next, &e) < 0) {
		log_error("configuration refused", "error", e.msg);
		free(next);
		return;
	}
	free(f->old_config);
	f->old_config = f->config;
	f->config = next;
	f->api.config = next;
	manager_set_config(f->manager, next);
}

/* A bad file changes nothing: valid tokens stay valid, revoked ones stay revoked. */
static void take_tokens(struct front *f, int fd)
{
	auto_free char *text = NULL;
	size_t len = 0;
	struct err e = {0};

	if (io_read_whole(fd, TOKENS_TEXT_MAX, &text, &len) < 0)
		err_sys(&e, "cannot read the tokens");
	if (e.kind || tokens_load(f->tokens, text, len, &e) < 0)
		log_error("tokens refused", "error", e.msg);
	else
		server_cut_revoked(f->api.server);
}

static void take_agent_types(struct front *f, int fd)
{
	auto_free char *text = NULL;
	size_t len = 0;

	if (io_read_whole(fd, AGENT_TYPES_TEXT_MAX, &text, &len) == 0)
		agent_types_take(&f->api, text, len);
	else
		log_error("agent types refused", "error", strerror(errno));
}

/* Without a list that makes sense the earlier one holds; the broker judges by its own. */
static void take_agents(struct front *f, int fd)
{
	struct err e = {0};

	if (agents_take(f->agents, fd, &e) < 0)
		log_error("agents refused", "error", e.msg);
}

/* ---- connections ---- */

static void take_connection(struct front *f, const struct early *c)
{
	struct err e;

	if (!c->is_listener)
		server_add_peer(f->api.server, c->fd, &c->peer);
	else if (server_listen(f->api.server, c->fd, &e) < 0)
		log_error("cannot listen", "error", e.msg);
}

static void keep_connection(struct front *f, const struct early *c)
{
	if (f->serving)
		take_connection(f, c);
	else if (f->early_count < WAITING)
		f->early[f->early_count++] = *c;
	else
		close(c->fd);
}

static void begin_serving(void *front)
{
	struct front *f = front;

	f->serving = true;
	docker_open_all(&f->api);
	for (size_t i = 0; i < f->early_count; i++)
		take_connection(f, &f->early[i]);
	f->early_count = 0;
	server_publish_all(f->api.server);
	server_open_all_agents(f->api.server);
	log_info("serving");
}

/* ---- the end ---- */

static void end_front(void *arg)
{
	struct front *f = arg;

	broker_tell(f->broker, IPC_QUIT);
	f->status = 0;
	loop_stop(f->loop);
}

static void quit_front(struct front *f)
{
	/* Streams to clients end with an error, which has a moment to leave. */
	manager_let_go(f->manager);
	f->drain_timer.call = end_front;
	loop_timer_set(f->loop, &f->drain_timer, FAREWELL_MS);
}

static void on_drain(void *arg)
{
	struct front *f = arg;

	if (server_busy(f->api.server) == 0 || now_ns() > f->drain_until_ns)
		quit_front(f);
	else
		loop_timer_set(f->loop, &f->drain_timer, DRAIN_LOOK_MS);
}

static void drain_front(struct front *f)
{
	if (f->draining)
		return;
	f->draining = true;
	manager_drain(f->manager);
	server_drain(f->api.server, f->config->sockets_are_passed);
	f->drain_until_ns = now_ns() + (int64_t)f->config->shutdown_ms * 1000000;
	f->drain_timer = (struct loop_timer){.call = on_drain, .arg = f};
	loop_timer_set(f->loop, &f->drain_timer, 0);
}

/* ---- the broker ---- */

/* The answer proves that this loop runs; /readyz tells what the ping says. */
static void take_ping(struct front *f, const struct ipc_ping *ping)
{
	f->api.roles = (struct api_roles){.told_ns = now_ns(), .interval_ms = ping->interval_ms};
	memcpy(f->api.roles.silent, ping->silent, sizeof(f->api.roles.silent));
	broker_tell(f->broker, IPC_PONG);
}

static void on_news(void *arg, const struct ipc *m, int fd)
{
	struct front *f = arg;
	struct early c = {.fd = fd, .is_listener = m->type == IPC_LISTENER};

	switch (m->type) {
	case IPC_CONFIG:
		take_config(f, fd);
		break;
	case IPC_TOKENS:
		take_tokens(f, fd);
		break;
	case IPC_AGENT_TYPES:
		take_agent_types(f, fd);
		break;
	case IPC_AGENTS:
		take_agents(f, fd);
		break;
	case IPC_PEER:
		c.peer = m->peer;
		/* fallthrough */
	case IPC_LISTENER:
		if (fd >= 0)
			keep_connection(f, &c);
		return;
	case IPC_PING:
		take_ping(f, &m->ping);
		break;
	case IPC_SHUTDOWN:
		drain_front(f);
		break;
	case IPC_AUDIT:
		audit_reopen(f->audit, take_fd(&fd));
		break;
	default:
		manager_news(f->manager, m, take_fd(&fd));
		break;
	}
	close_fd(&fd);
}

static void on_lost(void *arg, const struct err *e)
{
	struct front *f = arg;

	log_error("the broker is gone", "error", e->msg);
	f->status = 1;
	loop_stop(f->loop);
}

static const struct broker_ops broker_ops = {.on_news = on_news, .on_lost = on_lost};

/* ---- start and end ---- */

static int front_start(struct front *f, int broker_fd, int audit_fd, struct err *e)
{
	char note[512];

	f->loop = loop_new();
	if (!f->loop)
		return err_sys(e, "cannot make an event loop");
	f->config = must_alloc(malloc(sizeof(*f->config)));
	config_init(f->config);
	f->tokens = tokens_new();
	f->agents = agents_new();
	f->store = store_open(FRONT_DATABASE, note, sizeof(note), e);
	if (!f->store)
		return -1;
	if (note[0])
		log_warn("database begun anew", "why", note);
	f->audit = audit_open(f->loop, audit_fd);
	f->broker = broker_open(f->loop, broker_fd, &broker_ops, f);
	f->manager = manager_new(&(struct manager_parts){.loop = f->loop,
							 .broker = f->broker,
							 .audit = f->audit,
							 .store = f->store,
							 .config = f->config,
							 .log = to_log,
							 .on_ready = begin_serving,
							 .arg = f});
	f->mail = mail_new(&(struct mail_parts){
		.loop = f->loop, .store = f->store, .broker = f->broker, .agents = f->agents});
	f->api = (struct api){.loop = f->loop,
			      .manager = f->manager,
			      .broker = f->broker,
			      .agents = f->agents,
			      .mail = f->mail,
			      .audit = f->audit,
			      .config = f->config,
			      .tokens = f->tokens};
	return api_start(&f->api, e);
}

static void front_stop(struct front *f)
{
	loop_timer_stop(f->loop, &f->drain_timer);
	if (f->api.server)
		api_stop(&f->api);
	manager_free(f->manager);
	mail_free(f->mail);
	agents_free(f->agents);
	broker_close(f->broker);
	audit_close(f->audit);
	store_close(f->store);
	tokens_free(f->tokens);
	loop_free(f->loop);
	free(f->config);
	free(f->old_config);
}

int front_main(int broker_fd, int audit_fd)
{
	/* Only the broker ends the front; ^C on a terminal reaches every process. */
	static const int ignored[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP};
	struct front *f = must_alloc(calloc(1, sizeof(*f)));
	struct err e;
	int status;

	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	if (front_start(f, broker_fd, audit_fd, &e) < 0) {
		log_error("front cannot start", "error", e.msg);
		return e.kind == ERR_UNSUPPORTED ? FRONT_REFUSES : 1;
	}
	loop_run(f->loop);
	status = f->status;
	front_stop(f);
	free(f);
	return status;
}

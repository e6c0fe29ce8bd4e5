/* The messages of the broker or keeper, and the clock of the egress program. */
#include "egress/egress_internal.h"

#include "base/log.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/resource.h>

#define TICK_MS 1000
#define LOOKUPS 4096 /* different names at one time */
#define PIPE_BYTES (1 << 20)
#define SPARE_FILES 256 /* fds that are not of connections: listeners, resolver, libraries */

static void read_settings(struct role *r, int fd, struct err *e)
{
	auto_close int mine = fd;
	auto_free char *bytes = NULL;
	struct egress_settings s;
	struct resolver *x;
	size_t len = 0;

	if (io_read_whole(mine, sizeof(s) + EGRESS_PEM_MAX, &bytes, &len) < 0 || len < sizeof(s)) {
		err_set(e, ERR_INVALID, "the settings are too short or too long");
		return;
	}
	memcpy(&s, bytes, sizeof(s));
	if (!egress_settings_are_well_formed(&s)) {
		err_set(e, ERR_INVALID, "the settings are malformed");
		return;
	}
	x = resolver_new(r, &s, e);
	if (!x)
		return;
	resolver_free(r->resolver);
	r->resolver = x;
	r->settings = s;
	inspect_settings(r, bytes + sizeof(s), e);
}

/* Messages about one sandbox. */
static void serve_uplink(struct uplink *s, const struct egress *m, int *fds, struct err *e)
{
	switch (m->type) {
	case EGRESS_RULES:
		uplink_set_rules(s, take_fd(&fds[0]), e);
		break;
	case EGRESS_NAMES:
		names_open(s->names, take_fd(&fds[0]), e);
		break;
	case EGRESS_SECRETS:
		uplink_set_secrets(s, take_fd(&fds[0]), e);
		break;
	case EGRESS_VERDICT:
		conn_verdict(s, m->verdict.serial, m->verdict.allow);
		break;
	case EGRESS_REMOVE:
		uplink_remove(s);
		break;
	case EGRESS_FLUSH:
		record_tick(s);
		record_meter(s, EGRESS_FLUSHED);
		break;
	case EGRESS_LISTENERS:
		uplink_listen(s, &m->add, fds, e);
		memset(fds, -1, EGRESS_FDS * sizeof(*fds));
		break;
	case EGRESS_SEGMENT:
		segment_set(s, &m->segment);
		break;
	case EGRESS_PEER_SOCKET:
		segment_socket(s, &m->peer, take_fd(&fds[0]));
		break;
	default:
		err_set(e, ERR_UNSUPPORTED, "unexpected message");
	}
}

/* Messages about all sandboxes. False: it is about one. */
static bool serve_role(struct role *r, const struct egress *m, int *fds, struct err *e)
{
	switch (m->type) {
	case EGRESS_SETTINGS:
		read_settings(r, take_fd(&fds[0]), e);
		return true;
	case EGRESS_PING:
		records_send(r, &(struct egress){.type = EGRESS_PONG}, -1);
		return true;
	case EGRESS_HOLD:
	case EGRESS_GO_ON:
		r->is_held = m->type == EGRESS_HOLD;
		return true;
	default:
		return false;
	}
}

static void serve(struct role *r, const struct egress *m, int *fds)
{
	struct egress gone = {.type = EGRESS_GONE};
	struct uplink *s = NULL;
	struct err e = {0};
	const char *id = "";

	if (!serve_role(r, m, fds, &e)) {
		id = m->id;
		s = uplink_find(r, id);
		if (m->type == EGRESS_ADD) {
			uplink_add(r, &m->add, fds, &e);
			memset(fds, -1, EGRESS_FDS * sizeof(*fds));
		} else if (s) {
			serve_uplink(s, m, fds, &e);
		} else if (m->type == EGRESS_REMOVE || m->type == EGRESS_FLUSH) {
			gone.type = m->type == EGRESS_FLUSH ? EGRESS_FLUSHED : EGRESS_GONE;
			memcpy(gone.meter.id, id, sizeof(gone.meter.id));
			records_send(r, &gone, -1);
		}
	}
	if (e.kind)
		log_error("egress: message failed", "sandbox", id, "error", e.msg);
	for (size_t i = 0; i < EGRESS_FDS; i++)
		close_fd(&fds[i]);
}

static void on_control(void *arg, uint32_t events)
{
	struct role *r = arg;
	static struct egress m;
	int fds[EGRESS_FDS];
	size_t count;
	int rc;

	if (events & EPOLLOUT)
		records_flush(r);
	if (!(events & ~(uint32_t)EPOLLOUT))
		return;
	while ((rc = egress_receive(r->control.fd, &m, fds, EGRESS_FDS, &count)) > 0)
		serve(r, &m, fds);
	if (rc == 0 || errno == ECONNRESET)
		loop_stop(r->loop);
	else if (errno == EBADMSG)
		log_error("egress: malformed message");
	else if (errno != EAGAIN && errno != EINTR)
		loop_stop(r->loop);
}

static void on_tick(void *arg)
{
	struct role *r = arg;

	for (struct uplink *s = r->uplinks; s; s = s->next)
		uplink_tick(s);
	if (++r->ticks % 60 == 0)
		ports_minute(r);
	loop_timer_set(r->loop, &r->tick, TICK_MS);
}

int role_start(struct role *r, int control, struct err *e)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	r->loop = must_alloc(loop_new());
	r->records = records_new(r);
	r->control =
		(struct loop_watch){.fd = control, .events = EPOLLIN, .call = on_control, .arg = r};
	r->tick = (struct loop_timer){.call = on_tick, .arg = r};
	r->route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (r->route < 0 || connect(r->route, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return err_sys(e, "cannot open a netlink socket");
	if (pipe2(r->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(e, "cannot make a pipe");
	ports_start(r);
	/* It works with less, slower. */
	(void)!fcntl(r->pipe[1], F_SETPIPE_SZ, PIPE_BYTES);
	return inspect_start(r, e);
}

int role_run(struct role *r)
{
	struct rlimit files = {1024, 1024};

	getrlimit(RLIMIT_NOFILE, &files);
	r->open_pool = (struct budget_pool){
		.max = files.rlim_cur > 2 * SPARE_FILES ? (files.rlim_cur - SPARE_FILES) / 2 : 16,
		.weight = 3};
	r->lookup_pool = (struct budget_pool){.max = LOOKUPS, .weight = 1};
	if (fcntl(r->control.fd, F_SETFL, fcntl(r->control.fd, F_GETFL) | O_NONBLOCK) < 0 ||
	    loop_watch(r->loop, &r->control) < 0)
		return 125;
	loop_timer_set(r->loop, &r->tick, TICK_MS);
	loop_run(r->loop);
	while (r->uplinks)
		uplink_remove(r->uplinks);
	return 0;
}

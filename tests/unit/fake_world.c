#include "fake_world.h"

#include "base/auto.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_MS 60000

/* ---- guests ---- */

static void say(struct fake_guest *g, uint32_t stream, uint8_t type, const struct buf *b)
{
	struct buf out = {0};

	guest_frame_add(&out, stream, type, b ? buf_head(b) : NULL, b ? b->len : 0);
	if (g->fd >= 0)
		(void)!send(g->fd, buf_head(&out), out.len, MSG_NOSIGNAL);
	buf_done(&out);
}

static void say_and_forget(struct fake_guest *g, uint32_t stream, uint8_t type, struct buf *b)
{
	say(g, stream, type, b);
	buf_done(b);
}

static void say_exit(struct fake_guest *g, uint32_t stream, int wait_status, uint8_t why)
{
	struct buf b = {0};

	pack_u32(&b, (uint32_t)wait_status);
	pack_u32(&b, 0);
	pack_u8(&b, why);
	pack_u64(&b, 1500);
	pack_u64(&b, 700);
	pack_u64(&b, 1 << 20);
	pack_u32(&b, 1); /* denials */
	say_and_forget(g, stream, G_EXIT, &b);
	say(g, stream, G_END, NULL);
}

static void say_output(struct fake_guest *g, uint32_t stream, uint8_t type, const char *text)
{
	struct buf b = {0};

	pack_u64(&b, 0);
	buf_add(&b, text, strlen(text));
	say_and_forget(g, stream, type, &b);
}

static void skip_str(struct unpack *u)
{
	size_t len;

	unpack_bytes(u, &len);
}

/* argv[0] says what it does: "echo" prints argv[1], "fail" exits with 3, "kill" dies, "hang" hangs. */
static void guest_exec(struct fake_guest *g, uint32_t stream, struct unpack *u)
{
	char name[64] = "", text[256] = "";
	struct buf b = {0};
	uint32_t argc;

	unpack_u8(u);
	unpack_u32(u);
	unpack_u32(u);
	unpack_u64(u);
	unpack_u32(u);
	for (int i = 0; i < 4; i++)
		skip_str(u);
	argc = unpack_u32(u);
	if (argc > 0)
		unpack_str(u, name, sizeof(name));
	if (argc > 1)
		unpack_str(u, text, sizeof(text));
	pack_u32(&b, ++g->execs);
	pack_u32(&b, 40 + g->execs);
	say_and_forget(g, stream, G_OK, &b);
	if (str_equal(name, "echo")) {
		say_output(g, stream, G_OUT, text);
		say_output(g, stream, G_ERR, "noise");
		say_exit(g, stream, 0, GUEST_WHY_NONE);
	} else if (str_equal(name, "fail")) {
		say_exit(g, stream, 3 << 8, GUEST_WHY_NONE);
	} else if (str_equal(name, "kill")) {
		say_exit(g, stream, SIGKILL, GUEST_WHY_NONE);
	} else {
		g->hanging = stream;
	}
}

static void guest_configure(struct fake_guest *g, struct unpack *u)
{
	g->ttl_ms = unpack_u64(u);
	g->configured++;
}

static void guest_answer(struct fake_guest *g, uint32_t stream, uint8_t type, struct unpack *u)
{
	struct buf b = {0};

	switch (type) {
	case G_CONFIGURE:
		guest_configure(g, u);
		say(g, stream, G_OK, NULL);
		break;
	case G_EXEC:
		guest_exec(g, stream, u);
		break;
	case G_DENIALS:
		pack_u32(&b, 1);
		pack_u8(&b, 0);
		pack_str(&b, "seccomp");
		pack_str(&b, "ptrace");
		pack_str(&b, "no tracing");
		pack_u64(&b, 2);
		say_and_forget(g, stream, G_OK, &b);
		break;
	case G_EXECS:
		say(g, stream, G_OK, NULL);
		say(g, stream, G_END, NULL);
		break;
	case G_TAR_IN:
	case G_PING:
	case G_ACK:
	case G_SIGNAL:
		say(g, stream, G_OK, NULL);
		break;
	case G_STATS:
		pack_u32(&b, 1);
		for (int i = 0; i < 6; i++)
			pack_u64(&b, 0);
		pack_u32(&b, g->hanging ? 1 : 0);
		say_and_forget(g, stream, G_OK, &b);
		break;
	case G_DATA:
		g->tar_bytes += (size_t)(u->end - u->at);
		pack_u32(&b, (uint32_t)(u->end - u->at));
		say_and_forget(g, stream, G_CREDIT, &b);
		break;
	case G_CLOSE:
		pack_u64(&b, 1);
		say_and_forget(g, stream, G_DONE, &b);
		say(g, stream, G_END, NULL);
		break;
	case G_END:
		g->hanging = 0;
		break;
	}
}

static void guest_hello(struct fake_guest *g, struct unpack *u)
{
	struct buf b = {0};

	unpack_u32(u);
	pack_u32(&b, GUEST_VERSION);
	pack_u64(&b, unpack_u64(u));
	pack_u64(&b, 99);
	say_and_forget(g, 0, G_WELCOME, &b);
}

void guest_hang_up(struct fake_guest *g)
{
	if (g->fd < 0)
		return;
	loop_unwatch(g->w->loop, &g->watch);
	close_fd(&g->fd);
	buf_done(&g->in);
}

static void guest_ready(void *arg, uint32_t events)
{
	struct fake_guest *g = arg;
	ssize_t n = recv(g->fd, buf_reserve(&g->in, 1 << 16), 1 << 16, MSG_DONTWAIT);

	(void)events;
	if (n <= 0) {
		guest_hang_up(g);
		return;
	}
	buf_added(&g->in, (size_t)n);
	while (g->fd >= 0 && g->in.len >= GUEST_HEADER) {
		struct guest_header h;
		struct unpack u;

		assert_true(guest_header_get((unsigned char *)buf_head(&g->in), &h));
		if (g->in.len < GUEST_HEADER + h.size)
			return;
		u = unpack_from(buf_head(&g->in) + GUEST_HEADER, h.size);
		if (g->w->mute_guests)
			;
		else if (h.type == G_HELLO)
			guest_hello(g, &u);
		else
			guest_answer(g, h.stream, h.type, &u);
		buf_drop(&g->in, GUEST_HEADER + h.size);
	}
}

static int guest_link(struct fake_guest *g)
{
	int pair[2];

	guest_hang_up(g);
	assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	g->fd = pair[0];
	g->generation++;
	g->watch =
		(struct loop_watch){.fd = g->fd, .events = EPOLLIN, .call = guest_ready, .arg = g};
	assert_int_equal(0, loop_watch(g->w->loop, &g->watch));
	return pair[1];
}

struct fake_guest *world_guest(struct world *w, const char *id)
{
	for (size_t i = 0; i < WORLD_GUESTS; i++)
		if (w->guests[i].used && str_equal(w->guests[i].id, id))
			return &w->guests[i];
	return NULL;
}

void world_adopt(struct world *w, const struct fake_guest *alive)
{
	struct fake_guest *g = w->guests;

	while (g->used)
		g++;
	*g = (struct fake_guest){.w = w,
				 .used = true,
				 .fd = -1,
				 .limits = alive->limits,
				 .generation = alive->generation};
	memcpy(g->id, alive->id, IPC_ID);
	memcpy(g->owner, alive->owner, IPC_ID);
	world_news(w, IPC_ADOPTED, g->id);
}

size_t world_guest_count(const struct world *w)
{
	size_t n = 0;

	for (size_t i = 0; i < WORLD_GUESTS; i++)
		n += w->guests[i].used;
	return n;
}

/* ---- the broker ---- */

static void fill_booted(const struct fake_guest *g, struct ipc *m)
{
	snprintf(m->booted.id, IPC_ID, "%s", g->id);
	snprintf(m->booted.owner, IPC_ID, "%s", g->owner);
	m->booted.generation = g->generation;
	m->booted.paused = g->paused;
	m->booted.transient = g->transient;
	m->booted.proven = LAYER_BIT(LAYER_COUNT) - 1;
	m->booted.cgroup_version = 2;
	m->booted.limits = g->limits;
	m->booted.root = ROOT_OVERLAY;
	snprintf(m->booted.disk, sizeof(m->booted.disk), "tmpfs");
}

static void reply(struct world *w, const struct ipc *asked, struct ipc *m, int fd)
{
	m->serial = asked->serial;
	assert_int_equal(0, ipc_send(w->sock, m, fd));
	close_fd(&fd);
}

static void fake_boot(struct world *w, const struct ipc *asked)
{
	struct ipc m = {.type = IPC_BOOTED};
	struct fake_guest *g = NULL;
	int fd;

	w->boots++;
	if (w->fail_boots) {
		w->fail_boots--;
		m.type = IPC_DONE;
		err_set(&m.err, w->fail_kind ? w->fail_kind : ERR_SYSTEM, "no luck");
		reply(w, asked, &m, -1);
		return;
	}
	for (size_t i = 0; i < WORLD_GUESTS && !g; i++)
		if (!w->guests[i].used)
			g = &w->guests[i];
	assert_non_null(g);
	*g = (struct fake_guest){.w = w, .used = true, .fd = -1};
	snprintf(g->id, IPC_ID, "%s", asked->boot.id);
	snprintf(g->owner, IPC_ID, "%s", asked->boot.owner);
	g->transient = asked->boot.transient;
	g->limits = asked->boot.limits;
	fd = guest_link(g);
	fill_booted(g, &m);
	reply(w, asked, &m, fd);
}

void world_boot_held(struct world *w)
{
	w->hold_boots = false;
	fake_boot(w, &w->held);
}

static void fake_connect(struct world *w, const struct ipc *asked)
{
	struct fake_guest *g = world_guest(w, asked->id);
	struct ipc m = {.type = IPC_BOOTED};
	int fd;

	w->connects++;
	if (!g || w->fail_connects) {
		w->fail_connects -= w->fail_connects > 0;
		m.type = IPC_DONE;
		err_set(&m.err, ERR_NOT_FOUND, "gone");
		reply(w, asked, &m, -1);
		return;
	}
	fd = guest_link(g);
	fill_booted(g, &m);
	reply(w, asked, &m, fd);
}

static void fake_destroy(struct world *w, const struct ipc *asked)
{
	struct fake_guest *g = world_guest(w, asked->id);
	struct ipc m = {.type = IPC_DONE};

	w->destroys++;
	if (w->fail_destroys) {
		w->fail_destroys--;
		err_set(&m.err, ERR_SYSTEM, "busy");
	} else if (g) {
		guest_hang_up(g);
		g->used = false;
	}
	if (w->dies_in_destroy)
		shutdown(w->sock, SHUT_RDWR);
	else
		reply(w, asked, &m, -1);
}

static void fake_snapshot(struct world *w, const struct ipc *asked)
{
	static const char tar[200000];
	struct ipc m = {.type = IPC_SNAPSHOT_IS};
	int fd = -1;

	m.snapshot = asked->snapshot;
	snprintf(m.snapshot.digest, sizeof(m.snapshot.digest), "sha256:00");
	snprintf(m.snapshot.excluded, sizeof(m.snapshot.excluded), "/tmp /dev/shm");
	m.snapshot.size_bytes = sizeof(tar);
	w->snapshots += asked->type == IPC_SNAPSHOT;
	if (asked->type == IPC_SNAPSHOT_READ) {
		fd = memfd_create("tar", MFD_CLOEXEC);
		assert_int_equal(sizeof(tar), write(fd, tar, sizeof(tar)));
		lseek(fd, 0, SEEK_SET);
	}
	reply(w, asked, &m, fd);
}

static void fake_stats(struct world *w, const struct ipc *asked)
{
	struct ipc m = {.type = IPC_STATS_ARE};

	memcpy(m.stats.id, asked->id, IPC_ID);
	m.stats.memory_bytes = 4096;
	m.stats.oom_kills = w->oom_kills;
	reply(w, asked, &m, -1);
}

static void fake_done(struct world *w, const struct ipc *asked)
{
	struct fake_guest *g = NULL;
	struct ipc m = {.type = IPC_DONE};

	if (asked->type == IPC_CLAIM || asked->type == IPC_UPDATE)
		g = world_guest(w, asked->boot.id);
	else if (asked->type == IPC_PAUSE || asked->type == IPC_RESUME)
		g = world_guest(w, asked->id);
	if (g && asked->type == IPC_CLAIM) {
		w->claims++;
		snprintf(g->owner, IPC_ID, "%s", asked->boot.owner);
		if (w->fail_claims)
			err_set(&m.err, ERR_UNSUPPORTED, "not this one");
	}
	if (asked->type == IPC_UPDATE && w->fail_updates)
		err_set(&m.err, ERR_UNSUPPORTED, "not these limits");
	else if (g && asked->type != IPC_PAUSE && asked->type != IPC_RESUME)
		g->limits = asked->boot.limits;
	if (g)
		g->paused = asked->type == IPC_PAUSE;
	w->snapshot_deletes += asked->type == IPC_SNAPSHOT_DELETE;
	reply(w, asked, &m, -1);
}

static void broker_ready(void *arg, uint32_t events)
{
	struct world *w = arg;
	struct ipc m;
	int fd = -1;

	(void)events;
	if (ipc_receive(w->sock, &m, &fd) <= 0)
		return;
	close_fd(&fd);
	switch (m.type) {
	case IPC_BOOT:
		if (w->hold_boots)
			w->held = m;
		else
			fake_boot(w, &m);
		break;
	case IPC_CONNECT:
		fake_connect(w, &m);
		break;
	case IPC_DESTROY:
		fake_destroy(w, &m);
		break;
	case IPC_STATS:
		fake_stats(w, &m);
		break;
	case IPC_SNAPSHOT:
	case IPC_SNAPSHOT_READ:
		fake_snapshot(w, &m);
		break;
	default:
		fake_done(w, &m);
	}
}

void world_news(struct world *w, uint32_t type, const char *id)
{
	struct fake_guest *g = id ? world_guest(w, id) : NULL;
	struct ipc m = {.type = type};
	int fd = -1;

	if (type == IPC_DIED && id)
		snprintf(m.died.id, IPC_ID, "%s", id);
	if (type == IPC_ADOPTED && g) {
		fd = guest_link(g);
		fill_booted(g, &m);
	}
	assert_int_equal(0, ipc_send(w->sock, &m, fd));
	close_fd(&fd);
}

/* ---- all of it ---- */

static void on_news(void *arg, const struct ipc *m, int fd)
{
	struct world *w = arg;

	manager_news(w->manager, m, fd);
}

static void on_lost(void *arg, const struct err *e)
{
	(void)arg;
	(void)e;
}

static const struct broker_ops broker_ops = {on_news, on_lost};

static void on_limit(void *arg)
{
	struct world *w = arg;

	w->timed_out = true;
	loop_stop(w->loop);
}

static void stop_step(void *arg)
{
	loop_stop(arg);
}

void world_step(struct world *w)
{
	struct loop_timer soon = {.call = stop_step, .arg = w->loop};

	loop_timer_set(w->loop, &soon, 1);
	loop_run(w->loop);
	loop_timer_stop(w->loop, &soon);
	assert_false(w->timed_out);
}

void world_run(struct world *w)
{
	loop_run(w->loop);
	assert_false(w->timed_out);
}

void world_store_reopen(struct world_store *s)
{
	char note[256];
	struct err e;

	store_close(s->store);
	s->store = store_open(s->path, note, sizeof(note), &e);
	assert_non_null(s->store);
}

void world_store_open(struct world_store *s)
{
	*s = (struct world_store){.dir = "/tmp/cloche-world-XXXXXX"};
	assert_non_null(mkdtemp(s->dir));
	snprintf(s->path, sizeof(s->path), "%s/db", s->dir);
	world_store_reopen(s);
}

void world_store_close(struct world_store *s)
{
	auto_free char *command = str_format("rm -rf %s", s->dir);

	store_close(s->store);
	assert_int_equal(system(command), 0);
}

struct world *world_new(uint32_t pool, struct store *store)
{
	struct world *w = calloc(1, sizeof(*w));
	int pair[2];

	w->loop = loop_new();
	w->store = store;
	config_init(&w->config);
	w->config.sandbox.limits.disk_bytes = 1ULL << 30; /* as config_finish says */
	w->config.pool_size = pool;
	assert_int_equal(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	w->sock = pair[0];
	w->watch = (struct loop_watch){
		.fd = w->sock, .events = EPOLLIN, .call = broker_ready, .arg = w};
	assert_int_equal(0, loop_watch(w->loop, &w->watch));
	w->broker = broker_open(w->loop, pair[1], &broker_ops, w);
	w->manager = manager_new(&(struct manager_parts){
		.loop = w->loop, .broker = w->broker, .store = store, .config = &w->config});
	w->limit = (struct loop_timer){.call = on_limit, .arg = w};
	loop_timer_set(w->loop, &w->limit, LIMIT_MS);
	return w;
}

static void on_all_gone(void *arg, size_t count)
{
	(void)count;
	*(bool *)arg = true;
}

/* Everything comes to an end in good order, so that what is left is a leak. */
static void world_settle(struct world *w)
{
	static const struct caller operator_ = {.name = "operator"};
	bool gone = false;

	w->fail_boots = w->fail_destroys = 0;
	w->config.pool_size = 0;
	if (w->hold_boots && w->held.type)
		world_boot_held(w);
	manager_destroy_all(w->manager, &operator_, on_all_gone, &gone);
	world_until(w, gone);
	for (int i = 0; i < 10; i++)
		world_step(w);
}

void world_free(struct world *w)
{
	if (!w->abandoned)
		world_settle(w);
	manager_free(w->manager);
	broker_close(w->broker);
	for (size_t i = 0; i < WORLD_GUESTS; i++)
		if (w->guests[i].used)
			guest_hang_up(&w->guests[i]);
	loop_unwatch(w->loop, &w->watch);
	close(w->sock);
	loop_timer_stop(w->loop, &w->limit);
	loop_free(w->loop);
	free(w);
}

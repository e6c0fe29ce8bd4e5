/* Snapshots and forks over REST; snapshots also go out and come in as tar archives. */
#include "api/rest/rest.h"

#include "api/http/server.h"
#include "policy/config.h"

#define PIECE (128u << 10)
#define FORKS_MAX 100

const struct body_table v1_snapshot_table =
	BODY_TABLE(BODY_ALONE, FIELD("name", BODY_TEXT, "a name for it"));

const struct body_table v1_fork_table =
	BODY_TABLE(BODY_ALONE, FIELD("count", BODY_COUNT, "how many (1)"));

void v1_snapshot(struct exchange *x)
{
	const char *name = body_text(x->json, "name");

	if (name && strlen(name) >= IPC_NAME)
		exchange_refuse(x, "name", "longer than %d bytes", IPC_NAME - 1);
	else
		sandbox_snapshot(x->sandbox, &x->caller, name ? name : "", v1_answer_created, x);
}

/* A fork of an agent's sandbox is the same agent's. */
static void on_forked(void *arg, json_t *value, const struct err *e)
{
	const struct exchange *x = arg;
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(value, "sandboxes"), i, item) {
		const char *id = body_text(json_object_get(item, "sandbox"), "id");
		struct sandbox *s = id ? manager_find_any(x->api->manager, id) : NULL;

		if (s)
			server_open_agent(x->api->server, s);
	}
	v1_answer_created(arg, value, e);
}

void v1_fork(struct exchange *x)
{
	uint64_t count = body_count(x->json, "count", 1);

	if (count < 1 || count > FORKS_MAX)
		exchange_refuse(x, "count", "from 1 to %d", FORKS_MAX);
	else
		sandbox_fork(x->sandbox, &x->caller, count, on_forked, x);
}

void v1_snapshots(struct exchange *x)
{
	manager_snapshots(x->api->manager, &x->caller, v1_answer_json, x);
}

/* ---- by id or by name ---- */

struct snapshot_search {
	struct exchange *x;
	const char *name;
	void (*found)(struct exchange *x, const char *id);
};

static const char *text_of(const json_t *one, const char *key)
{
	const char *text = body_text(one, key);

	return text ? text : "";
}

static void on_listed(void *arg, json_t *value, const struct err *e)
{
	struct snapshot_search *f = arg;
	const json_t *all = json_is_array(value) ? value : json_object_get(value, "snapshots");
	const json_t *one, *newest = NULL;
	size_t i;

	json_array_foreach (all, i, one)
		if (str_equal(text_of(one, "name"), f->name) &&
		    (!newest ||
		     strcmp(text_of(one, "created_at"), text_of(newest, "created_at")) > 0))
			newest = one;
	if (e && e->kind != ERR_NONE)
		exchange_error(f->x, e);
	else if (!newest)
		exchange_fail(f->x, ERR_NOT_FOUND, "there is no such snapshot");
	else
		f->found(f->x, text_of(newest, "id"));
	json_decref(value);
	free(f);
}

void v1_snapshot_find(struct exchange *x, const char *what,
		      void (*found)(struct exchange *x, const char *id))
{
	struct snapshot_search *f;

	if (ipc_id_is_valid(what)) {
		found(x, what);
		return;
	}
	f = must_alloc(calloc(1, sizeof(*f)));
	*f = (struct snapshot_search){x, what, found};
	manager_own_snapshots(x->api->manager, &x->caller, on_listed, f);
}

static void delete_found(struct exchange *x, const char *id)
{
	manager_snapshot_delete(x->api->manager, &x->caller, id, v1_answer_empty, x);
}

void v1_snapshot_delete(struct exchange *x)
{
	v1_snapshot_find(x, x->params[0], delete_found);
}

/* ---- tars, through an fd from the broker ---- */

struct snapshot_tar {
	struct exchange *x;
	int fd;
	uint64_t taken;
	bool is_begun;		 /* being written; the broker has recorded it */
	struct loop_watch watch; /* where it is a pipe */
	struct ipc_snapshot info;
};

static void tar_done(void *data)
{
	struct snapshot_tar *t = data;

	loop_unwatch(t->x->api->loop, &t->watch);
	close_fd(&t->fd);
	if (t->is_begun)
		manager_snapshot_abandon(t->x->api->manager, &t->info);
}

static struct snapshot_tar *tar_new(struct exchange *x)
{
	struct snapshot_tar *t = exchange_attach(x, sizeof(*t), tar_done);

	t->x = x;
	t->fd = t->watch.fd = -1;
	return t;
}

static void send_more(void *arg)
{
	struct snapshot_tar *t = arg;
	char *piece = must_alloc(malloc(PIECE));

	while (exchange_room(t->x)) {
		ssize_t n = read(t->fd, piece, PIECE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			loop_unwatch(t->x->api->loop, &t->watch);
			if (n < 0 && errno == EAGAIN) {
				loop_watch(t->x->api->loop, &t->watch);
				break;
			}
			if (n < 0)
				exchange_abort(t->x);
			else
				exchange_finish(t->x);
			break;
		}
		exchange_write(t->x, piece, (size_t)n);
	}
	if (!exchange_room(t->x))
		loop_unwatch(t->x->api->loop, &t->watch);
	free(piece);
}

static void on_readable(void *arg, uint32_t events)
{
	send_more(arg);
}

static void on_read_fd(void *arg, int fd, const struct ipc_snapshot *info, const struct err *e)
{
	struct snapshot_tar *t = arg;
	struct stat st;
	int64_t size = EXCHANGE_UNKNOWN_LENGTH;

	if (fd < 0) {
		exchange_error(t->x, e);
		return;
	}
	t->fd = fd;
	t->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_readable, .arg = t};
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		size = st.st_size;
	if (info && info->digest[0])
		exchange_set_header(t->x, "X-Digest", info->digest);
	exchange_stream(t->x, 200, "application/x-tar", size);
	exchange_on_room(t->x, send_more, t);
	exchange_on_gone(t->x, exchange_answer_gone, t->x);
	if (!t->x->gone)
		send_more(t);
	else
		exchange_finish(t->x);
}

static void read_found(struct exchange *x, const char *id)
{
	manager_snapshot_read(x->api->manager, &x->caller, id, on_read_fd, tar_new(x));
}

void v1_snapshot_get_tar(struct exchange *x)
{
	v1_snapshot_find(x, x->params[0], read_found);
}

/* ---- in ---- */

static size_t write_tar(void *arg, const char *bytes, size_t len)
{
	struct snapshot_tar *t = arg;
	uint64_t most = t->x->api->config->snapshot_max_bytes;
	size_t done = 0;
	struct err e = {0};

	/* Checked here, not only at the end: until then the tar would fill the disk. */
	if (most && t->taken + len > most) {
		err_set(&e, ERR_LIMIT, "the snapshot is larger than this daemon allows");
		exchange_error_as(t->x, 413, &e);
		return 0;
	}

	while (done < len) {
		ssize_t n = write(t->fd, bytes + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_watch(t->x->api->loop, &t->watch);
			break;
		}
		if (n < 0) {
			/* The broker has closed its end. */
			if (errno == EPIPE)
				err_set(&e, ERR_LIMIT,
					"the snapshot is larger than there is room for");
			else
				err_sys(&e, "cannot keep the snapshot");
			exchange_error_as(t->x, e.kind == ERR_LIMIT ? 413 : 500, &e);
			break;
		}
		done += (size_t)n;
	}
	t->taken += done;
	return done;
}

static void on_writable(void *arg, uint32_t events)
{
	struct snapshot_tar *t = arg;

	loop_unwatch(t->x->api->loop, &t->watch);
	exchange_more(t->x);
}

static void tar_complete(void *arg)
{
	struct snapshot_tar *t = arg;

	close_fd(&t->fd);
	t->is_begun = false;
	manager_snapshot_keep(t->x->api->manager, &t->x->caller, &t->info, v1_answer_created, t->x);
}

static void stop_taking(void *arg)
{
	struct snapshot_tar *t = arg;

	if (t->fd >= 0)
		exchange_answer_gone(t->x);
}

static void on_write_fd(void *arg, int fd, const struct ipc_snapshot *info, const struct err *e)
{
	static const struct body_ops ops = {write_tar, tar_complete};
	struct snapshot_tar *t = arg;

	if (fd < 0) {
		exchange_error(t->x, e);
		return;
	}
	t->fd = fd;
	t->info = *info;
	t->is_begun = true;
	t->watch = (struct loop_watch){.fd = fd, .events = EPOLLOUT, .call = on_writable, .arg = t};
	exchange_on_gone(t->x, stop_taking, t);
	if (t->x->gone)
		exchange_answer_gone(t->x);
	else
		exchange_take_body(t->x, &ops, t);
}

void v1_snapshot_put_tar(struct exchange *x)
{
	const char *name = x->params[0];

	if (strlen(name) >= IPC_NAME)
		exchange_refuse(x, "name", "longer than %d bytes", IPC_NAME - 1);
	else
		manager_snapshot_write(x->api->manager, &x->caller, name, on_write_fd, tar_new(x));
}

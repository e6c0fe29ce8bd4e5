#include "driver.h"

#include "base/clock.h"
#include "base/str.h"
#include "guest/guest.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the guest ---- */

static void serve(const struct driver *d, int listener)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (chdir("/") < 0 || setenv("TMPDIR", d->dir, 1) < 0)
		_exit(1);
	_exit(guest_serve(&(struct guest_options){
		.listener = listener, .notify = -1, .dns = -1, .scratch = -1}));
}

static void configure(struct driver *d)
{
	struct buf b = {0};

	pack_u64(&b, 0);
	pack_u64(&b, 1 << 20);
	pack_u32(&b, 1);
	pack_str(&b, "CONFIGURED=yes");
	pack_str(&b, d->dir);
	pack_u32(&b, 1000);
	driver_do(d, G_CONFIGURE, &b);
}

void driver_start(struct driver *d)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*d = (struct driver){.fd = -1};
	snprintf(d->dir, sizeof(d->dir), "/tmp/cloche-guest-XXXXXX");
	assert_non_null(mkdtemp(d->dir));
	snprintf(d->path, sizeof(d->path), "%s/.socket", d->dir);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", d->path);
	assert_int_equal(bind(listener, (void *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 8), 0);
	d->pid = fork();
	assert_true(d->pid >= 0);
	if (d->pid == 0)
		serve(d, listener);
	close(listener);
	d->fd = driver_connect(d, 1);
	assert_true(d->fd >= 0);
	configure(d);
}

void driver_stop(struct driver *d)
{
	char command[200];

	if (d->pid > 0) {
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
	}
	if (d->fd >= 0)
		close(d->fd);
	buf_done(&d->in);
	while (d->queue) {
		struct frame *f = d->queue;

		d->queue = f->next;
		free(f);
	}
	/* What commands leave behind at their end may come in between. */
	snprintf(command, sizeof(command),
		 "chmod -R u+rwx %s; for i in 1 2 3 4 5; do rm -rf %s && exit 0; sleep 0.2; done; "
		 "exit 1",
		 d->dir, d->dir);
	assert_int_equal(system(command), 0);
}

/* ---- frames ---- */

static void send_all(int fd, const struct buf *b)
{
	size_t at = 0;

	while (at < b->len) {
		ssize_t n = send(fd, buf_head(b) + at, b->len - at, MSG_NOSIGNAL);

		if (n < 0)
			return; /* the reader sees that it is gone */
		at += (size_t)n;
	}
}

void driver_send(struct driver *d, uint32_t stream, uint8_t type, const void *payload, size_t len)
{
	struct buf b = {0};

	guest_frame_add(&b, stream, type, payload, len);
	send_all(d->fd, &b);
	buf_done(&b);
}

/* One more frame from the socket, or NULL at its end. */
static struct frame *receive(struct driver *d)
{
	int64_t until = now_ns() + DRIVER_WAIT_MS * 1000000ll;
	struct guest_header h = {0};
	struct frame *f;

	for (;;) {
		struct pollfd p = {d->fd, POLLIN, 0};
		ssize_t n;

		if (d->in.len >= GUEST_HEADER) {
			assert_true(guest_header_get((void *)buf_head(&d->in), &h));
			if (d->in.len >= GUEST_HEADER + h.size)
				break;
		}
		assert_true(now_ns() < until);
		if (poll(&p, 1, 1000) <= 0)
			continue;
		n = recv(d->fd, buf_reserve(&d->in, 65536), 65536, 0);
		if (n <= 0)
			return NULL;
		buf_added(&d->in, (size_t)n);
	}
	f = malloc(sizeof(*f) + h.size + 1);
	assert_non_null(f);
	*f = (struct frame){.stream = h.stream, .type = h.type, .len = h.size};
	memcpy(f->payload, buf_head(&d->in) + GUEST_HEADER, h.size);
	buf_drop(&d->in, GUEST_HEADER + h.size);
	return f;
}

static void give_back(struct driver *d, const struct frame *f)
{
	struct buf b = {0};

	if (d->stingy || !guest_is_counted(f->type))
		return;
	pack_u32(&b, (uint32_t)f->len);
	driver_send(d, f->stream, G_CREDIT, buf_head(&b), b.len);
	buf_done(&b);
}

struct frame *driver_next(struct driver *d, uint32_t stream)
{
	struct frame **p = &d->queue;

	for (;;) {
		struct frame *f;

		while (*p && (*p)->stream != stream)
			p = &(*p)->next;
		f = *p;
		if (f) {
			*p = f->next;
			return f;
		}
		f = receive(d);
		if (!f)
			return NULL;
		give_back(d, f);
		*p = f;
	}
}

struct frame *driver_expect(struct driver *d, uint32_t stream, uint8_t type)
{
	struct frame *f = driver_next(d, stream);

	assert_non_null(f);
	if (f->type == G_ERROR && type != G_ERROR)
		print_error("error %d: %.*s\n", f->payload[0], (int)f->len - 8, f->payload + 8);
	assert_int_equal(f->type, type);
	return f;
}

uint32_t driver_open(struct driver *d, uint8_t type, struct buf *payload)
{
	uint32_t stream = ++d->last;

	while (payload && payload->len > GUEST_MAX_PAYLOAD) {
		driver_send(d, stream, G_MORE, buf_head(payload), GUEST_MAX_PAYLOAD);
		buf_drop(payload, GUEST_MAX_PAYLOAD);
	}
	driver_send(d, stream, type, payload && payload->len ? buf_head(payload) : NULL,
		    payload ? payload->len : 0);
	if (payload)
		buf_done(payload);
	return stream;
}

struct frame *driver_ask(struct driver *d, uint8_t type, struct buf *payload)
{
	return driver_expect(d, driver_open(d, type, payload), G_OK);
}

void driver_do(struct driver *d, uint8_t type, struct buf *payload)
{
	free(driver_ask(d, type, payload));
}

int driver_refused(struct driver *d, uint8_t type, struct buf *payload)
{
	struct frame *f = driver_expect(d, driver_open(d, type, payload), G_ERROR);
	struct unpack u = unpack_from(f->payload, f->len);
	int number = (int)unpack_u32(&u);

	free(f);
	return number;
}

int driver_connect(struct driver *d, uint64_t generation)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct driver link = {.fd = fd};
	struct buf hello = {0};
	struct frame *f;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", d->path);
	assert_int_equal(connect(fd, (void *)&a, sizeof(a)), 0);
	pack_u32(&hello, GUEST_VERSION);
	pack_u64(&hello, generation);
	driver_send(&link, 0, G_HELLO, buf_head(&hello), hello.len);
	buf_done(&hello);
	f = driver_next(&link, 0);
	buf_done(&link.in);
	if (!f) {
		close(fd);
		return -1;
	}
	assert_int_equal(f->type, G_WELCOME);
	free(f);
	return fd;
}

void driver_feed(struct driver *d, uint32_t stream, const void *bytes, size_t len)
{
	size_t room = GUEST_WINDOW, at = 0;

	while (at < len) {
		size_t part = len - at < 50000 ? len - at : 50000;

		while (room < part) {
			struct frame *f = driver_next(d, stream);
			struct unpack u;

			assert_non_null(f);
			u = unpack_from(f->payload, f->len);
			if (f->type == G_CREDIT)
				room += unpack_u32(&u);
			else if (f->type != G_OUT)
				assert_int_equal(f->type, G_CREDIT);
			free(f);
		}
		driver_send(d, stream, G_DATA, (const char *)bytes + at, part);
		at += part;
		room -= part;
	}
	driver_send(d, stream, G_CLOSE, NULL, 0);
}

/* ---- commands ---- */

struct buf driver_exec_with(const struct exec_terms *t, const char *const *argv)
{
	struct buf b = {0};
	uint32_t n = 0;

	while (argv[n])
		n++;
	pack_u8(&b, t->flags);
	pack_u32(&b, 0);
	pack_u32(&b, 0);
	pack_u64(&b, t->timeout_ms);
	pack_u32(&b, 0);
	pack_str(&b, t->cwd);
	pack_str(&b, t->user);
	pack_str(&b, t->tag);
	pack_str(&b, t->session);
	pack_u32(&b, n);
	for (uint32_t i = 0; i < n; i++)
		pack_str(&b, argv[i]);
	pack_u32(&b, t->env != NULL);
	if (t->env)
		pack_str(&b, t->env);
	return b;
}

struct buf driver_exec(uint8_t flags, const char *const *argv)
{
	return driver_exec_with(&(struct exec_terms){.flags = flags}, argv);
}

static void take_exit(const struct frame *f, struct ran *ret)
{
	struct unpack u = unpack_from(f->payload, f->len);

	ret->status = (int)unpack_u32(&u);
	ret->exec_errno = (int)unpack_u32(&u);
	ret->why = unpack_u8(&u);
	assert_true(!u.bad && u.end - u.at >= 24);
}

void driver_collect(struct driver *d, uint32_t stream, struct ran *ret)
{
	bool ended = false;

	while (!ended) {
		struct frame *f = driver_next(d, stream);
		struct unpack u;

		assert_non_null(f);
		u = unpack_from(f->payload, f->len);
		if (f->type == G_OK) {
			ret->eid = unpack_u32(&u);
			ret->pid = unpack_u32(&u);
		} else if (f->type == G_OUT || f->type == G_ERR) {
			buf_add(f->type == G_OUT ? &ret->out : &ret->err, f->payload + 8,
				f->len - 8);
		} else if (f->type == G_EXIT) {
			take_exit(f, ret);
		} else if (f->type != G_CREDIT) {
			assert_int_equal(f->type, G_END);
			ended = true;
		}
		free(f);
	}
	buf_add(&ret->out, "", 1);
	buf_add(&ret->err, "", 1);
}

void driver_shell(struct driver *d, const char *line, struct ran *ret)
{
	struct buf b = driver_exec(GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN,
				   (const char *const[]){line, NULL});

	*ret = (struct ran){0};
	driver_collect(d, driver_open(d, G_EXEC, &b), ret);
}

void ran_done(struct ran *r)
{
	buf_done(&r->out);
	buf_done(&r->err);
}

bool driver_gone(pid_t pid)
{
	for (int i = 0; i < DRIVER_WAIT_MS / 10; i++) {
		if (kill(pid, 0) < 0 && errno == ESRCH)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

/* ---- files ---- */

const char *driver_path(const struct driver *d, const char *name)
{
	static char paths[4][512];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", d->dir, name);
	return path;
}

struct buf driver_on(const struct driver *d, const char *name)
{
	struct buf b = {0};

	pack_str(&b, driver_path(d, name));
	return b;
}

void driver_write(struct driver *d, const char *name, const void *bytes, size_t len)
{
	struct buf b = driver_on(d, name);
	uint32_t stream;
	struct frame *f;

	pack_u32(&b, 0644);
	pack_u64(&b, UINT64_MAX);
	pack_u8(&b, 1);
	stream = driver_open(d, G_WRITE, &b);
	free(driver_expect(d, stream, G_OK));
	driver_feed(d, stream, bytes, len);
	while ((f = driver_next(d, stream)) && f->type == G_CREDIT)
		free(f);
	assert_non_null(f);
	assert_int_equal(f->type, G_DONE);
	free(f);
	free(driver_expect(d, stream, G_END));
}

char *driver_read(struct driver *d, const char *name, uint64_t offset, uint64_t len,
		  size_t *ret_len)
{
	struct buf b = driver_on(d, name), all = {0};
	uint32_t stream;
	struct frame *f;

	pack_u64(&b, offset);
	pack_u64(&b, len);
	stream = driver_open(d, G_READ, &b);
	free(driver_expect(d, stream, G_OK));
	while ((f = driver_next(d, stream)) && f->type == G_DATA) {
		buf_add(&all, f->payload, f->len);
		free(f);
	}
	assert_non_null(f);
	assert_int_equal(f->type, G_END);
	free(f);
	*ret_len = all.len;
	buf_add(&all, "", 1);
	assert_int_equal(all.at, 0);
	return all.data;
}

#include "api/guest_file.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <stdlib.h>
#include <string.h>

struct file_call {
	struct call *call;
	const char *bytes;
	size_t len, at;
	struct buf got;
	size_t max;
	uint64_t real_size;
	struct list paths;
	file_was_put put_done;
	file_got get_done;
	file_found find_done;
	void *arg;
	struct loop *loop;
	struct loop_task task; /* the sandbox does not run: told later */
};

static void file_free(struct file_call *f)
{
	loop_task_remove(f->loop, &f->task);
	buf_done(&f->got);
	list_done(&f->paths);
	free(f);
}

static void on_end(void *arg, const struct err *e)
{
	struct file_call *f = arg;

	f->call = NULL;
	if (e && e->kind == ERR_NONE)
		e = NULL;
	if (f->put_done)
		f->put_done(f->arg, e);
	else if (f->get_done)
		f->get_done(f->arg, f->got.len ? buf_head(&f->got) : "", f->got.len, f->real_size,
			    e);
	else
		f->find_done(f->arg, &f->paths, e);
	file_free(f);
}

static void tell_stopped(void *arg)
{
	struct err e = {0};

	err_set(&e, ERR_CONFLICT, "the sandbox is not running");
	on_end(arg, &e);
}

static struct file_call *start(const struct file_where *w, struct file_call *f, uint8_t type,
			       struct buf *payload, const struct call_ops *ops)
{
	f->loop = w->loop;
	f->task = (struct loop_task){.call = tell_stopped, .arg = f};
	f->call = sandbox_call(w->sandbox, type, buf_head(payload), payload->len, ops, f);
	if (!f->call)
		loop_task_add(f->loop, &f->task);
	buf_done(payload);
	return f;
}

void file_drop(struct file_call *f)
{
	if (!f)
		return;
	if (f->call)
		call_drop(f->call);
	file_free(f);
}

/* ---- put ---- */

static void put_more(void *arg)
{
	struct file_call *f = arg;

	while (f->at < f->len) {
		size_t n = f->len - f->at, room = call_room(f->call);

		n = n < room ? n : room;
		n = n < GUEST_MAX_PAYLOAD ? n : GUEST_MAX_PAYLOAD;
		if (!n || !call_send(f->call, f->bytes + f->at, n))
			return;
		f->at += n;
	}
	if (f->bytes)
		call_close(f->call);
	f->bytes = NULL;
}

static void put_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	(void)payload;
	(void)len;
	if (type == G_OK)
		put_more(arg);
}

struct file_call *file_put(const struct file_where *w, const struct file_what *what,
			   file_was_put done, void *arg)
{
	static const struct call_ops ops = {
		.on_frame = put_frame, .on_end = on_end, .on_room = put_more};
	struct file_call *f = must_alloc(calloc(1, sizeof(*f)));
	struct buf b = {0};

	f->bytes = what->bytes;
	f->len = what->len;
	f->put_done = done;
	f->arg = arg;
	pack_str(&b, w->path);
	pack_u32(&b, what->mode);
	pack_u64(&b, UINT64_MAX);
	pack_u8(&b, 1);
	return start(w, f, G_WRITE, &b, &ops);
}

/* ---- get ---- */

static void get_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct file_call *f = arg;
	size_t n = f->max - f->got.len;

	if (type == G_OK) {
		struct unpack u = unpack_from(payload, len);
		size_t path_len;

		unpack_bytes(&u, &path_len);
		unpack_take(&u, 1 + 3 * 4);
		f->real_size = unpack_u64(&u);
	} else if (type == G_DATA) {
		buf_add(&f->got, payload, len < n ? len : n);
		call_credit(f->call, len);
	}
}

struct file_call *file_get(const struct file_where *w, size_t max, file_got done, void *arg)
{
	static const struct call_ops ops = {.on_frame = get_frame, .on_end = on_end};
	struct file_call *f = must_alloc(calloc(1, sizeof(*f)));
	struct buf b = {0};

	f->max = max;
	f->get_done = done;
	f->arg = arg;
	pack_str(&b, w->path);
	pack_u64(&b, 0);
	pack_u64(&b, max);
	return start(w, f, G_READ, &b, &ops);
}

/* ---- find ---- */

static void find_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct file_call *f = arg;
	struct unpack u = unpack_from(payload, len);
	char path[GUEST_MAX_PATH];

	if (type != G_ITEM)
		return;
	unpack_str(&u, path, sizeof(path));
	if (!u.bad && f->paths.count < f->max)
		list_add(&f->paths, path);
	call_credit(f->call, len);
}

struct file_call *file_find(const struct file_where *w, const char *glob, uint32_t max,
			    file_found done, void *arg)
{
	static const struct call_ops ops = {.on_frame = find_frame, .on_end = on_end};
	struct file_call *f = must_alloc(calloc(1, sizeof(*f)));
	struct buf b = {0};

	f->max = max;
	f->find_done = done;
	f->arg = arg;
	pack_str(&b, w->path);
	pack_str(&b, glob);
	pack_str(&b, "");
	pack_u8(&b, 0);
	pack_u32(&b, max);
	return start(w, f, G_SEARCH, &b, &ops);
}

/*
 * Typed calls to a guest: packs the requests of wire/guest.h, parses the answers once, and turns
 * every malformed answer into one error.
 *
 * The state of a call belongs to the link's call and is freed with it (on_free). A callback may drop
 * its own call; `gone` tells the code around the callback that the state was freed.
 */
#include "calls/calls.h"

#include "manager/manager.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <assert.h>

static_assert(CALL_PATH_MAX == GUEST_MAX_PATH && CALL_GLOB_MAX == GUEST_MAX_GLOB, "one length");
static_assert((int)FILE_CREATED == GUEST_CREATED && (int)FILE_WRITTEN == GUEST_WRITTEN &&
		      (int)FILE_REMOVED == GUEST_REMOVED && (int)FILE_RENAMED == GUEST_RENAMED &&
		      (int)FILE_CHMOD == GUEST_CHMOD && (int)FILE_OVERFLOW == GUEST_OVERFLOW,
	      "kinds of changes as the guest numbers them");

struct guest_call {
	struct call *call;
	uint8_t type;
	struct receiver r;
	struct answer answer; /* of a stream, so far */
	struct file_info *info;
	bool *gone;	    /* set while a callback runs */
	bool counted;	    /* G_DONE has come */
	const char *source; /* call_put: what is left to send */
	size_t source_len;
	struct buf got; /* call_get */
	size_t most;
};

static void free_call(void *arg)
{
	struct guest_call *g = arg;

	if (g->gone)
		*g->gone = true;
	if (g->r.pump)
		g->r.pump->from = NULL;
	buf_done(&g->got);
	free(g->info);
	free(g);
}

static void credit_call(void *call, size_t len)
{
	call_credit(call, len);
}

/* Ends the call from this side; done is the last callback. */
static void finish_call(struct guest_call *g, const struct answer *a, const struct err *e)
{
	answer_done done = g->r.done;
	void *arg = g->r.arg;

	call_drop(g->call);
	if (done)
		done(arg, a, e);
}

static void finish_malformed(struct guest_call *g)
{
	struct err e = {0};

	err_set(&e, ERR_SYSTEM, "the guest's answer is malformed");
	e.errnum = EBADMSG;
	finish_call(g, NULL, &e);
}

/* ---- what answers hold ---- */

static bool parse_info(struct unpack *u, struct file_info *ret)
{
	unpack_str(u, ret->path, sizeof(ret->path));
	ret->kind = (char)unpack_u8(u);
	ret->mode = unpack_u32(u);
	ret->uid = unpack_u32(u);
	ret->gid = unpack_u32(u);
	ret->size = unpack_u64(u);
	ret->mtime_ns = unpack_u64(u);
	unpack_str(u, ret->owner, sizeof(ret->owner));
	unpack_str(u, ret->group, sizeof(ret->group));
	unpack_str(u, ret->target, sizeof(ret->target));
	return !u->bad && ret->size <= INT64_MAX;
}

const char *file_kind_name(char kind)
{
	return kind == 'f' ? "file" : kind == 'd' ? "directory" : kind == 'l' ? "link" : "other";
}

static char *copy_bytes(struct unpack *u, size_t *ret_len)
{
	const char *bytes = unpack_bytes(u, ret_len);
	char *copy = must_alloc(malloc(*ret_len + 1));

	memcpy(copy, bytes, *ret_len);
	copy[*ret_len] = '\0';
	return copy;
}

static void free_xattrs(struct xattr *all, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(all[i].name);
		free(all[i].value);
	}
	free(all);
}

/* NULL: malformed. Each attribute is 8 bytes at least, which bounds their number. */
static struct xattr *parse_xattrs(struct unpack *u, size_t *ret_count)
{
	uint32_t count = unpack_u32(u);
	struct xattr *all;
	size_t len;

	if (count > (size_t)(u->end - u->at) / 8)
		return NULL;
	all = must_alloc(calloc(count + 1, sizeof(*all)));
	for (uint32_t i = 0; i < count; i++) {
		all[i].name = copy_bytes(u, &len);
		all[i].value = copy_bytes(u, &all[i].value_len);
	}
	*ret_count = count;
	if (!u->bad)
		return all;
	free_xattrs(all, count);
	return NULL;
}

/* ---- one question, one answer ---- */

static void answer_xattrs(struct guest_call *g, struct unpack *u)
{
	struct answer a = {0};
	struct xattr *all = parse_xattrs(u, &a.xattr_count);

	a.xattrs = all;
	if (!all) {
		finish_malformed(g);
		return;
	}
	finish_call(g, &a, NULL);
	free_xattrs(all, a.xattr_count);
}

static void answer_info(struct guest_call *g, struct unpack *u)
{
	struct file_info info;
	struct answer a = {.info = &info};

	if (parse_info(u, &info))
		finish_call(g, &a, NULL);
	else
		finish_malformed(g);
}

static void take_answer(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct guest_call *g = arg;
	struct unpack u = unpack_from(payload, len);
	struct answer a = {0};

	if (type != G_OK) {
		finish_malformed(g);
	} else if (g->type == G_XATTR_LIST) {
		answer_xattrs(g, &u);
	} else if (g->type == G_STAT || g->type == G_MOVE) {
		answer_info(g, &u);
	} else {
		a.created = g->type == G_MKDIR && unpack_u8(&u);
		if (u.bad)
			finish_malformed(g);
		else
			finish_call(g, &a, NULL);
	}
}

/* ---- streams ---- */

static void push_source(struct guest_call *g)
{
	size_t n = call_push(g->call, g->source, g->source_len);

	g->source += n;
	g->source_len -= n;
	if (g->source_len == 0) {
		call_close(g->call);
		g->source = NULL;
	}
}

static void begin_stream(struct guest_call *g, struct unpack *u)
{
	if (g->type == G_READ) {
		g->info = must_alloc(malloc(sizeof(*g->info)));
		g->answer.info = g->info;
		if (!parse_info(u, g->info)) {
			finish_malformed(g);
			return;
		}
	}
	if (g->source)
		push_source(g);
	else if (g->r.begin)
		g->r.begin(g->r.arg, g->info);
}

static void take_bytes(struct guest_call *g, const void *bytes, size_t len)
{
	size_t room = g->most - g->got.len;

	if (g->most)
		buf_add(&g->got, bytes, len < room ? len : room);
	else if (g->r.bytes)
		g->r.bytes(g->r.arg, bytes, len);
}

/* Each hands one item to the receiver; false: malformed. */
static bool take_file(const struct receiver *r, struct unpack *u)
{
	struct file_info info;
	bool good = parse_info(u, &info);

	if (good)
		r->file(r->arg, &info);
	return good;
}

static bool take_match(const struct receiver *r, struct unpack *u)
{
	char path[CALL_PATH_MAX + 1];
	struct file_match m = {.path = path};

	unpack_str(u, path, sizeof(path));
	m.line = unpack_u64(u);
	m.text = unpack_bytes(u, &m.len);
	if (u->bad)
		return false;
	r->match(r->arg, &m);
	return true;
}

static bool take_change(const struct receiver *r, struct unpack *u)
{
	char path[CALL_PATH_MAX + 1];
	struct file_change c = {.path = path, .kind = unpack_u8(u)};

	unpack_str(u, path, sizeof(path));
	c.is_dir = unpack_u8(u);
	if (u->bad || c.kind >= FILE_COUNT)
		return false;
	r->change(r->arg, &c);
	return true;
}

static bool take_item(struct guest_call *g, struct unpack *u)
{
	const struct receiver *r = &g->r;

	return g->type == G_LIST     ? take_file(r, u)
	       : g->type == G_SEARCH ? take_match(r, u)
	       : g->type == G_WATCH  ? take_change(r, u)
				     : false;
}

static void take_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct guest_call *g = arg;
	struct unpack u = unpack_from(payload, len);
	bool gone = false, good = true;

	g->gone = &gone;
	if (type == G_OK)
		begin_stream(g, &u);
	else if (type == G_DATA)
		take_bytes(g, payload, len);
	else if (type == G_ITEM)
		good = take_item(g, &u);
	else if (type == G_CLOSE && g->r.closed)
		g->r.closed(g->r.arg);
	else if (type == G_DONE) {
		g->answer.count = unpack_u64(&u);
		g->counted = !u.bad;
	} else if (type == G_END) {
		g->answer.cut = unpack_u8(&u);
	}
	if (gone)
		return;
	g->gone = NULL;
	if (!good)
		finish_malformed(g);
	else if (!guest_is_counted(type))
		return;
	else if (g->r.pump)
		pump_moved(g->r.pump, len);
	else
		call_credit(g->call, len);
}

static void end_stream(void *arg, const struct err *e)
{
	struct guest_call *g = arg;
	bool counts = g->type == G_WRITE || g->type == G_TAR_IN;
	struct err early = {0};

	/* done may free the pump. */
	if (g->r.pump)
		take_ptr(g->r.pump)->from = NULL;
	if (!e && counts && !g->counted) {
		err_set(&early, ERR_SYSTEM, "the guest did not finish");
		e = &early;
	}
	g->answer.bytes = g->got.len ? buf_head(&g->got) : "";
	g->answer.len = g->got.len;
	if (g->r.done)
		g->r.done(g->r.arg, e ? NULL : &g->answer, e);
}

static void offer_room(void *arg)
{
	struct guest_call *g = arg;

	if (g->source)
		push_source(g);
	else if (g->r.room)
		g->r.room(g->r.arg);
}

/* ---- requests ---- */

/* shape: 's' a text, and numbers of 1, 4 and 8 bytes, in the order of the payload. */
struct call_request {
	uint8_t type;
	const char *shape;
	const char *texts[3];
	uint64_t numbers[3];
};

static void pack_request(struct buf *b, const struct call_request *q)
{
	const char *const *text = q->texts;
	const uint64_t *number = q->numbers;

	for (const char *at = q->shape; *at; at++) {
		if (*at == 's')
			pack_str(b, *text++);
		else if (*at == '1')
			pack_u8(b, (uint8_t)*number++);
		else if (*at == '4')
			pack_u32(b, (uint32_t)*number++);
		else
			pack_u64(b, *number++);
	}
}

/* inside: the number of a command, in whose warm sandbox it is done; 0: in the sandbox itself. */
static struct guest_call *send_request(struct sandbox *s, uint32_t inside,
				       const struct call_request *q, const struct receiver *r,
				       const struct call_ops *ops)
{
	struct guest_call *g = must_alloc(calloc(1, sizeof(*g)));
	struct buf b = {0};

	if (inside) {
		pack_u32(&b, inside);
		pack_u8(&b, q->type);
	}
	pack_request(&b, q);
	g->type = q->type;
	g->r = *r;
	g->call = sandbox_call(s, inside ? G_INSIDE : q->type, buf_head(&b), b.len, ops, g);
	buf_done(&b);
	if (r->pump) {
		r->pump->from = g->call;
		r->pump->credit = credit_call;
		r->pump->owed = 0;
	}
	return g;
}

static struct call *ask_guest(struct sandbox *s, const struct call_request *q, answer_done done,
			      void *arg)
{
	static const struct call_ops ops = {
		.on_frame = take_answer, .on_end = end_stream, .on_free = free_call};
	const struct receiver r = {.done = done, .arg = arg};

	return send_request(s, 0, q, &r, &ops)->call;
}

static struct guest_call *open_inside(struct sandbox *s, uint32_t inside,
				      const struct call_request *q, const struct receiver *r)
{
	static const struct call_ops ops = {.on_frame = take_frame,
					    .on_end = end_stream,
					    .on_room = offer_room,
					    .on_free = free_call};

	return send_request(s, inside, q, r, &ops);
}

static struct guest_call *open_stream(struct sandbox *s, const struct call_request *q,
				      const struct receiver *r)
{
	return open_inside(s, 0, q, r);
}

struct call *call_stat(struct sandbox *s, const char *path, bool follow, answer_done done,
		       void *arg)
{
	return ask_guest(s, &(struct call_request){G_STAT, "s1", {path}, {follow}}, done, arg);
}

struct call *call_mkdir(struct sandbox *s, const char *path, uint32_t mode, bool parents,
			answer_done done, void *arg)
{
	return ask_guest(s, &(struct call_request){G_MKDIR, "s41", {path}, {mode, parents}}, done,
			 arg);
}

struct call *call_move(struct sandbox *s, const char *from, const char *to, bool overwrite,
		       answer_done done, void *arg)
{
	return ask_guest(s, &(struct call_request){G_MOVE, "ss1", {from, to}, {overwrite}}, done,
			 arg);
}

struct call *call_remove(struct sandbox *s, const char *path, bool recursive, answer_done done,
			 void *arg)
{
	return ask_guest(s, &(struct call_request){G_REMOVE, "s1", {path}, {recursive}}, done, arg);
}

struct call *call_chmod(struct sandbox *s, const char *path, const struct file_mode *m,
			answer_done done, void *arg)
{
	const struct call_request q = {G_CHMOD, "s444", {path}, {m->mode, m->uid, m->gid}};

	return ask_guest(s, &q, done, arg);
}

struct call *call_xattr_set(struct sandbox *s, const char *path, const char *name,
			    const char *value, answer_done done, void *arg)
{
	const struct call_request q = {G_XATTR_SET, "sss1", {path, name, value}, {!value}};

	return ask_guest(s, &q, done, arg);
}

struct call *call_xattr_list(struct sandbox *s, const char *path, answer_done done, void *arg)
{
	return ask_guest(s, &(struct call_request){G_XATTR_LIST, "s", {path}, {0}}, done, arg);
}

struct call *call_read(struct sandbox *s, const char *path, uint64_t offset, uint64_t len,
		       const struct receiver *r)
{
	return open_stream(s, &(struct call_request){G_READ, "s88", {path}, {offset, len}}, r)
		->call;
}

static struct guest_call *open_write(struct sandbox *s, const struct file_write *w,
				     const struct receiver *r)
{
	const struct call_request q = {
		G_WRITE, "s481", {w->path}, {w->mode, w->offset, w->parents}};

	return open_stream(s, &q, r);
}

struct call *call_write(struct sandbox *s, const struct file_write *w, const struct receiver *r)
{
	return open_write(s, w, r)->call;
}

struct call *call_put(struct sandbox *s, const struct file_put *p, answer_done done, void *arg)
{
	const struct file_write w = {p->path, p->mode, WRITE_WHOLE, true};
	const struct receiver r = {.done = done, .arg = arg};
	struct guest_call *g = open_write(s, &w, &r);

	g->source = p->bytes ? p->bytes : "";
	g->source_len = p->len;
	return g->call;
}

struct call *call_get(struct sandbox *s, const struct file_get *f, answer_done done, void *arg)
{
	const struct receiver r = {.done = done, .arg = arg};
	const struct call_request q = {G_READ, "s88", {f->path}, {0, f->most}};
	struct guest_call *g = open_inside(s, f->inside, &q, &r);

	g->most = f->most;
	return g->call;
}

struct call *call_list(struct sandbox *s, const char *path, uint32_t depth,
		       const struct receiver *r)
{
	return open_stream(s, &(struct call_request){G_LIST, "s4", {path}, {depth}}, r)->call;
}

struct call *call_search(struct sandbox *s, const struct file_search *f, const struct receiver *r)
{
	unsigned flags = (f->regex ? GUEST_SEARCH_REGEX : 0) |
			 (f->ignore_case ? GUEST_SEARCH_NOCASE : 0) |
			 (f->hidden ? GUEST_SEARCH_HIDDEN : 0);
	const struct call_request q = {
		G_SEARCH, "sss14", {f->path, f->glob, f->content}, {flags, f->most}};

	return open_inside(s, f->inside, &q, r)->call;
}

struct call *call_watch(struct sandbox *s, const char *path, bool recursive,
			const struct receiver *r)
{
	return open_stream(s, &(struct call_request){G_WATCH, "s1", {path}, {recursive}}, r)->call;
}

struct call *call_pack(struct sandbox *s, const char *path, const struct receiver *r)
{
	return open_stream(s, &(struct call_request){G_TAR_OUT, "s1", {path}, {0}}, r)->call;
}

struct call *call_pack_named(struct sandbox *s, const char *path, const struct receiver *r)
{
	const struct call_request q = {G_TAR_OUT, "s1", {path}, {GUEST_TAR_NAMED}};

	return open_stream(s, &q, r)->call;
}

struct call *call_unpack(struct sandbox *s, const char *path, bool strict, const struct receiver *r)
{
	const struct call_request q = {G_TAR_IN, "s1", {path}, {strict ? GUEST_TAR_STRICT : 0}};

	return open_stream(s, &q, r)->call;
}

struct call *call_connect(struct sandbox *s, uint32_t port, const struct receiver *r)
{
	return open_stream(s, &(struct call_request){G_CONNECT, "4", {NULL}, {port}}, r)->call;
}

struct call *call_accept(struct sandbox *s, const struct receiver *r)
{
	return open_stream(s, &(struct call_request){G_ACCEPT, "", {NULL}, {0}}, r)->call;
}

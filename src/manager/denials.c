/* What was refused to a command, as its guest tells it. The guest is not trusted: bounded and cleaned. */
#include "manager/manager_internal.h"

#include "wire/guest.h"
#include "wire/pack.h"

#define DENIALS_MAX 64

static const char *const kinds[] = {"syscall", "connect", "resolve"};

/* Limits that a record tells about as denials, in this order. */
static const enum limit_hit told_limits[] = {HIT_PIDS, HIT_DISK, HIT_FILE_SIZE, HIT_MEMORY};

struct asking {
	struct sandbox *s;
	struct result *r;
	void (*then)(void *arg);
	void *arg;
};

static void read_text(struct unpack *u, char *dst, size_t size)
{
	size_t len;
	const char *text = unpack_bytes(u, &len);

	str_sanitise(dst, size, text, len);
}

static void read_denial(struct unpack *u, struct sandbox *s, struct denial *d)
{
	uint8_t kind = unpack_u8(u);

	snprintf(d->what, sizeof(d->what), "%s", kind < ARRAY_LEN(kinds) ? kinds[kind] : "limit");
	read_text(u, d->rule, sizeof(d->rule));
	read_text(u, d->target, sizeof(d->target));
	read_text(u, d->explain, sizeof(d->explain));
	d->count = unpack_u64(u);
	s->m->metrics.denials[kind < ARRAY_LEN(kinds) ? kind : 3] += d->count;
}

static void on_denials(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct asking *a = arg;
	struct unpack u = unpack_from(payload, len);
	uint32_t count = unpack_u32(&u);
	struct result *r = a->r;

	if (type != G_OK || count == 0)
		return;
	count = count < DENIALS_MAX ? count : DENIALS_MAX;
	r->denials = must_alloc(calloc(count + ARRAY_LEN(told_limits), sizeof(*r->denials)));
	for (uint32_t i = 0; i < count && !u.bad; i++) {
		read_denial(&u, a->s, &r->denials[r->denial_count]);
		r->denial_count += !u.bad;
	}
}

/* If it cannot be asked, the record goes out without them. */
static void on_denials_end(void *arg, const struct err *e)
{
	struct asking *a = arg;
	void (*then)(void *arg) = a->then;
	void *owner = a->arg;

	sandbox_release(a->s);
	free(a);
	then(owner);
}

static const struct call_ops denials_ops = {.on_frame = on_denials, .on_end = on_denials_end};

bool denials_ask(struct sandbox *s, uint32_t eid, struct result *r, void (*then)(void *arg),
		 void *arg)
{
	struct buf b = {0};
	struct asking *a;

	if (!s->link || s->state != STATE_RUNNING)
		return false;
	a = must_alloc(calloc(1, sizeof(*a)));
	*a = (struct asking){.s = sandbox_hold(s), .r = r, .then = then, .arg = arg};
	pack_u32(&b, eid);
	link_call(s->link, G_DENIALS, buf_head(&b), b.len, &denials_ops, a);
	buf_done(&b);
	return true;
}

void denials_add_limits(struct result *r)
{
	for (size_t i = 0; i < ARRAY_LEN(told_limits); i++) {
		const char *name = limit_hit_name(told_limits[i]);
		struct denial *d;

		if (!(r->end.limits_hit & told_limits[i]))
			continue;
		if (!r->denials)
			r->denials =
				must_alloc(calloc(ARRAY_LEN(told_limits), sizeof(*r->denials)));
		d = &r->denials[r->denial_count++];
		d->count = 1;
		snprintf(d->what, sizeof(d->what), "limit");
		snprintf(d->target, sizeof(d->target), "%s", name);
		snprintf(d->rule, sizeof(d->rule), "limit %s", name);
		snprintf(d->explain, sizeof(d->explain),
			 "The %s limit was reached. If more is needed, ask for a larger %s.", name,
			 name);
	}
}

/* Puts the values of secrets into requests, and finds what must be kept out of the answers. */
#include "egress/secrets.h"

#include "base/base64.h"

#include <ctype.h>
#include <strings.h>

#define SET_VALUE "(a secret)" /* what the program sees of a value that it has no placeholder for */

struct secrets {
	unsigned refs;
	size_t count;
	uint64_t used[SECRETS_MAX];
	struct egress_secret rows[];
};

/* ---- sets ---- */

/* A header that is set in every request; there may be no secret in it. */
static bool sets_header(const struct egress_secret *r)
{
	return !r->placeholder[0];
}

static int check_row(const struct egress_secret *r, struct err *e)
{
	if (!str_has_end(r->name, sizeof(r->name)) ||
	    !str_has_end(r->placeholder, sizeof(r->placeholder)) ||
	    !str_has_end(r->header, sizeof(r->header)) || !str_is_printable(r->placeholder) ||
	    !str_is_printable(r->header) ||
	    (sets_header(r) ? !strstr(r->header, ": ") : strlen(r->placeholder) < 8))
		return err_set(e, ERR_INVALID, "a malformed secret");
	for (size_t i = 0; i < ARRAY_LEN(r->hosts); i++)
		if (!str_has_end(r->hosts[i], sizeof(r->hosts[i])))
			return err_set(e, ERR_INVALID, "secret %s: a malformed host", r->name);
	if ((!r->value_len && !(sets_header(r) && !r->name[0])) || r->value_len >= sizeof(r->value))
		return err_set(e, ERR_INVALID, "secret %s: its value is empty or too long",
			       r->name);
	/* A line break would be the beginning of another header field. */
	for (size_t i = 0; i < r->value_len; i++)
		if ((unsigned char)r->value[i] < ' ' || r->value[i] == 0x7f)
			return err_set(e, ERR_INVALID,
				       "secret %s: its value has a control character", r->name);
	return 0;
}

/* All rows of a name are one secret, whose uses are counted in its first row. */
static size_t first_row(const struct secrets *s, const char *name)
{
	size_t i = 0;

	while (i < s->count && !str_equal(s->rows[i].name, name))
		i++;
	return i;
}

/* This instance may have counted more than the broker has heard of. */
static uint64_t used_before(const struct secrets *old, const struct egress_secret *r)
{
	size_t i = old ? first_row(old, r->name) : 0;

	return old && i < old->count && old->used[i] > r->used ? old->used[i] : r->used;
}

struct secrets *secrets_new(const void *rows, size_t len, const struct secrets *old, struct err *e)
{
	const struct egress_secret *from = rows;
	size_t count = len / sizeof(*from);
	struct secrets *s;

	if (len % sizeof(*from) || count > SECRETS_MAX) {
		err_set(e, ERR_INVALID, "the table of secrets has %zu bytes", len);
		return NULL;
	}
	s = must_alloc(calloc(1, sizeof(*s) + len));
	s->refs = 1;
	memcpy(s->rows, rows, len);
	for (s->count = 0; s->count < count; s->count++) {
		struct egress_secret *r = &s->rows[s->count];

		if (check_row(r, e) < 0) {
			s->count = count;
			secrets_unref(s);
			return NULL;
		}
		r->value[r->value_len] = '\0';
		s->used[s->count] = used_before(old, r);
	}
	return s;
}

struct secrets *secrets_ref(struct secrets *s)
{
	if (s)
		s->refs++;
	return s;
}

void secrets_unref(struct secrets *s)
{
	if (!s || --s->refs)
		return;
	explicit_bzero(s, sizeof(*s) + s->count * sizeof(s->rows[0]));
	free(s);
}

static bool row_has_host(const struct egress_secret *r, const char *name, uint16_t port)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_LEN(r->hosts) && r->hosts[i][0]; i++) {
		const char *host = r->hosts[i];
		char digits[8];

		if (strncmp(host, name, len) != 0 || (host[len] && host[len] != ':'))
			continue;
		snprintf(digits, sizeof(digits), "%u", port);
		if (host[len] ? str_equal(host + len + 1, digits) : port == 443)
			return true;
	}
	return false;
}

bool secrets_has_host(const struct secrets *s, const char *name, uint16_t port)
{
	for (size_t i = 0; s && name[0] && i < s->count; i++)
		if (row_has_host(&s->rows[i], name, port))
			return true;
	return false;
}

/* ---- requests ---- */

/* Keeps a text as long as the request; NULL: there are too many of them, so nothing is put in. */
static const char *keep(struct secret_use *use, char *text)
{
	if (use->made_count == ARRAY_LEN(use->made)) {
		explicit_bzero(text, strlen(text));
		free(text);
		return NULL;
	}
	return use->made[use->made_count++] = text;
}

static void remember_pair(struct secret_use *use, const char *find, const char *put)
{
	if (use->own_count < ARRAY_LEN(use->own))
		use->own[use->own_count++] = (struct redact_needle){str_copy(find), str_copy(put),
								    strlen(find), strlen(put)};
}

/* "Bearer {}" against "Bearer PLACEHOLDER": the new value, or NULL. */
static char *fill_template(const char *template, const char *value, const struct egress_secret *r)
{
	const char *hole = strstr(template, "{}");
	size_t before = hole ? (size_t)(hole - template) : 0, mark = strlen(r->placeholder);
	const char *after = hole ? hole + 2 : "";

	if (strlen(value) != before + mark + strlen(after) ||
	    strncasecmp(value, template, before) ||
	    memcmp(value + before, r->placeholder, mark) != 0 ||
	    !str_equal(value + before + mark, after))
		return NULL;
	return str_format("%.*s%s%s", (int)before, template, r->value, after);
}

static const char *fill_basic(struct secret_use *use, const char *value,
			      const struct egress_secret *r)
{
	char plain[1024], *colon, *joined, *text;
	size_t len, n;
	const char *blob = value + 6 + strspn(value + 6, " ");

	if (strncasecmp(value, "Basic ", 6) != 0 || strlen(blob) / 4 * 3 >= sizeof(plain) ||
	    base64_decode(plain, blob, strlen(blob), &len) < 0 || memchr(plain, '\0', len))
		return NULL;
	plain[len] = '\0';
	colon = strchr(plain, ':');
	if (!colon)
		return NULL;
	*colon++ = '\0';
	if (!str_equal(plain, r->placeholder) && !str_equal(colon, r->placeholder))
		return NULL;
	joined = str_format("%s:%s", str_equal(plain, r->placeholder) ? r->value : plain,
			    str_equal(colon, r->placeholder) ? r->value : colon);
	len = strlen(joined);
	text = must_alloc(malloc(6 + BASE64_ROOM(len) + 1));
	memcpy(text, "Basic ", 6);
	n = base64_encode(text + 6, joined, len);
	text[6 + n] = '\0';
	explicit_bzero(joined, len);
	free(joined);
	remember_pair(use, text + 6, blob);
	return keep(use, text);
}

/* "/a?x=1&key=PLACEHOLDER": the new target, or NULL. */
static const char *fill_query(struct secret_use *use, const char *target, const char *name,
			      const struct egress_secret *r)
{
	const char *at = strchr(target, '?'), *made = NULL;
	size_t name_len = strlen(name), mark = strlen(r->placeholder);

	while (at) {
		at++;
		if (!strncmp(at, name, name_len) && at[name_len] == '=' &&
		    !strncmp(at + name_len + 1, r->placeholder, mark) &&
		    (!at[name_len + 1 + mark] || at[name_len + 1 + mark] == '&')) {
			char *value = http_percent_encode(r->value);

			made = keep(use, str_format("%.*s%s%s", (int)(at + name_len + 1 - target),
						    target, value, at + name_len + 1 + mark));
			if (!str_equal(value, r->value))
				remember_pair(use, value, r->placeholder);
			explicit_bzero(value, strlen(value));
			free(value);
			return made;
		}
		at = strchr(at, '&');
	}
	return made;
}

/* How often the value was put in. */
static unsigned put_in_fields(struct secret_use *use, struct http_request *q,
			      const struct egress_secret *r)
{
	const char *colon = strchr(r->header, ':'), *made;
	bool is_basic = str_equal(r->header, "basic");
	size_t name_len = is_basic ? 13 : colon ? (size_t)(colon - r->header) : strlen(r->header);
	const char *name = is_basic ? "Authorization" : r->header;
	const char *template = colon ? colon + 1 + strspn(colon + 1, " ") : "{}";
	unsigned count = 0;

	for (size_t i = 0; i < q->count; i++) {
		struct http1_field *f = &q->fields[i];

		if (strlen(f->name) != name_len || strncasecmp(f->name, name, name_len) != 0)
			continue;
		if (is_basic) {
			made = fill_basic(use, f->value, r);
		} else {
			char *text = fill_template(template, f->value, r);

			made = text ? keep(use, text) : NULL;
		}
		if (made) {
			f->value = made;
			count++;
		}
	}
	return count;
}

/* A compressed or partial answer cannot be searched for the value. */
static void drop_fields(struct http_request *q)
{
	static const char *const names[] = {"Accept-Encoding", "Range", "If-Range",
					    "Sec-WebSocket-Extensions"};
	size_t kept = 0;

	for (size_t i = 0; i < q->count; i++) {
		bool drop = false;

		for (size_t j = 0; j < ARRAY_LEN(names); j++)
			drop |= !strcasecmp(q->fields[i].name, names[j]);
		if (!drop)
			q->fields[kept++] = q->fields[i];
	}
	q->count = kept;
}

/* In place of fields of that name. The name is lower-case, as HTTP/2 wants it. */
static unsigned set_header(struct secret_use *use, struct http_request *q,
			   const struct egress_secret *r)
{
	const char *colon = strchr(r->header, ':'), *hole = strstr(colon, "{}"), *name, *value;
	char *lower = str_format("%.*s", (int)(colon - r->header), r->header);
	size_t kept = 0;

	for (char *p = lower; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	name = keep(use, lower);
	value = keep(use, hole ? str_format("%.*s%s%s", (int)(hole - colon - 2), colon + 2,
					    r->value, hole + 2)
			       : str_copy(colon + 2));
	if (!name || !value)
		return 0;
	for (size_t i = 0; i < q->count; i++)
		if (strcasecmp(q->fields[i].name, name) != 0)
			q->fields[kept++] = q->fields[i];
	q->count = kept;
	if (q->count == HTTP1_FIELDS)
		return 0;
	q->fields[q->count++] = (struct http1_field){name, value};
	return 1;
}

static void tell_leak(struct secret_use *use, const struct http_place *p, const char *name,
		      const char *where)
{
	char text[256];

	if (use->has_leak || !p->noted)
		return;
	use->has_leak = true;
	snprintf(text, sizeof(text),
		 "the placeholder of secret %s is in %s, where its value is not put in", name,
		 where);
	p->noted(p->context, text);
}

static void find_leaks(struct secret_use *use, const struct http_place *p,
		       const struct http_request *q)
{
	char where[96];

	for (size_t k = 0; k < use->set->count; k++) {
		const struct egress_secret *r = &use->set->rows[k];

		if (sets_header(r))
			continue;
		redact_add(&use->seen, r->placeholder, strlen(r->placeholder), "", 0);
		if (strstr(q->target, r->placeholder))
			tell_leak(use, p, r->name, "the URL");
		for (size_t i = 0; i < q->count; i++)
			if (strstr(q->fields[i].value, r->placeholder)) {
				snprintf(where, sizeof(where), "header %.60s", q->fields[i].name);
				tell_leak(use, p, r->name, where);
			}
	}
}

static int put_in(struct secret_use *use, const struct http_place *p, struct http_request *q,
		  size_t row)
{
	struct secrets *set = use->set;
	const struct egress_secret *r = &set->rows[row];
	uint64_t *used = &set->used[first_row(set, r->name)];
	unsigned count = 0;
	const char *target;

	if (sets_header(r)) {
		count = set_header(use, q, r);
	} else if (str_starts(r->header, "query:")) {
		target = fill_query(use, q->target, r->header + 6, r);
		if (target) {
			q->target = target;
			count++;
		}
	} else {
		count = put_in_fields(use, q, r);
	}
	if (!count || !r->name[0])
		return 0;
	if (r->uses_max && *used >= r->uses_max)
		return -1;
	++*used;
	if (p->used)
		p->used(p->context, r->name);
	return 0;
}

int secret_use_begin(struct secret_use *use, const struct http_place *p, struct http_request *q,
		     struct http_refusal *ret)
{
	struct secrets *set = p->secrets ? p->secrets(p->context) : NULL;

	*use = (struct secret_use){.set = secrets_ref(set)};
	if (!set)
		return 0;
	use->is_host = p->is_tls && secrets_has_host(set, p->name, p->port);
	for (size_t i = 0; use->is_host && i < set->count; i++) {
		if (!row_has_host(&set->rows[i], p->name, p->port))
			continue;
		if (put_in(use, p, q, i) < 0)
			return http_refuse(ret, 403,
					   "secret %s was used %" PRIu64
					   " times, as often as it may be",
					   set->rows[i].name, set->rows[i].uses_max);
	}
	if (use->is_host)
		drop_fields(q);
	find_leaks(use, p, q);
	return 0;
}

void secret_use_body(struct secret_use *use, const struct http_place *p, const char *bytes,
		     size_t len)
{
	auto_buf struct buf scratch = {0};

	if (!use->seen.count || use->has_leak)
		return;
	if (redact_feed(&use->seen, bytes, len, &scratch))
		tell_leak(use, p, use->set->count == 1 ? use->set->rows[0].name : "(one of them)",
			  "the body");
}

void secret_use_needles(const struct secret_use *use, struct redact *r)
{
	if (!use->is_host)
		return;
	for (size_t i = 0; i < use->own_count; i++)
		redact_add(r, use->own[i].find, use->own[i].find_len, use->own[i].put,
			   use->own[i].put_len);
	for (size_t i = 0; i < use->set->count; i++) {
		const struct egress_secret *s = &use->set->rows[i];
		const char *put = sets_header(s) ? SET_VALUE : s->placeholder;

		if (s->value_len)
			redact_add(r, s->value, s->value_len, put, strlen(put));
	}
}

static void wipe_text(const char *text)
{
	char *t = (char *)text;

	explicit_bzero(t, strlen(t));
	free(t);
}

void secret_use_done(struct secret_use *use)
{
	for (size_t i = 0; i < use->made_count; i++)
		wipe_text(use->made[i]);
	for (size_t i = 0; i < use->own_count; i++) {
		wipe_text(use->own[i].find);
		wipe_text(use->own[i].put);
	}
	redact_done(&use->seen);
	secrets_unref(use->set);
	*use = (struct secret_use){0};
}

/* Decides on single HTTP requests: host, method and path, and words the refusals. */
#include "egress/http_check.h"

#include <ctype.h>
#include <stdarg.h>
#include <strings.h>

int http_refuse(struct http_refusal *r, int status, const char *fmt, ...)
{
	va_list args;

	*r = (struct http_refusal){.status = status};
	va_start(args, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, args);
	va_end(args);
	return -1;
}

/* ---- the host ---- */

ssize_t http_authority(const char *text, size_t len, uint16_t *port)
{
	const char *close = len && *text == '[' ? memchr(text, ']', len) : NULL;
	const char *colon = close ? close + 1 : memchr(text, ':', len);
	size_t host = len;
	unsigned n = 0;

	if (!colon || colon == text + len)
		return len ? (ssize_t)len : -1;
	host = (size_t)(colon - text);
	if (*colon != ':' || len - host < 2 || len - host > 6)
		return -1;
	for (const char *c = colon + 1; c < text + len; c++) {
		if (!isdigit((unsigned char)*c))
			return -1;
		n = n * 10 + (unsigned)(*c - '0');
	}
	if (n == 0 || n > 65535)
		return -1;
	*port = (uint16_t)n;
	return host ? (ssize_t)host : -1;
}

static int check_authority(const struct http_place *p, const char *authority,
			   struct http_refusal *ret)
{
	uint16_t port = p->is_tls ? 443 : 80;
	ssize_t len = http_authority(authority, strlen(authority), &port);
	char shown[128];

	if (len > 0 && port == p->port && p->may_call_it(p->context, authority, (size_t)len))
		return 0;
	str_sanitise(shown, sizeof(shown), authority, strlen(authority));
	return http_refuse(ret, 403, "the request is for \"%s\", but its connection is to %s:%u",
			   shown, p->name[0] ? p->name : "another address", p->port);
}

/* ---- the path ---- */

/* Without "." and ".." segments, doubled slashes and parameters behind a semicolon in dot segments. */
static void drop_dot_segments(char *path)
{
	char *from = path, *to = path;

	while (*from) {
		size_t len, bare;

		from += strspn(from, "/");
		len = strcspn(from, "/");
		bare = strcspn(from, "/;");
		if (bare == 2 && from[0] == '.' && from[1] == '.') {
			while (to > path && *--to != '/')
				;
		} else if (len && !(bare == 1 && from[0] == '.')) {
			*to++ = '/';
			memmove(to, from, len);
			to += len;
		}
		from += len;
		if (*from == '/' && !from[strspn(from, "/")]) {
			*to++ = '/'; /* a directory */
			break;
		}
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

static bool decode_path(const char *from, char to[HTTP_PATH_MAX])
{
	if (!http1_unescape(from, strlen(from), false, to))
		return false;
	for (char *c = to; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
		if (*c == '\\')
			*c = '/';
	}
	drop_dot_segments(to);
	return true;
}

size_t http_path_forms(const char *target, char ret[HTTP_PATH_FORMS][HTTP_PATH_MAX])
{
	size_t len = strcspn(target, "?"), count = 1;

	if (len >= HTTP_PATH_MAX || strchr(target, '#') ||
	    (*target != '/' && !str_equal(target, "*")))
		return 0;
	memcpy(ret[0], target, len);
	ret[0][len] = '\0';
	if (*target == '*')
		return 1;
	if (!decode_path(ret[0], ret[1]))
		return 0;
	count += !str_equal(ret[0], ret[1]);
	/* What cannot be decoded again, no server decodes again. */
	if (count == 2 && strchr(ret[1], '%') && decode_path(ret[1], ret[2]) &&
	    !str_equal(ret[1], ret[2]))
		count++;
	return count;
}

/* ---- the decision ---- */

/* Is it a field by which some servers take another method or path than the first line's? To CGI "_" is "-". */
static bool is_override(const char *name)
{
	static const char *const names[] = {"X-HTTP-Method-Override", "X-HTTP-Method",
					    "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"};
	char plain[32];
	size_t len = strlen(name);

	if (len >= sizeof(plain))
		return false;
	for (size_t i = 0; i <= len; i++)
		plain[i] = name[i] == '_' ? '-' : name[i];
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcasecmp(plain, names[i]) == 0)
			return true;
	return false;
}

static int refuse_overrides(const struct http_request *q, struct http_refusal *ret)
{
	for (size_t i = 0; i < q->count; i++)
		if (is_override(q->fields[i].name))
			return http_refuse(ret, 403,
					   "%s may mean another method or path than the "
					   "request's, and the rules have such",
					   q->fields[i].name);
	return 0;
}

static int decide(const struct http_place *p, const struct http_request *q,
		  struct http_refusal *ret)
{
	static char forms[HTTP_PATH_FORMS][HTTP_PATH_MAX]; /* one thread; too large for the stack */
	size_t count = http_path_forms(q->target, forms);
	struct net_answer a = {0};
	const char *used_up;

	if (str_equal(q->method, "CONNECT"))
		return http_refuse(ret, 403, "CONNECT is served by the sandbox's proxy only");
	if (!count)
		return http_refuse(ret, 400, "a malformed request target");
	used_up = p->count(p->context);
	if (used_up)
		return http_refuse(ret, 429, "%s", used_up);
	for (size_t i = 0; i < count; i++) {
		p->decide(p->context, net_method_find(q->method, strlen(q->method)), forms[i], &a);
		if (!a.allowed) {
			http_refuse(ret, 403, "%s", a.why[0] ? a.why : "no rule allows it");
			snprintf(ret->remedy, sizeof(ret->remedy), "%s", a.remedy);
			return -1;
		}
	}
	return a.http ? refuse_overrides(q, ret) : 0;
}

int http_check(const struct http_place *p, const struct http_request *q, const char *authority,
	       struct http_refusal *ret)
{
	char path[256];
	int rc = check_authority(p, authority, ret);

	if (rc == 0)
		rc = decide(p, q, ret);
	str_sanitise(path, sizeof(path), q->target, strcspn(q->target, "?"));
	if (p->told)
		p->told(p->context, q->method, path, rc < 0 ? ret : NULL);
	return rc;
}

/* ---- refusals ---- */

size_t http_refusal_text(const struct http_refusal *r, char *text, size_t room)
{
	int n = snprintf(text, room, "%s by the sandbox's network: %s\n%s%s%s",
			 r->status == 502 ? "Not answered" : "Refused", r->why,
			 r->remedy[0] ? "If this is needed, ask for: " : "", r->remedy,
			 r->remedy[0] ? "\n" : "");

	return n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

char *http_percent_encode(const char *value)
{
	char *text = must_alloc(malloc(strlen(value) * 3 + 1)), *to = text;

	for (; *value; value++) {
		if (strchr(STR_ALNUM "-._~", *value))
			*to++ = *value;
		else
			to += sprintf(to, "%%%02X", (unsigned char)*value);
	}
	*to = '\0';
	return text;
}

void http_refusal_write(struct buf *out, const struct http_refusal *r, bool no_body)
{
	char text[1024], head[256];
	size_t len = http_refusal_text(r, text, sizeof(text));
	int n = snprintf(head, sizeof(head),
			 "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\n"
			 "Content-Length: %zu\r\nConnection: close\r\n\r\n",
			 r->status, http1_reason(r->status), len);

	buf_add(out, head, (size_t)n);
	if (!no_body)
		buf_add(out, text, len);
}

/*
 * /files: access to both directions, and downloads. A client shows the access token or, in a plain
 * link, a signature over path, operation and user. A signed link that names no sandbox belongs to the
 * sandbox whose token made the signature.
 */
#include "api/e2b/e2b_internal.h"

#include "api/http/transfer.h"

/* ---- access ---- */

struct signed_by {
	const char *path, *operation, *user, *expiry, *signature;
	struct sandbox *found;
};

static bool signed_with(void *arg, struct sandbox *s)
{
	struct signed_by *b = arg;
	char wanted[64];

	e2b_sign(b->path, b->operation, b->user, e2b_access_token(s), b->expiry, wanted);
	if (!s || !e2b_is_open(s) || !e2b_same_secret(b->signature, wanted))
		return true;
	b->found = s;
	return false;
}

static bool is_expired(const char *expiry)
{
	uint64_t at;
	struct err e;

	return parse_count(expiry, &at, &e) < 0 || at < (uint64_t)time(NULL);
}

/* Writes the id of the sandbox to q->id if the signature is right; false after an answer. */
static bool check_signature(struct e2b_request *q, const char *operation)
{
	struct exchange *x = q->x;
	const char *path = exchange_arg(x, "path"), *user = exchange_arg(x, "username");
	struct signed_by b = {.path = path ? path : "",
			      .operation = operation,
			      .user = user ? user : "",
			      .expiry = exchange_arg(x, "signature_expiration"),
			      .signature = exchange_arg(x, "signature")};
	struct sandbox *s = q->id[0] ? manager_find_any(x->api->manager, q->id) : NULL;

	if (b.signature && q->id[0])
		signed_with(&b, s); /* also if s is NULL, so that the time is the same */
	else if (b.signature)
		manager_each(x->api->manager, NULL, signed_with, &b);
	if (!b.found || (b.expiry && is_expired(b.expiry))) {
		e2b_fail(x, 401, "%s",
			 !b.signature ? "missing signature query parameter"
			 : !b.found   ? "invalid signature"
				      : "signature is already expired");
		return false;
	}
	snprintf(q->id, sizeof(q->id), "%s", sandbox_id(b.found));
	q->port = E2B_ENVD_PORT;
	return true;
}

bool e2b_files_signed(struct e2b_request *q)
{
	struct exchange *x = q->x;
	const char *token = exchange_header(x, "X-Access-Token");
	struct sandbox *s;

	if (!e2b_target(x, q->id, &q->port))
		q->id[0] = '\0';
	s = q->id[0] ? manager_find_any(x->api->manager, q->id) : NULL;
	if (s && !e2b_state(s))
		s = NULL;
	/* Without the right token the answer must not tell whether the sandbox exists. */
	if (e2b_holds_access(x, s))
		return true;
	if (!q->id[0] || !token || !*token || exchange_arg(x, "signature"))
		return check_signature(q, str_equal(x->method, "POST") ? "write" : "read");
	e2b_not_running(x, q->id);
	return false;
}

char *e2b_files_path(struct e2b_request *q, const char *path)
{
	const char *name = exchange_arg(q->x, "username");
	struct err e = {0};
	char *resolved;

	if (e2b_user(q->x, name && *name ? name : NULL, &q->user, &e) < 0) {
		exchange_error_as(q->x, 401, &e);
		return NULL;
	}
	resolved = e2b_path(path, q->user, &e);
	if (!resolved)
		exchange_error_as(q->x, 400, &e);
	return resolved;
}

/* ---- GET ---- */

static int64_t begin_download(struct exchange *x, const struct file_info *info)
{
	exchange_stream(x, 200, "application/octet-stream", (int64_t)info->size);
	return (int64_t)info->size;
}

void e2b_files_get(struct e2b_request *q, struct sandbox *s)
{
	static const struct transfer_ops ops = {.begin = begin_download, .error = e2b_files_error};
	auto_free char *path = e2b_files_path(q, exchange_arg(q->x, "path"));
	struct transfer *t;

	if (!path)
		return;
	t = transfer_down(q->x, &ops);
	t->call = call_read(s, path, 0, UINT64_MAX, &t->receiver);
}

/*
 * envd: the way into a sandbox. Every request takes the same steps: find the sandbox, check the token,
 * wake the sandbox if it may be woken, read the message, call the handler.
 */
#include "api/e2b/kernel_internal.h"

#include "auth/tokens.h"

#include <sodium.h>
#include <stdarg.h>
#include <strings.h>

/* An error in the shape that E2B's proxy uses. */
static void proxy_error(struct exchange *x, const char *id, int status, const char *message)
{
	exchange_json(x, status,
		      must_alloc(json_pack("{s:s,s:s,s:i}", "sandboxId", id, "message", message,
					   "code", status)));
}

void e2b_not_running(struct exchange *x, const char *id)
{
	proxy_error(x, id, 502, "The sandbox was not found");
}

static void request_done(void *data)
{
	struct e2b_request *q = data;

	json_decref(q->in);
	free(q->path);
}

void *e2b_keep(struct e2b_request *q, size_t size, void (*done)(void *more))
{
	q->more = must_alloc(calloc(1, size));
	exchange_also_free(q->x, q->more, done);
	return q->more;
}

struct sandbox *e2b_still(struct e2b_request *q)
{
	struct sandbox *s = e2b_running(q->x->api, q->id);

	if (!s)
		e2b_not_running(q->x, q->id);
	return s;
}

static void read_message(struct e2b_request *q, struct sandbox *s);

static void sandbox_awake(void *arg, struct sandbox *s, const struct err *e)
{
	struct e2b_request *q = arg;

	if (!s)
		e2b_not_running(q->x, q->id);
	else if (q->method->shape == E2B_PLAIN)
		q->method->call(q, s);
	else if (q->method->shape == E2B_KERNEL)
		kernel_open(q, s);
	else
		read_message(q, s);
}

/* A 401 in the shape of the control plane; clients of streams read the HTTP status. */
static void refuse_token(struct e2b_request *q, const char *message)
{
	struct err e = {.kind = ERR_DENIED};

	snprintf(e.msg, sizeof(e.msg), "%s", message);
	e2b_error(q->x, 401, &e);
}

/* The access token of a sandbox is worth no more than the API key that made the sandbox. */
static bool owner_is_known(const struct e2b_request *q, const struct sandbox *s)
{
	const char *owner = sandbox_owner(s);

	return !*owner || tokens_has(q->x->api->tokens, owner, (uint64_t)time(NULL));
}

/* The client that made the sandbox asked for closed ports, and expects a refusal that says so. */
static bool is_closed_by_choice(const struct sandbox *s)
{
	const json_t *network = json_object_get(sandbox_door_data(s), "network");

	return json_is_false(json_object_get(network, "allowPublicTraffic"));
}

/*
 * The ids of other tenants must look like unknown ids: until a token has proven itself, the answer
 * depends only on the request, not on whether the sandbox exists. s is NULL if it does not. A sandbox
 * that was made with the choice of public or closed ports may be seen by everybody who knows its id.
 */
static bool may_enter(struct e2b_request *q, const struct sandbox *s, enum e2b_need need)
{
	const char *access = exchange_header(q->x, "X-Access-Token");
	const char *traffic = exchange_header(q->x, "E2b-Traffic-Access-Token");
	const char *wanted = s ? e2b_data_text(s, "traffic") : "";
	bool holds = e2b_holds_access(q->x, s);

	if (need == E2B_ACCESS_TOKEN && !(access && *access))
		refuse_token(q,
			     "unauthorized access, please provide a valid access token or method "
			     "signing if supported");
	else if (!s || (need == E2B_ACCESS_TOKEN && !holds))
		e2b_not_running(q->x, q->id);
	else if (!owner_is_known(q, s) && holds)
		refuse_token(q, "the API key of this sandbox was revoked or has expired");
	else if (!owner_is_known(q, s))
		e2b_not_running(q->x, q->id);
	else if (q->port == E2B_ENVD_PORT || !*wanted ||
		 e2b_same_secret(traffic ? traffic : "", wanted))
		return true;
	else if (holds || is_closed_by_choice(s))
		proxy_error(q->x, q->id, 403,
			    traffic ? "Traffic access token is invalid"
				    : "Sandbox is secured with traffic access token. Token header "
				      "'e2b-traffic-access-token' is missing");
	else
		e2b_not_running(q->x, q->id);
	return false;
}

static void wake_sandbox(struct exchange *x)
{
	struct e2b_request *q = x->data;
	struct sandbox *s = manager_find_any(x->api->manager, q->id);

	if (!s) {
		e2b_not_running(x, q->id);
		return;
	}
	sandbox_wake(s, &x->caller, sandbox_awake, q);
}

/* The decision is written to the audit log before it takes effect. */
static void write_decision(struct e2b_request *q)
{
	struct exchange *x = q->x;
	auto_free char *target = str_format("%s:%u %s", q->id, q->port, x->path);

	if (q->method->is_audited || str_equal(x->method, "GET") || str_equal(x->method, "HEAD")) {
		wake_sandbox(x);
		return;
	}
	exchange_decide(x, target, "access token", wake_sandbox);
}

/* Connect answers an unknown content type with 415 and no body. */
static bool takes_type(const struct e2b_request *q)
{
	static const char *const types[E2B_SHAPE_COUNT] = {
		[E2B_UNARY] = "application/json",
		[E2B_STREAM] = "application/connect+json",
		[E2B_ROWS] = "application/connect+json",
	};
	const char *type = exchange_header(q->x, "Content-Type"), *wanted = types[q->method->shape];
	size_t len = wanted ? strlen(wanted) : 0;

	if (!wanted || (type && strncasecmp(type, wanted, len) == 0 &&
			(type[len] == '\0' || type[len] == ';' || type[len] == ' ')))
		return true;
	exchange_set_header(q->x, "Accept-Post", wanted);
	exchange_reply(q->x, 415, NULL, "", 0);
	return false;
}

/* Finds the sandbox and checks the token, before anything of the body is read. */
void e2b_admit(struct exchange *x)
{
	struct err e = {0};
	struct e2b_request *q;
	struct sandbox *s;

	if (!x->route->describe)
		return;
	q = exchange_attach(x, sizeof(*q), request_done);
	q->x = x;
	q->method = x->route->describe;
	q->user = "user";
	if (!takes_type(q) || (q->method->need == E2B_SIGNATURE && !e2b_files_signed(q)))
		return;
	if (!q->id[0] && !e2b_target(x, q->id, &q->port)) {
		e2b_fail(x, 400, "the request names no sandbox");
		return;
	}
	s = manager_find_any(x->api->manager, q->id);
	/* Sandboxes of other doors cannot be entered here until their owner connects to them. */
	if (s && (!e2b_state(s) || !e2b_is_open(s)))
		s = NULL;
	if (!may_enter(q, s, q->method->need))
		return;
	sandbox_act_as_owner(s, &x->caller);
	if (exchange_admit(x, x->caller.token, &e) < 0)
		exchange_error(x, &e);
}

void e2b_enter(struct exchange *x)
{
	write_decision(x->data);
}

/* ---- RPCs ---- */

/* Columns that are 0 leave it to the kind of the error. */
static const struct errno_row {
	int errnum;
	enum connect_code code; /* of an RPC */
	int status;		/* of /files */
} errnos[] = {
	{ENOENT, CONNECT_NOT_FOUND, 404},
	{ESRCH, CONNECT_NOT_FOUND, 0},
	{EEXIST, CONNECT_ALREADY_EXISTS, 0},
	{ENOTDIR, CONNECT_INVALID_ARGUMENT, 400},
	{EISDIR, CONNECT_INVALID_ARGUMENT, 400},
	{EINVAL, 0, 400},
	{ELOOP, 0, 400},
	{ENAMETOOLONG, 0, 400},
	{ENOSPC, CONNECT_RESOURCE_EXHAUSTED, 507},
	{EDQUOT, CONNECT_RESOURCE_EXHAUSTED, 507},
	{EFBIG, 0, 507},
	{EACCES, 0, 403},
	{EPERM, 0, 403},
	{EROFS, 0, 403},
	{ENOTTY, CONNECT_FAILED_PRECONDITION, 0},
	{EPIPE, CONNECT_INTERNAL, 0},
	{EBADF, CONNECT_INTERNAL, 0},
	{ENOTEMPTY, CONNECT_INTERNAL, 0},
	{EBUSY, CONNECT_INTERNAL, 0},
};

static const struct errno_row *errno_row(const struct err *e)
{
	static const struct errno_row none;

	for (size_t i = 0; i < ARRAY_LEN(errnos); i++)
		if (e->errnum == errnos[i].errnum)
			return &errnos[i];
	return &none;
}

enum connect_code e2b_code_of(const struct err *e)
{
	enum connect_code code = errno_row(e)->code;

	return code ? code : connect_code_of(e);
}

void e2b_files_error(struct exchange *x, const struct err *e)
{
	struct e2b_request *q = x->data;
	int status = errno_row(e)->status;

	if (e2b_is_cut(q, e))
		e2b_not_running(x, q->id);
	else
		exchange_error_as(x, status ? status : exchange_status_of(e), e);
}

/* Adds the last envelope and answers with all of them. */
static void reply_envelopes(struct e2b_request *q, struct buf *out, enum connect_code code,
			    const char *message)
{
	connect_put_end(out, code, message);
	exchange_reply(q->x, 200, "application/connect+json", buf_head(out), out->len);
	buf_done(out);
}

static void rpc_answer(struct e2b_request *q, enum connect_code code, const char *message)
{
	struct buf out = {0};

	if (q->method->shape == E2B_UNARY) {
		exchange_json(q->x, connect_code_status(code), connect_error(code, message));
		return;
	}
	reply_envelopes(q, &out, code, message);
}

void e2b_rpc_fail(struct e2b_request *q, enum connect_code code, const char *fmt, ...)
{
	char message[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	rpc_answer(q, code, message);
}

/* Errors of the guest have an errno; errors of the link have none. */
bool e2b_is_cut(struct e2b_request *q, const struct err *e)
{
	return !e2b_running(q->x->api, q->id) ||
	       (e->errnum == 0 && (e->kind == ERR_CONFLICT || e->kind == ERR_SYSTEM));
}

/* A sandbox that is gone by now is answered like an unknown one. */
void e2b_rpc_error(struct e2b_request *q, const struct err *e)
{
	if (e2b_is_cut(q, e))
		e2b_not_running(q->x, q->id);
	else
		rpc_answer(q, e2b_code_of(e), e->msg);
}

void e2b_rpc_ok(struct e2b_request *q, json_t *message)
{
	struct buf out = {0};

	if (q->method->shape == E2B_UNARY) {
		exchange_json(q->x, 200, must_alloc(message));
		return;
	}
	connect_put_json(&out, must_alloc(message));
	reply_envelopes(q, &out, CONNECT_OK, NULL);
}

int e2b_user(const struct exchange *x, const char *name, const char **ret_user, struct err *e)
{
	const char *basic = exchange_header(x, "Authorization");
	struct buf plain = {0};
	char text[80] = "";

	if (!name && basic && strncasecmp(basic, "Basic ", 6) == 0 &&
	    connect_bytes(basic + 6, strlen(basic + 6), &plain) == 0) {
		str_sanitise(text, sizeof(text), plain.len ? buf_head(&plain) : "", plain.len);
		text[strcspn(text, ":")] = '\0';
		name = text;
	}
	buf_done(&plain);
	if (!name || !*name || str_equal(name, "user"))
		*ret_user = "user";
	else if (str_equal(name, "root"))
		*ret_user = "root";
	else
		return err_set(e, ERR_DENIED, "invalid username: '%.60s'", name);
	return 0;
}

/* Called once the sandbox is known and the token is right. */
static void read_message(struct e2b_request *q, struct sandbox *s)
{
	const char *version = exchange_header(q->x, "Connect-Protocol-Version");
	struct buf body = {.data = (char *)q->x->body, .len = q->x->body_len};
	enum e2b_shape shape = q->method->shape;
	struct err e = {0};

	if (version && !str_equal(version, "1")) {
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT,
			     "connect-protocol-version must be \"1\": got \"%.20s\"", version);
		return;
	}
	if (shape == E2B_STREAM)
		q->in = connect_only(&body, E2B_MESSAGE, &e);
	else if (shape == E2B_UNARY && body.len > E2B_MESSAGE)
		err_set(&e, ERR_LIMIT, "the message is larger than %u bytes", E2B_MESSAGE);
	else if (shape == E2B_UNARY)
		q->in = connect_message(body.len ? body.data : "", body.len, &e);
	if (e.kind != ERR_NONE)
		rpc_answer(q, connect_code_of(&e), e.msg);
	else if (e2b_user(q->x, NULL, &q->user, &e) < 0)
		rpc_answer(q, CONNECT_UNAUTHENTICATED, e.msg);
	else if (!q->method->path || (q->path = e2b_path_of(q, q->method->path)))
		q->method->call(q, s);
}

const char *e2b_text(const json_t *in, const char *key, bool *bad)
{
	const json_t *value = json_object_get(in, key);

	if (!value || json_is_null(value))
		return NULL;
	if (!json_is_string(value))
		*bad = true;
	return json_string_value(value);
}

int e2b_strings(json_t *all, const char *label, size_t most, struct list *env, struct err *e)
{
	const char *name;
	json_t *value;

	if (all && !json_is_null(all) && !json_is_object(all))
		return err_field(e, ERR_INVALID, label, "%s: not an object of strings", label);
	if (json_object_size(all) > most)
		return err_field(e, ERR_INVALID, label, "%s: more than %zu members", label, most);
	json_object_foreach (all, name, value) {
		if (!json_is_string(value))
			return err_field(e, ERR_INVALID, label, "%s: '%.60s' is not a string",
					 label, name);
		if (env && (!*name || strchr(name, '=')))
			return err_field(e, ERR_INVALID, label,
					 "%s: '%.60s' cannot be a variable's name", label, name);
		if (env)
			list_take(env, str_format("%s=%s", name, json_string_value(value)));
	}
	return 0;
}

/* As Go's filepath.Clean: "." and doubled slashes go, ".." takes the part before it. */
static char *clean_path(char *path)
{
	char *to = path;

	for (const char *p = path; *p;) {
		size_t len;

		p += strspn(p, "/");
		len = strcspn(p, "/");
		if (len == 2 && p[0] == '.' && p[1] == '.') {
			while (to > path && *--to != '/')
				;
		} else if (len && !(len == 1 && p[0] == '.')) {
			*to++ = '/';
			memmove(to, p, len);
			to += len;
		}
		p += len;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
	return path;
}

char *e2b_path(const char *path, const char *user, struct err *e)
{
	const char *home = str_equal(user, "root") ? "/root" : "/home/user";

	if (!path || !*path)
		return str_copy("/home/user");
	if (strlen(path) >= 4000) {
		err_set(e, ERR_INVALID, "the path is longer than 4000 bytes");
		return NULL;
	}
	if (path[0] == '/')
		return clean_path(str_copy(path));
	if (path[0] == '~' && (path[1] == '/' || path[1] == '\0'))
		return clean_path(str_format("%s%s", home, path + 1));
	if (path[0] == '~') {
		err_set(e, ERR_INVALID, "cannot expand user-specific home dir in '%.80s'", path);
		return NULL;
	}
	return clean_path(str_format("%s/%s", home, path));
}

char *e2b_path_of(struct e2b_request *q, const char *key)
{
	struct err e = {0};
	bool bad = false;
	const char *text = e2b_text(q->in, key, &bad);
	char *path = bad ? NULL : e2b_path(text, q->user, &e);

	if (!path)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", bad ? "path: not a string" : e.msg);
	return path;
}

void e2b_sign(const char *path, const char *operation, const char *user, const char *token,
	      const char *expiry, char ret[64])
{
	auto_free char *raw = str_format("%s:%s:%s:%s%s%s", path, operation, user, token,
					 expiry ? ":" : "", expiry ? expiry : "");
	unsigned char hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, (const unsigned char *)raw, strlen(raw));
	memcpy(ret, "v1_", 3);
	sodium_bin2base64(ret + 3, 61, hash, sizeof(hash),
			  sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
	sodium_memzero(raw, strlen(raw));
}

/*
 * Fetches manifests and blobs from one repository of one registry. What comes is hashed and written to files
 * that the caller opened; this process can open none to write to.
 *
 * A transfer that breaks off goes on where it was, if the registry can (206); whoever answers 200 starts again.
 * libcurl drops the Authorization header when a redirect leads to another host or port.
 */
#include "image/worker/worker.h"

#include "base/base64.h"
#include "base/fd_message.h"
#include "image/fetch.h"
#include "image/worker/internal.h"

#include <curl/curl.h>
#include <sodium.h>
#include <sys/socket.h>

#define TRIES 5
#define SILENCE_SECONDS 30L
#define PROGRESS_NS 100000000

static const char *const readable[] = {"/etc/resolv.conf",
				       "/etc/hosts",
				       "/etc/nsswitch.conf",
				       "/etc/host.conf",
				       "/etc/gai.conf",
				       "/etc/services",
				       "/etc/ssl",
				       "/etc/pki/tls",
				       "/etc/ca-certificates",
				       "/usr/share/ca-certificates",
				       "/usr/lib/ssl",
				       "/dev/urandom",
				       NULL};

struct transfer {
	struct fetcher *f;
	struct fetch_ask ask;
	bool active;
	int file;
	CURL *easy;
	struct curl_slist *headers;
	crypto_hash_sha256_state hash;
	uint64_t got;
	unsigned tries;
	bool asked_token, too_long, write_failed;
	int64_t again_ns; /* 0, or when to try again */
	int64_t told_ns;
	char challenge[1024];
};

struct fetcher {
	struct fetch_site site;
	CURLM *multi;
	char *authorization; /* header, or NULL */
	struct transfer transfers[FETCH_SLOTS];
};

static const char accept_manifests[] = "Accept: application/vnd.oci.image.index.v1+json, "
				       "application/vnd.docker.distribution.manifest.list.v2+json, "
				       "application/vnd.oci.image.manifest.v1+json, "
				       "application/vnd.docker.distribution.manifest.v2+json";

/* ---- answers ---- */

static void tell(struct transfer *t, enum fetch_kind kind, const struct err *e)
{
	struct fetch_answer a = {.slot = t->ask.slot, .kind = kind, .bytes = t->got};

	if (e)
		a.err = *e;
	/* Whoever asked is gone: there is nobody to work for. */
	if (send(0, &a, sizeof(a), MSG_NOSIGNAL) < 0)
		_exit(1);
}

static void stop(struct transfer *t)
{
	if (t->easy) {
		curl_multi_remove_handle(t->f->multi, t->easy);
		curl_easy_cleanup(t->easy);
	}
	curl_slist_free_all(t->headers);
	t->easy = NULL;
	t->headers = NULL;
}

static void end(struct transfer *t, const struct err *e)
{
	tell(t, e ? FETCH_FAILED : FETCH_DONE, e);
	stop(t);
	close_fd(&t->file);
	t->active = false;
}

/* ---- one request ---- */

static void restart(struct transfer *t)
{
	t->got = 0;
	crypto_hash_sha256_init(&t->hash);
	t->write_failed = lseek(t->file, 0, SEEK_SET) < 0;
}

static size_t take_body(char *bytes, size_t one, size_t len, void *arg)
{
	struct transfer *t = arg;
	long status = 0;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200 && status != 206)
		return len;
	t->too_long = len > t->ask.max - t->got;
	if (t->too_long || t->write_failed)
		return 0;
	if (io_write_all(t->file, bytes, len) < 0) {
		t->write_failed = true;
		return 0;
	}
	crypto_hash_sha256_update(&t->hash, (unsigned char *)bytes, len);
	t->got += len;
	if (now_ns() - t->told_ns > PROGRESS_NS) {
		t->told_ns = now_ns();
		tell(t, FETCH_PROGRESS, NULL);
	}
	return len;
}

static size_t take_header(char *bytes, size_t one, size_t len, void *arg)
{
	static const char challenge[] = "www-authenticate:";
	struct transfer *t = arg;
	long status = 0;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (len > sizeof(challenge) && strncasecmp(bytes, challenge, sizeof(challenge) - 1) == 0)
		snprintf(t->challenge, sizeof(t->challenge), "%.*s",
			 (int)(len - sizeof(challenge) + 1), bytes + sizeof(challenge) - 1);
	/* The end of the headers of an answer to a part: it is the whole, from the start. */
	if (status == 200 && t->got && len <= 2)
		restart(t);
	return len;
}

static void set_bounds(const struct fetcher *f, CURL *easy)
{
	const char *protocols = f->site.is_plain ? "http,https" : "https";

	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, protocols);
	curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "cloche");
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 15L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, SILENCE_SECONDS);
}

static void begin(struct transfer *t)
{
	const struct fetch_site *s = &t->f->site;
	char range[32];
	auto_free char *url = str_format("%s/v2/%s/%s%s%s", s->base, s->repository, t->ask.path,
					 s->ns[0] ? "?ns=" : "", s->ns);

	t->easy = must_alloc(curl_easy_init());
	set_bounds(t->f, t->easy);
	curl_easy_setopt(t->easy, CURLOPT_URL, url);
	curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
	curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(t->easy, CURLOPT_MAXREDIRS, 5L);
	curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
	if (t->ask.is_manifest)
		t->headers = must_alloc(curl_slist_append(t->headers, accept_manifests));
	if (t->f->authorization)
		t->headers = must_alloc(curl_slist_append(t->headers, t->f->authorization));
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
	if (t->got) {
		snprintf(range, sizeof(range), "%llu-", (unsigned long long)t->got);
		curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
	}
	t->again_ns = 0;
	t->challenge[0] = '\0';
	curl_multi_add_handle(t->f->multi, t->easy);
}

/* ---- authentication ---- */

/* The value of NAME="VALUE" in a challenge. */
static bool challenge_value(const char *challenge, const char *name, char *ret, size_t size)
{
	auto_free char *key = str_format("%s=\"", name);
	const char *at = strcasestr(challenge, key), *quote;

	if (!at)
		return false;
	at += strlen(key);
	quote = strchr(at, '"');
	return quote && snprintf(ret, size, "%.*s", (int)(quote - at), at) < (int)size;
}

static size_t take_token(char *bytes, size_t one, size_t len, void *arg)
{
	struct buf *answer = arg;

	if (answer->len + len > 64u << 10)
		return 0;
	buf_add(answer, bytes, len);
	return len;
}

static char *token_query(CURL *easy, const struct fetcher *f, const char *challenge)
{
	char service[256] = "", scope[512];
	auto_free char *usual = str_format("repository:%s:pull", f->site.repository);

	challenge_value(challenge, "service", service, sizeof(service));
	if (!challenge_value(challenge, "scope", scope, sizeof(scope)))
		snprintf(scope, sizeof(scope), "%s", usual);
	char *a = curl_easy_escape(easy, service, 0), *b = curl_easy_escape(easy, scope, 0);
	char *query = str_format("service=%s&scope=%s", a ? a : "", b ? b : "");

	curl_free(a);
	curl_free(b);
	return query;
}

static int get_token(struct fetcher *f, const char *challenge, struct err *e)
{
	auto_buf struct buf answer = {0};
	auto_free char *url = NULL, *query = NULL, *form = NULL, *token = NULL;
	CURL *easy = must_alloc(curl_easy_init());
	char realm[512];
	long status = 0;
	CURLcode rc;

	if (!challenge_value(challenge, "realm", realm, sizeof(realm))) {
		curl_easy_cleanup(easy);
		return err_set(e, ERR_UNSUPPORTED, "the registry asks for a login of unknown kind");
	}
	query = token_query(easy, f, challenge);
	url = str_format("%s%c%s", realm, strchr(realm, '?') ? '&' : '?', query);
	set_bounds(f, easy);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT, 60L);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_token);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
	if (f->site.is_identity) {
		char *secret = curl_easy_escape(easy, f->site.secret, 0);

		form = str_format("%s&grant_type=refresh_token&client_id=cloche&refresh_token=%s",
				  query, secret ? secret : "");
		curl_free(secret);
		curl_easy_setopt(easy, CURLOPT_URL, realm);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, form);
	} else {
		curl_easy_setopt(easy, CURLOPT_URL, url);
		if (f->site.user[0]) {
			curl_easy_setopt(easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
			curl_easy_setopt(easy, CURLOPT_USERNAME, f->site.user);
			curl_easy_setopt(easy, CURLOPT_PASSWORD, f->site.secret);
		}
	}
	rc = curl_easy_perform(easy);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(easy);
	if (rc != CURLE_OK)
		return err_set(e, ERR_SYSTEM, "cannot get a token of the registry: %s",
			       curl_easy_strerror(rc));
	token = status == 200 ? worker_token(&answer) : NULL;
	if (!token)
		return err_set(e, ERR_DENIED, "the registry gives no token (status %ld)%s", status,
			       f->site.user[0] ? "" : "; log in by `docker login`");
	free(f->authorization);
	f->authorization = str_format("Authorization: Bearer %s", token);
	return 0;
}

static int authenticate(struct fetcher *f, const char *challenge, struct err *e)
{
	auto_free char *pair = NULL, *coded = NULL;
	size_t len;

	challenge += strspn(challenge, " ");
	if (strncasecmp(challenge, "bearer ", 7) == 0)
		return get_token(f, challenge, e);
	if (strncasecmp(challenge, "basic", 5) != 0 || !f->site.user[0])
		return err_set(e, ERR_DENIED,
			       "the registry asks for a login; `docker login` stores one");
	pair = str_format("%s:%s", f->site.user, f->site.secret);
	len = strlen(pair);
	coded = must_alloc(calloc(1, BASE64_ROOM(len) + 1));
	base64_encode(coded, pair, len);
	free(f->authorization);
	f->authorization = str_format("Authorization: Basic %s", coded);
	return 0;
}

/* ---- the end of a request ---- */

static int check_digest(struct transfer *t, struct err *e)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	char text[IMAGE_DIGEST] = "sha256:";

	crypto_hash_sha256_final(&t->hash, hash);
	sodium_bin2hex(text + 7, sizeof(text) - 7, hash, sizeof(hash));
	if (!t->ask.digest[0] || str_equal(t->ask.digest, text))
		return 0;
	return err_set(e, ERR_INVALID, "the registry sent something else than %s", t->ask.digest);
}

static bool is_temporary(CURLcode code, long status)
{
	/* Where nobody is, nobody will be soon. */
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		return false;
	return code != CURLE_OK || status == 429 || status >= 500;
}

static int explain(const struct transfer *t, CURLcode code, long status, struct err *e)
{
	const struct fetch_site *s = &t->f->site;

	if (t->too_long)
		return err_set(e, ERR_LIMIT,
			       "the registry sends more than it said, or than is allowed");
	if (t->write_failed)
		return err_set(e, ERR_SYSTEM, "cannot write what the registry sends");
	if (code != CURLE_OK)
		return err_set(e, ERR_SYSTEM, "%s: %s", s->base, curl_easy_strerror(code));
	if (status == 401 || status == 403)
		return err_set(e, ERR_DENIED, "%s refuses %s (status %ld)%s", s->base,
			       s->repository, status,
			       s->user[0] ? "" : "; `docker login` stores a login");
	if (status == 404)
		return err_set(e, ERR_NOT_FOUND, "%s has no %s %s", s->base, s->repository,
			       t->ask.path);
	return err_set(e, ERR_SYSTEM, "%s answers with status %ld", s->base, status);
}

/* A login is for the registry, so only its own challenge is answered, not that of whom it redirected to. */
static bool is_of_registry(const struct transfer *t)
{
	const char *base = t->f->site.base, *url = NULL;

	curl_easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, &url);
	return url && str_starts(url, base) && url[strlen(base)] == '/';
}

static void finish(struct transfer *t, CURLcode code)
{
	struct err e = {0};
	long status = 0;
	int rc;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK && (status == 200 || status == 206)) {
		rc = check_digest(t, &e);
		end(t, rc < 0 ? &e : NULL);
		return;
	}
	if (code == CURLE_OK && status == 401 && !t->asked_token && is_of_registry(t)) {
		t->asked_token = true;
		if (authenticate(t->f, t->challenge, &e) < 0) {
			end(t, &e);
			return;
		}
		stop(t);
		begin(t);
		return;
	}
	if (!t->too_long && !t->write_failed && is_temporary(code, status) && ++t->tries < TRIES) {
		stop(t);
		t->again_ns = now_ns() + (200000000ll << t->tries);
		return;
	}
	explain(t, code, status, &e);
	end(t, &e);
}

/* ---- the loop ---- */

static void take_ask(struct fetcher *f)
{
	struct fetch_ask ask;
	struct transfer *t;
	int file;

	if (fd_message_receive(0, &ask, sizeof(ask), &file, 1, 0) != (ssize_t)sizeof(ask) ||
	    ask.slot >= FETCH_SLOTS || f->transfers[ask.slot].active || file < 0 ||
	    !str_has_end(ask.path, sizeof(ask.path)) ||
	    !str_has_end(ask.digest, sizeof(ask.digest)))
		_exit(0);
	t = &f->transfers[ask.slot];
	*t = (struct transfer){.f = f, .ask = ask, .active = true, .file = file};
	restart(t);
	begin(t);
}

static int next_try_ms(const struct fetcher *f)
{
	int64_t next = 60000000000ll, now = now_ns();

	for (size_t i = 0; i < FETCH_SLOTS; i++)
		if (f->transfers[i].again_ns && f->transfers[i].again_ns - now < next)
			next = f->transfers[i].again_ns - now;
	return next < 0 ? 0 : (int)(next / 1000000) + 1;
}

static void run(struct fetcher *f)
{
	int running, left;

	for (;;) {
		struct curl_waitfd caller = {.fd = 0, .events = CURL_WAIT_POLLIN};
		CURLMsg *m;

		curl_multi_perform(f->multi, &running);
		while ((m = curl_multi_info_read(f->multi, &left))) {
			struct transfer *t = NULL;
			CURLcode code = m->data.result;

			if (m->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
			finish(t, code);
		}
		for (size_t i = 0; i < FETCH_SLOTS; i++)
			if (f->transfers[i].again_ns && f->transfers[i].again_ns <= now_ns())
				begin(&f->transfers[i]);
		curl_multi_poll(f->multi, &caller, 1, next_try_ms(f), NULL);
		if (caller.revents)
			take_ask(f);
	}
}

int worker_fetch(void)
{
	static struct fetcher f;
	struct err e = {0};

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || sodium_init() < 0 ||
	    worker_shut_in(&seccomp_profile_remote, readable, &e) < 0) {
		fprintf(stderr, "%s\n", e.msg);
		return 125;
	}
	if (recv(0, &f.site, sizeof(f.site), 0) != (ssize_t)sizeof(f.site) ||
	    !str_has_end(f.site.base, sizeof(f.site.base)))
		return 125;
	f.multi = must_alloc(curl_multi_init());
	run(&f);
	return 0;
}

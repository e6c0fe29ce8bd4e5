/* Sends HTTP requests with libcurl, driven by the event loop. */
#include "provider/e2b/remote/remote_internal.h"

#include <curl/curl.h>

#define CONNECT_MS 15000L
#define REQUEST_MS 60000L
#define SILENCE_SECONDS 150L /* a stream sends a keepalive every 50 */

struct http {
	struct loop *loop;
	CURLM *multi;
	struct loop_timer timer;
};

/* One socket of libcurl's. */
struct wire {
	struct http *http;
	struct loop_watch watch;
};

struct http_call {
	struct http *http;
	CURL *easy;
	struct curl_slist *headers;
	curl_mime *form;
	const char *what;
	http_data on_data;
	http_done done;
	void *arg;
	struct buf answer;
	int file;
	size_t file_size, file_at;
	bool too_long;
	char why[CURL_ERROR_SIZE];
};

/* ---- libcurl in the event loop ---- */

static void check_done(struct http *h);

static void drive_curl(struct http *h, curl_socket_t fd, int what)
{
	int running;

	curl_multi_socket_action(h->multi, fd, what, &running);
	check_done(h);
}

static void on_wire(void *arg, uint32_t events)
{
	struct wire *w = arg;
	int what = (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP) ? CURL_CSELECT_IN : 0) |
		   (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
		   (events & EPOLLERR ? CURL_CSELECT_ERR : 0);

	drive_curl(w->http, w->watch.fd, what);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
	struct http *h = arg;
	struct wire *w = of_socket;

	if (what == CURL_POLL_REMOVE) {
		if (w) {
			loop_unwatch(h->loop, &w->watch);
			free(w);
			curl_multi_assign(h->multi, fd, NULL);
		}
		return 0;
	}
	if (!w) {
		w = must_alloc(calloc(1, sizeof(*w)));
		w->http = h;
		w->watch = (struct loop_watch){.fd = fd, .call = on_wire, .arg = w};
		curl_multi_assign(h->multi, fd, w);
	}
	w->watch.events =
		(what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
	loop_unwatch(h->loop, &w->watch);
	if (w->watch.events)
		loop_watch(h->loop, &w->watch);
	return 0;
}

static void on_timer(void *arg)
{
	drive_curl(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int set_timer(CURLM *multi, long ms, void *arg)
{
	struct http *h = arg;

	if (ms < 0)
		loop_timer_stop(h->loop, &h->timer);
	else
		loop_timer_set(h->loop, &h->timer, (uint64_t)ms);
	return 0;
}

struct http *http_new(struct loop *l, struct err *e)
{
	struct http *h = must_alloc(calloc(1, sizeof(*h)));

	h->loop = l;
	h->timer = (struct loop_timer){.call = on_timer, .arg = h};
	h->multi = curl_multi_init();
	if (!h->multi) {
		free(h);
		err_set(e, ERR_SYSTEM, "cannot start libcurl");
		return NULL;
	}
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, 256L);
	return h;
}

/* ---- one request ---- */

static size_t take_answer(char *bytes, size_t one, size_t len, void *arg)
{
	struct http_call *c = arg;
	long status = 0;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	if (c->on_data && status == 200)
		return c->on_data(c->arg, bytes, len) ? len : CURL_WRITEFUNC_PAUSE;
	if (c->answer.len + len > SERVICE_ANSWER) {
		c->too_long = true;
		return 0;
	}
	buf_add(&c->answer, bytes, len);
	return len;
}

static size_t give_file(char *to, size_t one, size_t room, void *arg)
{
	struct http_call *c = arg;
	ssize_t n = pread(c->file, to, one * room, (off_t)c->file_at);

	if (n < 0)
		return CURL_READFUNC_ABORT;
	c->file_at += (size_t)n;
	return (size_t)n;
}

static int seek_file(void *arg, curl_off_t to, int origin)
{
	struct http_call *c = arg;

	if (origin != SEEK_SET || to < 0)
		return CURL_SEEKFUNC_CANTSEEK;
	c->file_at = (size_t)to;
	return CURL_SEEKFUNC_OK;
}

static void set_form(struct http_call *c, const struct http_ask *ask)
{
	curl_mimepart *part;

	c->file = ask->file;
	c->file_size = ask->file_size;
	c->form = curl_mime_init(c->easy);
	part = curl_mime_addpart(c->form);
	curl_mime_name(part, "file");
	curl_mime_filename(part, ask->file_name);
	curl_mime_type(part, "application/octet-stream");
	curl_mime_data_cb(part, (curl_off_t)c->file_size, give_file, seek_file, NULL, c);
	curl_easy_setopt(c->easy, CURLOPT_MIMEPOST, c->form);
}

static void set_body(struct http_call *c, const struct http_ask *ask)
{
	if (ask->file_name) {
		set_form(c, ask);
		return;
	}
	if (!str_equal(ask->method, "GET"))
		curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, ask->method);
	if (!ask->body)
		return;
	curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->len);
	curl_easy_setopt(c->easy, CURLOPT_COPYPOSTFIELDS, ask->body);
}

static void set_bounds(struct http_call *c)
{
	curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c->easy, CURLOPT_USERAGENT, "cloche");
	curl_easy_setopt(c->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	if (c->on_data) {
		curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
		curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_TIME, SILENCE_SECONDS);
	} else {
		curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, REQUEST_MS);
	}
}

struct http_call *http_start(struct http *h, const struct http_ask *ask, http_done done, void *arg)
{
	struct http_call *c = must_alloc(calloc(1, sizeof(*c)));

	*c = (struct http_call){.http = h,
				.what = ask->what,
				.on_data = ask->on_data,
				.done = done,
				.arg = arg,
				.file = -1};
	c->easy = must_alloc(curl_easy_init());
	curl_easy_setopt(c->easy, CURLOPT_URL, ask->url);
	curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
	curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->why);
	curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
	set_bounds(c);
	set_body(c, ask);
	for (size_t i = 0; ask->headers && i < ask->headers->count; i++)
		c->headers = must_alloc(curl_slist_append(c->headers, ask->headers->items[i]));
	/* No round trip to ask whether the body is wanted. */
	c->headers = must_alloc(curl_slist_append(c->headers, "Expect:"));
	curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
	curl_multi_add_handle(h->multi, c->easy);
	return c;
}

void http_stop(struct http_call *c)
{
	if (!c)
		return;
	curl_multi_remove_handle(c->http->multi, c->easy);
	curl_easy_cleanup(c->easy);
	curl_mime_free(c->form);
	curl_slist_free_all(c->headers);
	buf_done(&c->answer);
	free(c);
}

void http_go_on(struct http_call *c)
{
	curl_easy_pause(c->easy, CURLPAUSE_CONT);
}

/* ---- the end of a request ---- */

static void explain_failure(const struct http_call *c, CURLcode code, struct err *e)
{
	char said[CURL_ERROR_SIZE];
	const char *why = *c->why ? c->why : curl_easy_strerror(code);

	str_sanitise(said, sizeof(said), why, strlen(why));
	if (c->too_long)
		err_set(e, ERR_SYSTEM, "cannot %s: the E2B service's answer does not end", c->what);
	else
		err_set(e, ERR_SYSTEM, "cannot %s: the E2B service does not answer: %s", c->what,
			said);
}

static void finish_call(struct http_call *c, CURLcode code)
{
	struct err e = {0};
	long status = 0;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	/* A stream that broke off after it began has failed, too. */
	if (code != CURLE_OK) {
		explain_failure(c, code, &e);
		status = 0;
	} else if (status == 0) {
		err_set(&e, ERR_SYSTEM, "cannot %s: the E2B service says nothing", c->what);
	}
	c->done(c->arg, status, &c->answer, &e);
	http_stop(c);
}

/* A callback may stop other calls, so libcurl is asked for one ended call at a time. */
static void check_done(struct http *h)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left))) {
		struct http_call *c = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
		finish_call(c, code);
	}
}

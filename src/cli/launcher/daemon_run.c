/*
 * `cloche run --empty`, `cloche code --empty` and snippets that stand alone (model/standalone.h) with a
 * daemon of this user: a run that needs nothing of the caller's can use a sandbox that the daemon has
 * ready. The request has exactly the command and limits that would be used here, and "warm": "only", so
 * the daemon answers with the result or refuses before anything has run. In doubt the run happens here:
 * options that the daemon does not have, streams that somebody watches, unexpected answers, a signal.
 * Running again is harmless, since the first run had no effect outside its sandbox.
 *
 * Without --empty nobody has said that output may come at the end: what takes longer than BRIEF_MS runs
 * again here.
 */
#include "cli/cli.h"

#include "base/base64.h"
#include "base/jsonr.h"
#include "base/jsonw.h"
#include "model/result.h"
#include "model/standalone.h"
#include "sandbox/sandbox.h"
#include "wire/http1.h"

#include <dirent.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#define CODE_MAX (256u << 10) /* as api/rest/run_task.c */
#define ANSWER_MAX (48u << 20)
#define OUTPUT_MAX (8u << 20) /* of each stream; a run that prints more is repeated here */
#define GRACE_MS 10000	      /* added to the run's timeout, for the daemon to answer */
#define BRIEF_MS 100
#define ENTRIES_MAX 4096 /* of the current directory */

/* ---- may it be? ---- */

/* A record says how the run was made, so only those who said --empty get one of a prepared sandbox. */
static bool options_suit(const struct sandbox_spec *s)
{
	static const char *const known[] = {"empty", "json",	 "timeout",    "output_limit",
					    "env",   "memory",	 "cpus",       "pids",
					    "disk",  "cpu_time", "open_files", "file_size"};
	uint64_t others = s->set_mask;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		others &= ~(1ULL << (spec_field_find(known[i]) - spec_fields));
	return !others && s->limits.timeout_ms > 0 && (s->empty || !s->json);
}

/* Nothing in the current directory would be imported in place of Python's own modules. */
static bool has_no_shadows(void)
{
	DIR *dir = opendir(".");
	const struct dirent *d;
	size_t count = 0;
	bool ok = dir;

	while (ok && (d = readdir(dir)))
		ok = ++count <= ENTRIES_MAX && !standalone_is_shadow(d->d_name);
	if (dir)
		closedir(dir);
	return ok;
}

/* Does the command need nothing of the current directory? */
static bool stands_alone(const struct sandbox_request *r)
{
	return r->spec->empty ||
	       (r->file_count == 1 && standalone_code(r->files[0].data, r->files[0].size) &&
		has_no_shadows() && plan_can_show_here(r->spec));
}

/* Is stdin empty now, and will it stay so? */
static bool is_empty_input(void)
{
	struct pollfd p = {.fd = 0, .events = POLLIN};
	struct stat st;

	if (fstat(0, &st) < 0)
		return errno == EBADF;
	if (S_ISCHR(st.st_mode))
		return st.st_rdev == makedev(1, 3);
	if (S_ISREG(st.st_mode))
		return lseek(0, 0, SEEK_CUR) >= st.st_size;
	return S_ISFIFO(st.st_mode) && poll(&p, 1, 0) == 1 && p.revents == POLLHUP;
}

/*
 * The output arrives at the end: nobody may watch it, and the order of stdout and stderr must not
 * matter.
 */
static bool streams_suit(const struct sandbox_spec *s)
{
	struct stat out, err;

	if (!is_empty_input() || isatty(1) || isatty(2))
		return false;
	if (fstat(1, &out) < 0 || fstat(2, &err) < 0)
		return false;
	return s->json || out.st_dev != err.st_dev || out.st_ino != err.st_ino ||
	       out.st_rdev == makedev(1, 3);
}

static bool is_utf8(const char *text, size_t len)
{
	for (size_t at = 0, n; at < len; at += n) {
		n = utf8_sequence(text + at, len - at);
		if (n == 0 || text[at] == '\0')
			return false;
	}
	return true;
}

/* ---- where it is ---- */

static bool find_socket(char *ret, size_t size)
{
	const char *url = getenv("CLOCHE_URL"), *runtime = getenv("CLOCHE_RUNTIME_DIR");
	const char *base = getenv("XDG_RUNTIME_DIR");
	int n;

	if (url && *url)
		n = str_starts(url, "unix:") ? snprintf(ret, size, "%s", url + 5) : -1;
	else if (runtime && *runtime)
		n = snprintf(ret, size, "%s/cloche.sock", runtime);
	else if (geteuid() == 0)
		n = snprintf(ret, size, "/run/cloche/cloche.sock");
	else
		n = base && *base ? snprintf(ret, size, "%s/cloche/cloche.sock", base) : -1;
	return n > 0 && (size_t)n < size;
}

/* Connects only to a daemon of this user, because the daemon sees the code. */
static int connect_own(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;
	int fd;

	if (!find_socket(a.sun_path, sizeof(a.sun_path)))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid())
		return fd;
	close(fd);
	return -1;
}

/* ---- the question ---- */

static void put_limits(struct jsonw *j, const struct sandbox_spec *s)
{
	const struct limits *l = &s->limits;
	const struct {
		const char *name, *unit;
		uint64_t value;
	} rows[] = {
		{"memory", "", l->memory_bytes},
		{"pids", "", l->pids},
		{"disk", "", l->disk_bytes},
		{"timeout", "ms", l->timeout_ms},
		{"cpu_time", "ms", l->cpu_time_ms},
		{"open_files", "", l->open_files},
		{"file_size", "", l->file_size_bytes},
		{"output_limit", "", s->json ? l->output_bytes : OUTPUT_MAX},
	};
	char text[40];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		snprintf(text, sizeof(text), "%" PRIu64 "%s", rows[i].value, rows[i].unit);
		if (rows[i].value)
			jsonw_string(j, rows[i].name, text);
	}
	snprintf(text, sizeof(text), "%" PRIu64 ".%03u", l->cpus_milli / 1000,
		 (unsigned)(l->cpus_milli % 1000));
	jsonw_string(j, "cpus", text);
}

/* Pairs are K=V, or K for the caller's value. */
static bool put_run_env(struct jsonw *j, const struct list *env)
{
	jsonw_open(j, "env", '{');
	for (size_t i = 0; i < env->count; i++) {
		const char *pair = env->items[i], *equals = strchr(pair, '=');
		auto_free char *name =
			equals ? str_format("%.*s", (int)(equals - pair), pair) : str_copy(pair);
		const char *value = equals ? equals + 1 : getenv(name);

		if (!value || !is_utf8(pair, strlen(pair)) || !is_utf8(value, strlen(value)))
			return false;
		jsonw_string(j, name, value);
	}
	jsonw_close(j, '}');
	return true;
}

static bool put_list(struct jsonw *j, const char *name, char **items, size_t count)
{
	jsonw_open(j, name, '[');
	for (size_t i = 0; i < count; i++) {
		if (!is_utf8(items[i], strlen(items[i])))
			return false;
		jsonw_string(j, NULL, items[i]);
	}
	jsonw_close(j, ']');
	return true;
}

/* Accepts only Python: the command line of a snippet is interpreter, file, arguments. */
static bool put_code(struct jsonw *j, const struct sandbox_request *r)
{
	const struct injected_file *f = &r->files[0];
	const struct list *argv = &r->spec->argv;
	const char *name = strrchr(f->path, '/') + 1;

	if (argv->count < 2 || !str_equal(argv->items[0], "python3") ||
	    !str_equal(argv->items[1], f->path) || f->size > CODE_MAX || name[0] == '.' ||
	    !is_utf8(name, strlen(name)) || !is_utf8(f->data, f->size))
		return false;
	jsonw_string(j, "name", name);
	jsonw_text_open(j, "code");
	jsonw_text(j, f->data, f->size);
	jsonw_text_close(j);
	return put_list(j, "args", argv->items + 2, argv->count - 2);
}

static bool put_body(const struct sandbox_request *r, FILE *to)
{
	const struct sandbox_spec *s = r->spec;
	struct jsonw j;
	bool ok;

	jsonw_begin(&j, to);
	jsonw_open(&j, NULL, '{');
	jsonw_string(&j, "warm", "only");
	jsonw_string(&j, "image", "host");
	jsonw_string(&j, "encoding", s->json ? "utf-8" : "base64");
	put_limits(&j, s);
	ok = put_run_env(&j, &s->env) &&
	     (r->file_count ? put_code(&j, r) : put_list(&j, "cmd", s->argv.items, s->argv.count));
	jsonw_close(&j, '}');
	return jsonw_finish(&j) == 0 && ok;
}

static bool send_all(int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		bytes += n;
		len -= (size_t)n;
	}
	return true;
}

static bool send_run_request(int fd, const struct sandbox_request *r)
{
	const char *token = getenv("CLOCHE_TOKEN");
	auto_free char *body = NULL, *head = NULL;
	size_t len = 0;
	FILE *to = must_alloc(open_memstream(&body, &len));
	bool ok = put_body(r, to);

	fclose(to);
	if (!ok || (token && strpbrk(token, "\r\n")))
		return false;
	head = str_format("POST /v1/run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			  "Content-Type: application/json\r\nContent-Length: %zu\r\n%s%s%s\r\n",
			  len, token ? "Authorization: Bearer " : "", token ? token : "",
			  token ? "\r\n" : "");
	return send_all(fd, head, strlen(head)) && send_all(fd, body, len);
}

/* ---- the answer ---- */

/* signals: of a signalfd; a signal ends the wait. */
static bool read_answer(int fd, int signals, uint64_t wait_ms, struct buf *ret)
{
	int64_t until = now_ns() + (int64_t)wait_ms * 1000000;
	struct http1_answer a = {0};
	char bytes[16384];
	int rc = 0;

	while (rc == 0 && ret->len < ANSWER_MAX) {
		int64_t left_ms = (until - now_ns()) / 1000000;
		struct pollfd p[] = {{.fd = fd, .events = POLLIN},
				     {.fd = signals, .events = POLLIN}};
		ssize_t n = 0;

		if (left_ms <= 0 || poll(p, 2, left_ms < 60000 ? (int)left_ms : 60000) < 0 ||
		    p[1].revents)
			break;
		if (p[0].revents)
			n = recv(fd, bytes, sizeof(bytes), 0);
		if (p[0].revents && n <= 0)
			rc = n == 0 ? http1_answer_end(&a) : -1;
		else if (n > 0)
			rc = http1_answer_feed(&a, bytes, (size_t)n, ret);
	}
	http1_answer_done(&a);
	return rc == 1 && a.head.status == 200 && ret->len < ANSWER_MAX;
}

static bool read_int(const struct buf *b, const char *name, int none, int *ret)
{
	struct jsonr v;
	int64_t n;

	if (!jsonr_member(buf_head(b), b->len, name, &v))
		return false;
	*ret = none;
	if (jsonr_is_null(&v))
		return true;
	if (!jsonr_int(&v, &n) || n < 0 || n > 255)
		return false;
	*ret = (int)n;
	return true;
}

static bool read_status(const struct buf *b, enum status *ret)
{
	struct jsonr v;
	auto_free char *text = NULL;

	if (!jsonr_member(buf_head(b), b->len, "status", &v) || !(text = jsonr_string(&v, NULL)))
		return false;
	return status_find(text, ret);
}

/* Decodes a stream of the record. False if it is not complete. */
static bool read_output(const struct buf *b, const char *name, const char *cut, struct buf *ret)
{
	struct jsonr v, flag;
	auto_free char *text = NULL;
	bool is_cut = true;
	size_t len;

	if (!jsonr_member(buf_head(b), b->len, name, &v) ||
	    !jsonr_member(buf_head(b), b->len, cut, &flag) || !jsonr_bool(&flag, &is_cut) ||
	    is_cut || !(text = jsonr_string(&v, &len)))
		return false;
	if (base64_decode(buf_reserve(ret, len / 4 * 3 + 1), text, len, &len) < 0)
		return false;
	buf_added(ret, len);
	return true;
}

static bool read_record(const struct buf *b, struct result *ret)
{
	struct jsonr v;

	return read_status(b, &ret->end.status) &&
	       read_int(b, "exit_code", -1, &ret->end.exit_code) &&
	       read_int(b, "signal", 0, &ret->end.signal) &&
	       jsonr_member(buf_head(b), b->len, "oom_killed", &v) &&
	       jsonr_bool(&v, &ret->end.oom_killed);
}

/* ---- what the caller sees ---- */

/* A program that could not be executed runs again here, where the launcher can explain why. */
static bool can_be_shown(const struct result *r)
{
	return r->end.exit_code != 126 && r->end.exit_code != 127 &&
	       r->end.status != STATUS_KILLED && r->end.status != STATUS_OUTPUT_LIMIT;
}

/*
 * Once a byte is written the run counts as done: a reader that has gone is no reason to run again.
 */
static int show_json(const struct buf *answer, const struct result *r)
{
	struct err e;

	if (io_write_all(1, buf_head(answer), answer->len) == 0 && write(1, "\n", 1) == 1)
		return outcome_exit_status(&r->end);
	err_sys(&e, "cannot write the record");
	return cli_fail(&e);
}

static bool show_result(const struct buf *answer, const struct sandbox_spec *s, int *ret_status)
{
	struct buf out = {0}, err = {0};
	struct result r = {0};
	bool ok = read_record(answer, &r);

	if (ok && s->json) {
		*ret_status = show_json(answer, &r);
		return true;
	}
	ok = ok && can_be_shown(&r) && read_output(answer, "stdout", "stdout_truncated", &out) &&
	     read_output(answer, "stderr", "stderr_truncated", &err);
	if (ok) {
		(void)!io_write_all(1, buf_head(&out), out.len);
		(void)!io_write_all(2, buf_head(&err), err.len);
		run_report(&r, s);
		*ret_status = outcome_exit_status(&r.end);
	}
	buf_done(&out);
	buf_done(&err);
	return ok;
}

/*
 * Signals that a run here would pass on. One that comes while the daemon works ends the attempt, and is sent
 * again when the run here can pass it on.
 */
static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};

static bool ask_daemon(struct sandbox_request *r, int signals, struct buf *ret)
{
	uint64_t wait_ms = r->spec->empty ? r->spec->limits.timeout_ms + GRACE_MS : BRIEF_MS;
	auto_close int fd = connect_own();
	struct signalfd_siginfo info;

	if (fd < 0 || !send_run_request(fd, r))
		return false;
	if (read_answer(fd, signals, wait_ms, ret))
		return true;
	if (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		r->early_signal = (int)info.ssi_signo;
	return false;
}

bool daemon_run(struct sandbox_request *r, int *ret_status)
{
	const char *off = getenv("CLOCHE_DAEMON");
	auto_close int signals = -1;
	struct buf answer = {0};
	sigset_t set, before;
	bool ok;

	if ((off && str_equal(off, "off")) || r->file_count > 1 || !options_suit(r->spec) ||
	    !streams_suit(r->spec) || !stands_alone(r))
		return false;
	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(passed_on); i++)
		sigaddset(&set, passed_on[i]);
	sigprocmask(SIG_BLOCK, &set, &before);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	ok = signals >= 0 && ask_daemon(r, signals, &answer);
	sigprocmask(SIG_SETMASK, &before, NULL);
	ok = ok && show_result(&answer, r->spec, ret_status);
	buf_done(&answer);
	return ok;
}

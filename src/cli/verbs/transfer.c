/* Streams to and from the daemon in constant memory, with progress on a terminal. */
#include "cli/verbs/transfer.h"

#include "cli/verbs/client_verb.h"
#include "wire/tar.h"

#define PIECE (256u << 10)

/* ---- progress ---- */

struct progress {
	bool on;
	int64_t total, done; /* total -1: not known */
	int64_t started_ns, shown_ns;
};

static void progress_start(struct progress *p, int64_t total)
{
	*p = (struct progress){.on = isatty(STDERR_FILENO), .total = total, .started_ns = now_ns()};
}

/* Shows nothing in the first half second, then updates ten times a second. */
static void progress_add(struct progress *p, size_t n)
{
	int64_t now = p->on ? now_ns() : 0;
	char done[16], total[16], rate[16], bar[31];
	double seconds = (double)(now - p->started_ns) / 1e9;
	int filled;

	p->done += (int64_t)n;
	if (!p->on || seconds < 0.5 || now - p->shown_ns < 100000000)
		return;
	p->shown_ns = now;
	format_bytes((uint64_t)p->done, done, sizeof(done));
	format_bytes((uint64_t)((double)p->done / seconds), rate, sizeof(rate));
	if (p->total <= 0) {
		fprintf(stderr, "\r%s, %s/s\033[K", done, rate);
		return;
	}
	filled = (int)(p->done >= p->total ? 30 : p->done * 30 / p->total);
	memset(bar, '.', 30);
	memset(bar, '#', (size_t)filled);
	bar[30] = '\0';
	fprintf(stderr, "\r[%s] %3d%% %s of %s, %s/s\033[K", bar, (int)(p->done * 100 / p->total),
		done, format_bytes((uint64_t)p->total, total, sizeof(total)), rate);
}

static void progress_stop(const struct progress *p)
{
	if (p->shown_ns)
		fprintf(stderr, "\r\033[K");
}

/* ---- from the daemon ---- */

/* The body of an answer, and where it goes. */
struct body {
	struct http_client *http;
	const struct client_transfer *transfer;
	struct progress progress;
	int to;		  /* file or directory */
	const char *what; /* its name for messages */
	struct err err;	  /* of a read, for transfer_get_tree */
};

typedef int body_taker(struct body *b, struct err *e);

static int write_body(struct body *b, struct err *e)
{
	auto_free char *bytes = must_alloc(malloc(PIECE));
	ssize_t n;

	while ((n = http_read(b->http, bytes, PIECE, e)) > 0) {
		const struct client_transfer *t = b->transfer;

		if (t->write ? t->write(t->arg, bytes, (size_t)n, e) < 0
			     : io_write_all(b->to, bytes, (size_t)n) < 0)
			return t->write ? -1 : err_sys(e, "cannot write %s", b->what);
		progress_add(&b->progress, (size_t)n);
	}
	return n < 0 ? -1 : 0;
}

/* Asks for the path and gives the body to `take`. */
static int get_body(struct client_transfer *t, struct body *b, body_taker *take, struct err *e)
{
	const struct http_request r = {
		.method = "GET", .path = t->path, .stream_len = HTTP_NO_BODY};
	struct http_response response;
	struct http_client *h = client_connect(t->client, e);
	int rc = -1;

	if (!h || http_send(h, &r, e) < 0 || http_receive(h, &response, e) < 0) {
		http_close(h);
		return -1;
	}
	if (response.status < 200 || response.status > 299) {
		client_error(h, &response, e);
	} else {
		b->http = h;
		b->transfer = t;
		progress_start(&b->progress, response.length);
		rc = take(b, e);
		progress_stop(&b->progress);
		t->bytes = b->progress.done;
	}
	http_close(h);
	return rc;
}

int transfer_get(struct client_transfer *t, int fd, const char *what, struct err *e)
{
	struct body b = {.to = fd, .what = what};

	if (t->is_binary && isatty(fd))
		return err_set(e, ERR_INVALID,
			       "%s is a terminal; name a file, or send it through a pipe", what);
	return get_body(t, &b, write_body, e);
}

static ssize_t read_body(void *arg, void *bytes, size_t len)
{
	struct body *b = arg;
	ssize_t n = http_read(b->http, bytes, len, &b->err);

	if (n < 0)
		errno = EIO;
	else
		progress_add(&b->progress, (size_t)n);
	return n;
}

static void say_skipped(const char *name, const char *why)
{
	char shown[200];

	str_sanitise(shown, sizeof(shown), name, strlen(name));
	fprintf(stderr, "cloche: skipped %s: %s\n", shown, why);
}

#define TRAILER_MAX (1u << 20) /* after the end of an archive; writers fill up the last record */

static int unpack_body(struct body *b, struct err *e)
{
	mode_t mask = umask(0);
	struct tar_extract x = {
		.root = b->to, .outside = true, .mask = mask, .skipped = say_skipped};
	struct tar_in tar = {.read = read_body, .arg = b};
	char rest[4096];
	size_t trailer = 0;
	ssize_t n = 0;
	int rc;

	umask(mask);
	rc = tar_extract(&x, &tar, e);
	while (rc == 0 && (n = read_body(b, rest, sizeof(rest))) > 0)
		if ((trailer += (size_t)n) > TRAILER_MAX)
			rc = err_set(e, ERR_INVALID, "the archive goes on after its end");
	if (rc == 0 && n < 0)
		rc = -1;
	/* Says more than "cannot read". */
	if (rc < 0 && b->err.kind != ERR_NONE)
		*e = b->err;
	return rc;
}

int transfer_get_tree(struct client_transfer *t, int dir, struct err *e)
{
	struct body b = {.to = dir};

	return get_body(t, &b, unpack_body, e);
}

static int open_special(const char *to, struct err *e)
{
	bool of_system = str_starts(to, "/dev/") || str_starts(to, "/proc/");
	int fd = open(to, O_WRONLY | O_NOCTTY | O_CLOEXEC | (of_system ? 0 : O_NOFOLLOW));

	if (fd < 0 && errno == ELOOP)
		return err_set(e, ERR_DENIED,
			       "%s is a link to a device, FIFO or directory; name that itself, or "
			       "remove the link",
			       to);
	return fd < 0 ? err_sys(e, "cannot write %s", to) : fd;
}

int transfer_get_file(struct client_transfer *t, const char *to, struct err *e)
{
	auto_free char *part = NULL;
	auto_close int fd = -1;
	struct stat st;

	/* A device or FIFO is written to directly: a rename would replace /dev/null by a file. */
	if (stat(to, &st) == 0 && !S_ISREG(st.st_mode)) {
		fd = open_special(to, e);
		return fd < 0 ? -1 : transfer_get(t, fd, to, e);
	}
	part = str_format("%s.part-%d", to, (int)getpid());
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_sys(e, "cannot write %s", part);
	if (transfer_get(t, fd, to, e) == 0) {
		/* Some file systems report a full disk only at close. */
		if (close(take_fd(&fd)) == 0 && rename(part, to) == 0)
			return 0;
		err_sys(e, "cannot write %s", to);
	}
	unlink(part);
	return -1;
}

/* ---- to the daemon ---- */

static ssize_t read_more(const struct client_transfer *t, int fd, char *bytes, struct err *e)
{
	ssize_t n;

	if (t->read)
		return t->read(t->arg, bytes, PIECE, e);
	do
		n = read(fd, bytes, PIECE);
	while (n < 0 && errno == EINTR);
	return n < 0 ? err_sys(e, "cannot read") : n;
}

static int send_from(const struct client_transfer *t, struct http_client *h, int fd,
		     struct progress *p, struct err *e)
{
	auto_free char *bytes = must_alloc(malloc(PIECE));
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = read_more(t, fd, bytes, e)) != 0) {
		if (n < 0)
			return -1;
		/* A file that grows meanwhile is cut to the announced length. */
		if (p->total >= 0 && n > p->total - p->done)
			n = (ssize_t)(p->total - p->done);
		if (n == 0)
			break;
		rc = http_write(h, bytes, (size_t)n, e);
		progress_add(p, (size_t)n);
	}
	if (rc == 0 && p->total >= 0 && p->done < p->total)
		return err_set(e, ERR_SYSTEM, "it became shorter while it was read");
	return rc < 0 ? -1 : 0;
}

/* HTTP_CHUNKED: not known. Files of /proc have size 0 but content. */
static int64_t bytes_left(int fd)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && at >= 0 && st.st_size > at
		       ? st.st_size - at
		       : HTTP_CHUNKED;
}

int transfer_put(struct client_transfer *t, int fd, struct err *e)
{
	const struct http_request r = {.method = "PUT",
				       .path = t->path,
				       .content_type = "application/octet-stream",
				       .stream_len = t->read ? HTTP_CHUNKED : bytes_left(fd)};
	struct http_client *h = client_connect(t->client, e);
	struct http_response response;
	struct progress p;
	int rc = -1;

	if (!h)
		return -1;
	progress_start(&p, r.stream_len < 0 ? -1 : r.stream_len);
	if (http_send(h, &r, e) == 0 && send_from(t, h, fd, &p, e) == 0 &&
	    http_write_end(h, e) == 0 && http_receive(h, &response, e) == 0)
		rc = response.status >= 200 && response.status <= 299
			     ? client_answer(h, &t->answer, e)
			     : client_error(h, &response, e);
	progress_stop(&p);
	t->bytes = p.done;
	http_close(h);
	return rc;
}

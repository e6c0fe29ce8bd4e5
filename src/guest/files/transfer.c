/* G_READ and G_WRITE: file contents of any size, in constant memory. */
#include "guest/files/files.h"
#include "guest/link/request.h"
#include "guest/link/worker.h"

/* ---- reading ---- */

struct file_reading {
	struct guest_stream *stream;
	int fd;
	bool copies; /* the file cannot be spliced */
	uint64_t offset, left;
};

static void reading_free(void *arg)
{
	struct file_reading *r = arg;

	close(r->fd);
	free(r);
}

/* Sends one frame of at most so many bytes. */
static ssize_t send_some(struct file_reading *r, size_t max)
{
	ssize_t n;

	/* Less than a full frame takes fewer calls to copy. */
	if (!r->copies && max == GUEST_MAX_PAYLOAD) {
		n = stream_splice(r->stream, G_DATA, r->fd, r->offset, max);
		if (n >= 0 || errno == EAGAIN || errno == EINTR)
			return n;
		r->copies = true;
	}
	n = pread(r->fd, stream_reserve(r->stream, max), max, (off_t)r->offset);
	if (n > 0)
		stream_commit(r->stream, G_DATA, (size_t)n);
	/* A file never becomes readable later. */
	if (n < 0 && errno == EAGAIN)
		errno = EIO;
	return n;
}

static void pump_reading(void *arg)
{
	struct file_reading *r = arg;
	size_t room;

	while ((room = stream_room(r->stream)) > 0) {
		size_t want = r->left < room ? (size_t)r->left : room;
		ssize_t n = want ? send_some(r, want) : 0;

		if (n < 0 && errno == EINTR)
			continue;
		/* Pages of this or another stream are still in the pipe. */
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0) {
			r->offset += (uint64_t)n;
			r->left -= (uint64_t)n;
			continue;
		}
		if (n < 0)
			stream_error(r->stream, errno, "cannot read: %m");
		else
			stream_end(r->stream, NULL, 0);
		reading_free(r);
		return;
	}
}

/* Opens a file that may be read; -1 with errno. */
static int open_reading(const char *path, struct stat *st)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, st) < 0)
		return -1;
	if (!S_ISREG(st->st_mode) || files_is_own(fd)) {
		errno = S_ISDIR(st->st_mode) ? EISDIR : S_ISREG(st->st_mode) ? EACCES : EINVAL;
		return -1;
	}
	return take_fd(&fd);
}

void read_request(struct guest_stream *s, const struct unpacked_request *q)
{
	static const struct stream_ops ops = {.pump = pump_reading, .on_end = reading_free};
	const char *path = q->text[0];
	uint64_t offset = q->number[0];
	struct file_reading *r;
	struct stat st;
	int fd = offset > INT64_MAX ? (errno = EINVAL, -1) : open_reading(path, &st);

	if (fd < 0) {
		stream_error(s, errno, "cannot read %s: %s", path,
			     errno == EINVAL ? "not a regular file" : strerror(errno));
		return;
	}
	r = must_alloc(calloc(1, sizeof(*r)));
	*r = (struct file_reading){.stream = s, .fd = fd, .offset = offset, .left = q->number[1]};
	stream_go_on(s, &ops, r);
	files_answer_stat(s, path, &st);
}

/* The same by a worker. */
void read_work(struct work *w, const struct unpacked_request *q)
{
	uint64_t offset = q->number[0], left = q->number[1];
	char bytes[32768];
	auto_buf struct buf b = {0};
	struct stat st;
	auto_close int fd = offset > INT64_MAX ? -1 : open_reading(q->text[0], &st);
	ssize_t n = 1;

	if (fd < 0)
		work_error(w, errno, "cannot read %s: %m", q->text[0]);
	files_pack(&b, q->text[0], &st, AT_FDCWD, q->text[0]);
	work_ok(w, &b);
	while (left > 0 && n != 0) {
		n = pread(fd, bytes, left < sizeof(bytes) ? (size_t)left : sizeof(bytes),
			  (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			work_error(w, errno, "cannot read: %m");
		work_data(w, bytes, (size_t)n);
		offset += (uint64_t)n;
		left -= (uint64_t)n;
	}
	work_end(w, NULL, 0);
}

/* ---- writing ---- */

#define REPLACE UINT64_MAX
#define HIDDEN ".cloche-write-"

struct file_writing {
	struct guest_stream *stream;
	int fd;
	uint64_t offset;	   /* of the next byte; REPLACE in the request: the whole file */
	mode_t mode;		   /* 0: leave it */
	bool replace;		   /* the new file takes its place at the end */
	char temp[GUEST_MAX_PATH]; /* its name until then, or "" for none */
	char path[GUEST_MAX_PATH];
};

static void writing_free(void *arg)
{
	struct file_writing *w = arg;

	if (*w->temp)
		unlink(w->temp);
	close_fd(&w->fd);
	free(w);
}

static void fail_writing(struct file_writing *w)
{
	stream_error(w->stream, errno, "cannot write %s: %m", w->path);
	writing_free(w);
}

static void take_writing(void *arg, const char *bytes, size_t len)
{
	struct file_writing *w = arg;
	struct guest_stream *s = w->stream;
	size_t all = len;

	while (len > 0) {
		ssize_t n = pwrite(w->fd, bytes, len, (off_t)w->offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail_writing(w);
			return;
		}
		bytes += n;
		len -= (size_t)n;
		w->offset += (uint64_t)n;
	}
	stream_credit(s, all);
}

static void temp_name(struct file_writing *w)
{
	const char *slash = strrchr(w->path, '/');
	static unsigned counter;

	snprintf(w->temp, sizeof(w->temp), "%.*s/" HIDDEN "%x-%x", (int)(slash - w->path), w->path,
		 (unsigned)getpid(), ++counter);
}

/* Gives the new file its name, in place of the old file. */
static int put_in_place(struct file_writing *w)
{
	char self[64];

	if (*w->temp == '\0') {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", w->fd);
		if (linkat(AT_FDCWD, self, AT_FDCWD, w->path, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		if (errno != EEXIST)
			return -1;
		temp_name(w);
		if (linkat(AT_FDCWD, self, AT_FDCWD, w->temp, AT_SYMLINK_FOLLOW) < 0) {
			*w->temp = '\0';
			return -1;
		}
	}
	if (rename(w->temp, w->path) < 0)
		return -1;
	*w->temp = '\0';
	return 0;
}

static void finish_writing(void *arg)
{
	struct file_writing *w = arg;
	auto_buf struct buf b = {0};
	struct stat st = {0};

	if (w->replace && files_new_owner(w->path, &st))
		(void)!fchown(w->fd, st.st_uid, st.st_gid);
	if (w->mode && fchmod(w->fd, w->mode) < 0 && !w->replace)
		w->mode = 0; /* another user's file that we may write to */
	if ((w->replace && put_in_place(w) < 0) || fstat(w->fd, &st) < 0) {
		fail_writing(w);
		return;
	}
	pack_u64(&b, (uint64_t)st.st_size);
	stream_send(w->stream, G_DONE, buf_head(&b), b.len);
	stream_end(w->stream, NULL, 0);
	writing_free(w);
}

/* Writes to the target of a link, so that the link stays. */
static void follow_links(struct file_writing *w)
{
	char resolved[PATH_MAX];

	if (realpath(w->path, resolved) && strlen(resolved) < sizeof(w->path))
		snprintf(w->path, sizeof(w->path), "%s", resolved);
}

static int open_replacing(struct file_writing *w, mode_t now)
{
	char parent[GUEST_MAX_PATH];

	if (!files_parent(w->path, parent))
		return errno = EISDIR, -1;
	if (!w->mode)
		w->mode = now ? now & 01777 : 0644;
	w->replace = true;
	w->fd = open(parent, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (w->fd >= 0)
		return 0;
	temp_name(w);
	w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (w->fd >= 0)
		return 0;
	*w->temp = '\0';
	if (!now || (errno != EACCES && errno != EPERM && errno != EROFS))
		return -1;
	/* Only the contents of this file may be changed. */
	w->replace = false;
	w->fd = open(w->path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK);
	return w->fd < 0 ? -1 : 0;
}

static int open_writing(struct file_writing *w)
{
	struct stat st = {0};

	follow_links(w);
	if (stat(w->path, &st) == 0 && !S_ISREG(st.st_mode))
		return errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL, -1;
	/* A new file could take the place of one that may not be written; a program's own write fails. */
	if (st.st_ino && faccessat(AT_FDCWD, w->path, W_OK, AT_EACCESS) < 0)
		return -1;
	if (w->offset == REPLACE) {
		w->offset = 0;
		if (open_replacing(w, st.st_mode & 07777) < 0)
			return -1;
	} else {
		w->fd = open(w->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK,
			     w->mode ? w->mode : 0644);
		if (st.st_ino)
			w->mode = 0;
	}
	if (w->fd >= 0 && files_is_own(w->fd))
		return errno = EACCES, -1;
	return w->fd < 0 ? -1 : 0;
}

void write_request(struct guest_stream *s, const struct unpacked_request *q)
{
	static const struct stream_ops ops = {
		.on_data = take_writing, .on_close = finish_writing, .on_end = writing_free};
	struct file_writing *w = must_alloc(calloc(1, sizeof(*w)));
	bool parents = q->number[2];

	*w = (struct file_writing){.stream = s,
				   .fd = -1,
				   .mode = q->number[0] == UINT32_MAX ? 0 : q->number[0] & 01777,
				   .offset = q->number[1]};
	memcpy(w->path, q->text[0], strlen(q->text[0]) + 1);
	if (w->offset != REPLACE && w->offset > INT64_MAX) {
		errno = EINVAL;
		fail_writing(w);
	} else if ((parents && files_make_parents(w->path) < 0) || open_writing(w) < 0) {
		fail_writing(w);
	} else {
		stream_go_on(s, &ops, w);
		stream_ok(s, NULL);
	}
}

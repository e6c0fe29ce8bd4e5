/*
 * G_WATCH: reports changes below a directory. While the reader is slow, events queue up in the
 * kernel.
 */
#include "guest/link/request.h"
#include "guest/files/walk.h"

#include <sys/inotify.h>

#define WATCH_MOST 8192 /* directories */
#define EVENTS                                                                                     \
	(IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |             \
	 IN_DELETE_SELF | IN_EXCL_UNLINK | IN_ONLYDIR)
#define HIDDEN ".cloche-write-" /* temporary files of transfer.c */

struct watched_dir {
	int wd;
	char *path;
};

struct watcher {
	struct guest_stream *stream;
	struct guest *guest;
	struct loop_watch watch;
	bool recursive, overflowed, telling_new;
	struct watched_dir *places;
	size_t count, room;
	uint32_t hidden_cookie; /* of a temporary file that is renamed to its final name */
	char *shown;		/* the directory as it was named, */
	size_t real_len;	/* and how long its real path is */
};

static void watcher_free(void *arg)
{
	struct watcher *w = arg;

	loop_unwatch(w->guest->loop, &w->watch);
	close_fd(&w->watch.fd);
	for (size_t i = 0; i < w->count; i++)
		free(w->places[i].path);
	free(w->places);
	free(w->shown);
	free(w);
}

static void report_change(struct watcher *w, enum guest_change change, const char *path,
			  bool is_dir)
{
	auto_buf struct buf b = {0};

	pack_u8(&b, (uint8_t)change);
	if (*path) {
		const char *below = path + w->real_len;

		pack_u32(&b, (uint32_t)(strlen(w->shown) + strlen(below)));
		buf_add(&b, w->shown, strlen(w->shown));
		buf_add(&b, below, strlen(below));
	} else {
		pack_str(&b, "");
	}
	pack_u8(&b, is_dir);
	if (stream_room(w->stream) >= b.len)
		stream_put(w->stream, G_ITEM, buf_head(&b), b.len);
}

static void tell_overflow(struct watcher *w)
{
	if (!w->overflowed)
		report_change(w, GUEST_OVERFLOW, "", false);
	w->overflowed = true;
}

/* ---- which directories ---- */

static struct watched_dir *find_place(const struct watcher *w, int wd)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->places[i].wd == wd)
			return &w->places[i];
	return NULL;
}

static int add_place(struct watcher *w, const char *path)
{
	int wd = w->count < WATCH_MOST
			 ? inotify_add_watch(w->watch.fd, path, EVENTS | IN_DONT_FOLLOW)
			 : (errno = ENOSPC, -1);

	if (wd < 0)
		return -1;
	if (find_place(w, wd))
		return 0;
	w->places = array_room(w->places, w->count, &w->room, sizeof(*w->places));
	w->places[w->count++] = (struct watched_dir){wd, str_copy(path)};
	return 0;
}

static enum walk_next watch_entry(void *arg, const struct walk_entry *n)
{
	struct watcher *w = arg;
	bool is_dir = S_ISDIR(n->st->st_mode);

	if (w->telling_new)
		report_change(w, GUEST_CREATED, n->path, is_dir);
	if (!is_dir || add_place(w, n->path) == 0 || errno != ENOSPC)
		return WALK_INTO;
	tell_overflow(w);
	return WALK_STOP;
}

/*
 * With `news`, entries that exist already are reported: they were created before the watch was set.
 */
static void add_below(struct watcher *w, char *path, bool news)
{
	auto_close int dir = walk_open_dir(AT_FDCWD, path);

	w->telling_new = news;
	if (dir >= 0)
		walk_below(&(struct walk){.visit = watch_entry, .arg = w}, dir, path,
			   WALK_MAX_DEPTH + 1);
}

static void forget_place(struct watcher *w, struct watched_dir *p)
{
	free(p->path);
	*p = w->places[--w->count];
}

static void drop_below(struct watcher *w, const char *path)
{
	for (size_t i = w->count; i-- > 0;)
		if (path_below(w->places[i].path, path)) {
			inotify_rm_watch(w->watch.fd, w->places[i].wd);
			forget_place(w, &w->places[i]);
		}
}

/* ---- events ---- */

static void tell_created(struct watcher *w, const struct inotify_event *v, char *path)
{
	bool is_dir = v->mask & IN_ISDIR;
	struct stat st;

	/* A temporary file of transfer.c that got its final name: it was written, not created. */
	if ((v->mask & IN_MOVED_TO) && v->cookie == w->hidden_cookie) {
		report_change(w, GUEST_WRITTEN, path, false);
		return;
	}
	report_change(w, GUEST_CREATED, path, is_dir);
	if ((v->mask & IN_CREATE) && !is_dir && lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_size > 0)
		report_change(w, GUEST_WRITTEN, path, false);
	if (is_dir && w->recursive && add_place(w, path) == 0)
		add_below(w, path, true);
}

/*
 * The kernel reports changes of a file without a name (transfer.c: O_TMPFILE) under its number,
 * "#123", which is of no use to a client. Any other such name is reported, even if the file is gone
 * by now.
 */
static bool is_nameless(const char *name, const char *path)
{
	return name[0] == '#' && name[1] && !name[1 + strspn(name + 1, "0123456789")] &&
	       faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

static void take_event(struct watcher *w, const struct inotify_event *v)
{
	struct watched_dir *place = find_place(w, v->wd);
	bool is_dir = v->mask & IN_ISDIR;
	char path[GUEST_MAX_PATH];
	const char *dir;

	if (v->mask & IN_Q_OVERFLOW) {
		w->overflowed = false;
		tell_overflow(w);
		return;
	}
	if (place && (v->mask & IN_IGNORED))
		forget_place(w, place);
	if (!place || !v->len || (v->mask & IN_IGNORED))
		return;
	dir = place->path;
	if (str_starts(v->name, HIDDEN)) {
		if (v->mask & IN_MOVED_FROM)
			w->hidden_cookie = v->cookie;
		return;
	}
	if (strlen(dir) + strlen(v->name) + 2 > sizeof(path))
		return;
	snprintf(path, sizeof(path), "%s/%s", str_equal(dir, "/") ? "" : dir, v->name);
	if (v->mask & (IN_CREATE | IN_MOVED_TO))
		tell_created(w, v, path);
	else if (v->mask & IN_MODIFY)
		report_change(w, GUEST_WRITTEN, path, false);
	else if (v->mask & IN_DELETE)
		report_change(w, GUEST_REMOVED, path, is_dir);
	else if (v->mask & IN_MOVED_FROM)
		report_change(w, GUEST_RENAMED, path, is_dir);
	else if ((v->mask & IN_ATTRIB) && !is_nameless(v->name, path))
		report_change(w, GUEST_CHMOD, path, is_dir);
	if ((v->mask & IN_MOVED_FROM) && is_dir)
		drop_below(w, path);
}

/* Room for the events of one read: some 16 of the largest. */
static bool has_room(const struct watcher *w)
{
	return stream_room(w->stream) >= GUEST_MAX_PAYLOAD / 2;
}

static void on_inotify(void *arg, uint32_t events)
{
	struct watcher *w = arg;
	char bytes[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = has_room(w) ? read(w->watch.fd, bytes, sizeof(bytes)) : 0;

	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *v = (const void *)(bytes + at);

		take_event(w, v);
		at += (ssize_t)(sizeof(*v) + v->len);
	}
	if (w->count == 0) {
		/* The directory itself is gone. */
		stream_end(w->stream, NULL, 0);
		watcher_free(w);
	} else if (!has_room(w)) {
		loop_unwatch(w->guest->loop, &w->watch);
	}
}

static void watch_again(void *arg)
{
	struct watcher *w = arg;

	if (has_room(w))
		loop_watch(w->guest->loop, &w->watch);
}

void watch_request(struct guest_stream *s, const struct unpacked_request *r)
{
	struct guest *g = s->guest;
	static const struct stream_ops ops = {.pump = watch_again, .on_end = watcher_free};
	char path[GUEST_MAX_PATH], real[PATH_MAX];
	struct watcher *w = must_alloc(calloc(1, sizeof(*w)));

	memcpy(path, r->text[0], sizeof(path));
	w->stream = s;
	w->guest = g;
	w->recursive = r->number[0];
	w->watch = (struct loop_watch){.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK),
				       .events = EPOLLIN,
				       .call = on_inotify,
				       .arg = w};
	if (w->watch.fd < 0 || !realpath(path, real) || strlen(real) >= sizeof(path) ||
	    add_place(w, real) < 0 || loop_watch(g->loop, &w->watch) < 0) {
		stream_error(s, errno, "cannot watch %s: %m", path);
		watcher_free(w);
		return;
	}
	for (size_t n = strlen(path); n > 0 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
	w->shown = str_copy(path);
	w->real_len = str_equal(real, "/") ? 0 : strlen(real);
	stream_go_on(s, &ops, w);
	stream_ok(s, NULL);
	snprintf(path, sizeof(path), "%s", real);
	if (w->recursive)
		add_below(w, path, false);
}

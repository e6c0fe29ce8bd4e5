/* Notes what files looked like, and tells later whether one of them has changed. */
#include "guest/warm/origin.h"

/* mtime and ctime: neither a copy that keeps times nor a rename gets by. */
struct origin_file {
	const char *path;
	bool exists;
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec modified, changed;
};

static struct origin_file look(const char *path)
{
	struct origin_file f = {.path = path};
	struct stat st;

	if (stat(path, &st) < 0)
		return f;
	f.exists = true;
	f.dev = st.st_dev;
	f.ino = st.st_ino;
	f.size = st.st_size;
	f.modified = st.st_mtim;
	f.changed = st.st_ctim;
	return f;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same(const struct origin_file *a, const struct origin_file *b)
{
	return a->exists == b->exists && a->dev == b->dev && a->ino == b->ino &&
	       a->size == b->size && is_same_time(&a->modified, &b->modified) &&
	       is_same_time(&a->changed, &b->changed);
}

static bool is_younger(const struct timespec *t, const struct timespec *since)
{
	return t->tv_sec != since->tv_sec ? t->tv_sec > since->tv_sec
					  : t->tv_nsec >= since->tv_nsec;
}

static size_t count_paths(const char *paths, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i++)
		count += !paths[i];
	return count;
}

void origin_note(struct origin *o, const char *paths, size_t len, const struct timespec *since)
{
	const char *at;

	origin_done(o);
	o->count = count_paths(paths, len);
	o->paths = must_alloc(malloc(len + 1));
	memcpy(o->paths, paths, len);
	o->files = must_alloc(calloc(o->count + 1, sizeof(*o->files)));
	at = o->paths;
	for (size_t i = 0; i < o->count; i++, at += strlen(at) + 1) {
		o->files[i] = look(at);
		if (o->files[i].exists && is_younger(&o->files[i].changed, since))
			o->is_doubtful = true;
	}
}

bool origin_has_changed(const struct origin *o)
{
	for (size_t i = 0; i < o->count; i++) {
		struct origin_file now = look(o->files[i].path);

		if (!is_same(&o->files[i], &now))
			return true;
	}
	return false;
}

void origin_done(struct origin *o)
{
	free(o->paths);
	free(o->files);
	*o = (struct origin){0};
}

/* Notes the state of files, and says later whether one of them has changed. */
#include "guest/warm/origin.h"

/* Both mtime and ctime are compared: a copy that keeps times and a rename are noticed, too. */
struct origin_file {
	const char *path;
	bool exists;
	struct stat st;
};

static struct origin_file look_at(const char *path)
{
	struct origin_file f = {.path = path};

	f.exists = stat(path, &f.st) == 0;
	return f;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same(const struct origin_file *a, const struct origin_file *b)
{
	return a->exists == b->exists && a->st.st_dev == b->st.st_dev &&
	       a->st.st_ino == b->st.st_ino && a->st.st_size == b->st.st_size &&
	       is_same_time(&a->st.st_mtim, &b->st.st_mtim) &&
	       is_same_time(&a->st.st_ctim, &b->st.st_ctim);
}

static bool is_younger(const struct timespec *t, const struct timespec *since)
{
	return t->tv_sec != since->tv_sec ? t->tv_sec > since->tv_sec
					  : t->tv_nsec >= since->tv_nsec;
}

void origin_note(struct origin *o, const char *paths, size_t len, const struct timespec *since)
{
	const char *at;

	origin_done(o);
	for (size_t i = 0; i < len; i++)
		o->count += !paths[i];
	o->paths = must_alloc(malloc(len + 1));
	memcpy(o->paths, paths, len);
	o->files = must_alloc(calloc(o->count + 1, sizeof(*o->files)));
	at = o->paths;
	for (size_t i = 0; i < o->count; i++, at += strlen(at) + 1) {
		o->files[i] = look_at(at);
		if (o->files[i].exists && is_younger(&o->files[i].st.st_ctim, since))
			o->is_doubtful = true;
	}
}

bool origin_has_changed(const struct origin *o)
{
	for (size_t i = 0; i < o->count; i++) {
		struct origin_file now = look_at(o->files[i].path);

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

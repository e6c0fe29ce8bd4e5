/* See job.h. Whatever fails is told to whoever listens; the status is for nobody. */
#include "image/make/job.h"

#include "base/fd_message.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define PROGRESS_NS 200000000
#define CLEAN_TRIES 600
#define CLEAN_MS 100

/* Callbacks of the maker have no argument. */
static int listener = -1;
static bool has_made; /* a name may lead elsewhere now: the work is done to its end */

static void say(const struct image_said *s, int fd)
{
	/* What is half-made is locked by this process, and removed by the next one. */
	if (fd_message_send(listener, s, sizeof(*s), &fd, fd >= 0, 0) < 0 && !has_made)
		_exit(1);
}

void image_job_say(const struct image_said *s)
{
	say(s, -1);
}

static void say_note(const char *text)
{
	struct image_said s = {.kind = IMAGE_SAID_NOTE};

	snprintf(s.text, sizeof(s.text), "%s", text);
	say(&s, -1);
}

static void say_progress(uint64_t done, uint64_t total)
{
	static int64_t said;
	int64_t now = now_ns();

	if (now - said < PROGRESS_NS && done < total)
		return;
	said = now;
	say(&(struct image_said){.kind = IMAGE_SAID_PROGRESS, .done = done, .total = total}, -1);
}

void image_job_say_made(const char *hex, const char *name)
{
	struct image_said s = {.kind = IMAGE_SAID_MADE};

	has_made = true;
	snprintf(s.hex, sizeof(s.hex), "%s", hex);
	snprintf(s.name, sizeof(s.name), "%s", name ? name : "");
	say(&s, -1);
}

static bool list_has(const struct list *l, const char *text)
{
	for (size_t i = 0; i < l->count; i++)
		if (str_equal(l->items[i], text))
			return true;
	return false;
}

static bool is_wanted(void)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

/* ---- the work ---- */

static int pull(struct image_maker *m, const struct image_order *o, struct err *e)
{
	const struct image_pull p = {.name = o->name,
				     .mirrors = o->mirrors,
				     .is_plain = o->is_plain,
				     .auth_file = o->auth_file,
				     .made = image_job_say_made};

	return image_pull(m, &p, e);
}

/* Our end of a new pipe; the front gets the other one. */
static int open_pipe(bool reads, struct err *e)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
	/* The front must not wait for us. */
	fcntl(ends[reads], F_SETFL, O_NONBLOCK);
	say(&(struct image_said){.kind = IMAGE_SAID_PIPE}, ends[reads]);
	close(ends[reads]);
	return ends[!reads];
}

static int import(struct image_maker *m, const struct image_order *o, struct err *e)
{
	auto_close int from = open_pipe(true, e);
	const struct image_import i = {.from = "-",
				       .name = *o->name ? o->name : NULL,
				       .is_files = o->job == IMAGE_JOB_FILES,
				       .made = image_job_say_made};

	if (from < 0 || dup2(from, STDIN_FILENO) < 0)
		return -1;
	return image_import(m, &i, e);
}

static int export(struct image_maker *m, const struct image_order *o, struct err *e)
{
	struct image i = {.lock = -1};
	struct image_reference name;
	struct err ignored;
	auto_close int to = -1;
	bool named = image_reference_parse(o->name, &name, &ignored) == 0 && name.tag[0];
	int rc;

	if (image_find(&m->store, o->name, &i, e) < 0)
		return -1;
	if (named && str_starts(i.hex, o->name))
		named = false;
	to = open_pipe(false, e);
	rc = to < 0 ? -1 : image_export_tar(m, &i, named ? name.name : NULL, to, e);
	image_done(&i);
	return rc;
}

static int tag(struct image_store *s, const struct image_order *o, struct err *e)
{
	struct image i = {.lock = -1};
	struct image_reference name;
	int rc;

	if (image_reference_parse(o->to, &name, e) < 0 || image_find(s, o->name, &i, e) < 0)
		return -1;
	rc = image_tag(s, name.name, i.hex, NULL, e);
	if (rc == 0)
		image_job_say_made(i.hex, name.name);
	image_done(&i);
	return rc;
}

/* What is being made elsewhere may need layers: then the files stay until the next time. */
static int prune(struct image_store *s, const char *only, bool is_needed, struct err *e)
{
	struct image_said said = {.kind = IMAGE_SAID_PRUNED};
	struct image_pruned pruned;
	auto_close int work = image_work_lock(s, true, e);

	if (work < 0)
		return is_needed || e->kind != ERR_CONFLICT ? -1 : 0;
	if (image_prune(s, only, &pruned, e) < 0)
		return -1;
	said.done = pruned.images;
	said.total = pruned.layers;
	said.bytes = pruned.bytes;
	say(&said, -1);
	return 0;
}

static int open_store(const struct image_order *o, struct image_store *ret, struct err *e)
{
	if (image_store_open_at(o->store, true, ret, e) < 0)
		return -1;
	snprintf(ret->owner, sizeof(ret->owner), "%s", o->owner);
	return 0;
}

/* The images that names of the owner lead to. */
static void list_own(const struct image_store *s, struct list *ret)
{
	struct image_refs refs;
	struct err ignored;

	if (image_refs_read(s, &refs, &ignored) < 0)
		return;
	for (size_t i = 0; i < refs.count; i++)
		if (str_equal(refs.items[i].owner, s->owner))
			list_add(ret, refs.items[i].hex);
	image_refs_done(&refs);
}

/*
 * A name that has moved leaves its old image without one, a build leaves images of its first steps, and work that
 * failed leaves layers: they would add up beyond what the owner may have. Images that are neither are others'
 * business.
 */
static void clean_up(const struct image_order *o, const struct list *before)
{
	auto_list struct list after = {0};
	struct image_pruned ignored_count;
	struct image_store s;
	struct err ignored;
	auto_close int work = -1;
	int tries = 1;

	if (open_store(o, &s, &ignored) < 0)
		return;
	list_own(&s, &after);
	for (size_t i = 0; i < before->count; i++)
		if (!list_has(&after, before->items[i]))
			tries = CLEAN_TRIES;
	/* What others make ends; and as long as this process waits, its owner makes one less. */
	for (int i = 0; i < tries && work < 0; i++) {
		if (i)
			poll(NULL, 0, CLEAN_MS);
		work = image_work_lock(&s, true, &ignored);
	}
	for (size_t i = 0; work >= 0 && i < before->count; i++)
		if (!list_has(&after, before->items[i]))
			(void)!image_prune(&s, before->items[i], &ignored_count, &ignored);
	if (work >= 0)
		(void)!image_prune(&s, "layers only", &ignored_count, &ignored);
	image_store_close(&s);
}

static int remove_image(struct image_store *s, const struct image_order *o, struct err *e)
{
	char hex[IMAGE_HEX + 1];

	return image_untag(s, o->name, hex, e) < 0 ? -1 : prune(s, hex, false, e);
}

static int with_store(const struct image_order *o, struct err *e)
{
	struct image_store s;
	int rc;

	if (open_store(o, &s, e) < 0)
		return -1;
	if (o->job == IMAGE_JOB_TAG)
		rc = tag(&s, o, e);
	else if (o->job == IMAGE_JOB_REMOVE)
		rc = remove_image(&s, o, e);
	else
		rc = prune(&s, NULL, true, e);
	image_store_close(&s);
	return rc;
}

static int build(struct image_maker *m, const struct image_order *o, struct err *e)
{
	return o->build(m, o, e);
}

/* loose gets the images that have no name, and shall not stay. */
static int with_maker(const struct image_order *o, struct list *loose, struct err *e)
{
	static int (*const jobs[])(struct image_maker * m, const struct image_order *o,
				   struct err *e) = {[IMAGE_JOB_PULL] = pull,
						     [IMAGE_JOB_IMPORT] = import,
						     [IMAGE_JOB_FILES] = import,
						     [IMAGE_JOB_BUILD] = build,
						     [IMAGE_JOB_EXPORT] = export};
	struct image_maker m = {.note = say_note,
				.progress = say_progress,
				.is_wanted = is_wanted,
				.room = o->room,
				.owner = o->owner,
				.path = o->store};
	int rc = image_maker_open(&m, o->worker, o->guest, e);

	if (rc == 0)
		rc = jobs[o->job](&m, o, e);
	if (m.loose.count)
		list_add_all(loose, (const char *const *)m.loose.items);
	image_maker_close(&m);
	return rc;
}

int image_job_run(const struct image_order *o, int sock)
{
	struct image_said last = {.kind = IMAGE_SAID_DONE};
	bool moves = o->job < IMAGE_JOB_EXPORT || o->job == IMAGE_JOB_TAG;
	auto_list struct list before = {0};
	struct image_store s;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	listener = sock;
	if (moves && open_store(o, &s, &last.err) == 0) {
		list_own(&s, &before);
		image_store_close(&s);
	}
	rc = o->job <= IMAGE_JOB_EXPORT ? with_maker(o, &before, &last.err)
					: with_store(o, &last.err);
	if (rc < 0)
		last.kind = IMAGE_SAID_FAILED;
	if (moves)
		clean_up(o, &before);
	say(&last, -1);
	return rc < 0;
}

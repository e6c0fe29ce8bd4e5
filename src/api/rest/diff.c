/*
 * What differs between the files of two sandboxes or snapshots: GET /v1/diff. Each side is the tar of a snapshot, of a
 * sandbox one that is made for this. Both are read into a table of names, each with a digest of what is there (type,
 * mode, owner, target, attributes and content, but no times), and the tables are compared; all in turns, so that no
 * other tenant waits. Memory counts against the caller's share of request bodies.
 */
#include "api/rest/rest.h"

#include "auth/shares.h"
#include "wire/tar.h"

#include <sodium.h>

#define BUCKETS 16384
#define DIGEST 16
#define PIECE (32u << 10)
#define CHANGES 10000

struct node {
	struct node *next;
	unsigned char digest[DIGEST];
	bool is_removed; /* below, in the image, there may be something of this name */
	char path[];
};

struct side {
	char *what;
	int fd;
	struct tar_in tar;
	struct node **table;
};

enum step { READS_FROM, READS_TO, COMPARES, LOOKS_FOR_REMOVED, IS_DONE };

struct diff {
	struct exchange *x;
	struct side sides[2];
	size_t at;		   /* of the side that is being opened */
	struct ipc_snapshot aside; /* made for this side, if it has an id */
	struct budget *memory;
	uint64_t held;
	unsigned char name_key[crypto_shorthash_KEYBYTES], key[crypto_generichash_KEYBYTES];
	enum step step;
	size_t bucket;
	struct tar_entry entry;
	bool in_entry;
	crypto_generichash_state hash;
	json_t *changes;
	bool is_truncated;
	struct err err;
	struct loop_task task;
};

/* ---- the tables ---- */

static struct node **bucket_of(const struct diff *d, const struct side *s, const char *path)
{
	uint64_t hash;

	_Static_assert(sizeof(hash) == crypto_shorthash_BYTES, "as it comes");
	crypto_shorthash((unsigned char *)&hash, (const unsigned char *)path, strlen(path),
			 d->name_key);
	return &s->table[hash % BUCKETS];
}

static struct node *find_node(const struct diff *d, const struct side *s, const char *path)
{
	struct node *n = *bucket_of(d, s, path);

	while (n && !str_equal(n->path, path))
		n = n->next;
	return n;
}

static int hold(struct diff *d, size_t bytes)
{
	if (!budget_take(d->memory, bytes))
		return shares_refuse(SHARE_BODIES, &d->err);
	d->held += bytes;
	return 0;
}

/* The last entry of a name counts, as it does for who unpacks the archive. */
static int add_node(struct diff *d, struct side *s, const char *path, const unsigned char *digest,
		    bool is_removed)
{
	struct node *n = find_node(d, s, path), **place;
	size_t size = sizeof(*n) + strlen(path) + 1;

	if (!n) {
		if (hold(d, size) < 0)
			return -1;
		n = must_alloc(calloc(1, size));
		memcpy(n->path, path, strlen(path) + 1);
		place = bucket_of(d, s, path);
		n->next = *place;
		*place = n;
	}
	memcpy(n->digest, digest, DIGEST);
	n->is_removed = is_removed;
	return 0;
}

static void drop_table(struct side *s)
{
	for (size_t i = 0; s->table && i < BUCKETS; i++)
		for (struct node *n = s->table[i], *next; n; n = next) {
			next = n->next;
			free(n);
		}
	free(s->table);
	s->table = NULL;
}

static void diff_done(void *data)
{
	struct diff *d = data;

	loop_task_remove(d->x->api->loop, &d->task);
	for (size_t i = 0; i < ARRAY_LEN(d->sides); i++) {
		close_fd(&d->sides[i].fd);
		drop_table(&d->sides[i]);
	}
	if (d->in_entry)
		tar_entry_done(&d->entry);
	budget_give(d->memory, d->held);
	json_decref(d->changes);
}

/* ---- reading ---- */

static ssize_t read_tar(void *arg, void *bytes, size_t len)
{
	const struct side *s = arg;
	ssize_t n;

	do
		n = read(s->fd, bytes, len);
	while (n < 0 && errno == EINTR);
	return n;
}

/* Without what may stand before and behind a name. */
static const char *clean_name(char *name)
{
	size_t len;

	while (*name == '/' || (name[0] == '.' && name[1] == '/'))
		name++;
	len = strlen(name);
	while (len > 0 && name[len - 1] == '/')
		name[--len] = '\0';
	return str_equal(name, ".") ? "" : name;
}

static void hash_bytes(struct diff *d, const void *bytes, size_t len)
{
	crypto_generichash_update(&d->hash, bytes, len);
}

static void begin_entry(struct diff *d)
{
	struct tar_entry *t = &d->entry;
	struct {
		uint64_t uid, gid, size, mode, type, opaque, ranges, xattrs;
	} fixed = {t->uid,
		   t->gid,
		   t->type == '0' ? t->size : 0,
		   t->mode & 07777,
		   (uint64_t)t->type,
		   t->opaque,
		   t->range_count,
		   t->xattrs.count};

	crypto_generichash_init(&d->hash, d->key, sizeof(d->key), DIGEST);
	hash_bytes(d, &fixed, sizeof(fixed));
	hash_bytes(d, t->link, t->type == '2' ? strlen(t->link) : 0);
	hash_bytes(d, t->ranges, t->range_count * sizeof(*t->ranges));
	for (size_t i = 0; i < t->xattrs.count; i++) {
		hash_bytes(d, t->xattrs.items[i].name, strlen(t->xattrs.items[i].name) + 1);
		hash_bytes(d, &t->xattrs.items[i].len, sizeof(t->xattrs.items[i].len));
		hash_bytes(d, t->xattrs.items[i].value, t->xattrs.items[i].len);
	}
	d->in_entry = true;
}

/* Which of the names of a file comes first differs from one archive to the next: all have the digest of the file. */
static int end_entry(struct diff *d, struct side *s)
{
	struct tar_entry *t = &d->entry;
	bool is_removed = t->type == '3' && t->major == 0 && t->minor == 0;
	const char *path = clean_name(t->name);
	const struct node *target = t->type == '1' ? find_node(d, s, clean_name(t->link)) : NULL;
	unsigned char digest[DIGEST];
	int rc;

	crypto_generichash_final(&d->hash, digest, sizeof(digest));
	rc = *path ? add_node(d, s, path, target ? target->digest : digest, is_removed) : 0;
	tar_entry_done(t);
	d->in_entry = false;
	return rc;
}

static int read_step(struct diff *d, struct side *s)
{
	static unsigned char piece[PIECE];
	ssize_t n;
	int rc;

	if (d->in_entry) {
		n = tar_in_data(&s->tar, piece, sizeof(piece), &d->err);
		if (n < 0)
			return -1;
		if (n == 0)
			return end_entry(d, s);
		hash_bytes(d, piece, (size_t)n);
		return 0;
	}
	rc = tar_in_next(&s->tar, &d->entry, &d->err);
	if (rc == 1)
		begin_entry(d);
	else if (rc == 0)
		d->step++;
	return rc < 0 ? -1 : 0;
}

/* ---- comparing ---- */

static int add_change(struct diff *d, const char *path, const char *kind)
{
	auto_free char *shown = str_format("/%s", path);

	if (json_array_size(d->changes) == CHANGES) {
		d->is_truncated = true;
		d->step = IS_DONE;
		return 0;
	}
	if (hold(d, strlen(shown) + 128) < 0)
		return -1;
	json_array_append_new(d->changes,
			      json_pack("{s:o, s:s}", "path", text_json_of(shown), "kind", kind));
	return 0;
}

/* What one side has of its own, and the other does not, is changed there; also if the image has it below. */
static int compare_node(struct diff *d, const struct node *n)
{
	const struct node *was = find_node(d, &d->sides[0], n->path);
	bool is_there = !n->is_removed, was_there = was && !was->is_removed;

	if (was && was->is_removed == n->is_removed &&
	    (n->is_removed || memcmp(was->digest, n->digest, DIGEST) == 0))
		return 0;
	return add_change(d, n->path, !is_there ? "deleted" : was_there ? "modified" : "added");
}

static int missing_node(struct diff *d, const struct node *n)
{
	return find_node(d, &d->sides[1], n->path)
		       ? 0
		       : add_change(d, n->path, n->is_removed ? "added" : "deleted");
}

static int compare_step(struct diff *d)
{
	bool looks_back = d->step == LOOKS_FOR_REMOVED;
	const struct side *s = &d->sides[looks_back ? 0 : 1];

	for (const struct node *n = s->table[d->bucket]; n && d->step != IS_DONE; n = n->next)
		if ((looks_back ? missing_node : compare_node)(d, n) < 0)
			return -1;
	if (++d->bucket == BUCKETS && d->step != IS_DONE) {
		d->bucket = 0;
		d->step++;
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(json_string_value(json_object_get(*(json_t *const *)a, "path")),
		      json_string_value(json_object_get(*(json_t *const *)b, "path")));
}

static void answer(struct diff *d)
{
	size_t count = json_array_size(d->changes);
	const json_t **order = must_alloc(calloc(count + 1, sizeof(*order)));
	json_t *sorted = json_array();

	for (size_t i = 0; i < count; i++)
		order[i] = json_array_get(d->changes, i);
	qsort(order, count, sizeof(*order), by_path);
	for (size_t i = 0; i < count; i++)
		json_array_append(sorted, (json_t *)order[i]);
	free(order);
	exchange_json(d->x, 200,
		      json_pack("{s:s, s:s, s:o, s:b}", "from", d->sides[0].what, "to",
				d->sides[1].what, "changes", sorted, "truncated", d->is_truncated));
}

static void go_on(void *arg)
{
	struct diff *d = arg;
	int rc = 0;

	while (rc == 0 && d->step != IS_DONE && !d->x->gone && !loop_turn_is_over(d->x->api->loop))
		rc = d->step <= READS_TO ? read_step(d, &d->sides[d->step]) : compare_step(d);
	if (d->x->gone)
		exchange_answer_gone(d->x);
	else if (rc < 0)
		exchange_error(d->x, &d->err);
	else if (d->step == IS_DONE)
		answer(d);
	else
		loop_task_add(d->x->api->loop, &d->task);
}

/* ---- opening both ---- */

static void open_next(struct diff *d);

static void on_open(void *arg, int fd, const struct ipc_snapshot *info, const struct err *e)
{
	struct diff *d = arg;

	/* What was made for this is needed no longer: the fd is enough. */
	if (d->aside.id[0])
		manager_snapshot_abandon(d->x->api->manager, &d->aside);
	if (fd < 0) {
		exchange_error(d->x, e);
		return;
	}
	d->sides[d->at++].fd = fd;
	open_next(d);
}

static void read_snapshot(struct exchange *x, const char *id)
{
	manager_snapshot_read(x->api->manager, &x->caller, id, on_open, x->data);
}

static void on_aside(void *arg, json_t *value, const struct err *e)
{
	struct diff *d = arg;

	if (e) {
		exchange_error(d->x, e);
		return;
	}
	snprintf(d->aside.id, sizeof(d->aside.id), "%s", body_text(value, "id"));
	read_snapshot(d->x, d->aside.id);
	json_decref(value);
}

static void open_next(struct diff *d)
{
	struct manager *m = d->x->api->manager;
	struct sandbox *s;
	struct err ignored;

	if (d->x->gone) {
		exchange_answer_gone(d->x);
		return;
	}
	if (d->at == ARRAY_LEN(d->sides)) {
		loop_task_add(d->x->api->loop, &d->task);
		return;
	}
	s = manager_find(m, &d->x->caller, d->sides[d->at].what, &ignored);
	d->aside.id[0] = '\0';
	if (s) {
		snprintf(d->aside.owner, sizeof(d->aside.owner), "%s", sandbox_owner(s));
		sandbox_snapshot_aside(s, &d->x->caller, on_aside, d);
	} else {
		v1_snapshot_find(d->x, d->sides[d->at].what, read_snapshot);
	}
}

void v1_diff(struct exchange *x)
{
	static const char *const names[] = {"from", "to"};
	struct shares *shares = manager_shares(x->api->manager);
	struct diff *d;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!exchange_arg(x, names[i]) || !*exchange_arg(x, names[i])) {
			exchange_refuse(x, names[i], "names a sandbox or a snapshot");
			return;
		}
	d = exchange_attach(x, sizeof(*d), diff_done);
	d->x = x;
	d->changes = json_array();
	d->memory = shares_of(shares, x->caller.token, SHARE_BODIES);
	d->task = (struct loop_task){
		.call = go_on, .arg = d, .user = shares_user(shares, x->caller.token)};
	randombytes_buf(d->key, sizeof(d->key));
	randombytes_buf(d->name_key, sizeof(d->name_key));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		d->sides[i] = (struct side){.what = (char *)exchange_arg(x, names[i]), .fd = -1};
		d->sides[i].tar = (struct tar_in){.read = read_tar, .arg = &d->sides[i]};
		d->sides[i].table = must_alloc(calloc(BUCKETS, sizeof(struct node *)));
	}
	if (hold(d, 2 * BUCKETS * sizeof(struct node *)) < 0)
		exchange_error(x, &d->err);
	else
		open_next(d);
}

/*
 * Pulls an image: asks cloche-image fetch for manifests, the configuration and layers, and unpacks each layer as
 * soon as it is there, while the next ones come. What the fetching process says is not believed: manifests and
 * configuration are hashed here, and a layer must have the digest that the configuration names.
 */
#include "image/make/make.h"

#include "base/fd_message.h"
#include "image/fetch.h"
#include "image/make/credentials.h"
#include "image/make/lines.h"
#include "image/make/process.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>

struct blob {
	char digest[IMAGE_DIGEST];
	const char *layer; /* its diff_id */
	uint64_t size, got;
	int file;
	bool wanted, here;
};

struct pulling {
	struct image_maker *maker;
	const struct image_pull *pull;
	struct image_reference ref;
	struct worker worker;
	int sock;
	char config[IMAGE_DIGEST];
	struct blob *blobs;
	size_t blob_count;
	struct blob *slots[FETCH_SLOTS];
};

/* ---- where from ---- */

/* By number: a name such as 127.example.org is anybody's. */
static bool is_loopback(const char *host)
{
	char name[128];
	struct in_addr address;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(host, ":"), host);
	return str_equal(name, "localhost") || str_equal(host, "[::1]") ||
	       str_starts(host, "[::1]:") ||
	       (inet_pton(AF_INET, name, &address) == 1 &&
		ntohl(address.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET);
}

static int make_site(const struct pulling *p, const char *mirror, struct fetch_site *ret,
		     struct err *e)
{
	const char *registry = p->ref.registry, *host = mirror ? mirror : registry;
	struct fetch_site s = {.is_plain = is_loopback(host) || p->pull->is_plain};

	if (!str_only(host, STR_ALNUM ".-:[]", 1, 127))
		return err_set(e, ERR_INVALID, "'%.100s' is no host", host);
	snprintf(s.base, sizeof(s.base), "%s://%s", s.is_plain ? "http" : "https",
		 str_equal(host, "docker.io") ? "registry-1.docker.io" : host);
	snprintf(s.repository, sizeof(s.repository), "%s", p->ref.repository);
	snprintf(s.ns, sizeof(s.ns), "%s", mirror ? registry : "");
	if (credentials_find(p->pull->auth_file, host, &s, e) < 0)
		return -1;
	*ret = s;
	return 0;
}

static int start_fetching(struct pulling *p, const struct fetch_site *site, struct err *e)
{
	char *argv[] = {(char *)p->maker->worker, "fetch", NULL};
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	rc = worker_start(&p->worker, argv, pair[1], -1, e);
	close(pair[1]);
	p->sock = pair[0];
	if (rc == 0 && send(p->sock, site, sizeof(*site), MSG_NOSIGNAL) < 0)
		rc = err_sys(e, "cannot start fetching");
	return rc;
}

static void stop_fetching(struct pulling *p)
{
	close_fd(&p->sock);
	worker_stop(&p->worker);
}

/* ---- asking ---- */

static int ask(struct pulling *p, uint32_t slot, const struct fetch_ask *what, int file,
	       struct err *e)
{
	struct fetch_ask a = *what;

	a.slot = slot;
	return fd_message_send(p->sock, &a, sizeof(a), &file, 1, 0) < 0 ? err_sys(e, "cannot fetch")
									: 0;
}

/* 1: a transfer is finished; 0: it goes on. */
static int next_answer(struct pulling *p, struct fetch_answer *a, struct err *e)
{
	ssize_t n = recv(p->sock, a, sizeof(*a), 0);

	if (n != (ssize_t)sizeof(*a) || a->slot >= FETCH_SLOTS) {
		worker_end(&p->worker, "cannot fetch", e);
		return e->kind ? -1 : err_set(e, ERR_SYSTEM, "the fetching process ended");
	}
	a->err.msg[sizeof(a->err.msg) - 1] = a->err.field[0] = '\0';
	if (a->kind == FETCH_FAILED) {
		*e = a->err;
		if (e->kind == ERR_NONE || e->kind >= ERR_KIND_COUNT)
			e->kind = ERR_SYSTEM;
		return -1;
	}
	return a->kind == FETCH_DONE;
}

/* A small file as a whole, with this digest (if it is not ""). *digest gets its own. */
static int fetch_small(struct pulling *p, const struct fetch_ask *what, struct buf *ret,
		       char digest[IMAGE_DIGEST], struct err *e)
{
	auto_close int file = memfd_create("manifest", MFD_CLOEXEC);
	auto_free char *bytes = NULL;
	struct fetch_answer a;
	size_t len;
	int rc = 0;

	if (file < 0)
		return err_sys(e, "cannot make a file");
	if (ask(p, 0, what, file, e) < 0)
		return -1;
	while (rc == 0)
		rc = next_answer(p, &a, e);
	if (rc < 0)
		return -1;
	if (io_read_whole(file, what->max, &bytes, &len) < 0)
		return err_sys(e, "cannot read what was fetched");
	snprintf(digest, IMAGE_DIGEST, "sha256:");
	image_hash(bytes, len, digest + strlen("sha256:"));
	if (what->digest[0] && !str_equal(what->digest, digest))
		return err_set(e, ERR_INVALID, "the registry sent something else than %s",
			       what->digest);
	buf_add(ret, bytes, len);
	return 0;
}

/* ---- manifests ---- */

static int take_manifest(struct pulling *p, struct buf *says, struct line *ret_child, struct err *e)
{
	struct line l;
	size_t at = 0;

	while (lines_next(says, &at, &l)) {
		uint64_t size;

		if (!image_is_digest(l.a) || parse_count(l.b, &size, e) < 0)
			return err_set(e, ERR_INVALID, "the manifest is malformed");
		if (str_equal(l.key, "child")) {
			*ret_child = l;
			return 1;
		}
		if (str_equal(l.key, "config")) {
			snprintf(p->config, sizeof(p->config), "%s", l.a);
		} else if (str_equal(l.key, "layer")) {
			if (p->blob_count == IMAGE_LAYERS)
				return err_set(e, ERR_UNSUPPORTED, "the image has too many layers");
			if (size > IMAGE_LAYER_MAX)
				return err_set(e, ERR_LIMIT, "a layer is larger than 20 GB");
			struct blob *b = &p->blobs[p->blob_count++];

			*b = (struct blob){.size = size, .file = -1};
			snprintf(b->digest, sizeof(b->digest), "%s", l.a);
		}
	}
	return p->config[0] ? 0 : err_set(e, ERR_INVALID, "the manifest is malformed");
}

/* *ret gets the digest of what the name leads to, which is that of the index if there is one. */
static int get_manifest(struct pulling *p, char ret[IMAGE_DIGEST], struct err *e)
{
	const struct image_reference *r = &p->ref;
	struct fetch_ask what = {.is_manifest = true, .max = FETCH_MANIFEST_MAX};
	char digest[IMAGE_DIGEST];

	snprintf(what.path, sizeof(what.path), "manifests/%s", r->digest[0] ? r->digest : r->tag);
	snprintf(what.digest, sizeof(what.digest), "%s", r->digest);
	for (int depth = 0; depth < 3; depth++) {
		auto_buf struct buf bytes = {0}, says = {0};
		struct line child;
		int rc;

		if (fetch_small(p, &what, &bytes, digest, e) < 0 ||
		    image_parse(p->maker, "manifest",
				&(struct image_json){bytes.len ? buf_head(&bytes) : "", bytes.len,
						     NULL},
				&says, e) < 0)
			return -1;
		if (depth == 0)
			memcpy(ret, digest, IMAGE_DIGEST);
		rc = take_manifest(p, &says, &child, e);
		if (rc <= 0)
			return rc;
		snprintf(what.path, sizeof(what.path), "manifests/%.71s", child.a);
		snprintf(what.digest, sizeof(what.digest), "%.71s", child.a);
	}
	return err_set(e, ERR_INVALID, "the index is too deep");
}

/* ---- layers ---- */

static void show_progress(const struct pulling *p)
{
	uint64_t done = 0, total = 0;

	for (size_t i = 0; i < p->blob_count; i++) {
		if (!p->blobs[i].wanted)
			continue;
		done += p->blobs[i].got;
		total += p->blobs[i].size;
	}
	if (p->maker->progress)
		p->maker->progress(done, total);
}

static int ask_blob(struct pulling *p, uint32_t slot, struct blob *b, struct err *e)
{
	struct fetch_ask what = {.max = b->size};
	char name[IMAGE_DIGEST + 8];

	snprintf(name, sizeof(name), "blob-%s", b->digest + strlen("sha256:"));
	snprintf(what.path, sizeof(what.path), "blobs/%s", b->digest);
	snprintf(what.digest, sizeof(what.digest), "%s", b->digest);
	b->file = openat(p->maker->tmp, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->file < 0)
		return err_sys(e, "cannot make a file");
	/* Its place is known, and nothing else is left of it when it is closed. */
	unlinkat(p->maker->tmp, name, 0);
	p->slots[slot] = b;
	return ask(p, slot, &what, b->file, e);
}

static int ask_next(struct pulling *p, struct err *e)
{
	for (size_t i = 0, slot = 0; i < p->blob_count; i++) {
		struct blob *b = &p->blobs[i];

		while (slot < FETCH_SLOTS && p->slots[slot])
			slot++;
		if (slot == FETCH_SLOTS)
			return 0;
		if (b->wanted && b->file < 0 && !b->here && ask_blob(p, (uint32_t)slot, b, e) < 0)
			return -1;
	}
	return 0;
}

static int unpack_blob(struct pulling *p, struct blob *b, struct err *e)
{
	struct image_layer l = {.blob = b->file, .want = b->layer};

	if (lseek(b->file, 0, SEEK_SET) < 0)
		return err_sys(e, "cannot read a layer");
	if (image_layer_unpack(p->maker, &l, e) < 0 || image_layer_keep(p->maker, &l, e) < 0)
		return -1;
	close_fd(&b->file);
	b->here = true;
	return 0;
}

static int get_layers(struct pulling *p, const struct image_record *r, struct err *e)
{
	uint64_t bytes = 0;
	size_t left = 0;

	if (r->layers.count != p->blob_count)
		return err_set(e, ERR_INVALID, "the image is malformed: %zu layers, %zu digests",
			       p->blob_count, r->layers.count);
	for (size_t i = 0; i < p->blob_count; i++) {
		struct blob *b = &p->blobs[i];

		b->layer = r->layers.items[i];
		b->wanted = !image_maker_has(p->maker, b->layer);
		for (size_t n = 0; n < i && b->wanted; n++)
			b->wanted = !str_equal(p->blobs[n].layer, b->layer);
		left += b->wanted;
		bytes += b->wanted ? b->size : 0;
	}
	if (p->maker->room && bytes > p->maker->room)
		return err_set(e, ERR_LIMIT, "the image is larger than there is room for");
	while (left > 0) {
		struct fetch_answer a;
		struct blob *b;
		int rc;

		if (ask_next(p, e) < 0)
			return -1;
		rc = next_answer(p, &a, e);
		if (rc < 0)
			return -1;
		b = p->slots[a.slot];
		if (!b)
			return err_set(e, ERR_SYSTEM,
				       "the fetching process answers what nobody asked");
		b->got = rc == 1 ? b->size : a.bytes;
		show_progress(p);
		if (rc == 0)
			continue;
		/* The next one comes while this one is unpacked. */
		p->slots[a.slot] = NULL;
		if (ask_next(p, e) < 0 || unpack_blob(p, b, e) < 0)
			return -1;
		left--;
	}
	return 0;
}

/* ---- all ---- */

static int pull_image(struct pulling *p, char hex[IMAGE_HEX + 1], char digest[IMAGE_DIGEST],
		      struct err *e)
{
	auto_buf struct buf config = {0};
	char own[IMAGE_DIGEST];
	struct fetch_ask what = {.max = IMAGE_CONFIG_MAX};
	struct image_record r;
	int rc;

	snprintf(what.path, sizeof(what.path), "blobs/%s", p->config);
	snprintf(what.digest, sizeof(what.digest), "%s", p->config);
	if (fetch_small(p, &what, &config, own, e) < 0)
		return -1;
	const struct image_json json = {config.len ? buf_head(&config) : "", config.len, NULL};

	if (image_config_record(p->maker, &json, &r, e) < 0)
		return -1;
	rc = get_layers(p, &r, e);
	image_record_done(&r);
	return rc < 0 ? -1 : image_make(p->maker, &json, hex, e);
}

static int pull_from(struct pulling *p, const char *mirror, char hex[IMAGE_HEX + 1],
		     char digest[IMAGE_DIGEST], struct err *e)
{
	struct blob blobs[IMAGE_LAYERS];
	struct fetch_site site;
	int rc;

	p->blobs = blobs;
	p->blob_count = 0;
	p->sock = -1;
	p->config[0] = '\0';
	memset(p->slots, 0, sizeof(p->slots));
	if (make_site(p, mirror, &site, e) < 0)
		return -1;
	rc = start_fetching(p, &site, e);
	explicit_bzero(&site, sizeof(site));
	if (rc == 0)
		rc = get_manifest(p, digest, e);
	if (rc == 0)
		rc = pull_image(p, hex, digest, e);
	stop_fetching(p);
	for (size_t i = 0; i < p->blob_count; i++)
		close_fd(&blobs[i].file);
	return rc;
}

int image_pull(struct image_maker *m, const struct image_pull *pull, struct err *e)
{
	struct pulling p = {.maker = m, .pull = pull, .worker = {.pid = -1, .out = -1, .err = -1}};
	char hex[IMAGE_HEX + 1], digest[IMAGE_DIGEST];
	int rc = -1;

	if (image_reference_parse(pull->name, &p.ref, e) < 0)
		return -1;
	for (size_t i = 0; i < pull->mirrors->count && rc < 0; i++)
		rc = pull_from(&p, pull->mirrors->items[i], hex, digest, e);
	if (rc < 0)
		rc = pull_from(&p, NULL, hex, digest, e);
	if (rc < 0 || image_tag(&m->store, p.ref.name, hex, digest, e) < 0)
		return -1;
	pull->made(hex, p.ref.name);
	return 0;
}

/* Whoever fills the store: its locks, its directory for what is half-made, and the parser of JSON. */
#include "image/make/make.h"

#include "image/make/lines.h"
#include "image/make/process.h"

#include "kern/sys.h"

#include <sodium.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#define SAYS_MAX (1u << 20)
#define PASSWD_MAX (1u << 20)

int image_maker_open(struct image_maker *m, const char *worker, const char *guest, struct err *e)
{
	auto_close int program = open(guest, O_RDONLY | O_CLOEXEC);

	m->work = m->tmp = m->guest = -1;
	m->store.dir = -1;
	m->worker = worker;
	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "cannot start libsodium");
	if (program < 0)
		return err_sys(e, "cannot open %s", guest);
	/* Landlock would refuse to execute a file outside of the helper's root; a memfd is nowhere. */
	m->guest = io_sealed_copy(program, "cloche-guest");
	if (m->guest < 0)
		return err_sys(e, "cannot copy %s", guest);
	if ((m->path ? image_store_open_at(m->path, true, &m->store, e)
		     : image_store_open(&m->store, true, e)) < 0)
		return -1;
	if (m->owner)
		snprintf(m->store.owner, sizeof(m->store.owner), "%s", m->owner);
	m->work = image_work_lock(&m->store, false, e);
	if (m->work < 0)
		return -1;
	m->tmp = image_tmp_make(&m->store, m->tmp_name, e);
	return m->tmp < 0 ? -1 : 0;
}

void image_maker_close(struct image_maker *m)
{
	if (m->tmp >= 0)
		image_tmp_remove(&m->store, m->tmp_name);
	close_fd(&m->tmp);
	close_fd(&m->work);
	close_fd(&m->guest);
	list_done(&m->held);
	list_done(&m->loose);
	image_store_close(&m->store);
}

/* The layers of all images that a name of the owner leads to. */
static void know_held(struct image_maker *m)
{
	struct image_refs refs;
	struct err ignored;

	m->knows_held = true;
	if (image_refs_read(&m->store, &refs, &ignored) < 0)
		return;
	for (size_t i = 0; i < refs.count; i++) {
		struct image image;

		if (!str_equal(refs.items[i].owner, m->store.owner) ||
		    image_open(&m->store, refs.items[i].hex, &image, &ignored) < 0)
			continue;
		for (size_t n = 0; n < image.record.layers.count; n++)
			list_add(&m->held, image.record.layers.items[n]);
		image_done(&image);
	}
	image_refs_done(&refs);
}

bool image_maker_has(struct image_maker *m, const char *hex)
{
	if (!image_has_layer(&m->store, hex))
		return false;
	if (str_equal(m->store.owner, IMAGE_OWNER_ALL))
		return true;
	if (!m->knows_held)
		know_held(m);
	for (size_t i = 0; i < m->held.count; i++)
		if (str_equal(m->held.items[i], hex))
			return true;
	return false;
}

const char *image_architecture(void)
{
	static const char *const names[][2] = {{"x86_64", "amd64"},
					       {"aarch64", "arm64"},
					       {"riscv64", "riscv64"},
					       {"ppc64le", "ppc64le"},
					       {"s390x", "s390x"}};
	struct utsname u;

	if (uname(&u) == 0)
		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			if (str_equal(names[i][0], u.machine))
				return names[i][1];
	return "unknown";
}

void image_hash(const void *bytes, size_t len, char ret[IMAGE_HEX + 1])
{
	unsigned char hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, bytes, len);
	sodium_bin2hex(ret, IMAGE_HEX + 1, hash, sizeof(hash));
}

int image_parse(struct image_maker *m, const char *kind, const struct image_json *json,
		struct buf *ret, struct err *e)
{
	const char *arg = json->arg ? json->arg : image_architecture();
	char *argv[] = {(char *)m->worker, "parse", (char *)kind, (char *)arg, NULL};
	auto_close int in = memfd_create("json", MFD_CLOEXEC);
	auto_free char *says = must_alloc(malloc(SAYS_MAX + 1));
	struct worker w;
	ssize_t n;

	if (in < 0 || io_write_all(in, json->bytes, json->len) < 0 || lseek(in, 0, SEEK_SET) < 0)
		return err_sys(e, "cannot make a file");
	if (worker_start(&w, argv, in, -1, e) < 0)
		return -1;
	n = io_read_all(w.out, says, SAYS_MAX + 1);
	if (n < 0 || n > (ssize_t)SAYS_MAX) {
		worker_stop(&w);
		return err_set(e, ERR_LIMIT, "the image's description is too long");
	}
	if (worker_end(&w, "the image cannot be used", e) < 0)
		return -1;
	buf_add(ret, says, (size_t)n);
	return 0;
}

bool lines_next(const struct buf *says, size_t *at, struct line *ret)
{
	const char *text;

	if (*at >= says->len)
		return false;
	text = buf_head(says) + *at;
	*at += strnlen(text, says->len - *at) + 1;
	*ret = (struct line){0};
	if (*at > says->len)
		return false;
	sscanf(text, "%15s %511s %31s %399s", ret->key, ret->a, ret->b, ret->c);
	return true;
}

int image_config_record(struct image_maker *m, const struct image_json *config,
			struct image_record *ret, struct err *e)
{
	auto_buf struct buf says = {0};

	if (config->len > IMAGE_CONFIG_MAX)
		return err_set(e, ERR_LIMIT, "the image's configuration is larger than 1 MB");
	if (image_parse(m, "config", config, &says, e) < 0)
		return -1;
	return image_record_parse(says.len ? buf_head(&says) : "", says.len, ret, e);
}

/* The content of all layers. */
static uint64_t size_of(struct image_maker *m, const struct image_record *r)
{
	uint64_t total = 0;

	for (size_t i = 0; i < r->layers.count; i++) {
		auto_free char *path = str_format("layers/%s/size", r->layers.items[i]);
		struct err ignored;
		uint64_t size = 0;
		char text[32];

		if (io_read_at(m->store.dir, path, text, sizeof(text)) > 0 &&
		    parse_count(text, &size, &ignored) == 0)
			total += size;
	}
	return total;
}

/* A user by name gets the ids of /etc/passwd, as the uppermost layer with such a file has it. */
static void number_user(struct image_maker *m, struct image_record *r)
{
	for (size_t i = r->layers.count; r->user && i-- > 0;) {
		auto_free char *path = str_format("layers/%s/fs/etc/passwd", r->layers.items[i]);
		auto_close int fd =
			sys_openat2(m->store.dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK,
				    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
		auto_free char *text = NULL;
		auto_buf struct buf says = {0};
		struct err ignored;
		size_t len;

		if (fd < 0 || io_read_whole(fd, PASSWD_MAX, &text, &len) < 0)
			continue;
		if (image_parse(m, "passwd", &(struct image_json){text, len, r->user}, &says,
				&ignored) == 0 &&
		    says.len && str_only(buf_head(&says), STR_DIGITS ":", 1, says.len - 1)) {
			free(r->user);
			r->user = str_copy(buf_head(&says));
		}
		return;
	}
}

int image_make(struct image_maker *m, const struct image_json *config, char hex[IMAGE_HEX + 1],
	       struct err *e)
{
	struct image_record r;
	int rc;

	if (image_config_record(m, config, &r, e) < 0)
		return -1;
	r.size = size_of(m, &r);
	if (r.user && !str_only(r.user, STR_DIGITS ":", 1, 32))
		number_user(m, &r);
	image_hash(config->bytes, config->len, hex);
	rc = image_add(&m->store, hex, &r, config->bytes, config->len, e);
	image_record_done(&r);
	return rc;
}

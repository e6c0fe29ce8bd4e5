/*
 * `cloche export` and `import`: a whole sandbox as one file, from one daemon to another. The file is a head that says
 * which kind of key there is, then an encrypted stream (keys/stream.h) of a description, as JSON behind its length,
 * and the sandbox's files, as the tar of a snapshot. The daemon that imports it checks both like any other client's.
 */
#include "cli/operator/cloched.h"

#include "base/id.h"
#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "cli/verbs/transfer.h"
#include "keys/stream.h"
#include "model/spec.h"

#include <endian.h>
#include <sodium.h>

#define MAGIC "cloche-export-1\n"
#define SALT crypto_pwhash_SALTBYTES
#define KEY_FILE_MAX (64u << 10)
#define KEY_LEAST 32
#define DESCRIPTION_MAX (1u << 20)

enum key_kind { KEY_NONE, KEY_FILE, KEY_PASSPHRASE, KEY_KIND_COUNT };

struct head {
	char magic[sizeof(MAGIC) - 1];
	unsigned char kind;
	unsigned char salt[SALT];
} __attribute__((packed));

static const char *const key_options[KEY_KIND_COUNT] = {NULL, "key-file", "passphrase-file"};

/* ---- keys ---- */

static int derive(enum key_kind kind, const char *text, size_t len, const unsigned char salt[SALT],
		  unsigned char ret[SEALED_KEY], struct err *e)
{
	if (kind != KEY_PASSPHRASE)
		return crypto_generichash(ret, SEALED_KEY, (const unsigned char *)text, len, salt,
					  SALT);
	if (crypto_pwhash(ret, SEALED_KEY, text, len, salt, crypto_pwhash_OPSLIMIT_MODERATE,
			  crypto_pwhash_MEMLIMIT_MODERATE, crypto_pwhash_ALG_ARGON2ID13) < 0)
		return err_set(e, ERR_SYSTEM, "there is not enough memory for the passphrase");
	return 0;
}

/* Which of the options is given; -1: both. */
static int kind_given(const struct verb_call *v, struct err *e)
{
	int kind = KEY_NONE;

	for (int i = KEY_FILE; i < KEY_KIND_COUNT; i++) {
		if (!verb_text(v, key_options[i]))
			continue;
		if (kind != KEY_NONE)
			return err_set(e, ERR_INVALID, "--key-file or --passphrase-file, not both");
		kind = i;
	}
	return kind;
}

/* Without a key the stream still shows what was changed or cut off by accident. */
static int read_key(const struct verb_call *v, const struct head *h, unsigned char ret[SEALED_KEY],
		    struct err *e)
{
	static const char none[] = "an export without a key";
	const char *path = h->kind ? verb_text(v, key_options[h->kind]) : NULL;
	auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char *text = must_alloc(calloc(1, KEY_FILE_MAX + 1));
	ssize_t n = (ssize_t)strlen(none);
	int rc = -1;

	if (path)
		n = fd < 0 ? -1 : io_read_all(fd, text, KEY_FILE_MAX + 1);
	else
		memcpy(text, none, sizeof(none));
	/* A passphrase is a line. */
	while (h->kind == KEY_PASSPHRASE && n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	if (n < 0)
		err_sys(e, "cannot read %s", path);
	else if (n > (ssize_t)KEY_FILE_MAX)
		err_set(e, ERR_INVALID, "%s is larger than a key", path);
	else if (n == 0 || (h->kind == KEY_FILE && n < KEY_LEAST))
		err_set(e, ERR_INVALID,
			"%s is too short for a key; `openssl rand -hex 32` makes one", path);
	else
		rc = derive(h->kind, text, (size_t)n, h->salt, ret, e);
	explicit_bzero(text, KEY_FILE_MAX + 1);
	free(text);
	return rc;
}

/* ---- the description ---- */

/* What of a sandbox's description is given again to POST /v1/sandboxes. */
static const char *const settings[] = {"name",	      "metadata",  "image",
				       "root",	      "disk_type", "on_timeout",
				       "auto_resume", "services",  "idle_timeout"};

static bool says_nothing(const char *key, const json_t *value)
{
	return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
	       (json_is_string(value) && !*json_string_value(value)) ||
	       (str_equal(key, "image") && str_equal(json_string_value(value), "host")) ||
	       (json_is_number(value) && json_number_value(value) == 0);
}

static json_t *describe(const json_t *box)
{
	json_t *create = json_object(), *value;
	const char *key;

	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		value = json_object_get(box, settings[i]);
		if (value && !says_nothing(settings[i], value))
			json_object_set(create, settings[i], value);
	}
	json_object_foreach (json_object_get(box, "limits"), key, value)
		if (!says_nothing(key, value))
			json_object_set(create, key, value);
	return json_pack("{s:s, s:O, s:o*, s:o}", "cloche", CLOCHE_VERSION, "id",
			 json_object_get(box, "id"), "image_id",
			 json_incref(json_object_get(box, "image_id")), "create", create);
}

static int put_description(struct sealed *s, const json_t *d, struct err *e)
{
	auto_free char *text = json_dumps(d, JSON_COMPACT);
	uint32_t len = htole32((uint32_t)strlen(must_alloc(text)));

	if (strlen(text) > DESCRIPTION_MAX)
		return err_set(e, ERR_LIMIT, "the sandbox's description is too long");
	return sealed_write(s, &len, sizeof(len), e) < 0 ||
			       sealed_write(s, text, strlen(text), e) < 0
		       ? -1
		       : 0;
}

static int read_exactly(struct sealed *s, void *ret, size_t len, struct err *e)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = sealed_read(s, (char *)ret + at, len - at, e);

		if (n < 0)
			return -1;
		if (n == 0)
			return err_set(e, ERR_INVALID, "it has no description of a sandbox");
		at += (size_t)n;
	}
	return 0;
}

static json_t *get_description(struct sealed *s, struct err *e)
{
	auto_free char *text = NULL;
	json_t *d;
	uint32_t len;

	if (read_exactly(s, &len, sizeof(len), e) < 0)
		return NULL;
	len = le32toh(len);
	if (len > DESCRIPTION_MAX) {
		err_set(e, ERR_INVALID, "its description is too long");
		return NULL;
	}
	text = must_alloc(malloc(len + 1));
	if (read_exactly(s, text, len, e) < 0)
		return NULL;
	d = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(d) && json_is_object(json_object_get(d, "create")))
		return d;
	json_decref(d);
	err_set(e, ERR_INVALID, "its description is none of a sandbox");
	return NULL;
}

/* ---- export ---- */

static int write_stream(void *arg, const void *bytes, size_t len, struct err *e)
{
	return sealed_write(arg, bytes, len, e);
}

static int write_export(struct verb_call *v, int fd, const json_t *box, const char *snapshot,
			struct err *e)
{
	auto_free char *path = str_format("/v1/snapshots/%s/tar", snapshot);
	struct client_transfer t = {.client = &v->client, .path = path, .write = write_stream};
	int kind = kind_given(v, e), rc = -1;
	struct head h = {.kind = (unsigned char)kind};
	unsigned char key[SEALED_KEY];
	json_auto_t *d = describe(box);
	struct sealed *s;

	memcpy(h.magic, MAGIC, sizeof(h.magic));
	randombytes_buf(h.salt, sizeof(h.salt));
	if (kind < 0 || read_key(v, &h, key, e) < 0)
		return -1;
	if (io_write_all(fd, &h, sizeof(h)) < 0)
		return err_sys(e, "cannot write");
	t.arg = s = sealed_begin(fd, key, &h, sizeof(h), e);
	explicit_bzero(key, sizeof(key));
	if (s && put_description(s, d, e) == 0 && transfer_get(&t, fd, "the export", e) == 0)
		rc = sealed_end(s, e);
	sealed_free(s);
	return rc;
}

/* A file is whole or not there. */
static int export_to(struct verb_call *v, const char *file, const json_t *box, const char *snapshot,
		     struct err *e)
{
	auto_free char *part = str_format("%s.part-%d", file, (int)getpid());
	auto_close int fd = -1;
	struct stat st;

	/* The file is renamed over what is there. */
	if (!str_equal(file, "-") && stat(file, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID,
			       "%s is no regular file; `-` writes to standard output", file);
	if (str_equal(file, "-"))
		return write_export(v, STDOUT_FILENO, box, snapshot, e);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, "cannot write %s", part);
	if (write_export(v, fd, box, snapshot, e) == 0) {
		if (fsync(fd) == 0 && rename(part, file) == 0)
			return 0;
		err_sys(e, "cannot write %s", file);
	}
	unlink(part);
	return -1;
}

static void drop_snapshot(struct verb_call *v, const char *id)
{
	auto_free char *path = str_format("/v1/snapshots/%s", id);
	struct err ignored;

	(void)client_call(&v->client, "DELETE", path, NULL, NULL, &ignored);
}

static int export_verb(struct verb_call *v, struct err *e)
{
	const char *file = v->args[1] ? v->args[1] : "-", *id;
	json_auto_t *box = NULL, *made = NULL;
	int rc;

	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "cannot use libsodium");
	if (str_equal(file, "-") && isatty(STDOUT_FILENO))
		return err_set(e, ERR_INVALID,
			       "stdout is a terminal; name a file, or send it through a pipe");
	if (kind_given(v, e) < 0 || client_ask(&v->client, "GET ", v->args[0], NULL, &box, e) < 0 ||
	    client_ask(&v->client, "POST /snapshot", v->args[0],
		       json_pack("{s:s}", "name", "export"), &made, e) < 0)
		return -1;
	id = json_string_value(json_object_get(made, "id"));
	if (!id)
		return err_set(e, ERR_SYSTEM, "the daemon's answer names no snapshot");
	rc = export_to(v, file, box, id, e);
	drop_snapshot(v, id);
	return rc;
}

/* ---- import ---- */

/* The same image must be there under its name; what another one has below its files is not known. */
static int check_image(struct verb_call *v, const json_t *d, struct err *e)
{
	const char *wanted = json_string_value(json_object_get(d, "image_id"));
	const char *name =
		json_string_value(json_object_get(json_object_get(d, "create"), "image"));
	json_auto_t *image = NULL;
	char encoded[1024];

	if (!wanted || !name || !str_starts(wanted, "sha256:"))
		return 0;
	http_encode(encoded, sizeof(encoded), name, false);
	auto_free char *path = str_format("/v1/images/inspect?image=%s", encoded);

	if (client_call(&v->client, "GET", path, NULL, &image, e) < 0)
		return err_wrap(e, "image %s", name);
	if (str_equal(json_string_value(json_object_get(image, "id")), wanted))
		return 0;
	return err_set(e, ERR_CONFLICT,
		       "image %s is another one here; import the one that the sandbox had (%s)",
		       name, wanted);
}

static int check_settings(json_t *create, struct err *e)
{
	const char *key;
	json_t *value;

	json_object_foreach (create, key, value) {
		const struct field *f = spec_field_find(key);

		if (!cli_is_one_of(key, settings, ARRAY_LEN(settings)) &&
		    !(f && spec_field_is_limit(f)))
			return err_set(e, ERR_INVALID,
				       "its description has '%.60s', which is no "
				       "setting that an export has",
				       key);
	}
	return 0;
}

static ssize_t read_stream(void *arg, void *bytes, size_t size, struct err *e)
{
	return sealed_read(arg, bytes, size, e);
}

static int create_from(struct verb_call *v, json_t *create, const char *snapshot, json_t **ret,
		       struct err *e)
{
	static const char *const texts[] = {"name", "ttl"};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (verb_text(v, texts[i]) &&
		    client_put(create, texts[i], client_text(verb_text(v, texts[i])), e) < 0)
			return -1;
	/* Whoever wrote the file gets no network by the trust of whoever imports it. */
	if (client_put(create, "snapshot", json_string(snapshot), e) < 0 ||
	    client_put(create, "net", json_string("none"), e) < 0)
		return -1;
	return client_call(&v->client, "POST", "/v1/sandboxes", json_incref(create), ret, e);
}

/* The tar is kept only if all of it was as it was written; then it becomes a sandbox. */
static int import_stream(struct verb_call *v, struct sealed *s, json_t **ret, struct err *e)
{
	json_auto_t *d = get_description(s, e);
	json_t *create = json_object_get(d, "create");
	struct client_transfer t = {.client = &v->client, .read = read_stream, .arg = s};
	const char *id;
	int rc;

	if (!d || check_settings(create, e) < 0 || check_image(v, d, e) < 0)
		return -1;
	t.path = "/v1/snapshots/import/tar";
	if (transfer_put(&t, -1, e) < 0)
		return -1;
	id = json_string_value(json_object_get(t.answer, "id"));
	rc = id ? create_from(v, create, id, ret, e)
		: err_set(e, ERR_SYSTEM, "the daemon's answer names no snapshot");
	if (id)
		drop_snapshot(v, id);
	json_decref(t.answer);
	return rc;
}

static int check_head(const struct verb_call *v, const struct head *h, struct err *e)
{
	int given = kind_given(v, e);

	if (given < 0)
		return -1;
	if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0 || h->kind >= KEY_KIND_COUNT)
		return err_set(e, ERR_INVALID, "it is not an export of cloche");
	if (given == (int)h->kind)
		return 0;
	if (h->kind == KEY_NONE)
		return err_set(
			e, ERR_DENIED,
			"it has no key: anybody may have made or changed it. Without --%s it "
			"is imported all the same",
			key_options[given]);
	return err_set(e, ERR_INVALID, "it is encrypted: it needs --%s", key_options[h->kind]);
}

static int import_verb(struct verb_call *v, struct err *e)
{
	const char *file = v->args[0] ? v->args[0] : "-";
	auto_close int fd = str_equal(file, "-") ? dup(STDIN_FILENO)
						 : open(file, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	unsigned char key[SEALED_KEY];
	struct sealed *s = NULL;
	struct head h = {.kind = 0};
	json_t *made = NULL;
	int rc = -1;

	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "cannot use libsodium");
	if (fd < 0)
		return err_sys(e, "%s: cannot open", file);
	if (isatty(fd))
		return err_set(e, ERR_INVALID, "an export does not come from a terminal");
	if (io_read_all(fd, (char *)&h, sizeof(h)) < 0)
		return err_sys(e, "%s: cannot read", file);
	if (check_head(v, &h, e) == 0 && read_key(v, &h, key, e) == 0)
		s = sealed_open(fd, key, &h, sizeof(h), e);
	explicit_bzero(key, sizeof(key));
	if (s)
		rc = import_stream(v, s, &made, e);
	sealed_free(s);
	return rc < 0 ? err_wrap(e, "%s", file) : verb_show_id(v, made);
}

/* ---- the verbs ---- */

#define KEY_OPTIONS                                                                                \
	{"key-file", 0, "FILE", "encrypt with what is in this file, at least 32 bytes", NULL},     \
	{                                                                                          \
		"passphrase-file", 0, "FILE", "the same with the passphrase in this file", NULL    \
	}

static const struct verb_option export_options[] = {KEY_OPTIONS};
static const struct verb_option import_options[] = {
	KEY_OPTIONS,
	{"name", 0, "NAME", "of the new sandbox (its old one)", NULL},
	{"ttl", 0, "TIME", "the new sandbox ends after so long (300s)", NULL},
	{"json", 0, NULL, "print the whole object, not just the id", NULL},
};

const struct verb verb_export = {
	.line = "cloche export [--key-file FILE | --passphrase-file FILE] ID [FILE|-]",
	.about = "Writes a sandbox's files and settings to a file, for `cloche import` at any "
		 "daemon. "
		 "Processes,\nvolumes, variables, network and the values of secrets are not in it.",
	.run = export_verb,
	OPTIONS(export_options),
	ARGS(1, 2),
};

const struct verb verb_import = {
	.line = "cloche import [OPTIONS] [FILE|-]",
	.about =
		"Makes a sandbox of what `cloche export` has written, and prints its id. It has no "
		"network.\nWhat was changed, is cut off or has another key leaves nothing.",
	.run = import_verb,
	OPTIONS(import_options),
	ARGS(0, 1),
};

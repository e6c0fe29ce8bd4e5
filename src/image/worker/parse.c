/* Parses manifests, configurations and indexes of images; they are JSON of strangers. */
#include "image/worker/worker.h"

#include "image/reference.h"
#include "image/worker/internal.h"

#include <jansson.h>

#define INPUT_MAX (4u << 20)
#define CHILDREN 64 /* of an index; images of an archive */
#define VALUES 1024

static int say(const char *what)
{
	fprintf(stderr, "%s\n", what);
	return 1;
}

/* A value with a control character is no name, path or variable that anybody needs. */
static void put(FILE *to, const char *key, const char *value)
{
	if (value)
		fprintf(to, "%s %s%c", key, value, 0);
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void put_each(FILE *to, const char *key, const json_t *array)
{
	size_t i;
	json_t *item;

	json_array_foreach (array, i, item)
		if (i < VALUES)
			put(to, key, json_string_value(item));
}

/* ---- manifests ---- */

static bool is_platform(const json_t *entry, const char *arch)
{
	const json_t *platform = json_object_get(entry, "platform");
	const char *os = text_of(platform, "os"), *architecture = text_of(platform, "architecture");

	return !platform ||
	       (os && architecture && str_equal(os, "linux") && str_equal(architecture, arch));
}

static bool put_blob(FILE *to, const char *key, const json_t *blob, const char *rest)
{
	const char *digest = text_of(blob, "digest");
	json_int_t size = json_integer_value(json_object_get(blob, "size"));

	if (!digest || !image_is_digest(digest) || size < 0)
		return false;
	fprintf(to, "%s %s %lld %s%c", key, digest, (long long)size, rest && *rest ? rest : "-", 0);
	return true;
}

static int put_index(const json_t *entries, const char *arch, FILE *to)
{
	size_t i, found = 0;
	json_t *entry;

	json_array_foreach (entries, i, entry) {
		const json_t *notes = json_object_get(entry, "annotations");
		const char *name = text_of(notes, "io.containerd.image.name");

		if (!name)
			name = text_of(notes, "org.opencontainers.image.ref.name");
		if (is_platform(entry, arch) && found < CHILDREN &&
		    put_blob(to, "child", entry, name))
			found++;
	}
	return found ? 0 : say("the image is not there for this platform");
}

static int put_manifest(const json_t *root, const char *arch, FILE *to)
{
	const json_t *layers = json_object_get(root, "layers");
	size_t i;
	json_t *layer;

	if (json_array_size(json_object_get(root, "manifests")))
		return put_index(json_object_get(root, "manifests"), arch, to);
	if (!json_is_array(layers) || json_array_size(layers) > VALUES)
		return say("the manifest is of an unknown kind (only OCI's and Docker's version 2 "
			   "are known)");
	if (!put_blob(to, "config", json_object_get(root, "config"), NULL))
		return say("the manifest is malformed");
	json_array_foreach (layers, i, layer) {
		if (!put_blob(to, "layer", layer, text_of(layer, "mediaType")))
			return say("the manifest is malformed");
	}
	return 0;
}

static int put_docker(const json_t *root, const char *arch, FILE *to)
{
	size_t i;
	json_t *image;

	json_array_foreach (root, i, image) {
		if (i == CHILDREN)
			break;
		put(to, "image", "-");
		put(to, "config", text_of(image, "Config"));
		put_each(to, "tag", json_object_get(image, "RepoTags"));
		put_each(to, "layer", json_object_get(image, "Layers"));
	}
	return json_array_size(root) ? 0 : say("the archive has no image");
}

/* ---- configurations ---- */

static void put_variables(const json_t *array, FILE *to)
{
	size_t i;
	json_t *item;

	json_array_foreach (array, i, item) {
		const char *pair = json_string_value(item);

		if (i < VALUES && pair && strchr(pair, '=') && *pair != '=')
			put(to, "env", pair);
	}
}

static int put_config(const json_t *root, const char *arch, FILE *to)
{
	const json_t *config = json_object_get(root, "config");
	const json_t *layers = json_object_get(json_object_get(root, "rootfs"), "diff_ids");
	const char *dir = text_of(config, "WorkingDir"), *user = text_of(config, "User");
	const char *os = text_of(root, "os"), *architecture = text_of(root, "architecture");
	size_t i;
	json_t *layer;

	if (!os || !architecture || !json_is_array(layers))
		return say("the image's configuration is malformed");
	if (!str_equal(os, "linux") || !str_equal(architecture, arch))
		return say("the image is for another platform");
	json_array_foreach (layers, i, layer) {
		const char *digest = json_string_value(layer);

		if (!digest || !image_is_digest(digest))
			return say("the image's configuration is malformed");
		put(to, "layer", digest + strlen("sha256:"));
	}
	put_variables(json_object_get(config, "Env"), to);
	put_each(to, "entrypoint", json_object_get(config, "Entrypoint"));
	put_each(to, "cmd", json_object_get(config, "Cmd"));
	if (dir && *dir)
		fprintf(to, "workdir %s%s%c", *dir == '/' ? "" : "/", dir, 0);
	put(to, "user", user && *user ? user : NULL);
	fprintf(to, "platform %s/%s%c", os, architecture, 0);
	put(to, "created", text_of(root, "created"));
	return 0;
}

/* ---- for people ---- */

/* ASCII only, so that nothing steers a terminal. */
static int show(const json_t *root, const char *arch, FILE *to)
{
	if (json_dumpf(root, to, JSON_INDENT(2) | JSON_ENSURE_ASCII) < 0)
		return say("it cannot be shown");
	fputc('\n', to);
	return 0;
}

static int show_history(const json_t *root, const char *arch, FILE *to)
{
	size_t i;
	json_t *row;

	json_array_foreach (json_object_get(root, "history"), i, row) {
		const char *by = text_of(row, "created_by"), *at = text_of(row, "created");
		bool empty = json_is_true(json_object_get(row, "empty_layer"));
		char shown[400], when[40];

		str_sanitise(shown, sizeof(shown), by ? by : "", by ? strlen(by) : 0);
		str_sanitise(when, sizeof(when), at ? at : "-", at ? strlen(at) : 1);
		fprintf(to, "%-20.20s  %s  %s\n", when, empty ? "     " : "layer", shown);
	}
	return 0;
}

char *worker_token(const struct buf *answer)
{
	json_t *root = json_loadb(answer->len ? buf_head(answer) : "", answer->len, 0, NULL);
	const char *token = text_of(root, "token");
	char *copy;

	if (!token)
		token = text_of(root, "access_token");
	/* It becomes a header. */
	copy = token && str_is_printable(token) ? str_copy(token) : NULL;
	json_decref(root);
	return copy;
}

/* The line of a user in /etc/passwd: UID:GID. user: NAME or NAME:GROUP, whose group counts if it is a number. */
static int put_ids(const char *text, size_t len, const char *user, FILE *to)
{
	size_t name = strcspn(user, ":");
	const char *group =
		user[name] && str_only(user + name + 1, STR_DIGITS, 1, 5) ? user + name + 1 : NULL;

	for (const char *at = text, *end = text + len; at < end;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t line = (size_t)((newline ? newline : end) - at);
		auto_free char *copy = must_alloc(strndup(at, line));
		unsigned uid, gid;

		if (line > name && at[name] == ':' && strncmp(at, user, name) == 0 &&
		    sscanf(copy + name, ":%*[^:]:%5u:%5u:", &uid, &gid) == 2) {
			if (group)
				fprintf(to, "%u:%s%c", uid, group, 0);
			else
				fprintf(to, "%u:%u%c", uid, gid, 0);
			return 0;
		}
		at += line + 1;
	}
	return say("there is no such user");
}

int worker_parse_text(const char *kind, const char *arch, const char *text, size_t len, FILE *to)
{
	static const struct {
		const char *name;
		int (*put)(const json_t *root, const char *arch, FILE *to);
	} kinds[] = {{"manifest", put_manifest},
		     {"docker", put_docker},
		     {"config", put_config},
		     {"show", show},
		     {"history", show_history}};
	json_t *root;
	int rc = 125;

	if (str_equal(kind, "passwd"))
		return put_ids(text, len, arch, to);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);

	if (!root)
		return say("it is no JSON");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (str_equal(kinds[i].name, kind))
			rc = kinds[i].put(root, arch, to);
	json_decref(root);
	return rc;
}

int worker_parse(const char *kind, const char *arch)
{
	char *text = must_alloc(malloc(INPUT_MAX + 1));
	ssize_t len = io_read_all(0, text, INPUT_MAX + 1);
	int rc;

	if (len < 0 || len > (ssize_t)INPUT_MAX)
		return say("it is larger than 4 MB");
	rc = worker_parse_text(kind, arch, text, (size_t)len, stdout);
	free(text);
	return fflush(stdout) == 0 ? rc : say("it cannot be written");
}

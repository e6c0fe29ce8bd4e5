/* Parses manifests, configurations and indexes of images; they are JSON of strangers. */
#include "image/worker/worker.h"

#include "image/image.h"
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

static int put_record(const json_t *root, const char *arch, FILE *to)
{
	static const struct {
		const char *key, *label;
	} labels[] = {{"template", IMAGE_LABEL_TEMPLATE},
		      {"start", IMAGE_LABEL_START},
		      {"ready", IMAGE_LABEL_READY},
		      {"cpus", IMAGE_LABEL_CPUS},
		      {"memory", IMAGE_LABEL_MEMORY}};
	const json_t *own = json_object_get(json_object_get(root, "config"), "Labels");

	if (put_config(root, arch, to) != 0)
		return 1;
	for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
		const char *text = text_of(own, labels[i].label);

		if (text && strlen(text) <= IMAGE_LABEL_MAX)
			put(to, labels[i].key, text);
	}
	return 0;
}

/* ---- for builders: all that is inherited by an image that is made from this one ---- */

static void put_names(FILE *to, const char *key, json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach (object, name, value) {
		const char *text = json_string_value(value);

		if (text)
			fprintf(to, "%s %s=%s%c", key, name, text, 0);
		else
			put(to, key, name);
	}
}

static void put_json(FILE *to, const char *key, const json_t *value)
{
	char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	put(to, key, text);
	free(text);
}

static int put_build(const json_t *root, const char *arch, FILE *to)
{
	const json_t *config = json_object_get(root, "config");
	size_t i;
	json_t *row;

	if (put_config(root, arch, to) != 0)
		return 1;
	put_names(to, "label", json_object_get(config, "Labels"));
	put_names(to, "port", json_object_get(config, "ExposedPorts"));
	put_names(to, "volume", json_object_get(config, "Volumes"));
	put_each(to, "shell", json_object_get(config, "Shell"));
	put_each(to, "onbuild", json_object_get(config, "OnBuild"));
	put(to, "stopsignal", text_of(config, "StopSignal"));
	put_json(to, "health", json_object_get(config, "Healthcheck"));
	json_array_foreach (json_object_get(root, "history"), i, row)
		if (i < VALUES)
			put_json(to, "history", row);
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

#define FIELDS 7 /* of a line in /etc/passwd; one in /etc/group has 4 */

/* Does the line begin with this name, or has it this number? */
static bool is_line_of(char *const *fields, size_t count, const char *name, size_t len)
{
	bool is_number = strspn(name, STR_DIGITS) == len;
	const char *field = is_number ? fields[2] : fields[0];

	return count >= 4 && strlen(field) == len && memcmp(field, name, len) == 0;
}

/* Splits the text's next line at the colons; false at the end. */
static bool next_fields(char **text, char *fields[FIELDS], size_t *ret_count)
{
	char *line = strsep(text, "\n");

	for (*ret_count = 0; line && *ret_count < FIELDS;)
		fields[(*ret_count)++] = strsep(&line, ":");
	return *ret_count > 0;
}

static bool is_id(const char *s)
{
	return str_only(s, STR_DIGITS, 1, 5);
}

/*
 * The ids of a user by /etc/passwd, "UID:GID", and its home. user: NAME or NAME:GROUP, whose group counts if it is a
 * number.
 */
static int put_ids(char *text, const char *user, FILE *to)
{
	size_t name = strcspn(user, ":"), count;
	const char *group = user[name] && is_id(user + name + 1) ? user + name + 1 : NULL;
	char *fields[FIELDS];

	while (next_fields(&text, fields, &count)) {
		if (!is_line_of(fields, count, user, name) || !is_id(fields[2]) ||
		    !is_id(fields[3]))
			continue;
		fprintf(to, "%s:%s%c", fields[2], group ? group : fields[3], 0);
		if (count > 5 && fields[5][0] == '/' && str_is_printable(fields[5]))
			fprintf(to, "%.255s%c", fields[5], 0);
		return 0;
	}
	return say("there is no such user");
}

static int put_group(char *text, const char *group, FILE *to)
{
	char *fields[FIELDS];
	size_t count;

	while (next_fields(&text, fields, &count))
		if (is_line_of(fields, count, group, strlen(group)) && is_id(fields[2])) {
			fprintf(to, "%s%c", fields[2], 0);
			return 0;
		}
	return say("there is no such group");
}

/* The text ends with a NUL. */
static int put_account(const char *kind, const char *name, const char *text, size_t len, FILE *to)
{
	auto_free char *copy = must_alloc(strndup(text, len));

	return str_equal(kind, "group") ? put_group(copy, name, to) : put_ids(copy, name, to);
}

int worker_parse_text(const char *kind, const char *arch, const char *text, size_t len, FILE *to)
{
	static const struct {
		const char *name;
		int (*put)(const json_t *root, const char *arch, FILE *to);
	} kinds[] = {{"manifest", put_manifest}, {"docker", put_docker}, {"config", put_record},
		     {"build", put_build},	 {"show", show},	 {"history", show_history}};
	json_t *root;
	int rc = 125;

	if (str_equal(kind, "passwd") || str_equal(kind, "group"))
		return put_account(kind, arch, text, len, to);
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

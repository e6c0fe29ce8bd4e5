/* What an image inherits comes as lines from cloche-image parse; what is written follows OCI's image-spec, config.md. */
#include "image/build/config.h"

#include "base/jsonw.h"

#define VALUES_MAX 2000

static const struct key {
	const char *name;
	bool is_list;
	size_t offset;
} keys[] = {
#define LIST(member)                                                                               \
	{                                                                                          \
#member, true, offsetof(struct build_config, member)                               \
	}
#define TEXT(member)                                                                               \
	{                                                                                          \
#member, false, offsetof(struct build_config, member)                              \
	}
	{"layer", true, offsetof(struct build_config, layers)},
	LIST(env),
	LIST(entrypoint),
	LIST(cmd),
	LIST(label),
	LIST(port),
	LIST(volume),
	LIST(shell),
	LIST(onbuild),
	LIST(history),
	TEXT(workdir),
	TEXT(user),
	TEXT(platform),
	TEXT(created),
	TEXT(stopsignal),
	TEXT(health),
#undef LIST
#undef TEXT
};

static struct list *list_at(struct build_config *c, const struct key *k)
{
	return (struct list *)((char *)c + k->offset);
}

static char **text_at(struct build_config *c, const struct key *k)
{
	return (char **)((char *)c + k->offset);
}

void build_config_done(struct build_config *c)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (keys[i].is_list)
			list_done(list_at(c, &keys[i]));
		else
			free(*text_at(c, &keys[i]));
	*c = (struct build_config){0};
}

void build_config_copy(const struct build_config *from, struct build_config *ret)
{
	struct build_config copy = {0};

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		struct build_config *source = (struct build_config *)from;

		if (!keys[i].is_list)
			build_config_put(text_at(&copy, &keys[i]), *text_at(source, &keys[i]));
		else if (list_at(source, &keys[i])->count)
			list_add_all(list_at(&copy, &keys[i]),
				     (const char *const *)list_at(source, &keys[i])->items);
	}
	*ret = copy;
}

void build_config_put(char **member, const char *text)
{
	char *copy = text ? str_copy(text) : NULL;

	free(*member);
	*member = copy;
}

void build_config_set(struct list *pairs, const char *pair)
{
	size_t len = strcspn(pair, "=");

	for (size_t i = 0; i < pairs->count; i++)
		if (strncmp(pairs->items[i], pair, len) == 0 && pairs->items[i][len] == '=') {
			build_config_put(&pairs->items[i], pair);
			return;
		}
	list_add(pairs, pair);
}

static int take_line(struct build_config *c, const char *line, struct err *e)
{
	size_t len = strcspn(line, " ");

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (strlen(keys[i].name) != len || memcmp(keys[i].name, line, len) != 0 ||
		    !line[len])
			continue;
		if (!keys[i].is_list)
			build_config_put(text_at(c, &keys[i]), line + len + 1);
		else if (list_at(c, &keys[i])->count == VALUES_MAX)
			break;
		else
			list_add(list_at(c, &keys[i]), line + len + 1);
		return 0;
	}
	return err_set(e, ERR_INVALID, "the image's configuration cannot be used");
}

int build_config_read(struct image_maker *m, const char *hex, struct build_config *ret,
		      struct err *e)
{
	auto_free char *path = str_format("configs/%s", hex), *text = NULL;
	auto_close int fd = openat(m->store.dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_buf struct buf says = {0};
	struct build_config c = {0};
	size_t len;

	if (fd < 0 || io_read_whole(fd, IMAGE_CONFIG_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read %s", path);
	if (image_parse(m, "build", &(struct image_json){text, len, NULL}, &says, e) < 0)
		return -1;
	buf_add(&says, "", 1);
	for (const char *line = buf_head(&says); *line; line += strlen(line) + 1)
		if (take_line(&c, line, e) < 0) {
			build_config_done(&c);
			return -1;
		}
	for (size_t i = 0; i < c.layers.count; i++)
		if (!image_is_hex(c.layers.items[i])) {
			build_config_done(&c);
			return err_set(e, ERR_INVALID, "the image's configuration cannot be used");
		}
	*ret = c;
	return 0;
}

void build_config_history(struct build_config *c, const char *by, bool is_empty)
{
	auto_buf struct buf row = {0};
	struct jsonw j;

	jsonw_begin_buf(&j, &row);
	jsonw_open(&j, NULL, '{');
	jsonw_string(&j, "created", c->created);
	jsonw_string(&j, "created_by", by);
	if (is_empty)
		jsonw_bool(&j, "empty_layer", true);
	jsonw_close(&j, '}');
	jsonw_finish(&j);
	buf_add(&row, "", 1);
	list_add(&c->history, buf_head(&row));
}

/* ---- writing ---- */

static void put_list(struct jsonw *j, const char *key, const struct list *l)
{
	if (l->count == 0)
		return;
	jsonw_open(j, key, '[');
	for (size_t i = 0; i < l->count; i++)
		jsonw_string(j, NULL, l->items[i]);
	jsonw_close(j, ']');
}

static void put_text(struct jsonw *j, const char *key, const char *text)
{
	if (text)
		jsonw_string(j, key, text);
}

/* {"8080/tcp": {}} */
static void put_set(struct jsonw *j, const char *key, const struct list *l)
{
	if (l->count == 0)
		return;
	jsonw_open(j, key, '{');
	for (size_t i = 0; i < l->count; i++) {
		jsonw_open(j, l->items[i], '{');
		jsonw_close(j, '}');
	}
	jsonw_close(j, '}');
}

static void put_labels(struct jsonw *j, const struct list *l)
{
	if (l->count == 0)
		return;
	jsonw_open(j, "Labels", '{');
	for (size_t i = 0; i < l->count; i++) {
		auto_free char *name = str_copy(l->items[i]);
		size_t len = strcspn(name, "=");

		if (!name[len])
			continue;
		name[len] = '\0';
		jsonw_string(j, name, name + len + 1);
	}
	jsonw_close(j, '}');
}

/* JSON that was parsed and written by cloche-image, or written here. */
static void put_raw(struct jsonw *j, const char *key, const char *json)
{
	/* A value of its own, so that the writer puts the comma. */
	jsonw_open(j, key, '{');
	jsonw_raw(j, json + 1, strlen(json) - 2);
	jsonw_close(j, '}');
}

static void put_config(struct jsonw *j, const struct build_config *c)
{
	jsonw_open(j, "config", '{');
	put_text(j, "User", c->user);
	put_set(j, "ExposedPorts", &c->port);
	put_list(j, "Env", &c->env);
	put_list(j, "Entrypoint", &c->entrypoint);
	put_list(j, "Cmd", &c->cmd);
	put_set(j, "Volumes", &c->volume);
	put_text(j, "WorkingDir", c->workdir);
	put_labels(j, &c->label);
	put_list(j, "OnBuild", &c->onbuild);
	put_text(j, "StopSignal", c->stopsignal);
	put_list(j, "Shell", &c->shell);
	if (c->health)
		put_raw(j, "Healthcheck", c->health);
	jsonw_close(j, '}');
}

static void put_layers(struct jsonw *j, const struct build_config *c)
{
	jsonw_open(j, "rootfs", '{');
	jsonw_string(j, "type", "layers");
	jsonw_open(j, "diff_ids", '[');
	for (size_t i = 0; i < c->layers.count; i++) {
		auto_free char *digest = str_format("sha256:%s", c->layers.items[i]);

		jsonw_string(j, NULL, digest);
	}
	jsonw_close(j, ']');
	jsonw_close(j, '}');
}

int build_config_make(struct image_maker *m, const struct build_config *c, char hex[IMAGE_HEX + 1],
		      struct err *e)
{
	auto_buf struct buf text = {0};
	struct jsonw j;

	jsonw_begin_buf(&j, &text);
	jsonw_open(&j, NULL, '{');
	jsonw_string(&j, "architecture", image_architecture());
	jsonw_string(&j, "os", "linux");
	put_text(&j, "created", c->created);
	put_config(&j, c);
	put_layers(&j, c);
	jsonw_open(&j, "history", '[');
	for (size_t i = 0; i < c->history.count; i++)
		put_raw(&j, NULL, c->history.items[i]);
	jsonw_close(&j, ']');
	jsonw_close(&j, '}');
	jsonw_finish(&j);
	return image_make(m, &(struct image_json){buf_head(&text), text.len, NULL}, hex, e);
}

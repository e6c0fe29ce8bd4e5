/*
 * `cloche token`: API keys. They are created here and not over the API: the daemon only reads the
 * file, which has their hashes.
 */
#include "cli/operator/cloched.h"

#include "auth/tokens.h"
#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "policy/config.h"

#include <sys/file.h>

#define FILE_MAX ((size_t)8 << 20)

/* ---- the file ---- */

struct token_file {
	char path[CONFIG_PATH + 32];
	int lock;
	struct buf text;
};

static int make_dirs(const char *path, struct err *e)
{
	auto_free char *copy = str_copy(path);

	for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			return err_sys(e, "cannot make %s", copy);
		*p = '/';
	}
	if (mkdir(copy, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "cannot make %s", copy);
	return 0;
}

static int read_token_text(struct token_file *s, struct err *e)
{
	auto_close int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_free char *text = NULL;
	size_t len;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot read %s", s->path);
	if (io_read_whole(fd, FILE_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read %s", s->path);
	buf_add(&s->text, text, len);
	return 0;
}

/* The lock keeps two writers from losing each other's token. */
static int token_file_open(struct token_file *s, struct err *e)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));
	auto_free char *lock = NULL;

	*s = (struct token_file){.lock = -1};
	if (client_config(c, NULL, e) < 0)
		return -1;
	config_token_path(c, s->path, sizeof(s->path));
	if (make_dirs(c->state_dir, e) < 0)
		return -1;
	lock = str_format("%s.lock", s->path);
	s->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock < 0 || flock(s->lock, LOCK_EX) < 0)
		return err_sys(e, "cannot lock %s", lock);
	return read_token_text(s, e);
}

static void token_file_close(struct token_file *s)
{
	close_fd(&s->lock);
	buf_done(&s->text);
}

/* The daemon reads either the old file or the new one, never half of it. */
static int token_file_write(const struct token_file *s, const struct buf *text, struct err *e)
{
	auto_free char *fresh = str_format("%s.new", s->path);
	auto_close int fd =
		open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(e, "cannot write %s", fresh);
	if (io_write_all(fd, buf_head(text), text->len) < 0 || fsync(fd) < 0 ||
	    rename(fresh, s->path) < 0) {
		err_sys(e, "cannot write %s", s->path);
		unlink(fresh);
		return -1;
	}
	return 0;
}

static int load_all(const struct token_file *s, struct tokens **ret, struct err *e)
{
	struct tokens *t = tokens_new();

	if (tokens_load(t, s->text.len ? buf_head(&s->text) : "", s->text.len, e) < 0) {
		tokens_free(t);
		return err_wrap(e, "%s", s->path);
	}
	*ret = t;
	return 0;
}

/* ---- create ---- */

/* "30d", "12h" or "never" as unix seconds. */
static int parse_expiry(const char *text, char *ret, size_t size, struct err *e)
{
	size_t len = strlen(text);
	uint64_t ms = 0, days;
	auto_free char *number = NULL;

	if (str_equal(text, "never")) {
		snprintf(ret, size, "0");
		return 0;
	}
	if (len > 1 && text[len - 1] == 'd') {
		number = str_format("%.*s", (int)len - 1, text);
		if (parse_count(number, &days, e) < 0 || days > 36500)
			return err_field(e, ERR_INVALID, "expires",
					 "expires: '%s' is not a time; try 30d, 12h or never",
					 text);
		ms = days * 86400000;
	} else if (parse_time(text, &ms, e) < 0) {
		return err_wrap(e, "expires");
	}
	snprintf(ret, size, "%" PRIu64, (uint64_t)time(NULL) + ms / 1000);
	return 0;
}

/* A network needs a trust level that has one: the lowest such, unless the operator names another. */
static int apply_net(struct token *t, const struct verb_call *v, struct err *e)
{
	if (verb_text(v, "e2b") && !verb_text(v, "net") && !verb_text(v, "trust"))
		t->net = NET_PUBLIC;
	if (!verb_text(v, "trust"))
		while (trust_net(t->trust) < t->net)
			t->trust++;
	if (trust_net(t->trust) < t->net)
		return err_field(e, ERR_INVALID, "net",
				 "net: trust level %d has less; try --trust %d", t->trust,
				 t->net == NET_PUBLIC ? 4 : 2);
	if (t->net_allow[0] && t->net == NET_NONE)
		return err_field(e, ERR_INVALID, "net_allow",
				 "net_allow: needs --net allow or public");
	return 0;
}

static int apply_options(struct token *t, const struct verb_call *v, struct err *e)
{
	static const char *const names[] = {"scopes", "trust",	"memory",  "cpus",
					    "pids",   "disk",	"timeout", "sandboxes",
					    "rate",   "tenant", "net"};
	static const char *const totals[][2] = {{"memory-total", "memory_total"},
						{"disk-total", "disk_total"},
						{"net-allow", "net_allow"}};
	const char *expiry = verb_text(v, "expires");
	char expires[32] = "";

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (verb_text(v, names[i]) && token_set(t, names[i], verb_text(v, names[i]), e) < 0)
			return -1;
	for (size_t i = 0; i < ARRAY_LEN(totals); i++)
		if (verb_text(v, totals[i][0]) &&
		    token_set(t, totals[i][1], verb_text(v, totals[i][0]), e) < 0)
			return -1;
	if (apply_net(t, v, e) < 0)
		return -1;
	t->root = verb_text(v, "root") != NULL;
	t->created = (uint64_t)time(NULL);
	if (!expiry)
		return 0;
	if (parse_expiry(expiry, expires, sizeof(expires), e) < 0)
		return -1;
	return str_equal(expires, "0") ? 0 : token_set(t, "expires", expires, e);
}

static int refuse_same_name(const struct tokens *all, const char *name, struct err *e)
{
	for (size_t i = 0; i < tokens_count(all); i++)
		if (str_equal(tokens_at(all, i)->name, name))
			return err_set(e, ERR_CONFLICT,
				       "there is a token named '%s' already; revoke it, or take "
				       "another name",
				       name);
	return 0;
}

static json_t *describe_token(const struct token *t)
{
	static const char *const net_names[] = {"none", "allow", "public"};
	char scopes[64];

	scopes_format(t->scopes, scopes, sizeof(scopes));
	return json_pack("{s:s, s:s, s:s, s:s*, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s*}",
			 "id", t->id, "name", t->name, "scopes", scopes, "tenant",
			 t->tenant[0] ? t->tenant : NULL, "trust", t->trust, "max_sandboxes",
			 (json_int_t)t->max_sandboxes, "memory_total", (json_int_t)t->memory_total,
			 "disk_total", (json_int_t)t->disk_total, "rate_per_minute",
			 (json_int_t)t->rate_per_minute, "created", (json_int_t)t->created,
			 "expires", (json_int_t)t->expires, "net", net_names[token_net(t)],
			 "net_allow", t->net_allow[0] ? t->net_allow : NULL);
}

/*
 * Prints the key, which is stored nowhere. It is the last line, so that `| tail -1` prints it
 * alone.
 */
static int show_new(const struct token *t, const char *key, bool json)
{
	json_auto_t *value = describe_token(t);

	if (json) {
		json_object_set_new(value, "key", json_string(key));
		return print_json(json_incref(value));
	}
	printf("token %s, %s: scopes %s, trust %d. Its key is shown only now:\n%s\n", t->id,
	       t->name, text_at(value, "scopes"), t->trust, key);
	return finish_stdout(0);
}

static int add_token(struct token_file *s, const struct token *t, struct err *e)
{
	char line[TOKEN_LINE];
	size_t n = token_format(t, line, sizeof(line));

	if (s->text.len && buf_head(&s->text)[s->text.len - 1] != '\n')
		buf_add(&s->text, "\n", 1);
	buf_add(&s->text, line, n);
	buf_add(&s->text, "\n", 1);
	return token_file_write(s, &s->text, e);
}

static int create_token(struct verb_call *v, struct err *e)
{
	const char *name = v->args[0];
	struct tokens *all = NULL;
	char key[TOKEN_KEY] = "";
	struct token_file s = {.lock = -1};
	struct token t;
	int status = -1;

	if (token_create(name, verb_text(v, "e2b") != NULL, &t, key, e) == 0 &&
	    apply_options(&t, v, e) == 0 && token_file_open(&s, e) == 0 &&
	    load_all(&s, &all, e) == 0 && refuse_same_name(all, name, e) == 0 &&
	    add_token(&s, &t, e) == 0)
		status = show_new(&t, key, v->json);
	explicit_bzero(key, sizeof(key));
	tokens_free(all);
	token_file_close(&s);
	return status;
}

static const struct verb_option create_options[] = {
	{"scopes", 0, "LIST", "run, files, read, admin (run,files,read)", NULL},
	{"trust", 0, "0-5", "trust level (1)", NULL},
	{"memory", 'm', "SIZE", "ceiling for each sandbox", NULL},
	{"cpus", 0, "N", "ceiling for each sandbox", NULL},
	{"pids", 0, "N", "ceiling for each sandbox", NULL},
	{"disk", 0, "SIZE", "ceiling for each sandbox", NULL},
	{"timeout", 't', "TIME", "ceiling for each command", NULL},
	{"sandboxes", 0, "N", "how many at a time", NULL},
	{"memory-total", 0, "SIZE", "memory limits of all its sandboxes together", NULL},
	{"disk-total", 0, "SIZE", "disk limits of all its sandboxes together", NULL},
	{"rate", 0, "N", "requests a minute", NULL},
	{"root", 0, NULL, "its sandboxes may have root inside", NULL},
	{"tenant", 0, "NAME", "own sandboxes together with the other tokens of NAME", NULL},
	{"net", 0, "MODE",
	 "none, allow, public: the most that its sandboxes get (none; --e2b: public)", NULL},
	{"net-allow", 0, "RULES", "with commas between: the only destinations of its sandboxes",
	 NULL},
	{"expires", 0, "TIME", "30d, 12h, never (never)", NULL},
	{"e2b", 0, NULL, "a key that E2B clients take", NULL},
	{"json", 0, NULL, "print an object, the key in it", NULL},
};

/* ---- ls ---- */

static int list_tokens(struct verb_call *v, struct err *e)
{
	struct tokens *all = NULL;
	struct token_file s = {.lock = -1};
	int status = -1;

	if (token_file_open(&s, e) == 0 && load_all(&s, &all, e) == 0) {
		json_t *rows = json_array();

		for (size_t i = 0; i < tokens_count(all); i++)
			json_array_append_new(rows, describe_token(tokens_at(all, i)));
		status = verb_show(v, rows);
	}
	tokens_free(all);
	token_file_close(&s);
	return status;
}

static const struct verb_option list_options[] = {
	{"json", 0, NULL, "an array of objects", NULL},
};

static const struct column token_columns[] = {
	{"ID", "id", COLUMN_TEXT},
	{"NAME", "name", COLUMN_TEXT},
	{"SCOPES", "scopes", COLUMN_TEXT},
	{"TENANT", "tenant", COLUMN_TEXT},
	{"TRUST", "trust", COLUMN_TEXT},
	{"NET", "net", COLUMN_TEXT},
	{"SANDBOXES", "max_sandboxes", COLUMN_COUNT},
	{"RATE", "rate_per_minute", COLUMN_COUNT},
	{"EXPIRES", "expires", COLUMN_EXPIRY},
};

/* ---- revoke ---- */

/* Copies all lines but that of one token. False if there is no such token. */
static bool copy_without(const struct buf *text, const char *id_or_name, struct buf *ret)
{
	const char *p = text->len ? buf_head(text) : "", *end = p + text->len;
	bool found = false;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = nl ? (size_t)(nl - p) : (size_t)(end - p);
		struct err ignored;
		struct token t;

		if (token_parse(p, len, &t, &ignored) == 0 &&
		    (str_equal(t.id, id_or_name) || str_equal(t.name, id_or_name))) {
			found = true;
		} else {
			buf_add(ret, p, len);
			buf_add(ret, "\n", 1);
		}
		p += len + 1;
	}
	return found;
}

static int revoke_token(struct verb_call *v, struct err *e)
{
	struct token_file s = {.lock = -1};
	auto_buf struct buf rest = {0};
	int rc = token_file_open(&s, e);

	if (rc == 0 && !copy_without(&s.text, v->args[0], &rest))
		rc = err_set(e, ERR_NOT_FOUND, "there is no token '%s'; see `cloche token ls`",
			     v->args[0]);
	if (rc == 0)
		rc = token_file_write(&s, &rest, e);
	token_file_close(&s);
	return rc;
}

/* ---- the verb ---- */

static const struct verb parts[] = {
	{.name = "create",
	 .line = "cloche token create [OPTIONS] NAME",
	 .about = "Makes an API key. Its last line of output is the key, which "
		  "is stored nowhere.",
	 .run = create_token,
	 OPTIONS(create_options),
	 ARGS(1, 1),
	 .is_local = true},
	{.name = "ls",
	 .line = "cloche token ls [--json]",
	 .about = "Lists the API keys, without them.",
	 .run = list_tokens,
	 OPTIONS(list_options),
	 COLUMNS(token_columns),
	 .is_local = true},
	{.name = "revoke",
	 .line = "cloche token revoke ID|NAME",
	 .about = "Takes an API key back. Its sandboxes go on to their time-out.",
	 .run = revoke_token,
	 ARGS(1, 1),
	 .is_local = true},
};

const struct verb verb_token = {
	.about = "usage: cloche token create [OPTIONS] NAME   make an API key; its --help has the "
		 "options\n"
		 "       cloche token ls [--json]             list them\n"
		 "       cloche token revoke ID|NAME          take one back\n",
	PARTS(parts),
};

#include "cli/token_cmd.h"

#include "auth/tokens.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/parse.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "policy/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define FILE_MAX ((size_t)8 << 20)

/* ---- the file ---- */

struct store {
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

static int read_text(struct store *s, struct err *e)
{
	auto_close int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot read %s", s->path);
	do {
		n = read(fd, buf_reserve(&s->text, 65536), 65536);
		if (n > 0)
			buf_added(&s->text, (size_t)n);
	} while (n > 0 && s->text.len < FILE_MAX);
	return n < 0 ? err_sys(e, "cannot read %s", s->path) : 0;
}

/* Two at a time would lose one's token, so there is a lock. */
static int store_open(struct store *s, struct err *e)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));
	auto_free char *file = config_find(), *lock = NULL;

	*s = (struct store){.lock = -1};
	config_init(c);
	if ((file && config_load(file, c, e) < 0) || config_finish(c, e) < 0)
		return -1;
	config_token_path(c, s->path, sizeof(s->path));
	if (make_dirs(c->state_dir, e) < 0)
		return -1;
	lock = str_format("%s.lock", s->path);
	s->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock < 0 || flock(s->lock, LOCK_EX) < 0)
		return err_sys(e, "cannot lock %s", lock);
	return read_text(s, e);
}

static void store_close(struct store *s)
{
	close_fd(&s->lock);
	buf_done(&s->text);
}

/* The daemon reads either the old file or the new one, never half of it. */
static int store_write(const struct store *s, const struct buf *text, struct err *e)
{
	auto_free char *fresh = str_format("%s.new", s->path);
	auto_close int fd =
		open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	size_t done = 0;

	if (fd < 0)
		return err_sys(e, "cannot write %s", fresh);
	while (done < text->len) {
		ssize_t n = write(fd, buf_head(text) + done, text->len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	if (done < text->len || fsync(fd) < 0 || rename(fresh, s->path) < 0) {
		err_sys(e, "cannot write %s", s->path);
		unlink(fresh);
		return -1;
	}
	return 0;
}

static int load_all(const struct store *s, struct tokens **ret, struct err *e)
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

struct wishes {
	const char *scopes, *trust, *memory, *cpus, *pids, *disk, *timeout, *sandboxes, *rate,
		*expires, *e2b, *json;
};

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

static int apply(struct token *t, const struct wishes *w, struct err *e)
{
	char expires[32] = "";
	const char *const pairs[][2] = {
		{"scopes", w->scopes},	 {"trust", w->trust},	      {"memory", w->memory},
		{"cpus", w->cpus},	 {"pids", w->pids},	      {"disk", w->disk},
		{"timeout", w->timeout}, {"sandboxes", w->sandboxes}, {"rate", w->rate},
	};

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
		if (pairs[i][1] && token_set(t, pairs[i][0], pairs[i][1], e) < 0)
			return -1;
	t->created = (uint64_t)time(NULL);
	if (!w->expires)
		return 0;
	if (parse_expiry(w->expires, expires, sizeof(expires), e) < 0)
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

static json_t *describe(const struct token *t)
{
	char scopes[64];

	scopes_format(t->scopes, scopes, sizeof(scopes));
	return json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I}", "id", t->id, "name", t->name,
			 "scopes", scopes, "trust", t->trust, "max_sandboxes",
			 (json_int_t)t->max_sandboxes, "rate_per_minute",
			 (json_int_t)t->rate_per_minute, "created", (json_int_t)t->created,
			 "expires", (json_int_t)t->expires);
}

/* The key is shown this once, and on the last line, so that `| tail -1` has it. */
static int show_new(const struct token *t, const char *key, const struct wishes *w)
{
	char scopes[64];
	json_t *value;

	if (w->json) {
		value = describe(t);
		json_object_set_new(value, "key", json_string(key));
		return print_json(value);
	}
	scopes_format(t->scopes, scopes, sizeof(scopes));
	printf("token %s, %s: scopes %s, trust %d. Its key is shown only now:\n%s\n", t->id,
	       t->name, scopes, t->trust, key);
	return finish_stdout(0);
}

static int add_token(struct store *s, const struct token *t, struct err *e)
{
	char line[TOKEN_LINE];
	size_t n = token_format(t, line, sizeof(line));

	if (s->text.len && buf_head(&s->text)[s->text.len - 1] != '\n')
		buf_add(&s->text, "\n", 1);
	buf_add(&s->text, line, n);
	buf_add(&s->text, "\n", 1);
	return store_write(s, &s->text, e);
}

static int token_new(int argc, char **argv)
{
	struct wishes w = {0};
	const struct verb_option options[] = {
		{"scopes", 0, "LIST", "run, files, read, admin (run,files,read)", &w.scopes, NULL},
		{"trust", 0, "0-5", "trust level (1)", &w.trust, NULL},
		{"memory", 'm', "SIZE", "ceiling for each sandbox", &w.memory, NULL},
		{"cpus", 0, "N", "ceiling for each sandbox", &w.cpus, NULL},
		{"pids", 0, "N", "ceiling for each sandbox", &w.pids, NULL},
		{"disk", 0, "SIZE", "ceiling for each sandbox", &w.disk, NULL},
		{"timeout", 't', "TIME", "ceiling for each command", &w.timeout, NULL},
		{"sandboxes", 0, "N", "how many at a time", &w.sandboxes, NULL},
		{"rate", 0, "N", "requests a minute", &w.rate, NULL},
		{"expires", 0, "TIME", "30d, 12h, never (never)", &w.expires, NULL},
		{"e2b", 0, NULL, "a key that E2B clients take", &w.e2b, NULL},
		{"json", 0, NULL, "print an object, the key in it", &w.json, NULL},
	};
	const struct verb_usage u = {"cloche token create [OPTIONS] NAME",
				     "Makes an API key. Its last line of output is the key, which "
				     "is stored nowhere.",
				     options,
				     ARRAY_LEN(options),
				     1,
				     1};
	struct tokens *all = NULL;
	char key[TOKEN_KEY] = "";
	struct store s = {.lock = -1};
	struct err e = {0};
	struct token t;
	int first = verb_parse(&u, argc, argv, &e), status = EXIT_CLOCHE;

	if (first < 0)
		return verb_stop(first, &e);
	if (token_create(argv[first], w.e2b != NULL, &t, key, &e) < 0 || apply(&t, &w, &e) < 0 ||
	    store_open(&s, &e) < 0 || load_all(&s, &all, &e) < 0 ||
	    refuse_same_name(all, argv[first], &e) < 0 || add_token(&s, &t, &e) < 0)
		cli_fail(&e);
	else
		status = show_new(&t, key, &w);
	explicit_bzero(key, sizeof(key));
	tokens_free(all);
	store_close(&s);
	return status;
}

/* ---- ls ---- */

static void add_row(struct table *table, const struct token *t)
{
	char scopes[64], trust[16], boxes[16], rate[16], expires[32] = "never";
	time_t when = (time_t)t->expires;
	struct tm tm;

	scopes_format(t->scopes, scopes, sizeof(scopes));
	snprintf(trust, sizeof(trust), "%d", t->trust);
	snprintf(boxes, sizeof(boxes), "%u", t->max_sandboxes);
	snprintf(rate, sizeof(rate), "%u", t->rate_per_minute);
	if (when && gmtime_r(&when, &tm))
		strftime(expires, sizeof(expires),
			 when <= time(NULL) ? "expired %Y-%m-%d" : "%Y-%m-%d %H:%MZ", &tm);
	table_row(table, (const char *const[]){t->id, t->name, scopes, trust,
					       t->max_sandboxes ? boxes : NULL,
					       t->rate_per_minute ? rate : NULL, expires});
}

static int token_ls(int argc, char **argv)
{
	const char *json = NULL;
	const struct verb_option options[] = {
		{"json", 0, NULL, "an array of objects", &json, NULL},
	};
	const struct verb_usage u = {"cloche token ls [--json]",
				     "Lists the API keys, without them.",
				     options,
				     ARRAY_LEN(options),
				     0,
				     0};
	static const char *const heads[] = {"ID",	 "NAME", "SCOPES", "TRUST",
					    "SANDBOXES", "RATE", "EXPIRES"};
	struct tokens *all = NULL;
	struct store s = {.lock = -1};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status = 0;

	if (first < 0)
		return verb_stop(first, &e);
	if (store_open(&s, &e) < 0 || load_all(&s, &all, &e) < 0) {
		status = cli_fail(&e);
	} else if (json) {
		json_t *array = json_array();

		for (size_t i = 0; i < tokens_count(all); i++)
			json_array_append_new(array, describe(tokens_at(all, i)));
		status = print_json(array);
	} else {
		struct table *table = table_new(heads, ARRAY_LEN(heads));

		for (size_t i = 0; i < tokens_count(all); i++)
			add_row(table, tokens_at(all, i));
		table_print(table, stdout);
		status = finish_stdout(0);
	}
	tokens_free(all);
	store_close(&s);
	return status;
}

/* ---- revoke ---- */

/* Copies all lines but that of one token. False if it is not there. */
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

static int token_revoke(int argc, char **argv)
{
	const struct verb_usage u = {
		"cloche token revoke ID|NAME",
		"Takes an API key back. Its sandboxes go on to their time-out.",
		NULL,
		0,
		1,
		1};
	struct store s = {.lock = -1};
	struct buf rest = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), rc;

	if (first < 0)
		return verb_stop(first, &e);
	rc = store_open(&s, &e);
	if (rc == 0 && !copy_without(&s.text, argv[first], &rest))
		rc = err_set(&e, ERR_NOT_FOUND, "there is no token '%s'; see `cloche token ls`",
			     argv[first]);
	if (rc == 0)
		rc = store_write(&s, &rest, &e);
	buf_done(&rest);
	store_close(&s);
	return rc < 0 ? cli_fail(&e) : 0;
}

/* ---- the verb ---- */

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
};

static const char usage[] =
	"usage: cloche token create [OPTIONS] NAME   make an API key; its --help has the options\n"
	"       cloche token ls [--json]             list them\n"
	"       cloche token revoke ID|NAME          take one back\n";

int cmd_token(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{"create", token_new}, {"ls", token_ls}, {"revoke", token_revoke}};

	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(verbs); i++)
		if (str_equal(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	if (argc > 1 && (str_equal(argv[1], "--help") || str_equal(argv[1], "-h"))) {
		fputs(usage, stdout);
		return finish_stdout(0);
	}
	fputs(usage, stderr);
	return EXIT_CLOCHE;
}

/* `cloche secret`: secrets that the daemon stores. A value comes from standard input, never from an argument. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "model/secret.h"

#include <termios.h>

static const struct column secret_columns[] = {
	{"NAME", "name", COLUMN_TEXT},	       {"HOSTS", "hosts", COLUMN_TEXT},
	{"HEADER", "header", COLUMN_TEXT},     {"VERSION", "version", COLUMN_COUNT},
	{"CHANGED", "updated_at", COLUMN_AGE},
};

/* From a terminal without echo, one line; else all of standard input. ret has SECRET_VALUE + 2 bytes. */
static int read_value(const char *name, char *ret, size_t *ret_len, struct err *e)
{
	bool is_terminal = isatty(STDIN_FILENO);
	struct termios old, quiet;
	ssize_t n;

	if (is_terminal && tcgetattr(STDIN_FILENO, &old) == 0) {
		quiet = old;
		quiet.c_lflag &= ~(tcflag_t)ECHO;
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
		fprintf(stderr, "value of %s: ", name);
	}
	n = is_terminal ? read(STDIN_FILENO, ret, SECRET_VALUE + 1)
			: io_read_all(STDIN_FILENO, ret, SECRET_VALUE + 1);
	if (is_terminal) {
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &old);
		fputc('\n', stderr);
	}
	if (n < 0)
		return err_sys(e, "cannot read the value");
	while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == '\r'))
		n--;
	if (n == 0)
		return err_set(e, ERR_INVALID, "the value is empty; it comes from standard input");
	if (n > SECRET_VALUE)
		return err_set(e, ERR_INVALID, "the value is longer than %d bytes", SECRET_VALUE);
	*ret_len = (size_t)n;
	return 0;
}

static char *secret_path(const char *name)
{
	char encoded[1024];

	http_encode(encoded, sizeof(encoded), name, false);
	return str_format("/v1/secrets/%s", encoded);
}

static int secret_set_verb(struct verb_call *v, struct err *e)
{
	auto_free char *path = secret_path(v->args[0]);
	char *value = must_alloc(calloc(1, SECRET_VALUE + 2));
	const struct list *hosts = verb_texts(v, "host");
	json_t *body = json_object(), *list = json_array(), *made = NULL;
	size_t len = 0;
	int rc = 0;

	for (size_t i = 0; i < hosts->count; i++)
		json_array_append_new(list, json_string(hosts->items[i]));
	if (hosts->count)
		json_object_set(body, "hosts", list);
	json_decref(list);
	if (verb_text(v, "header"))
		json_object_set_new(body, "header", json_string(verb_text(v, "header")));
	if (verb_text(v, "prefix"))
		json_object_set_new(body, "prefix", json_string(verb_text(v, "prefix")));
	if (verb_text(v, "uses"))
		json_object_set_new(body, "uses",
				    json_integer(strtoll(verb_text(v, "uses"), NULL, 10)));
	if (!verb_text(v, "keep-value")) {
		rc = read_value(v->args[0], value, &len, e);
		if (rc == 0 && json_object_set_new(body, "value", json_stringn(value, len)) < 0)
			rc = err_set(e, ERR_INVALID, "the value is not UTF-8");
	}
	explicit_bzero(value, SECRET_VALUE + 2);
	free(value);
	if (rc < 0) {
		json_decref(body);
		return -1;
	}
	if (client_call(&v->client, "PUT", path, body, &made, e) < 0)
		return -1;
	if (v->json)
		return print_json(made);
	json_decref(made);
	return 0;
}

static int secret_rm(struct verb_call *v, struct err *e)
{
	return verb_delete(v, "/v1/secrets/", v->args);
}

static const struct verb_option set_options[] = {
	{"host", 'H', "HOST", "HOST or HOST:PORT to which the value may go (repeatable)", NULL},
	{"header", 0, "TEXT", "'Name: text {}' (Authorization: Bearer {}), basic or query:NAME",
	 NULL},
	{"prefix", 0, "TEXT", "how the placeholder begins, for clients that look at it", NULL},
	{"uses", 0, "N", "requests of one sandbox that get it", NULL},
	{"keep-value", 0, NULL, "change only the rest", NULL},
	{"json", 0, NULL, "print the secret's description", NULL},
};
static const struct verb_option json_option[] = {{"json", 0, NULL, "print JSON", NULL}};

static const struct verb parts[] = {
	{.name = "set",
	 .line = "cloche secret set [OPTIONS] NAME",
	 .about = "Stores a secret; its value is read from standard input.",
	 .run = secret_set_verb,
	 ARGS(1, 1),
	 OPTIONS(set_options)},
	{.name = "ls",
	 .line = "cloche secret ls [--json]",
	 .about = "Lists secrets. Their values cannot be read back.",
	 .run = verb_list,
	 .request = "GET /v1/secrets",
	 .member = "secrets",
	 COLUMNS(secret_columns),
	 OPTIONS(json_option)},
	{.name = "rm",
	 .line = "cloche secret rm NAME...",
	 .about = "Removes secrets. Sandboxes that use one cannot any more.",
	 .run = secret_rm,
	 ARGS(1, VERB_MANY)},
};

const struct verb verb_secret = {
	.about = "usage: cloche secret set [OPTIONS] NAME   store one; the value comes from stdin\n"
		 "       cloche secret ls [--json]          list them, without values\n"
		 "       cloche secret rm NAME...           remove them\n",
	PARTS(parts),
};

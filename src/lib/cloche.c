/* The public handle of libcloche: settings become options of the launcher, its record a result. */
#include "cloche.h"

#include "lib/launcher.h"
#include "lib/record.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/eventfd.h>

struct cloche {
	char **options; /* "--name=value" */
	size_t option_count;
	const void *input;
	size_t input_len;
	enum cloche_error_kind error;
	char message[1024];
	int cancel;	      /* eventfd */
	pthread_mutex_t lock; /* guards running */
	bool running;
};

int cloche_api_version(void)
{
	return CLOCHE_API_VERSION;
}

const char *cloche_version(void)
{
	return CLOCHE_VERSION;
}

__attribute__((format(printf, 3, 4))) static int
set_error(struct cloche *c, enum cloche_error_kind kind, const char *fmt, ...)
{
	va_list ap;

	c->error = kind;
	va_start(ap, fmt);
	vsnprintf(c->message, sizeof(c->message), fmt, ap);
	va_end(ap);
	return -1;
}

enum cloche_error_kind cloche_error(const struct cloche *c)
{
	return c->error;
}

const char *cloche_error_message(const struct cloche *c)
{
	return c->message;
}

/* ---- the handle ---- */

struct cloche *cloche_new(void)
{
	struct cloche *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->cancel < 0 || pthread_mutex_init(&c->lock, NULL) != 0) {
		close_fd(&c->cancel);
		free(c);
		return NULL;
	}
	return c;
}

void cloche_reset(struct cloche *c)
{
	for (size_t i = 0; i < c->option_count; i++)
		free(c->options[i]);
	free(c->options);
	c->options = NULL;
	c->option_count = 0;
	cloche_set_input(c, NULL, 0);
}

void cloche_free(struct cloche *c)
{
	if (!c)
		return;
	cloche_reset(c);
	close_fd(&c->cancel);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void cloche_set_input(struct cloche *c, const void *data, size_t len)
{
	c->input = data;
	c->input_len = data ? len : 0;
}

/* A name must not smuggle in another option. Options that the library itself uses are refused. */
static bool is_setting_name(const char *name)
{
	static const char *const ours[] = {"json", "tty", "lang", "help", "encoding"};
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	if (len == 0 || name[len] || name[0] == '-')
		return false;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (strcmp(name, ours[i]) == 0)
			return false;
	return true;
}

int cloche_set(struct cloche *c, const char *name, const char *value)
{
	char **options, *option;

	c->error = CLOCHE_OK;
	if (!name || !value || !is_setting_name(name))
		return set_error(c, CLOCHE_INVALID, "'%s' is not a setting", name ? name : "");
	options = realloc(c->options, (c->option_count + 1) * sizeof(*options));
	if (options)
		c->options = options;
	if (!options || asprintf(&option, "--%s=%s", name, value) < 0)
		return set_error(c, CLOCHE_SYSTEM, "out of memory");
	c->options[c->option_count++] = option;
	return 0;
}

/* ---- running ---- */

/* Copies the launcher's messages without the "cloche: " before each line. */
static void quote_messages(struct cloche *c, const char *text)
{
	static const char prefix[] = "cloche: ";
	size_t len = 0;

	while (*text && len + 2 < sizeof(c->message)) {
		size_t line;

		if (strncmp(text, prefix, sizeof(prefix) - 1) == 0)
			text += sizeof(prefix) - 1;
		line = strcspn(text, "\n");
		len += (size_t)snprintf(c->message + len, sizeof(c->message) - len, "%s%.*s",
					len ? "\n" : "", (int)line, text);
		text += line + (text[line] == '\n');
	}
}

/* There is no record: finds out why. */
static int explain_failure(struct cloche *c, const struct bytes *out, const struct bytes *err)
{
	enum cloche_error_kind kind =
		record_error(out->data, out->len, c->message, sizeof(c->message));

	if (kind != CLOCHE_OK) {
		c->error = kind;
		return -1;
	}
	set_error(c, CLOCHE_SYSTEM, "the launcher ended without a record");
	if (err->data && err->len)
		quote_messages(c, err->data);
	return -1;
}

static int judge_run(struct cloche *c, enum launch_end end, struct bytes *out, struct bytes *err,
		     struct cloche_result **ret_result)
{
	struct cloche_result *result;

	switch (end) {
	case LAUNCH_FAILED:
		return set_error(c, CLOCHE_SYSTEM, "cannot run the launcher: %s", strerror(errno));
	case LAUNCH_CANCELLED:
		return set_error(c, CLOCHE_CANCELLED, "cancelled");
	case LAUNCH_TOO_MUCH:
		return set_error(c, CLOCHE_LIMIT, "the record is too large; lower output_limit");
	case LAUNCH_ENDED:
		break;
	}
	/* Looks for an error object first, because parsing a record takes the text over. */
	if (!out->data || !memmem(out->data, out->len, "\"status\"", 8))
		return explain_failure(c, out, err);
	result = record_parse(take_ptr(out->data), out->len);
	if (!result)
		return set_error(c, CLOCHE_SYSTEM, "the launcher's record cannot be read");
	*ret_result = result;
	return 0;
}

static void set_running(struct cloche *c, bool running)
{
	uint64_t count;

	pthread_mutex_lock(&c->lock);
	c->running = running;
	/* A cancellation that came too late for the last run must not end the next. */
	while (read(c->cancel, &count, sizeof(count)) > 0)
		;
	pthread_mutex_unlock(&c->lock);
}

void cloche_cancel(struct cloche *c)
{
	uint64_t one = 1;

	pthread_mutex_lock(&c->lock);
	if (c->running && write(c->cancel, &one, sizeof(one)) < 0)
		c->running = false; /* never: the counter cannot be full */
	pthread_mutex_unlock(&c->lock);
}

struct streams {
	int in;
	int extra; /* -1: none */
};

static int run_launcher(struct cloche *c, char **argv, struct streams s,
			struct cloche_result **ret_result)
{
	struct launch l = {.argv = argv, .in = s.in, .extra = s.extra, .cancel = c->cancel};
	struct bytes out = {0}, err = {0};
	char path[PATH_MAX];
	enum launch_end end;
	int result;

	if (launcher_find(path) < 0)
		return set_error(c, CLOCHE_NOT_FOUND,
				 "the launcher 'cloche' was not found; install it, or set CLOCHE");
	argv[0] = path;
	set_running(c, true);
	end = launcher_run(path, &l, &out, &err);
	result = judge_run(c, end, &out, &err, ret_result);
	set_running(c, false);
	free(out.data);
	free(err.data);
	return result;
}

/* "cloche VERB --json OPTION... TAIL...". Only the array itself is allocated. */
static char **make_argv(const struct cloche *c, const char *verb, const char *const *tail)
{
	size_t count = 0, n = 0;
	char **argv;

	while (tail[count])
		count++;
	argv = calloc(c->option_count + count + 4, sizeof(*argv));
	if (!argv)
		return NULL;
	argv[n++] = (char *)"cloche";
	argv[n++] = (char *)verb;
	argv[n++] = (char *)"--json";
	for (size_t i = 0; i < c->option_count; i++)
		argv[n++] = c->options[i];
	for (size_t i = 0; i < count; i++)
		argv[n++] = (char *)tail[i];
	return argv;
}

static int run_verb(struct cloche *c, const char *verb, const char *const *tail, struct streams s,
		    struct cloche_result **ret_result)
{
	char **argv;
	int result;

	if (s.in < 0)
		return set_error(c,
				 errno == EAGAIN || errno == EPERM ? CLOCHE_LIMIT : CLOCHE_SYSTEM,
				 "cannot prepare its input: %s", strerror(errno));
	argv = make_argv(c, verb, tail);
	if (!argv)
		return set_error(c, CLOCHE_SYSTEM, "out of memory");
	result = run_launcher(c, argv, s, ret_result);
	free(argv);
	return result;
}

int cloche_run(struct cloche *c, const char *const *argv, struct cloche_result **ret_result)
{
	auto_close int in = -1;
	const char **tail;
	size_t count = 0;
	int result;

	c->error = CLOCHE_OK;
	if (!argv || !argv[0])
		return set_error(c, CLOCHE_INVALID, "there is no command");
	while (argv[count])
		count++;
	tail = calloc(count + 2, sizeof(*tail));
	if (!tail)
		return set_error(c, CLOCHE_SYSTEM, "out of memory");
	tail[0] = "--";
	memcpy(tail + 1, argv, count * sizeof(*tail));
	in = launcher_input(c->input, c->input_len, false);
	result = run_verb(c, "run", tail, (struct streams){in, -1}, ret_result);
	free(tail);
	return result;
}

/*
 * Without an input the code is sent on stdin. With one it is sent on a pipe, which the launcher
 * opens by name.
 */
int cloche_code(struct cloche *c, const char *language, const char *code,
		struct cloche_result **ret_result)
{
	bool has_input = c->input != NULL;
	char by_name[32], *lang = NULL;
	auto_close int in = -1;
	auto_close int extra = -1;
	int result;

	c->error = CLOCHE_OK;
	if (!code)
		return set_error(c, CLOCHE_INVALID, "there is no code");
	if (asprintf(&lang, "--lang=%s", language ? language : "python") < 0)
		return set_error(c, CLOCHE_SYSTEM, "out of memory");
	snprintf(by_name, sizeof(by_name), "/proc/self/fd/%d", LAUNCHER_EXTRA_FD);
	const char *const tail[] = {lang, "--", has_input ? by_name : "-", NULL};

	if (has_input)
		extra = launcher_input(code, strlen(code), true);
	if (!has_input || extra >= 0)
		in = has_input ? launcher_input(c->input, c->input_len, false)
			       : launcher_input(code, strlen(code), false);
	result = run_verb(c, "code", tail, (struct streams){in, extra}, ret_result);
	free(lang);
	return result;
}

#include "base/log.h"

#include "base/jsonw.h"

#include <stdarg.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};

/* The one piece of global state that is allowed: a program has one stderr. */
static struct {
	enum log_level least;
	const char *role;
} settings = {LOG_LEVEL_INFO, NULL};

void log_init(const char *role)
{
	const char *wanted = getenv("CLOCHE_LOG");

	settings.role = role;
	for (size_t i = 0; wanted && i < ARRAY_LEN(level_names); i++)
		if (str_equal(wanted, level_names[i]))
			settings.least = (enum log_level)i;
}

void log_line(enum log_level level, const char *what, ...)
{
	auto_free char *text = NULL;
	size_t len = 0;
	const char *key;
	char when[UTC_TEXT];
	struct jsonw j;
	va_list ap;
	FILE *to;

	if (level < settings.least)
		return;
	/* Made as a whole and written at once: lines of several roles must not mix. */
	to = open_memstream(&text, &len);
	if (!to)
		return;
	utc_now(3, when);
	jsonw_begin(&j, to);
	jsonw_open(&j, NULL, '{');
	jsonw_string(&j, "time", when);
	jsonw_string(&j, "level", level_names[level]);
	if (settings.role)
		jsonw_string(&j, "role", settings.role);
	jsonw_string(&j, "msg", what);
	va_start(ap, what);
	while ((key = va_arg(ap, const char *)))
		jsonw_string(&j, key, va_arg(ap, const char *));
	va_end(ap);
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	jsonw_finish(&j);
	fclose(to);
	if (text && write(STDERR_FILENO, text, len) < 0)
		return; /* there is nowhere left to say so */
}

#include "base/base.h"

#include <assert.h>
#include <stdarg.h>

static const char *const kind_names[] = {
	[ERR_NONE] = "none",	       [ERR_INVALID] = "invalid",	  [ERR_DENIED] = "denied",
	[ERR_NOT_FOUND] = "not_found", [ERR_CONFLICT] = "conflict",	  [ERR_LIMIT] = "limit",
	[ERR_SYSTEM] = "system",       [ERR_UNSUPPORTED] = "unsupported",
};
static_assert(sizeof(kind_names) / sizeof(kind_names[0]) == ERR_KIND_COUNT, "a name per kind");

const char *err_kind_name(enum err_kind kind)
{
	return kind < ERR_KIND_COUNT ? kind_names[kind] : "unknown";
}

static void set_head(struct err *e, enum err_kind kind, int errnum)
{
	e->kind = kind;
	e->errnum = errnum;
	e->field[0] = '\0';
}

int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	set_head(e, kind, 0);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -1;
}

int err_field(struct err *e, enum err_kind kind, const char *field, const char *fmt, ...)
{
	va_list ap;

	set_head(e, kind, 0);
	snprintf(e->field, sizeof(e->field), "%s", field);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -1;
}

int err_sys(struct err *e, const char *fmt, ...)
{
	int errnum = errno;
	size_t len;
	va_list ap;

	set_head(e, ERR_SYSTEM, errnum);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	len = strlen(e->msg);
	snprintf(e->msg + len, sizeof(e->msg) - len, ": %s", strerror(errnum));
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char inner[sizeof(e->msg)];
	size_t len;
	va_list ap;

	memcpy(inner, e->msg, sizeof(inner));
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	len = strlen(e->msg);
	snprintf(e->msg + len, sizeof(e->msg) - len, ": %s", inner);
	return -1;
}

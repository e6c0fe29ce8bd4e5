/* The small parsers: the first byte picks one, the rest is its text. */
#include "fuzz.h"

#include "base/auto.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/utf8.h"
#include "kern/mountinfo.h"
#include "policy/paths/source.h"

#include <string.h>

typedef int number_parser(const char *s, uint64_t *ret, struct err *e);

static void number(number_parser *parse, const char *text)
{
	struct err e = {0};
	uint64_t n = 42;

	if (parse(text, &n, &e) < 0)
		PROMISE(e.kind == ERR_INVALID && n == 42);
	else
		PROMISE(text[0] >= '0' && text[0] <= '9');
}

static void size(const char *text)
{
	number(parse_size, text);
}

static void duration(const char *text)
{
	number(parse_time, text);
}

static void count(const char *text)
{
	number(parse_count, text);
}

static void milli(const char *text)
{
	number(parse_milli, text);
}

static void mount_request(const char *text)
{
	struct mount_request m;
	struct err e = {0};
	char clean[PATH_MAX];

	if (mount_request_parse(text, &m, &e) < 0) {
		PROMISE(e.field[0]);
		return;
	}
	PROMISE(m.source[0] && str_starts(text, m.source));
	PROMISE(path_clean(m.target, clean, sizeof(clean)) && str_equal(clean, m.target));
	PROMISE(!str_equal(m.target, "/") && !path_below(m.target, "/proc") &&
		!path_below(m.target, "/sys") && !path_below(m.target, "/dev"));
}

static void sanitise(const char *text)
{
	char out[100], again[100];

	str_sanitise(out, sizeof(out), text, strlen(text));
	for (const char *p = out; *p; p += utf8_sequence(p, strlen(p)))
		PROMISE(utf8_sequence(p, strlen(p)) > 0 && (unsigned char)*p >= 0x20);
	str_sanitise(again, sizeof(again), out, strlen(out));
	PROMISE(str_equal(out, again));
}

static void mounts(const char *text)
{
	struct mountinfo m;
	struct err e = {0};

	if (mountinfo_parse(str_copy(text), &m, &e) < 0)
		return;
	for (size_t i = 0; i < m.count; i++)
		PROMISE(m.entries[i].root && m.entries[i].point && m.entries[i].type[0]);
	mountinfo_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
	static void (*const targets[])(const char *) = {size,	       duration, count, milli,
							mount_request, sanitise, mounts};
	auto_free char *text = NULL;

	if (length < 1)
		return 0;
	text = must_alloc(malloc(length));
	memcpy(text, data + 1, length - 1);
	text[length - 1] = '\0';
	targets[data[0] % ARRAY_LEN(targets)](text);
	return 0;
}

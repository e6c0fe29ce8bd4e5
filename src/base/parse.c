/* One reader of decimal numbers with a unit. Sizes, times, counts and fractions differ in their tables. */
#include "base/base.h"

/* Reads digits[.digits] as thousandths. Returns the text behind the number, or NULL. */
static const char *read_milli(const char *s, uint64_t *ret_milli)
{
	uint64_t whole = 0, part = 0, scale = 100;
	const char *start = s;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (whole > UINT64_MAX / 100000)
			return NULL;
		whole = whole * 10 + (uint64_t)(*s - '0');
	}
	if (s == start)
		return NULL;
	if (*s == '.') {
		start = ++s;
		for (; *s >= '0' && *s <= '9'; s++, scale /= 10)
			part += (uint64_t)(*s - '0') * scale;
		if (s == start)
			return NULL;
	}
	*ret_milli = whole * 1000 + part;
	return s;
}

struct unit {
	const char *name; /* NULL ends a table */
	uint64_t factor;
};

/* The number is read in thousandths, so that fractions of a unit count. */
static int parse_scaled(const char *s, const struct unit *unit, const char *wanted, uint64_t *ret,
			struct err *e)
{
	uint64_t milli = 0;
	const char *rest = read_milli(s, &milli);

	while (rest && unit->name && !str_equal(rest, unit->name))
		unit++;
	if (!rest || !unit->name || milli > UINT64_MAX / unit->factor)
		return err_set(e, ERR_INVALID, "'%s' is not a %s", s, wanted);
	*ret = milli * unit->factor / 1000;
	return 0;
}

int parse_size(const char *s, uint64_t *ret_bytes, struct err *e)
{
	static const struct unit units[] = {
		{"", 1},
		{"K", 1ULL << 10},
		{"M", 1ULL << 20},
		{"G", 1ULL << 30},
		{"T", 1ULL << 40},
		{"k", 1ULL << 10},
		{"m", 1ULL << 20},
		{"g", 1ULL << 30},
		{"t", 1ULL << 40},
		{"KiB", 1ULL << 10},
		{"MiB", 1ULL << 20},
		{"GiB", 1ULL << 30},
		{"TiB", 1ULL << 40},
		{NULL, 0},
	};

	return parse_scaled(s, units, "size; try 512M", ret_bytes, e);
}

int parse_time(const char *s, uint64_t *ret_ms, struct err *e)
{
	static const struct unit units[] = {
		{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}, {NULL, 0},
	};

	return parse_scaled(s, units, "time; try 500ms, 60s or 5m", ret_ms, e);
}

int parse_rate(const char *s, uint64_t *ret_bytes, struct err *e)
{
	/* In bits a second. */
	static const struct unit units[] = {
		{"", 8},	{"K", 8ULL << 10}, {"M", 8ULL << 20},  {"G", 8ULL << 30},
		{"kbit", 1000}, {"Kbit", 1000},	   {"Mbit", 1000000},  {"Gbit", 1000000000},
		{"KB", 8000},	{"MB", 8000000},   {"GB", 8000000000}, {NULL, 0},
	};
	uint64_t bits;

	if (parse_scaled(s, units, "rate; try 100Mbit or 10MB", &bits, e) < 0)
		return -1;
	*ret_bytes = bits / 8;
	return 0;
}

int parse_count(const char *s, uint64_t *ret, struct err *e)
{
	static const struct unit units[] = {{"", 1}, {NULL, 0}};

	if (strchr(s, '.'))
		return err_set(e, ERR_INVALID, "'%s' is not a whole number", s);
	return parse_scaled(s, units, "whole number", ret, e);
}

int parse_milli(const char *s, uint64_t *ret_milli, struct err *e)
{
	uint64_t milli;
	const char *rest = read_milli(s, &milli);

	if (!rest || *rest)
		return err_set(e, ERR_INVALID, "'%s' is not a number; try 1.5", s);
	*ret_milli = milli;
	return 0;
}

int parse_bool(const char *s, uint64_t *ret, struct err *e)
{
	if (!str_equal(s, "true") && !str_equal(s, "false"))
		return err_set(e, ERR_INVALID, "'%s' is neither true nor false", s);
	*ret = s[0] == 't';
	return 0;
}

int parse_member(const struct parse_member *m, const char *s, void *to, struct err *e)
{
	uint64_t n;

	if (m->parse(s, &n, e) < 0)
		return -1;
	if (n < m->min || n > m->max)
		return err_set(e, ERR_INVALID, "'%s' is too %s", s, n < m->min ? "small" : "large");
	if (m->size == sizeof(bool))
		*(bool *)to = n;
	else if (m->size == sizeof(uint32_t))
		*(uint32_t *)to = (uint32_t)n;
	else
		*(uint64_t *)to = n;
	return 0;
}

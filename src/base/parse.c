#include "base/base.h"

/* Reads digits[.digits] as thousandths; returns what follows, or NULL. */
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
	const char *name;
	uint64_t factor;
};

static int scale_by_unit(const char *suffix, const struct unit *units, size_t count,
			 uint64_t *value)
{
	for (size_t i = 0; i < count; i++) {
		if (!str_equal(suffix, units[i].name))
			continue;
		if (*value > UINT64_MAX / units[i].factor)
			return -1;
		*value *= units[i].factor;
		return 0;
	}
	return -1;
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
	};
	uint64_t milli;
	const char *rest = read_milli(s, &milli);

	if (!rest || scale_by_unit(rest, units, ARRAY_LEN(units), &milli) < 0)
		return err_set(e, ERR_INVALID, "'%s' is not a size; try 512M", s);
	*ret_bytes = milli / 1000;
	return 0;
}

int parse_time(const char *s, uint64_t *ret_ms, struct err *e)
{
	/* The number is in thousandths, so a plain second already counts in milliseconds. */
	static const struct unit units[] = {
		{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000},
	};
	uint64_t milli;
	const char *rest = read_milli(s, &milli);

	if (!rest || scale_by_unit(rest, units, ARRAY_LEN(units), &milli) < 0)
		return err_set(e, ERR_INVALID, "'%s' is not a time; try 500ms, 60s or 5m", s);
	*ret_ms = milli / 1000;
	return 0;
}

int parse_count(const char *s, uint64_t *ret, struct err *e)
{
	uint64_t milli;
	const char *rest = strchr(s, '.') ? NULL : read_milli(s, &milli);

	if (!rest || *rest)
		return err_set(e, ERR_INVALID, "'%s' is not a whole number", s);
	*ret = milli / 1000;
	return 0;
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

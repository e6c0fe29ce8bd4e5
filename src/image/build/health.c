/* Writes a HEALTHCHECK as JSON; times are nanoseconds there. */
#include "image/build/health.h"

#include "base/jsonw.h"

static const char *value_of(const struct build_step *s, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < s->flags.count; i++)
		if (str_starts(s->flags.items[i], name) && s->flags.items[i][len] == '=')
			return s->flags.items[i] + len + 1;
	return NULL;
}

static int put_times(struct jsonw *j, const struct build_step *s, struct err *e)
{
	static const char *const times[][2] = {{"interval", "Interval"},
					       {"timeout", "Timeout"},
					       {"start-period", "StartPeriod"},
					       {"start-interval", "StartInterval"}};
	const char *retries = value_of(s, "retries");
	uint64_t number;

	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		const char *value = value_of(s, times[i][0]);

		if (value && parse_time(value, &number, e) < 0)
			return -1;
		if (value)
			jsonw_uint(j, times[i][1], number * 1000000);
	}
	if (retries && parse_count(retries, &number, e) < 0)
		return -1;
	if (retries)
		jsonw_uint(j, "Retries", number);
	return 0;
}

char *health_json(const struct build_step *s, struct err *e)
{
	bool is_none = !s->is_exec && str_equal(s->args.items[0], "NONE");
	struct buf text = {0};
	struct jsonw j;

	jsonw_begin_buf(&j, &text);
	jsonw_open(&j, NULL, '{');
	jsonw_open(&j, "Test", '[');
	if (!is_none)
		jsonw_string(&j, NULL, s->is_exec ? "CMD" : "CMD-SHELL");
	for (size_t i = 0; i < s->args.count; i++)
		jsonw_string(&j, NULL, s->args.items[i]);
	jsonw_close(&j, ']');
	if (put_times(&j, s, e) < 0) {
		jsonw_finish(&j);
		buf_done(&text);
		return NULL;
	}
	jsonw_close(&j, '}');
	jsonw_finish(&j);
	buf_add(&text, "", 1);
	return text.data;
}

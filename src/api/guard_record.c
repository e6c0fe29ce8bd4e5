#include "api/guard_record.h"

#include "base/auto.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *describe(const struct denial *d)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:s}", "what", d->what, "target", d->target, "rule",
			 d->rule, "count", (json_int_t)d->count, "explain", d->explain);
}

static void add_denials(json_t *record, const struct guard_report *g)
{
	json_t *kinds = json_object_get(json_object_get(record, "layers"), "denials");
	json_t *denials = json_object_get(record, "denials");

	if (json_is_array(kinds))
		json_array_append_new(kinds, json_string("guard"));
	for (size_t i = 0; json_is_array(denials) && i < g->count; i++)
		json_array_append_new(denials, describe(&g->denials[i]));
}

char *guard_record_add(char *record, enum guard profile, const char *report, size_t size)
{
	auto_free struct guard_report *g = must_alloc(malloc(sizeof(*g)));
	json_t *o = json_loads(record, 0, NULL);
	char notes[160], *text = NULL;

	guard_read_report(profile, report, size, g);
	if (json_is_object(o)) {
		add_denials(o, g);
		if (guard_format_notes(g, notes, sizeof(notes)))
			json_object_set_new(o, "guard", json_string(notes));
		text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
	}
	json_decref(o);
	if (!text)
		return record;
	free(record);
	return text;
}

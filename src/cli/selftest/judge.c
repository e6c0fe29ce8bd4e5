/* Turns what the probe, the plant and the record say into outcomes of attacks. */
#include "cli/selftest/judge.h"

#include <jansson.h>

/*
 * Layers that may be missing without a fault: at level process whatever the record owns up to; at
 * level container the limits that an ordinary user cannot have without a cgroup of his own.
 */
static layer_set admitted(const struct selftest *t)
{
	const layer_set limits =
		LAYER_BIT(LAYER_CGROUP) | LAYER_BIT(LAYER_MEMORY) | LAYER_BIT(LAYER_CPU);

	if (!t->container)
		return t->missing;
	return geteuid() == 0 ? 0 : t->missing & limits;
}

void judge_attack(const struct selftest *t, struct attack *a, bool through, const char *detail)
{
	if (!through)
		attack_note(a, a->control ? OUTCOME_REFUSED : OUTCOME_CANNOT_TELL,
			    a->control ? detail : "fails outside of a sandbox as well");
	else if (a->flags & ATTACK_GAP)
		attack_note(a, OUTCOME_GAP, detail);
	else if ((a->flags & ATTACK_WEAK) && (a->layers & admitted(t)))
		attack_note(a, OUTCOME_WEAK, detail);
	else
		attack_note(a, OUTCOME_NOT_REFUSED, detail);
}

static void judge_line(struct selftest *t, struct attack *a, const char *verdict,
		       const char *detail)
{
	bool through = str_equal(verdict, "got-through");

	if (t->control)
		a->control = through;
	else if (str_equal(verdict, "cannot-tell"))
		attack_note(a, OUTCOME_CANNOT_TELL, detail);
	else
		judge_attack(t, a, through, detail);
}

void judge_lines(struct selftest *t, char *text)
{
	char *rest = NULL;

	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		char *verdict = strchr(l, '\t');
		char *detail = verdict ? strchr(verdict + 1, '\t') : NULL;
		struct attack *a;

		if (!detail)
			continue;
		*verdict++ = '\0';
		*detail++ = '\0';
		a = attacks_find(&t->attacks, l);
		if (a)
			judge_line(t, a, verdict, detail);
	}
}

void judge_hits(struct selftest *t)
{
	struct list hits = {0};

	plant_hits(&t->stage.host, &hits);
	for (size_t i = 0; i < hits.count; i++) {
		struct attack *a = attacks_find(&t->attacks, hits.items[i]);

		if (a && t->control)
			a->control = true;
		else if (a)
			judge_attack(t, a, true, "what was planted outside was reached");
	}
	list_done(&hits);
}

/* A case that used memory up may have left no line. */
void judge_record(struct selftest *t, const char *json, struct attack *alone)
{
	json_t *record = json_loads(json, 0, NULL);
	const char *text = json_string_value(json_object_get(record, "stdout"));
	const char *status = json_string_value(json_object_get(record, "status"));
	auto_free char *copy = str_copy(text ? text : "");

	judge_lines(t, copy);
	if (alone && alone->outcome == OUTCOME_NONE && (alone->flags & ATTACK_KILL_OK) && status &&
	    str_equal(status, "oom"))
		judge_attack(t, alone, false, "the sandbox was killed for memory");
	json_decref(record);
}

int judge_missing(const char *json, layer_set *ret)
{
	json_t *record = json_loads(json, 0, NULL);
	const json_t *list = json_object_get(json_object_get(record, "layers"), "missing");
	bool is_record = json_is_array(list);
	layer_set missing = 0;
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		int l = json_is_string(item) ? layer_find(json_string_value(item)) : -1;

		if (l >= 0)
			missing |= LAYER_BIT(l);
	}
	json_decref(record);
	if (!is_record)
		return -1;
	*ret = missing;
	return 0;
}

/* Any bytes as a request's body: JSON, the tables, and the options they set. */
#include "fuzz.h"

#include "api/http/fields.h"
#include "api/rest/rest.h"
#include "base/auto.h"
#include "base/str.h"

#include <string.h>

static void check_error(const struct err *e)
{
	PROMISE(e->kind != ERR_NONE);
	PROMISE(strlen(e->msg) > 0);
}

static void read_all(const json_t *body, const struct body_table *t)
{
	struct sandbox_spec s;
	struct list env = {0}, list = {0};
	struct err e = {0};
	uint64_t ms;

	spec_init(&s);
	if (body_spec(body, t, &s, &e) < 0 || spec_finish(&s, &e) < 0)
		check_error(&e);
	/* No client names a path of the host (rule 4). */
	PROMISE(!s.workspace && !s.mounts.count && !s.files.count && !s.policy && !s.apply);
	spec_done(&s);
	for (size_t i = 0; i < t->count; i++) {
		const struct body_field *f = &t->fields[i];
		char *bytes = NULL;
		size_t len;

		if (f->type == BODY_ENV && body_env(body, f->name, &env, &e) == 0)
			for (size_t j = 0; j < env.count; j++)
				PROMISE(strchr(env.items[j], '=') > env.items[j]);
		if (f->type == BODY_TIME && body_time(body, f->name, 0, &ms, &e) < 0)
			check_error(&e);
		if (f->type == BODY_LIST)
			body_list(body, f->name, &list);
		if (f->type == BODY_TEXT && body_has(body, f->name))
			PROMISE(body_text(body, f->name));
		if (f->type == BODY_TEXT &&
		    body_bytes(body, f->name, "stdin_base64", &bytes, &len, &e) == 0)
			free(bytes);
		list_done(&env);
		list_done(&list);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct body_table *const tables[] = {
		&v1_run_table,	 &v1_batch_table, &v1_create_table, &v1_patch_table,
		&v1_exec_table,	 &v1_stdin_table, &v1_signal_table, &v1_search_table,
		&v1_mkdir_table, &v1_fork_table,  &v1_empty_table,
	};
	json_t *body = json_loadb((const char *)data, size,
				  JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		struct err e = {0};

		if (body_check(body, tables[i], &e) < 0)
			check_error(&e);
		else
			read_all(body, tables[i]);
	}
	json_decref(body);
	return 0;
}

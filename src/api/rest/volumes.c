/* Volumes over REST: directories that the operator offers, and disks that clients make. */
#include "api/rest/rest.h"

#define USUAL_BYTES ((uint64_t)1 << 30)

const struct body_table v1_volume_create_table = BODY_TABLE(
	BODY_ALONE, NEEDED("name", BODY_TEXT, "letters, digits, '_', '-', '.'"),
	FIELD("size", BODY_WORD, "what it may hold (1G); reserved at once"),
	FIELD("from", BODY_TEXT,
	      "begin as a copy of this volume, which nobody may be writing to just now"));

void v1_volumes(struct exchange *x)
{
	manager_volumes(x->api->manager, &x->caller, NULL, v1_answer_json, x);
}

void v1_volume_get(struct exchange *x)
{
	manager_volumes(x->api->manager, &x->caller, x->params[0], v1_answer_json, x);
}

void v1_volume_delete(struct exchange *x)
{
	manager_volume_delete(x->api->manager, &x->caller, x->params[0], v1_answer_empty, x);
}

void v1_volume_create(struct exchange *x)
{
	struct volume_wish w = {.name = body_text(x->json, "name"),
				.from = body_text(x->json, "from")};
	struct err e = {0};

	if (w.from && body_has(x->json, "size"))
		err_field(&e, ERR_INVALID, "size", "size: a copy is as large as what it is from");
	if (e.kind || body_size(x->json, "size", USUAL_BYTES, &w.bytes, &e) < 0)
		exchange_error(x, &e);
	else
		manager_volume_make(x->api->manager, &x->caller, &w, v1_answer_created, x);
}

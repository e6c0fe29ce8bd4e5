/* `cloche volume`: disks of one's own that outlive sandboxes. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"

static const struct column volume_columns[] = {
	{"NAME", "name", COLUMN_TEXT},	      {"KIND", "kind", COLUMN_TEXT},
	{"SIZE", "size_bytes", COLUMN_BYTES}, {"FROM", "from", COLUMN_TEXT},
	{"AGE", "created_at", COLUMN_AGE},
};

static int volume_create(struct verb_call *v, struct err *e)
{
	static const char *const texts[] = {"size", "from"};
	json_t *body = json_object(), *made;

	if (client_put(body, "name", client_text(v->args[0]), e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (verb_text(v, texts[i]) &&
		    client_put(body, texts[i], client_text(verb_text(v, texts[i])), e) < 0)
			return -1;
	return client_call(&v->client, "POST", "/v1/volumes", body, &made, e) < 0
		       ? -1
		       : verb_show_id(v, made);
}

static int volume_rm(struct verb_call *v, struct err *e)
{
	return verb_delete(v, "/v1/volumes/", v->args);
}

static const struct verb_option create_options[] = {
	{"size", 's', "SIZE", "what it may hold, reserved at once (1G)", NULL},
	{"from", 0, "VOLUME", "begin as a copy of this one", NULL},
	{"json", 0, NULL, "print the volume's description", NULL},
};
static const struct verb_option json_option[] = {{"json", 0, NULL, "print JSON", NULL}};

static const struct verb parts[] = {
	{.name = "create",
	 .line = "cloche volume create [--size SIZE | --from VOLUME] NAME",
	 .about = "Makes a volume and prints its id. `cloche create --volume NAME:PATH` shows it "
		  "read-only,\nwith `:rw` writable to one sandbox at a time.",
	 .run = volume_create,
	 ARGS(1, 1),
	 OPTIONS(create_options)},
	{.name = "ls",
	 .line = "cloche volume ls [--json]",
	 .about = "Lists volumes: one's own, and directories that the operator offers.",
	 .run = verb_list,
	 .request = "GET /v1/volumes",
	 .member = "volumes",
	 COLUMNS(volume_columns),
	 OPTIONS(json_option)},
	{.name = "rm",
	 .line = "cloche volume rm NAME...",
	 .about = "Deletes volumes that no sandbox has, with all that is in them.",
	 .run = volume_rm,
	 ARGS(1, VERB_MANY)},
};

const struct verb verb_volume = {
	.about = "usage: cloche volume create [OPTIONS] NAME   make one\n"
		 "       cloche volume ls [--json]              list them\n"
		 "       cloche volume rm NAME...               delete them\n",
	PARTS(parts),
};

#include "cli/stats_cmd.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stats_row(struct table *t, const json_t *s)
{
	char memory[40], limit[16], cpu[16], pids[16], disk[16], in[16], out[16], used[16];

	snprintf(memory, sizeof(memory), "%s / %s",
		 format_bytes((uint64_t)number_at(s, "memory_bytes"), used, sizeof(used)),
		 format_bytes((uint64_t)number_at(s, "memory_limit_bytes"), limit, sizeof(limit)));
	snprintf(cpu, sizeof(cpu), "%.1f%%", number_at(s, "cpu_percent"));
	snprintf(pids, sizeof(pids), "%.0f", number_at(s, "pids"));
	table_row(t, (const char *const[]){
			     text_at(s, "id"), text_at(s, "name"), text_at(s, "state"), cpu, memory,
			     pids,
			     format_bytes((uint64_t)number_at(s, "disk_bytes"), disk, sizeof(disk)),
			     format_bytes((uint64_t)number_at(s, "io_read_bytes"), in, sizeof(in)),
			     format_bytes((uint64_t)number_at(s, "io_write_bytes"), out,
					  sizeof(out))});
}

/* Of all, or of those that were named. NULL and an error if one is not there. */
static json_t *fetch(struct client *c, char **names, int count, struct err *e)
{
	json_t *answer = NULL, *all = json_array();

	if (count == 0) {
		json_decref(all);
		if (client_call(c, "GET", "/v1/stats", NULL, &answer, e) < 0)
			return NULL;
		all = json_incref(json_object_get(answer, "sandboxes"));
		json_decref(answer);
		return all;
	}
	for (int i = 0; i < count; i++) {
		auto_free char *path = NULL;
		char id[64];

		if (client_find(c, names[i], id, sizeof(id), e) == 0) {
			path = client_path(id, "/stats");
			if (client_call(c, "GET", path, NULL, &answer, e) == 0) {
				json_object_del(answer, "history");
				if (!text_at(answer, "id"))
					json_object_set_new(answer, "id", json_string(id));
				json_array_append_new(all, answer);
				continue;
			}
		}
		json_decref(all);
		return NULL;
	}
	return all;
}

static void print_stats(const json_t *all, bool live)
{
	static const char *const heads[] = {"ID",   "NAME", "STATE", "CPU",    "MEMORY",
					    "PIDS", "DISK", "READ",  "WRITTEN"};
	struct table *t = table_new(heads, ARRAY_LEN(heads));
	const json_t *item;
	size_t i;

	json_array_foreach (all, i, item)
		stats_row(t, item);
	/* Home, and clear what is below: less flicker than clearing first. */
	if (live)
		fputs("\033[H\033[J", stdout);
	table_print(t, stdout);
	fflush(stdout);
}

int cmd_stats(int argc, char **argv)
{
	const char *json = NULL, *once = NULL;
	const struct verb_option options[] = {
		{"no-stream", 0, NULL, "once, also on a terminal", &once, NULL},
		{"json", 0, NULL, "once, an array of objects", &json, NULL},
	};
	const struct verb_usage u = {"cloche stats [OPTIONS] [ID...]",
				     "What sandboxes use; on a terminal again every second.",
				     options,
				     ARRAY_LEN(options),
				     0,
				     100000};
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status = 0;
	bool live = !once && !json && isatty(STDOUT_FILENO);

	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	do {
		json_t *all = fetch(&c, argv + first, argc - first, &e);

		if (!all) {
			status = cli_fail(&e);
			break;
		}
		if (json) {
			status = print_json(all);
			break;
		}
		print_stats(all, live);
		json_decref(all);
		if (live)
			poll(NULL, 0, 1000);
	} while (live && !ferror(stdout));
	client_done(&c);
	return json ? status : status ? status : finish_stdout(0);
}

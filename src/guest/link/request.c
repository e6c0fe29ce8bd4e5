/* The table of requests, and the one place that unpacks their payloads. */
#include "guest/link/request.h"

#include "guest/exec/command.h"
#include "guest/files/files.h"
#include "guest/link/worker.h"
#include "guest/warm/host.h"

static request_unpacker inside_request;

static void ping_request(struct guest_stream *s, const struct unpacked_request *r)
{
	stream_ok(s, NULL);
}

/*
 * payload, a letter for each part:
 *   p  a path, made absolute     s  a string    g  a glob    n  a name
 *   b  a byte, u 32, q 64 bits   B  bytes       c  the number of a command, which must exist
 */
static const struct row {
	const char *payload;
	request_answer *answer;
	request_unpacker *unpack; /* in place of payload and answer */
	struct worker_job work;	  /* in place of answer */
	struct worker_job inside; /* for G_INSIDE; NULL: cannot be done there */
} rows[] = {
	[G_CONFIGURE] = {.unpack = configure_request},
	[G_EXEC] = {.unpack = exec_request},
	[G_RUN] = {.unpack = run_request},
	[G_FORK] = {.unpack = fork_request},
	[G_SERVICES] = {.unpack = services_request},
	[G_ATTACH] = {"cq", .answer = attach_request},
	[G_SIGNAL] = {"cub", .answer = signal_request},
	[G_RESIZE] = {"cuu", .answer = resize_request},
	[G_EXECS] = {"", .answer = execs_request},
	[G_ACK] = {"c", .answer = ack_request},
	[G_INPUT] = {"cBb", .answer = input_request},
	[G_READ] = {"pqq", .answer = read_request, .inside = {.run = read_work, .goes_on = true}},
	[G_WRITE] = {"puqb", .answer = write_request},
	[G_STAT] = {"pb", .answer = stat_request},
	[G_LIST] = {"pu", .work = {.run = list_work, .goes_on = true}},
	[G_MKDIR] = {"pub", .answer = mkdir_request},
	[G_MOVE] = {"ppb", .answer = move_request},
	[G_REMOVE] = {"pb", .answer = remove_request},
	[G_CHMOD] = {"puuu", .answer = chmod_request},
	[G_XATTR_SET] = {"pnBb", .answer = xattr_set_request},
	[G_XATTR_LIST] = {"p", .answer = xattr_list_request},
	[G_TAR_OUT] = {"pb", .work = {.run = tar_out_work, .goes_on = true}},
	[G_TAR_IN] = {"pb", .work = {.run = tar_in_work, .goes_on = true, .takes_input = true}},
	[G_SEARCH] = {"pgsbu", .work = {.run = search_work, .goes_on = true},
		      .inside = {.run = search_work, .goes_on = true}},
	[G_WATCH] = {"pb", .answer = watch_request},
	[G_CONNECT] = {"u", .answer = connect_request},
	[G_STATS] = {"", .answer = stats_request},
	[G_PING] = {"", .answer = ping_request},
	[G_EVENTS] = {"", .answer = events_request},
	[G_DENIALS] = {"u", .answer = denials_request},
	[G_ACCEPT] = {"", .answer = accept_request},
	[G_INSIDE] = {.unpack = inside_request},
};

static void unpack_text(const struct guest *g, struct unpack *u, char letter, char *ret)
{
	if (letter == 'p')
		files_unpack(g, u, ret);
	else
		unpack_str(u, ret,
			   letter == 'g'   ? GUEST_MAX_GLOB
			   : letter == 'n' ? GUEST_MAX_NAME
					   : GUEST_MAX_PATH);
}

/* ret_eid: the number of the command, which need not exist; 0: none is named. */
static bool unpack_payload(const struct guest *g, struct unpack *u, const char *payload,
			   struct unpacked_request *ret, uint32_t *ret_eid)
{
	size_t texts = 0, numbers = 0;

	for (; *payload; payload++) {
		switch (*payload) {
		case 'c':
			*ret_eid = unpack_u32(u);
			break;
		case 'b':
			ret->number[numbers++] = unpack_u8(u);
			break;
		case 'u':
			ret->number[numbers++] = unpack_u32(u);
			break;
		case 'q':
			ret->number[numbers++] = unpack_u64(u);
			break;
		case 'B':
			ret->bytes = unpack_bytes(u, &ret->len);
			break;
		default:
			unpack_text(g, u, *payload, ret->text[texts++]);
		}
	}
	return unpack_is_done(u);
}

static bool inside_request(struct guest *g, struct guest_stream *s, struct unpack *u)
{
	uint32_t eid = unpack_u32(u), ignored;
	uint8_t type = unpack_u8(u);
	struct unpacked_request r;
	struct worker_job job;

	if (type >= ARRAY_LEN(rows) || !rows[type].inside.run ||
	    !unpack_payload(g, u, rows[type].payload, &r, &ignored))
		return false;
	job = rows[type].inside;
	if (!warm_host_place(g->warm_host, eid, &job.mounts, &job.lane))
		stream_error(s, ESRCH, "the files of command %u are gone", eid);
	else
		work_start(s, &r, &job);
	return true;
}

bool request_is_known(uint8_t type)
{
	return type < ARRAY_LEN(rows) && (rows[type].payload || rows[type].unpack);
}

bool request_take(struct guest *g, struct guest_stream *s, uint8_t type, struct unpack *u)
{
	const struct row *row = &rows[type];
	struct unpacked_request r;
	uint32_t eid = 0;

	if (row->unpack)
		return row->unpack(g, s, u);
	if (!unpack_payload(g, u, row->payload, &r, &eid))
		return false;
	r.command = *row->payload == 'c' ? command_find(g, eid) : NULL;
	if (*row->payload == 'c' && !r.command)
		stream_error(s, ESRCH, "there is no command %u", eid);
	else if (row->answer)
		row->answer(s, &r);
	else
		work_start(s, &r, &row->work);
	return true;
}

/* The table of requests, and the one place that unpacks their payloads. */
#include "guest/link/request.h"

#include "guest/exec/command.h"
#include "guest/files/files.h"

static void ping_request(struct stream *s, const struct request *r)
{
	stream_ok(s, NULL);
}

/*
 * payload, a letter for each part:
 *   p  a path, made absolute     s  a string    g  a glob    n  a name
 *   b  a byte, u 32, q 64 bits   B  bytes       c  the number of a command, which has to exist
 */
static const struct row {
	const char *payload;
	request_answer *answer;
	request_unpacker *unpack; /* in place of the two */
} rows[] = {
	[G_CONFIGURE] = {.unpack = configure_request},
	[G_EXEC] = {.unpack = exec_request},
	[G_RUN] = {.unpack = run_request},
	[G_FORK] = {.unpack = fork_request},
	[G_ATTACH] = {"cq", attach_request, NULL},
	[G_SIGNAL] = {"cub", signal_request, NULL},
	[G_RESIZE] = {"cuu", resize_request, NULL},
	[G_EXECS] = {"", execs_request, NULL},
	[G_ACK] = {"c", ack_request, NULL},
	[G_INPUT] = {"cBb", input_request, NULL},
	[G_READ] = {"pqq", read_request, NULL},
	[G_WRITE] = {"puqb", write_request, NULL},
	[G_STAT] = {"pb", stat_request, NULL},
	[G_LIST] = {"pu", list_request, NULL},
	[G_MKDIR] = {"pub", mkdir_request, NULL},
	[G_MOVE] = {"ppb", move_request, NULL},
	[G_REMOVE] = {"pb", remove_request, NULL},
	[G_CHMOD] = {"puuu", chmod_request, NULL},
	[G_XATTR_SET] = {"pnBb", xattr_set_request, NULL},
	[G_XATTR_LIST] = {"p", xattr_list_request, NULL},
	[G_TAR_OUT] = {"pb", tar_out_request, NULL},
	[G_TAR_IN] = {"pb", tar_in_request, NULL},
	[G_SEARCH] = {"pgsbu", search_request, NULL},
	[G_WATCH] = {"pb", watch_request, NULL},
	[G_CONNECT] = {"u", connect_request, NULL},
	[G_STATS] = {"", stats_request, NULL},
	[G_PING] = {"", ping_request, NULL},
	[G_EVENTS] = {"", events_request, NULL},
	[G_DENIALS] = {"u", denials_request, NULL},
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

/* ret_eid: of the command that is named, whether it exists or not; 0: none is. */
static bool unpack_payload(const struct guest *g, struct unpack *u, const char *payload,
			   struct request *ret, uint32_t *ret_eid)
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

bool request_is_known(uint8_t type)
{
	return type < ARRAY_LEN(rows) && (rows[type].answer || rows[type].unpack);
}

bool request_take(struct guest *g, struct stream *s, uint8_t type, struct unpack *u)
{
	const struct row *row = &rows[type];
	struct request r;
	uint32_t eid = 0;

	if (row->unpack)
		return row->unpack(g, s, u);
	if (!unpack_payload(g, u, row->payload, &r, &eid))
		return false;
	r.command = *row->payload == 'c' ? command_find(g, eid) : NULL;
	if (*row->payload == 'c' && !r.command)
		stream_error(s, ESRCH, "there is no command %u", eid);
	else
		row->answer(s, &r);
	return true;
}

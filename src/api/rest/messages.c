/* Mail of agents over REST. Who owns an agent may speak for it and read its mail. */
#include "api/rest/rest.h"

#include "agent/mail.h"

const struct body_table v1_message_table = BODY_TABLE(
	BODY_ALONE, NEEDED("to", BODY_TEXT, "an agent of the same owner"),
	NEEDED("content", BODY_TEXT, "at most 64 KB"),
	FIELD("kind", BODY_TEXT, "message (default), task, or reply"),
	FIELD("id", BODY_TEXT, "the sender's own; sent again within an hour, it is refused"),
	FIELD("reply_to", BODY_TEXT, "of a reply: the task's id"));
const struct body_table v1_verify_table =
	BODY_TABLE(BODY_ALONE, NEEDED("message", BODY_OBJECT, "as a mailbox gives it"));

/* The agent of the path, if the caller sees it. */
static const char *agent_name(struct exchange *x)
{
	struct err e = {0};
	const struct ipc_agent *a = agents_see(x->api->agents, &x->caller, x->params[0], &e);

	if (!a)
		exchange_error(x, &e);
	return a ? a->name : NULL;
}

void v1_message_send(struct exchange *x)
{
	const char *name = agent_name(x);

	if (name)
		message_send_as(x, name);
}

void message_send_as(struct exchange *x, const char *name)
{
	static const char *const kinds[] = {"message", "task", "reply", NULL};
	struct mail_draft d = {.from = name,
			       .to = body_text(x->json, "to"),
			       .content = body_text(x->json, "content"),
			       .id = body_text(x->json, "id"),
			       .reply_to = body_text(x->json, "reply_to")};
	struct err e = {0};
	int kind = body_choice(x->json, "kind", kinds, &e);

	if (kind < 0) {
		exchange_error(x, &e);
		return;
	}
	if (d.reply_to && kind != AGENT_REPLY) {
		exchange_refuse(x, "reply_to", "is for replies");
		return;
	}
	if (!d.reply_to && kind == AGENT_REPLY) {
		exchange_refuse(x, "reply_to", "is missing");
		return;
	}
	d.kind = (enum agent_message_kind)kind;
	d.len = strlen(d.content);
	mail_send(x->api->mail, &d, v1_answer_created, x);
}

/* ---- reading ---- */

struct reading {
	struct exchange *x;
	struct mail_wait *wait;
};

static void on_read(void *arg, json_t *value, const struct err *e)
{
	struct reading *r = arg;

	r->wait = NULL;
	v1_answer_json(r->x, value, e);
}

static void on_reader_gone(void *arg)
{
	struct reading *r = arg;

	if (r->wait)
		mail_stop_waiting(r->wait);
}

void message_read_as(struct exchange *x, const char *name)
{
	struct mail_ask ask = {0};
	uint64_t limit;
	struct reading *r;
	struct err e = {0};

	if (exchange_arg_uint(x, "after", 0, INT64_MAX, &ask.after, &e) < 0 ||
	    exchange_arg_uint(x, "limit", MAIL_PAGE, MAIL_PAGE, &limit, &e) < 0 ||
	    exchange_arg_time(x, "wait", 0, MAIL_WAIT_MS, &ask.wait_ms, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	ask.limit = (uint32_t)limit;
	r = exchange_attach(x, sizeof(*r), NULL);
	r->x = x;
	r->wait = mail_receive(x->api->mail, name, &ask, on_read, r);
	if (ask.wait_ms)
		exchange_set_endless(x); /* a shutdown does not wait for it */
	exchange_on_gone(x, on_reader_gone, r);
}

void v1_message_read(struct exchange *x)
{
	const char *name = agent_name(x);

	if (name)
		message_read_as(x, name);
}

void message_ack_as(struct exchange *x, const char *name)
{
	uint64_t through;
	struct err e = {0};

	if (!exchange_arg(x, "through"))
		exchange_refuse(x, "through", "is missing");
	else if (exchange_arg_uint(x, "through", 0, INT64_MAX, &through, &e) < 0 ||
		 mail_ack(x->api->mail, name, through, &e) < 0)
		exchange_error(x, &e);
	else
		exchange_reply(x, 204, NULL, "", 0);
}

void v1_message_ack(struct exchange *x)
{
	const char *name = agent_name(x);

	if (name)
		message_ack_as(x, name);
}

void v1_message_verify(struct exchange *x)
{
	const char *name = agent_name(x);

	if (name)
		mail_verify(x->api->mail, name, json_object_get(x->json, "message"), v1_answer_json,
			    x);
}

void v1_agent_keys(struct exchange *x)
{
	const char *name = agent_name(x);

	if (name)
		mail_keys(x->api->mail, name, v1_answer_json, x);
}

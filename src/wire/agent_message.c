#include "wire/agent_message.h"

#include "wire/pack.h"

#define LABEL "cloche message 1"

void agent_message_encode(const struct agent_message *m, struct buf *ret)
{
	const char *const texts[] = {m->from, m->from_uid, m->to, m->to_uid, m->id, m->reply_to};
	const uint64_t numbers[] = {m->kind, m->trust, m->depth, m->epoch, m->time_ms, m->size};

	buf_add(ret, LABEL, sizeof(LABEL));
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		pack_str(ret, texts[i]);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		pack_u64(ret, numbers[i]);
	buf_add(ret, m->digest, sizeof(m->digest));
}

static bool is_id(const char *id)
{
	return str_only(id, STR_ALNUM "._-", 1, AGENT_MESSAGE_ID - 1);
}

static bool is_name(const char *name)
{
	return str_only(name, STR_LOWER STR_DIGITS "._-", 1, IPC_NAME - 1);
}

bool agent_message_is_sane(const struct agent_message *m)
{
	bool is_reply = m->kind == AGENT_REPLY;

	return is_name(m->from) && is_name(m->to) && is_id(m->id) &&
	       m->kind < AGENT_MESSAGE_KINDS && m->size <= AGENT_MESSAGE_CONTENT &&
	       (is_reply ? is_id(m->reply_to) : !m->reply_to[0]) &&
	       (m->kind == AGENT_TASK) == (m->depth > 0);
}

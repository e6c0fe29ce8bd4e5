/* Messages between agents as JSON: for readers, and back for those that came another way. */
#include "agent/mail.h"

#include "base/base64.h"

#include <sodium.h>

static const char *const kinds[] = {
	[AGENT_NOTE] = "message", [AGENT_TASK] = "task", [AGENT_REPLY] = "reply"};

void message_digest(struct agent_message *m, const void *content, size_t len)
{
	m->size = (uint32_t)len;
	crypto_generichash(m->digest, sizeof(m->digest), content, len, NULL, 0);
}

static json_t *text_or_null(const char *text)
{
	return text[0] ? json_string(text) : json_null();
}

json_t *message_to_json(uint64_t seq, const struct agent_message *m, const void *content)
{
	char signature[BASE64_ROOM(AGENT_MESSAGE_SIGNATURE)];
	size_t len = base64_encode(signature, m->signature, sizeof(m->signature));

	return json_pack("{s:I,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:s#,s:I,s:o,s:i,s:i,s:I,s:s#}", "seq",
			 (json_int_t)seq, "id", m->id, "from", m->from, "from_uid", m->from_uid,
			 "to", m->to, "to_uid", m->to_uid, "kind", kinds[m->kind], "reply_to",
			 text_or_null(m->reply_to), "content", content, (int)m->size, "time_ms",
			 (json_int_t)m->time_ms, "time", time_json(m->time_ms), "trust", m->trust,
			 "depth", m->depth, "epoch", (json_int_t)m->epoch, "signature", signature,
			 (int)len);
}

/* A text that fits; missing or null: "". */
static bool copy_text(const json_t *o, const char *key, char *ret, size_t size)
{
	const json_t *value = json_object_get(o, key);
	const char *text = json_string_value(value);

	if (!value || json_is_null(value))
		return true;
	return text && strlen(text) == json_string_length(value) &&
	       (size_t)snprintf(ret, size, "%s", text) < size;
}

static bool copy_number(const json_t *o, const char *key, uint64_t most, uint64_t *ret)
{
	const json_t *value = json_object_get(o, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    (uint64_t)json_integer_value(value) > most)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return true;
}

static bool copy_numbers(const json_t *o, struct agent_message *m)
{
	uint64_t trust, depth, epoch;

	if (!copy_number(o, "trust", UINT8_MAX, &trust) ||
	    !copy_number(o, "depth", UINT8_MAX, &depth) ||
	    !copy_number(o, "epoch", UINT32_MAX, &epoch) ||
	    !copy_number(o, "time_ms", INT64_MAX / 2, &m->time_ms))
		return false;
	m->trust = (uint8_t)trust;
	m->depth = (uint8_t)depth;
	m->epoch = (uint32_t)epoch;
	return true;
}

static bool copy_signature(const json_t *o, struct agent_message *m)
{
	const json_t *value = json_object_get(o, "signature");
	char bytes[BASE64_ROOM(AGENT_MESSAGE_SIGNATURE)];
	size_t len = json_string_length(value);

	if (len != sizeof(bytes) || base64_decode(bytes, json_string_value(value), len, &len) < 0 ||
	    len != sizeof(m->signature))
		return false;
	memcpy(m->signature, bytes, sizeof(m->signature));
	return true;
}

static bool copy_kind(const json_t *o, struct agent_message *m)
{
	const char *kind = json_string_value(json_object_get(o, "kind"));

	for (size_t i = 0; kind && i < ARRAY_LEN(kinds); i++)
		if (str_equal(kind, kinds[i])) {
			m->kind = (uint8_t)i;
			return true;
		}
	return false;
}

int message_from_json(const json_t *o, struct agent_message *ret, struct err *e)
{
	const json_t *content = json_object_get(o, "content");
	struct agent_message m = {0};

	if (!copy_text(o, "from", m.from, sizeof(m.from)) ||
	    !copy_text(o, "from_uid", m.from_uid, sizeof(m.from_uid)) ||
	    !copy_text(o, "to", m.to, sizeof(m.to)) ||
	    !copy_text(o, "to_uid", m.to_uid, sizeof(m.to_uid)) ||
	    !copy_text(o, "id", m.id, sizeof(m.id)) ||
	    !copy_text(o, "reply_to", m.reply_to, sizeof(m.reply_to)) || !copy_kind(o, &m) ||
	    !copy_numbers(o, &m) || !copy_signature(o, &m) || !json_is_string(content) ||
	    json_string_length(content) > AGENT_MESSAGE_CONTENT)
		return err_set(e, ERR_INVALID, "that is no message");
	message_digest(&m, json_string_value(content), json_string_length(content));
	if (!agent_message_is_sane(&m))
		return err_set(e, ERR_INVALID, "that is no message");
	*ret = m;
	return 0;
}

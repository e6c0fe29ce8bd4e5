/* What an E2B service might answer: names and tokens that are taken are safe to send back. */
#include "fuzz.h"

#include "wire/service.h"

#include <string.h>

static void answers(const char *text, size_t size)
{
	struct service_sandbox s;
	char name[REMOTE_ID];
	struct err e = {0};

	if (service_sandbox_parse(text, size, &s, &e) == 0) {
		PROMISE(remote_name_is_valid(s.name));
		for (const char *c = s.token; *c; c++)
			PROMISE(*c > ' ' && *c <= '~');
	} else {
		PROMISE(e.kind != ERR_NONE);
	}
	if (service_list_parse(text, size, "a", name, &e) > 0)
		PROMISE(remote_name_is_valid(name));
	service_refusal("do it", size ? (unsigned char)text[0] + 300 : 500, text, size, &e);
	PROMISE(memchr(e.msg, '\0', sizeof(e.msg)));
	PROMISE(!strchr(e.msg, '\n') && !strchr(e.msg, '\033'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf in = {0}, out = {0};
	struct service_event ev;
	struct err e = {0};
	size_t before;
	int rc;

	answers((const char *)data, size);
	buf_add(&in, data, size);
	do {
		before = in.len;
		rc = service_event_next(&in, &out, &ev, &e);
		PROMISE(rc <= 0 || in.len < before);
		PROMISE(rc <= 0 || ev.kind != SERVICE_START || ev.pid > 0);
		PROMISE(memchr(ev.text, '\0', sizeof(ev.text)));
		PROMISE(out.len <= size);
	} while (rc > 0);
	PROMISE((rc < 0) == (e.kind != ERR_NONE));
	buf_done(&in);
	buf_done(&out);
	return 0;
}

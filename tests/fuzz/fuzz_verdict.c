/* What an interceptor prints: allowed is only what says so, and what it says is fit for a terminal. */
#include "fuzz.h"

#include "policy/tools/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_auto_t *answer = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	const char *said = json_string_value(json_object_get(answer, "verdict"));
	struct tool_judgement j;

	tool_verdict_read("one", (const char *)data, size, &j);
	PROMISE(j.verdict == TOOL_DENY ||
		(said && strcmp(said, tool_verdict_name(j.verdict)) == 0));
	PROMISE(j.verdict != TOOL_ALLOW || strcmp(said, "allow") == 0);
	PROMISE(strcmp(j.rule, "interceptor one") == 0);
	for (const char *p = j.reason; *p; p++)
		PROMISE((unsigned char)*p >= 0x20 && *p != 0x7f);
	return 0;
}

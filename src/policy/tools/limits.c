/* Bounds on how often agents may call tools: "N/TIME [AGENT/]TOOL [because REASON]". */
#include "policy/tools/rules.h"

static int bad_limit(const char *text, struct err *e)
{
	return err_field(e, ERR_INVALID, "limits",
			 "limits: '%.100s' is not N/TIME [AGENT/]TOOL, as 60/1m Bash", text);
}

int tool_limit_read(const char *text, struct tool_limit *ret, struct err *e)
{
	struct tool_limit l = {0};
	char number[12], time[16];
	int used = 0;
	uint64_t count;

	if (!str_is_printable(text) ||
	    sscanf(text, "%11[0-9]/%15[0-9a-z] %127s%n", number, time, l.tool, &used) != 3 ||
	    text[used] || parse_count(number, &count, e) < 0 || !count || count > TOOL_LIMIT_MOST)
		return bad_limit(text, e);
	if (parse_time(time, &l.window_ms, e) < 0 || l.window_ms < 1000)
		return bad_limit(text, e);
	l.count = (uint32_t)count;
	*ret = l;
	return 0;
}

/* A line for a shell, and rules that look at it. The first byte picks which rules. */
#include "fuzz.h"

#include "policy/tools/rules.h"
#include "policy/tools/shell.h"

static void check_words(const char *text, size_t len)
{
	struct shell_line l;
	struct err e = {0};

	if (shell_read(text, len, &l, &e) < 0) {
		PROMISE(e.msg[0]);
		return;
	}
	for (size_t i = 0; i < l.count; i++)
		for (size_t j = 0; j < l.commands[i].count; j++)
			PROMISE(l.commands[i].words[j].text);
	for (size_t i = 0; i < l.place_count; i++)
		PROMISE(l.places[i].text && l.places[i].at + l.places[i].len <= len);
	shell_line_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const rules[] = {"allow Bash command=git ** status\ndeny Bash",
					    "deny * path=/etc/**", "ask * command=** -c *"};
	auto_list struct list list = {0};
	auto_free char *text = NULL;
	struct tool_judgement j;
	json_auto_t *args = NULL;
	struct err e = {0};

	if (size < 1)
		return 0;
	text = must_alloc(malloc(size));
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	check_words(text, size - 1);
	if (tool_rule_check(text, &e) == 0)
		list_add(&list, text);
	list_add(&list, rules[data[0] % ARRAY_LEN(rules)]);
	args = json_pack("{s:o?, s:s?}", "command", json_stringn(text, size - 1), "url", NULL);
	tool_rules_judge(&list, &(struct tool_question){.tool = "Bash", .args = args, .cwd = "/w"},
			 &j);
	PROMISE(j.verdict == TOOL_ALLOW || (j.reason[0] && j.rule[0]));
	return 0;
}

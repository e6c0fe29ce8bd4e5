/* Lines for a shell, and the rules for tool calls that look at them. */
#include "policy/tools/rules.h"
#include "policy/tools/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The programs that a line starts, with blanks between; "!": it cannot be read; "~" at the end: unclear. */
static void programs(const char *text, char *ret, size_t size)
{
	struct shell_line l;
	struct err e = {0};

	ret[0] = '\0';
	if (shell_read(text, strlen(text), &l, &e) < 0) {
		assert_true(e.msg[0]);
		snprintf(ret, size, "!");
		return;
	}
	for (size_t i = 0; i < l.count; i++)
		if (l.commands[i].count && !l.commands[i].is_for)
			str_append(ret, size, " ", "%s", l.commands[i].words[0].text);
	if (l.unclear[0])
		str_append(ret, size, " ", "~");
	shell_line_done(&l);
}

static const char *const lines[][2] = {
	{"ls", "ls"},
	{"ls -l; pwd && git status || true &", "ls pwd git true"},
	{"a | b |& c", "a b c"},
	{"a\nb # c\nd", "a b d"},
	{"'g'i\"t\" push", "git"},
	{"g\\it push", "git"},
	{"$'\\x67it' push", "?67it ~"},
	{"$'git' push", "git"},
	{"X=1 Y='2 3' env", "env"},
	{"\"X=1\" ls", "X=1"},
	{"echo $(git push)", "echo git"},
	{"echo \"a $(git push) b\"", "echo git"},
	{"echo '$(git push)'", "echo"},
	{"echo `git push`", "echo git"},
	{"echo `echo \\`git push\\``", "echo echo git"},
	{"echo ${X:-$(git push)}", "echo git"},
	{"echo ${X:-'a'}", "!"},
	{"echo $((1 + $(git push)))", "echo git"},
	{"diff <(a) >(b)", "diff a b"},
	{"(cd x; ls)", "cd ls"},
	{"{ a; b; }", "a b"},
	{"if a; then b; elif c; then d; else e; fi", "a b c d e"},
	{"while read l; do x; done < f", "read x"},
	{"for i in $(a) b; do c; done", "a c"},
	{"! a", "a"},
	{"case x in y) z;; esac", "!"},
	{"f() { git push; }; f", "!"},
	{"function f { a; }", "!"},
	{"((x=1))", "!"},
	{"a=(b c); d", "b d"},
	{"a 'b", "!"},
	{"a \"b", "!"},
	{"a `b", "!"},
	{"a $(b", "!"},
	{"a ${b", "!"},
	{"a )", "!"},
	{"a <", "!"},
	{"a \\", "!"},
	{"a\r", "!"},
	{"cat <<EOF\n$(git push)\nEOF\nb", "cat git b"},
	{"cat <<'EOF'\n$(git push)\nEOF\nb", "cat b"},
	{"cat <<-EOF\n\tx\n\tEOF\nb", "cat b"},
	{"cat <<EOF\nx", "!"},
	{"cat <<A; b <<B\n$(c)\nA\n`d`\nB\ne", "cat b c d e"},
	{"bash <<'EOF'\ngit push\nEOF", "bash git"},
	{"bash <<EOF\n$X\nEOF", "bash ? ~"},
	{"env A=b git push", "env git"},
	{"env -i -u X git push", "env git"},
	{"env -S 'git push'", "env ~"},
	{"env --split-string='git push'", "env ~"},
	{"env LD_PRELOAD=/x ls", "env ls ~"},
	{"LD_PRELOAD=/x ls", "ls ~"},
	{"xargs -n 1 git push", "xargs git"},
	{"xargs --null git", "xargs ~"},
	{"timeout -k 1 5 git push", "timeout git"},
	{"nice -n 5 nohup git push", "nice nohup git"},
	{"sudo -u x git push", "sudo git"},
	{"sudo X=y git push", "sudo git"},
	{"command git push", "command git"},
	{"time -p git push", "time git"},
	{"flock f git push", "flock git"},
	{"flock f -c 'git push'", "flock -c ~"},
	{"busybox sh -c 'git push'", "busybox sh git"},
	{"find . -name x -exec git push {} \\; -exec rm {} +", "find git rm"},
	{"find . -exec {} \\;", "find {} ~"},
	{"sh -c 'git push'", "sh git"},
	{"bash -lc 'git push'", "bash git"},
	{"bash -e -o pipefail -c 'git push' x", "bash git"},
	{"bash -c -e 'git push'", "bash git"},
	{"bash --norc -c 'git push'", "bash git"},
	{"bash --rcfile x -c 'git push'", "bash ~"},
	{"bash -c \"$X\"", "bash ~"},
	{"bash script.sh", "bash"},
	{"echo git push | sh", "echo sh ~"},
	{"echo git push | (true; sh)", "echo true sh ~"},
	{"sh < f", "sh ~"},
	{"sh <(a)", "sh a ~"},
	{"sh /dev/stdin", "sh ~"},
	{"bash <<< 'git push'", "bash ~"},
	{"eval git push", "eval git"},
	{"eval \"$X\"", "eval ~"},
	{"trap 'git push' EXIT", "trap git"},
	{"$X push", "? ~"},
	{"g{i,x}t push", "g{i,x}t ~"},
	{"/bin/g?t push", "/bin/g?t ~"},
	{"alias ls=git", "alias ~"},
	{"ssh host git push", "ssh"},
	{"[[ x && y ]]", "[[ y"},
	{"a > $X", "a ~"},
	{"a 2>&1 >f", "a"},
	/* What bash runs, and a reader may overlook: each was tried with bash 5.2. */
	{"echo $(cat <<E)\ngit push\nE", "!"},
	{"cat <<A $(true\ngit push)\nA", "!"},
	{"cat <<EF\nE\\\nF\ngit push\nEF", "cat git EF"},
	{"cat <<E\nE\\\nE\nb\nE\nc", "cat c"},
	{"cat <<'E'\na\\\nE\nb", "cat b"},
	{"cat <<E\na\\\\\nE\nb", "cat b"},
	{"echo $((git push) ) # ))", "!"},
	{"echo $((1 + (2 * 3)))", "echo"},
	{"time { git push; }", "time git"},
	{"time ! git push", "time git"},
	{"time case x in y) z;; esac", "!"},
	{"{x}>/dev/null git push", "git"},
	{"{x[1]}</dev/null git push", "git"},
	{"{x} git push", "{x}"},
	{"echo 'git push' | xargs -I% sh -c %", "echo xargs sh ~"},
	{"xargs -0I {} sh -c 'a {}'", "xargs sh ~"},
	{"xargs --replace=R R push", "xargs R ~"},
	{"xargs -I{} cp {} d", "xargs cp"},
	{"echo git push | . /dev/stdin", "echo . ~"},
	{"source /dev/fd/3", "source ~"},
	{"source <(a)", "source a ~"},
	{". venv/bin/activate", "."},
	{"echo git push | unshare -r", "echo unshare ~"},
	{"echo git push | sudo -s", "echo sudo ~"},
	{"let 'a[$(git push)]=1'", "let ~"},
	{"test -v 'a[`git push`]'", "test ~"},
	{"[[ -v 'a[$(git push)]' ]]", "[[ ~"},
	{"echo 'a $(b)'", "echo"},
	{"mapfile -C 'git push' -c 1 x", "mapfile ~"},
	{"mapfile -t x", "mapfile"},
	{"compgen -C 'git push'", "compgen ~"},
	{"PS4='$(git push)'; set -x; :", "set : ~"},
	{"X='$(git push)'; echo ${X@P}", "echo ~"},
	{"X='a b' c", "c"},
	{"git -c alias.x=push x", "git ~"},
	{"git -c user.name=x commit", "git"},
	{"git submodule foreach 'git push'", "git ~"},
	{"git rebase --exec 'git push' x", "git ~"},
	{"fish -c 'git push'", "fish ~"},
	{"setpriv --reuid=1 git push", "setpriv git"},
};

static void test_programs(void **state)
{
	char found[256];
	bool failed = false;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		programs(lines[i][0], found, sizeof(found));
		if (!str_equal(found, lines[i][1])) {
			print_message("%s: %s, not %s\n", lines[i][0], found, lines[i][1]);
			failed = true;
		}
	}
	assert_false(failed);
}

static void test_depth(void **state)
{
	auto_buf struct buf b = {0};
	struct shell_line l;
	struct err e = {0};

	for (int i = 0; i < 2000; i++)
		buf_add(&b, "$(", 2);
	assert_int_equal(shell_read(buf_head(&b), b.len, &l, &e), -1);
	assert_non_null(strstr(e.msg, "deep"));
	b.len = 0;
	for (int i = 0; i < 30000; i++)
		buf_add(&b, "env ", 4);
	assert_int_equal(shell_read(buf_head(&b), b.len, &l, &e), -1);
	assert_int_equal(shell_read("a\0b", 3, &l, &e), -1);
}

static void test_spans(void **state)
{
	static const char text[] = "cp '/a b' \"/c\" $(x /d) > /e";
	struct shell_line l;
	struct err e = {0};

	assert_int_equal(shell_read(text, strlen(text), &l, &e), 0);
	assert_int_equal(l.place_count, 4); /* not what is inside $( ) */
	assert_string_equal(l.places[1].text, "/a b");
	assert_memory_equal(text + l.places[1].at, "'/a b'", l.places[1].len);
	assert_int_equal(l.places[2].len, 4);
	assert_memory_equal(text + l.places[3].at, "/e", l.places[3].len);
	shell_line_done(&l);
}

static enum tool_verdict judge(const char *rules, const char *tool, const char *args,
			       struct tool_judgement *j)
{
	auto_list struct list list = {0};
	auto_free char *copy = str_copy(rules);
	json_auto_t *a = json_loads(args, 0, NULL), *paths = json_pack("{s:s}", "/host/p", "/work");
	struct tool_question q = {.tool = tool, .args = a, .cwd = "/host/p", .paths = paths};
	char *save = NULL;
	struct err e = {0};

	assert_non_null(a);
	for (char *r = strtok_r(copy, "\n", &save); r; r = strtok_r(NULL, "\n", &save))
		list_add(&list, r);
	if (tool_rules_check(&list, &e) < 0)
		fail_msg("%s", e.msg);
	tool_rules_judge(&list, &q, j);
	return j->verdict;
}

static void test_commands(void **state)
{
	static const struct {
		const char *rules, *command;
		enum tool_verdict verdict;
	} rows[] = {
		{"", "rm -rf /; case", TOOL_ALLOW},
		{"deny Bash command=git push", "git push", TOOL_DENY},
		{"deny Bash command=git push", "git push origin main", TOOL_DENY},
		{"deny Bash command=git push", "git pull", TOOL_ALLOW},
		{"deny Bash command=git push", "git pushx", TOOL_ALLOW},
		{"deny Bash command=git push", "echo git push", TOOL_ALLOW},
		{"deny Bash command=git push", "ls; /usr/bin/git 'push'", TOOL_DENY},
		{"deny Bash command=git push", "git -C x push", TOOL_ALLOW},
		{"deny Bash command=git ** push", "git -C x push", TOOL_DENY},
		{"deny Bash command=git ** push", "git push", TOOL_DENY},
		{"deny Bash command=git ** push", "git log $X", TOOL_ASK},
		{"deny Bash command=git push", "git $X", TOOL_ASK},
		{"deny Bash command=git push", "git log \"$X\"", TOOL_ALLOW},
		{"deny Bash command=git push", "$G push", TOOL_ASK},
		{"deny Bash command=git push", "echo | sh", TOOL_ASK},
		{"deny Bash command=git push", "case x in", TOOL_ASK},
		{"deny Bash command=git push", "sh -c 'env git push'", TOOL_DENY},
		{"deny Bash command=git push\nask Bash command=git", "git pull; git push",
		 TOOL_DENY},
		{"ask Bash command=git\ndeny Bash command=git push", "git push", TOOL_ASK},
		{"allow Bash command=git status\ndeny Bash", "git status", TOOL_ALLOW},
		{"allow Bash command=git status\ndeny Bash", "git status; ls", TOOL_DENY},
		{"allow Bash command=git status\ndeny Bash", "git $X", TOOL_DENY},
		{"allow Bash command=git status\ndeny Bash", "git status $(ls)", TOOL_DENY},
		{"allow Bash command=git status\ndeny Bash", "$X", TOOL_DENY},
		{"allow Bash command=git status\ndeny Bash", "> /etc/x", TOOL_DENY},
		{"allow Bash command=git status\ndeny Bash", "", TOOL_DENY},
		{"allow Bash command=ls *\ndeny Bash", "ls x y", TOOL_ALLOW},
		{"allow Bash command=ls *\ndeny Bash", "ls", TOOL_DENY},
		{"allow Bash\ndeny *", "case", TOOL_ALLOW},
		{"deny run_command command=rm", "rm x", TOOL_DENY},
		{"deny Sh* command=rm", "rm x", TOOL_ALLOW},
		{"deny Ba*h command=rm", "rm x", TOOL_DENY},
		{"deny Bash command=/bin/rm", "rm x", TOOL_ALLOW},
		{"deny Bash command=*rm", "/bin/rm x", TOOL_DENY},
		{"deny * path=/etc/shadow", "cat /etc/shadow", TOOL_DENY},
		{"deny * path=/etc/shadow", "cat < /etc/../etc/./shadow", TOOL_DENY},
		{"deny * path=/etc/shadow", "cat --file=/etc/shadow", TOOL_DENY},
		{"deny * path=/etc/shadow", "for f in /etc/shadow; do x $f; done", TOOL_DENY},
		{"deny * path=/etc/shadow", "cat /etc/sh*", TOOL_ASK},
		{"deny * path=/etc/shadow", "dd if=/etc/shadow", TOOL_DENY},
		{"deny * path=/etc/shadow", "curl -F f=@/etc/shadow x", TOOL_DENY},
		{"deny * path=/etc/shadow", "curl file:///etc/shadow", TOOL_DENY},
		{"deny * path=/etc/shadow", "grep -f/etc/shadow x", TOOL_DENY},
		{"deny * path=/etc/shadow", "docker run -v /etc/shadow:/x y", TOOL_DENY},
		{"deny * path=/etc/shadow", "cd /etc && cat shadow", TOOL_DENY},
		{"deny * path=/etc/shadow", "pushd /; (cd etc; cat < ./shadow)", TOOL_DENY},
		{"deny * path=/work/key", "cd /etc; cat key", TOOL_DENY}, /* a subshell's cd ends */
		{"deny * path=/etc/shadow", "echo a=b:c,d", TOOL_ALLOW},
		{"deny * path=/etc/shadow", "x /,/,/,/,/,/,/,/,/,/,/,/,/,/,/,/,/,/,/,/,", TOOL_ASK},
		{"deny * path=/etc/shadow", "echo \"$X\"", TOOL_ALLOW},
		{"deny * path=.env", "cat sub/.env", TOOL_DENY},
		{"deny * path=/work/key", "cat key", TOOL_DENY},
		{"deny * path=/etc/**", "ls /etc", TOOL_DENY},
		{"allow * path=/work/**\ndeny *", "cat /work/x", TOOL_DENY},
	};
	struct tool_judgement j;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_auto_t *args = json_pack("{s:s}", "command", rows[i].command);
		auto_free char *text = json_dumps(args, 0);

		if (judge(rows[i].rules, "Bash", text, &j) != rows[i].verdict)
			fail_msg("%s: %s: %s", rows[i].rules, rows[i].command, j.reason);
		if (j.verdict != TOOL_ALLOW)
			assert_true(j.reason[0] && j.rule[0]);
	}
}

static void test_other_tools(void **state)
{
	static const struct {
		const char *rules, *tool, *args;
		enum tool_verdict verdict;
	} rows[] = {
		{"deny Read path=/etc/**", "Read", "{\"file_path\":\"/etc/passwd\"}", TOOL_DENY},
		{"deny Read path=/etc/**", "read_file", "{\"path\":\"/etc/passwd\"}", TOOL_DENY},
		{"deny Read path=/etc/**", "Write", "{\"file_path\":\"/etc/passwd\"}", TOOL_ALLOW},
		{"deny Read path=/etc/**", "Read", "{\"file_path\":\"../../etc/x\"}", TOOL_DENY},
		{"deny * path=/work/a", "Read", "{\"path\":\"/host/p/a\"}", TOOL_DENY},
		{"deny * path=/host/p/a", "Read", "{\"path\":\"/work/a\"}", TOOL_DENY},
		{"allow * path=/host/p/**\ndeny *", "Write", "{\"path\":\"x\"}", TOOL_ALLOW},
		{"allow * path=/host/p/**\ndeny *", "Write", "{\"path\":\"/x\"}", TOOL_DENY},
		{"allow * path=/host/p/**\ndeny *", "Write", "{\"path\":\"x\",\"file\":\"/x\"}",
		 TOOL_DENY},
		{"allow * path=/host/p/**\ndeny *", "Write", "{}", TOOL_DENY},
		{"allow WebFetch domain=*.a.com\ndeny WebFetch", "WebFetch",
		 "{\"url\":\"https://x.A.com/b\"}", TOOL_ALLOW},
		{"allow WebFetch domain=a.com\ndeny WebFetch", "WebFetch",
		 "{\"url\":\"https://a.com@evil.com/b\"}", TOOL_DENY},
		{"allow WebFetch domain=a.com\ndeny WebFetch", "WebFetch",
		 "{\"url\":\"https://a.com:x@evil.com/b\"}", TOOL_DENY},
		{"allow WebFetch domain=a.com\ndeny WebFetch", "WebFetch",
		 "{\"url\":\"https://evil.com\\\\a.com\"}", TOOL_DENY},
		{"allow WebFetch domain=a.com\ndeny WebFetch", "fetch",
		 "{\"url\":\"https://evil.com#a.com\"}", TOOL_DENY},
		{"deny WebFetch domain=evil.com", "WebFetch", "{\"url\":\"http://evil.com.:80/\"}",
		 TOOL_DENY},
		{"deny WebFetch domain=evil.com", "WebFetch", "{\"url\":\"evil.com\"}", TOOL_ASK},
		{"deny mcp__github__*", "mcp__github__delete", "{}", TOOL_DENY},
		{"deny mcp__github__*", "mcp__gitlab__delete", "{}", TOOL_ALLOW},
		{"deny x force=true", "x", "{\"force\":true}", TOOL_DENY},
		{"deny x n=1*", "x", "{\"n\":12}", TOOL_DENY},
		{"deny x n=1*", "x", "{\"n\":21}", TOOL_ALLOW},
		{"deny x v=*\"a\"*", "x", "{\"v\":[\"a\"]}", TOOL_DENY},
		{"deny Bash command=rm", "run_commands", "{\"commands\":[\"ls\",\"rm x\"]}",
		 TOOL_DENY},
		{"deny Bash command=rm", "Bash", "{\"command\":[\"rm\",\"x\"]}", TOOL_ASK},
		{"deny Bash command=rm", "Bash", "{}", TOOL_ASK},
		{"deny Bash command=rm", "Bash", "{\"command\":\"ls\",\"cmd\":\"rm\"}", TOOL_DENY},
		{"deny * command=rm", "apply_patch", "{\"command\":[\"x\"]}", TOOL_ALLOW},
	};
	struct tool_judgement j;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (judge(rows[i].rules, rows[i].tool, rows[i].args, &j) != rows[i].verdict)
			fail_msg("%s: %s %s: %s", rows[i].rules, rows[i].tool, rows[i].args,
				 j.reason);
}

static void test_reasons(void **state)
{
	struct tool_judgement j;

	judge("deny Bash command=git push because people push", "Bash",
	      "{\"command\":\"git push\"}", &j);
	assert_string_equal(j.reason, "people push");
	judge("deny Bash command=git push", "Bash", "{\"command\":\"git push\"}", &j);
	assert_non_null(strstr(j.reason, "deny Bash command=git push"));
}

static void test_bad_rules(void **state)
{
	static const char *const bad[] = {"",
					  "deny",
					  "refuse Bash",
					  "deny Bash git push",
					  "deny Bash command=",
					  "deny Bash =x",
					  "deny * path=a/b",
					  "deny Bash command=a\nb",
					  "deny because x",
					  "allow"};
	struct err e = {0};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (tool_rule_check(bad[i], &e) == 0)
			fail_msg("%s", bad[i]);
		assert_string_equal(e.field, "tool_rule");
	}
}

static void test_bad_rule_denies(void **state)
{
	auto_list struct list rules = {0};
	struct tool_question q = {.tool = "x"};
	struct tool_judgement j;

	list_add(&rules, "nonsense");
	tool_rules_judge(&rules, &q, &j);
	assert_int_equal(j.verdict, TOOL_DENY);
}

static void test_paths(void **state)
{
	json_auto_t *paths =
		json_pack("{s:s, s:s}", "/home/me/p", "/workspace", "/home/me/p/data", "/data");
	static const char *const rows[][2] = {
		{"/home/me/p", "/workspace"},	  {"/home/me/p/a", "/workspace/a"},
		{"/home/me/p/data/x", "/data/x"}, {"/home/me/p/./q/../a", "/workspace/a"},
		{"/home/me/p/../x", NULL},	  {"/home/me/px", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_free char *inside = tool_path_inside(paths, rows[i][0]);
		auto_free char *back = inside ? tool_path_outside(paths, inside) : NULL;
		auto_free char *clean = tool_path_clean(NULL, rows[i][0]);

		if (!rows[i][1]) {
			assert_null(inside);
			continue;
		}
		assert_string_equal(inside, rows[i][1]);
		assert_string_equal(back, clean);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),    cmocka_unit_test(test_depth),
		cmocka_unit_test(test_spans),	    cmocka_unit_test(test_commands),
		cmocka_unit_test(test_other_tools), cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_bad_rules),   cmocka_unit_test(test_bad_rule_denies),
		cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

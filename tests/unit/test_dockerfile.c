/* Dockerfiles as people write them, and what replaces variables in them. */
#include "image/build/build.h"
#include "image/build/expand.h"
#include "image/build/mounts.h"
#include "image/build/view.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct build_steps parse(const char *text)
{
	struct build_steps s = {0};
	struct err e = {0};

	if (dockerfile_parse(text, strlen(text), &s, &e) < 0)
		fail_msg("%s: %s", text, e.msg);
	return s;
}

static void refuse(const char *text, const char *says)
{
	struct build_steps s = {0};
	struct err e = {0};

	if (dockerfile_parse(text, strlen(text), &s, &e) == 0)
		fail_msg("taken: %s", text);
	if (!strstr(e.msg, says))
		fail_msg("%s: '%s' does not say '%s'", text, e.msg, says);
	assert_string_equal(e.field, "dockerfile");
}

static void is_arg(const struct build_step *s, size_t i, const char *text)
{
	assert_true(i < s->args.count);
	assert_string_equal(s->args.items[i], text);
}

static void test_lines(void **state)
{
	struct build_steps s =
		parse("\n# a comment\n  from a AS b\r\nRUN one \\\n# between\n\n  two \\\n"
		      "\tthree\n\nCMD [\"x\", \"a b\"]");

	assert_int_equal(s.count, 3);
	assert_int_equal(s.items[0].kind, BUILD_FROM);
	assert_int_equal(s.items[0].line, 3);
	is_arg(&s.items[0], 2, "b");
	assert_int_equal(s.items[1].line, 4);
	is_arg(&s.items[1], 0, "one   two \tthree");
	assert_false(s.items[1].is_exec);
	assert_true(s.items[2].is_exec);
	is_arg(&s.items[2], 1, "a b");
	build_steps_done(&s);
}

static void test_words(void **state)
{
	struct build_steps s =
		parse("FROM a\nENV A=1 B=\"two words\" C='x y'\\ z\nENV OLD all of it\n"
		      "COPY --from=x --chown=1:2 a \"b c\" /d/\nLABEL a.b=\"c\"\n"
		      "VOLUME [\"/v\", \"/w\"]\nVOLUME /x /y\nHEALTHCHECK --retries=3 CMD a\n"
		      "RUN [ -f x ] && y\nRUN --mount=type=tmpfs,target=/t [\"a\"]\n");

	is_arg(&s.items[1], 1, "B=\"two words\"");
	is_arg(&s.items[1], 2, "C='x y'\\ z");
	is_arg(&s.items[2], 0, "OLD=all of it");
	assert_int_equal(s.items[3].flags.count, 2);
	assert_string_equal(s.items[3].flags.items[0], "from=x");
	assert_int_equal(s.items[3].args.count, 3);
	assert_int_equal(s.items[5].args.count, 2);
	assert_int_equal(s.items[6].args.count, 2);
	assert_string_equal(s.items[7].flags.items[0], "retries=3");
	assert_false(s.items[8].is_exec);
	is_arg(&s.items[8], 0, "[ -f x ] && y");
	assert_true(s.items[9].is_exec);
	build_steps_done(&s);
}

static void test_heredocs(void **state)
{
	struct build_steps s =
		parse("FROM a\nRUN <<EOF\necho a\n\n# not a comment\nEOF\n"
		      "RUN cat <<A | sh && cat <<-B\nx\nA\n\ty\n\tB\n"
		      "COPY <<one <<-'two' /d/\n$A\none\n\t$B\n\ttwo\nRUN echo $((1<<2))\n");

	is_arg(&s.items[1], 0, "echo a\n\n# not a comment\n");
	is_arg(&s.items[2], 0, "cat <<A | sh && cat <<-B\nx\nA\n\ty\n\tB");
	assert_int_equal(s.items[3].docs.count, 4);
	assert_string_equal(s.items[3].docs.items[0], "one");
	assert_string_equal(s.items[3].docs.items[1], "$A\n");
	assert_string_equal(s.items[3].docs.items[2], "'two");
	assert_string_equal(s.items[3].docs.items[3], "$B\n");
	is_arg(&s.items[4], 0, "echo $((1<<2))");
	build_steps_done(&s);
}

static void test_refused(void **state)
{
	refuse("", "no instruction");
	refuse("FROM a\nMAINTAINER b", "line 2: MAINTAINER is no instruction");
	refuse("FROM a\nRUN --security=insecure b", "RUN --security is not known");
	refuse("FROM a\nCOPY --parents b c", "COPY --parents is not known");
	refuse("FROM a\nCOPY b", "needs a source");
	refuse("FROM a\nRUN", "RUN without a command");
	refuse("FROM a\nENV", "too few");
	refuse("FROM a\nENV A=1 B", "'B' is not NAME=VALUE");
	refuse("FROM a\nUSER a b", "too many");
	refuse("FROM a\nLABEL a=\"b", "a quote is not closed");
	refuse("FROM a\nRUN <<E\nx", "heredoc 'E' has no end");
	refuse("FROM a\nCOPY <<E /x\nx", "heredoc 'E' has no end");
	refuse("FROM a\nCOPY <<<x /d", "no heredoc");
	refuse("FROM a\nSHELL sh", "needs an array");
	refuse("FROM a\nONBUILD FROM b", "ONBUILD FROM");
	refuse("FROM a\nHEALTHCHECK x", "needs CMD or NONE");
	refuse("# syntax=evil/frontend:1\nFROM a", "line 1: the frontend 'evil/frontend:1'");
	refuse("# syntax=docker/dockerfile-evil\nFROM a", "frontend");
	refuse("# escape=`\nFROM a", "escape");
}

static void test_directives(void **state)
{
	struct build_steps s =
		parse("# syntax=docker.io/docker/dockerfile:1.7-labs\n# escape=\\\nFROM a");

	assert_int_equal(s.count, 1);
	build_steps_done(&s);
	/* Behind the first comment that is none, they are comments. */
	s = parse("# hello\n# syntax=evil\nFROM a");
	build_steps_done(&s);
}

/* ---- variables ---- */

static const struct list own = {.items = (char *[]){"A=1", "EMPTY=", "P=/bin:$A", NULL},
				.count = 3};
static const struct list args = {.items = (char *[]){"A=2", "B=b", NULL}, .count = 2};
static const struct list *const lists[] = {&own, &args, NULL};

static void expands(const char *word, const char *to)
{
	struct err e = {0};
	auto_free char *got = expand_word(word, lists, &e);

	if (!got)
		fail_msg("%s: %s", word, e.msg);
	assert_string_equal(got, to);
}

static void test_variables(void **state)
{
	struct err e = {0};
	auto_free char *text = expand_text("\"$A\" '$B' \\$A \\n ${B}", lists, &e);

	expands("$A-${B}", "1-b");
	expands("$NONE|", "|");
	expands("${NONE:-x${B}y}", "xby");
	expands("${EMPTY:-x}${EMPTY-y}", "x");
	expands("${A:+set}${NONE:+set}${EMPTY+set}", "setset");
	expands("\"$A b\" '$A' \\$A", "1 b $A $A");
	expands("$P", "/bin:$A"); /* not again */
	expands("a$", "a$");
	expands("$5", "$5");
	assert_string_equal(text, "\"1\" 'b' $A \\n b");
	assert_null(expand_word("${A", lists, &e));
	assert_null(expand_word("${}", lists, &e));
	assert_null(expand_word("${A:?gone}", lists, &e));
}

/* ---- --mount ---- */

static void mount_refused(const char *text, const char *says)
{
	struct run_mounts m = {0};
	struct err e = {0};

	assert_int_equal(run_mounts_add(&m, text, &e), -1);
	if (!strstr(e.msg, says))
		fail_msg("%s: %s", text, e.msg);
	run_mounts_done(&m);
}

static void test_mounts(void **state)
{
	struct run_mounts m = {0};
	struct err e = {0};

	assert_int_equal(
		run_mounts_add(&m, "target=/x,type=cache,id=a,uid=5,mode=0750,sharing=locked", &e),
		0);
	assert_int_equal(run_mounts_add(&m, "type=secret,id=t,required", &e), 0);
	assert_int_equal(run_mounts_add(&m, "from=one,source=/a,dst=/b,ro", &e), 0);
	assert_int_equal(m.items[0].type, MOUNT_TYPE_CACHE);
	assert_int_equal(m.items[0].mode, 0750);
	assert_int_equal(m.items[0].uid, 5);
	assert_string_equal(m.items[1].target, "/run/secrets/t");
	assert_true(m.items[1].required);
	assert_int_equal(m.items[2].type, MOUNT_TYPE_BIND);
	assert_string_equal(m.items[2].target, "/b");
	run_mounts_done(&m);
	mount_refused("type=ssh", "type=ssh is not possible");
	mount_refused("type=cache,target=/x,from=base", "no from here");
	mount_refused("type=cache,target=/x,source=a", "no source here");
	mount_refused("type=secret,id=a,env=B", "no env here");
	mount_refused("type=secret,target=/x", "needs an id");
	mount_refused("type=tmpfs", "needs a target");
	mount_refused("type=cache,target=/x,mode=999", "octal");
	mount_refused("type=cache,target=/x,uid=99999", "no id");
}

static void clean_is(const char *dir, const char *path, const char *to)
{
	auto_free char *got = view_clean(dir, path);

	assert_string_equal(got, to);
}

static void test_paths(void **state)
{
	clean_is("/a", "b", "/a/b");
	clean_is("/a", "/b//c/./d/", "/b/c/d");
	clean_is("/", "../../x", "/x");
	clean_is("/a/b", "..", "/a");
	clean_is("/", "", "/");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),	   cmocka_unit_test(test_words),
		cmocka_unit_test(test_heredocs),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_directives), cmocka_unit_test(test_variables),
		cmocka_unit_test(test_mounts),	   cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Control files are listed and not applied: each row of the list, in any case and at any depth, and
 * the ways around it.
 */
#include "base/auto.h"
#include "base/str.h"
#include "sandbox/workspace/control.h"
#include "workspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_control_files_are_not_applied(void **state)
{
	static const char *const names[] = {
		".git/config",
		".git/hooks/pre-commit",
		".git/commondir",
		"sub/.git/config",
		".git/modules/x/config",
		".mcp.json",
		".claude/settings.json",
		".codex/config.toml",
		".cursor/mcp.json",
		".vscode/tasks.json",
		".idea/workspace.xml",
		".envrc",
		".bashrc",
		".profile",
		".zshrc",
		".npmrc",
		"deep/down/.vscode/settings.json",
		".GIT/config",
		".gitmodules",
		".husky/pre-commit",
		"other/.git",
		"AGENTS.md",
		"CLAUDE.md",
		"sub/claude.md",
		".github/workflows/ci.yml",
		".github/copilot-instructions.md",
		".gitlab-ci.yml",
	};
	struct change_list l;
	char path[64];

	put("upper/.git/modules/x/HEAD", "ref: refs/heads/main\n");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "upper/%s", names[i]);
		put(path, "evil");
	}
	put("upper/.git/refs/heads/main", "0123\n");
	put("upper/config", "an ordinary file");
	l = run(*state, true, NULL);
	assert_int_equal(l.skipped, ARRAY_LEN(names));
	assert_int_equal(l.total, ARRAY_LEN(names) + 3);
	for (size_t i = 0; i < l.count; i++)
		if (str_equal(l.items[i].kind, "skipped"))
			assert_true(str_starts(l.items[i].note, "control file: "));
	change_list_done(&l);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "lower/%s", names[i]);
		if (exists(path))
			fail_msg("%s was applied", path);
	}
	assert_true(holds("lower/.git/refs/heads/main", "0123\n"));
	assert_true(holds("lower/config", "an ordinary file"));
}

static void test_control_files_are_listed(void **state)
{
	struct change_list l;

	put("lower/.git/config", "old");
	put("upper/.git/config", "new");
	put("lower/.vscode/same", "same");
	put("upper/.vscode/same", "same");
	l = run(*state, false, NULL);
	assert_string_equal(lines(&l), "modified .git/config\n");
	assert_true(str_starts(l.items[0].note, "control file: "));
	change_list_done(&l);
}

static void test_control_files_that_were_named(void **state)
{
	static char *names[] = {"AGENTS.md", ".github/workflows/ci.yml", ".vscode",
				"gone.d/.claude"};
	const struct list also = {.items = names, .count = ARRAY_LEN(names)};
	struct change_options limits = CHANGE_OPTIONS_DEFAULT;
	struct change_list l;

	put("lower/AGENTS.md", "old");
	put("upper/AGENTS.md", "new");
	put("upper/sub/AGENTS.md", "new");
	put("upper/AGENTS.md.d/CLAUDE.md", "new");
	put("upper/.github/workflows/ci.yml", "new");
	put("upper/.github/workflows/other.yml", "new");
	put("upper/.github/copilot-instructions.md", "new");
	put("upper/.vscode/tasks.json", "new");
	put("upper/.vscode/.envrc", "new");
	put("lower/gone.d/.claude/x", "old");
	put("lower/gone.d/.cursor/x", "old");
	mkdir("upper/gone.d", 0755);
	whiteout("upper/gone.d/.claude");
	whiteout("upper/gone.d/.cursor");
	limits.also = &also;
	l = run(*state, true, &limits);
	assert_string_equal(lines(&l), "skipped .github/copilot-instructions.md\n"
				       "added .github/workflows/ci.yml\n"
				       "skipped .github/workflows/other.yml\n"
				       "added .vscode/.envrc\n"
				       "added .vscode/tasks.json\n"
				       "modified AGENTS.md\n"
				       "skipped AGENTS.md.d/CLAUDE.md\n"
				       "deleted gone.d/.claude/\n"
				       "skipped gone.d/.cursor/\n"
				       "skipped sub/AGENTS.md\n");
	change_list_done(&l);
	assert_true(holds("lower/AGENTS.md", "new") && holds("lower/.vscode/.envrc", "new"));
	assert_true(holds("lower/.github/workflows/ci.yml", "new"));
	assert_false(exists("lower/.github/workflows/other.yml"));
	assert_false(exists("lower/gone.d/.claude"));
	assert_true(exists("lower/gone.d/.cursor/x"));
}

static void test_control_files_are_not_deleted(void **state)
{
	put("lower/.git/hooks/guard", "x");
	put("lower/.git/HEAD", "x");
	put("lower/.claude/settings.json", "x");
	put("lower/sub/.git/HEAD", "x");
	mkdir("upper/.git", 0755);
	whiteout("upper/.git/hooks");
	whiteout("upper/.claude");
	mkdir("upper/sub", 0755);
	whiteout("upper/sub/.git");
	expect(*state, true, "skipped .claude/\nskipped .git/hooks/\nskipped sub/.git/\n");
	assert_true(exists("lower/.git/hooks/guard") && exists("lower/.claude/settings.json"));
	assert_true(exists("lower/sub/.git/HEAD"));
}

static void test_replaced_repository_is_left_alone(void **state)
{
	put("lower/.git/HEAD", "old");
	put("lower/.git/hooks/guard", "old");
	put("upper/.git/HEAD", "new");
	put("upper/.git/objects/x", "new");
	if (!opaque("upper/.git"))
		skip();
	expect(*state, true, "skipped .git/HEAD\nskipped .git/hooks/\nskipped .git/objects/x\n");
	assert_true(holds("lower/.git/HEAD", "old") && !exists("lower/.git/objects"));
}

/* A bare repository needs no .git; made in one run, or in two. */
static void test_bare_repositories(void **state)
{
	put("upper/bare/HEAD", "ref: refs/heads/main\n");
	put("upper/bare/config", "[core]\nfsmonitor=evil\n");
	put("upper/bare/objects/x", "x");
	put("lower/half/config", "[core]\nfsmonitor=evil\n");
	put("upper/half/HEAD", "ref: refs/heads/main\n");
	expect(*state, true,
	       "added bare/HEAD\nskipped bare/config\nadded bare/objects/x\nskipped half/HEAD\n");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, workspace_make, workspace_drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_control_files_are_not_applied),
		TEST(test_control_files_are_listed),
		TEST(test_control_files_that_were_named),
		TEST(test_control_files_are_not_deleted),
		TEST(test_replaced_repository_is_left_alone),
		TEST(test_bare_repositories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Control files are listed and not applied: each row of the list, in any case and at any depth, and
 * the ways around it.
 */
#include "base/auto.h"
#include "base/str.h"
#include "sandbox/workspace/control.h"
#include "sandbox/workspace/git_index.h"
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
	put("lower/whole/HEAD", "ref: refs/heads/main\n");
	put("upper/whole/config", "[core]\nfsmonitor=evil\n");
	expect(*state, true,
	       "added bare/HEAD\nskipped bare/config\nadded bare/objects/x\nskipped "
	       "half/HEAD\nskipped whole/config\n");
}

/* git makes no links in its own directories. Elsewhere they are as good as files. */
static void test_links_in_repositories(void **state)
{
	put("lower/.git/HEAD", "x");
	put("upper/.git/logs/refs/x", "x");
	put("upper/bare/HEAD", "x");
	put("upper/bare/logs/x", "x");
	put("upper/sub/x", "x");
	assert_int_equal(symlink("../hooks/post-checkout", "upper/.git/logs/HEAD"), 0);
	assert_int_equal(symlink("../hooks/post-checkout", "upper/bare/logs/y"), 0);
	assert_int_equal(symlink("x", "upper/sub/y"), 0);
	expect(*state, true,
	       "skipped .git/logs/HEAD\nadded .git/logs/refs/x\nadded bare/HEAD\nadded "
	       "bare/logs/x\nskipped bare/logs/y\nadded sub/x\nadded sub/y\n");
}

/* ---- the index ---- */

struct index_bytes {
	char bytes[4096];
	size_t len;
	uint32_t starts[8];
	size_t count, end;
};

static void add_number(struct index_bytes *x, uint32_t n)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		x->bytes[x->len++] = (char)(n >> shift);
}

static void start_index(struct index_bytes *x, uint32_t version, uint32_t count)
{
	memset(x, 0, sizeof(*x));
	memcpy(x->bytes, "DIRC", 4);
	x->len = 4;
	add_number(x, version);
	add_number(x, count);
}

/* flags: the length of the name and more. cut: -1, or what version 4 has there. */
static void add_entry(struct index_bytes *x, size_t hash, unsigned flags, int cut, const char *name)
{
	size_t start = x->len;

	x->starts[x->count++] = (uint32_t)start;
	x->len += 40 + hash;
	x->bytes[x->len++] = (char)(flags >> 8);
	x->bytes[x->len++] = (char)flags;
	x->len += flags & 0x4000 ? 2 : 0;
	if (cut >= 0)
		x->bytes[x->len++] = (char)cut;
	memcpy(x->bytes + x->len, name, strlen(name));
	x->len += strlen(name);
	x->len = cut >= 0 ? x->len + 1 : start + ((x->len - start + 8) & ~7u);
	x->end = x->len;
}

static void add_plain(struct index_bytes *x, const char *name)
{
	add_entry(x, 20, (unsigned)strlen(name), -1, name);
}

/* Tables for threads: one block, and where the extensions begin. */
static void add_tables(struct index_bytes *x, uint32_t start, uint32_t entries, uint32_t end)
{
	memcpy(x->bytes + x->len, "IEOT", 4);
	x->len += 4;
	add_number(x, 12);
	add_number(x, 1);
	add_number(x, start);
	add_number(x, entries);
	memcpy(x->bytes + x->len, "EOIE", 4);
	x->len += 4;
	add_number(x, 24);
	add_number(x, end);
	x->len += 20;
}

static bool is_safe(struct index_bytes *x, size_t hash)
{
	FILE *f = tmpfile();
	bool safe;

	assert_non_null(f);
	assert_int_equal(fwrite(x->bytes, 1, x->len + hash, f), x->len + hash);
	assert_int_equal(fflush(f), 0);
	safe = git_index_is_safe(fileno(f), hash == 32);
	fclose(f);
	return safe;
}

static bool is_safe_name(const char *name)
{
	struct index_bytes x;

	start_index(&x, 2, 2);
	add_plain(&x, "a");
	add_plain(&x, name);
	return is_safe(&x, 20);
}

static void test_names_in_an_index(void **state)
{
	static const char *const bad[] = {".git/hooks/x", "a/.GIT/config", "../x", "a/../../x",
					  "/etc/x",	  "a//b",	   ".",	   "a/.git"};
	static const char *const good[] = {"a.git/x", ".gitignore", "a/..b", "dir/", ".github/x"};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (is_safe_name(bad[i]))
			fail_msg("%s is safe", bad[i]);
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (!is_safe_name(good[i]))
			fail_msg("%s is not safe", good[i]);
}

static void test_forms_of_an_index(void **state)
{
	struct index_bytes x;

	/* The lengths of a name differ: git would read on in the middle of it. */
	start_index(&x, 2, 1);
	add_entry(&x, 20, 1, -1, "a.git");
	assert_false(is_safe(&x, 20));
	/* Another hash is another layout. */
	start_index(&x, 2, 1);
	add_entry(&x, 32, 1, -1, "a");
	assert_true(is_safe(&x, 32));
	start_index(&x, 3, 1);
	add_entry(&x, 20, 0x4001, -1, "a");
	assert_true(is_safe(&x, 20));
	/* Version 4 leaves out what is as in the name before. */
	start_index(&x, 4, 2);
	add_entry(&x, 20, 4, 0, ".git");
	assert_false(is_safe(&x, 20));
	start_index(&x, 4, 2);
	add_entry(&x, 20, 5, 0, ".git-");
	add_entry(&x, 20, 6, 0, "x");
	assert_true(is_safe(&x, 20));
	start_index(&x, 4, 2);
	add_entry(&x, 20, 5, 0, ".git-");
	add_entry(&x, 20, 6, 1, "/x");
	assert_false(is_safe(&x, 20));
	/* More entries than there are, an unknown version, and nothing. */
	start_index(&x, 2, 2);
	add_plain(&x, "a");
	assert_false(is_safe(&x, 20));
	start_index(&x, 5, 0);
	assert_false(is_safe(&x, 20));
	x.len = 0;
	assert_false(is_safe(&x, 20));
}

static void test_tables_of_an_index(void **state)
{
	static const struct {
		int start, entries, end;
		bool safe;
	} cases[] = {{0, 2, 0, true}, {4, 2, 0, false}, {0, 3, 0, false}, {0, 2, 8, false}};
	struct index_bytes x;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		start_index(&x, 2, 2);
		add_plain(&x, "a");
		add_plain(&x, "b");
		add_tables(&x, x.starts[0] + (uint32_t)cases[i].start, (uint32_t)cases[i].entries,
			   (uint32_t)(x.end + (size_t)cases[i].end));
		if (is_safe(&x, 20) != cases[i].safe)
			fail_msg("case %zu", i);
	}
	/* A thread that begins with the second name takes it for a whole one. */
	start_index(&x, 4, 2);
	add_entry(&x, 20, 1, 0, "x");
	add_entry(&x, 20, 6, 0, ".git/");
	add_tables(&x, x.starts[1], 1, (uint32_t)x.end);
	assert_false(is_safe(&x, 20));
}

/* ---- the list ---- */

/* A name that the row matches: a pattern's stars stand for something. */
static void sample_name(const char *name, char *ret)
{
	for (; *name; name++) {
		if (*name == '*' && ret[-1] != '/')
			ret += sprintf(ret, "x");
		else
			*ret++ = *name;
	}
	*ret = '\0';
}

static void swap_case(char *s)
{
	for (; *s; s++)
		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z'))
			*s ^= 0x20;
}

/* Is a file at this path skipped? */
static void expect_skipped(struct workspace *w, const char *path)
{
	char upper[512], lower[512];
	struct change_list l;

	snprintf(upper, sizeof(upper), "upper/%s", path);
	snprintf(lower, sizeof(lower), "lower/%s", path);
	put(upper, "new");
	l = run(w, true, NULL);
	if (exists(lower))
		fail_msg("%s was applied", path);
	change_list_done(&l);
	assert_int_equal(system("rm -rf upper/* upper/.[!.]* lower/* lower/.[!.]*"), 0);
}

enum { PLAIN, OTHER_CASE, DEEP, VARIANTS };

/* A file that the row is about, in a directory of its own. */
static void put_sample(size_t row, int variant)
{
	const struct control_row *r = &control_rows[row];
	char name[128] = "/", path[400];

	sample_name(r->name, name + 1);
	if (variant == OTHER_CASE)
		swap_case(name);
	snprintf(path, sizeof(path), "upper/%zu-%d/%s%s%s", row, variant,
		 r->where == CONTROL_GIT ? ".git/"
		 : variant == DEEP	 ? "a/b/"
					 : "",
		 name + 1, variant == DEEP ? "/c/d" : "");
	put(path, "new");
}

/* Each row: at the top, deep down with something below it, and in the other case. */
static void test_every_row(void **state)
{
	struct change_options options = CHANGE_OPTIONS_DEFAULT;
	struct change_list l;

	for (size_t i = 0; i < control_row_count; i++)
		for (int variant = 0; variant < VARIANTS; variant++)
			put_sample(i, variant);
	options.records = 10000;
	l = run(*state, true, &options);
	assert_int_equal(l.count, control_row_count * VARIANTS);
	for (size_t i = 0; i < l.count; i++) {
		const struct change *c = &l.items[i];
		const char *want = control_rows[strtoul(c->path, NULL, 10)].reason;
		bool inner = strstr(c->path, ".github/") || strstr(c->path, ".GITHUB/");

		/* What is in .github has that directory's reason. */
		if (!str_equal(c->kind, "skipped") || (!inner && !str_equal(c->note, want)))
			fail_msg("%s %s: %s", c->kind, c->path, c->note);
	}
	change_list_done(&l);
	assert_true(control_row_count > 250 && control_plain_count > 200);
	for (size_t i = 1; i < control_plain_count; i++)
		assert_true(strcmp(control_rows[i - 1].folded, control_rows[i].folded) < 0);
}

/* Rows that must never be lost, whatever becomes of the list. */
static void test_names_of_the_list(void **state)
{
	static const char *const names[] = {".git/config",
					    ".git/hooks/pre-commit",
					    ".git/commondir",
					    ".git/config.worktree",
					    ".git/rebase-merge/git-rebase-todo",
					    "x/.git/modules/y/../../config",
					    ".mcp.json",
					    ".claude/settings.local.json",
					    ".envrc",
					    ".bashrc",
					    ".vscode/tasks.json",
					    ".idea/workspace.xml",
					    ".devcontainer/devcontainer.json",
					    "AGENTS.md",
					    "CLAUDE.md",
					    ".github/workflows/ci.yml",
					    ".Rprofile",
					    ".irbrc",
					    ".pryrc",
					    ".pdbrc",
					    ".ghci",
					    ".ocamlinit",
					    "lefthook.yml",
					    ".lefthook.toml",
					    "mise.toml",
					    ".mise.local.toml",
					    ".jj/repo/config.toml",
					    ".sl/config",
					    ".cargo/config.toml",
					    ".cargo/config",
					    ".gitpod.yml",
					    ".replit",
					    ".openhands/setup.sh",
					    ".overcommit.yml",
					    ".pnp.cjs",
					    ".pnp.loader.mjs",
					    ".bundle/config",
					    ".mvn/extensions.xml",
					    ".mvn/jvm.config",
					    "gradle/wrapper/gradle-wrapper.properties",
					    ".npmrc",
					    ".yarnrc.yml",
					    ".yarnrc",
					    ".pre-commit-config.yaml",
					    ".husky/pre-commit",
					    ".iex.exs",
					    ".hg/hgrc",
					    ".vimrc",
					    "rust-toolchain.toml",
					    "tools/bazel",
					    "ansible.cfg",
					    ".tool-versions",
					    ".pnpmfile.cjs"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		expect_skipped(*state, names[i]);
}

/* Names that a file system without case, or of Windows, takes for those of the list. */
static void test_folded_names(void **state)
{
	static const char *const names[] = {
		".MCP.json",	    ".mcp.json.",	  ".mcp.json. .",
		".mcp.json::$DATA", ".mcp\u200b.json",	  "\ufeff.mcp.json",
		".mcp.j\u017fon",   ".hu\u017f\u212ay/x", ".con\ufb01g/x",
		".\u00dfh/id",	    ".vscode\u00ad/x",	  ".git /hooks/x",
		".GIT./config",	    ".g\u200dit/config",  "a/.g\u2060it/commondir",
		".git:x/config",    ".gi\u200ct"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		expect_skipped(*state, names[i]);
}

/* Names that only look like those of the list. */
static void test_names_that_are_none(void **state)
{
	put("upper/config", "1");
	put("upper/hooks/x", "1");
	put("upper/mcp.jso", "1");
	put("upper/x.mcp.json", "1");
	put("upper/AGENTS.md.bak", "1");
	put("upper/tools/x", "1");
	put("upper/gradle/y", "1");
	put("upper/bin/gradle", "1");
	put("upper/.jj/repo/store", "1");
	put("upper/repo/config.toml", "1");
	put("upper/a\xff\xfe", "1");
	expect(*state, true,
	       "added .jj/repo/store\nadded AGENTS.md.bak\nadded a\xff\xfe\nadded "
	       "bin/gradle\nadded "
	       "config\nadded gradle/y\nadded hooks/x\nadded mcp.jso\nadded "
	       "repo/config.toml\nadded "
	       "tools/x\nadded x.mcp.json\n");
}

/* A link in place of a directory on the way leads to the same file under another name. */
static void test_links_on_the_way(void **state)
{
	put("upper/evil/repo/config.toml", "1");
	put("upper/evil/wrapper/x", "1");
	assert_int_equal(symlink("evil", "upper/.jj"), 0);
	assert_int_equal(symlink("evil", "upper/gradle"), 0);
	put("upper/sub/.jj/repo", "../../evil");
	expect(*state, true,
	       "skipped .jj\nadded evil/repo/config.toml\nadded evil/wrapper/x\nskipped "
	       "gradle\nskipped sub/.jj/repo\n");
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
		TEST(test_links_in_repositories),
		TEST(test_names_in_an_index),
		TEST(test_forms_of_an_index),
		TEST(test_tables_of_an_index),
		TEST(test_every_row),
		TEST(test_names_of_the_list),
		TEST(test_folded_names),
		TEST(test_names_that_are_none),
		TEST(test_links_on_the_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The names of control files, by the reason why a sandbox must not write them. */
#include "sandbox/workspace/control.h"

#include "sandbox/workspace/safe_walk.h"

#include <strings.h>

#define AGENT "control file: settings of an agent"
#define WORDS "control file: instructions that agents follow"
#define CI                                                                                         \
	"control file: a service runs commands named there, with secrets of its own, once it is "  \
	"pushed"
#define EDITOR "control file: settings of an editor, which runs commands named there"
#define SHELL "control file: a shell runs it"
#define GIT "control file: git runs commands named there"
#define TOOL "control file: a tool runs commands or loads code named there"
#define ACCOUNT "control file: keys or settings of an account"

/*
 * Anywhere in the tree, whatever their type; a directory stands for all below it. Files of CI
 * services take effect only once they are committed and pushed: where the command writes to the
 * workspace directly, they stay writable, since git rewrites them with every change of branch.
 * .github also has instructions for agents.
 */
static const struct {
	const char *reason;
	bool is_writable_in_place;
	const char *const *names;
} anywhere[] = {
	{WORDS, false,
	 (const char *const[]){"AGENTS.md", "AGENTS.override.md", "AGENT.md", "CLAUDE.md",
			       "CLAUDE.local.md", "CRUSH.md", "GEMINI.md", "QWEN.md", "WARP.md",
			       ".goosehints", ".rules", NULL}},
	{AGENT, false,
	 (const char *const[]){
		 ".agents",	 ".aider.conf.yml", ".amazonq",	      ".augment",	".claude",
		 ".claude.json", ".cline",	    ".clinerules",    ".codex",		".continue",
		 ".crush.json",	 "crush.json",	    ".cursor",	      ".cursorrules",	".factory",
		 ".gemini",	 ".junie",	    ".kilocode",      ".kiro",		".mcp.json",
		 ".opencode",	 "opencode.json",   "opencode.jsonc", ".qwen",		".roo",
		 ".roomodes",	 ".trae",	    ".windsurf",      ".windsurfrules", NULL}},
	{EDITOR, false,
	 (const char *const[]){".devcontainer", ".devcontainer.json", ".dir-locals.el", ".exrc",
			       ".fleet", ".idea", ".lvimrc", ".nvim.lua", ".nvimrc", ".vim",
			       ".vimrc", ".vs", ".vscode", ".vscode-server", ".zed", NULL}},
	{SHELL, false, (const char *const[]){".bash_aliases", ".bash_login", ".bash_logout",
					     ".bash_profile", ".bashrc",     ".cshrc",
					     ".envrc",	      ".kshrc",	     ".login",
					     ".logout",	      ".profile",    ".tcshrc",
					     ".xinitrc",      ".xprofile",   ".xsession",
					     ".zlogin",	      ".zlogout",    ".zprofile",
					     ".zshenv",	      ".zshrc",	     NULL}},
	{GIT, false,
	 (const char *const[]){".gitconfig", ".githooks", ".gitmodules", ".husky", ".lefthook.yml",
			       "lefthook.yml", ".pre-commit-config.yaml", NULL}},
	{TOOL, false,
	 (const char *const[]){".gdbinit", "hgrc", "hgrc-not-shared", ".lldbinit", ".mise.toml",
			       "mise.toml", ".npmrc", ".pnpmfile.cjs", ".pypirc", ".screenrc",
			       ".tmux.conf", ".yarnrc", ".yarnrc.yml", NULL}},
	{ACCOUNT, false,
	 (const char *const[]){".aws", ".config", ".docker", ".gnupg", ".kube", ".netrc",
			       ".pam_environment", ".rhosts", ".ssh", NULL}},
	{CI, true,
	 (const char *const[]){".appveyor.yml", "appveyor.yml", "azure-pipelines.yml",
			       "bitbucket-pipelines.yml", ".buildkite", ".circleci", ".cirrus.yml",
			       ".drone.yml", ".forgejo", ".gitea", ".github", ".gitlab",
			       ".gitlab-ci.yml", "Jenkinsfile", ".semaphore", ".travis.yml",
			       ".woodpecker", ".woodpecker.yml", NULL}},
};

/*
 * In a directory that git takes for a repository. commondir moves the configuration elsewhere; a
 * rebase in progress names commands (exec) and options for its continuation.
 */
static const char *const git_names[] = {"config",    "config.worktree", "hooks",
					"commondir", "rebase-merge",	"rebase-apply"};

/* Ends at `count` or at NULL. */
static bool has_name(const char *const *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count && names[i]; i++)
		if (strcasecmp(name, names[i]) == 0)
			return true;
	return false;
}

struct control_place control_place_look(const char *name, const struct list *upper_names,
					int lower_fd)
{
	bool has_head = lower_fd >= 0 && safe_walk_stat(lower_fd, "HEAD", &(struct stat){0});
	bool is_own = strcasecmp(name, ".git") == 0 || has_head;
	struct control_place p = {.is_git = is_own};

	p.is_git |= has_name((const char *const *)upper_names->items, upper_names->count, "HEAD");
	if (is_own || lower_fd < 0)
		return p;
	for (size_t i = 0; i < ARRAY_LEN(git_names); i++)
		p.almost_git |= safe_walk_stat(lower_fd, git_names[i], &(struct stat){0});
	return p;
}

const char *control_name(size_t i)
{
	for (size_t row = 0; row < ARRAY_LEN(anywhere); row++)
		for (const char *const *n = anywhere[row].names;
		     !anywhere[row].is_writable_in_place && *n; n++)
			if (i-- == 0)
				return *n;
	return NULL;
}

const char *control_reason(const struct control_place *p, const char *name, mode_t mode)
{
	for (size_t i = 0; i < ARRAY_LEN(anywhere); i++)
		if (has_name(anywhere[i].names, SIZE_MAX, name))
			return anywhere[i].reason;
	if (strcasecmp(name, ".git") == 0 && !S_ISDIR(mode))
		return "control file: leads git to a repository elsewhere";
	if (p->is_git && has_name(git_names, ARRAY_LEN(git_names), name))
		return GIT;
	if (p->almost_git && strcasecmp(name, "HEAD") == 0)
		return "control file: turns this directory into a git repository";
	return NULL;
}

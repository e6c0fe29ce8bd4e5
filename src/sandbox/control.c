#include "sandbox/control.h"

#include "base/auto.h"
#include "sandbox/beneath.h"

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

/* Anywhere in the tree, whatever their type; a directory stands for all below it. */
static const struct {
	const char *name;
	const char *reason;
} anywhere[] = {
	{"AGENTS.md", WORDS},
	{"AGENTS.override.md", WORDS},
	{"AGENT.md", WORDS},
	{"CLAUDE.md", WORDS},
	{"CLAUDE.local.md", WORDS},
	{"CRUSH.md", WORDS},
	{"GEMINI.md", WORDS},
	{"QWEN.md", WORDS},
	{"WARP.md", WORDS},
	{".goosehints", WORDS},
	{".rules", WORDS},
	{".agents", AGENT},
	{".aider.conf.yml", AGENT},
	{".amazonq", AGENT},
	{".augment", AGENT},
	{".claude", AGENT},
	{".claude.json", AGENT},
	{".cline", AGENT},
	{".clinerules", AGENT},
	{".codex", AGENT},
	{".continue", AGENT},
	{".crush.json", AGENT},
	{"crush.json", AGENT},
	{".cursor", AGENT},
	{".cursorrules", AGENT},
	{".factory", AGENT},
	{".gemini", AGENT},
	{".junie", AGENT},
	{".kilocode", AGENT},
	{".kiro", AGENT},
	{".mcp.json", AGENT},
	{".opencode", AGENT},
	{"opencode.json", AGENT},
	{"opencode.jsonc", AGENT},
	{".qwen", AGENT},
	{".roo", AGENT},
	{".roomodes", AGENT},
	{".trae", AGENT},
	{".windsurf", AGENT},
	{".windsurfrules", AGENT},
	{".devcontainer", EDITOR},
	{".devcontainer.json", EDITOR},
	{".dir-locals.el", EDITOR},
	{".exrc", EDITOR},
	{".fleet", EDITOR},
	{".idea", EDITOR},
	{".lvimrc", EDITOR},
	{".nvim.lua", EDITOR},
	{".nvimrc", EDITOR},
	{".vim", EDITOR},
	{".vimrc", EDITOR},
	{".vs", EDITOR},
	{".vscode", EDITOR},
	{".vscode-server", EDITOR},
	{".zed", EDITOR},
	{".bash_aliases", SHELL},
	{".bash_login", SHELL},
	{".bash_logout", SHELL},
	{".bash_profile", SHELL},
	{".bashrc", SHELL},
	{".cshrc", SHELL},
	{".envrc", SHELL},
	{".kshrc", SHELL},
	{".login", SHELL},
	{".logout", SHELL},
	{".profile", SHELL},
	{".tcshrc", SHELL},
	{".xinitrc", SHELL},
	{".xprofile", SHELL},
	{".xsession", SHELL},
	{".zlogin", SHELL},
	{".zlogout", SHELL},
	{".zprofile", SHELL},
	{".zshenv", SHELL},
	{".zshrc", SHELL},
	{".gitconfig", GIT},
	{".githooks", GIT},
	{".gitmodules", GIT},
	{".husky", GIT},
	{".lefthook.yml", GIT},
	{"lefthook.yml", GIT},
	{".pre-commit-config.yaml", GIT},
	{".gdbinit", TOOL},
	{"hgrc", TOOL},
	{"hgrc-not-shared", TOOL},
	{".lldbinit", TOOL},
	{".mise.toml", TOOL},
	{"mise.toml", TOOL},
	{".npmrc", TOOL},
	{".pnpmfile.cjs", TOOL},
	{".pypirc", TOOL},
	{".screenrc", TOOL},
	{".tmux.conf", TOOL},
	{".yarnrc", TOOL},
	{".yarnrc.yml", TOOL},
	{".aws", ACCOUNT},
	{".config", ACCOUNT},
	{".docker", ACCOUNT},
	{".gnupg", ACCOUNT},
	{".kube", ACCOUNT},
	{".netrc", ACCOUNT},
	{".pam_environment", ACCOUNT},
	{".rhosts", ACCOUNT},
	{".ssh", ACCOUNT},
};

/*
 * The same, but nobody outside acts on them before they are committed and pushed: where the command writes
 * to the workspace itself, they stay as they are, since git moves them about with every branch. .github also
 * has instructions for agents.
 */
static const char *const services[] = {
	".appveyor.yml",
	"appveyor.yml",
	"azure-pipelines.yml",
	"bitbucket-pipelines.yml",
	".buildkite",
	".circleci",
	".cirrus.yml",
	".drone.yml",
	".forgejo",
	".gitea",
	".github",
	".gitlab",
	".gitlab-ci.yml",
	"Jenkinsfile",
	".semaphore",
	".travis.yml",
	".woodpecker",
	".woodpecker.yml",
};

/*
 * In a directory that git takes for a repository. commondir moves the configuration elsewhere; a rebase
 * that is under way names commands (exec) and options for when it is continued.
 */
static const char *const git_names[] = {"config",    "config.worktree", "hooks",
					"commondir", "rebase-merge",	"rebase-apply"};

static bool is_git_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(git_names); i++)
		if (strcasecmp(name, git_names[i]) == 0)
			return true;
	return false;
}

static bool lists(const struct list *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcasecmp(names->items[i], name) == 0)
			return true;
	return false;
}

struct control_place control_place_look(const char *name, const struct list *upper_names,
					int lower_fd)
{
	bool has_head = lower_fd >= 0 && beneath_stat(lower_fd, "HEAD", &(struct stat){0});
	struct control_place p = {0};

	p.is_git = strcasecmp(name, ".git") == 0 || has_head || lists(upper_names, "HEAD");
	if (has_head || strcasecmp(name, ".git") == 0 || lower_fd < 0)
		return p;
	for (size_t i = 0; i < ARRAY_LEN(git_names); i++)
		p.almost_git |= beneath_stat(lower_fd, git_names[i], &(struct stat){0});
	return p;
}

const char *control_name(size_t i)
{
	return i < ARRAY_LEN(anywhere) ? anywhere[i].name : NULL;
}

const char *control_reason(const struct control_place *p, const char *name, mode_t mode)
{
	for (size_t i = 0; i < ARRAY_LEN(anywhere); i++)
		if (strcasecmp(name, anywhere[i].name) == 0)
			return anywhere[i].reason;
	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		if (strcasecmp(name, services[i]) == 0)
			return CI;
	if (strcasecmp(name, ".git") == 0 && !S_ISDIR(mode))
		return "control file: leads git to a repository elsewhere";
	if (p->is_git && is_git_name(name))
		return GIT;
	if (p->almost_git && strcasecmp(name, "HEAD") == 0)
		return "control file: turns this directory into a git repository";
	return NULL;
}

/*
 * Shows the git repository that the workspace lies in along with it. A copy-on-write workspace becomes the whole
 * work tree, and the command starts in the caller's directory of it. A git directory elsewhere (of a linked
 * worktree), and the work tree around a directory that is written to directly, are copy-on-write views of
 * their own.
 */
#include "sandbox/plan/plan.h"

#include "model/variables.h"
#include "policy/paths/repository.h"

static void add_view(struct plan *p, struct source *s)
{
	struct cow_view *v = &p->git->views[p->git->view_count];

	if (s->fd < 0)
		return;
	v->source = *s;
	/* One user owns all of it, see policy/paths/repository.c. */
	v->owner = p->workspace_owner;
	snprintf(v->upper, sizeof(v->upper), "git%zu", p->git->view_count);
	snprintf(v->work, sizeof(v->work), "gitwork%zu", p->git->view_count);
	s->fd = -1;
	p->git->view_count++;
}

void git_add(struct plan *p)
{
	auto_free struct repository *r = NULL;

	if (p->spec->no_git || p->guest || p->workspace.fd < 0)
		return;
	r = must_alloc(malloc(sizeof(*r)));
	repository_find(&p->workspace, r);
	if (r->refused)
		plan_note(p, r->refused);
	p->in_repository = r->found;
	if (r->tree.fd < 0 && r->common.fd < 0)
		return;
	p->git = must_alloc(calloc(1, sizeof(*p->git)));
	p->git->dir.fd = -1;
	if (r->tree.fd >= 0 && p->workspace_mode == WORKSPACE_COW) {
		p->git->dir = p->workspace;
		p->workspace = r->tree;
		r->tree.fd = -1;
		snprintf(p->workspace_path, sizeof(p->workspace_path), "%s", p->workspace.path);
	}
	add_view(p, &r->tree);
	add_view(p, &r->common);
}

void git_drop(struct plan *p)
{
	struct plan_git *g = p->git;

	if (!g)
		return;
	if (g->dir.fd >= 0) {
		close(p->workspace.fd);
		p->workspace = g->dir;
		snprintf(p->workspace_path, sizeof(p->workspace_path), "%s", p->workspace.path);
	}
	for (size_t i = 0; i < g->view_count; i++)
		close(g->views[i].source.fd);
	free(g);
	p->git = NULL;
}

void git_judge(struct plan *p)
{
	/* What is applied is written to: the lists of a policy are asked for that. */
	enum source_use use = p->spec->workspace && p->spec->apply ? SOURCE_WRITE
			      : p->spec->level == LEVEL_PROCESS	   ? SOURCE_BARE
								   : SOURCE_COPY;
	struct plan_git *g = p->git;
	struct err ignored;
	bool ok = true;

	if (!g)
		return;
	if (g->dir.fd >= 0)
		ok = source_judge(p->spec, "git", p->workspace.path, use, &p->workspace,
				  &ignored) == 0;
	for (size_t i = 0; ok && i < g->view_count; i++)
		ok = source_judge(p->spec, "git", g->views[i].source.path, use, &g->views[i].source,
				  &ignored) == 0;
	if (!ok) {
		git_drop(p);
		plan_note(p, repository_forbidden);
	} else if (p->workspace_mode == WORKSPACE_DIRECT) {
		plan_note(p,
			  "Of the git repository only the workspace itself is written to: what git "
			  "writes elsewhere, such as commits, is discarded. --apply keeps it.");
	}
}

/*
 * Files of one owner may appear as another's (a file system that cannot map ids), and never have the user id that
 * the index remembers: without these git would refuse the repository, or read all of it again for a status.
 * Collecting garbage is for the repository's owner.
 */
void git_set_variables(struct plan *p)
{
	static const char *const settings[] = {
		"GIT_CONFIG_COUNT=3",	      "GIT_CONFIG_KEY_0=safe.directory",
		"GIT_CONFIG_VALUE_0=*",	      "GIT_CONFIG_KEY_1=core.checkStat",
		"GIT_CONFIG_VALUE_1=minimal", "GIT_CONFIG_KEY_2=gc.auto",
		"GIT_CONFIG_VALUE_2=0",
	};

	if (!p->in_repository)
		return;
	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		variables_set(&p->env, settings[i]);
	/* A workspace that is written to is a mount in the work tree around it. */
	if (p->git && p->workspace_mode == WORKSPACE_DIRECT)
		variables_set(&p->env, "GIT_DISCOVERY_ACROSS_FILESYSTEM=1");
	/* Landlock refuses /etc/gitconfig, and git takes that for an error. */
	if (p->spec->level == LEVEL_PROCESS)
		variables_set(&p->env, "GIT_CONFIG_NOSYSTEM=1");
}

/*
 * The plan: a spec made concrete by the keeper before anything is started. Sources are opened and
 * judged, names are resolved, memory is allocated: after it there are only system calls.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"
#include "policy/paths/source.h"
#include "sandbox/inside/status_page.h"
#include "sandbox/inside/procfs.h"

#define SANDBOX_UID 1000u
#define SANDBOX_GID 1000u
#define SANDBOX_HOME "/home/user"

/* Sources that the keeper judges while pid 1 builds, since it takes a while; a set. */
enum unjudged { UNJUDGED_WORKSPACE = 1, UNJUDGED_IMAGE = 2 };

enum workspace_mode { WORKSPACE_EMPTY, WORKSPACE_COW, WORKSPACE_DIRECT };

struct bind {
	struct source source;
	char target[PATH_MAX];
	bool writable;
	bool is_tool; /* of --tools */
	int owner;    /* see plan_owner */
};

/* As root: whose files are to belong to the user inside, for one or more mounts. */
struct owner {
	uid_t uid;
	gid_t gid;
	int userns; /* in pid 1: maps this owner to the user, or -1 */
};

#define PLAN_OWNERS 8

/* A file that is to be there from the start. */
struct injected_file {
	char *path; /* "/run/..." or relative to the workspace */
	char *data;
	size_t size;
	mode_t mode;
};

/* What must not be the sandbox's. */
struct host {
	/* Of a run all but root is read by the keeper while pid 1 builds. */
	struct namespace_ids ns;
	struct stat root;
	struct procfs_masks proc;
};

/* A sandbox that lives on: what pid 1 executes in place of serving a command; see boot.h. */
struct guest_start {
	int program;
	int listener;
	bool survives;				/* whoever made it */
	const struct boot_warm_host *warm_host; /* or NULL */
	int settings, *joins;			/* of a warm host: see warm sandbox.h */
	int join_count;
};

struct template;

struct plan {
	const struct sandbox_spec *spec;
	const struct guest_start *guest; /* NULL: one command */
	const struct template *template; /* NULL: there is none for such a root */
	struct status_page *page;
	char id[24];
	char process_dir[32]; /* level process: its directory, see directory of level process.h */
	bool rootless;
	bool elsewhere; /* pid 1 and its helper are sent to other processors */
	uid_t uid;	/* the caller */
	gid_t gid;
	uint32_t id_base; /* as root: first host id of the sandbox's range */
	enum unjudged unjudged;
	enum workspace_mode workspace_mode;
	struct source workspace;
	int workspace_owner;
	char workspace_path[PATH_MAX]; /* where it is shown */
	char workdir[PATH_MAX];
	bool image_is_host;
	struct source image;
	int root_owner; /* of an image, or of the host's own root when that can be written */
	struct owner owners[PLAN_OWNERS];
	int owner_count;
	struct bind *binds;
	size_t bind_count;
	const struct injected_file *files;
	size_t file_count;
	struct list env;
	char **argv;
	char **own_argv; /* of the launcher, wiped in pid 1 */
	struct host host;
	const char *notes[8];
	size_t note_count;
};

/* Host id of the user inside: what its files on a tmpfs belong to. */
static inline uid_t plan_user_id(const struct plan *p)
{
	return p->rootless ? p->uid : p->id_base + SANDBOX_UID;
}

/* As root: dir/name becomes the user's inside. "" is dir itself. */
int plan_give_to_user(const struct plan *p, int dir, const char *name, struct err *e);

struct sandbox_request;
struct boot_request;

/* Adds an empty mount; its fd is closed by plan_done. */
struct bind *plan_add_bind(struct plan *p);

/* All but the namespaces. */
int plan_look_at_host(struct host *ret, struct err *e);
void plan_look_at_proc(struct host *h, bool rootless);
/* p->page is set before. */
int plan_make(struct plan *p, const struct sandbox_request *request, struct err *e);
/* The same for a sandbox that lives on; p->guest is set as well. */
int plan_make_boot(struct plan *p, const struct boot_request *request, struct err *e);
/*
 * Where /workspace is a link, targets of mounts below it are those below what it leads to. In pid 1 once
 * the workspace is shown, and in the keeper, which knows no earlier either.
 */
int plan_follow_workspace(struct plan *p, struct err *e);
/* By --workdir and workspace_path. */
void plan_choose_workdir(struct plan *p);
/* The current directory may not be shown: an empty workspace takes its place. */
void plan_empty_workspace(struct plan *p);
/* Judges what is still to be judged. */
int plan_judge(struct plan *p, struct err *e);
void plan_note(struct plan *p, const char *text);
void plan_done(struct plan *p);

/* ---- environment.c: the command's environment, made from nothing ---- */

/* Fills p->env; with spec->tools also adds mounts to p->binds. */
int environment_make(struct plan *p, const struct sandbox_request *request, struct err *e);
/* After environment_make: replaces the default HOME and TMPDIR by these. */
void environment_move(struct plan *p, const char *home, const char *tmp);

/* ---- tools.c: the tool chains that --tools adds ---- */

/*
 * Adds mounts to p->binds, and to p->env the variables by which programs find the rest. Returns the directories
 * to put in front of PATH, each followed by ':'; the caller frees it.
 */
char *tools_add(struct plan *p);
/* Needs no mount of its own. Call it once it is known whether there is a workspace. */
bool tools_is_in_workspace(const struct plan *p, const struct bind *b);
/* Is mounted before the workspace. */
bool tools_goes_first(const struct plan *p, const struct bind *b);

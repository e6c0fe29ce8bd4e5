/*
 * The plan: a spec made concrete by the keeper before anything is started. Sources are opened and
 * judged, names are resolved, memory is allocated; the rest is mostly system calls.
 */
#pragma once

#include "image/image.h"
#include "model/root_inside.h"
#include "policy/paths/source.h"
#include "sandbox/inside/status_page.h"
#include "sandbox/inside/procfs.h"

#define SANDBOX_UID 1000u
#define SANDBOX_GID 1000u
#define SANDBOX_HOME "/home/user"

/* A set of sources that the keeper judges while pid 1 builds, since judging takes a while. */
enum unjudged { UNJUDGED_WORKSPACE = 1, UNJUDGED_IMAGE = 2 };

/* Is the user inside root, and what is that? */
enum as_root {
	AS_ROOT_NO,
	AS_ROOT_NESTED, /* uid 0 of a user namespace below the sandbox's own, with a few capabilities */
	AS_ROOT_ANSWERED, /* the only id there is, without any; the filter answers what would need one */
};

enum workspace_mode { WORKSPACE_EMPTY, WORKSPACE_COW, WORKSPACE_DIRECT };

struct bind {
	struct source source;
	char target[PATH_MAX];
	bool writable;
	bool is_tool;	      /* of --tools */
	uint64_t tmpfs_bytes; /* not 0: a new tmpfs of this size, without a source */
	uint64_t disk_bytes;  /* not 0: the source's fd is a detached mount of a disk for so much */
	int owner;	      /* see plan_owner */
};

/* Does it show a directory of the host's own? */
static inline bool bind_is_hosts(const struct bind *b)
{
	return !b->tmpfs_bytes && !b->disk_bytes;
}

/* As root: an owner of mounts whose files are to belong to the user inside. */
struct owner {
	uid_t uid;
	gid_t gid;
	bool range; /* root inside: an image keeps all its ids */
	int userns; /* in pid 1: maps this owner to the user, or -1 */
};

#define PLAN_OWNERS 8

/* A directory of the host that is shown copy-on-write at its own path, besides the workspace. */
struct cow_view {
	struct source source;
	int owner;		 /* see plan_owner */
	char upper[8], work[16]; /* of its overlay, in the scratch */
};

/* What is shown of a git repository besides the workspace's directory, see git.c. */
struct plan_git {
	struct source
		dir; /* the caller's directory, if the workspace is the work tree around it; fd -1: not so */
	struct cow_view views[2];
	size_t view_count;
};

/* A file that exists inside from the start. */
struct injected_file {
	char *path; /* "/run/..." or relative to the workspace */
	char *data;
	size_t size;
	mode_t mode;
};

/* The host's own; the sandbox's must differ. */
struct host {
	/* In a run the keeper reads all but root while pid 1 builds. */
	struct namespace_ids ns;
	struct stat root;
	struct procfs_masks proc;
};

/* A sandbox that lives on: pid 1 executes this program instead of serving a command; see boot.h. */
struct guest_start {
	int program;
	int listener;
	bool survives;				/* its maker's death */
	const struct boot_warm_host *warm_host; /* or NULL */
	int settings, *joins;			/* of a warm host: see warm_settings.h */
	int join_count;
};

/* The CA that egress signs with, where it opens TLS: programs inside are to trust it. */
struct plan_ca {
	const char *pem;
	size_t len;
};

/*
 * A step of an image that is being built: nothing is shown but the image, /dev and /proc, and what the command
 * wrote to the image becomes a layer. See sandbox/outside/save_root.c.
 */
struct root_saving {
	int guest; /* cloche-guest, a memfd */
	struct saved_part {
		int to;	   /* gets a tar, if the command succeeded; or -1 */
		int paths; /* file: "-PATH\n" is left out, "+PATH\n" nothing but it is taken */
	} parts[2];
	uint32_t uid,
		gid; /* who runs the command, an id of the image; rootless it is root all the same */
};

struct template;
struct seccomp_profile;

struct plan {
	const struct sandbox_spec *spec;
	const struct guest_start *guest;  /* NULL: one command */
	const struct template *template;  /* NULL: there is none for this root */
	const struct root_saving *saving; /* NULL: the root goes with the sandbox */
	struct status_page *page;
	const struct net_setup *net; /* NULL: no network */
	const int *disk; /* a detached mount that takes the place of the tmpfs; or NULL */
	char id[24];
	char process_dir[32]; /* level process: see process_dir_make */
	bool rootless;
	bool elsewhere; /* pid 1 and its helper are moved to other processors */
	uid_t uid;	/* the caller */
	gid_t gid;
	uint32_t id_base; /* as root: first host id of the sandbox's range */
	enum as_root as_root;
	enum unjudged unjudged;
	enum workspace_mode workspace_mode;
	struct source workspace;
	int workspace_owner;
	char workspace_path[PATH_MAX]; /* where it is shown */
	struct plan_git *git;	       /* NULL: nothing more is shown */
	bool in_repository;	       /* of git, by what is shown */
	char workdir[PATH_MAX];
	bool image_is_host;
	struct source image;  /* a directory; of the store: all layers */
	const char *images;   /* the daemon's store, or NULL */
	struct image *stored; /* NULL: the image is not of the store */
	int root_owner;	      /* of an image, or of the host's own root when that can be written */
	struct owner owners[PLAN_OWNERS];
	int owner_count;
	struct bind *binds;
	size_t bind_count;
	const struct injected_file *files;
	size_t file_count;
	struct plan_ca ca; /* pem NULL: there is none */
	struct list env;
	char **argv;
	char **own_argv;		       /* of the launcher, wiped in pid 1 */
	const struct seccomp_profile *seccomp; /* of the caller's own, or NULL */
	struct host host;
	const char *notes[8];
	size_t note_count;
};

/* The user's id inside, and that of the group. */
static inline uint32_t plan_inner_id(const struct plan *p)
{
	return p->as_root ? 0 : SANDBOX_UID;
}

/* Host id of the user inside, which owns its files on a tmpfs. */
static inline uid_t plan_user_id(const struct plan *p)
{
	return p->rootless ? p->uid : p->id_base + plan_inner_id(p);
}

/*
 * Can a file of the host be changed directly? Root inside owns such files, so what it does to their modes
 * must be what an ordinary user could do.
 */
bool plan_writes_to_host(const struct plan *p);
/* The filter of the command. */
const struct seccomp_profile *plan_profile(const struct plan *p);
enum root_inside plan_root_inside(const struct plan *p);

/* As root: gives dir/name to the user inside. "" is dir itself. */
int plan_give_to_user(const struct plan *p, int dir, const char *name, struct err *e);

/* Where the caller's directory is shown: the workspace, or a directory in it. /workspace leads there. */
static inline const char *plan_directory(const struct plan *p)
{
	return p->git && p->git->dir.fd >= 0 ? p->git->dir.path : p->workspace_path;
}

/* The same as a path in the workspace; "" for the workspace itself. */
static inline const char *plan_inner(const struct plan *p)
{
	const char *inner = plan_directory(p) + strlen(p->workspace_path);

	return inner + strspn(inner, "/");
}

struct sandbox_request;
struct boot_request;

/* Adds an empty mount; its fd is closed by plan_done. */
struct bind *plan_add_bind(struct plan *p);
/* Is it mounted before the workspace, which may lie below it? */
bool plan_bind_goes_first(const struct plan *p, const struct bind *b);

/* Fills in all but the namespaces. */
int plan_look_at_host(struct host *ret, struct err *e);
void plan_look_at_proc(struct host *h, bool rootless);
/* p->page must be set. */
int plan_make(struct plan *p, const struct sandbox_request *request, struct err *e);
/* The same for a sandbox that lives on; p->guest must be set as well. */
int plan_make_boot(struct plan *p, const struct boot_request *request, struct err *e);
/*
 * Where /workspace is a link, mount targets below it move to the link's target. Called in pid 1
 * once the workspace is shown, and in the keeper at the end, which does not know earlier either.
 */
int plan_follow_workspace(struct plan *p, struct err *e);
/* Sets p->workdir from --workdir and the caller's directory. */
void plan_choose_workdir(struct plan *p);
/* The current directory must not be shown: an empty workspace takes its place. */
void plan_empty_workspace(struct plan *p);
/*
 * Can the current directory and the repository around it be shown? If not, a run there has something to say about it.
 */
bool plan_can_show_here(const struct sandbox_spec *s);
/* Judges the sources in p->unjudged. */
int plan_judge(struct plan *p, struct err *e);
void plan_note(struct plan *p, const char *text);
void plan_done(struct plan *p);

/* ---- git.c: the git repository that the workspace lies in ---- */

/* Once the workspace is chosen: adds p->git, if there is more to be shown. */
void git_add(struct plan *p);
/* Takes p->git away again, if one of its parts must not be shown. */
void git_judge(struct plan *p);
void git_drop(struct plan *p);
/* Adds settings of git to p->env. */
void git_set_variables(struct plan *p);

/* ---- environment.c: the command's environment, made from nothing ---- */

/* Fills p->env; with spec->tools also adds mounts to p->binds. */
int environment_make(struct plan *p, const struct sandbox_request *request, struct err *e);
/* After environment_make: replaces the default HOME and TMPDIR by these. */
void environment_move(struct plan *p, const char *home, const char *tmp);

/* ---- own_seccomp.c ---- */

/* Compiles a profile into a file in memory (struct seccomp_own), whose fd is the caller's. */
int own_seccomp_file(const char *compiler, const char *file, struct err *e);

/*
 * Sets p->seccomp to spec->seccomp, compiled by this program or found in the caller's cache. It stays
 * until the end of the process.
 */
int own_seccomp(struct plan *p, const char *compiler, struct err *e);

/* ---- tools.c: the tool chains that --tools adds ---- */

/*
 * Adds mounts to p->binds, and to p->env the variables by which programs find the rest. *ret: the directories to
 * put in front of PATH, each followed by ':'; the caller frees it.
 */
int tools_add(struct plan *p, char **ret, struct err *e);
/* Needs no mount of its own. Call it once it is known whether there is a workspace. */
bool tools_is_in_workspace(const struct plan *p, const struct bind *b);

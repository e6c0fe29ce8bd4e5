/* Makes a plan from a spec: opens and judges sources, chooses ids, workspace and root. */
#include "sandbox/plan/plan.h"

#include "base/id.h"
#include "kern/caps.h"
#include "kern/seccomp.h"
#include "model/variables.h"
#include "policy/paths/repository.h"
#include "sandbox/inside/boot.h"
#include "sandbox/inside/notify.h"
#include "sandbox/workspace/capture.h"
#include "sandbox/sandbox.h"

/*
 * As root each sandbox runs as a range of host ids that no user of the host has. The keeper's pid
 * picks it. Keepers whose pids differ by a multiple of RANGES would share one: their sandboxes still
 * cannot see each other, but count against the same per-user limits of the kernel.
 */
#define FIRST_RANGE 0x1000u
#define RANGES 0x3000u

void plan_note(struct plan *p, const char *text)
{
	if (p->note_count + 1 < ARRAY_LEN(p->notes))
		p->notes[p->note_count++] = text;
}

/* Starts anew with this spec. */
static void plan_init(struct plan *p, const struct sandbox_spec *spec)
{
	const struct guest_start *guest = p->guest;
	struct status_page *page = p->page;

	*p = (struct plan){.spec = spec, .page = page, .guest = guest};
	p->workspace.fd = p->image.fd = p->workspace_owner = p->root_owner = -1;
	p->rootless =
		p->spec->level == LEVEL_PROCESS ? !caps_can_run_others() : !caps_can_administer();
	p->uid = geteuid();
	p->gid = getegid();
	p->id_base = (FIRST_RANGE + (uint32_t)getpid() % RANGES) << 16;
	if (spec_wants_root(spec))
		p->as_root = p->rootless ? AS_ROOT_ANSWERED : AS_ROOT_NESTED;
}

/*
 * An index into p->owners for a mount of this file or directory; -1: ids are not mapped. A rootless
 * user is the owner already.
 */
static int plan_owner_with(struct plan *p, const struct stat *st, bool range)
{
	struct owner *o = &p->owners[p->owner_count];

	if (p->rootless || p->spec->level == LEVEL_PROCESS)
		return -1;
	for (int i = 0; i < p->owner_count; i++)
		if (p->owners[i].uid == st->st_uid && p->owners[i].gid == st->st_gid &&
		    p->owners[i].range == range)
			return i;
	if (p->owner_count == PLAN_OWNERS)
		return -1;
	*o = (struct owner){st->st_uid, st->st_gid, range, -1};
	return p->owner_count++;
}

static int plan_owner(struct plan *p, const struct stat *st)
{
	return plan_owner_with(p, st, false);
}

bool plan_writes_to_host(const struct plan *p)
{
	for (size_t i = 0; i < p->bind_count; i++)
		if (p->binds[i].writable && bind_is_hosts(&p->binds[i]))
			return true;
	return p->workspace_mode == WORKSPACE_DIRECT;
}

enum root_inside plan_root_inside(const struct plan *p)
{
	bool shared = plan_writes_to_host(p);

	switch (p->as_root) {
	case AS_ROOT_NESTED:
		return shared ? ROOT_INSIDE_NESTED_SHARED : ROOT_INSIDE_NESTED;
	case AS_ROOT_ANSWERED:
		return shared ? ROOT_INSIDE_ANSWERED_SHARED : ROOT_INSIDE_ANSWERED;
	default:
		return ROOT_INSIDE_NO;
	}
}

const struct seccomp_profile *plan_profile(const struct plan *p)
{
	return p->spec->level == LEVEL_PROCESS ? &seccomp_profile_process
	       : p->as_root		       ? notify_profile(plan_root_inside(p))
					       : &seccomp_profile_default;
}

int plan_give_to_user(const struct plan *p, int dir, const char *name, struct err *e)
{
	uid_t id = plan_user_id(p);

	if (!p->rootless && fchownat(dir, name, id, id, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "cannot chown %s", *name ? name : "the new root");
	return 0;
}

/* ---- workspace ---- */

static int check_is_directory(const struct source *s, const char *field, struct err *e)
{
	if (S_ISDIR(s->st.st_mode))
		return 0;
	return err_field(e, ERR_INVALID, field, "%s: %s is not a directory", field, s->path);
}

static int choose_workspace(struct plan *p, struct err *e)
{
	if (p->spec->empty) {
		p->workspace_mode = WORKSPACE_EMPTY;
		snprintf(p->workspace_path, sizeof(p->workspace_path), "/workspace");
		return 0;
	}
	if (p->spec->workspace) {
		if (source_open(p->spec, "workspace", p->spec->workspace, SOURCE_WRITE,
				&p->workspace, e) < 0 ||
		    check_is_directory(&p->workspace, "workspace", e) < 0)
			return -1;
		p->workspace_mode = p->spec->apply ? WORKSPACE_COW : WORKSPACE_DIRECT;
	} else {
		if (source_look("workspace", ".", &p->workspace, e) < 0)
			return err_wrap(e, "current directory");
		p->workspace_mode = WORKSPACE_COW;
		p->unjudged |= UNJUDGED_WORKSPACE;
	}
	snprintf(p->workspace_path, sizeof(p->workspace_path), "%s", p->workspace.path);
	p->workspace_owner = plan_owner(p, &p->workspace.st);
	git_add(p);
	return 0;
}

static int judge_workspace(struct plan *p, struct err *e)
{
	/* Only an overlay leaves out submounts; with Landlock they can be read like the rest. */
	enum source_use use = p->spec->level == LEVEL_PROCESS ? SOURCE_BARE : SOURCE_COPY;
	struct err why = {0};

	if (!(p->unjudged & UNJUDGED_WORKSPACE))
		return 0;
	if (source_judge(p->spec, "workspace", ".", use,
			 p->git && p->git->dir.fd >= 0 ? &p->git->dir : &p->workspace, &why) == 0)
		return 0;
	if (why.kind != ERR_DENIED || p->spec->apply) {
		*e = why;
		return -1;
	}
	plan_empty_workspace(p);
	plan_note(
		p,
		"The current directory is or contains a place that is never shown (such as a home "
		"directory): the workspace is empty. Start in a project directory, or use "
		"--workspace DIR.");
	return 0;
}

int plan_judge(struct plan *p, struct err *e)
{
	if ((p->unjudged & UNJUDGED_IMAGE) &&
	    source_judge(p->spec, "image", p->spec->image, SOURCE_COPY, &p->image, e) < 0)
		return -1;
	if (judge_workspace(p, e) < 0)
		return -1;
	git_judge(p);
	return 0;
}

bool plan_can_show_here(const struct sandbox_spec *s)
{
	struct source here, *all[3] = {&here};
	struct repository r;
	struct err e;
	bool ok;

	if (source_look("workspace", ".", &here, &e) < 0)
		return false;
	repository_find(&here, &r);
	all[1] = &r.tree;
	all[2] = &r.common;
	ok = !r.refused;
	for (size_t i = 0; i < ARRAY_LEN(all) && ok; i++)
		ok = all[i]->fd < 0 ||
		     source_judge(s, "workspace", all[i]->path, SOURCE_COPY, all[i], &e) == 0;
	repository_done(&r);
	close(here.fd);
	return ok;
}

/* ---- mounts ---- */

struct bind *plan_add_bind(struct plan *p)
{
	p->binds = must_alloc(realloc(p->binds, (p->bind_count + 1) * sizeof(*p->binds)));
	p->binds[p->bind_count] = (struct bind){.source.fd = -1, .owner = -1};
	return &p->binds[p->bind_count++];
}

bool plan_bind_goes_first(const struct plan *p, const struct bind *b)
{
	return (b->is_tool || b->tmpfs_bytes) && !path_below(b->target, p->workspace_path) &&
	       !path_below(b->target, "/workspace");
}

/* Before the mounts of sources, which may lie below them. */
static int plan_tmpfs(struct plan *p, struct err *e)
{
	const struct tmpfs_mounts *t = &p->spec->tmpfs_mounts;

	for (uint32_t i = 0; i < t->count; i++) {
		struct bind *b = plan_add_bind(p);

		snprintf(b->target, sizeof(b->target), "%s", t->items[i].path);
		b->tmpfs_bytes = t->items[i].bytes;
		b->source.st.st_mode = S_IFDIR;
		b->writable = true;
		if (str_equal(b->target, p->workspace_path))
			return err_field(e, ERR_INVALID, "tmpfs",
					 "tmpfs: '%s' is the workspace; --empty starts with an "
					 "empty one",
					 b->target);
	}
	return 0;
}

static int plan_mounts(struct plan *p, struct err *e)
{
	if (plan_tmpfs(p, e) < 0)
		return -1;
	for (size_t i = 0; i < p->spec->mounts.count; i++) {
		struct mount_request m;
		struct bind *b;

		if (mount_request_parse(p->spec->mounts.items[i], &m, e) < 0)
			return -1;
		b = plan_add_bind(p);
		if (source_open(p->spec, "mount", m.source, m.writable ? SOURCE_WRITE : SOURCE_READ,
				&b->source, e) < 0)
			return -1;
		if (!S_ISDIR(b->source.st.st_mode) && !S_ISREG(b->source.st.st_mode))
			return err_field(e, ERR_DENIED, "mount",
					 "mount: %s is neither a directory nor a regular file",
					 b->source.path);
		memcpy(b->target, m.target, sizeof(b->target));
		b->writable = m.writable;
		b->owner = plan_owner(p, &b->source.st);
	}
	return 0;
}

int plan_follow_workspace(struct plan *p, struct err *e)
{
	static const char link[] = "/workspace";

	for (size_t i = 0; p->page->workspace_linked && i < p->bind_count; i++) {
		char *target = p->binds[i].target, real[PATH_MAX];

		if (!path_below(target, link))
			continue;
		if (snprintf(real, sizeof(real), "%s%s", plan_directory(p),
			     target + strlen(link)) >= (int)sizeof(real))
			return err_field(e, ERR_INVALID, "mount", "mount: target '%s' is too long",
					 target);
		memcpy(target, real, sizeof(real));
	}
	return 0;
}

/* The user whose files are to be the sandbox's user's: the image's own, if that is a number. */
static struct stat stored_owner(const struct image *i)
{
	const char *user = i->record.user ? i->record.user : "";
	unsigned uid = 0, gid = 0;
	int n = str_only(user, STR_DIGITS ":", 1, 11) ? sscanf(user, "%5u:%5u", &uid, &gid) : 0;

	return (struct stat){.st_uid = n > 0 ? uid : 0, .st_gid = n > 1 ? gid : 0};
}

/* By id, in the store of the daemon, which has judged who may have it. */
static int find_at(struct plan *p, struct image_store *ret_store, struct err *e)
{
	if (image_store_open_at(p->images, false, ret_store, e) < 0)
		return -1;
	if (image_open(ret_store, p->spec->image + strlen("sha256:"), p->stored, e) == 0)
		return 0;
	image_store_close(ret_store);
	return -1;
}

/* An image of the caller's store, or of the daemon's. All its layers are below one directory, so one mount shows them. */
static int choose_stored(struct plan *p, struct err *e)
{
	struct image_store store = {.dir = -1};
	struct stat owner;

	p->stored = must_alloc(calloc(1, sizeof(*p->stored)));
	p->stored->lock = -1;
	if ((p->images ? find_at(p, &store, e)
		       : image_find_mine(p->spec->image, &store, p->stored, e)) < 0)
		return -1;
	p->image.fd = openat(store.dir, "layers", O_PATH | O_DIRECTORY | O_CLOEXEC);
	image_store_close(&store);
	if (p->image.fd < 0 || fstat(p->image.fd, &p->image.st) < 0 ||
	    io_fd_path(p->image.fd, p->image.path, sizeof(p->image.path)) < 0)
		return err_sys(e, "cannot open the layers of %s", p->spec->image);
	/* Root inside has all ids of the image as they are. */
	owner = p->as_root ? (struct stat){0} : stored_owner(p->stored);
	p->root_owner = plan_owner_with(p, &owner, true);
	if (!p->as_root && !image_user_is_root(&p->stored->record))
		plan_note(p, "The image's USER is shown as the sandbox's own user, uid 1000.");
	return 0;
}

static int choose_image(struct plan *p, struct err *e)
{
	bool stored = p->guest ? p->images && image_is_digest(p->spec->image)
			       : image_is_stored(p->spec->image);

	p->image_is_host = str_equal(p->spec->image, "host");
	if (stored)
		return choose_stored(p, e);
	/* A rootless root inside has the caller's id, and may write an image that is the caller's. */
	if (p->spec->root == ROOT_OVERLAY && p->rootless && !p->as_root)
		return err_field(
			e, ERR_UNSUPPORTED, "root",
			"root: overlay needs root, because the image's files belong to it; "
			"HOME and the workspace can be written without");
	if (p->image_is_host && p->spec->root == ROOT_OVERLAY)
		p->root_owner = plan_owner(p, &(struct stat){0});
	if (p->image_is_host)
		return 0;
	if (source_look("image", p->spec->image, &p->image, e) < 0)
		return -1;
	/* An image that the operator named may lie where clients may not look. */
	p->unjudged |= p->guest ? 0 : UNJUDGED_IMAGE;
	if (p->spec->root == ROOT_OVERLAY && p->rootless && p->image.st.st_uid != p->uid)
		return err_field(e, ERR_UNSUPPORTED, "root",
				 "root: overlay needs root, or an image whose files are yours");
	p->root_owner = plan_owner_with(p, &p->image.st, true);
	return check_is_directory(&p->image, "image", e);
}

/* ---- files ---- */

static int read_source(const struct source *s, uint64_t max, struct injected_file *ret,
		       struct err *e)
{
	auto_close int fd = io_reopen(s->fd, O_RDONLY | O_NONBLOCK);

	if (fd < 0)
		return err_sys(e, "file: cannot read %s", s->path);
	if (!S_ISREG(s->st.st_mode))
		return err_field(e, ERR_INVALID, "file", "file: %s is not a regular file", s->path);
	if ((uint64_t)s->st.st_size > max)
		return err_field(e, ERR_LIMIT, "file", "file: %s is larger than the disk limit",
				 s->path);
	if (io_read_whole(fd, max, &ret->data, &ret->size) < 0)
		return err_sys(e, "file: cannot read %s", s->path);
	return 0;
}

/* One "NAME=PATH" of the spec, whose form spec_finish has checked. */
static int plan_file(struct plan *p, const char *text, struct injected_file *ret, struct err *e)
{
	const char *equals = strchr(text, '=');
	struct source s = {.fd = -1};
	int rc;

	ret->path = must_alloc(strndup(text, (size_t)(equals - text)));
	ret->mode = 0644;
	if (p->workspace_mode == WORKSPACE_DIRECT || p->spec->level == LEVEL_PROCESS)
		return err_field(e, ERR_INVALID, "file",
				 "file: needs a workspace of the sandbox's own, which %s has not",
				 p->spec->level == LEVEL_PROCESS ? "level process" : "--workspace");
	if (source_open(p->spec, "file", equals + 1, SOURCE_READ, &s, e) < 0)
		return -1;
	rc = read_source(&s, p->spec->limits.disk_bytes, ret, e);
	if (rc == 0 && (s.st.st_mode & 0111))
		ret->mode = 0755;
	close(s.fd);
	return rc;
}

static int plan_files(struct plan *p, const struct sandbox_request *request, struct err *e)
{
	size_t own = p->spec->files.count;
	struct injected_file *files =
		must_alloc(calloc(own + request->file_count + 1, sizeof(*files)));

	p->files = files;
	for (size_t i = 0; i < own; i++) {
		p->file_count = i + 1;
		if (plan_file(p, p->spec->files.items[i], &files[i], e) < 0)
			return -1;
	}
	for (size_t i = 0; i < request->file_count; i++) {
		const struct injected_file *f = &request->files[i];
		struct injected_file *copy = &files[p->file_count++];

		copy->path = str_copy(f->path);
		copy->data = must_alloc(malloc(f->size + 1));
		memcpy(copy->data, f->data, f->size);
		copy->size = f->size;
		copy->mode = f->mode;
	}
	return 0;
}

/* ---- all ---- */

void plan_choose_workdir(struct plan *p)
{
	const char *dir = p->spec->workdir;

	/* Where there is a workspace, a command starts there, with an image as without. */
	if (!dir && p->stored && p->workspace_mode == WORKSPACE_EMPTY)
		dir = p->stored->record.workdir;
	if (!dir)
		snprintf(p->workdir, sizeof(p->workdir), "%s", plan_directory(p));
	else if (dir[0] == '/')
		snprintf(p->workdir, sizeof(p->workdir), "%s", dir);
	else
		snprintf(p->workdir, sizeof(p->workdir), "%.2000s/%.2000s", plan_directory(p), dir);
}

void plan_empty_workspace(struct plan *p)
{
	git_drop(p);
	p->workspace_mode = WORKSPACE_EMPTY;
	close_fd(&p->workspace.fd);
	snprintf(p->workspace_path, sizeof(p->workspace_path), "/workspace");
	if (!p->spec->workdir || p->spec->workdir[0] != '/') {
		plan_choose_workdir(p);
		variables_take(&p->env, str_format("PWD=%s", p->workdir));
	}
}

void plan_look_at_proc(struct host *h, bool rootless)
{
	bool caller_is_root = rootless && geteuid() == 0;

	if (h->proc.state == PROCFS_NOT_ASKED)
		h->proc.state = procfs_look_at_host(caller_is_root, &h->proc.files)
					? PROCFS_KNOWN
					: PROCFS_UNKNOWN;
}

static int look_at_root(struct host *ret, struct err *e)
{
	return stat("/", &ret->root) < 0 ? err_sys(e, "cannot look at /") : 0;
}

int plan_look_at_host(struct host *ret, struct err *e)
{
	plan_look_at_proc(ret, !caps_can_administer());
	return look_at_root(ret, e);
}

int plan_make(struct plan *p, const struct sandbox_request *request, struct err *e)
{
	plan_init(p, request->spec);
	p->saving = request->saving;
	p->argv = request->spec->argv.items;
	p->own_argv = request->own_argv;
	if (request->spec->disk_type != DISK_MEMORY)
		return err_field(
			e, ERR_UNSUPPORTED, "disk_type",
			"disk_type: a run writes to memory; sandboxes of the daemon can have "
			"a disk: `cloche create --disk-type disk`");
	if (request->spec->argv.count == 0)
		return err_field(e, ERR_INVALID, "cmd",
				 "cmd: no command given; see `cloche help run`");
	if (request->spec->capture.count && capture_check(&request->spec->capture, e) < 0)
		return -1;
	if (look_at_root(&p->host, e) < 0)
		return -1;
	if (p->spec->seccomp && own_seccomp(p, request->seccomp_compiler, e) < 0)
		return -1;
	if (id_letters(p->id, ID_LETTERS) < 0)
		return err_sys(e, "cannot get random bytes");
	if (choose_image(p, e) < 0 || choose_workspace(p, e) < 0 || plan_mounts(p, e) < 0)
		return -1;
	plan_choose_workdir(p);
	if (plan_files(p, request, e) < 0)
		return -1;
	return environment_make(p, request, e);
}

/* The directory that the broker opened, whose path pid 1 opens again and compares; or the mount of a disk. */
static int plan_volume(struct plan *p, const struct boot_volume *v, struct err *e)
{
	struct bind *b = plan_add_bind(p);

	if ((!v->disk_bytes && io_fd_path(v->fd, b->source.path, sizeof(b->source.path)) < 0) ||
	    fstat(v->fd, &b->source.st) < 0)
		return err_sys(e, "cannot look at a volume");
	b->source.fd = fcntl(v->fd, F_DUPFD_CLOEXEC, 3);
	if (b->source.fd < 0)
		return err_sys(e, "cannot keep a volume open");
	snprintf(b->target, sizeof(b->target), "%s", v->target);
	b->writable = v->writable;
	b->disk_bytes = v->disk_bytes;
	b->owner = v->disk_bytes ? -1 : plan_owner(p, &b->source.st);
	return 0;
}

int plan_make_boot(struct plan *p, const struct boot_request *r, struct err *e)
{
	struct sandbox_request request = {.spec = r->spec};

	plan_init(p, r->spec);
	p->template = r->template;
	p->net = r->net;
	p->disk = r->disk;
	p->images = r->images;
	if (r->id_base)
		p->id_base = r->id_base;
	snprintf(p->id, sizeof(p->id), "%s", r->id);
	p->host = *r->host;
	if (choose_image(p, e) < 0 || choose_workspace(p, e) < 0)
		return -1;
	if (plan_tmpfs(p, e) < 0)
		return -1;
	for (size_t i = 0; i < r->volume_count; i++)
		if (plan_volume(p, &r->volumes[i], e) < 0)
			return -1;
	plan_choose_workdir(p);
	return environment_make(p, &request, e);
}

void plan_done(struct plan *p)
{
	struct injected_file *files = (struct injected_file *)p->files;

	for (size_t i = 0; i < p->file_count; i++) {
		free(files[i].path);
		free(files[i].data);
	}
	free(files);
	for (size_t i = 0; i < p->bind_count; i++)
		close_fd(&p->binds[i].source.fd);
	free(p->binds);
	git_drop(p);
	close_fd(&p->workspace.fd);
	close_fd(&p->image.fd);
	if (p->stored)
		image_done(p->stored);
	free(p->stored);
	list_done(&p->env);
	*p = (struct plan){.workspace.fd = -1, .image.fd = -1};
}

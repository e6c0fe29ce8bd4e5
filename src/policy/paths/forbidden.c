/* The table of forbidden places, and how a path or an object is compared with it. */
#include "policy/paths/forbidden.h"

#include "kern/sys.h"

#include <linux/stat.h>

enum rule_kind {
	RULE_TREE,   /* the place and all below it */
	RULE_SOCKET, /* the same; an overlay of a directory that contains it is harmless */
	RULE_NAME,   /* the same; where it is a symlink, other rules cover its target */
	RULE_PARENT, /* not forbidden by itself: may be a symlink on the way to forbidden places */
	RULE_KERNEL, /* a tree of the kernel's own, always a mount: by name and by type */
};

struct place_rule {
	const char *path;
	enum rule_kind kind;
};

static const struct place_rule rules[] = {
	{"/proc", RULE_KERNEL},
	{"/sys", RULE_KERNEL},
	{"/dev", RULE_KERNEL},
	{"/boot", RULE_TREE},
	/* accounts and keys */
	{"/etc", RULE_PARENT},
	{"/etc/shadow", RULE_TREE},
	{"/etc/shadow-", RULE_TREE},
	{"/etc/gshadow", RULE_TREE},
	{"/etc/gshadow-", RULE_TREE},
	{"/etc/passwd", RULE_TREE},
	{"/etc/passwd-", RULE_TREE},
	{"/etc/sudoers", RULE_TREE},
	{"/etc/sudoers.d", RULE_TREE},
	{"/etc/security", RULE_TREE},
	{"/etc/ssh", RULE_TREE},
	{"/etc/ssl/private", RULE_TREE},
	{"/etc/letsencrypt", RULE_TREE},
	{"/etc/wireguard", RULE_TREE},
	{"/etc/krb5.keytab", RULE_TREE},
	{"/etc/docker", RULE_TREE},
	{"/etc/kubernetes", RULE_TREE},
	{"/etc/cloche", RULE_TREE},
	/* sockets of services that obey their clients */
	{"/run", RULE_PARENT},
	{"/run/docker.sock", RULE_TREE},
	{"/run/docker", RULE_TREE},
	{"/run/containerd", RULE_TREE},
	{"/run/podman", RULE_TREE},
	{"/run/crio", RULE_TREE},
	{"/run/libvirt", RULE_TREE},
	{"/run/snapd.socket", RULE_TREE},
	{"/run/user", RULE_TREE},
	{"/run/systemd", RULE_TREE},
	{"/run/dbus", RULE_TREE},
	{"/run/secrets", RULE_TREE},
	{"/run/cloche", RULE_TREE},
	{"/var", RULE_PARENT},
	{"/var/run", RULE_NAME},
	{"/tmp/.X11-unix", RULE_SOCKET},
	{"/tmp/.ICE-unix", RULE_SOCKET},
	/* other containers, copies of shadow */
	{"/var/lib", RULE_PARENT},
	{"/var/lib/docker", RULE_TREE},
	{"/var/lib/containerd", RULE_TREE},
	{"/var/lib/containers", RULE_TREE},
	{"/var/lib/kubelet", RULE_TREE},
	{"/var/lib/cloche", RULE_TREE},
	{"/var/backups", RULE_TREE},
};

/* Entries of a home directory that hold secrets, or that run code for its owner later. */
static const char *const home_entries[] = {
	".ssh",
	".aws",
	".gnupg",
	".config",
	".kube",
	".docker",
	".netrc",
	".npmrc",
	".pypirc",
	".git-credentials",
	".password-store",
	".pki",
	".mozilla",
	".thunderbird",
	".azure",
	".gcloud",
	".oci",
	".boto",
	".s3cfg",
	".terraform.d",
	".terraformrc",
	".vault-token",
	".pgpass",
	".my.cnf",
	".bash_history",
	".zsh_history",
	".python_history",
	".node_repl_history",
	".claude",
	".claude.json",
	".codex",
	".cursor",
	".gemini",
	".cargo/credentials",
	".cargo/credentials.toml",
	".gem/credentials",
	".m2/settings.xml",
	".gradle/gradle.properties",
	".local/share/keyrings",
	".local/share/kwalletd",
	".local/state/cloche",
};

/* These hold nothing but secrets, in every home and every backup of a home. */
static const char *const anywhere[] = {".ssh", ".gnupg", ".aws", ".kube", ".password-store"};

int place_id_get(int dirfd, const char *path, struct place_id *ret)
{
	const unsigned flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*path ? 0 : AT_EMPTY_PATH);
	struct statx sx;

	if (syscall(SYS_statx, dirfd, path, flags, STATX_TYPE | STATX_INO | STATX_MNT_ID, &sx) < 0)
		return -1;
	*ret = (struct place_id){
		.dev = (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor,
		.ino = sx.stx_ino,
		.mount = sx.stx_mask & STATX_MNT_ID ? sx.stx_mnt_id : 0,
		.mode = sx.stx_mode,
	};
	return 0;
}

/* Where dirfd/path leads, or NULL if nowhere that this caller can reach. */
static char *real_path(int dirfd, const char *path)
{
	auto_close int fd = openat(dirfd, path, O_PATH | O_CLOEXEC);
	char real[PATH_MAX];

	if (fd < 0 || io_fd_path(fd, real, sizeof(real)) < 0 || real[0] != '/')
		return NULL;
	return str_copy(real);
}

/* dir and name must outlive f. They are not copied: this is on the hot path of `run`. */
static void remember(struct forbidden *f, const struct place_id *id, const char *dir,
		     const char *name)
{
	if (f->seen_count == FORBIDDEN_FIRST && !f->seen) {
		f->seen_room = FORBIDDEN_FIRST * 2;
		f->seen = must_alloc(malloc(f->seen_room * sizeof(*f->seen)));
		memcpy(f->seen, f->first, sizeof(f->first));
	} else if (f->seen && f->seen_count == f->seen_room) {
		f->seen_room *= 2;
		f->seen = must_alloc(realloc(f->seen, f->seen_room * sizeof(*f->seen)));
	}
	(f->seen ? f->seen : f->first)[f->seen_count++] = (struct seen_place){*id, dir, name};
}

static const struct seen_place *seen_at(const struct forbidden *f, size_t i)
{
	return &(f->seen ? f->seen : f->first)[i];
}

/* A symlink on the way: the forbidden places below it are found below its target as well. */
static void follow_parent(struct forbidden *f, const char *parent)
{
	auto_free char *real = real_path(AT_FDCWD, parent);

	for (size_t i = 0; real && i < ARRAY_LEN(rules); i++)
		if (rules[i].kind != RULE_PARENT && path_below(rules[i].path, parent))
			list_take(&f->trees,
				  str_format("%s%s", real, rules[i].path + strlen(parent)));
}

static void look_at_rules(struct forbidden *f)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		struct place_id id;
		char *real;

		if (rules[i].kind == RULE_KERNEL || place_id_get(AT_FDCWD, rules[i].path, &id) < 0)
			continue;
		if (S_ISLNK(id.mode) && rules[i].kind == RULE_PARENT) {
			follow_parent(f, rules[i].path);
		} else if (S_ISLNK(id.mode) && rules[i].kind != RULE_NAME) {
			real = real_path(AT_FDCWD, rules[i].path);
			if (real)
				list_take(&f->trees, real);
		} else if (rules[i].kind != RULE_PARENT) {
			remember(f, &id, NULL, rules[i].path);
		}
	}
}

/* A forbidden path given by name: it counts as written and as resolved. */
static int add_tree(struct forbidden *f, const char *path)
{
	char clean[PATH_MAX], cwd[PATH_MAX];
	auto_free char *full = NULL;
	struct place_id id;
	char *real;

	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return -1;
	full = path[0] == '/' ? str_copy(path) : str_format("%s/%s", cwd, path);
	real = real_path(AT_FDCWD, full);
	if (real) {
		list_take(&f->trees, real);
		if (place_id_get(AT_FDCWD, real, &id) == 0)
			remember(f, &id, NULL, real);
	}
	if (path_clean(full, clean, sizeof(clean)))
		list_add(&f->trees, clean);
	else if (!real)
		return -1;
	return 0;
}

/* One home, by its given and its real name, with those of its entries that exist now. */
static void look_at_home(struct forbidden *f, const char *home)
{
	auto_close int fd = -1;
	char clean[PATH_MAX];
	struct place_id id;
	const char *name;
	bool linked;
	char *real;

	if (!path_clean(home, clean, sizeof(clean)) || str_equal(clean, "/"))
		return;
	for (size_t i = 0; i < f->homes.count; i++)
		if (str_equal(f->homes.items[i], clean))
			return;
	list_add(&f->homes, clean);
	/* Without a symlink on the way the name is the real one. */
	fd = sys_openat2(AT_FDCWD, clean, O_PATH | O_DIRECTORY | O_CLOEXEC, RESOLVE_NO_SYMLINKS);
	linked = fd < 0;
	if (linked)
		fd = open(clean, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || place_id_get(fd, "", &id) < 0)
		return;
	name = f->homes.items[f->homes.count - 1];
	remember(f, &id, NULL, name);
	real = linked ? real_path(fd, ".") : NULL;
	if (real && !str_equal(real, clean))
		list_take(&f->homes, take_ptr(real));
	free(real);
	for (size_t i = 0; i < ARRAY_LEN(home_entries); i++) {
		if (place_id_get(fd, home_entries[i], &id) < 0) {
			/* The caller may look at nothing in this home. */
			if (i == 0 && errno == EACCES)
				return;
			continue;
		}
		real = S_ISLNK(id.mode) ? real_path(fd, home_entries[i]) : NULL;
		if (real)
			list_take(&f->trees, real);
		else
			remember(f, &id, name, home_entries[i]);
	}
}

static void look_at_home_parent(struct forbidden *f, const char *parent)
{
	struct place_id id;
	char *real;

	list_add(&f->home_parents, parent);
	if (place_id_get(AT_FDCWD, parent, &id) < 0)
		return;
	remember(f, &id, NULL, parent);
	real = S_ISLNK(id.mode) ? real_path(AT_FDCWD, parent) : NULL;
	if (real)
		list_take(&f->home_parents, real);
}

int forbidden_init(struct forbidden *f, const struct sandbox_spec *s, bool copied, struct err *e)
{
	static const char *const own[] = {"CLOCHE_STATE_DIR", "CLOCHE_RUNTIME_DIR"};

	*f = (struct forbidden){.copied = copied};
	for (size_t i = 0; i < s->forbid.count; i++)
		if (add_tree(f, s->forbid.items[i]) < 0) {
			forbidden_done(f);
			return err_field(e, ERR_INVALID, "forbid",
					 "forbid: '%.200s' does not exist; write it without '..'",
					 s->forbid.items[i]);
		}
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (getenv(own[i]) && *getenv(own[i]))
			add_tree(f, getenv(own[i]));
	look_at_rules(f);
	look_at_home_parent(f, "/home");
	look_at_home(f, "/root");
	/* The caller chooses HOME, so it can only add forbidden places. */
	if (getenv("HOME"))
		look_at_home(f, getenv("HOME"));
	return 0;
}

void forbidden_done(struct forbidden *f)
{
	list_done(&f->trees);
	list_done(&f->homes);
	list_done(&f->home_parents);
	free(f->seen);
	*f = (struct forbidden){0};
}

/* A path is refused if it is the place, lies below the place or contains the place. */
static bool judge_place(const char *path, const char *place, struct refusal *ret)
{
	if (!path_below(path, place) && !path_below(place, path))
		return false;
	ret->kind = str_equal(path, place)    ? REFUSE_IS
		    : path_below(path, place) ? REFUSE_BELOW
					      : REFUSE_CONTAINS;
	snprintf(ret->place, sizeof(ret->place), "%s", place);
	return true;
}

/* The entries of the home whose name is the first len bytes of path; path is below that. */
static bool judge_entries(const char *path, size_t len, struct refusal *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(home_entries); i++) {
		if (!judge_place(path + len + 1, home_entries[i], ret))
			continue;
		snprintf(ret->place, sizeof(ret->place), "%.*s/%s", (int)len, path,
			 home_entries[i]);
		return true;
	}
	return false;
}

static bool judge_home(const char *path, const char *home, struct refusal *ret)
{
	if (path_below(path, home) && !str_equal(path, home))
		return judge_entries(path, strlen(home), ret);
	return judge_place(path, home, ret);
}

/* Each directory in /home is a home; they need not be listed. */
static bool judge_home_parent(const char *path, const char *parent, struct refusal *ret)
{
	size_t len = strlen(parent);

	if (!path_below(path, parent) || str_equal(path, parent))
		return judge_place(path, parent, ret);
	len += 1 + strcspn(path + len + 1, "/");
	return path[len] ? judge_entries(path, len, ret) : judge_place(path, path, ret);
}

static bool judge_components(const char *path, struct refusal *ret)
{
	for (const char *p = path; *p; p += strcspn(p, "/")) {
		p += strspn(p, "/");
		for (size_t i = 0; i < ARRAY_LEN(anywhere); i++) {
			const char *end = p + strlen(anywhere[i]);

			if (!path_below(p, anywhere[i]))
				continue;
			ret->kind = *end ? REFUSE_BELOW : REFUSE_IS;
			snprintf(ret->place, sizeof(ret->place), "%.*s", (int)(end - path), path);
			return true;
		}
	}
	return false;
}

static bool judge_rule(const struct forbidden *f, const struct place_rule *rule, const char *path,
		       struct refusal *ret)
{
	if (rule->kind == RULE_PARENT || !judge_place(path, rule->path, ret))
		return false;
	return rule->kind != RULE_SOCKET || !f->copied || ret->kind != REFUSE_CONTAINS;
}

bool forbidden_judge(const struct forbidden *f, const char *path, struct refusal *ret)
{
	bool bad = false;

	for (size_t i = 0; i < ARRAY_LEN(rules) && !bad; i++)
		bad = judge_rule(f, &rules[i], path, ret);
	for (size_t i = 0; i < f->trees.count && !bad; i++)
		bad = judge_place(path, f->trees.items[i], ret);
	for (size_t i = 0; i < f->homes.count && !bad; i++)
		bad = judge_home(path, f->homes.items[i], ret);
	for (size_t i = 0; i < f->home_parents.count && !bad; i++)
		bad = judge_home_parent(path, f->home_parents.items[i], ret);
	return bad || judge_components(path, ret);
}

bool forbidden_judge_id(const struct forbidden *f, const struct place_id *id, struct refusal *ret)
{
	for (size_t i = 0; i < f->seen_count; i++) {
		const struct seen_place *p = seen_at(f, i);

		if (p->id.ino != id->ino || p->id.dev != id->dev)
			continue;
		ret->kind = REFUSE_IS;
		snprintf(ret->place, sizeof(ret->place), "%s%s%s", p->dir ? p->dir : "",
			 p->dir ? "/" : "", p->name);
		return true;
	}
	return false;
}

bool forbidden_shares_fs(const struct forbidden *f, const struct place_id *id)
{
	for (size_t i = 0; i < f->seen_count; i++) {
		const struct place_id *p = &seen_at(f, i)->id;
		/*
		 * File systems without a device of their own (btrfs, overlay, tmpfs, nfs) have
		 * major 0 and may give several numbers to one file system: take those as perhaps
		 * the same.
		 */
		bool anonymous = p->dev >> 32 == 0 && id->dev >> 32 == 0;

		if (p->mount != id->mount && (p->dev == id->dev || anonymous))
			return true;
	}
	return false;
}

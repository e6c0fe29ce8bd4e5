/*
 * RUN. What --mount shows besides the layers is a layer, too, of an image for this one command: files of a bind mount,
 * an empty directory for a tmpfs, the last content of a cache. So everything is bounded, seen by nobody else, and
 * cannot change while it is used. The paths are left out of the layer that the command makes.
 */
#include "image/build/build_internal.h"

#include "image/build/expand.h"
#include "image/build/mounts.h"
#include "image/build/run.h"
#include "image/build/view.h"
#include "kern/caps.h"

#define SECRET_MAX (1000u << 10)
#define SCRIPT "/run/cloche-step"

struct run_step {
	struct build *b;
	const struct build_step *step;
	struct run_mounts mounts;
	struct run run;
	int view;	    /* of the layers below */
	struct list layers; /* those, and what is added for this command */
	struct account who;
};

/* ---- paths that are no part of the layer ---- */

static int leave_out(struct run_step *r, const char *path, char **ret_real, struct err *e)
{
	bool exists;
	auto_free char *real = view_resolve(r->view, path, &exists, e);

	if (!real)
		return -1;
	if (!real[1])
		return err_set(e, ERR_INVALID, "'%.100s' is the root", path);
	if (strchr(real, '\n'))
		return err_set(e, ERR_INVALID, "a path has a line end");
	list_add(&r->run.left_out, real + 1);
	if (ret_real)
		*ret_real = take_ptr(real);
	return 0;
}

/* A file for this command alone. */
static int show_file(struct run_step *r, const char *path, const void *bytes, size_t len,
		     mode_t mode, struct err *e)
{
	auto_free char *real = NULL;

	if (leave_out(r, path, &real, e) < 0)
		return -1;
	run_add_file(&r->run, real, bytes, len, mode);
	return 0;
}

static int show_text(struct run_step *r, const char *path, const char *text, mode_t mode,
		     struct err *e)
{
	return show_file(r, path, text, strlen(text), mode, e);
}

/* What the sandbox's network needs, whatever the image has; and apt where ids cannot be changed. */
static int show_usual_files(struct run_step *r, struct err *e)
{
	struct stat st;

	list_add(&r->run.left_out, "proc");
	list_add(&r->run.left_out, "dev");
	/* Without the directory nobody reads them, and it would stay in the layer. */
	if (!view_stat(r->view, "/etc", &st) || !S_ISDIR(st.st_mode))
		return 0;
	if (!(view_stat(r->view, "/etc/resolv.conf", &st) && S_ISLNK(st.st_mode)) &&
	    show_text(r, "/etc/resolv.conf", "nameserver 127.0.0.1\noptions attempts:1 timeout:2\n",
		      0644, e) < 0)
		return -1;
	if (show_text(r, "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0644, e) < 0)
		return -1;
	if (!caps_can_administer() && view_stat(r->view, "/etc/apt/apt.conf.d", &st))
		return show_text(r, "/etc/apt/apt.conf.d/99cloche",
				 "APT::Sandbox::User \"root\";\n", 0644, e);
	return 0;
}

/* ---- mounts ---- */

static int parse_flags(struct run_step *r, struct err *e)
{
	for (size_t i = 0; i < r->step->flags.count; i++) {
		const char *flag = r->step->flags.items[i], *value = strchr(flag, '=');
		auto_free char *word =
			value ? expand_word(value + 1, BUILD_VARIABLES(r->b), e) : str_copy("");

		if (!word)
			return -1;
		if (str_starts(flag, "mount") && run_mounts_add(&r->mounts, word, e) < 0)
			return -1;
		if (!str_starts(flag, "network") || str_equal(word, "default"))
			continue;
		if (!str_equal(word, "none"))
			return err_set(e, ERR_UNSUPPORTED, "--network=%.40s is not possible here",
				       word);
		r->run.no_network = true;
	}
	return 0;
}

static int read_secret(struct run_step *r, const struct run_mount *m, struct err *e)
{
	const char *path =
		r->b->how->secrets
			? variables_find((const struct list *const[]){r->b->how->secrets, NULL},
					 m->id, strlen(m->id))
			: NULL;
	auto_close int fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
	auto_free char *bytes = NULL;
	size_t len;
	int rc;

	if (!path)
		return m->required ? err_set(e, ERR_NOT_FOUND, "the secret '%.60s' was not given",
					     m->id)
				   : 0;
	if (fd < 0 || io_read_whole(fd, SECRET_MAX, &bytes, &len) < 0)
		return err_sys(e, "cannot read the secret '%.60s'", m->id);
	rc = show_file(r, m->target, bytes, len, m->mode >= 0 ? (mode_t)m->mode : 0400, e);
	explicit_bzero(bytes, len);
	return rc;
}

static int open_bind(struct run_step *r, const struct run_mount *m, struct copy_from *ret,
		     struct err *e)
{
	auto_list struct list layers = {0};

	*ret = (struct copy_from){.dir = -1, .is_context = !m->from, .ignored = &r->b->ignored};
	if (!m->from) {
		ret->dir =
			r->b->how->context < 0 ? -1 : fcntl(r->b->how->context, F_DUPFD_CLOEXEC, 3);
		return ret->dir < 0 ? err_set(e, ERR_INVALID, "there is no context to show") : 0;
	}
	ret->ignored = NULL;
	ret->keeps_owners = true;
	if (build_layers_of(r->b, m->from, &layers, e) < 0)
		return -1;
	ret->dir = view_open(r->b->maker, &layers, e);
	return ret->dir < 0 ? -1 : 0;
}

static int show_bind(struct run_step *r, const struct run_mount *m, struct copy *c, struct err *e)
{
	struct copy_from from;
	int rc;

	if (open_bind(r, m, &from, e) < 0)
		return -1;
	rc = copy_add(c, &from, m->source ? m->source : "/", m->target, false, e);
	close_fd(&from.dir);
	return rc;
}

static const char *cache_id(const struct run_mount *m)
{
	return m->id ? m->id : m->target;
}

/* A new directory that hides what the layers have there, with what the cache had. */
static int show_fresh(struct run_step *r, const struct run_mount *m, struct copy *c, struct err *e)
{
	struct copy_from from = {.dir = -1, .keeps_owners = true};
	char hex[IMAGE_HEX + 1];
	const struct list layers = {.items = (char *[]){hex, NULL}, .count = 1};
	int rc;

	copy_own(c, m->uid, m->gid,
		 m->mode >= 0		       ? m->mode
		 : m->type == MOUNT_TYPE_TMPFS ? 01777
					       : 0755);
	rc = copy_add_directory(c, m->target, true, e);
	copy_own(c, 0, 0, -1);
	if (rc < 0 || m->type != MOUNT_TYPE_CACHE || !build_cache_find(r->b, cache_id(m), hex))
		return rc;
	from.dir = view_open(r->b->maker, &layers, e);
	rc = from.dir < 0 ? -1 : copy_add(c, &from, "/", m->target, false, e);
	close_fd(&from.dir);
	return rc;
}

/* One layer with the mounts of some types; content: its digest. file gets the tar. */
static int fill_mounts(struct run_step *r, unsigned types, int *ret_file,
		       char content[IMAGE_HEX + 1], struct err *e)
{
	auto_close int file = build_file(r->b, e);
	struct copy *c = file < 0 ? NULL : copy_start(r->b->maker, r->view, file);
	int rc = c ? 0 : -1;
	bool any = false;

	for (size_t i = 0; rc == 0 && i < r->mounts.count; i++) {
		const struct run_mount *m = &r->mounts.items[i];

		if (!(types & 1u << m->type))
			continue;
		any = true;
		rc = m->type == MOUNT_TYPE_BIND ? show_bind(r, m, c, e) : show_fresh(r, m, c, e);
	}
	if (rc == 0)
		rc = copy_end(c, content, e);
	copy_free(c);
	*ret_file = rc == 0 && any ? take_fd(&file) : -1;
	return rc;
}

static int add_mounted(struct run_step *r, int file, struct err *e)
{
	char hex[IMAGE_HEX + 1];

	if (file < 0)
		return 0;
	if (build_layer(r->b, file, hex, e) < 0)
		return -1;
	list_add(&r->layers, hex);
	return 0;
}

static int leave_mounts_out(struct run_step *r, struct err *e)
{
	for (size_t i = 0; i < r->mounts.count; i++) {
		const struct run_mount *m = &r->mounts.items[i];
		auto_free char *real = NULL;

		if (m->target[0] != '/')
			return err_set(e, ERR_INVALID,
				       "--mount: the target '%.100s' is not absolute", m->target);
		if (m->type == MOUNT_TYPE_SECRET ? read_secret(r, m, e) < 0
						 : leave_out(r, m->target, &real, e) < 0)
			return -1;
		if (m->type == MOUNT_TYPE_CACHE)
			list_add(&r->run.cached, real + 1);
	}
	return 0;
}

/* What a cache holds now: as it was shown, and what the command wrote above it. */
static int keep_cache(struct run_step *r, const struct run_mount *m, const char *written,
		      struct err *e)
{
	auto_list struct list layers = {0}, none = {0};
	struct copy_from from = {.dir = -1, .keeps_owners = true};
	auto_close int file = build_file(r->b, e), top = -1;
	char content[IMAGE_HEX + 1], hex[IMAGE_HEX + 1];
	struct copy *c = NULL;
	int rc = -1;

	list_add(&layers, r->layers.items[r->layers.count - 1]);
	list_add(&layers, written);
	if (file >= 0 && (top = view_open(r->b->maker, &none, e)) >= 0 &&
	    (from.dir = view_open(r->b->maker, &layers, e)) >= 0) {
		c = copy_start(r->b->maker, top, file);
		/* The path is the one that was resolved in the layers below. */
		rc = copy_add(c, &from, m->target, "/", false, e);
		if (rc == 0 && !copy_is_empty(c) && (rc = copy_end(c, content, e)) == 0 &&
		    (rc = build_layer(r->b, file, hex, e)) == 0)
			rc = build_cache_keep(r->b, cache_id(m), hex, e);
	}
	copy_free(c);
	close_fd(&from.dir);
	return rc;
}

static int keep_caches(struct run_step *r, const char *written, struct err *e)
{
	for (size_t i = 0, n = 0; *written && i < r->mounts.count; i++) {
		struct run_mount *m = &r->mounts.items[i];

		if (m->type != MOUNT_TYPE_CACHE)
			continue;
		if (!m->id)
			m->id = str_copy(m->target);
		free(m->target);
		m->target = str_format("/%s", r->run.cached.items[n++]);
		if (keep_cache(r, m, written, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- the command ---- */

static int set_command(struct run_step *r, struct err *e)
{
	static const char *const shell[] = {"/bin/sh", "-c", NULL};
	const struct list *own = &r->b->now->config.shell;
	const struct build_step *s = r->step;

	if (s->is_exec) {
		for (size_t i = 0; i < s->args.count; i++)
			list_add(&r->run.argv, s->args.items[i]);
		return s->args.count ? 0 : err_set(e, ERR_INVALID, "RUN without a command");
	}
	if (str_starts(s->args.items[0], "#!")) {
		list_add(&r->run.argv, SCRIPT);
		return show_text(r, SCRIPT, s->args.items[0], 0755, e);
	}
	list_add_all(&r->run.argv, own->count ? (const char *const *)own->items : shell);
	list_add(&r->run.argv, s->args.items[0]);
	return 0;
}

static void set_environment(struct run_step *r)
{
	const struct stage *now = r->b->now;
	const char *home = r->who.home[0] ? r->who.home : r->who.uid ? "/" : "/root";

	list_take(&r->run.env, str_format("HOME=%s", home));
	for (size_t i = 0; i < now->args.count; i++)
		build_config_set(&r->run.env, now->args.items[i]);
	for (size_t i = 0; i < now->config.env.count; i++)
		build_config_set(&r->run.env, now->config.env.items[i]);
}

static void add_all(struct build_key *k, const struct list *l)
{
	for (size_t i = 0; i < l->count; i++)
		build_key_add(k, l->items[i]);
	build_key_add(k, "");
}

static void make_key(struct run_step *r, const char *content, struct build_key *k)
{
	const struct stage *now = r->b->now;
	auto_free char *who = str_format("%u:%u", r->who.uid, r->who.gid);

	build_key_start(r->b, "run", k);
	add_all(k, &r->step->args);
	add_all(k, &r->step->flags);
	add_all(k, &now->config.shell);
	add_all(k, &r->run.env);
	build_key_add(k, r->step->is_exec ? "exec" : "shell");
	build_key_add(k, now->config.workdir ? now->config.workdir : "/");
	build_key_add(k, who);
	build_key_add(k, content);
}

static int run_it(struct run_step *r, char layer[IMAGE_HEX + 1], struct err *e)
{
	auto_close int fresh = -1;
	char content[IMAGE_HEX + 1], image[IMAGE_HEX + 1], cache[IMAGE_HEX + 1];

	if (fill_mounts(r, 1u << MOUNT_TYPE_TMPFS | 1u << MOUNT_TYPE_CACHE, &fresh, content, e) <
		    0 ||
	    add_mounted(r, fresh, e) < 0 || show_usual_files(r, e) < 0)
		return -1;
	if (r->layers.count > r->b->now->config.layers.count) {
		if (build_image(r->b, &r->layers, image, e) < 0)
			return -1;
	} else {
		if (build_stage_image(r->b, e) < 0)
			return -1;
		memcpy(image, r->b->now->image, sizeof(image));
	}
	r->run.image = image;
	return run_command(&r->run, layer, cache, e) < 0 ? -1 : keep_caches(r, cache, e);
}

static int find_or_run(struct run_step *r, struct err *e)
{
	auto_close int bound = -1;
	char content[IMAGE_HEX + 1], layer[IMAGE_HEX + 1];
	struct build_key k = {0};
	int rc = fill_mounts(r, 1u << MOUNT_TYPE_BIND, &bound, content, e);

	if (rc == 0) {
		make_key(r, content, &k);
		if (!build_take_cached(r->b, &k, r->step)) {
			rc = add_mounted(r, bound, e);
			if (rc == 0)
				rc = run_it(r, layer, e);
			if (rc == 0)
				rc = build_add_layer(r->b, &k, r->step, layer, e);
		}
	}
	buf_done(&k.text);
	return rc;
}

int build_step_run(struct build *b, const struct build_step *s, struct err *e)
{
	struct stage *now = b->now;
	struct run_step r = {
		.b = b, .step = s, .view = -1, .run = {.maker = b->maker, .build = b->how}};
	int rc = -1;

	if (now->config.layers.count == 0)
		return err_set(e, ERR_INVALID, "there is no file yet, so there is nothing to run");
	list_add_all(&r.layers, (const char *const *)now->config.layers.items);
	r.view = view_open(b->maker, &now->config.layers, e);
	if (r.view >= 0 &&
	    build_account(b, r.view, now->config.user ? now->config.user : "0:0", &r.who, e) == 0 &&
	    parse_flags(&r, e) == 0 && leave_mounts_out(&r, e) == 0 && set_command(&r, e) == 0) {
		r.run.uid = r.who.uid;
		r.run.gid = r.who.gid;
		r.run.workdir = now->config.workdir ? now->config.workdir : "/";
		set_environment(&r);
		rc = find_or_run(&r, e);
	}
	run_mounts_done(&r.mounts);
	run_done(&r.run);
	list_done(&r.layers);
	close_fd(&r.view);
	return rc;
}

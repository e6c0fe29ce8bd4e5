/* COPY, ADD, WORKDIR and accounts: layers of files. */
#include "image/build/build_internal.h"

#include "image/build/expand.h"
#include "image/build/view.h"

/* A layer that is being filled. */
struct filling {
	int view, file;
	struct copy *copy;
};

static int start_filling(struct build *b, struct filling *f, struct err *e)
{
	*f = (struct filling){.view = -1, .file = build_file(b, e)};
	if (f->file >= 0)
		f->view = view_open(b->maker, &b->now->config.layers, e);
	if (f->view < 0)
		return -1;
	f->copy = copy_start(b->maker, f->view, f->file);
	return 0;
}

static void end_filling(struct filling *f)
{
	copy_free(f->copy);
	close_fd(&f->view);
	close_fd(&f->file);
}

/* The layer, from the cache if its content was there before. */
static int add_filled(struct build *b, const struct build_step *s, struct filling *f, struct err *e)
{
	char content[IMAGE_HEX + 1], hex[IMAGE_HEX + 1] = "";
	struct build_key k = {0};
	int rc = copy_end(f->copy, content, e);

	if (rc == 0) {
		build_key_start(b, "files", &k);
		build_key_add(&k, content);
		if (!build_take_cached(b, &k, s)) {
			if (!copy_is_empty(f->copy))
				rc = build_layer(b, f->file, hex, e);
			if (rc == 0)
				rc = build_add_layer(b, &k, s, hex, e);
		}
	}
	buf_done(&k.text);
	return rc;
}

/* These are the sandbox's own: files there would never be seen. */
static int check_target(const char *path, struct err *e)
{
	static const char *const own[] = {"/proc", "/dev", "/sys"};

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (path_below(path, own[i]))
			return err_set(e, ERR_DENIED,
				       "%.200s lies in %s, which is the sandbox's own", path,
				       own[i]);
	return 0;
}

static const char *workdir_of(const struct build *b)
{
	return b->now->config.workdir ? b->now->config.workdir : "/";
}

/* ---- COPY ---- */

static int set_owner(struct build *b, const struct build_step *s, struct filling *f, struct err *e)
{
	auto_free char *chown = NULL, *chmod = NULL;
	struct account a = {0};
	long mode = -1;
	char *end;

	if (build_flag(b, s, "chown", &chown, e) < 0 || build_flag(b, s, "chmod", &chmod, e) < 0)
		return -1;
	if (chown && build_account(b, f->view, chown, &a, e) < 0)
		return -1;
	/* Without a group the group has the user's number. */
	if (chown && !strchr(chown, ':'))
		a.gid = a.uid;
	if (chmod) {
		mode = strtol(chmod, &end, 8);
		if (*end || end == chmod || mode < 0 || mode > 07777)
			return err_set(e, ERR_UNSUPPORTED, "--chmod: '%.40s' is no octal number",
				       chmod);
	}
	copy_own(f->copy, a.uid, a.gid, (int)mode);
	return 0;
}

static int open_from(struct build *b, const struct build_step *s, struct copy_from *ret,
		     struct err *e)
{
	auto_free char *name = NULL;
	auto_list struct list layers = {0};

	*ret = (struct copy_from){.dir = -1};
	if (build_flag(b, s, "from", &name, e) < 0)
		return -1;
	if (name) {
		if (build_layers_of(b, name, &layers, e) < 0)
			return -1;
		ret->dir = view_open(b->maker, &layers, e);
		return ret->dir < 0 ? -1 : 0;
	}
	ret->is_context = true;
	ret->ignored = &b->ignored;
	ret->unpacks = s->kind == BUILD_ADD;
	ret->dir = b->how->context < 0 ? -1 : fcntl(b->how->context, F_DUPFD_CLOEXEC, 3);
	return 0;
}

/* "<<3": the fourth heredoc. */
static int copy_doc(struct build *b, const struct build_step *s, struct filling *f, const char *arg,
		    const char *to, bool into, struct err *e)
{
	size_t at = (size_t)strtoul(arg + 2, NULL, 10) * 2;
	const char *name = s->docs.items[at], *text = s->docs.items[at + 1];
	auto_free char *replaced = NULL;

	if (*name == '\'')
		return copy_add_text(f->copy, text, name + 1, to, into, e);
	replaced = expand_text(text, BUILD_VARIABLES(b), e);
	return replaced ? copy_add_text(f->copy, replaced, name, to, into, e) : -1;
}

static int copy_source(struct build *b, const struct build_step *s, struct filling *f,
		       const struct copy_from *from, const char *arg, const char *to, bool into,
		       struct err *e)
{
	auto_free char *path = NULL;

	/* Only a step with heredocs has such a source; elsewhere that is the name of a file. */
	if (str_starts(arg, "<<") && strspn(arg + 2, STR_DIGITS) == strlen(arg + 2) && arg[2] &&
	    strlen(arg) < 8 && (size_t)strtoul(arg + 2, NULL, 10) * 2 + 1 < s->docs.count)
		return copy_doc(b, s, f, arg, to, into, e);
	path = expand_word(arg, BUILD_VARIABLES(b), e);
	if (!path)
		return -1;
	if (s->kind == BUILD_ADD && (strstr(path, "://") || str_starts(path, "git@")))
		return err_set(e, ERR_UNSUPPORTED,
			       "ADD takes no address; fetch '%.100s' by RUN, where the network is "
			       "yours to allow",
			       path);
	if (from->dir < 0)
		return err_set(e, ERR_INVALID, "there is no context to copy from");
	return copy_add(f->copy, from, path, to, into, e);
}

static int copy_all(struct build *b, const struct build_step *s, struct filling *f,
		    const struct copy_from *from, struct err *e)
{
	size_t last = s->args.count - 1;
	auto_free char *word = expand_word(s->args.items[last], BUILD_VARIABLES(b), e);
	auto_free char *to = word ? view_clean(workdir_of(b), word) : NULL;
	size_t len = word ? strlen(word) : 0;
	struct stat st;
	bool into;

	if (!to)
		return -1;
	into = last > 1 || (len > 0 && (word[len - 1] == '/' || str_equal(word, "."))) || len == 0;
	if (!into) {
		bool exists;
		auto_free char *real = view_resolve(f->view, to, &exists, e);

		if (!real)
			return -1;
		into = exists && view_stat(f->view, real, &st) && S_ISDIR(st.st_mode);
	}
	if (check_target(to, e) < 0)
		return -1;
	for (size_t i = 0; i < last; i++)
		if (copy_source(b, s, f, from, s->args.items[i], to, into, e) < 0)
			return -1;
	return 0;
}

int build_step_copy(struct build *b, const struct build_step *s, struct err *e)
{
	struct copy_from from = {.dir = -1};
	struct filling f;
	int rc = -1;

	if (start_filling(b, &f, e) == 0 && open_from(b, s, &from, e) == 0 &&
	    set_owner(b, s, &f, e) == 0 && copy_all(b, s, &f, &from, e) == 0)
		rc = add_filled(b, s, &f, e);
	end_filling(&f);
	close_fd(&from.dir);
	return rc;
}

/* ---- WORKDIR ---- */

int build_step_workdir(struct build *b, const struct build_step *s, struct err *e)
{
	auto_free char *word = expand_word(s->args.items[0], BUILD_VARIABLES(b), e);
	auto_free char *path = word && *word ? view_clean(workdir_of(b), word) : NULL;
	struct filling f;
	bool exists = false;
	int rc = -1;

	if (!word)
		return -1;
	if (!path)
		return err_set(e, ERR_INVALID, "WORKDIR needs a path");
	if (check_target(path, e) < 0)
		return -1;
	if (start_filling(b, &f, e) == 0) {
		auto_free char *real = view_resolve(f.view, path, &exists, e);

		rc = real ? 0 : -1;
		if (rc == 0 && !exists)
			rc = copy_add_directory(f.copy, path, false, e);
		if (rc == 0)
			build_config_put(&b->now->config.workdir, path);
		if (rc == 0 && !exists)
			rc = add_filled(b, s, &f, e);
		else if (rc == 0)
			build_config_history(&b->now->config, s->text, true);
	}
	end_filling(&f);
	return rc;
}

/* ---- accounts ---- */

#define USUAL_ID 1000 /* of "user", as in every sandbox */
#define TRIES 64
#define FILE_MAX (1u << 20)

static int choose_id(struct build *b, int view, const char *name, unsigned *ret, struct err *e)
{
	char number[12];

	*ret = USUAL_ID;
	for (unsigned i = 1; !str_equal(name, "user"); i++) {
		*ret = USUAL_ID + i;
		snprintf(number, sizeof(number), "%u", *ret);
		if (!build_has_account(b, view, number))
			return 0;
		if (i == TRIES)
			return err_set(e, ERR_LIMIT, "the image has too many users");
	}
	return 0;
}

/* The file with one line more. */
static int add_line(struct filling *f, const char *path, char *line, struct err *e)
{
	auto_free char *text = line;
	auto_buf struct buf all = {0};

	(void)!view_read(f->view, path + 1, FILE_MAX, &all);
	if (all.len && buf_head(&all)[all.len - 1] != '\n')
		buf_add(&all, "\n", 1);
	buf_add(&all, text, strlen(text) + 1);
	return copy_add_text(f->copy, buf_head(&all), path, path, false, e);
}

static int add_account(struct build *b, struct filling *f, const char *name, struct err *e)
{
	auto_free char *home = str_format("/home/%s", name);
	bool has_bash = view_stat(f->view, "/bin/bash", &(struct stat){0}) ||
			view_stat(f->view, "/usr/bin/bash", &(struct stat){0});
	struct stat st;
	unsigned id;
	int rc;

	if (choose_id(b, f->view, name, &id, e) < 0 ||
	    add_line(f, "/etc/passwd",
		     str_format("%s:x:%u:%u::%s:%s\n", name, id, id, home,
				has_bash ? "/bin/bash" : "/bin/sh"),
		     e) < 0 ||
	    add_line(f, "/etc/group", str_format("%s:x:%u:\n", name, id), e) < 0)
		return -1;
	if (view_stat(f->view, home, &st))
		return 0;
	copy_own(f->copy, id, id, 0755);
	rc = copy_add_directory(f->copy, home, false, e);
	copy_own(f->copy, 0, 0, -1);
	return rc;
}

int build_step_account(struct build *b, const struct build_step *s, struct err *e)
{
	auto_free char *name = expand_word(s->args.items[0], BUILD_VARIABLES(b), e);
	struct filling f;
	int rc = -1;

	if (!name)
		return -1;
	if (start_filling(b, &f, e) == 0) {
		/* Numbers, and names with a group, are the image's own business. */
		if (!str_only(name, STR_LOWER STR_DIGITS "_-", 1, 31) ||
		    strspn(name, STR_DIGITS) == strlen(name) || str_equal(name, "root") ||
		    build_has_account(b, f.view, name))
			rc = 0;
		else if (add_account(b, &f, name, e) == 0)
			rc = add_filled(b, s, &f, e);
	}
	end_filling(&f);
	return rc;
}

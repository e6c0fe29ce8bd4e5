/* Finds, opens and checks policy files. yaml.c reads them, explain.c prints them. */
#include "policy/policy.h"

#include "net/rules.h"
#include "policy/paths/source.h"
#include "policy/tools/rules.h"
#include "policy/yaml.h"

#include <libgen.h>

#define FILE_MAX (1u << 20)

/*
 * A bare name is always a shipped policy and never a file of the current directory, which may be
 * somebody else's: `--policy strict` must not take ./strict.
 */
static bool is_bare(const char *name)
{
	return str_only(name, STR_LOWER STR_DIGITS "_-", 1, SIZE_MAX);
}

static char *find_beside(const char *name, const char *suffix)
{
	/* Beside build/ or build/san/, and from bin/ or libexec/cloche/ of an installation. */
	static const char *const places[] = {"../policies", "../../policies",
					     "../share/cloche/policies",
					     "../../share/cloche/policies"};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		auto_free char *file = str_format("%s/%s%s", places[i], name, suffix);
		char path[PATH_MAX];

		if (io_beside_program(file, path, sizeof(path)) == 0 && access(path, F_OK) == 0)
			return realpath(path, NULL);
	}
	return NULL;
}

char *policy_find_shipped(const char *name)
{
	return find_beside(name, ".yaml");
}

char *policy_find_shipped_directory(const char *name)
{
	return find_beside(name, "");
}

static int read_policy_text(int fd, const char *file, char **ret_text, size_t *ret_len,
			    struct err *e)
{
	if (io_read_whole(fd, FILE_MAX, ret_text, ret_len) == 0)
		return 0;
	if (errno == EINVAL)
		return err_set(e, ERR_INVALID, "%s: not a regular file", file);
	if (errno == EFBIG)
		return err_set(e, ERR_INVALID, "%s: larger than 1 MB, so not a policy", file);
	return err_sys(e, "%s: cannot read", file);
}

static int open_policy_file(const char *file, struct err *e)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd >= 0)
		return fd;
	err_sys(e, "%s: cannot open", file);
	if (e->errnum == ENOENT)
		e->kind = ERR_NOT_FOUND;
	return -1;
}

int policy_load(const char *file_or_name, struct policy *ret, struct err *e)
{
	auto_free char *shipped = is_bare(file_or_name) ? policy_find_shipped(file_or_name) : NULL;
	const char *file = shipped ? shipped : file_or_name;
	auto_free char *text = NULL, *copy = str_copy(file), *dir = NULL;
	auto_close int fd = -1;
	size_t len = 0;

	if (is_bare(file_or_name) && !shipped)
		return err_set(e, ERR_NOT_FOUND,
			       "%s: no shipped policy of this name; for a file write ./%s",
			       file_or_name, file_or_name);
	fd = open_policy_file(file, e);
	if (fd < 0 || read_policy_text(fd, file, &text, &len, e) < 0)
		return -1;
	dir = realpath(dirname(copy), NULL);
	if (!dir)
		return err_sys(e, "%s: cannot tell its directory", file);
	return policy_parse(&(struct policy_text){file, dir, text, len}, ret, e);
}

/* Puts FILE:LINE in front of an error, by the line where its field was given. */
static int add_position(const struct policy *p, struct err *e)
{
	char clean[sizeof(e->msg)] = "";

	/* The message may quote a value that spans lines. */
	str_sanitise(clean, sizeof(clean), e->msg, strlen(e->msg));
	memcpy(e->msg, clean, sizeof(clean));
	for (size_t i = p->names.count; i > 0; i--)
		if (str_equal(p->names.items[i - 1], e->field))
			return err_wrap(e, "%s:%u", p->file, p->lines[i - 1]);
	return err_wrap(e, "%s", p->file);
}

/* Checks across fields. Options that only the command line has count as given. */
static int finish_spec(struct policy *p, struct err *e)
{
	bool json = p->spec.json;

	p->spec.json = json || p->spec.capture.count > 0;
	if (spec_finish(&p->spec, e) < 0 || net_check_spec(&p->spec, e) < 0 ||
	    tool_rules_check(&p->spec.tool_rules, e) < 0)
		return add_position(p, e);
	p->spec.json = json;
	return 0;
}

int policy_parse(const struct policy_text *from, struct policy *ret, struct err *e)
{
	struct policy p = {.file = str_copy(from->file), .dir = str_copy(from->dir)};

	spec_init(&p.spec);
	if (yaml_read_policy(&p, from->text, from->len, e) < 0 || finish_spec(&p, e) < 0) {
		policy_done(&p);
		return -1;
	}
	*ret = p;
	return 0;
}

void policy_done(struct policy *p)
{
	free(p->file);
	free(p->dir);
	free(p->description);
	free(p->lines);
	list_done(&p->names);
	list_done(&p->values);
	spec_done(&p->spec);
	*p = (struct policy){0};
}

static int judge_one(const struct policy *p, const char *field, const char *path,
		     enum source_use use, struct err *e)
{
	struct err inner = {0};
	struct source s;

	if (source_open(&p->spec, field, path, use, &s, &inner) == 0) {
		close(s.fd);
		return 0;
	}
	if (inner.kind == ERR_NOT_FOUND)
		return 0;
	*e = inner;
	return add_position(p, e);
}

int policy_judge(const struct policy *p, struct err *e)
{
	const struct sandbox_spec *s = &p->spec;

	for (size_t i = 0; i < s->mounts.count; i++) {
		struct mount_request m;

		if (mount_request_parse(s->mounts.items[i], &m, e) < 0)
			return add_position(p, e);
		if (judge_one(p, "mount", m.source, m.writable ? SOURCE_WRITE : SOURCE_READ, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < s->files.count; i++) {
		const char *path = strchr(s->files.items[i], '=');

		if (path && judge_one(p, "file", path + 1, SOURCE_READ, e) < 0)
			return -1;
	}
	/* With apply as well: that writes to it in the end. */
	if (s->workspace && judge_one(p, "workspace", s->workspace, SOURCE_WRITE, e) < 0)
		return -1;
	if (!str_equal(s->image, "host") && judge_one(p, "image", s->image, SOURCE_READ, e) < 0)
		return -1;
	return 0;
}

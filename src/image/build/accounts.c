/* Users and groups by name, from files of the image, which cloche-image reads. */
#include "image/build/build_internal.h"

#include "image/build/view.h"

#define ACCOUNTS_MAX (1u << 20)

static bool is_id(const char *s)
{
	return str_only(s, STR_DIGITS, 1, 5) && atoi(s) <= 65534;
}

/* What cloche-image says of a name in a file of the view; false: nothing. */
static bool look_up(struct build *b, int view, const char *kind, const char *name, struct buf *ret)
{
	auto_free char *path = str_format("etc/%s", kind);
	auto_buf struct buf text = {0};
	struct err ignored;

	return view_read(view, path, ACCOUNTS_MAX, &text) &&
	       image_parse(b->maker, kind, &(struct image_json){buf_head(&text), text.len, name},
			   ret, &ignored) == 0 &&
	       ret->len > 0;
}

bool build_has_account(struct build *b, int view, const char *name)
{
	auto_buf struct buf says = {0};

	return look_up(b, view, "passwd", name, &says);
}

int build_account(struct build *b, int view, const char *text, struct account *ret, struct err *e)
{
	size_t len = strcspn(text, ":");
	auto_free char *user = must_alloc(strndup(text, len));
	const char *group = text[len] ? text + len + 1 : NULL;
	auto_buf struct buf of_user = {0}, of_group = {0};
	struct account a = {0};
	bool found = look_up(b, view, "passwd", user, &of_user);

	if (found) {
		const char *says = buf_head(&of_user), *home = says + strlen(says) + 1;

		sscanf(says, "%5u:%5u", &a.uid, &a.gid);
		if (home < says + of_user.len)
			snprintf(a.home, sizeof(a.home), "%s", home);
	} else if (is_id(user)) {
		a.uid = (uint32_t)atoi(user);
	} else if (!str_equal(user, "root")) {
		return err_set(e, ERR_NOT_FOUND, "the image has no user '%.100s'", user);
	}
	if (group && is_id(group))
		a.gid = (uint32_t)atoi(group);
	else if (group && look_up(b, view, "group", group, &of_group))
		a.gid = (uint32_t)atoi(buf_head(&of_group));
	else if (group && !str_equal(group, "root"))
		return err_set(e, ERR_NOT_FOUND, "the image has no group '%.100s'", group);
	*ret = a;
	return 0;
}

#include "api/guest_stat.h"

#include "api/text.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

bool guest_stat_read(struct unpack *u, struct guest_stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	unpack_str(u, ret->path, sizeof(ret->path));
	ret->kind = (char)unpack_u8(u);
	ret->mode = unpack_u32(u);
	ret->uid = unpack_u32(u);
	ret->gid = unpack_u32(u);
	ret->size = unpack_u64(u);
	ret->mtime_ns = unpack_u64(u);
	unpack_str(u, ret->owner, sizeof(ret->owner));
	unpack_str(u, ret->group, sizeof(ret->group));
	unpack_str(u, ret->target, sizeof(ret->target));
	return !u->bad && ret->size <= INT64_MAX;
}

static const char *kind_name(char kind)
{
	return kind == 'f' ? "file" : kind == 'd' ? "directory" : kind == 'l' ? "link" : "other";
}

json_t *guest_stat_json(const struct guest_stat *st)
{
	const char *slash = strrchr(st->path, '/'),
		   *name = slash && slash[1] ? slash + 1 : st->path;
	char mode[8], time[UTC_TEXT];
	json_t *o;

	snprintf(mode, sizeof(mode), "%04o", st->mode & 07777);
	o = json_pack("{s:o, s:o, s:s, s:s, s:I, s:s}", "path",
		      text_json(st->path, strlen(st->path)), "name", text_json(name, strlen(name)),
		      "type", kind_name(st->kind), "mode", mode, "size", (json_int_t)st->size,
		      "mtime", utc_text((uint64_t)(st->mtime_ns / 1000000000), 0, 0, time));
	json_object_set_new(o, "uid", json_integer(st->uid));
	json_object_set_new(o, "gid", json_integer(st->gid));
	json_object_set_new(o, "owner", text_json(st->owner, strlen(st->owner)));
	json_object_set_new(o, "group", text_json(st->group, strlen(st->group)));
	if (st->kind == 'l')
		json_object_set_new(o, "target", text_json(st->target, strlen(st->target)));
	return o;
}

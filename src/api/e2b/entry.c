/*
 * EntryInfo: the description of a file by the filesystem service. A link is shown with the kind and
 * mode of the file that it leads to; metadata are the extended attributes user.e2b.*. Each of the two
 * takes one more question to the guest.
 */
#include "api/e2b/e2b_internal.h"

static const char *type_name(char kind)
{
	return kind == 'f'   ? "FILE_TYPE_FILE"
	       : kind == 'd' ? "FILE_TYPE_DIRECTORY"
			     : "FILE_TYPE_UNSPECIFIED";
}

/* As Go prints a mode: "drwxr-xr-x", links with 'L'. */
static void permissions(char kind, uint32_t mode, char text[16])
{
	static const char bits[] = "rwxrwxrwx";

	text[0] = kind == 'd' ? 'd' : kind == 'l' ? 'L' : '-';
	for (unsigned i = 0; i < 9; i++)
		text[i + 1] = mode & (0400u >> i) ? bits[i] : '-';
	text[10] = '\0';
}

json_t *e2b_entry_info(const struct file_info *f)
{
	const char *slash = strrchr(f->path, '/');
	char size[24], mode[16], time[UTC_TEXT];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)f->size);
	permissions(f->kind, f->mode, mode);
	utc_text(f->mtime_ns / 1000000000u, (uint32_t)(f->mtime_ns % 1000000000u), 9, time);
	return must_alloc(json_pack("{s:o,s:s,s:o,s:s,s:i,s:s,s:o,s:o,s:s}", "name",
				    text_json_of(slash && slash[1] ? slash + 1 : f->path), "type",
				    type_name(f->kind), "path", text_json_of(f->path), "size", size,
				    "mode", (int)(f->mode & 0777), "permissions", mode, "owner",
				    text_json_of(f->owner), "group", text_json_of(f->group),
				    "modifiedTime", time));
}

struct e2b_entry *e2b_entry_new(const struct file_info *f)
{
	struct e2b_entry *entry = must_alloc(calloc(1, sizeof(*entry)));

	entry->info = e2b_entry_info(f);
	entry->path = str_copy(f->path);
	entry->kind = f->kind;
	entry->target = f->kind == 'l' ? str_copy(f->target) : NULL;
	return entry;
}

void e2b_entry_free(struct e2b_entry *entry)
{
	json_decref(entry->info);
	free(entry->path);
	free(entry->target);
	free(entry);
}

/* ---- the fields that need a question ---- */

static void add_metadata(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_entry *entry = arg;
	json_t *all = must_alloc(json_object());

	for (size_t i = 0; !e && i < a->xattr_count; i++)
		if (str_starts(a->xattrs[i].name, E2B_XATTR))
			json_object_set_new(all, a->xattrs[i].name + strlen(E2B_XATTR),
					    text_json_of(a->xattrs[i].value));
	if (json_object_size(all))
		json_object_set(entry->info, "metadata", all);
	json_decref(all);
	entry->done(entry->arg, entry);
}

/* The target of a link, relative to the directory of the link. */
static json_t *target_json(const struct e2b_entry *entry)
{
	const char *slash = strrchr(entry->path, '/');
	int len = slash ? (int)(slash - entry->path) : 0;
	struct err ignored;
	auto_free char *joined = str_format("%.*s/%s", len, entry->path, entry->target);
	auto_free char *clean =
		e2b_path(entry->target[0] == '/' ? entry->target : joined, "user", &ignored);

	return text_json_of(clean ? clean : entry->target);
}

/* A dangling link has no type. */
static void add_link_target(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_entry *entry = arg;

	if (!e) {
		json_object_set_new(entry->info, "type", json_string(type_name(a->info->kind)));
		json_object_set_new(entry->info, "mode", json_integer(a->info->mode & 0777));
	}
	json_object_set_new(entry->info, "symlinkTarget", target_json(entry));
	entry->done(entry->arg, entry);
}

void e2b_entry_complete(struct e2b_request *q, struct e2b_entry *entry,
			void (*done)(void *arg, struct e2b_entry *entry), void *arg)
{
	struct sandbox *s = manager_find_any(q->x->api->manager, q->id);

	entry->done = done;
	entry->arg = arg;
	if (s && entry->kind == 'l')
		call_stat(s, entry->path, true, add_link_target, entry);
	else if (s && entry->kind == 'f')
		call_xattr_list(s, entry->path, add_metadata, entry);
	else
		done(arg, entry);
}

static void reply_entry(void *arg, struct e2b_entry *entry)
{
	e2b_rpc_ok(arg, json_pack("{s:O}", "entry", entry->info));
	e2b_entry_free(entry);
}

void e2b_entry_reply(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_request *q = arg;

	if (e)
		e2b_rpc_error(q, e);
	else
		e2b_entry_complete(q, e2b_entry_new(a->info), reply_entry, q);
}

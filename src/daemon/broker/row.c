/*
 * Rows: what the front needs to have back if its database is lost. The text is the front's own, and the broker
 * does not read it. <runtime>/boxes/ID.row belongs to a sandbox that lives. <state>/snapshots/ID.row belongs to
 * a sandbox that is stopped, and lies beside the snapshot of its files.
 */
#include "daemon/broker/broker_internal.h"

static void file_name(const char *id, const char *ending, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%.20s.%s", id, ending);
}

/* A copy of what the front's memfd holds. Any other kind of file could hold us up. */
static int read_long(int fd, char **ret, size_t *ret_len, struct err *e)
{
	if (fcntl(fd, F_GET_SEALS) >= 0 && io_read_whole(fd, IPC_ROW_LONG, ret, ret_len) == 0)
		return 0;
	return err_set(e, ERR_INVALID, "the row cannot be read");
}

static int write_row(int dir, const char *id, const char *text, size_t len, bool is_synced,
		     struct err *e)
{
	char draft[IPC_ID + 8], name[IPC_ID + 8];

	file_name(id, "new", draft);
	file_name(id, "row", name);
	auto_close int fd =
		openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || io_write_all(fd, text, len) < 0 || (is_synced && fdatasync(fd) < 0) ||
	    renameat(dir, draft, dir, name) < 0) {
		err_sys(e, "cannot write the row of %s", id);
		unlinkat(dir, draft, 0);
		return -1;
	}
	return 0;
}

/* The directory that the row is in, and the id by which it has its name; -1: there is no such sandbox. */
static int find_place(struct daemon *d, const struct ipc_row *r, const char **ret_id, struct err *e)
{
	if (ipc_id_is_valid(r->id) && !r->snapshot[0] && box_find(d, r->id)) {
		*ret_id = r->id;
		return d->host.boxes_dir;
	}
	if (ipc_id_is_valid(r->id) && snapshot_is_of(d, r->snapshot, r->id)) {
		*ret_id = r->snapshot;
		return d->snapshots_dir;
	}
	return err_set(e, ERR_NOT_FOUND, "there is no such sandbox");
}

void row_request_put(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct err e = {0};
	const char *id = "";
	int dir = find_place(d, &m->row, &id, &e);

	auto_free char *text = NULL;
	size_t len = strlen(m->row.text);

	if (dir >= 0 && d->front.request_fd >= 0)
		(void)read_long(d->front.request_fd, &text, &len, &e);
	if (!e.kind)
		(void)write_row(dir, id, text ? text : m->row.text, len, dir == d->snapshots_dir,
				&e);
	front_done(d, who, m->row.id, e.kind ? &e : NULL);
}

void row_request_get(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct ipc reply = {.type = IPC_ROW_IS, .row = m->row};
	struct err e = {0};
	const char *id = "";
	char name[IPC_ID + 8];
	int dir = find_place(d, &m->row, &id, &e);
	auto_close int fd = -1;
	struct stat st;

	if (dir < 0) {
		front_done(d, who, m->row.id, &e);
		return;
	}
	memset(reply.row.text, 0, sizeof(reply.row.text));
	file_name(id, "row", name);
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= IPC_ROW) {
		front_answer(d, who, &reply, fd);
		return;
	}
	if (fd >= 0 && read(fd, reply.row.text, sizeof(reply.row.text) - 1) < 0)
		reply.row.text[0] = '\0';
	front_answer(d, who, &reply, -1);
}

bool row_exists(const struct box *b)
{
	char name[IPC_ID + 8];

	file_name(b->i.info.id, "row", name);
	return faccessat(b->d->host.boxes_dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void row_remove(const struct box *b)
{
	char name[IPC_ID + 8];

	file_name(b->i.info.id, "row", name);
	unlinkat(b->d->host.boxes_dir, name, 0);
}

/* Sends and receives the messages of the egress program, and refuses messages that are not well-formed. */
#include "wire/egress.h"

#include "base/fd_message.h"

#include <sys/mman.h>

#define HEAD offsetof(struct egress, id)

/* A string that must have an end: its offset in struct egress and its size. */
struct egress_string {
	uint16_t at, size;
};

#define TEXT(member)                                                                               \
	{                                                                                          \
		offsetof(struct egress, member), sizeof(((struct egress *)0)->member)              \
	}

static const struct egress_string no_texts[] = {{0}};
static const struct egress_string id_texts[] = {TEXT(id), {0}};
static const struct egress_string add_texts[] = {TEXT(add.id), TEXT(add.owner), {0}};
static const struct egress_string meter_texts[] = {TEXT(meter.id), {0}};
static const struct egress_string record_texts[] = {
	TEXT(record.id),  TEXT(record.name),   TEXT(record.address), TEXT(record.rule),
	TEXT(record.why), TEXT(record.remedy), TEXT(record.secret),  {0}};
static const struct egress_string verdict_texts[] = {TEXT(verdict.id), {0}};
static const struct egress_string segment_texts[] = {
	TEXT(segment.id), TEXT(segment.group), TEXT(segment.name), {0}};
static const struct egress_string peer_texts[] = {TEXT(peer.id), TEXT(peer.peer), {0}};

/* How many fds come with a message. */
enum egress_fds { NO_FD, ONE_FD, MAYBE_FD, COUNTED_FDS };

static const struct shape {
	const struct egress_string *texts; /* NULL: no such type */
	size_t size;			   /* of the payload */
	enum egress_fds fds;
} shapes[] = {
	[EGRESS_SETTINGS] = {no_texts, 0, ONE_FD},
	[EGRESS_ADD] = {add_texts, sizeof(struct egress_add), COUNTED_FDS},
	[EGRESS_RULES... EGRESS_SECRETS] = {id_texts, IPC_ID, ONE_FD},
	[EGRESS_SEGMENT] = {segment_texts, sizeof(struct egress_segment), NO_FD},
	[EGRESS_PEER_SOCKET] = {peer_texts, sizeof(struct egress_peer), MAYBE_FD},
	[EGRESS_VERDICT] = {verdict_texts, sizeof(struct egress_verdict), NO_FD},
	[EGRESS_REMOVE] = {id_texts, IPC_ID, NO_FD},
	[EGRESS_PING... EGRESS_GO_ON] = {no_texts, 0, NO_FD},
	[EGRESS_FLUSH] = {id_texts, IPC_ID, NO_FD},
	[EGRESS_LISTENERS] = {add_texts, sizeof(struct egress_add), COUNTED_FDS},
	[EGRESS_METER] = {meter_texts, sizeof(struct egress_meter), NO_FD},
	[EGRESS_RECORD... EGRESS_ASK] = {record_texts, sizeof(struct egress_record), NO_FD},
	[EGRESS_CA] = {id_texts, IPC_ID, ONE_FD},
	[EGRESS_WANT_PEER] = {peer_texts, sizeof(struct egress_peer), NO_FD},
	[EGRESS_GONE] = {meter_texts, sizeof(struct egress_meter), NO_FD},
	[EGRESS_PONG] = {no_texts, 0, NO_FD},
	[EGRESS_FLUSHED] = {meter_texts, sizeof(struct egress_meter), NO_FD},
};

static const struct shape *shape_of(uint32_t type)
{
	return type < ARRAY_LEN(shapes) && shapes[type].texts ? &shapes[type] : NULL;
}

size_t egress_size(uint32_t type)
{
	const struct shape *s = shape_of(type);

	return s ? HEAD + s->size : 0;
}

static bool has_its_fds(const struct shape *s, const struct egress *m, size_t count)
{
	switch (s->fds) {
	case NO_FD:
		return count == 0;
	case ONE_FD:
		return count == 1;
	case MAYBE_FD:
		return count <= 1;
	case COUNTED_FDS:
		return count == m->add.fd_count && count <= EGRESS_FDS;
	}
	return false;
}

bool egress_is_well_formed(const struct egress *m, size_t len, size_t fd_count)
{
	const struct shape *s;

	if (len < HEAD)
		return false;
	s = shape_of(m->type);
	if (!s || m->zero || len != HEAD + s->size || !has_its_fds(s, m, fd_count))
		return false;
	for (const struct egress_string *t = s->texts; t->size; t++)
		if (!str_has_end((const char *)m + t->at, t->size))
			return false;
	/* Every payload begins with the id of its sandbox. */
	return s->size == 0 || str_only(m->id, STR_ALNUM "-_", 1, IPC_ID - 1);
}

int egress_send(int sock, const struct egress *m, const int *fds, size_t count)
{
	size_t len = egress_size(m->type);

	if (!egress_is_well_formed(m, len, count)) {
		errno = EINVAL;
		return -1;
	}
	return fd_message_send(sock, m, len, fds, count, 0);
}

int egress_receive(int sock, struct egress *ret, int *ret_fds, size_t room, size_t *ret_count)
{
	ssize_t n = fd_message_receive(sock, ret, sizeof(*ret), ret_fds, room, 0);
	size_t count = 0;

	if (n <= 0)
		return (int)n;
	while (count < room && ret_fds[count] >= 0)
		count++;
	if (!egress_is_well_formed(ret, (size_t)n, count)) {
		for (size_t i = 0; i < count; i++)
			close_fd(&ret_fds[i]);
		errno = EBADMSG;
		return -1;
	}
	/* The caller must not see bytes of an earlier message. */
	memset((char *)ret + n, 0, sizeof(*ret) - (size_t)n);
	*ret_count = count;
	return 1;
}

bool egress_settings_are_well_formed(const struct egress_settings *s)
{
	if (s->dns_count > ARRAY_LEN(s->dns))
		return false;
	for (uint32_t i = 0; i < s->dns_count; i++)
		if (!str_has_end(s->dns[i], sizeof(s->dns[i])))
			return false;
	return str_has_end(s->proxy, sizeof(s->proxy)) &&
	       str_has_end(s->proxy_auth, sizeof(s->proxy_auth)) &&
	       str_has_end(s->ca_file, sizeof(s->ca_file));
}

int egress_settings_fd(const struct egress_settings *s, struct err *e)
{
	auto_close int fd = memfd_create("settings", MFD_CLOEXEC | MFD_ALLOW_SEALING), file = -1;
	auto_free char *pem = NULL;
	size_t len = 0;

	if (s->ca_file[0]) {
		file = open(s->ca_file, O_RDONLY | O_CLOEXEC);
		if (file < 0 || io_read_whole(file, EGRESS_PEM_MAX, &pem, &len) < 0)
			return err_sys(e, "cannot read the certificates in %s", s->ca_file);
	}
	if (fd < 0 || io_write_all(fd, s, sizeof(*s)) < 0 || io_write_all(fd, pem, len) < 0 ||
	    io_seal(fd) < 0)
		return err_sys(e, "cannot pass the settings of the network on");
	return take_fd(&fd);
}

bool egress_secret_is_well_formed(const struct egress_secret *s)
{
	for (size_t i = 0; i < ARRAY_LEN(s->hosts); i++)
		if (!str_has_end(s->hosts[i], sizeof(s->hosts[i])))
			return false;
	return str_has_end(s->name, sizeof(s->name)) &&
	       str_has_end(s->placeholder, sizeof(s->placeholder)) &&
	       str_has_end(s->header, sizeof(s->header)) && s->value_len <= sizeof(s->value);
}

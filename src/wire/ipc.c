/* Sends and receives messages between roles, and refuses messages that are not well-formed. */
#include "wire/ipc.h"

#include "base/fd_message.h"

#define HEAD offsetof(struct ipc, id)

/* A string that must have an end: its offset in struct ipc and its size. */
struct ipc_text {
	uint16_t at, size;
};

#define TEXT(member)                                                                               \
	{                                                                                          \
		offsetof(struct ipc, member), sizeof(((struct ipc *)0)->member)                    \
	}

static const struct ipc_text id_texts[] = {TEXT(id), {0}};
static const struct ipc_text boot_texts[] = {
	TEXT(boot.id),	     TEXT(boot.owner), TEXT(boot.image),     TEXT(boot.snapshot),
	TEXT(boot.hostname), TEXT(boot.agent), TEXT(boot.agent_uid), {0}};
static const struct ipc_text booted_texts[] = {
	TEXT(booted.id),	TEXT(booted.owner), TEXT(booted.seccomp),
	TEXT(booted.disk),	TEXT(booted.note),  TEXT(booted.agent),
	TEXT(booted.agent_uid), TEXT(booted.image), {0}};
static const struct ipc_text stats_texts[] = {TEXT(stats.id), {0}};
static const struct ipc_text snapshot_texts[] = {
	TEXT(snapshot.id),    TEXT(snapshot.sandbox), TEXT(snapshot.owner),
	TEXT(snapshot.name),  TEXT(snapshot.digest),  TEXT(snapshot.excluded),
	TEXT(snapshot.image), TEXT(snapshot.key),     {0}};
static const struct ipc_text image_texts[] = {
	TEXT(image.owner), TEXT(image.name), TEXT(image.to), {0}};
static const struct ipc_text row_texts[] = {TEXT(row.id), TEXT(row.snapshot), TEXT(row.text), {0}};
static const struct ipc_text network_texts[] = {
	TEXT(network.id), TEXT(network.snapshot), TEXT(network.group), TEXT(network.name), {0}};
static const struct ipc_text net_record_texts[] = {
	TEXT(net_record.id),	  TEXT(net_record.name),
	TEXT(net_record.address), TEXT(net_record.rule),
	TEXT(net_record.why),	  TEXT(net_record.remedy),
	TEXT(net_record.secret),  {0}};
static const struct ipc_text net_meter_texts[] = {TEXT(net_meter.id), {0}};
static const struct ipc_text died_texts[] = {TEXT(died.id), TEXT(died.why), {0}};
static const struct ipc_text remote_texts[] = {TEXT(remote.id), TEXT(remote.name), {0}};
static const struct ipc_text query_texts[] = {TEXT(query.target), {0}};
static const struct ipc_text publish_texts[] = {TEXT(publish.id), {0}};
static const struct ipc_text peer_texts[] = {TEXT(peer.address), {0}};
static const struct ipc_text ping_texts[] = {TEXT(ping.silent), {0}};
static const struct ipc_text secret_texts[] = {TEXT(secret.owner),
					       TEXT(secret.id),
					       TEXT(secret.rule.name),
					       TEXT(secret.rule.header),
					       TEXT(secret.rule.prefix),
					       TEXT(secret.metadata),
					       {0}};
static const struct ipc_text use_texts[] = {
	TEXT(use.id), TEXT(use.owner), TEXT(use.owner_name), {0}};
static const struct ipc_text signer_texts[] = {TEXT(signer.why), {0}};
static const struct ipc_text agent_texts[] = {
	TEXT(agent.name), TEXT(agent.owner), TEXT(agent.uid), {0}};
static const struct ipc_text message_texts[] = {TEXT(message.from),
						TEXT(message.from_uid),
						TEXT(message.to),
						TEXT(message.to_uid),
						TEXT(message.id),
						TEXT(message.reply_to),
						{0}};
static const struct ipc_text key_texts[] = {TEXT(key.name), TEXT(key.uid), {0}};
static const struct ipc_text disk_key_texts[] = {TEXT(disk_key.id), TEXT(disk_key.owner), {0}};
static const struct ipc_text volume_texts[] = {TEXT(volume.id),	  TEXT(volume.owner),
					       TEXT(volume.name), TEXT(volume.from),
					       TEXT(volume.key),  {0}};
static const struct ipc_text no_texts[] = {{0}};

static const struct shape {
	size_t size; /* of the payload; 0 with texts NULL: no such type */
	const struct ipc_text *texts;
} shapes[] = {
	[IPC_BOOT] = {sizeof(struct ipc_boot), boot_texts},
	[IPC_CONNECT... IPC_RESUME] = {IPC_ID, id_texts},
	[IPC_UPDATE... IPC_CLAIM] = {sizeof(struct ipc_boot), boot_texts},
	[IPC_STATS] = {IPC_ID, id_texts},
	[IPC_SNAPSHOT] = {sizeof(struct ipc_snapshot), snapshot_texts},
	[IPC_SNAPSHOT_LIST] = {0, no_texts},
	[IPC_SNAPSHOT_DELETE... IPC_SNAPSHOT_KEEP] = {sizeof(struct ipc_snapshot), snapshot_texts},
	[IPC_ROW_PUT... IPC_ROW_GET] = {sizeof(struct ipc_row), row_texts},
	[IPC_NETWORK... IPC_NET_ANSWER] = {sizeof(struct ipc_network), network_texts},
	[IPC_NET_FLUSH] = {IPC_ID, id_texts},
	[IPC_DISK_READ... IPC_DISK_DONE] = {IPC_ID, id_texts},
	[IPC_QUIT] = {0, no_texts},
	[IPC_PUBLISH] = {sizeof(struct ipc_publish), publish_texts},
	[IPC_SECRET_PUT... IPC_SECRET_DELETE] = {sizeof(struct ipc_secret), secret_texts},
	[IPC_SECRET_USE] = {sizeof(struct ipc_secret_use), use_texts},
	[IPC_IMAGE] = {sizeof(struct ipc_image), image_texts},
	[IPC_IMAGES_LOOK] = {0, no_texts},
	[IPC_DONE] = {IPC_ID, id_texts},
	[IPC_BOOTED] = {sizeof(struct ipc_booted), booted_texts},
	[IPC_STATS_ARE] = {sizeof(struct ipc_stats), stats_texts},
	[IPC_SNAPSHOT_IS] = {sizeof(struct ipc_snapshot), snapshot_texts},
	[IPC_ROW_IS] = {sizeof(struct ipc_row), row_texts},
	[IPC_NETWORK_IS] = {sizeof(struct ipc_network), network_texts},
	[IPC_SECRET_IS] = {sizeof(struct ipc_secret), secret_texts},
	[IPC_ADOPTED] = {sizeof(struct ipc_booted), booted_texts},
	[IPC_READY] = {0, no_texts},
	[IPC_DIED] = {sizeof(struct ipc_died), died_texts},
	[IPC_CONFIG... IPC_LISTENER] = {0, no_texts},
	[IPC_PEER] = {sizeof(struct ipc_peer), peer_texts},
	[IPC_SHUTDOWN... IPC_AUDIT] = {0, no_texts},
	[IPC_NET_RECORD] = {sizeof(struct egress_record), net_record_texts},
	[IPC_NET_METER] = {sizeof(struct egress_meter), net_meter_texts},
	[IPC_NET_ASKS] = {sizeof(struct egress_record), net_record_texts},
	[IPC_FOREIGN] = {IPC_ID, id_texts},
	[IPC_SIGNER] = {sizeof(struct ipc_signer), signer_texts},
	[IPC_AGENT_TYPES... IPC_AGENTS] = {0, no_texts},
	[IPC_IMAGES] = {0, no_texts},
	[IPC_REMOTE_CREATE... IPC_REMOTE_GONE] = {sizeof(struct ipc_remote), remote_texts},
	[IPC_AUDIT_WRITE] = {sizeof(struct audit_entry), no_texts},
	[IPC_AUDIT_QUERY] = {sizeof(struct audit_query), query_texts},
	[IPC_AUDIT_DONE] = {sizeof(struct audit_page), no_texts},
	[IPC_PING] = {sizeof(struct ipc_ping), ping_texts},
	[IPC_PONG] = {0, no_texts},
	[IPC_TLS_KEYS] = {0, no_texts},
	[IPC_DISK_KEY_GET... IPC_DISK_KEY_ERASE] = {sizeof(struct ipc_disk_key), disk_key_texts},
	[IPC_DISK_KEY_USED] = {0, no_texts},
	[IPC_DISK_KEY_IS] = {sizeof(struct ipc_disk_key), disk_key_texts},
	[IPC_AGENT_PUT... IPC_AGENT_DELETE] = {sizeof(struct ipc_agent), agent_texts},
	[IPC_MESSAGE_SIGN... IPC_MESSAGE_VERIFY] = {sizeof(struct agent_message), message_texts},
	[IPC_AGENT_KEY] = {sizeof(struct ipc_agent_key), key_texts},
	[IPC_MESSAGE_IS] = {sizeof(struct agent_message), message_texts},
	[IPC_AGENT_KEY_IS] = {sizeof(struct ipc_agent_key), key_texts},
	[IPC_VOLUME_MAKE] = {sizeof(struct ipc_disk_volume), volume_texts},
	[IPC_VOLUME_LIST] = {0, no_texts},
	[IPC_VOLUME_DELETE... IPC_VOLUME_IS] = {sizeof(struct ipc_disk_volume), volume_texts},
};

static const struct shape *shape_of(uint32_t type)
{
	return type < ARRAY_LEN(shapes) && shapes[type].texts ? &shapes[type] : NULL;
}

size_t ipc_size(uint32_t type)
{
	const struct shape *s = shape_of(type);

	return s ? HEAD + s->size : 0;
}

/* Most sandboxes have no volume, so only the used part of that long array is sent. */
static size_t used_size(const struct ipc *m)
{
	size_t size = ipc_size(m->type);

	if (size == 0 || shapes[m->type].texts != boot_texts)
		return size;
	if (m->boot.volume_count > IPC_VOLUMES)
		return 0;
	return offsetof(struct ipc, boot.volumes[m->boot.volume_count]);
}

bool ipc_id_is_valid(const char *id)
{
	for (int i = 0; i < 20; i++)
		if ((id[i] < 'a' || id[i] > 'z') && (id[i] < '0' || id[i] > '5'))
			return false;
	return id[20] == '\0';
}

bool remote_name_is_valid(const char *name)
{
	size_t len = strnlen(name, REMOTE_ID);

	return len > 0 && len < REMOTE_ID && strspn(name, STR_ALNUM "-_") == len;
}

/* ---- sending ---- */

int ipc_send(int sock, const struct ipc *m, int fd)
{
	size_t len = used_size(m);

	if (len == 0) {
		errno = EINVAL;
		return -1;
	}
	return fd_message_send(sock, m, len, &fd, fd >= 0, 0);
}

/* ---- receiving ---- */

static bool lists_have_ends(const struct ipc_boot *b)
{
	for (uint32_t i = 0; i < TMPFS_MOUNTS; i++)
		if (!str_has_end(b->tmpfs.items[i].path, TMPFS_PATH))
			return false;
	for (uint32_t i = 0; i < b->volume_count; i++)
		if (!str_has_end(b->volumes[i].name, IPC_NAME) ||
		    !str_has_end(b->volumes[i].sub, IPC_PATH) ||
		    !str_has_end(b->volumes[i].target, IPC_PATH))
			return false;
	return true;
}

static bool secret_has_ends(const struct secret_rule *r)
{
	if (r->host_count > SECRET_HOSTS)
		return false;
	for (uint32_t i = 0; i < r->host_count; i++)
		if (!str_has_end(r->hosts[i], SECRET_HOST))
			return false;
	return true;
}

static bool uses_have_ends(const struct ipc_secret_use *u)
{
	if (u->count > SECRETS_PER_SANDBOX)
		return false;
	for (uint32_t i = 0; i < u->count; i++)
		if (!str_has_end(u->items[i].name, IPC_NAME) ||
		    !str_has_end(u->items[i].placeholder, SECRET_PLACEHOLDER) ||
		    !str_has_end(u->items[i].host, SECRET_HOST) ||
		    !str_has_end(u->items[i].header, SECRET_HEADER))
			return false;
	return true;
}

static bool is_well_formed(const struct ipc *m, size_t len)
{
	const struct shape *s;

	if (len < HEAD)
		return false;
	s = shape_of(m->type);
	if (!s || len > HEAD + s->size)
		return false;
	/* The count that decides the length must be part of the message. */
	if (s->texts == boot_texts && len < offsetof(struct ipc, boot.volumes))
		return false;
	if (len != used_size(m))
		return false;
	if ((unsigned)m->err.kind >= ERR_KIND_COUNT ||
	    !str_has_end(m->err.field, sizeof(m->err.field)) ||
	    !str_has_end(m->err.msg, sizeof(m->err.msg)))
		return false;
	for (const struct ipc_text *t = s->texts; t->size; t++)
		if (!str_has_end((const char *)m + t->at, t->size))
			return false;
	if (s->texts == remote_texts)
		return ipc_id_is_valid(m->remote.id) &&
		       (!m->remote.name[0] || remote_name_is_valid(m->remote.name));
	if (s->texts == secret_texts)
		return secret_has_ends(&m->secret.rule);
	if (s->texts == use_texts)
		return uses_have_ends(&m->use);
	return s->texts != boot_texts || lists_have_ends(&m->boot);
}

int ipc_receive(int sock, struct ipc *ret, int *ret_fd)
{
	auto_close int fd = -1;
	ssize_t n = fd_message_receive(sock, ret, sizeof(*ret), &fd, 1, 0);

	*ret_fd = -1;
	if (n <= 0)
		return (int)n;
	if (!is_well_formed(ret, (size_t)n)) {
		errno = EBADMSG;
		return -1;
	}
	/* The caller must not see bytes of an earlier message. */
	memset((char *)ret + n, 0, sizeof(*ret) - (size_t)n);
	*ret_fd = take_fd(&fd);
	return 1;
}

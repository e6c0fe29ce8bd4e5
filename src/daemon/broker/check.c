/* Judges requests by the operator's configuration alone, without looking at the broker's state. */
#include "daemon/broker/check.h"

#include "image/reference.h"
#include "model/spec.h"
#include "provider/can.h"
#include "sandbox/inside/warm_settings.h"

bool check_owner(const char *owner)
{
	if (str_equal(owner, "") || str_equal(owner, "-"))
		return true;
	if (owner[0] == '@')
		return str_only(owner + 1, STR_ALNUM "._-", 1, IPC_ID - 2);
	return str_only(owner, STR_ALNUM, 1, IPC_ID - 1);
}

bool check_name(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == 0x7f || *name == '/')
			return false;
	return true;
}

static const struct bound {
	const char *name;
	size_t offset;
	uint64_t least, most; /* most 0: only the operator bounds it */
	enum {
		NEVER_0 = 1,	/* 0 is out of range */
		FOLLOWS = 2,	/* 0 means: as another limit, which has a ceiling itself */
		NO_CEILING = 4, /* the guest and the front hold it for each command */
	} flags;
} bounds[] = {
	{"memory", offsetof(struct limits, memory_bytes), 1 << 20, 0, NEVER_0},
	{"cpus", offsetof(struct limits, cpus_milli), 10, 1000000, NEVER_0},
	{"pids", offsetof(struct limits, pids), 1, 1 << 22, NEVER_0},
	{"disk", offsetof(struct limits, disk_bytes), 64 << 10, 0, FOLLOWS},
	{"timeout", offsetof(struct limits, timeout_ms), 1, 0, NO_CEILING},
	{"cpu_time", offsetof(struct limits, cpu_time_ms), 1, 0, 0},
	{"open_files", offsetof(struct limits, open_files), 16, 1 << 20, NEVER_0},
	{"file_size", offsetof(struct limits, file_size_bytes), 1, 0, FOLLOWS},
	{"output", offsetof(struct limits, output_bytes), 0, 0, NO_CEILING},
};

static uint64_t member(const struct limits *l, const struct bound *b)
{
	uint64_t value;

	memcpy(&value, (const char *)l + b->offset, sizeof(value));
	return value;
}

int check_ceiling(const struct limits *l, const struct limits *ceiling, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		const struct bound *b = &bounds[i];
		uint64_t value = member(l, b), most = member(ceiling, b);

		if (!most || b->flags & NO_CEILING || (value == 0 && b->flags & FOLLOWS))
			continue;
		if (value > most || value == 0)
			return err_field(e, ERR_DENIED, b->name,
					 "%s: more than the ceiling, %" PRIu64, b->name, most);
	}
	return 0;
}

int check_limits(const struct limits *l, const struct config *c, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		const struct bound *b = &bounds[i];
		uint64_t value = member(l, b);

		if (value == 0 && !(b->flags & NEVER_0))
			continue;
		if (value < b->least || (b->most && value > b->most))
			return err_field(e, ERR_INVALID, b->name, "%s: out of range", b->name);
	}
	return check_ceiling(l, &c->ceiling, e);
}

int check_offered_volume(const struct ipc_volume *v, const char *owner, const char *owner_name,
			 const struct config *c, struct err *e)
{
	const struct config_volume *known = config_volume_find(c, v->name);

	/* A volume of somebody else answers like one that does not exist (rule 28). */
	if (!known || !config_volume_allows(known, owner, owner_name))
		return err_field(e, ERR_NOT_FOUND, "volumes", "volumes: there is no '%s'", v->name);
	if (v->writable && known->read_only)
		return err_field(e, ERR_DENIED, "volumes", "volumes: '%s' is read-only", v->name);
	return 0;
}

static int check_volume(const struct ipc_volume *v, struct err *e)
{
	static const char *const taken[] = {"/proc", "/sys", "/dev", "/run", "/etc", "/usr"};
	char clean[IPC_PATH];

	if (!path_clean(v->target, clean, sizeof(clean)) || str_equal(clean, "/"))
		return err_field(e, ERR_INVALID, "volumes",
				 "volumes: the target must be an absolute path without '..'");
	for (size_t i = 0; i < ARRAY_LEN(taken); i++)
		if (path_below(clean, taken[i]))
			return err_field(e, ERR_DENIED, "volumes",
					 "volumes: nothing may be put over %s", taken[i]);
	if (v->sub[0] == '/')
		return err_field(e, ERR_INVALID, "volumes", "volumes: sub must be relative");
	return 0;
}

/* The provider must be able to do everything that the request needs. */
static int check_provider(const struct ipc_boot *b, struct err *e)
{
	unsigned wanted = 0;

	if (b->snapshot[0])
		wanted |= CAN_SNAPSHOT;
	if (b->transient || ipc_boot_lanes(b))
		wanted |= CAN_PREPARE;
	if (b->volume_count || b->tmpfs.count)
		wanted |= CAN_VOLUMES;
	if (!str_equal(b->image, "host"))
		wanted |= CAN_IMAGE;
	if (b->required_layers)
		wanted |= CAN_PROVE;
	if (b->disk_type != DISK_MEMORY)
		wanted |= CAN_DISK;
	return provider_check(b->provider, wanted, e);
}

/* Who may have an image of the store is up to images.c. */
static int check_image(const char *id, const struct config *c, struct err *e)
{
	const struct config_image *dir =
		str_starts(id, "dir:") ? config_image_find(c, id + strlen("dir:")) : NULL;

	if (str_equal(id, "host") || image_is_digest(id) || (dir && !config_image_is_stored(dir)))
		return 0;
	return err_field(e, ERR_NOT_FOUND, "image", "image: there is no '%s'", id);
}

int check_boot(const struct ipc_boot *b, const struct config *c, struct err *e)
{
	struct limits in_memory;

	if (!ipc_id_is_valid(b->id))
		return err_set(e, ERR_INVALID, "not a sandbox id");
	if (!check_owner(b->owner))
		return err_set(e, ERR_INVALID, "not an owner");
	if (b->snapshot[0] && !ipc_id_is_valid(b->snapshot))
		return err_set(e, ERR_INVALID, "not a snapshot id");
	if (!spec_is_hostname(b->hostname))
		return err_field(e, ERR_INVALID, "hostname", "hostname: not a host name");
	if (check_provider(b, e) < 0)
		return -1;
	if (b->level != LEVEL_CONTAINER)
		return err_field(e, ERR_UNSUPPORTED, "level",
				 "level: the daemon has sandboxes of level container only");
	if (b->root != ROOT_RO && b->root != ROOT_OVERLAY)
		return err_field(e, ERR_INVALID, "root", "root: not a mode");
	if (check_image(b->image, c, e) < 0)
		return -1;
	if (ipc_boot_lanes(b) > WARM_HOST_LANES ||
	    (ipc_boot_lanes(b) &&
	     (!b->transient || b->root != ROOT_RO || b->volume_count || b->tmpfs.count)))
		return err_set(e, ERR_INVALID, "no warm host is like that");
	if (b->user_root && b->root == ROOT_OVERLAY && str_equal(b->image, "host"))
		return err_field(e, ERR_UNSUPPORTED, "user",
				 "user: root cannot have the host's own root file system writable; "
				 "use an image, or root ro");
	if (b->user_root && ipc_boot_lanes(b))
		return err_set(e, ERR_INVALID, "no warm host is like that");
	if (b->disk_type != DISK_MEMORY &&
	    (b->disk_type != DISK_IMAGE || b->transient || str_equal(b->owner, "-")))
		return err_field(e, ERR_INVALID, "disk_type",
				 "disk_type: only a sandbox that a client keeps has a disk");
	if (b->volume_count > IPC_VOLUMES)
		return err_field(e, ERR_INVALID, "volumes", "volumes: too many");
	for (uint32_t i = 0; i < b->volume_count; i++)
		if (check_volume(&b->volumes[i], e) < 0)
			return -1;
	if (check_limits(&b->limits, c, e) < 0)
		return -1;
	in_memory = limits_in_memory(&b->limits, b->disk_type);
	return tmpfs_check(&b->tmpfs, &in_memory, e);
}

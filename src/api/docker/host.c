/*
 * HostConfig of a new container. One table names every member: what is taken, what makes no difference here, and what
 * is refused, because it would weaken the sandbox or because nobody does what it asks for.
 */
#include "api/docker/docker_internal.h"

#include "net/publish.h"
#include "policy/config.h"

#include <sodium.h>
#include <strings.h>

#define PUBLISH_MAX 16

/* ---- members ---- */

struct member {
	const char *name;
	enum { TAKEN, HARMLESS, NOTED, REFUSED } what;
	const char *text; /* NOTED, REFUSED */
};

#define NO_HOST "a sandbox has no part of the host's; leave it out"
#define NO_DEVICE "a sandbox has no devices of the host; leave it out"
#define NOT_MADE "is not offered here"

static const struct member members[] = {
	{"AutoRemove", TAKEN, NULL},
	{"Binds", TAKEN, NULL},
	{"BlkioDeviceReadBps", REFUSED, NO_DEVICE},
	{"BlkioDeviceReadIOps", REFUSED, NO_DEVICE},
	{"BlkioDeviceWriteBps", REFUSED, NO_DEVICE},
	{"BlkioDeviceWriteIOps", REFUSED, NO_DEVICE},
	{"BlkioWeight", NOTED, "is ignored: owners share the disk evenly"},
	{"BlkioWeightDevice", REFUSED, NO_DEVICE},
	{"CapAdd", TAKEN, NULL},
	{"CapDrop", HARMLESS, NULL},
	{"Capabilities", REFUSED, "name none: a sandbox gets no capability of the host"},
	{"Cgroup", REFUSED, NO_HOST},
	{"CgroupParent", REFUSED, NO_HOST},
	{"CgroupnsMode", TAKEN, NULL},
	{"ConsoleSize", TAKEN, NULL},
	{"ContainerIDFile", HARMLESS, NULL},
	{"CpuCount", REFUSED, "is for Windows; use NanoCpus (--cpus)"},
	{"CpuPercent", REFUSED, "is for Windows; use NanoCpus (--cpus)"},
	{"CpuPeriod", TAKEN, NULL},
	{"CpuQuota", TAKEN, NULL},
	{"CpuRealtimePeriod", REFUSED, "real time is not offered; use NanoCpus (--cpus)"},
	{"CpuRealtimeRuntime", REFUSED, "real time is not offered; use NanoCpus (--cpus)"},
	{"CpuShares", NOTED, "is ignored: owners share processors evenly; use --cpus"},
	{"CpusetCpus", NOTED, "is ignored; use --cpus"},
	{"CpusetMems", NOTED, "is ignored"},
	{"DeviceCgroupRules", REFUSED, NO_DEVICE},
	{"DeviceRequests", REFUSED, NO_DEVICE},
	{"Devices", REFUSED, NO_DEVICE},
	{"Dns", NOTED, "is ignored: names are answered by the sandbox's own resolver"},
	{"DnsOptions", NOTED, "is ignored: names are answered by the sandbox's own resolver"},
	{"DnsSearch", NOTED, "is ignored: names are answered by the sandbox's own resolver"},
	{"ExtraHosts", NOTED, "is ignored: rules of the network decide what names lead to"},
	{"GroupAdd", NOTED, "is ignored: a sandbox has one group"},
	{"Init", HARMLESS, NULL},
	{"IOMaximumBandwidth", REFUSED, "is for Windows"},
	{"IOMaximumIOps", REFUSED, "is for Windows"},
	{"IpcMode", TAKEN, NULL},
	{"Isolation", HARMLESS, NULL},
	{"KernelMemory", NOTED, "is ignored: Memory counts the kernel's, too"},
	{"KernelMemoryTCP", NOTED, "is ignored: Memory counts the kernel's, too"},
	{"Links", REFUSED, "links are not offered; put both into a network of their own"},
	{"LogConfig", TAKEN, NULL},
	{"MaskedPaths", HARMLESS, NULL},
	{"Memory", TAKEN, NULL},
	{"MemoryReservation", HARMLESS, NULL},
	{"MemorySwap", HARMLESS, NULL},
	{"MemorySwappiness", HARMLESS, NULL},
	{"Mounts", TAKEN, NULL},
	{"NanoCpus", TAKEN, NULL},
	{"NetworkMode", TAKEN, NULL},
	{"OomKillDisable", REFUSED, "a sandbox that has used up its memory is ended"},
	{"OomScoreAdj", HARMLESS, NULL},
	{"PidMode", TAKEN, NULL},
	{"PidsLimit", TAKEN, NULL},
	{"PortBindings", TAKEN, NULL},
	{"Privileged", REFUSED,
	 "privileged containers are not offered; a token with the right to root (cloche token "
	 "create --root) makes root inside"},
	{"PublishAllPorts", TAKEN, NULL},
	{"ReadonlyPaths", HARMLESS, NULL},
	{"ReadonlyRootfs", TAKEN, NULL},
	{"RestartPolicy", TAKEN, NULL},
	{"Runtime", TAKEN, NULL},
	{"SecurityOpt", TAKEN, NULL},
	{"ShmSize", NOTED, "is ignored: /dev/shm is a part of Memory"},
	{"StorageOpt", TAKEN, NULL},
	{"Sysctls", REFUSED, "no settings of the kernel can be changed in a sandbox"},
	{"Tmpfs", TAKEN, NULL},
	{"UTSMode", TAKEN, NULL},
	{"Ulimits", NOTED, "is ignored: the daemon's limits hold"},
	{"UsernsMode", TAKEN, NULL},
	{"VolumeDriver", HARMLESS, NULL},
	{"VolumesFrom", REFUSED,
	 "sandboxes share nothing; name a volume of the operator's in both"},
};

static const struct member *find_member(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		if (strcasecmp(members[i].name, name) == 0)
			return &members[i];
	return NULL;
}

static int judge_members(const json_t *host, json_t *warnings, struct err *e)
{
	const json_t *value;
	const char *name;

	json_object_foreach ((json_t *)host, name, value) {
		const struct member *m = find_member(name);

		if (!docker_is_set(value) || (m && (m->what == TAKEN || m->what == HARMLESS)))
			continue;
		if (!m)
			return err_field(e, ERR_INVALID, "HostConfig",
					 "HostConfig.%.60s: is not known here; leave it out", name);
		if (m->what == REFUSED)
			return err_field(e, ERR_DENIED, "HostConfig", "%s: %s", m->name, m->text);
		json_array_append_new(warnings, json_sprintf("%s: %s", m->name, m->text));
	}
	return 0;
}

/* ---- namespaces, capabilities, profiles ---- */

/* Modes that share a namespace with the host or with another container. */
static int check_modes(const json_t *host, struct err *e)
{
	static const struct {
		const char *name, *fine[4];
	} modes[] = {{"PidMode", {"private"}},
		     {"IpcMode", {"private", "none", "shareable", "default"}},
		     {"UTSMode", {"private"}},
		     {"UsernsMode", {"private"}},
		     {"CgroupnsMode", {"private"}},
		     {"Runtime", {"runc", "io.containerd.runc.v2", "cloche"}}};

	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		const char *value = body_text(host, modes[i].name);
		bool is_fine = !value || !*value;

		for (size_t j = 0; j < ARRAY_LEN(modes[i].fine) && modes[i].fine[j] && value; j++)
			is_fine |= str_equal(value, modes[i].fine[j]);
		if (!is_fine)
			return err_field(e, ERR_DENIED, "HostConfig",
					 "%s: '%.60s' is not offered: a sandbox has namespaces of "
					 "its own; leave it out",
					 modes[i].name, value);
	}
	return 0;
}

/* Those that root inside has anyway. */
static int check_capabilities(const json_t *host, struct err *e)
{
	static const char *const inside[] = {
		"CHOWN",  "DAC_OVERRIDE", "FOWNER",	      "FSETID",	    "KILL",
		"SETGID", "SETUID",	  "NET_BIND_SERVICE", "SYS_CHROOT", "SETFCAP"};
	const json_t *list = json_object_get(host, "CapAdd"), *item;
	size_t i;

	json_array_foreach ((json_t *)list, i, item) {
		const char *name = json_string_value(item);
		bool is_fine = false;

		name += strncasecmp(name, "CAP_", 4) == 0 ? 4 : 0;
		for (size_t j = 0; j < ARRAY_LEN(inside); j++)
			is_fine |= strcasecmp(name, inside[j]) == 0;
		if (!is_fine)
			return err_field(e, ERR_DENIED, "HostConfig",
					 "CapAdd: %.40s is not given: root inside has what package "
					 "managers and services need, and nothing beyond it",
					 name);
	}
	return 0;
}

static int check_security(const json_t *host, struct err *e)
{
	static const char *const fine[] = {"no-new-privileges", "no-new-privileges:true",
					   "no-new-privileges=true", "seccomp=builtin",
					   "seccomp:builtin"};
	const json_t *list = json_object_get(host, "SecurityOpt"), *item;
	const char *lists[] = {"MaskedPaths", "ReadonlyPaths"};
	size_t i;

	json_array_foreach ((json_t *)list, i, item) {
		const char *text = json_string_value(item);
		bool is_fine = false;

		for (size_t j = 0; j < ARRAY_LEN(fine); j++)
			is_fine |= str_equal(text, fine[j]);
		if (!is_fine)
			return err_field(e, ERR_DENIED, "HostConfig",
					 "SecurityOpt: '%.60s' is not offered: the sandbox's own "
					 "profiles hold; leave it out",
					 text);
	}
	/* An empty list asks for nothing to be hidden. */
	for (i = 0; i < ARRAY_LEN(lists); i++)
		if (json_is_array(json_object_get(host, lists[i])) &&
		    !json_array_size(json_object_get(host, lists[i])))
			return err_field(e, ERR_DENIED, "HostConfig",
					 "SecurityOpt: systempaths=unconfined is not offered; "
					 "leave it out");
	return 0;
}

/* ---- limits ---- */

static int set_number(struct sandbox_spec *s, const char *name, uint64_t n, const char *unit,
		      struct err *e)
{
	char text[48];

	snprintf(text, sizeof(text), "%llu%s", (unsigned long long)n, unit);
	return spec_set(s, name, text, e);
}

static json_int_t number_of(const json_t *o, const char *name)
{
	return json_integer_value(json_object_get(o, name));
}

static int read_cpus(const json_t *host, struct sandbox_spec *s, struct err *e)
{
	json_int_t milli = number_of(host, "NanoCpus") / 1000000,
		   quota = number_of(host, "CpuQuota"), period = number_of(host, "CpuPeriod");
	char text[48];

	if (!milli && quota > 0)
		milli = quota * 1000 / (period > 0 ? period : 100000);
	if (milli <= 0)
		return 0;
	snprintf(text, sizeof(text), "%lld.%03lld", (long long)milli / 1000,
		 (long long)milli % 1000);
	return spec_set(s, "cpus", text, e);
}

int limits_read(const json_t *host, struct sandbox_spec *s, struct err *e)
{
	json_int_t memory = number_of(host, "Memory"), pids = number_of(host, "PidsLimit");
	const json_t *storage = json_object_get(host, "StorageOpt");
	const char *size = body_text(storage, "size");

	if (memory < 0 || number_of(host, "NanoCpus") < 0)
		return err_field(e, ERR_INVALID, "HostConfig", "Memory, NanoCpus: less than 0");
	if ((memory && set_number(s, "memory", (uint64_t)memory, "", e) < 0) ||
	    (pids > 0 && set_number(s, "pids", (uint64_t)pids, "", e) < 0) ||
	    (size && spec_set(s, "disk", size, e) < 0))
		return -1;
	return read_cpus(host, s, e);
}

/* ---- files ---- */

/* "rw,noexec,size=64m" */
static int add_tmpfs(struct sandbox_spec *s, const char *path, const char *options, struct err *e)
{
	const char *size = options ? strstr(options, "size=") : NULL;
	auto_free char *text = NULL;

	if (size && (size == options || size[-1] == ','))
		text = str_format("%s:size=%.*s", path, (int)strcspn(size + 5, ","), size + 5);
	return spec_set(s, "tmpfs", text ? text : path, e);
}

static int refuse_bind(const char *source, struct err *e)
{
	const char *name = strrchr(source, '/');

	if (name && strstr(name, "docker.sock"))
		return err_field(e, ERR_DENIED, "HostConfig",
				 "Binds: a socket of Docker's is the host's root, and no sandbox "
				 "gets one");
	return err_field(e, ERR_DENIED, "HostConfig",
			 "Binds: %.100s is a path of the host, and clients name none; copy files "
			 "with `docker cp`, or have the operator offer the directory as a volume",
			 source);
}

static int add_volume(struct wanted *w, const char *name, const char *target, bool writable,
		      struct err *e)
{
	struct create_options *o = w->o;
	struct ipc_volume *v = &o->volumes[o->volume_count];

	if (o->volume_count == IPC_VOLUMES)
		return err_field(e, ERR_LIMIT, "HostConfig", "Binds: more than %d volumes",
				 IPC_VOLUMES);
	if (!*name || strlen(name) >= sizeof(v->name))
		return err_field(e, ERR_INVALID, "HostConfig", "Binds: '%.80s' is no volume's name",
				 name);
	if (strlen(target) >= sizeof(v->target) || target[0] != '/')
		return err_field(e, ERR_INVALID, "HostConfig", "Binds: '%.60s' is no place inside",
				 target);
	snprintf(v->name, sizeof(v->name), "%s", name);
	snprintf(v->target, sizeof(v->target), "%s", target);
	v->writable = writable;
	o->volume_count++;
	return 0;
}

static bool is_read_only(const char *options)
{
	return options &&
	       (str_equal(options, "ro") || str_starts(options, "ro,") || strstr(options, ",ro"));
}

/* "SOURCE:TARGET[:OPTIONS]" */
static int read_bind(struct wanted *w, const char *text, struct err *e)
{
	auto_free char *copy = str_copy(text);
	char *target = strchr(copy, ':'), *options;

	if (!target)
		return err_field(e, ERR_INVALID, "HostConfig",
				 "Binds: '%.60s' is not SOURCE:TARGET[:ro]", text);
	*target++ = '\0';
	options = strchr(target, ':');
	if (options)
		*options++ = '\0';
	if (copy[0] == '/' || copy[0] == '.' || copy[0] == '~')
		return refuse_bind(copy, e);
	return add_volume(w, copy, target, !is_read_only(options), e);
}

static int read_mount(struct wanted *w, const json_t *m, struct err *e)
{
	const json_t *size = json_object_get(json_object_get(m, "TmpfsOptions"), "SizeBytes");
	const char *type = body_text(m, "Type"), *source = body_text(m, "Source"),
		   *target = body_text(m, "Target");
	char options[48] = "";

	if (!type || !target)
		return err_field(e, ERR_INVALID, "HostConfig", "Mounts: Type or Target is missing");
	if (json_integer_value(size) > 0)
		snprintf(options, sizeof(options), "size=%lld",
			 (long long)json_integer_value(size));
	if (str_equal(type, "tmpfs"))
		return add_tmpfs(&w->o->spec, target, options, e);
	if (str_equal(type, "bind"))
		return refuse_bind(source ? source : "", e);
	if (!str_equal(type, "volume"))
		return err_field(e, ERR_UNSUPPORTED, "HostConfig", "Mounts: type %.20s " NOT_MADE,
				 type);
	if (source && *source)
		return add_volume(w, source, target, !body_flag(m, "ReadOnly"), e);
	json_array_append_new(w->dirs, json_string(target));
	return 0;
}

static int read_files(struct wanted *w, struct err *e)
{
	struct sandbox_spec *s = &w->o->spec;
	const json_t *host = w->host;
	const json_t *item;
	const char *path;
	size_t i;

	if (spec_set(s, "root", body_flag(host, "ReadonlyRootfs") ? "ro" : "overlay", e) < 0)
		return -1;
	json_object_foreach (json_object_get(host, "Tmpfs"), path, item)
		if (add_tmpfs(s, path, json_string_value(item), e) < 0)
			return -1;
	json_array_foreach (json_object_get(host, "Binds"), i, item)
		if (read_bind(w, json_string_value(item), e) < 0)
			return -1;
	json_array_foreach (json_object_get(host, "Mounts"), i, item)
		if (read_mount(w, item, e) < 0)
			return -1;
	return 0;
}

/* ---- the network ---- */

/* What a token may have at most, without being asked: by its own rules, where it has some. */
static int take_default(struct wanted *w, struct err *e)
{
	const struct exchange *x = w->x;
	struct sandbox_spec *s = &w->o->spec;
	const struct config_network *n = &x->api->config->network;
	int most = network_most(x->api->manager, &x->caller);
	bool has_rules =
		(n->ceiling == NET_ALLOW && n->allow_count) ||
		(x->caller.token[0] && x->caller.net == NET_ALLOW && x->caller.net_has_rules);

	if (most == NET_ALLOW && has_rules)
		return spec_set(s, "net", "allow", e) < 0 ? -1 : spec_set(s, "allow", "*", e);
	if (most == NET_PUBLIC)
		return spec_set(s, "net", "public", e);
	json_array_append_new(w->warnings,
			      json_string("NetworkMode: this token's sandboxes have no network"));
	return spec_set(s, "net", "none", e);
}

static int read_network(struct wanted *w, struct err *e)
{
	const char *mode = body_text(w->host, "NetworkMode");
	const struct docker_network *n;

	if (body_flag(w->config, "NetworkDisabled") || (mode && str_equal(mode, "none")))
		return spec_set(&w->o->spec, "net", "none", e);
	if (!mode || !*mode || str_equal(mode, "default") || str_equal(mode, "bridge"))
		return take_default(w, e);
	if (str_equal(mode, "host") || str_starts(mode, "container:") || str_starts(mode, "ns:"))
		return err_field(e, ERR_DENIED, "HostConfig",
				 "NetworkMode: '%.60s' is not offered: a sandbox has a network of "
				 "its own; use bridge or none",
				 mode);
	n = segment_find(*exchange_networks(w->x), mode);
	if (!n)
		/* Not as missing: clients would take that for the image and pull it. */
		return err_field(e, ERR_INVALID, "HostConfig", "network %.60s not found", mode);
	return network_spec(n, &w->o->spec, e);
}

/* A port of the operator's range, or for the operator's own containers a high one. */
static int choose_port(const struct wanted *w, char ret[8], struct err *e)
{
	const struct config *c = w->x->api->config;
	uint32_t first = c->publish_first, last = c->publish_last;

	if (!w->x->caller.token[0])
		first = 20000, last = 29999;
	if (!last)
		return err_field(e, ERR_DENIED, "HostConfig",
				 "PortBindings: the operator allows no ports of the host "
				 "(publish.ports)");
	snprintf(ret, 8, "%u", first + randombytes_uniform(last - first + 1));
	return 0;
}

static int add_port(const struct wanted *w, const char *inner, const json_t *binding, struct err *e)
{
	const char *address = body_text(binding, "HostIp"), *port = body_text(binding, "HostPort");
	struct create_options *o = w->o;
	auto_free char *text = NULL;
	char usual[NET_PUBLISH_TEXT], chosen[8];
	struct net_publish p;

	if (o->publish.count == PUBLISH_MAX)
		return err_field(e, ERR_LIMIT, "HostConfig", "PortBindings: more than %d ports",
				 PUBLISH_MAX);
	if (!port || !*port || str_equal(port, "0")) {
		if (choose_port(w, chosen, e) < 0)
			return -1;
		port = chosen;
	}
	address = address && *address ? address : NULL;
	text = str_format(address && strchr(address, ':') ? "[%s]:%s:%.*s"
			  : address			  ? "%s:%s:%.*s"
							  : "%s%s:%.*s",
			  address ? address : "", port, (int)strcspn(inner, "/"), inner);
	if (net_publish_parse(text, &p, e) < 0)
		return -1;
	net_publish_text(&p, usual);
	list_add(&o->publish, usual);
	return 0;
}

static int check_port(const char *inner, struct err *e)
{
	const char *kind = strchr(inner, '/');

	if (!kind || str_equal(kind, "/tcp"))
		return 0;
	return err_field(e, ERR_UNSUPPORTED, "HostConfig",
			 "PortBindings: %.40s: only TCP ports are published", inner);
}

static int read_ports(const struct wanted *w, struct err *e)
{
	const json_t *bindings = json_object_get(w->host, "PortBindings"), *list, *one;
	const char *inner;
	size_t i;

	json_object_foreach ((json_t *)bindings, inner, list) {
		if (check_port(inner, e) < 0)
			return -1;
		json_array_foreach ((json_t *)list, i, one)
			if (add_port(w, inner, one, e) < 0)
				return -1;
	}
	if (!body_flag(w->host, "PublishAllPorts"))
		return 0;
	json_object_foreach (json_object_get(w->config, "ExposedPorts"), inner, one)
		if (!json_object_get(bindings, inner) &&
		    (check_port(inner, e) < 0 || add_port(w, inner, NULL, e) < 0))
			return -1;
	return 0;
}

/* ---- all of it ---- */

static int check_restart(const json_t *host, struct err *e)
{
	static const char *const names[] = {"no", "always", "unless-stopped", "on-failure"};
	const char *name = body_text(json_object_get(host, "RestartPolicy"), "Name");

	for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
		if (str_equal(name, names[i]))
			name = NULL;
	if (!name || !*name)
		return 0;
	return err_field(e, ERR_INVALID, "HostConfig", "invalid restart policy '%.40s'", name);
}

int host_read(struct wanted *w, struct err *e)
{
	const json_t *host = w->host;

	if (judge_members(host, w->warnings, e) < 0 || check_modes(host, e) < 0 ||
	    check_capabilities(host, e) < 0 || check_security(host, e) < 0 ||
	    check_restart(host, e) < 0 || limits_read(host, &w->o->spec, e) < 0 ||
	    read_files(w, e) < 0 || read_network(w, e) < 0)
		return -1;
	return read_ports(w, e);
}

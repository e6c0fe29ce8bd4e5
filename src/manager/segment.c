/* The isolated segment of a sandbox: its group, and the name by which the others of the group call it. */
#include "manager/manager_internal.h"

#include "net/name.h"

/* The name of a sandbox is for people. One that is a single label of a host name serves here as well. */
static bool fill_name(const char *name, char ret[IPC_NAME])
{
	char canonical[NET_NAME];
	struct network address;
	struct err ignored;

	if (!name[0] ||
	    net_host(name, strlen(name), canonical, &address, &ignored) != NET_IS_NAME ||
	    strchr(canonical, '.') || strlen(canonical) >= IPC_NAME ||
	    str_equal(canonical, "localhost"))
		return false;
	snprintf(ret, IPC_NAME, "%s", canonical);
	return true;
}

void segment_fill(const struct sandbox *s, struct ipc_network *ret)
{
	if (s->o.spec.net != NET_ISOLATED || !s->o.spec.net_group)
		return;
	snprintf(ret->group, sizeof(ret->group), "%s", s->o.spec.net_group);
	if (!fill_name(s->o.name, ret->name))
		ret->name[0] = '\0';
}

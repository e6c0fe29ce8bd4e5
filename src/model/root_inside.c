#include "model/root_inside.h"

#include <linux/capability.h>

/*
 * CAP_SETPCAP, NET_RAW, NET_ADMIN, MKNOD, SYS_ADMIN and the rest would be good for little below a namespace
 * that owns neither network nor mounts, and are what most exploits of the kernel began with. Some programs do
 * not run without those that are given (docs/root.md).
 */
uint64_t root_inside_caps(enum root_inside kind)
{
	static const struct {
		int cap;
		bool marks_files; /* in a way that would count on the host as well */
	} given[] = {
		{CAP_CHOWN, false},	 {CAP_DAC_OVERRIDE, false},
		{CAP_FOWNER, false},	 {CAP_FSETID, true},
		{CAP_KILL, false},	 {CAP_SETGID, false},
		{CAP_SETUID, false},	 {CAP_NET_BIND_SERVICE, false},
		{CAP_SYS_CHROOT, false}, {CAP_SETFCAP, true},
	};
	uint64_t caps = 0;

	if (kind != ROOT_INSIDE_NESTED && kind != ROOT_INSIDE_NESTED_SHARED)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(given); i++)
		if (kind == ROOT_INSIDE_NESTED || !given[i].marks_files)
			caps |= 1ull << given[i].cap;
	return caps;
}

const char *root_inside_name(enum root_inside kind)
{
	static const char *const names[] = {
		[ROOT_INSIDE_NESTED] = "nested",
		[ROOT_INSIDE_NESTED_SHARED] = "nested",
		[ROOT_INSIDE_ANSWERED] = "answered",
		[ROOT_INSIDE_ANSWERED_SHARED] = "answered",
	};

	return (size_t)kind < ARRAY_LEN(names) ? names[kind] : NULL;
}

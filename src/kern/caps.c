#include "kern/caps.h"

#include "kern/sys.h"

#include <linux/capability.h>
#include <sys/prctl.h>

/* The sets have 64 bits; a bound for the case that prctl lies. */
#define MAX_CAPS 64

static int get_caps(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return (int)syscall(SYS_capget, &header, data);
}

/*
 * Root of a user namespace has every capability there, but only the ids that were given to it: often
 * one, or 65536. Sandboxes have theirs far above those.
 */
bool caps_own_all_ids(void)
{
	const ino_t first_user_ns = 0xEFFFFFFDu; /* the kernel's PROC_USER_INIT_INO */
	static const char all[] = "0 0 4294967295";
	char map[64], *at = map;
	struct stat st;

	if (stat("/proc/self/ns/user", &st) < 0 || st.st_ino == first_user_ns)
		return true;
	if (io_read_at(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) <= 0)
		return false;
	/* Three numbers, with any number of blanks in front of each. */
	for (const char *want = all; *want; want++) {
		at += strspn(at, " ");
		if (*want != ' ' && *at++ != *want)
			return false;
	}
	return true;
}

static bool has_all(unsigned needed)
{
	struct __user_cap_data_struct data[2] = {{0}};

	return get_caps(data) == 0 && (data[0].effective & needed) == needed && caps_own_all_ids();
}

bool caps_can_administer(void)
{
	return has_all(1u << CAP_SYS_ADMIN | 1u << CAP_SETUID | 1u << CAP_SETGID);
}

bool caps_can_run_others(void)
{
	return has_all(1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_SETPCAP | 1u << CAP_KILL |
		       1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE);
}

int caps_raise_permitted(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (get_caps(data) < 0)
		return -1;
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted;
	return (int)syscall(SYS_capset, &header, data);
}

int caps_bound(uint64_t kept, struct err *e)
{
	/* EINVAL is past the last one. */
	errno = 0;
	for (int cap = 0; cap < MAX_CAPS; cap++)
		if (!(kept & 1ull << cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
	if (errno == 0)
		return err_set(e, ERR_UNSUPPORTED, "dropping capabilities has no end: prctl lies");
	return errno == EINVAL ? 0 : err_sys(e, "cannot drop the capability bounding set");
}

int caps_drop_bounding(struct err *e)
{
	return caps_bound(0, e);
}

int caps_set(uint64_t caps, struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = (uint32_t)(caps >> 32 * i);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(e, "cannot clear ambient capabilities");
	if (syscall(SYS_capset, &header, data) < 0)
		return err_sys(e, "cannot drop capabilities");
	return 0;
}

int caps_clear(struct err *e)
{
	return caps_set(0, e);
}

int caps_keep(const int *caps, size_t count, struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	for (size_t i = 0; i < count; i++)
		data[caps[i] / 32].permitted |= 1u << caps[i] % 32;
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].inheritable = data[i].permitted;
	if (syscall(SYS_capset, &header, data) < 0)
		return err_sys(e, "cannot keep capabilities");
	for (size_t i = 0; i < count; i++)
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, caps[i], 0, 0) < 0)
			return err_sys(e, "cannot keep capabilities over an exec");
	return 0;
}

static bool bounding_is(uint64_t caps)
{
	for (int cap = 0; cap < MAX_CAPS; cap++) {
		int in_bounding = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		if (in_bounding < 0)
			return errno == EINVAL && !(caps >> cap);
		if (in_bounding != (int)(caps >> cap & 1))
			return false;
	}
	return false;
}

bool caps_bounding_is_empty(void)
{
	return bounding_is(0);
}

static uint64_t join(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

/* The ambient set is a subset of permitted and inheritable (capabilities(7)). */
bool caps_are(uint64_t caps, bool with_bounding)
{
	struct __user_cap_data_struct data[2] = {{.effective = ~0u}};

	if (get_caps(data) < 0 || join(data[0].inheritable, data[1].inheritable) != 0 ||
	    join(data[0].effective, data[1].effective) != caps ||
	    join(data[0].permitted, data[1].permitted) != caps)
		return false;
	return !with_bounding || bounding_is(caps);
}

bool caps_none(bool with_bounding)
{
	return caps_are(0, with_bounding);
}

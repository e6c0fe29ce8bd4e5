#include "kern/seccomp.h"

#include "kern/cbpf.h"
#include "kern/compat.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>

static long load_filter(unsigned flags, const struct sock_fprog *prog)
{
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, prog);
}

/*
 * SECCOMP_FILTER_FLAG_SPEC_ALLOW is left out on purpose: where it matters (before Linux 5.16) it
 * would take away the speculation barriers between this code and its neighbours.
 */
int seccomp_load(const struct seccomp_profile *p, int *ret_listener, struct err *e)
{
	const struct sock_fprog prog = {.len = p->count, .filter = (struct sock_filter *)p->insns};
	long r;

	if (!ret_listener) {
		if (load_filter(0, &prog) < 0)
			return err_sys(e, "load seccomp profile %s", p->name);
		return 0;
	}
	/*
	 * A caller that was heard waits until it is answered, deaf to all but deadly signals (and
	 * cannot be frozen meanwhile). Without that, each signal restarts the call and raises its
	 * notification again; Go sends itself one every 10 ms. Linux 5.19.
	 */
	r = load_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
			&prog);
	if (r < 0 && errno == EINVAL)
		r = load_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
	/* A process and its ancestors have one listener at most. */
	if (r < 0 && errno == EBUSY)
		return err_set(
			e, ERR_UNSUPPORTED,
			"a sandbox around this process watches its calls already; run cloche "
			"outside of it");
	if (r < 0)
		return err_sys(e, "load seccomp profile %s with a listener", p->name);
	*ret_listener = (int)r;
	/* Caller and listener take turns, so one cpu serves both: 3 us a report instead of 4 to 28.
	 * Linux 6.6; older kernels say no, and it works as well. */
	(void)ioctl(*ret_listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS,
		    SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	return 0;
}

/*
 * The kernel takes the stricter of two filters, and of two errnos that of the later filter: nobody else answers
 * EXFULL here.
 */
int seccomp_narrow(const struct seccomp_profile *p, struct err *e)
{
	if (seccomp_load(p, NULL, e) < 0)
		return -1;
	errno = 0;
	if (syscall(SYS_setns, SECCOMP_NARROW_CANARY, 0) != -1 || errno != EXFULL)
		return err_field(e, ERR_UNSUPPORTED, "seccomp",
				 "seccomp: the profile was loaded but does not act");
	return 0;
}

/* Not on the heap: processes that share this memory, or have dropped their heap, load it. */
static struct {
	struct seccomp_own own;
	struct seccomp_profile profile; /* count 0: there is none */
} taken;

int seccomp_own_take(int fd, off_t at, struct err *e)
{
	const size_t head = offsetof(struct seccomp_own, insns);
	ssize_t n = pread(fd, &taken.own, sizeof(taken.own), at);

	if (n <= (ssize_t)head || ((size_t)n - head) % sizeof(taken.own.insns[0]) != 0)
		return err_set(e, ERR_SYSTEM, "seccomp: the compiled profile cannot be read");
	taken.profile = (struct seccomp_profile){
		.name = "own",
		.digest = taken.own.digest,
		.insns = taken.own.insns,
		.count = (unsigned short)(((size_t)n - head) / sizeof(taken.own.insns[0]))};
	return 0;
}

int seccomp_own_apply(struct err *e)
{
	return taken.profile.count ? seccomp_narrow(&taken.profile, e) : 0;
}

int seccomp_notify_get(int listener, struct seccomp_notif *ret)
{
	struct seccomp_notif n;

	memset(&n, 0, sizeof(n)); /* the kernel insists */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
		return -1;
	*ret = n;
	return 0;
}

bool seccomp_notify_alive(int listener, uint64_t id)
{
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

void seccomp_notify_answer(int listener, uint64_t id, int errnum)
{
	struct seccomp_notif_resp resp = {
		.id = id,
		.error = -errnum,
		.flags = errnum ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE,
	};

	/* It fails only if the caller has died, and then nobody waits for the answer. */
	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

const struct seccomp_report *seccomp_report_match(const struct seccomp_profile *p,
						  const struct seccomp_data *data)
{
	uint32_t result = cbpf_run(p->insns, p->count, data);
	unsigned rule = result & SECCOMP_RET_DATA;

	if ((result & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_USER_NOTIF || rule == 0)
		return NULL;
	for (unsigned i = 0; i < p->report_count; i++)
		if (p->reports[i].nr == data->nr && p->reports[i].rule == rule)
			return &p->reports[i];
	return NULL;
}

/*
 * Makes network namespaces with nothing but loopback, in a process beside the caller, who goes on
 * meanwhile.
 */
#include "sandbox/inside/net.h"

#include "kern/sched.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <arpa/inet.h>
#include <assert.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

int net_create(int *ret_ns, int *ret_dns, struct err *e)
{
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(53),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	auto_close int fd = -1;

	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(e, "cannot create a network namespace");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &loopback) < 0)
		return err_sys(e, "cannot bring up the loopback interface");
	if (ret_ns && (*ret_ns = ioctl(fd, SIOCGSKNS)) < 0)
		return err_sys(e, "cannot open the network namespace");
	*ret_dns = bind(fd, (void *)&address, sizeof(address)) == 0 ? take_fd(&fd) : -1;
	return 0;
}

/*
 * Services of root inside bind :80, and no capability over the network namespace is given for that. Soft:
 * without it they say so themselves.
 */
static void free_all_ports(int sysctls)
{
	(void)!io_write_at(sysctls, "net/ipv4/ip_unprivileged_port_start", "0");
}

int net_make(const struct net_setup *setup, struct net_made *ret, struct err *e)
{
	struct net_made m = NET_MADE_NONE;

	*ret = m;
	if (!setup)
		return net_create(&ret->ns, &ret->dns, e);
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(e, "cannot create a network namespace");
	m.anchor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	m.ns = m.anchor < 0 ? -1 : ioctl(m.anchor, SIOCGSKNS);
	if (m.ns < 0)
		err_sys(e, "cannot open the network namespace");
	else if (net_redirect(setup, &m.listeners, e) == 0) {
		*ret = m;
		return 0;
	}
	net_made_close(&m);
	return -1;
}

void net_made_close(struct net_made *m)
{
	net_listeners_close(&m->listeners);
	close_fd(&m->ns);
	close_fd(&m->dns);
	close_fd(&m->anchor);
}

/* ---- a visit ---- */

#define STACK_SIZE (48u << 10)

struct visit {
	int anchor;
	void (*run)(void *);
	void *arg;
	bool entered;
	int errnum;
};

/* As root the namespace may belong to our own user namespace, which cannot be entered again. */
static int visit_main(void *arg)
{
	struct visit *v = arg;
	auto_close int ns = ioctl(v->anchor, SIOCGSKNS);
	auto_close int user = ns < 0 ? -1 : ioctl(ns, NS_GET_USERNS);

	if (user >= 0)
		(void)!setns(user, CLONE_NEWUSER);
	v->entered = ns >= 0 && setns(ns, CLONE_NEWNET) == 0;
	v->errnum = errno;
	if (v->entered)
		v->run(v->arg);
	return 0;
}

int net_visit(int anchor, void (*run)(void *arg), void *arg, struct err *e)
{
	static char stack[STACK_SIZE] __attribute__((aligned(16)));
	struct visit v = {.anchor = anchor, .run = run, .arg = arg};
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	pid_t pid;

	/* Without an exit signal no other wait of this process sees the child. */
	pid = clone(visit_main, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | CLONE_FILES, &v);
	if (pid < 0)
		return err_sys(e, "cannot create a process");
	while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		continue;
	/* To enter a user namespace makes the memory, which is ours, undumpable: /proc/self would be root's then. */
	if (dumpable == 1)
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	errno = v.errnum;
	return v.entered ? 0 : err_sys(e, "cannot enter the network namespace");
}

/* ---- counters ---- */

/*
 * Other counters (netstat) change only with packets, which dev counts. A flow label needs no
 * packet, and stays for a minute after its socket.
 */
static const char *const counters[] = {"/proc/self/net/dev", "/proc/self/net/snmp",
				       "/proc/self/net/snmp6", "/proc/self/net/sockstat",
				       "/proc/self/net/ip6_flowlabel"};
#define SOCKSTAT 3 /* its first line counts the namespace, the others the whole host */
static_assert(ARRAY_LEN(counters) == NET_COUNTERS, "a file for each counter");

int net_counters_open(struct net_counters *ret, struct err *e)
{
	struct net_counters c = NET_COUNTERS_NONE;

	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		c.fds[i] = open(counters[i], O_RDONLY | O_CLOEXEC);
		/* Some kernels have no IPv6. */
		if (c.fds[i] < 0 && errno != ENOENT) {
			err_sys(e, "cannot open %s", counters[i]);
			net_counters_close(&c);
			return -1;
		}
	}
	*ret = c;
	return 0;
}

void net_counters_close(struct net_counters *c)
{
	for (size_t i = 0; i < ARRAY_LEN(counters); i++)
		close_fd(&c->fds[i]);
}

static uint64_t mix_hash(uint64_t hash, const char *bytes, size_t len)
{
	while (len > 0) {
		size_t n = len < sizeof(hash) ? len : sizeof(hash);
		uint64_t word = 0;

		memcpy(&word, bytes, n);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15;
		hash ^= hash >> 32;
		bytes += n;
		len -= n;
	}
	return hash;
}

uint64_t net_fingerprint(const struct net_counters *c)
{
	uint64_t hash = 0xcbf29ce484222325;
	char text[4096], *end;
	ssize_t n;

	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		if (c->fds[i] < 0)
			continue;
		for (off_t at = 0; (n = pread(c->fds[i], text, sizeof(text), at)) > 0; at += n) {
			end = i == SOCKSTAT ? memchr(text, '\n', (size_t)n) : NULL;
			hash = mix_hash(hash, text, end ? (size_t)(end - text) : (size_t)n);
			if (end)
				break;
		}
		if (n < 0)
			return 0;
	}
	return hash ? hash : 1;
}

/* ---- beside pid 1 ---- */

/* Not the next number: the command is to be pid 2. */
#define HELPER_PID 300

static int help_main(void *arg)
{
	struct net_help *h = arg;

	if (net_make(h->setup, &h->made, &h->err) < 0)
		return -1;
	if (h->sysctls >= 0)
		free_all_ports(h->sysctls);
	return 0;
}

/*
 * Shares memory, so that no page is copied, neither by the clone nor when pid 1 writes; see
 * make_netns().
 */
pid_t net_help(struct net_help *h, const struct net_setup *setup, int sysctls, bool elsewhere)
{
	static char stack[STACK_SIZE] __attribute__((aligned(16)));
	pid_t id = HELPER_PID, pid;
	struct clone_args args = {.flags = CLONE_FILES | CLONE_VM,
				  .exit_signal = SIGCHLD,
				  .stack = (uint64_t)(uintptr_t)stack,
				  .stack_size = sizeof(stack),
				  .set_tid = (uint64_t)(uintptr_t)&id,
				  .set_tid_size = 1};

	*h = (struct net_help){.setup = setup, .sysctls = sysctls, .made = NET_MADE_NONE};
	pid = sys_clone3_run(&args, help_main, h);
	if (pid < 0 && errno == ENOSYS) {
		args.flags &= ~(uint64_t)CLONE_VM;
		args.stack = args.stack_size = 0;
		pid = sys_clone3(&args);
		if (pid == 0)
			_exit(help_main(h));
	}
	if (pid > 0 && elsewhere)
		sched_send_elsewhere(pid);
	return pid;
}

int net_join(struct net_help *h, pid_t helper, struct err *e)
{
	if (helper < 0) {
		if (help_main(h) < 0) {
			*e = h->err;
			return -1;
		}
		close_fd(&h->made.ns);
		return 0;
	}
	while (waitpid(helper, NULL, __WALL) < 0 && errno == EINTR)
		;
	if (h->made.ns < 0) {
		*e = h->err;
		return e->kind != ERR_NONE
			       ? -1
			       : err_set(e, ERR_SYSTEM, "the network's maker was killed");
	}
	if (setns(h->made.ns, CLONE_NEWNET) < 0)
		return err_sys(e, "cannot enter the network namespace");
	close_fd(&h->made.ns);
	return 0;
}

/* ---- beside the keeper ---- */

/*
 * Shares memory and fds with the keeper, which goes on meanwhile. errno is shared as well: it is
 * only written when a call here fails, and then the run fails.
 */
static int make_netns(void *arg)
{
	struct netns_maker *n = arg;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != n->caller)
		_exit(1);
	if (net_make(n->setup, &n->made, &n->err) == 0 && n->all_ports) {
		auto_close int sysctls = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);

		free_all_ports(sysctls);
	}
	(void)!eventfd_write(n->ready, 1);
	for (;;)
		pause();
	return 0;
}

#define DEADLINE_MS 10000

int net_start(struct netns_maker *n, const struct net_setup *setup, uid_t owner, bool all_ports,
	      struct err *e)
{
	/* There is one at a time. */
	static char stack[STACK_SIZE] __attribute__((aligned(16)));
	const int flags = CLONE_VM | CLONE_FILES;

	*n = (struct netns_maker){.caller = getpid(),
				  .setup = setup,
				  .all_ports = all_ports,
				  .made = NET_MADE_NONE,
				  .in_userns = true};
	n->ready = eventfd(0, EFD_CLOEXEC);
	if (n->ready < 0)
		return err_sys(e, "cannot create an eventfd");
	n->pid = userns_clone(make_netns, stack + STACK_SIZE, flags, n, owner);
	if (n->pid < 0) {
		/* The caller decides whether it needs the user namespace. */
		n->in_userns = false;
		n->pid = clone(make_netns, stack + STACK_SIZE, flags, n);
	}
	return n->pid < 0 ? err_sys(e, "cannot create a process") : 0;
}

int net_finish(struct netns_maker *n, struct err *e)
{
	struct pollfd ready = {n->ready, POLLIN, 0};

	if (n->pid <= 0)
		return 0;
	/* If the process was killed, only the timeout tells. */
	if (poll(&ready, 1, DEADLINE_MS) != 1)
		return err_set(e, ERR_SYSTEM, "the network namespace does not get ready");
	if (n->made.ns < 0) {
		*e = n->err;
		return -1;
	}
	return 0;
}

void net_release(struct netns_maker *n)
{
	if (n->pid > 0) {
		kill(n->pid, SIGKILL);
		waitpid(n->pid, NULL, __WALL);
	}
	n->pid = 0;
	close_fd(&n->ready);
}

/*
 * Answers notifications of the filter and queries to the name server, records them as denials, and
 * explains denials in words.
 */
#include "sandbox/inside/notify.h"

#include "kern/sys.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

const struct seccomp_profile *notify_profile(enum root_inside kind)
{
	static const struct seccomp_profile *const profiles[] = {
		[ROOT_INSIDE_NO] = &seccomp_profile_default,
		[ROOT_INSIDE_NESTED] = &seccomp_profile_root,
		[ROOT_INSIDE_NESTED_SHARED] = &seccomp_profile_root_shared,
		[ROOT_INSIDE_ANSWERED] = &seccomp_profile_answered,
		[ROOT_INSIDE_ANSWERED_SHARED] = &seccomp_profile_answered_shared,
	};

	return profiles[(size_t)kind < ARRAY_LEN(profiles) ? kind : ROOT_INSIDE_NO];
}

void notify_denial(struct status_page *b, enum denial_kind kind, int report, const char *target,
		   size_t len)
{
	char clean[sizeof(b->denials[0].target)];

	str_sanitise(clean, sizeof(clean), target, len);
	for (unsigned i = 0; i < b->denial_count; i++) {
		struct status_denial *d = &b->denials[i];

		if (d->kind == kind && d->report == report && d->owner == b->owner &&
		    str_equal(d->target, clean)) {
			d->count++;
			d->last_ns = now_ns();
			return;
		}
	}
	if (b->denial_count == STATUS_PAGE_DENIALS) {
		b->denials_dropped++;
		return;
	}
	b->denials[b->denial_count] = (struct status_denial){
		.kind = kind, .report = report, .count = 1, .owner = b->owner, .last_ns = now_ns()};
	memcpy(b->denials[b->denial_count].target, clean, sizeof(clean));
	b->denial_count++;
}

/*
 * The address that a waiting process passes to connect; its memory may change meanwhile. If the
 * process still waits after its memory was opened, the memory does not belong to another process
 * with the same pid.
 */
static size_t read_address(int listener, const struct seccomp_notif *n,
			   struct sockaddr_storage *ret)
{
	size_t len = n->data.args[2] < sizeof(*ret) ? (size_t)n->data.args[2] : sizeof(*ret);
	char path[64];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)n->pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || !seccomp_notify_alive(listener, n->id))
		return 0;
	got = pread(fd, ret, len, (off_t)n->data.args[1]);
	return got < 0 ? 0 : (size_t)got;
}

static bool is_local_address(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;

	if (a->ss_family == AF_INET)
		return (ntohl(v4->sin_addr.s_addr) >> 24) == 127 || v4->sin_addr.s_addr == 0;
	if (a->ss_family != AF_INET6)
		return true;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return v6->sin6_addr.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

/* What is redirected is decided, and recorded, by egress. */
static bool is_redirected(const struct status_page *b, const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;
	unsigned char address[16] = {[10] = 0xff, [11] = 0xff};

	if (!b->leads_to)
		return false;
	if (a->ss_family == AF_INET)
		memcpy(address + 12, &v4->sin_addr, 4);
	else
		memcpy(address, &v6->sin6_addr, sizeof(address));
	return net_setup_leads_to(b->leads_to, address);
}

static void notify_connect(struct status_page *b, int listener, const struct seccomp_notif *n)
{
	struct sockaddr_storage a = {0};
	const struct sockaddr_in *v4 = (const void *)&a;
	const struct sockaddr_in6 *v6 = (const void *)&a;
	char host[INET6_ADDRSTRLEN] = "", target[80];
	size_t len = read_address(listener, n, &a);

	if (len < sizeof(struct sockaddr_in) || is_local_address(&a) || is_redirected(b, &a))
		return;
	if (a.ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(target, sizeof(target), "%s:%u", host, ntohs(v4->sin_port));
	} else {
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(target, sizeof(target), "[%s]:%u", host, ntohs(v6->sin6_port));
	}
	notify_denial(b, DENIAL_CONNECT, 0, target, strlen(target));
}

void notify_answer(struct status_page *b, const struct seccomp_profile *profile, int listener,
		   const struct seccomp_notif *n)
{
	const struct seccomp_report *report = seccomp_report_match(profile, &n->data);

	if (report) {
		notify_denial(b, DENIAL_SYSCALL, (int)(report - profile->reports), "", 0);
		seccomp_notify_answer(listener, n->id, report->errnum);
	} else if (n->data.nr == SYS_connect) {
		/*
		 * Read only for the record: continuing is safe whatever the address changes to,
		 * because the network namespace leads nowhere.
		 */
		notify_connect(b, listener, n);
		seccomp_notify_answer(listener, n->id, 0);
	} else {
		seccomp_notify_answer(listener, n->id, EPERM);
	}
}

void notify_serve(struct status_page *b, const struct seccomp_profile *profile, int listener)
{
	struct seccomp_notif n;

	if (seccomp_notify_get(listener, &n) == 0)
		notify_answer(b, profile, listener, &n);
}

/* Turns the labels of the first question into a dotted name; 0 if the packet is malformed. */
static size_t question_name(const unsigned char *packet, size_t size, char *ret, size_t room,
			    size_t *ret_end)
{
	size_t at = 12, len = 0;

	while (at < size && packet[at] != 0) {
		size_t label = packet[at];

		if (label > 63 || at + 1 + label >= size || len + label + 1 >= room)
			return 0;
		if (len)
			ret[len++] = '.';
		memcpy(ret + len, packet + at + 1, label);
		len += label;
		at += 1 + label;
	}
	*ret_end = at + 5;
	return at + 5 <= size ? len : 0;
}

void notify_refuse_name(struct status_page *b, int fd)
{
	unsigned char packet[512];
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	char name[256];
	ssize_t n = recvfrom(fd, packet, sizeof(packet), MSG_DONTWAIT, (void *)&from, &from_len);
	size_t end = 0, len;

	/* A query: QR clear, one question. */
	if (n < 17 || (packet[2] & 0x80) || packet[4] != 0 || packet[5] != 1)
		return;
	len = question_name(packet, (size_t)n, name, sizeof(name), &end);
	if (len == 0)
		return;
	notify_denial(b, DENIAL_RESOLVE, 0, name, len);
	packet[2] = 0x80 | (packet[2] & 0x79); /* an answer, recursion as asked for */
	packet[3] = 0x83;		       /* recursion available, no such name */
	memset(packet + 6, 0, 6);	       /* no records */
	sendto(fd, packet, end, MSG_DONTWAIT | MSG_NOSIGNAL, (void *)&from, from_len);
}

/* ---- in words ---- */

/* Strings from inside appear in a hint only if they are a plain name or address. */
static bool is_plain_target(const char *target)
{
	return target[strspn(target, STR_ALNUM ".-_:[]")] == '\0';
}

static void explain_syscall(const struct seccomp_profile *profile, const struct status_denial *b,
			    struct denial *d)
{
	const struct seccomp_report *report = NULL;

	if (b->report >= 0 && (unsigned)b->report < profile->report_count)
		report = &profile->reports[b->report];
	snprintf(d->what, sizeof(d->what), "syscall");
	snprintf(d->rule, sizeof(d->rule), "seccomp");
	snprintf(d->target, sizeof(d->target), "%s", report ? report->name : "unknown");
	snprintf(d->explain, sizeof(d->explain), "%s", report ? report->reason : "");
}

static void explain_network(const struct status_denial *b, struct denial *d)
{
	const char *target = is_plain_target(b->target) ? b->target : "(no host name)";

	snprintf(d->what, sizeof(d->what), b->kind == DENIAL_CONNECT ? "connect" : "resolve");
	snprintf(d->rule, sizeof(d->rule), "network none");
	snprintf(d->target, sizeof(d->target), "%s", target);
	snprintf(d->explain, sizeof(d->explain),
		 "The sandbox has no network, only its own loopback%s. If this is needed, ask for "
		 "--net allow%s%s; or fetch it outside and bring it in, with --file or --mount",
		 b->kind == DENIAL_RESOLVE ? ", so no name can be looked up" : "",
		 target[0] == '(' ? " and rules" : " --allow ", target[0] == '(' ? "" : target);
}

void notify_explain(const struct seccomp_profile *profile, const struct status_denial *b,
		    struct denial *ret)
{
	ret->count = b->count;
	if (b->kind == DENIAL_SYSCALL)
		explain_syscall(profile, b, ret);
	else
		explain_network(b, ret);
}

/*
 * uplink EGRESS [OPTION...] -- COMMAND...: takes the place of the keeper in tests of cloche-egress. Makes a network
 * namespace, starts EGRESS outside of it, and runs COMMAND inside. Messages of EGRESS are written as lines to the fd
 * --events; lines on the fd --orders are orders: "allow RULE", "deny RULE", "clear", "apply", "remove", "hold",
 * "go on", "ping", "garbage", "verdict SERIAL 0|1", "settings" (the same again).
 *
 *   --mode none|allow|public  --allow RULE  --deny RULE  --dns ADDRESS  --proxy URL  --proxy-auth USER:PASSWORD  --names FILE  --ask
 *   --tx-bytes N  --rx-bytes N  --tx-rate N  --rx-rate N  --connections N  --open N  --budget-names N
 *   --requests N  --connect-ms N  --idle-ms N  --ca FILE
 *   --sandboxes N (so many more, idle)  --rules N (so many more rules)  --with COMMAND (sh -c, in a sandbox of its own)
 */
#include "base/fd_message.h"
#include "net/redirect.h"
#include "wire/egress.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct {
	const char *egress, *names, *mode;
	struct list allow, deny;
	struct egress_settings settings;
	struct net_budget budget;
	struct list with;
	bool asks;
	int events, orders;
	unsigned sandboxes, more_rules;
	struct net_setup setup;
} o = {.mode = "allow", .events = -1, .orders = -1};

static void die(const char *what)
{
	fprintf(stderr, "uplink: %s: %s\n", what, strerror(errno));
	exit(125);
}

static int memfd_of(const void *bytes, size_t len)
{
	int fd = memfd_create("uplink", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || io_write_all(fd, bytes, len) < 0 || io_seal(fd) < 0)
		die("memfd");
	return fd;
}

static void compile(struct buf *ret)
{
	struct net_policy_maker *m = net_policy_new();
	int mode = str_equal(o.mode, "none")	 ? NET_NONE
		   : str_equal(o.mode, "public") ? NET_PUBLIC
						 : NET_ALLOW;
	struct err e = {0};
	int rc = 0;

	net_policy_stage(m, mode, NET_BY_REQUEST);
	for (size_t i = 0; i < o.allow.count && rc == 0; i++)
		rc = net_policy_add(m, NET_RULE_ALLOW, o.allow.items[i], &e);
	for (size_t i = 0; i < o.deny.count && rc == 0; i++)
		rc = net_policy_add(m, NET_RULE_DENY, o.deny.items[i], &e);
	for (unsigned i = 0; i < o.more_rules && rc == 0; i++) {
		auto_free char *rule = str_format("host%u.zone%u.example.net:443", i, i % 100);

		rc = net_policy_add(m, NET_RULE_ALLOW, rule, &e);
	}
	net_policy_budget(m, &o.budget);
	if (rc < 0 || net_policy_write(m, ret, &e) < 0) {
		fprintf(stderr, "uplink: %s\n", e.msg);
		exit(125);
	}
	net_policy_free(m);
}

static void send_message(int sock, struct egress *m, const char *id, const int *fds, size_t count)
{
	if (id)
		snprintf(m->id, sizeof(m->id), "%s", id);
	if (egress_send(sock, m, fds, count) < 0)
		die("send");
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static void send_rules(int sock, const char *id)
{
	auto_buf struct buf policy = {0};
	int fd;

	compile(&policy);
	fd = memfd_of(buf_head(&policy), policy.len);
	send_message(sock, &(struct egress){.type = EGRESS_RULES}, id, &fd, 1);
}

static void send_settings(int sock)
{
	struct err e = {0};
	int fd = egress_settings_fd(&o.settings, &e);

	if (fd < 0)
		die(e.msg);
	send_message(sock, &(struct egress){.type = EGRESS_SETTINGS}, NULL, &fd, 1);
}

static void add_sandbox(int sock, const char *id, struct net_listeners *l)
{
	struct egress m = {.type = EGRESS_ADD};
	int fd;

	memcpy(m.add.prefix6, o.setup.prefix6, sizeof(m.add.prefix6));
	memcpy(m.add.own4, o.setup.own4, sizeof(m.add.own4));
	memcpy(m.add.own6, o.setup.own6, sizeof(m.add.own6));
	m.add.asks = o.asks;
	m.add.fd_count = (uint8_t)l->count;
	send_message(sock, &m, id, l->fds, l->count);
	if (o.names && str_equal(id, "main")) {
		fd = open(o.names, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			die(o.names);
		send_message(sock, &(struct egress){.type = EGRESS_NAMES}, id, &fd, 1);
	}
	send_rules(sock, id);
}

static pid_t start_egress(int *ret_sock)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair");
	pid = fork();
	if (pid == 0) {
		/* dup2 of an fd to itself would leave it close-on-exec. */
		int copy = fcntl(pair[1], F_DUPFD, 10);

		dup2(copy, 3);
		close(copy);
		execl(o.egress, o.egress, "run", NULL);
		die(o.egress);
	}
	close(pair[1]);
	*ret_sock = pair[0];
	return pid;
}

/* In the child: a namespace of its own, whose listeners go to the parent. */
static void make_network(int to)
{
	struct net_listeners l;
	struct err e = {0};
	uid_t uid = geteuid();
	char map[64], file[] = "/tmp/uplink.XXXXXX";

	if (unshare(CLONE_NEWNET | CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) < 0)
		die("unshare");
	if (uid) {
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		io_write_at(AT_FDCWD, "/proc/self/setgroups", "deny");
		io_write_at(AT_FDCWD, "/proc/self/uid_map", map);
	}
	mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL);
	close(mkstemp(file));
	io_write_at(AT_FDCWD, file, "nameserver 198.19.255.254\n");
	if (chmod(file, 0644) < 0 || mount(file, "/etc/resolv.conf", NULL, MS_BIND, NULL) < 0)
		die("/etc/resolv.conf");
	unlink(file);
	if (net_redirect(&o.setup, &l, &e) < 0) {
		fprintf(stderr, "uplink: %s\n", e.msg);
		exit(125);
	}
	if (fd_message_send(to, "l", 1, l.fds, l.count, 0) < 0)
		die("send listeners");
	net_listeners_close(&l);
}

static void receive_listeners(int from, struct net_listeners *ret)
{
	char c;

	*ret = (struct net_listeners){0};
	if (fd_message_receive(from, &c, 1, ret->fds, NET_LISTENERS_MAX, 0) != 1)
		exit(125);
	while (ret->count < NET_LISTENERS_MAX && ret->fds[ret->count] >= 0)
		ret->count++;
}

static void show(const struct egress *m)
{
	const struct egress_record *r = &m->record;
	const struct egress_meter *t = &m->meter;

	if (o.events < 0)
		return;
	if (m->type == EGRESS_RECORD || m->type == EGRESS_ASK)
		dprintf(o.events,
			"%s\t%s\t%d\t%d\t%" PRIu64 "\t%s\t%s\t%u\t%s\t%s\t%s\t%" PRIu64 "\t%" PRIu64
			"\t%u\n",
			m->type == EGRESS_ASK ? "ask" : "record", r->id, r->phase, r->udp,
			r->serial, r->name, r->address, r->port, r->rule, r->why, r->remedy,
			r->tx_bytes, r->rx_bytes, r->count);
	else if (m->type == EGRESS_METER || m->type == EGRESS_GONE)
		dprintf(o.events,
			"%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
			m->type == EGRESS_METER ? "meter" : "gone", t->id, t->tx_bytes, t->rx_bytes,
			t->connections, t->open, t->denied);
	else if (m->type == EGRESS_PONG)
		dprintf(o.events, "pong\n");
}

static void obey(int sock, char *line)
{
	struct egress m = {.type = EGRESS_VERDICT};
	unsigned allow;

	if (str_starts(line, "allow "))
		list_add(&o.allow, line + 6);
	else if (str_starts(line, "deny "))
		list_add(&o.deny, line + 5);
	else if (str_equal(line, "clear"))
		list_done(&o.allow);
	else if (str_equal(line, "apply"))
		send_rules(sock, "main");
	else if (str_equal(line, "hold"))
		send_message(sock, &(struct egress){.type = EGRESS_HOLD}, NULL, NULL, 0);
	else if (str_equal(line, "go on"))
		send_message(sock, &(struct egress){.type = EGRESS_GO_ON}, NULL, NULL, 0);
	else if (str_equal(line, "ping"))
		send_message(sock, &(struct egress){.type = EGRESS_PING}, NULL, NULL, 0);
	else if (str_equal(line, "garbage"))
		send(sock, "garbage", 7, MSG_NOSIGNAL);
	else if (str_equal(line, "settings"))
		send_settings(sock);
	else if (str_equal(line, "remove"))
		send_message(sock, &(struct egress){.type = EGRESS_REMOVE}, "main", NULL, 0);
	else if (sscanf(line, "verdict %" SCNu64 " %u", &m.verdict.serial, &allow) == 2) {
		m.verdict.allow = (uint8_t)allow;
		send_message(sock, &m, "main", NULL, 0);
	}
}

static void serve(int sock, int command)
{
	struct pollfd p[3] = {{sock, POLLIN, 0}, {o.orders, POLLIN, 0}, {command, POLLIN, 0}};
	static char line[4096];
	int fds[EGRESS_FDS];
	struct egress m;
	size_t count;

	while (poll(p, 3, -1) >= 0) {
		if (p[0].revents) {
			if (egress_receive(sock, &m, fds, EGRESS_FDS, &count) <= 0)
				return;
			for (size_t i = 0; i < count; i++)
				close(fds[i]);
			show(&m);
		}
		if (p[1].revents) {
			ssize_t n = read(o.orders, line, sizeof(line) - 1);
			char *save = NULL;

			if (n <= 0)
				p[1].fd = -1;
			line[n > 0 ? n : 0] = '\0';
			for (char *at = strtok_r(line, "\n", &save); at;
			     at = strtok_r(NULL, "\n", &save))
				obey(sock, at);
		}
		if (p[2].revents && !p[0].revents && !p[1].revents)
			return;
	}
}

static uint64_t number(const char *s)
{
	return strtoull(s, NULL, 10);
}

static int read_options(int argc, char **argv)
{
	int i = 2;

	o.egress = argc > 2 ? argv[1] : "";
	for (; i + 1 < argc && !str_equal(argv[i], "--"); i += 2) {
		const char *k = argv[i] + 2, *v = argv[i + 1];

		if (str_equal(k, "allow"))
			list_add(&o.allow, v);
		else if (str_equal(k, "deny"))
			list_add(&o.deny, v);
		else if (str_equal(k, "mode"))
			o.mode = v;
		else if (str_equal(k, "names"))
			o.names = v;
		else if (str_equal(k, "dns"))
			snprintf(o.settings.dns[o.settings.dns_count++], 64, "%s", v);
		else if (str_equal(k, "proxy"))
			snprintf(o.settings.proxy, sizeof(o.settings.proxy), "%s", v);
		else if (str_equal(k, "proxy-auth"))
			snprintf(o.settings.proxy_auth, sizeof(o.settings.proxy_auth), "%s", v);
		else if (str_equal(k, "connect-ms"))
			o.settings.connect_ms = number(v);
		else if (str_equal(k, "idle-ms"))
			o.settings.idle_ms = number(v);
		else if (str_equal(k, "ca"))
			snprintf(o.settings.ca_file, sizeof(o.settings.ca_file), "%s", v);
		else if (str_equal(k, "events"))
			o.events = (int)number(v);
		else if (str_equal(k, "orders"))
			o.orders = (int)number(v);
		else if (str_equal(k, "with"))
			list_add(&o.with, v);
		else if (str_equal(k, "ask"))
			o.asks = number(v);
		else if (str_equal(k, "sandboxes"))
			o.sandboxes = (unsigned)number(v);
		else if (str_equal(k, "rules"))
			o.more_rules = (unsigned)number(v);
		else if (str_equal(k, "tx-bytes"))
			o.budget.tx_bytes = number(v);
		else if (str_equal(k, "rx-bytes"))
			o.budget.rx_bytes = number(v);
		else if (str_equal(k, "tx-rate"))
			o.budget.tx_rate = number(v);
		else if (str_equal(k, "rx-rate"))
			o.budget.rx_rate = number(v);
		else if (str_equal(k, "connections"))
			o.budget.connections = (uint32_t)number(v);
		else if (str_equal(k, "open"))
			o.budget.open = (uint32_t)number(v);
		else if (str_equal(k, "budget-names"))
			o.budget.names = (uint32_t)number(v);
		else if (str_equal(k, "requests"))
			o.budget.requests = (uint32_t)number(v);
		else
			break;
	}
	if (i + 1 >= argc || !str_equal(argv[i], "--")) {
		fprintf(stderr, "uplink: unknown option %s\n", i < argc ? argv[i] : "");
		exit(125);
	}
	return i + 1;
}

/* Another namespace; without a command none of its processes stays. */
static void add_another(int sock, const char *id, const char *command)
{
	struct net_listeners l;
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		make_network(pair[1]);
		if (command)
			execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(0);
	}
	close(pair[1]);
	receive_listeners(pair[0], &l);
	if (!command)
		waitpid(pid, NULL, 0);
	add_sandbox(sock, id, &l);
	close(pair[0]);
}

int main(int argc, char **argv)
{
	int first = read_options(argc, argv), pair[2], go[2], sock, status, fd;
	auto_buf struct buf policy = {0};
	struct net_listeners l;
	pid_t egress, command;
	char pid[16];

	compile(&policy);
	net_setup_from(&o.setup, buf_head(&policy));
	egress = start_egress(&sock);
	snprintf(pid, sizeof(pid), "%d", egress);
	setenv("EGRESS_PID", pid, 1);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
	    pipe2(go, O_CLOEXEC) < 0)
		die("socketpair");
	command = fork();
	if (command == 0) {
		char c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		make_network(pair[1]);
		if (read(go[0], &c, 1) != 1)
			_exit(125);
		close_fd(&o.events);
		close_fd(&o.orders);
		execvp(argv[first], argv + first);
		die(argv[first]);
	}
	close(pair[1]);
	send_settings(sock);
	receive_listeners(pair[0], &l);
	add_sandbox(sock, "main", &l);
	for (unsigned i = 0; i < o.sandboxes + o.with.count; i++) {
		char id[IPC_ID];

		snprintf(id, sizeof(id), "other%u", i);
		add_another(sock, id, i < o.with.count ? o.with.items[i] : NULL);
	}
	if (write(go[1], "g", 1) != 1)
		die("write");
	fd = (int)syscall(434, command, 0); /* pidfd_open */
	serve(sock, fd);
	if (waitpid(command, &status, 0) < 0)
		die("wait");
	/* What the command did last is told, too. */
	send(sock, &(struct egress){.type = EGRESS_REMOVE, .id = "main"},
	     egress_size(EGRESS_REMOVE), MSG_NOSIGNAL);
	for (struct egress m = {0}; m.type != EGRESS_GONE;) {
		int fds[EGRESS_FDS];
		size_t count;

		if (egress_receive(sock, &m, fds, EGRESS_FDS, &count) <= 0)
			break;
		show(&m);
	}
	close(sock);
	waitpid(egress, NULL, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

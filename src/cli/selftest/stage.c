/* Sets up what the attacks of a self test reach for, and takes it away again. */
#include "cli/selftest/stage.h"

#include "base/id.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/xattr.h>

/* Neither the caller nor the sandbox: its files are for root only. */
#define OTHER_UID 65531

/* ---- files ---- */

static int write_file(const char *path, const char *text, mode_t mode, struct err *e)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
	    fchmod(fd, mode) < 0)
		return err_sys(e, "cannot write %s", path);
	return 0;
}

static int copy_file(const char *from, const char *to, mode_t mode, struct err *e)
{
	auto_close int in = open(from, O_RDONLY | O_CLOEXEC);
	auto_close int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	char buf[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		return err_sys(e, "cannot copy %s to %s", from, to);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			return err_sys(e, "cannot write %s", to);
	if (n < 0 || fchmod(out, mode) < 0)
		return err_sys(e, "cannot copy %s to %s", from, to);
	return 0;
}

void stage_reset(const struct stage *s)
{
	auto_free char *path = str_format("%s/file", s->ro);
	auto_free char *text = str_format("read-only %s\n", s->token);
	struct err ignored;

	write_file(path, text, 0666, &ignored);
}

/* ---- programs ---- */

static int find_program(const char *name, char *ret, struct err *e)
{
	if (cli_find_helper(name, ret, PATH_MAX) == 0)
		return 0;
	return err_set(e, ERR_NOT_FOUND, "%s is not installed beside this program", name);
}

int stage_run(const struct stage *s, const struct start *start, struct ended *ret, struct err *e)
{
	const struct caller caller = {s->outside, s->secret, s->out_file, s->out_text, s->stop};

	return run_program(&caller, start, ret, e);
}

/* ---- canaries ---- */

static void add_canary(struct list *ret, const char *name, const char *value)
{
	if (value && *value)
		list_take(ret, str_format("%s=%s", name, value));
}

static void add_file(struct list *ret, const char *name, const char *path)
{
	char buf[128];

	io_read_at(AT_FDCWD, path, buf, sizeof(buf));
	buf[strcspn(buf, "\n")] = '\0';
	add_canary(ret, name, buf);
}

static void add_namespaces(struct list *ret)
{
	static const char *const names[] = {"user", "pid", "mnt",    "net",
					    "ipc",  "uts", "cgroup", "time"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *path = str_format("/proc/self/ns/%s", names[i]);
		auto_free char *name = str_format("ns-%s", names[i]);
		struct stat st;
		char number[32];

		if (stat(path, &st) < 0)
			continue;
		snprintf(number, sizeof(number), "%llu", (unsigned long long)st.st_ino);
		add_canary(ret, name, number);
	}
}

/* An address of the host that is not loopback: connecting a datagram socket sends nothing. */
static void add_address(struct list *ret)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);
	char text[INET_ADDRSTRLEN];

	inet_pton(AF_INET, "198.51.100.1", &a.sin_addr);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
	    inet_ntop(AF_INET, &a.sin_addr, text, sizeof(text)))
		add_canary(ret, "addr", text);
}

void stage_canaries(const struct stage *s, const struct place *place, const struct plant *peer,
		    struct list *ret)
{
	static const char *const from_plant[] = {"tcp", "tcp6", "udp", "pid"};
	struct utsname u;

	uname(&u);
	add_canary(ret, "outside", s->outside);
	add_canary(ret, "token", s->token);
	add_canary(ret, "host", s->tag);
	add_canary(ret, "ro", place->ro);
	add_canary(ret, "ws", place->ws);
	add_canary(ret, "rw", place->rw);
	add_canary(ret, "env-secret", s->secret);
	add_canary(ret, "hidden", strrchr(s->hidden, '/') + 1);
	add_canary(ret, "hostname", u.nodename);
	add_file(ret, "boot-id", "/proc/sys/kernel/random/boot_id");
	add_file(ret, "machine-id", "/etc/machine-id");
	add_canary(ret, "host-has", plant_fact(&s->host, "has"));
	for (size_t i = 0; i < ARRAY_LEN(from_plant); i++)
		add_canary(ret, from_plant[i], plant_fact(&s->host, from_plant[i]));
	add_namespaces(ret);
	add_address(ret);
	if (geteuid() == 0)
		list_take(ret, str_format("private=%s/private", place->ro));
	if (peer) {
		add_canary(ret, "peer-has", plant_fact(peer, "has"));
		add_canary(ret, "peer-tcp", plant_fact(peer, "tcp"));
	}
}

/* ---- life ---- */

static void random_hex(char *ret, const char *prefix, size_t bytes)
{
	size_t len = (size_t)sprintf(ret, "%s", prefix);

	if (id_hex(ret + len, bytes) < 0)
		sprintf(ret + len, "07");
}

/* Copies of the probe that would be more than their caller, if exec let them. */
static int fill_as_root(struct stage *s, struct err *e)
{
	/* CAP_NET_RAW, effective; version 2 of the attribute */
	static const uint32_t caps[5] = {0x02000001, 1u << 13, 0, 0, 0};
	auto_free char *suid = str_format("%s/suid-probe", s->ro);
	auto_free char *file_caps = str_format("%s/caps-probe", s->ro);
	auto_free char *ephemeral = str_format("%s/private", s->ro);

	if (geteuid() != 0)
		return 0;
	if (copy_file(s->probe, suid, 04755, e) < 0 || copy_file(s->probe, file_caps, 0755, e) < 0)
		return -1;
	if (setxattr(file_caps, "security.capability", caps, sizeof(caps), 0) < 0)
		unlink(file_caps);
	if (write_file(ephemeral, s->token, 0600, e) < 0)
		return -1;
	if (chown(ephemeral, OTHER_UID, OTHER_UID) < 0)
		return err_sys(e, "cannot give %s away", ephemeral);
	return 0;
}

static int fill_stage(struct stage *s, struct err *e)
{
	const char *const dirs[] = {s->hidden, s->outside, s->ro, s->rw, s->work};
	auto_free char *secret = str_format("%s/secret", s->outside);
	auto_free char *in_ro = str_format("%s/cloche-probe", s->ro);
	auto_free char *in_work = str_format("%s/cloche-probe", s->work);

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdir(dirs[i], 0755) < 0)
			return err_sys(e, "cannot make %s", dirs[i]);
	if (write_file(secret, s->token, 0666, e) < 0 || copy_file(s->probe, in_ro, 0755, e) < 0 ||
	    copy_file(s->probe, in_work, 0755, e) < 0 || fill_as_root(s, e) < 0)
		return -1;
	stage_reset(s);
	/* It is the sandbox that has to refuse, not a mode. */
	for (size_t i = 1; i < ARRAY_LEN(dirs); i++)
		if (chmod(dirs[i], 0777) < 0)
			return err_sys(e, "cannot open %s", dirs[i]);
	return 0;
}

static int plant_host(struct stage *s, struct err *e)
{
	const char *const words[] = {s->probe, "--plant", s->tag, s->outside, s->ro, s->rw};
	struct list argv = {0};
	struct start start = {.argv = &argv, .cwd = s->work};
	int rc;

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		list_add(&argv, words[i]);
	rc = plant_start(&start, &s->host, e);
	list_done(&argv);
	return rc;
}

static void name_all(struct stage *s)
{
	random_hex(s->tag, "", 6);
	random_hex(s->token, "token-", 12);
	random_hex(s->secret, "secret-", 12);
	snprintf(s->outside, sizeof(s->outside), "%s/outside", s->root);
	snprintf(s->hidden, sizeof(s->hidden), "%s/hidden-%s", s->root, s->tag);
	snprintf(s->ro, sizeof(s->ro), "%s/ro", s->hidden);
	snprintf(s->rw, sizeof(s->rw), "%s/rw", s->hidden);
	snprintf(s->work, sizeof(s->work), "%s/work", s->root);
	snprintf(s->out_file, sizeof(s->out_file), "%s/out", s->root);
	snprintf(s->out_text, sizeof(s->out_text), "%s\n", s->token);
}

static int take_signals(struct err *e)
{
	sigset_t stop;
	int fd;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &stop, NULL) < 0 || (fd = signalfd(-1, &stop, SFD_CLOEXEC)) < 0)
		return err_sys(e, "cannot wait for signals");
	return fd;
}

int stage_open(struct stage *s, struct err *e)
{
	*s = STAGE_NONE;
	if (find_program("cloche", s->cloche, e) < 0 ||
	    find_program("cloche-probe", s->probe, e) < 0)
		return -1;
	s->stop = take_signals(e);
	if (s->stop < 0)
		return -1;
	strcpy(s->root, "/tmp/cloche-selftest-XXXXXX");
	if (!mkdtemp(s->root)) {
		s->root[0] = '\0';
		return err_sys(e, "cannot make a directory in /tmp");
	}
	name_all(s);
	if (chmod(s->root, 0755) < 0)
		return err_sys(e, "cannot open %s", s->root);
	return fill_stage(s, e) < 0 || plant_host(s, e) < 0 ? -1 : 0;
}

void stage_close(struct stage *s)
{
	plant_stop(&s->host);
	close_fd(&s->stop);
	if (s->root[0])
		cli_remove_tree(s->root);
	s->root[0] = '\0';
}

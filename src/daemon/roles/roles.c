/* Starts the roles, each confined to what it needs, and starts them again when they end. */
#include "daemon/roles/roles.h"

#include "audit/audit.h"
#include "base/log.h"
#include "kern/confine.h"
#include "daemon/daemon.h"
#include "daemon/roles/image_job.h"
#include "daemon/roles/front.h"
#include "daemon/broker/broker_internal.h"
#include "keys/signer.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- in the role ---- */

static int run_front(const struct role_confinement *c, struct err *e)
{
	if (confine(c, e) < 0)
		return -1;
	return front_main(ROLE_FD_BROKER, ROLE_FD_AUDIT);
}

static int run_audit(const struct role_confinement *c, struct err *e)
{
	struct config *config = must_alloc(calloc(1, sizeof(*config)));
	const int socks[] = {ROLE_FD_BROKER, ROLE_FD_AUDIT};
	struct audit_role *r;

	if (config_read(ROLE_FD_CONFIG, config, e) < 0)
		return -1;
	/* The key is outside the new root, so it is read before the process confines itself. */
	r = audit_role_new(ROLE_FD_DIR, config, e);
	if (!r || confine(c, e) < 0)
		return -1;
	return audit_role_run(r, socks, 2);
}

static int run_signer(const struct role_confinement *c, struct err *e)
{
	struct config *config = must_alloc(calloc(1, sizeof(*config)));
	struct signer *s;

	/* No core of this process, whatever happens before it is confined. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || config_read(ROLE_FD_CONFIG, config, e) < 0)
		return -1;
	/* Files and commands of the settings are outside the new root. */
	s = signer_new(ROLE_FD_DIR, config, c->rootless ? 0 : c->uid, c->rootless ? 0 : c->gid);
	free(config);
	if (confine(c, e) < 0)
		return -1;
	return signer_run(s, ROLE_FD_BROKER);
}

static const struct role_kind {
	const char *name;
	int (*run)(const struct role_confinement *c, struct err *e); /* in the role's process */
	const struct seccomp_profile *profile;
	uint64_t open_files;
} kinds[ROLE_COUNT] = {
	[ROLE_AUDIT] = {"audit", run_audit, &seccomp_profile_audit, 256},
	[ROLE_FRONT] = {"front", run_front, &seccomp_profile_front, 1 << 20},
	/* A program of its own: provider/e2b/remote. */
	[ROLE_REMOTE] = {"remote", NULL, NULL, 0},
	[ROLE_SIGNER] = {"signer", run_signer, &seccomp_profile_signer, 64},
	/* daemon/tls */
	[ROLE_TLS] = {"tls", NULL, NULL, 0},
	/* The same: egress. */
	[ROLE_EGRESS] = {"egress", NULL, NULL, 0},
};

const char *role_name(enum role_id id)
{
	return kinds[id].name;
}

/* role NAME DIR UID GID ROOTLESS */
int daemon_role(int argc, char **argv)
{
	struct err e = {0};
	int status = -1;
	char name[16];

	if (argc > 1 && str_equal(argv[1], "image"))
		return image_job_main(argc - 1, argv + 1);
	for (size_t i = 0; argc == 6 && i < ROLE_COUNT; i++) {
		struct role_confinement c = {.root = argv[2],
					     .uid = (uid_t)strtoul(argv[3], NULL, 10),
					     .gid = (gid_t)strtoul(argv[4], NULL, 10),
					     .rootless = argv[5][0] == '1',
					     .open_files = kinds[i].open_files,
					     .profile = kinds[i].profile};

		if (!kinds[i].run || !str_equal(argv[1], kinds[i].name))
			continue;
		log_init(kinds[i].name);
		snprintf(name, sizeof(name), "cloche-%s", kinds[i].name);
		prctl(PR_SET_NAME, name, 0, 0, 0);
		if (confine_to_broker(ROLE_FD_BROKER, &e) == 0)
			status = kinds[i].run(&c, &e);
		if (status < 0)
			log_error("role cannot start", "role", kinds[i].name, "error", e.msg);
		return status < 0 ? 125 : status;
	}
	fputs("cloched: roles are started by `cloche serve` only\n", stderr);
	return 125;
}

#define RENEW_MS 3
#define RENEW_TRIES 30

/* ---- in the broker ---- */

struct role_start {
	const struct role_kind *kind;
	char dir[CONFIG_PATH];
	uid_t uid;
	gid_t gid;
	int fds[4];  /* as ROLE_FD_*; -1 where not used */
	int program; /* not our own program, or -1 */
	bool in_userns;
};

/* Passes on only harmless variables: the operator's environment may hold secrets. */
static void make_environment(char **ret, size_t room)
{
	static const char *const names[] = {
		"CLOCHE_LOG", "LD_LIBRARY_PATH",  "ASAN_OPTIONS", "UBSAN_OPTIONS", "LANG",
		"TZ",	      "CLOCHE_TEST_TIME", "CLOCHE_FAIL"};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(names) && n + 1 < room; i++) {
		const char *value = getenv(names[i]);

		if (value)
			ret[n++] = str_format("%s=%s", names[i], value);
	}
	ret[n] = NULL;
}

/* The signer also gets the variables that secrets of the settings name; it takes them out at once. */
static void add_secrets(const struct config *c, char **env, size_t room)
{
	size_t n = 0;

	while (env[n])
		n++;
	for (uint32_t i = 0; i < c->secret_count && n + 1 < room; i++) {
		const char *name = c->secrets[i].def.from.env;
		const char *value = name[0] ? getenv(name) : NULL;

		if (value)
			env[n++] = str_format("%s=%s", name, value);
	}
	env[n] = NULL;
}

static void exec_role(struct daemon *d, const struct role_start *s)
{
	char uid[16], gid[16], *env[16 + CONFIG_ITEMS];
	char *argv[] = {"cloched", "role", (char *)s->kind->name,   (char *)s->dir,
			uid,	   gid,	   d->rootless ? "1" : "0", NULL};
	int lifted[4], self = fcntl(s->program < 0 ? d->self : s->program, F_DUPFD_CLOEXEC, 64);
	struct err e = {0};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	setsid(); /* see sched_lead */
	if (s->in_userns && userns_map_self(0, d->uid, 0, d->gid, &e) < 0)
		_exit(125);
	for (int i = 0; i < 4; i++)
		lifted[i] = s->fds[i] < 0 ? -1 : fcntl(s->fds[i], F_DUPFD_CLOEXEC, 64);
	for (int i = 0; i < 4; i++)
		if (lifted[i] >= 0 && dup2(lifted[i], ROLE_FD_BROKER + i) < 0)
			_exit(125);
	snprintf(uid, sizeof(uid), "%u", s->uid);
	snprintf(gid, sizeof(gid), "%u", s->gid);
	make_environment(env, ARRAY_LEN(env));
	if (s->kind == &kinds[ROLE_SIGNER])
		add_secrets(d->config, env, ARRAY_LEN(env));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (d->test_front && s->kind == &kinds[ROLE_FRONT]) {
		argv[0] = (char *)d->test_front;
		execve(d->test_front, argv, env);
	} else {
		syscall(SYS_execveat, self, "", argv, env, AT_EMPTY_PATH);
	}
	_exit(125);
}

static pid_t spawn_role(struct daemon *d, struct role_start *s)
{
	struct clone_args args = {.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET |
					   CLONE_NEWIPC | CLONE_NEWUTS,
				  .exit_signal = SIGCHLD};
	pid_t pid;

	if (d->rootless)
		args.flags |= CLONE_NEWUSER;
	/* Used only for outgoing calls. */
	if (s->kind == &kinds[ROLE_REMOTE] || s->kind == &kinds[ROLE_EGRESS])
		args.flags &= ~(uint64_t)CLONE_NEWNET;
	/* A program in the front's place tests the broker, not the confinement. */
	if (d->test_front && s->kind == &kinds[ROLE_FRONT])
		args.flags = 0;
	s->in_userns = (args.flags & CLONE_NEWUSER) != 0;
	pid = sys_clone3(&args);
	if (pid == 0)
		exec_role(d, s);
	return pid;
}

/* Makes the role's own directory below the state directory. */
static int make_dir(struct daemon *d, const char *name, struct role_start *s, struct err *e)
{
	auto_close int fd = -1;
	DIR *dir;

	snprintf(s->dir, sizeof(s->dir), "%.900s/%s", d->config->state_dir, name);
	if (mkdirat(d->state, name, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "cannot create %s", s->dir);
	fd = openat(d->state, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "cannot open %s", s->dir);
	if (d->rootless)
		return 0;
	/* An earlier daemon may have used another id for this role. */
	if (fchown(fd, s->uid, s->gid) < 0)
		return err_sys(e, "cannot give %s away", s->dir);
	dir = fdopendir(take_fd(&fd));
	for (struct dirent *at; dir && (at = readdir(dir));)
		if (at->d_type == DT_REG)
			(void)!fchownat(dirfd(dir), at->d_name, s->uid, s->gid,
					AT_SYMLINK_NOFOLLOW);
	if (dir)
		closedir(dir);
	return 0;
}

static struct role_start new_start(const struct daemon *d, enum role_id id)
{
	/* Above all ranges of sandboxes; a few for each daemon. */
	uint32_t few = (uint32_t)strtoul(d->host.tag, NULL, 16) % 20000;
	uint32_t own = (0x7fffu << 16) + few * ROLE_COUNT + (uint32_t)id;

	return (struct role_start){
		.kind = &kinds[id], .uid = own, .gid = own, .fds = {-1, -1, -1, -1}, .program = -1};
}

/* The audit file's directory. A directory of the operator's is used as it is, with its owner's ids. */
static int audit_dir(struct daemon *d, struct role_start *s, struct err *e)
{
	char own[CONFIG_PATH + 16];
	struct stat st;

	snprintf(s->dir, sizeof(s->dir), "%s", d->config->audit.file);
	*strrchr(s->dir, '/') = '\0';
	snprintf(own, sizeof(own), "%s/audit", d->config->state_dir);
	if (str_equal(s->dir, own))
		return make_dir(d, "audit", s, e);
	if (stat(s->dir, &st) < 0)
		return err_sys(e, "cannot use %s for the audit log", s->dir);
	s->uid = st.st_uid;
	s->gid = st.st_gid;
	return 0;
}

/* A pair of sockets; the role gets the second end. */
static int make_pair(int *ret_ours, int *ret_theirs, struct err *e)
{
	int pair[2], size = 4 << 20;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	for (int i = 0; i < 2; i++)
		if (setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
			setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	*ret_ours = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

static int launch_role(struct daemon *d, struct role_start *s, struct err *e)
{
	struct role *r = &d->roles[s->kind - kinds];

	r->pid = spawn_role(d, s);
	if (r->pid < 0) {
		r->pid = 0;
		return err_sys(e, "cannot start role %s", s->kind->name);
	}
	r->started_ns = now_ns();
	r->was_asked = r->has_answered = false;
	r->missed = 0;
	return 0;
}

static int start_audit(struct daemon *d, struct err *e)
{
	struct role_start s = new_start(d, ROLE_AUDIT);
	auto_close int for_front = -1;
	auto_close int front_end = -1;
	auto_close int for_broker = -1;
	auto_close int broker_end = -1;
	auto_close int config = config_write(d->config, e);
	auto_close int dir = -1;

	if (config < 0 || audit_dir(d, &s, e) < 0 || make_pair(&front_end, &for_front, e) < 0 ||
	    make_pair(&broker_end, &for_broker, e) < 0)
		return -1;
	dir = open(s.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, "cannot open %s", s.dir);
	memcpy(s.fds, (int[]){for_front, for_broker, config, dir}, sizeof(s.fds));
	if (launch_role(d, &s, e) < 0)
		return -1;
	d->audit_settings = d->config->audit;
	close_fd(&d->audit_for_front);
	d->audit_for_front = take_fd(&front_end);
	d->audit_is_used = false;
	if (d->audit)
		audit_reopen(d->audit, take_fd(&broker_end));
	else
		d->audit = audit_open(d->loop, take_fd(&broker_end));
	return 0;
}

/*
 * A front must not receive the receipts of an earlier front, so each front gets a socket of its own, and
 * the audit role is started again for that. If there is no audit role, the front gets a socket without a
 * peer, and serves requests that need no record until it is sent another socket. False: not yet.
 */
static bool renew_audit(struct daemon *d, struct err *e)
{
	auto_close int nobody = -1;

	if (!d->audit_is_used)
		return true;
	if (d->roles[ROLE_AUDIT].pid > 0) {
		/* A role that has just been started may not handle SIGTERM yet. */
		if (d->audit_is_renewed == 0 || d->audit_is_renewed == RENEW_TRIES)
			kill(d->roles[ROLE_AUDIT].pid, d->audit_is_renewed ? SIGKILL : SIGTERM);
		d->audit_is_renewed++;
		return false;
	}
	close_fd(&d->audit_for_front);
	return make_pair(&d->audit_for_front, &nobody, e) == 0;
}

static int start_front(struct daemon *d, struct err *e)
{
	struct role_start s = new_start(d, ROLE_FRONT);
	auto_close int ours = -1;
	auto_close int theirs = -1;

	if (make_dir(d, "db", &s, e) < 0 || make_pair(&ours, &theirs, e) < 0)
		return -1;
	s.fds[0] = theirs;
	s.fds[1] = d->audit_for_front;
	if (launch_role(d, &s, e) < 0)
		return -1;
	d->audit_is_used = true;
	front_attach(d, take_fd(&ours));
	return 0;
}

/* ---- remote ---- */

#define KEY_MAX 256

/* A memfd with the key alone: the role sees neither the file nor its path. */
static int read_key(const char *file, struct err *e)
{
	auto_close int from = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	auto_close int to = memfd_create("key", MFD_CLOEXEC);
	char key[KEY_MAX + 2];
	ssize_t n = from < 0 ? -1 : read(from, key, sizeof(key));
	size_t len;

	if (n < 0 || to < 0)
		return err_sys(e, "e2b.key_file: cannot read %s", file);
	for (len = (size_t)n; len && (key[len - 1] == '\n' || key[len - 1] == ' ');)
		len--;
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] > '~')
			len = 0;
	if (len == 0 || len > KEY_MAX)
		return err_set(e, ERR_INVALID, "e2b.key_file: %s has no key in it", file);
	if (write(to, key, len) != (ssize_t)len)
		return err_sys(e, "cannot hand over the key");
	return take_fd(&to);
}

static int start_remote(struct daemon *d, struct err *e)
{
	struct role_start s = new_start(d, ROLE_REMOTE);
	auto_close int ours = -1;
	auto_close int theirs = -1;
	auto_close int program = open_program("cloche-remote", NULL, e);
	auto_close int config = config_write(d->config, e);
	auto_close int key = read_key(d->config->e2b.key_file, e);

	if (program < 0 || config < 0 || key < 0 || make_pair(&ours, &theirs, e) < 0)
		return -1;
	s.program = program;
	snprintf(s.dir, sizeof(s.dir), "/");
	memcpy(s.fds, (int[]){theirs, d->host.guest, config, key}, sizeof(s.fds));
	if (launch_role(d, &s, e) < 0)
		return -1;
	d->remote_settings = d->config->e2b;
	provider_e2b.role_started(&d->host, take_fd(&ours));
	return 0;
}

/* ---- signer ---- */

static int start_signer(struct daemon *d, struct err *e)
{
	struct role_start s = new_start(d, ROLE_SIGNER);
	auto_close int ours = -1;
	auto_close int theirs = -1;
	auto_close int config = config_write(d->config, e);
	auto_close int dir = -1;

	if (config < 0 || make_dir(d, "keys", &s, e) < 0 || make_pair(&ours, &theirs, e) < 0)
		return -1;
	dir = open(s.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, "cannot open %s", s.dir);
	memcpy(s.fds, (int[]){theirs, -1, config, dir}, sizeof(s.fds));
	if (launch_role(d, &s, e) < 0)
		return -1;
	signer_attach(d, take_fd(&ours));
	return 0;
}

/* ---- tls ---- */

static int start_tls(struct daemon *d, struct err *e)
{
	struct role_start s = new_start(d, ROLE_TLS);
	auto_close int ours = -1;
	auto_close int theirs = -1;
	auto_close int program = open_program("cloche-tls", NULL, e);

	/* An empty directory, which becomes its root. */
	if (program < 0 || make_dir(d, "tls", &s, e) < 0 || make_pair(&ours, &theirs, e) < 0)
		return -1;
	s.program = program;
	s.fds[0] = theirs;
	if (launch_role(d, &s, e) < 0)
		return -1;
	tls_attach(d, take_fd(&ours));
	return 0;
}

/* ---- egress ---- */

static int start_egress(struct daemon *d, struct err *e)
{
	struct role_start s = new_start(d, ROLE_EGRESS);
	auto_close int ours = -1;
	auto_close int theirs = -1;
	auto_close int program = open_program("cloche-egress", "CLOCHE_EGRESS", e);

	if (program < 0 || make_pair(&ours, &theirs, e) < 0)
		return -1;
	s.program = program;
	snprintf(s.dir, sizeof(s.dir), "/");
	s.fds[0] = theirs;
	if (launch_role(d, &s, e) < 0)
		return -1;
	egress_attach(d, take_fd(&ours));
	return 0;
}

static int (*const starts[])(struct daemon *d, struct err *e) = {
	[ROLE_AUDIT] = start_audit,   [ROLE_FRONT] = start_front, [ROLE_REMOTE] = start_remote,
	[ROLE_SIGNER] = start_signer, [ROLE_TLS] = start_tls,	  [ROLE_EGRESS] = start_egress};

static void start_role(struct daemon *d, enum role_id id)
{
	struct err e = {0};
	int rc = starts[id](d, &e);

	if (rc == 0) {
		log_debug("role started", "role", kinds[id].name);
		roles_ping(d, id);
		return;
	}
	log_error("role cannot be started", "role", kinds[id].name, "error", e.msg);
	d->roles[id].failures++;
	loop_timer_set(d->loop, &d->roles[id].again, 1000);
}

static void start_audit_again(void *arg)
{
	struct ipc m = {.type = IPC_AUDIT};
	struct daemon *d = arg;

	start_role(d, ROLE_AUDIT);
	if (d->roles[ROLE_AUDIT].pid > 0 && d->front.was_told) {
		front_news(d, &m, d->audit_for_front);
		d->audit_is_used = true;
	}
}

static void start_front_again(void *arg)
{
	struct daemon *d = arg;
	struct err e = {0};

	if (d->roles[ROLE_FRONT].pid != 0)
		return;
	if (renew_audit(d, &e))
		start_role(d, ROLE_FRONT);
	else
		loop_timer_set(d->loop, &d->roles[ROLE_FRONT].again, RENEW_MS);
}

void roles_start_audit(struct daemon *d)
{
	d->roles[ROLE_AUDIT].again = (struct loop_timer){.call = start_audit_again, .arg = d};
	start_role(d, ROLE_AUDIT);
}

int roles_check_audit(const struct config *c, struct err *e)
{
	auto_free char *dir = str_format("%.*s", (int)(strrchr(c->audit.file, '/') - c->audit.file),
					 c->audit.file);
	struct audit_role *r;

	/* The usual directory is made when it is needed. */
	if (!path_below(dir, c->state_dir) && access(dir, W_OK | X_OK) < 0)
		return err_sys(e, "audit.file: cannot write to %s", dir);
	r = audit_role_new(-1, c, e);
	if (!r)
		return -1;
	audit_role_free(r);
	return 0;
}

static bool audit_is_same(const struct config_audit *a, const struct config_audit *b)
{
	return str_equal(a->file, b->file) && str_equal(a->key_file, b->key_file) &&
	       a->max_bytes == b->max_bytes && a->keep == b->keep && a->sync == b->sync;
}

/* Entries that it has not read fail, and what they stand for is refused; the front gets another socket. */
void roles_renew_audit(struct daemon *d)
{
	pid_t pid = d->roles[ROLE_AUDIT].pid;

	if (pid <= 0 || audit_is_same(&d->audit_settings, &d->config->audit))
		return;
	log_info("role is started again", "name", "audit", "why", "its settings have changed");
	kill(pid, SIGTERM);
}

void roles_start_front(struct daemon *d)
{
	d->roles[ROLE_FRONT].again = (struct loop_timer){.call = start_front_again, .arg = d};
	start_role(d, ROLE_FRONT);
}

static void start_remote_again(void *arg)
{
	struct daemon *d = arg;

	if (d->roles[ROLE_REMOTE].pid == 0 && d->config->e2b.api_url[0])
		start_role(d, ROLE_REMOTE);
}

void roles_end(struct daemon *d, enum role_id id, const char *why)
{
	if (d->roles[id].pid <= 0)
		return;
	log_warn("role is ended", "name", kinds[id].name, "why", why);
	if (id == ROLE_FRONT)
		front_detach(d);
	kill(d->roles[id].pid, SIGKILL);
}

void roles_start_remote(struct daemon *d)
{
	/* Called again after a change of the settings, when the timer may be active. */
	if (!d->roles[ROLE_REMOTE].again.call)
		d->roles[ROLE_REMOTE].again =
			(struct loop_timer){.call = start_remote_again, .arg = d};
	if (d->roles[ROLE_REMOTE].pid == 0)
		start_remote_again(d);
	else if (memcmp(&d->remote_settings, &d->config->e2b, sizeof(d->remote_settings)) != 0)
		roles_end(d, ROLE_REMOTE, "its settings have changed");
}

static void start_signer_again(void *arg)
{
	struct daemon *d = arg;

	if (d->roles[ROLE_SIGNER].pid == 0 && signer_is_wanted(d))
		start_role(d, ROLE_SIGNER);
}

void roles_start_signer(struct daemon *d)
{
	if (!d->roles[ROLE_SIGNER].again.call)
		d->roles[ROLE_SIGNER].again =
			(struct loop_timer){.call = start_signer_again, .arg = d};
	if (d->roles[ROLE_SIGNER].pid == 0)
		start_signer_again(d);
	else
		roles_end(d, ROLE_SIGNER, "settings were read again, and so are its values");
}

static void start_tls_again(void *arg)
{
	struct daemon *d = arg;

	if (d->roles[ROLE_TLS].pid == 0 && config_has_tls(d->config))
		start_role(d, ROLE_TLS);
}

void roles_start_tls(struct daemon *d)
{
	d->roles[ROLE_TLS].again = (struct loop_timer){.call = start_tls_again, .arg = d};
	start_tls_again(d);
}

static void start_egress_again(void *arg)
{
	struct daemon *d = arg;

	if (d->roles[ROLE_EGRESS].pid == 0)
		start_role(d, ROLE_EGRESS);
}

int roles_start_egress(struct daemon *d, struct err *e)
{
	struct role *r = &d->roles[ROLE_EGRESS];

	if (r->pid > 0)
		return 0;
	loop_timer_stop(d->loop, &r->again);
	r->again = (struct loop_timer){.call = start_egress_again, .arg = d};
	if (start_egress(d, e) < 0)
		return err_wrap(e, "role egress cannot be started");
	roles_ping(d, ROLE_EGRESS);
	return 0;
}

void roles_stop(struct daemon *d)
{
	roles_unwatch(d);
	signer_detach(d);
	tls_detach(d);
	front_detach(d);
	provider_e2b.role_ended(&d->host);
	egress_detach(d);
	for (int i = 0; i < ROLE_COUNT; i++) {
		loop_timer_stop(d->loop, &d->roles[i].again);
		if (d->roles[i].pid > 0 && i != ROLE_AUDIT)
			kill(d->roles[i].pid, SIGKILL);
	}
	/* The audit role writes the entries that it was sent, and ends once all its sockets are closed. */
	close_fd(&d->audit_for_front);
	if (d->audit)
		audit_close(take_ptr(d->audit));
}

#define STEADY_NS 2000000000LL

bool roles_reaped(struct daemon *d, pid_t pid, int status)
{
	for (int i = 0; i < ROLE_COUNT; i++) {
		struct role *r = &d->roles[i];
		char how[32];
		uint64_t wait;

		if (r->pid != pid)
			continue;
		r->pid = 0;
		if (i == ROLE_FRONT)
			front_detach(d);
		if (i == ROLE_REMOTE)
			provider_e2b.role_ended(&d->host);
		if (i == ROLE_SIGNER)
			signer_detach(d);
		if (i == ROLE_TLS)
			tls_detach(d);
		if (i == ROLE_EGRESS)
			egress_detach(d);
		if (d->stopping && i != ROLE_REMOTE) {
			if (i == ROLE_FRONT)
				daemon_front_is_done(d);
			return true;
		}
		if (i == ROLE_AUDIT && d->audit_is_renewed) {
			d->audit_is_renewed = 0;
			loop_timer_set(d->loop, &r->again, 0);
			return true;
		}
		if (i == ROLE_FRONT && WIFEXITED(status) && WEXITSTATUS(status) == FRONT_REFUSES) {
			log_error("the daemon ends: its database is of a later version of cloche; "
				  "sandboxes and files are left as they are");
			d->status = FRONT_REFUSES;
			daemon_stop(d);
			return true;
		}
		snprintf(how, sizeof(how), "%s %d", WIFSIGNALED(status) ? "signal" : "status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		r->failures = now_ns() - r->started_ns > STEADY_NS ? 0 : r->failures + 1;
		/* At once the first time, then later and later. */
		wait = r->failures < 2 ? 0 : r->failures < 7 ? 50u << r->failures : 5000;
		log_warn("role ended", "name", kinds[i].name, "how", how);
		loop_timer_set(d->loop, &r->again, wait);
		return true;
	}
	return false;
}

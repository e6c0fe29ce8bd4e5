/* Runs the broker: configuration, tokens, signals, and the order in which the daemon starts and ends. */
#include "audit/audit.h"
#include "auth/tokens.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/broker/start_banner.h"
#include "daemon/broker/broker_internal.h"
#include "kern/caps.h"
#include "kern/sched.h"

#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

/* ---- tokens ---- */

#define TOKEN_FILE_MAX (8u << 20)

const struct token *daemon_token(const struct daemon *d, const char *owner)
{
	for (size_t i = 0; owner[0] && i < tokens_count(d->tokens); i++)
		if (str_equal(tokens_at(d->tokens, i)->id, owner))
			return tokens_at(d->tokens, i);
	return NULL;
}

const char *daemon_owner_name(const struct daemon *d, const char *owner)
{
	const struct token *t = daemon_token(d, owner);

	return t ? t->name : "";
}

void daemon_note(struct daemon *d, const char *what, const char *target, const char *verdict,
		 const char *why)
{
	struct audit_entry entry = {.who = "daemon"};

	snprintf(entry.what, sizeof(entry.what), "%s", what);
	snprintf(entry.target, sizeof(entry.target), "%s", target);
	snprintf(entry.verdict, sizeof(entry.verdict), "%s", verdict);
	snprintf(entry.why, sizeof(entry.why), "%s", why);
	if (d->audit)
		audit_write(d->audit, &entry, NULL, NULL);
}

/* A memfd with the text of the token file; empty if there is no file. */
static int read_tokens(struct daemon *d, struct err *e)
{
	auto_close int from = openat(d->state, "tokens", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_close int to = memfd_create("tokens", MFD_CLOEXEC);
	auto_free char *text = NULL;
	size_t len = 0;

	if (to < 0)
		return err_sys(e, "cannot create memory");
	if ((from >= 0 && io_read_whole(from, TOKEN_FILE_MAX, &text, &len) < 0) ||
	    io_write_all(to, text, len) < 0 || lseek(to, 0, SEEK_SET) < 0)
		return err_sys(e, "cannot read the token file");
	if (tokens_load(d->tokens, text ? text : "", len, e) < 0)
		return err_wrap(e, "token file");
	return take_fd(&to);
}

void front_send_tokens(struct daemon *d)
{
	struct ipc m = {.type = IPC_TOKENS};
	struct err e = {0};
	auto_close int fd = read_tokens(d, &e);

	/* The earlier tokens stay in force. */
	if (fd < 0)
		log_error("tokens are left as they were", "error", e.msg);
	else
		front_news_early(d, &m, fd);
}

static void on_file(void *arg, uint32_t events)
{
	char buf[4096] __attribute__((aligned(8)));
	struct daemon *d = arg;
	bool changed = false, has_ca = false, has_images = false;
	ssize_t n;

	while ((n = read(d->files.fd, buf, sizeof(buf))) > 0) {
		for (char *at = buf; at < buf + n;) {
			const struct inotify_event *ev = (const void *)at;

			changed |= ev->len && str_equal(ev->name, "tokens");
			has_ca |= ev->len && str_equal(ev->name, "ca.pem");
			has_images |= ev->len && str_equal(ev->name, "refs");
			changed |= (ev->mask & IN_Q_OVERFLOW) != 0;
			at += sizeof(*ev) + ev->len;
		}
	}
	if (changed) {
		front_send_tokens(d);
		agents_tell_front(d);
		network_judge_all(d);
	}
	if (has_ca)
		tls_renew(d);
	if (has_images)
		images_tell(d);
}

static int watch_files(struct daemon *d, struct err *e)
{
	d->files = (struct loop_watch){.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK),
				       .events = EPOLLIN,
				       .call = on_file,
				       .arg = d};
	if (d->files.fd < 0 ||
	    inotify_add_watch(d->files.fd, d->config->state_dir,
			      IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR) < 0 ||
	    inotify_add_watch(d->files.fd, d->images.path, IN_MOVED_TO | IN_ONLYDIR) < 0 ||
	    loop_watch(d->loop, &d->files) < 0)
		return err_sys(e, "cannot watch %s", d->config->state_dir);
	return 0;
}

/* ---- providers ---- */

static void on_probed(void *arg, const struct provider_result *r, const struct err *e)
{
	struct err *unusable = arg;

	*unusable = e ? *e : (struct err){0};
}

static void probe_providers(struct daemon *d)
{
	for (int i = 0; i < PROVIDER_COUNT; i++)
		if (provider_row(i))
			provider_row(i)->probe(&d->host, on_probed, &d->unusable[i]);
}

static void start_providers(struct daemon *d)
{
	box_init_host(d);
	for (int i = 0; i < PROVIDER_COUNT; i++)
		if (provider_row(i))
			provider_row(i)->start(&d->host);
	probe_providers(d);
}

/* ---- configuration ---- */

static int load_config(const struct daemon *d, struct config *ret, struct err *e)
{
	const struct list *listen = &d->listen;

	config_init(ret);
	if (d->config_file && config_load(d->config_file, ret, e) < 0)
		return -1;
	ret->docker |= d->docker_option;
	if (d->tls_option && config_set_tls(ret, d->tls_option, e) < 0)
		return -1;
	if (listen->count > CONFIG_LISTEN)
		return err_set(e, ERR_INVALID, "listen: at most %d addresses", CONFIG_LISTEN);
	for (size_t i = 0; i < listen->count; i++) {
		if (strlen(listen->items[i]) >= CONFIG_ADDRESS)
			return err_set(e, ERR_INVALID, "listen: too long");
		snprintf(ret->listen[i], CONFIG_ADDRESS, "%s", listen->items[i]);
		ret->listen_count = (uint32_t)i + 1;
	}
	return config_finish(ret, e);
}

/* Keys that stay as they are until a restart. */
static const struct fixed_key {
	const char *name;
	size_t offset, size;
} fixed_keys[] = {
	{"listen", offsetof(struct config, listen_count), sizeof(uint32_t)},
	{"listen", offsetof(struct config, listen), sizeof(((struct config *)0)->listen)},
	{"docker", offsetof(struct config, docker), sizeof(bool)},
	{"state_dir", offsetof(struct config, state_dir), CONFIG_PATH},
	{"runtime_dir", offsetof(struct config, runtime_dir), CONFIG_PATH},
	{"tls", offsetof(struct config, tls), sizeof(((struct config *)0)->tls)},
	{"sandbox.seccomp", offsetof(struct config, sandbox.seccomp), CONFIG_PATH},
	{"http.max_connections", offsetof(struct config, max_connections), sizeof(uint32_t)},
};

/* Puts the values that cannot change back into fresh; ret gets the names of their keys. */
static void keep_fixed(const struct config *now, struct config *fresh, char *ret, size_t size)
{
	const char *last = "";

	/* By default the log is in the state directory. */
	if (!str_equal(fresh->state_dir, now->state_dir))
		fresh->audit = now->audit;
	for (size_t i = 0; i < ARRAY_LEN(fixed_keys); i++) {
		const struct fixed_key *k = &fixed_keys[i];
		const char *from = (const char *)now + k->offset;

		if (memcmp(from, (char *)fresh + k->offset, k->size) == 0)
			continue;
		memcpy((char *)fresh + k->offset, from, k->size);
		if (!str_equal(last, k->name))
			str_append(ret, size, " ", "%s", k->name);
		last = k->name;
	}
	fresh->sockets_are_passed = now->sockets_are_passed;
}

static void reload_config(struct daemon *d)
{
	struct config *fresh = must_alloc(calloc(1, sizeof(*fresh)));
	char fixed[128] = "", why[192] = "";
	struct err e = {0};

	if (load_config(d, fresh, &e) == 0)
		keep_fixed(d->config, fresh, fixed, sizeof(fixed));
	if (e.kind || roles_check_audit(fresh, &e) < 0 || prepare_volumes(d, fresh, &e) < 0 ||
	    tls_load(d, fresh, &e) < 0) {
		log_error("configuration is left as it was", "error", e.msg);
		daemon_note(d, "daemon.reload", d->config_file ? d->config_file : "", "fail",
			    e.msg);
		free(fresh);
		return;
	}
	free(d->config);
	d->config = fresh;
	d->host.config = fresh;
	probe_providers(d);
	roles_start_remote(d);
	roles_start_signer(d);
	if (fixed[0]) {
		log_warn("some settings need a restart of the daemon", "keys", fixed);
		snprintf(why, sizeof(why), "needs a restart: %s", fixed);
	}
	daemon_note(d, "daemon.reload", d->config_file ? d->config_file : "", "done", why);
	roles_renew_audit(d);
	if (memcmp(&d->egress_settings, &d->config->network, sizeof(d->egress_settings)) != 0)
		egress_send_settings(d);
	network_judge_all(d);
	front_send_config(d);
	front_send_agent_types(d);
	front_send_tokens(d);
	agents_tell_front(d);
	log_info("configuration read again", "file", d->config_file);
}

/* ---- the end ---- */

static bool is_leaving(const struct box *b)
{
	return b->state != BOX_FOREIGN && (b->d->ephemeral_dir || b->state == BOX_DYING ||
					   b->i.info.transient || str_equal(b->i.info.owner, "-"));
}

/* Counts the sandboxes that end with the daemon, and ends them if asked to. */
static size_t count_leaving(struct daemon *d, bool ends)
{
	size_t count = 0;

	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = d->boxes[i], *next; b; b = next) {
			next = b->next;
			if (!is_leaving(b))
				continue;
			count++;
			if (ends)
				box_destroy(b, (struct requester){0});
		}
	return count;
}

#define LAST_STEP_MS 5
#define LAST_STEPS 1000

static void last_step(void *arg)
{
	struct daemon *d = arg;

	if (count_leaving(d, false) == 0 || ++d->last_steps > LAST_STEPS)
		loop_stop(d->loop);
	else
		loop_timer_set(d->loop, &d->stop_timer, LAST_STEP_MS);
}

void daemon_is_ready(struct daemon *d)
{
	if (!d->was_ready)
		service_notify(d, "READY=1");
	d->was_ready = true;
}

void daemon_front_is_done(struct daemon *d)
{
	if (d->last_steps)
		return;
	d->last_steps = 1;
	count_leaving(d, true);
	d->stop_timer.call = last_step;
	loop_timer_set(d->loop, &d->stop_timer, 0);
}

static void on_stop_timer(void *arg)
{
	log_warn("the front takes too long to end");
	daemon_front_is_done(arg);
}

void daemon_stop(struct daemon *d)
{
	struct ipc m = {.type = IPC_SHUTDOWN};

	if (d->stopping) {
		daemon_front_is_done(d);
		return;
	}
	log_info("stopping");
	daemon_note(d, "daemon.stop", d->config->state_dir, "done", "");
	d->stopping = true;
	service_notify(d, "STOPPING=1");
	listeners_leave(d);
	d->stop_timer = (struct loop_timer){.call = on_stop_timer, .arg = d};
	loop_timer_set(d->loop, &d->stop_timer, d->config->shutdown_ms + 2000);
	if (d->front.channel.watch.fd < 0)
		daemon_front_is_done(d);
	else
		front_news(d, &m, -1);
}

/* ---- signals ---- */

static void reap_children(struct daemon *d)
{
	pid_t pid;
	int status;

	/* Sandboxes whose boot worker is gone are children of the broker, too. */
	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
		if (!roles_reaped(d, pid, status) && !images_reaped(d, pid))
			for (int i = 0; i < PROVIDER_COUNT; i++)
				if (provider_row(i) && provider_row(i)->reaped &&
				    provider_row(i)->reaped(&d->host, pid))
					break;
}

static void on_signal(void *arg, uint32_t events)
{
	struct signalfd_siginfo info;
	struct daemon *d = arg;

	while (read(d->signals.fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGCHLD)
			reap_children(d);
		else if (info.ssi_signo == SIGHUP)
			reload_config(d);
		else
			daemon_stop(d);
}

static int watch_signals(struct daemon *d, struct err *e)
{
	static const int taken[] = {SIGCHLD, SIGHUP, SIGTERM, SIGINT};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(taken); i++)
		sigaddset(&set, taken[i]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, &set, NULL);
	d->signals = (struct loop_watch){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
					 .events = EPOLLIN,
					 .call = on_signal,
					 .arg = d};
	if (d->signals.fd < 0 || loop_watch(d->loop, &d->signals) < 0)
		return err_sys(e, "cannot watch signals");
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	return 0;
}

/* ---- start and end ---- */

static int start_daemon(struct daemon *d, struct err *e)
{
	if (prepare(d, e) < 0)
		return -1;
	d->loop = loop_new();
	if (!d->loop)
		return err_sys(e, "cannot create an epoll");
	if (watch_signals(d, e) < 0 || watch_files(d, e) < 0 || ephemeral_watch(d, e) < 0)
		return -1;
	/* First, while there is little memory that a fork would have to share. */
	start_providers(d);
	roles_start_audit(d);
	daemon_note(d, "daemon.start", d->config->state_dir, "done", "");
	snapshot_remove_unfinished(d);
	agents_load(d);
	volumes_load(d);
	adopt_all(d);
	images_sweep(d);
	if (tls_load(d, d->config, e) < 0 || listeners_open(d, e) < 0)
		return -1;
	roles_start_tls(d);
	roles_start_remote(d);
	roles_start_signer(d);
	roles_start_front(d);
	roles_watch(d);
	service_watch(d);
	return 0;
}

/* For a person at a terminal only. */
static void print_banner(const struct daemon *d)
{
	char text[LISTENERS][PATH_MAX];
	const char *addresses[LISTENERS];

	for (size_t i = 0; i < d->listener_count; i++) {
		const char *path = d->listeners[i].path;

		snprintf(text[i], sizeof(text[i]), "%s%s", path[0] == '/' ? "unix:" : "", path);
		addresses[i] = text[i];
	}
	if (isatty(STDOUT_FILENO))
		hello_print(addresses, d->listener_count, stdout);
	fflush(stdout);
}

/* The audit role writes the entries that it was sent before it ends. */
static void await_audit(struct daemon *d)
{
	pid_t pid = d->roles[ROLE_AUDIT].pid;

	for (int i = 0; pid > 0 && i < 400; i++) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return;
		usleep(5000);
	}
	if (pid > 0)
		kill(pid, SIGKILL);
}

static void stop_daemon(struct daemon *d)
{
	agents_done(d);
	volumes_done(d);
	if (!d->loop)
		return;
	listeners_close(d);
	roles_stop(d);
	for (int i = 0; i < PROVIDER_COUNT; i++)
		if (provider_row(i) && provider_row(i)->stop)
			provider_row(i)->stop(&d->host);
	await_audit(d);
}

int daemon_serve(const struct serve_options *o)
{
	struct daemon *d = must_alloc(calloc(1, sizeof(*d)));
	struct err e = {0};

	log_init("broker");
	d->config = must_alloc(calloc(1, sizeof(*d->config)));
	d->tokens = tokens_new();
	service_init(d);
	d->config_file = o->config ? str_copy(o->config) : config_find();
	d->listen = o->listen;
	d->tls_option = o->tls;
	d->docker_option = o->docker;
	d->test_front = o->test_front;
	d->ephemeral_dir = o->ephemeral_dir;
	d->rootless = !caps_can_administer();
	d->uid = geteuid();
	d->gid = getegid();
	d->signer.channel.watch.fd = d->front.channel.watch.fd = d->audit_for_front = d->self =
		d->host.guest = d->host.boot_worker = d->egress.watch.fd = d->front.request_fd =
			d->names_dir = -1;
	d->tls.keys = d->tls.channel.watch.fd = -1;
	for (size_t i = 0; i < CONFIG_ITEMS; i++)
		d->host.volumes[i] = -1;
	if (load_config(d, d->config, &e) < 0) {
		fprintf(stderr, "cloche: %s\n", e.msg);
		return 125;
	}
	if (o->check_only) {
		printf("%s: fine\n", d->config_file ? d->config_file : "defaults");
		return fflush(stdout) == 0 ? 0 : 125;
	}
	sched_lead();
	if (start_daemon(d, &e) < 0) {
		fprintf(stderr, "cloche: %s\n", e.msg);
		stop_daemon(d);
		ephemeral_remove(d);
		return 125;
	}
	log_info("ready", "rootless", d->rootless ? "yes" : "no");
	print_banner(d);
	loop_run(d->loop);
	stop_daemon(d);
	log_info("stopped");
	ephemeral_remove(d);
	return d->status;
}

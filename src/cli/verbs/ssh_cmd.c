/*
 * `cloche ssh`: OpenSSH's client, and what is built on it (scp, VS Code Remote), reach a sandbox.
 *
 * Theory of operation. No port is opened anywhere: ssh's ProxyCommand is `cloche ssh --proxy ID`, which runs sshd of
 * the sandbox's image for this one connection, as the sandbox's user, with its streams as the connection. The caller's
 * key is made for the sandbox and put into it; the sandbox makes its host key and tells it over the daemon, which is
 * what ssh then compares. Both only save ssh's questions: who may speak to the daemon may run commands anyway.
 */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define HOST_KEY_LETTERS STR_ALNUM "+/="
#define HOST_KEY_MAX 256
#define USER_MAX 33

/* Its input is the public key of the caller, its output the user's name and the sandbox's public key. */
static const char prepare[] =
	"umask 077; PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; dir=$HOME/.cloche-ssh\n"
	"command -v sshd >/dev/null && command -v ssh-keygen >/dev/null || {\n"
	"	echo 'its image has no sshd; install openssh-server in it' >&2; exit 1; }\n"
	"mkdir -p \"$dir\" && cat >\"$dir/key.$$\" && mv -f \"$dir/key.$$\" "
	"\"$dir/authorized_keys\" || exit 1\n"
	"[ -s \"$dir/host.pub\" ] || ssh-keygen -q -t ed25519 -N '' -C '' -f \"$dir/host\" "
	"</dev/null || exit 1\n"
	"id -un && cat \"$dir/host.pub\"\n";

#define SERVE                                                                                      \
	"PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; dir=$HOME/.cloche-ssh\n"                      \
	"[ \"$(id -u)\" != 0 ] || mkdir -p /run/sshd\n"                                            \
	"exec \"$(command -v sshd)\" -i -e -f /dev/null -h \"$dir/host\" -o "                      \
	"AuthorizedKeysFile=\"$dir/authorized_keys\" \\\n"                                         \
	"	-o UsePAM=no -o StrictModes=no -o PidFile=none -o PasswordAuthentication=no -o "         \
	"LogLevel=ERROR \\\n"                                                                      \
	"	-o KbdInteractiveAuthentication=no -o PermitRootLogin=yes -o Subsystem='sftp "           \
	"internal-sftp'\n"

struct ssh_place {
	char id[64];
	char dir[PATH_MAX]; /* of the caller's key and of the sandbox's public key */
	char user[USER_MAX];
	char host_key[HOST_KEY_MAX];
};

/* ---- the caller's side ---- */

static char *top_dir(void)
{
	const char *own = getenv("CLOCHE_STATE_DIR"), *state = getenv("XDG_STATE_HOME"),
		   *home = getenv("HOME");

	if (own && *own == '/')
		return str_format("%s/ssh", own);
	return state && *state == '/' ? str_format("%s/cloche/ssh", state)
				      : str_format("%s/.local/state/cloche/ssh", home ? home : "");
}

static int make_dirs(const char *path, struct err *e)
{
	auto_free char *copy = str_copy(path);

	for (char *slash = copy + 1; slash; *slash++ = '/') {
		slash = strchr(slash, '/');
		if (!slash)
			break;
		*slash = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return err_sys(e, "cannot make %s", copy);
	}
	return mkdir(copy, 0700) < 0 && errno != EEXIST ? err_sys(e, "cannot make %s", copy) : 0;
}

static int run_keygen(const char *key, struct err *e)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execlp("ssh-keygen", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "cloche",
		       "-f", key, (char *)NULL);
		_exit(127);
	}
	if (pid < 0)
		return err_sys(e, "cannot start ssh-keygen");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "ssh-keygen did not make a key; is openssh-client installed?");
	return 0;
}

/* The key is made once for each sandbox, under a name of its own first: two may come at once. */
static int make_key(const struct ssh_place *p, struct err *e)
{
	auto_free char *key = str_format("%s/key", p->dir), *public = str_format("%s.pub", key),
		       *draft = str_format("%s/draft.%d", p->dir, (int)getpid()),
		       *public_draft = str_format("%s.pub", draft);

	if (access(key, R_OK) == 0 && access(public, R_OK) == 0)
		return 0;
	if (make_dirs(p->dir, e) < 0 || run_keygen(draft, e) < 0)
		return -1;
	if (rename(public_draft, public) < 0 || rename(draft, key) < 0)
		return err_sys(e, "cannot keep a key in %s", p->dir);
	return 0;
}

static int find_place(struct verb_call *v, struct ssh_place *ret, struct err *e)
{
	auto_free char *top = top_dir();

	if (client_find(&v->client, v->args[0], ret->id, sizeof(ret->id), e) < 0)
		return -1;
	if ((size_t)snprintf(ret->dir, sizeof(ret->dir), "%s/%s", top, ret->id) >= sizeof(ret->dir))
		return err_set(e, ERR_INVALID, "CLOCHE_STATE_DIR: too long");
	return make_key(ret, e);
}

/* ---- the sandbox's side ---- */

/* The lines come from inside: a name and one key, or nothing. */
static int read_answer(const char *text, struct ssh_place *p, struct err *e)
{
	static const char kind[] = "ssh-ed25519 ";
	const char *key = strchr(text, '\n');
	size_t name = key ? (size_t)(key - text) : 0, len = strlen(kind);

	if (key && !strncmp(++key, kind, len))
		len += strspn(key + len, HOST_KEY_LETTERS);
	if (!key || len <= strlen(kind) || len >= HOST_KEY_MAX || name >= USER_MAX)
		return err_set(e, ERR_SYSTEM, "sandbox %s told no host key", p->id);
	snprintf(p->user, sizeof(p->user), "%.*s", (int)name, text);
	snprintf(p->host_key, sizeof(p->host_key), "%.*s", (int)len, key);
	if (!str_only(p->user, STR_ALNUM "._-", 1, USER_MAX - 1) || p->user[0] == '-')
		return err_set(e, ERR_SYSTEM, "the user of sandbox %s has no plain name", p->id);
	return 0;
}

static int keep_host_key(const struct ssh_place *p, struct err *e)
{
	auto_free char *line = str_format("cloche-%s %s\n", p->id, p->host_key),
		       *draft = str_format("%s/known_hosts.%d", p->dir, (int)getpid()),
		       *path = str_format("%s/known_hosts", p->dir);
	auto_close int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || io_write_all(fd, line, strlen(line)) < 0 || rename(draft, path) < 0)
		return err_sys(e, "cannot write %s", path);
	return 0;
}

static int prepare_sandbox(struct verb_call *v, struct ssh_place *p, struct err *e)
{
	auto_free char *file = str_format("%s/key.pub", p->dir),
		       *path = client_path(p->id, "/exec");
	char public[1024], said[256];
	const char *user = verb_text(v, "login"), *text;
	json_auto_t *answer = NULL;
	json_t *body;
	ssize_t n = io_read_path(public, sizeof(public), "%s", file);

	if (n < 0)
		return err_sys(e, "cannot read %s", file);
	body = json_pack("{s:[s,s,s], s:s, s:s, s:s*}", "cmd", "/bin/sh", "-c", prepare, "stdin",
			 public, "timeout", "30s", "user", user);
	if (client_call(&v->client, "POST", path, body, &answer, e) < 0)
		return -1;
	if (!json_is_true(json_object_get(answer, "success"))) {
		text = json_string_value(json_object_get(answer, "stderr"));
		str_sanitise(said, sizeof(said), text ? text : "", text ? strcspn(text, "\n") : 0);
		return err_set(e, ERR_UNSUPPORTED, "sandbox %s cannot be reached by ssh: %s", p->id,
			       said);
	}
	text = json_string_value(json_object_get(answer, "stdout"));
	return read_answer(text ? text : "", p, e) < 0 ? -1 : keep_host_key(p, e);
}

static int proxy(struct ssh_place *p)
{
	char script[] = SERVE;
	char *words[] = {"exec", "--timeout", "0",  "--user", p->user,
			 p->id,	 "/bin/sh",   "-c", script,   NULL};

	return verb_main(&verb_exec, ARRAY_LEN(words) - 1, words);
}

/* ---- ssh ---- */

/* Settings of ssh, as -o takes them and ssh_config(5) has them. */
static void put_settings(const struct ssh_place *p, struct list *ret)
{
	/* Nothing of the caller's is forwarded: the other side is hostile. */
	static const char *const fixed[] = {"IdentitiesOnly=yes",
					    "StrictHostKeyChecking=yes",
					    "GlobalKnownHostsFile=/dev/null",
					    "UpdateHostKeys=no",
					    "ForwardAgent=no",
					    "ForwardX11=no",
					    NULL};
	char program[PATH_MAX];

	if (io_beside_program("cloche", program, sizeof(program)) < 0)
		snprintf(program, sizeof(program), "cloche");
	list_take(ret,
		  str_format("ProxyCommand=%s ssh --proxy --login %s %s", program, p->user, p->id));
	list_take(ret, str_format("User=%s", p->user));
	list_take(ret, str_format("IdentityFile=%s/key", p->dir));
	list_take(ret, str_format("UserKnownHostsFile=%s/known_hosts", p->dir));
	list_take(ret, str_format("HostKeyAlias=cloche-%s", p->id));
	list_add_all(ret, fixed);
}

static int print_config(const struct ssh_place *p, const struct list *settings)
{
	printf("Host cloche-%s\n", p->id);
	for (size_t i = 0; i < settings->count; i++) {
		const char *equal = strchr(settings->items[i], '=');

		printf("    %.*s %s\n", (int)(equal - settings->items[i]), settings->items[i],
		       equal + 1);
	}
	return finish_stdout(0);
}

/* What follows the sandbox are ssh's own options and the command. */
static int start_ssh(const struct verb_call *v, const struct ssh_place *p,
		     const struct list *settings, struct err *e)
{
	auto_list struct list words = {0};

	list_add(&words, "ssh");
	for (size_t i = 0; i < settings->count; i++) {
		list_add(&words, "-o");
		list_add(&words, settings->items[i]);
	}
	list_take(&words, str_format("cloche-%s", p->id));
	for (char **word = v->args + 1; *word; word++)
		list_add(&words, *word);
	execvp("ssh", words.items);
	return err_sys(e, "cannot execute ssh; is openssh-client installed?");
}

static int ssh(struct verb_call *v, struct err *e)
{
	auto_list struct list settings = {0};
	struct ssh_place p = {.dir = ""};

	if (find_place(v, &p, e) < 0 || prepare_sandbox(v, &p, e) < 0)
		return -1;
	if (verb_text(v, "proxy"))
		return proxy(&p);
	put_settings(&p, &settings);
	return verb_text(v, "config") ? print_config(&p, &settings)
				      : start_ssh(v, &p, &settings, e);
}

static const struct verb_option ssh_options[] = {
	{"login", 'l', "NAME", "as this user of the sandbox", NULL},
	{"config", 0, NULL, "print a Host for ~/.ssh/config instead: for VS Code, scp, rsync",
	 NULL},
	{"proxy", 0, NULL, "be ssh's ProxyCommand", NULL},
};

const struct verb verb_ssh = {
	.line = "cloche ssh [--login NAME] [--config] ID [SSH-OPTION...] [CMD...]",
	.about = "Reaches a sandbox by ssh, through the daemon and without a port. Its image needs "
		 "sshd.",
	.run = ssh,
	OPTIONS(ssh_options),
	ARGS(1, -1),
};

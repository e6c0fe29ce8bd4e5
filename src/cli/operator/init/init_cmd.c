/* `cloche init`: looks at a project, proposes a policy and settings, tries them, shows them, and writes them. */
#include "cli/operator/init/init.h"

#include "cli/cli.h"
#include "cli/operator/cloched.h"
#include "cli/verbs/client_verb.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TRIAL_SECONDS 60
#define SETTINGS_MAX (1u << 20)
#define ANSWER_MAX (1u << 16)

/* A file as it is and as it is to be. */
struct proposal {
	char *path;
	char *old; /* NULL: it is not there */
	char *text;
};

struct init {
	char dir[PATH_MAX]; /* of the project */
	char draft[64];	    /* a directory of ours, where all of it is tried first */
	struct proposal files[16];
	size_t count;
};

static void init_done(struct init *k)
{
	for (size_t i = 0; i < k->count; i++) {
		free(k->files[i].path);
		free(k->files[i].old);
		free(k->files[i].text);
	}
}

/* ---- trials ---- */

/*
 * A line for the shell in this directory, as an agent would run it, with our programs first in PATH. Returns its wait
 * status; ret_out: what it printed, which the caller frees.
 */
static int run_line(const char *line, const char *dir, const char *input, char **ret_out,
		    struct err *e)
{
	auto_close int in = memfd_create("input", MFD_CLOEXEC),
		       out = memfd_create("output", MFD_CLOEXEC);
	char program[PATH_MAX] = "";
	size_t len;
	pid_t pid;
	int status = -1;

	if (in < 0 || out < 0 || io_write_all(in, input, strlen(input)) < 0 ||
	    lseek(in, 0, SEEK_SET) < 0 || io_beside_program("", program, sizeof(program)) < 0 ||
	    (pid = fork()) < 0)
		return err_sys(e, "cannot try a command");
	if (pid == 0) {
		auto_free char *path =
			str_format("%s:%s", program, getenv("PATH") ? getenv("PATH") : "");

		setenv("PATH", path, 1);
		setenv("CLAUDE_PROJECT_DIR", dir, 1);
		alarm(TRIAL_SECONDS);
		if (chdir(dir) == 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2)
			execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (io_read_whole(out, ANSWER_MAX, ret_out, &len) < 0)
		return err_sys(e, "cannot read what a trial printed");
	return status;
}

static int fail_trial(const char *what, const char *said, struct err *e)
{
	char clean[400];

	str_sanitise(clean, sizeof(clean), said, strcspn(said, "\n"));
	return err_set(e, ERR_UNSUPPORTED, "%s does not work here, nothing was written: %s", what,
		       clean);
}

static int try_policy(const struct init *k, struct err *e)
{
	auto_free char *out = NULL;
	int status = run_line("cloche run --policy policy.yaml -- true", k->draft, "", &out, e);

	if (status < 0)
		return -1;
	return status ? fail_trial("a run with this policy", out, e) : 0;
}

static int try_client(const struct init *k, const struct agent_client *c, struct err *e)
{
	static const char hello[] =
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"
		"\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{"
		"\"name\":\"init\",\"version\":\"0\"}}}\n";
	auto_free char *out = NULL, *policy = str_format("%s/policy.yaml", k->draft),
		       *line = client_command(c, policy);
	int status = run_line(line, k->draft, c->command ? c->event : hello, &out, e);

	if (status < 0)
		return -1;
	/* The answer has the rewritten command, or the server's name. */
	return status || !strstr(out, c->command ? "cloche run " : "\"serverInfo\"")
		       ? fail_trial(c->name, out, e)
		       : 0;
}

/* ---- files ---- */

/* A link on the way would lead to a place that nobody has been shown. */
static int check_no_link(const char *dir, const char *path, struct err *e)
{
	auto_free char *copy = str_copy(path);
	struct stat st;

	for (char *slash = copy + strlen(dir) + 1; slash; *slash++ = '/') {
		slash = strchr(slash, '/');
		if (slash)
			*slash = '\0';
		if (lstat(copy, &st) == 0 && S_ISLNK(st.st_mode))
			return err_set(e, ERR_DENIED, "%s is a symbolic link; write there by hand",
				       copy);
		if (!slash)
			break;
	}
	return 0;
}

/* Takes path over. ret_old: its text, or NULL. */
static int read_old(const char *path, char **ret_old, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	size_t len;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || io_read_whole(fd, SETTINGS_MAX, ret_old, &len) < 0)
		return err_sys(e, "cannot read %s", path);
	return 0;
}

static int write_file(const char *path, const char *text, struct err *e)
{
	auto_free char *draft = str_format("%s.cloche-%d", path, (int)getpid()),
		       *top = str_copy(path);
	auto_close int fd = -1;

	for (char *slash = strchr(top + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(top, 0755) < 0 && errno != EEXIST)
			return err_sys(e, "cannot make %s", top);
		*slash = '/';
	}
	fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || io_write_all(fd, text, strlen(text)) < 0 || rename(draft, path) < 0)
		return err_sys(e, "cannot write %s", path);
	return 0;
}

/* ---- proposals ---- */

static int propose_policy(struct init *k, struct err *e)
{
	struct proposal *p = &k->files[k->count++];
	auto_free char *draft = str_format("%s/policy.yaml", k->draft);

	p->path = project_policy_path(k->dir, e);
	if (!p->path || read_old(p->path, &p->old, e) < 0)
		return -1;
	/* A policy that is there is its owner's. */
	p->text = p->old ? str_copy(p->old) : project_policy(k->dir);
	return write_file(draft, p->text, e) < 0 ? -1 : try_policy(k, e);
}

static int propose_client(struct init *k, const struct agent_client *c, struct err *e)
{
	struct proposal *p = &k->files[k->count++];
	const char *home = getenv("HOME");

	p->path = client_path_of(c, k->dir);
	if (check_no_link(str_starts(c->file, "~/") && home ? home : k->dir, p->path, e) < 0 ||
	    read_old(p->path, &p->old, e) < 0)
		return -1;
	p->text = client_merge(c, p->old, k->files[0].path, e);
	return p->text ? try_client(k, c, e) : -1;
}

static int propose_all(struct init *k, const struct list *names, struct err *e)
{
	const struct agent_client *c;

	if (propose_policy(k, e) < 0)
		return -1;
	for (size_t i = 0; i < names->count; i++) {
		c = client_find_name(names->items[i]);
		if (!c)
			return err_field(
				e, ERR_INVALID, "client",
				"client: '%s' is not one of claude, codex, cursor, gemini, vscode; "
				"docs/hook.md has others",
				names->items[i]);
		if (propose_client(k, c, e) < 0)
			return -1;
	}
	for (size_t i = 0; names->count == 0 && (c = client_at(i)); i++)
		if (client_is_used(c, k->dir) && propose_client(k, c, e) < 0)
			return -1;
	return 0;
}

/* ---- what it says ---- */

static int show(const struct init *k, const struct proposal *p, struct err *e)
{
	auto_free char *new = str_format("%s/new", k->draft), *line = NULL, *out = NULL;

	if (write_file(new, p->text, e) < 0 || setenv("FILE", p->path, 1) < 0)
		return -1;
	if (run_line(p->old ? "diff -u --label \"$FILE\" --label \"$FILE\" \"$FILE\" new"
			    : "diff -u --label /dev/null --label \"$FILE\" /dev/null new",
		     k->draft, "", &out, e) < 0)
		return -1;
	fputs(out, stdout);
	return 0;
}

static bool is_wanted(const struct verb_call *v)
{
	char answer[8] = "";

	if (verb_text(v, "yes"))
		return true;
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		puts("Nothing was written; --yes writes this.");
		return false;
	}
	fputs("Write this? [y/N] ", stdout);
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int finish(struct init *k, const struct verb_call *v, struct err *e)
{
	size_t changed = 0;

	for (size_t i = 0; i < k->count; i++) {
		const struct proposal *p = &k->files[i];

		if (p->old && str_equal(p->old, p->text))
			continue;
		changed++;
		if (show(k, p, e) < 0)
			return -1;
	}
	if (k->count == 1)
		puts("No coding agent is used here yet: --client claude (codex, cursor, gemini, "
		     "vscode).");
	puts("All of it was tried, and works here.");
	if (!changed || !is_wanted(v))
		return finish_stdout(0);
	for (size_t i = 0; i < k->count; i++)
		if ((!k->files[i].old || !str_equal(k->files[i].old, k->files[i].text)) &&
		    write_file(k->files[i].path, k->files[i].text, e) < 0)
			return -1;
	return finish_stdout(0);
}

static int init(struct verb_call *v, struct err *e)
{
	struct init k = {.draft = "/tmp/cloche-init-XXXXXX"};
	int rc;

	if (!realpath(v->args[0] ? v->args[0] : ".", k.dir))
		return err_sys(e, "cannot find %s", v->args[0] ? v->args[0] : ".");
	if (!mkdtemp(k.draft))
		return err_sys(e, "cannot make a directory in /tmp");
	rc = propose_all(&k, verb_texts(v, "client"), e);
	if (rc == 0)
		rc = finish(&k, v, e);
	cli_remove_tree(k.draft);
	init_done(&k);
	return rc;
}

static const struct verb_option init_options[] = {
	{"client", 'c', "NAME",
	 "settings of claude, codex, cursor, gemini, vscode; often (those that are used)", NULL},
	{"yes", 'y', NULL, "write without asking", NULL},
};

const struct verb verb_init = {
	.line = "cloche init [--client NAME]... [--yes] [DIR]",
	.about = "Proposes a policy for a project and the settings that put its coding agents' "
		 "commands into\n"
		 "sandboxes, tries them, and shows the differences before it writes.",
	.run = init,
	OPTIONS(init_options),
	ARGS(0, 1),
	.is_local = true,
};

/* Prints the steps of a run under a policy, in the order of sandbox/inside/inside.c (or process.c). */
#include "policy/policy.h"

#include "kern/seccomp.h"
#include "model/guard.h"
#include "net/rule.h"
#include "policy/paths/repository.h"

#include <stdarg.h>

struct printer {
	const struct sandbox_spec *spec;
	FILE *to;
	int number;
};

static void step(struct printer *p, const char *topic, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* One line: a numbered step, or (without a topic) more about the last one. */
static void step(struct printer *p, const char *topic, const char *fmt, ...)
{
	va_list ap;

	if (topic)
		fprintf(p->to, "%3d. %-11s ", ++p->number, topic);
	else
		fprintf(p->to, "%17s", "");
	va_start(ap, fmt);
	vfprintf(p->to, fmt, ap);
	va_end(ap);
	fputc('\n', p->to);
}

#define more(p, ...) step(p, NULL, __VA_ARGS__)

static void more_each(struct printer *p, const char *before, const struct list *l,
		      const char *after)
{
	for (size_t i = 0; i < l->count; i++)
		more(p, "%s%s%s", before, l->items[i], after);
}

/* A rule, or the rules of a set with their reasons. */
static void say_rule(struct printer *p, const char *before, const char *text)
{
	const char *set = text + (text[0] == '@');
	bool found = false;

	for (size_t i = 0; i < net_set_row_count; i++)
		if (str_equal(net_set_rows[i].set, set)) {
			if (!found)
				more(p, "%sthe set %s:", before, set);
			found = true;
			more(p, "  %s: %s", net_set_rows[i].rule, net_set_rows[i].reason);
		}
	if (!found)
		more(p, "%s%s", before, text);
}

static void say_network(struct printer *p)
{
	static const char *const modes[] = {
		[NET_NONE] = "none: its own loopback and nothing else",
		[NET_ALLOW] = "allow: what these rules allow; no other name is resolved",
		[NET_PUBLIC] = ("public: the internet; no loopback of the host, no private, "
				"link-local or metadata address unless a rule names it"),
		[NET_ISOLATED] = "isolated: sandboxes of the same owner and group, nothing else",
	};
	static const char *const budgets[] = {"net_rate",	 "net_tx",    "net_rx",
					      "net_connections", "net_names", "net_requests"};
	const struct sandbox_spec *s = p->spec;
	char buf[64];

	step(p, "network", "%s", modes[s->net]);
	if (s->net_asks)
		more(p, "and a person at the terminal decides on what no rule names");
	for (size_t i = 0; i < s->allow.count; i++)
		say_rule(p, "allowed: ", s->allow.items[i]);
	for (size_t i = 0; i < s->deny.count; i++)
		say_rule(p, "denied: ", s->deny.items[i]);
	for (size_t i = 0; i < ARRAY_LEN(budgets); i++)
		if (spec_format(s, spec_field_find(budgets[i]), buf, sizeof(buf)))
			more(p, "%-15s at most %s, then refused", budgets[i], buf);
}

static void say_walls(struct printer *p)
{
	const struct sandbox_spec *s = p->spec;
	const char *mode =
		s->root == ROOT_OVERLAY ? "can be written, changes are discarded" : "read-only";

	if (s->level == LEVEL_PROCESS) {
		step(p, "level", "process: Landlock, seccomp and rlimits, no namespaces");
		step(p, "namespaces", "none at this level");
		step(p, "network", "none: no socket of any family can be made");
		step(p, "root", "the host's own, what may be opened is limited by Landlock");
	} else {
		step(p, "level",
		     "container: namespaces and a root of its own, then the process layers");
		step(p, "namespaces",
		     "user, pid, mount, net, ipc, uts, cgroup, time; host name '%s'", s->hostname);
		say_network(p);
		if (str_equal(s->image, "host"))
			step(p, "root",
			     "the host's /usr /bin /sbin /lib* /opt and a few files of /etc, %s",
			     mode);
		else
			step(p, "root", "image %s, %s", s->image, mode);
	}
	if (s->tools)
		more(p, "and the tool chains that the caller's PATH names, read-only");
}

/* What is shown of the repository around the workspace on this host, and why not more. */
static void say_git(struct printer *p)
{
	const struct sandbox_spec *s = p->spec;
	const char *how = s->level == LEVEL_PROCESS ? "can be read" : "copy-on-write";
	struct source dir = {.fd = -1};
	struct repository r;
	struct err e;

	if (s->no_git) {
		more(p, "nothing of a git repository around it");
		return;
	}
	if (source_look("workspace", s->workspace ? s->workspace : ".", &dir, &e) < 0)
		return;
	repository_find(&dir, &r);
	if ((r.tree.fd >= 0 && source_judge(s, "git", r.tree.path, SOURCE_COPY, &r.tree, &e) < 0) ||
	    (r.common.fd >= 0 &&
	     source_judge(s, "git", r.common.path, SOURCE_COPY, &r.common, &e) < 0)) {
		repository_done(&r);
		r.refused = repository_forbidden;
	}
	if (r.refused)
		more(p, "%s", r.refused);
	if (r.tree.fd >= 0)
		more(p, "and the rest of the git repository %s, so that git works, %s", r.tree.path,
		     how);
	if (r.common.fd >= 0)
		more(p, "and the git directory of this worktree, %s, %s", r.common.path, how);
	repository_done(&r);
	close(dir.fd);
}

static void say_workspace(struct printer *p)
{
	const struct sandbox_spec *s = p->spec;

	if (s->empty)
		step(p, "workspace", "empty");
	else
		step(p, "workspace", "%s, %s",
		     s->workspace ? s->workspace : "the current directory",
		     s->workspace && !s->apply	 ? "writes go to it"
		     : s->level == LEVEL_PROCESS ? "can be read, not written"
		     : s->apply == APPLY_ALWAYS	 ? "copy-on-write, applied however the command ends"
		     : s->apply			 ? "copy-on-write, applied if the command succeeds"
						 : "copy-on-write, changes are discarded");
	if (!s->empty)
		say_git(p);
	if (s->apply)
		more(p, "control files are not applied (`cloche policy control` lists them)");
	more_each(p, "", &s->apply_also, " is applied although it is a control file");
	if (s->diff)
		more(p, "changes are listed");
	if (s->workdir)
		more(p, "the command starts in %s", s->workdir);
	more_each(p, "file ", &s->files, "");
	more_each(p, "captured with --json: ", &s->capture, "");
}

static void say_mount(struct printer *p, const char *text)
{
	struct mount_request m;
	struct source source;
	struct err e = {0};

	if (mount_request_parse(text, &m, &e) < 0)
		return;
	if (source_open(p->spec, "mount", m.source, m.writable ? SOURCE_WRITE : SOURCE_READ,
			&source, &e) < 0) {
		more(p, "REFUSED on this host: %s", e.msg);
		return;
	}
	close(source.fd);
	more(p, "%s at %s, %s", source.path, m.target, m.writable ? "writable" : "read-only");
}

static void say_mounts(struct printer *p)
{
	const struct sandbox_spec *s = p->spec;

	if (s->level == LEVEL_PROCESS)
		return;
	step(p, "mounts", "/dev, /proc, /tmp and HOME of its own%s",
	     s->mounts.count || s->tmpfs_mounts.count ? ", and" : "");
	for (uint32_t i = 0; i < s->tmpfs_mounts.count; i++)
		more(p, "an empty tmpfs of %" PRIu64 " MB at %s",
		     s->tmpfs_mounts.items[i].bytes >> 20, s->tmpfs_mounts.items[i].path);
	for (size_t i = 0; i < s->mounts.count; i++)
		say_mount(p, s->mounts.items[i]);
	more_each(p, "sources are taken only from below ", &s->mount_read, "");
	more_each(p, "writable sources only from below ", &s->mount_write, "");
	more_each(p, "never shown, besides the built-in list: ", &s->forbid, "");
}

static void say_limits(struct printer *p)
{
	static const struct {
		const char *name, *text;
	} rows[] = {
		{"memory", "memory, swap off"},
		{"cpus", "processors"},
		{"pids", "processes and threads"},
		{"disk", "all that it writes"},
		{"file_size", "largest file"},
		{"open_files", "open files of each process, four times as many on request"},
		{"timeout", "wall time, then everything is killed"},
		{"cpu_time", "processor time"},
		{"output_limit", "captured bytes of stdout and of stderr"},
	};
	char buf[64];

	step(p, "limits", "of the whole sandbox unless it says otherwise");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct field *f = spec_field_find(rows[i].name);
		bool set = spec_format(p->spec, f, buf, sizeof(buf));
		bool void_here = p->spec->level == LEVEL_PROCESS && str_equal(f->name, "disk");
		const char *unset = str_equal(f->name, "file_size") ? "as disk" : "none";

		more(p, "%-13s %-10s %s", rows[i].name, set ? buf : unset,
		     void_here ? "not enforced at this level, but for file_size" : rows[i].text);
	}
}

static void say_environment(struct printer *p)
{
	const struct list *env = &p->spec->env;

	step(p, "environment", "clean: PATH, HOME, USER, SHELL, LANG%s", env->count ? ", and" : "");
	for (size_t i = 0; i < env->count; i++) {
		const char *equals = strchr(env->items[i], '=');
		char shown[200];

		/* A value may hold a secret, and a line feed: the name says enough. */
		str_sanitise(shown, sizeof(shown), env->items[i],
			     equals ? (size_t)(equals - env->items[i]) : strlen(env->items[i]));
		more(p, "%s, %s", shown, equals ? "set by the policy" : "copied from the caller");
	}
}

static void say_privileges(struct printer *p)
{
	bool process = p->spec->level == LEVEL_PROCESS;
	bool root = spec_wants_root(p->spec);
	const struct seccomp_profile *profile = process ? &seccomp_profile_process
						: root	? &seccomp_profile_root
							: &seccomp_profile_default;

	step(p, "identity", "%s",
	     process ? "a user id of its own if root starts it, else the caller's"
	     : root  ? "root of a user namespace below the sandbox's own; files above 2 are closed"
		     : "an ordinary user without groups; files above 2 are closed");
	step(p, "privileges", "%s",
	     root ? "ten capabilities over that namespace if root starts it, else none; "
		    "no_new_privs"
		  : "every capability is dropped, no_new_privs");
	step(p, "landlock", "as far as the kernel has it");
	step(p, "seccomp", "profile %s@%s", profile->name, profile->digest);
	if (root)
		more(p,
		     "or a narrower one: started by an ordinary user, or with a directory of the "
		     "host to write to");
	if (p->spec->seccomp)
		more(p, "and on top of it the profile %s", p->spec->seccomp);
}

static void say_layer_set(struct printer *p, const char *what, layer_set set)
{
	char line[80] = "";
	size_t len = 0;

	if (set)
		more(p, "%s:", what);
	for (int i = 0; i < LAYER_COUNT; i++) {
		if (!(set & LAYER_BIT(i)))
			continue;
		len += (size_t)snprintf(line + len, sizeof(line) - len, " %s", layer_name(i));
		if (len > 60) {
			more(p, " %s", line);
			len = 0;
		}
	}
	if (len)
		more(p, " %s", line);
}

static void say_layers(struct printer *p)
{
	/* Namespaces are the first layers; the root is built with them. */
	const layer_set namespaces = LAYER_BIT(LAYER_ROOT + 1) - 1;
	layer_set all = LAYER_BIT(LAYER_COUNT) - 1;
	layer_set required = p->spec->required_layers, optional = p->spec->optional_layers;

	if (p->spec->level == LEVEL_PROCESS)
		all &= ~(namespaces | LAYER_BIT(LAYER_DISK));
	step(p, "layers", "each is tried from inside before the command starts");
	say_layer_set(p, "without these it does not run", required);
	say_layer_set(p, "named optional", optional);
	say_layer_set(p, "used where the host has them", all & ~required & ~optional);
}

static void say_guard(struct printer *p)
{
	static const char *const fields[] = {"guard_allow", "guard_deny", "guard_nodes"};
	char buf[256];

	if (p->spec->guard == GUARD_OFF)
		return;
	step(p, "guard", "%s: Python is looked at before it runs; only for code, no wall",
	     guard_name(p->spec->guard));
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		if (spec_format(p->spec, spec_field_find(fields[i]), buf, sizeof(buf)))
			more(p, "%-13s %s", fields[i], buf);
}

static void say_tools(struct printer *p)
{
	const struct list *rules = &p->spec->tool_rules, *programs = &p->spec->interceptors;

	if (!rules->count && !programs->count)
		return;
	step(p, "tool calls",
	     "judged before they are made, by `cloche hook` and `cloche mcp` only; "
	     "the first rule that fits decides");
	for (size_t i = 0; i < rules->count; i++)
		more(p, "%s", rules->items[i]);
	for (size_t i = 0; i < programs->count; i++)
		more(p, "then asked: %s, in a sandbox of its own", programs->items[i]);
}

void policy_explain(const struct policy *policy, FILE *to)
{
	struct printer p = {.spec = &policy->spec, .to = to};

	fprintf(to, "%s\n", policy->file);
	if (policy->description)
		fprintf(to, "%s\n", policy->description);
	say_walls(&p);
	say_workspace(&p);
	say_mounts(&p);
	say_limits(&p);
	say_environment(&p);
	say_privileges(&p);
	say_layers(&p);
	say_guard(&p);
	say_tools(&p);
	step(&p, "command", "%s",
	     policy->spec.level == LEVEL_PROCESS ? "runs; what it leaves behind is killed"
	     : policy->spec.tty			 ? "on a terminal of its own"
						 : "runs as pid 2");
	fprintf(to, "Not built yet: level vm; providers other than ns (e2b is the daemon's).\n"
		    "  Asking for one is refused.\n");
}

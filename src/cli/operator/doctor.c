/*
 * `cloche doctor`: tries what this host can enforce, and prints the consequence and the remedy of
 * each missing feature. Exit status 0 only if level container is fully available.
 */
#include "cli/operator/cloched.h"

#include "base/exec_path.h"
#include "cli/cli.h"
#include "cli/verbs/client.h"
#include "cli/verbs/client_verb.h"
#include "daemon/daemon.h"
#include "kern/features.h"
#include "policy/config.h"

#include <assert.h>

/* Levels that are not fully available if a check fails. */
enum level_bit { CONTAINER = 1, PROCESS = 2 };

struct check {
	const char *name;
	const char *title;
	unsigned needed_for;
	const char *consequence; /* if it is missing */
	const char *remedy;	 /* NULL: depends on what blocks it */
};

#define OLD_FILTER                                                                                 \
	"a kernel that has it; in a container, a newer runtime whose filter knows the call"
#define KERNEL_CONFIG "a kernel that is built with it"

static const struct check checks[] = {
	[FEATURE_KERNEL] = {"kernel", "kernel", 0, "some layers are missing below 5.13",
			    "Linux 5.13 or later"},
	[FEATURE_USER_NS] = {"user_ns", "user namespaces", CONTAINER,
			     "level container cannot be had; level process still can", NULL},
	[FEATURE_PID_NS] = {"pid_ns", "pid namespaces", CONTAINER,
			    "processes could not be hidden and ended as one", KERNEL_CONFIG},
	[FEATURE_MOUNT_NS] = {"mount_ns", "mount namespaces", CONTAINER,
			      "a sandbox has no root of its own", KERNEL_CONFIG},
	[FEATURE_NET_NS] = {"net_ns", "network namespaces", CONTAINER,
			    "a sandbox cannot be cut off from the network", KERNEL_CONFIG},
	[FEATURE_IPC_NS] = {"ipc_ns", "ipc namespaces", CONTAINER,
			    "shared memory and queues are not separate", KERNEL_CONFIG},
	[FEATURE_UTS_NS] = {"uts_ns", "uts namespaces", CONTAINER, "the host's name is seen inside",
			    KERNEL_CONFIG},
	[FEATURE_CGROUP_NS] = {"cgroup_ns", "cgroup namespaces", CONTAINER,
			       "the host's cgroup names are seen inside", KERNEL_CONFIG},
	[FEATURE_TIME_NS] = {"time_ns", "time namespaces", CONTAINER,
			     "the host's uptime is seen inside", "Linux 5.6 or later"},
	[FEATURE_MOUNT_API] = {"mount_api", "new mount API", CONTAINER,
			       "a sandbox's root cannot be built",
			       "Linux 5.12 or later; " OLD_FILTER},
	[FEATURE_PROC] = {"proc", "a /proc of its own", CONTAINER,
			  "level container cannot be had; level process still can",
			  "in a container, a runtime that covers nothing of /proc "
			  "(docker: --security-opt systempaths=unconfined)"},
	[FEATURE_OVERLAY] = {"overlay", "overlayfs", CONTAINER,
			     "no copy-on-write: use --workspace or --empty",
			     "modprobe overlay; for ordinary users Linux 5.11 or later"},
	[FEATURE_IDMAP] =
		{"idmap", "idmapped mounts", 0,
		 "files that root's sandboxes make in a --workspace belong to an id of the "
		 "sandbox's range, not to the workspace's owner",
		 "a workspace on ext4, xfs or btrfs, or on tmpfs from Linux 6.3"},
	[FEATURE_CGROUP] =
		{"cgroup", "cgroup", CONTAINER,
		 "memory is watched instead of limited, cpus are not limited; the result "
		 "lists both as missing",
		 NULL},
	[FEATURE_SECCOMP] = {"seccomp", "seccomp filters", CONTAINER | PROCESS,
			     "system calls cannot be filtered", KERNEL_CONFIG},
	[FEATURE_SECCOMP_NOTIFY] = {"seccomp_notify", "seccomp notification", CONTAINER,
				    "refused system calls are not explained in the result",
				    "Linux 5.0 or later, and no other listener in an outer filter"},
	[FEATURE_LANDLOCK] =
		{"landlock", "Landlock", CONTAINER | PROCESS,
		 "no second wall behind the mounts, and no level process",
		 "Linux 5.13 or later (6.2 for all of it) with landlock in CONFIG_LSM or "
		 "in the boot parameter lsm="},
	[FEATURE_CLONE3] = {"clone3", "clone3", CONTAINER, "a sandbox cannot be started",
			    OLD_FILTER},
	[FEATURE_PIDFD] = {"pidfd", "pidfds", CONTAINER | PROCESS,
			   "a sandbox cannot be watched safely", OLD_FILTER},
	[FEATURE_CLOSE_RANGE] = {"close_range", "close_range", CONTAINER | PROCESS,
				 "inherited files cannot be closed for sure", OLD_FILTER},
	[FEATURE_OPENAT2] = {"openat2", "openat2", CONTAINER | PROCESS,
			     "paths cannot be opened without races", OLD_FILTER},
	[FEATURE_ROOTLESS] = {"rootless", "ordinary users", 0,
			      "users other than root get level process only", NULL},
};
static_assert(ARRAY_LEN(checks) == FEATURE_COUNT, "a row per feature");

/* Features that matter if only a part of them is there. */
static const struct {
	unsigned needed_for; /* levels that need all of it */
	const char *consequence;
} partial[FEATURE_COUNT] = {
	[FEATURE_CGROUP] = {CONTAINER,
			    "what a controller that is not there would limit is not limited"},
	[FEATURE_LANDLOCK] = {PROCESS, "gaps in the wall: truncation before ABI 3"},
};

/* The only check that is not a kernel feature. */
static const struct check interpreters = {
	.name = "interpreters",
	.title = "interpreters",
	.consequence = "`cloche code` runs only the languages that are there",
	.remedy = "install what is missing, or use --image",
};

/* ---- what to do ---- */

static const char apparmor_remedy[] =
	"write this to /etc/apparmor.d/cloche, then run: apparmor_parser -r "
	"/etc/apparmor.d/cloche\n"
	"    abi <abi/4.0>,\n"
	"    include <tunables/global>\n"
	"    profile cloche /usr/{,local/}bin/cloche flags=(unconfined) {\n"
	"      userns,\n"
	"      include if exists <local/cloche>\n"
	"    }";

static const char *userns_remedy(void)
{
	static const char *const remedies[] = {
		[USERNS_NOT_BLOCKED] =
			"in a container, a runtime profile that allows unshare and mount; else a "
			"kernel with CONFIG_USER_NS",
		[USERNS_CHROOT] =
			"this is a chroot, where the kernel gives none: enter it by pivot_root, a "
			"container or systemd-nspawn",
		[USERNS_CLONE_SYSCTL] =
			"sysctl -w kernel.unprivileged_userns_clone=1, and the same "
			"in /etc/sysctl.d/ to keep it",
		[USERNS_MAX_ZERO] = "sysctl -w user.max_user_namespaces=15000, and the same in "
				    "/etc/sysctl.d/ to keep it",
		[USERNS_APPARMOR] = apparmor_remedy,
	};

	return remedies[features_userns_block()];
}

static const char *cgroup_remedy(void)
{
	if (geteuid() == 0)
		return "mount the cgroup controllers: cgroup v2 on /sys/fs/cgroup";
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) < 0)
		return "only root can use cgroup v1; boot with systemd.unified_cgroup_hierarchy=1 "
		       "for v2, where systemd delegates";
	return "start it in a delegated cgroup: systemd-run --user --scope -p Delegate=yes cloche "
	       "...; "
	       "and let systemd hand out all controllers: systemctl edit user@.service, [Service] "
	       "Delegate=cpu memory pids";
}

static const char *remedy_of(enum feature_id id)
{
	if (checks[id].remedy)
		return checks[id].remedy;
	return id == FEATURE_CGROUP ? cgroup_remedy() : userns_remedy();
}

/* ---- interpreters ---- */

/* Is the path visible in every sandbox? */
static bool is_shown(const char *path)
{
	static const char *const dirs[] = {"/usr", "/bin", "/sbin", "/opt"};

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (path_below(path, dirs[i]))
			return true;
	return false;
}

enum whereabouts { NOWHERE, WITH_TOOLS, SHOWN };

/* Looks for a program in PATH. A path that every sandbox sees wins. */
static enum whereabouts find_program(const char *name)
{
	const char *dirs = exec_path_of(environ), *path;
	enum whereabouts best = NOWHERE;
	char room[PATH_MAX];

	while (best != SHOWN && (path = exec_path_next(name, &dirs, room)))
		if (access(path, X_OK) == 0)
			best = is_shown(path) ? SHOWN : WITH_TOOLS;
	return best;
}

static void probe_interpreters(struct feature *f)
{
	static const char *const names[] = {"python3", "node", "bash", "perl", "ruby"};
	char found[120] = "", lacking[80] = "";

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		enum whereabouts where = find_program(names[i]);

		if (where == NOWHERE)
			str_append(lacking, sizeof(lacking), " ", "%s", names[i]);
		else
			str_append(found, sizeof(found), " ", "%s%s", names[i],
				   where == WITH_TOOLS ? " (with --tools)" : "");
	}
	f->state = !found[0] ? FEATURE_MISSING : lacking[0] ? FEATURE_LIMITED : FEATURE_OK;
	snprintf(f->detail, sizeof(f->detail), "%s%s%s", found[0] ? found : "none",
		 lacking[0] ? "; not " : "", lacking);
}

/* ---- the report ---- */

struct finding {
	const struct check *check;
	struct feature feature;
	const char *consequence, *remedy;
};

struct doctor_report {
	struct finding findings[FEATURE_COUNT + 1];
	size_t count;
	unsigned levels; /* that are fully available */
};

static struct finding *add_finding(struct doctor_report *r, const struct check *c)
{
	struct finding *f = &r->findings[r->count++];

	*f = (struct finding){.check = c, .consequence = c->consequence, .remedy = c->remedy};
	return f;
}

static void examine(struct doctor_report *r)
{
	struct finding *f;

	*r = (struct doctor_report){.levels = CONTAINER | PROCESS};
	for (int id = 0; id < FEATURE_COUNT; id++) {
		/* For an ordinary user the row of user namespaces says the same. */
		if (id == FEATURE_ROOTLESS && geteuid() != 0)
			continue;
		f = add_finding(r, &checks[id]);
		features_probe((enum feature_id)id, &f->feature);
		f->remedy = remedy_of((enum feature_id)id);
		if (f->feature.state == FEATURE_MISSING)
			r->levels &= ~checks[id].needed_for;
		if (f->feature.state == FEATURE_LIMITED && partial[id].consequence) {
			r->levels &= ~partial[id].needed_for;
			f->consequence = partial[id].consequence;
		}
	}
	probe_interpreters(&add_finding(r, &interpreters)->feature);
}

static const char *const state_names[] = {
	[FEATURE_OK] = "ok", [FEATURE_LIMITED] = "limited", [FEATURE_MISSING] = "missing"};

static const struct {
	enum level_bit bit;
	const char *name;
} levels[] = {{CONTAINER, "container"}, {PROCESS, "process"}};

static int print_doctor_json(const struct doctor_report *r)
{
	json_t *whole = json_object(), *checked = json_array();

	for (size_t i = 0; i < ARRAY_LEN(levels); i++)
		json_object_set_new(whole, levels[i].name, json_boolean(r->levels & levels[i].bit));
	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = &r->findings[i];
		bool ok = f->feature.state == FEATURE_OK;
		json_t *needed = json_array();

		for (size_t l = 0; l < ARRAY_LEN(levels); l++)
			if (f->check->needed_for & levels[l].bit)
				json_array_append_new(needed, json_string(levels[l].name));
		json_array_append_new(checked, json_pack("{s:s, s:s, s:o, s:i, s:o, s:s?, s:s?}",
							 "name", f->check->name, "state",
							 state_names[f->feature.state], "detail",
							 client_text(f->feature.detail), "errno",
							 f->feature.errnum, "needed_for", needed,
							 "consequence", ok ? NULL : f->consequence,
							 "remedy", ok ? NULL : f->remedy));
	}
	return print_json(json_pack("{s:i, s:o, s:o}", "uid", (int)geteuid(), "levels", whole,
				    "checks", checked));
}

static bool use_colour(void)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	return isatty(1) && !(no && *no) && !(term && str_equal(term, "dumb"));
}

/* Prints text after a label, with further lines indented alike. */
static void print_advice(const char *label, const char *text)
{
	printf("%11s%-4s", "", label);
	for (; *text; text++) {
		putchar(*text);
		if (*text == '\n')
			printf("%15s", "");
	}
	putchar('\n');
}

static int print_checks(const struct doctor_report *r)
{
	static const char *const colours[] = {[FEATURE_OK] = "\033[32m",
					      [FEATURE_LIMITED] = "\033[33m",
					      [FEATURE_MISSING] = "\033[31m"};
	bool colour = use_colour();

	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = &r->findings[i];
		enum feature_state state = f->feature.state;

		printf("  %s%-8s%s %-*s%s\n", colour ? colours[state] : "", state_names[state],
		       colour ? "\033[0m" : "", f->feature.detail[0] ? 22 : 0, f->check->title,
		       f->feature.detail);
		if (state == FEATURE_OK)
			continue;
		print_advice("so:", f->consequence);
		print_advice("do:", f->remedy);
	}
	putchar('\n');
	for (size_t i = 0; i < ARRAY_LEN(levels); i++)
		printf("  level %-10s %s\n", levels[i].name,
		       r->levels & levels[i].bit ? "fully available" : "not fully available");
	return finish_stdout(0);
}

/* ---- the daemon's state ---- */

struct state_report {
	bool json, has_problem;
	json_t *all;
};

static void take_finding(void *arg, const struct state_finding *f)
{
	static const char *const names[] = {[STATE_FINE] = "ok",
					    [STATE_NOTE] = "note",
					    [STATE_REPAIRED] = "repaired",
					    [STATE_PROBLEM] = "problem"};
	struct state_report *r = arg;

	r->has_problem = r->has_problem || f->verdict >= STATE_REPAIRED;
	if (r->json)
		json_array_append_new(r->all, json_pack("{s:s, s:s, s:o}", "verdict",
							names[f->verdict], "subject", f->subject,
							"text", client_text(f->text)));
	else
		printf("  %-9s%-32s%s\n", names[f->verdict], f->subject, f->text);
}

static int check_state(bool json)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));
	struct state_report r = {.json = json, .all = json_array()};
	struct err e = {0};
	int rc = client_config(c, NULL, &e) < 0 || daemon_check_state(c, take_finding, &r, &e) < 0
			 ? -1
			 : 0;

	if (rc == 0 && json)
		rc = print_json(json_pack("{s:O}", "findings", r.all));
	json_decref(r.all);
	if (e.kind)
		fprintf(stderr, "cloche: doctor: %s\n", e.msg);
	if (rc != 0 || finish_stdout(0) != 0)
		return EXIT_CLOCHE;
	return r.has_problem ? 1 : 0;
}

int cmd_doctor(int argc, char **argv)
{
	bool json = false, state = false;
	struct doctor_report r;

	for (int i = 1; i < argc; i++) {
		if (str_equal(argv[i], "--json")) {
			json = true;
		} else if (str_equal(argv[i], "--state")) {
			state = true;
		} else if (str_equal(argv[i], "--help")) {
			puts("usage: cloche doctor [--state] [--json]\n"
			     "Tries what this host can enforce; says what is missing, what follows "
			     "from it and what to change.\n"
			     "Exit status 0: level container is fully available; 1: it is not.\n"
			     "--state: checks the daemon's database, records and snapshots, and "
			     "repairs what it can while no daemon runs.\n"
			     "Exit status 0: all is well; 1: something was found.");
			return 0;
		} else {
			fprintf(stderr,
				"cloche: doctor: unknown argument '%s'; try: cloche doctor "
				"--help\n",
				argv[i]);
			return EXIT_CLOCHE;
		}
	}
	if (state)
		return check_state(json);
	examine(&r);
	if ((json ? print_doctor_json : print_checks)(&r) != 0)
		return EXIT_CLOCHE;
	return r.levels & CONTAINER ? 0 : 1;
}

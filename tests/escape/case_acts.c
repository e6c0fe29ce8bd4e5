/*
 * Acts: what only the host can judge. Each leaves processes behind that carry TAG in their command
 * line; when cloche has returned, none may be alive. All of them end by themselves after LIFE_MS,
 * in case nobody ends them.
 */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIFE_MS 30000

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void ignore_everything(void)
{
	for (int sig = 1; sig < 65; sig++)
		if (sig != SIGALRM && sig != SIGCHLD)
			signal(sig, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, 0);
	alarm(LIFE_MS / 1000);
}

/* Out of the session, the group and the family, deaf to all signals. */
static int survivor(void)
{
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			ignore_everything();
			for (;;)
				msleep(1000);
		}
		_exit(0);
	}
	wait(NULL);
	msleep(50);
	return 0;
}

/* A subreaper of its own catches its grandchildren before the supervisor does. */
static int subreaper(void)
{
	if (fork() == 0) {
		setsid();
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		for (int i = 0; i < 4; i++) {
			if (fork() == 0) {
				if (fork() == 0) {
					ignore_everything();
					for (;;)
						msleep(1000);
				}
				_exit(0);
			}
		}
		ignore_everything();
		for (;;)
			msleep(1000);
	}
	msleep(100);
	return 0;
}

/*
 * Never the same pid for long: whoever kills by walking a list comes too late. The number of hops
 * is bounded, because each leaves a zombie to whatever init there is.
 */
static int runaway(void)
{
	for (int i = 0; i < 3; i++) {
		if (fork() != 0)
			continue;
		setsid();
		ignore_everything();
		for (int hops = 0; hops < 1000; hops++) {
			if (fork() > 0)
				_exit(0);
			msleep(3);
		}
		_exit(0);
	}
	msleep(200);
	return 0;
}

static int stopped(void)
{
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			setsid();
			alarm(LIFE_MS / 1000);
			raise(SIGSTOP);
			_exit(0);
		}
	}
	msleep(LIFE_MS);
	return 0;
}

static int deaf(void)
{
	for (int i = 0; i < 4; i++)
		if (fork() == 0)
			break;
	setsid();
	ignore_everything();
	for (;;)
		msleep(1000);
	return 0;
}

/* Orphans that nobody waits for: pid 1 has to, or the pids run out. */
static int zombies(void)
{
	for (int i = 0; i < 2000; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			fork();
			_exit(0);
		}
		if (pid < 0) {
			msleep(1);
			continue;
		}
		waitpid(pid, NULL, 0);
	}
	msleep(200);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (pid < 0)
			return 3;
	}
	return 0;
}

/* Every process forks for as long as it can, up to a number that the host can bear. */
static int fork_bomb(void)
{
	int *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long long end = now_ms() + LIFE_MS;

	if (count == MAP_FAILED)
		return 3;
	while (now_ms() < end) {
		if (__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST) > 500 || fork() < 0)
			msleep(10);
	}
	return 0;
}

/* A hundred thousand refused calls of the kind that is reported, to keep the supervisor busy. */
static int flood(void)
{
	for (int i = 0; i < 100000; i++)
		ptrace(PTRACE_SEIZE, 1, 0, 0);
	return 0;
}

/* Names that would forge lines in a log, a terminal or a record. */
static int names(void)
{
	static const char *const bad[] = {
		"new\nline",	 "esc\x1b[31mred", "tab\there", "\xff\xfe",
		"quote\"brace}", "back\\slash",	   " ",		"-rf",
		"cr\rcr"};
	char longest[256];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (write_text(bad[i], "x") < 0)
			return 3;
	memset(longest, 'n', 255);
	longest[255] = '\0';
	return write_text(longest, "x") < 0 ? 3 : 0;
}

/* What a filtered apply must leave out of the host's tree. */
static int plant_control(void)
{
	static const char *const dirs[] = {".git", ".git/hooks", ".claude",	  ".vscode",
					   "sub",  "sub/.git",	 "sub/.git/hooks"};
	static const char *const files[] = {".git/hooks/post-checkout",
					    ".git/config",
					    ".mcp.json",
					    ".bashrc",
					    ".claude/settings.json",
					    ".vscode/tasks.json",
					    "sub/.git/hooks/pre-commit",
					    "harmless.txt"};

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		mkdir(dirs[i], 0755);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (write_text(files[i], "#!/bin/sh\nexit 0\n") < 0)
			fprintf(stderr, "%s: %s\n", files[i], errno_name(errno));
	/* "trap" is a link to a directory of the host: what is put in its place must replace it. */
	if (mkfifo("fifo", 0644) < 0 || unlink("trap") < 0 || mkdir("trap", 0755) < 0 ||
	    write_text("trap/through", "x") < 0)
		fprintf(stderr, "fifo, trap: %s\n", errno_name(errno));
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} acts[] = {
	{"act-survivor", survivor},	{"act-subreaper", subreaper}, {"act-runaway", runaway},
	{"act-stopped", stopped},	{"act-deaf", deaf},	      {"act-zombies", zombies},
	{"act-fork-bomb", fork_bomb},	{"act-flood", flood},	      {"act-names", names},
	{"act-control", plant_control},
};

int act_main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	for (size_t i = 0; i < ARRAY_LEN(acts); i++)
		if (!strcmp(argv[0], acts[i].name))
			return acts[i].run();
	return 2;
}

/* Listed for the runners; they are started by --act. */
static void from_outside(struct probe *p)
{
	cannot_tell(p, "only the host can tell");
}

#define ACT(name, attack, title, flags, layers, setup)                                             \
	{                                                                                          \
		"act-" name, attack, title, flags | OUTSIDE | NO_CONTROL, layers, setup,           \
			from_outside, 0                                                            \
	}

static const struct probe_case cases[] = {
	ACT("survivor", 32, "outlive the sandbox by double fork and setsid", SAFE, L(PID_NS),
	    "act"),
	ACT("subreaper", 32, "outlive it below a subreaper of its own", SAFE, L(PID_NS), "act"),
	ACT("runaway", 32, "outlive it by forking faster than it kills", 0, L(PID_NS), "act"),
	ACT("stopped", 32, "outlive the time limit as stopped children", SAFE, L(PID_NS),
	    "act --timeout 200ms"),
	ACT("deaf", 32, "outlive the time limit by ignoring signals", SAFE, L(PID_NS),
	    "act --timeout 200ms"),
	ACT("zombies", 32, "use up the pids with zombies", 0, L(PID_NS), "act --pids 64"),
	ACT("fork-bomb", 32, "fork without end", WEAK, L(PIDS), "act --pids 64 --timeout 2s"),
	ACT("flood", 0, "keep the supervisor busy with refused calls", 0, L(SECCOMP), "act"),
	ACT("names", 19, "forge records by file names", 0, L(ROOT), "act-diff"),
	ACT("control", 6, "leave control files by way of --apply", 0, L(ROOT), "act-apply"),
};
const struct case_group group_acts = {cases, ARRAY_LEN(cases)};

#include "probe.h"

#include "base/auto.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longer than any case takes, shorter than anyone waits. */
#define CASE_SECONDS 25

static const struct case_group *const groups[] = {
	&group_layers,	  &group_files,	 &group_readonly, &group_setid,	 &group_workspace,
	&group_processes, &group_calls,	 &group_abi,	  &group_exec,	 &group_families,
	&group_network,	  &group_unix,	 &group_leaks,	  &group_writes, &group_devices,
	&group_shared,	  &group_limits, &group_acts,
};

static const struct {
	unsigned bit;
	const char *word;
} flag_words[] = {
	{SAFE, "safe"},	      {CONTAINER_ONLY, "container-only"},
	{WEAK, "weak"},	      {NO_CONTROL, "no-control"},
	{KILL_OK, "kill-ok"}, {GAP, "gap"},
	{OUTSIDE, "outside"}, {BY_HIT, "by-hit"},
};

static const char *const verdict_words[] = {
	[VERDICT_NONE] = "cannot-tell",
	[VERDICT_REFUSED] = "refused",
	[VERDICT_CANNOT_TELL] = "cannot-tell",
	[VERDICT_GOT_THROUGH] = "got-through",
};

static void list_case(const struct probe_case *c)
{
	const char *sep = "";

	printf("%s\t%d\t", c->name, c->attack);
	for (size_t i = 0; i < ARRAY_LEN(flag_words); i++) {
		if (!(c->flags & flag_words[i].bit))
			continue;
		printf("%s%s", sep, flag_words[i].word);
		sep = ",";
	}
	printf("%s\t", *sep ? "" : "-");
	sep = "";
	for (int l = 0; l < LAYER_COUNT; l++) {
		if (!(c->layers & LAYER_BIT(l)))
			continue;
		printf("%s%s", sep, layer_name((enum layer)l));
		sep = ",";
	}
	printf("%s\t%s\t%s\n", *sep ? "" : "-", c->setup ? c->setup : "-", c->title);
}

static void list_all(void)
{
	for (size_t g = 0; g < ARRAY_LEN(groups); g++)
		for (size_t i = 0; i < groups[g]->count; i++)
			list_case(&groups[g]->cases[i]);
}

static void print_line(const struct probe *p)
{
	char clean[sizeof(p->detail)];
	size_t i;

	for (i = 0; p->detail[i] && i + 1 < sizeof(clean); i++)
		clean[i] = (unsigned char)p->detail[i] < ' ' || p->detail[i] == 127 ? ' '
										    : p->detail[i];
	clean[i] = '\0';
	printf("%s\t%s\t%s\n", p->c->name, verdict_words[p->verdict], clean);
	/* Each line on its way at once: a later case may take the whole sandbox down. */
	fflush(stdout);
}

static void judge_death(struct probe *p, int status)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (p->verdict == VERDICT_GOT_THROUGH)
		return;
	if (sig == SIGSYS)
		refused(p, "killed by SIGSYS");
	else if (sig == SIGKILL && (p->c->flags & KILL_OK))
		refused(p, "killed");
	else if (sig == SIGALRM)
		cannot_tell(p, "took longer than %d s", CASE_SECONDS);
	else if (sig)
		cannot_tell(p, "killed by signal %d", sig);
	else if (p->verdict == VERDICT_NONE)
		cannot_tell(p, "ended without a verdict");
}

/* A child of its own for each case: a filter may kill it, and what it changes ends with it. */
static void run_case(struct probe *p)
{
	pid_t pid;
	int status;

	p->verdict = VERDICT_NONE;
	p->detail[0] = '\0';
	if (p->control && (p->c->flags & NO_CONTROL)) {
		cannot_tell(p, "has no control");
		print_line(p);
		return;
	}
	pid = fork();
	if (pid < 0) {
		cannot_tell(p, "fork: %s", errno_name(errno));
		print_line(p);
		return;
	}
	if (pid == 0) {
		alarm(CASE_SECONDS);
		if (p->control && (p->c->flags & CONTROL_NS) && control_enter() < 0)
			cannot_tell(p, "no namespaces to try it in: %s", errno_name(errno));
		else
			p->c->run(p);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	judge_death(p, status);
	print_line(p);
}

static bool wanted(const struct probe_case *c, char **names, int count)
{
	if (count == 0)
		return !(c->flags & OUTSIDE) && !(c->setup && strstr(c->setup, "solo"));
	for (int i = 0; i < count; i++)
		if (!strcmp(names[i], c->name))
			return true;
	return false;
}

static bool known(const char *name)
{
	for (size_t g = 0; g < ARRAY_LEN(groups); g++)
		for (size_t i = 0; i < groups[g]->count; i++)
			if (!strcmp(groups[g]->cases[i].name, name))
				return true;
	return false;
}

static int usage(void)
{
	fputs("usage: cloche-probe --list\n"
	      "       cloche-probe [--control] [NAME=VALUE...] [CASE...]\n"
	      "       cloche-probe --plant TAG [DIR [RODIR [RWDIR]]] | --act NAME TAG | --whoami\n",
	      stderr);
	return 2;
}

static int run_cases(int argc, char **argv, bool control)
{
	struct probe *p =
		mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char **names = argv;
	int count = 0;

	if (p == MAP_FAILED) {
		perror("cloche-probe: mmap");
		return 2;
	}
	for (int i = 0; i < argc; i++) {
		if (strchr(argv[i], '='))
			canary_add(argv[i]);
		else if (!known(argv[i]))
			return fprintf(stderr, "cloche-probe: no case '%s'\n", argv[i]), 2;
		else
			names[count++] = argv[i];
	}
	p->control = control;
	p->boss = getppid();
	for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
		for (size_t i = 0; i < groups[g]->count; i++) {
			p->c = &groups[g]->cases[i];
			if (wanted(p->c, names, count))
				run_case(p);
		}
	}
	return 0;
}

/* For the set-id and file capability cases: what did exec make of us? */
static int whoami(void)
{
	char status[4096];
	const char *caps;

	if (read_text("/proc/self/status", status, sizeof(status)) < 0)
		status[0] = '\0';
	caps = strstr(status, "CapEff:\t");
	printf("euid=%d ruid=%d capeff=%.16s\n", (int)geteuid(), (int)getuid(),
	       caps ? caps + 8 : "unknown");
	return 0;
}

/* Copies of us are set-uid, for the cases about that: those answer one question, whoever asks. */
static bool is_privileged_copy(void)
{
	return getauxval(AT_SECURE) != 0;
}

int main(int argc, char **argv)
{
	if (is_privileged_copy() && !(argc == 2 && !strcmp(argv[1], "--whoami")))
		return 2;
	if (argc >= 2 && !strcmp(argv[1], "--list"))
		return list_all(), 0;
	if (argc >= 2 && !strcmp(argv[1], "--plant"))
		return plant_main(argc - 2, argv + 2);
	if (argc >= 2 && !strcmp(argv[1], "--act"))
		return act_main(argc - 2, argv + 2);
	if (argc >= 2 && !strcmp(argv[1], "--whoami"))
		return whoami();
	if (argc >= 2 && !strcmp(argv[1], "--control"))
		return run_cases(argc - 2, argv + 2, true);
	if (argc >= 2 && argv[1][0] == '-')
		return usage();
	return run_cases(argc - 1, argv + 1, false);
}

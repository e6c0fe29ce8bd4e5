/*
 * Times how long commands take from spawn to exit, side by side.
 *
 *   spawnbench [-s] [-n ROUNDS] [-w WARMUP] NAME[/K] CMD ARG... , NAME[/K] CMD ARG... , ...
 *   spawnbench -j STREAMS [-t SECONDS] [-n ROUNDS] NAME CMD ARG... , ...
 *
 * The contestants take turns in every round, so that whatever else the machine does hits all of
 * them alike; with /K one takes part in every K-th round only (slow peers). An argument "@" becomes
 * a number that is different each time. CMD "ask:PATH" SOCKET BODY EXPECT is no command but a POST to PATH
 * (/v1/run without one) of a daemon, over a connection that is kept. Output of the commands is dropped; one
 * that fails ends the measurement of that contestant and is reported. Prints one line for each contestant:
 *   NAME <tab> samples <tab> min <tab> p50 <tab> p99 (microseconds)
 * with -s all samples in the order of the rounds instead of the three numbers, or with -j, runs per second of STREAMS parallel streams, median of the rounds:
 *   NAME <tab> rounds <tab> runs per second
 */
#include "ask.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONTESTANTS_MAX = 32 };

struct contestant {
	const char *name;
	char **argv;
	int every;  /* takes part in every so many-th round */
	int failed; /* exit status of the run that failed */
	double *samples;
	int count;
	struct question question; /* of "ask:" */
	int asks, connection;	  /* 0: none yet */
};

struct options {
	int rounds, warmup, streams, samples;
	double seconds;
};

extern char **environ;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* 0, or as if it had failed. */
static int ask_once(struct contestant *c)
{
	static struct answer a;
	int rc = 0;

	if (!c->connection)
		c->connection = question_connect(c->argv[1]);
	a.len = 0;
	if (question_send(&c->question, c->connection, "") < 0)
		return -1;
	while (rc == 0)
		rc = answer_read(&c->question, c->connection, &a);
	return rc == 1 ? 0 : -1;
}

/* Runs the command once; returns its wait status. posix_spawn is vfork-like in both libcs. */
static int run_once(struct contestant *c, const posix_spawn_file_actions_t *quiet)
{
	static unsigned serial;
	char number[32], *argv[256];
	int status, n = 0;
	pid_t pid;

	if (c->asks)
		return ask_once(c);
	snprintf(number, sizeof(number), "b%d-%u", (int)getpid(), serial++);
	for (; c->argv[n] && n < 255; n++)
		argv[n] = strcmp(c->argv[n], "@") ? c->argv[n] : number;
	argv[n] = NULL;
	if (posix_spawnp(&pid, argv[0], quiet, NULL, argv, environ))
		return -1;
	if (waitpid(pid, &status, 0) != pid)
		die("waitpid");
	return status;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double percentile(double *sorted, int count, double p)
{
	int at = (int)(p * count);

	return sorted[at < count ? at : count - 1];
}

static void measure_latency(struct contestant *all, int count, const struct options *o,
			    const posix_spawn_file_actions_t *quiet)
{
	for (int round = -o->warmup; round < o->rounds; round++) {
		for (int i = 0; i < count; i++) {
			struct contestant *c = &all[i];
			double begin;

			if (c->failed || round % c->every)
				continue;
			begin = now_us();
			c->failed = run_once(c, quiet);
			if (round >= 0 && !c->failed)
				c->samples[c->count++] = now_us() - begin;
		}
	}
}

/* One stream: runs the command until the time is up, leaves the number of runs in *ret_runs. */
static void stream(struct contestant *c, double until_us, const posix_spawn_file_actions_t *quiet,
		   volatile int *ret_runs)
{
	c->connection = 0; /* one for each stream */
	while (now_us() < until_us) {
		if (run_once(c, quiet))
			_exit(1);
		++*ret_runs;
	}
	_exit(0);
}

static void measure_slice(struct contestant *c, const struct options *o, volatile int *runs,
			  const posix_spawn_file_actions_t *quiet)
{
	double begin = now_us(), end = begin + o->seconds * 1e6;
	int total = 0, status;

	for (int i = 0; i < o->streams; i++) {
		runs[i] = 0;
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0)
			stream(c, end, quiet, &runs[i]);
	}
	for (int i = 0; i < o->streams; i++) {
		if (wait(&status) < 0)
			die("wait");
		if (status)
			c->failed = status;
	}
	for (int i = 0; i < o->streams; i++)
		total += runs[i];
	c->samples[c->count++] = total / ((now_us() - begin) / 1e6);
}

static void measure_throughput(struct contestant *all, int count, const struct options *o,
			       const posix_spawn_file_actions_t *quiet)
{
	volatile int *runs =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (runs == MAP_FAILED)
		die("mmap");
	for (int round = 0; round < o->rounds; round++)
		for (int i = 0; i < count; i++)
			if (!all[i].failed)
				measure_slice(&all[i], o, runs, quiet);
}

/* Takes "NAME CMD ARG... , NAME ..." apart in place; returns how many there are. */
static int parse_contestants(char **argv, struct contestant *all, int rounds)
{
	int count = 0;

	while (*argv && count < CONTESTANTS_MAX) {
		struct contestant *c = &all[count++];
		char *slash = strchr(*argv, '/');

		c->every = slash ? atoi(slash + 1) : 1;
		if (slash)
			*slash = '\0';
		c->every = c->every < 1 ? 1 : c->every;
		c->name = *argv++;
		c->argv = argv;
		c->samples = calloc((size_t)rounds + 1, sizeof(*c->samples));
		if (!c->samples || !*argv)
			return 0;
		while (*argv && strcmp(*argv, ","))
			argv++;
		if (*argv)
			*argv++ = NULL;
		c->asks = strncmp(c->argv[0], "ask:", 4) == 0;
		if (c->asks && (!c->argv[1] || !c->argv[2] || !c->argv[3]))
			return 0;
		if (c->asks)
			question_make(&c->question, "POST",
				      c->argv[0][4] ? c->argv[0] + 4 : "/v1/run", c->argv[2],
				      c->argv[3]);
	}
	return count;
}

static int report(struct contestant *all, int count, const struct options *o)
{
	int failures = 0;

	for (int i = 0; i < count; i++) {
		struct contestant *c = &all[i];

		if (c->failed || !c->count) {
			fprintf(stderr, "spawnbench: %s: failed with status 0x%x\n", c->name,
				(unsigned)c->failed);
			failures++;
			continue;
		}
		printf("%s\t%d", c->name, c->count);
		for (int n = 0; o->samples && n < c->count; n++)
			printf("\t%.0f", c->samples[n]);
		qsort(c->samples, (size_t)c->count, sizeof(double), compare);
		if (o->samples)
			printf("\n");
		else if (o->streams)
			printf("\t%.1f\n", percentile(c->samples, c->count, 0.5));
		else
			printf("\t%.0f\t%.0f\t%.0f\n", c->samples[0],
			       percentile(c->samples, c->count, 0.5),
			       percentile(c->samples, c->count, 0.99));
	}
	return failures ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct options o = {.rounds = 100, .warmup = 3, .seconds = 1};
	struct contestant all[CONTESTANTS_MAX] = {0};
	posix_spawn_file_actions_t quiet;
	int opt, count;

	while ((opt = getopt(argc, argv, "+sn:w:j:t:")) != -1) {
		if (opt == 'n')
			o.rounds = atoi(optarg);
		else if (opt == 's')
			o.samples = 1;
		else if (opt == 'w')
			o.warmup = atoi(optarg);
		else if (opt == 'j')
			o.streams = atoi(optarg);
		else if (opt == 't')
			o.seconds = atof(optarg);
		else
			return 2;
	}
	count = parse_contestants(argv + optind, all, o.rounds);
	if (!count || o.rounds < 1 || o.streams < 0 || o.streams > 64) {
		fprintf(stderr,
			"usage: spawnbench [-s] [-n ROUNDS] [-w WARMUP] [-j STREAMS -t SECONDS] "
			"NAME[/K] CMD ARG... , ...\n");
		return 2;
	}
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	if (o.streams)
		measure_throughput(all, count, &o, &quiet);
	else
		measure_latency(all, count, &o, &quiet);
	return report(all, count, &o);
}

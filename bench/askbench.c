/*
 * Asks a daemon the same from many connections at once, and times each answer.
 *
 *   askbench [-c CLIENTS] [-n ROUNDS] [-b PAUSE_MS [-1]] SOCKET METHOD PATH BODY EXPECT [METHOD PATH BODY EXPECT]...
 *
 * EXPECT must be in the answer, or it fails. Several questions are asked one after the other and timed as one
 * round; @ in a path is the id that an answer before began with. Each client asks again as soon as it
 * has its answer; with -b all ask at the same moment and wait for the slowest, then pause; with -1 as
 * well one of them asks alone between any two such moments, after the same pause. Prints
 *   rounds <tab> min <tab> p50 <tab> p99 <tab> max (microseconds) <tab> rounds per second <tab> share within 3 x p50
 * and with -1 another such line, of those that asked alone.
 */
#include "ask.h"

#include <poll.h>
#include <stdbool.h>
#include <time.h>

enum { CLIENTS_MAX = 1024, STEPS_MAX = 8 };

struct client {
	double begun;
	int step;
	char id[ID_MAX];
	struct answer answer;
};

struct samples {
	double *us;
	int count;
};

struct bench {
	struct question steps[STEPS_MAX];
	int step_count, clients, rounds, pause_ms;
	bool alternates; /* -1 */
	struct pollfd fds[CLIENTS_MAX];
	struct client *all;
	int sent, done;
	struct samples together, alone, *now;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void ask_step(struct bench *b, int i)
{
	struct client *c = &b->all[i];

	c->answer.len = 0;
	if (question_send(&b->steps[c->step], b->fds[i].fd, c->id) < 0) {
		perror("send");
		exit(1);
	}
}

static void ask(struct bench *b, int i)
{
	b->all[i].begun = now_us();
	b->all[i].step = 0;
	b->sent++;
	ask_step(b, i);
}

static void take(struct bench *b, int i)
{
	struct client *c = &b->all[i];
	int rc = answer_read(&b->steps[c->step], b->fds[i].fd, &c->answer);

	if (rc < 0)
		exit(1);
	if (rc == 0)
		return;
	answer_id(&c->answer, c->id);
	if (++c->step < b->step_count) {
		ask_step(b, i);
		return;
	}
	b->now->us[b->now->count++] = now_us() - c->begun;
	b->done++;
	if (!b->pause_ms && b->together.count + b->sent - b->done < b->rounds)
		ask(b, i);
}

/* Everybody, or with -1 one by itself in every other round. */
static void ask_all(struct bench *b)
{
	bool alone = b->alternates && b->now == &b->together;
	int left = b->rounds - b->together.count, count = b->clients < left ? b->clients : left;

	if (b->pause_ms)
		usleep((unsigned)b->pause_ms * 1000);
	b->now = alone ? &b->alone : &b->together;
	for (int i = 0; i < (alone ? 1 : count); i++)
		ask(b, i);
}

/* Everybody once; with -b again and again, with pauses. */
static void run(struct bench *b)
{
	while (b->together.count < b->rounds) {
		if (b->sent == b->done)
			ask_all(b);
		if (poll(b->fds, (nfds_t)b->clients, 60000) <= 0) {
			fprintf(stderr, "askbench: no answer within a minute\n");
			exit(1);
		}
		for (int i = 0; i < b->clients; i++)
			if (b->fds[i].revents)
				take(b, i);
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct samples *s)
{
	qsort(s->us, (size_t)s->count, sizeof(*s->us), compare);
	return s->us[s->count / 2];
}

/* The last number: how many of them took no longer than three times the usual. */
static void print_samples(const struct samples *s, double begun, double usual)
{
	int n = s->count, within = 0;

	while (within < n && s->us[within] <= 3 * usual)
		within++;
	printf("%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.4f\n", n, s->us[0], s->us[n / 2],
	       s->us[n * 99 / 100], s->us[n - 1], n / ((now_us() - begun) / 1e6),
	       (double)within / n);
}

int main(int argc, char **argv)
{
	static struct bench b = {.clients = 1, .rounds = 100};
	const char *path;
	double begun, usual;
	int opt, n;

	while ((opt = getopt(argc, argv, "c:n:b:1")) != -1) {
		if (opt == 'c')
			b.clients = atoi(optarg);
		else if (opt == 'n')
			b.rounds = atoi(optarg);
		else if (opt == 'b')
			b.pause_ms = atoi(optarg);
		else if (opt == '1')
			b.alternates = true;
		else
			return 2;
	}
	n = argc - optind - 1;
	if (n < 4 || n % 4 || n / 4 > STEPS_MAX || b.clients < 1 || b.clients > CLIENTS_MAX ||
	    b.rounds < 1) {
		fprintf(stderr,
			"usage: askbench [-c CLIENTS] [-n ROUNDS] [-b PAUSE_MS [-1]] SOCKET "
			"METHOD PATH BODY EXPECT...\n");
		return 2;
	}
	path = argv[optind++];
	for (char **a = argv + optind; *a; a += 4)
		question_make(&b.steps[b.step_count++], a[0], a[1], a[2], a[3]);
	b.all = calloc((size_t)b.clients, sizeof(*b.all));
	b.together.us = calloc((size_t)b.rounds, sizeof(double));
	b.alone.us = calloc((size_t)b.rounds + 1, sizeof(double));
	b.now = &b.together;
	for (int i = 0; i < b.clients; i++)
		b.fds[i] = (struct pollfd){.fd = question_connect(path), .events = POLLIN};
	begun = now_us();
	run(&b);
	usual = median(&b.together);
	if (b.alone.count)
		usual = median(&b.alone);
	print_samples(&b.together, begun, usual);
	if (b.alone.count)
		print_samples(&b.alone, begun, usual);
	return 0;
}

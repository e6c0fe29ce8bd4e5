/*
 * Asks a daemon the same from many connections at once, and times each answer.
 *
 *   askbench [-c CLIENTS] [-n ROUNDS] [-b PAUSE_MS] SOCKET METHOD PATH BODY EXPECT [METHOD PATH BODY EXPECT]...
 *
 * EXPECT must be in the answer, or it fails. Several questions are asked one after the other and timed as one
 * round; @ in a path is the id that an answer before began with. Each client asks again as soon as it
 * has its answer; with -b all ask at the same moment and wait for the slowest, then pause. Prints
 *   rounds <tab> min <tab> p50 <tab> p99 <tab> max (microseconds) <tab> rounds per second
 */
#include "ask.h"

#include <poll.h>
#include <time.h>

enum { CLIENTS_MAX = 1024, STEPS_MAX = 8 };

struct client {
	double begun;
	int step;
	char id[ID_MAX];
	struct answer answer;
};

struct bench {
	struct question steps[STEPS_MAX];
	int step_count, clients, rounds, pause_ms;
	struct pollfd fds[CLIENTS_MAX];
	struct client *all;
	double *samples;
	int sent, done;
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
	b->samples[b->done++] = now_us() - c->begun;
	if (!b->pause_ms && b->sent < b->rounds)
		ask(b, i);
}

/* Everybody once; with -b again and again, with pauses. */
static void run(struct bench *b)
{
	while (b->done < b->rounds) {
		if (b->sent == b->done && b->sent < b->rounds) {
			if (b->pause_ms)
				usleep((unsigned)b->pause_ms * 1000);
			for (int i = 0; i < b->clients && b->sent < b->rounds; i++)
				ask(b, i);
		}
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

int main(int argc, char **argv)
{
	static struct bench b = {.clients = 1, .rounds = 100};
	const char *path;
	double begun;
	int opt, n;

	while ((opt = getopt(argc, argv, "c:n:b:")) != -1) {
		if (opt == 'c')
			b.clients = atoi(optarg);
		else if (opt == 'n')
			b.rounds = atoi(optarg);
		else if (opt == 'b')
			b.pause_ms = atoi(optarg);
		else
			return 2;
	}
	n = argc - optind - 1;
	if (n < 4 || n % 4 || n / 4 > STEPS_MAX || b.clients < 1 || b.clients > CLIENTS_MAX ||
	    b.rounds < 1) {
		fprintf(stderr, "usage: askbench [-c CLIENTS] [-n ROUNDS] [-b PAUSE_MS] SOCKET "
				"METHOD PATH BODY EXPECT...\n");
		return 2;
	}
	path = argv[optind++];
	for (char **a = argv + optind; *a; a += 4)
		question_make(&b.steps[b.step_count++], a[0], a[1], a[2], a[3]);
	b.all = calloc((size_t)b.clients, sizeof(*b.all));
	b.samples = calloc((size_t)b.rounds, sizeof(*b.samples));
	for (int i = 0; i < b.clients; i++)
		b.fds[i] = (struct pollfd){.fd = question_connect(path), .events = POLLIN};
	begun = now_us();
	run(&b);
	n = b.done;
	qsort(b.samples, (size_t)n, sizeof(*b.samples), compare);
	printf("%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\n", n, b.samples[0], b.samples[n / 2],
	       b.samples[n * 99 / 100], b.samples[n - 1], n / ((now_us() - begun) / 1e6));
	return 0;
}

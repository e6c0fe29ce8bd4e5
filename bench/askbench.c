/*
 * Asks a daemon the same from many connections at once, and times each answer.
 *
 *   askbench [-c CLIENTS] [-n REQUESTS] [-b PAUSE_MS] SOCKET BODY EXPECT
 *
 * BODY is the JSON of POST /v1/run; EXPECT must be in every answer, or it fails. Each client asks again as
 * soon as it has its answer; with -b all ask at the same moment and wait for the slowest, then pause. Prints
 *   answers <tab> min <tab> p50 <tab> p99 <tab> max (microseconds) <tab> answers per second
 */
#include "ask.h"

#include <poll.h>
#include <time.h>

enum { CLIENTS_MAX = 1024 };

struct client {
	double begun;
	int busy;
	struct answer answer;
};

struct bench {
	struct question question;
	int clients, requests, pause_ms;
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

static void ask(struct bench *b, int i)
{
	b->all[i].begun = now_us();
	b->all[i].answer.len = 0;
	b->all[i].busy = 1;
	b->sent++;
	if (question_send(&b->question, b->fds[i].fd) < 0) {
		perror("send");
		exit(1);
	}
}

static void take(struct bench *b, int i)
{
	struct client *c = &b->all[i];
	int rc = answer_read(&b->question, b->fds[i].fd, &c->answer);

	if (rc < 0)
		exit(1);
	if (rc == 0)
		return;
	b->samples[b->done++] = now_us() - c->begun;
	c->busy = 0;
	if (!b->pause_ms && b->sent < b->requests)
		ask(b, i);
}

/* Everybody once; with -b again and again, with pauses. */
static void run(struct bench *b)
{
	while (b->done < b->requests) {
		if (b->sent == b->done && b->sent < b->requests) {
			if (b->pause_ms)
				usleep((unsigned)b->pause_ms * 1000);
			for (int i = 0; i < b->clients && b->sent < b->requests; i++)
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
	static struct bench b = {.clients = 1, .requests = 100};
	double begun;
	int opt, n;

	while ((opt = getopt(argc, argv, "c:n:b:")) != -1) {
		if (opt == 'c')
			b.clients = atoi(optarg);
		else if (opt == 'n')
			b.requests = atoi(optarg);
		else if (opt == 'b')
			b.pause_ms = atoi(optarg);
		else
			return 2;
	}
	if (argc - optind != 3 || b.clients < 1 || b.clients > CLIENTS_MAX || b.requests < 1) {
		fprintf(stderr, "usage: askbench [-c CLIENTS] [-n REQUESTS] [-b PAUSE_MS] SOCKET "
				"BODY EXPECT\n");
		return 2;
	}
	question_make(&b.question, argv[optind], argv[optind + 1], argv[optind + 2]);
	b.all = calloc((size_t)b.clients, sizeof(*b.all));
	b.samples = calloc((size_t)b.requests, sizeof(*b.samples));
	for (int i = 0; i < b.clients; i++)
		b.fds[i] = (struct pollfd){.fd = question_connect(&b.question), .events = POLLIN};
	begun = now_us();
	run(&b);
	n = b.done;
	qsort(b.samples, (size_t)n, sizeof(*b.samples), compare);
	printf("%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\n", n, b.samples[0], b.samples[n / 2],
	       b.samples[n * 99 / 100], b.samples[n - 1], n / ((now_us() - begun) / 1e6));
	return 0;
}

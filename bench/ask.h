/* A client of the daemon that costs next to nothing: one request, prepared, over a kept connection. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct question {
	const char *socket, *expect; /* path; what must be in the answer */
	char *text;		     /* head and body */
	size_t len;
};

struct answer {
	char bytes[65536];
	size_t len;
};

/* POST /v1/run with the JSON body. */
static inline void question_make(struct question *q, const char *socket, const char *body,
				 const char *expect)
{
	int n;

	*q = (struct question){.socket = socket, .expect = expect};
	n = asprintf(
		&q->text,
		"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n%s",
		strlen(body), body);
	if (n < 0)
		exit(1);
	q->len = (size_t)n;
}

static inline int question_connect(const struct question *q)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", q->socket);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		perror(q->socket);
		exit(1);
	}
	return fd;
}

static inline int question_send(const struct question *q, int fd)
{
	return send(fd, q->text, q->len, MSG_NOSIGNAL) == (ssize_t)q->len ? 0 : -1;
}

/* What came in is 1: the whole answer, and the right one; 0: not all of it; -1: another. */
static inline int answer_judge(const struct question *q, struct answer *a)
{
	char *body, *length;

	a->bytes[a->len] = '\0';
	body = strstr(a->bytes, "\r\n\r\n");
	if (!body)
		return 0;
	length = strcasestr(a->bytes, "\r\ncontent-length:");
	if (!length || length > body)
		return -1;
	body += 4;
	if (strlen(body) < (size_t)atol(length + 17))
		return 0;
	if (strncmp(a->bytes, "HTTP/1.1 200", 12) == 0 && strstr(body, q->expect))
		return 1;
	fprintf(stderr, "not as expected (%s): %s\n", q->expect, body);
	return -1;
}

/* Reads once; as answer_judge. */
static inline int answer_read(const struct question *q, int fd, struct answer *a)
{
	ssize_t n = read(fd, a->bytes + a->len, sizeof(a->bytes) - 1 - a->len);

	if (n <= 0)
		return -1;
	a->len += (size_t)n;
	return answer_judge(q, a);
}

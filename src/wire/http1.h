/*
 * HTTP/1.1, read strictly (rule 26): bytes that two parties read differently can smuggle a request. The
 * server reads requests; previews of ports inside pass on head and body of answers separately; clients of
 * the daemon's API read whole answers:
 *
 *   struct http1_answer a = {0};
 *   rc = http1_answer_feed(&a, bytes, len, &body);     1: complete, 0: more to come, -1: broken
 *   rc = http1_answer_end(&a);                         the connection was closed
 */
#pragma once

#include "base/base.h"

#define HTTP1_HEAD_MAX (64u << 10)
#define HTTP1_FIELDS 128

struct http1_field {
	const char *name, *value;
};

struct http1_head {
	int status;		     /* of an answer */
	const char *method, *target; /* of a request */
	bool is_old;		     /* HTTP/1.0 */
	size_t count;
	struct http1_field fields[HTTP1_FIELDS];
	bool chunked;
	int64_t length; /* -1: not said */
};

/* How long the head at the beginning of the bytes is, with its empty line; 0: not yet complete. */
size_t http1_head_length(const char *bytes, size_t len);
/* Reads one in place: bytes are changed and must live as long as ret. */
int http1_head_read(char *bytes, size_t len, struct http1_head *ret, struct err *e);

/*
 * The same for requests. The length is -1 as soon as the bytes cannot become a head: a bare CR or LF, or a
 * zero byte. *scanned remembers how many bytes were looked at, and begins as 0.
 */
ssize_t http1_request_length(const char *bytes, size_t len, size_t *scanned);
int http1_request_read(char *bytes, size_t len, struct http1_head *ret, struct err *e);
/* "Not Found" for 404. */
const char *http1_reason(int status);

/* The value of the first field of this name, in any case of letters; NULL: there is none. */
const char *http1_field(const struct http1_head *h, const char *name);
/* A field's name, without any blank. */
bool http1_is_token(const char *s);
/* Between two parties of one connection only: never passed on. */
bool http1_is_hop_header(const char *name);
/* Is name one of a list with commas, as Connection has it? In any case of letters. */
bool http1_list_has(const char *list, const char *name);
/* Adds "name: value" and the end of the line. */
void http1_add_field(struct buf *b, const char *name, const char *value);
/*
 * Decodes %XX, and '+' in a query, into ret (len + 1 bytes; may be text itself). False: malformed, or a
 * zero byte.
 */
bool http1_unescape(const char *text, size_t len, bool is_query, char *ret);

enum http1_body_kind { HTTP1_NONE, HTTP1_LENGTH, HTTP1_CHUNKED, HTTP1_TO_END };

struct http1_body {
	enum http1_body_kind kind;
	uint64_t left;	 /* of the body or of this chunk */
	int stage;	 /* within chunks */
	unsigned digits; /* of a size, or bytes of a line */
	bool done;
};

/* What follows this head. no_body: the answer to HEAD. */
void http1_body_begin(struct http1_body *b, const struct http1_head *h, bool no_body);
/* What follows the head of a request. */
void http1_body_begin_request(struct http1_body *b, const struct http1_head *h);
/*
 * A body piece by piece, without a copy: so many bytes of framing come first (-1: malformed), then so many
 * of content, of which some are taken.
 */
ssize_t http1_body_framing(struct http1_body *b, const char *bytes, size_t len);
size_t http1_body_content(const struct http1_body *b, size_t len);
void http1_body_took(struct http1_body *b, size_t len);
/* Adds the content of these bytes to out; -1: malformed, or too many bytes. */
int http1_body_feed(struct http1_body *b, const char *bytes, size_t len, struct buf *out);
/* The connection has ended: is the body complete? */
bool http1_body_end(const struct http1_body *b);

/* An answer as its bytes arrive. Nothing blocks; only the head is kept. */
struct http1_answer {
	struct http1_head head; /* of the final answer; valid if has_head */
	struct http1_body body;
	struct buf text; /* of the head */
	bool has_head;
};

/*
 * Adds the content to body. Interim answers are skipped, but 101 is final: the bytes behind its head are
 * not HTTP, and are added unchanged.
 */
int http1_answer_feed(struct http1_answer *a, const char *bytes, size_t len, struct buf *body);
/* 1: the answer is complete; -1: something is missing. */
int http1_answer_end(const struct http1_answer *a);
void http1_answer_done(struct http1_answer *a);

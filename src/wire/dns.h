/*
 * DNS messages of a resolver that makes its own answers (RFC 1035): reads one question, writes an answer.
 *
 *   rc = dns_query_read(bytes, len, &q);                 0: do not answer; -1: answer with q.rcode
 *   dns_answer_begin(&buf, &q, DNS_OK);
 *   dns_answer_address(&buf, address, 4, ttl_s);         none, one or more records
 *   dns_answer_end(&buf, &q, most);                      cut to what the client takes
 */
#pragma once

#include "base/base.h"

#define DNS_NAME 256 /* with its end */
#define DNS_UDP_MAX 1232
#define DNS_TCP_MAX 4096 /* a query over TCP; answers may be longer */

enum dns_type {
	DNS_A = 1,
	DNS_NULL = 10,
	DNS_PTR = 12,
	DNS_TXT = 16,
	DNS_AAAA = 28,
	DNS_OPT = 41,
	DNS_SVCB = 64,
	DNS_HTTPS = 65,
	DNS_IXFR = 251,
	DNS_AXFR = 252,
	DNS_ANY = 255,
};
enum dns_rcode { DNS_OK, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED };

struct dns_query {
	uint16_t id, flags, type, class;
	enum dns_rcode rcode; /* if it cannot be answered */
	bool has_question;    /* name and type are valid, and question is repeated in the answer */
	char name[DNS_NAME];  /* as it was written, with dots; "" is the root */
	bool is_text;	      /* no label has a dot, a blank or a control character in it */
	bool edns;
	uint16_t udp_size;		      /* what the client takes */
	unsigned char question[DNS_NAME + 8]; /* as it was sent */
	size_t question_len;
};

/* 1: a query; 0: nothing that may be answered; -1: an error, with its rcode. */
int dns_query_read(const unsigned char *bytes, size_t len, struct dns_query *ret);
void dns_answer_begin(struct buf *b, const struct dns_query *q, enum dns_rcode rcode);
/* 4 or 16 bytes: A or AAAA. */
void dns_answer_address(struct buf *b, const unsigned char *address, size_t len, uint32_t ttl_s);
void dns_answer_name(struct buf *b, const char *name, uint32_t ttl_s);
/* One TXT record of pieces that were joined: cut into 255 bytes each. */
void dns_answer_text(struct buf *b, const char *text, size_t len, uint32_t ttl_s);
/* Adds EDNS if it was asked for. An answer that is longer than `most` is cut to its question, and says so. */
void dns_answer_end(struct buf *b, const struct dns_query *q, size_t most);
/* The address in "4.3.2.1.in-addr.arpa" or its like for IPv6, IPv4 mapped. False: it is none. */
bool dns_reverse_address(const char *name, unsigned char ret[16]);

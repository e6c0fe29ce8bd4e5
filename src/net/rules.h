/*
 * Rules for a sandbox's network. Text is compiled once (rule.c, sets.c) into fixed rows that can be passed
 * on as bytes and be checked without parsing text; the egress program makes an index of them, whose cost does
 * not grow with the number of rules.
 *
 * A policy has stages: the operator's, the token's, the request's. A destination is allowed if every stage
 * allows it, so the effective network is the narrowest of them, and no stage need be compared with another.
 * Within a stage deny wins.
 *
 *   struct net_policy_maker *m = net_policy_new();
 *   net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
 *   net_policy_add(m, NET_RULE_ALLOW, "*.example.com:443", &e);    a rule, or "@pypi", a named set
 *   net_policy_write(m, &buf);   net_policy_free(m);
 *
 *   struct net_index *x = net_index_new(bytes, len, &e);           checks everything first
 *   net_decide(x, &question, &answer);
 *
 * Text of a rule: [udp://]HOST[:PORT[-PORT]] [METHOD[,METHOD...]] [/PATH] [inspect] [no-sni] [txt], where HOST is
 * a name, *.name, an address, a network ("10.0.0.0/8:5432", "[2001:db8::/32]:443"), "localhost" (one port of the
 * host's loopback) or "*" (every public address).
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "model/spec.h"
#include "net/name.h"

#define NET_RULES_MAX 16384
#define NET_POLICY_MAX (1u << 20)
#define NET_STAGES 4
#define NET_UDP_PORTS 16

/* Whose stage it is. */
enum net_source { NET_BY_OPERATOR, NET_BY_TOKEN, NET_BY_TRUST, NET_BY_REQUEST };
enum net_verdict { NET_RULE_DENY, NET_RULE_ALLOW };
enum net_rule_kind {
	NET_RULE_NAME = 1,  /* exactly this name */
	NET_RULE_BELOW,	    /* every name below this one: *.name */
	NET_RULE_NETWORK,   /* address and prefix length */
	NET_RULE_LOCALHOST, /* ports of the host's own loopback */
	NET_RULE_ANY,	    /* every public destination */
};
enum net_rule_flags {
	NET_RULE_UDP = 1, /* else TCP */
	NET_RULE_INSPECT =
		2, /* TLS is opened: a rule for methods or paths of HTTPS, or a secret's host */
	NET_RULE_NO_SNI = 4, /* TLS without a server name is allowed */
	NET_RULE_TXT = 8,    /* TXT queries for the name are answered */
};
enum net_method {
	NET_GET = 1,
	NET_HEAD = 2,
	NET_POST = 4,
	NET_PUT = 8,
	NET_PATCH = 16,
	NET_DELETE = 32,
	NET_OPTIONS = 64,
	NET_TRACE = 128,
	NET_CONNECT = 256,
	NET_OTHER_METHOD = 512,
};

struct net_rule {
	uint8_t verdict, kind, flags, bits; /* bits: of a network, with IPv4 mapped: 96 to 128 */
	uint16_t first_port, last_port;	    /* 0, 65535: all */
	uint16_t methods;		    /* 0: all */
	uint16_t stage;
	unsigned char address[16];
	uint32_t name, path; /* offsets of strings, from the first string; 0: none */
	uint32_t text;	     /* the rule as it was written, for records */
};

/* Each 0: no bound. Reaching one is a denial with the member's name as its reason. */
struct net_budget {
	uint64_t tx_bytes, rx_bytes;
	uint64_t tx_rate, rx_rate; /* bytes a second */
	uint32_t connections;	   /* in all */
	uint32_t open;		   /* at one time */
	uint32_t names;		   /* distinct names asked for */
	uint32_t requests;	   /* HTTP requests and connections a minute */
};

/* The bytes: this head, rules, then strings, each with its end; the first string is "". */
struct net_policy {
	uint32_t version, size;
	uint32_t rule_count, stage_count;
	uint8_t modes[NET_STAGES];   /* enum net, by stage */
	uint8_t sources[NET_STAGES]; /* enum net_source */
	struct net_budget budget;
	struct net_rule rules[];
};

struct net_policy_maker;
struct net_policy_maker *net_policy_new(void);
void net_policy_free(struct net_policy_maker *m);
void net_policy_stage(struct net_policy_maker *m, int mode, enum net_source by);
/* To the last stage. Errors say what is wrong with the text. */
int net_policy_add(struct net_policy_maker *m, enum net_verdict verdict, const char *text,
		   struct err *e);
/* The tightest of this and what was set before. */
void net_policy_budget(struct net_policy_maker *m, const struct net_budget *b);
int net_policy_write(struct net_policy_maker *m, struct buf *ret, struct err *e);
/*
 * The stage that a finished spec asks for: its mode, rules and budget. Errors name the field. net_check_spec only
 * tells whether the rules are rules.
 */
int net_from_spec(struct net_policy_maker *m, const struct sandbox_spec *s, enum net_source by,
		  struct err *e);
int net_check_spec(const struct sandbox_spec *s, struct err *e);
/* Everything that net_decide relies on. The bytes must be aligned as a struct net_policy is. */
int net_policy_check(const void *bytes, size_t len, struct err *e);
/* A string of a rule, by its offset. */
const char *net_policy_string(const struct net_policy *p, uint32_t offset);

struct net_question {
	const char *name;	      /* canonical, or NULL: an address was dialled */
	const unsigned char *address; /* to be dialled, or NULL: not resolved yet */
	uint16_t port;		      /* 0: any port would do (a name is being looked up) */
	bool udp;
	bool own;	  /* the address is one of the host's own */
	bool peer;	  /* the name is a sandbox of the same isolated segment */
	unsigned method;  /* one of enum net_method, or 0: not known yet, or not HTTP */
	const char *path; /* of the request, with its query; NULL: not known yet */
};

struct net_answer {
	bool allowed;
	bool http; /* each request must be asked for, too: rules have methods or paths */
	bool inspect, no_sni, txt; /* by the rules that allow it; inspect also with http */
	unsigned looked_at;	   /* how many rules were compared */
	const char *rule; /* text of the deciding rule; "" if none matched; the index owns it */
	char why[320];	  /* of a denial */
	char wanted
		[320]; /* the smallest rule of the request that would allow it; "" if none would */
	char remedy[384]; /* the same in words: --allow example.com:443 */
};

struct net_index;
struct net_index *net_index_new(const void *bytes, size_t len, struct err *e);
void net_index_free(struct net_index *x);
const struct net_policy *net_index_policy(const struct net_index *x);
/* Is there a rule for addresses that depends on what is said? */
bool net_index_judges_addresses(const struct net_index *x);
/*
 * Twice for a connection by name: first by name and port, then with the resolved address as well: a name that
 * leads to an address that is not public needs a rule that names the address, too, or localhost.
 */
void net_decide(const struct net_index *x, const struct net_question *q, struct net_answer *ret);
/* Of a method's name; NET_OTHER_METHOD if it is not known. */
unsigned net_method_find(const char *name, size_t len);
/* "" if it has none. */
const char *net_method_name(unsigned method);
/* Networks and ports of allowing rules, which the namespace must redirect; returns the count, at most room. */
size_t net_policy_networks(const void *bytes, struct network *ret, size_t room);
/* At most NET_UDP_PORTS are written. */
size_t net_policy_udp_ports(const void *bytes, uint16_t *ret);
size_t net_policy_localhost_ports(const void *bytes, uint16_t *ret, size_t room);
/* Is there a rule for which TLS must be opened? */
bool net_policy_inspects(const void *bytes);
/* Mode of the narrowest stage: none, isolated, allow, public. */
int net_policy_mode(const void *bytes);

/*
 * Secrets: values that a program uses without ever having them. The program gets a placeholder; egress puts the
 * value in its place, towards the secret's hosts and in its header only (docs/secrets.md).
 *
 *   struct secret_def d;
 *   secret_parse("OPENAI_API_KEY,env=KEY,host=api.openai.com", &d, &e);    or secret_set for each key, and
 *   secret_finish(&d, &e);                                                 defaults of well-known names, checks
 */
#pragma once

#include "base/base.h"

#define SECRET_NAME 64 /* as IPC_NAME */
#define SECRET_HOSTS 16
#define SECRET_HOST 128
#define SECRET_HEADER 128 /* one place */
#define SECRET_PLACES 256 /* all of them, with " | " between */
#define SECRET_PREFIX 24
#define SECRET_PLACEHOLDER 80
#define SECRET_VALUE 16383
#define SECRET_ARGS 8
#define SECRETS_PER_SANDBOX 16

/* Where a secret's value may go. Plain data, part of messages and files. */
struct secret_rule {
	char name[SECRET_NAME]; /* and of the variable that holds the placeholder */
	uint32_t host_count;
	char hosts[SECRET_HOSTS][SECRET_HOST]; /* a name, or name:port; 443 otherwise */
	char header
		[SECRET_PLACES]; /* "Authorization: Bearer {}"; "basic"; "query:NAME"; or several: "A | B" */
	char prefix[SECRET_PREFIX]; /* of the placeholder, for clients that look at it */
	uint64_t uses_max;	    /* 0: no bound */
};

/* Where a value is read from; exactly one of them. */
struct secret_source {
	char env[SECRET_NAME];
	char file[1024];
	uint32_t argc;
	char argv[SECRET_ARGS][256]; /* a program that prints it */
};

struct secret_def {
	struct secret_rule rule;
	struct secret_source from;
};

/* NAME[,KEY=VALUE]...; a comma in a value is written "\,". Without a source: the variable NAME. */
int secret_parse(const char *text, struct secret_def *ret, struct err *e);
/* The same text again. The caller frees it. */
char *secret_format(const struct secret_def *d);
/* One key: env, file, command (each call adds an argument), host (the same), header, prefix, uses. */
int secret_set(struct secret_def *d, const char *key, const char *value, struct err *e);
/* Fills in what is known of the name, and checks the rest. */
int secret_finish(struct secret_def *d, struct err *e);
/* The same for the part that clients give, who have no source. */
int secret_rule_finish(struct secret_rule *r, struct err *e);
/* The place after this one in a header's text (NULL: the first); NULL: there is no more. */
const char *secret_next_place(const char *header, const char *before, char ret[SECRET_HEADER]);
/* Is the text i only the name of a secret that another of them defines? */
bool secret_is_reference(const struct list *texts, size_t i);
/*
 * No secret, but a header that egress sets in requests to a host; the daemon's own, from E2B's rules:
 * "@HOST NAME Header: text {}", or "@HOST - Header: text" without a secret.
 */
bool secret_is_header(const char *text);
/* Checks all texts; adds a rule for each host, "api.example.com:443", to allow. */
int secret_check_list(const struct list *texts, struct list *allow, struct err *e);
/* May this be the name of a variable? */
bool secret_name_is_variable(const char *name);
/* A random one for this secret. -1 with errno: no random bytes. */
int secret_placeholder(const struct secret_rule *r, char ret[SECRET_PLACEHOLDER]);
/* Could it be one of secret_placeholder's? */
bool secret_is_placeholder(const struct secret_rule *r, const char *text);

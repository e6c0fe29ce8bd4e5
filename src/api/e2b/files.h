/* What the file code of the door shares: entries, and the two directions of /files. */
#pragma once

#include "api/e2b/e2b.h"
#include "calls/calls.h"

#define E2B_XATTR "user.e2b." /* metadata of a file */

/* EntryInfo in the making (e2b_entry.c). */
struct e2b_entry {
	json_t *info;
	char *path, *target; /* target: of a link, or NULL */
	char kind;
	void (*done)(void *arg, struct e2b_entry *entry);
	void *arg;
};
/* EntryInfo without the fields that need more questions. */
json_t *e2b_entry_info(const struct file_info *f);
struct e2b_entry *e2b_entry_new(const struct file_info *f);
void e2b_entry_free(struct e2b_entry *entry);
/* Asks for a link's target and the metadata, then calls done, perhaps from within. */
void e2b_entry_complete(struct e2b_request *q, struct e2b_entry *entry,
			void (*done)(void *arg, struct e2b_entry *entry), void *arg);
/* For an answer with a file's info: completes it, answers the request with {"entry":...}. */
void e2b_entry_reply(void *q, const struct answer *a, const struct err *e);

/* A path of the message, resolved and clean; NULL after an answer. The caller frees it. */
char *e2b_path_of(struct e2b_request *q, const char *key);

/* Answers with the HTTP status of a guest's error. */
void e2b_files_error(struct exchange *x, const struct err *e);
/* Resolves a path for the user that the request names; NULL after an answer. */
char *e2b_files_path(struct e2b_request *q, const char *path);

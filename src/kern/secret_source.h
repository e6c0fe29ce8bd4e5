/* Reads the value of a secret, or a master key, from where its definition says. */
#pragma once

#include "model/secret.h"

/* The ids that a command is run with; uid 0 with gid 0: those of the caller. */
struct secret_reader {
	uid_t uid;
	gid_t gid;
};

/*
 * Less than room bytes; errors name the source and hold no byte of it. A command has 10 s, and its standard
 * output is taken.
 */
int secret_read(const struct secret_source *s, const struct secret_reader *as, char *ret,
		size_t room, size_t *ret_len, struct err *e);
/* The length without newlines at the end, which files and commands have. */
size_t secret_trim(const char *value, size_t len);
/* Memory for values: locked, not in a core, not in a child. NULL: there is none. */
void *secret_memory(size_t size);
void secret_memory_free(void *p, size_t size);
/* Overwrites the variable's value in this process, so that no child inherits it. */
void secret_forget_variable(const char *name);

/* Words of a Dockerfile: variables are replaced, quotes go. Docker's rules, which are a part of the shell's. */
#pragma once

#include "base/base.h"

/* The value of name in lists of "K=V", of which the first that has it counts; NULL: none has. */
const char *variables_find(const struct list *const *lists, const char *name, size_t len);

/*
 * "$A", "${A}", "${A:-default}", "${A:+other}" and the same without the colon. lists end with NULL. The caller frees
 * the result; NULL: malformed, or longer than 64 KB.
 */
char *expand_word(const char *word, const struct list *const *lists, struct err *e);
/* Only variables: quotes stay, as in a heredoc. */
char *expand_text(const char *text, const struct list *const *lists, struct err *e);

/* Any bytes as the token file. */
#include "fuzz.h"

#include "auth/tokens.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tokens *t = tokens_new();
	struct err e = {0};

	if (tokens_load(t, (const char *)data, size, &e) < 0) {
		PROMISE(e.kind != ERR_NONE);
		PROMISE(tokens_count(t) == 0);
	}
	for (size_t i = 0; i < tokens_count(t); i++) {
		char line[TOKEN_LINE], again[TOKEN_LINE];
		size_t len = token_format(tokens_at(t, i), line, sizeof(line));
		struct token back;
		struct caller who = {0};

		/* What is written is read again, and means the same. */
		PROMISE(len < sizeof(line));
		PROMISE(token_parse(line, len, &back, &e) == 0);
		PROMISE(token_format(&back, again, sizeof(again)) == len);
		PROMISE(strcmp(line, again) == 0);
		/* A hash is no key. */
		PROMISE(!tokens_check(t, line, 0, &who));
	}
	tokens_free(t);
	return 0;
}

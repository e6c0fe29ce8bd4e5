/* A command line: the first byte says for which verb, NULs part the arguments. */
#include "fuzz.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"

#include <string.h>

/* The launcher's own has main beside it; here --policy finds no cloched, and starts nothing. */
int cli_find_helper(const char *name, char *ret, size_t size)
{
	(void)name;
	(void)ret;
	(void)size;
	return -1;
}

int cli_fail(const struct err *e)
{
	(void)e;
	return EXIT_CLOCHE;
}

static void format_all(const struct sandbox_spec *s)
{
	char text[256];

	for (size_t i = 0; i < spec_field_count; i++)
		if (spec_format(s, &spec_fields[i], text, sizeof(text)))
			PROMISE(memchr(text, '\0', sizeof(text)));
}

static void parse(char **argv, int argc, bool for_code)
{
	struct options o = {.for_code = for_code};
	struct sandbox_spec s;
	struct err e = {0};
	int rest;

	spec_init(&s);
	rest = options_parse(&s, argc, argv, &o, &e);
	PROMISE(rest >= -1 && rest <= argc && rest != 0);
	PROMISE((rest == -1) == (e.kind != ERR_NONE));
	if (rest > 0 && spec_finish(&s, &e) < 0)
		PROMISE(e.field[0] && e.msg[0]);
	format_all(&s);
	spec_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct list args = {0};
	auto_free char *text = must_alloc(malloc(size + 1));

	if (size < 1 || size > 65536)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	list_add(&args, "cloche");
	for (size_t i = 1; i <= size; i += strlen(text + i) + 1)
		list_add(&args, text + i);
	parse(args.items, (int)args.count, text[0] & 1);
	list_done(&args);
	return 0;
}

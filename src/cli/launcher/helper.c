/* Used by launcher and cloched: error messages, and the path of the other program. */
#include "cli/cli.h"

#include "base/jsonw.h"

#include <ftw.h>

int cli_fail(const struct err *e)
{
	char text[sizeof(e->msg)];

	/* The message may quote foreign text, which must not control the terminal. */
	str_sanitise(text, sizeof(text), e->msg, strlen(e->msg));
	fprintf(stderr, "cloche: %s\n", text);
	return EXIT_CLOCHE;
}

int cli_fail_json(const struct err *e)
{
	struct jsonw j;

	jsonw_begin(&j, stdout);
	jsonw_open(&j, NULL, '{');
	jsonw_open(&j, "error", '{');
	jsonw_string(&j, "kind", err_kind_name(e->kind));
	jsonw_string(&j, "message", e->msg);
	jsonw_string(&j, "field", e->field[0] ? e->field : NULL);
	jsonw_close(&j, '}');
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	jsonw_finish(&j);
	return cli_fail(e);
}

int cli_fail_spec(const struct sandbox_spec *s, const struct err *e)
{
	return s->json ? cli_fail_json(e) : cli_fail(e);
}

int cli_find_helper(const char *name, char *ret, size_t size)
{
	static const char *const places[] = {"", "../libexec/cloche/", "../../bin/"};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		auto_free char *file = str_format("%s%s", places[i], name);

		if (io_beside_program(file, ret, size) == 0 && access(ret, X_OK) == 0)
			return 0;
	}
	return -1;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	remove(path);
	return 0;
}

void cli_remove_tree(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

bool cli_is_one_of(const char *word, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(word, words[i]))
			return true;
	return false;
}

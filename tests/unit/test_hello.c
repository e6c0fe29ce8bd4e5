#include "daemon/broker/start_banner.h"

#include "base/auto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *said(const char *const *addresses, size_t count)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	hello_print(addresses, count, to);
	fclose(to);
	return text;
}

static void test_both(void **state)
{
	const char *const at[] = {"127.0.0.1:7070", "unix:/run/cloche/cloche.sock"};
	auto_free char *text = said(at, ARRAY_LEN(at));

	(void)state;
	assert_non_null(strstr(text, "cloche exec $(cloche create)"));
	assert_null(strstr(text, "CLOCHE_URL=unix:"));
	assert_non_null(strstr(text, "export E2B_API_URL=http://127.0.0.1:7070 "));
	assert_non_null(strstr(text, "claude mcp add cloche -- cloche mcp"));
}

/* What is printed must work when it is pasted. */
static void test_no_socket(void **state)
{
	const char *const at[] = {"127.0.0.1:7070"};
	auto_free char *text = said(at, ARRAY_LEN(at));

	(void)state;
	assert_null(strstr(text, "without a key"));
	assert_null(strstr(text, "cloche create"));
	assert_non_null(strstr(text, "export CLOCHE_URL=http://127.0.0.1:7070 "));
}

static void test_socket_elsewhere(void **state)
{
	const char *const at[] = {"unix:/srv/box"};
	auto_free char *text = said(at, ARRAY_LEN(at));

	(void)state;
	assert_non_null(strstr(text, "  export CLOCHE_URL=unix:/srv/box\n  cloche exec "));
	assert_null(strstr(text, "E2B"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both),
		cmocka_unit_test(test_no_socket),
		cmocka_unit_test(test_socket_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/auto.h"
#include "base/str.h"
#include "model/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void read_text(const char *text, struct guard_report *ret)
{
	guard_read_report(GUARD_STRICT, text, strlen(text), ret);
}

static void makes_the_command(void **state)
{
	static const char *const expected[] = {"python3",	"-I",	   "/run/guard/guard.py",
					       "--profile",	"imports", "--allow",
					       "json",		"--deny",  "os",
					       "--deny-node",	"While",   "--report",
					       ".cloche-guard", "--",	   "/run/code/main.py"};
	struct list allow = {0}, deny = {0}, nodes = {0}, argv = {0};
	const struct guard_call call = {GUARD_IMPORTS, &allow, &deny, &nodes,
					NULL,	       NULL,   NULL,  "/run/code/main.py"};

	(void)state;
	list_add(&allow, "json");
	list_add(&deny, "os");
	list_add(&nodes, "While");
	guard_argv(&call, &argv);
	assert_int_equal(argv.count, ARRAY_LEN(expected));
	for (size_t i = 0; i < argv.count; i++)
		assert_string_equal(argv.items[i], expected[i]);
	list_done(&allow);
	list_done(&deny);
	list_done(&nodes);
	list_done(&argv);
}

static void carries_its_files(void **state)
{
	static const struct guest_file *const files[] = GUARD_FILES;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		assert_true(files[i]->size > 1000);
		assert_ptr_equal(guest_file_find(files[i]->name), files[i]);
	}
	assert_non_null(guest_file_find("kernel.py"));
	assert_null(guest_file_find("nothing"));
}

static void explains(void **state)
{
	struct guard_report r;

	(void)state;
	read_text("refused\timport\tsocket.x\t3\nrefused\timport\tsocket.x\t9\n"
		  "refused\tbuiltin\topen\t0\n",
		  &r);
	assert_int_equal(r.count, 2);
	assert_string_equal(r.denials[0].target, "import socket.x");
	assert_string_equal(r.denials[0].rule, "guard strict");
	assert_int_equal(r.denials[0].count, 2);
	assert_non_null(strstr(r.denials[0].explain, "Line 3. "));
	assert_non_null(strstr(r.denials[0].explain, "--guard-allow socket"));
	assert_null(strstr(r.denials[0].explain, "socket.x"));
	assert_null(strstr(r.denials[1].explain, "Line"));
}

static void trusts_nothing(void **state)
{
	struct guard_report r;
	char many[4096] = "";
	size_t len = 0;

	(void)state;
	read_text("", &r);
	assert_int_equal(r.count, 0);
	read_text("\n\t\t\t\n\nrefused\nrefused\tnothing\tx\t1\nrefused\timport\tno line end", &r);
	assert_int_equal(r.count, 0);
	read_text("refused\timport\tx; rm -rf /\t1\n", &r);
	assert_null(strstr(r.denials[0].explain, "rm -rf"));
	read_text("refused\timport\t\x1b[31m\xff\t99999999999999999999\n", &r);
	assert_string_equal(r.denials[0].target, "import ?[31m?");
	for (int i = 0; i < 100; i++)
		len += (size_t)snprintf(many + len, sizeof(many) - len, "refused\tname\tn%d\t1\n",
					i);
	read_text(many, &r);
	assert_int_equal(r.count, GUARD_DENIALS);
}

static void notes(void **state)
{
	struct guard_report r;
	char text[160];

	(void)state;
	read_text("noted\tfile\topen /x\t1\nnoted\tfile\topen /y\t1\nnoted\tsocket\ts\t2\n", &r);
	assert_int_equal(r.count, 0);
	assert_true(guard_format_notes(&r, text, sizeof(text)));
	assert_string_equal(text, "The guard saw use of: file (2), socket (1)");
	read_text("noted\tnothing\tx\t1\n", &r);
	assert_false(guard_format_notes(&r, text, sizeof(text)));
	assert_string_equal(text, "");
}

static void names(void **state)
{
	(void)state;
	assert_true(guard_is_name("os.path") && guard_is_name("_x1"));
	assert_false(guard_is_name("") || guard_is_name("a b") || guard_is_name("a-b") ||
		     guard_is_name("\xc3\xa9"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makes_the_command),
		cmocka_unit_test(carries_its_files),
		cmocka_unit_test(explains),
		cmocka_unit_test(trusts_nothing),
		cmocka_unit_test(notes),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which snippets may run away from the caller's directory. */
#include "model/standalone.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char *const alone[] = {
	"",
	"print(6 * 7)",
	"import json, math\nprint(json.dumps({'a': math.pi}))",
	"import collections.abc\nfrom json import (dumps,\n loads)",
	"import random as r; r.seed(1)",
	"import sys\nsys.exit(3)",
	"import sys; sys.stderr.write('b\\n'); sys . stdout.flush()",
	"class A:\n def __init__(self): self.x = 1\nif __name__ == '__main__': print(A().x)",
	"for _ in range(3): pass",
	"x = [1e5, 0x1f, 'a very long text with many words that mean nothing to anybody']",
	"assert 1, 'as'",
	"import time\nassert time.time() > 0",
	"osmium = opening = systems = 1",
	"d = {}; d.setdefault('important', 1)",
};

static const char *const needy[] = {
	"import os",
	"import json, os",
	"import json,\\\n os",
	"import os.path",
	"from os import getcwd",
	"from . import x",
	"import mine",
	"from mine import *",
	"import collections.mine, mine",
	"import json as os",
	"open('a')",
	"f = open",
	"exec('1')",
	"getattr(json, 'x')",
	"print(__file__)",
	"json.codecs.builtins",
	"random._os.getcwd()",
	"().__class__.__base__.__subclasses__()",
	"import sys as s",
	"import sys.x",
	"from sys import path",
	"s = sys",
	"sys.modules['x']",
	"sys.path",
	"import calendar; calendar.sys.path",
	"from calendar import sys",
	"sys.stdout.buffer.raw",
	"import contextlib\nwith contextlib.chdir('/'): pass",
	"(x for x in y).gi_frame.f_globals",
	"'{0.\\x6fs}'.format(x)",
	"'\\u006fs'",
	"'\\157s'",
	"print('caf\xc3\xa9')",
	"\xef\xbd\x8f\xef\xbd\x93",
	"f'{open(1)}'",
	"import",
	"from",
	"sys",
	"from json",
	"breakpoint()",
	"_x = 1",
};

static const struct {
	const char *name;
	bool shadows;
} entries[] = {
	{"json.py", true},
	{"json", true},
	{"os.py", true},
	{"encodings", true},
	{"sitecustomize.py", true},
	{"_json.cpython-311-x86_64-linux-gnu.so", true},
	{"re.pyc", true},
	{"main.py", false},
	{"__pycache__", false},
	{"__init__.py", false},
	{".json", false},
	{"jsonx.py", false},
	{"README.md", false},
	{".", false},
	{"..", false},
	{"a-name-that-is-far-longer-than-any-module-of-python.py", false},
};

static void test_alone(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(alone); i++)
		if (!standalone_code(alone[i], strlen(alone[i])))
			fail_msg("stands alone: %s", alone[i]);
}

static void test_needy(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(needy); i++)
		if (standalone_code(needy[i], strlen(needy[i])))
			fail_msg("needs something: %s", needy[i]);
	assert_false(standalone_code("x = 1\0open(2)", 13));
}

static void test_size(void **state)
{
	static char large[(64 << 10) + 1];

	memset(large, ' ', sizeof(large));
	assert_true(standalone_code(large, sizeof(large) - 1));
	assert_false(standalone_code(large, sizeof(large)));
}

static void test_shadows(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		if (standalone_is_shadow(entries[i].name) != entries[i].shadows)
			fail_msg("%s", entries[i].name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_needy),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_shadows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

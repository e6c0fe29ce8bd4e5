/* One wait status, one name for it: model/outcome.h. */
#include "model/outcome.h"

#include "base/auto.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define EXIT(code) ((code) << 8)

static void test_judgements(void **state)
{
	static const struct {
		struct ending from;
		enum status status;
		int exit_code, signal;
		unsigned hits;
	} cases[] = {
		{{.wait_status = EXIT(0)}, STATUS_EXITED, 0, 0, 0},
		{{.wait_status = EXIT(3)}, STATUS_EXITED, 3, 0, 0},
		{{.wait_status = SIGSEGV}, STATUS_SIGNALED, -1, SIGSEGV, 0},
		{{.wait_status = SIGXFSZ}, STATUS_SIGNALED, -1, SIGXFSZ, HIT_FILE_SIZE},
		{{.wait_status = EXIT(128 + SIGXFSZ)},
		 STATUS_EXITED,
		 128 + SIGXFSZ,
		 0,
		 HIT_FILE_SIZE},
		{{.wait_status = SIGXCPU}, STATUS_SIGNALED, -1, SIGXCPU, 0},
		{{.wait_status = SIGXCPU, .has_cpu_limit = true}, STATUS_CPU_TIME, -1, SIGXCPU, 0},
		{{.exec_errno = ENOENT}, STATUS_EXITED, 127, 0, 0},
		{{.exec_errno = ENOTDIR}, STATUS_EXITED, 127, 0, 0},
		{{.exec_errno = EACCES, .was_ended = true, .reason = STATUS_TIMEOUT},
		 STATUS_EXITED,
		 126,
		 0,
		 0},
		{{.wait_status = SIGKILL, .was_ended = true, .reason = STATUS_TIMEOUT},
		 STATUS_TIMEOUT,
		 -1,
		 SIGKILL,
		 0},
		{{.wait_status = EXIT(0), .was_ended = true, .reason = STATUS_KILLED},
		 STATUS_KILLED,
		 -1,
		 SIGKILL,
		 0},
		{{.was_ended = true, .reason = STATUS_KILLED, .reason_signal = SIGTERM},
		 STATUS_KILLED,
		 -1,
		 SIGTERM,
		 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct outcome o;

		outcome_judge(&cases[i].from, &o);
		assert_int_equal(o.status, cases[i].status);
		assert_int_equal(o.exit_code, cases[i].exit_code);
		assert_int_equal(o.signal, cases[i].signal);
		assert_int_equal(o.limits_hit, cases[i].hits);
		assert_int_equal(o.pids_peak, -1);
		assert_int_equal(o.disk_bytes, -1);
	}
}

static void test_memory(void **state)
{
	static const struct {
		struct ending from;
		enum status status;
		unsigned hits;
	} cases[] = {
		{{.wait_status = SIGKILL}, STATUS_OOM, 0},
		{{.wait_status = EXIT(137)}, STATUS_OOM, 0},
		/* A child was killed, and the command did without. */
		{{.wait_status = EXIT(0)}, STATUS_EXITED, HIT_MEMORY},
		{{.exec_errno = ENOENT}, STATUS_EXITED, HIT_MEMORY},
		{{.was_ended = true, .reason = STATUS_TIMEOUT}, STATUS_TIMEOUT, HIT_MEMORY},
		{{.was_ended = true, .reason = STATUS_KILLED}, STATUS_KILLED, HIT_MEMORY},
		{{.was_ended = true, .reason = STATUS_OOM}, STATUS_OOM, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct outcome o;

		outcome_judge(&cases[i].from, &o);
		outcome_add_oom(&o, cases[i].from.was_ended);
		assert_true(o.oom_killed);
		assert_int_equal(o.status, cases[i].status);
		assert_int_equal(o.limits_hit, cases[i].hits);
		assert_int_equal(o.signal, o.status == STATUS_EXITED ? 0 : SIGKILL);
	}
}

static void test_names(void **state)
{
	enum status found;

	(void)state;
	for (int i = 0; i < STATUS_COUNT; i++) {
		assert_true(status_find(status_name((enum status)i), &found));
		assert_int_equal(found, i);
	}
	assert_false(status_find("unknown", &found));
	assert_string_equal(status_name(STATUS_COUNT), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judgements),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Runs a Python snippet in a sandbox and says how it went.
 *   cc hello.c -lcloche -o hello && ./hello
 */
#include <cloche.h>
#include <stdio.h>

int main(void)
{
	struct cloche *c = cloche_new();
	struct cloche_result *result;
	int success;

	if (!c)
		return 1;
	cloche_set(c, "memory", "256M");
	cloche_set(c, "timeout", "10s");
	cloche_set(c, "empty", "true");
	if (cloche_code(c, "python", "print('hello from inside,', 6 * 7)", &result) < 0) {
		fprintf(stderr, "hello: %s\n", cloche_error_message(c));
		cloche_free(c);
		return 1;
	}
	printf("%s", cloche_result_stdout(result, NULL));
	printf("%s with %d after %.1f ms\n", cloche_result_status(result),
	       cloche_result_exit_code(result), cloche_result_number(result, "duration_ms"));
	success = cloche_result_success(result);
	cloche_result_free(result);
	cloche_free(c);
	return success ? 0 : 1;
}

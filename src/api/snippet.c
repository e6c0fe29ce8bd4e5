/* How REST and MCP run code in a sandbox: write the file, then run it. */
#include "api/snippet.h"

#include "base/auto.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

void snippet_choose_path(const struct language *l, char ret[SNIPPET_PATH])
{
	auto_free char *path = NULL;
	char dir[SNIPPET_PATH];
	uint64_t name = 0;

	(void)!getrandom(&name, sizeof(name), 0);
	snprintf(dir, sizeof(dir), "/tmp/.cloche/%016" PRIx64, name);
	path = snippet_path(l, dir, NULL);
	snprintf(ret, SNIPPET_PATH, "%s", path);
}

struct call *snippet_put(struct sandbox *s, const char *path, const json_t *code, answer_done done,
			 void *arg)
{
	const struct file_put put = {path, 0644, json_string_value(code), json_string_length(code)};

	return call_put(s, &put, done, arg);
}

void snippet_request(const struct language *l, const char *path, struct exec_request *ret)
{
	struct err none;

	snippet_argv(l, path, NULL, NULL, &ret->argv, &none);
	snippet_env("/workspace", &ret->env);
	ret->file = path;
	ret->snippet = snippet_is_python(l);
}

#include "api/snippet.h"

#include "base/str.h"
#include "model/language.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

void snippet_path(const struct language *l, char ret[SNIPPET_PATH])
{
	uint64_t name = 0;

	(void)!getrandom(&name, sizeof(name), 0);
	snprintf(ret, SNIPPET_PATH, "/tmp/.cloche/%016" PRIx64 "/main%s", name, l->ending);
}

void snippet_request(const struct language *l, const char *path, struct exec_request *ret)
{
	language_command(l, path, &ret->argv);
	/* Modules of the workspace can be imported, as if the code lay there. */
	list_add(&ret->env, "PYTHONPATH=/workspace");
	list_add(&ret->env, "NODE_PATH=/workspace/node_modules");
	ret->file = path;
	ret->snippet = str_equal(l->name, "python");
}

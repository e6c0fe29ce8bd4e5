/* How REST and MCP run code in a sandbox: write the file, then run it. */
#include "api/rest/rest.h"

#include <sys/random.h>

int command_read(const json_t *body, struct exec_request *r, const struct language **ret_language,
		 struct err *e)
{
	static const char *const encodings[] = {"utf-8", "base64", NULL};
	static const char *const with_code[] = {"language", "args", "name"};
	int encoding = body_choice(body, "encoding", encodings, e);
	bool is_code = body_has(body, "code");
	int given = body_has(body, "cmd") + body_has(body, "shell") + is_code;

	if (encoding < 0)
		return -1;
	/* An image may have a command of its own. */
	if (given > 1 || (given == 0 && !body_has(body, "image")))
		return err_field(e, ERR_INVALID, "cmd", "cmd: give one of cmd, shell and code");
	r->base64 = encoding == 1;
	*ret_language = is_code ? snippet_language(body_text(body, "language"), e) : NULL;
	if (is_code)
		return *ret_language ? 0 : -1;
	for (size_t i = 0; i < ARRAY_LEN(with_code); i++)
		if (body_has(body, with_code[i]))
			return err_field(e, ERR_INVALID, with_code[i], "%s: goes with code",
					 with_code[i]);
	r->shell = body_text(body, "shell");
	body_list(body, "cmd", &r->argv);
	if (given && !r->shell && (!r->argv.count || !r->argv.items[0][0]))
		return err_field(e, ERR_INVALID, "cmd", "cmd: is empty");
	return 0;
}

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

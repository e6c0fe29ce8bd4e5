/* Makes the environment of a run from the usual variables and from those that the caller gave. */
#include "sandbox/sandbox.h"

#include "model/variables.h"

#include <ctype.h>

void environment_move(struct plan *p, const char *home, const char *tmp)
{
	static const char bin[] = SANDBOX_HOME "/.local/bin:";

	for (size_t i = 0; i < p->env.count; i++) {
		char *pair = p->env.items[i], *at;

		if (str_equal(pair, "HOME=" SANDBOX_HOME)) {
			p->env.items[i] = str_format("HOME=%s", home);
			free(pair);
		} else if (str_starts(pair, "PATH=") && (at = strstr(pair, bin))) {
			p->env.items[i] = str_format("%.*s%s/.local/bin:%s", (int)(at - pair), pair,
						     home, at + strlen(bin));
			free(pair);
		}
	}
	if (!variables_get(&p->env, "TMPDIR"))
		list_take(&p->env, str_format("TMPDIR=%s", tmp));
	variables_take(&p->env, str_format("PWD=%s", p->workdir));
}

static bool is_variable_name(const char *s, size_t len)
{
	if (len == 0 || isdigit((unsigned char)s[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_')
			return false;
	return true;
}

/* "K=V", or "K" for the caller's own value. */
static int set_given(struct plan *p, const char *text, struct err *e)
{
	size_t len = strcspn(text, "=");
	const char *value;

	if (!is_variable_name(text, len))
		return err_field(e, ERR_INVALID, "env", "env: '%.*s' is not a variable name",
				 (int)len, text);
	if (text[len] == '=') {
		variables_set(&p->env, text);
		return 0;
	}
	value = getenv(text);
	if (!value)
		return err_field(e, ERR_INVALID, "env", "env: %s is not set here; use %s=VALUE",
				 text, text);
	variables_take(&p->env, str_format("%s=%s", text, value));
	return 0;
}

int environment_make(struct plan *p, const struct sandbox_request *request, struct err *e)
{
	auto_free char *tools = NULL;
	/* An image whose root can be written has a place for root's own files. */
	bool own_home = p->as_root && p->spec->root == ROOT_OVERLAY && !p->spec->cwd_file;
	const char *term = getenv("TERM");
	struct stat st;

	if (p->spec->tools && tools_add(p, &tools, e) < 0)
		return -1;
	variables_set_usual(&p->env,
			    &(struct variables_usual){
				    .tools = tools ? tools : "",
				    .home = own_home ? "/root" : SANDBOX_HOME,
				    .user = p->as_root ? "root" : "user",
				    .shell = stat("/bin/bash", &st) == 0 ? "/bin/bash" : "/bin/sh",
				    .cwd = p->workdir,
				    .term = p->spec->tty ? (term ? term : "xterm") : NULL,
				    .cpus_milli = p->spec->limits.cpus_milli,
				    .offline = p->spec->net == NET_NONE});
	git_set_variables(p);
	for (size_t i = 0; p->stored && i < p->stored->record.env.count; i++)
		variables_set(&p->env, p->stored->record.env.items[i]);
	for (size_t i = 0; i < request->extra_env.count; i++)
		variables_set(&p->env, request->extra_env.items[i]);
	for (size_t i = 0; i < p->spec->env.count; i++)
		if (set_given(p, p->spec->env.items[i], e) < 0)
			return -1;
	return 0;
}

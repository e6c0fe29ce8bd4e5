/* One task: reads its body, runs it in a warm sandbox or in a new one, and collects the record. */
#include "api/rest/rest.h"

#include "agent/registry.h"
#include "api/http/server.h"
#include "base/clean.h"
#include "image/image.h"
#include "policy/config.h"

#include <assert.h>

#define WORKSPACE "/workspace"
#define CODE_DIR "/tmp/.cloche"
#define CLI_CODE_DIR "/run/code" /* as for `cloche code`; warm hosts have it, too */
#define CODE_FILES 4		 /* the snippet and its guard */
#define FILES_MAX 256
#define WARM_CODE_MAX (256u << 10) /* fits into a request to a guest with all other fields */
#define CAPTURE_BYTES (8u << 20)
#define GRACE_MS 60000 /* for files in and out, besides the command's own time */

static const struct body_table file_table =
	BODY_TABLE(BODY_ALONE, NEEDED("path", BODY_TEXT, "in the workspace, or absolute"),
		   FIELD("content", BODY_TEXT, "what is in it"),
		   FIELD("content_base64", BODY_TEXT, "the same, as base64"),
		   FIELD("mode", BODY_TEXT, "octal; 644 unless said"));

const struct body_table v1_run_table = BODY_TABLE(
	BODY_WITH_SPEC, FIELD("cmd", BODY_LIST, "the command and its arguments"),
	FIELD("shell", BODY_TEXT, "or: one line for a shell"),
	FIELD("code", BODY_TEXT, "or: a snippet"),
	FIELD("language", BODY_TEXT, "of the snippet; python unless said"),
	FIELD("args", BODY_LIST, "arguments of the snippet"),
	FIELD("stdin", BODY_TEXT, "its input"),
	FIELD("stdin_base64", BODY_TEXT, "the same, as base64"),
	FIELD("files", BODY_ITEMS, "files put there before", .items = &file_table),
	FIELD("capture", BODY_LIST, "globs: files taken out afterwards"),
	FIELD("env", BODY_ENV, "its variables"), FIELD("cwd", BODY_TEXT, "where it starts"),
	FIELD("volumes", BODY_ITEMS, "volumes that it sees", .items = &v1_volume_table),
	FIELD("snapshot", BODY_TEXT, "start from this snapshot's files"),
	FIELD("secrets", BODY_LIST, "names of secrets that it uses"),
	FIELD("name", BODY_TEXT, "of the snippet's file; main.py unless said"),
	FIELD("warm", BODY_TEXT,
	      "off: not in a sandbox that was prepared; only: in such a one, as `cloche run "
	      "--empty`, or 503"),
	FIELD("encoding", BODY_TEXT, "base64: output as base64 in the result"),
	FIELD("agent", BODY_TEXT,
	      "the registered agent that it is for, whose trust level bounds it"),
	FIELD("agent_type", BODY_TEXT, "instead of a command: an agent of this type"),
	FIELD("task", BODY_STRING, "with agent_type: what it is to do"),
	FIELD("agent_name", BODY_TEXT, "with agent_type: what this one is called"),
	FIELD("system_prompt", BODY_TEXT, "with agent_type: what it is to be"));

struct put_file {
	char *path, *owned; /* owned: its bytes, or NULL */
	const char *bytes;
	size_t len;
	uint32_t mode;
};

enum warm_choice { WARM_AUTO, WARM_OFF, WARM_ONLY };

struct run {
	struct api *api;
	struct caller who;
	json_t *body;
	run_done done;
	void *arg;
	bool cancelled, has_ended, killed;
	bool has_type;			 /* the body was made from an agent type */
	struct agent_run *agent;	 /* its entry, or NULL */
	struct sandbox *s;		 /* held; NULL: not made yet */
	bool warm;			 /* runs, or tries to, in a warm sandbox */
	struct create_options options;	 /* for a cold one */
	char why_cold[200];		 /* why a run that could be warm is cold; or "" */
	const struct language *language; /* of a snippet, or NULL */
	enum warm_choice choice;
	enum guard guard;
	struct exec_request r;
	char *input;
	struct put_file *files;
	size_t file_count, file_at;
	struct call *call;	     /* a file on its way in or out */
	struct capture_run *capture; /* runs; has_ended: holds the record */
	struct list globs, found;
	size_t glob_at, found_at, captured_bytes;
	struct err error;
};

/* "warm": "only" runs as `cloche run --empty` does. */
static bool as_cli(const struct run *r)
{
	return r->choice == WARM_ONLY;
}

static void run_free(struct run *r)
{
	for (size_t i = 0; i < r->file_count; i++) {
		free(r->files[i].path);
		free(r->files[i].owned);
	}
	free(r->files);
	free(r->input);
	list_done(&r->r.argv);
	list_done(&r->r.env);
	list_done(&r->globs);
	list_done(&r->found);
	create_options_done(&r->options);
	capture_drop(r->capture);
	json_decref(r->body);
	sandbox_release(r->s);
	free(r);
}

/* ---- the end: the sandbox is destroyed first ---- */

static void on_destroyed(void *arg, struct sandbox *s, const struct err *e)
{
	struct run *r = arg;

	agent_run_end(r->api, take_ptr(r->agent), r->has_ended ? capture_result(r->capture) : NULL,
		      r->killed || r->cancelled ? "killed" : "failed");
	if (!r->cancelled)
		r->done(r->arg, r->has_ended ? capture_result(r->capture) : NULL,
			r->has_ended ? NULL : &r->error);
	run_free(r);
}

static void end_run(struct run *r)
{
	if (r->s)
		sandbox_destroy(r->s, &r->who, on_destroyed, r);
	else
		on_destroyed(r, NULL, NULL);
}

static void fail_run(struct run *r, const struct err *e)
{
	r->has_ended = false;
	r->error = *e;
	end_run(r);
}

void run_cancel(struct run *r)
{
	if (!r || r->cancelled)
		return;
	r->cancelled = true;
	if (r->capture && !r->has_ended)
		capture_drop(take_ptr(r->capture));
	else if (r->call)
		call_drop(take_ptr(r->call));
	else
		return; /* being made or destroyed: the pending callback ends the run */
	end_run(r);
}

uint64_t run_timeout_ms(const struct run *r)
{
	return r->r.timeout_ms;
}

void run_kill(struct run *r)
{
	struct err e;

	if (r->cancelled || r->killed || r->has_ended)
		return;
	r->killed = true;
	err_set(&e, ERR_CONFLICT, "it was killed");
	if (r->capture)
		capture_drop(take_ptr(r->capture));
	else if (r->call)
		call_drop(take_ptr(r->call));
	else
		return; /* being made: on_run_sandbox ends it */
	fail_run(r, &e);
}

void run_output(const struct run *r, size_t most, struct buf *ret)
{
	auto_list struct list values = {0};
	auto_buf struct buf b = {0};
	struct cleaned n = {0};

	if (r->has_ended) {
		capture_join(&capture_result(r->capture)->out, buf_take_part, &b);
		capture_join(&capture_result(r->capture)->err, buf_take_part, &b);
	} else if (r->capture) {
		capture_peek(r->capture, buf_take_part, &b);
	}
	if (b.len > most)
		buf_drop(&b, b.len - most);
	clean_values_of(&r->r.env, &values);
	clean_text(ret, b.len ? buf_head(&b) : "", b.len, &values, &n);
}

/* ---- files out ---- */

static void take_next(struct run *r);

static void on_got(void *arg, const struct answer *a, const struct err *e)
{
	struct run *r = arg;
	const char *path = r->found.items[r->found_at++];
	struct captured_file f;

	r->call = NULL;
	if (!e) {
		if (str_starts(path, WORKSPACE "/"))
			path += strlen(WORKSPACE "/");
		f = (struct captured_file){.path = str_copy(path),
					   .data = must_alloc(malloc(a->len + 1)),
					   .size = a->len,
					   .real_size = a->info->size,
					   .truncated = a->len < a->info->size};
		memcpy(f.data, a->bytes, a->len);
		result_add_file(capture_result(r->capture), &f);
		r->captured_bytes += a->len;
	}
	take_next(r);
}

static void on_match(void *arg, const struct file_match *m)
{
	struct run *r = arg;
	char *whole = m->path[0] == '/' ? str_copy(m->path) : str_format(WORKSPACE "/%s", m->path);
	bool known = r->found.count >= FILES_MAX;

	for (size_t i = 0; i < r->found.count && !known; i++)
		known = str_equal(r->found.items[i], whole);
	if (known)
		free(whole);
	else
		list_take(&r->found, whole);
}

static void on_searched(void *arg, const struct answer *a, const struct err *e)
{
	struct run *r = arg;

	(void)a, (void)e;
	r->call = NULL;
	r->glob_at++;
	take_next(r);
}

/* The command has ended: reads the next file for the record out of the sandbox. */
static void take_next(struct run *r)
{
	const struct receiver matches = {.match = on_match, .done = on_searched, .arg = r};
	struct file_search search = {.path = WORKSPACE, .most = FILES_MAX};
	struct sandbox *place = capture_place(r->capture, &search.inside);
	struct file_get get = {.most = CAPTURE_BYTES - r->captured_bytes, .inside = search.inside};

	if (r->glob_at < r->globs.count) {
		search.glob = r->globs.items[r->glob_at];
		if (str_starts(search.glob, WORKSPACE "/"))
			search.glob += strlen(WORKSPACE "/");
		r->call = call_search(place, &search, &matches);
	} else if (r->found_at < r->found.count) {
		get.path = r->found.items[r->found_at];
		r->call = call_get(place, &get, on_got, r);
	} else {
		end_run(r);
	}
}

/* ---- the command ---- */

static void on_run_sandbox(void *arg, struct sandbox *s, const struct err *e);

static void say_why(struct run *r, const char *why)
{
	snprintf(r->why_cold, sizeof(r->why_cold), "Ran cold: %s", why);
	r->r.note = r->why_cold;
}

/* "warm": "only" */
static void refuse_cold(const struct run *r, struct err *e)
{
	err_set(e, ERR_SYSTEM, "%s",
		r->why_cold[0] ? r->why_cold + strlen("Ran cold: ") : "this cannot run warm");
	e->errnum = EBUSY;
}

static void start_cold(struct run *r)
{
	r->warm = false;
	manager_create(r->api->manager, &r->who, &r->options, on_run_sandbox, r);
}

static void on_report(void *arg, const struct answer *a, const struct err *e)
{
	struct run *r = arg;
	struct result *result = capture_result(r->capture);
	size_t kinds = 0;

	r->call = NULL;
	if (!e) {
		while (result->denial_kinds[kinds])
			kinds++;
		if (kinds + 1 < ARRAY_LEN(result->denial_kinds))
			result->denial_kinds[kinds] = "guard";
		guard_add_report(r->guard, a->bytes, a->len, result);
	}
	take_next(r);
}

static void take_report(struct run *r)
{
	struct file_get get = {.path = "/tmp/" GUARD_REPORT, .most = GUARD_REPORT_BYTES};
	struct sandbox *place = capture_place(r->capture, &get.inside);

	r->call = call_get(place, &get, on_report, r);
}

static void on_captured(void *arg, struct capture_run *c, const struct err *e)
{
	struct run *r = arg;
	struct err refused;

	r->capture = c;
	if (c) {
		r->has_ended = true;
		if (r->guard != GUARD_OFF)
			take_report(r);
		else
			take_next(r);
	} else if (r->warm && warm_is_refusal(e)) {
		manager_warm_host_refused(r->api->manager, &r->who, &r->options, e);
		say_why(r, e->msg);
		if (!as_cli(r)) {
			start_cold(r);
			return;
		}
		refuse_cold(r, &refused);
		fail_run(r, &refused);
	} else {
		fail_run(r, e);
	}
}

/* ---- files in ---- */

static void put_next(struct run *r);

static void on_put(void *arg, const struct answer *a, const struct err *e)
{
	struct run *r = arg;
	struct err why;

	r->call = NULL;
	if (e) {
		why = *e;
		err_wrap(&why, "files: %.100s", r->files[r->file_at].path);
		if (why.kind != ERR_SYSTEM)
			snprintf(why.field, sizeof(why.field), "files");
		fail_run(r, &why);
		return;
	}
	r->file_at++;
	put_next(r);
}

static void put_next(struct run *r)
{
	const struct put_file *f = &r->files[r->file_at];

	if (r->file_at < r->file_count)
		r->call = call_put(r->s, &(struct file_put){f->path, f->mode, f->bytes, f->len},
				   on_put, r);
	else
		r->capture = exec_capture(r->s, &r->who, &r->r, on_captured, r);
}

static void on_run_sandbox(void *arg, struct sandbox *s, const struct err *e)
{
	struct run *r = arg;

	if (!s) {
		fail_run(r, e);
		return;
	}
	r->s = sandbox_hold(s);
	if (r->killed)
		err_set(&r->error, ERR_CONFLICT, "it was killed");
	if (r->cancelled || r->killed)
		end_run(r);
	else
		put_next(r);
}

/* ---- reading the body ---- */

static int read_file(struct run *r, const json_t *o, struct err *e)
{
	struct put_file *f = &r->files[r->file_count];
	const char *path = body_text(o, "path");

	if (!path[0] || strlen(path) > 2048)
		return err_field(e, ERR_INVALID, "path", "path: is empty or too long");
	if (body_has(o, "content") == body_has(o, "content_base64"))
		return err_field(e, ERR_INVALID, "content",
				 "content: give either content or content_base64");
	if (v1_read_mode(body_text(o, "mode"), 0644, 0777, &f->mode, e) < 0 ||
	    body_bytes(o, "content", "content_base64", &f->owned, &f->len, e) < 0)
		return -1;
	f->bytes = f->owned;
	f->path = path[0] == '/' ? str_copy(path) : str_format(WORKSPACE "/%s", path);
	r->file_count++;
	return 0;
}

static int read_files(struct run *r, struct err *e)
{
	const json_t *list = json_object_get(r->body, "files"), *item;
	size_t i;

	if (json_array_size(list) > FILES_MAX)
		return err_field(e, ERR_LIMIT, "files", "files: more than %d", FILES_MAX);
	r->files = must_alloc(calloc(json_array_size(list) + CODE_FILES, sizeof(*r->files)));
	json_array_foreach (list, i, item)
		if (read_file(r, item, e) < 0)
			return err_wrap(e, "files[%zu]", i);
	return 0;
}

/* The code is written to a file, never made part of a command line. */
static int read_code(struct run *r, struct err *e)
{
	const char *file = body_text(r->body, "name");
	const json_t *code = json_object_get(r->body, "code");
	struct put_file *f = &r->files[r->file_count];

	if (file && (!*file || strchr(file, '/') || file[0] == '.' || strlen(file) > 200))
		return err_field(e, ERR_INVALID, "name", "name: is not that of a file");
	f->path = snippet_path(r->language, as_cli(r) ? CLI_CODE_DIR : CODE_DIR, file);
	f->bytes = json_string_value(code);
	f->len = json_string_length(code);
	f->mode = 0644;
	r->file_count++;
	if (!as_cli(r))
		snippet_env(WORKSPACE, &r->r.env);
	return 0;
}

static int read_command(struct run *r, struct err *e)
{
	static const char *const choices[] = {
		[WARM_AUTO] = "auto", [WARM_OFF] = "off", [WARM_ONLY] = "only", NULL};
	int choice = body_choice(r->body, "warm", choices, e);

	if (choice < 0 || command_read(r->body, &r->r, &r->language, e) < 0)
		return -1;
	r->choice = (enum warm_choice)choice;
	return r->language ? read_code(r, e) : 0;
}

static bool is_python(const struct run *r)
{
	return r->language && snippet_is_python(r->language);
}

/* The command of a snippet; under a guard, its files follow the code's. */
static int read_snippet(struct run *r, const struct sandbox_spec *s, struct err *e)
{
	static const struct guest_file *const from[] = GUARD_FILES;

	static_assert(ARRAY_LEN(from) < CODE_FILES, "room for the code and the guard");
	if (!is_python(r) && guard_refuse(s, e) < 0)
		return -1;
	r->guard = s->guard;
	if (!r->language)
		return 0;
	if (snippet_argv(r->language, r->files[r->file_count - 1].path, s, CODE_DIR "/guard",
			 &r->r.argv, e) < 0)
		return -1;
	body_list(r->body, "args", &r->r.argv);
	for (size_t i = 0; s->guard != GUARD_OFF && i < ARRAY_LEN(from); i++)
		r->files[r->file_count++] =
			(struct put_file){.path = str_format(CODE_DIR "/guard/%s", from[i]->name),
					  .bytes = (const char *)from[i]->bytes,
					  .len = from[i]->size,
					  .mode = 0644};
	return 0;
}

/* Without a type they would be taken no notice of; with one, the body was made from them. */
static int refuse_agent(const json_t *body, struct err *e)
{
	static const char *const names[] = {"task", "agent_name", "system_prompt"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (body_has(body, names[i]))
			return err_field(e, ERR_INVALID, names[i], "%s: needs agent_type",
					 names[i]);
	return 0;
}

/* By the level of the caller and of its agent. A type says itself which network its agents have. */
static int fit_to_trust(struct run *r, struct create_options *o, struct err *e)
{
	const char *agent = body_text(r->body, "agent");

	if (r->has_type && !spec_is_set(&o->spec, "net") && o->spec.net == NET_NONE &&
	    spec_set(&o->spec, "net", "none", e) < 0)
		return -1;
	return agents_fit(r->api->agents, r->api->manager, &r->who, agent ? agent : "", o, e);
}

static int read_body(struct run *r, struct create_options *o, struct err *e)
{
	uint64_t most_ms = r->api->config->max_ttl_ms;

	if (body_check(r->body, &v1_run_table, e) < 0 || refuse_agent(r->body, e) < 0 ||
	    read_files(r, e) < 0 || read_command(r, e) < 0)
		return -1;
	o->spec.root = ROOT_RO;
	if (v1_create_options(r->body, &v1_run_table, o, e) < 0 || fit_to_trust(r, o, e) < 0 ||
	    read_snippet(r, &o->spec, e) < 0)
		return -1;
	r->r.cwd = body_text(r->body, "cwd");
	r->r.timeout_ms = o->spec.limits.timeout_ms;
	r->r.output_bytes = o->spec.limits.output_bytes;
	body_list(r->body, "capture", &r->globs);
	for (size_t i = 0; i < r->globs.count; i++)
		if (strlen(r->globs.items[i]) >= CALL_GLOB_MAX)
			return err_field(e, ERR_INVALID, "capture", "capture: a glob is too long");
	o->transient = true;
	o->idle_ms = 0;
	o->ttl_ms = r->r.timeout_ms ? r->r.timeout_ms + GRACE_MS : 0;
	/* The sandbox lives as long as its command may run, so the bound of its life bounds the command. */
	if (most_ms && o->ttl_ms > most_ms)
		return err_field(e, ERR_INVALID, "timeout", "timeout: at most %llu s here",
				 (unsigned long long)(most_ms - GRACE_MS) / 1000);
	return v1_read_input(r->body, &r->r, &r->input, e);
}

/* ---- warm ---- */

/* No variables that the loader, libc, an interpreter or its modules read only at their start. */
static bool env_suits(const struct list *env)
{
	static const char *const early[] = {
		"PYTHON", "PATH=",   "HOME=", "LANG",	   "LC_",      "LD_",
		"GLIBC_", "MALLOC_", "OMP_",  "OPENBLAS_", "MKL_",     "OPENSSL_",
		"SSL_",	  "NODE_",   "UV_",   "TZ=",	   "NO_COLOR", "FORCE_COLOR"};

	for (size_t i = 0; i < env->count; i++)
		for (size_t j = 0; j < ARRAY_LEN(early); j++)
			if (str_starts(env->items[i], early[j]) &&
			    !str_starts(env->items[i], "PYTHONPATH=") &&
			    !str_starts(env->items[i], "NODE_PATH="))
				return false;
	return true;
}

/*
 * Which languages have interpreters that wait; code in others gets a warm sandbox. None waits under a seccomp profile of
 * the operator's: it might not be able to write its files (provider/ns/worker).
 */
static enum warm_kind kind_of_run(const struct run *r)
{
	static const struct {
		const char *language;
		enum warm_kind kind;
	} rows[] = {{"python", WARM_PYTHON}, {"node", WARM_NODE}};

	if (!r->language || r->api->config->sandbox.seccomp[0] || r->guard != GUARD_OFF ||
	    !env_suits(&r->r.env) || !env_suits(&r->options.env))
		return WARM_COMMAND;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(r->language->name, rows[i].language) &&
		    (rows[i].kind != WARM_PYTHON || r->file_count == 1) &&
		    (rows[i].kind != WARM_NODE ||
		     (r->api->config->warm.node &&
		      str_equal(r->r.argv.items[1], SNIPPET_NODE_PROGRAM))))
			return rows[i].kind;
	return WARM_COMMAND;
}

/*
 * The task itself writes the files. It has nobody to report a failure to, so only paths that cannot fail
 * are taken: new names in the workspace, and the code's own.
 */
static bool files_suit(const struct run *r)
{
	size_t sum = 0;

	for (size_t i = 0; i < r->file_count; i++) {
		const struct put_file *f = &r->files[i];
		char clean[PATH_MAX];

		sum += f->len + strlen(f->path) + 32;
		if (!path_clean(f->path, clean, sizeof(clean)) || !str_equal(clean, f->path) ||
		    !(f->mode & 0400) ||
		    (!path_below(clean, WORKSPACE) && !path_below(clean, CODE_DIR) &&
		     !(as_cli(r) && path_below(clean, CLI_CODE_DIR))))
			return false;
		for (size_t j = 0; j < i; j++)
			if (path_below(clean, r->files[j].path) ||
			    path_below(r->files[j].path, clean))
				return false;
	}
	return sum <= WARM_CODE_MAX && sum <= r->options.spec.limits.disk_bytes / 4;
}

static bool may_be_warm(const struct run *r)
{
	return r->choice != WARM_OFF && files_suit(r) && !r->options.agent[0] &&
	       manager_warm_host_suits(r->api->manager, &r->who, &r->options);
}

/* As place_files in guest/warm/task.c and guest/js/waiter.js reads them. */
static void pack_files(const struct run *r, struct buf *ret)
{
	for (size_t i = 0; i < r->file_count; i++) {
		const struct put_file *f = &r->files[i];
		char mode[16], size[24];

		snprintf(mode, sizeof(mode), "%o", f->mode);
		snprintf(size, sizeof(size), "%zu", f->len);
		buf_add(ret, f->path, strlen(f->path) + 1);
		buf_add(ret, mode, strlen(mode) + 1);
		buf_add(ret, size, strlen(size) + 1);
		buf_add(ret, f->bytes, f->len);
	}
}

/* Starts in a warm sandbox; false: it must run cold. */
static bool start_warm(struct run *r)
{
	struct exec_request request = r->r;
	struct list script = {0}, env = {0};
	auto_buf struct buf files = {0};
	struct sandbox *warm_host = NULL;
	const char *why = NULL;

	if (may_be_warm(r))
		warm_host = manager_warm_host(r->api->manager, &r->who, &r->options, &why);
	if (!warm_host) {
		if (why)
			say_why(r, why);
		return false;
	}
	/* Variables of the sandbox first, then of the command. */
	for (size_t i = 0; i < r->options.env.count; i++)
		list_add(&env, r->options.env.items[i]);
	for (size_t i = 0; i < r->r.env.count; i++)
		list_add(&env, r->r.env.items[i]);
	r->warm = true;
	request.warm = kind_of_run(r);
	request.env = env;
	request.hold = r->globs.count || r->guard != GUARD_OFF;
	if (request.warm != WARM_PYTHON) {
		pack_files(r, &files);
		request.code = buf_head(&files);
		request.code_len = files.len;
	} else {
		list_add(&script, r->files[0].path);
		body_list(r->body, "args", &script);
		request.argv = script;
		request.code = r->files[0].bytes;
		request.code_len = r->files[0].len;
	}
	r->capture = exec_capture(warm_host, &r->who, &request, on_captured, r);
	list_done(&script);
	list_done(&env);
	return true;
}

/* Without a command that of the image runs. */
static int choose_image(struct run *r, struct err *e)
{
	const struct image_record *image;

	if (manager_choose_image(r->api->manager, &r->who, &r->options, e) < 0)
		return -1;
	if (r->language || r->r.shell || r->r.argv.count)
		return 0;
	image = manager_image_record(r->api->manager, r->options.image_id);
	if (image)
		image_command(image, &r->r.argv);
	return r->r.argv.count ? 0
			       : err_field(e, ERR_INVALID, "cmd",
					   "cmd: give one of cmd, shell and code; the image has no "
					   "command of its own");
}

struct run *run_start(struct api *api, const struct caller *who, json_t *body, run_done done,
		      void *arg, struct err *e)
{
	struct run *r = must_alloc(calloc(1, sizeof(*r)));
	struct create_options o;

	*r = (struct run){.api = api, .who = *who, .done = done, .arg = arg};
	r->body = body_has(body, "agent_type") ? agent_run_body(api, &r->who, body, e)
					       : json_incref(body);
	if (!r->body) {
		run_free(r);
		return NULL;
	}
	r->has_type = body_has(body, "agent_type");
	create_options_for(&o, api->manager, &r->who);
	if (read_body(r, &o, e) < 0) {
		create_options_done(&o);
		run_free(r);
		return NULL;
	}
	r->options = o;
	if (choose_image(r, e) < 0) {
		run_free(r);
		return NULL;
	}
	if (body_has(body, "agent_type"))
		r->agent = agent_run_begin(api, who, body, r);
	if (start_warm(r))
		return r;
	if (as_cli(r)) {
		refuse_cold(r, e);
		agent_run_end(api, take_ptr(r->agent), NULL, "failed");
		run_free(r);
		return NULL;
	}
	start_cold(r);
	return r;
}

/* ---- POST /v1/run ---- */

struct running {
	struct exchange *x;
	struct run *run;
};

static void on_run_done(void *arg, struct result *record, const struct err *e)
{
	struct running *r = arg;

	r->run = NULL;
	if (!record) {
		exchange_error(r->x, e);
		return;
	}
	metrics_run(r->x->api->metrics, r->x->started_ns);
	v1_answer_result(r->x, record);
}

static void on_run_gone(void *arg)
{
	struct running *r = arg;

	/* Its record is printed already. */
	if (!r->run)
		return;
	run_cancel(take_ptr(r->run));
	exchange_answer_gone(r->x);
}

void v1_run(struct exchange *x)
{
	struct running *r = exchange_attach(x, sizeof(*r), NULL);
	struct err e = {0};
	json_t *nothing = x->json ? NULL : json_object();

	r->x = x;
	r->run = run_start(x->api, &x->caller, x->json ? x->json : nothing, on_run_done, r, &e);
	json_decref(nothing);
	if (!r->run)
		exchange_error(x, &e);
	else
		exchange_on_gone(x, on_run_gone, r);
}

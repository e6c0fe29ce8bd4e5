/* Files of a container: what `docker cp` sees, takes out and puts in. */
#include "api/docker/docker_internal.h"

#include "api/http/transfer.h"
#include "base/base64.h"

#define TAR "application/x-tar"

/* Go's bits of a file mode. */
static uint32_t go_mode(const struct file_info *f)
{
	static const struct {
		uint32_t bit, go;
	} bits[] = {{04000, 1u << 23}, {02000, 1u << 22}, {01000, 1u << 20}};
	uint32_t mode = f->mode & 0777;

	for (size_t i = 0; i < ARRAY_LEN(bits); i++)
		mode |= f->mode & bits[i].bit ? bits[i].go : 0;
	return mode | (f->kind == 'd'	? 1u << 31
		       : f->kind == 'l' ? 1u << 27
		       : f->kind == 'o' ? 1u << 26
					: 0);
}

static void set_stat_header(struct exchange *x, const struct file_info *f)
{
	const char *slash = strrchr(f->path, '/');
	auto_free char *text = NULL, *encoded = NULL;
	json_t *o = json_pack("{s:o,s:I,s:I,s:o,s:o}", "name",
			      text_json_of(slash && slash[1] ? slash + 1 : f->path), "size",
			      (json_int_t)f->size, "mode", (json_int_t)go_mode(f), "mtime",
			      docker_time(f->mtime_ns), "linkTarget",
			      text_json_of(f->kind == 'l' ? f->target : ""));
	size_t len;

	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	encoded = must_alloc(malloc(BASE64_ROOM(strlen(text)) + 1));
	len = base64_encode(encoded, text, strlen(text));
	encoded[len] = '\0';
	exchange_set_header(x, "X-Docker-Container-Path-Stat", encoded);
}

/* The path of the query, absolute; NULL: an error was answered. The exchange frees it. */
static const char *wanted_path(struct exchange *x)
{
	const char *path = exchange_arg(x, "path");
	char *whole;

	if (!path || !*path || strlen(path) >= CALL_PATH_MAX - 16) {
		docker_fail(x, 400, "path: is missing, empty or too long");
		return NULL;
	}
	whole = str_format("%s%s", path[0] == '/' ? "" : "/", path);
	exchange_also_free(x, whole, NULL);
	return whole;
}

static void file_error(struct exchange *x, const struct err *e)
{
	if (e->errnum == ENOENT || e->errnum == ENOTDIR)
		docker_fail(x, 404, "Could not find the file %.200s in container %s",
			    exchange_arg(x, "path"), docker_of(x)->c->name);
	else
		exchange_error(x, e);
}

/* ---- out ---- */

static int64_t begin_tar(struct exchange *x, const struct file_info *info)
{
	exchange_stream(x, 200, TAR, EXCHANGE_UNKNOWN_LENGTH);
	return TRANSFER_UNKNOWN;
}

static void on_stat(void *arg, const struct answer *a, const struct err *e)
{
	static const struct transfer_ops ops = {.begin = begin_tar, .error = file_error};
	struct exchange *x = arg;
	struct transfer *t;

	if (e) {
		file_error(x, e);
		return;
	}
	set_stat_header(x, a->info);
	if (str_equal(x->method, "HEAD")) {
		docker_empty(x, 200);
		return;
	}
	t = transfer_down(x, &ops);
	t->call = call_pack_named(docker_of(x)->c->s, docker_of(x)->word, &t->receiver);
}

static void get_awake(struct exchange *x, struct sandbox *s)
{
	call_stat(s, docker_of(x)->word, false, on_stat, x);
}

void docker_archive_get(struct exchange *x)
{
	const char *path = wanted_path(x);

	docker_of(x)->word = path;
	if (path)
		container_awake(x, get_awake);
}

/* ---- in ---- */

static void was_unpacked(struct exchange *x, uint64_t count)
{
	docker_empty(x, 200);
}

static void on_target(void *arg, const struct answer *a, const struct err *e)
{
	static const struct transfer_ops ops = {.done = was_unpacked, .error = file_error};
	struct exchange *x = arg;
	struct transfer *t;

	if (e) {
		file_error(x, e);
	} else if (a->info->kind != 'd') {
		docker_fail(x, 400, "extraction point is not a directory");
	} else {
		t = transfer_up(x, &ops);
		t->call = call_unpack(docker_of(x)->c->s, docker_of(x)->word, false, &t->receiver);
	}
}

static void put_awake(struct exchange *x, struct sandbox *s)
{
	call_stat(s, docker_of(x)->word, true, on_target, x);
}

void docker_archive_put(struct exchange *x)
{
	const char *path = wanted_path(x);

	docker_of(x)->word = path;
	if (path)
		container_awake(x, put_awake);
}

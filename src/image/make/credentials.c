/* Reads the caller's own logins. They are given to the process that fetches, and stored nowhere. */
#include "image/make/credentials.h"

#include "base/base64.h"

#include <jansson.h>
#include <spawn.h>
#include <sys/wait.h>

#define FILE_MAX (1u << 20)
#define DOCKER_KEY "https://index.docker.io/v1/"

static char *config_path(void)
{
	const char *dir = getenv("DOCKER_CONFIG"), *home = getenv("HOME");

	return dir && *dir ? str_format("%s/config.json", dir)
			   : str_format("%s/.docker/config.json", home ? home : "");
}

/* NULL without an error: there is no file. */
static json_t *read_config(const char *path, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	json_t *root;
	size_t len;

	if (fd < 0 && errno == ENOENT)
		return NULL;
	if (fd < 0 || io_read_whole(fd, FILE_MAX, &text, &len) < 0) {
		err_sys(e, "cannot read %s", path);
		return NULL;
	}
	root = json_loadb(text, len, 0, NULL);
	if (!root)
		err_set(e, ERR_INVALID, "%s is no JSON", path);
	return root;
}

static int take(struct fetch_site *ret, const char *user, const char *secret, struct err *e)
{
	if (!user || !secret)
		return 0;
	if (snprintf(ret->secret, sizeof(ret->secret), "%s", secret) >= (int)sizeof(ret->secret) ||
	    snprintf(ret->user, sizeof(ret->user), "%s", user) >= (int)sizeof(ret->user))
		return err_set(e, ERR_LIMIT, "the login for the registry is too long");
	ret->is_identity = str_equal(user, "<token>");
	return 0;
}

/* "auth": USER:PASSWORD in base64; "identitytoken" instead of the password. */
static int take_stored(const json_t *auth, struct fetch_site *ret, struct err *e)
{
	const char *coded = json_string_value(json_object_get(auth, "auth"));
	const char *token = json_string_value(json_object_get(auth, "identitytoken"));
	auto_free char *pair = NULL;
	char *colon;
	size_t len;

	if (token && *token)
		return take(ret, "<token>", token, e);
	if (!coded || !*coded)
		return 0;
	len = strlen(coded);
	pair = must_alloc(calloc(1, len / 4 * 3 + 4));
	if (base64_decode(pair, coded, len, &len) < 0 || !(colon = strchr(pair, ':')))
		return err_set(e, ERR_INVALID, "the login for the registry is malformed");
	*colon = '\0';
	return take(ret, pair, colon + 1, e);
}

/* Asks docker-credential-NAME for the login; its answer is JSON of a program that the caller chose. */
static int ask_helper(const char *name, const char *key, struct fetch_site *ret, struct err *e)
{
	auto_free char *program = str_format("docker-credential-%s", name);
	char *argv[] = {program, "get", NULL}, answer[16384];
	posix_spawn_file_actions_t files;
	int in[2], out[2], status = 0, rc;
	json_t *root;
	ssize_t n;
	pid_t pid;

	if (!str_only(name, STR_ALNUM "_.-", 1, 64))
		return err_set(e, ERR_INVALID, "'%.64s' is no credential helper", name);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, in[0], 0);
	posix_spawn_file_actions_adddup2(&files, out[1], 1);
	rc = posix_spawnp(&pid, program, &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	close(in[0]);
	close(out[1]);
	if (rc == 0 && io_write_all(in[1], key, strlen(key)) < 0)
		rc = errno;
	close(in[1]);
	n = rc == 0 ? io_read_all(out[0], answer, sizeof(answer)) : 0;
	close(out[0]);
	if (rc != 0 || waitpid(pid, &status, 0) < 0)
		return err_set(e, ERR_SYSTEM, "cannot run %s", program);
	/* It has no login for this registry. */
	if (status != 0)
		return 0;
	root = json_loadb(answer, n > 0 ? (size_t)n : 0, 0, NULL);
	rc = take(ret, json_string_value(json_object_get(root, "Username")),
		  json_string_value(json_object_get(root, "Secret")), e);
	json_decref(root);
	return rc;
}

int credentials_find(const char *file, const char *registry, struct fetch_site *ret, struct err *e)
{
	const char *key = str_equal(registry, "docker.io") ? DOCKER_KEY : registry, *helper;
	auto_free char *path = file ? str_copy(file) : config_path();
	struct err why = {0};
	json_t *root = *path ? read_config(path, &why) : NULL;
	int rc = 0;

	if (!root) {
		*e = why;
		return why.kind == ERR_NONE ? 0 : -1;
	}
	helper = file ? NULL
		      : json_string_value(
				json_object_get(json_object_get(root, "credHelpers"), key));
	if (!helper && !file)
		helper = json_string_value(json_object_get(root, "credsStore"));
	rc = helper ? ask_helper(helper, key, ret, e)
		    : take_stored(json_object_get(json_object_get(root, "auths"), key), ret, e);
	json_decref(root);
	return rc;
}

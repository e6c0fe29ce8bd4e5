/*
 * `cloche image-step FD UID:GID [OPTIONS of run] -- COMMAND`: one RUN of an image that is built. Another program of
 * cloche starts it, with fds from FD on: cloche-guest; a pipe for the layer and the paths that are left out of
 * it; the same for what is kept in caches, or /dev/null; the rules of the network, or /dev/null. Then come files that are shown, each a memfd with a path in
 * its first line, which are left out of the layer by their paths.
 */
#include "cli/cli.h"

#include "sandbox/sandbox.h"

#include <sys/prctl.h>

#define FILES_MAX 64
#define FILE_MAX (1u << 20)

enum {
	STEP_GUEST,
	STEP_LAYER,
	STEP_LAYER_PATHS,
	STEP_CACHE,
	STEP_CACHE_PATHS,
	STEP_RULES,
	STEP_FILES
};

static int take_step_fds(int first, struct sandbox_request *r, struct root_saving *s, struct err *e)
{
	struct stat st;

	for (int fd = first; fd < first + STEP_FILES; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			return err_set(e, ERR_INVALID, "cloche starts image-step itself");
	s->guest = first + STEP_GUEST;
	s->parts[0] = (struct saved_part){first + STEP_LAYER, first + STEP_LAYER_PATHS};
	s->parts[1] = (struct saved_part){first + STEP_CACHE, first + STEP_CACHE_PATHS};
	if (fstat(s->parts[1].to, &st) == 0 && S_ISCHR(st.st_mode))
		s->parts[1].to = -1;
	if (fstat(first + STEP_RULES, &st) == 0 && S_ISREG(st.st_mode))
		r->net_rules = first + STEP_RULES;
	return 0;
}

static int read_step_file(int fd, struct injected_file *ret, struct err *e)
{
	auto_free char *text = NULL;
	char *newline;
	struct stat st;
	size_t len;

	if (io_read_whole(fd, FILE_MAX, &text, &len) < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot read a file of the step");
	newline = memchr(text, '\n', len);
	if (text[0] != '/' || !newline)
		return err_set(e, ERR_INVALID, "a file of the step has no path");
	ret->path = must_alloc(strndup(text, (size_t)(newline - text)));
	ret->size = len - (size_t)(newline + 1 - text);
	ret->data = must_alloc(malloc(ret->size + 1));
	memcpy(ret->data, newline + 1, ret->size);
	ret->mode = st.st_mode & 0777;
	return 0;
}

static int read_step_files(int first, struct injected_file *files, size_t *ret_count, struct err *e)
{
	for (size_t i = 0; i < FILES_MAX; i++) {
		int fd = first + STEP_FILES + (int)i;

		if (fcntl(fd, F_GETFD) < 0)
			break;
		if (read_step_file(fd, &files[i], e) < 0)
			return -1;
		close(fd);
		*ret_count = i + 1;
	}
	return 0;
}

int cmd_image_step(int argc, char **argv)
{
	struct injected_file files[FILES_MAX] = {{0}};
	struct root_saving saving = {0};
	struct sandbox_request request = {.saving = &saving, .files = files};
	struct options o = {.verb = "run"};
	struct sandbox_spec s;
	struct err e = {0};
	int first, status;

	/* A build that is killed leaves no command behind. */
	if (argc < 4 || prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 ||
	    sscanf(argv[2], "%5u:%5u", &saving.uid, &saving.gid) != 2) {
		err_set(&e, ERR_INVALID, "cloche starts image-step itself");
		return cli_fail(&e);
	}
	spec_init(&s);
	first = options_parse(&s, argc - 2, argv + 2, &o, &e);
	if (first < 0 || take_step_fds(atoi(argv[1]), &request, &saving, &e) < 0 ||
	    read_step_files(atoi(argv[1]), files, &request.file_count, &e) < 0 ||
	    spec_finish(&s, &e) < 0)
		return cli_fail_spec(&s, &e);
	for (int i = first + 2; i < argc; i++)
		list_add(&s.argv, argv[i]);
	request.spec = &s;
	status = run_and_report(&request, NULL, true);
	spec_done(&s);
	return status;
}

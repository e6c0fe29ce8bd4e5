/*
 * What a command wrote to the root of an image, as the tar of a layer. The tree is the command's, so it is read by
 * a confined helper that has nothing else (rule 11), with the ids of the sandbox.
 */
#include "sandbox/outside/keeper.h"

#include "kern/confined_helper.h"

#include <signal.h>
#include <sys/wait.h>

static int end_helper(pid_t pid, int said, struct err *e)
{
	char text[300];
	ssize_t n = io_read_all(said, text, sizeof(text));
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, "cannot wait");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return err_set(e, ERR_SYSTEM, "what the command wrote cannot be saved: %.*s",
		       n > 0 ? (int)n : 0, text);
}

static int save_part(const struct keeper *k, const struct root_saving *s,
		     const struct saved_part *part, struct err *e)
{
	auto_close int root =
		openat(k->scratch, "rootup", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct confined_helper c = {.verb = "pack-layer",
				    .guest = s->guest,
				    .root = root,
				    .in = part->paths,
				    .out = part->to,
				    .rootless = k->plan.rootless,
				    .id_base = k->plan.id_base};
	auto_close int said = -1;
	int ends[2];
	pid_t pid;

	if (root < 0)
		return err_sys(e, "cannot open what the command wrote");
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	said = ends[0];
	c.err = ends[1];
	pid = confined_helper_start(&c, e);
	close(ends[1]);
	return pid < 0 ? -1 : end_helper(pid, said, e);
}

int save_root(const struct keeper *k, const struct root_saving *s, struct err *e)
{
	if (k->scratch < 0)
		return err_set(e, ERR_SYSTEM, "what the command wrote is lost");
	for (size_t i = 0; i < ARRAY_LEN(s->parts); i++) {
		if (s->parts[i].to < 0)
			continue;
		if (save_part(k, s, &s->parts[i], e) < 0)
			return -1;
		/* Its reader waits for the end. */
		close(s->parts[i].to);
	}
	return 0;
}

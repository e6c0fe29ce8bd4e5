/* The last steps before a command is executed. If it cannot be, finds out which file is missing. */
#include "sandbox/inside/inside_internal.h"

#include "base/exec_path.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/verify.h"

#include <elf.h>
#include <sys/ioctl.h>
#include <termios.h>

int command_attach_streams(int in, int out, int err, struct err *e)
{
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		return err_sys(e, "cannot attach the standard streams");
	return 0;
}

static int attach_terminal(const struct inside_fds *fds, struct err *e)
{
	int slave = ioctl(fds->terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (slave < 0)
		return err_sys(e, "cannot open the terminal");
	if (ioctl(slave, TIOCSCTTY, 0) < 0)
		return err_sys(e, "cannot make it the controlling terminal");
	return command_attach_streams(slave, slave, slave, e);
}

static int attach_session(const struct plan *p, const struct inside_fds *fds, struct err *e)
{
	/* A session of its own: no way to the caller's terminal by /dev/tty or job control. */
	if (setsid() < 0)
		return err_sys(e, "cannot start a session");
	return p->spec->tty ? attach_terminal(fds, e)
			    : command_attach_streams(fds->in, fds->out, fds->err, e);
}

void command_unblock_signals(void)
{
	sigset_t empty;

	sigemptyset(&empty);
	sigprocmask(SIG_SETMASK, &empty, NULL);
}

/* libc hides some signals, so this calls the kernel directly. */
void command_reset_signals(void)
{
	static const struct {
		unsigned long handler, flags, restorer,
			mask; /* as rt_sigaction reads it; 0: SIG_DFL */
	} none;

	for (int sig = 1; sig <= 64; sig++)
		syscall(SYS_rt_sigaction, sig, &none, NULL, sizeof(none.mask));
	command_unblock_signals();
}

static void note_tried(void *page, const char *path)
{
	struct status_page *b = page;

	snprintf(b->exec_path, sizeof(b->exec_path), "%s", path);
	b->stage = STAGE_RUNNING;
}

/*
 * Returns why nothing was executed, as errno. A path that cannot exist counts as one that does not.
 */
static int exec_argv(const struct plan *p)
{
	int errnum = exec_path_run(p->argv, p->env.items, note_tried, p->page);

	p->page->stage = STAGE_SETUP;
	return errnum == ENOTDIR || errnum == ENAMETOOLONG ? ENOENT : errnum;
}

/* ---- the missing file ---- */

static void script_interpreter(const char *line, char *ret, size_t size)
{
	size_t len;
	bool dos;

	line += 2 + strspn(line + 2, " \t");
	len = strcspn(line, " \t\n");
	dos = len > 0 && line[len - 1] == '\r';
	str_sanitise(ret, size, line, len - dos);
	if (dos)
		snprintf(ret + strlen(ret), size - strlen(ret), " (its line ends in CR LF)");
}

static void program_interpreter(int fd, const Elf64_Ehdr *head, char *ret, size_t size)
{
	char name[128];
	Elf64_Phdr part;
	ssize_t n;

	for (unsigned i = 0; i < head->e_phnum && i < 64; i++) {
		if (pread(fd, &part, sizeof(part), (off_t)(head->e_phoff + i * sizeof(part))) !=
		    sizeof(part))
			return;
		if (part.p_type != PT_INTERP)
			continue;
		n = pread(fd, name, sizeof(name) - 1, (off_t)part.p_offset);
		name[n > 0 ? n : 0] = '\0';
		str_sanitise(ret, size, name, strlen(name));
		return;
	}
}

/* ENOENT for a file that exists means that its interpreter is missing. */
static void find_what_is_missing(const struct plan *p)
{
	struct status_page *b = p->page;
	const char *dirs = exec_path_of(p->env.items), *path;
	char room[PATH_MAX];
	int fd = -1;
	union {
		char text[256];
		Elf64_Ehdr elf;
	} head = {{0}};

	while (fd < 0 && (path = exec_path_next(p->argv[0], &dirs, room)))
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || pread(fd, &head, sizeof(head) - 1, 0) <= 0)
		return;
	if (str_starts(head.text, "#!"))
		script_interpreter(head.text, b->exec_missing, sizeof(b->exec_missing));
	else if (memcmp(head.text, ELFMAG, SELFMAG) == 0)
		program_interpreter(fd, &head.elf, b->exec_missing, sizeof(b->exec_missing));
}

static int enter_nested(const struct privilege_drop *c, struct err *e)
{
	const struct inside_fds *fds = c->arg;

	return setns(fds->nested, CLONE_NEWUSER) < 0
		       ? err_sys(e, "cannot enter the command's user namespace")
		       : 0;
}

/* The listener of its filter appears in pid 1's table, which is then left alone. */
static int become_root(struct plan *p, const struct inside_fds *fds)
{
	struct privilege_drop c = {.kind = CONFINED_ROOT,
				   .plan = p,
				   .scratch = fds->scratch,
				   .control = -1,
				   .changes_ids = true,
				   .uid = plan_inner_id(p),
				   .profile = plan_profile(p),
				   .enter = enter_nested,
				   .arg = fds};

	if (privileges_give_up(&c, &p->page->err) < 0)
		return -1;
	p->page->inner_listener = c.listener;
	return unshare(CLONE_FILES) < 0 ? err_sys(&p->page->err, "cannot have files of its own")
					: 0;
}

/* In an image that is being built: another user of its own, without a capability. */
static int become_named_user(const struct plan *p, struct err *e)
{
	const struct root_saving *s = p->saving;

	if (!s || p->as_root != AS_ROOT_NESTED || (s->uid == 0 && s->gid == 0))
		return 0;
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, s->gid, s->gid, s->gid) < 0 ||
	    syscall(SYS_setresuid, s->uid, s->uid, s->uid) < 0)
		return err_sys(e, "cannot become user %u", s->uid);
	return 0;
}

void command_exec(const struct command_start *c)
{
	struct plan *p = c->plan;
	struct status_page *b = p->page;

	if (c->pinned)
		sched_setaffinity(0, sizeof(c->cpus), &c->cpus);
	if (p->as_root == AS_ROOT_NESTED && become_root(p, c->fds) < 0)
		_exit(125);
	command_reset_signals();
	if (attach_session(p, c->fds, &b->err) < 0)
		_exit(125);
	b->proven |= verify_privileges(p, c->fds->scratch);
	if (sys_close_range(3, ~0u, CLOSE_RANGE_UNSHARE) == 0)
		b->proven |= verify_fds(2);
	/* Not before: a path such as /proc/self/fd/7 would lead to what this process still has open. */
	if (chdir(p->workdir) < 0) {
		err_field(&b->err, ERR_INVALID, "workdir", "workdir: cannot enter %s: %s",
			  p->workdir, strerror(errno));
		_exit(125);
	}
	if (verify_required(p, &b->err) < 0 || restrict_command(p, &b->err) < 0)
		_exit(125);
	if (become_named_user(p, &b->err) < 0)
		_exit(125);
	umask(022);
	if (p->seccomp && seccomp_narrow(p->seccomp, &b->err) < 0)
		_exit(125);
	b->exec_errno = exec_argv(p);
	if (b->exec_errno == ENOENT)
		find_what_is_missing(p);
	_exit(127);
}

/*
 * Named shell sessions: cd, exported variables and functions of one command are there in the next.
 *
 * Each command is a shell of its own, so that its exit status comes from the kernel and not from a
 * shell that code inside controls. The shell starts by reading the session's state, a script below
 * /tmp, and ends by writing a new one, which replaces the old one if it is complete. Code inside
 * can change the script: it could as well run what the script says.
 */
#include "guest/exec/command.h"

#define NAME_BYTES STR_ALNUM "_"
#define END "#end\n"
#define STATE_PATH 128

/* A hash instead of the name itself, which may hold any character. */
static void state_path(const struct guest *g, const char *name, char *ret, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325 ^ g->boot_id;
	const char *dir = getenv("TMPDIR"); /* of the guest itself: tests have one */

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
	snprintf(ret, size, "%s/.cloche-session-%016" PRIx64, dir ? dir : "/tmp", hash);
}

/* 'it'\''s' */
static void add_quoted(struct buf *b, const char *s)
{
	buf_add(b, "'", 1);
	for (; *s; s++) {
		if (*s == '\'')
			buf_add(b, "'\\''", 4);
		else
			buf_add(b, s, 1);
	}
	buf_add(b, "'", 1);
}

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

/*
 * What the shell executes at its end to save the state. Variables of the shell itself are not part
 * of it.
 */
static const char bash_save[] =
	"{ declare -f; for v in $(compgen -e); do case $v in _|SHLVL|PWD|OLDPWD|__cloche*) ;; "
	"*) declare -p \"$v\";; esac; done; umask -p; printf 'cd -- %q\\n#end\\n' \"$PWD\"; }";
static const char plain_save[] =
	"{ export -p; umask -S | sed 's/^/umask /'; printf 'cd -- '; "
	"pwd | sed \"s/'/'\\\\\\\\''/g; s/^/'/; s/\\$/'/\"; echo '#end'; }";

/* A variable that the session unset must not come back from the sandbox's environment. */
#define BASH_FORGET "for __cloche in $(compgen -e); do unset \"$__cloche\"; done; unset __cloche; "

static void add_taken(struct buf *b, char *s)
{
	add_text(b, s);
	free(s);
}

static void add_script(struct buf *b, const char *path, bool bash, const struct list *env)
{
	add_taken(b, str_format("if [ -r %s ]; then %s. %s; fi 2>/dev/null\n", path,
				bash ? BASH_FORGET : "", path));
	for (size_t i = 0; i < env->count; i++) {
		const char *equals = strchr(env->items[i], '=');
		int len = equals ? (int)(equals - env->items[i]) : 0;

		/* A shell cannot export other names. */
		if (!equals || strspn(env->items[i], NAME_BYTES) != (size_t)len)
			continue;
		add_taken(b, str_format("export %.*s=", len, env->items[i]));
		add_quoted(b, equals + 1);
		add_text(b, "\n");
	}
	add_taken(b, str_format("__cloche_save() { %s%s >| %s.new 2>/dev/null; }\n"
				"trap __cloche_save EXIT\n",
				bash ? "unset -f __cloche_save; " : "",
				bash ? bash_save : plain_save, path));
}

void session_wrap(const struct guest *g, const struct exec_args *a, struct list *argv)
{
	bool bash = access("/bin/bash", X_OK) == 0;
	auto_buf struct buf b = {0};
	struct list wrapped = {0};
	char path[STATE_PATH];

	state_path(g, a->session, path, sizeof(path));
	add_script(&b, path, bash, &a->env);
	if (a->flags & GUEST_EXEC_SHELL) {
		add_text(&b, "eval ");
		add_quoted(&b, argv->items[0]);
	} else {
		for (size_t i = 0; i < argv->count; i++) {
			add_quoted(&b, argv->items[i]);
			add_text(&b, " ");
		}
	}
	buf_add(&b, "\n", 2); /* with the NUL */
	list_add(&wrapped, bash ? "/bin/bash" : "/bin/sh");
	if (bash && (a->flags & GUEST_EXEC_LOGIN))
		list_add(&wrapped, "-l");
	list_add(&wrapped, "-c");
	list_add(&wrapped, buf_head(&b));
	list_done(argv);
	*argv = wrapped;
}

void session_keep(const struct guest *g, const char *name)
{
	char path[STATE_PATH], fresh[STATE_PATH + 8], end[sizeof(END)] = "";
	off_t size;

	state_path(g, name, path, sizeof(path));
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	auto_close int fd = open(fresh, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return;
	size = lseek(fd, 0, SEEK_END);
	if (size >= (off_t)strlen(END) &&
	    pread(fd, end, strlen(END), size - (off_t)strlen(END)) == (ssize_t)strlen(END) &&
	    str_equal(end, END))
		rename(fresh, path);
	else
		unlink(fresh);
}

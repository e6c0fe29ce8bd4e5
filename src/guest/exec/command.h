/*
 * The commands of a sandbox: started by the daemon, reaped here. Their output is kept for streams
 * that attach later, their end until the daemon has taken it.
 */
#pragma once

#include "base/base.h"
#include "guest/exec/output.h"
#include "guest/link/server.h"

#include <sys/resource.h>

#define COMMANDS_ENDED 256	   /* kept at most */
#define COMMAND_KEEP_MS 30000	   /* kept at least so long, unless there are too many */
#define COMMAND_AHEAD (128u << 10) /* read ahead of a slow reader */
#define COMMAND_INPUT (1u << 20)   /* waiting to be read by the command */
#define COMMAND_ARGV (16u << 10)   /* of the arguments kept for lists */
#define COMMAND_QUIET_MS 2	   /* most commands in a warm sandbox have ended by then */
#define COMMAND_LATE (1u << 20)	   /* read after its end: as much as a pipe holds */

struct command_exit {
	int wait_status, exec_errno;
	enum guest_why why;
	unsigned limits; /* GUEST_HIT_* */
	uint64_t duration_us, cpu_us, max_rss_bytes;
	uint64_t disk_bytes; /* of one in a warm sandbox */
};

struct output_source {
	struct command *command;
	struct loop_watch watch; /* fd -1: closed */
	uint8_t type;
	bool dry; /* the last read found nothing */
};

struct attachment {
	struct attachment *next;
	struct command *command;
	struct guest_stream *stream;
	uint64_t seq; /* to be sent next */
};

struct command {
	struct command *next, **back;
	struct guest *guest;
	uint32_t eid;
	pid_t pid;
	uint8_t flags;
	char *tag, *session, *cwd;
	struct list argv;
	uint64_t started_ms; /* unix */
	int64_t started_ns, ended_ns;
	bool reaped;   /* exit is valid */
	bool finished; /* and all its output was read: the end may be sent */
	bool acked;
	struct command_exit exit;

	struct loop_watch input; /* its stdin or terminal; fd -1: closed */
	struct buf waiting;	 /* to be written to input */
	bool input_ends;
	struct output_source sources[2];
	struct output output;
	size_t read_late;
	struct attachment *attached;
	struct loop_timer timeout, again;
	struct loop_timer deadline; /* while it is set, output is not read */
	unsigned again_ms;

	int prefork;	   /* socket to its process, which makes copies; -1: an ordinary command */
	int64_t copied_ns; /* when a prefork last made a copy */
	bool in_sandbox;   /* a warm one; the next three are what its task reported */
	uint32_t layers;
	int landlock_abi;
	bool listening;
};

/* What G_EXEC says. */
struct exec_args {
	uint8_t flags;
	uint32_t rows, cols, open_files;
	uint64_t timeout_ms;
	char cwd[GUEST_MAX_PATH], user[GUEST_MAX_USER];
	char tag[GUEST_MAX_NAME], session[GUEST_MAX_NAME];
	struct list argv, env;
};
/* NULL: malformed. The directory is made absolute. */
struct exec_args *exec_args_unpack(struct guest *g, struct unpack *u);
/* Makes the directory absolute; an empty one becomes the sandbox's. */
void exec_args_set_cwd(const struct guest *g, struct exec_args *a);
/* The environment of the command: the defaults, the sandbox's variables, then its own. */
void exec_args_env(const struct guest *g, const struct exec_args *a, struct list *ret);
void exec_args_free(struct exec_args *a);
/* Can a command start in this directory? If not, answers the stream and returns false. */
bool command_has_cwd(struct guest_stream *s, const char *cwd);
/* u32 n, n x str; false: too many or malformed. */
bool command_unpack_list(struct unpack *u, struct list *ret);

struct spawned;
/* Starts a command; s NULL: nobody is told. NULL: it cannot be started, as s is told. */
struct command *command_start(struct guest *g, struct exec_args *a, struct guest_stream *s);
/* A command that has no process yet; command_begin says which process it is. */
struct command *command_new(struct guest *g, const struct exec_args *a);
void command_begin(struct command *c, const struct exec_args *a, const struct spawned *p,
		   struct guest_stream *s);
void command_free(struct command *c);
struct command *command_find(struct guest *g, uint32_t eid);
void command_reaped(struct guest *g, pid_t pid, int status, const struct rusage *usage);
struct task_end;
/* For struct task_owner. */
void command_left_sandbox(void *command, const struct task_end *e);
void command_free_all(struct guest *g);
/* Does it run, and is no prefork? */
static inline bool command_is_running(const struct command *c)
{
	return !c->reaped && c->prefork < 0;
}
size_t command_running(const struct guest *g);
/* guest_exec_item */
void command_pack(const struct command *c, struct buf *ret);

/* Kills the whole tree, and tries again until no process of it is left. */
void command_kill(struct command *c, enum guest_why why);

/* ---- streams of a command (attach.c) ---- */
void command_attach(struct command *c, struct guest_stream *s, uint64_t from);
void command_detach_all(struct command *c);
/* The command is finished: attach.c has read all its output. */
void command_ended(struct command *c);
/* Bytes for its stdin; false: stdin is closed. */
bool command_input(struct command *c, const char *bytes, size_t len, bool close);
void command_close_input(struct command *c);
/* Reads its output as long as the readers keep up. */
void command_watch_sources(struct command *c);

/* The mark of its processes (tree.h). */
uint64_t command_mark(const struct command *c);

/* ---- env.c ---- */
/* Is there such a user? The empty name, "user" and "root" are the same one. */
bool env_knows_user(const char *user);
/* The user id that a command of this user takes; 0: the guest's own. */
uint32_t env_uid_of(const struct guest *g, const char *user);
/* The environment of a command, made from nothing: defaults, then the sandbox's variables. */
void env_make(const struct guest *g, const char *user, const char *cwd, bool tty, struct list *ret);

/* ---- session.c ---- */
/* Turns argv, made from these arguments, into a shell that keeps the session's state. */
void session_wrap(const struct guest *g, const struct exec_args *a, struct list *argv);
/* A command of the session has ended. */
void session_keep(const struct guest *g, const char *name);

/* ---- service.c ---- */
void services_stop(struct guest *g);
/* The command may be one of a service, which is started again. */
void service_ended(struct guest *g, uint32_t eid);

/* ---- prefork.c ---- */
/* The socket of a command that is to be forked: ret_theirs is for its process. */
int prefork_open(struct command *c, int *ret_theirs, struct err *e);

/* ---- oom.c ---- */
/* A command has started: watches memory where no cgroup limits it. */
void oom_watch(struct guest *g);
void oom_stop(struct guest *g);

/* ---- denials.c ---- */
int denials_start(struct guest *g);
/* The sandbox has a network: names are no longer refused here. */
void denials_leave_names(struct guest *g);
void denials_stop(struct guest *g);
/* Groups of denials that belong to this command, or may. */
uint32_t denials_count(const struct guest *g, const struct command *c);
/* Tells the listeners of G_EVENTS that a command, or the sandbox, has ended. */
void denials_tell_exec(struct guest *g, const struct command *c);
void denials_tell_end(struct guest *g);
/* A notification or a query from a warm sandbox, whose command is known. */
void denials_take_notify(struct guest *g, int listener, uint32_t eid);
void denials_take_query(struct guest *g, int fd, uint32_t eid);

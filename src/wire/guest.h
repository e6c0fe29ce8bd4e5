/*
 * The guest protocol: the messages between the daemon and cloche-guest, pid 1 of a sandbox, over
 * one byte stream (a Unix socket here; a vsock or an attached container stream elsewhere). No fds.
 *
 * Frames. A header of 12 bytes, then at most GUEST_MAX_PAYLOAD bytes. All numbers little-endian;
 * payloads as in wire/pack.h.
 *
 *   u32 size of the payload | u32 stream | u8 type | u8 flags (0) | u16 zero
 *
 * Streams. The daemon opens a stream by sending a request with a new, higher stream number. The
 * guest answers with G_OK or G_ERROR, and for most requests that ends the stream. Requests marked
 * "goes on" stay open after G_OK until one side sends G_END (guest: nothing more comes; daemon: I am
 * no longer interested) or the guest sends G_ERROR. Frames for a stream that is not open are
 * dropped by the daemon (they may cross an end); the guest drops them too. Stream 0 is the link.
 *
 * Back-pressure. On streams that go on, bytes of G_DATA, G_OUT, G_ERR and G_ITEM frames count
 * (payloads) against a window of GUEST_WINDOW in each direction; the receiver returns what it has
 * consumed by G_CREDIT (u32). Whoever sends more than the window breaks the link. All other frames
 * are small and bounded in number by the requests.
 *
 * Generations. The first frame on a connection is G_HELLO by the daemon. The guest serves one
 * connection: a hello with a higher generation closes the older connection; a lower one is refused
 * by closing. Commands go on when a link is lost.
 *
 * A daemon trusts nothing that a guest says but what only concerns its own sandbox: sizes are
 * bounded before anything is allocated, unknown types and malformed payloads break the link.
 */
#pragma once

#include "base/base.h"

#define GUEST_VERSION 1
#define GUEST_HEADER 12
#define GUEST_MAX_PAYLOAD 65536
#define GUEST_WINDOW (256u << 10)
#define GUEST_MAX_STREAMS 1024 /* open at once; more are refused with EMFILE */
#define GUEST_MAX_PATH 4096
#define GUEST_MAX_USER 64
#define GUEST_MAX_GLOB 1024
/* /run/cloche/agent.sock leads there: below /run the guest can write nothing. */
#define GUEST_AGENT_SOCKET "/tmp/.cloche-agent.sock"
#define GUEST_MAX_NAME 256			 /* tag and session */
#define GUEST_MAX_ARGS 16384			 /* argv and env: count of each */
#define GUEST_MAX_EXEC (32u * GUEST_MAX_PAYLOAD) /* the whole of G_EXEC, G_RUN, G_FORK */

/* What the guest finds open when it is executed; see sandbox/inside/boot.h. */
#define GUEST_FD_LISTENER 3 /* listening Unix stream socket */
#define GUEST_FD_NOTIFY 4   /* of the seccomp filter; may be closed */
#define GUEST_FD_DNS 5	    /* name server's socket; may be closed */
#define GUEST_FD_SCRATCH 6  /* O_PATH: the tmpfs with all that can be written, for snapshots */

enum guest_type {
	/* ---- daemon to guest ---- */
	G_HELLO = 1, /* stream 0: u32 version, u64 generation -> G_WELCOME on stream 0 */
	/*
	 * How this sandbox is to be used; sent once after boot or at the claim from a pool, again when
	 * it changes. u64 ttl_ms (0: none; from now, on a clock that counts suspend): the guest ends
	 * its sandbox then even if no daemon is there; u64 log_bytes (kept output of each command);
	 * u32 n, n x str "K=V": environment of every command; str workdir; u32 cpus_milli (thread
	 * count variables follow it); u8 network (may be missing: none): names are answered from outside
	 * from now on, so the guest leaves port 53 -> G_OK
	 */
	G_CONFIGURE,
	/*
	 * Starts a command. u8 flags (GUEST_EXEC_*), u32 rows, u32 cols, u64 timeout_ms (0: none),
	 * u32 open_files_soft (0: as booted), str cwd ("": workdir), str user ("": user), str tag,
	 * str session ("": none), u32 n, n x str argv, u32 n, n x str "K=V" env. With
	 * GUEST_EXEC_SHELL argv is one string for `/bin/bash -l -c` (or /bin/sh). A named session
	 * keeps cd, exported variables and functions between its commands; one at a time (EBUSY).
	 * -> G_OK u32 eid, u32 pid, u32 exec_errno (0 so far: it runs); goes on: G_OUT, G_ERR (u64 seq,
	 * bytes), then G_EXIT, G_END.
	 * A command that cannot be executed is G_OK, and a G_EXIT with exec_errno.
	 * Input: G_DATA, then G_CLOSE. seq counts bytes of both outputs; the first one is 0.
	 * A request larger than a frame: G_MORE frames before it on the same stream are put in front.
	 */
	G_EXEC,
	G_ATTACH, /* u32 eid, u64 from (seq; older than what is kept: from the oldest) -> as G_EXEC */
	G_SIGNAL, /* u32 eid, u32 signal, u8 whole tree -> G_OK */
	G_RESIZE, /* u32 eid, u32 rows, u32 cols -> G_OK */
	G_EXECS,  /* -> goes on: G_ITEM (guest_exec_item), G_END */
	G_ACK,	  /* u32 eid: its exit status was taken, it may be forgotten -> G_OK */
	G_INPUT,  /* u32 eid, str bytes, u8 close: stdin of a command without its stream -> G_OK */
	/* str path, u64 offset, u64 len (~0: to the end) -> G_OK guest_stat; goes on: G_DATA, G_END */
	G_READ,
	/*
	 * str path, u32 mode, u64 offset (GUEST_WRITE_*: ~0 replace whole file atomically at its end),
	 * u8 make parents -> G_OK when it may begin; goes on: daemon G_DATA..., G_CLOSE; then the guest
	 * sends G_DONE u64 size, G_END. G_END by the daemon before G_CLOSE drops what was written (if whole).
	 */
	G_WRITE,
	G_STAT, /* str path, u8 follow -> G_OK guest_stat */
	/* str path, u32 depth (1: the directory itself) -> G_OK; goes on: G_ITEM (guest_stat), G_END */
	G_LIST,
	/* str path, u32 mode, u8 parents -> G_OK u8 created; EEXIST only if not a directory or !parents */
	G_MKDIR,
	G_MOVE,	      /* str from, str to, u8 overwrite -> G_OK guest_stat */
	G_REMOVE,     /* str path, u8 recursive -> G_OK */
	G_CHMOD,      /* str path, u32 mode (~0: leave), u32 uid, u32 gid (~0: leave) -> G_OK */
	G_XATTR_SET,  /* str path, str name, str value, u8 remove -> G_OK; user.* only */
	G_XATTR_LIST, /* str path -> G_OK u32 n, n x (str name, str value) */
	/*
	 * str path, u8 flags (GUEST_TAR_*) -> G_OK; goes on: G_DATA, G_END. A pax tar: xattrs user.*,
	 * holes (GNU.sparse 1.0), hard links, odd names, nanoseconds.
	 */
	G_TAR_OUT,
	/* str path, u8 flags -> G_OK; goes on: daemon G_DATA..., G_CLOSE; guest G_DONE u64 entries, G_END */
	G_TAR_IN,
	/*
	 * str path, str glob ("": all; ** crosses directories), str content ("": any; plain text, or
	 * with flag GUEST_SEARCH_REGEX a POSIX extended expression), u8 flags, u32 max results
	 * -> G_OK; goes on: G_ITEM (str path, u64 line (0: none), str text), G_END u8 cut
	 */
	G_SEARCH,
	/*
	 * str path, u8 recursive -> G_OK; goes on: G_ITEM (u8 guest_change, str path (absolute, beginning
	 * as path was named), u8 is_dir)
	 */
	G_WATCH,
	G_CONNECT, /* u32 port -> G_OK; goes on: G_DATA both ways, G_CLOSE half-closes, G_END */
	G_STATS,   /* -> G_OK guest_stats */
	G_PING,	   /* -> G_OK */
	G_EVENTS, /* -> G_OK; goes on: G_ITEM (guest_denial, guest_exec_item when one ended): see below */
	/*
	 * u32 eid (0: all): the calls that its processes were refused, and the look-ups refused since it
	 * began, by whichever process -> G_OK u32 n, n x (u8 kind, str rule, str target, str explain, u64 count)
	 */
	G_DENIALS,
	/*
	 * In a warm host (warm/warm.h): runs a command or Python code in a warm sandbox of its own. u8 kind
	 * (GUEST_RUN_*, GUEST_RUN_HOLD), u8 flags (GUEST_EXEC_NO_STDIN, _KILL), u64 timeout_ms, str cwd, u32 n, n x str
	 * argv (Python: the script's path, then its arguments), u32 n, n x str "K=V", str code (others: files
	 * that are placed first, each as path NUL octal mode NUL size NUL bytes)
	 * -> G_OK u32 eid, u32 pid, u32 layers proven, u32 Landlock ABI, u8 whether notifications are
	 * served; goes on as G_EXEC does. Waits until a warm sandbox is ready.
	 */
	G_RUN,
	/*
	 * u32 eid of a command that was started with GUEST_EXEC_PREFORK, then as G_EXEC: its process forks a
	 * copy of itself, which becomes a command of its own -> as G_EXEC; EAGAIN: it does not fork. argv
	 * only shows in lists of commands. No terminal, shell or session.
	 */
	G_FORK,
	/*
	 * u32 n, n x str: lines for a shell, which run from now on in place of those before, and are started
	 * again when they end; then perhaps str user, whose they are -> G_OK
	 */
	G_SERVICES,
	/*
	 * Waits for a connection to the agent's socket inside, GUEST_AGENT_SOCKET -> G_OK once there is one;
	 * goes on as G_CONNECT does. With the first of these requests the guest begins to listen.
	 */
	G_ACCEPT,
	/*
	 * u32 eid of a run with GUEST_RUN_HOLD, u8 type (G_READ, G_SEARCH), then as that request: the same in the
	 * command's own warm sandbox, until G_ACK -> as that request
	 */
	G_INSIDE,
	/* ---- both ways ---- */
	G_DATA = 64,
	G_CLOSE,  /* no more G_DATA from here */
	G_CREDIT, /* u32 bytes */
	G_END,
	G_MORE,
	/* ---- guest to daemon ---- */
	/* stream 0: u32 version, u64 generation, u64 boot id (random, of this guest) */
	G_WELCOME = 96,
	G_OK,
	G_ERROR, /* u32 errno (the kernel's number on x86_64 as on aarch64), str message */
	G_OUT,	 /* u64 seq, bytes (the rest of the payload) */
	G_ERR,
	G_EXIT, /* guest_exit; of a warm sandbox then u64 disk_bytes, UINT64_MAX: not known */
	G_ITEM,
	G_DONE,
};

enum guest_exec_flags {
	GUEST_EXEC_TTY = 1,
	GUEST_EXEC_SHELL = 2,
	GUEST_EXEC_NO_STDIN = 4,   /* /dev/null */
	GUEST_EXEC_BACKGROUND = 8, /* never waits for a reader: old output is dropped */
	/* G_END by the daemon kills the tree of processes; a lost link does not */
	GUEST_EXEC_KILL = 16,
	GUEST_EXEC_LOGIN = 32,	  /* GUEST_EXEC_SHELL: bash -l */
	GUEST_EXEC_MERGE = 64,	  /* stderr into stdout */
	GUEST_EXEC_PREFORK = 128, /* can be asked for copies of itself (guest/exec/prefork.c) */
};

enum guest_run { GUEST_RUN_COMMAND, GUEST_RUN_PYTHON, GUEST_RUN_NODE };
/* With the kind: the files stay until G_ACK, a minute at most after the end. */
#define GUEST_RUN_HOLD 0x80

enum guest_tar_flags {
	/*
	 * out: the upper directory of an overlay, with whiteouts as character devices 0:0 and opaque
	 * directories by the pax key CLOCHE.opaque; in: such entries remove files that are there
	 */
	GUEST_TAR_UPPER = 1,
	/* in: devices (except whiteouts with GUEST_TAR_UPPER) and set-id are errors, not skipped */
	GUEST_TAR_STRICT = 2,
	/* out: the tree's top has its name, also that of a directory or a link; "." if the path ends so */
	GUEST_TAR_NAMED = 4,
};

enum guest_search_flags {
	GUEST_SEARCH_REGEX = 1,
	GUEST_SEARCH_NOCASE = 2,
	GUEST_SEARCH_HIDDEN = 4
};
enum guest_change {
	GUEST_CREATED,
	GUEST_WRITTEN,
	GUEST_REMOVED,
	GUEST_RENAMED,
	GUEST_CHMOD,
	GUEST_OVERFLOW
};

/*
 * guest_stat: str path (absolute), u8 kind ('f' 'd' 'l' 'o'), u32 mode, u32 uid, u32 gid, u64 size,
 *             u64 mtime_ns, str owner name, str group name, str link target
 * guest_exec_item: u32 eid, u32 pid, u8 running, u8 flags, str tag, str session, str cwd, u32 argc,
 *             argc x str, u64 started_ms (unix), guest_exit (zeros while it runs), u64 oldest seq kept,
 *             u64 next seq
 * guest_exit: u32 wait status as of waitpid, u32 exec_errno, u8 why (GUEST_WHY_*), u64 duration_us,
 *             u64 cpu_us, u64 max_rss_bytes, u32 denials seen (G_DENIALS lists them)
 * guest_stats: u32 processes, u64 cpu_us, u64 memory_bytes (sum of private memory; a cgroup is more
 *             exact), u64 disk_bytes, u64 disk_limit_bytes, u64 net_rx_bytes, u64 net_tx_bytes (beyond
 *             loopback), u32 execs running
 * G_EVENTS items start with u8: 1 = denial: u8 kind (enum denial_kind), str rule/report name,
 *             str target, str explain, u64 count; 2 = exec ended: guest_exec_item; 3 = ttl ended
 *             (last frame)
 */
enum guest_why { GUEST_WHY_NONE, GUEST_WHY_TIMEOUT, GUEST_WHY_KILLED, GUEST_WHY_OOM };
/* In the same byte: limits that were hit, as far as the guest can tell (warm sandboxes). */
#define GUEST_WHY_MASK 0x0f
#define GUEST_HIT_MEMORY 0x10
#define GUEST_HIT_PIDS 0x20
#define GUEST_HIT_DISK 0x40

/* ---- frames, for both ends ---- */

struct guest_header {
	uint32_t size, stream;
	uint8_t type;
};

void guest_header_put(unsigned char *ret, const struct guest_header *h);
/* False if it is malformed: a size or bytes that cannot be. The type is not judged. */
bool guest_header_get(const unsigned char *bytes, struct guest_header *ret);
/* Do its payloads count against a window? */
bool guest_is_counted(uint8_t type);
/* Adds a whole frame; len is at most GUEST_MAX_PAYLOAD. */
void guest_frame_add(struct buf *b, uint32_t stream, uint8_t type, const void *payload, size_t len);

/* The tools of the MCP door as tables: arguments, results, descriptions, handlers. */
#include "api/mcp/tools.h"

#include "api/mcp/mcp_internal.h"
#include "auth/auth.h"

/* A field that may be left out, and one that may not. */
#define FIELD(n, t, h, ...)                                                                        \
	{                                                                                          \
		.name = n, .type = t, .help = h, __VA_ARGS__                                       \
	}
#define NEEDED(n, t, h, ...) FIELD(n, t, h, .flags = MCP_REQUIRED, __VA_ARGS__)
#define END FIELD(NULL, 0, NULL)
#define FIELDS(...)                                                                                \
	(const struct mcp_field[])                                                                 \
	{                                                                                          \
		__VA_ARGS__, END                                                                   \
	}
#define NO_FIELDS                                                                                  \
	(const struct mcp_field[])                                                                 \
	{                                                                                          \
		END                                                                                \
	}
#define SANDBOX                                                                                    \
	FIELD("sandbox_id", MCP_TEXT,                                                              \
	      "Another sandbox than the default one: an id from sandbox_create or restore")
#define CWD FIELD("cwd", MCP_TEXT, "Directory to run in; default: /workspace")
#define TIMEOUT                                                                                    \
	FIELD("timeout", MCP_NUMBER, "Seconds after which it is stopped; default 45", .min = 0.1,  \
	      .max = 86400)
#define PROCESS NEEDED("process_id", MCP_INT, "From process_start", .min = 1, .max = 4294967295.0)
#define PATH(what) NEEDED("path", MCP_TEXT, what)

static const char *const language_names[] = {"python", "bash", "javascript", "typescript", "perl",
					     "ruby",   "php",  "lua",	     "r",	   NULL};
static const char *const encodings[] = {"utf-8", "base64", NULL};

/* ---- results that several tools share ---- */
static const struct mcp_field denial_out[] = {
	NEEDED("what", MCP_TEXT, "Kind"),
	NEEDED("target", MCP_TEXT, "Of what"),
	NEEDED("count", MCP_INT, "How often"),
	NEEDED("explain", MCP_TEXT, "Why, and what to do"),
	END,
};
static const struct mcp_field result_out[] = {
	NEEDED("stdout", MCP_TEXT, "Its output"),
	NEEDED("stderr", MCP_TEXT, "Its error output"),
	FIELD("exit_code", MCP_INT, "0: success; null: it did not end by itself",
	      .flags = MCP_REQUIRED | MCP_NULLABLE),
	NEEDED("status", MCP_TEXT,
	       "exited, signaled, timeout, oom, cpu_time, output_limit or killed"),
	NEEDED("timed_out", MCP_BOOL, "Stopped by its timeout"),
	NEEDED("truncated", MCP_BOOL, "The middle of a long output was left out"),
	NEEDED("duration_ms", MCP_NUMBER, "Wall time"),
	NEEDED("denials", MCP_LIST, "What the sandbox refused meanwhile", .items = denial_out),
	FIELD("advice", MCP_TEXT, "What to do next, where that is known"),
	END,
};
static const struct mcp_field file_out[] = {
	NEEDED("path", MCP_TEXT, "Absolute"),
	NEEDED("type", MCP_TEXT, "file, directory, link, other"),
	NEEDED("size", MCP_INT, "Bytes"),
	NEEDED("modified", MCP_INT, "Unix time in seconds"),
	END,
};
static const struct mcp_field match_out[] = {
	NEEDED("path", MCP_TEXT, "Absolute"),
	NEEDED("line", MCP_INT, "From 1; 0: the name matched"),
	NEEDED("text", MCP_TEXT, "That line"),
	END,
};
static const struct mcp_field done_out[] = {
	NEEDED("done", MCP_BOOL, "true"),
	END,
};
static const struct mcp_field sandbox_out[] = {
	NEEDED("sandbox_id", MCP_TEXT, "For the other tools"),
	NEEDED("name", MCP_TEXT, "As given, or empty"),
	NEEDED("state", MCP_TEXT, "running, paused, ..."),
	NEEDED("default", MCP_BOOL, "Used when a tool is called without sandbox_id"),
	END,
};

const struct mcp_tool mcp_tools[] = {
	{"run_code", "Run code",
	 "Run a program in an isolated sandbox on this machine and get its output. Each call is a "
	 "new "
	 "process: variables are gone afterwards, files in /workspace stay. Print what you want to "
	 "see. There is no network.",
	 0, SCOPE_RUN,
	 FIELDS(NEEDED("code", MCP_TEXT, "The source text"),
		FIELD("language", MCP_TEXT, "Default: python", .values = language_names), CWD,
		TIMEOUT, SANDBOX),
	 result_out, mcp_run_code, false},
	{"run_command", "Run a command",
	 "Run a shell command in the sandbox and get its output and exit code. Files in /workspace "
	 "stay between calls; cd and variables do not. What takes longer than a minute, and "
	 "servers, "
	 "belong to process_start.",
	 0, SCOPE_RUN,
	 FIELDS(NEEDED("command", MCP_TEXT,
		       "A line for bash: pipes, &&, redirections and several lines are fine"),
		CWD, TIMEOUT, FIELD("stdin", MCP_TEXT, "Text that the command reads from stdin"),
		SANDBOX),
	 result_out, mcp_run_command, false},
	{"read_file", "Read a file",
	 "Read a file of the sandbox. Text comes as text, PNG, JPEG, GIF and WebP as an image, "
	 "other "
	 "bytes as base64.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(PATH("Absolute, or relative to /workspace"),
		FIELD("offset", MCP_INT, "First byte to read; default 0", .min = 0, .max = 1e15),
		FIELD("length", MCP_INT, "At most so many bytes; default and maximum 262144",
		      .min = 1, .max = 262144),
		SANDBOX),
	 FIELDS(NEEDED("path", MCP_TEXT, "Absolute"),
		NEEDED("size", MCP_INT, "Of the whole file, in bytes"),
		NEEDED("encoding", MCP_TEXT,
		       "utf-8, base64, or image: then it is an image of this result"),
		NEEDED("content", MCP_TEXT, "What was read"),
		NEEDED("truncated", MCP_BOOL, "There is more behind it")),
	 mcp_read_file, false},
	{"write_file", "Write a file", "Create or replace a file of the sandbox.",
	 MCP_DESTRUCTIVE | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(PATH("Absolute, or relative to /workspace; directories on the way are made"),
		NEEDED("content", MCP_TEXT, "All of the file"),
		FIELD("encoding", MCP_TEXT,
		      "Of content; default utf-8. base64 is for bytes that are not text",
		      .values = encodings),
		FIELD("executable", MCP_BOOL, "May be executed; default false"), SANDBOX),
	 FIELDS(NEEDED("path", MCP_TEXT, "As given"), NEEDED("size", MCP_INT, "Bytes written")),
	 mcp_write_file, false},
	{"list_files", "List files", "List a directory of the sandbox.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(FIELD("path", MCP_TEXT, "A directory; default: /workspace"),
		FIELD("depth", MCP_INT, "Levels of directories; default 1", .min = 1, .max = 20),
		SANDBOX),
	 FIELDS(NEEDED("files", MCP_LIST, "By path", .items = file_out),
		NEEDED("truncated", MCP_BOOL, "There are more")),
	 mcp_list_files, false},
	{"search_files", "Search files",
	 "Find lines by their text, or files by their name, in the sandbox. Give content, glob or "
	 "both.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(FIELD("content", MCP_TEXT, "Text that a line must contain"),
		FIELD("glob", MCP_TEXT, "Names to look at, like *.py or **/test_*.c; default: all"),
		FIELD("path", MCP_TEXT, "Where to look; default: /workspace"),
		FIELD("regex", MCP_BOOL, "content is a POSIX extended regular expression"),
		FIELD("ignore_case", MCP_BOOL, "Letters match in either case"),
		FIELD("max_results", MCP_INT, "Default 100", .min = 1, .max = 1000), SANDBOX),
	 FIELDS(NEEDED("matches", MCP_LIST, "Lines, or files", .items = match_out),
		NEEDED("truncated", MCP_BOOL, "There are more")),
	 mcp_search_files, false},
	{"process_start", "Start a process",
	 "Start a long job or a server in the background; returns at once. Look at it with "
	 "process_poll.",
	 0, SCOPE_RUN,
	 FIELDS(NEEDED("command", MCP_TEXT, "A line for bash"), CWD,
		FIELD("timeout", MCP_NUMBER, "Seconds; default: as long as it takes", .min = 0.1,
		      .max = 86400),
		SANDBOX),
	 FIELDS(NEEDED("process_id", MCP_INT, "For the other process tools")), mcp_process_start,
	 false},
	{"process_poll", "Look at a process",
	 "Get what a background process has printed since the last poll, and whether it has ended.",
	 MCP_READ_ONLY, SCOPE_RUN,
	 FIELDS(PROCESS,
		FIELD("wait", MCP_NUMBER, "Seconds to wait for more output or its end; default 1",
		      .min = 0, .max = 50),
		FIELD("from", MCP_INT,
		      "Byte of the output to begin with; default: where the last poll ended",
		      .min = 0, .max = 1e15),
		SANDBOX),
	 FIELDS(NEEDED("running", MCP_BOOL, "Has not ended yet"),
		FIELD("exit_code", MCP_INT, "null: still running, or killed",
		      .flags = MCP_REQUIRED | MCP_NULLABLE),
		NEEDED("stdout", MCP_TEXT, "New output"),
		NEEDED("stderr", MCP_TEXT, "New error output"),
		NEEDED("next", MCP_INT, "Where the next poll begins"),
		NEEDED("status", MCP_TEXT, "running, exited, signaled, ..."),
		NEEDED("truncated", MCP_BOOL,
		       "Output was lost: it printed faster than it was polled")),
	 mcp_process_poll, false},
	{"process_write", "Write to a process", "Send text to the stdin of a background process.",
	 0, SCOPE_RUN,
	 FIELDS(PROCESS, NEEDED("input", MCP_TEXT, "Text for its stdin; end a line with \\n"),
		FIELD("close", MCP_BOOL, "No more input follows; default false"), SANDBOX),
	 done_out, mcp_process_write, false},
	{"process_kill", "Stop a process",
	 "Send a signal to a background process and all its children.", MCP_DESTRUCTIVE, SCOPE_RUN,
	 FIELDS(PROCESS,
		FIELD("signal", MCP_INT, "Default 15 (TERM); 9 cannot be ignored", .min = 1,
		      .max = 64),
		SANDBOX),
	 done_out, mcp_process_kill, false},
	{"sandbox_create", "Create a sandbox",
	 "Create a further, empty sandbox. Seldom needed: the default one is made at the first "
	 "call.",
	 0, SCOPE_RUN, FIELDS(FIELD("name", MCP_TEXT, "To recognise it by")), sandbox_out,
	 mcp_sandbox_create, true},
	{"sandbox_list", "List sandboxes", "List the sandboxes that this client has.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_READ, NO_FIELDS,
	 FIELDS(NEEDED("sandboxes", MCP_LIST, "Of this client", .items = sandbox_out)),
	 mcp_sandbox_list, true},
	{"sandbox_destroy", "Destroy a sandbox",
	 "Destroy a sandbox with its files and processes. Without one, the next call makes a new "
	 "default sandbox.",
	 MCP_DESTRUCTIVE | MCP_IDEMPOTENT, SCOPE_RUN,
	 FIELDS(NEEDED("sandbox_id", MCP_TEXT, "Which")), done_out, mcp_sandbox_destroy, true},
	{"snapshot", "Take a snapshot",
	 "Keep a copy of all files of the sandbox, to return to with restore. Processes are not "
	 "part "
	 "of it.",
	 0, SCOPE_RUN, FIELDS(FIELD("name", MCP_TEXT, "To recognise it by"), SANDBOX),
	 FIELDS(NEEDED("snapshot_id", MCP_TEXT, "For restore"), NEEDED("size", MCP_INT, "Bytes")),
	 mcp_snapshot, false},
	{"restore", "Restore a snapshot",
	 "Make a new sandbox with the files of a snapshot; it becomes the default one.", 0,
	 SCOPE_RUN, FIELDS(NEEDED("snapshot_id", MCP_TEXT, "From snapshot")), sandbox_out,
	 mcp_restore, true},
	{"get_url", "Get a URL",
	 "Get an address at which the user can see a server that listens inside the sandbox.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_READ,
	 FIELDS(NEEDED("port", MCP_INT, "That a server inside the sandbox listens on", .min = 1,
		       .max = 65535),
		SANDBOX),
	 FIELDS(NEEDED("url", MCP_TEXT, "Leads to the port"),
		NEEDED("note", MCP_TEXT, "Who can open it")),
	 mcp_get_url, false},
};
const size_t mcp_tool_count = ARRAY_LEN(mcp_tools);

const struct mcp_tool *mcp_tool_find(const char *name)
{
	for (size_t i = 0; i < mcp_tool_count; i++)
		if (str_equal(name, mcp_tools[i].name))
			return &mcp_tools[i];
	return NULL;
}

/* The table of tools: arguments, results, descriptions, handlers. */
#include "api/mcp/mcp_internal.h"

#define FIELDS(...) &(const struct body_table)BODY_TABLE(BODY_ALONE, __VA_ARGS__)
#define SANDBOX                                                                                    \
	FIELD("sandbox_id", BODY_TEXT,                                                             \
	      "Another sandbox than the default one: an id from sandbox_create or restore")
#define CWD FIELD("cwd", BODY_TEXT, "Directory to run in; default: /workspace")
#define TIMEOUT                                                                                    \
	FIELD("timeout", BODY_NUMBER, "Seconds after which it is stopped; default 45", .min = 0.1, \
	      .max = 86400)
#define PROCESS                                                                                    \
	NEEDED("process_id", BODY_INTEGER, "From process_start", .min = 1, .max = 4294967295.0)
#define CLEANED                                                                                    \
	FIELD("cleaned", BODY_OBJECT,                                                              \
	      "How much was taken out or replaced: invalid bytes, control and invisible "          \
	      "characters, secrets")
#define RAW FIELD("raw", BODY_FLAG, "Output as base64, byte by byte, and nothing taken out")
#define ENCODING FIELD("encoding", BODY_TEXT, "base64: of stdout and stderr, with raw")
#define PATH(what) NEEDED("path", BODY_TEXT, what)

static const char *const language_names[] = {"python", "bash", "javascript", "typescript", "perl",
					     "ruby",   "php",  "lua",	     "r",	   NULL};
static const char *const encodings[] = {"utf-8", "base64", NULL};

/* ---- results that several tools share ---- */
static const struct body_table denial_out = BODY_TABLE(
	BODY_ALONE, NEEDED("what", BODY_TEXT, "Kind"), NEEDED("target", BODY_TEXT, "Of what"),
	NEEDED("count", BODY_INTEGER, "How often"),
	NEEDED("explain", BODY_TEXT, "Why, and what to do"));
static const struct body_table result_out = BODY_TABLE(
	BODY_ALONE, NEEDED("stdout", BODY_TEXT, "Its output"),
	NEEDED("stderr", BODY_TEXT, "Its error output"),
	NEEDED("exit_code", BODY_INTEGER, "0: success; -1: it did not end by itself, see status"),
	NEEDED("status", BODY_TEXT,
	       "exited, signaled, timeout, oom, cpu_time, output_limit or killed"),
	NEEDED("timed_out", BODY_FLAG, "Stopped by its timeout"),
	NEEDED("truncated", BODY_FLAG, "The middle of a long output was left out"),
	NEEDED("duration_ms", BODY_NUMBER, "Wall time"),
	NEEDED("denials", BODY_ITEMS, "What the sandbox refused meanwhile", .items = &denial_out),
	FIELD("advice", BODY_TEXT, "What to do next, where that is known"), CLEANED, ENCODING);
static const struct body_table file_out =
	BODY_TABLE(BODY_ALONE, NEEDED("path", BODY_TEXT, "Absolute"),
		   NEEDED("type", BODY_TEXT, "file, directory, link, other"),
		   NEEDED("size", BODY_INTEGER, "Bytes"),
		   NEEDED("modified", BODY_INTEGER, "Unix time in seconds"));
static const struct body_table match_out =
	BODY_TABLE(BODY_ALONE, NEEDED("path", BODY_TEXT, "Absolute"),
		   NEEDED("line", BODY_INTEGER, "From 1; 0: the name matched"),
		   NEEDED("text", BODY_TEXT, "That line"));
static const struct body_table done_out = BODY_TABLE(BODY_ALONE, NEEDED("done", BODY_FLAG, "true"));
static const struct body_table sandbox_out =
	BODY_TABLE(BODY_ALONE, NEEDED("sandbox_id", BODY_TEXT, "For the other tools"),
		   NEEDED("name", BODY_TEXT, "As given, or empty"),
		   NEEDED("state", BODY_TEXT, "running, paused, ..."),
		   NEEDED("default", BODY_FLAG, "Used when a tool is called without sandbox_id"));

const struct mcp_tool mcp_tools[] = {
	{"run_code", "Run code",
	 "Run a program in an isolated sandbox on this machine and get its output. Each call is a "
	 "new process: variables are gone afterwards, files in /workspace stay. Print what you "
	 "want to see. There is no network, unless the user allowed destinations.",
	 0, SCOPE_RUN,
	 FIELDS(NEEDED("code", BODY_STRING, "The source text"),
		FIELD("language", BODY_TEXT, "Default: python", .values = language_names), CWD,
		TIMEOUT, RAW, SANDBOX),
	 &result_out, mcp_run_code, false},
	{"run_command", "Run a command",
	 "Run a shell command in the sandbox and get its output and exit code. Files in /workspace "
	 "stay between calls; cd and variables do not. What takes longer than a minute, and "
	 "servers, belong to process_start.",
	 0, SCOPE_RUN,
	 FIELDS(NEEDED("command", BODY_TEXT,
		       "A line for bash: pipes, &&, redirections and several lines are fine"),
		CWD, TIMEOUT, FIELD("stdin", BODY_STRING, "Text that the command reads from stdin"),
		RAW, SANDBOX),
	 &result_out, mcp_run_command, false},
	{"read_file", "Read a file",
	 "Read a file of the sandbox. Text comes as text, PNG, JPEG, GIF and WebP as an image, "
	 "other bytes as base64.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(PATH("Absolute, or relative to /workspace"),
		FIELD("offset", BODY_INTEGER, "First byte to read; default 0", .min = 0,
		      .max = 1e15),
		FIELD("length", BODY_INTEGER, "At most so many bytes; default and maximum 262144",
		      .min = 1, .max = 262144),
		FIELD("raw", BODY_FLAG, "The bytes as base64, and nothing taken out"), SANDBOX),
	 FIELDS(NEEDED("path", BODY_TEXT, "Absolute"), CLEANED,
		NEEDED("size", BODY_INTEGER, "Of the whole file, in bytes"),
		NEEDED("encoding", BODY_TEXT,
		       "utf-8, base64, or image: then it is an image of this result"),
		NEEDED("content", BODY_TEXT, "What was read"),
		NEEDED("truncated", BODY_FLAG, "There is more behind it")),
	 mcp_read_file, false},
	{"write_file", "Write a file", "Create or replace a file of the sandbox.",
	 MCP_DESTRUCTIVE | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(PATH("Absolute, or relative to /workspace; directories on the way are made"),
		NEEDED("content", BODY_STRING, "All of the file"),
		FIELD("encoding", BODY_TEXT,
		      "Of content; default utf-8. base64 is for bytes that are not text",
		      .values = encodings),
		FIELD("executable", BODY_FLAG, "May be executed; default false"), SANDBOX),
	 FIELDS(NEEDED("path", BODY_TEXT, "As given"),
		NEEDED("size", BODY_INTEGER, "Bytes written")),
	 mcp_write_file, false},
	{"edit_file", "Edit a file",
	 "Replace a text in a file of the sandbox. The text must be there exactly once, unless all "
	 "is set.",
	 MCP_DESTRUCTIVE, SCOPE_FILES,
	 FIELDS(PATH("Absolute, or relative to /workspace"),
		NEEDED("old", BODY_STRING,
		       "The text to replace; with enough around it to be unique"),
		NEEDED("new", BODY_STRING, "What to put there"),
		FIELD("all", BODY_FLAG, "Replace it wherever it is; default false"), SANDBOX),
	 FIELDS(NEEDED("path", BODY_TEXT, "As given"),
		NEEDED("replaced", BODY_INTEGER, "How often"),
		NEEDED("size", BODY_INTEGER, "Of the file, in bytes")),
	 mcp_edit_file, false},
	{"list_files", "List files", "List a directory of the sandbox.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(FIELD("path", BODY_TEXT, "A directory; default: /workspace"),
		FIELD("depth", BODY_INTEGER, "Levels of directories; default 1", .min = 1,
		      .max = 20),
		SANDBOX),
	 FIELDS(NEEDED("files", BODY_ITEMS, "By path", .items = &file_out),
		NEEDED("truncated", BODY_FLAG, "There are more"), CLEANED),
	 mcp_list_files, false},
	{"search_files", "Search files",
	 "Find lines by their text, or files by their name, in the sandbox. Give content, glob or "
	 "both.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES,
	 FIELDS(FIELD("content", BODY_TEXT, "Text that a line must contain"),
		FIELD("glob", BODY_TEXT,
		      "Names to look at, like *.py or **/test_*.c; default: all"),
		FIELD("path", BODY_TEXT, "Where to look; default: /workspace"),
		FIELD("regex", BODY_FLAG, "content is a POSIX extended regular expression"),
		FIELD("ignore_case", BODY_FLAG, "Letters match in either case"),
		FIELD("max_results", BODY_INTEGER, "Default 100", .min = 1, .max = 1000), SANDBOX),
	 FIELDS(NEEDED("matches", BODY_ITEMS, "Lines, or files", .items = &match_out),
		NEEDED("truncated", BODY_FLAG, "There are more"), CLEANED),
	 mcp_search_files, false},
	{"process_start", "Start a process",
	 "Start a long job or a server in the background; returns at once. Look at it with "
	 "process_poll.",
	 0, SCOPE_RUN,
	 FIELDS(NEEDED("command", BODY_TEXT, "A line for bash"), CWD,
		FIELD("timeout", BODY_NUMBER, "Seconds; default: as long as it takes", .min = 0.1,
		      .max = 86400),
		SANDBOX),
	 FIELDS(NEEDED("process_id", BODY_INTEGER, "For the other process tools")),
	 mcp_process_start, false},
	{"process_poll", "Look at a process",
	 "Get what a background process has printed since the last poll, and whether it has ended.",
	 MCP_READ_ONLY, SCOPE_RUN,
	 FIELDS(PROCESS,
		FIELD("wait", BODY_NUMBER, "Seconds to wait for more output or its end; default 1",
		      .min = 0, .max = 50),
		FIELD("from", BODY_INTEGER,
		      "Byte of the output to begin with; default: where the last poll ended",
		      .min = 0, .max = 1e15),
		RAW, SANDBOX),
	 FIELDS(NEEDED("running", BODY_FLAG, "Has not ended yet"), ENCODING,
		NEEDED("exit_code", BODY_INTEGER, "-1: still running, or killed"),
		NEEDED("stdout", BODY_TEXT, "New output"),
		NEEDED("stderr", BODY_TEXT, "New error output"),
		NEEDED("next", BODY_INTEGER, "Where the next poll begins"),
		NEEDED("status", BODY_TEXT, "running, exited, signaled, ..."), CLEANED,
		NEEDED("truncated", BODY_FLAG,
		       "Output was lost: it printed faster than it was polled")),
	 mcp_process_poll, false},
	{"process_write", "Write to a process", "Send text to the stdin of a background process.",
	 0, SCOPE_RUN,
	 FIELDS(PROCESS, NEEDED("input", BODY_STRING, "Text for its stdin; end a line with \\n"),
		FIELD("close", BODY_FLAG, "No more input follows; default false"), SANDBOX),
	 &done_out, mcp_process_write, false},
	{"process_kill", "Stop a process",
	 "Send a signal to a background process and all its children.", MCP_DESTRUCTIVE, SCOPE_RUN,
	 FIELDS(PROCESS,
		FIELD("signal", BODY_INTEGER, "Default 15 (TERM); 9 cannot be ignored", .min = 1,
		      .max = 64),
		SANDBOX),
	 &done_out, mcp_process_kill, false},
	{"sandbox_create", "Create a sandbox",
	 "Create a further, empty sandbox. Seldom needed: the default one is made at the first "
	 "call.",
	 0, SCOPE_RUN, FIELDS(FIELD("name", BODY_TEXT, "To recognise it by")), &sandbox_out,
	 mcp_sandbox_create, true},
	{"sandbox_list", "List sandboxes", "List the sandboxes that this client has.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_READ, &v1_empty_table,
	 FIELDS(NEEDED("sandboxes", BODY_ITEMS, "Of this client", .items = &sandbox_out)),
	 mcp_sandbox_list, true},
	{"sandbox_destroy", "Destroy a sandbox",
	 "Destroy a sandbox with its files and processes. Without one, the next call makes a new "
	 "default sandbox.",
	 MCP_DESTRUCTIVE | MCP_IDEMPOTENT, SCOPE_RUN,
	 FIELDS(NEEDED("sandbox_id", BODY_TEXT, "Which")), &done_out, mcp_sandbox_destroy, true},
	{"snapshot", "Take a snapshot",
	 "Keep a copy of all files of the sandbox, to return to with restore. Processes are not "
	 "part of it.",
	 0, SCOPE_RUN, FIELDS(FIELD("name", BODY_TEXT, "To recognise it by"), SANDBOX),
	 FIELDS(NEEDED("snapshot_id", BODY_TEXT, "For restore"),
		NEEDED("size", BODY_INTEGER, "Bytes")),
	 mcp_snapshot, false},
	{"restore", "Restore a snapshot",
	 "Make a new sandbox with the files of a snapshot; it becomes the default one.", 0,
	 SCOPE_RUN, FIELDS(NEEDED("snapshot_id", BODY_TEXT, "From snapshot")), &sandbox_out,
	 mcp_restore, true},
	{"get_url", "Get a URL",
	 "Get an address at which the user can see a server that listens inside the sandbox.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_READ,
	 FIELDS(NEEDED("port", BODY_INTEGER, "That a server inside the sandbox listens on",
		       .min = 1, .max = 65535),
		SANDBOX),
	 FIELDS(NEEDED("url", BODY_TEXT, "Leads to the port"),
		NEEDED("note", BODY_TEXT, "Who can open it")),
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

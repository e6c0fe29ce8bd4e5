#include "api/mcp_tools.h"

#include "api/mcp_inside.h"
#include "auth/auth.h"
#include "base/auto.h"
#include "base/str.h"

#define END                                                                                        \
	{                                                                                          \
		0                                                                                  \
	}
#define SANDBOX                                                                                    \
	{                                                                                          \
		.name = "sandbox_id", .type = MCP_TEXT,                                            \
		.help = "Another sandbox than the default one: an id from sandbox_create or "      \
			"restore"                                                                  \
	}
#define CWD                                                                                        \
	{                                                                                          \
		.name = "cwd", .type = MCP_TEXT,                                                   \
		.help = "Directory to run in; default: /workspace"                                 \
	}
#define TIMEOUT                                                                                    \
	{                                                                                          \
		.name = "timeout", .type = MCP_NUMBER,                                             \
		.help = "Seconds after which it is stopped; default 45", .min = 0.1, .max = 86400  \
	}
#define PROCESS                                                                                    \
	{                                                                                          \
		.name = "process_id", .type = MCP_INT, .flags = MCP_REQUIRED,                      \
		.help = "From process_start", .min = 1, .max = 4294967295.0                        \
	}
#define PATH(what)                                                                                 \
	{                                                                                          \
		.name = "path", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = what              \
	}

static const char *const language_names[] = {"python", "bash", "javascript", "typescript", "perl",
					     "ruby",   "php",  "lua",	     "r",	   NULL};
static const char *const encodings[] = {"utf-8", "base64", NULL};

/* ---- input ---- */
static const struct mcp_field run_code_in[] = {
	{.name = "code", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "The source text"},
	{.name = "language", .type = MCP_TEXT, .help = "Default: python", .values = language_names},
	CWD,
	TIMEOUT,
	SANDBOX,
	END};
static const struct mcp_field run_command_in[] = {
	{.name = "command",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "A line for bash: pipes, &&, redirections and several lines are fine"},
	CWD,
	TIMEOUT,
	{.name = "stdin", .type = MCP_TEXT, .help = "Text that the command reads from stdin"},
	SANDBOX,
	END};
static const struct mcp_field read_file_in[] = {
	PATH("Absolute, or relative to /workspace"),
	{.name = "offset",
	 .type = MCP_INT,
	 .help = "First byte to read; default 0",
	 .min = 0,
	 .max = 1e15},
	{.name = "length",
	 .type = MCP_INT,
	 .help = "At most so many bytes; default and maximum 262144",
	 .min = 1,
	 .max = 262144},
	SANDBOX,
	END};
static const struct mcp_field write_file_in[] = {
	PATH("Absolute, or relative to /workspace; directories on the way are made"),
	{.name = "content", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "All of the file"},
	{.name = "encoding",
	 .type = MCP_TEXT,
	 .help = "Of content; default utf-8. base64 is for bytes that are not text",
	 .values = encodings},
	{.name = "executable", .type = MCP_BOOL, .help = "May be executed; default false"},
	SANDBOX,
	END};
static const struct mcp_field list_files_in[] = {
	{.name = "path", .type = MCP_TEXT, .help = "A directory; default: /workspace"},
	{.name = "depth",
	 .type = MCP_INT,
	 .help = "Levels of directories; default 1",
	 .min = 1,
	 .max = 20},
	SANDBOX,
	END};
static const struct mcp_field search_files_in[] = {
	{.name = "content", .type = MCP_TEXT, .help = "Text that a line must contain"},
	{.name = "glob",
	 .type = MCP_TEXT,
	 .help = "Names to look at, like *.py or **/test_*.c; default: all"},
	{.name = "path", .type = MCP_TEXT, .help = "Where to look; default: /workspace"},
	{.name = "regex",
	 .type = MCP_BOOL,
	 .help = "content is a POSIX extended regular expression"},
	{.name = "ignore_case", .type = MCP_BOOL, .help = "Letters match in either case"},
	{.name = "max_results", .type = MCP_INT, .help = "Default 100", .min = 1, .max = 1000},
	SANDBOX,
	END};
static const struct mcp_field process_start_in[] = {
	{.name = "command", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "A line for bash"},
	CWD,
	{.name = "timeout",
	 .type = MCP_NUMBER,
	 .help = "Seconds; default: as long as it takes",
	 .min = 0.1,
	 .max = 86400},
	SANDBOX,
	END};
static const struct mcp_field process_poll_in[] = {
	PROCESS,
	{.name = "wait",
	 .type = MCP_NUMBER,
	 .help = "Seconds to wait for more output or its end; default 1",
	 .min = 0,
	 .max = 50},
	{.name = "from",
	 .type = MCP_INT,
	 .help = "Byte of the output to begin with; default: where the last poll ended",
	 .min = 0,
	 .max = 1e15},
	SANDBOX,
	END};
static const struct mcp_field process_write_in[] = {
	PROCESS,
	{.name = "input",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "Text for its stdin; end a line with \\n"},
	{.name = "close", .type = MCP_BOOL, .help = "No more input follows; default false"},
	SANDBOX,
	END};
static const struct mcp_field process_kill_in[] = {
	PROCESS,
	{.name = "signal",
	 .type = MCP_INT,
	 .help = "Default 15 (TERM); 9 cannot be ignored",
	 .min = 1,
	 .max = 64},
	SANDBOX,
	END};
static const struct mcp_field sandbox_create_in[] = {
	{.name = "name", .type = MCP_TEXT, .help = "To recognise it by"}, END};
static const struct mcp_field nothing_in[] = {END};
static const struct mcp_field sandbox_destroy_in[] = {
	{.name = "sandbox_id", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Which"}, END};
static const struct mcp_field snapshot_in[] = {
	{.name = "name", .type = MCP_TEXT, .help = "To recognise it by"}, SANDBOX, END};
static const struct mcp_field restore_in[] = {
	{.name = "snapshot_id", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "From snapshot"},
	END};
static const struct mcp_field get_url_in[] = {
	{.name = "port",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED,
	 .help = "That a server inside the sandbox listens on",
	 .min = 1,
	 .max = 65535},
	SANDBOX,
	END};

/* ---- output ---- */
static const struct mcp_field denial_out[] = {
	{.name = "what", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Kind"},
	{.name = "target", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Of what"},
	{.name = "count", .type = MCP_INT, .flags = MCP_REQUIRED, .help = "How often"},
	{.name = "explain", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Why, and what to do"},
	END};
static const struct mcp_field result_out[] = {
	{.name = "stdout", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Its output"},
	{.name = "stderr", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Its error output"},
	{.name = "exit_code",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED | MCP_NULLABLE,
	 .help = "0: success; null: it did not end by itself"},
	{.name = "status",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "exited, signaled, timeout, oom, cpu_time, output_limit or killed"},
	{.name = "timed_out",
	 .type = MCP_BOOL,
	 .flags = MCP_REQUIRED,
	 .help = "Stopped by its timeout"},
	{.name = "truncated",
	 .type = MCP_BOOL,
	 .flags = MCP_REQUIRED,
	 .help = "The middle of a long output was left out"},
	{.name = "duration_ms", .type = MCP_NUMBER, .flags = MCP_REQUIRED, .help = "Wall time"},
	{.name = "denials",
	 .type = MCP_LIST,
	 .flags = MCP_REQUIRED,
	 .help = "What the sandbox refused meanwhile",
	 .items = denial_out},
	{.name = "advice", .type = MCP_TEXT, .help = "What to do next, where that is known"},
	END};
static const struct mcp_field read_file_out[] = {
	{.name = "path", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Absolute"},
	{.name = "size",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED,
	 .help = "Of the whole file, in bytes"},
	{.name = "encoding",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "utf-8, base64, or image: then it is an image of this result"},
	{.name = "content", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "What was read"},
	{.name = "truncated",
	 .type = MCP_BOOL,
	 .flags = MCP_REQUIRED,
	 .help = "There is more behind it"},
	END};
static const struct mcp_field write_file_out[] = {
	{.name = "path", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "As given"},
	{.name = "size", .type = MCP_INT, .flags = MCP_REQUIRED, .help = "Bytes written"},
	END};
static const struct mcp_field file_out[] = {
	{.name = "path", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Absolute"},
	{.name = "type",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "file, directory, link, other"},
	{.name = "size", .type = MCP_INT, .flags = MCP_REQUIRED, .help = "Bytes"},
	{.name = "modified",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED,
	 .help = "Unix time in seconds"},
	END};
static const struct mcp_field list_files_out[] = {
	{.name = "files",
	 .type = MCP_LIST,
	 .flags = MCP_REQUIRED,
	 .help = "By path",
	 .items = file_out},
	{.name = "truncated", .type = MCP_BOOL, .flags = MCP_REQUIRED, .help = "There are more"},
	END};
static const struct mcp_field match_out[] = {
	{.name = "path", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Absolute"},
	{.name = "line",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED,
	 .help = "From 1; 0: the name matched"},
	{.name = "text", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "That line"},
	END};
static const struct mcp_field search_files_out[] = {
	{.name = "matches",
	 .type = MCP_LIST,
	 .flags = MCP_REQUIRED,
	 .help = "Lines, or files",
	 .items = match_out},
	{.name = "truncated", .type = MCP_BOOL, .flags = MCP_REQUIRED, .help = "There are more"},
	END};
static const struct mcp_field process_start_out[] = {{.name = "process_id",
						      .type = MCP_INT,
						      .flags = MCP_REQUIRED,
						      .help = "For the other process tools"},
						     END};
static const struct mcp_field process_poll_out[] = {
	{.name = "running", .type = MCP_BOOL, .flags = MCP_REQUIRED, .help = "Has not ended yet"},
	{.name = "exit_code",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED | MCP_NULLABLE,
	 .help = "null: still running, or killed"},
	{.name = "stdout", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "New output"},
	{.name = "stderr", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "New error output"},
	{.name = "next",
	 .type = MCP_INT,
	 .flags = MCP_REQUIRED,
	 .help = "Where the next poll begins"},
	{.name = "status",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "running, exited, signaled, ..."},
	{.name = "truncated",
	 .type = MCP_BOOL,
	 .flags = MCP_REQUIRED,
	 .help = "Output was lost: it printed faster than it was polled"},
	END};
static const struct mcp_field done_out[] = {
	{.name = "done", .type = MCP_BOOL, .flags = MCP_REQUIRED, .help = "true"}, END};
static const struct mcp_field sandbox_out[] = {
	{.name = "sandbox_id",
	 .type = MCP_TEXT,
	 .flags = MCP_REQUIRED,
	 .help = "For the other tools"},
	{.name = "name", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "As given, or empty"},
	{.name = "state", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "running, paused, ..."},
	{.name = "default",
	 .type = MCP_BOOL,
	 .flags = MCP_REQUIRED,
	 .help = "Used when a tool is called without sandbox_id"},
	END};
static const struct mcp_field sandbox_list_out[] = {{.name = "sandboxes",
						     .type = MCP_LIST,
						     .flags = MCP_REQUIRED,
						     .help = "Of this client",
						     .items = sandbox_out},
						    END};
static const struct mcp_field snapshot_out[] = {
	{.name = "snapshot_id", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "For restore"},
	{.name = "size", .type = MCP_INT, .flags = MCP_REQUIRED, .help = "Bytes"},
	END};
static const struct mcp_field get_url_out[] = {
	{.name = "url", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Leads to the port"},
	{.name = "note", .type = MCP_TEXT, .flags = MCP_REQUIRED, .help = "Who can open it"},
	END};

const struct mcp_tool mcp_tools[] = {
	{"run_code", "Run code",
	 "Run a program in an isolated sandbox on this machine and get its output. Each call is a "
	 "new "
	 "process: variables are gone afterwards, files in /workspace stay. Print what you want to "
	 "see. There is no network.",
	 0, SCOPE_RUN, run_code_in, result_out, mcp_run_code, false},
	{"run_command", "Run a command",
	 "Run a shell command in the sandbox and get its output and exit code. Files in /workspace "
	 "stay between calls; cd and variables do not. What takes longer than a minute, and "
	 "servers, "
	 "belong to process_start.",
	 0, SCOPE_RUN, run_command_in, result_out, mcp_run_command, false},
	{"read_file", "Read a file",
	 "Read a file of the sandbox. Text comes as text, PNG, JPEG, GIF and WebP as an image, "
	 "other "
	 "bytes as base64.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES, read_file_in, read_file_out, mcp_read_file,
	 false},
	{"write_file", "Write a file", "Create or replace a file of the sandbox.",
	 MCP_DESTRUCTIVE | MCP_IDEMPOTENT, SCOPE_FILES, write_file_in, write_file_out,
	 mcp_write_file, false},
	{"list_files", "List files", "List a directory of the sandbox.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES, list_files_in, list_files_out, mcp_list_files,
	 false},
	{"search_files", "Search files",
	 "Find lines by their text, or files by their name, in the sandbox. Give content, glob or "
	 "both.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_FILES, search_files_in, search_files_out,
	 mcp_search_files, false},
	{"process_start", "Start a process",
	 "Start a long job or a server in the background; returns at once. Look at it with "
	 "process_poll.",
	 0, SCOPE_RUN, process_start_in, process_start_out, mcp_process_start, false},
	{"process_poll", "Look at a process",
	 "Get what a background process has printed since the last poll, and whether it has ended.",
	 MCP_READ_ONLY, SCOPE_RUN, process_poll_in, process_poll_out, mcp_process_poll, false},
	{"process_write", "Write to a process", "Send text to the stdin of a background process.",
	 0, SCOPE_RUN, process_write_in, done_out, mcp_process_write, false},
	{"process_kill", "Stop a process",
	 "Send a signal to a background process and all its children.", MCP_DESTRUCTIVE, SCOPE_RUN,
	 process_kill_in, done_out, mcp_process_kill, false},
	{"sandbox_create", "Create a sandbox",
	 "Create a further, empty sandbox. Seldom needed: the default one is made at the first "
	 "call.",
	 0, SCOPE_RUN, sandbox_create_in, sandbox_out, mcp_sandbox_create, true},
	{"sandbox_list", "List sandboxes", "List the sandboxes that this client has.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_READ, nothing_in, sandbox_list_out, mcp_sandbox_list,
	 true},
	{"sandbox_destroy", "Destroy a sandbox",
	 "Destroy a sandbox with its files and processes. Without one, the next call makes a new "
	 "default sandbox.",
	 MCP_DESTRUCTIVE | MCP_IDEMPOTENT, SCOPE_RUN, sandbox_destroy_in, done_out,
	 mcp_sandbox_destroy, true},
	{"snapshot", "Take a snapshot",
	 "Keep a copy of all files of the sandbox, to return to with restore. Processes are not "
	 "part "
	 "of it.",
	 0, SCOPE_RUN, snapshot_in, snapshot_out, mcp_snapshot, false},
	{"restore", "Restore a snapshot",
	 "Make a new sandbox with the files of a snapshot; it becomes the default one.", 0,
	 SCOPE_RUN, restore_in, sandbox_out, mcp_restore, true},
	{"get_url", "Get a URL",
	 "Get an address at which the user can see a server that listens inside the sandbox.",
	 MCP_READ_ONLY | MCP_IDEMPOTENT, SCOPE_READ, get_url_in, get_url_out, mcp_get_url, false},
};
const size_t mcp_tool_count = ARRAY_LEN(mcp_tools);

const struct mcp_tool *mcp_tool_find(const char *name)
{
	for (size_t i = 0; i < mcp_tool_count; i++)
		if (str_equal(name, mcp_tools[i].name))
			return &mcp_tools[i];
	return NULL;
}

/*
 * Shared by the files of the MCP door. A session is one client: its options, sandboxes and calls. A call is
 * one request that takes time; it owns the exchange until it has answered.
 *
 *   door.c       HTTP: statuses, headers, eras       run.c    run_*, process_*
 *   session.c    clients and their sandboxes         files.c  files, also as resources
 *   call.c       one call: answers, progress, end    boxes.c  sandboxes, snapshots, URLs
 */
#pragma once

#include "base/base.h"
#include "api/mcp/mcp.h"
#include "api/rest/rest.h"
#include "base/clean.h"
#include "policy/tools/rules.h"

#define MCP_URI "cloche://sandboxes/"
#define MCP_SESSION_ID 33

struct mcp_state {
	struct api *api;
	struct buckets *calls; /* of tools, that limits count */
	struct mcp_session *sessions;
	struct loop_timer sweep;
	int64_t since_ns; /* sessions from before a restart are not known yet */
};

struct mcp_session {
	struct mcp_session *next;
	struct mcp_state *state;
	char id[MCP_SESSION_ID];		 /* "": of a modern client without a session */
	char client[IPC_NAME];			 /* modern: the name it gives itself */
	char key[MCP_SESSION_ID + IPC_NAME + 2]; /* kept with its sandboxes, to find them again */
	struct caller caller;
	json_t *options;      /* MCP_OPTIONS_KEY, checked; or NULL */
	int level;	      /* of log messages; -1: none */
	char sandbox[IPC_ID]; /* the default one, or "" */
	bool making, ended;
	unsigned held; /* in use by a caller: must not be freed yet */
	struct mcp_call *calls;
	struct exchange *stream; /* GET /mcp, or NULL */
	struct sse sse;		 /* of it */
	int64_t used_ns;
	struct list snapshots; /* ids made here */
	json_t *polled;	       /* "sandbox/process": where the last poll ended */
	json_int_t asked;      /* requests of ours so far */
};

struct mcp_call {
	struct mcp_call *next;
	struct mcp_session *session;
	struct exchange *x;
	enum mcp_era era;
	const struct mcp_method *method;
	json_t *id, *params; /* owned */
	json_t *token;	     /* of its progress, borrowed; or NULL */
	int level;	     /* -1: no log messages */
	bool streaming;	     /* the answer has become a stream of events: */
	struct sse sse;
	bool waiting; /* for the default sandbox to be made */
	bool cancelled;
	bool plain; /* answered as REST answers (plain.c) */
	unsigned ticks;
	struct loop_timer tick;
	/* tools/call */
	const struct mcp_tool *tool;
	json_t *args;	     /* borrowed from params, or NULL */
	struct sandbox *box; /* awake; valid in run() until it returns */
	char box_id[IPC_ID];
	char code[SNIPPET_PATH];	 /* run_code: its file */
	void (*run)(struct mcp_call *c); /* once the sandbox is awake */
	/* For the handler: freed with the call, after stop if it was cancelled. */
	void *work;
	struct call *guest_call;	  /* runs for it, or NULL */
	void (*stop)(struct mcp_call *c); /* ends the work now, without further callbacks */
	void (*work_done)(void *work);
	/* A request of ours to the client: its id, and the callback for the answer. */
	json_int_t asking;
	void (*on_reply)(struct mcp_call *c, const json_t *result);
};

/* ---- session.c ---- */
struct mcp_state *mcp_state(struct api *api);
/* options is taken over; NULL and e: they are wrong, or there are too many sessions. */
struct mcp_session *mcp_session_open(struct mcp_state *st, const struct caller *who,
				     json_t *options, struct err *e);
/* NULL: unknown, ended, or of another caller; callers cannot tell which. */
struct mcp_session *mcp_session_find(struct mcp_state *st, const struct caller *who,
				     const char *id);
/* Modern clients have no session: one for each caller and client name. */
struct mcp_session *mcp_session_implicit(struct mcp_state *st, const struct caller *who,
					 const char *client, struct err *e);
/* Its calls are cancelled, its sandboxes destroyed. */
void mcp_session_end(struct mcp_session *s);
/* Frees the session if it has ended and is not in use. */
void mcp_session_settle(struct mcp_session *s);
/* The sandbox of this id, or the default one for "default"; NULL: the session has no such sandbox. */
struct sandbox *mcp_session_box(const struct mcp_session *s, const char *id);
/* The ids of all sandboxes of the session, oldest first. */
void mcp_session_ids(const struct mcp_session *s, struct list *ret);
/* Makes a sandbox with the session's options; name and snapshot may be NULL. */
void mcp_session_make(struct mcp_session *s, const char *name, const char *snapshot,
		      sandbox_done done, void *arg);
/* Wakes or makes the sandbox that a call names (NULL: the default one), then calls c->run. */
void mcp_call_with_sandbox(struct mcp_call *c, const char *id);

/* The sandbox of a call after a callback. NULL: it is gone, and the call is answered. */
struct sandbox *mcp_call_box(struct mcp_call *c);

/* ---- door.c ---- */
void mcp_stream_close(struct mcp_session *s);
/* Answers with a message, which is taken over. */
void mcp_reply(struct exchange *x, int status, json_t *message);

/* ---- call.c ---- */
struct mcp_call *mcp_call_new(struct mcp_session *s, struct exchange *x, const struct jsonrpc *m,
			      enum mcp_era era, const struct mcp_method *method);
/* The client has cancelled it, or has gone. */
void mcp_call_cancel(struct mcp_call *c);
/* A guest call runs for it and is dropped if it is cancelled. Its callback sets c->guest_call to NULL. */
void mcp_call_guest(struct mcp_call *c, struct call *call);
/* True if it was cancelled: then it is gone, and the callback just returns. */
bool mcp_call_is_over(struct mcp_call *c);
/* Each of these answers and ends the call. Values are taken over. */
void mcp_call_result(struct mcp_call *c, json_t *result);
void mcp_call_fault(struct mcp_call *c, int code, const char *text, json_t *data);
void mcp_call_structured(struct mcp_call *c, json_t *value);
/* The tool failed, or is not allowed: a text for the model. */
void mcp_call_refuse(struct mcp_call *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void mcp_call_error(struct mcp_call *c, const struct err *e);
/* A json_done whose arg is the call: {"done": true}, or the error. */
void mcp_call_answer_json(void *arg, json_t *value, const struct err *e);
/* Messages before the answer. */
void mcp_call_notify(struct mcp_call *c, const char *method, json_t *params);
void mcp_call_progress(struct mcp_call *c, json_int_t progress, json_int_t total, const char *text);
void mcp_call_log(struct mcp_call *c, int level, const char *text);
/* Asks the client (sampling, elicitation); its answer comes to c->on_reply. */
void mcp_call_ask(struct mcp_call *c, const char *method, json_t *params,
		  void (*on_reply)(struct mcp_call *c, const json_t *result));
const char *mcp_level_name(int level);

/* Text from inside, fit for a model (base/clean.h). n is added to. */
json_t *mcp_text(const struct mcp_call *c, const char *bytes, size_t len, struct cleaned *n);
/* What a program printed: the same, or with the argument raw all of it as base64. */
json_t *mcp_output(const struct mcp_call *c, const struct buf *bytes, struct cleaned *n);
/* Says in the result which of both it is, and what was taken out. */
void mcp_finish_output(const struct mcp_call *c, json_t *result, const struct cleaned *n);

/* Arguments that were checked. */
const char *mcp_arg_text(const struct mcp_call *c, const char *name, const char *dflt);
double mcp_arg_number(const struct mcp_call *c, const char *name, double dflt);

/*
 * ---- tools ----
 * The tools that a model may call: one const table (tools.c). Input and output schemas, checking of arguments
 * and the manual all come from it. Nothing in it makes a sandbox wider: what a sandbox may do is set
 * by who starts the server (rule 5), so limits, network, mounts and images are no arguments, and an
 * argument that is not listed is refused.
 */
enum mcp_hints {
	MCP_READ_ONLY = 1,
	MCP_DESTRUCTIVE = 2,
	MCP_IDEMPOTENT = 4,
};

struct mcp_tool {
	const char *name, *title, *description;
	unsigned hints, scope; /* scope: of auth.h */
	const struct body_table *in, *out;
	void (*run)(struct mcp_call *c); /* the call has its arguments checked */
	bool no_sandbox;		 /* run needs no awake sandbox */
};

extern const struct mcp_tool mcp_tools[];
extern const size_t mcp_tool_count;

const struct mcp_tool *mcp_tool_find(const char *name);
/* As tools/list shows it. */
json_t *mcp_tool_describe(const struct mcp_tool *t);
/* -1: e says, in words for a model, what is wrong with the arguments (NULL: none were sent). */
int mcp_tool_check(const struct mcp_tool *t, const json_t *args, struct err *e);

/* Prompts. */
json_t *mcp_prompts(void);
/* NULL: unknown name, or arguments that are missing (e says which). */
json_t *mcp_prompt_get(const char *name, const json_t *args, struct err *e);

/* What runs them, and other methods that take time. */
typedef void mcp_handler(struct mcp_call *c);
mcp_handler mcp_call_tool, mcp_call_listen; /* call.c */
mcp_handler mcp_run_code, mcp_run_command, mcp_process_start, mcp_process_poll, mcp_process_write,
	mcp_process_kill; /* run.c */
mcp_handler mcp_read_file, mcp_write_file, mcp_edit_file, mcp_list_files,
	mcp_search_files; /* files.c */
mcp_handler mcp_sandbox_create, mcp_sandbox_list, mcp_sandbox_destroy, mcp_snapshot, mcp_restore,
	mcp_get_url; /* boxes.c */
/* Answers that a file cannot be used, in words for a model. */
void mcp_file_error(struct mcp_call *c, const char *path, const struct err *e);

/* ---- judge.c ---- */
struct mcp_question {
	struct exchange *x;
	struct tool_question call;
	const json_t
		*more_rules; /* of the session or the request: they can only refuse more; or NULL */
	bool counts;	     /* the call is to be made: limits count it */
};
/* The agent of this name (NULL: none) must be the caller's; -1 and e. */
int mcp_check_agent(const struct exchange *x, const char *name, struct err *e);
/* May be called from within mcp_judge; never if the exchange's client has gone meanwhile. */
typedef void (*mcp_judged)(void *arg, const struct tool_judgement *j);
void mcp_judge(const struct mcp_question *q, mcp_judged done, void *arg);

/* ---- resources.c ---- */
mcp_handler mcp_resources_list, mcp_resources_read;
/* A file as the contents of a resource; used by mcp_resources_read. */
void mcp_read_as_resource(struct mcp_call *c, const char *uri, const char *path);
void mcp_log_as_resource(struct mcp_call *c, const char *uri, uint32_t eid);
/* Answers that there is no such resource. */
void mcp_resource_missing(struct mcp_call *c, const char *uri);

/*
 * Further tools, resources and prompts for conformance suites. Only test programs define it; in the
 * daemon &mcp_extra is NULL.
 */
struct mcp_extra {
	void (*add_tools)(json_t *list);
	void (*add_prompts)(json_t *list);
	void (*add_resources)(json_t *list);
	void (*add_templates)(json_t *list);
	json_t *(*get_prompt)(const char *name, const json_t *args); /* NULL: not one of them */
	json_t *(*read_resource)(const char *uri);
	bool (*call_tool)(struct mcp_call *c, const char *name); /* false: not one of them */
};
extern const struct mcp_extra mcp_extra __attribute__((weak));

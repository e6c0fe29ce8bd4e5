/*
 * Shared by the files of the Docker door.
 *
 * Theory of operation. A container is a sandbox that was made through this door, and a record of it in the sandbox's
 * door data, which the manager stores. The container's main process is a command of the sandbox, which the guest
 * keeps with the last part of its output: Docker's logs. While the front runs, the door is attached to that command
 * (run.c), so that it knows the command's end, passes its output on to the clients that are attached, and knows when
 * each part of the output came. A new front attaches again.
 *
 * Containers are found in a table of their owner's own, so that no request sees or counts those of another token.
 */
#pragma once

#include "api/docker/docker.h"
#include "api/http/fields.h"
#include "api/http/http.h"
#include "calls/calls.h"
#include "manager/manager.h"
#include "model/outcome.h"

#define DOCKER_API "1.47"
#define DOCKER_API_OLDEST "1.24"
#define DOCKER_ID 65 /* 64 hexadecimal digits */
#define DOCKER_NAME 128
#define DOCKER_VOLUME (1ull << 30) /* bytes of a volume that names no size */
#define DOCKER_EXECS 64		   /* of one container, started or not */
#define DOCKER_RUNS 4		   /* of a container, whose output is still in its logs */
#define DOCKER_STAMPS 512	   /* of a run: when its output came */

/* ---- containers (container.c) ---- */

enum container_state {
	BOX_CREATING,
	BOX_CREATED,
	BOX_STARTING,
	BOX_RUNNING,
	BOX_EXITED,
};

/* Output from here on came at this time. */
struct stamp {
	uint64_t seq, unix_ns;
};

/* One run of the main process. */
struct box_run {
	uint32_t eid;
	uint64_t started_ns;
	size_t stamp_count;
	struct stamp *stamps; /* DOCKER_STAMPS, or NULL */
};

struct attached;      /* attach.c */
struct docker_exec;   /* exec.c */
struct docker_events; /* events.c */
struct box_waiting;   /* life.c */
struct tenant;

struct container {
	struct api *api;
	struct tenant *tenant;
	struct container *next;
	unsigned holds;
	bool is_gone; /* its sandbox is; what still holds it sees that */
	char id[DOCKER_ID], name[DOCKER_NAME];
	struct sandbox *s; /* held; NULL: not made yet */
	struct waiter *waiter;
	json_t *record; /* {"config","host","image",...}: as create.c has made it */
	enum container_state state;
	bool removing,
		stopping; /* stopping: a client asked for its end, so it is not started again */
	/* The main process, or the last one. */
	struct exec *main; /* while it runs */
	uint32_t pid;
	uint64_t created_ns, started_ns, finished_ns;
	int code;
	bool oom_killed;
	char error[200]; /* why it could not be started, or "" */
	size_t run_count;
	struct box_run runs[DOCKER_RUNS]; /* the last one is the newest */
	uint64_t next_seq;		  /* of its output */
	size_t owed;			  /* output that is not credited yet */
	struct attached *attached;
	struct box_waiting *waiting;
	struct docker_exec *execs;
	size_t exec_count;
	/* Starting. */
	struct box_start *starting;
	struct loop_timer again; /* the restart policy */
	unsigned restarts;
};

/* What a handler has besides the exchange; in x->data. */
struct docker_request {
	struct exchange *x;
	struct container *c; /* held: the first parameter's; NULL: the route names none */
	void *more;	     /* the handler's own, */
	const char *word;    /* and a text of it */
};

static inline struct docker_request *docker_of(const struct exchange *x)
{
	return x->data;
}

/* ---- the door (door.c) ---- */
typedef void docker_handler(struct exchange *x);
void docker_fail(struct exchange *x, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* An answer without a body. */
void docker_empty(struct exchange *x, int status);
/* "1", "true", "True"; others and nothing: dflt if the argument is not there. */
bool docker_flag(const struct exchange *x, const char *name, bool dflt);
/* A member that has a value: not null, false, 0, "", [] or {}. */
/* Events repeat labels, and networks keep them: they are bounded. */
bool docker_labels_fit(const json_t *labels, struct err *e);
bool docker_is_set(const json_t *value);
/* The members of in that the table knows and that are set, checked by the table. NULL and e if one is wrong. */
json_t *docker_body(const json_t *in, const struct body_table *t, struct err *e);
/* RFC 3339 with nanoseconds; 0: Docker's zero time. */
json_t *docker_time(uint64_t unix_ns);
uint64_t docker_now_ns(void);
void docker_id_make(char ret[DOCKER_ID]);
/* Seconds since 1970 with decimals; 0: none. */
int docker_arg_time(const struct exchange *x, const char *name, uint64_t *ret_ns, struct err *e);
/* [rows, columns], or 24 and 80. */
void terminal_size(const json_t *size, struct exec_request *ret);
/* The filters of the query: {"name":["a"]}, or {"name":{"a":true}}. The caller's to free; NULL after an error. */
json_t *docker_filters(struct exchange *x);
/* The values of a filter as an array; NULL: it is not there. Borrowed. */
const json_t *docker_filter(const json_t *filters, const char *name);
/* Do all "K" or "K=V" hold of the labels? */
bool docker_labels_match(const json_t *labels, const json_t *wanted);

/* ---- container.c ---- */
/* For the caller's; the name may be NULL, then one is made. NULL and e: the name is taken or not valid. */
struct container *container_new(struct exchange *x, const char *name, struct err *e);
/* The sandbox is there. */
void container_made(struct container *c, struct sandbox *s);
/* Its sandbox has gone, or was never made. */
void container_end(struct container *c);
/* By id, the beginning of one, or name. NULL and e. */
struct container *container_find(const struct exchange *x, const char *what, struct err *e);
struct container *container_hold(struct container *c);
void container_release(struct container *c);
/* Those of the caller, newest first. */
struct container *container_first(const struct exchange *x);
/* Its network is a segment of this name from now on. */
void container_join(struct container *c, const char *network, const json_t *aliases);
/*
 * In a segment a sandbox has one name: the first alias that can be a host's, which is the service's for a composition.
 * ret_name stays as it is if there is none.
 */
void choose_alias(const json_t *aliases, const char *id, char ret_name[IPC_NAME]);
/* The name of its network. */
const char *container_network(const struct container *c);
/* What the caller has besides. */
struct docker_network **exchange_networks(const struct exchange *x);
struct docker_events *exchange_events(const struct exchange *x);
struct docker_events *container_events(const struct container *c);
/* Is the name free, and may a container have it? */
int container_check_name(const struct exchange *x, const char *name, struct err *e);
/* Stores what has changed. */
int container_save(struct container *c, struct err *e);
/* Does its record have more than a row of the store should? */
bool container_too_long(const struct container *c);
/* "created" "running" "paused" "exited" ... */
const char *container_state_name(const struct container *c);
bool container_is_running(const struct container *c);
bool container_is_paused(const struct container *c);
const json_t *container_config(const struct container *c);		/* Config, of inspect */
const json_t *container_host(const struct container *c);		/* HostConfig */
const char *container_text(const struct container *c, const char *key); /* of the record, or "" */
static inline bool container_has_tty(const struct container *c)
{
	return body_flag(container_config(c), "Tty");
}
static inline struct box_run *container_run(struct container *c)
{
	return c->run_count ? &c->runs[c->run_count - 1] : NULL;
}
/* When the output at seq came. */
uint64_t run_time(const struct box_run *r, uint64_t seq);
/* Of a container that runs: 0, else -1 after an answer of 409. */
bool container_needs_running(struct exchange *x, const struct container *c);
/* Wakes the sandbox of the route's container, then calls with it; errors are answered. */
void container_awake(struct exchange *x, void (*call)(struct exchange *x, struct sandbox *s));

/* ---- create.c, host.c: a body of POST /containers/create ---- */
struct wanted {
	struct exchange *x;
	const json_t *config, *host; /* of the body */
	struct create_options *o;    /* are filled in */
	json_t *warnings, *dirs;     /* dirs: directories that are to be there */
};
/* HostConfig into the options; what would weaken the sandbox, or is not known, is refused. */
int host_read(struct wanted *w, struct err *e);
/* What of it concerns limits. */
int limits_read(const json_t *host, struct sandbox_spec *s, struct err *e);
/* The command that this user names runs as: "user" or "root". -1 and e. */
int user_read(const struct sandbox_spec *spec, const char *user, const char **ret, struct err *e);

/* ---- run.c: the main process ---- */
/* e NULL: it runs. */
typedef void (*box_started)(void *arg, const struct err *e);
void run_start_main(struct container *c, const struct caller *who, box_started done, void *arg);
/* Attaches to the command that was the main process when the last front ended. */
void run_resume(struct container *c);
/* The clients that are attached may have room again. */
void run_output_room(struct container *c);
/* The sandbox no longer runs. */
void run_lost(struct container *c, int code);

/* ---- raw.c: a connection that was taken over ---- */
struct raw;
struct raw_ops {
	/* Bytes of the client: takes up to len and returns how many; fewer: raw_more says when to go on. */
	size_t (*take)(void *arg, const char *bytes, size_t len);
	void (*eof)(void *arg);	   /* the client sends no more */
	void (*room)(void *arg);   /* output was sent */
	void (*closed)(void *arg); /* the last callback: the client has gone */
};
/* Answers the exchange, with 101 if an upgrade was asked for. */
struct raw *raw_open(struct exchange *x, bool tty, const struct raw_ops *ops, void *arg);
/* kind 1 stdout, 2 stderr; without a terminal it has a frame. */
void raw_write(struct raw *r, int kind, const char *bytes, size_t len);
size_t raw_room(const struct raw *r);
void raw_more(struct raw *r);
/* What was written is sent, then the connection is closed. No more callbacks. Accepts NULL. */
void raw_finish(struct raw *r);
/* The header of a frame. */
#define RAW_FRAME 8
void raw_frame(char ret[RAW_FRAME], int kind, size_t len);
const char *raw_type(bool tty);

/* ---- attach.c ---- */
/* Output of the main process for those that are attached. */
void attached_output(struct container *c, int kind, const char *bytes, size_t len);
/* How much output the slowest of them takes; SIZE_MAX without any. */
size_t attached_room(const struct container *c);
/* The main process takes input (again), from the clients that wait. */
void attached_feed(struct container *c);
/* Closes their connections. */
void attached_end(struct container *c);
bool attached_any_input(const struct container *c);

/* ---- life.c ---- */
/* Answers those that wait: the main process has ended, or (removed) the container has gone. */
void waiting_end(struct container *c, bool removed);
int signal_read(const char *name, int dflt, int *ret, struct err *e);

/* ---- exec.c ---- */
/* Its main process has ended: so do all others. */
void execs_kill(struct container *c);
/* Frees them. */
void execs_end(struct container *c);

/* ---- events.c ---- */
/* key: an attribute besides the usual ones, or NULL. */
void docker_event(struct container *c, const char *action, const char *key, const char *value);
struct docker_events *docker_events_new(void);
void docker_events_free(struct docker_events *of);

/* ---- networks.c ---- */
struct docker_network {
	struct docker_network *next;
	char name[DOCKER_NAME], id[DOCKER_ID]; /* id "": of those that are always there */
	json_t *labels;
	uint64_t created_ns;
};
/* By name or id; NULL: there is none. */
struct docker_network *segment_find(struct docker_network *all, const char *what);
struct docker_network *segment_add(struct docker_network **all, const char *owner, const char *name,
				   json_t *labels);
void segment_free(struct docker_network *n);
int network_spec(const struct docker_network *n, struct sandbox_spec *s, struct err *e);

/* ---- handlers ---- */
docker_handler docker_refuse_session, docker_df, docker_prune, docker_images_prune; /* system.c */
docker_handler docker_update;							    /* life.c */
docker_handler docker_exec_create, docker_exec_start, docker_exec_inspect, docker_exec_resize;
docker_handler docker_archive_get, docker_archive_put;
docker_handler docker_events_get, docker_stats, docker_top;
docker_handler docker_networks, docker_network, docker_network_create, docker_network_delete,
	docker_network_connect, docker_network_disconnect, docker_networks_prune;
docker_handler docker_volumes, docker_volume, docker_volume_create, docker_volume_delete,
	docker_volumes_prune;
docker_handler docker_ping, docker_version, docker_info, docker_auth; /* system.c */
docker_handler docker_create;					      /* create.c */
docker_handler docker_start, docker_stop, docker_restart, docker_kill, docker_wait, docker_remove,
	docker_rename, docker_pause, docker_unpause, docker_resize; /* life.c */
docker_handler docker_attach;					    /* attach.c */
docker_handler docker_logs;					    /* logs.c */
docker_handler docker_containers, docker_inspect;		    /* inspect.c */
docker_handler docker_images, docker_image_get, docker_image_post, docker_image_delete,
	docker_image_create, docker_image_load; /* images.c */

/*
 * The specification of a sandbox: one struct that the command line, policy files and the requests of
 * the daemon fill in, and that sandbox/ executes.
 *
 *   struct sandbox_spec s;
 *   spec_init(&s);
 *   spec_set(&s, "memory", "512M", &e);       as often as needed, by the names of spec_fields
 *   spec_finish(&s, &e);                      fills in dependent defaults, checks fields against each other
 *   ... sandbox_run(&s, ...)
 *   spec_done(&s);
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/secret.h"
#include "model/tmpfs.h"

enum level { LEVEL_CONTAINER, LEVEL_PROCESS, LEVEL_VM };
enum provider { PROVIDER_NS, PROVIDER_DOCKER, PROVIDER_OCI, PROVIDER_VM, PROVIDER_E2B };
/* NET_ASK only until spec_finish: then NET_ALLOW, and net_asks. */
enum net { NET_NONE, NET_ALLOW, NET_PUBLIC, NET_ISOLATED, NET_ASK };
enum root_mode { ROOT_RO, ROOT_OVERLAY };
enum guard { GUARD_OFF, GUARD_IMPORTS, GUARD_STRICT };
enum apply { APPLY_NEVER, APPLY_ON_SUCCESS, APPLY_ALWAYS };
/* Where a sandbox of the daemon keeps what it writes. */
enum disk_type { DISK_MEMORY, DISK_IMAGE };
enum encoding { ENCODING_UTF8, ENCODING_BASE64 };

#define WARM_KINDS 3 /* of lanes in a warm host (warm/warm.h) */

#define SPEC_GROUP_MAX 63

struct limits {
	uint64_t memory_bytes;
	uint64_t cpus_milli;
	uint64_t pids;
	uint64_t disk_bytes;	  /* 0: half of memory */
	uint64_t timeout_ms;	  /* 0: none */
	uint64_t cpu_time_ms;	  /* 0: none */
	uint64_t open_files;	  /* soft; the hard limit is four times as high */
	uint64_t file_size_bytes; /* 0: as disk */
	uint64_t output_bytes;
};

/* What all connections of a sandbox may use; each 0: no bound. */
struct net_limits {
	uint64_t rate;		     /* bytes a second, each way */
	uint64_t tx_bytes, rx_bytes; /* sent and received by the sandbox */
	uint64_t connections;
	uint64_t names;	   /* distinct names that are looked up */
	uint64_t requests; /* HTTP requests and connections a minute */
};

struct sandbox_spec {
	int level, provider, net, root, guard, encoding, apply, disk_type;
	struct limits limits;
	char *image;	 /* "host", or a directory holding a root file system */
	char *workspace; /* NULL: the current directory, copy-on-write */
	char *workdir;	 /* NULL: the workspace */
	char *hostname;
	char *policy;
	char *seccomp;	 /* a file: a filter on top of the built-in one */
	char *not_built; /* never set: the fields that are refused by name */
	char *net_log;	 /* a file, or "-": gets every connection */
	char *user;	 /* inside: NULL or "user", or "root" */
	char *cwd_file;	 /* gets the directory in which the command ended */
	bool keep_control, diff, empty, no_git, tools, tty, json;
	bool net_asks; /* a person decides what no rule does */
	struct net_limits net_limits;
	char *net_group;		  /* of its isolated segment; NULL: none */
	struct list allow, deny;	  /* rules of the network: net/rules.h */
	struct list publish;		  /* net/publish.h; of a run */
	struct list secrets;		  /* model/secret.h */
	struct list mounts;		  /* SRC:DST[:ro|rw] */
	struct list tmpfs;		  /* PATH[:size=SIZE] */
	struct tmpfs_mounts tmpfs_mounts; /* the same, filled in by spec_finish */
	struct list env;		  /* K=V, or K to copy the caller's */
	struct list files;		  /* NAME=PATH */
	struct list capture;		  /* GLOB */
	struct list apply_also;		  /* control files */
	struct list
		mount_read; /* sources may be read only below these; empty: anywhere not forbidden */
	struct list mount_write;
	struct list forbid;		     /* sources refused besides the built-in list */
	struct list guard_allow, guard_deny; /* modules */
	struct list guard_nodes;	     /* kinds of code, by the names of Python's ast */
	struct list tool_rules;		     /* policy/tools/rules.h; of agents' tool calls */
	struct list interceptors;	     /* programs that judge them, in their order */
	struct list require, optional;
	layer_set required_layers; /* filled in by spec_finish */
	layer_set optional_layers;
	uint64_t set_mask; /* which of spec_fields were given, by index */
	struct list argv;
};

enum field_type {
	FIELD_SIZE,
	FIELD_TIME,
	FIELD_COUNT_,
	FIELD_RATE,
	FIELD_MILLI,
	FIELD_ENUM,
	FIELD_BOOL,
	FIELD_STRING,
	FIELD_LIST,
};

enum field_flags {
	FIELD_WIDENS = 1,    /* makes the cage larger: never taken from a model */
	FIELD_NOT_BUILT = 2, /* known name, refused by name until it is built */
	FIELD_CLI_ONLY = 4,  /* no key of a policy file */
};

/* One row feeds the option parser, the policy parser, --help and the manual. */
struct field {
	const char *name; /* snake_case; the option is the same with dashes */
	char letter;	  /* short option, or 0 */
	enum field_type type;
	size_t offset;
	unsigned flags;
	uint64_t min, max;	   /* numbers; max 0: no bound */
	const char *const *values; /* FIELD_ENUM: names in order of the enum, NULL-terminated */
	const char *metavar;	   /* NULL: the option may stand alone, for the value "true" */
	const char *help;
};

/* In HOME inside: where a command leaves its last directory for cwd_file. */
#define SPEC_CWD_NAME ".cloche-cwd"

extern const struct field spec_fields[];
extern const size_t spec_field_count;

/* May this be a host name? What sethostname(2) takes and programs that print it expect. */
bool spec_is_hostname(const char *s);
/* Finds a field by snake_case or dashed name; NULL if there is none. */
const struct field *spec_field_find(const char *name);
/* Is it a member of the limits? */
static inline bool spec_field_is_limit(const struct field *f)
{
	const size_t from = offsetof(struct sandbox_spec, limits);

	return f->offset >= from && f->offset < from + sizeof(struct limits);
}
/* The known name nearest to a mistyped one, for hints; NULL if none is near. */
const char *spec_field_near(const char *name);

void spec_init(struct sandbox_spec *s);
void spec_done(struct sandbox_spec *s);
/* Sets a field from text; lists are appended to. Errors name the field. */
int spec_set(struct sandbox_spec *s, const char *name, const char *value, struct err *e);
/* Is the user inside uid 0? */
bool spec_wants_root(const struct sandbox_spec *s);
bool spec_is_set(const struct sandbox_spec *s, const char *name);
/* Files are kept in memory: a default disk limit must not exceed a smaller memory limit. Before spec_finish. */
void spec_fit_disk(struct sandbox_spec *s);
/* Dependent defaults and cross-field checks. */
int spec_finish(struct sandbox_spec *s, struct err *e);
/* The same limits for what is kept in memory only: a disk of its own takes none. */
struct limits limits_in_memory(const struct limits *l, int disk_type);
/* Prints a field's value as it would be typed; false if it is unset and has no default. */
bool spec_format(const struct sandbox_spec *s, const struct field *f, char *buf, size_t size);

const char *level_name(int level);

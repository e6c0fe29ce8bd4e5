/*
 * The daemon's configuration: plain data, nothing to free, read once from YAML by the broker and
 * handed to the other roles as bytes in a memfd.
 *
 *   struct config *c = ...;                       large: not on a small stack
 *   config_init(c);                               the defaults
 *   config_load("/etc/cloche/cloche.conf.yaml", c, &e);   strict; FILE:LINE in front of messages
 *   config_finish(c, &e);                         directories, addresses, cross-checks
 *   fd = config_write(c, &e);  ...  config_read(fd, c, &e);
 *
 * An unknown key or value is refused. Nothing in the configuration comes from a client.
 */
#pragma once

#include "base/base.h"
#include "model/secret.h"
#include "model/spec.h"
#include "net/rules.h"

#define CONFIG_NAME 64 /* as IPC_NAME */
#define CONFIG_PATH 1024
#define CONFIG_ADDRESS 256
#define CONFIG_LISTEN 8
#define CONFIG_ITEMS 32 /* images, volumes, hosts, origins, modules */
#define CONFIG_TOKENS 16
#define CONFIG_NET_RULES 64
#define CONFIG_NET_RULE 256
#define CONFIG_DNS 8
#define CONFIG_OVERCOMMIT 16 /* limits of all sandboxes, as a multiple of the host's memory */

/* A token bucket: requests per minute, and requests at once. 0: no limit. */
struct config_rate {
	uint32_t per_minute, burst;
};

struct config_image {
	char name[CONFIG_NAME];
	char path
		[CONFIG_PATH]; /* absolute: a directory holding a root file system; else a name in the store */
};

struct config_volume {
	char name[CONFIG_NAME];
	char path[CONFIG_PATH];
	bool read_only;
	uint32_t token_count;			 /* 0: for the operator only */
	char tokens[CONFIG_TOKENS][CONFIG_NAME]; /* ids or names; "*": every token */
};

#define CONFIG_UNSET 2
#define CONFIG_TOOL_RULES 64
#define CONFIG_TOOL_RULE 256
#define CONFIG_INTERCEPTORS 8
#define CONFIG_TOOL_LIMITS 32

/* The operator's ceiling for networks of sandboxes, and how the daemon reaches the outside. */
struct config_network {
	char mode[CONFIG_NAME];	       /* none, allow or public: no sandbox has more */
	char e2b_default[CONFIG_NAME]; /* what E2B clients get that ask for nothing */
	int ceiling, e2b_mode;	       /* the same as enum net; set by config_finish */
	uint32_t allow_count, deny_count, dns_count;
	char allow[CONFIG_NET_RULES][CONFIG_NET_RULE];
	char deny[CONFIG_NET_RULES][CONFIG_NET_RULE];
	char dns[CONFIG_DNS][64];
	char proxy[CONFIG_ADDRESS];
	char proxy_auth_file[CONFIG_PATH], ca_file[CONFIG_PATH];
	uint32_t names_max; /* of one sandbox, that it has asked for in its life */
	struct net_budget budget;
};

/* Defaults of a sandbox. */
struct config_sandbox {
	char image[CONFIG_NAME]; /* "host", or a name of images */
	char work_dir[CONFIG_PATH];
	char seccomp
		[CONFIG_PATH]; /* a profile of the operator's on top of the built-in one; "": none */
	uint8_t network_enabled; /* false: network.mode is none; CONFIG_UNSET: not given */
	struct limits limits;	 /* limits.timeout_ms: of one command; 0: none */
	uint64_t ttl_ms;	 /* absolute */
	uint64_t idle_ms;	 /* 0: never */
};

struct config_audit {
	char file[CONFIG_PATH];	    /* "": audit/audit.log in the state directory */
	char key_file[CONFIG_PATH]; /* "": the chain has no key */
	uint64_t max_bytes;	    /* of one file, before it is rotated */
	uint32_t keep;		    /* rotated files; 0: all */
	bool sync;		    /* fdatasync before each receipt */
};

struct config_warm {
	uint32_t lanes;	  /* prepared interpreters; 0: off */
	uint32_t node;	  /* started Node.js interpreters that wait, for each warm host; 0: none */
	uint32_t kernels; /* stateful contexts in one sandbox, at most */
	uint32_t preload_count;
	char preload[CONFIG_ITEMS][CONFIG_NAME]; /* modules imported beforehand */
};

/* The service that provider e2b uses. */
struct config_e2b {
	char api_url[CONFIG_ADDRESS];	  /* "": there is none */
	char sandbox_url[CONFIG_ADDRESS]; /* may have {id} and {port} in it; "": as api_url */
	char key_file[CONFIG_PATH];
	char template[CONFIG_NAME];
	uint64_t timeout_ms; /* the service ends a sandbox that was not renewed for this long */
};

/* A secret of the operator's, which tokens may name. */
struct config_secret {
	struct secret_def def;
	uint32_t token_count; /* 0: for the operator only */
	char tokens[CONFIG_TOKENS][CONFIG_NAME];
};

/* The daemon's store of images. */
struct config_image_store {
	uint32_t registry_count, mirror_count;
	char registries[CONFIG_ITEMS][CONFIG_ADDRESS]; /* that tokens may pull from; "*": any */
	char mirrors[CONFIG_ITEMS][CONFIG_ADDRESS];
	char auth_file[CONFIG_PATH]; /* as Docker's config.json; "": no logins */
	bool plain_http;
	uint64_t total_bytes; /* of all images; 0: no bound */
	uint32_t max_count;   /* names of each owner */
};

/* Of role signer. */
struct config_keys {
	struct secret_source master;   /* empty: nothing is encrypted, and no secret stored */
	struct secret_source previous; /* the master before: the keyring is wrapped anew */
};

/* TLS on the TCP addresses of listen. */
struct config_tls {
	char cert[CONFIG_PATH], key[CONFIG_PATH]; /* files; "": none */
	bool own;				  /* by a CA of the daemon's own */
};

struct config {
	uint32_t listen_count;
	char listen[CONFIG_LISTEN][CONFIG_ADDRESS]; /* "127.0.0.1:7070", "[::1]:0", "unix:/PATH" */
	bool sockets_are_passed; /* by the service manager, which keeps them; listen is not used */
	char state_dir[CONFIG_PATH], runtime_dir[CONFIG_PATH];

	struct config_sandbox sandbox;
	struct limits ceiling; /* no request gets more; 0: no bound */
	uint64_t max_ttl_ms, max_idle_ms;
	uint32_t max_sandboxes, max_sandboxes_per_token;
	uint64_t memory_total, disk_total; /* of the limits of all living sandboxes */
	uint64_t memory_reserve;	   /* of the host: nothing is booted while less is free */
	uint32_t pool_size;		   /* sandboxes prepared in advance */
	uint32_t boot_retries;
	uint64_t output_budget; /* bound on all captured output in memory at one time */
	uint32_t
		alert_denials; /* of a tenant in a minute: more are told to the operator; 0: never */
	uint64_t log_bytes;    /* kept of the output of each background command */
	uint64_t shutdown_ms;  /* running work may take this long after SIGTERM */
	uint64_t role_timeout_ms; /* a role that does not answer for this long is restarted */

	struct config_rate rate_token, rate_address;
	uint32_t max_connections;
	uint64_t max_body_bytes;   /* of a JSON request; files and tars are streamed */
	uint64_t max_upload_bytes; /* of one streamed upload; 0: no bound */

	uint32_t image_count, volume_count;
	struct config_image images[CONFIG_ITEMS];
	struct config_volume volumes[CONFIG_ITEMS];

	uint64_t snapshot_max_bytes;   /* of one */
	uint64_t snapshot_total_bytes; /* of all; 0: no bound */
	uint32_t snapshot_max_count;   /* for each owner */

	struct config_image_store image_store;
	struct config_audit audit;
	struct config_warm warm;
	struct config_e2b e2b;
	struct config_keys keys;
	uint8_t disk_encrypt; /* CONFIG_UNSET: if there is a master key */
	/* Volumes that clients make, as snapshots have them. */
	uint64_t volume_max_bytes, volume_total_bytes;
	uint32_t volume_max_count;
	uint32_t secret_count;
	struct config_secret secrets[CONFIG_ITEMS];
	struct config_tls tls;
	struct config_network network;
	bool docker; /* the door that speaks Docker's Engine API, and its socket */

	char agent_types
		[CONFIG_PATH]; /* a directory of agent types besides the shipped ones; or "" */
	/* Of agents' tool calls: rules, and agent types that judge, in their order. */
	uint32_t tool_rule_count, interceptor_count, tool_limit_count;
	char tool_rules[CONFIG_TOOL_RULES][CONFIG_TOOL_RULE];
	char interceptors[CONFIG_INTERCEPTORS][CONFIG_NAME];
	char tool_limits[CONFIG_TOOL_LIMITS][CONFIG_TOOL_RULE]; /* how often they may be called */

	/* Host and Origin headers that are allowed besides the addresses of listen. */
	uint32_t host_count, origin_count;
	char hosts[CONFIG_ITEMS][CONFIG_ADDRESS];
	char origins[CONFIG_ITEMS][CONFIG_ADDRESS];
	/* Ports of the host that sandboxes may have. No address: the host's loopback. Ports 0 to 0: none. */
	uint32_t publish_address_count;
	char publish_addresses[CONFIG_ITEMS][CONFIG_ADDRESS];
	char publish_ports[32]; /* "20000-20999", or "" */
	uint16_t publish_first, publish_last;
	char domain[CONFIG_ADDRESS]; /* ports of sandboxes are PORT-ID.domain; "": no such domain */
	/* Addresses and networks whose X-Forwarded-For is believed. */
	uint32_t proxy_count;
	char proxies[CONFIG_ITEMS][CONFIG_ADDRESS];
};

void config_init(struct config *c);
/* Reads a file; its keys replace the values in c. */
int config_load(const char *file, struct config *c, struct err *e);
/* The same for text in memory; file is for messages. */
int config_parse(const char *file, const char *text, size_t len, struct config *c, struct err *e);
/*
 * Fills in directories (from CLOCHE_STATE_DIR and CLOCHE_RUNTIME_DIR, else the file, else the usual
 * place) and the default addresses, and checks values against each other.
 */
int config_finish(struct config *c, struct err *e);
/* The default file, in ~/.config/cloche or /etc/cloche; NULL if there is none. The caller frees it. */
char *config_find(void);

/* Are the TCP addresses of listen for TLS? */
bool config_has_tls(const struct config *c);
/* "CERT,KEY" or "self", in place of the file's. */
int config_set_tls(struct config *c, const char *text, struct err *e);

/* A sealed memfd with the whole configuration, for another role. */
int config_write(const struct config *c, struct err *e);
/* Reads such a memfd from its start; fd stays the caller's. */
int config_read(int fd, struct config *ret, struct err *e);

/* NULL if no image or volume has this name. */
const struct config_image *config_image_find(const struct config *c, const char *name);
/* A name of the store, not a directory. */
bool config_image_is_stored(const struct config_image *i);
const struct config_volume *config_volume_find(const struct config *c, const char *name);
/* Is this token (id and name; "" is the operator) in the list? */
bool config_allows_token(const char tokens[][CONFIG_NAME], uint32_t count, const char *token,
			 const char *name);
/* The same for a volume's list. */
bool config_volume_allows(const struct config_volume *v, const char *token, const char *name);

/* The daemon's Unix socket and its token file, from the finished directories. */
void config_socket_path(const struct config *c, char *ret, size_t size);
/* Beside it, the one that speaks Docker's Engine API. */
void config_docker_path(const struct config *c, char *ret, size_t size);
void config_token_path(const struct config *c, char *ret, size_t size);

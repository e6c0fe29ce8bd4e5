/*
 * Messages between the broker, the front and the other roles. One SOCK_SEQPACKET message is one struct ipc,
 * cut to the size that its type needs (ipc_size), with at most one fd. The front asks, and the broker answers
 * with the same serial; serial 0 is news from the broker. The broker treats every message as hostile: strings
 * must be terminated, ids well-formed, numbers within the operator's ceiling.
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/secret.h"
#include "model/spec.h"
#include "wire/agent_message.h"
#include "wire/egress.h"
#include "wire/ids.h"

#define IPC_VOLUMES 8 /* of one sandbox */
#define IPC_PATH 256
#define IPC_DISK_KEY_BYTES 64
#define IPC_ROW 4096
#define IPC_ROW_LONG 65536 /* in a file of its own; in memory of the host, so not more */
#define IPC_IMAGE_ID 80	   /* "host", "dir:NAME" of the operator's, or "sha256:" and 64 digits */
#define IPC_IMAGE_NAME 384
#define REMOTE_ID 64 /* of a sandbox elsewhere: letters, digits and dashes */

enum ipc_type {
	/* front to broker */
	IPC_BOOT = 1, /* ipc_boot -> IPC_BOOTED with the link's fd */
	IPC_CONNECT,  /* id -> IPC_BOOTED with a new link of a higher generation */
	IPC_DESTROY,  /* id -> IPC_DONE when nothing of it is left; an unknown id is done as well */
	IPC_PAUSE,    /* id -> IPC_DONE: frozen */
	IPC_RESUME,   /* id -> IPC_DONE */
	IPC_UPDATE,   /* ipc_boot (id, limits) -> IPC_DONE */
	IPC_CLAIM, /* ipc_boot: a sandbox of the pool becomes this owner's, with these limits -> IPC_DONE */
	IPC_STATS,	   /* id -> IPC_STATS_ARE */
	IPC_SNAPSHOT,	   /* ipc_snapshot: freezes, copies, thaws (if it ran) -> IPC_SNAPSHOT_IS */
	IPC_SNAPSHOT_LIST, /* -> one IPC_SNAPSHOT_IS each, then IPC_DONE */
	IPC_SNAPSHOT_DELETE, /* ipc_snapshot (id, owner) -> IPC_DONE */
	IPC_SNAPSHOT_READ, /* ipc_snapshot (id, owner) -> IPC_SNAPSHOT_IS with an fd to read the tar from */
	IPC_SNAPSHOT_WRITE, /* ipc_snapshot (new id, owner, name) -> IPC_SNAPSHOT_IS with an fd to write a tar to */
	IPC_SNAPSHOT_KEEP, /* ipc_snapshot: checks what was written, in a confined helper, and keeps it -> IPC_SNAPSHOT_IS */
	IPC_ROW_PUT, /* ipc_row: to be given back if the front loses its database -> IPC_DONE */
	IPC_ROW_GET, /* ipc_row (id, snapshot) -> IPC_ROW_IS; its text is "" if there is none */
	IPC_NETWORK, /* ipc_network (id); fd: the request's own rules, a struct net_policy -> IPC_NETWORK_IS */
	IPC_NET_ANSWER, /* ipc_network (id, serial, allows): to IPC_NET_ASKS -> IPC_DONE */
	IPC_NET_FLUSH,	/* id -> IPC_DONE, once all that egress knows of its network was told */
	IPC_DISK_READ,	/* id -> IPC_DONE with an fd: a tar of what must be brought back */
	IPC_DISK_DONE,	/* id: it was brought back -> IPC_DONE */
	IPC_QUIT,	/* the front is done; graceful shutdown */
	IPC_PUBLISH,	/* ipc_publish -> IPC_DONE with a listening TCP socket of the host */
	/* Secrets; the broker passes these on to role signer, and its answers back */
	IPC_SECRET_PUT, /* ipc_secret; fd: memfd, the value sealed to the exchange key, or -1: as it was -> IPC_SECRET_IS */
	IPC_SECRET_LIST, /* ipc_secret (owner; name, id or "": all) -> one IPC_SECRET_IS each, then IPC_DONE */
	IPC_SECRET_DELETE, /* ipc_secret (owner, name or id) -> IPC_DONE */
	IPC_SECRET_USE,	   /* ipc_secret_use: all that the sandbox may use -> IPC_DONE */
	IPC_IMAGE,	   /* ipc_image -> IPC_DONE with a socket that the process speaks on */
	IPC_IMAGES_LOOK,   /* -> IPC_IMAGES if something has changed, then IPC_DONE */
	/* broker to front */
	IPC_DONE = 32, /* id; err.kind is set if the request failed */
	IPC_BOOTED,    /* ipc_booted */
	IPC_STATS_ARE, /* ipc_stats */
	IPC_SNAPSHOT_IS,
	IPC_ROW_IS,
	IPC_NETWORK_IS, /* ipc_network */
	IPC_SECRET_IS,
	/* news, serial 0 */
	IPC_ADOPTED, /* ipc_booted and the fd of its link: a sandbox of an earlier daemon */
	IPC_READY,   /* all adopted sandboxes were sent; serving may begin */
	IPC_DIED,    /* ipc_died: pid 1 of a sandbox is gone */
	IPC_CONFIG,  /* fd: the configuration (policy/config.h), at the start and after a reload */
	IPC_TOKENS, /* fd: the token file's text (auth/auth.h), at the start and after each change */
	IPC_LISTENER, /* fd: a listening TCP socket */
	/*
	 * fd: an accepted connection of a Unix socket whose peer was checked; ipc_peer. Also from role tls to the
	 * broker, with nothing but an address: the plain side of a TLS connection.
	 */
	IPC_PEER,
	IPC_SHUTDOWN,	 /* stop taking work, finish what is running, then IPC_QUIT */
	IPC_AUDIT,	 /* fd: a socket to the audit role, which was started again */
	IPC_NET_RECORD,	 /* egress_record: an attempt of a sandbox to reach something, or its end */
	IPC_NET_METER,	 /* egress_meter */
	IPC_NET_ASKS,	 /* egress_record: waits for IPC_NET_ANSWER */
	IPC_FOREIGN,	 /* id: of another version of cloche; left alone, and so is its row */
	IPC_SIGNER,	 /* ipc_signer: role signer was started, or it says why it stores nothing */
	IPC_AGENT_TYPES, /* fd: JSON (policy/document.h), at the start and after a reload */
	IPC_AGENTS, /* fd: all agents, an array of ipc_agent; at the start and after each change */
	IPC_IMAGES, /* fd: names and records of the store (image/listing.h) */
	/* broker to role remote, about sandboxes that another service runs: ipc_remote */
	IPC_REMOTE_CREATE = 64, /* id -> IPC_REMOTE_DONE with name and the link's fd */
	IPC_REMOTE_CONNECT,	/* id, name -> IPC_REMOTE_DONE with a new link */
	IPC_REMOTE_DESTROY,	/* id, name -> IPC_REMOTE_DONE; one that is gone is done as well */
	IPC_REMOTE_PAUSE,	/* id, name -> IPC_REMOTE_DONE; its link ends */
	IPC_REMOTE_RESUME,	/* id, name -> IPC_REMOTE_DONE */
	/* role remote to broker */
	IPC_REMOTE_DONE,
	IPC_REMOTE_GONE, /* serial 0: id, name; err says how that was noticed */
	/* broker or front to role audit: answered by IPC_AUDIT_DONE, in this order */
	IPC_AUDIT_WRITE = 96, /* audit_entry */
	IPC_AUDIT_QUERY,      /* audit_query -> an fd to read the lines from */
	IPC_AUDIT_DONE,
	/* broker to any role, and its answer; serial 0, but for role audit, which answers IPC_AUDIT_DONE */
	IPC_PING = 112, /* ipc_ping */
	IPC_PONG,
	/* broker to role tls */
	IPC_TLS_KEYS, /* fd: certificates and their key in PEM, for connections from now on */
	/* broker to role signer: keys of disks; each is answered by IPC_DISK_KEY_IS */
	IPC_DISK_KEY_GET = 160, /* ipc_disk_key (owner; id, or "" for a new one) -> with the key */
	IPC_DISK_KEY_ERASE,	/* ipc_disk_key (id) */
	IPC_DISK_KEY_USED,	/* fd: ids of all keys that disks have; others are erased */
	IPC_DISK_KEY_IS,
	/* front to broker, about registered agents, which the broker keeps (daemon/broker/agents.c) */
	IPC_AGENT_PUT = 128, /* ipc_agent: registers one, or changes its level or key -> IPC_DONE */
	IPC_AGENT_DELETE,    /* ipc_agent (name) -> IPC_DONE */
	/*
	 * About their messages; the broker fills in what is not the front's to say, and asks role signer.
	 * agent_message (from, to, id, reply_to, time, kind, depth, size, digest) -> IPC_MESSAGE_IS, signed
	 */
	IPC_MESSAGE_SIGN,
	IPC_MESSAGE_VERIFY, /* agent_message -> IPC_DONE: it is good, and its sender may send it now */
	IPC_AGENT_KEY,	    /* ipc_agent_key (name, epoch) -> IPC_AGENT_KEY_IS */
	IPC_MESSAGE_IS,
	IPC_AGENT_KEY_IS,
	/* front to broker, about volumes that are disks (daemon/broker/volumes.c) */
	IPC_VOLUME_MAKE = 144, /* ipc_disk_volume (owner, name, bytes or from) -> IPC_VOLUME_IS */
	IPC_VOLUME_LIST,       /* -> one IPC_VOLUME_IS each, then IPC_DONE */
	IPC_VOLUME_DELETE,     /* ipc_disk_volume (owner, id) -> IPC_DONE */
	IPC_VOLUME_IS,
};

struct ipc_volume {
	char name[IPC_NAME];
	char sub[IPC_PATH]; /* below it, relative, or "" */
	char target[IPC_PATH];
	uint8_t writable;
};

/* A volume that a client has made: a disk. */
struct ipc_disk_volume {
	char id[IPC_ID];
	char owner[IPC_ID];
	char name[IPC_NAME]; /* its owner's own */
	char from[IPC_NAME]; /* it began as a copy of this one; or "" */
	char key[IPC_ID];    /* it is encrypted with; or "" */
	uint64_t bytes, created_ms;
	uint8_t is_shared; /* with the one that it is a copy of: blocks, until either changes */
};

struct ipc_boot {
	char id[IPC_ID];
	char owner[IPC_ID]; /* token id; "": the operator; "-": the pool */
	char image[IPC_IMAGE_ID];
	char snapshot[IPC_ID]; /* to start from, or ""; a disk only if the snapshot is one */
	char hostname[IPC_NAME];
	char agent
		[IPC_NAME]; /* which runs in it, or "", and which registration of that name it is */
	char agent_uid[IPC_ID];
	struct limits limits;
	uint8_t level, root, provider;
	uint8_t user_root; /* root inside */
	uint8_t disk_type; /* enum disk_type */
	uint8_t transient; /* dies with the daemon: one /v1/run */
	uint8_t warm_host
		[WARM_KINDS]; /* lanes for commands, Python, Node; all 0: not a warm host */
	layer_set required_layers;
	struct tmpfs_mounts tmpfs;
	uint32_t volume_count;
	struct ipc_volume volumes[IPC_VOLUMES]; /* last: only the used part is sent */
};

/* Not 0: it is a warm host. */
static inline unsigned ipc_boot_lanes(const struct ipc_boot *b)
{
	unsigned sum = 0;

	for (int i = 0; i < WARM_KINDS; i++)
		sum += b->warm_host[i];
	return sum;
}

struct ipc_booted {
	char id[IPC_ID];
	char owner[IPC_ID];
	uint64_t generation;
	uint8_t paused;
	uint8_t transient;
	uint8_t rootless;
	uint8_t level;
	uint8_t cgroup_version; /* 0: none */
	uint8_t memory_by_cgroup;
	uint8_t listening; /* to the filter's notifications */
	int32_t landlock_abi;
	layer_set proven, missing;
	char seccomp[96];
	char disk[16];	     /* "tmpfs" "image" "none" */
	char note[256];	     /* or "" */
	uint64_t started_ms; /* unix */
	struct limits limits;
	uint8_t root, provider;
	uint8_t of_host;      /* its image is the host's own programs */
	uint8_t has_row;      /* IPC_ADOPTED: IPC_ROW_GET finds its row */
	uint8_t net, net_how; /* IPC_ADOPTED: as ipc_network has them */
	uint8_t root_inside;  /* enum root_inside */
	char agent[IPC_NAME]; /* or "", and which registration of that name it is */
	char agent_uid[IPC_ID];
	uint8_t has_disk; /* enum ipc_disk, as bits */
	char image[IPC_IMAGE_ID];
};

enum ipc_disk {
	IPC_HAS_DISK = 1,
	IPC_DISK_ENCRYPTED = 8,
	IPC_DISK_HAS_FILES = 2, /* of the snapshot that it was started from */
	IPC_DISK_HAS_WAS =
		4, /* but what was changed in the skeleton of the root must be brought back */
};

struct ipc_stats {
	char id[IPC_ID];
	uint64_t memory_bytes, memory_limit_bytes, memory_peak_bytes, cpu_us, pids, disk_bytes,
		disk_limit_bytes, io_read_bytes, io_write_bytes, net_rx_bytes, net_tx_bytes,
		oom_kills, pids_refused;
	int64_t pids_peak; /* -1: the kernel does not say */
};

struct ipc_snapshot {
	char id[IPC_ID];      /* of the snapshot */
	char sandbox[IPC_ID]; /* IPC_SNAPSHOT: of what */
	char owner[IPC_ID];
	char name[IPC_NAME];
	char digest[80];    /* "sha256:..." of the tar */
	char excluded[256]; /* paths that are not in it, separated by blanks */
	uint64_t size_bytes, created_ms;
	uint32_t frozen_ms; /* while it was made, the sandbox could not write */
	uint8_t kind;	    /* enum ipc_snapshot_kind */
	char key[IPC_ID];   /* of an encrypted disk; or "" */
	uint8_t is_shared;  /* its blocks are those of the sandbox's disk, until either changes */
	char image[IPC_IMAGE_ID]; /* of the sandbox; "": not known */
};

/* What the store of images is asked to do. Each is a process of its own (image/make/job.h). */
enum ipc_image_job {
	IMAGE_JOB_PULL,
	IMAGE_JOB_IMPORT, /* of what is written to the pipe that the process sends */
	IMAGE_JOB_FILES,  /* the same, but whatever the tar holds are files of one layer */
	IMAGE_JOB_BUILD,  /* an fd comes along: image/build/recipe.h */
	IMAGE_JOB_EXPORT, /* to such a pipe */
	IMAGE_JOB_TAG,	  /* to */
	IMAGE_JOB_REMOVE,
	IMAGE_JOB_PRUNE, /* the operator's only */
	IMAGE_JOB_COUNT,
};

struct ipc_image {
	char owner[IPC_ID];
	uint8_t job;		   /* enum ipc_image_job */
	char name[IPC_IMAGE_NAME]; /* or an id; IMPORT: or "" */
	char to[IPC_IMAGE_NAME];   /* TAG: the new name; BUILD: the image below, or its id */
};

enum ipc_snapshot_kind { IPC_SNAPSHOT_TAR, IPC_SNAPSHOT_DISK };

/* The network of a sandbox. The operator's and the owner's stages are the broker's, and are put in front. */
struct ipc_network {
	char id[IPC_ID];
	char snapshot[IPC_ID]; /* names keep the addresses that they had in it; or "" */
	char group[IPC_NAME];  /* of its isolated segment, or "" */
	char name[IPC_NAME];   /* by which its group calls it, besides its id; or "" */
	uint8_t mode;	       /* enum net, of all stages together */
	uint8_t how;	       /* enum net_redirect */
	uint8_t asks;	       /* a refused destination is a question */
	uint8_t allows;
	uint64_t serial; /* of a question */
};

/*
 * The row of a sandbox, as the front writes it; the broker does not read the text. A text that is too long for
 * the message is in the file of the fd that comes with it.
 */
struct ipc_row {
	char id[IPC_ID];       /* of the sandbox */
	char snapshot[IPC_ID]; /* of its files, if it is stopped; else "" */
	char text[IPC_ROW];
};

struct ipc_died {
	char id[IPC_ID];
	uint8_t by_oom;
	char why[128];
};

struct ipc_peer {
	uint32_t uid, gid, pid;
	uint8_t is_operator; /* may do everything without a token (rule 7) */
	uint8_t is_docker;   /* came to the socket of the Docker API */
	char address[48];    /* of a client whose TLS the role tls ends; "": of a Unix socket */
};

/* A stored secret, without its value: no message has a way back for it. */
struct ipc_secret {
	char owner[IPC_ID];
	char id[IPC_ID]; /* the store's */
	struct secret_rule rule;
	char metadata[1024]; /* the client's, as JSON, or "" */
	uint32_t version;
	uint8_t is_new;	       /* IPC_SECRET_PUT: must not exist yet */
	uint8_t is_configured; /* by the operator's settings: cannot be changed by clients */
	uint64_t created_ms, updated_ms;
};

/* Of a secret that a sandbox uses. */
struct ipc_secret_use_item {
	char name[IPC_NAME];
	char placeholder[SECRET_PLACEHOLDER];
	char host
		[SECRET_HOST]; /* "": the secret's own. Else the header is set there (E2B's rules): */
	char header[SECRET_HEADER]; /* and there is no placeholder, maybe not even a name */
	uint64_t used;		    /* so far, in this sandbox: the broker counts */
};

/* From the signer the answer to the broker has an fd: rows for EGRESS_SECRETS, which the broker does not read. */
struct ipc_secret_use {
	char id[IPC_ID];    /* of the sandbox */
	char owner[IPC_ID]; /* its owner, and the owner's name; the broker fills them in */
	char owner_name[IPC_NAME];
	uint8_t is_again; /* those that are no longer there are left out; else they are an error */
	uint32_t count;
	struct ipc_secret_use_item items[SECRETS_PER_SANDBOX];
};

/* The key of disks that share blocks. */
struct ipc_disk_key {
	char id[IPC_ID];
	char owner[IPC_ID];
	unsigned char key[IPC_DISK_KEY_BYTES]; /* in answers to the broker only */
};

struct ipc_signer {
	uint8_t can_store;
	unsigned char exchange_key[32]; /* public */
	char why[256];			/* it cannot store */
};

#define AGENTS_MAX 4096

/* A registered agent. In a request the broker fills in what is its own: uid, times, epoch, effective. */
struct ipc_agent {
	char name[IPC_NAME];
	char owner[IPC_ID]; /* as of a sandbox */
	char uid[IPC_ID];   /* tells it from an earlier agent of this name */
	uint64_t created_ms, rotated_ms;
	uint32_t epoch;	    /* of its key */
	uint8_t level;	    /* as registered */
	uint8_t effective;  /* not above the trust of its owner's tokens */
	uint8_t is_outside; /* it has no sandbox: its owner's token speaks for it */
	uint8_t is_new; /* IPC_AGENT_PUT: must not exist yet; else it must, and only these change: */
	uint8_t has_level; /* its level, */
	uint8_t rotates;   /* its key */
};

/* What everybody may know: with it the messages of an agent can be verified anywhere. */
struct ipc_agent_key {
	char name[IPC_NAME];
	char uid[IPC_ID];
	uint32_t epoch;
	unsigned char public_key[AGENT_PUBLIC_KEY];
};

/* A port of the host that leads to a port of a sandbox (net/publish.h). */
struct ipc_publish {
	char id[IPC_ID];
	unsigned char address[16];
	uint16_t port, inner;
};

/* Proves that the role's loop runs. To the front it also tells how the other roles are. */
struct ipc_ping {
	uint32_t interval_ms; /* until the next ping */
	char silent[128];     /* names of the roles that do not answer, separated by blanks */
};

struct ipc_remote {
	char id[IPC_ID];      /* ours */
	char name[REMOTE_ID]; /* the service's; "" at first */
};

/* The texts may hold any bytes and need no NUL: the role makes one line of them. */
struct audit_entry {
	char who[64];	  /* token id and name, "operator", "daemon" */
	char what[48];	  /* "sandbox.create", "exec", "file.write", "auth" ... */
	char target[160]; /* sandbox id, path */
	char verdict[16]; /* "allow" "deny" "done" "fail" */
	char why[256];
	char from[64];	      /* address */
	uint8_t uses_reserve; /* it ends or pauses something: it is written even if the disk is full */
};

/* Asks for the latest entries, or for the first ones after after_seq. Both come oldest first. */
struct audit_query {
	uint64_t after_seq; /* only entries after this one */
	uint32_t limit;	    /* at most so many; 0: 100 */
	uint8_t is_forward; /* the first ones, not the latest */
	char target[160];   /* only entries whose target begins with this */
};

struct audit_page {
	uint64_t next_seq; /* ask again, after this one: there are more; 0: there are not */
};

struct ipc {
	uint32_t type, serial;
	struct err err; /* replies: kind ERR_NONE is success */
	union {
		char id[IPC_ID];
		struct ipc_boot boot;
		struct ipc_booted booted;
		struct ipc_stats stats;
		struct ipc_snapshot snapshot;
		struct ipc_row row;
		struct ipc_network network;
		struct egress_record net_record;
		struct egress_meter net_meter;
		struct ipc_died died;
		struct ipc_peer peer;
		struct ipc_remote remote;
		struct ipc_ping ping;
		struct ipc_publish publish;
		struct ipc_secret secret;
		struct ipc_secret_use use;
		struct ipc_signer signer;
		struct ipc_disk_key disk_key;
		struct ipc_agent agent;
		struct ipc_image image;
		struct ipc_agent_key key;
		struct ipc_disk_volume volume;
		struct agent_message message;
		struct audit_entry entry;
		struct audit_query query;
		struct audit_page page;
	};
};

/* How many bytes of a struct ipc a message of this type has; 0: unknown type. */
size_t ipc_size(uint32_t type);
/* Sends one message, with an fd unless it is -1. -1 with errno; EAGAIN: the other side is slow. */
int ipc_send(int sock, const struct ipc *m, int fd);
/*
 * Receives one. 1: done, *ret_fd is -1 or the caller's; 0: the other side is gone; -1 with errno
 * (EAGAIN; EBADMSG: wrong size, unknown type, a string without an end).
 */
int ipc_receive(int sock, struct ipc *ret, int *ret_fd);
/* 20 letters of a-z and 0-5, nothing else. */
bool ipc_id_is_valid(const char *id);
/* 1 to 63 of a-z, A-Z, 0-9, '-' and '_': safe in a path and a header. */
bool remote_name_is_valid(const char *name);

/* The broker's state and the functions that its files share. Nothing outside the daemon includes this. */
#pragma once

#include "image/image.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/loop.h"
#include "daemon/roles/roles.h"
#include "policy/config.h"
#include "provider/provider.h"
#include "net/redirect.h"
#include "wire/egress.h"
#include "wire/ipc_channel.h"

#define BOX_BUCKETS 4096
#define LISTENERS (CONFIG_LISTEN + 1) /* and that of the Docker API */

/* The front's request that is to be answered. An answer to an earlier front is dropped. */
struct requester {
	uint32_t epoch, serial; /* serial 0: nobody waits for an answer */
};

enum box_state {
	BOX_BOOTING,
	BOX_LIVE,
	BOX_DYING,   /* being destroyed */
	BOX_FOREIGN, /* its record cannot be read: not adopted, and destroyed only on request */
};

/* One sandbox, as the broker sees it; its provider knows how it is run. */
struct box {
	struct instance i; /* first: an instance is the box around it */
	struct daemon *d;
	struct box *next; /* in its bucket */
	enum box_state state;
	bool is_busy;		    /* one change at a time: pause, resume, limits, a snapshot */
	bool has_used_disk;	    /* its disk is one of a snapshot */
	char disk_key[IPC_ID];	    /* of its disk; "": it has none, or is not encrypted */
	struct ipc_secret_use *use; /* the secrets that it may use, or NULL */
	struct {
		struct requester who; /* waits until everything is in force */
		struct loop_timer timer;
		bool has_rows, has_ca; /* of this instance of egress */
	} force;
	struct requester *destroyers;
	size_t destroyer_count;
	struct loop_timer again; /* destroying failed */
	struct box_net *net;	 /* NULL: it never had a network */
};

#define NET_GROUPS 16

/* The network of a box. */
struct box_net {
	void *request;	  /* the request's own rules, as struct net_policy; checked */
	struct buf rules; /* with the operator's and the owner's stages in front */
	struct net_setup setup;
	char group[IPC_NAME], name[IPC_NAME]; /* of its isolated segment, or "" */
	bool is_prepared;	     /* its namespace leads to listeners, and egress has them */
	bool is_leaving;	     /* until egress has closed them, because others are needed */
	bool asks, egress_asks;	     /* as the request says; as egress was told */
	struct requester changer;    /* waits until is_leaving is over */
	uint8_t told_mode, told_how; /* to the front */
	struct egress_meter before, now; /* of earlier instances of the role, and of this one */
	/* Attempts of one kind are audited once in a while, with their number. */
	struct net_group {
		uint64_t kind;
		int64_t since_ns;
		uint32_t more;
		struct audit_entry entry;
	} * groups;
};

struct broker_listener {
	struct daemon *d;
	struct loop_watch watch; /* of a Unix socket; the front accepts from TCP sockets */
	struct loop_timer again;
	int fd;
	bool is_unix;
	bool is_passed; /* the service manager keeps it */
	bool is_docker; /* who connects here speaks Docker's Engine API */
	char path[128];
};

/* The broker's end of the channel to the front. */
struct front_side {
	struct ipc_channel channel; /* closed: no front is running */
	uint32_t epoch;
	bool was_told;	/* everything that a new front has to know was sent */
	int request_fd; /* of the request that is handled; stays the channel's */
};

struct signer_request;

/* The broker's end of the channel to role signer. */
typedef void signer_done(void *arg, const struct ipc *answer);

struct disk_key;
struct volume;

/* Of disks that exist: the keys, and by how many each is used. */
struct disk_keys {
	struct disk_key *items;
	size_t count, room;
	bool unknown;	   /* a description could not be read */
	bool were_counted; /* after the adoption */
	bool were_told;	   /* to the signer; or it is too late for that */
};

struct signer_side {
	struct ipc_channel channel; /* closed: it is not running */
	uint32_t last_serial;
	struct signer_request *requests;
	struct ipc_signer hello; /* what it has said of itself */
	bool was_told;
};

#define TLS_WAITING 256

/* The broker's end of the channel to role tls. */
struct tls_side {
	struct ipc_channel channel;
	int keys;	      /* memfd: certificates and key; -1: none */
	size_t waiting_count; /* connections that wait for a front */
	struct {
		int fd;
		struct ipc_peer peer;
	} waiting[TLS_WAITING];
	struct loop_timer again, renewal;
};

/* What systemd, or another that speaks like it, has told about itself. */
struct service_manager {
	char socket[108];  /* to notify; "": nobody asks */
	uint64_t alive_ms; /* how often it wants to hear; 0: never */
	unsigned fd_count; /* listening sockets that were passed, from SERVICE_FD on */
};

/* The broker's end of the channel to the role egress. */
struct egress_side {
	struct loop_watch watch; /* fd -1: the role does not run */
	struct egress_waiting *first, **last;
	size_t waiting;
	struct loop_task restore; /* gives the networks of all boxes to a new instance */
	size_t next_bucket;
	struct egress_flush *flushes; /* requests of the front that wait for EGRESS_FLUSHED */
	bool is_held;		      /* the audit log cannot be written: no new connections */
	struct loop_timer held;
};

/* Registered agents: <state>/agents. */
struct agents_side {
	struct ipc_agent *rows;
	size_t count;
	struct err err; /* the file cannot be read: nothing is registered, and nothing can be */
};

struct daemon {
	struct loop *loop;
	struct config *config;
	struct tokens *tokens;
	char *config_file; /* NULL: defaults only */
	struct list listen;
	const char *tls_option; /* of the command line, or NULL */
	bool docker_option;
	bool rootless, stopping;
	uid_t uid; /* our own */
	gid_t gid;
	int state, runtime, snapshots_dir; /* directories; also host.disks_dir */
	int lock, runtime_lock;
	int self; /* our own program */
	struct provider_host host;
	struct err unusable[PROVIDER_COUNT]; /* why a provider can boot nothing */
	struct {
		unsigned adopted, reaped, strays;
	} found; /* of earlier brokers, at the start */
	struct let_in {
		bool is_known;
		uint64_t memory, disk; /* at least as much as all have */
	} let_in[2];		       /* kept, and for one run: totals.c */
	struct {
		int64_t looked_ns;
		struct err err; /* why nothing may be booted now */
	} host_state;
	struct box *boxes[BOX_BUCKETS];
	size_t box_count;
	struct role roles[ROLE_COUNT];
	struct config_e2b remote_settings; /* of the role that runs */
	struct config_audit audit_settings;
	struct front_side front;
	struct signer_side signer;
	struct disk_keys disk_keys;
	struct volumes_side {
		struct volume **items;
		size_t count, room;
		int dir;
	} volumes;
	struct tls_side tls;
	struct egress_side egress;
	struct agents_side agents;
	int names_dir;
	struct config_network egress_settings; /* of the role that runs */
	struct audit *audit;
	int audit_for_front;	   /* handed to a new front, */
	bool audit_is_used;	   /* and then not to another */
	unsigned audit_is_renewed; /* how often we looked since it was told to end */
	struct broker_listener listeners[LISTENERS];
	size_t listener_count;
	struct loop_watch signals, files; /* signalfd, inotify */
	struct loop_timer stop_timer, watch_timer, alive_timer;
	bool was_ready;
	unsigned told_silent; /* watch.c: roles that the front was told of, as bits */
	struct service_manager service;
	int64_t peer_noted_ns;
	struct snapshot_job *snapshot_jobs;
	size_t snapshot_running, disk_readings;
	struct {
		uint64_t number;
		char owner[IPC_ID];
	} snapshot_turns[16]; /* the last owners whose snapshots were begun */
	uint64_t snapshot_turn;
	struct image_store images;
	struct image_job *image_jobs;
	struct buf images_told; /* to the front */
	const char *test_front;
	const char *ephemeral_dir;	  /* NULL: an ordinary daemon */
	struct loop_watch ephemeral_life; /* stdin of an ephemeral daemon */
	unsigned last_steps;
	int status;
};

/* A request of the front's. Every one is answered exactly once, now or later. */
typedef void broker_request(struct daemon *d, struct requester who, const struct ipc *m);

/* ---- serve.c ---- */
struct token;
/* NULL: no token has this id, or the owner is the operator. */
const struct token *daemon_token(const struct daemon *d, const char *owner);
/* The name of a token; "" if there is none, or for the operator. */
const char *daemon_owner_name(const struct daemon *d, const char *owner);
/* Takes no more work, lets running work finish, then ends. A second call ends at once. */
void daemon_stop(struct daemon *d);
/* Writes a decision of the broker's own into the audit log. */
void daemon_note(struct daemon *d, const char *what, const char *target, const char *verdict,
		 const char *why);
/* The front answers. */
void daemon_is_ready(struct daemon *d);
/* The front has finished, or is gone: a daemon that is stopping ends now. */
void daemon_front_is_done(struct daemon *d);

/* ---- setup.c ---- */
/* Directories, locks, the guest's program, volumes. */
int prepare(struct daemon *d, struct err *e);
/* Opens the operator's volumes (rule 4) in place of those that were open. */
int prepare_volumes(struct daemon *d, const struct config *c, struct err *e);
/* The program that this environment variable names (NULL: none does), or one beside our own. */
int open_program(const char *name, const char *variable, struct err *e);
/* The names in a directory, without those that begin with a dot. */
void list_names(int dir, struct list *ret);

/* ---- listen.c: Unix sockets, whose peers the broker checks, and TCP, for the front ---- */
int listeners_open(struct daemon *d, struct err *e);
void listeners_close(struct daemon *d);
/* Stops accepting from sockets that were passed: clients wait in them for the next daemon. */
void listeners_leave(struct daemon *d);

/* ---- service.c: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3), without their library ---- */
#define SERVICE_FD 3
/* Before any fd is opened. Takes the variables out of the environment. */
void service_init(struct daemon *d);
/* Says from now on that this loop runs, if that is wanted. */
void service_watch(struct daemon *d);
/* "READY=1" and the like; does nothing if nobody asks. */
void service_notify(struct daemon *d, const char *state);

/* ---- totals.c ---- */
struct new_totals {
	const char *owner;
	bool transient;
	const struct limits *limits;
};
/* May these limits be added? `without`: the sandbox that has others until then, or NULL. */
int totals_check(struct daemon *d, const struct box *without, const struct new_totals *n,
		 struct err *e);

/* ---- box.c ---- */
/* NULL if there is none. */
struct box *box_find(struct daemon *d, const char *id);
/* The same, if it is live. */
struct box *box_find_live(struct daemon *d, const char *id);
struct box *box_new(struct daemon *d, const struct provider_row *row, const char *id);
/* Sets the functions that rows call (provider.h). */
void box_init_host(struct daemon *d);
/* Tells the front about a box that it did not ask for, or that an earlier front asked for. */
void box_announce(struct box *b);
/* Ends a box; the requester is answered when nothing of it is left. */
void box_destroy(struct box *b, struct requester who);

/* ---- requests.c ---- */
/* May the owner build images, with commands that are root inside and have these limits? */
int request_check_build(const struct daemon *d, const char *owner, const struct limits *l,
			struct err *e);
broker_request box_request_boot, box_request_connect, box_request_destroy, box_request_pause,
	box_request_update, box_request_stats;

/* ---- record.c: what a later broker needs to find a sandbox again, <runtime>/boxes/ID ---- */
enum record_kind {
	RECORD_GOOD,
	RECORD_EMPTY,
	RECORD_FOREIGN, /* damaged or of another version of cloche: its sandbox is left alone (rule 32) */
};

/* Before the front hears of the sandbox; again after each change that matters. */
int record_write(const struct box *b, struct err *e);
/* Fills in info and blob; e says what is wrong with a record that is not good. */
enum record_kind record_read(struct box *b, struct err *e);
void record_remove(const struct box *b);

/* ---- row.c: <runtime>/boxes/ID.row, <state>/snapshots/ID.row ---- */
broker_request row_request_put, row_request_get;
bool row_exists(const struct box *b);
void row_remove(const struct box *b);

/* ---- network.c: what a box may reach; <runtime>/boxes/ID.net ---- */
broker_request network_request, network_request_answer;
/* The operator's and the owner's stages, and that of a trust level (-1: none), before those of a checked request. */
int network_join(const struct daemon *d, const char *owner, int level, const void *request,
		 struct buf *ret, struct err *e);
/* Takes up the network that an earlier broker gave it. */
void network_adopt(struct box *b);
/* For a new instance of egress, or new listeners: the rules are made again, and egress gets everything. */
void network_restore(struct box *b);
/* The operator's settings or the tokens have changed. */
void network_judge_all(struct daemon *d);
/* What was counted stays counted, since budgets are of the sandbox's life; egress has forgotten the sandbox. */
void network_keep_meter(struct box_net *n);
/* Egress is gone: nothing leads out any more. */
void network_lost(struct box *b);
/* Counters of its life; a later broker needs them if the budget bounds bytes or connections. */
void network_metered(struct box *b, const struct egress_meter *now);
/* Those of all instances of egress together. */
struct egress_meter network_used(const struct box_net *n);
/* Egress has closed its listeners. */
void network_left(struct box *b);
/* Nothing of it is left. */
void network_remove(struct box *b);
/* Names of a sandbox keep their addresses in snapshots of it, and in what is started from them. */
void network_names_save(struct daemon *d, const char *sandbox, const char *snapshot);

/* ---- segment.c: sandboxes of one group reach each other ---- */
/* Checks what the front says. */
int segment_take(struct box_net *n, const struct ipc_network *m, struct err *e);
/* Tells egress. */
void segment_tell(const struct box *b);
/* Egress wants a socket in the namespace of a peer. */
void segment_request(struct daemon *d, const struct egress_peer *asked);

/* ---- egress.c: the channel to the role ---- */
/* A new instance; takes sock. */
void egress_attach(struct daemon *d, int sock);
/* The role has ended: listeners are closed, so connections are refused. */
void egress_detach(struct daemon *d);
/* Fds stay the caller's. */
void egress_tell(struct daemon *d, const struct egress *m, const int *fds, size_t count);
/* The fd becomes that of a sealed memfd. */
void egress_tell_bytes(struct daemon *d, const struct egress *m, const void *bytes, size_t len);
void egress_send_settings(struct daemon *d);
void egress_ping(struct daemon *d);
broker_request egress_request_flush;

/* ---- attempts.c ---- */
/* Audits an attempt of this box to reach something, and tells the front. */
void attempt_record(struct box *b, const struct egress_record *r);
/* Writes what was counted since. */
void attempts_flush(struct box *b);
void attempts_try_again(void *daemon);

/* ---- adopt.c ---- */
/* Finds the sandboxes of an earlier broker, and removes debris. */
void adopt_all(struct daemon *d);

/* ---- snapshots.c: <state>/snapshots/ID.tar and ID.meta ---- */
broker_request snapshot_request_make, snapshot_request_list, snapshot_request_delete,
	snapshot_request_read, snapshot_request_write, snapshot_request_keep;
/* The description of a kept snapshot; -1: there is none, or it cannot be read. */
int snapshot_meta_read(const struct daemon *d, const char *id, struct ipc_snapshot *ret);
/* The same of a description in any directory. */
int snapshot_meta_read_at(int dir, const char *id, struct ipc_snapshot *ret);
/* Is this a kept snapshot of that sandbox? */
bool snapshot_is_of(const struct daemon *d, const char *id, const char *sandbox);
/* The front that wrote them has gone: those that it did not keep are removed. */
void snapshots_drop_written(struct daemon *d);
/* A sandbox is gone: a front may give its id to another one, of which nobody asked for these snapshots. */
void snapshots_drop_waiting(struct daemon *d, const char *sandbox);
/* Removes snapshots that were not finished when a broker died. */
void snapshot_remove_unfinished(struct daemon *d);

/* Into this directory, as ID.meta. Without is_synced a power failure may take it back for some seconds. */
int snapshot_meta_write(int dir, const struct ipc_snapshot *info, bool is_synced, struct err *e);
/* After a start: disk_key_use for each. */
void snapshots_count_keys(struct daemon *d);
/* Tells a new front which sandboxes are stopped: it may not know of those that a reboot has stopped. */
void snapshots_tell_stopped(struct daemon *d);
/* The name of the snapshot that a stopped sandbox consists of; clients cannot use it. */
#define SNAPSHOT_OF_STOP ".stop"

/* ---- disks.c: <state>/disks/ID.img and ID.meta ---- */
broker_request disk_request_read, disk_request_done;
/* As soon as a sandbox with a disk is booted: from now on its disk is kept if the sandbox is lost. */
int disk_describe(const struct box *b, struct err *e);
void disk_forget(const struct box *b);
bool disk_is_described(const struct daemon *d, const char *id);
/* Answers with an fd to read the snapshot from, as a tar. */
void disk_read_snapshot(struct daemon *d, struct requester who, const struct ipc_snapshot *s);
/* Boots a box: a disk begins with its snapshot, and gets its key. */
void disk_boot(struct box *b, const struct ipc_boot *boot, provider_done done, void *arg);
/* The sandbox's disk is also the snapshot's, as a file with this ending. */
int disk_link_to_snapshot(const struct daemon *d, const char *sandbox, const char *snapshot,
			  const char *ending, struct err *e);
/* The sandbox is gone, but nobody has destroyed it: its disk becomes the snapshot of a stopped one. */
void disk_keep(struct daemon *d, const char *id);
/* After the adoption: the same for all disks, and removes what is unfinished. */
void disks_sweep(struct daemon *d);
/* ---- images.c: the store of images, <state>/images ---- */
int images_prepare(struct daemon *d, struct err *e);
/* May the owner have this image? */
int images_check(const struct daemon *d, const struct ipc_boot *boot, struct err *e);
/* Until images_leave the image of the box stays, also without a name; to_disk: as that of a snapshot does. */
int images_hold(const struct box *b, bool to_disk, struct err *e);
void images_leave(const struct box *b);
/* The same for a snapshot, and across crashes of the host. */
int images_hold_for_snapshot(const struct daemon *d, const struct ipc_snapshot *s, struct err *e);
void images_leave_snapshot(struct daemon *d, const char *id);
/* Drops what earlier brokers held for nothing that still exists. */
void images_sweep(struct daemon *d);
/* Tells the front what is in the store, if that has changed since. */
void images_tell(struct daemon *d);
/* For a new front. */
void images_tell_all(struct daemon *d);
broker_request images_request, images_request_look;
/* Was this child one of the store's processes? */
bool images_reaped(struct daemon *d, pid_t pid);

/* ---- disk_keys.c ---- */
/* key is wiped by who calls; it is NULL if there is an error. */
typedef void disk_key_done(void *arg, const struct ipc_disk_key *key, const struct err *e);
/* Is a new disk encrypted? */
bool disk_keys_are_wanted(const struct daemon *d);
/* The key with this id, or a new one for "". */
void disk_key_get(struct daemon *d, const char *owner, const char *id, disk_key_done *done,
		  void *arg);
/* A disk or a snapshot with this key exists; it is gone. */
void disk_key_use(struct daemon *d, const char *id);
void disk_key_drop(struct daemon *d, const char *id);
/* After a start: which keys are in use. */
void disk_keys_tell(struct daemon *d);

/* ---- volumes.c: <state>/volumes/ID.img and ID.meta ---- */
broker_request volume_request_make, volume_request_list, volume_request_delete;
/* At the start, before keys are counted; removes what is unfinished. */
void volumes_load(struct daemon *d);
void volumes_done(struct daemon *d);
/* Is each volume of the request the operator's, or the owner's own? */
int volumes_check(const struct daemon *d, const struct ipc_boot *boot, struct err *e);
/* disk_boot, once the volumes that are disks are locked and their keys there. */
void volumes_boot(struct box *b, const struct ipc_boot *boot, provider_done done, void *arg);
/* The boot is over: its mounts keep the locks. */
void volumes_drop(struct instance *i);

/* ---- publish.c ---- */
broker_request publish_request;

/* ---- tls_side.c ---- */
/* Reads or makes the certificate of these settings. The one in use stays if that fails. */
int tls_load(struct daemon *d, const struct config *c, struct err *e);
/* Makes a certificate of the daemon's own again if it has to be. */
void tls_renew(struct daemon *d);
/* A new role: tells it everything. Takes sock. */
void tls_attach(struct daemon *d, int sock);
void tls_detach(struct daemon *d);
void tls_ping(struct daemon *d);

/* ---- front_side.c ---- */
/* A new front: tells it everything. Takes sock. */
void front_attach(struct daemon *d, int sock);
void front_detach(struct daemon *d);
/* No front is running, or it does not read fast enough. */
bool front_is_slow(const struct daemon *d);
/* The fd, or -1, stays the caller's. */
void front_news(struct daemon *d, struct ipc *m, int fd);
/* The same before the front was told everything. */
void front_news_early(struct daemon *d, struct ipc *m, int fd);
void front_answer(struct daemon *d, struct requester who, struct ipc *m, int fd);
/* IPC_DONE; e NULL: success. */
void front_done(struct daemon *d, struct requester who, const char *id, const struct err *e);
/* The configuration and the tokens, after each change. */
void front_send_config(struct daemon *d);
void front_send_tokens(struct daemon *d);
void front_send_agent_types(struct daemon *d);

/* ---- signer_side.c: requests about secrets go on to role signer ---- */
bool signer_is_wanted(const struct daemon *d);
/* Takes sock. */
void signer_attach(struct daemon *d, int sock);
void signer_detach(struct daemon *d);
/* Tells a new front what the signer has said. */
void signer_tell_front(struct daemon *d);
broker_request signer_request_use;
/* Any other message of the broker's own; done gets an error if there is no signer now. fd stays the caller's. */
void signer_question(struct daemon *d, struct ipc *m, int fd, signer_done *done, void *arg);
/* PUT, LIST and DELETE; fd stays the caller's. */
void signer_pass_on(struct daemon *d, struct requester who, const struct ipc *m, int fd);
/* Asks the role; its answer is the front's. */
void signer_ask(struct daemon *d, struct requester who, struct ipc *m);
/* Egress has lost the values that this sandbox uses, or they have changed: they are sent again. */
void signer_renew(struct box *b);
/* Hands rows (a sealed memfd; -1: none) on to egress. */
void box_give_secrets(struct box *b, int rows);

/* ---- agents.c: registered agents ---- */
void agents_load(struct daemon *d);
void agents_done(struct daemon *d);
/* All of them, with the levels that hold now. */
void agents_tell_front(struct daemon *d);
broker_request agent_request_put, agent_request_delete;
/* Is the agent of a boot registered, and its owner's? It may be "". */
int agent_check_boot(const struct daemon *d, const struct ipc_boot *boot, struct err *e);
/* The sandbox is of this agent from now on. */
void agent_take_box(const struct daemon *d, const char *name, struct ipc_booted *info);
/* Of the agent that runs in a sandbox, or if there is none, -1. Unregistered: 0. */
int agent_level_of(const struct box *b);
/* The most that this owner's tokens are trusted with. */
int owner_trust(const struct daemon *d, const char *owner);
/* NULL: nobody registered it. */
const struct ipc_agent *agent_find(const struct daemon *d, const char *name);
int agent_level_now(const struct daemon *d, const struct ipc_agent *a);

/* ---- messages.c: what an agent may have signed ---- */
broker_request message_request_sign, message_request_verify, message_request_key;

/* ---- secrets_side.c: secrets and the CA of a box; <runtime>/boxes/ID.use ---- */
int secrets_write_down(const struct box *b, struct err *e);
void secrets_forget(const struct box *b);
/* Before network_adopt. */
void secrets_adopt(struct box *b);
/* Nothing of it is left. */
void secrets_remove(struct box *b);
/* Egress has its listeners and rules; secrets and CA are on their way. */
void secrets_prepared(struct box *b);
/* Answers IPC_NETWORK as soon as secrets and CA are in force. */
void secrets_answer_in_force(struct box *b, struct requester who);
void secrets_take_ca(struct box *b, int fd);
void secrets_count_use(struct box *b, const struct egress_record *r);

/*
 * ---- ephemeral.c ----
 * An ephemeral daemon, `cloche serve --private DIR`, is started by `cloche mcp` where no other daemon runs.
 * DIR/state and DIR/run are its directories, and its stdin is a pipe. When the pipe ends because its
 * creator is gone, the daemon ends, every sandbox with it, and DIR is removed.
 */
/* Both do nothing for an ordinary daemon. */
int ephemeral_watch(struct daemon *d, struct err *e);
void ephemeral_remove(const struct daemon *d);

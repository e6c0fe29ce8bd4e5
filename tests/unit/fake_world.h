/*
 * A broker and its guests in the test's own loop: they do what is asked of them, or what the test
 * wants them to do instead. Nothing here makes a process.
 */
#pragma once

#include "base/buf.h"
#include "base/loop.h"
#include "manager/broker.h"
#include "manager/manager.h"
#include "policy/config.h"
#include "store/store.h"

#define WORLD_GUESTS 64

struct world;

struct fake_guest {
	struct world *w;
	char id[IPC_ID], owner[IPC_ID];
	bool used, paused, transient;
	int fd; /* -1: no link */
	uint64_t generation;
	struct loop_watch watch;
	struct buf in;
	uint64_t tar_bytes; /* that were brought in */
	uint64_t ttl_ms;    /* of the last G_CONFIGURE */
	unsigned configured;
	uint32_t execs, hanging; /* stream of a command that hangs */
	struct limits limits;
};

struct world {
	struct loop *loop;
	struct broker *broker;
	struct manager *manager;
	struct store *store;
	struct config config;
	int sock;
	struct loop_watch watch;
	struct fake_guest guests[WORLD_GUESTS];
	struct loop_timer limit; /* a test that takes too long stops */
	bool timed_out;
	/* what the test wants */
	unsigned fail_boots;	 /* so many boots fail */
	enum err_kind fail_kind; /* as this */
	unsigned fail_destroys, fail_connects;
	bool fail_claims, fail_updates, mute_guests, hold_boots;
	bool dies_in_destroy; /* the broker ends when it has destroyed one, without an answer */
	bool abandoned;	      /* world_free leaves all as it is, like a killed daemon */
	struct ipc held;      /* a boot that waits for world_boot_held */
	uint64_t oom_kills;
	/* what happened */
	unsigned boots, destroys, claims, snapshots, snapshot_deletes, connects;
};

/* A store in a directory of its own. */
struct world_store {
	char dir[32], path[64];
	struct store *store;
};

void world_store_open(struct world_store *s);
/* As a daemon that starts anew finds it. */
void world_store_reopen(struct world_store *s);
/* Also removes the directory. */
void world_store_close(struct world_store *s);

/* pool: how many prepared sandboxes. */
struct world *world_new(uint32_t pool, struct store *store);
void world_free(struct world *w);
/* Runs the loop until the test calls loop_stop; fails the test after a generous while. */
void world_run(struct world *w);
/* Runs until the condition holds. */
#define world_until(w, condition)                                                                  \
	do {                                                                                       \
		while (!(condition))                                                               \
			world_step(w);                                                             \
	} while (0)
void world_step(struct world *w);
void world_boot_held(struct world *w);
struct fake_guest *world_guest(struct world *w, const char *id);
/* A guest that an earlier daemon left behind, and that the broker reports. */
void world_adopt(struct world *w, const struct fake_guest *alive);
/* The guest breaks its link. */
void guest_hang_up(struct fake_guest *g);
void world_news(struct world *w, uint32_t type, const char *id);
size_t world_guest_count(const struct world *w);

/* User namespaces made ahead of use, held by an fd; and the id maps that cloche needs. */
#pragma once

#include "base/base.h"

#include <sys/resource.h>

struct id_map {
	char text[192]; /* lines "inside outside count", as the kernel reads them */
};

/* inside 0..65535 -> base.. */
void id_map_range(struct id_map *ret, uint32_t base);
/*
 * For an idmapped mount: ids on disk 0..65535 -> base.., but owner and the sandbox's user change
 * places, so that the owner's files belong to the user inside, and the other way round.
 */
void id_map_owner(struct id_map *ret, uint32_t base, uint32_t owner, uint32_t user);
/* For an idmapped mount: only owner -> id. Files of all others belong to nobody, and nobody can make any. */
void id_map_one(struct id_map *ret, uint32_t id, uint32_t owner);
/* For an idmapped mount of a disk with ids of its own: 0..65535 -> base.., and USERNS_DISK_OUTER -> 0. */
void id_map_disk(struct id_map *ret, uint32_t base);
#define USERNS_DISK_OUTER 65536u
/* For a user namespace below one with a range: all its ids but the last, USERNS_OUTER_ID. */
void id_map_below(struct id_map *ret);
#define USERNS_OUTER_ID 65535u

struct userns {
	int fd;
	pid_t holder; /* keeps the namespace alive until the fd is open */
	char stack[1024] __attribute__((aligned(16))); /* of the holder, so it must not move */
};

/* Makes a user namespace with these maps; needs CAP_SETUID and CAP_SETGID. */
int userns_create(const struct id_map *uids, const struct id_map *gids, struct userns *u,
		  struct err *e);
/*
 * clone(2) into a new user namespace that belongs to owner. The kernel counts what is made in it (pending
 * signals, timers, inotify instances, namespaces) for its owner, too, on the host: if that were root,
 * one sandbox could use up what root's services need. Needs CAP_SETUID.
 */
pid_t userns_clone(int (*run)(void *), void *stack_end, int flags, void *arg, uid_t owner);
/*
 * prlimit(2) of a process in a user namespace that belongs to owner (0: to nobody else): on hosts whose root
 * lacks CAP_SYS_RESOURCE only the namespace's owner may.
 */
int userns_prlimit(pid_t pid, int resource, const struct rlimit *limit, uid_t owner);
/* Maps the user namespace that pid was cloned into, and returns an fd on it. */
int userns_adopt(pid_t pid, const struct id_map *uids, const struct id_map *gids, struct err *e);
/* Waits until the holder is gone, which takes longer than making it; the fd is the caller's. */
void userns_release(struct userns *u);
/* Maps one id each in the caller's own new user namespace, as an ordinary user may. */
int userns_map_self(uid_t inside_uid, uid_t uid, gid_t inside_gid, gid_t gid, struct err *e);

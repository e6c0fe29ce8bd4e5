/*
 * What the broker and the role `remote` say to each other about sandboxes that another service runs:
 * one SOCK_SEQPACKET message is one struct remote_message, with at most one fd. The broker asks, the
 * role answers with the same serial; serial 0 is news. Each side checks what it gets.
 */
#pragma once

#include "base/err.h"
#include "wire/ipc.h"

#define REMOTE_ID 64 /* of a sandbox there: letters, digits and dashes */

enum remote_type {
	/* broker to role */
	REMOTE_CREATE = 1, /* id -> REMOTE_DONE with name and the link's fd */
	REMOTE_CONNECT,	   /* id, name -> REMOTE_DONE with a new link */
	REMOTE_DESTROY,	   /* id, name -> REMOTE_DONE; one that is gone is done as well */
	REMOTE_PAUSE,	   /* id, name -> REMOTE_DONE; its link ends */
	REMOTE_RESUME,	   /* id, name -> REMOTE_DONE */
	/* role to broker */
	REMOTE_DONE,
	REMOTE_GONE, /* news: id, name; err says how that was noticed */
	REMOTE_TYPE_COUNT,
};

struct remote_message {
	uint32_t type, serial;
	struct err err;
	char id[IPC_ID];      /* ours */
	char name[REMOTE_ID]; /* the service's; "" at first */
};

/* Sends one, with an fd unless it is -1. -1 with errno. */
int remote_send(int sock, const struct remote_message *m, int fd);
/* 1: done, *ret_fd is -1 or the caller's; 0: the other side is gone; -1 with errno (EBADMSG). */
int remote_receive(int sock, struct remote_message *ret, int *ret_fd);
/* 1 to 63 of a-z, A-Z, 0-9, '-' and '_': what can be put into a path and a header as it is. */
bool remote_name_is_valid(const char *name);

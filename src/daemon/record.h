/* Records: what a later broker needs to find a sandbox again. Written by brokers only. */
#pragma once

#include "daemon/box.h"

/* Before the sandbox is answered for; again after each change that matters. */
int record_write(const struct box *b, struct err *e);
/* Fills in id, info, pid, identity, id_base, cgroup_table. -1: none of ours, or of another make. */
int record_read(int dir, const char *id, struct box *ret, struct err *e);
void record_remove(const struct box *b);

/* <dir>/ID.sock as a socket address; paths may be longer than those, so it goes by the fd. */
struct sockaddr_un;
void record_socket_address(int dir, const char *id, struct sockaddr_un *ret);

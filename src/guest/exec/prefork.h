/*
 * Parked processes (warm/warm.h tells where they belong): commands that have loaded all that takes long, and then only make copies of
 * themselves for others to use (guest/python/prefork.py).
 *
 *   guest -> prefork   on its fd 3, SEQPACKET: an order (spawn_pack_order); four fds: standard streams,
 *                   and a socket to report on
 *   copy -> guest   on that socket, once its parent is the guest: a byte. The kernel says whose it is.
 *   guest -> copy   a byte: it is a command now, and may begin
 *
 * The copy forks twice, so that it becomes the guest's own child, whose end is the kernel's word.
 */
#pragma once

#include "guest/exec/command.h"

/* The socket of a command that is going to be parked: theirs is for its process. */
int prefork_open(struct command *c, int *ret_theirs, struct err *e);

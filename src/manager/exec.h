/* Commands: what exec.c offers to its neighbours besides manager.h. */
#pragma once

#include "manager/manager_internal.h"
#include "wire/pack.h"

/* guest_exit of wire/guest.h, of a command in s; u->bad says whether it was whole. */
void exit_read(struct unpack *u, const struct sandbox *s, struct outcome *ret);
/* True for a warm one: what its own process proved. */
bool exec_warm_layers(const struct exec *x, layer_set *ret_proven, int *ret_landlock_abi);
/* Who started it will acknowledge its end. */
void exec_leave_unacked(struct exec *x);
/* It does not keep its sandbox from being idle. */
void exec_leave_idle(struct exec *x);
struct sandbox *exec_sandbox(const struct exec *x);

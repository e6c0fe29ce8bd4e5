/*
 * Classic BPF in user space: what does a seccomp filter say about this call?
 *
 * Used to find out, from a notification's data, which rule of the profile raised it, and by the
 * profile compiler to check what it made. Knows the instructions that tools/seccomp-compile emits.
 */
#pragma once

#include "base/base.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

/* The SECCOMP_RET_* value, with its data; KILL_PROCESS for a program that it cannot follow. */
uint32_t cbpf_run(const struct sock_filter *insns, unsigned count, const struct seccomp_data *data);

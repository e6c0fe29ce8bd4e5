/*
 * The network of a run: its rules, and the cloche-egress that serves it. The keeper holds the listeners until one of
 * them becomes readable; then it starts the program and hands them over. A run without a network has none of this.
 *
 *   run_net_make(&k, &request, &e);        k->network, if the spec wants one; reads the values of secrets
 *   plan_make(...); run_net_plan(&k, &e);  k->plan.net; placeholders and trust go to the environment
 *   run_net_polls(&k, polls), run_net_serve(&k, polls)     while the command runs
 *   run_net_end(&k);                       everything inside is dead: takes the last records
 *   run_net_report(&k, &result);  run_net_done(&k);
 */
#pragma once

#include "sandbox/outside/keeper.h"
#include "sandbox/outside/published.h"

#include <poll.h>

#define RUN_NET_POLLS (NET_LISTENERS_MAX + 2 + PUBLISHED_POLLS)

struct sandbox_request;

int run_net_make(struct keeper *k, const struct sandbox_request *request, struct err *e);
/* Starts the program already if there is a CA to be shown. */
int run_net_plan(struct keeper *k, struct err *e);
/* Returns how many it has filled in. */
size_t run_net_polls(const struct keeper *k, struct pollfd polls[RUN_NET_POLLS]);
void run_net_serve(struct keeper *k, const struct pollfd *polls, size_t count);
void run_net_end(struct keeper *k);
/* Bytes, what was refused, notes. */
void run_net_report(struct keeper *k, struct result *r);
void run_net_done(struct keeper *k);

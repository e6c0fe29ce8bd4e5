/*
 * Trust levels of tokens and agents. One table (trust.c) says what a sandbox of each level is by default, the most
 * that it may have, and which levels its agent may talk to. A level that is not in the table is level 0.
 */
#pragma once

#include "base/base.h"

#define TRUST_LEVELS 6

struct trust_level {
	const char *name;
	unsigned talks_to; /* bits of levels */
	int net;	   /* enum net: the most */
	bool wants_vm;	   /* a container is the second choice, and `layers.missing` says so */
	bool may_leave;	   /* to a provider elsewhere, whose network is not ours to bound */
	bool is_as_asked;  /* no default network */
};

const struct trust_level *trust_level(int level);
bool trust_may_talk(int from, int to);
/* A task is a message, and goes only to the same or a lower level. */
bool trust_may_delegate(int from, int to);
/* The most that a level lets a sandbox have, as enum net. */
int trust_net(int level);
/* What a sandbox has that nobody asked a network for. has_rules: its token names the destinations. */
int trust_usual_net(int level, bool has_rules);

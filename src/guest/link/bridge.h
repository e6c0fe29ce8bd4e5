/*
 * `cloche-guest bridge DIRECTORY`: for a sandbox that another service made, where we can run
 * commands but cannot hand over a socket. The guest listens on a socket in that directory. Each
 * bridge is one link to it: bytes on stdin and stdout, after the line BRIDGE_HELLO.
 */
#pragma once

#define BRIDGE_HELLO "cloche-bridge 1\n"

/* Starts a guest there unless one runs, then carries bytes until either side ends. */
int guest_bridge(const char *directory);

/*
 * `cloche-guest bridge DIRECTORY`: a guest where somebody else made the sandbox and runs our
 * commands, but nobody can hand over a socket. It serves on a socket in that directory; each
 * bridge is one link to it, as bytes on stdin and stdout after a line that says so.
 */
#pragma once

#define BRIDGE_HELLO "cloche-bridge 1\n"

/* Starts a guest there unless one runs; then carries bytes until either side ends. */
int guest_bridge(const char *directory);

/* The front: HTTP, the manager, SQLite, the links to the guests. Started by the broker (roles.c). */
#pragma once

/* In its working directory, <state>/db. */
#define FRONT_DATABASE "state.db"

/* The exit status of a front whose database was written by a later version: starting it again is of no use. */
#define FRONT_REFUSES 78

/*
 * Serves until the broker ends it or is gone; returns the exit status. The working directory holds the
 * database. Takes both sockets.
 */
int front_main(int broker_fd, int audit_fd);

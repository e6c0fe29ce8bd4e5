/* What was refused, by command; the memory watch; and G_EVENTS. */
#pragma once

#include "guest/link/server.h"

struct command;

int denials_start(struct guest *g);
/* Groups of denials that are this command's, or may be. */
uint32_t denials_count(const struct guest *g, const struct command *c);
void denials_stop(struct guest *g);
/* Tells listeners of the end of a command, and of the sandbox. */
void denials_tell_exec(struct guest *g, const struct command *c);
void denials_tell_end(struct guest *g);
/* A notification or a query whose command is known: that of a warm sandbox. */
void denials_take_notify(struct guest *g, int listener, uint32_t eid);
void denials_take_query(struct guest *g, int fd, uint32_t eid);

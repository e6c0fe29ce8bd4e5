/* What pid 1 and the nanny of level process have in common. */
#pragma once

#include "sandbox/inside.h"

/* Reaps all that has died; true once the command is among it: then its status is on the board. */
bool supervise_reap(struct board *b, pid_t command);
/* v1: joins the cgroups by their own `tasks` files. Notes on the board what then holds. */
void supervise_join(struct board *b, const struct rights_message *m, const int *fds);
/* Closes every fd that is not in keep (count of them, any order, -1 allowed). */
void supervise_close_others(const int *keep, size_t count);

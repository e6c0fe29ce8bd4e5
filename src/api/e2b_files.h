/* What the two directions of /files share. */
#pragma once

#include "api/e2b.h"

/* The status that the guest's error stands for, in the door's shape. */
void e2b_files_error(struct e2b_request *q, const struct err *e);
/* Resolves for the user that the request names; NULL after an answer. */
char *e2b_files_path(struct e2b_request *q, const char *path);

/* After a start: which sandboxes of an earlier broker are still whole, and what is debris. */
#pragma once

struct daemon;

/* Logs what it did. Blocks no longer than it takes to look. */
void adopt_all(struct daemon *d);

#pragma once

/* What sandboxes of the daemon use, once or live. */
int cmd_stats(int argc, char **argv);

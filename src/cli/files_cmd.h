/* Files in sandboxes of the daemon. */
#pragma once

int cmd_cp(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_cat(int argc, char **argv);

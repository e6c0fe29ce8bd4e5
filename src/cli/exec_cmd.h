/* Commands in sandboxes of the daemon. */
#pragma once

int cmd_exec(int argc, char **argv);
/* `cloche shell ID`; without an ID the launcher itself makes a sandbox. */
int cmd_shell_in(int argc, char **argv);
int cmd_logs(int argc, char **argv);

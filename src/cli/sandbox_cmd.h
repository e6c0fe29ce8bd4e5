/* Sandboxes of the daemon: one function for each verb. */
#pragma once

int cmd_create(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_fork(int argc, char **argv);

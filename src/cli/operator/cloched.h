/* The verbs of cloched: one row each in the table of cloched.c. */
#pragma once

struct verb; /* client_verb.h */

/* Sandboxes of the daemon: sandbox_cmd.c, snapshot_cmd.c, exec_cmd.c, files_cmd.c. */
int cmd_create(int argc, char **argv);
/* `cloche shell ID`. Without an ID the launcher itself creates a sandbox. */
int cmd_shell_in(int argc, char **argv);
extern const struct verb verb_ps, verb_rm, verb_kill, verb_pause, verb_resume, verb_stats;
extern const struct verb verb_snapshot, verb_fork, verb_diff, verb_export, verb_import;
extern const struct verb verb_exec, verb_logs;
extern const struct verb verb_secret, verb_volume, verb_agent, verb_ssh;
extern const struct verb verb_cp, verb_ls, verb_cat;

/* For the operator. Tokens are created here and not over the API: the daemon only reads hashes. */
extern const struct verb verb_image;
extern const struct verb verb_token, verb_audit, verb_bench, verb_ca;
int cmd_serve(int argc, char **argv);
int cmd_role(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_selftest(int argc, char **argv);

/* For coding agents. */
extern const struct verb verb_init; /* init/init.h */
int cmd_mcp(int argc, char **argv);
int cmd_hook(int argc, char **argv);

/*
 * `cloche hook`: between a coding agent and its shell. It reads what the agent is about to do
 * (a PreToolUse event as JSON on stdin) and answers with the same command, rewritten to run in a
 * sandbox with the project as its workspace.
 */
#pragma once

int cmd_hook(int argc, char **argv);

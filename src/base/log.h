/*
 * The daemon's own log: one JSON object per line on stderr.
 *
 *   log_info("sandbox adopted", "id", id, "owner", owner);   keys and values are strings, in pairs
 *   log_error("boot failed", "id", id, "error", e.msg);
 *
 * Whatever bytes the values have, a line stays one line of valid JSON. Never hand it a secret.
 */
#pragma once

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* Below this level nothing is written; INFO at first. CLOCHE_LOG=debug|info|warn|error sets it. */
void log_init(const char *role);
/* Pairs of const char * key, value, ended by NULL; a NULL value is null. */
void log_line(enum log_level level, const char *what, ...) __attribute__((sentinel));

#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__, NULL)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__, NULL)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__, NULL)
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__, NULL)

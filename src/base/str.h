/* String functions that libc lacks. Failure to allocate ends the process: there is nothing to save. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define STR_LOWER "abcdefghijklmnopqrstuvwxyz"
#define STR_DIGITS "0123456789"
#define STR_ALNUM STR_LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ" STR_DIGITS

/* Returns p, or ends the process with exit status 125 if it is NULL. */
void *must_alloc(void *p);
/*
 * Makes room for one more item behind `count` items and returns the array, which may have moved. *room
 * is the number of items that fit. Such an array is kept as {items, count, room}, all zero at first.
 */
void *array_room(void *items, size_t count, size_t *room, size_t item_size);
char *str_copy(const char *s);
char *str_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool str_starts(const char *s, const char *prefix);
bool str_equal(const char *a, const char *b);
/* Does the text end within its size bytes? */
bool str_has_end(const char *text, size_t size);
/* Appends to text, with `between` in front unless text is empty. The result is cut to size bytes. */
void str_append(char *text, size_t size, const char *between, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The value of a hexadecimal digit, or -1. */
int str_hex_digit(char c);
/* Does s consist of min to max of these letters, and of nothing else? */
bool str_only(const char *s, const char *letters, size_t min, size_t max);
/* Has s no control characters? */
bool str_is_printable(const char *s);
/* True if path is dir itself or lies below it; both absolute and clean. */
bool path_below(const char *path, const char *dir);
/*
 * Copies an absolute path without doubled slashes, "." and a trailing slash. False if it is not
 * absolute, has a ".." or does not fit.
 */
bool path_clean(const char *path, char *dst, size_t size);
/* Is this a relative path without empty components, "." and ".."? */
bool path_is_inside(const char *path);
/*
 * Does a link at this depth (0: at the top of its tree) lead out of the tree, or may it? A `..` behind a name
 * goes up from wherever that name leads, if it is a link itself; so `..` counts only at the start.
 */
bool path_link_leads_out(const char *target, unsigned depth);
/*
 * Copies bytes from inside a sandbox so that they can be shown: printable ASCII and UTF-8 stay,
 * control characters, invisible characters (see str.c) and broken sequences become '?'.
 */
void str_sanitise(char *dst, size_t size, const char *src, size_t len);
/* Edit distance of two short names, for hints; 99 if one is too long to compare. */
unsigned str_distance(const char *a, const char *b);

/* A growing list of strings, NULL-terminated for use as argv or envp. */
#pragma once

#include <stddef.h>

struct list {
	char **items; /* items[count] is NULL once anything was added */
	size_t count;
	size_t room;
};

/* Adds a copy of s; aborts the process when memory is gone. */
void list_add(struct list *l, const char *s);
/* Adds s itself, which the list owns from then on. */
void list_take(struct list *l, char *s);
/* Adds copies of strings that end with NULL. */
void list_add_all(struct list *l, const char *const *strings);
void list_done(struct list *l);
#define auto_list __attribute__((cleanup(list_done)))

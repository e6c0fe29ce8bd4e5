#include "base/base.h"

void list_take(struct list *l, char *s)
{
	if (l->count + 2 > l->room) {
		l->room = l->room ? l->room * 2 : 8;
		l->items = must_alloc(realloc(l->items, l->room * sizeof(*l->items)));
	}
	l->items[l->count++] = s;
	l->items[l->count] = NULL;
}

void list_add(struct list *l, const char *s)
{
	list_take(l, str_copy(s));
}

void list_add_all(struct list *l, const char *const *strings)
{
	for (; *strings; strings++)
		list_add(l, *strings);
}

void list_done(struct list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->items[i]);
	free(l->items);
	*l = (struct list){0};
}

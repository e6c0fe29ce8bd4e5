/*
 * Fills the gaps of the heap and of Python's pools, in an interpreter that is about to be forked.
 * Otherwise the objects that a task makes would be scattered over pages that the task then had to
 * copy. Nothing is lost: to copy a page costs as much as a new one.
 */
#include "warm/preload/preload_internal.h"

#include <dlfcn.h>
#include <malloc.h>

#define GAPS_BYTES_MAX (8u << 20)

/*
 * The address from which malloc hands out memory that was never used: there pieces follow each
 * other.
 */
static char *find_top(void)
{
	enum { SIZE = 64 << 10, PIECES = 8 };
	char *pieces[PIECES], *top;

	for (int i = 0; i < PIECES; i++)
		pieces[i] = malloc(SIZE);
	top = pieces[PIECES - 1];
	for (int i = PIECES - 1; i > 0 && pieces[i] == pieces[i - 1] + SIZE + 2 * sizeof(size_t);
	     i--)
		top = pieces[i - 1];
	for (int i = PIECES - 1; i >= 0; i--)
		free(pieces[i]);
	return top;
}

static void close_gaps_of_heap(void)
{
	enum { STEP = 2 * sizeof(size_t), SMALL = 1024 };
	size_t bytes = 0;
	char *top, *piece;

	malloc_trim(0);
	top = find_top();
	for (size_t size = 32 << 10; size >= STEP; size -= size > SMALL ? size / 2 : STEP) {
		while (bytes < GAPS_BYTES_MAX) {
			piece = malloc(size);
			if (!piece || piece >= top) {
				free(piece);
				break;
			}
			bytes += size;
		}
	}
	/* So that a task need not ask the kernel for its first pages. */
	free(malloc(96 << 10));
}

struct python_memory {
	void *(*get)(size_t);
	void (*put)(void *);
};

/*
 * Allocates until a row of objects starts a new pool, which holds no other object, and frees that
 * row.
 */
static void close_gaps_of_size(const struct python_memory *m, size_t size, size_t *bytes)
{
	enum { HEADER = 48, ENOUGH = 2048 };
	char *first = NULL, *last = NULL;

	while (*bytes < GAPS_BYTES_MAX) {
		char *piece = m->get(size);

		*bytes += size;
		if (!piece || piece != last + size)
			first = piece;
		last = piece;
		if (first && (uintptr_t)first % PAGE == HEADER && last - first > ENOUGH)
			break;
	}
	for (char *piece = last; piece && piece >= first; piece -= size)
		m->put(piece);
}

/* CPython keeps small objects in pools, one for each size. */
static void close_gaps_of_pools(void)
{
	enum { STEP = 16, SIZE_MAX_OF_POOLS = 512 };
	struct python_memory m;
	size_t bytes = 0;

	*(void **)&m.get = dlsym(RTLD_DEFAULT, "PyObject_Malloc");
	*(void **)&m.put = dlsym(RTLD_DEFAULT, "PyObject_Free");
	for (size_t size = STEP; m.get && m.put && size <= SIZE_MAX_OF_POOLS; size += STEP)
		close_gaps_of_size(&m, size, &bytes);
}

void gaps_close(void)
{
	close_gaps_of_pools();
	close_gaps_of_heap();
}

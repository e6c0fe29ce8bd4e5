/* What the files of the preloaded object share. */
#pragma once

#include "base/base.h"

/* ---- mappings.c: what is mapped in this process, and which pages of it are present ---- */

#define PAGE 4096u
#define RANGES_MAX 512

struct page_range {
	uintptr_t start, end;
};

/* In the order of addresses. */
struct page_ranges {
	struct page_range items[RANGES_MAX];
	int count;
};

struct mapping {
	struct page_range range;
	size_t present; /* bytes */
	bool is_writable;
	bool is_file;
	bool is_plain; /* it has no other special property */
};

void ranges_add(struct page_ranges *to, const struct page_range *r);

/* Calls for each private mapping. */
void mappings_each(void (*call)(void *arg, const struct mapping *m), void *arg);

#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_FILE (1ull << 61)
#define PAGEMAP_OWN (1ull << 56) /* mapped by this process alone */

/* -1: this kernel does not show them. */
int mappings_open_pages(void);
/* Calls for each page of the ranges that is present or swapped. */
void mappings_each_page(int pages, const struct page_ranges *in,
			void (*call)(void *arg, uintptr_t at, uint64_t entry), void *arg);

/* ---- heap_fill.c ---- */
/* Takes the free places between other things, for good. */
void gaps_close(void);

/* ---- image.c ---- */
/* Is that a mapping which can be replaced, and is worth it? */
bool image_is_worth(const struct mapping *m);
/*
 * Makes these mappings private ones of files with the same bytes. What cannot be replaced stays as
 * it is. Nothing but this thread may run.
 */
void image_take(const struct page_ranges *of);

#include "zygote/pages.h"

#include "base/auto.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define PAGE 4096u
#define RANGES_MAX 512
#define PAGES_MAX 2048 /* that a tenant writes to: 8 MB */
#define SCOUT_SECONDS 5

#define FILE_BYTES_MIN (64u << 10)

#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_FILE (1ull << 61)
#define PAGEMAP_OWN (1ull << 56) /* mapped by nobody else */

struct range {
	uintptr_t start, end;
};

struct ranges {
	struct range items[RANGES_MAX];
	int count;
};

/* Written by the scout, read by the interpreter. */
struct report {
	struct ranges read; /* of files */
	int written_count;
	uintptr_t written[PAGES_MAX];
};

static struct ranges writable, files; /* private ones of the interpreter */
static struct report *report;
static bool is_scout;
/* What a tenant writes to. */
static uintptr_t pages[PAGES_MAX];
static int page_count;

/* ---- gaps ---- */

/*
 * Whatever is free between other things is taken, for good: what a tenant makes would else be scattered
 * over pages that it then had to copy. That is no loss, for copying one costs as much as a new one.
 */
#define GAPS_BYTES_MAX (8u << 20)

/* Where memory comes from that nobody has had before: at the end, one piece after the other. */
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
	/* No tenant has to ask the kernel for its first pages. */
	free(malloc(96 << 10));
}

struct python_memory {
	void *(*get)(size_t);
	void (*put)(void *);
};

/* A row of objects at the beginning of a pool: nobody else has anything in it. */
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

/* Of CPython: small objects are in pools, one for each size. */
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

/* ---- mappings ---- */

static void add_range(struct ranges *to, uintptr_t start, uintptr_t end)
{
	if (to->count < RANGES_MAX)
		to->items[to->count++] = (struct range){start, end};
}

static void look_at_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], mode[5], place[8];
	uintptr_t start, end;

	while (maps && fgets(line, sizeof(line), maps)) {
		place[0] = '\0';
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %7s", &start, &end, mode, place) < 3 ||
		    mode[3] != 'p')
			continue;
		if (mode[1] == 'w')
			add_range(&writable, start, end);
		else if (place[0] == '/' && end - start >= FILE_BYTES_MIN)
			add_range(&files, start, end);
	}
	if (maps)
		fclose(maps);
}

/* Calls for each page of the range that is there. */
static void each_page(int pagemap, const struct range *r,
		      void (*call)(void *arg, uintptr_t at, uint64_t entry), void *arg)
{
	uint64_t entries[512];

	for (uintptr_t at = r->start; at < r->end; at += ARRAY_LEN(entries) * PAGE) {
		ssize_t got = pread(pagemap, entries, sizeof(entries), (off_t)(at / PAGE * 8));

		for (size_t i = 0; got > 0 && i < (size_t)got / 8 && at + i * PAGE < r->end; i++)
			if (entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED))
				call(arg, at + i * PAGE, entries[i]);
	}
}

static void note_if_changed(void *arg, uintptr_t at, uint64_t entry)
{
	(void)at;
	if (!(entry & PAGEMAP_FILE))
		*(bool *)arg = true;
}

/* All that the interpreter needed to load its modules need not be in the tables of its tenants. */
static void forget_files(void)
{
	auto_close int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	for (int i = 0; pagemap >= 0 && i < files.count; i++) {
		const struct range *r = &files.items[i];
		bool is_changed = false;

		each_page(pagemap, r, note_if_changed, &is_changed);
		if (!is_changed)
			madvise((void *)r->start, r->end - r->start, MADV_DONTNEED);
	}
}

/*
 * The kernel copies the tables of a file's mapping only if a page in it is not the file's own any more:
 * so one byte is written, as it was.
 */
static void have_tables_copied(void)
{
	auto_close int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	for (int i = 0; memory >= 0 && i < files.count; i++) {
		const off_t last = (off_t)(files.items[i].end - PAGE);
		char byte;

		if (pread(memory, &byte, 1, last) == 1)
			(void)!pwrite(memory, &byte, 1, last);
	}
}

/* ---- the scout ---- */

pid_t pages_send_scout(pid_t (*how)(void))
{
	pid_t pid;

	look_at_mappings();
	close_gaps_of_pools();
	close_gaps_of_heap();
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (report == MAP_FAILED)
		report = NULL;
	else
		forget_files();
	pid = how();
	if (pid == 0) {
		is_scout = true;
		alarm(SCOUT_SECONDS);
	}
	return pid;
}

static void note_written(void *arg, uintptr_t at, uint64_t entry)
{
	(void)arg;
	if (entry & PAGEMAP_OWN && entry & PAGEMAP_PRESENT && report->written_count < PAGES_MAX)
		report->written[report->written_count++] = at;
}

static void note_read(void *arg, uintptr_t at, uint64_t entry)
{
	(void)arg;
	(void)entry;
	if (report->read.count && report->read.items[report->read.count - 1].end == at)
		report->read.items[report->read.count - 1].end = at + PAGE;
	else
		add_range(&report->read, at, at + PAGE);
}

void pages_report(void)
{
	auto_close int pagemap = -1;

	if (!is_scout || !report)
		return;
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < writable.count; i++)
		each_page(pagemap, &writable.items[i], note_written, NULL);
	for (int i = 0; i < files.count; i++)
		each_page(pagemap, &files.items[i], note_read, NULL);
}

void pages_take_report(void)
{
	if (!report)
		return;
	page_count = report->written_count < PAGES_MAX ? report->written_count : PAGES_MAX;
	memcpy(pages, report->written, (size_t)page_count * sizeof(pages[0]));
	for (int i = 0; i < report->read.count; i++) {
		const struct range *r = &report->read.items[i];

		madvise((void *)r->start, r->end - r->start, MADV_POPULATE_READ);
	}
	have_tables_copied();
	munmap(report, sizeof(*report));
	report = NULL;
}

void pages_touch(void)
{
	for (int i = 0; i < page_count; i++) {
		volatile char *at = (volatile char *)pages[i];

		*at = *at;
	}
}

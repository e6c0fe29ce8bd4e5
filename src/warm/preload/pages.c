/*
 * Finds out which pages every task needs, and has them mapped before the fork; pages.h has the
 * theory.
 */
#include "warm/preload/pages.h"

#include "warm/preload/preload_internal.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define READ_MAX 16384
#define WRITTEN_MAX 2048 /* 8 MB */
#define PIECES_MAX 32768 /* half of how many mappings a process can have */
#define SAMPLER_SECONDS 5
#define FILE_BYTES_MIN (64u << 10)

/* Written by the samplers, read by the interpreter. */
struct sample_report {
	bool is_second;
	int read_count, written_count;
	uintptr_t read[READ_MAX]; /* of files */
	uintptr_t written[WRITTEN_MAX];
};

/*
 * Private mappings of the interpreter: of files; those of them that image.c made; other writable
 * ones.
 */
static struct page_ranges files, image, others;
static struct sample_report *report;
static bool is_sampler;
/* The pages that every task writes to. */
static uintptr_t written[WRITTEN_MAX];
static int written_count;

/* ---- before the samplers ---- */

static void sort_mapping(void *arg, const struct mapping *m)
{
	size_t size = m->range.end - m->range.start;

	if (image_is_worth(m)) {
		ranges_add(&image, &m->range);
		ranges_add(&files, &m->range);
	} else if (m->is_writable) {
		ranges_add(&others, &m->range);
	} else if (m->is_file && size >= FILE_BYTES_MIN) {
		ranges_add(&files, &m->range);
	}
}

/* Drops unmodified file pages from our page tables, except those of a sorted list. */
struct pruning {
	const uintptr_t *keep, *end;
	struct page_range run;
};

static void prune_run(struct pruning *p)
{
	madvise((void *)p->run.start, p->run.end - p->run.start, MADV_DONTNEED);
}

static void prune_page(void *arg, uintptr_t at, uint64_t entry)
{
	struct pruning *p = arg;

	while (p->keep < p->end && *p->keep < at)
		p->keep++;
	if (!(entry & PAGEMAP_FILE) || (p->keep < p->end && *p->keep == at))
		return;
	if (p->run.end != at) {
		prune_run(p);
		p->run.start = at;
	}
	p->run.end = at + PAGE;
}

static void prune_tables(const uintptr_t *keep, int count)
{
	auto_close int pages = mappings_open_pages();
	struct pruning p = {.keep = keep, .end = keep + count};

	mappings_each_page(pages, &files, prune_page, &p);
	prune_run(&p);
}

/*
 * Cuts the mappings into single pages: the kernel does not merge neighbours that differ in a flag.
 */
static void cut_files(void)
{
	int pieces = 0;

	for (const struct page_range *r = files.items; r < files.items + files.count; r++)
		for (uintptr_t at = r->start; at < r->end && pieces < PIECES_MAX; at += 2 * PAGE)
			pieces += 2 + madvise((void *)at, PAGE, MADV_DONTDUMP);
}

static void begin(void)
{
	gaps_close();
	mappings_each(sort_mapping, NULL);
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (report == MAP_FAILED)
		report = NULL;
}

pid_t pages_send_sampler(pid_t (*how)(void))
{
	static bool has_begun;
	pid_t pid;

	if (!has_begun)
		begin();
	has_begun = true;
	if (report) {
		image_take(&image);
		prune_tables(NULL, 0);
	}
	pid = how();
	if (pid == 0) {
		is_sampler = true;
		alarm(SAMPLER_SECONDS);
		cut_files();
	}
	return pid;
}

/* ---- the samplers ---- */

static bool was_written(uintptr_t at)
{
	for (int i = 0; i < report->written_count; i++)
		if (report->written[i] == at)
			return true;
	return false;
}

static void note_written(void *arg, uintptr_t at, uint64_t entry)
{
	if (!(entry & PAGEMAP_FILE) && entry & PAGEMAP_PRESENT && entry & PAGEMAP_OWN &&
	    report->written_count < WRITTEN_MAX)
		report->written[report->written_count++] = at;
}

/* A page that only the second sampler wrote to counts as read. */
static void note_read(void *arg, uintptr_t at, uint64_t entry)
{
	if (!was_written(at) && report->read_count < READ_MAX)
		report->read[report->read_count++] = at;
}

void pages_report(void)
{
	auto_close int pages = -1;

	if (!is_sampler || !report)
		return;
	pages = mappings_open_pages();
	if (!report->is_second) {
		mappings_each_page(pages, &files, note_written, NULL);
		mappings_each_page(pages, &others, note_written, NULL);
	}
	mappings_each_page(pages, &files, note_read, NULL);
	report->is_second = true;
}

/* ---- after them ---- */

static int compare(const void *a, const void *b)
{
	const uintptr_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * On fork the kernel copies the page tables of a file mapping only if the mapping has a modified
 * page: so one byte is written back unchanged. A mapping of which no page was read needs no tables.
 */
static void have_tables_copied(const uintptr_t *read, int count)
{
	auto_close int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	int next = 0;

	for (const struct page_range *r = files.items; memory >= 0 && r < files.items + files.count;
	     r++) {
		const off_t last = (off_t)(r->end - PAGE);
		char byte;

		while (next < count && read[next] < r->start)
			next++;
		if (next < count && read[next] < r->end && pread(memory, &byte, 1, last) == 1)
			(void)!pwrite(memory, &byte, 1, last);
	}
}

void pages_take_report(void)
{
	if (!report)
		return;
	written_count = report->written_count;
	memcpy(written, report->written, (size_t)written_count * sizeof(written[0]));
	/* Python has run meanwhile and modified pages. */
	image_take(&image);
	qsort(report->read, (size_t)report->read_count, sizeof(report->read[0]), compare);
	for (int i = 0; i < report->read_count; i++)
		madvise((void *)report->read[i], PAGE, MADV_POPULATE_READ);
	have_tables_copied(report->read, report->read_count);
	/* All this has mapped neighbouring pages, too. */
	prune_tables(report->read, report->read_count);
	munmap(report, sizeof(*report));
	report = NULL;
}

void pages_touch(void)
{
	/* A single access that writes: a read first would cost a fault of its own. */
	for (int i = 0; i < written_count; i++)
		__atomic_fetch_or((volatile char *)written[i], 0, __ATOMIC_RELAXED);
}

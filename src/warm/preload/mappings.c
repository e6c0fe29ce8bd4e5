/* Reads the mappings and pages of this process from /proc. */
#include "warm/preload/preload_internal.h"

void ranges_add(struct page_ranges *to, const struct page_range *r)
{
	if (to->count < RANGES_MAX)
		to->items[to->count++] = *r;
}

/* Are there only flags that a plain mapping has: access rights, accounting, soft-dirty? */
static bool are_plain(const char *flags)
{
	static const char *const plain[] = {"rd", "wr", "ex", "mr", "mw", "me", "ac", "sd"};

	for (flags += strspn(flags, " "); *flags && *flags != '\n'; flags += strspn(flags, " ")) {
		bool known = false;

		for (size_t i = 0; i < ARRAY_LEN(plain); i++)
			known = known || strncmp(flags, plain[i], 2) == 0;
		if (!known)
			return false;
		flags += strcspn(flags, " \n");
	}
	return true;
}

void mappings_each(void (*call)(void *arg, const struct mapping *m), void *arg)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512], mode[5], place[8];
	bool is_private = false;
	struct mapping m = {0};
	struct page_range r;
	size_t kb;

	while (file && fgets(line, sizeof(line), file)) {
		place[0] = '\0';
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %7s", &r.start, &r.end, mode, place) >=
		    3) {
			m = (struct mapping){.range = r,
					     .is_writable = mode[1] == 'w',
					     .is_file = place[0] == '/'};
			is_private = mode[3] == 'p';
		} else if (sscanf(line, "Rss: %zu kB", &kb) == 1) {
			m.present = kb << 10;
		} else if (strncmp(line, "VmFlags:", 8) == 0 && is_private) {
			/* The last line of a mapping. */
			m.is_plain = are_plain(line + 8);
			call(arg, &m);
		}
	}
	if (file)
		fclose(file);
}

int mappings_open_pages(void)
{
	return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

void mappings_each_page(int pages, const struct page_ranges *in,
			void (*call)(void *arg, uintptr_t at, uint64_t entry), void *arg)
{
	uint64_t entries[512];

	for (const struct page_range *r = in->items; r < in->items + in->count; r++) {
		for (uintptr_t at = r->start; at < r->end; at += ARRAY_LEN(entries) * PAGE) {
			ssize_t got =
				pread(pages, entries, sizeof(entries), (off_t)(at / PAGE * 8));

			for (size_t i = 0; got > 0 && i < (size_t)got / 8 && at + i * PAGE < r->end;
			     i++)
				if (entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED))
					call(arg, at + i * PAGE, entries[i]);
		}
	}
}

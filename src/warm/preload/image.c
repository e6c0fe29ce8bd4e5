/*
 * The memory of a warm interpreter as a file.
 *
 * A fork copies a page table entry for each private page of the process, and the end of the child
 * frees each of them again, whether or not the child ever used the page. Pages of a file need not
 * be in the tables: they are found when they are used. So the interpreter's memory is written to
 * files without a name, which are sealed and mapped in its place. A write makes a private copy, as
 * before.
 */
#include "warm/preload/preload_internal.h"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define BYTES_MIN (64u << 10)
#define BYTES_MAX (64u << 20) /* for a moment the bytes exist twice */

static char of_this_object;

/* Does it change while it is copied? The stack, our own variables and those of the thread do. */
static bool is_in_use(const struct page_range *r)
{
	const uintptr_t used[] = {(uintptr_t)__builtin_frame_address(0), (uintptr_t)&of_this_object,
				  (uintptr_t)&errno};

	for (size_t i = 0; i < ARRAY_LEN(used); i++)
		if (r->start <= used[i] && used[i] < r->end)
			return true;
	return false;
}

bool image_is_worth(const struct mapping *m)
{
	size_t size = m->range.end - m->range.start;

	/* A file holds every page of the mapping: one that is hardly used is better left alone. */
	return m->is_writable && m->is_plain && size >= BYTES_MIN && size <= BYTES_MAX &&
	       m->present >= size / 2 && !is_in_use(&m->range);
}

static bool is_alone(void)
{
	struct stat tasks;

	/* A directory has two links, and one for each subdirectory. */
	return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

/* The file is sealed, and is not open later. */
static int make_file(const struct page_range *r)
{
	enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
	auto_close int fd =
		(int)syscall(SYS_memfd_create, "python", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t size = r->end - r->start;

	if (fd < 0 || write(fd, (void *)r->start, size) != (ssize_t)size ||
	    fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -1;
	return take_fd(&fd);
}

void image_take(const struct page_ranges *of)
{
	if (!is_alone())
		return;
	for (const struct page_range *r = of->items; r < of->items + of->count; r++) {
		auto_close int fd = make_file(r);

		if (fd >= 0 && mmap((void *)r->start, r->end - r->start, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
			_exit(1); /* the old mapping may be gone */
	}
}

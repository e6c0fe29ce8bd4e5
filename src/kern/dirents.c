#include "kern/dirents.h"

#include <sys/syscall.h>

/* As the kernel writes it; the name follows. */
struct head {
	uint64_t ino, off;
	uint16_t size;
	uint8_t type;
} __attribute__((packed));

void dirents_start(struct dirents *d, int fd)
{
	d->fd = fd;
	d->at = d->len = 0;
}

bool dirents_next(struct dirents *d, struct dirents_entry *ret)
{
	struct head head;

	if (d->at >= d->len) {
		d->at = 0;
		d->len = syscall(SYS_getdents64, d->fd, d->buf, sizeof(d->buf));
		if (d->len <= 0)
			return false;
	}
	memcpy(&head, d->buf + d->at, sizeof(head));
	*ret = (struct dirents_entry){d->buf + d->at + sizeof(head), head.type};
	d->at += head.size;
	return true;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int dirents_names(int dir, size_t max, struct list *ret, bool *ret_cut)
{
	/* From its beginning; what was opened by O_PATH is opened once more, and "." is no link. */
	bool can_read = lseek(dir, 0, SEEK_SET) == 0;
	auto_close int again = can_read ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct list names = {0};
	struct dirents_entry entry;
	struct dirents list;
	bool cut = false;

	if (!can_read && again < 0)
		return -1;
	dirents_start(&list, can_read ? dir : again);
	while (!cut && dirents_next(&list, &entry)) {
		if (strcmp(entry.name, ".") == 0 || strcmp(entry.name, "..") == 0)
			continue;
		cut = names.count == max;
		if (!cut)
			list_add(&names, entry.name);
	}
	if (names.count > 0)
		qsort(names.items, names.count, sizeof(*names.items), compare_names);
	*ret = names;
	if (ret_cut)
		*ret_cut = cut;
	return 0;
}

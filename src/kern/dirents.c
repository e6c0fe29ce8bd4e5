#include "kern/dirents.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

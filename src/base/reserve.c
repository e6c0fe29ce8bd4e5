/* Disk space that is held back by a file of zeros. */
#include "base/reserve.h"

#define RETRY_NS 5000000000LL

void reserve_open(struct reserve *r, int dir, const char *name, off_t wanted)
{
	struct stat st = {.st_size = 0};

	*r = (struct reserve){.wanted = wanted};
	r->fd = openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (r->fd >= 0 && (fstat(r->fd, &st) < 0 || !S_ISREG(st.st_mode)))
		close_fd(&r->fd);
	r->size = st.st_size;
	reserve_refill(r);
}

void reserve_close(struct reserve *r)
{
	close_fd(&r->fd);
}

bool reserve_spend(struct reserve *r, off_t bytes)
{
	off_t rest = r->size > bytes ? r->size - bytes : 0;

	if (r->fd < 0 || r->size == 0 || ftruncate(r->fd, rest) < 0)
		return false;
	r->size = rest;
	r->tried_ns = now_ns();
	return true;
}

void reserve_refill(struct reserve *r)
{
	/* Written, not only allocated: some file systems cannot allocate without writing. */
	static const char zeros[64 << 10];

	if (r->fd < 0 || r->size >= r->wanted || (r->tried_ns && now_ns() - r->tried_ns < RETRY_NS))
		return;
	r->tried_ns = now_ns();
	while (r->size < r->wanted) {
		off_t left = r->wanted - r->size;
		size_t step = left < (off_t)sizeof(zeros) ? (size_t)left : sizeof(zeros);
		ssize_t n = pwrite(r->fd, zeros, step, r->size);

		if (n <= 0)
			return;
		r->size += n;
	}
}

#include "sandbox/feed.h"

#include "base/auto.h"

#include <errno.h>
#include <unistd.h>

void feed_done(struct feed *f)
{
	close_fd(&f->to);
	close_fd(&f->from);
}

void feed_move(struct feed *f)
{
	static char buf[64 << 10];
	ssize_t n;

	if (f->at == f->len) {
		n = read(f->from, buf, sizeof(buf));
		if (n <= 0) {
			if (n == 0 || errno != EINTR)
				feed_done(f);
			return;
		}
		f->at = 0;
		f->len = (size_t)n;
	}
	n = write(f->to, buf + f->at, f->len - f->at);
	if (n > 0)
		f->at += (size_t)n;
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		feed_done(f);
}

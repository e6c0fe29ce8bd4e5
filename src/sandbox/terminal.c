#include "sandbox/terminal.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void terminal_resize(const struct terminal *t)
{
	struct winsize size;

	if (ioctl(0, TIOCGWINSZ, &size) == 0 || ioctl(1, TIOCGWINSZ, &size) == 0)
		ioctl(t->master, TIOCSWINSZ, &size);
}

void terminal_start(struct terminal *t, int master)
{
	struct termios raw;

	*t = (struct terminal){.master = master};
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	terminal_resize(t);
	if (tcgetattr(0, &t->saved) < 0)
		return;
	raw = t->saved;
	cfmakeraw(&raw);
	t->is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

void terminal_read_input(struct terminal *t)
{
	ssize_t n = read(0, t->pending + t->pending_len, sizeof(t->pending) - t->pending_len);

	if (n > 0) {
		t->pending_len += (size_t)n;
		terminal_write_pending(t);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		/* The end of a pipe or file: what a person says with ctrl-D. */
		t->input_ended = true;
		if (t->pending_len < sizeof(t->pending))
			t->pending[t->pending_len++] = t->is_raw ? 0 : 4;
		terminal_write_pending(t);
	}
}

void terminal_write_pending(struct terminal *t)
{
	ssize_t n = t->pending_len ? write(t->master, t->pending, t->pending_len) : 0;

	if (n <= 0)
		return;
	t->pending_len -= (size_t)n;
	memmove(t->pending, t->pending + n, t->pending_len);
}

bool terminal_copy_output(struct terminal *t)
{
	char buf[16 << 10];
	ssize_t n = read(t->master, buf, sizeof(buf));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	for (ssize_t at = 0; at < n;) {
		ssize_t put = write(1, buf + at, (size_t)(n - at));

		if (put < 0 && errno != EINTR)
			return false;
		at += put > 0 ? put : 0;
	}
	return n > 0;
}

void terminal_stop(struct terminal *t)
{
	if (t->is_raw)
		tcsetattr(0, TCSADRAIN, &t->saved);
	t->is_raw = false;
	close_fd(&t->master);
}

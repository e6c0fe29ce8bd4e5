#include "sandbox/terminal.h"

#include "base/auto.h"
#include "base/str.h"

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

	*t = (struct terminal){.master = master,
			       .in = must_alloc(malloc(TERMINAL_ROOM)),
			       .out = must_alloc(malloc(TERMINAL_ROOM))};
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
	ssize_t n = read(0, t->in + t->in_len, TERMINAL_ROOM - t->in_len);

	if (n > 0) {
		t->in_len += (size_t)n;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		/* The end of a pipe or file: what a person says with ctrl-D. */
		t->in_ended = true;
		if (t->in_len < TERMINAL_ROOM)
			t->in[t->in_len++] = 4;
	}
	terminal_write_input(t);
}

static void drop(char *buf, size_t *len, size_t n)
{
	*len -= n;
	memmove(buf, buf + n, *len);
}

void terminal_write_input(struct terminal *t)
{
	ssize_t n = t->in_len ? write(t->master, t->in, t->in_len) : 0;

	if (n > 0)
		drop(t->in, &t->in_len, (size_t)n);
}

bool terminal_read_output(struct terminal *t)
{
	ssize_t n = read(t->master, t->out + t->out_len, TERMINAL_ROOM - t->out_len);

	if (n > 0)
		t->out_len += (size_t)n;
	return n > 0 || (n < 0 && errno == EINTR);
}

bool terminal_write_output(struct terminal *t)
{
	ssize_t n = write(1, t->out, t->out_len);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	drop(t->out, &t->out_len, (size_t)n);
	return true;
}

void terminal_stop(struct terminal *t)
{
	if (t->is_raw)
		tcsetattr(0, TCSADRAIN, &t->saved);
	t->is_raw = false;
	close_fd(&t->master);
	free(take_ptr(t->in));
	free(take_ptr(t->out));
	t->in_len = t->out_len = 0;
}

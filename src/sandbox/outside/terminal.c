/* Relays between the caller's terminal and the command's, without ever blocking on either. */
#include "sandbox/outside/keeper.h"

#include <sys/ioctl.h>

#define END_OF_FILE 4 /* ctrl-D */
#define END_LEN 2

void terminal_resize(const struct terminal_relay *t)
{
	struct winsize size;

	if (ioctl(0, TIOCGWINSZ, &size) == 0 || ioctl(1, TIOCGWINSZ, &size) == 0)
		ioctl(t->master, TIOCSWINSZ, &size);
}

/*
 * A terminal that is ready for writing may take less than we write, and the write then blocks as
 * long as the user has stopped it (ctrl-S). O_NONBLOCK cannot be set on a stream that is shared
 * with the caller's shell, so the terminal is opened anew.
 */
int terminal_reopen(int fd)
{
	return isatty(fd) ? io_reopen(fd, O_WRONLY | O_NONBLOCK | O_NOCTTY) : -1;
}

void terminal_start(struct terminal_relay *t, int master)
{
	int screen = terminal_reopen(1);
	struct termios raw;

	/*
	 * A program may close its streams before it exits, as cat does. If the pty ended then and
	 * we closed our side, SIGHUP would kill the program.
	 */
	*t = (struct terminal_relay){
		.master = master,
		.slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC),
		.screen = screen < 0 ? 1 : screen,
		.in = must_alloc(malloc(TERMINAL_ROOM + END_LEN)),
		.out = must_alloc(malloc(TERMINAL_ROOM))};
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	terminal_resize(t);
	if (tcgetattr(0, &t->saved) < 0)
		return;
	raw = t->saved;
	cfmakeraw(&raw);
	t->is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

/*
 * The end of a pipe or file is sent as ctrl-D. Within a line the first ctrl-D only submits the line
 * so far.
 */
static void end_input(struct terminal_relay *t)
{
	t->in[t->in_len++] = END_OF_FILE;
	if (t->in_line)
		t->in[t->in_len++] = END_OF_FILE;
}

void terminal_read_input(struct terminal_relay *t)
{
	ssize_t n = read(0, t->in + t->in_len, TERMINAL_ROOM - t->in_len);

	if (n > 0) {
		t->in_len += (size_t)n;
		t->in_line = t->in[t->in_len - 1] != '\n';
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		t->in_ended = true;
		end_input(t);
	}
	terminal_write_input(t);
}

static void drop(char *buf, size_t *len, size_t n)
{
	*len -= n;
	memmove(buf, buf + n, *len);
}

void terminal_write_input(struct terminal_relay *t)
{
	ssize_t n = t->in_len ? write(t->master, t->in, t->in_len) : 0;

	if (n > 0)
		drop(t->in, &t->in_len, (size_t)n);
}

bool terminal_read_output(struct terminal_relay *t)
{
	ssize_t n = read(t->master, t->out + t->out_len, TERMINAL_ROOM - t->out_len);

	if (n > 0)
		t->out_len += (size_t)n;
	return n > 0 || (n < 0 && errno == EINTR);
}

bool terminal_write_output(struct terminal_relay *t)
{
	ssize_t n = write(t->screen, t->out, t->out_len);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	drop(t->out, &t->out_len, (size_t)n);
	return true;
}

void terminal_stop(struct terminal_relay *t)
{
	if (t->is_raw)
		tcsetattr(0, TCSADRAIN, &t->saved);
	t->is_raw = false;
	if (t->screen > 2)
		close_fd(&t->screen);
	close_fd(&t->slave);
	close_fd(&t->master);
	free(take_ptr(t->in));
	free(take_ptr(t->out));
	t->in_len = t->out_len = 0;
}

/*
 * Goes into a cloche-guest of the tests: on a warm host's pid 1, and whatever comes of it, a filter of `lie` is
 * put before anything else happens. Others have not the capability for that, and stay as they are.
 * The filter is what a test writes into the finished program, behind the mark.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARK "a filter of lie is put here" /* with its end 28 bytes */
#define MAX_BYTES 1024

static volatile struct {
	char mark[28];
	unsigned bytes;
	unsigned char filter[MAX_BYTES];
} place = {MARK, 0, {1}}; /* not of zeros, or there would be nothing to write into */

__attribute__((constructor)) static void believe_lies(void)
{
	static struct sock_filter filter[MAX_BYTES / sizeof(struct sock_filter)];
	struct sock_fprog prog = {0, filter};
	int before = errno;

	if (getpid() != 1 || place.bytes == 0 || place.bytes > MAX_BYTES)
		return;
	for (unsigned i = 0; i < place.bytes; i++)
		((unsigned char *)filter)[i] = place.filter[i];
	prog.len = (unsigned short)(place.bytes / sizeof(struct sock_filter));
	syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
	errno = before;
}

#include "workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

int workspace_make(void **state)
{
	struct workspace *w = calloc(1, sizeof(*w));

	strcpy(w->top, "/tmp/cloche-changes-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	w->cwd = getcwd(NULL, 0);
	assert_int_equal(chdir(w->top), 0);
	assert_int_equal(mkdir("upper", 0755) | mkdir("lower", 0755), 0);
	w->upper = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w->lower = open("lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->upper >= 0 && w->lower >= 0);
	umask(022);
	*state = w;
	return 0;
}

int workspace_drop(void **state)
{
	struct workspace *w = *state;
	char command[128];

	close(w->upper);
	close(w->lower);
	assert_int_equal(chdir(w->cwd), 0);
	/* Some trees are too deep for a path: rm goes by directory fd. */
	snprintf(command, sizeof(command), "rm -rf %s", w->top);
	assert_int_equal(system(command), 0);
	free(w->cwd);
	free(w);
	return 0;
}

void put(const char *path, const char *text)
{
	char *copy = strdup(path);
	int fd;

	for (char *p = strchr(copy, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(copy, 0755);
		*p = '/';
	}
	free(copy);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

bool holds(const char *path, const char *text)
{
	char buf[4096];
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf));
	close(fd);
	return n == (ssize_t)strlen(text) && memcmp(buf, text, (size_t)n) == 0;
}

bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

void whiteout(const char *path)
{
	assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(0, 0)), 0);
}

bool opaque(const char *path)
{
	/* As the overlay of whoever runs this would write it. */
	const char *name = geteuid() == 0 ? "trusted.overlay.opaque" : "user.overlay.opaque";

	return setxattr(path, name, "y", 1, 0) == 0;
}

/*
 * Something for limits to stop, small and static:
 *   load hog MB [shared]   touches that much memory, says how much it got
 *   load fork N            forks until that many children live, says how many do
 *   load burn MS           spins for so long, says how much of a cpu it had, in percent
 * and a look at the machine, quicker than a shell's:
 *   load ps                lists the processes that have arguments, but for itself
 *   load ps TEXT           how many have TEXT among them
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int hog(int megabytes, int sharing)
{
	const size_t step = 1 << 20;
	int got = 0;

	while (got < megabytes) {
		char *p = mmap(NULL, step, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			break;
		memset(p, 1, step);
		got++;
	}
	printf("%d\n", got);
	return 0;
}

static int fork_many(int count)
{
	int children = 0;

	while (children < count) {
		pid_t pid = fork();

		if (pid == 0) {
			pause();
			_exit(0);
		}
		if (pid < 0)
			break;
		children++;
	}
	printf("%d\n", children);
	return 0;
}

static int burn(int ms)
{
	double wall = now_ms(CLOCK_MONOTONIC), cpu = now_ms(CLOCK_PROCESS_CPUTIME_ID);

	while (now_ms(CLOCK_MONOTONIC) - wall < ms)
		;
	wall = now_ms(CLOCK_MONOTONIC) - wall;
	cpu = now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("%d\n", (int)(cpu / wall * 100));
	return 0;
}

static int list_processes(const char *text)
{
	DIR *proc = opendir("/proc");
	int found = 0;

	for (struct dirent *d; proc && (d = readdir(proc));) {
		char path[300], line[4096] = "";
		int fd;

		if (atoi(d->d_name) <= 0 || atoi(d->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", d->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		ssize_t n = read(fd, line, sizeof(line) - 1);

		close(fd);
		for (ssize_t i = 0; i + 1 < n; i++)
			line[i] = line[i] ? line[i] : ' ';
		if (n > 0 && !text)
			printf("%s %s\n", d->d_name, line);
		found += n > 0 && text && strstr(line, text);
	}
	if (proc)
		closedir(proc);
	if (text)
		printf("%d\n", found);
	return 0;
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0;

	if (argc > 2 && !strcmp(argv[1], "hog"))
		return hog(n, argc > 3 ? MAP_SHARED : MAP_PRIVATE);
	if (argc > 2 && !strcmp(argv[1], "fork"))
		return fork_many(n);
	if (argc > 2 && !strcmp(argv[1], "burn"))
		return burn(n);
	if (argc > 1 && !strcmp(argv[1], "ps"))
		return list_processes(argv[2]);
	fprintf(stderr, "usage: load hog MB [shared] | fork N | burn MS | ps [TEXT]\n");
	return 2;
}

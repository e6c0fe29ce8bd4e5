/* Becoming more by exec: set-uid files, file capabilities, and programs under other names. */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool more_than_us(const char *out)
{
	const char *euid = strstr(out, "euid="), *caps = strstr(out, "capeff=");

	return (euid && atoi(euid + 5) != (int)getuid()) ||
	       (caps && strtoull(caps + 7, NULL, 16) != 0 && geteuid() != 0);
}

/* The runner put copies of the probe there: one set-uid root, one with a file capability. */
static bool run_marked(struct probe *p, const char *name)
{
	const char *ro = given("ro");
	char path[4096], out[512];
	char *const argv[] = {path, (char *)"--whoami", NULL};
	int status;

	snprintf(path, sizeof(path), "%s/%s", ro ? ro : "", name);
	if (!ro || access(path, F_OK) < 0)
		return false;
	status = run_program(argv, out, sizeof(out));
	if (!strstr(out, "euid="))
		refused(p, "%s did not run (status %x)", name, (unsigned)status);
	else if (more_than_us(out))
		got_through(p, "%s ran with %s", name, out);
	else
		refused(p, "%s ran with no more than us", name);
	return true;
}

/* Starts a set-uid program of the system and looks who it became. */
static bool become(struct probe *p, const char *path)
{
	char status[2048] = "";
	const char *uid, *base = strrchr(path, '/') + 1;
	int in[2];
	pid_t pid;

	if (pipe(in) < 0 || (pid = fork()) < 0)
		return false;
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(in[0], 0);
		dup2(null, 1);
		dup2(null, 2);
		close(in[1]);
		execl(path, base, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 100; i++) {
		if (read_text(fmt_path("/proc/%d/status", (int)pid), status, sizeof(status)) < 0 ||
		    strstr(status, fmt_path("Name:\t%s\n", base)) || strstr(status, "State:\tZ"))
			break;
		msleep(5);
	}
	uid = strstr(status, "Uid:\t");
	if (uid) {
		unsigned real = 0, effective = 0;

		sscanf(uid, "Uid:\t%u\t%u", &real, &effective);
		if (effective != real)
			got_through(p, "%s runs as uid %u", path, effective);
		else
			refused(p, "%s runs as ourselves", path);
	}
	kill(pid, SIGKILL);
	close(in[1]);
	close(in[0]);
	waitpid(pid, NULL, 0);
	return uid != NULL;
}

static void exec_setuid(struct probe *p)
{
	static const char *const programs[] = {"/usr/bin/su", "/usr/bin/newgrp", "/usr/bin/passwd",
					       "/usr/bin/sudo"};
	bool any;

	/* As root there is nothing to gain: the control gives root up first. */
	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		any = false;
	any = run_marked(p, "suid-probe");
	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		struct stat st;

		if (stat(programs[i], &st) < 0 || !(st.st_mode & S_ISUID))
			continue;
		any |= become(p, programs[i]);
		break;
	}
	if (!any)
		not_here(p, "no set-uid program can be watched here");
}

static void exec_file_caps(struct probe *p)
{
	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		cannot_tell(p, "cannot give up root: %s", errno_name(errno));
	else if (!run_marked(p, "caps-probe"))
		not_here(p, "the runner made no file with capabilities");
}

static void make_file_caps(struct probe *p)
{
	/* version 2, effective, CAP_NET_RAW */
	static const unsigned data[5] = {0x02000001, 1u << 13, 0, 0, 0};
	static const char *const names[] = {"security.capability", "trusted.overlay.opaque",
					    "trusted.overlay.redirect", "security.ima"};
	const char *dir = scratch_dir(p);
	char f[4096];

	if (!dir)
		return;
	snprintf(f, sizeof(f), "%s/f", dir);
	if (write_text(f, "x") < 0)
		cannot_tell(p, "create: %s", errno_name(errno));
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		judge(p, names[i], setxattr(f, names[i], data, sizeof(data), 0),
		      ERRS(EPERM, EACCES, EOPNOTSUPP));
	remove_tree(dir);
}

/* Exec control by names would be void: whatever way the program starts, the same walls stand. */
static void exec_memfd(struct probe *p)
{
	const char *outside = need(p, "outside"), *token = need(p, "token");
	auto_close int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	auto_close int mem = memfd_create("cloche-probe", MFD_CLOEXEC);
	char out[512], path[64], outside_arg[4096], token_arg[512], buf[65536];
	char *const argv[] = {path, outside_arg, token_arg, (char *)"read-absolute", NULL};
	ssize_t n;

	if (!outside || !token)
		return;
	if (self < 0 || mem < 0) {
		refused(p, "memfd_create: %s", errno_name(errno));
		return;
	}
	while ((n = read(self, buf, sizeof(buf))) > 0)
		if (write(mem, buf, (size_t)n) != n)
			cannot_tell(p, "copying ourselves: %s", errno_name(errno));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mem);
	snprintf(outside_arg, sizeof(outside_arg), "outside=%s", outside);
	snprintf(token_arg, sizeof(token_arg), "token=%s", token);
	run_program(argv, out, sizeof(out));
	if (strstr(out, "\tgot-through"))
		got_through(p, "a program in memory read the host's file");
	else if (strstr(out, "\trefused"))
		refused(p, "a program in memory runs, behind the same walls");
	else
		refused(p, "a program in memory does not run");
}

static void exec_loader(struct probe *p)
{
	static const char *const loaders[] = {"/lib64/ld-linux-x86-64.so.2",
					      "/lib/ld-linux-aarch64.so.1"};
	const char *outside = need(p, "outside"), *token = need(p, "token");
	char out[4096], file[4096];
	bool any = false;

	if (!outside || !token)
		return;
	snprintf(file, sizeof(file), "%s/secret", outside);
	for (size_t i = 0; i < ARRAY_LEN(loaders); i++) {
		char *const argv[] = {(char *)loaders[i], (char *)"/bin/cat", file, NULL};

		if (access(loaders[i], X_OK) < 0)
			continue;
		any = true;
		run_program(argv, out, sizeof(out));
		if (strstr(out, token))
			got_through(p, "cat started by the loader read the host's file");
		else
			refused(p, "cat started by the loader: %.60s", out);
	}
	if (!any)
		not_here(p, "no loader");
}

static void exec_interpreter(struct probe *p)
{
	const char *outside = need(p, "outside"), *token = need(p, "token");
	char out[4096], script[8192];
	char *const argv[] = {(char *)"/bin/sh", (char *)"-c", script, NULL};

	if (!outside || !token)
		return;
	snprintf(script, sizeof(script), "cat %s/secret; cat < /proc/self/root%s/secret", outside,
		 outside);
	if (access(argv[0], X_OK) < 0) {
		not_here(p, "no shell");
		return;
	}
	run_program(argv, out, sizeof(out));
	if (strstr(out, token))
		got_through(p, "a shell read the host's file");
	else
		refused(p, "a shell: %.80s", out);
}

static const struct probe_case cases[] = {
	{"exec-setuid", 28, "become root by a set-uid program", SAFE, L(NO_NEW_PRIVS) | L(USER_NS),
	 0, exec_setuid, 0},
	{"exec-file-caps", 28, "gain capabilities from a file", SAFE, L(NO_NEW_PRIVS) | L(USER_NS),
	 0, exec_file_caps, 0},
	{"make-file-caps", 28, "give a file capabilities or overlay marks", SAFE, L(CAPS), 0,
	 make_file_caps, 0},
	{"exec-memfd", 30, "run a program from memory to get around rules", SAFE,
	 L(ROOT) | L(LANDLOCK), 0, exec_memfd, 0},
	{"exec-loader", 30, "run a program by the loader to get around rules", SAFE,
	 L(ROOT) | L(LANDLOCK), 0, exec_loader, 0},
	{"exec-interpreter", 30, "let an interpreter do it", SAFE, L(ROOT) | L(LANDLOCK), 0,
	 exec_interpreter, 0},
};
const struct case_group group_exec = {cases, ARRAY_LEN(cases)};

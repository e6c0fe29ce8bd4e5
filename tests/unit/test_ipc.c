/* Broker and front: messages that arrive, messages that are refused, and the broker's judgement. */
#include "base/auto.h"
#include "daemon/broker/check.h"
#include "policy/config.h"
#include "wire/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define ID "abcdefghijklmnop0123"

static int pair[2];
static struct ipc out, in;
static struct config config;

static int setup(void **state)
{
	(void)state;
	memset(&out, 0, sizeof(out));
	memset(&in, 0xaa, sizeof(in));
	config_init(&config);
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
	(void)state;
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static void boot_message(struct ipc *m)
{
	m->type = IPC_BOOT;
	m->serial = 7;
	strcpy(m->boot.id, ID);
	strcpy(m->boot.image, "host");
	strcpy(m->boot.hostname, "box");
	m->boot.limits = (struct limits){.memory_bytes = 256 << 20,
					 .cpus_milli = 1000,
					 .pids = 10,
					 .disk_bytes = 1 << 20,
					 .open_files = 1024,
					 .output_bytes = 1 << 20};
}

static void test_roundtrip(void **state)
{
	int fd = -1;

	(void)state;
	boot_message(&out);
	out.boot.volume_count = 2;
	strcpy(out.boot.volumes[1].name, "two");
	assert_int_equal(ipc_send(pair[0], &out, -1), 0);
	assert_int_equal(ipc_receive(pair[1], &in, &fd), 1);
	assert_int_equal(fd, -1);
	assert_memory_equal(&in, &out, sizeof(in));
}

static void test_fd(void **state)
{
	int fd = -1;

	(void)state;
	out.type = IPC_READY;
	assert_int_equal(ipc_send(pair[0], &out, pair[0]), 0);
	assert_int_equal(ipc_receive(pair[1], &in, &fd), 1);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
}

static void test_end(void **state)
{
	int fd;

	(void)state;
	assert_int_equal(ipc_receive(pair[1], &in, &fd), -1);
	assert_int_equal(errno, EAGAIN);
	shutdown(pair[0], SHUT_WR);
	assert_int_equal(ipc_receive(pair[1], &in, &fd), 0);
}

static void refuse(size_t size)
{
	int fd = -1;

	assert_int_equal(send(pair[0], &out, size, 0), (ssize_t)size);
	assert_int_equal(ipc_receive(pair[1], &in, &fd), -1);
	assert_int_equal(errno, EBADMSG);
	assert_int_equal(fd, -1);
}

static void test_sizes(void **state)
{
	(void)state;
	out.type = IPC_DESTROY;
	refuse(1);
	refuse(ipc_size(IPC_DESTROY) - 1);
	refuse(ipc_size(IPC_DESTROY) + 1);
	boot_message(&out);
	refuse(ipc_size(IPC_BOOT));
	out.boot.volume_count = IPC_VOLUMES + 1;
	refuse(ipc_size(IPC_BOOT));
	out.boot.volume_count = 0xffffffff;
	refuse(ipc_size(IPC_BOOT));
	out.boot.volume_count = IPC_VOLUMES;
	refuse(ipc_size(IPC_BOOT) - 1);
	out.boot.volume_count = IPC_VOLUMES + 1;
	assert_int_equal(ipc_send(pair[0], &out, -1), -1);
	assert_int_equal(errno, EINVAL);
}

static void test_types(void **state)
{
	static const uint32_t types[] = {0, 31, 60, 1000, 0xffffffff};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		assert_int_equal(ipc_size(types[i]), 0);
		out.type = types[i];
		refuse(ipc_size(IPC_DESTROY));
		assert_int_equal(ipc_send(pair[0], &out, -1), -1);
	}
}

static void test_strings(void **state)
{
	(void)state;
	out.type = IPC_DESTROY;
	memset(out.id, 'a', sizeof(out.id));
	refuse(ipc_size(IPC_DESTROY));
	memset(&out, 0, sizeof(out));
	out.type = IPC_DESTROY;
	memset(out.err.msg, 'a', sizeof(out.err.msg));
	refuse(ipc_size(IPC_DESTROY));
	memset(&out, 0, sizeof(out));
	out.type = IPC_DESTROY;
	out.err.kind = 77;
	refuse(ipc_size(IPC_DESTROY));
	out.err.kind = ERR_NONE;
	boot_message(&out);
	memset(out.boot.id, 'a', sizeof(out.boot.id)); /* a NUL follows, of another string */
	refuse(offsetof(struct ipc, boot.volumes));
	boot_message(&out);
	out.boot.volume_count = IPC_VOLUMES;
	memset(out.boot.volumes[7].target, 'a', IPC_PATH);
	refuse(ipc_size(IPC_BOOT));
}

static void test_ids(void **state)
{
	(void)state;
	assert_true(ipc_id_is_valid(ID));
	assert_false(ipc_id_is_valid(""));
	assert_false(ipc_id_is_valid("../../../etc/passwd0"));
	assert_false(ipc_id_is_valid("abcdefghijklmnop012"));
	assert_false(ipc_id_is_valid("abcdefghijklmnop01234"));
	assert_false(ipc_id_is_valid("ABCDEFGHIJKLMNOP0123"));
	assert_false(ipc_id_is_valid("abcdefghijklmnop0129"));
}

/* ---- judgement ---- */

static enum err_kind judged(void)
{
	struct err e = {0};

	int rc = check_boot(&out.boot, &config, &e);

	for (uint32_t i = 0; rc == 0 && i < out.boot.volume_count; i++)
		rc = check_offered_volume(&out.boot.volumes[i], out.boot.owner, "bot", &config, &e);

	assert_int_equal(rc, e.kind ? -1 : 0);
	return e.kind;
}

static void test_ceiling(void **state)
{
	(void)state;
	boot_message(&out);
	config.ceiling = (struct limits){.memory_bytes = 512 << 20, .pids = 10, .cpus_milli = 1000};
	assert_int_equal(judged(), ERR_NONE);
	out.boot.limits.memory_bytes = (512 << 20) + 1;
	assert_int_equal(judged(), ERR_DENIED);
	boot_message(&out);
	out.boot.limits.pids = 11;
	assert_int_equal(judged(), ERR_DENIED);
	out.boot.limits.pids = 0;
	assert_int_equal(judged(), ERR_INVALID);
	boot_message(&out);
	out.boot.limits.cpus_milli = 1001;
	assert_int_equal(judged(), ERR_DENIED);
	boot_message(&out);
	out.boot.limits.memory_bytes = 0;
	assert_int_equal(judged(), ERR_INVALID);
	/* No limit is more than a ceiling; a disk that follows the memory has the ceiling of that. */
	boot_message(&out);
	config.ceiling.cpu_time_ms = 1000;
	out.boot.limits.cpu_time_ms = 0;
	assert_int_equal(judged(), ERR_DENIED);
	out.boot.limits.cpu_time_ms = 1000;
	assert_int_equal(judged(), ERR_NONE);
	config.ceiling.disk_bytes = 1 << 20;
	out.boot.limits.disk_bytes = 0;
	assert_int_equal(judged(), ERR_NONE);
	out.boot.limits.disk_bytes = (1 << 20) + 1;
	assert_int_equal(judged(), ERR_DENIED);
	config.ceiling = (struct limits){0};
}

static void test_what_is_built(void **state)
{
	(void)state;
	boot_message(&out);
	out.boot.level = LEVEL_VM;
	assert_int_equal(judged(), ERR_UNSUPPORTED);
	boot_message(&out);
	out.boot.level = LEVEL_CONTAINER;
	strcpy(out.boot.image, "/etc");
	assert_int_equal(judged(), ERR_NOT_FOUND);
	boot_message(&out);
	strcpy(out.boot.hostname, "a b");
	assert_int_equal(judged(), ERR_INVALID);
	boot_message(&out);
	strcpy(out.boot.owner, "../x");
	assert_int_equal(judged(), ERR_INVALID);
}

static void give_volume(bool read_only, const char *token)
{
	config.volume_count = 1;
	strcpy(config.volumes[0].name, "data");
	strcpy(config.volumes[0].path, "/srv/data");
	config.volumes[0].read_only = read_only;
	config.volumes[0].token_count = token ? 1 : 0;
	if (token)
		strcpy(config.volumes[0].tokens[0], token);
	boot_message(&out);
	out.boot.volume_count = 1;
	strcpy(out.boot.volumes[0].name, "data");
	strcpy(out.boot.volumes[0].target, "/data");
}

static void test_volumes(void **state)
{
	(void)state;
	give_volume(true, NULL);
	assert_int_equal(judged(), ERR_NONE);
	out.boot.volumes[0].writable = 1;
	assert_int_equal(judged(), ERR_DENIED);
	give_volume(false, NULL);
	out.boot.volumes[0].writable = 1;
	assert_int_equal(judged(), ERR_NONE);
	strcpy(out.boot.volumes[0].target, "/usr/lib");
	assert_int_equal(judged(), ERR_DENIED);
	strcpy(out.boot.volumes[0].target, "/data/../usr");
	assert_int_equal(judged(), ERR_INVALID);
	strcpy(out.boot.volumes[0].target, "/");
	assert_int_equal(judged(), ERR_INVALID);
	give_volume(false, NULL);
	strcpy(out.boot.volumes[0].sub, "/etc");
	assert_int_equal(judged(), ERR_INVALID);
	out.boot.volumes[0].sub[0] = '\0';
	strcpy(out.boot.volumes[0].name, "other");
	assert_int_equal(judged(), ERR_NOT_FOUND);
}

/* Another tenant's volume answers like none (rule 28). */
static void test_volume_owners(void **state)
{
	(void)state;
	give_volume(false, NULL);
	strcpy(out.boot.owner, "k3m5q2w1ab");
	assert_int_equal(judged(), ERR_NOT_FOUND);
	give_volume(false, "k3m5q2w1ab");
	strcpy(out.boot.owner, "k3m5q2w1ab");
	assert_int_equal(judged(), ERR_NONE);
	give_volume(false, "bot");
	strcpy(out.boot.owner, "k3m5q2w1ab");
	assert_int_equal(judged(), ERR_NONE);
	give_volume(false, "somebody");
	strcpy(out.boot.owner, "k3m5q2w1ab");
	assert_int_equal(judged(), ERR_NOT_FOUND);
}

static void test_names(void **state)
{
	(void)state;
	assert_true(check_name(""));
	assert_true(check_name("before the upgrade"));
	assert_false(check_name("a/b"));
	assert_false(check_name("a\nb"));
	assert_true(check_owner("-"));
	assert_false(check_owner("a b"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_roundtrip),     T(test_fd),	T(test_end),
		T(test_sizes),	       T(test_types),	T(test_strings),
		T(test_ids),	       T(test_ceiling), T(test_volumes),
		T(test_what_is_built), T(test_names),	T(test_volume_owners),
	};

	return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}

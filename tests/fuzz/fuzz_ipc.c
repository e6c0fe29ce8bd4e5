/*
 * What a front that was taken over can send: whatever bytes come, a message that is taken has a known
 * type, its own length and strings with an end, and what the broker lets be booted is within the
 * operator's ceiling.
 */
#include "fuzz.h"

#include "daemon/broker/check.h"
#include "policy/config.h"
#include "wire/ipc.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct config config;

static void prepare(void)
{
	if (config.max_sandboxes)
		return;
	config_init(&config);
	config.volume_count = 1;
	strcpy(config.volumes[0].name, "data");
	strcpy(config.volumes[0].path, "/srv/data");
	config.volumes[0].read_only = true;
}

static void judge_boot(const struct ipc_boot *b)
{
	struct err e = {0};

	if (check_boot(b, &config, &e) < 0) {
		PROMISE(e.kind != ERR_NONE);
		return;
	}
	PROMISE(ipc_id_is_valid(b->id) && check_owner(b->owner));
	PROMISE(!config.ceiling.memory_bytes ||
		b->limits.memory_bytes <= config.ceiling.memory_bytes);
	PROMISE(!config.ceiling.pids || b->limits.pids <= config.ceiling.pids);
	PROMISE(strcmp(b->image, "host") == 0 && b->level == LEVEL_CONTAINER);
	for (uint32_t i = 0; i < b->volume_count; i++)
		PROMISE(b->volumes[i].sub[0] != '/' && b->volumes[i].target[0] == '/' &&
			(!b->volumes[i].writable ||
			 check_offered_volume(&b->volumes[i], b->owner, "", &config, &e) < 0));
}

static void judge(const struct ipc *m, size_t size)
{
	PROMISE(ipc_size(m->type) >= size);
	PROMISE(memchr(m->err.msg, 0, sizeof(m->err.msg)));
	if (m->type == IPC_BOOT || m->type == IPC_CLAIM)
		judge_boot(&m->boot);
	if (m->type == IPC_SNAPSHOT)
		PROMISE(memchr(m->snapshot.name, 0, IPC_NAME) &&
			memchr(m->snapshot.owner, 0, IPC_ID));
	if (m->type == IPC_DESTROY)
		PROMISE(memchr(m->id, 0, IPC_ID));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ipc m;
	int pair[2], fd = -1;

	prepare();
	/* An empty message is the end of the socket. */
	if (size == 0 || size > 64000 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		return 0;
	if (send(pair[0], data, size, MSG_DONTWAIT) == (ssize_t)size &&
	    ipc_receive(pair[1], &m, &fd) == 1)
		judge(&m, size);
	PROMISE(fd == -1);
	close(pair[0]);
	close(pair[1]);
	return 0;
}

/*
 * A front on strings, for tests of the broker: `cloche serve --test-front puppet`. It takes lines on
 * a Unix socket in its database directory, sends what they say, and passes on what the broker
 * answers, one JSON object a line.
 *
 *   boot ID [OWNER [MEMORY]]    connect|destroy|pause|resume|stats ID    claim ID OWNER
 *   update ID MEMORY            snapshot ID SANDBOX OWNER | list | delete ID OWNER | read ID OWNER
 *   volume ID NAME SUB TARGET   raw HEX: those bytes as one message
 *   tmpfs ID PATH BYTES
 *   agent NAME LEVEL OUTSIDE OWNER          sign FROM TO KIND MILLISECONDS: a message, with lies about its trust
 *   pour BYTES | shut           into what the last `write` was answered with, which then is closed
 *   hello ID                    G_HELLO on its last link, and the guest's welcome
 */
#include "base/buf.h"
#include "wire/guest.h"
#include "wire/ipc.h"
#include "wire/pack.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BROKER 3
#define LINKS 4096

static int client = -1;
static uint32_t serial;
static int written = -1;
static struct agent_message signed_last;
static struct {
	char id[IPC_ID];
	int fd;
	uint64_t generation;
} links[LINKS];

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	char line[4096];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	line[len++] = '\n';
	(void)!send(client, line, (size_t)len, MSG_NOSIGNAL);
}

/* ---- links ---- */

static void keep_link(const struct ipc_booted *b, int fd)
{
	for (int i = 0; i < LINKS; i++) {
		if (links[i].id[0] && strcmp(links[i].id, b->id) != 0)
			continue;
		if (links[i].id[0])
			close(links[i].fd);
		memcpy(links[i].id, b->id, IPC_ID);
		links[i].fd = fd;
		links[i].generation = b->generation;
		return;
	}
	close(fd);
}

static void hello(const char *id)
{
	struct pollfd polls;
	struct buf b = {0};
	char welcome[64];
	ssize_t n;

	for (int i = 0; i < LINKS; i++) {
		if (strcmp(links[i].id, id) != 0)
			continue;
		pack_u32(&b, 12);
		pack_u32(&b, 0);
		pack_u8(&b, G_HELLO);
		pack_u8(&b, 0);
		pack_u8(&b, 0);
		pack_u8(&b, 0);
		pack_u32(&b, GUEST_VERSION);
		pack_u64(&b, links[i].generation);
		(void)!write(links[i].fd, buf_head(&b), b.len);
		buf_done(&b);
		polls = (struct pollfd){links[i].fd, POLLIN, 0};
		poll(&polls, 1, 20000);
		n = read(links[i].fd, welcome, sizeof(welcome));
		say("{\"hello\":\"%s\",\"bytes\":%zd,\"type\":%d}", id, n, n > 8 ? welcome[8] : -1);
		return;
	}
	say("{\"hello\":\"%s\",\"bytes\":-1}", id);
}

/* As much as is taken. */
static void pour(unsigned long long bytes)
{
	static char piece[65536] = {1};
	unsigned long long done = 0;
	struct pollfd polls = {written, POLLOUT, 0};
	ssize_t n = 0;

	while (done < bytes && poll(&polls, 1, 20000) > 0) {
		size_t most = bytes - done < sizeof(piece) ? bytes - done : sizeof(piece);

		n = write(written, piece, most);
		if (n < 0 && errno != EAGAIN)
			break;
		done += n > 0 ? (unsigned long long)n : 0;
	}
	say("{\"poured\":%llu,\"errno\":%d}", done, n < 0 ? errno : 0);
}

/* ---- from the broker ---- */

static void pass_on(const struct ipc *m, int fd)
{
	struct stat st = {0};

	if (fd >= 0)
		fstat(fd, &st);
	printf("type %u serial %u fd %d\n", m->type, m->serial, fd);
	fflush(stdout);
	switch (m->type) {
	case IPC_BOOTED:
	case IPC_ADOPTED:
		say("{\"type\":%u,\"serial\":%u,\"id\":\"%s\",\"owner\":\"%s\",\"generation\":%llu,"
		    "\"missing\":%u,\"paused\":%u,\"fd\":%s,\"cgroup\":%u,\"note\":\"%s\"}",
		    m->type, m->serial, m->booted.id, m->booted.owner,
		    (unsigned long long)m->booted.generation, m->booted.missing, m->booted.paused,
		    fd >= 0 ? "true" : "false", m->booted.cgroup_version, m->booted.note);
		if (fd >= 0)
			keep_link(&m->booted, fd);
		return;
	case IPC_STATS_ARE:
		say("{\"type\":%u,\"serial\":%u,\"memory\":%llu,\"pids\":%llu,\"disk\":%llu,"
		    "\"cpu\":%llu}",
		    m->type, m->serial, (unsigned long long)m->stats.memory_bytes,
		    (unsigned long long)m->stats.pids, (unsigned long long)m->stats.disk_bytes,
		    (unsigned long long)m->stats.cpu_us);
		break;
	case IPC_SNAPSHOT_IS:
		say("{\"type\":%u,\"serial\":%u,\"id\":\"%s\",\"owner\":\"%s\",\"size\":%llu,"
		    "\"digest\":"
		    "\"%s\",\"fd\":%s,\"fd_mode\":%u}",
		    m->type, m->serial, m->snapshot.id, m->snapshot.owner,
		    (unsigned long long)m->snapshot.size_bytes, m->snapshot.digest,
		    fd >= 0 ? "true" : "false", st.st_mode);
		if (fd < 0 || !S_ISFIFO(st.st_mode))
			break;
		close(written);
		written = fd;
		return;
	case IPC_MESSAGE_IS:
		signed_last = m->message;
		say("{\"type\":%u,\"serial\":%u,\"kind\":0,\"trust\":%u,\"epoch\":%u,\"uid\":\"%"
		    "s\"}",
		    m->type, m->serial, m->message.trust, m->message.epoch, m->message.from_uid);
		break;
	case IPC_DIED:
		say("{\"type\":%u,\"serial\":%u,\"id\":\"%s\"}", m->type, m->serial, m->died.id);
		break;
	default:
		say("{\"type\":%u,\"serial\":%u,\"kind\":%d,\"field\":\"%s\",\"message\":\"%s\"}",
		    m->type, m->serial, (int)m->err.kind, m->err.field, m->err.msg);
	}
	if (fd >= 0)
		close(fd);
}

/* ---- from the test ---- */

static void fill_boot(struct ipc *m, char **words, int count)
{
	struct ipc_boot *b = &m->boot;

	*b = (struct ipc_boot){.root = ROOT_OVERLAY};
	snprintf(b->id, sizeof(b->id), "%s", words[1]);
	snprintf(b->owner, sizeof(b->owner), "%s", count > 2 && *words[2] != '.' ? words[2] : "");
	snprintf(b->image, sizeof(b->image), "host");
	snprintf(b->hostname, sizeof(b->hostname), "box");
	b->limits = (struct limits){.memory_bytes = 256 << 20,
				    .cpus_milli = 1000,
				    .pids = 64,
				    .disk_bytes = 64 << 20,
				    .open_files = 1024,
				    .output_bytes = 1 << 20};
	if (count > 3)
		b->limits.memory_bytes = strtoull(words[3], NULL, 10);
}

static void send_raw(const char *hex)
{
	static unsigned char bytes[16384];
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n && i < sizeof(bytes); i++)
		sscanf(hex + 2 * i, "%2hhx", &bytes[i]);
	(void)!send(BROKER, bytes, n, MSG_NOSIGNAL);
}

static const struct {
	const char *name;
	uint32_t type;
} verbs[] = {
	{"boot", IPC_BOOT},
	{"connect", IPC_CONNECT},
	{"destroy", IPC_DESTROY},
	{"pause", IPC_PAUSE},
	{"resume", IPC_RESUME},
	{"update", IPC_UPDATE},
	{"claim", IPC_CLAIM},
	{"stats", IPC_STATS},
	{"snapshot", IPC_SNAPSHOT},
	{"list", IPC_SNAPSHOT_LIST},
	{"delete", IPC_SNAPSHOT_DELETE},
	{"read", IPC_SNAPSHOT_READ},
	{"write", IPC_SNAPSHOT_WRITE},
	{"keep", IPC_SNAPSHOT_KEEP},
	{"volume", IPC_BOOT},
	{"tmpfs", IPC_BOOT},
	{"once", IPC_BOOT},  /* for one run */
	{"root", IPC_BOOT},  /* root inside: ID OWNER */
	{"grab", IPC_CLAIM}, /* a claim with a volume: ID OWNER VOLUME TARGET */
	{"image", IPC_BOOT}, /* of an image: ID OWNER IMAGE [SNAPSHOT] */
	{"job", IPC_IMAGE},  /* NUMBER OWNER NAME TO; "." is "" */
	{"quit", IPC_QUIT},
	{"agent", IPC_AGENT_PUT},
	{"sign", IPC_MESSAGE_SIGN},
	{"verify",
	 IPC_MESSAGE_VERIFY}, /* what was signed last, with another content if a word follows */
};

static void fill(struct ipc *m, char **words, int count)
{
	switch (m->type) {
	case IPC_BOOT:
	case IPC_CLAIM:
		fill_boot(m, words,
			  strcmp(words[0], "grab") == 0			    ? 3
			  : m->type == IPC_BOOT && strcmp(words[0], "boot") ? 2
									    : count);
		break;
	case IPC_UPDATE:
		fill_boot(m, words, 2);
		m->boot.limits.memory_bytes = strtoull(words[2], NULL, 10);
		break;
	case IPC_IMAGE:
		m->image.job = (uint8_t)strtoul(words[1], NULL, 10);
		snprintf(m->image.owner, IPC_ID, "%s", *words[2] != '.' ? words[2] : "");
		snprintf(m->image.name, IPC_IMAGE_NAME, "%s", *words[3] != '.' ? words[3] : "");
		snprintf(m->image.to, IPC_IMAGE_NAME, "%s", *words[4] != '.' ? words[4] : "");
		break;
	case IPC_AGENT_PUT:
		m->agent = (struct ipc_agent){.is_new = 1, .is_outside = words[3][0] == '1'};
		m->agent.level = m->agent.effective = (uint8_t)strtoul(words[2], NULL, 10);
		snprintf(m->agent.name, IPC_NAME, "%s", words[1]);
		snprintf(m->agent.owner, IPC_ID, "%s", *words[4] != '.' ? words[4] : "");
		break;
	case IPC_MESSAGE_SIGN:
		m->message = (struct agent_message){.trust = 5, .epoch = 9, .id = "one"};
		m->message.kind = (uint8_t)strtoul(words[3], NULL, 10);
		m->message.depth = m->message.kind == AGENT_TASK;
		m->message.time_ms = unix_ms() + (uint64_t)strtoll(words[4], NULL, 10);
		snprintf(m->message.from, IPC_NAME, "%s", words[1]);
		snprintf(m->message.to, IPC_NAME, "%s", words[2]);
		snprintf(m->message.from_uid, IPC_ID, "%s", "aaaaaaaaaaaaaaaaaaaa");
		break;
	case IPC_MESSAGE_VERIFY:
		m->message = signed_last;
		if (count > 1)
			m->message.digest[0] ^= 1;
		break;
	case IPC_SNAPSHOT_LIST:
	case IPC_QUIT:
		break;
	case IPC_SNAPSHOT:
		snprintf(m->snapshot.sandbox, IPC_ID, "%s", count > 2 ? words[2] : "");
		words++;
		count--;
		/* fall through */
	case IPC_SNAPSHOT_DELETE:
	case IPC_SNAPSHOT_READ:
	case IPC_SNAPSHOT_WRITE:
	case IPC_SNAPSHOT_KEEP:
		snprintf(m->snapshot.id, IPC_ID, "%s", words[m->type == IPC_SNAPSHOT ? 0 : 1]);
		snprintf(m->snapshot.owner, IPC_ID, "%s",
			 count > 2 && *words[2] != '.' ? words[2] : "");
		break;
	default:
		snprintf(m->id, IPC_ID, "%s", words[1]);
	}
}

static void add_volume(struct ipc *m, char **words, int count)
{
	struct ipc_volume *v = &m->boot.volumes[0];

	if (strcmp(words[0], "volume") != 0 || count < 5)
		return;
	m->boot.volume_count = 1;
	snprintf(v->name, sizeof(v->name), "%s", words[2]);
	snprintf(v->sub, sizeof(v->sub), "%s", strcmp(words[3], ".") ? words[3] : "");
	snprintf(v->target, sizeof(v->target), "%s", words[4]);
	v->writable = 1;
}

static void add_rest(struct ipc *m, char **words, int count)
{
	if (strcmp(words[0], "image") == 0 && count > 3) {
		snprintf(m->boot.owner, IPC_ID, "%s", *words[2] != '.' ? words[2] : "");
		snprintf(m->boot.image, sizeof(m->boot.image), "%s", words[3]);
		snprintf(m->boot.snapshot, IPC_ID, "%s", count > 4 ? words[4] : "");
	}
	m->boot.transient |= strcmp(words[0], "once") == 0;
	if (strcmp(words[0], "root") == 0 && count > 2) {
		snprintf(m->boot.owner, IPC_ID, "%s", *words[2] != '.' ? words[2] : "");
		m->boot.user_root = 1;
		m->boot.root = ROOT_RO;
	}
	if (strcmp(words[0], "grab") != 0 || count < 5)
		return;
	m->boot.volume_count = 1;
	snprintf(m->boot.volumes[0].name, sizeof(m->boot.volumes[0].name), "%s", words[3]);
	snprintf(m->boot.volumes[0].target, sizeof(m->boot.volumes[0].target), "%s", words[4]);
}

static void add_tmpfs(struct ipc *m, char **words, int count)
{
	struct tmpfs_mounts *t = &m->boot.tmpfs;

	if (strcmp(words[0], "tmpfs") != 0 || count < 4)
		return;
	t->count = 1;
	snprintf(t->items[0].path, sizeof(t->items[0].path), "%s", words[2]);
	t->items[0].bytes = strtoull(words[3], NULL, 10);
}

static void obey(char *line)
{
	static struct ipc m;
	char *all[8] = {0}, **words = all, *save = NULL;
	int count = 0;
	bool as_news; /* a request without a serial number, which no front sends */

	for (char *w = strtok_r(line, " ", &save); w && count < 8; w = strtok_r(NULL, " ", &save))
		words[count++] = w;
	as_news = count > 1 && strcmp(words[0], "news") == 0;
	words += as_news;
	count -= as_news;
	if (count == 2 && strcmp(words[0], "raw") == 0) {
		send_raw(words[1]);
		return;
	}
	if (count == 2 && strcmp(words[0], "pour") == 0) {
		pour(strtoull(words[1], NULL, 10));
		return;
	}
	if (count == 1 && strcmp(words[0], "shut") == 0) {
		close(written);
		written = -1;
		say("{\"shut\":true}");
		return;
	}
	if (count == 2 && strcmp(words[0], "hello") == 0) {
		hello(words[1]);
		return;
	}
	for (size_t i = 0; count && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(words[0], verbs[i].name) != 0)
			continue;
		memset(&m, 0, sizeof(m));
		m.type = verbs[i].type;
		m.serial = as_news ? 0 : ++serial;
		if (m.type == IPC_SNAPSHOT && count > 1) {
			char *id = words[1];

			fill(&m, words, count);
			snprintf(m.snapshot.id, IPC_ID, "%s", id);
			snprintf(m.snapshot.owner, IPC_ID, "%s",
				 count > 3 && *words[3] != '.' ? words[3] : "");
		} else {
			fill(&m, words, count);
		}
		add_volume(&m, words, count);
		add_tmpfs(&m, words, count);
		if (m.type == IPC_BOOT || m.type == IPC_CLAIM)
			add_rest(&m, words, count);
		if (ipc_send(BROKER, &m, -1) < 0)
			say("{\"type\":0,\"error\":\"%s\"}", strerror(errno));
		return;
	}
	say("{\"type\":0,\"error\":\"what?\"}");
}

static int open_socket(const char *dir)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/puppet", dir);
	unlink(a.sun_path);
	if (fd < 0 || bind(fd, (void *)&a, sizeof(a)) < 0 || listen(fd, 1) < 0)
		exit(1);
	return fd;
}

int main(int argc, char **argv)
{
	static char text[65536];
	static struct ipc m;
	int listener, fd, rc;
	size_t len = 0;

	if (argc < 4)
		return 2;
	/* What the broker says before anybody listens must wait: no reading until then. */
	listener = open_socket(argv[3]);
	client = accept(listener, NULL, NULL);
	say("{\"puppet\":%d,\"types\":{\"DONE\":%d,\"BOOTED\":%d,\"STATS_ARE\":%d,\"SNAPSHOT_IS\":%"
	    "d,"
	    "\"ADOPTED\":%d,\"READY\":%d,\"DIED\":%d,\"PEER\":%d,\"SHUTDOWN\":%d}}",
	    (int)getpid(), IPC_DONE, IPC_BOOTED, IPC_STATS_ARE, IPC_SNAPSHOT_IS, IPC_ADOPTED,
	    IPC_READY, IPC_DIED, IPC_PEER, IPC_SHUTDOWN);
	for (;;) {
		struct pollfd polls[] = {{BROKER, POLLIN, 0}, {client, POLLIN, 0}};

		poll(polls, 2, -1);
		if (polls[0].revents) {
			rc = ipc_receive(BROKER, &m, &fd);
			if (rc == 1)
				pass_on(&m, fd);
			else if (rc == 0 || errno != EAGAIN)
				return 0;
		}
		if (polls[1].revents) {
			ssize_t n = read(client, text + len, sizeof(text) - 1 - len);
			char *end;

			if (n <= 0)
				return 0;
			len += (size_t)n;
			text[len] = '\0';
			while ((end = strchr(text, '\n'))) {
				*end = '\0';
				obey(text);
				len -= (size_t)(end + 1 - text);
				memmove(text, end + 1, len + 1);
			}
		}
	}
}

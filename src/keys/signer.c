/*
 * Runs as: a user of its own, without a capability and without a network, with <state>/keys as its root.
 * Holds: the master key, the keyring, stored secrets, the values that the operator's settings name.
 * May: read and replace its two files; sign for agents that the broker names; answer the broker.
 * Must not: send a value to anybody but egress. Rows for egress leave in a sealed memfd, which the broker passes
 * on and does not read; no other message has a place for a value.
 */
#include "keys/signer.h"

#include "base/log.h"
#include "base/loop.h"
#include "keys/agent_keys.h"
#include "keys/disk_keys.h"
#include "keys/secrets.h"
#include "kern/secret_source.h"
#include "policy/config.h"
#include "wire/egress.h"
#include "wire/ipc_channel.h"

#include <sodium.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* A value of the settings, in memory that is neither dumped nor inherited. */
struct configured {
	const struct config_secret *secret;
	char *value;
	size_t len;
	struct err err; /* why there is none */
};

struct signer {
	struct loop *loop;
	struct ipc_channel broker;
	struct config *config;
	int dir;
	struct keyring *keys;	 /* NULL: */
	struct secrets *secrets; /* NULL: nothing can be stored, */
	struct err err;		 /* and why */
	unsigned char exchange_public[crypto_box_PUBLICKEYBYTES];
	struct configured configured[CONFIG_ITEMS];
	size_t configured_count;
};

/* ---- start ---- */

static int read_master(const struct secret_source *from, const struct secret_reader *as,
		       const char *key, unsigned char *ret, struct err *e)
{
	char text[256];
	size_t len = 0;
	int rc = secret_read(from, as, text, sizeof(text), &len, e);

	if (rc == 0 && len != KEY_BYTES)
		len = secret_trim(text, len);
	if (rc == 0)
		rc = keyring_master_parse(text, len, ret, e);
	sodium_memzero(text, sizeof(text));
	return rc < 0 ? err_wrap(e, "%s", key) : 0;
}

/* The file must be the operator's own: others could read it, or have put theirs there. */
static int check_master_file(const struct config *c, const char *file, struct err *e)
{
	struct stat st;

	if (!file[0])
		return 0;
	if (path_below(file, c->state_dir))
		return err_set(e, ERR_INVALID,
			       "keys.master: %s is in the state directory; key and data on one "
			       "disk protect nothing",
			       file);
	if (stat(file, &st) < 0)
		return err_sys(e, "keys.master: cannot read %s", file);
	if (st.st_mode & 077)
		return err_set(e, ERR_DENIED,
			       "keys.master: %s can be read by others than its owner; chmod 400",
			       file);
	return 0;
}

static bool is_given(const struct secret_source *s)
{
	return s->file[0] || s->argc;
}

/* With the present master; if the file was made with keys.previous, it is wrapped anew first. */
static struct keyring *open_keyring(struct signer *s, const struct secret_reader *as, struct err *e)
{
	const struct config_keys *k = &s->config->keys;
	unsigned char master[KEY_BYTES], previous[KEY_BYTES];
	struct keyring *ring = NULL;
	struct err first = {0};

	if (check_master_file(s->config, k->master.file, e) < 0 ||
	    read_master(&k->master, as, "keys.master", master, e) < 0)
		return NULL;
	ring = keyring_open(s->dir, master, &first);
	if (!ring && first.kind == ERR_DENIED && is_given(&k->previous) &&
	    read_master(&k->previous, as, "keys.previous", previous, e) == 0) {
		ring = keyring_open(s->dir, previous, e);
		if (ring && keyring_rotate(ring, master, e) < 0) {
			keyring_close(ring);
			ring = NULL;
		}
		if (ring)
			log_info("the keyring has a new master key");
		sodium_memzero(previous, sizeof(previous));
	} else if (!ring) {
		*e = first;
	}
	sodium_memzero(master, sizeof(master));
	return ring;
}

static void exchange_pair(struct signer *s, unsigned char *ret_secret, struct err *e)
{
	unsigned char seed[KEY_BYTES];

	if (keyring_get(s->keys, KEY_EXCHANGE, "exchange", true, seed, e) == 0)
		crypto_box_seed_keypair(s->exchange_public, ret_secret, seed);
	sodium_memzero(seed, sizeof(seed));
}

static void open_store(struct signer *s, const struct secret_reader *as)
{
	unsigned char secret[crypto_box_SECRETKEYBYTES];

	if (!is_given(&s->config->keys.master)) {
		err_set(&s->err, ERR_UNSUPPORTED,
			"secrets cannot be stored: the settings have no keys.master");
		return;
	}
	s->keys = open_keyring(s, as, &s->err);
	if (s->keys)
		s->secrets = secrets_open(s->dir, s->keys, &s->err);
	if (s->secrets)
		exchange_pair(s, secret, &s->err);
	sodium_memzero(secret, sizeof(secret));
	if (!s->err.kind)
		return;
	log_error("stored secrets are refused", "error", s->err.msg);
	secrets_close(s->secrets);
	keyring_close(s->keys);
	s->secrets = NULL;
	s->keys = NULL;
}

/* The first line of the file is a heading. */
static bool swap_is_on(void)
{
	char text[4096];
	ssize_t n = io_read_path(text, sizeof(text), "/proc/swaps");
	const char *end = n > 0 ? strchr(text, '\n') : NULL;

	return end && end[1];
}

static void read_configured(struct signer *s, const struct secret_reader *as)
{
	for (uint32_t i = 0; i < s->config->secret_count; i++) {
		struct configured *c = &s->configured[s->configured_count++];
		const char *name = s->config->secrets[i].def.rule.name;

		c->secret = &s->config->secrets[i];
		c->value = must_alloc(secret_memory(SECRET_VALUE + 1));
		if (secret_read(&c->secret->def.from, as, c->value, SECRET_VALUE + 1, &c->len,
				&c->err) < 0)
			log_error("a secret of the settings has no value", "name", name, "error",
				  c->err.msg);
		c->len = secret_trim(c->value, c->len);
		if (c->secret->def.from.env[0])
			secret_forget_variable(c->secret->def.from.env);
	}
}

struct signer *signer_new(int dir, const struct config *c, uid_t uid, gid_t gid)
{
	const struct secret_reader as = {uid, gid};
	struct signer *s = must_alloc(calloc(1, sizeof(*s)));

	if (sodium_init() < 0)
		abort();
	s->dir = dir;
	s->config = must_alloc(malloc(sizeof(*s->config)));
	*s->config = *c;
	if (mlockall(MCL_CURRENT | MCL_ONFAULT) < 0 && swap_is_on())
		err_sys(&s->err, "secrets cannot be stored: memory cannot be locked, and the host "
				 "has swap");
	else
		open_store(s, &as);
	read_configured(s, &as);
	return s;
}

/* ---- requests ---- */

static int want_store(const struct signer *s, struct err *e)
{
	if (s->secrets)
		return 0;
	*e = s->err;
	return -1;
}

static struct configured *find_configured(struct signer *s, const char *owner,
					  const char *owner_name, const char *name)
{
	for (size_t i = 0; i < s->configured_count; i++)
		if (str_equal(s->configured[i].secret->def.rule.name, name) &&
		    config_allows_token(s->configured[i].secret->tokens,
					s->configured[i].secret->token_count, owner, owner_name))
			return &s->configured[i];
	return NULL;
}

/* Opens the box that the front has sealed. ret has SECRET_VALUE bytes. */
static int open_box(struct signer *s, int fd, char *ret, size_t *ret_len, struct err *e)
{
	unsigned char pk_again[crypto_box_PUBLICKEYBYTES], sk[crypto_box_SECRETKEYBYTES];
	unsigned char seed[KEY_BYTES];
	auto_free char *box = NULL;
	size_t len = 0;
	int rc;

	if (io_read_whole(fd, SECRET_VALUE + crypto_box_SEALBYTES, &box, &len) < 0)
		return errno == EFBIG ? err_set(e, ERR_LIMIT, "the value is longer than %d bytes",
						SECRET_VALUE)
				      : err_sys(e, "cannot read the value");
	if (len < crypto_box_SEALBYTES)
		return err_set(e, ERR_INVALID, "there is no value");
	if (keyring_get(s->keys, KEY_EXCHANGE, "exchange", false, seed, e) < 0)
		return -1;
	crypto_box_seed_keypair(pk_again, sk, seed);
	rc = crypto_box_seal_open((unsigned char *)ret, (unsigned char *)box, len, pk_again, sk);
	sodium_memzero(sk, sizeof(sk));
	sodium_memzero(seed, sizeof(seed));
	if (rc < 0)
		return err_set(e, ERR_INVALID, "the value was sealed to another key; try again");
	*ret_len = len - crypto_box_SEALBYTES;
	return 0;
}

/* A value goes into a header: bytes that could end one are refused. */
static int check_value(const char *value, size_t len, struct err *e)
{
	if (len == 0)
		return err_field(e, ERR_INVALID, "value", "value: is empty");
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < ' ' || value[i] == 127)
			return err_field(e, ERR_INVALID, "value",
					 "value: has a control character in it");
	return 0;
}

/* What a change does not name stays as it was. */
static void keep_rest(const struct ipc_secret *now, struct ipc_secret *t)
{
	if (!t->rule.host_count) {
		t->rule.host_count = now->rule.host_count;
		memcpy(t->rule.hosts, now->rule.hosts, sizeof(t->rule.hosts));
	}
	if (!t->rule.header[0])
		memcpy(t->rule.header, now->rule.header, sizeof(t->rule.header));
	if (!t->rule.prefix[0])
		memcpy(t->rule.prefix, now->rule.prefix, sizeof(t->rule.prefix));
	if (!t->rule.uses_max)
		t->rule.uses_max = now->rule.uses_max;
	if (!t->metadata[0])
		memcpy(t->metadata, now->metadata, sizeof(t->metadata));
}

static int put_secret(struct signer *s, struct ipc_secret *t, int fd, struct err *e)
{
	const struct ipc_secret *now;

	char *value = NULL;
	size_t len = 0;
	int rc = 0;

	if (want_store(s, e) < 0)
		return -1;
	now = secrets_find(s->secrets, t->owner, t->rule.name);
	if (now)
		keep_rest(now, t);
	if (secret_rule_finish(&t->rule, e) < 0)
		return -1;
	if (fd >= 0) {
		value = must_alloc(sodium_malloc(SECRET_VALUE + 1));
		rc = open_box(s, fd, value, &len, e);
		if (rc == 0)
			rc = check_value(value, len, e);
	}
	if (rc == 0)
		rc = secrets_put(s->secrets, t, value, len, e);
	sodium_free(value);
	return rc;
}

static void request_put(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_SECRET_IS, .serial = m->serial, .secret = m->secret};

	if (put_secret(s, &answer.secret, fd, &answer.err) < 0)
		answer.type = IPC_DONE;
	ipc_channel_send(&s->broker, &answer, -1);
}

static void request_delete(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_DONE, .serial = m->serial};

	if (want_store(s, &answer.err) == 0)
		(void)secrets_delete(s->secrets, m->secret.owner, m->secret.rule.name, &answer.err);
	ipc_channel_send(&s->broker, &answer, -1);
}

/* Those of the settings; in a question `metadata` is the owner's name, from the broker. */
static void list_configured(struct signer *s, const struct ipc *m)
{
	for (size_t i = 0; i < s->configured_count; i++) {
		struct ipc answer = {.type = IPC_SECRET_IS, .serial = m->serial};
		const struct config_secret *c = s->configured[i].secret;

		if ((m->secret.rule.name[0] && !str_equal(m->secret.rule.name, c->def.rule.name)) ||
		    !find_configured(s, m->secret.owner, m->secret.metadata, c->def.rule.name))
			continue;
		answer.secret.rule = c->def.rule;
		answer.secret.is_configured = 1;
		memcpy(answer.secret.owner, m->secret.owner, IPC_ID);
		ipc_channel_send(&s->broker, &answer, -1);
	}
}

static void request_list(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc done = {.type = IPC_DONE, .serial = m->serial};
	const struct ipc_secret *t = NULL;

	list_configured(s, m);
	if (s->secrets && m->secret.rule.name[0])
		t = secrets_find(s->secrets, m->secret.owner, m->secret.rule.name);
	else if (s->secrets)
		t = secrets_next(s->secrets, m->secret.owner, "");
	while (t) {
		struct ipc answer = {.type = IPC_SECRET_IS, .serial = m->serial, .secret = *t};

		ipc_channel_send(&s->broker, &answer, -1);
		t = m->secret.rule.name[0]
			    ? NULL
			    : secrets_next(s->secrets, m->secret.owner, t->rule.name);
	}
	ipc_channel_send(&s->broker, &done, -1);
}

/* ---- values for egress ---- */

static bool has_host(const struct secret_rule *r, const char *host)
{
	for (uint32_t i = 0; i < r->host_count; i++)
		if (str_equal(r->hosts[i], host))
			return true;
	return false;
}

/* The rule of a row: the secret's own, or a header that is set at one host, which must be one of its hosts if it has any. */
static int use_rule(const struct secret_rule *own, const struct ipc_secret_use *u, size_t i,
		    struct secret_rule *ret, struct err *e)
{
	*ret = *own;
	if (!u->items[i].host[0]) {
		if (!secret_is_placeholder(own, u->items[i].placeholder))
			return err_set(e, ERR_INVALID, "secret %s: that is no placeholder",
				       own->name);
		return own->host_count ? 0
				       : err_field(e, ERR_INVALID, "secrets",
						   "secrets: %s has no host", own->name);
	}
	if (own->host_count && !has_host(own, u->items[i].host))
		return err_field(e, ERR_DENIED, "secrets", "secrets: %s is not for %s", own->name,
				 u->items[i].host);
	ret->host_count = 1;
	snprintf(ret->hosts[0], SECRET_HOST, "%s", u->items[i].host);
	snprintf(ret->header, sizeof(ret->header), "%s", u->items[i].header);
	return secret_rule_finish(ret, e);
}

/* Everything but the place. ret: locked memory; header: SECRET_PLACES bytes. */
static int fill_row(struct signer *s, const struct ipc_secret_use *u, size_t i,
		    struct egress_secret *ret, char *ret_header, struct err *e)
{
	const char *name = u->items[i].name;
	const struct configured *c = find_configured(s, u->owner, u->owner_name, name);
	const struct ipc_secret *t =
		c || !s->secrets ? NULL : secrets_find(s->secrets, u->owner, name);
	struct secret_rule rule;
	size_t len = 0;

	if (!c && !t)
		return err_field(e, ERR_NOT_FOUND, "secrets", "secrets: there is no secret %s",
				 name);
	if (c && c->err.kind)
		return err_field(e, ERR_SYSTEM, "secrets", "secrets: %s has no value now", name);
	if (use_rule(c ? &c->secret->def.rule : &t->rule, u, i, &rule, e) < 0)
		return -1;
	if (c)
		memcpy(ret->value, c->value, len = c->len);
	else if (secrets_value(s->secrets, t, ret->value, &len, e) < 0)
		return -1;
	ret->value_len = (uint32_t)len;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	snprintf(ret->placeholder, sizeof(ret->placeholder), "%s", u->items[i].placeholder);
	memcpy(ret->hosts, rule.hosts, sizeof(ret->hosts));
	snprintf(ret_header, SECRET_PLACES, "%s", rule.header);
	ret->uses_max = rule.uses_max;
	ret->used = u->items[i].used;
	return 0;
}

/* A header that is set without any secret in it. */
static int write_header(int fd, const struct ipc_secret_use *u, size_t i, struct egress_secret *row,
			struct err *e)
{
	snprintf(row->hosts[0], sizeof(row->hosts[0]), "%s", u->items[i].host);
	snprintf(row->header, sizeof(row->header), "%s", u->items[i].header);
	if (!row->hosts[0][0] || !strstr(row->header, ": ") || !str_is_printable(row->header))
		return err_set(e, ERR_INVALID, "that is no header of a host");
	return io_write_all(fd, row, sizeof(*row)) < 0 ? err_sys(e, "cannot hand over a header")
						       : 0;
}

/* A row for each place of the header. */
static int write_places(int fd, struct egress_secret *row, const char *header, struct err *e)
{
	const char *at = NULL;

	while ((at = secret_next_place(header, at, row->header)))
		if (io_write_all(fd, row, sizeof(*row)) < 0)
			return err_sys(e, "cannot hand over secrets");
	return 0;
}

static int write_rows(struct signer *s, const struct ipc_secret_use *u, struct err *e)
{
	auto_close int fd = memfd_create("secrets", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct egress_secret *row = must_alloc(sodium_malloc(sizeof(*row)));
	int rc = fd < 0 ? err_sys(e, "cannot create memory") : 0;
	char header[SECRET_PLACES];

	for (uint32_t i = 0; rc == 0 && i < u->count; i++) {
		memset(row, 0, sizeof(*row));
		if (!u->items[i].name[0]) {
			rc = write_header(fd, u, i, row, e);
			continue;
		}
		rc = fill_row(s, u, i, row, header, e);
		if (rc == 0) {
			rc = write_places(fd, row, header, e);
		} else if (u->is_again) {
			log_warn("a sandbox has lost a secret", "id", u->id, "error", e->msg);
			*e = (struct err){0};
			rc = 0;
		}
	}
	sodium_free(row);
	if (rc == 0 && io_seal(fd) < 0)
		rc = err_sys(e, "cannot hand over secrets");
	return rc < 0 ? -1 : take_fd(&fd);
}

static void request_use(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_DONE, .serial = m->serial};
	auto_close int rows = write_rows(s, &m->use, &answer.err);

	memcpy(answer.id, m->use.id, sizeof(answer.id));
	ipc_channel_send(&s->broker, &answer, rows);
}

/* ---- messages between agents ---- */

/* Who may send what to whom was judged by the broker, which has filled in all that is not the sender's to say. */
static void request_sign(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_MESSAGE_IS, .serial = m->serial, .message = m->message};

	if (want_store(s, &answer.err) < 0 ||
	    agent_sign(s->keys, &answer.message, unix_ms(), &answer.err) < 0)
		answer.type = IPC_DONE;
	ipc_channel_send(&s->broker, &answer, -1);
}

static void request_verify(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_DONE, .serial = m->serial};

	if (want_store(s, &answer.err) == 0)
		(void)!agent_verify(s->keys, &m->message, &answer.err);
	ipc_channel_send(&s->broker, &answer, -1);
}

static void request_key(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_AGENT_KEY_IS, .serial = m->serial, .key = m->key};

	if (want_store(s, &answer.err) < 0 ||
	    agent_public_key(s->keys, m->key.uid, m->key.epoch, answer.key.public_key,
			     &answer.err) < 0)
		answer.type = IPC_DONE;
	ipc_channel_send(&s->broker, &answer, -1);
}

/* ---- keys of disks ---- */

static void request_disk_key(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_DISK_KEY_IS, .serial = m->serial, .disk_key = m->disk_key};

	if (want_store(s, &answer.err) < 0)
		;
	else if (m->type == IPC_DISK_KEY_GET)
		(void)keyring_disk_get(s->keys, &answer.disk_key, &answer.err);
	else if (m->type == IPC_DISK_KEY_ERASE)
		(void)keyring_disk_erase(s->keys, &m->disk_key, &answer.err);
	else
		(void)keyring_disk_keep(s->keys, fd, &answer.err);
	ipc_channel_send(&s->broker, &answer, -1);
	sodium_memzero(&answer, sizeof(answer));
}

static void request_ping(struct signer *s, const struct ipc *m, int fd)
{
	struct ipc answer = {.type = IPC_PONG};

	ipc_channel_send(&s->broker, &answer, -1);
}

/* ---- life ---- */

static const struct {
	uint32_t type;
	void (*run)(struct signer *s, const struct ipc *m, int fd);
} requests[] = {
	{IPC_SECRET_PUT, request_put},	       {IPC_SECRET_LIST, request_list},
	{IPC_SECRET_DELETE, request_delete},   {IPC_SECRET_USE, request_use},
	{IPC_MESSAGE_SIGN, request_sign},      {IPC_MESSAGE_VERIFY, request_verify},
	{IPC_AGENT_KEY, request_key},	       {IPC_PING, request_ping},
	{IPC_DISK_KEY_GET, request_disk_key},  {IPC_DISK_KEY_ERASE, request_disk_key},
	{IPC_DISK_KEY_USED, request_disk_key}, {IPC_PING, request_ping},
};

static void on_message(void *arg, const struct ipc *m, int fd)
{
	struct signer *s = arg;

	for (size_t i = 0; i < ARRAY_LEN(requests); i++)
		if (requests[i].type == m->type) {
			requests[i].run(s, m, fd);
			close_fd(&fd);
			return;
		}
	close_fd(&fd);
	log_error("signer: an unknown message");
	loop_stop(s->loop);
}

static void on_broken(void *arg, int errnum)
{
	struct signer *s = arg;

	loop_stop(s->loop);
}

static void say_hello(struct signer *s)
{
	struct ipc m = {.type = IPC_SIGNER, .signer.can_store = s->secrets != NULL};

	memcpy(m.signer.exchange_key, s->exchange_public, sizeof(m.signer.exchange_key));
	snprintf(m.signer.why, sizeof(m.signer.why), "%s", s->err.msg);
	ipc_channel_send(&s->broker, &m, -1);
}

int signer_run(struct signer *s, int sock)
{
	signal(SIGPIPE, SIG_IGN);
	s->loop = must_alloc(loop_new());
	s->broker = (struct ipc_channel){
		.loop = s->loop, .on_message = on_message, .on_broken = on_broken, .arg = s};
	fcntl(sock, F_SETFL, fcntl(sock, F_GETFL) | O_NONBLOCK);
	ipc_channel_open(&s->broker, sock);
	say_hello(s);
	loop_run(s->loop);
	for (size_t i = 0; i < s->configured_count; i++)
		secret_memory_free(s->configured[i].value, SECRET_VALUE + 1);
	secrets_close(s->secrets);
	keyring_close(s->keys);
	return 0;
}

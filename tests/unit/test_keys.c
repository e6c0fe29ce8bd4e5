/* keys: what was stored comes back only with the right master, for its owner, and unchanged; else it is refused. */
#include "keys/disk_keys.h"
#include "keys/secrets.h"

#include "model/secret.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#define VALUE "sk-live-0123456789-VALUE"

struct fixture {
	char path[64];
	int dir;
	unsigned char master[KEY_BYTES];
	struct keyring *keys;
	struct secrets *secrets;
	struct err err;
};

static int open_all(struct fixture *f)
{
	f->err = (struct err){0};
	f->keys = keyring_open(f->dir, f->master, &f->err);
	f->secrets = f->keys ? secrets_open(f->dir, f->keys, &f->err) : NULL;
	return f->secrets ? 0 : -1;
}

static void close_all(struct fixture *f)
{
	secrets_close(f->secrets);
	keyring_close(f->keys);
	f->secrets = NULL;
	f->keys = NULL;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(sodium_init() >= 0, 1);
	snprintf(f->path, sizeof(f->path), "/tmp/cloche-keys-XXXXXX");
	assert_non_null(mkdtemp(f->path));
	f->dir = open(f->path, O_RDONLY | O_DIRECTORY);
	memset(f->master, 7, sizeof(f->master));
	assert_int_equal(open_all(f), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = {"keyring", "secrets", "keyring.new", "secrets.new"};
	struct fixture *f = *state;

	close_all(f);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unlinkat(f->dir, names[i], 0);
	close(f->dir);
	rmdir(f->path);
	free(f);
	return 0;
}

static int put(struct fixture *f, const char *owner, const char *name, const char *value)
{
	struct ipc_secret s = {0};

	snprintf(s.owner, sizeof(s.owner), "%s", owner);
	snprintf(s.rule.name, sizeof(s.rule.name), "%s", name);
	snprintf(s.rule.hosts[0], SECRET_HOST, "api.example.com");
	s.rule.host_count = 1;
	f->err = (struct err){0};
	return secrets_put(f->secrets, &s, value, value ? strlen(value) : 0, &f->err);
}

/* "" if it does not open. */
static const char *value_of(struct fixture *f, const char *owner, const char *name)
{
	static char value[SECRET_VALUE + 1];
	const struct ipc_secret *s = secrets_find(f->secrets, owner, name);
	size_t len = 0;

	f->err = (struct err){0};
	memset(value, 0, sizeof(value));
	if (!s || secrets_value(f->secrets, s, value, &len, &f->err) < 0)
		return "";
	value[len] = '\0';
	return value;
}

static char *read_name(struct fixture *f, const char *name, size_t *ret_len)
{
	int fd = openat(f->dir, name, O_RDONLY);
	char *bytes = NULL;

	assert_true(fd >= 0);
	assert_int_equal(io_read_whole(fd, 64 << 20, &bytes, ret_len), 0);
	close(fd);
	return bytes;
}

static void write_name(struct fixture *f, const char *name, const char *bytes, size_t len)
{
	int fd = openat(f->dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, bytes, len), 0);
	close(fd);
}

static void comes_back(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(put(f, "a", "KEY", VALUE), 0);
	assert_int_equal(put(f, "b", "KEY", "of b"), 0);
	close_all(f);
	assert_int_equal(open_all(f), 0);
	assert_string_equal(value_of(f, "a", "KEY"), VALUE);
	assert_string_equal(value_of(f, "b", "KEY"), "of b");
	assert_null(secrets_find(f->secrets, "c", "KEY"));
	/* Only the rest changes. */
	assert_int_equal(put(f, "a", "KEY", NULL), 0);
	assert_string_equal(value_of(f, "a", "KEY"), VALUE);
	assert_int_equal(secrets_find(f->secrets, "a", "KEY")->version, 2);
	assert_int_equal(secrets_delete(f->secrets, "a", "KEY", &f->err), 0);
	assert_int_equal(secrets_delete(f->secrets, "a", "KEY", &f->err), -1);
	assert_string_equal(value_of(f, "b", "KEY"), "of b");
}

static void is_in_no_file(void **state)
{
	static const char *const names[] = {"keyring", "secrets"};
	struct fixture *f = *state;

	assert_int_equal(put(f, "a", "KEY", VALUE), 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t len = 0;
		char *bytes = read_name(f, names[i], &len);

		assert_null(memmem(bytes, len, VALUE, strlen(VALUE)));
		assert_null(memmem(bytes, len, f->master, KEY_BYTES));
		free(bytes);
	}
}

static void wrong_master(void **state)
{
	struct fixture *f = *state;
	size_t len = 0, after = 0;
	char *before, *now;

	assert_int_equal(put(f, "a", "KEY", VALUE), 0);
	close_all(f);
	before = read_name(f, "keyring", &len);
	f->master[0] ^= 1;
	assert_int_equal(open_all(f), -1);
	assert_int_equal(f->err.kind, ERR_DENIED);
	now = read_name(f, "keyring", &after);
	assert_int_equal(len, after);
	assert_memory_equal(before, now, len);
	free(before);
	free(now);
	close_all(f);
}

/* Every byte of both files counts: a flipped bit is noticed when the file is opened, or when the value is. */
static void flipped_bits(void **state)
{
	static const char *const names[] = {"keyring", "secrets"};
	struct fixture *f = *state;

	assert_int_equal(put(f, "a", "KEY", VALUE), 0);
	close_all(f);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t len = 0;
		char *bytes = read_name(f, names[i], &len);

		for (size_t at = 0; at < len; at += i ? 7 : 1) {
			bytes[at] ^= 0x10;
			write_name(f, names[i], bytes, len);
			if (open_all(f) == 0) {
				/* Only bytes that nobody reads may change: zeros of heads and rows. */
				const char *v = value_of(f, "a", "KEY");

				assert_true(!*v || str_equal(v, VALUE));
				if (*v)
					assert_int_equal(bytes[at], 0x10);
			}
			close_all(f);
			bytes[at] ^= 0x10;
		}
		write_name(f, names[i], bytes, len);
		free(bytes);
	}
	assert_int_equal(open_all(f), 0);
	assert_string_equal(value_of(f, "a", "KEY"), VALUE);
}

/* A row under another owner or name, or with another host, does not open. */
static void moved_rows(void **state)
{
	static const char *const changes[][2] = {
		{"owner-a", "owner-b"}, {"KEY-A", "KEY-B"}, {"api.example.com", "api.example.evl"}};
	struct fixture *f = *state;
	size_t len = 0;
	char *bytes;

	assert_int_equal(put(f, "owner-a", "KEY-A", VALUE), 0);
	assert_int_equal(put(f, "owner-b", "KEY-X", "other"), 0);
	close_all(f);
	bytes = read_name(f, "secrets", &len);
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		size_t n = strlen(changes[i][0]);
		char *at = memmem(bytes, len, changes[i][0], n);

		assert_non_null(at);
		memcpy(at, changes[i][1], n);
		write_name(f, "secrets", bytes, len);
		assert_int_equal(open_all(f), 0);
		assert_string_equal(
			value_of(f, i == 0 ? "owner-b" : "owner-a", i == 1 ? "KEY-B" : "KEY-A"),
			"");
		assert_int_equal(f->err.kind, ERR_SYSTEM);
		assert_null(strstr(f->err.msg, "live"));
		close_all(f);
		memcpy(at, changes[i][0], n);
	}
	free(bytes);
}

static void cut_short(void **state)
{
	static const char *const names[] = {"keyring", "secrets"};
	struct fixture *f = *state;

	assert_int_equal(put(f, "a", "KEY", VALUE), 0);
	close_all(f);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t len = 0;
		char *bytes = read_name(f, names[i], &len);

		for (size_t n = 0; n < len; n += 61) {
			write_name(f, names[i], bytes, n);
			assert_int_equal(open_all(f), -1);
			close_all(f);
		}
		write_name(f, names[i], bytes, len);
		free(bytes);
	}
	assert_int_equal(open_all(f), 0);
}

/* Killed at any time while it writes: the file is the old one or the new one. */
static void killed_in_the_middle(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(put(f, "a", "KEY", "value 0"), 0);
	for (int round = 0; round < 12; round++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			for (int i = 1;; i++) {
				char value[32];

				snprintf(value, sizeof(value), "value %d", i);
				if (put(f, "a", "KEY", value) < 0)
					_exit(1);
			}
		}
		usleep(3000 + 1700 * (unsigned)round);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		assert_true(WIFSIGNALED(status));
		close_all(f);
		assert_int_equal(open_all(f), 0);
		assert_true(str_starts(value_of(f, "a", "KEY"), "value "));
	}
}

static void another_master(void **state)
{
	unsigned char fresh[KEY_BYTES];
	struct fixture *f = *state;

	memset(fresh, 9, sizeof(fresh));
	assert_int_equal(put(f, "a", "KEY", VALUE), 0);
	assert_int_equal(keyring_rotate(f->keys, fresh, &f->err), 0);
	assert_string_equal(value_of(f, "a", "KEY"), VALUE);
	close_all(f);
	assert_int_equal(open_all(f), -1);
	memcpy(f->master, fresh, sizeof(fresh));
	assert_int_equal(open_all(f), 0);
	assert_string_equal(value_of(f, "a", "KEY"), VALUE);
	assert_int_equal(keyring_shred(f->keys, "a", &f->err), 0);
	assert_string_equal(value_of(f, "a", "KEY"), "");
}

static struct ipc_disk_key new_key(struct fixture *f, const char *owner)
{
	struct ipc_disk_key k = {.id = ""};

	snprintf(k.owner, sizeof(k.owner), "%s", owner);
	assert_int_equal(keyring_disk_get(f->keys, &k, &f->err), 0);
	assert_true(ipc_id_is_valid(k.id));
	return k;
}

/* 0, if the keyring gives the same key again. */
static int has_key(struct fixture *f, const struct ipc_disk_key *k, const char *owner)
{
	struct ipc_disk_key again = {.id = ""};

	memcpy(again.id, k->id, sizeof(again.id));
	snprintf(again.owner, sizeof(again.owner), "%s", owner);
	f->err = (struct err){0};
	if (again.id[0] && keyring_disk_get(f->keys, &again, &f->err) < 0)
		return -1;
	return memcmp(again.key, k->key, sizeof(k->key));
}

static int list_of(const struct ipc_disk_key *k)
{
	int fd = memfd_create("ids", 0);

	assert_int_equal(write(fd, k->id, IPC_ID), IPC_ID);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static off_t ring_size(const struct fixture *f)
{
	struct stat st;

	assert_int_equal(fstatat(f->dir, "keyring", &st, 0), 0);
	return st.st_size;
}

static void keys_of_disks(void **state)
{
	struct fixture *f = *state;
	off_t size;
	struct ipc_disk_key a = new_key(f, "a"), b = new_key(f, "a"), c = new_key(f, "c");
	int fd;

	assert_memory_not_equal(a.key, b.key, sizeof(a.key));
	/* Neither half is the other, nor the key of the file. */
	assert_memory_not_equal(a.key, a.key + 32, 32);
	close_all(f);
	assert_int_equal(open_all(f), 0);
	assert_int_equal(has_key(f, &a, "a"), 0);
	assert_int_equal(has_key(f, &c, "c"), 0);
	/* Another owner's does not open, and nothing is made in its place. */
	assert_int_equal(has_key(f, &a, "c"), -1);
	assert_int_equal(f->err.kind, ERR_SYSTEM);
	assert_int_equal(keyring_disk_erase(f->keys, &a, &f->err), 0);
	assert_int_equal(has_key(f, &a, "a"), -1);
	assert_int_equal(f->err.kind, ERR_NOT_FOUND);
	assert_int_equal(has_key(f, &b, "a"), 0);
	fd = list_of(&c);
	assert_int_equal(keyring_disk_keep(f->keys, fd, &f->err), 0);
	close(fd);
	assert_int_equal(has_key(f, &b, "a"), -1);
	assert_int_equal(has_key(f, &c, "c"), 0);
	size = ring_size(f);
	assert_int_equal(keyring_shred(f->keys, "c", &f->err), 0);
	assert_int_equal(has_key(f, &c, "c"), -1);
	assert_int_equal(f->err.kind, ERR_NOT_FOUND);
	/* The row of the owner, and that of the disk. */
	assert_int_equal(size - ring_size(f), 2 * 256);
}

static void definitions(void **state)
{
	static const char *const bad[] = {
		"",
		"1KEY,host=a.example",
		"KEY",
		"KEY,host=",
		"KEY,host=*.example.com",
		"KEY,host=a.example:0",
		"KEY,host=a.example/x",
		"KEY,host=a.example,env=A,file=/b",
		"KEY,host=a.example,header=Authorization",
		"KEY,host=a.example,header=A: {} {}",
		"KEY,host=a.example,header=A:{}\nB: c",
		"KEY,host=a.example,prefix=a b",
		"KEY,host=a.example,colour=red",
		"KEY,host",
	};
	char one[SECRET_PLACEHOLDER], two[SECRET_PLACEHOLDER];
	struct secret_def d, again;
	struct err e = {0};
	char *text;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(secret_parse(bad[i], &d, &e), -1);
	assert_int_equal(secret_parse("OPENAI_API_KEY", &d, &e), 0);
	assert_string_equal(d.from.env, "OPENAI_API_KEY");
	assert_string_equal(d.rule.hosts[0], "api.openai.com");
	assert_int_equal(
		secret_parse("K,command=pass,command=a\\,b,host=A.Example:8443,host=b.example,"
			     "header=X-Key: v={},uses=3",
			     &d, &e),
		0);
	assert_string_equal(d.from.argv[1], "a,b");
	assert_string_equal(d.rule.hosts[0], "a.example:8443");
	text = secret_format(&d);
	assert_int_equal(secret_parse(text, &again, &e), 0);
	assert_memory_equal(&d, &again, sizeof(d));
	free(text);
	snprintf(d.rule.prefix, sizeof(d.rule.prefix), "sk-");
	assert_int_equal(secret_placeholder(&d.rule, one), 0);
	assert_int_equal(secret_placeholder(&d.rule, two), 0);
	assert_string_not_equal(one, two);
	assert_true(str_starts(one, "sk-"));
	assert_true(secret_is_placeholder(&d.rule, one));
	assert_false(secret_is_placeholder(&d.rule, "sk-e"));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(comes_back),     CASE(is_in_no_file),	  CASE(wrong_master),
		CASE(flipped_bits),   CASE(moved_rows),		  CASE(cut_short),
		CASE(another_master), CASE(killed_in_the_middle), CASE(definitions),
		CASE(keys_of_disks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

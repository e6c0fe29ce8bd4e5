/* Messages between agents: what is signed, what no signature vouches for, and seed 001's ambiguous one. */
#include "keys/agent_keys.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>

#include <cmocka.h>

#define NOW 1700000000000ull

struct fixture {
	char path[64];
	int dir;
	struct keyring *keys;
};

static int set_up(void **state)
{
	static const unsigned char master[KEY_BYTES] = {1};
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e;

	assert_true(sodium_init() >= 0);
	strcpy(f->path, "/tmp/agent-keys-XXXXXX");
	assert_non_null(mkdtemp(f->path));
	f->dir = open(f->path, O_RDONLY | O_DIRECTORY);
	f->keys = keyring_open(f->dir, master, &e);
	assert_non_null(f->keys);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	keyring_close(f->keys);
	unlinkat(f->dir, "keyring", 0);
	close(f->dir);
	rmdir(f->path);
	free(f);
	return 0;
}

static struct agent_message note(void)
{
	return (struct agent_message){.from = "alice",
				      .from_uid = "alicealicealicealice",
				      .to = "bob",
				      .to_uid = "bobbobbobbobbobbobbo",
				      .id = "one",
				      .time_ms = NOW,
				      .trust = 3,
				      .size = 2,
				      .digest = {7}};
}

static void signs_and_verifies(void **state)
{
	struct fixture *f = *state;
	struct agent_message m = note();
	unsigned char key[AGENT_PUBLIC_KEY];
	struct buf bytes = {0};
	struct err e = {0};

	assert_int_equal(agent_sign(f->keys, &m, NOW, &e), 0);
	assert_int_equal(agent_verify(f->keys, &m, &e), 0);
	/* Everybody who has the public key can do so. */
	assert_int_equal(agent_public_key(f->keys, m.from_uid, m.epoch, key, &e), 0);
	agent_message_encode(&m, &bytes);
	assert_int_equal(crypto_sign_verify_detached(m.signature,
						     (const unsigned char *)buf_head(&bytes),
						     bytes.len, key),
			 0);
	buf_done(&bytes);
}

#define CHANGED(...)                                                                               \
	do {                                                                                       \
		struct agent_message c = m;                                                        \
                                                                                                   \
		__VA_ARGS__;                                                                       \
		assert_int_equal(agent_verify(f->keys, &c, &e), -1);                               \
		assert_int_equal(e.kind, ERR_DENIED);                                              \
	} while (0)

static void every_field_counts(void **state)
{
	struct fixture *f = *state;
	struct agent_message m = note();
	struct err e = {0};

	assert_int_equal(agent_sign(f->keys, &m, NOW, &e), 0);
	CHANGED(strcpy(c.from, "alicf"));
	CHANGED(c.from_uid[0] = 'b');
	CHANGED(strcpy(c.to, "bo"));
	CHANGED(c.to_uid[0] = 'a');
	CHANGED(strcpy(c.id, "two"));
	CHANGED(c.kind = AGENT_REPLY; strcpy(c.reply_to, "x"));
	CHANGED(c.kind = AGENT_TASK; c.depth = 1);
	CHANGED(c.time_ms++);
	CHANGED(c.epoch++);
	CHANGED(c.size++);
	CHANGED(c.trust++);
	CHANGED(c.digest[31] ^= 1);
	CHANGED(c.signature[0] ^= 1);
	CHANGED(c.signature[63] ^= 0x80);
	CHANGED(memset(c.signature, 0, sizeof(c.signature)));
}

/* Fields that run into each other: seed 001 joins them with ':', and these two are one there. */
static void no_two_messages_have_the_same_bytes(void **state)
{
	struct agent_message a = note(), b = note();
	struct buf x = {0}, y = {0};
	char joined_a[256], joined_b[256];

	strcpy(a.from, "a");
	strcpy(a.to, "b");
	strcpy(a.id, "c:d");
	strcpy(b.from, "a");
	strcpy(b.to, "b:c");
	strcpy(b.id, "d");
	snprintf(joined_a, sizeof(joined_a), "%s:%s:%s", a.from, a.to, a.id);
	snprintf(joined_b, sizeof(joined_b), "%s:%s:%s", b.from, b.to, b.id);
	assert_string_equal(joined_a, joined_b);
	agent_message_encode(&a, &x);
	agent_message_encode(&b, &y);
	assert_true(x.len != y.len || memcmp(buf_head(&x), buf_head(&y), x.len) != 0);
	/* The same letters, divided otherwise, without any separator. */
	buf_done(&x);
	buf_done(&y);
	strcpy(a.from, "ab");
	strcpy(a.from_uid, "c");
	strcpy(b.from, "a");
	strcpy(b.from_uid, "bc");
	strcpy(b.to, a.to);
	strcpy(b.id, a.id);
	agent_message_encode(&a, &x);
	agent_message_encode(&b, &y);
	assert_int_equal(x.len, y.len);
	assert_true(memcmp(buf_head(&x), buf_head(&y), x.len) != 0);
	buf_done(&x);
	buf_done(&y);
}

static void refuses_what_is_not_of_now(void **state)
{
	static const int64_t off[] = {-AGENT_SIGN_MS - 1, AGENT_SIGN_MS + 1, -(int64_t)NOW};
	struct fixture *f = *state;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(off); i++) {
		struct agent_message m = note();

		m.time_ms = NOW + (uint64_t)off[i];
		e = (struct err){0};
		assert_int_equal(agent_sign(f->keys, &m, NOW, &e), -1);
		assert_int_equal(e.kind, ERR_INVALID);
	}
}

#define NO_MESSAGE(...)                                                                            \
	do {                                                                                       \
		struct agent_message c = note();                                                   \
                                                                                                   \
		__VA_ARGS__;                                                                       \
		assert_int_equal(agent_sign(f->keys, &c, NOW, &e), -1);                            \
		assert_int_equal(e.kind, ERR_INVALID);                                             \
	} while (0)

static void refuses_what_is_no_message(void **state)
{
	struct fixture *f = *state;
	struct err e = {0};

	NO_MESSAGE(c.from[0] = '\0');
	NO_MESSAGE(c.from_uid[0] = '\0');
	NO_MESSAGE(c.to_uid[0] = '\0');
	NO_MESSAGE(strcpy(c.to, "../x"));
	NO_MESSAGE(strcpy(c.id, "a:b"));
	NO_MESSAGE(c.id[0] = '\0');
	NO_MESSAGE(c.kind = AGENT_MESSAGE_KINDS);
	NO_MESSAGE(c.kind = AGENT_REPLY);
	NO_MESSAGE(c.kind = AGENT_TASK);
	NO_MESSAGE(c.depth = 1);
	NO_MESSAGE(strcpy(c.reply_to, "x"));
	NO_MESSAGE(c.size = AGENT_MESSAGE_CONTENT + 1);
}

static void keys_differ(void **state)
{
	struct fixture *f = *state;
	unsigned char a[AGENT_PUBLIC_KEY], b[AGENT_PUBLIC_KEY];
	struct err e;

	assert_int_equal(agent_public_key(f->keys, "a", 0, a, &e), 0);
	assert_int_equal(agent_public_key(f->keys, "a", 0, b, &e), 0);
	assert_memory_equal(a, b, sizeof(a));
	assert_int_equal(agent_public_key(f->keys, "a", 1, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(agent_public_key(f->keys, "b", 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	/* An owner of this name takes no agent's key along. */
	assert_int_equal(keyring_shred(f->keys, "signer", &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signs_and_verifies),
		cmocka_unit_test(every_field_counts),
		cmocka_unit_test(no_two_messages_have_the_same_bytes),
		cmocka_unit_test(refuses_what_is_not_of_now),
		cmocka_unit_test(refuses_what_is_no_message),
		cmocka_unit_test(keys_differ),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* guest: files, trees, archives, search and watching. */
#include "driver.h"

#include "base/str.h"
#include "guest/guest.h"
#include "guest/files/tar_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
	struct driver *d = calloc(1, sizeof(*d));

	driver_start(d);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	driver_stop(*state);
	free(*state);
	return 0;
}

static void shell(struct driver *d, const char *line)
{
	struct ran r;

	driver_shell(d, line, &r);
	if (r.status)
		print_error("%s: %s", line, buf_head(&r.err));
	assert_int_equal(r.status, 0);
	ran_done(&r);
}

/* What a line prints. */
static void expect_shell(struct driver *d, const char *line, const char *expected)
{
	struct ran r;

	driver_shell(d, line, &r);
	assert_string_equal(buf_head(&r.out), expected);
	ran_done(&r);
}

/* ---- contents ---- */

static void test_round_trip(void **state)
{
	struct driver *d = *state;
	size_t len = 3000000, got;
	char *bytes = malloc(len), *back;

	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)(i * 7 + i / 251);
	driver_write(d, "a/b/c", bytes, len);
	back = driver_read(d, "a/b/c", 0, UINT64_MAX, &got);
	assert_int_equal(got, len);
	assert_memory_equal(back, bytes, len);
	free(back);
	back = driver_read(d, "a/b/c", 1000, 100000, &got);
	assert_int_equal(got, 100000);
	assert_memory_equal(back, bytes + 1000, 100000);
	free(back);
	back = driver_read(d, "a/b/c", len + 5, 10, &got);
	assert_int_equal(got, 0);
	free(back);
	free(bytes);
	expect_shell(d, "ls -A a/b; stat -c %a a/b/c", "c\n644\n");
}

static uint32_t begin_write(struct driver *d, const char *name, uint64_t offset)
{
	struct buf b = driver_on(d, name);
	uint32_t stream;

	pack_u32(&b, 0);
	pack_u64(&b, offset);
	pack_u8(&b, 0);
	stream = driver_open(d, G_WRITE, &b);
	free(driver_expect(d, stream, G_OK));
	return stream;
}

static void test_abort_leaves_the_old(void **state)
{
	struct driver *d = *state;
	uint32_t stream;
	size_t len;
	char *text;

	driver_write(d, "f", "old", 3);
	shell(d, "chmod 600 f");
	stream = begin_write(d, "f", UINT64_MAX);
	driver_send(d, stream, G_DATA, "half", 4);
	driver_send(d, stream, G_END, NULL, 0);
	driver_do(d, G_PING, NULL);
	text = driver_read(d, "f", 0, UINT64_MAX, &len);
	assert_string_equal(text, "old");
	free(text);
	expect_shell(d, "ls -A; stat -c %a f", ".socket\nf\n600\n");
	/* Its mode stays, too. */
	stream = begin_write(d, "f", UINT64_MAX);
	driver_feed(d, stream, "new", 3);
	free(driver_expect(d, stream, G_DONE));
	free(driver_expect(d, stream, G_END));
	expect_shell(d, "ls -A; stat -c %a f; cat f", ".socket\nf\n600\nnew");
}

static void test_write_at_offset(void **state)
{
	struct driver *d = *state;
	uint32_t stream;

	driver_write(d, "f", "0123456789", 10);
	stream = begin_write(d, "f", 4);
	driver_feed(d, stream, "xy", 2);
	free(driver_expect(d, stream, G_DONE));
	free(driver_expect(d, stream, G_END));
	expect_shell(d, "cat f", "0123xy6789");
}

static void test_links_are_followed_and_stay(void **state)
{
	struct driver *d = *state;

	shell(d, "mkdir real; ln -s real/f link");
	driver_write(d, "real/f", "1", 1);
	driver_write(d, "link", "2", 1);
	expect_shell(d, "readlink link; cat real/f", "real/f\n2");
}

static void test_what_cannot_be_read(void **state)
{
	struct driver *d = *state;
	struct buf b;

	shell(d, "mkdir dir; mkfifo fifo");
	b = driver_on(d, "dir");
	pack_u64(&b, 0);
	pack_u64(&b, 10);
	assert_int_equal(driver_refused(d, G_READ, &b), EISDIR);
	b = driver_on(d, "fifo");
	pack_u64(&b, 0);
	pack_u64(&b, 10);
	assert_int_equal(driver_refused(d, G_READ, &b), EINVAL);
	b = driver_on(d, "none");
	pack_u64(&b, 0);
	pack_u64(&b, 10);
	assert_int_equal(driver_refused(d, G_READ, &b), ENOENT);
	/* Not the guest's own memory. */
	pack_str(&b, "/proc/self/mem");
	pack_u64(&b, 0);
	pack_u64(&b, 10);
	assert_int_equal(driver_refused(d, G_READ, &b), EACCES);
}

/* ---- names ---- */

static void test_names(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_on(d, "x/y/z");

	pack_u32(&b, 0700);
	pack_u8(&b, 1);
	driver_do(d, G_MKDIR, &b);
	b = driver_on(d, "x/y/z");
	pack_u32(&b, 0700);
	pack_u8(&b, 0);
	assert_int_equal(driver_refused(d, G_MKDIR, &b), EEXIST);
	b = driver_on(d, "x/y");
	pack_str(&b, driver_path(d, "moved"));
	pack_u8(&b, 0);
	driver_do(d, G_MOVE, &b);
	shell(d, "touch moved/z/f target");
	b = driver_on(d, "moved/z/f");
	pack_str(&b, driver_path(d, "target"));
	pack_u8(&b, 0);
	assert_int_equal(driver_refused(d, G_MOVE, &b), EEXIST);
	b = driver_on(d, "moved");
	pack_u8(&b, 0);
	assert_int_equal(driver_refused(d, G_REMOVE, &b), ENOTEMPTY);
	shell(d, "chmod 0 moved/z");
	b = driver_on(d, "moved");
	pack_u8(&b, 1);
	driver_do(d, G_REMOVE, &b);
	expect_shell(d, "ls", "target\nx\n");
	b = driver_on(d, "target");
	pack_u32(&b, 04755);
	pack_u32(&b, UINT32_MAX);
	pack_u32(&b, UINT32_MAX);
	assert_int_equal(driver_refused(d, G_CHMOD, &b), EPERM);
	b = driver_on(d, "target");
	pack_u32(&b, 0751);
	pack_u32(&b, UINT32_MAX);
	pack_u32(&b, UINT32_MAX);
	driver_do(d, G_CHMOD, &b);
	expect_shell(d, "stat -c %a target", "751\n");
}

static void test_xattrs(void **state)
{
	struct driver *d = *state;
	struct buf b;
	struct frame *f;
	struct unpack u;
	char name[64], value[64];

	driver_write(d, "f", "", 0);
	if (setxattr(driver_path(d, "f"), "user.try", "", 0, 0) < 0)
		skip();
	removexattr(driver_path(d, "f"), "user.try");
	b = driver_on(d, "f");
	pack_str(&b, "user.colour");
	pack_str(&b, "red");
	pack_u8(&b, 0);
	driver_do(d, G_XATTR_SET, &b);
	b = driver_on(d, "f");
	pack_str(&b, "user.overlay.opaque");
	pack_str(&b, "y");
	pack_u8(&b, 0);
	assert_int_equal(driver_refused(d, G_XATTR_SET, &b), EPERM);
	b = driver_on(d, "f");
	f = driver_ask(d, G_XATTR_LIST, &b);
	u = unpack_from(f->payload, f->len);
	assert_int_equal(unpack_u32(&u), 1);
	unpack_str(&u, name, sizeof(name));
	unpack_str(&u, value, sizeof(value));
	assert_string_equal(name, "user.colour");
	assert_string_equal(value, "red");
	free(f);
}

static size_t count_items(struct driver *d, uint8_t type, struct buf *b)
{
	uint32_t stream = driver_open(d, type, b);
	size_t count = 0;
	struct frame *f;

	free(driver_expect(d, stream, G_OK));
	while ((f = driver_next(d, stream)) && f->type == G_ITEM) {
		count++;
		free(f);
	}
	assert_non_null(f);
	assert_int_equal(f->type, G_END);
	free(f);
	return count;
}

static size_t count_listed(struct driver *d, uint32_t depth)
{
	struct buf b = driver_on(d, "");

	pack_u32(&b, depth);
	return count_items(d, G_LIST, &b);
}

static void test_list(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_on(d, "none");

	shell(d,
	      "mkdir -p a/b; touch a/b/c; ln -s a link; for i in $(seq 3000); do : >a/b/$i; done");
	assert_int_equal(count_listed(d, 1), 3); /* with the socket */
	assert_int_equal(count_listed(d, 2), 4);
	assert_int_equal(count_listed(d, 9), 3005);
	pack_u32(&b, 1);
	assert_int_equal(driver_refused(d, G_LIST, &b), ENOENT);
}

/* ---- search, watch ---- */

static size_t count_found(struct driver *d, const char *glob, const char *content, uint8_t flags,
			  uint32_t max)
{
	struct buf b = driver_on(d, "");

	pack_str(&b, glob);
	pack_str(&b, content);
	pack_u8(&b, flags);
	pack_u32(&b, max);
	return count_items(d, G_SEARCH, &b);
}

static void test_search(void **state)
{
	struct driver *d = *state;

	shell(d,
	      "mkdir -p a/b .hidden; printf 'one\\ntwo\\nThree 3' >a/b/x.txt; cp a/b/x.txt y.txt;"
	      "cp y.txt .hidden/; printf 'two\\0two\\n' >binary; "
	      "head -c 200000 /dev/zero | tr '\\0' t >long; printf 'wo\\ntwo' >>long");
	assert_int_equal(count_found(d, "*.txt", "", 0, 0), 2);
	assert_int_equal(count_found(d, "**/*.txt", "", 0, 0), 2);
	assert_int_equal(count_found(d, "a/**", "", 0, 0), 2);
	assert_int_equal(count_found(d, "a/*", "", 0, 0), 1);
	assert_int_equal(count_found(d, "*.txt", "two", 0, 0), 2);
	assert_int_equal(count_found(d, "*.txt", "two", GUEST_SEARCH_HIDDEN, 0), 3);
	assert_int_equal(count_found(d, "", "^T[hx]ree [0-9]$", GUEST_SEARCH_REGEX, 0), 2);
	assert_int_equal(count_found(d, "", "three", GUEST_SEARCH_NOCASE, 0), 2);
	assert_int_equal(count_found(d, "", "three", 0, 0), 0);
	assert_int_equal(count_found(d, "*.txt", "two", 0, 1), 1);
	assert_int_equal(count_found(d, "long", "two", 0, 0), 2);
	struct buf b = driver_on(d, "");

	pack_str(&b, "");
	pack_str(&b, "(");
	pack_u8(&b, GUEST_SEARCH_REGEX);
	pack_u32(&b, 0);
	assert_int_equal(driver_refused(d, G_SEARCH, &b), EINVAL);
}

/* Reads changes until this one has come. */
static void expect_change(struct driver *d, uint32_t stream, enum guest_change change,
			  const char *name)
{
	for (;;) {
		struct frame *f = driver_expect(d, stream, G_ITEM);
		struct unpack u = unpack_from(f->payload, f->len);
		int got = unpack_u8(&u);
		char path[512];
		bool found;

		unpack_str(&u, path, sizeof(path));
		found = got == (int)change && str_equal(path, driver_path(d, name));
		free(f);
		if (found)
			return;
	}
}

static void test_watch(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_on(d, "");
	uint32_t stream;

	shell(d, "mkdir -p a/b");
	pack_u8(&b, 1);
	stream = driver_open(d, G_WATCH, &b);
	free(driver_expect(d, stream, G_OK));
	shell(d, "echo x >a/b/f");
	expect_change(d, stream, GUEST_CREATED, "a/b/f");
	expect_change(d, stream, GUEST_WRITTEN, "a/b/f");
	driver_write(d, "a/b/f", "new", 3);
	expect_change(d, stream, GUEST_WRITTEN, "a/b/f");
	shell(d, "mkdir -p new/deep; echo >new/deep/f");
	expect_change(d, stream, GUEST_CREATED, "new/deep/f");
	shell(d, "mv new renamed");
	expect_change(d, stream, GUEST_RENAMED, "new");
	expect_change(d, stream, GUEST_CREATED, "renamed");
	shell(d, "chmod 700 renamed/deep/f; rm renamed/deep/f");
	expect_change(d, stream, GUEST_CHMOD, "renamed/deep/f");
	expect_change(d, stream, GUEST_REMOVED, "renamed/deep/f");
	driver_send(d, stream, G_END, NULL, 0);
	driver_do(d, G_PING, NULL);
}

/* What happened to a file is told although it is gone before the guest gets around to look. */
static void test_watch_what_is_gone(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_on(d, "");
	uint32_t stream;

	shell(d, "echo x >f");
	pack_u8(&b, 0);
	stream = driver_open(d, G_WATCH, &b);
	free(driver_expect(d, stream, G_OK));
	assert_int_equal(kill(d->pid, SIGSTOP), 0);
	assert_int_equal(chmod(driver_path(d, "f"), 0700), 0);
	assert_int_equal(unlink(driver_path(d, "f")), 0);
	assert_int_equal(kill(d->pid, SIGCONT), 0);
	expect_change(d, stream, GUEST_CHMOD, "f");
	expect_change(d, stream, GUEST_REMOVED, "f");
	driver_send(d, stream, G_END, NULL, 0);
	driver_do(d, G_PING, NULL);
}

/* ---- archives ---- */

static struct buf tar_out(struct driver *d, const char *name, uint8_t flags)
{
	struct buf b = driver_on(d, name), all = {0};
	uint32_t stream;
	struct frame *f;

	pack_u8(&b, flags);
	stream = driver_open(d, G_TAR_OUT, &b);
	free(driver_expect(d, stream, G_OK));
	while ((f = driver_next(d, stream)) && f->type == G_DATA) {
		buf_add(&all, f->payload, f->len);
		free(f);
	}
	assert_non_null(f);
	assert_int_equal(f->type, G_END);
	free(f);
	assert_true(all.len >= 1024 && all.len % 512 == 0);
	return all;
}

/* 0, or the errno of its error. */
static int tar_in(struct driver *d, const char *name, uint8_t flags, const struct buf *archive)
{
	struct buf b = driver_on(d, name);
	struct frame *f;
	struct unpack u;
	uint32_t stream;
	int rc;

	pack_u8(&b, flags);
	stream = driver_open(d, G_TAR_IN, &b);
	free(driver_expect(d, stream, G_OK));
	driver_feed(d, stream, buf_head(archive), archive->len);
	while ((f = driver_next(d, stream)) && f->type == G_CREDIT)
		free(f);
	assert_non_null(f);
	u = unpack_from(f->payload, f->len);
	rc = f->type == G_ERROR ? (int)unpack_u32(&u) : 0;
	if (!rc) {
		assert_int_equal(f->type, G_DONE);
		free(driver_expect(d, stream, G_END));
	}
	free(f);
	return rc;
}

static const char make_tree[] =
	"mkdir -p t/sub/dir t/empty 't/sp ace'; cd t; echo hello >f; ln f sub/hard; ln -s ../f "
	"sub/sym;"
	"ln -s /nowhere dangling; mkfifo fifo; printf x >\"$(printf 'odd\\nname\\377')\"; : "
	">ümlaut;"
	"n=$(printf '%0200d' 1); echo long >$n; mkdir -p $n.d/$n.d; echo deep >$n.d/$n.d/$n;"
	"ln $n.d/$n.d/$n $n.hard; truncate -s 5M holes; printf data | dd of=holes bs=1 "
	"seek=3000000 "
	"conv=notrunc 2>/dev/null; truncate -s 3M hole; touch -d '2001-02-03 04:05:06.123456789' f;"
	"touch -d '1960-01-01 00:00:00.5' sub/dir; chmod 500 sub/dir; chmod 0 empty; "
	"echo secret >locked; chmod 0 locked; for i in $(seq 500); do echo $i >'sp ace'/$i; done";

/* Everything about a tree that should come back; times of links to others' inodes included. */
static const char describe[] =
	"find . -printf '%p|%y|%m|%n|%s|%T@|%l\\n' | LC_ALL=C sort; chmod -R u+r . ; "
	"find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";

static char *described(struct driver *d, const char *dir)
{
	char line[1024];
	struct ran r;

	snprintf(line, sizeof(line), "cd %s && touch -d @1 . && %s", dir, describe);
	driver_shell(d, line, &r);
	assert_true(r.out.len > 1000);
	buf_done(&r.err);
	return r.out.data;
}

static void test_tar_round_trip(void **state)
{
	struct driver *d = *state;
	bool attributes;
	struct buf archive;
	struct stat st;
	char value[16] = "", *before, *after;

	shell(d, make_tree);
	attributes = setxattr(driver_path(d, "t/f"), "user.k", "a=b\n", 5, 0) == 0 &&
		     setxattr(driver_path(d, "t/sub"), "user.dir", "v", 1, 0) == 0;
	shell(d, "touch -d '2001-02-03 04:05:06.123456789' t/f");
	archive = tar_out(d, "t", 0);
	assert_true(archive.len < 2 << 20); /* holes are not in it */
	assert_int_equal(tar_in(d, "back", GUEST_TAR_STRICT, &archive), 0);
	before = described(d, "t");
	after = described(d, "back");
	assert_string_equal(before, after);
	free(before);
	free(after);
	assert_int_equal(stat(driver_path(d, "back/hole"), &st), 0);
	assert_true(st.st_size == 3 << 20 && st.st_blocks < 100);
	if (attributes) {
		assert_int_equal(getxattr(driver_path(d, "back/f"), "user.k", value, 16), 5);
		assert_memory_equal(value, "a=b\n", 5);
		assert_int_equal(getxattr(driver_path(d, "back/sub"), "user.dir", value, 16), 1);
	}
	/* Over what is there already. */
	assert_int_equal(tar_in(d, "back", 0, &archive), 0);
	buf_done(&archive);
}

/* Others write archives as well. */
static void test_tar_of_others(void **state)
{
	static const char *const makes[] = {"tar -cf o.tar -C t .",
					    "tar --format=gnu -cf o.tar -C t .",
					    "tar --format=pax -S -cf o.tar -C t ."};
	struct driver *d = *state;

	if (access("/bin/tar", X_OK) < 0 && access("/usr/bin/tar", X_OK) < 0)
		skip();
	shell(d,
	      "mkdir -p t/d; n=$(printf '%0150d' 1); echo a >t/$n; ln t/$n t/d/l; ln -s $n t/d/s; "
	      "truncate -s 2M t/sparse; echo x >>t/sparse");
	for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
		struct buf archive = {0};

		shell(d, makes[i]);
		archive.data = driver_read(d, "o.tar", 0, UINT64_MAX, &archive.len);
		shell(d, "rm -rf back");
		assert_int_equal(tar_in(d, "back", 0, &archive), 0);
		expect_shell(d, "diff -r --no-dereference t back && stat -c %h back/d/l", "2\n");
		free(archive.data);
	}
	/* And read ours. */
	struct buf ours = tar_out(d, "t", 0);

	driver_write(d, "ours.tar", buf_head(&ours), ours.len);
	buf_done(&ours);
	expect_shell(d,
		     "rm -rf back; mkdir back; tar -C back -xf ours.tar && "
		     "diff -r --no-dereference t back && stat -c %h back/d/l",
		     "2\n");
}

/* One entry by hand. */
static void add_entry(struct buf *b, char type, const char *name, const char *link,
		      const char *mode)
{
	char h[512] = "";
	unsigned sum = 0;

	snprintf(h, 100, "%s", name);
	snprintf(h + 100, 8, "%s", mode);
	snprintf(h + 124, 12, "%011o", 0);
	snprintf(h + 136, 12, "%011o", 1000000000);
	memset(h + 148, ' ', 8);
	h[156] = type;
	snprintf(h + 157, 100, "%s", link);
	memcpy(h + 257, "ustar\00000", 8);
	snprintf(h + 329, 8, "%07o", 0);
	snprintf(h + 337, 8, "%07o", 0);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	buf_add(b, h, sizeof(h));
}

static void test_tar_does_not_lead_out(void **state)
{
	static const struct {
		char type;
		const char *name, *link, *mode;
		int plain, strict; /* errno */
	} rows[] = {
		{'0', "../x", "", "0000644", EPERM, EPERM},
		{'0', "a/../../x", "", "0000644", EPERM, EPERM},
		{'0', "/x", "", "0000644", 0, EPERM},
		{'0', "evil/x", "", "0000644", ENOTDIR, ENOTDIR},
		{'5', "evil/x", "", "0000755", ENOTDIR, ENOTDIR},
		{'1', "x", "../outside/f", "0000644", EPERM, EPERM},
		{'1', "x", "evil/f", "0000644", ENOTDIR, ENOTDIR},
		{'0', "suid", "", "0004755", 0, EPERM},
		{'3', "dev", "", "0000644", 0, EPERM},
		{'4', "dev", "", "0000644", 0, EPERM},
	};
	struct driver *d = *state;

	shell(d, "mkdir outside; echo 1 >outside/f");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int strict = 0; strict < 2; strict++) {
			struct buf archive = {0};
			static const char zeros[1024];

			add_entry(&archive, '2', "evil", "../outside", "0000777");
			add_entry(&archive, rows[i].type, rows[i].name, rows[i].link, rows[i].mode);
			buf_add(&archive, zeros, sizeof(zeros));
			shell(d, "rm -rf box");
			assert_int_equal(tar_in(d, "box", strict ? GUEST_TAR_STRICT : 0, &archive),
					 strict ? rows[i].strict : rows[i].plain);
			buf_done(&archive);
			expect_shell(d, "ls outside; test -u box/suid; echo $?; ls -d x", "f\n1\n");
		}
	}
}

static void test_tar_upper(void **state)
{
	static const char zeros[1024];
	struct driver *d = *state;
	struct buf archive = {0};
	const char *pax = "19 CLOCHE.opaque=1\n";
	char block[512] = "";

	add_entry(&archive, '3', "gone", "", "0000000");
	add_entry(&archive, '3', "never", "", "0000000");
	add_entry(&archive, 'x', "PaxHeader", "", "0000644");
	memcpy(buf_head(&archive) + archive.len - 512 + 124, "00000000023", 12);
	memset(buf_head(&archive) + archive.len - 512 + 148, ' ', 8);
	unsigned sum = 0;

	for (size_t i = 0; i < 512; i++)
		sum += (unsigned char)buf_head(&archive)[archive.len - 512 + i];
	snprintf(buf_head(&archive) + archive.len - 512 + 148, 8, "%06o", sum);
	memcpy(block, pax, strlen(pax));
	buf_add(&archive, block, sizeof(block));
	add_entry(&archive, '5', "fresh", "", "0000755");
	add_entry(&archive, '0', "fresh/f", "", "0000644");
	add_entry(&archive, '5', "kept", "", "0000755");
	buf_add(&archive, zeros, sizeof(zeros));
	shell(d, "mkdir -p box/gone/a box/fresh/old box/kept; touch box/kept/k");
	assert_int_equal(tar_in(d, "box", GUEST_TAR_UPPER | GUEST_TAR_STRICT, &archive), 0);
	expect_shell(d, "cd box; find . | sort", ".\n./fresh\n./fresh/f\n./kept\n./kept/k\n");
	buf_done(&archive);
}

/* `cloche-guest pack` and `check`, as the broker runs them. */
static int run_tool(struct driver *d, int (*tool)(void), const char *dir, const char *in,
		    const char *out)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (chdir(driver_path(d, dir)) < 0 || !freopen(driver_path(d, in), "r", stdin) ||
		    !freopen(driver_path(d, out), "w", stdout) ||
		    !freopen("/dev/null", "w", stderr))
			_exit(99);
		_exit(tool());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void test_pack_and_check(void **state)
{
	struct driver *d = *state;
	struct buf bad = {0};
	struct buf archive = {0};

	shell(d, "mkdir -p s/rootup/usr/bin s/ws/dir s/home s/tmp; echo 1 >s/rootup/usr/bin/new; "
		 "echo 2 >s/ws/dir/f; echo 3 >s/home/.rc; echo 4 >s/tmp/not; : >empty");
	assert_int_equal(run_tool(d, guest_pack, "s", "empty", "p.tar"), 0);
	assert_int_equal(run_tool(d, guest_check, "s", "p.tar", "empty"), 0);
	archive.data = driver_read(d, "p.tar", 0, UINT64_MAX, &archive.len);
	assert_int_equal(tar_in(d, "root", GUEST_TAR_UPPER | GUEST_TAR_STRICT, &archive), 0);
	expect_shell(d, "cd root; find . -type f | sort | xargs grep .",
		     "./home/user/.rc:3\n./usr/bin/new:1\n./workspace/dir/f:2\n");
	free(archive.data);
	add_entry(&bad, '0', "suid", "", "0004755");
	driver_write(d, "bad.tar", buf_head(&bad), bad.len);
	buf_done(&bad);
	assert_int_equal(run_tool(d, guest_check, "s", "bad.tar", "empty"), 1);
	driver_write(d, "bad.tar", "garbage", 7);
	assert_int_equal(run_tool(d, guest_check, "s", "bad.tar", "empty"), 1);
}

static void test_move_between_file_systems(void **state)
{
	struct driver *d = *state;
	char other[64] = "/dev/shm/cloche-guest-XXXXXX", to[80], line[200];
	struct stat a, b;
	struct buf r;

	if (stat("/dev/shm", &a) < 0 || stat("/tmp", &b) < 0 || a.st_dev == b.st_dev ||
	    !mkdtemp(other))
		skip();
	snprintf(to, sizeof(to), "%s/t", other);
	shell(d, "mkdir -p t/s; echo 1 >t/f; ln t/f t/s/l; ln -s f t/y; chmod 500 t/s");
	r = driver_on(d, "t");
	pack_str(&r, to);
	pack_u8(&r, 0);
	driver_do(d, G_MOVE, &r);
	snprintf(line, sizeof(line), "ls; cd %s; find t | sort; stat -c %%h%%a t/f t/s", other);
	expect_shell(d, line, "t\nt/f\nt/s\nt/s/l\nt/y\n2644\n2500\n");
	snprintf(line, sizeof(line), "chmod -R u+w %s; rm -rf %s", other, other);
	shell(d, line);
}

/* ---- ports ---- */

static void test_connect(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct driver *d = *state;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
	socklen_t len = sizeof(a);
	struct buf b = {0};
	struct frame *f;
	uint32_t stream;
	char text[8] = "";

	assert_int_equal(bind(listener, (void *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (void *)&a, &len), 0);
	pack_u32(&b, ntohs(a.sin_port));
	stream = driver_open(d, G_CONNECT, &b);
	free(driver_expect(d, stream, G_OK));
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	driver_send(d, stream, G_DATA, "ping", 4);
	driver_send(d, stream, G_CLOSE, NULL, 0);
	assert_int_equal(recv(peer, text, sizeof(text), MSG_WAITALL), 4);
	assert_string_equal(text, "ping");
	/* Half closed: it may still answer. */
	assert_int_equal(send(peer, "pong", 4, 0), 4);
	close(peer);
	f = driver_expect(d, stream, G_DATA);
	assert_int_equal(f->len, 4);
	free(f);
	free(driver_expect(d, stream, G_CLOSE));
	free(driver_expect(d, stream, G_END));
	close(listener);
	pack_u32(&b, ntohs(a.sin_port));
	assert_int_equal(driver_refused(d, G_CONNECT, &b), ECONNREFUSED);
	pack_u32(&b, 70000);
	assert_int_equal(driver_refused(d, G_CONNECT, &b), EINVAL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_round_trip),
		T(test_abort_leaves_the_old),
		T(test_write_at_offset),
		T(test_links_are_followed_and_stay),
		T(test_what_cannot_be_read),
		T(test_names),
		T(test_xattrs),
		T(test_list),
		T(test_search),
		T(test_watch),
		T(test_watch_what_is_gone),
		T(test_tar_round_trip),
		T(test_tar_of_others),
		T(test_tar_does_not_lead_out),
		T(test_tar_upper),
		T(test_pack_and_check),
		T(test_move_between_file_systems),
		T(test_connect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

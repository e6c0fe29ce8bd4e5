/* Any bytes as an audit log: the verifier, and the role that finds its end in it. */
#include "fuzz.h"

#include "audit/audit.h"
#include "audit/chain.h"
#include "audit/log.h"
#include "base/auto.h"
#include "base/str.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

static char dir[] = "/tmp/cloche-fuzz-audit-XXXXXX";

static void clean_up(void)
{
	static const char *const names[] = {"a", ".reserve"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		auto_free char *file = str_format("%s/%s", dir, names[i]);

		unlink(file);
	}
	rmdir(dir);
}

static const char *log_file(void)
{
	static char file[sizeof(dir) + 8];

	if (!*file) {
		PROMISE(sodium_init() >= 0 && mkdtemp(dir));
		atexit(clean_up);
		snprintf(file, sizeof(file), "%s/a", dir);
	}
	return file;
}

static void check_lines(const char *text, size_t size)
{
	const struct chain_key none = {0};
	struct chain_view v;

	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t len = end ? (size_t)(end - text) - at : size - at;

		if (chain_parse(text + at, len, &v)) {
			PROMISE(v.hashed_len < len);
			chain_check(&none, text + at, &v);
		}
		at += len + 1;
	}
}

/* Whatever was there: what is appended is found again, or the log is refused as a whole. */
static void append_to(const char *file)
{
	auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct audit_log_settings s = {.dir = fd, .name = "a"};
	struct audit_entry entry = {.who = "fuzz", .what = "fuzz", .verdict = "allow"};
	char *files[] = {(char *)(uintptr_t)file};
	struct audit_verdict before, after;
	struct err e = {0};
	bool good = audit_verify(files, 1, NULL, NULL, &before, &e) == 0;
	struct audit_log *l = audit_log_open(&s, &e);

	PROMISE(l || e.kind != ERR_NONE);
	if (!l)
		return;
	PROMISE(audit_log_append(l, &entry, 1, &e) == 0);
	audit_log_close(l);
	if (!good)
		return;
	PROMISE(audit_verify(files, 1, NULL, NULL, &after, &e) == 0);
	PROMISE(after.records > before.records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *file = log_file();
	FILE *f = fopen(file, "we");

	PROMISE(f && fwrite(data, 1, size, f) == size);
	PROMISE(fclose(f) == 0);
	check_lines((const char *)data, size);
	append_to(file);
	return 0;
}

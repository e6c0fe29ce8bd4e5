/* `cloche audit`: verifies the decision log, and shows the last decisions. */
#include "cli/operator/cloched.h"

#include "audit/audit.h"
#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "policy/config.h"

#include <dirent.h>
#include <poll.h>
#include <sys/inotify.h>

enum { EXIT_BROKEN = 1 };

/* ---- which files ---- */

/* Lists the audit file and its rotated predecessors. */
static int find_files(const char *file, struct list *ret, struct err *e)
{
	const char *slash = strrchr(file, '/');
	auto_free char *dir = str_format("%.*s", slash > file ? (int)(slash - file) : 1, file);
	const char *name = slash + 1;
	DIR *d = opendir(dir);
	struct dirent *entry;

	if (!d)
		return err_sys(e, "cannot list %s", dir);
	while ((entry = readdir(d))) {
		const char *rest = entry->d_name + strlen(name);

		if (strncmp(entry->d_name, name, strlen(name)) == 0 &&
		    (!*rest || (rest[0] == '.' && strlen(rest) == 21 &&
				strspn(rest + 1, "0123456789") == 20)))
			list_take(ret, str_format("%s/%s", dir, entry->d_name));
	}
	closedir(d);
	return ret->count ? 0 : err_set(e, ERR_NOT_FOUND, "there is no audit file %s", file);
}

/* ---- verify ---- */

static int print_verdict(const struct audit_verdict *v, bool json)
{
	if (json)
		return print_json(json_pack(
			"{s:b, s:I, s:I, s:I, s:I, s:I, s:s}", "ok", 1, "records",
			(json_int_t)v->records, "first_seq", (json_int_t)v->first_seq, "last_seq",
			(json_int_t)v->last_seq, "repairs", (json_int_t)v->repairs, "unkeyed",
			(json_int_t)v->unkeyed, "head", v->head));
	printf("ok: %" PRIu64 " records, %" PRIu64 " to %" PRIu64 "\n", v->records, v->first_seq,
	       v->last_seq);
	if (v->repairs)
		printf("%" PRIu64 " torn by a kill or a full disk, and noted as such\n",
		       v->repairs);
	if (v->first_seq > 1)
		printf("what came before record %" PRIu64 " is not among these files\n",
		       v->first_seq);
	if (v->unkeyed)
		printf("%" PRIu64
		       " have no key: whoever can write the file could have made them all "
		       "anew\n",
		       v->unkeyed);
	printf("head: %s\n", v->head);
	return finish_stdout(0);
}

static int verify_failed(const struct err *e, bool json)
{
	char text[sizeof(e->msg)];

	if (e->kind != ERR_CONFLICT)
		return cli_fail(e);
	str_sanitise(text, sizeof(text), e->msg, strlen(e->msg));
	if (json)
		print_json(json_pack("{s:b, s:s}", "ok", 0, "error", text));
	else
		fprintf(stderr, "%s\n", text);
	return EXIT_BROKEN;
}

static int verify_log(struct verb_call *v, struct err *e)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));
	const char *key = verb_text(v, "key-file");
	struct audit_verdict verdict;
	struct list files = {0};
	int rc = 0;

	for (int i = 0; i < v->count; i++)
		list_add(&files, v->args[i]);
	/*
	 * The configured key is for the configured log only; files that are named need --key-file.
	 */
	if (!v->count) {
		rc = client_config(c, verb_text(v, "config"), e);
		if (rc == 0)
			rc = find_files(c->audit.file, &files, e);
		if (rc == 0 && !key && *c->audit.key_file)
			key = c->audit.key_file;
	}
	if (rc == 0)
		rc = audit_verify(files.items, files.count, key, verb_text(v, "head"), &verdict, e);
	list_done(&files);
	return rc < 0 ? verify_failed(e, v->json) : print_verdict(&verdict, v->json);
}

static const struct verb_option verify_options[] = {
	{"head", 0, "HASH", "the last head that you know; it must be in there", NULL},
	{"key-file", 0, "FILE", "the key (as configured)", NULL},
	{"config", 0, "FILE", "the daemon's configuration", NULL},
	{"json", 0, NULL, "an object", NULL},
};

/* ---- tail ---- */

static void print_record(const char *line, bool json)
{
	static const char *const keys[] = {"time", "verdict", "what", "who", "target", "why"};
	json_t *r = json ? NULL : json_loads(line, 0, NULL);
	const char *v[ARRAY_LEN(keys)];
	char clean[2048], text[2048];

	if (!r) {
		puts(line);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		v[i] = text_at(r, keys[i]) ? text_at(r, keys[i]) : "";
	snprintf(text, sizeof(text), "%.19s %-5s %-18s %s%s%s %s%s%s", v[0], v[1], v[2], v[3],
		 *v[4] ? " " : "", v[4], *v[5] ? "(" : "", v[5], *v[5] ? ")" : "");
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	puts(clean);
	json_decref(r);
}

/* Where the last n lines begin. */
static off_t last_lines(FILE *f, long n)
{
	off_t at, end;
	int c;

	fseeko(f, 0, SEEK_END);
	end = at = ftello(f);
	for (at = end - 1; at > 0; at--) {
		fseeko(f, at - 1, SEEK_SET);
		c = fgetc(f);
		if (c == '\n' && --n == 0)
			return at;
	}
	return 0;
}

/* Prints whole lines, and leaves the position at the start of the next one. */
static void print_lines(FILE *f, bool json)
{
	auto_free char *line = NULL;
	size_t room = 0;
	off_t start = ftello(f);
	ssize_t n;

	while ((n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n') {
		line[n - 1] = '\0';
		print_record(line, json);
		start = ftello(f);
	}
	clearerr(f);
	fseeko(f, start, SEEK_SET);
	fflush(stdout);
}

/* If the log was rotated, goes on with the new file. */
static void follow_rotation(const char *path, FILE **f, bool json)
{
	struct stat open_one, named;
	FILE *next;

	if (fstat(fileno(*f), &open_one) < 0 || stat(path, &named) < 0 ||
	    (open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev))
		return;
	print_lines(*f, json);
	next = fopen(path, "re");
	if (!next)
		return;
	fclose(*f);
	*f = next;
	print_lines(*f, json);
}

static int follow_log(const char *path, FILE **f, bool json, struct err *e)
{
	auto_free char *dir = str_format("%.*s", (int)(strrchr(path, '/') - path), path);
	auto_close int watch = inotify_init1(IN_CLOEXEC);
	char events[4096];

	if (watch < 0 ||
	    inotify_add_watch(watch, *dir ? dir : "/", IN_MODIFY | IN_CREATE | IN_MOVED_FROM) < 0)
		return err_sys(e, "cannot watch %s", dir);
	for (;;) {
		print_lines(*f, json);
		follow_rotation(path, f, json);
		if (ferror(stdout))
			return 0;
		if (read(watch, events, sizeof(events)) < 0 && errno != EINTR)
			return err_sys(e, "cannot watch %s", dir);
	}
}

static int tail_log(struct verb_call *v, struct err *e)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));
	const char *count = verb_text(v, "lines"), *path = v->args[0];
	char *end;
	long n = strtol(count, &end, 10);
	int rc = 0;
	FILE *f;

	if (n < 1 || *end || n > 1000000)
		return err_set(e, ERR_INVALID, "lines: '%s' is not a number of lines", count);
	if (!path && client_config(c, verb_text(v, "config"), e) < 0)
		return -1;
	path = path ? path : c->audit.file;
	f = fopen(path, "re");
	if (!f)
		return err_sys(e, "cannot open %s", path);
	fseeko(f, last_lines(f, n), SEEK_SET);
	print_lines(f, v->json);
	if (verb_text(v, "follow")) {
		auto_free char *whole = realpath(path, NULL);

		rc = follow_log(whole ? whole : path, &f, v->json, e);
	}
	fclose(f);
	return rc < 0 ? -1 : finish_stdout(0);
}

static const struct verb_option tail_options[] = {
	{"follow", 'f', NULL, "go on with what comes", NULL},
	{"lines", 'n', "N", "so many of the last records (20)", "20"},
	{"config", 0, "FILE", "the daemon's configuration", NULL},
	{"json", 0, NULL, "the records as they are", NULL},
};

/* ---- the verb ---- */

static const struct verb parts[] = {
	{.name = "verify",
	 .line = "cloche audit verify [OPTIONS] [FILE...]",
	 .about = "Checks that no record was edited, removed or moved, and with --head that none "
		  "is\n"
		  "missing at the end. Without FILE: the daemon's log and what it was rotated "
		  "to.\n"
		  "Exit status: 0 it is whole, 1 it is not.",
	 .run = verify_log,
	 OPTIONS(verify_options),
	 ARGS(0, VERB_MANY),
	 .is_local = true},
	{.name = "tail",
	 .line = "cloche audit tail [-f] [-n N] [--json] [FILE]",
	 .about = "Shows the last decisions.",
	 .run = tail_log,
	 OPTIONS(tail_options),
	 ARGS(0, 1),
	 .is_local = true},
};

const struct verb verb_audit = {
	.about = "usage: cloche audit verify [--head HASH] [FILE...]   is the log whole?\n"
		 "       cloche audit tail [-f] [-n N] [FILE]          the last decisions\n",
	PARTS(parts),
};

/* `cloche audit verify`: checks that the records of audit files form one unbroken chain. */
#include "audit/audit.h"
#include "audit/chain.h"

#include <sodium.h>

struct verifier {
	struct chain_key key;
	const char *head; /* wanted, or NULL */
	struct audit_verdict v;
	char torn[CHAIN_HASH]; /* digest of a line that is no record; "" if there was none */
	uint64_t torn_line;
	bool keyed; /* a record with our key was seen */
};

struct audit_file {
	const char *name;
	FILE *f;
	uint64_t first_seq;
};

/* The record after a torn line must say so, with its digest. */
static bool names_torn(const char *line, size_t len, const char *digest)
{
	static const char what[] = ",\"what\":\"audit.repair\",";
	auto_free char *needle = str_format(",\"torn\":\"%s\",\"prev\":", digest);

	return memmem(line, len, needle, strlen(needle)) &&
	       memmem(line, len, what, sizeof(what) - 1);
}

static int refuse_record(struct err *e, enum err_kind kind, const char *where, uint64_t seq,
			 const char *why)
{
	return err_set(e, kind, "%s: record %" PRIu64 " %s", where, seq, why);
}

static int check_hash(struct verifier *v, const char *line, const struct chain_view *view,
		      const char *where, struct err *e)
{
	enum chain_check check = chain_check(&v->key, line, view);
	bool plain = str_starts(view->hash, "sha256:");

	if (check == CHAIN_BAD)
		return refuse_record(e, ERR_CONFLICT, where, view->seq, "was changed");
	if (check == CHAIN_OTHER_KEY && v->key.is_set)
		return err_set(e, ERR_CONFLICT,
			       "%s: record %" PRIu64 " was made with another key (%.16s)", where,
			       view->seq, view->hash);
	if (check == CHAIN_OTHER_KEY)
		return refuse_record(e, ERR_INVALID, where, view->seq,
				     "has a key; name it with --key-file");
	if (plain && v->keyed)
		return refuse_record(e, ERR_CONFLICT, where, view->seq,
				     "has no key, but those before it have");
	v->keyed = v->keyed || !plain;
	v->v.unkeyed += plain;
	return 0;
}

static int check_link(struct verifier *v, const struct chain_view *view, const char *where,
		      struct err *e)
{
	if (v->v.records == 0) {
		if (view->seq == 1 && !str_equal(view->prev, CHAIN_START))
			return err_set(e, ERR_CONFLICT, "%s: the first record was changed", where);
		v->v.first_seq = view->seq;
		snprintf(v->v.first_prev, sizeof(v->v.first_prev), "%s", view->prev);
		/* The wanted head may belong to the record before the first one given. */
		v->v.head_found = v->head && str_equal(v->head, view->prev);
		return 0;
	}
	if (view->seq != v->v.last_seq + 1)
		return err_set(e, ERR_CONFLICT,
			       "%s: record %" PRIu64 " follows %" PRIu64
			       ": records were removed, added or moved",
			       where, view->seq, v->v.last_seq);
	if (!str_equal(view->prev, v->v.head))
		return refuse_record(e, ERR_CONFLICT, where, view->seq,
				     "does not continue the one before it");
	return 0;
}

static int check_line(struct verifier *v, const char *line, size_t len, const char *where,
		      struct err *e)
{
	struct chain_view view;

	if (!chain_parse(line, len, &view)) {
		if (*v->torn)
			return err_set(e, ERR_CONFLICT, "%s: not a record", where);
		chain_digest(line, len, v->torn);
		return 0;
	}
	if (*v->torn) {
		if (!names_torn(line, len, v->torn))
			return err_set(e, ERR_CONFLICT,
				       "%s: the line before it is no record, and nothing says why",
				       where);
		*v->torn = '\0';
		v->v.repairs++;
	}
	if (check_hash(v, line, &view, where, e) < 0 || check_link(v, &view, where, e) < 0)
		return -1;
	v->v.records++;
	v->v.last_seq = view.seq;
	snprintf(v->v.head, sizeof(v->v.head), "%s", view.hash);
	if (v->head && str_equal(v->head, view.hash))
		v->v.head_found = true;
	return 0;
}

static int check_file(struct verifier *v, struct audit_file *f, struct err *e)
{
	auto_free char *line = NULL;
	size_t room = 0;
	uint64_t number = 0;
	ssize_t n;

	rewind(f->f);
	while ((n = getline(&line, &room, f->f)) > 0) {
		auto_free char *where = str_format("%s:%" PRIu64, f->name, ++number);

		if (n > CHAIN_LINE)
			return err_set(e, ERR_CONFLICT, "%s: not a record", where);
		if (line[n - 1] == '\n') {
			n--;
		} else if (!*v->torn && !chain_parse(line, (size_t)n, &(struct chain_view){0})) {
			/* The end of the log: the role was killed while it wrote, and has not run since. */
			chain_digest(line, (size_t)n, v->torn);
			continue;
		}
		if (check_line(v, line, (size_t)n, where, e) < 0)
			return -1;
	}
	return ferror(f->f) ? err_sys(e, "cannot read %s", f->name) : 0;
}

static int compare_files(const void *a, const void *b)
{
	const struct audit_file *x = a, *y = b;

	return (x->first_seq > y->first_seq) - (x->first_seq < y->first_seq);
}

static int open_files(struct audit_file *files, char *const *names, size_t count, struct err *e)
{
	for (size_t i = 0; i < count; i++) {
		files[i].name = names[i];
		files[i].f = fopen(names[i], "re");
		if (!files[i].f)
			return err_sys(e, "cannot open %s", names[i]);
		/* A current file that is still empty comes last. */
		if (fscanf(files[i].f, "{\"seq\":%" SCNu64 ",", &files[i].first_seq) != 1)
			files[i].first_seq = UINT64_MAX;
	}
	qsort(files, count, sizeof(*files), compare_files);
	return 0;
}

static int judge_chain(struct verifier *v, struct err *e)
{
	if (v->key.is_set && v->v.records && !v->keyed)
		return err_set(e, ERR_CONFLICT, "no record was made with this key");
	if (v->head && !v->v.head_found)
		return err_set(e, ERR_CONFLICT,
			       "the wanted head is not in the log: its end was cut off, or it is "
			       "another log");
	/* A torn end is left by a kill; the next start records it. */
	return 0;
}

int audit_verify(char *const *names, size_t count, const char *key_file, const char *head,
		 struct audit_verdict *ret, struct err *e)
{
	struct audit_file *files = must_alloc(calloc(count + 1, sizeof(*files)));
	struct verifier v = {.head = head};
	int rc = sodium_init() < 0 ? err_set(e, ERR_SYSTEM, "libsodium does not start") : 0;

	snprintf(v.v.head, sizeof(v.v.head), "%s", CHAIN_START);
	if (rc == 0 && key_file)
		rc = chain_key_load(key_file, &v.key, e);
	if (rc == 0)
		rc = open_files(files, names, count, e);
	for (size_t i = 0; i < count && rc == 0; i++)
		rc = check_file(&v, &files[i], e);
	if (rc == 0)
		rc = judge_chain(&v, e);
	for (size_t i = 0; i < count; i++)
		if (files[i].f)
			fclose(files[i].f);
	free(files);
	sodium_memzero(&v.key, sizeof(v.key));
	if (rc == 0)
		*ret = v.v;
	return rc;
}

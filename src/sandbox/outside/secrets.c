/* Reads the values of a run's secrets, makes placeholders, and hands both to cloche-egress. */
#include "sandbox/outside/secrets.h"

#include "kern/secret_source.h"
#include "model/secret.h"

#include <sys/mman.h>

#define PLACES_MOST 8 /* of one secret */

static int add_rows(struct run_secrets *s, const struct secret_def *d, struct egress_secret *row,
		    struct err *e)
{
	const char *at = NULL;

	while ((at = secret_next_place(d->rule.header, at, row->header))) {
		if (s->count == s->room)
			return err_field(e, ERR_LIMIT, "secret", "secret %s: too many headers",
					 d->rule.name);
		s->rows[s->count++] = *row;
	}
	return 0;
}

static int check_value(const struct egress_secret *row, struct err *e)
{
	if (row->value_len == 0)
		return err_field(e, ERR_INVALID, "secret", "secret %s: its value is empty",
				 row->name);
	for (uint32_t i = 0; i < row->value_len; i++)
		if ((unsigned char)row->value[i] < ' ' || row->value[i] == 127)
			return err_field(e, ERR_INVALID, "secret",
					 "secret %s: its value has a control character in it",
					 row->name);
	return 0;
}

static int read_one(struct run_secrets *s, const char *text, struct egress_secret *row,
		    struct err *e)
{
	struct secret_def d;
	struct err inner = {0};
	size_t len = 0;

	if (secret_parse(text, &d, e) < 0)
		return -1;
	memset(row, 0, sizeof(*row));
	snprintf(row->name, sizeof(row->name), "%s", d.rule.name);
	memcpy(row->hosts, d.rule.hosts, sizeof(row->hosts));
	row->uses_max = d.rule.uses_max;
	if (secret_placeholder(&d.rule, row->placeholder) < 0)
		return err_sys(e, "cannot make a placeholder");
	if (secret_read(&d.from, NULL, row->value, sizeof(row->value), &len, &inner) < 0)
		return err_field(e, inner.kind, "secret", "secret %s: %.400s", d.rule.name,
				 inner.msg);
	row->value_len = (uint32_t)secret_trim(row->value, len);
	if (check_value(row, e) < 0)
		return -1;
	list_take(&s->env, str_format("%s=%s", row->name, row->placeholder));
	return add_rows(s, &d, row, e);
}

/* Values that came from variables: pid 1 inside must not inherit them. */
static void forget_variables(const struct list *texts)
{
	for (size_t i = 0; i < texts->count; i++) {
		struct secret_def d;
		struct err ignored;

		if (secret_parse(texts->items[i], &d, &ignored) == 0 && d.from.env[0])
			secret_forget_variable(d.from.env);
	}
}

int run_secrets_read(const struct list *texts, struct run_secrets *ret, struct err *e)
{
	size_t size = (texts->count * PLACES_MOST + 1) * sizeof(struct egress_secret);
	struct egress_secret *row;
	int rc = 0;

	*ret = (struct run_secrets){0};
	if (!texts->count)
		return 0;
	ret->room = texts->count * PLACES_MOST;
	ret->rows = secret_memory(size);
	if (!ret->rows)
		return err_sys(e, "cannot get memory for secrets");
	row = &ret->rows[ret->room];
	for (size_t i = 0; rc == 0 && i < texts->count; i++)
		if (!secret_is_reference(texts, i))
			rc = read_one(ret, texts->items[i], row, e);
	explicit_bzero(row, sizeof(*row));
	forget_variables(texts);
	if (rc < 0)
		run_secrets_done(ret);
	return rc;
}

int run_secrets_send(const struct run_secrets *s, int sock, const char *id)
{
	struct egress m = {.type = EGRESS_SECRETS};
	auto_close int fd = -1;

	if (!s || !s->rows)
		return 0;
	fd = memfd_create("secrets", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || io_write_all(fd, s->rows, s->count * sizeof(*s->rows)) < 0 || io_seal(fd) < 0)
		return -1;
	snprintf(m.id, sizeof(m.id), "%s", id);
	return egress_send(sock, &m, &fd, 1);
}

void run_secrets_done(struct run_secrets *s)
{
	if (s->rows)
		secret_memory_free(s->rows, (s->room + 1) * sizeof(*s->rows));
	list_done(&s->env);
	*s = (struct run_secrets){0};
}

/* Puts questions to the terminal, one at a time, and reads the answers. Nothing here waits. */
#include "sandbox/outside/ask.h"

int ask_open(struct ask *a, struct err *e)
{
	a->tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (a->tty >= 0)
		return 0;
	a->tty = 0;
	return err_field(e, ERR_INVALID, "net",
			 "net: 'ask' needs a terminal; use --allow for what is needed");
}

/* "--allow example.com:443": the rule. */
static const char *wanted(const struct egress_record *r)
{
	static const char option[] = "--allow ";

	return str_starts(r->remedy, option) ? r->remedy + strlen(option) : "";
}

/* The name comes from inside: the reader of rules let it through, and it is made harmless once more. */
static void show(struct ask *a)
{
	char rule[EGRESS_TEXT], text[EGRESS_TEXT + 128];
	const char *from;
	int len;

	if (a->is_shown || !a->count)
		return;
	from = wanted(&a->waiting[0]);
	str_sanitise(rule, sizeof(rule), from, strlen(from));
	len = snprintf(text, sizeof(text),
		       "cloche: connect to %s? [o]nce, [a]lways, [n]ever: ", rule);
	a->is_shown = write(a->tty, text, (size_t)len) > 0;
}

bool ask_add(struct ask *a, const struct egress_record *r)
{
	if (a->count == ASK_WAITING || !wanted(r)[0])
		return false;
	if (!a->waiting)
		a->waiting = must_alloc(calloc(ASK_WAITING, sizeof(*a->waiting)));
	a->waiting[a->count++] = *r;
	show(a);
	return true;
}

bool ask_read(struct ask *a, struct ask_answer *ret)
{
	struct egress_record *r = a->waiting;
	char line[256];
	ssize_t n = read(a->tty, line, sizeof(line) - 1);

	if (n < 0 || !a->count)
		return false;
	line[n] = '\0';
	/* The end of the terminal's input is a no that is not remembered. */
	if (n > 0 && (!strchr("oan", line[0]) || line[0] == '\0')) {
		a->is_shown = false;
		show(a);
		return false;
	}
	*ret = (struct ask_answer){.serial = r->serial,
				   .allow = line[0] == 'o' || line[0] == 'a',
				   .learned = line[0] == 'a' || line[0] == 'n'};
	if (ret->learned)
		list_add(ret->allow ? &a->allow : &a->deny, wanted(r));
	memmove(r, r + 1, --a->count * sizeof(*r));
	a->is_shown = false;
	show(a);
	return true;
}

static void print_rules(int fd, const char *key, const struct list *rules)
{
	if (!rules->count)
		return;
	dprintf(fd, "%s:\n", key);
	for (size_t i = 0; i < rules->count; i++)
		dprintf(fd, "  - \"%s\"\n", rules->items[i]);
}

void ask_done(struct ask *a)
{
	if (a->allow.count || a->deny.count) {
		dprintf(a->tty, "cloche: as a policy file, beside what it had:\nnet: allow\n");
		print_rules(a->tty, "allow", &a->allow);
		print_rules(a->tty, "deny", &a->deny);
	}
	if (a->tty)
		close(a->tty);
	free(a->waiting);
	list_done(&a->allow);
	list_done(&a->deny);
	*a = (struct ask){0};
}

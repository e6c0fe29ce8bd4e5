#include "sandbox/explain.h"

#include <stdio.h>
#include <string.h>

/* Strings from inside become part of an advice only if they are a plain name or address. */
static bool is_plain(const char *target)
{
	return target[strspn(target, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789.-_:[]")] == '\0';
}

static void explain_syscall(const struct seccomp_profile *profile, const struct board_denial *b,
			    struct denial *d)
{
	const struct seccomp_report *report = NULL;

	if (b->report >= 0 && (unsigned)b->report < profile->report_count)
		report = &profile->reports[b->report];
	snprintf(d->what, sizeof(d->what), "syscall");
	snprintf(d->rule, sizeof(d->rule), "seccomp");
	snprintf(d->target, sizeof(d->target), "%s", report ? report->name : "unknown");
	snprintf(d->explain, sizeof(d->explain), "%s", report ? report->reason : "");
}

static void explain_network(const struct board_denial *b, struct denial *d)
{
	const char *target = is_plain(b->target) ? b->target : "(no host name)";

	snprintf(d->what, sizeof(d->what), b->kind == DENIAL_CONNECT ? "connect" : "resolve");
	snprintf(d->rule, sizeof(d->rule), "network none");
	snprintf(d->target, sizeof(d->target), "%s", target);
	snprintf(d->explain, sizeof(d->explain),
		 "The sandbox has no network, only its own loopback%s, and no other can be asked "
		 "for. Fetch what is needed outside and bring it in: with --file or --mount, over "
		 "REST as a file",
		 b->kind == DENIAL_RESOLVE ? ", so no name can be looked up" : "");
}

void explain_denial(const struct seccomp_profile *profile, const struct board_denial *b,
		    struct denial *ret)
{
	ret->count = b->count;
	if (b->kind == DENIAL_SYSCALL)
		explain_syscall(profile, b, ret);
	else
		explain_network(b, ret);
}

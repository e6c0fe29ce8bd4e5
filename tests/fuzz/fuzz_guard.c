/* The guard's report: a file that code inside a sandbox can write as it likes. */
#include "fuzz.h"

#include "model/guard.h"

#include <string.h>

static void check_text(const char *text, size_t room)
{
	PROMISE(memchr(text, '\0', room));
	for (; *text; text++)
		PROMISE((unsigned char)*text >= 0x20 && *text != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guard_report r;
	char notes[160];

	guard_read_report(GUARD_STRICT, (const char *)data, size, &r);
	PROMISE(r.count <= GUARD_DENIALS);
	for (size_t i = 0; i < r.count; i++) {
		const struct denial *d = &r.denials[i];

		PROMISE(strcmp(d->what, "guard") == 0 && d->count > 0);
		check_text(d->target, sizeof(d->target));
		check_text(d->rule, sizeof(d->rule));
		check_text(d->explain, sizeof(d->explain));
	}
	PROMISE(guard_format_notes(&r, notes, sizeof(notes)) == (notes[0] != '\0'));
	check_text(notes, sizeof(notes));
	return 0;
}

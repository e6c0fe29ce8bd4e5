/* The one place that decides when a guest may send more: see pump.h. */
#include "calls/pump.h"

void pump_resume(void *pump)
{
	struct pump *p = pump;
	size_t owed = p->owed;

	if (!p->from || !owed || (p->room && p->room(p->to) == 0))
		return;
	p->owed = 0;
	p->credit(p->from, owed);
}

void pump_moved(struct pump *p, size_t len)
{
	p->owed += len;
	pump_resume(p);
}

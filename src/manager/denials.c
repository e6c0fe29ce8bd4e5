/* What the guest itself tells: refused calls, commands that ended. */
#include "manager/inner.h"

void denials_subscribe(struct sandbox *s)
{
	(void)s;
}

void denials_free(struct denials *d)
{
	(void)d;
}

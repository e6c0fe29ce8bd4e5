/* A message to or from the egress program: what is accepted has ends on its strings and can be sent. */
#include "fuzz.h"

#include "wire/egress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct egress m;
	size_t fds = size ? data[0] % 4 : 0, len = size ? size - 1 : 0;

	if (len > sizeof(m))
		return 0;
	memset(&m, 0xaa, sizeof(m));
	if (len)
		memcpy(&m, data + 1, len);
	if (!egress_is_well_formed(&m, len, fds))
		return 0;
	PROMISE(len == egress_size(m.type));
	/* Some have nothing in them. */
	if (len == egress_size(EGRESS_SETTINGS))
		return 0;
	PROMISE(strlen(m.id) > 0 && strlen(m.id) < IPC_ID);
	if (m.type == EGRESS_RECORD || m.type == EGRESS_ASK)
		PROMISE(strlen(m.record.why) < sizeof(m.record.why) &&
			strlen(m.record.remedy) < sizeof(m.record.remedy));
	return 0;
}

/* Random names, from the kernel's random bytes. */
#include "base/id.h"

#include <sys/random.h>

int id_letters(char *ret, size_t count)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
	unsigned char random[32];

	if (count > sizeof(random) || getrandom(random, count, 0) != (ssize_t)count)
		return -1;
	for (size_t i = 0; i < count; i++)
		ret[i] = letters[random[i] & 31];
	ret[count] = '\0';
	return 0;
}

int id_hex(char *ret, size_t bytes)
{
	unsigned char random[32];

	if (bytes > sizeof(random) || getrandom(random, bytes, 0) != (ssize_t)bytes)
		return -1;
	for (size_t i = 0; i < bytes; i++)
		snprintf(ret + 2 * i, 3, "%02x", random[i]);
	return 0;
}

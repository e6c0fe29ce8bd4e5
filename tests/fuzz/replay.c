/* Runs a fuzz target over the files it is given: fuzz_NAME FILE... */
#include "fuzz.h"

static int replay(const char *path)
{
	FILE *f = fopen(path, "rb");
	size_t len = 0, room = 4096, n;
	uint8_t *data = malloc(room);

	if (!f || !data) {
		perror(path);
		return -1;
	}
	while ((n = fread(data + len, 1, room - len, f)) > 0) {
		len += n;
		if (len == room)
			data = realloc(data, room *= 2);
		if (!data)
			abort();
	}
	fclose(f);
	/* Exactly as long as the input, so that a sanitizer sees a read past its end. */
	data = realloc(data, len ? len : 1);
	LLVMFuzzerTestOneInput(data, len);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	int failed = argc < 2;

	for (int i = 1; i < argc; i++)
		failed |= replay(argv[i]) < 0;
	return failed;
}

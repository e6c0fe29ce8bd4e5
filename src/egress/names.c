/*
 * The names of a sandbox and their indexes. An index is given once and never to another name, because programs keep
 * addresses for hours; the name file holds lines "INDEX NAME" and outlives the role and the sandbox's snapshots.
 */
#include "egress/egress_internal.h"

#define NAMES_FILE_MAX (32u << 20)

struct names {
	uint32_t max, count; /* indexes 1 to count are taken, some perhaps by no name */
	char **items;	     /* by index; items[0] is unused */
	size_t room;
	uint32_t *table; /* hash of a name to its index; 0: free */
	size_t table_size;
	int fd; /* -1: not kept */
};

struct names *names_new(uint32_t max)
{
	struct names *n = must_alloc(calloc(1, sizeof(*n)));

	n->max = max && max < NET_SYNTHETIC_MAX ? max : NET_SYNTHETIC_MAX;
	n->fd = -1;
	return n;
}

void names_free(struct names *n)
{
	if (!n)
		return;
	for (uint32_t i = 1; i <= n->count; i++)
		free(n->items[i]);
	free(n->items);
	free(n->table);
	close_fd(&n->fd);
	free(n);
}

size_t names_count(const struct names *n)
{
	return n->count;
}

const char *names_name(const struct names *n, uint32_t index)
{
	return index && index <= n->count ? n->items[index] : NULL;
}

static uint64_t hash_name(const char *name)
{
	uint64_t h = 14695981039346656037ull;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 1099511628211ull;
	return h;
}

/* The place of a name, or the free one where it belongs. */
static uint32_t *place_of(const struct names *n, const char *name)
{
	size_t at = hash_name(name) & (n->table_size - 1);

	while (n->table[at] && !str_equal(n->items[n->table[at]], name))
		at = (at + 1) & (n->table_size - 1);
	return &n->table[at];
}

static void grow_table(struct names *n)
{
	if ((n->count + 2) * 2 < n->table_size)
		return;
	free(n->table);
	n->table_size = n->table_size ? n->table_size * 2 : 16;
	n->table = must_alloc(calloc(n->table_size, sizeof(*n->table)));
	for (uint32_t i = 1; i <= n->count; i++)
		if (n->items[i])
			*place_of(n, n->items[i]) = i;
}

static void put(struct names *n, uint32_t index, const char *name)
{
	while (n->count < index) {
		n->items = array_room(n->items, n->count + 1, &n->room, sizeof(*n->items));
		n->items[++n->count] = NULL;
		grow_table(n);
	}
	n->items[index] = str_copy(name);
	*place_of(n, name) = index;
}

uint32_t names_find(const struct names *n, const char *name)
{
	return n->table_size ? *place_of(n, name) : 0;
}

uint32_t names_index(struct names *n, const char *name)
{
	char line[NET_NAME + 16];
	int len;

	if (names_find(n, name))
		return names_find(n, name);
	if (n->count >= n->max)
		return 0;
	len = snprintf(line, sizeof(line), "%" PRIu32 " %s\n", n->count + 1, name);
	/* A name that is not in the file could get another index after a restart. */
	if (n->fd >= 0 && io_write_all(n->fd, line, (size_t)len) < 0)
		return 0;
	put(n, n->count + 1, name);
	return n->count;
}

/* One line; a line that is not understood is skipped, but its index, if it has one, stays taken. */
static void read_line(struct names *n, const char *line)
{
	char canonical[NET_NAME], *end;
	struct network address;
	struct err e = {0};
	unsigned long index = strtoul(line, &end, 10);

	if (index == 0 || index > NET_SYNTHETIC_MAX)
		return;
	if (*end != ' ' ||
	    net_host(end + 1, strlen(end + 1), canonical, &address, &e) != NET_IS_NAME)
		canonical[0] = '\0';
	if (index <= n->count && n->items[index])
		return;
	if (canonical[0] && !names_find(n, canonical))
		put(n, (uint32_t)index, canonical);
}

int names_open(struct names *n, int fd, struct err *e)
{
	auto_free char *text = NULL;
	size_t len = 0;
	bool is_cut;
	char *save = NULL;

	if (io_read_whole(fd, NAMES_FILE_MAX, &text, &len) < 0) {
		err_sys(e, "cannot read the name file");
		close(fd);
		return -1;
	}
	is_cut = len && text[len - 1] != '\n';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		read_line(n, line);
	/* A line that was cut by a crash must not be continued by the next one. */
	if (is_cut && io_write_all(fd, "\n", 1) < 0) {
		err_sys(e, "cannot write the name file");
		close(fd);
		return -1;
	}
	close_fd(&n->fd);
	n->fd = fd;
	return 0;
}

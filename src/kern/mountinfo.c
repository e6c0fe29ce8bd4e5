#include "kern/mountinfo.h"

/* A host with more than this is taken as broken rather than judged by half of its mounts. */
#define TEXT_MAX ((size_t)16 << 20)

/* The kernel writes blank, tab, newline and backslash in names as \ooo. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw": see proc_pid_mountinfo(5). */
static int parse_line(char *line, struct mount_entry *ret)
{
	char *field[5], *save = NULL, *word = strtok_r(line, " ", &save);

	for (size_t i = 0; i < ARRAY_LEN(field); i++, word = strtok_r(NULL, " ", &save)) {
		if (!word)
			return -1;
		field[i] = word;
	}
	while (word && !str_equal(word, "-"))
		word = strtok_r(NULL, " ", &save);
	word = word ? strtok_r(NULL, " ", &save) : NULL;
	if (!word)
		return -1;
	unescape(field[3]);
	unescape(field[4]);
	*ret = (struct mount_entry){.id = atoi(field[0]),
				    .dev = field[2],
				    .root = field[3],
				    .point = field[4],
				    .type = word};
	return 0;
}

int mountinfo_parse(char *text, struct mountinfo *ret, struct err *e)
{
	struct mountinfo m = {.text = text};
	size_t room = 0;
	char *next;

	for (char *line = text; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		m.entries = array_room(m.entries, m.count, &room, sizeof(*m.entries));
		if (parse_line(line, &m.entries[m.count]) < 0) {
			mountinfo_done(&m);
			return err_set(e, ERR_SYSTEM, "cannot understand the list of mounts");
		}
		m.count++;
	}
	*ret = m;
	return 0;
}

int mountinfo_read(struct mountinfo *ret, struct err *e)
{
	auto_close int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t len = 0, room = 0;
	ssize_t n = 1;

	if (fd < 0)
		return err_sys(e, "cannot open /proc/self/mountinfo");
	while (n > 0) {
		if (len + 4096 > room) {
			room = room ? room * 2 : 16384;
			text = must_alloc(realloc(text, room));
		}
		n = read(fd, text + len, room - len - 1);
		if (n < 0)
			return err_sys(e, "cannot read /proc/self/mountinfo");
		len += (size_t)n;
		if (len > TEXT_MAX)
			return err_set(e, ERR_LIMIT, "this host has too many mounts to judge");
	}
	text[len] = '\0';
	return mountinfo_parse(take_ptr(text), ret, e);
}

void mountinfo_done(struct mountinfo *m)
{
	free(m->text);
	free(m->entries);
	*m = (struct mountinfo){0};
}

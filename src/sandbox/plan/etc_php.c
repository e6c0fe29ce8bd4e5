/* Shows which extensions PHP loads, and nothing else of PHP's settings in /etc. */
#include "sandbox/plan/etc.h"

#include "kern/dirents.h"
#include "sandbox/inside/skeleton.h"

#include <ctype.h>

#define MOST_FILES 1000

struct php_lines {
	char text[8192];
	size_t len;
};

/* extension=phar.so, zend_extension=opcache.so */
static bool loads_something(const char *line, size_t len)
{
	static const char *const words[] = {"extension", "zend_extension"};
	size_t word = 0;

	while (word < len && line[word] != '=' && !isspace((unsigned char)line[word]))
		word++;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (word == strlen(words[i]) && memcmp(line, words[i], word) == 0)
			return true;
	return false;
}

static void take_loading_lines(struct php_lines *all, const char *text, size_t size)
{
	while (size > 0) {
		const char *end = memchr(text, '\n', size);
		size_t len = end ? (size_t)(end - text) + 1 : size;

		if (end && loads_something(text, len) && len <= sizeof(all->text) - all->len) {
			memcpy(all->text + all->len, text, len);
			all->len += len;
		}
		text += len;
		size -= len;
	}
}

static void take_ini_file(struct php_lines *all, int dir, const char *name)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	if (n > 0)
		take_loading_lines(all, text, (size_t)n);
}

static bool is_settings(const char *name)
{
	const char *ending = strrchr(name, '.');

	return ending && str_equal(ending, ".ini");
}

/* In the order of their names, as PHP reads them: some extensions need others. */
static void take_ini_files(struct php_lines *all, int dir)
{
	auto_list struct list names = {0};

	if (dirents_names(dir, MOST_FILES, &names, NULL) < 0)
		return;
	for (size_t i = 0; i < names.count; i++)
		if (is_settings(names.items[i]))
			take_ini_file(all, dir, names.items[i]);
}

static int show_version(int etc, const char *version, struct list *seen, struct err *e)
{
	char from[64];
	auto_close int dir = -1, to = -1;
	struct php_lines all = {.len = 0};

	snprintf(from, sizeof(from), "/etc/php/%s/cli/conf.d", version);
	dir = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return 0;
	if (seen)
		list_add(seen, from);
	take_ini_files(&all, dir);
	to = skeleton_dir(etc, from + strlen("/etc/"), e);
	return to < 0 ? -1 : skeleton_file(to, "extensions.ini", all.text, all.len, 0444, e);
}

int etc_php_build(int etc, struct list *seen, struct err *e)
{
	auto_close int php = open("/etc/php", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirents_entry d;
	struct dirents list;

	if (seen)
		list_add(seen, "/etc/php");
	if (php < 0)
		return 0;
	dirents_start(&list, php);
	while (dirents_next(&list, &d))
		if (isdigit((unsigned char)d.name[0]) && strlen(d.name) < 8 &&
		    show_version(etc, d.name, seen, e) < 0)
			return -1;
	return 0;
}

/* Each drawing goes over the one before: up by its rows, then every row anew to its end. */
#include "cli/verbs/task_table.h"

#include <sys/ioctl.h>

#define BAR 24
#define SHOWN 16 /* rows of tasks, at most */
#define WHAT 20

struct task_row {
	size_t line;
	int64_t begun_ns;
	uint64_t timeout_ms;
	char what[WHAT + 1];
};

struct task_table {
	size_t count, skipped, ended, failed;
	int64_t begun_ns;
	bool is_terminal;
	struct task_row *rows; /* of what runs, oldest first */
	size_t row_count, room;
	size_t drawn; /* rows on the terminal */
};

struct task_table *task_table_new(size_t count, size_t done)
{
	struct task_table *t = must_alloc(calloc(1, sizeof(*t)));

	t->count = count;
	t->skipped = done;
	t->begun_ns = now_ns();
	t->is_terminal = isatty(2);
	task_table_draw(t);
	return t;
}

void task_table_start(struct task_table *t, size_t line, const char *what, uint64_t timeout_ms)
{
	struct task_row *row;

	t->rows = array_room(t->rows, t->row_count, &t->room, sizeof(*t->rows));
	row = &t->rows[t->row_count++];
	*row = (struct task_row){.line = line, .begun_ns = now_ns(), .timeout_ms = timeout_ms};
	str_sanitise(row->what, sizeof(row->what), what, strlen(what));
	row->what[strcspn(row->what, "\n\t")] = '\0';
	task_table_draw(t);
}

static int64_t take_row(struct task_table *t, size_t line)
{
	for (size_t i = 0; i < t->row_count; i++) {
		int64_t begun = t->rows[i].begun_ns;

		if (t->rows[i].line != line)
			continue;
		memmove(&t->rows[i], &t->rows[i + 1], (--t->row_count - i) * sizeof(*t->rows));
		return begun;
	}
	return now_ns();
}

void task_table_forget(struct task_table *t, size_t line)
{
	take_row(t, line);
}

static double seconds_since(int64_t ns)
{
	return (double)(now_ns() - ns) / 1e9;
}

void task_table_end(struct task_table *t, size_t line, const char *how)
{
	double took = seconds_since(take_row(t, line));
	char clean[120];

	t->ended++;
	t->failed += how != NULL;
	if (t->is_terminal) {
		task_table_draw(t);
		return;
	}
	str_sanitise(clean, sizeof(clean), how ? how : "ok", strlen(how ? how : "ok"));
	fprintf(stderr, "cloche: line %zu: %s, %.1f s (%zu of %zu)\n", line, clean, took,
		t->skipped + t->ended, t->count);
}

/* ---- the terminal ---- */

static unsigned columns_of_terminal(void)
{
	struct winsize w;

	return ioctl(2, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

static void add_line(struct buf *b, unsigned columns, const char *text)
{
	size_t len = strlen(text);

	/* A row that the terminal breaks would be two. */
	buf_add(b, text, len < columns ? len : columns - 1);
	buf_add(b, "\033[K\n", 4);
}

static const char *bar_of(double part, char ret[BAR + 1])
{
	size_t full = part >= 1 ? BAR : part > 0 ? (size_t)(part * BAR) : 0;

	memset(ret, '#', full);
	memset(ret + full, '.', BAR - full);
	ret[BAR] = '\0';
	return ret;
}

static void add_row(struct buf *b, unsigned columns, const struct task_row *row)
{
	double took = seconds_since(row->begun_ns), most = (double)row->timeout_ms / 1000;
	char bar[BAR + 1], text[160], of[32] = "";

	if (most > 0)
		snprintf(of, sizeof(of), " of %.0f s", most);
	snprintf(text, sizeof(text), "%6zu %-*s [%s] %5.1f s%s", row->line, WHAT, row->what,
		 bar_of(most > 0 ? took / most : 0, bar), took, of);
	add_line(b, columns, text);
}

void task_table_draw(void *table)
{
	struct task_table *t = table;
	size_t done = t->skipped + t->ended, shown = t->row_count < SHOWN ? t->row_count : SHOWN;
	double seconds = seconds_since(t->begun_ns);
	unsigned columns = columns_of_terminal();
	auto_buf struct buf b = {0};
	char bar[BAR + 1], text[160], up[24];

	if (!t->is_terminal)
		return;
	if (t->drawn) {
		snprintf(up, sizeof(up), "\033[%zuA\r", t->drawn);
		buf_add(&b, up, strlen(up));
	}
	for (size_t i = 0; i < shown; i++)
		add_row(&b, columns, &t->rows[i]);
	snprintf(text, sizeof(text), "[%s] %zu/%zu  running %zu  ok %zu  failed %zu  %.1f/s",
		 bar_of(t->count ? (double)done / (double)t->count : 1, bar), done, t->count,
		 t->row_count, t->ended - t->failed, t->failed,
		 seconds > 0 ? (double)t->ended / seconds : 0);
	add_line(&b, columns, text);
	buf_add(&b, "\033[J", 3);
	fwrite(buf_head(&b), 1, b.len, stderr);
	fflush(stderr);
	t->drawn = shown + 1;
}

void task_table_free(struct task_table *t)
{
	if (!t)
		return;
	t->row_count = 0;
	task_table_draw(t);
	free(t->rows);
	free(t);
}

#include "model/result.h"

#include "base/jsonw.h"
#include "model/spec.h"

/* The number of bytes at the start that continue a character whose beginning was cut off. */
static size_t cut_at_start(const char *text, size_t len)
{
	size_t n = 0;

	while (n < 3 && n < len && ((unsigned char)text[n] & 0xc0) == 0x80)
		n++;
	return n;
}

bool capture_is_cut(const struct capture *c)
{
	return c->total > (uint64_t)c->head_len + c->tail_len;
}

struct part {
	const char *bytes;
	size_t len;
};

/* What is shown of it, in at most three parts; the text of a gap is written to gap. */
static size_t split_capture(const struct capture *c, char gap[64], struct part ret[3])
{
	size_t head_len = c->head_len, skip = 0, n = 0;

	if (capture_is_cut(c)) {
		/* A character that the cut has split is left out: it is no fault of the program. */
		head_len -= utf8_cut_at_end(c->head, c->head_len);
		skip = cut_at_start(c->tail, c->tail_len);
	}
	if (head_len)
		ret[n++] = (struct part){c->head, head_len};
	if (capture_is_cut(c)) {
		snprintf(gap, 64, "\n[... %" PRIu64 " bytes left out ...]\n",
			 c->total - head_len - (c->tail_len - skip));
		ret[n++] = (struct part){gap, strlen(gap)};
	}
	if (c->tail_len > skip)
		ret[n++] = (struct part){c->tail + skip, c->tail_len - skip};
	return n;
}

void capture_join(const struct capture *c, void (*add)(void *to, const char *bytes, size_t len),
		  void *to)
{
	struct part parts[3];
	char gap[64];
	size_t count = split_capture(c, gap, parts);

	for (size_t i = 0; i < count; i++)
		add(to, parts[i].bytes, parts[i].len);
}

static void add_text(void *to, const char *bytes, size_t len)
{
	jsonw_text(to, bytes, len);
}

/* As bytes: the kept parts, without a mark at the gap. */
static void print_bytes(struct jsonw *j, const char *key, const struct capture *c)
{
	char *all = must_alloc(malloc(c->head_len + c->tail_len + 1));

	if (c->head_len)
		memcpy(all, c->head, c->head_len);
	if (c->tail_len)
		memcpy(all + c->head_len, c->tail, c->tail_len);
	jsonw_base64(j, key, all, c->head_len + c->tail_len);
	free(all);
}

/* With marks, an empty text and where it is. */
static void print_stream_or_mark(struct jsonw *j, const char *key, const struct capture *c,
				 size_t *mark)
{
	jsonw_text_open(j, key);
	if (mark)
		*mark = jsonw_len(j);
	else
		capture_join(c, add_text, j);
	jsonw_text_close(j);
}

static void print_output(struct jsonw *j, const struct result *r, size_t *marks)
{
	if (r->base64) {
		print_bytes(j, "stdout", &r->out);
		print_bytes(j, "stderr", &r->err);
	} else {
		print_stream_or_mark(j, "stdout", &r->out, marks);
		print_stream_or_mark(j, "stderr", &r->err, marks ? marks + 1 : NULL);
	}
	jsonw_bool(j, "stdout_truncated", capture_is_cut(&r->out));
	jsonw_bool(j, "stderr_truncated", capture_is_cut(&r->err));
	jsonw_string(j, "encoding", r->base64 ? "base64" : "utf-8");
}

static void print_limits_hit(struct jsonw *j, unsigned hit)
{
	jsonw_open(j, "limits_hit", '[');
	for (unsigned bit = 1; bit && bit <= hit; bit <<= 1)
		if (hit & bit)
			jsonw_string(j, NULL, limit_hit_name((enum limit_hit)bit));
	jsonw_close(j, ']');
}

static void print_count(struct jsonw *j, const char *key, int64_t count)
{
	if (count >= 0)
		jsonw_int(j, key, count);
	else
		jsonw_null(j, key);
}

static void print_ending(struct jsonw *j, const struct result *r)
{
	const struct outcome *o = &r->end;

	jsonw_string(j, "id", r->id);
	jsonw_string(j, "status", status_name(o->status));
	print_count(j, "exit_code", o->exit_code);
	print_count(j, "signal", o->signal > 0 ? o->signal : -1);
	jsonw_bool(j, "success", outcome_is_success(o));
	if (outcome_fault(o))
		jsonw_string(j, "fault", outcome_fault(o));
	else
		jsonw_null(j, "fault");
	jsonw_bool(j, "timed_out", o->status == STATUS_TIMEOUT);
	jsonw_bool(j, "oom_killed", o->oom_killed);
	print_limits_hit(j, o->limits_hit);
}

static void print_usage(struct jsonw *j, const struct result *r)
{
	const struct outcome *o = &r->end;

	jsonw_real(j, "duration_ms", o->duration_ms);
	jsonw_real(j, "setup_ms", r->setup_ms);
	jsonw_real(j, "cpu_ms", o->cpu_ms);
	jsonw_uint(j, "max_rss_bytes", o->max_rss_bytes);
	print_count(j, "pids_peak", o->pids_peak);
	print_count(j, "disk_bytes", o->disk_bytes);
	jsonw_uint(j, "net_tx_bytes", r->net_tx_bytes);
	jsonw_uint(j, "net_rx_bytes", r->net_rx_bytes);
}

static void print_files(struct jsonw *j, const struct result *r)
{
	jsonw_open(j, "files", '[');
	for (size_t i = 0; i < r->file_count; i++) {
		const struct captured_file *f = &r->files[i];

		jsonw_open(j, NULL, '{');
		jsonw_string(j, "path", f->path);
		jsonw_uint(j, "size", f->real_size);
		if (f->truncated)
			jsonw_bool(j, "truncated", true);
		jsonw_base64(j, "content_base64", f->data, f->size);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void print_changes(struct jsonw *j, const struct result *r)
{
	jsonw_open(j, "changes", '[');
	for (size_t i = 0; i < r->change_count; i++) {
		const struct change *c = &r->changes[i];

		jsonw_open(j, NULL, '{');
		jsonw_string(j, "path", c->path);
		jsonw_string(j, "kind", c->kind);
		if (c->note)
			jsonw_string(j, "note", c->note);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
	jsonw_bool(j, "changes_truncated", r->changes_cut);
	jsonw_bool(j, "changes_incomplete", r->changes_incomplete);
}

static void print_denials(struct jsonw *j, const struct result *r)
{
	jsonw_open(j, "denials", '[');
	for (size_t i = 0; i < r->denial_count; i++) {
		const struct denial *d = &r->denials[i];

		jsonw_open(j, NULL, '{');
		jsonw_string(j, "what", d->what);
		jsonw_string(j, "target", d->target);
		jsonw_string(j, "rule", d->rule);
		jsonw_uint(j, "count", d->count);
		jsonw_string(j, "explain", d->explain);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void print_names(struct jsonw *j, const char *key, const char *const *names, size_t max)
{
	jsonw_open(j, key, '[');
	for (size_t i = 0; i < max && names[i]; i++)
		jsonw_string(j, NULL, names[i]);
	jsonw_close(j, ']');
}

static void print_missing(struct jsonw *j, const struct result *r)
{
	jsonw_open(j, "missing", '[');
	for (int l = 0; l < LAYER_COUNT; l++)
		if (r->missing & LAYER_BIT(l))
			jsonw_string(j, NULL, layer_name((enum layer)l));
	if (r->wants_vm)
		jsonw_string(j, NULL, "vm");
	jsonw_close(j, ']');
}

/* By number, as capget(2) has them. */
static const char *const capabilities[] = {
	"chown",
	"dac_override",
	"dac_read_search",
	"fowner",
	"fsetid",
	"kill",
	"setgid",
	"setuid",
	"setpcap",
	"linux_immutable",
	"net_bind_service",
	"net_broadcast",
	"net_admin",
	"net_raw",
	"ipc_lock",
	"ipc_owner",
	"sys_module",
	"sys_rawio",
	"sys_chroot",
	"sys_ptrace",
	"sys_pacct",
	"sys_admin",
	"sys_boot",
	"sys_nice",
	"sys_resource",
	"sys_time",
	"sys_tty_config",
	"mknod",
	"lease",
	"audit_write",
	"audit_control",
	"setfcap",
	"mac_override",
	"mac_admin",
	"syslog",
	"wake_alarm",
	"block_suspend",
	"audit_read",
	"perfmon",
	"bpf",
	"checkpoint_restore",
};

/* None; or those that root inside has over its own namespace. */
static void print_caps(struct jsonw *j, const struct result *r)
{
	char number[16];

	if (!(r->proven & LAYER_BIT(LAYER_CAPS)) || !r->caps) {
		jsonw_string(j, "caps", r->proven & LAYER_BIT(LAYER_CAPS) ? "none" : NULL);
		return;
	}
	jsonw_open(j, "caps", '[');
	for (unsigned i = 0; i < 64; i++) {
		if (!(r->caps >> i & 1))
			continue;
		snprintf(number, sizeof(number), "%u", i);
		jsonw_string(j, NULL, i < ARRAY_LEN(capabilities) ? capabilities[i] : number);
	}
	jsonw_close(j, ']');
}

/* The layers that were really applied. Those with more than yes or no have their own lines. */
static void print_layers(struct jsonw *j, const char *key, const struct result *r)
{
	static const enum layer yes_or_no[] = {
		LAYER_USER_NS, LAYER_PID_NS,	   LAYER_MOUNT_NS, LAYER_NET_NS, LAYER_IPC_NS,
		LAYER_UTS_NS,  LAYER_CGROUP_NS,	   LAYER_TIME_NS,  LAYER_ROOT,	 LAYER_IDS,
		LAYER_FDS,     LAYER_NO_NEW_PRIVS, LAYER_CPU,	   LAYER_PIDS,
	};

	jsonw_open(j, key, '{');
	jsonw_string(j, "level", r->is_remote ? "remote" : level_name(r->level));
	for (size_t i = 0; i < ARRAY_LEN(yes_or_no); i++)
		jsonw_bool(j, layer_name(yes_or_no[i]), r->proven & LAYER_BIT(yes_or_no[i]));
	jsonw_string(j, "seccomp", r->proven & LAYER_BIT(LAYER_SECCOMP) ? r->seccomp : NULL);
	jsonw_int(j, "landlock_abi", r->proven & LAYER_BIT(LAYER_LANDLOCK) ? r->landlock_abi : 0);
	jsonw_string(j, "cgroup", r->cgroup ? r->cgroup : "none");
	jsonw_string(j, "memory", r->memory ? r->memory : "none");
	jsonw_string(j, "disk", r->disk ? r->disk : "none");
	if (r->encrypted)
		jsonw_string(j, "encrypted", r->encrypted);
	jsonw_string(j, "network",
		     !(r->proven & LAYER_BIT(LAYER_NETWORK)) ? NULL
		     : r->network			     ? r->network
							     : "none");
	print_caps(j, r);
	if (r->root_inside)
		jsonw_string(j, "root_inside", r->root_inside);
	jsonw_bool(j, "rootless", r->rootless);
	print_names(j, "denials", r->denial_kinds, ARRAY_LEN(r->denial_kinds));
	print_names(j, "recycled", r->recycled, ARRAY_LEN(r->recycled));
	print_missing(j, r);
	jsonw_close(j, '}');
}

int result_print_layers(const struct result *r, FILE *to)
{
	struct jsonw j;

	jsonw_begin(&j, to);
	print_layers(&j, NULL, r);
	return jsonw_finish(&j);
}

/* Why the command was not executed, which its exit code alone does not say; NULL: it was executed. */
static const char *exec_note(const struct result *r, char *text, size_t size)
{
	int why = r->end.exec_errno;

	if (r->exec_missing[0]) {
		snprintf(text, size, "The command was found, but not what it is to be run by: %s.",
			 r->exec_missing);
		return text;
	}
	return why == ENOENT || why == ENOTDIR ? "The command was not found in the sandbox."
	       : why == EACCES		       ? "The command is not an executable file."
	       : why			       ? "The command cannot be executed."
					       : NULL;
}

static void print_notes(struct jsonw *j, const struct result *r)
{
	char text[256];
	const char *note = exec_note(r, text, sizeof(text));

	jsonw_open(j, "notes", '[');
	if (note)
		jsonw_string(j, NULL, note);
	for (size_t i = 0; i < ARRAY_LEN(r->notes) && r->notes[i]; i++)
		jsonw_string(j, NULL, r->notes[i]);
	jsonw_close(j, ']');
}

static void print_record(struct jsonw *j, const struct result *r, size_t *marks)
{
	jsonw_open(j, NULL, '{');
	print_ending(j, r);
	print_output(j, r, marks);
	print_usage(j, r);
	print_files(j, r);
	print_changes(j, r);
	print_denials(j, r);
	print_layers(j, "layers", r);
	if (r->interpreter)
		jsonw_string(j, "interpreter", r->interpreter);
	if (r->guard_note[0])
		jsonw_string(j, "guard", r->guard_note);
	print_notes(j, r);
	jsonw_close(j, '}');
}

int result_print(const struct result *r, FILE *to)
{
	struct jsonw j;

	jsonw_begin(&j, to);
	print_record(&j, r, NULL);
	jsonw_raw(&j, "\n", 1);
	return jsonw_finish(&j);
}

static char *print_to_memory(const struct result *r, size_t *marks, size_t *ret_len)
{
	struct buf text = {0};
	struct jsonw j;

	jsonw_begin_buf(&j, &text);
	print_record(&j, r, marks);
	jsonw_raw(&j, "", 1);
	jsonw_finish(&j);
	*ret_len = text.len - 1;
	return text.data;
}

char *result_text(const struct result *r, size_t *ret_len)
{
	return print_to_memory(r, NULL, ret_len);
}

/* ---- much output, in several turns ---- */

struct result_printing {
	char *frame; /* the record without its output */
	size_t frame_len, frame_at, marks[2];
	struct capture streams[2];
	struct part parts[2][3];
	size_t counts[2], stream, part, at;
	char gaps[2][64];
	struct buf text;
};

struct result_printing *result_printing_new(struct result *r)
{
	struct result_printing *p = must_alloc(calloc(1, sizeof(*p)));

	p->frame = print_to_memory(r, p->marks, &p->frame_len);
	p->streams[0] = r->out;
	p->streams[1] = r->err;
	r->out = r->err = (struct capture){0};
	for (size_t i = 0; i < 2; i++)
		p->counts[i] = split_capture(&p->streams[i], p->gaps[i], p->parts[i]);
	return p;
}

static void copy_frame(struct result_printing *p, size_t until)
{
	buf_add(&p->text, p->frame + p->frame_at, until - p->frame_at);
	p->frame_at = until;
}

/* No character is split. */
static void print_piece(struct result_printing *p, size_t most)
{
	const char *bytes = p->parts[p->stream][p->part].bytes + p->at;
	size_t left = p->parts[p->stream][p->part].len - p->at, n = left < most ? left : most;
	struct jsonw j;

	if (n < left)
		n -= utf8_cut_at_end(bytes, n);
	jsonw_begin_buf(&j, &p->text);
	jsonw_text(&j, bytes, n);
	jsonw_finish(&j);
	p->at += n;
	if (n < left)
		return;
	p->at = 0;
	p->part++;
}

bool result_printing_step(struct result_printing *p)
{
	if (p->stream == 2)
		return true;
	copy_frame(p, p->marks[p->stream]);
	if (p->part < p->counts[p->stream])
		print_piece(p, 16 << 10);
	if (p->part < p->counts[p->stream])
		return false;
	p->part = 0;
	if (++p->stream == 2)
		copy_frame(p, p->frame_len + 1);
	return p->stream == 2;
}

char *result_printing_take(struct result_printing *p, size_t *ret_len)
{
	*ret_len = p->text.len - 1;
	return take_ptr(p->text.data);
}

void result_printing_free(struct result_printing *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < 2; i++) {
		free(p->streams[i].head);
		free(p->streams[i].tail);
	}
	free(p->frame);
	buf_done(&p->text);
	free(p);
}

void result_add_denials(struct result *r, const struct denial *from, size_t count)
{
	size_t total = r->denial_count + count;

	if (!count)
		return;
	r->denials = must_alloc(realloc(r->denials, total * sizeof(*r->denials)));
	memcpy(r->denials + r->denial_count, from, count * sizeof(*from));
	r->denial_count = total;
}

void result_add_file(struct result *r, const struct captured_file *f)
{
	r->files = must_alloc(realloc(r->files, (r->file_count + 1) * sizeof(*r->files)));
	r->files[r->file_count++] = *f;
}

void result_add_note(struct result *r, const char *note)
{
	for (size_t i = 0; note && i + 1 < ARRAY_LEN(r->notes); i++)
		if (!r->notes[i]) {
			r->notes[i] = note;
			return;
		}
}

void result_done(struct result *r)
{
	free(r->out.head);
	free(r->out.tail);
	free(r->err.head);
	free(r->err.tail);
	for (size_t i = 0; i < r->file_count; i++) {
		free(r->files[i].path);
		free(r->files[i].data);
	}
	free(r->files);
	for (size_t i = 0; i < r->change_count; i++)
		free(r->changes[i].path);
	free(r->changes);
	free(r->cwd);
	free(r->denials);
	*r = (struct result){0};
}

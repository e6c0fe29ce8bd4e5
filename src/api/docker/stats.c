/* What containers use, and which processes run in them. */
#include "api/docker/docker_internal.h"

#include <sys/sysinfo.h>

#define SAMPLE_MS 1000

/* ---- stats ---- */

struct sampling {
	struct exchange *x;
	struct container *c; /* the request holds it */
	json_t *before;	     /* the cpu_stats of the last sample */
	json_t *read;	     /* and its time */
	bool streams;
	bool is_asking;
	struct loop_timer next;
};

static void sampling_done(void *data)
{
	struct sampling *p = data;

	loop_timer_stop(p->x->api->loop, &p->next);
	json_decref(p->before);
	json_decref(p->read);
}

static json_int_t number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* The time of all processors since the host's start, busy or not: clients divide by it. */
static json_int_t system_ns(void)
{
	return (json_int_t)now_ns() * get_nprocs();
}

static json_t *cpu_json(const json_t *usage)
{
	json_int_t ns = (json_int_t)(json_real_value(json_object_get(usage, "cpu_ms")) * 1e6);

	return json_pack("{s:{s:I,s:I,s:I},s:I,s:i,s:{s:i,s:i,s:i}}", "cpu_usage", "total_usage",
			 ns, "usage_in_kernelmode", (json_int_t)0, "usage_in_usermode", ns,
			 "system_cpu_usage", system_ns(), "online_cpus", get_nprocs(),
			 "throttling_data", "periods", 0, "throttled_periods", 0, "throttled_time",
			 0);
}

static json_t *empty_cpu(void)
{
	return json_pack("{s:{s:i,s:i,s:i},s:{s:i,s:i,s:i}}", "cpu_usage", "total_usage", 0,
			 "usage_in_kernelmode", 0, "usage_in_usermode", 0, "throttling_data",
			 "periods", 0, "throttled_periods", 0, "throttled_time", 0);
}

static json_t *networks_json(const json_t *usage)
{
	return json_pack("{s:{s:I,s:i,s:i,s:i,s:I,s:i,s:i,s:i}}", "eth0", "rx_bytes",
			 number_of(usage, "net_rx_bytes"), "rx_packets", 0, "rx_errors", 0,
			 "rx_dropped", 0, "tx_bytes", number_of(usage, "net_tx_bytes"),
			 "tx_packets", 0, "tx_errors", 0, "tx_dropped", 0);
}

/* usage NULL: it does not run, and uses nothing. */
static json_t *sample_json(struct sampling *p, const json_t *usage)
{
	json_t *read = docker_time(docker_now_ns()), *cpu = usage ? cpu_json(usage) : empty_cpu(),
	       *o;

	o = json_pack(
		"{s:s,s:s,s:O,s:o,s:O,s:o,s:{s:I,s:I},s:{s:I,s:I,s:{s:i}},s:{s:n},s:o}", "id",
		p->c->id, "name", p->c->name, "read", read, "preread",
		p->read ? json_incref(p->read) : docker_time(0), "cpu_stats", cpu, "precpu_stats",
		p->before ? json_incref(p->before) : empty_cpu(), "pids_stats", "current",
		number_of(usage, "pids"), "limit", (json_int_t)sandbox_spec(p->c->s)->limits.pids,
		"memory_stats", "usage", number_of(usage, "memory_bytes"), "limit",
		(json_int_t)sandbox_spec(p->c->s)->limits.memory_bytes, "stats", "inactive_file", 0,
		"blkio_stats", "io_service_bytes_recursive", "networks", networks_json(usage));
	json_object_set_new(o, "name", json_sprintf("/%s", p->c->name));
	json_decref(p->before);
	json_decref(p->read);
	p->before = cpu;
	p->read = read;
	return o;
}

static void ask(struct sampling *p);

static void on_next(void *arg)
{
	ask(arg);
}

static void on_usage(void *arg, json_t *value, const struct err *e)
{
	struct sampling *p = arg;
	auto_free char *text = NULL;
	json_t *o;

	p->is_asking = false;
	if (p->x->gone || p->c->is_gone) {
		json_decref(value);
		exchange_answer_gone(p->x);
		return;
	}
	o = sample_json(p, e && e->kind ? NULL : value);
	json_decref(value);
	if (!p->streams) {
		exchange_json(p->x, 200, o);
		return;
	}
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	if (exchange_room(p->x)) {
		exchange_write(p->x, text, strlen(text));
		exchange_write(p->x, "\n", 1);
	}
	loop_timer_set(p->x->api->loop, &p->next, SAMPLE_MS);
}

static void ask(struct sampling *p)
{
	p->is_asking = true;
	sandbox_stats(p->c->s, on_usage, p);
}

static void on_gone(void *arg)
{
	struct sampling *p = arg;

	loop_timer_stop(p->x->api->loop, &p->next);
	/* Else the answer that is due ends it. */
	if (!p->is_asking)
		exchange_answer_gone(p->x);
}

void docker_stats(struct exchange *x)
{
	struct sampling *p = must_alloc(calloc(1, sizeof(*p)));

	*p = (struct sampling){.x = x, .c = docker_of(x)->c};
	p->next = (struct loop_timer){.call = on_next, .arg = p};
	p->streams = docker_flag(x, "stream", true);
	exchange_also_free(x, p, sampling_done);
	exchange_on_gone(x, on_gone, p);
	if (p->streams) {
		exchange_set_endless(x);
		exchange_stream(x, 200, "application/json", EXCHANGE_UNKNOWN_LENGTH);
	}
	ask(p);
}

/* ---- top: as the sandbox's own /proc has them ---- */

#define PROCESSES_MAX 256
#define STAT_MAX 1024

struct listing {
	struct exchange *x;
	struct sandbox *s; /* held */
	json_t *rows;
	uint32_t pids[PROCESSES_MAX];
	size_t count, at;
	char stat[STAT_MAX];
};

static void listing_done(void *data)
{
	struct listing *l = data;

	sandbox_release(l->s);
	json_decref(l->rows);
}

static void read_stat(struct listing *l);

/* Words with NULs between them; without any the name in parentheses. */
static json_t *command_json(const struct answer *a, const char *stat)
{
	const char *name = strchr(stat, '('), *end = strrchr(stat, ')');
	auto_free char *text = NULL;
	size_t len = a ? a->len : 0;

	while (len && !a->bytes[len - 1])
		len--;
	if (!len)
		return name && end > name ? text_json(name + 1, (size_t)(end - name) - 1)
					  : json_string("?");
	text = must_alloc(malloc(len));
	for (size_t i = 0; i < len; i++)
		text[i] = a->bytes[i] ? a->bytes[i] : ' ';
	return text_json(text, len);
}

static void on_cmdline(void *arg, const struct answer *a, const struct err *e)
{
	struct listing *l = arg;
	const char *end = strrchr(l->stat, ')');
	unsigned long user = 0, system = 0;
	char pid[16], time[32];
	int parent = 0;

	if (end)
		sscanf(end + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &parent,
		       &user, &system);
	user = (user + system) / (unsigned long)sysconf(_SC_CLK_TCK);
	snprintf(pid, sizeof(pid), "%u", l->pids[l->at]);
	snprintf(time, sizeof(time), "%02lu:%02lu:%02lu", user / 3600, user / 60 % 60, user % 60);
	json_array_append_new(l->rows,
			      json_pack("[s,s,o,s,s,s,s,o]", "-", pid, json_sprintf("%d", parent),
					"0", "-", "?", time, command_json(a, l->stat)));
	l->at++;
	read_stat(l);
}

static void on_stat(void *arg, const struct answer *a, const struct err *e)
{
	struct listing *l = arg;
	char path[48];

	if (e) {
		/* It has ended. */
		l->at++;
		read_stat(l);
		return;
	}
	snprintf(l->stat, sizeof(l->stat), "%.*s", (int)a->len, a->bytes);
	snprintf(path, sizeof(path), "/proc/%u/cmdline", l->pids[l->at]);
	call_get(l->s, &(struct file_get){.path = path, .most = STAT_MAX}, on_cmdline, l);
}

static void read_stat(struct listing *l)
{
	char path[48];

	if (l->at == l->count) {
		exchange_json(l->x, 200,
			      json_pack("{s:[s,s,s,s,s,s,s,s],s:O}", "Titles", "UID", "PID", "PPID",
					"C", "STIME", "TTY", "TIME", "CMD", "Processes", l->rows));
		return;
	}
	snprintf(path, sizeof(path), "/proc/%u/stat", l->pids[l->at]);
	call_get(l->s, &(struct file_get){.path = path, .most = STAT_MAX}, on_stat, l);
}

static void on_entry(void *arg, const struct file_info *f)
{
	struct listing *l = arg;
	const char *name = strrchr(f->path, '/');

	/* The guest itself is no process of the container. */
	if (name && str_only(name + 1, STR_DIGITS, 1, 9) && !str_equal(name + 1, "1") &&
	    l->count < PROCESSES_MAX)
		l->pids[l->count++] = (uint32_t)atoi(name + 1);
}

static void on_listed(void *arg, const struct answer *a, const struct err *e)
{
	struct listing *l = arg;

	if (e)
		exchange_error(l->x, e);
	else
		read_stat(l);
}

static void top_awake(struct exchange *x, struct sandbox *s)
{
	struct listing *l = must_alloc(calloc(1, sizeof(*l)));
	const struct receiver r = {.file = on_entry, .done = on_listed, .arg = l};

	*l = (struct listing){.x = x, .s = sandbox_hold(s), .rows = json_array()};
	exchange_also_free(x, l, listing_done);
	call_list(s, "/proc", 1, &r);
}

void docker_top(struct exchange *x)
{
	if (container_needs_running(x, docker_of(x)->c))
		container_awake(x, top_awake);
}

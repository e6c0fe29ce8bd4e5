#include "manager/warm/prefork.h"

#include "manager/manager_internal.h"

#define START_MS 30000
#define FAILURES_MAX 3
#define PRINTED_MAX (1u << 20) /* a prefork prints only that it is ready */

static void prefork_lost(struct prefork *p, bool is_failure)
{
	loop_timer_stop(p->loop, &p->deadline);
	p->state = PREFORK_NONE;
	p->exec = NULL;
	p->eid = 0;
	p->failures += is_failure;
	if (p->changed)
		p->changed(p->arg);
}

static void on_prefork_start(void *arg, uint32_t eid, uint32_t pid)
{
	struct prefork *p = arg;

	p->eid = eid;
}

static void ignore_answer(void *arg, json_t *value, const struct err *e)
{
	(void)arg, (void)e;
	json_decref(value);
}

static void kill_prefork(void *arg)
{
	struct prefork *p = arg;

	if (p->eid)
		sandbox_signal(p->exec->s, p->eid, SIGKILL, true, ignore_answer, NULL);
}

/*
 * The first output means that the prefork is ready; the rest is ignored. Code inside could print
 * without end, so a prefork that prints too much is killed.
 */
static void on_prefork_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct prefork *p = arg;

	(void)seq, (void)bytes;
	exec_credit(p->exec, len);
	if (p->printed <= PRINTED_MAX && (p->printed += len) > PRINTED_MAX)
		kill_prefork(p);
	if (kind != 1 || p->state != PREFORK_STARTING)
		return;
	p->state = PREFORK_READY;
	loop_timer_stop(p->loop, &p->deadline);
	if (p->changed)
		p->changed(p->arg);
}

/* The next request starts another prefork. */
static void on_prefork_exit(void *arg, const struct outcome *x)
{
	prefork_lost(arg, x->exit_code != PREFORK_CHANGED);
}

static void on_prefork_error(void *arg, const struct err *e)
{
	prefork_lost(arg, true);
}

static const struct exec_ops prefork_ops = {.on_start = on_prefork_start,
					    .on_output = on_prefork_output,
					    .on_exit = on_prefork_exit,
					    .on_error = on_prefork_error};

static void watch_prefork(struct prefork *p, struct sandbox *s, struct exec *x)
{
	p->exec = x;
	p->printed = 0;
	p->loop = s->m->p.loop;
	exec_leave_idle(x);
}

void prefork_start(struct prefork *p, struct sandbox *s, const struct prefork_program *what)
{
	struct exec_request r = what->request;

	r.preforks = true;
	r.no_stdin = !what->input;
	p->state = PREFORK_STARTING;
	watch_prefork(p, s, exec_start(s, NULL, &r, &prefork_ops, p));
	p->exec->source = (struct exec_source){what->input, what->input_len, what->input != NULL};
	p->deadline = (struct loop_timer){.call = kill_prefork, .arg = p};
	loop_timer_set(p->loop, &p->deadline, START_MS);
}

void prefork_adopt(struct prefork *p, struct sandbox *s, uint32_t eid)
{
	if (p->exec)
		return;
	p->state = PREFORK_READY;
	p->eid = eid;
	watch_prefork(p, s, exec_attach(s, eid, UINT64_MAX, &prefork_ops, p));
}

void prefork_drop(struct prefork *p)
{
	if (!p->exec)
		return;
	loop_timer_stop(p->loop, &p->deadline);
	exec_detach(take_ptr(p->exec));
}

bool prefork_is_hopeless(const struct prefork *p)
{
	return p->failures >= FAILURES_MAX;
}

/*
 * The main process of a container: a command of its sandbox, to which the door is attached while it runs. What it
 * prints goes to the clients that are attached, at the pace of the slowest of them; without any it is only counted,
 * and the guest keeps the last part for the logs.
 */
#include "api/docker/docker_internal.h"

#define AGAIN_MS 500   /* until the next try to attach to a main process that we have lost */
#define RESTART_MS 100 /* doubled with each restart */
#define RESTART_DOUBLINGS 9
#define STEADY_NS 10000000000 /* a run of this length was none that failed at once */

struct box_start {
	box_started done;
	void *arg;
};

static void attach_again(struct container *c);

/* ---- the end ---- */

static void ignore_answer(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
}

/* Processes that the main process has left behind end with it, as in Docker. */
static void kill_rest(struct container *c)
{
	const struct box_run *r = container_run(c);

	if (r && sandbox_state(c->s) == STATE_RUNNING)
		sandbox_signal(c->s, r->eid, SIGKILL, true, ignore_answer, NULL);
}

static bool removes_itself(const struct container *c)
{
	return body_flag(container_host(c), "AutoRemove");
}

static void on_restarted(void *arg, const struct err *e)
{
	container_release(arg);
}

static void on_restart_timer(void *arg)
{
	struct container *c = arg;
	struct caller who = {0};

	if (c->state != BOX_EXITED || c->is_gone)
		return;
	sandbox_act_as_owner(c->s, &who);
	run_start_main(c, &who, on_restarted, container_hold(c));
}

static void maybe_restart(struct container *c)
{
	const json_t *policy = json_object_get(container_host(c), "RestartPolicy");
	const char *name = body_text(policy, "Name");
	json_int_t most = json_integer_value(json_object_get(policy, "MaximumRetryCount"));
	unsigned doublings;

	if (c->stopping || c->removing || !name || !*name || str_equal(name, "no"))
		return;
	if (str_equal(name, "on-failure") && (!c->code || (most && c->restarts >= most)))
		return;
	if (c->finished_ns - c->started_ns > STEADY_NS)
		c->restarts = 0;
	doublings = c->restarts < RESTART_DOUBLINGS ? c->restarts : RESTART_DOUBLINGS;
	c->restarts++;
	/* A start may have come while the timer of the end before was set. */
	loop_timer_stop(c->api->loop, &c->again);
	c->again = (struct loop_timer){.call = on_restart_timer, .arg = c};
	loop_timer_set(c->api->loop, &c->again, RESTART_MS << doublings);
}

static void remove_itself(struct container *c)
{
	c->removing = true;
	sandbox_destroy(c->s, NULL, NULL, NULL);
}

/* The main process has ended, or could not be started. */
static void end_run(struct container *c, enum container_state state, int code)
{
	struct err ignored;
	char text[16];

	c->main = NULL;
	c->owed = 0;
	c->pid = 0;
	c->state = state;
	c->code = code;
	c->finished_ns = docker_now_ns();
	attached_end(c);
	snprintf(text, sizeof(text), "%d", code);
	if (state == BOX_EXITED)
		docker_event(c, "die", "exitCode", text);
	if (removes_itself(c) && !c->is_gone) {
		remove_itself(c);
	} else {
		/* Without its record the container would only be seen as running, until the next front looks. */
		(void)!container_save(c, &ignored);
		kill_rest(c);
		execs_kill(c);
		waiting_end(c, false);
		maybe_restart(c);
	}
}

void run_lost(struct container *c, int code)
{
	if (c->main)
		exec_detach(take_ptr(c->main));
	if (c->state == BOX_RUNNING || c->state == BOX_STARTING)
		end_run(c, BOX_EXITED, code);
}

/* ---- starting ---- */

static void tell_start(struct container *c, const struct err *e)
{
	struct box_start *b = take_ptr(c->starting);

	if (!b)
		return;
	b->done(b->arg, e);
	free(b);
}

/* In Docker's words: clients look for them to choose the exit status 126 or 127. */
static void cannot_start(struct container *c, int errnum, struct err *e)
{
	const json_t *argv = json_object_get(c->record, "argv");
	const char *first = json_string_value(json_array_get(argv, 0));

	err_set(e, ERR_INVALID,
		"failed to create task for container: failed to start container process: exec: "
		"\"%.200s\": %s",
		first ? first : "",
		errnum != ENOENT	   ? strerror(errnum)
		: first && first[0] == '/' ? "no such file or directory"
					   : "executable file not found in $PATH");
	/* strerror begins with a capital letter; Docker's text does not. */
	if (errnum == EACCES)
		err_set(e, ERR_INVALID,
			"failed to create task for container: failed to start container process: "
			"exec: \"%.200s\": permission denied",
			first ? first : "");
	snprintf(c->error, sizeof(c->error), "%.199s", e->msg);
}

static void on_main_start(void *arg, uint32_t eid, uint32_t pid)
{
	struct container *c = arg;
	int errnum = exec_errno(c->main);
	struct err e;

	/* It was attached to again. */
	if (c->state == BOX_RUNNING)
		return;
	if (c->run_count == DOCKER_RUNS) {
		free(c->runs[0].stamps);
		memmove(c->runs, c->runs + 1, sizeof(c->runs[0]) * (DOCKER_RUNS - 1));
		c->run_count--;
	}
	c->started_ns = docker_now_ns();
	c->runs[c->run_count++] = (struct box_run){.eid = eid, .started_ns = c->started_ns};
	if (errnum) {
		cannot_start(c, errnum, &e);
		tell_start(c, &e);
		return;
	}
	c->state = BOX_RUNNING;
	c->pid = pid;
	if (container_save(c, &e) < 0) {
		/* A container that the next front would not know as running must not run. */
		sandbox_signal(c->s, eid, SIGKILL, true, ignore_answer, NULL);
		tell_start(c, &e);
		return;
	}
	docker_event(c, "start", NULL, NULL);
	tell_start(c, NULL);
	attached_feed(c);
}

static void add_stamp(struct container *c, uint64_t seq)
{
	struct box_run *r = container_run(c);
	uint64_t now = docker_now_ns();

	if (!r->stamps)
		r->stamps = must_alloc(calloc(DOCKER_STAMPS, sizeof(*r->stamps)));
	/* Full: every second one goes, so that older output is timed more coarsely. */
	if (r->stamp_count == DOCKER_STAMPS) {
		for (size_t i = 0; i < DOCKER_STAMPS / 2; i++)
			r->stamps[i] = r->stamps[2 * i];
		r->stamp_count /= 2;
	}
	r->stamps[r->stamp_count++] = (struct stamp){seq, now};
}

static void on_main_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct container *c = arg;

	add_stamp(c, seq);
	c->next_seq = seq + len;
	c->owed += len;
	attached_output(c, kind, bytes, len);
	run_output_room(c);
}

void run_output_room(struct container *c)
{
	if (!c->main || !c->owed || !attached_room(c))
		return;
	exec_credit(c->main, c->owed);
	c->owed = 0;
}

static void on_main_exit(void *arg, const struct outcome *x)
{
	struct container *c = arg;
	bool was_run = c->state == BOX_RUNNING;

	c->main = NULL;
	c->oom_killed = x->oom_killed;
	end_run(c, was_run ? BOX_EXITED : BOX_CREATED,
		x->signal	   ? 128 + x->signal
		: x->exit_code < 0 ? 128 + SIGKILL
				   : x->exit_code);
}

static void on_main_error(void *arg, const struct err *e)
{
	struct container *c = arg;

	c->main = NULL;
	c->owed = 0;
	if (c->state == BOX_RUNNING) {
		/* The link was lost, and the command goes on; or the guest no longer knows it. */
		if (e->errnum == ESRCH)
			run_lost(c, 128 + SIGKILL);
		else
			attach_again(c);
		return;
	}
	snprintf(c->error, sizeof(c->error), "%.199s", e->msg);
	tell_start(c, e);
	end_run(c, BOX_CREATED, 128);
}

static void on_main_room(void *arg)
{
	attached_feed(arg);
}

static const struct exec_ops main_ops = {.on_start = on_main_start,
					 .on_output = on_main_output,
					 .on_exit = on_main_exit,
					 .on_error = on_main_error,
					 .on_room = on_main_room};

static void fill_request(const struct container *c, const struct caller *who,
			 struct exec_request *r)
{
	const json_t *config = container_config(c),
		     *size = json_object_get(container_host(c), "ConsoleSize");

	body_list(c->record, "argv", &r->argv);
	r->cwd = container_text(c, "workdir");
	r->user = container_text(c, "user");
	r->tty = body_flag(config, "Tty");
	r->no_stdin = !body_flag(config, "OpenStdin") && !r->tty;
	r->keep = true;
	r->timeout_ms = exec_timeout_most(c->api->manager, who);
	terminal_size(size, r);
	if (r->tty)
		list_add(&r->env, "TERM=xterm");
}

void run_start_main(struct container *c, const struct caller *who, box_started done, void *arg)
{
	struct exec_request r = {0};

	loop_timer_stop(c->api->loop, &c->again);
	c->starting = must_alloc(calloc(1, sizeof(*c->starting)));
	*c->starting = (struct box_start){done, arg};
	c->state = BOX_STARTING;
	c->stopping = c->oom_killed = false;
	c->error[0] = '\0';
	c->code = 0;
	c->next_seq = 0;
	fill_request(c, who, &r);
	c->main = exec_start(c->s, who, &r, &main_ops, c);
	exec_retain(c->main);
	list_done(&r.argv);
	list_done(&r.env);
}

/* ---- again ---- */

static void on_awake(void *arg, struct sandbox *s, const struct err *e)
{
	struct container *c = arg;
	const struct box_run *r = container_run(c);

	if (!c->is_gone && c->state == BOX_RUNNING && !c->main && r) {
		if (s) {
			c->main = exec_attach(s, r->eid, c->next_seq, &main_ops, c);
			exec_retain(c->main);
		} else if (sandbox_state(c->s) == STATE_RUNNING ||
			   sandbox_state(c->s) == STATE_UNREACHABLE) {
			attach_again(c);
		}
	}
	container_release(c);
}

void run_resume(struct container *c)
{
	if (!container_run(c))
		run_lost(c, 128 + SIGKILL);
	else if (sandbox_state(c->s) == STATE_RUNNING)
		sandbox_wake(c->s, NULL, on_awake, container_hold(c));
}

static void on_again(void *arg)
{
	run_resume(arg);
}

static void attach_again(struct container *c)
{
	loop_timer_stop(c->api->loop, &c->again);
	c->again = (struct loop_timer){.call = on_again, .arg = c};
	loop_timer_set(c->api->loop, &c->again, AGAIN_MS);
}

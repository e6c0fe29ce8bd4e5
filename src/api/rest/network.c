/* The network of a sandbox over REST: what it may reach, what it tried to reach, and changes of that. */
#include "api/rest/rest.h"

#include "agent/registry.h"
#include "model/spec.h"

const struct body_table v1_network_table = BODY_TABLE(
	BODY_WITH_NETWORK, FIELD("mode", BODY_TEXT, "the same as net"),
	FIELD("secrets", BODY_LIST, "names of secrets that it uses; missing: those that it has"));
const struct body_table v1_question_table =
	BODY_TABLE(BODY_ALONE, NEEDED("question", BODY_COUNT, "its number"),
		   NEEDED("allow", BODY_FLAG, "false: refuse it"));

/* ---- looking ---- */

struct network_watch {
	struct sse sse;
	struct net_follower *follower;
	struct waiter *end;
	bool over;
};

static void stop_watching(struct network_watch *w)
{
	sandbox_unfollow_network(take_ptr(w->follower));
	if (w->end)
		sandbox_unwait(take_ptr(w->end));
}

static void watching_done(void *data)
{
	struct network_watch *w = data;

	stop_watching(w);
	sse_close(&w->sse);
}

static void on_watcher_gone(void *arg)
{
	struct network_watch *w = arg;

	stop_watching(w);
	exchange_finish(w->sse.x);
}

static void on_attempt(void *arg, const json_t *attempt)
{
	struct network_watch *w = arg;
	const char *event = body_text(attempt, "event");

	if (w->over)
		return;
	/* A client that does not read is disconnected; the last attempts are there when it comes back. */
	if (!exchange_room(w->sse.x)) {
		w->over = true;
		exchange_abort(w->sse.x);
		return;
	}
	sse_send(&w->sse, event ? event : "attempt", json_incref((json_t *)attempt));
}

static void on_state(void *arg, struct sandbox *s)
{
	struct network_watch *w = arg;
	enum sandbox_state state = sandbox_state(s);

	if (w->over || (state != STATE_DESTROYED && state != STATE_FAILED))
		return;
	w->over = true;
	exchange_finish(w->sse.x);
}

static bool wants_stream(struct exchange *x)
{
	const char *follow = exchange_arg(x, "follow"), *accept = exchange_header(x, "accept");

	return (follow && (str_equal(follow, "true") || str_equal(follow, "1"))) ||
	       (accept && strstr(accept, "text/event-stream"));
}

void v1_network(struct exchange *x)
{
	struct network_watch *w;

	if (!wants_stream(x)) {
		sandbox_network(x->sandbox, v1_answer_json, x);
		return;
	}
	w = exchange_attach(x, sizeof(*w), watching_done);
	exchange_set_endless(x);
	sse_open(&w->sse, x);
	sse_send(&w->sse, "network", sandbox_describe_network(x->sandbox));
	exchange_on_gone(x, on_watcher_gone, w);
	w->follower = sandbox_follow_network(x->sandbox, on_attempt, w);
	w->end = sandbox_wait(x->sandbox, on_state, w);
}

/* ---- changing ---- */

int v1_read_network(const struct sandbox *s, const json_t *body, struct sandbox_spec *ret,
		    struct err *e)
{
	const struct list *now = &sandbox_spec(s)->secrets;
	const char *mode = body_text(body, "mode");

	if (mode && body_has(body, "net"))
		return err_field(e, ERR_INVALID, "mode", "mode: is the same as net; give one");
	if (body_spec(body, &v1_network_table, ret, e) < 0 ||
	    (mode && spec_set(ret, "net", mode, e) < 0))
		return -1;
	/* Rules without a mode ask for a network that has them. */
	if (!mode && !body_has(body, "net"))
		return err_field(e, ERR_INVALID, "net", "net: is missing");
	if (v1_imply_network(body, ret, e) < 0 || spec_finish(ret, e) < 0 ||
	    v1_take_secrets(body, ret, e) < 0)
		return -1;
	for (size_t i = 0; !body_has(body, "secrets") && i < now->count; i++)
		list_add(&ret->secrets, now->items[i]);
	return 0;
}

static void on_network_set(void *arg, struct sandbox *s, const struct err *e)
{
	if (s)
		exchange_json(arg, 200, sandbox_describe_network(s));
	else
		exchange_error(arg, e);
}

void v1_set_network(struct exchange *x)
{
	struct sandbox_spec spec;
	struct err e = {0};

	spec_init(&spec);
	if (v1_read_network(x->sandbox, x->json, &spec, &e) < 0 ||
	    agents_check_net(x->api->agents, sandbox_agent(x->sandbox), &spec, &e) < 0)
		exchange_error(x, &e);
	else
		sandbox_set_network(x->sandbox, &x->caller, &spec, on_network_set, x);
	spec_done(&spec);
}

/* ---- questions ---- */

static void answer_question(struct exchange *x)
{
	struct sandbox *s = v1_sandbox(x);
	struct err e = {0};

	if (s && sandbox_answer_question(s, (uint64_t)body_count(x->json, "question", 0),
					 body_flag(x->json, "allow"), v1_answer_empty, x, &e) < 0)
		exchange_error(x, &e);
}

/* Who lets a sandbox out is in the audit log before it happens. */
void v1_answer_question(struct exchange *x)
{
	char why[64];

	snprintf(why, sizeof(why), "question %" PRIu64 ": %s",
		 (uint64_t)body_count(x->json, "question", 0),
		 body_flag(x->json, "allow") ? "allow" : "refuse");
	exchange_decide(x, NULL, why, answer_question);
}

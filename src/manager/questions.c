/*
 * Network mode `ask`: a destination that no rule allows is a question, which an admin or the operator answers. One
 * question for a destination, and few of them at a time, so that a program inside cannot flood those who read
 * events. Egress refuses what nobody answers.
 */
#include "manager/manager_internal.h"

#define QUESTIONS 32
#define OPEN_MS 60000 /* egress waits as long */

struct open_question {
	uint64_t number;	      /* 0: none */
	uint64_t asked_ms;	      /* the last time */
	struct egress_record attempt; /* its serial is that of the connection that waits */
};

struct net_questions {
	uint64_t last;
	struct open_question open[QUESTIONS];
};

static const char *target_of(const struct egress_record *r)
{
	return r->name[0] ? r->name : r->address;
}

static void drop_old(struct net_questions *q)
{
	uint64_t now = unix_ms();

	for (size_t i = 0; i < QUESTIONS; i++)
		if (q->open[i].number && now - q->open[i].asked_ms >= OPEN_MS)
			q->open[i].number = 0;
}

/* The question about this destination, or else a free place; NULL: there is none. */
static struct open_question *place_for(struct net_questions *q, const struct egress_record *r)
{
	struct open_question *place = NULL;

	for (size_t i = 0; i < QUESTIONS; i++) {
		struct open_question *o = &q->open[i];

		if (o->number && o->attempt.port == r->port &&
		    str_equal(target_of(&o->attempt), target_of(r)))
			return o;
		if (!o->number)
			place = o;
	}
	return place;
}

static void tell_broker(struct sandbox *s, uint64_t serial, bool allow, broker_done done, void *arg)
{
	struct ipc m = {.type = IPC_NET_ANSWER, .network = {.serial = serial, .allows = allow}};

	memcpy(m.network.id, s->id, sizeof(m.network.id));
	broker_ask(s->m->p.broker, &m, -1, done, arg);
}

static json_t *question_json(const struct open_question *o)
{
	return json_pack("{s:I,s:s,s:i,s:s}", "question", (json_int_t)o->number, "target",
			 target_of(&o->attempt), "port", o->attempt.port, "remedy",
			 o->attempt.remedy);
}

void question_add(struct sandbox *s, const struct egress_record *r)
{
	struct open_question *o;
	bool is_new;

	if (!s->questions)
		s->questions = must_alloc(calloc(1, sizeof(*s->questions)));
	drop_old(s->questions);
	o = place_for(s->questions, r);
	if (!o) {
		tell_broker(s, r->serial, false, NULL, NULL);
		return;
	}
	is_new = !o->number;
	if (is_new)
		o->number = ++s->questions->last;
	o->asked_ms = unix_ms();
	o->attempt = *r;
	if (is_new)
		event_add_any(s, "network.question", question_json(o));
}

json_t *questions_json(const struct sandbox *s)
{
	json_t *all = json_array();

	if (s->questions)
		drop_old(s->questions);
	for (size_t i = 0; s->questions && i < QUESTIONS; i++)
		if (s->questions->open[i].number)
			json_array_append_new(all, question_json(&s->questions->open[i]));
	return all;
}

static struct open_question *find(const struct sandbox *s, uint64_t number)
{
	if (s->questions)
		drop_old(s->questions);
	for (size_t i = 0; s->questions && number && i < QUESTIONS; i++)
		if (s->questions->open[i].number == number)
			return &s->questions->open[i];
	return NULL;
}

struct question_answer {
	struct sandbox *s; /* held */
	json_done done;
	void *arg;
};

static void on_answered(void *arg, const struct ipc *reply, int fd)
{
	struct question_answer *a = arg;

	close_fd(&fd);
	a->done(a->arg, NULL, reply->err.kind ? &reply->err : NULL);
	sandbox_release(a->s);
	free(a);
}

int sandbox_answer_question(struct sandbox *s, uint64_t number, bool allow, json_done done,
			    void *arg, struct err *e)
{
	struct open_question *o = find(s, number);
	struct question_answer *a;

	if (!o)
		return err_set(e, ERR_NOT_FOUND, "this question is not open");
	a = must_alloc(malloc(sizeof(*a)));
	*a = (struct question_answer){sandbox_hold(s), done, arg};
	o->number = 0;
	tell_broker(s, o->attempt.serial, allow, on_answered, a);
	return 0;
}

void questions_free(struct sandbox *s)
{
	free(s->questions);
	s->questions = NULL;
}

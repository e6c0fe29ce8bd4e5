/* libyaml, reduced to what strict files of keys and values need. */
#include "policy/events.h"

#include <stdarg.h>

void events_init(struct events *ev, const char *file, const char *text, size_t len, struct err *e)
{
	*ev = (struct events){.file = file, .e = e};
	must_alloc(yaml_parser_initialize(&ev->parser) ? ev : NULL);
	yaml_parser_set_encoding(&ev->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&ev->parser, (const unsigned char *)text, len);
}

void events_done(struct events *ev)
{
	yaml_event_delete(&ev->event);
	yaml_parser_delete(&ev->parser);
}

static int fail_at(struct events *ev, size_t line, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static int fail_at(struct events *ev, size_t line, const char *field, const char *fmt, ...)
{
	char text[400], clean[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	return err_field(ev->e, ERR_INVALID, field, "%s:%zu: %s", ev->file, line, clean);
}

int events_fail(struct events *ev, const char *field, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return fail_at(ev, events_line(ev), field, "%s", text);
}

size_t events_line(const struct events *ev)
{
	return ev->event.start_mark.line + 1;
}

static int syntax_error(struct events *ev)
{
	const yaml_parser_t *p = &ev->parser;
	size_t line = p->problem_mark.line;

	/* The reader knows only a byte offset, and has no mark. */
	if (p->error == YAML_READER_ERROR)
		return fail_at(ev, p->mark.line + 1, "", "%s (byte %zu)",
			       p->problem ? p->problem : "bad bytes", p->problem_offset);
	return fail_at(ev, line + 1, "", "not YAML: %s%s%s", p->problem ? p->problem : "bad syntax",
		       p->context ? " " : "", p->context ? p->context : "");
}

static bool has_anchor_or_tag(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return event->data.scalar.anchor || event->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return event->data.sequence_start.anchor || event->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return event->data.mapping_start.anchor || event->data.mapping_start.tag;
	case YAML_DOCUMENT_START_EVENT:
		return event->data.document_start.tag_directives.start !=
		       event->data.document_start.tag_directives.end;
	default:
		return event->type == YAML_ALIAS_EVENT;
	}
}

static bool has_odd_bytes(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)s[i] < 0x20 && s[i] != '\n' && s[i] != '\t') || s[i] == 0x7f)
			return true;
	return false;
}

const char *events_text(const struct events *ev)
{
	return (const char *)ev->event.data.scalar.value;
}

int events_next(struct events *ev)
{
	yaml_event_delete(&ev->event);
	if (!yaml_parser_parse(&ev->parser, &ev->event))
		return syntax_error(ev);
	if (has_anchor_or_tag(&ev->event))
		return events_fail(ev, "", "anchors, aliases and tags are not used here");
	if (ev->event.type == YAML_SCALAR_EVENT &&
	    has_odd_bytes(events_text(ev), ev->event.data.scalar.length))
		return events_fail(ev, "", "control bytes are not allowed in a value");
	return 0;
}

bool events_at_scalar(const struct events *ev)
{
	return ev->event.type == YAML_SCALAR_EVENT;
}

bool events_at_null(const struct events *ev)
{
	static const char *const words[] = {"", "~", "null", "Null", "NULL"};

	if (!events_at_scalar(ev) || ev->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_equal(events_text(ev), words[i]))
			return true;
	return false;
}

const char *events_type(const struct events *ev)
{
	return ev->event.type == YAML_SEQUENCE_START_EVENT  ? "a list"
	       : ev->event.type == YAML_MAPPING_START_EVENT ? "a mapping"
	       : events_at_null(ev)			    ? "nothing"
							    : "a single value";
}

int events_wrong_type(struct events *ev, const char *key, const char *wanted)
{
	return events_fail(ev, key, "%s: must be %s, not %s", key, wanted, events_type(ev));
}

int events_want_scalar(struct events *ev, const char *key, const char *wanted)
{
	return events_at_scalar(ev) && !events_at_null(ev) ? 0 : events_wrong_type(ev, key, wanted);
}

int events_each(struct events *ev, int (*item)(void *arg), void *arg)
{
	yaml_event_type_t end = ev->event.type == YAML_MAPPING_START_EVENT
					? YAML_MAPPING_END_EVENT
					: YAML_SEQUENCE_END_EVENT;

	while (events_next(ev) == 0 && ev->event.type != end)
		if (item(arg) < 0)
			return -1;
	return ev->event.type == end ? 0 : -1;
}

int events_document(struct events *ev, const char *what, bool may_be_empty, int (*key)(void *arg),
		    void *arg)
{
	/* STREAM-START, then DOCUMENT-START or the end */
	if (events_next(ev) < 0 || events_next(ev) < 0)
		return -1;
	if (ev->event.type == YAML_STREAM_END_EVENT)
		return may_be_empty ? 0 : fail_at(ev, 1, "", "the file is empty");
	if (events_next(ev) < 0)
		return -1;
	if (ev->event.type != YAML_MAPPING_START_EVENT)
		return events_fail(ev, "", "%s is a mapping of keys, not %s", what,
				   events_type(ev));
	/* DOCUMENT-END, STREAM-END */
	if (events_each(ev, key, arg) < 0 || events_next(ev) < 0 || events_next(ev) < 0)
		return -1;
	if (ev->event.type != YAML_STREAM_END_EVENT)
		return events_fail(ev, "", "%s is one document; remove the second", what);
	return 0;
}

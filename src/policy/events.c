#include "policy/events.h"

#include "base/auto.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

int events_fail(struct events *ev, size_t line, const char *field, const char *fmt, ...)
{
	char text[400], clean[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	return err_field(ev->e, ERR_INVALID, field, "%s:%zu: %s", ev->file, line, clean);
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
		return events_fail(ev, p->mark.line + 1, "", "%s (byte %zu)",
				   p->problem ? p->problem : "bad bytes", p->problem_offset);
	return events_fail(ev, line + 1, "", "not YAML: %s%s%s",
			   p->problem ? p->problem : "bad syntax", p->context ? " " : "",
			   p->context ? p->context : "");
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
		return events_fail(ev, events_line(ev), "",
				   "anchors, aliases and tags are not used here");
	if (ev->event.type == YAML_SCALAR_EVENT &&
	    has_odd_bytes(events_text(ev), ev->event.data.scalar.length))
		return events_fail(ev, events_line(ev), "",
				   "control bytes are not allowed in a value");
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
	return events_fail(ev, events_line(ev), key, "%s: must be %s, not %s", key, wanted,
			   events_type(ev));
}

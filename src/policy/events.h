/*
 * libyaml's events, one by one, for the strict readers of policy and configuration files. Messages
 * have FILE:LINE in front; anchors, aliases, tags and control bytes are refused on the way.
 */
#pragma once

#include "base/base.h"

#include <yaml.h>

struct events {
	yaml_parser_t parser;
	yaml_event_t event; /* the current event */
	const char *file;
	struct err *e;
};

void events_init(struct events *ev, const char *file, const char *text, size_t len, struct err *e);
void events_done(struct events *ev);

/* Reads the next event. -1: the error is set. */
int events_next(struct events *ev);

/* The line of the event, from 1. */
size_t events_line(const struct events *ev);
bool events_at_scalar(const struct events *ev);
/* `key:` without a value, or a word for null. */
bool events_at_null(const struct events *ev);
/* The text of a scalar. */
const char *events_text(const struct events *ev);
/* "a list", "a mapping", "nothing", "a single value". */
const char *events_type(const struct events *ev);

/* Sets the error, at the line of the event. All three return -1. */
int events_fail(struct events *ev, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int events_wrong_type(struct events *ev, const char *key, const char *wanted);
/* 0 if the event is a scalar with a value. */
int events_want_scalar(struct events *ev, const char *key, const char *wanted);

/*
 * Calls `item` at each key of the mapping, or at each item of the list, that begins here; the call
 * reads the value as well. On return the current event is the end of the mapping or list.
 */
int events_each(struct events *ev, int (*item)(void *arg), void *arg);
/* The whole file: one document, a mapping. `what` is for messages, as "a policy". */
int events_document(struct events *ev, const char *what, bool may_be_empty, int (*key)(void *arg),
		    void *arg);

/* Secrets in YAML, for policies and for the daemon's settings. */
#pragma once

#include "model/secret.h"
#include "policy/events.h"

/* What may stand in `from`: policies have no credentials of systemd. */
struct secret_yaml_in {
	const char *dir; /* relative files are below it; NULL: refused */
	/* Takes a key that secrets have only here, with its value as the current event; NULL: there is none. */
	int (*other_key)(void *arg, const char *key);
	void *arg;
};

/* {from: {env|file|command}, hosts: [...], header, prefix, uses}; the event is the mapping's start. */
int secret_yaml_read(struct events *ev, const char *name, const struct secret_yaml_in *in,
		     struct secret_def *ret);
/* {file|credential|command}: a master key. */
int secret_yaml_source(struct events *ev, const char *key, struct secret_source *ret);

/* Requests that an E2B-compatible service understands; what they need to know is in one struct. */
#pragma once

#include "policy/config.h"
#include "provider/e2b/remote/http.h"
#include "wire/service.h"

#define SERVICE_KEY 512

struct service {
	struct http *http;
	struct config_e2b settings;
	char key[SERVICE_KEY];
	int guest; /* the program that is put into each sandbox */
	size_t guest_size;
};

/* ---- its control plane ---- */

/* id is ours, and goes into the sandbox's metadata. */
struct http_call *service_create(struct service *s, const char *id, http_done done, void *arg);
enum service_verb {
	SERVICE_CONNECT, /* also wakes one that is paused */
	SERVICE_PAUSE,
	SERVICE_KEEP,
	SERVICE_KILL,
	SERVICE_LIST, /* all that run and have our id, which is the name here, in their metadata */
};
struct http_call *service_ask(struct service *s, enum service_verb verb, const char *name,
			      http_done done, void *arg);

/* ---- in a sandbox ---- */

struct http_call *service_upload(struct service *s, const struct service_sandbox *to,
				 const char *id, http_done done, void *arg);
struct http_call *service_bridge(struct service *s, const struct service_sandbox *to,
				 const char *id, http_data on_data, http_done done, void *arg);
struct http_call *service_input(struct service *s, const struct service_sandbox *to, uint32_t pid,
				const void *bytes, size_t len, http_done done, void *arg);

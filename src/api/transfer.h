/*
 * Bytes between a client and a guest's stream, any number of them with constant memory: whoever is
 * slower sets the pace.
 */
#pragma once

#include "api/http.h"
#include "base/buf.h"
#include "manager/manager.h"

struct transfer;

struct transfer_ops {
	/* Down: the guest has begun (payload of its G_OK): begin the answer by exchange_stream and
	 * return true, or answer otherwise and return false. Up: NULL. */
	bool (*begin)(struct exchange *x, const void *payload, size_t len);
	/* Up: the guest has all of it (the number of its G_DONE): answer. Down: NULL. */
	void (*done)(struct exchange *x, uint64_t number);
};

/* From the guest: G_READ, G_TAR_OUT. limit: not more than so many bytes of it. */
void transfer_down(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *request,
		   const struct transfer_ops *ops);
void transfer_limit(struct exchange *x,
		    uint64_t most); /* within begin: that many, no more, no less */
/* To the guest: G_WRITE, G_TAR_IN; the route's body is BODY_STREAM. request is freed. */
void transfer_up(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *request,
		 const struct transfer_ops *ops);

/* Snapshots: <state>/snapshots/ID.tar and ID.meta, made and checked in confined helper processes. */
#pragma once

#include "daemon/broker/box.h"

void snapshot_request_make(struct daemon *d, struct asker who, const struct ipc *m);
void snapshot_request_list(struct daemon *d, struct asker who, const struct ipc *m);
void snapshot_request_delete(struct daemon *d, struct asker who, const struct ipc *m);
void snapshot_request_read(struct daemon *d, struct asker who, const struct ipc *m);
void snapshot_request_write(struct daemon *d, struct asker who, const struct ipc *m);
void snapshot_request_keep(struct daemon *d, struct asker who, const struct ipc *m);
/* The front that wrote them has gone: what is not kept goes as well. */
void snapshots_drop_written(struct daemon *d);
/* Removes what was not finished when a broker died. */
void snapshot_remove_unfinished(struct daemon *d);

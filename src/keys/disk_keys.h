/* Keys of disks: made and opened for the broker, which mounts; erased when the last disk with a key is gone. */
#pragma once

#include "keys/keyring.h"
#include "wire/ipc.h"

/* Answers IPC_DISK_KEY_GET: the key with this id, or a new one if the id is "". */
int keyring_disk_get(struct keyring *k, struct ipc_disk_key *key, struct err *e);
int keyring_disk_erase(struct keyring *k, const struct ipc_disk_key *key, struct err *e);
/* Erases all that the memfd, ids of IPC_ID bytes, does not have. */
int keyring_disk_keep(struct keyring *k, int ids, struct err *e);

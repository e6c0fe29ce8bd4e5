/* Sizes of ids and names that messages between processes have in common. */
#pragma once

#define IPC_ID 24 /* sandbox and snapshot ids: 20 letters and digits */
#define IPC_NAME 64

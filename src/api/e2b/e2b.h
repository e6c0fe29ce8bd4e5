/*
 * The E2B-compatible API: four doors on one port. Requests that name a sandbox and a port (by the
 * headers E2b-Sandbox-Id and E2b-Sandbox-Port, or by a host <port>-<id>.<domain>) go to envd (port
 * 49983), to the code interpreter (49999) or to a port inside the sandbox. All others go to the
 * control plane.
 */
#pragma once

struct door;

/* Ask them in this order. */
extern const struct door e2b_envd_door, e2b_interpreter_door, e2b_port_door, e2b_control_door;

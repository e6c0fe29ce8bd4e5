/* Starts and stops the HTTP server with all its doors. */
#include "api/http/server.h"

#include "api/agent/agent.h"
#include "api/docker/docker.h"
#include "api/e2b/e2b.h"
#include "api/mcp/mcp.h"
#include "api/rest/rest.h"

/* In the order in which they are asked. */
static const struct door *const doors[] = {
	/* Requests that name a sandbox and a port are meant for the inside, whatever the path. */
	&e2b_envd_door,
	&e2b_interpreter_door,
	&e2b_port_door,
	&e2b_control_door,
	&rest_door,
	&mcp_door,
	&agent_door,
	/* Last: over TCP it gets the paths without a version that no other door has. */
	&docker_door,
};

int api_start(struct api *api, struct err *e)
{
	api->metrics = metrics_new();
	api->agent_runs = agent_runs_new();
	api->server = server_new(api);
	api->door_state[DOOR_REST] = rest_new(api);
	for (size_t i = 0; i < ARRAY_LEN(doors); i++)
		server_add_door(api->server, doors[i]);
	return 0;
}

void api_stop(struct api *api)
{
	server_free(take_ptr(api->server));
	docker_free(api);
	rest_free(api->door_state[DOOR_REST]);
	metrics_free(take_ptr(api->metrics));
	agent_runs_free(take_ptr(api->agent_runs));
	json_decref(take_ptr(api->agent_types));
}

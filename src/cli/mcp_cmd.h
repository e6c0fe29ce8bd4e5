/* `cloche mcp`: an MCP server on stdin and stdout, in front of a daemon. */
#pragma once

int cmd_mcp(int argc, char **argv);

/* `cloche policy check|explain|compile`: policy files from the command line. */
#pragma once

int cmd_policy(int argc, char **argv);

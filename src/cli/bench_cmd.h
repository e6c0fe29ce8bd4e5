/* cloche bench: how long it takes here, beside what else is installed. */
#pragma once

int cmd_bench(int argc, char **argv);

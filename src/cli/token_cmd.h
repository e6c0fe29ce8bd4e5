/* `cloche token`: API keys. The file is the operator's; the daemon only reads it. */
#pragma once

int cmd_token(int argc, char **argv);

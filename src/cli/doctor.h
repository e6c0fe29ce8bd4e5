/* `cloche doctor`: what this host can enforce, what it cannot, what to change. */
#pragma once

/* A verb of cloched; argv[0] is "doctor". 0 only if level container is fully available. */
int cmd_doctor(int argc, char **argv);

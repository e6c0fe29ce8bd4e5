/*
 * `cloche selftest`: attacks sandboxes of this host with those cases of cloche-probe that do no
 * harm when they are not refused, and shows what was refused, what was not, and what cannot be
 * told.
 */
#pragma once

/* argv[0] is "selftest". 0: nothing got through; 1: something did; 125: could not be run. */
int cmd_selftest(int argc, char **argv);

#pragma once

int cmd_serve(int argc, char **argv);
int cmd_role(int argc, char **argv);

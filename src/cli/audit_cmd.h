/* `cloche audit`: checks and shows the decision log. */
#pragma once

int cmd_audit(int argc, char **argv);

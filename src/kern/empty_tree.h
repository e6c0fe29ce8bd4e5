/* Empties a directory whose tree may be hostile: as deep and as wide as code inside could make it. */
#pragma once

/* Removes all that is below the directory. What cannot be removed stays. */
void empty_tree(int top);

/*
 * Free places between other things, in an interpreter that is about to be forked.
 *
 * They are taken, for good: what a task makes would else be scattered over pages that it then had to
 * copy. That is no loss, for copying one costs as much as a new one.
 */
#pragma once

void gaps_close(void);

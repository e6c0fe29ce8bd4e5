/*
 * Debian's PHP loads most of its extensions (phar, tokenizer, iconv ...) because a file of /etc/php says so, and
 * composer and phpunit do nothing without. But these files hold settings as well, among them the keys of
 * monitoring services. So only the lines that load something get in.
 */
#pragma once

#include "base/base.h"

/* Makes etc/php, for each version that the host has. seen: gets the directories that decide, or NULL. */
int etc_php_build(int etc, struct list *seen, struct err *e);

/* One entry in a file of the caller's own, for programs that have no audit role. */
#include "audit/audit.h"
#include "audit/log.h"

#include <sys/file.h>

#define NOTE_BYTES (64u << 20) /* of one file */
#define LOCK_TRIES 200
#define LOCK_STEP_US 10000

int audit_note(const char *file, const struct audit_entry *entry, struct err *e)
{
	struct audit_log_settings s = {.max_bytes = NOTE_BYTES};
	auto_free char *path = str_copy(file);
	char *slash = strrchr(path, '/');
	auto_close int dir = -1;
	struct audit_log *log;
	int rc = -1;

	s.name = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	dir = open(!slash ? "." : *path ? path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* The chain has one writer at a time. */
	if (dir < 0)
		return err_sys(e, "cannot open the directory of %s", file);
	/* Whoever holds the lock for longer holds up an agent, which then may go on without us. */
	for (int tries = 0; flock(dir, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK || tries == LOCK_TRIES)
			return err_sys(e, "cannot lock the directory of %s", file);
		usleep(LOCK_STEP_US);
	}
	s.dir = dir;
	log = audit_log_open(&s, e);
	if (log)
		rc = audit_log_append(log, entry, 1, e);
	audit_log_close(log);
	return rc;
}

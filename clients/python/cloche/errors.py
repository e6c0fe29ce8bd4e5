"""What cloche could not do. The sandboxed program failing is a result, never one of these."""


class ClocheError(Exception):
    """kind: invalid, denied, not_found, conflict, limit, unsupported, system, unreachable, ...
    fault: cloche (may be tried again), caller, program; None: it is not known."""

    def __init__(self, message, kind="system", field=None, status=None, fault=None):
        super().__init__(message)
        self.message, self.kind, self.field, self.status = message, kind, field, status
        self.fault = fault

    @classmethod
    def from_answer(cls, answer, status=None):
        """From the `error` object that the daemon and `cloche --json` answer with."""
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            return cls("cloche answered with status %s" % status, status=status)
        return cls(str(error.get("message")), str(error.get("kind", "system")), error.get("field"), status,
                   error.get("fault"))

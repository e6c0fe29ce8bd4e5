"""How a run ended: the result record of cloche with the names that people know."""
import base64


class SandboxResult:
    """stdout, stderr, exit_code, timed_out, success; all else is in `record`, by its own names."""

    def __init__(self, record):
        self.record = record
        self.stdout = record.get("stdout", "")
        self.stderr = record.get("stderr", "")
        self.status = record.get("status")
        self.signal = record.get("signal")
        self.timed_out = bool(record.get("timed_out"))
        self.oom_killed = bool(record.get("oom_killed"))
        self.denials = record.get("denials") or []
        self.layers = record.get("layers") or {}
        self.duration_ms = record.get("duration_ms")
        self.exit_code = self._exit_code()
        self.success = self.exit_code == 0 and not self.timed_out

    def _exit_code(self):
        """As the exit status of `cloche run`."""
        code = self.record.get("exit_code")
        if code is not None:
            return code
        if self.timed_out:
            return 124
        return 128 + (self.signal or 9)

    @property
    def files(self):
        """Captured files by path, as bytes."""
        return {f["path"]: base64.b64decode(f["content_base64"]) for f in self.record.get("files") or []}

    def explain(self):
        """What was refused, in words for a person or a model; empty if nothing was."""
        return "\n".join("%s %s: %s" % (d.get("what"), d.get("target"), d.get("explain"))
                         for d in self.denials)

    def __str__(self):
        if self.timed_out:
            return "Execution timed out.\nStdout: %s\nStderr: %s" % (self.stdout, self.stderr)
        if not self.success:
            return "Exit code %d.\nStdout: %s\nStderr: %s" % (self.exit_code, self.stdout, self.stderr)
        return self.stdout

    def __repr__(self):
        return "<SandboxResult %s, exit code %s>" % (self.status, self.exit_code)

"""One shot: a snippet or a command in a sandbox of its own, then gone."""
import base64
import os
import tempfile
from dataclasses import dataclass, field
from typing import Dict, List, Optional

from .asynchronous import in_thread
from .connection import connect
from .errors import ClocheError
from .mounts import MountPolicy, validate_mount
from .result import SandboxResult

ARGUMENT_MAX = 30000  # of 128 KB, in characters of up to four bytes


@dataclass
class SandboxConfig:
    """Limits of a run. What is not set here is cloche's default; `options` are passed on by their
    names (`{"disk": "1G", "guard": "strict"}`)."""

    memory_limit: str = "512M"
    cpu_limit: float = 1.0
    timeout_seconds: float = 60
    pids_limit: int = 256
    network_enabled: bool = False
    allowed_read_paths: List[str] = field(default_factory=list)
    allowed_write_paths: List[str] = field(default_factory=list)
    env: Dict[str, str] = field(default_factory=dict)
    options: Dict[str, object] = field(default_factory=dict)

    def limits(self):
        fields = {
            "memory": self.memory_limit.upper(),
            "cpus": ("%.3f" % self.cpu_limit).rstrip("0").rstrip("."),
            "pids": str(self.pids_limit),
            "timeout": "%dms" % round(self.timeout_seconds * 1000),
        }
        if self.network_enabled:
            fields["net"] = "public"
        fields.update(self.options)
        return fields


def as_options(fields):
    """Fields of a request as options of the command line."""
    arguments = []
    for name, value in fields.items():
        option = "--" + name.replace("_", "-")
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True or item is False:
                arguments += [option] if item else []
            else:
                arguments += [option, str(item)]
    return arguments


class SandboxRunner:
    """run_code and run_command are coroutines; the same with _sync for those without a loop.

    connection: what connect() returns; by default the daemon, or else the command line.
    """

    def __init__(self, config: Optional[SandboxConfig] = None, connection=None):
        self.config = config or SandboxConfig()
        self.connection = connection or connect()
        self.mount_policy = MountPolicy(list(self.config.allowed_read_paths),
                                        list(self.config.allowed_write_paths))

    async def run_code(self, code, language="python", extra_mounts=None, **options) -> SandboxResult:
        """Runs a snippet: python, bash, node, ... extra_mounts: [{"host_path", "container_path",
        "readonly"}], each checked by the mount policy."""
        return await in_thread(self.run_code_sync, code, language, extra_mounts, **options)

    async def run_command(self, command, **options) -> SandboxResult:
        """Runs a line for a shell, or a list of words without one."""
        return await in_thread(self.run_command_sync, command, **options)

    def run_code_sync(self, code, language="python", extra_mounts=None, stdin="", files=None, capture=None,
                      call=None):
        return self._run({"code": code, "language": language}, extra_mounts, stdin, files, capture, call)

    def run_command_sync(self, command, extra_mounts=None, stdin="", files=None, capture=None, call=None):
        words = command if isinstance(command, (list, tuple)) else ["sh", "-c", command]
        return self._run({"cmd": list(words)}, extra_mounts, stdin, files, capture, call)

    def _run(self, what, extra_mounts, stdin, files, capture, call):
        mounts = [self._mount(mount) for mount in extra_mounts or []]
        stdin = stdin.encode() if isinstance(stdin, str) else stdin
        if self.connection.is_daemon:
            return SandboxResult(self._by_daemon(what, mounts, stdin, files, capture, call))
        return SandboxResult(self._by_command(what, mounts, stdin, files, capture, call))

    def _mount(self, mount):
        path, readonly = mount["host_path"], mount.get("readonly", True)
        if not validate_mount(path, self.mount_policy, writable=not readonly):
            raise ClocheError("mount: %s is not allowed by the mount policy" % path, "denied", "mount")
        return "%s:%s:%s" % (path, mount["container_path"], "ro" if readonly else "rw")

    def _by_daemon(self, what, mounts, stdin, files, capture, call):
        if mounts:
            raise ClocheError("mount: a daemon shows no paths that a client names; ask its operator for "
                              "a volume, or pass files", "unsupported", "mount")
        request = dict(self.config.limits(), **what)
        if stdin:
            request["stdin_base64"] = base64.b64encode(stdin).decode()
        if files:
            request["files"] = [{"path": path, "content_base64": base64.b64encode(to_bytes(data)).decode()}
                                for path, data in files.items()]
        if capture:
            request["capture"] = list(capture)
        if self.config.env:
            request["env"] = dict(self.config.env)
        return self.connection.run(request, call)

    def _by_command(self, what, mounts, stdin, files, capture, call):
        """Nothing of the caller's own directory is shown: there is an empty workspace."""
        fields = dict(self.config.limits(), empty=True, mount=mounts, capture=list(capture or []))
        fields["env"] = ["%s=%s" % pair for pair in self.config.env.items()]
        with Placed(files) as place:
            arguments = as_options(fields) + place.options
            if "code" in what:
                arguments += ["--lang", what["language"]] + place.code(what["code"])
                return self.connection.record("code", arguments, stdin, call)
            return self.connection.record("run", arguments + ["--"] + what["cmd"], stdin, call)


def to_bytes(data):
    return data.encode() if isinstance(data, str) else bytes(data)


class Placed:
    """Files of a request as `--file NAME=PATH`, from a directory that lives as long as the run."""

    def __init__(self, files):
        self.files, self.options = files or {}, []
        self.directory = None

    def _keep(self, name, data):
        if self.directory is None:
            self.directory = tempfile.TemporaryDirectory(prefix="cloche-client-")
        path = os.path.join(self.directory.name, name)
        with open(path, "wb") as file:
            file.write(to_bytes(data))
        return path

    def code(self, text):
        """A snippet: as an argument, or as a file where that would be too long."""
        return ["-e", text] if len(text) < ARGUMENT_MAX else [self._keep("main", text)]

    def __enter__(self):
        for number, (name, data) in enumerate(self.files.items()):
            self.options += ["--file", "%s=%s" % (name, self._keep(str(number), data))]
        return self

    def __exit__(self, *_error):
        if self.directory:
            self.directory.cleanup()

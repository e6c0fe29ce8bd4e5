"""Sandboxes that live on between commands: of a daemon, or made of a directory and `cloche run`."""
import base64
import os
import posixpath
import secrets
import shutil
import tempfile
import urllib.parse

from .connection import connect
from .errors import ClocheError
from .result import SandboxResult
from .runner import as_options, to_bytes

INPUT_MAX = 4 << 20  # bytes of stdin within a request, whose body has at most 16 MB


class Sandbox:
    """One sandbox; made by SandboxManager. `with` destroys it at the end. Paths inside are absolute or
    relative to the workspace."""

    def __init__(self, manager, sandbox_id):
        self.manager, self.id = manager, sandbox_id

    def execute(self, command, timeout=None, env=None, cwd=None, stdin=None, user=None, session=None, call=None):
        """Runs a line for a shell, or a list of words without one; a SandboxResult. stdin: text or
        bytes, of any size. user: a user of the sandbox; without it, its own. session: lines of the same
        session have one directory, exported variables and functions (with a daemon)."""
        raise NotImplementedError

    def write_file(self, path, content, mode=None):
        """mode: of a file that is new, such as 0o755; without it 0o644."""
        raise NotImplementedError

    def read_file(self, path, most=None):
        """The bytes of a file. most: a larger file is an error (kind "limit") and is not read."""
        raise NotImplementedError

    def read_text(self, path, encoding="utf-8"):
        return self.read_file(path).decode(encoding)

    def copy_to(self, host_path, path):
        """Copies a file of the host into the sandbox."""
        with open(host_path, "rb") as file:
            self.write_file(path, file.read())

    def copy_from(self, path, host_path):
        """Copies a file of the sandbox to the host; never over a link."""
        data = self.read_file(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(host_path, flags, 0o644), "wb") as file:
            file.write(data)

    def upload_tree(self, host_path, path):
        """Copies the files of a directory of the host into a directory inside; links are left out."""
        for top, _directories, names in os.walk(host_path):
            inside = posixpath.join(path, os.path.relpath(top, host_path).replace(os.sep, "/"))
            for name in names:
                source = os.path.join(top, name)
                if os.path.isfile(source) and not os.path.islink(source):
                    with open(source, "rb") as file:
                        executable = os.fstat(file.fileno()).st_mode & 0o100
                        self.write_file(posixpath.normpath(posixpath.join(inside, name)), file.read(),
                                        mode=0o755 if executable else None)

    def download_tree(self, path, host_path):
        """Copies the files of a directory inside to a directory of the host. The names come from inside:
        none leads out of that directory, and links and devices are left out."""
        os.makedirs(host_path, exist_ok=True)
        for entry in self.list_files(path):
            name = entry["name"]
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise ClocheError("%s: the sandbox named a file %r" % (path, name), "system")
            target = os.path.join(host_path, name)
            if entry["type"] == "directory" and not os.path.islink(target):
                self.download_tree(posixpath.join(path, name), target)
            elif entry["type"] == "file":
                self.copy_from(posixpath.join(path, name), target)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.destroy()

    def __repr__(self):
        return "<Sandbox %s>" % self.id


class DaemonSandbox(Sandbox):
    def _path(self, action="", **query):
        path = "/v1/sandboxes/%s" % urllib.parse.quote(self.id, safe="")
        query = {name: str(value) for name, value in query.items() if value is not None}
        return path + action + ("?" + urllib.parse.urlencode(query) if query else "")

    @property
    def daemon(self):
        return self.manager.connection

    def execute(self, command, timeout=None, env=None, cwd=None, stdin=None, user=None, session=None, call=None):
        request = {"cmd": list(command)} if isinstance(command, (list, tuple)) else {"shell": command}
        if timeout is not None:
            request["timeout"] = "%dms" % round(timeout * 1000)
        for name, value in (("env", env), ("cwd", cwd), ("user", user), ("session", session)):
            if value:
                request[name] = value
        kept = self._add_input(request, to_bytes(stdin)) if stdin is not None else None
        try:
            return SandboxResult(self.daemon.json("POST", self._path("/exec"), request, call=call))
        except ClocheError:
            if kept:
                self._forget_input(kept)
            raise

    def _add_input(self, request, stdin):
        """A request has room for a few MB of input. More goes ahead as a file, which the command opens
        and removes before it runs; the name of that file."""
        if len(stdin) <= INPUT_MAX:
            request["stdin_base64"] = base64.b64encode(stdin).decode()
            return None
        path = "/tmp/.cloche-stdin-" + secrets.token_hex(8)
        self.write_file(path, stdin)
        words = request.get("cmd") or ["/bin/sh", "-c", request.pop("shell")]
        request["cmd"] = ["/bin/sh", "-c", 'exec <"$0" && rm -f -- "$0" && exec "$@"', path] + words
        return path

    def _forget_input(self, path):
        try:
            self.delete_file(path)
        except ClocheError:
            pass

    def write_file(self, path, content, mode=None):
        query = {"path": path, "mode": None if mode is None else "%04o" % mode}
        self.daemon.raw("PUT", self._path("/files", **query), to_bytes(content),
                        {"Content-Type": "application/octet-stream"})

    def read_file(self, path, most=None):
        return self.daemon.raw("GET", self._path("/files", path=path), most=most)[1]

    def list_files(self, path=".", depth=1):
        """Entries of a directory: dicts with name, path, type, size, ..."""
        return self.daemon.json("GET", self._path("/files", path=path, list=1, depth=depth))["entries"]

    def delete_file(self, path, recursive=False):
        self.daemon.raw("DELETE", self._path("/files", path=path, recursive=1 if recursive else None))

    def start(self):
        return self.daemon.json("POST", self._path("/start"), {})

    def stop(self):
        """Ends its processes; its files stay."""
        return self.daemon.json("POST", self._path("/stop"), {})

    def destroy(self):
        self.daemon.raw("DELETE", self._path())

    def info(self):
        return self.daemon.json("GET", self._path())

    def get_stats(self):
        return self.daemon.json("GET", self._path("/stats"))

    def health_check(self):
        """True if the sandbox answers."""
        try:
            answer = self.daemon.json("GET", self._path("/health"))
        except ClocheError as error:
            if error.kind in ("not_found", "conflict", "unreachable"):
                return False
            raise
        return not isinstance(answer, dict) or bool(answer.get("healthy", answer.get("ok", True)))


class LocalSandbox(Sandbox):
    """Without a daemon: a private directory is the workspace of every run; nothing else lives on.

    The sandbox fills that directory, so it is never walked or read from outside, where a link in it
    would lead into the host: every file is read and written by a command inside."""

    def __init__(self, manager, options):
        super().__init__(manager, secrets.token_hex(8))
        self.options = options
        self.directory = tempfile.mkdtemp(prefix="cloche-sandbox-")
        self.last = None
        self.running = True

    def _check(self):
        if not self.directory:
            raise ClocheError("sandbox %s is destroyed" % self.id, "not_found")
        if not self.running:
            raise ClocheError("sandbox %s is stopped" % self.id, "conflict")

    def execute(self, command, timeout=None, env=None, cwd=None, stdin=None, user=None, session=None, call=None):
        self._check()
        if session:
            raise ClocheError("session: needs a daemon", "unsupported", "session")
        if user not in (None, "user"):
            raise ClocheError("user: there is no '%s' inside; it is user" % user, "invalid", "user")
        words = list(command) if isinstance(command, (list, tuple)) else ["sh", "-c", command]
        fields = dict(self.options, workspace=self.directory)
        fields["env"] = ["%s=%s" % pair for pair in {**(self.options.get("env") or {}), **(env or {})}.items()]
        if timeout is not None:
            fields["timeout"] = "%dms" % round(timeout * 1000)
        if cwd:
            fields["workdir"] = posixpath.join("/workspace", cwd)
        record = self.manager.connection.record("run", as_options(fields) + ["--"] + words,
                                                to_bytes(stdin or b""), call)
        self.last = SandboxResult(record)
        return self.last

    def _inside(self, script, *words, stdin=b""):
        """Output of a small script inside; its failure is raised by what it said."""
        self._check()
        code, out, err = self.manager.connection.spawn(
            ["run", "--workspace", self.directory, "--workdir", "/workspace", "--", "sh", "-c", script, "sh"]
            + list(words), stdin)
        if code:
            text = err.decode("utf-8", "replace").strip() or "status %d" % code
            missing = "No such file" in text
            raise ClocheError(text, "not_found" if missing else "system")
        return out

    def write_file(self, path, content, mode=None):
        self._inside('mkdir -p -- "$(dirname -- "$1")" && cat >"$1" && if [ "$2" ]; then chmod "$2" "$1"; fi', path,
                     "" if mode is None else "%o" % mode, stdin=to_bytes(content))

    def read_file(self, path, most=None):
        if most is None:
            return self._inside('cat -- "$1"', path)
        data = self._inside('head -c "$2" -- "$1"', path, str(most + 1))
        if len(data) > most:
            raise ClocheError("%s: has more than %d bytes" % (path, most), "limit")
        return data

    def list_files(self, path=".", depth=1):
        out = self._inside('find "$1" -mindepth 1 -maxdepth "$2" -printf "%y %s %P\\0"',
                           path if path.startswith("/") else "./" + path, str(depth))
        kinds = {"f": "file", "d": "directory", "l": "symlink"}
        rows = [row.split(" ", 2) for row in out.decode("utf-8", "replace").split("\0") if row]
        return [{"name": posixpath.basename(name), "path": posixpath.normpath(posixpath.join(path, name)),
                 "type": kinds.get(kind, "other"), "size": int(size)}
                for kind, size, name in sorted(rows, key=lambda row: row[2])]

    def delete_file(self, path, recursive=False):
        self._inside('rm %s -- "$1"' % ("-r" if recursive else ""), path)

    def start(self):
        if not self.directory:
            self._check()
        self.running = True

    def stop(self):
        self._check()
        self.running = False

    def destroy(self):
        self.manager.forget(self)
        if not self.directory:
            return
        self.running = True
        try:  # code inside may have taken its owner's permissions away
            self._inside("chmod -R u+rwX .")
        except ClocheError:
            pass
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = None

    def info(self):
        state = "destroyed" if not self.directory else "running" if self.running else "stopped"
        return {"id": self.id, "state": state, "level": self.options.get("level", "container")}

    def get_stats(self):
        """What the last command used; between commands there is nothing that could use anything."""
        record = self.last.record if self.last else {}
        return {"memory_bytes": 0, "memory_peak_bytes": record.get("max_rss_bytes", 0),
                "cpu_ms": record.get("cpu_ms", 0), "pids": 0, "disk_bytes": record.get("disk_bytes")}

    def health_check(self):
        return bool(self.directory) and self.running and self._inside("echo ok") == b"ok\n"


class SandboxManager:
    """create, get, list, destroy, destroy_all, stats, health_check_all.

    url, token: see connect(). options of create() are those of cloche by their names: memory, cpus,
    pids, disk, level, env, ...; with a daemon also ttl, name, metadata, volumes, snapshot."""

    def __init__(self, url=None, token=None, connection=None):
        self.connection = connection or connect(url, token)
        self._local = {}

    def create(self, **options):
        if self.connection.is_daemon:
            return DaemonSandbox(self, self.connection.json("POST", "/v1/sandboxes", options)["id"])
        box = LocalSandbox(self, options)
        self._local[box.id] = box
        return box

    def get(self, sandbox_id):
        if self.connection.is_daemon:
            box = DaemonSandbox(self, sandbox_id)
            if box.info()["state"] == "destroyed":
                raise ClocheError("sandbox %s is destroyed" % sandbox_id, "not_found")
            return box
        if sandbox_id not in self._local:
            raise ClocheError("no sandbox %s" % sandbox_id, "not_found")
        return self._local[sandbox_id]

    def list(self, state=None, metadata=None):
        if not self.connection.is_daemon:
            return [box for box in self._local.values() if state in (None, box.info()["state"])]
        found, query = [], {}
        if state:
            query["state"] = state
        pairs = list(query.items()) + [("metadata", "%s=%s" % pair) for pair in (metadata or {}).items()]
        while True:
            answer = self.connection.json("GET", "/v1/sandboxes?" + urllib.parse.urlencode(pairs))
            # The daemon remembers what it destroyed for a while; that is for who asks for it.
            found += [DaemonSandbox(self, row["id"]) for row in answer["sandboxes"]
                      if state or row.get("state") != "destroyed"]
            if not answer.get("cursor"):
                return found
            pairs = [pair for pair in pairs if pair[0] != "cursor"] + [("cursor", answer["cursor"])]

    def destroy(self, sandbox_id):
        self.get(sandbox_id).destroy()

    def destroy_all(self):
        """All of one's own; how many there were."""
        boxes = self.list()
        for box in boxes:
            try:
                box.destroy()
            except ClocheError as error:
                if error.kind != "not_found":
                    raise
        return len(boxes)

    def stats(self):
        """get_stats() of each that runs, by id."""
        found = {}
        for box in self.list():
            try:
                found[box.id] = box.get_stats()
            except ClocheError as error:
                if error.kind not in ("not_found", "conflict"):
                    raise
        return found

    def health_check_all(self):
        """health_check() of each, by id."""
        return {box.id: box.health_check() for box in self.list()}

    def forget(self, box):
        self._local.pop(box.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        if not self.connection.is_daemon:
            self.destroy_all()

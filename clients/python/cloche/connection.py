"""The two ways to cloche: a daemon's HTTP interface, and the command line."""
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.parse

from .errors import ClocheError

SYSTEM_SOCKET = "/run/cloche/cloche.sock"


def connect(url=None, token=None, program=None):
    """A Daemon or a CommandLine, whichever can be had.

    url: http://HOST:PORT, https://..., or unix:/path/to/socket. Without it CLOCHE_URL, then the
    sockets of CLOCHE_RUNTIME_DIR, the user and the system; if no daemon answers there, the command
    line. program names the `cloche` command and means the command line.
    """
    url = url or (None if program else os.environ.get("CLOCHE_URL"))
    token = token or os.environ.get("CLOCHE_TOKEN")
    if url:
        return Daemon(url, token)
    for path in [] if program else sockets():
        if answers(path):
            return Daemon("unix:" + path, token)
    return CommandLine(program)


def sockets():
    """Where a daemon of this machine listens."""
    runtime = os.environ.get("CLOCHE_RUNTIME_DIR")
    if runtime:
        return [os.path.join(runtime, "cloche.sock")]
    user = os.environ.get("XDG_RUNTIME_DIR")
    return ([os.path.join(user, "cloche", "cloche.sock")] if user else []) + [SYSTEM_SOCKET]


def answers(path):
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.settimeout(5)
            probe.connect(path)
            return True
        except OSError:
            return False


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Call:
    """Something under way that can be given up from another thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._stop = None
        self.cancelled = False

    def begin(self, stop):
        with self._lock:
            self._stop = stop
            if self.cancelled:
                stop()

    def end(self):
        with self._lock:
            self._stop = None

    def cancel(self):
        with self._lock:
            self.cancelled = True
            if self._stop:
                self._stop()


class Daemon:
    """REST over TCP or a unix socket; one connection for each request, so any thread may use it."""

    is_daemon = True

    def __init__(self, url, token=None):
        self.url, self.token = url, token
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "unix":
            self.unix, self.prefix = parts.path or parts.netloc, ""
        elif parts.scheme in ("http", "https") and parts.hostname:
            self.unix, self.prefix = None, parts.path.rstrip("/")
        else:
            raise ClocheError("%s: try http://HOST:PORT or unix:/path" % url, "invalid", "url")
        self.parts = parts

    def _open(self, timeout):
        if self.unix:
            return UnixConnection(self.unix, timeout)
        host, port = self.parts.hostname, self.parts.port
        if self.parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout,
                                               context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def raw(self, method, path, body=None, headers=None, timeout=None, call=None, most=None):
        """Status and bytes of an answer; an answer that is an error is raised, and so is one that has
        more than `most` bytes."""
        call = call or Call()
        connection = self._open(timeout)
        headers = dict(headers or {})
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        try:
            connection.connect()
            call.begin(lambda: connection.sock and connection.sock.shutdown(socket.SHUT_RDWR))
            connection.request(method, self.prefix + path, body, headers)
            answer = connection.getresponse()
            data = answer.read() if most is None else answer.read(most + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ClocheError("no answer from %s: %s" % (self.url, error or type(error).__name__),
                              "unreachable") from error
        finally:
            call.end()
            connection.close()
        if answer.status >= 400:
            raise ClocheError.from_answer(parse(data), answer.status)
        if most is not None and len(data) > most:
            raise ClocheError("%s: the answer has more than %d bytes" % (path, most), "limit")
        return answer.status, data

    def json(self, method, path, body=None, **options):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        data = self.raw(method, path, data, headers, **options)[1]
        return parse(data) if data else None

    def run(self, request, call=None):
        """POST /v1/run; the result record."""
        return self.json("POST", "/v1/run", request, call=call)


class CommandLine:
    """`cloche run --json` and `cloche code --json`: every run a sandbox of its own."""

    is_daemon = False

    def __init__(self, program=None):
        self.program = program or os.environ.get("CLOCHE") or shutil.which("cloche")
        if not self.program:
            raise ClocheError("no cloche daemon answers and no `cloche` command is in PATH; start "
                              "`cloche serve`, or set CLOCHE_URL or CLOCHE", "unreachable")

    def spawn(self, arguments, stdin=b"", call=None, cwd=None):
        """Exit status, stdout and stderr of `cloche ARGUMENTS`."""
        call = call or Call()
        try:
            process = subprocess.Popen([self.program] + arguments, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
        except OSError as error:
            raise ClocheError("cannot start %s: %s" % (self.program, error.strerror), "unreachable") from error
        with process:
            call.begin(process.terminate)
            try:
                out, err = process.communicate(stdin)
            except BaseException:
                process.terminate()
                raise
            finally:
                call.end()
        return process.returncode, out, err

    def record(self, verb, arguments, stdin=b"", call=None, cwd=None):
        """The record of a run; cloche's own errors are raised."""
        code, out, err = self.spawn([verb, "--json"] + arguments, stdin, call, cwd)
        answer = parse(out)
        if not isinstance(answer, dict) or "error" in answer:
            if isinstance(answer, dict):
                raise ClocheError.from_answer(answer)
            text = err.decode("utf-8", "replace").strip()
            raise ClocheError(text or "cloche ended with status %d" % code)
        return answer


def parse(data):
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        return None

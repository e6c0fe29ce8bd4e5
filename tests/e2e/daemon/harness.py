"""What the daemon's suites share: a daemon of their own and a small HTTP client.

    d = harness.shared()                       one for all suites, started when first needed
    r = d.post("/v1/run", {"cmd": ["true"]})   r.status, r.headers, r.body, r.json
    d = harness.Daemon(config="..."); d.start(); ...; d.stop()

Requests go through the Unix socket as the operator, or over TCP with token=KEY. Nothing here waits
for a fixed time: until(...) polls with a generous deadline, since the machine may be busy.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import cl  # noqa: E402
import described  # noqa: E402
import leaks  # noqa: E402

CLOCHED = os.path.join(os.path.dirname(cl.CLOCHE), "cloched")
DEADLINE = 30
ROOT = os.geteuid() == 0


# The library that is loaded into an interpreter is not built with sanitizers; in any other build its lack is a fault.
needs_warm = unittest.skipIf(cl.is_sanitized(), "a build with sanitizers has nothing warm")


def until(look, what="it", deadline=DEADLINE):
    """Polls until look() is true, and returns that."""
    found = cl.wait_for(look, deadline)
    if not found:
        raise AssertionError("%s did not happen within %d s" % (what, deadline))
    return found


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Response:
    def __init__(self, reply):
        self.status, self.headers, self.body = reply.status, reply.headers, reply.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return "%d %.1000r" % (self.status, self.body)


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, connection, reply):
        self.connection, self.reply = connection, reply
        self.status, self.headers = reply.status, reply.headers

    def lines(self):
        while True:
            line = self.reply.readline()
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\n")

    def events(self):
        """Pairs of name and parsed data; comments are left out."""
        name = None
        for line in self.lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])

    def close(self):
        self.reply.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Daemon:
    def __init__(self, config=None, env=None, under=(), lab=None):
        """under: a command that executes another. lab: the netlab.Lab in which the daemon runs."""
        self.config, self.extra_env, self.under, self.process = config, env or {}, under, None
        self.lab = lab
        if lab:
            self.under = lab.under
        self.dir = tempfile.mkdtemp(prefix="d-", dir=cl.base_dir())
        os.chmod(self.dir, 0o755)
        self.sock = os.path.join(self.dir, "s")
        self.log = os.path.join(self.dir, "log")
        self.keys, self.description = {}, None

    # ---- life

    def env(self):
        return cl.caller_env(
            CLOCHE_STATE_DIR=os.path.join(self.dir, "state"),
            CLOCHE_RUNTIME_DIR=os.path.join(self.dir, "run"),
            **self.extra_env,
        )

    def start(self):
        command = [*self.under, CLOCHED, "serve", "--listen", "127.0.0.1:0", "--listen", "unix:" + self.sock]
        if self.config is not None:
            path = os.path.join(self.dir, "cloche.yaml")
            with open(path, "w", encoding="utf-8") as out:
                out.write(self.config)
            command += ["--config", path]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self.is_serving, "the daemon's start")
        self.port = until(self.find_port, "a TCP port in the log")
        leaks.tags.add(self.tag())
        return self

    def tag(self):
        return leaks.daemon_tag(os.path.join(self.dir, "state"))

    def is_serving(self):
        if self.process.poll() is not None:
            raise AssertionError("the daemon ended:\n" + self.read_log())
        try:
            return self.get("/healthz").status == 200
        except OSError:
            return False

    def find_port(self):
        port = None
        for line in self.read_log().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("msg") == "listening" and entry.get("address", "").startswith("127."):
                port = int(entry["address"].rpartition(":")[2])
        return port

    def read_log(self):
        with open(self.log, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def stop(self, destroy=True):
        """Ends it; a daemon that does not end in time is a failure."""
        if self.process and self.process.poll() is None:
            if destroy:
                self.delete("/v1/sandboxes")
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the daemon did not stop:\n" + self.read_log()[-4000:])

    def remove(self):
        self.keep_counters()
        shutil.rmtree(self.dir, ignore_errors=True)

    def keep_counters(self):
        """tools/coverage: confined roles write their counters below their own root."""
        to = os.environ.get("CLOCHE_COVERAGE")
        for role in ("db", "audit") if to else ():
            top = os.path.join(self.dir, "state", role) + cl.TOP
            if os.path.isdir(top):
                shutil.copytree(top, os.path.join(to, os.path.basename(self.dir) + role))

    def token(self, name="t", *options):
        """A key, made by `cloche token create`; the daemon has it when this returns."""
        made = subprocess.run(
            [*self.under, cl.CLOCHE, "token", "create", *options, name],
            env=self.env(), capture_output=True, text=True, timeout=DEADLINE,
        )
        if made.returncode:
            raise AssertionError("cloche token create: " + made.stderr)
        key = made.stdout.strip().splitlines()[-1]
        until(lambda: self.get("/v1/volumes", token=key).status != 401, "the token")
        return key

    # ---- requests

    def connect(self, token=None, timeout=60):
        if token is None:
            connection = UnixConnection(self.sock, timeout)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if self.lab:
            connection.sock = self.lab.connect(self.port if token else self.sock, timeout=timeout)
        return connection

    def open(self, method, path, body=None, headers=None, token=None):
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        if token:
            headers["Authorization"] = "Bearer " + token
        connection = self.connect(token)
        connection.request(method, path, body=body, headers=headers)
        return connection, connection.getresponse()

    def request(self, method, path, body=None, headers=None, token=None):
        connection, reply = self.open(method, path, body, headers, token)
        try:
            response = Response(reply)
        finally:
            connection.close()
        self.check_described(method, path, response)
        return response

    def check_described(self, method, path, response):
        """Every answer of /v1 is as /openapi.json says."""
        if not path.startswith("/v1/"):
            return
        if self.description is None:
            self.description = described.Description(self.get("/openapi.json").json)
        complaint = self.description.complaint(method, path, response)
        if complaint:
            raise AssertionError("%s %s: %s: %r" % (method, path, complaint, response))

    def get(self, path, **how):
        return self.request("GET", path, **how)

    def post(self, path, body=None, **how):
        return self.request("POST", path, body, **how)

    def put(self, path, body=b"", **how):
        return self.request("PUT", path, body, **how)

    def delete(self, path, **how):
        return self.request("DELETE", path, **how)

    def stream(self, method, path, body=None, headers=None, token=None):
        return Stream(*self.open(method, path, body, headers, token))

    def raw(self, unix=False):
        """A bare connection."""
        if unix:
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.settimeout(DEADLINE)
            s.connect(self.sock)
            return s
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)


_shared = None


def shared():
    global _shared
    if _shared is None:
        _shared = Daemon().start()
    return _shared


def stop_shared():
    global _shared
    if _shared is not None:
        daemon, _shared = _shared, None
        daemon.stop()
        daemon.remove()


def quote(text):
    return urllib.parse.quote(text, safe="")


def b64(data):
    return base64.b64encode(data).decode()


class Box:
    """A sandbox for one test."""

    def __init__(self, daemon, token=None, **options):
        self.daemon, self.token = daemon, token
        made = daemon.post("/v1/sandboxes", options, token=token)
        if made.status != 201:
            raise AssertionError("create: %r" % made)
        self.id = made.json["id"]
        self.path = "/v1/sandboxes/" + self.id

    def exec(self, *cmd, **more):
        body = dict(more)
        if cmd:
            body["cmd"] = list(cmd)
        return self.daemon.post(self.path + "/exec", body, token=self.token)

    def sh(self, line, **more):
        reply = self.exec(shell=line, **more)
        if reply.status != 200:
            raise AssertionError("exec: %r" % reply)
        return reply.json

    def start(self, **body):
        """A background command's id."""
        reply = self.exec(background=True, **body)
        if reply.status != 201:
            raise AssertionError("exec: %r" % reply)
        return reply.json["id"]

    def get(self, what, **how):
        return self.daemon.get(self.path + what, token=self.token, **how)

    def post(self, what, body=None, **how):
        return self.daemon.post(self.path + what, body, token=self.token, **how)

    def put(self, what, body=b"", **how):
        return self.daemon.put(self.path + what, body, token=self.token, **how)

    def delete(self, what="", **how):
        return self.daemon.delete(self.path + what, token=self.token, **how)

    def stream(self, method, what, body=None, headers=None):
        return self.daemon.stream(method, self.path + what, body, headers, token=self.token)


class Case(unittest.TestCase):
    """self.d is the shared daemon; self.box() makes a sandbox that is gone after the test."""

    @property
    def d(self):
        return shared()

    def box(self, token=None, **options):
        box = Box(self.d, token, **options)
        self.addCleanup(box.delete)
        return box

    def assertError(self, reply, status, kind=None, field=None):
        self.assertEqual(reply.status, status, reply)
        error = reply.error
        self.assertTrue(error["message"], reply)
        if kind:
            self.assertEqual(error["kind"], kind, reply)
        if field:
            self.assertEqual(error.get("field"), field, reply)
        return error

"""A daemon of one's own for the tests of the command line: directories, settings, start and end.

    class X(served.Case):
        settings = "pool_size: 0\\n"             of cloche.conf.yaml
    self.cloche("ps")                           runs the command line against it
    self.api("GET", "/v1/sandboxes")            status and parsed JSON, over the Unix socket

One daemon for each class. Every wait has a generous limit; none is exact.
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
CLOCHE = os.path.abspath(os.environ.get("CLOCHE", os.path.join(BUILD, "cloche")))
LIMIT = 60


class Done:
    def __init__(self, p):
        self.code, self.raw, self.err = p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")
        self.out = p.stdout.decode("utf-8", "replace")

    def __str__(self):
        return f"exit {self.code}\nstdout: {self.out[-2000:]}\nstderr: {self.err[-2000:]}"


def wait_for(what, limit=LIMIT):
    """Calls what until it returns something true; that is returned. Errors of the OS count as no."""
    end = time.monotonic() + limit
    while True:
        try:
            got = what()
        except OSError:
            got = None
        if got or time.monotonic() > end:
            return got
        time.sleep(0.05)


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)


class Daemon:
    """`cloche serve` in a directory of its own."""

    def __init__(self, settings=""):
        self.dir = tempfile.mkdtemp(prefix="cl-", dir="/tmp")
        self.state, self.runtime = os.path.join(self.dir, "s"), os.path.join(self.dir, "r")
        self.config = os.path.join(self.dir, "c.yaml")
        self.log = os.path.join(self.dir, "log")
        self.socket = os.path.join(self.runtime, "cloche.sock")
        self.process = None
        self.write_settings(settings)

    def write_settings(self, text):
        with open(self.config + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(self.config + ".new", self.config)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("CLOCHE_")}
        env.update(CLOCHE_STATE_DIR=self.state, CLOCHE_RUNTIME_DIR=self.runtime,
                   CLOCHE_URL="unix:" + self.socket)
        return {**env, **more}

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [CLOCHE, "serve", "--config", self.config, "--listen", "127.0.0.1:0",
                 "--listen", "unix:" + self.socket],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(),
                start_new_session=True)
        if not wait_for(self.answers):
            raise AssertionError("the daemon does not serve:\n" + self.read_log())

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError("the daemon ended:\n" + self.read_log())
        return self.request("GET", "/healthz")[0] == 200

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()[-4000:]

    def address(self):
        with open(os.path.join(self.runtime, "listen"), encoding="utf-8") as lines:
            return "http://" + next(line.strip() for line in lines if not line.startswith("unix:"))

    def request(self, method, path, body=None, headers=None):
        connection = UnixHTTP(self.socket)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, text

    def end(self, sig=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                self.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def remove(self):
        """Ends the sandboxes, then the daemon, then removes everything."""
        try:
            if self.process and self.process.poll() is None:
                self.request("DELETE", "/v1/sandboxes")
        except OSError:
            pass
        self.end()
        shutil.rmtree(self.dir, ignore_errors=True)


class Case(unittest.TestCase):
    settings = "pool_size: 0\n"

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.settings)
        try:
            cls.daemon.start()
        except BaseException:
            cls.daemon.remove()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.daemon.remove()

    def cloche(self, *args, stdin=b"", env=None, ok=None):
        """ok: the exit status that it must have; None: any."""
        p = subprocess.run([CLOCHE, *args], input=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=2 * LIMIT, check=False,
                           env=self.daemon.environment(**(env or {})))
        done = Done(p)
        if ok is not None:
            self.assertEqual(done.code, ok, f"cloche {' '.join(args)}: {done}")
        return done

    def api(self, method, path, body=None, headers=None):
        return self.daemon.request(method, path, body, headers)

    def create(self, *args, env=None):
        box = self.cloche("create", *args, env=env, ok=0).out.strip()
        self.assertRegex(box, "^[a-z0-9]{16,}$")
        self.addCleanup(self.cloche, "rm", box)
        return box

    def token(self, *args):
        """Makes one; its key, and the environment of a client over TCP that has it."""
        key = self.cloche("token", "create", *args, ok=0).out.splitlines()[-1]
        env = {"CLOCHE_TOKEN": key}
        # The daemon hears of it by a notice from the kernel.
        self.assertTrue(wait_for(lambda: self.cloche(
            "ps", env={**env, **self.over_tcp()}).code == 0 or not self.reads(args)))
        return key, {**env, **self.over_tcp()}

    @staticmethod
    def reads(args):
        scopes = [args[i + 1] for i, a in enumerate(args) if a == "--scopes"]
        return not scopes or "read" in scopes[0] or "admin" in scopes[0]

    def over_tcp(self):
        return {"CLOCHE_URL": self.daemon.address()}

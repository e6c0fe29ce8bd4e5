"""TLS on the daemon's TCP port: certificates, what goes through, and clients that mean harm."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import unittest

import cl
import harness
import netlab
from harness import until


class TlsDaemon(harness.Daemon):
    def __init__(self, config="tls: {self: true}\n", **how):
        super().__init__(config=config, **how)
        self.ca = os.path.join(self.dir, "state", "ca.pem")

    def context(self):
        return ssl.create_default_context(cafile=self.ca)

    def tls(self, name="localhost", context=None, timeout=30):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        return (context or self.context()).wrap_socket(raw, server_hostname=name)

    def connect(self, token=None, timeout=60):
        if token is None:
            return super().connect(None, timeout)
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=timeout)
        connection.sock = self.tls(timeout=timeout)
        return connection

    def role(self):
        """Its process id, or None."""
        for line in subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        ).stdout.splitlines():
            pid, _, args = line.strip().partition(" ")
            if "role tls" in args:
                return int(pid)
        return None


def fingerprint(d):
    with d.tls() as s:
        return s.getpeercert(True)


@contextlib.contextmanager
def running(*args, **how):
    d = TlsDaemon(*args, **how)
    try:
        yield d.start()
        d.stop()
    finally:
        if d.process and d.process.poll() is None:
            d.process.kill()
            d.process.wait()
        d.remove()


class Own(harness.Case):
    """One daemon with a CA of its own."""

    @classmethod
    def setUpClass(cls):
        cls.d = TlsDaemon().start()
        cls.key = cls.d.token("tls")

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()
        cls.d.remove()

    def test_the_port_speaks_tls_only(self):
        self.assertEqual(self.d.get("/v1/sandboxes", token=self.key).status, 200)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.d.tls(context=ssl.create_default_context())
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.d.tls(name="example.com")
        self.d.tls(name="127.0.0.1").close()
        with self.d.raw() as s:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertRegex(s.recv(1000), rb"^HTTP/1.1 400 (?s:.*)use https://")

    def test_curl(self):
        url = "https://localhost:%d/healthz" % self.d.port
        for args, code in ((["--cacert", self.d.ca], 0), ([], 60)):
            r = cl.command(self.need_program("curl"), "-sS", "-m", "10", *args, url)
            self.assertEqual(r.code, code, str(r))

    need_program = cl.Case.need_program

    def test_a_client_is_not_the_operator(self):
        with self.d.tls() as s:
            s.sendall(b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertIn(b" 401 ", s.recv(1000).split(b"\r\n")[0])

    def test_old_and_other_protocols(self):
        old = self.d.context()
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        for context, alpn in ((old, None), (self.d.context(), ["h2"])):
            if alpn:
                context.set_alpn_protocols(alpn)
            with self.assertRaises((ssl.SSLError, OSError)):
                self.d.tls(context=context)
        both = self.d.context()
        both.set_alpn_protocols(["h2", "http/1.1"])
        with self.d.tls(context=both) as s:
            self.assertEqual((s.selected_alpn_protocol(), s.version()), ("http/1.1", "TLSv1.3"))

    def test_large_bodies_and_many_requests_on_one_connection(self):
        box = harness.Box(self.d, token=self.key)
        data = random.Random(1).randbytes(5_000_000)
        self.assertEqual(box.put("/files?path=big", data).status, 200)
        connection = self.d.connect(self.key)
        for _ in range(3):
            connection.request("GET", box.path + "/files?path=big", headers={"Authorization": "Bearer " + self.key})
            self.assertEqual(connection.getresponse().read(), data)
        connection.close()
        box.delete()

    def test_streams_and_upgrades(self):
        box = harness.Box(self.d, token=self.key)
        eid = box.start(shell="echo a; sleep 0.2; echo b")
        with box.stream("GET", "/execs/%d/stream" % eid) as s:
            text = "".join(data.get("text", "") for name, data in s.events() if name == "stdout")
        self.assertEqual(text, "a\nb\n")
        box.put("/files?path=echo.py", ECHO.encode())
        box.start(cmd=["python3", "echo.py"])
        until(lambda: box.get("/ports/8000/").status == 200, "the server inside")
        self.assertEqual(box.get("/ports/8000/").body, b"https")
        self.assertEqual(self.d.get(box.path + "/ports/8000/").body, b"http")
        with self.d.tls() as s:
            s.sendall((
                "GET %s/ports/8000/up HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n" % (box.path, self.key)).encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(1000)
            self.assertIn(b" 101 ", head)
            for piece in (b"one", b"x" * 100000):
                s.sendall(piece)
                got = b""
                while len(got) < len(piece):
                    got += s.recv(65536)
                self.assertEqual(got, piece)
        box.delete()

    def test_a_client_that_leaves_ends_its_run(self):
        mark = cl.marker()
        with self.d.tls() as s:
            body = json.dumps({"cmd": ["sleep", mark], "timeout": 60000}).encode()
            s.sendall((
                "POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (self.key, len(body))).encode() + body)
            until(lambda: cl.host_pids(mark), "the run")
        self.assertEqual(cl.gone(mark, 20), [])

    def test_the_role_has_nothing(self):
        with open("/proc/%d/status" % self.d.role(), encoding="ascii") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        self.assertEqual({status[c] for c in ("CapEff", "CapPrm", "CapBnd")}, {"0" * 16})
        if cl.ROOT:
            self.assertGreater(int(status["Uid"].split()[0]), 1 << 30)

    def test_handshakes_that_never_end(self):
        idle = []
        try:
            for i in range(1000):
                s = self.d.raw()
                if i % 2:
                    s.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
                idle.append(s)
            self.assertEqual(self.d.get("/readyz").status, 200)
            for _ in range(3):
                self.assertEqual(self.d.get("/v1/sandboxes", token=self.key).status, 200)
            # Each that was one too many had the oldest closed: not their time is over, but their number.
            self.assertLess(self.sockets(), 300)
        finally:
            for s in idle:
                s.close()
        until(lambda: self.sockets() < 30, "the end of all")

    def sockets(self):
        """Connections of the role; only root may look at another user's files."""
        try:
            return len(os.listdir("/proc/%d/fd" % self.d.role()))
        except PermissionError:
            return 0

    def test_garbage(self):
        luck = random.Random(7)
        pid = self.d.role()
        hello = bytes.fromhex("16030100") + b"\x80" + bytes.fromhex("0100007c0303") + luck.randbytes(32)
        for i in range(300):
            with self.d.raw() as s:
                data = bytearray(luck.randbytes(luck.randrange(1, 600)) if i % 3 else hello + luck.randbytes(90))
                if i % 3 == 1:
                    data[:5] = b"\x16\x03\x03" + (len(data) - 5).to_bytes(2, "big", signed=False) if len(data) > 5 else data
                with contextlib.suppress(OSError):
                    s.sendall(data)
                    if i % 2:
                        s.shutdown(socket.SHUT_WR)
        # After a good handshake: records that are none.
        for _ in range(20):
            with self.d.tls() as s:
                raw = socket.socket(fileno=os.dup(s.fileno()))
                raw.sendall(luck.randbytes(400))
                raw.close()
        self.assertEqual(self.d.get("/v1/sandboxes", token=self.key).status, 200)
        self.assertEqual(self.d.role(), pid)

    def test_slow_readers_hold_up_nobody(self):
        box = harness.Box(self.d, token=self.key)
        box.put("/files?path=big", b"z" * 5_000_000)
        slow = []
        for _ in range(20):
            s = self.d.tls()
            s.sendall((
                "GET %s/files?path=big HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
                % (box.path, self.key)).encode())
            slow.append(s)
        self.assertEqual(len(box.get("/files?path=big").body), 5_000_000)
        for s in slow:
            s.close()
        box.delete()

    def test_a_killed_role_comes_back(self):
        pid = self.d.role()
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.d.role() not in (None, pid), "a new role")
        until(lambda: self.d.get("/readyz").status == 200, "readiness")
        self.assertEqual(self.d.get("/v1/sandboxes", token=self.key).status, 200)

    def test_ca_verbs(self):
        def ca(*args):
            return subprocess.run([cl.CLOCHE, "ca", *args], env=self.d.env(), capture_output=True, text=True, timeout=30)

        old = self.d.context()
        with open(self.d.ca, encoding="ascii") as f:
            self.assertEqual(ca("show").stdout, f.read())
        renewed = ca("renew")
        self.assertEqual(renewed.returncode, 0, renewed.stderr)
        self.assertEqual(ca("show").stdout, renewed.stdout)

        def is_new():
            with contextlib.suppress(ssl.SSLError):
                self.d.tls().close()
                return True

        until(is_new, "the new certificate")
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.d.tls(context=old)
        self.assertEqual(os.stat(os.path.join(self.d.dir, "state", "ca.key")).st_mode & 0o777, 0o600)


ECHO = r"""
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") != "echo":
            said = self.headers["X-Forwarded-Proto"].encode()
            self.send_response(200); self.send_header("Content-Length", str(len(said))); self.end_headers()
            self.wfile.write(said); return
        self.send_response(101); self.send_header("Upgrade", "echo"); self.send_header("Connection", "Upgrade")
        self.end_headers(); self.close_connection = True
        while True:
            data = self.connection.recv(65536)
            if not data: break
            self.connection.sendall(data)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
"""


class Files(harness.Case):
    """Certificates of the operator's."""

    def setUp(self):
        self.dir = os.path.join(cl.base_dir(), "tls-%d" % os.getpid())
        os.makedirs(self.dir, exist_ok=True)
        netlab.make_ca(self.dir)
        netlab.make_leaf(self.dir, "one", ["localhost", "127.0.0.1"])
        self.paths = [os.path.join(self.dir, "one" + end) for end in (".pem", ".key")]
        self.addCleanup(subprocess.run, ["rm", "-rf", self.dir])

    def test_reload(self):
        with running("tls: {cert: %s, key: %s}\n" % tuple(self.paths)) as d:
            d.ca = os.path.join(self.dir, "ca.pem")
            first = fingerprint(d)
            with d.tls() as open_one:
                netlab.make_leaf(self.dir, "one", ["localhost"])
                d.process.send_signal(signal.SIGHUP)
                until(lambda: fingerprint(d) != first, "the new certificate")
                second = fingerprint(d)
                with open(self.paths[1], "w", encoding="ascii") as out:
                    out.write("no key")
                d.process.send_signal(signal.SIGHUP)
                until(lambda: "no private key" in d.read_log(), "the complaint")
                self.assertEqual(fingerprint(d), second)
                open_one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b" 200 ", open_one.recv(1000))

    def refused(self, says, *options):
        r = subprocess.run(
            [harness.CLOCHED, "serve", "--listen", "127.0.0.1:0", *options], capture_output=True, text=True, timeout=30,
            env=cl.caller_env(CLOCHE_STATE_DIR=self.dir + "/s", CLOCHE_RUNTIME_DIR=self.dir + "/r"))  # fmt: skip
        self.assertEqual(r.returncode, 125, r)
        self.assertRegex(r.stderr, says)

    def test_what_is_refused(self):
        netlab.make_leaf(self.dir, "other", ["localhost"])
        netlab.make_leaf(self.dir, "old", ["localhost"], days="-1")
        at = lambda name: os.path.join(self.dir, name)  # noqa: E731
        for option, says in (
            ("nonsense", "tls: 'nonsense' is neither 'self' nor CERT,KEY"),
            (at("none.pem") + "," + at("one.key"), "none.pem"),
            (at("one.pem") + "," + at("other.key"), "not of this certificate"),
            (at("old.pem") + "," + at("old.key"), "has expired"),
            (at("one.key") + "," + at("one.key"), "no certificate"),
        ):
            self.refused(says, "--tls", option)
        for text, says in (
            ("tls: {cert: /x}", "needs cert and key"),
            ("tls: {self: true, cert: /x, key: /y}", "takes self, or cert and key"),
            ("http: {domain: 'a..b'}", "http.domain.*is no domain"),
        ):
            with open(at("c.yaml"), "w", encoding="ascii") as out:
                out.write(text + "\n")
            self.refused(says, "--config", at("c.yaml"))


if __name__ == "__main__":
    unittest.main()

"""Published ports: a port of the host that leads to a port inside a sandbox."""

import os
import signal
import socket
import unittest

import harness
from harness import until

ECHO = (
    "import socketserver\n"
    "class H(socketserver.BaseRequestHandler):\n"
    "    def handle(self):\n"
    "        while True:\n"
    "            d = self.request.recv(65536)\n"
    "            if not d: return\n"
    "            self.request.sendall(d)\n"
    "class S(socketserver.ThreadingTCPServer): allow_reuse_address = True; request_queue_size = 64\n"
    "S(('127.0.0.1', 9000), H).serve_forever()\n"
)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def talk(port, data=b"hello", address="127.0.0.1"):
    """What comes back, or b"" if nothing does."""
    try:
        with socket.create_connection((address, port), timeout=10) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            got = b""
            while True:
                piece = s.recv(65536)
                if not piece:
                    return got
                got += piece
    except OSError:
        return b""


class Publish(harness.Case):
    def published(self, daemon=None, token=None, **options):
        port = free_port()
        box = harness.Box(daemon or self.d, token, publish=["%d:9000" % port], **options)
        self.addCleanup(box.delete)
        self.serve(box)
        return box, port

    def serve(self, box):
        box.put("/files?path=echo.py", ECHO.encode())
        box.start(cmd=["python3", "echo.py"])

    def test_bytes_both_ways(self):
        box, port = self.published()
        until(lambda: talk(port) == b"hello", "the server inside")
        big = os.urandom(3_000_000)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
            s.sendall(big[:100])
            self.assertEqual(s.recv(100, socket.MSG_WAITALL), big[:100])
        self.assertEqual(talk(port, big[:200_000]), big[:200_000])
        self.assertEqual(box.get("").json["publish"], ["127.0.0.1:%d:9000" % port])
        many = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(50)]
        for i, s in enumerate(many):
            s.sendall(b"%02d" % i)
        self.assertEqual([s.recv(2, socket.MSG_WAITALL) for s in many], [b"%02d" % i for i in range(50)])
        for s in many:
            s.close()

    def test_it_ends_with_the_sandbox(self):
        box, port = self.published()
        until(lambda: talk(port) == b"hello", "the server inside")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
            s.sendall(b"x")
            self.assertEqual(s.recv(1), b"x")
            box.delete()
            self.assertEqual(s.recv(1), b"")
        self.assertRaises(ConnectionRefusedError, socket.create_connection, ("127.0.0.1", port), 5)

    def test_nothing_listens_inside(self):
        port = free_port()
        self.box(publish=["127.0.0.1:%d:81" % port])
        self.assertEqual(talk(port), b"")

    def test_a_port_that_is_taken(self):
        def ids():
            return {s["id"] for s in self.d.get("/v1/sandboxes").json["sandboxes"] if s["state"] != "destroyed"}

        before = ids()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            reply = self.d.post("/v1/sandboxes", {"publish": ["%d:80" % s.getsockname()[1]]})
        self.assertError(reply, 409, field="publish")
        until(lambda: ids() <= before, "the sandbox's end")

    def test_bad_texts(self):
        for text in ("80", "a:80", "0:80", "80:0", "70000:80", "1.2.3:80:80", "localhost:80:80", "[::1:80:80", ":80:80",
                     "80:80:", "127.0.0.1:080:80", " 8080:80", "8080:80 ", "-1:80"):  # fmt: skip
            with self.subTest(text=text):
                self.assertError(self.d.post("/v1/sandboxes", {"publish": [text]}), 400, field="publish")
        self.assertError(self.d.post("/v1/sandboxes", {"publish": ["9000:80"] * 17}), 429, field="publish")
        self.assertError(self.d.post("/v1/run", {"cmd": ["true"], "publish": ["9000:80"]}), 403, field="publish")

    def test_what_the_operator_does_not_allow(self):
        key = self.d.token("publisher")
        for text in ("%d:80" % free_port(), "0.0.0.0:%d:80" % free_port()):
            self.assertError(self.d.post("/v1/sandboxes", {"publish": [text]}, token=key), 403, field="publish")
        for text in ("0.0.0.0:%d:80" % free_port(), "127.0.0.1:80:80", "[::]:%d:80" % free_port()):
            self.assertError(self.d.post("/v1/sandboxes", {"publish": [text]}), 403, field="publish")

    def test_a_fork_has_no_ports(self):
        box, port = self.published()
        for fork in box.post("/fork", {}).json["sandboxes"]:
            path = "/v1/sandboxes/" + fork["sandbox"]["id"]
            self.assertEqual(self.d.get(path).json["publish"], [])
            self.d.delete(path)


class Allowed(harness.Case):
    """A daemon whose operator allows tokens a few ports; its restarts."""

    def test_settings_and_restarts(self):
        ports = sorted(free_port() for _ in range(2))
        d = harness.Daemon(config="publish: {ports: %d-%d}\n" % tuple(ports)).start()
        try:
            key = d.token("publisher")
            outside = next(p for p in range(ports[1] + 1, 65536) if p)
            self.assertError(d.post("/v1/sandboxes", {"publish": ["%d:80" % outside]}, token=key), 403)
            box = harness.Box(d, key, publish=["%d:9000" % ports[0]])
            Publish.serve(self, box)
            until(lambda: talk(ports[0]) == b"hello", "the server inside")
            d.process.send_signal(signal.SIGKILL)
            d.process.wait()
            d.start()
            until(lambda: talk(ports[0]) == b"hello", "the port's return")
            d.stop()
        finally:
            if d.process.poll() is None:
                d.process.kill()
            d.remove()


if __name__ == "__main__":
    unittest.main()

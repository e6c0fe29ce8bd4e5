"""A command's terminal over one WebSocket: what is typed and shown, size, signals, and hostile frames."""

import base64
import fcntl
import hashlib
import json
import os
import pty
import socket
import struct
import subprocess
import termios
import unittest

import harness

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    """No upgrade; status is the answer's."""

    def __init__(self, status, body):
        super().__init__("%d %r" % (status, body))
        self.status = status


class WebSocket:
    """A small client of its own, so that it can break every rule."""

    def __init__(self, daemon, path, token=None, **headers):
        self.sock = daemon.raw(unix=token is None)
        self.buffer = b""
        key = base64.b64encode(os.urandom(16))
        fields = {"Host": "localhost", "Connection": "keep-alive, Upgrade", "Upgrade": "websocket",
                  "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key.decode()}
        if token:
            fields["Authorization"] = "Bearer " + token
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = ["GET %s HTTP/1.1" % path] + ["%s: %s" % f for f in fields.items() if f[1] is not None]
        self.sock.sendall("\r\n".join(lines + ["", ""]).encode())
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            self.sock.close()
            raise Refused(status, head)
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        assert b"Sec-WebSocket-Accept: " + accept in head, head
        assert b"upgrade: websocket" in head.lower(), head

    def more(self):
        piece = self.sock.recv(65536)
        if not piece:
            raise EOFError
        self.buffer += piece

    def take(self, n):
        while len(self.buffer) < n:
            self.more()
        piece, self.buffer = self.buffer[:n], self.buffer[n:]
        return piece

    def frame(self):
        """The next frame but pings: opcode and payload."""
        while True:
            first, second = self.take(2)
            assert first & 0x80 and not second & 0x80, "whole and not masked"
            length = second & 0x7F
            if length == 126:
                length, = struct.unpack("!H", self.take(2))
            elif length == 127:
                length, = struct.unpack("!Q", self.take(8))
            payload = self.take(length)
            if first & 0x0F != PING:
                return first & 0x0F, payload

    def send(self, opcode, payload=b"", last=True, masked=True):
        mask = os.urandom(4)
        head = bytes([(0x80 if last else 0) | opcode])
        bit = 0x80 if masked else 0
        if len(payload) < 126:
            head += bytes([bit | len(payload)])
        elif len(payload) < 65536:
            head += struct.pack("!BH", bit | 126, len(payload))
        else:
            head += struct.pack("!BQ", bit | 127, len(payload))
        if masked:
            payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
            head += mask
        self.sock.sendall(head + payload)

    def type(self, text):
        self.send(BINARY, text.encode())

    def say(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def read_until(self, text):
        shown = b""
        while text not in shown:
            opcode, payload = self.frame()
            assert opcode == BINARY, (opcode, payload, shown)
            shown += payload
        return shown

    def end(self):
        """All that is shown until the end, the last words as JSON, and the code of the close."""
        shown, words = b"", None
        while True:
            opcode, payload = self.frame()
            if opcode == BINARY:
                shown += payload
            elif opcode == TEXT:
                words = json.loads(payload)
            elif opcode == CLOSE:
                return shown, words, struct.unpack("!H", payload[:2])[0]

    def close_code(self):
        return self.end()[2]

    def close(self):
        self.sock.close()


class Case(harness.Case):
    def open(self, box, eid, query="", **headers):
        ws = WebSocket(self.d, "%s/execs/%d/ws%s" % (box.path, eid, query), token=box.token, **headers)
        self.addCleanup(ws.close)
        return ws

    def shell(self, *cmd, box=None):
        box = box or self.box()
        return self.open(box, box.start(cmd=list(cmd) or ["sh"], tty=True, rows=20, cols=60))

    def handed_over(self, box, *cmd):
        """Started by a stream of events, which is closed once the WebSocket is there, as `cloche exec -t` does."""
        with box.stream("POST", "/exec", {"cmd": cmd, "tty": True}, {"Accept": "text/event-stream"}) as stream:
            eid = next(stream.events())[1]["id"]
            return eid, self.open(box, eid)


class Terminal(Case):
    def test_typed_and_shown(self):
        ws = self.shell()
        ws.type("echo $((6 * 7)); stty size\n")
        self.assertIn(b"42\r\n20 60\r\n", ws.read_until(b"20 60\r\n"))
        ws.type("exit 3\n")
        shown, words, code = ws.end()
        self.assertEqual((words["exit"]["exit_code"], words["exit"]["status"], code), (3, "exited", 1000))
        with self.assertRaises(EOFError):
            ws.frame()

    def test_size(self):
        ws = self.shell()
        ws.say(resize={"rows": 44, "cols": 99})
        ws.type("until [ \"$(stty size)\" = '44 99' ]; do sleep 0.05; done; echo g''ot\n")
        self.assertIn(b"got", ws.read_until(b"got\r\n"))

    def test_signals(self):
        for signal, number in (("TERM", 15), ("SIGKILL", 9), (9, 9)):
            with self.subTest(signal):
                ws = self.shell("sleep", "1000")
                ws.say(signal=signal)
                self.assertEqual(ws.end()[1]["exit"]["signal"], number)

    def test_output_from_a_number_on(self):
        box = self.box()
        eid = box.start(shell="echo 0123456789; sleep 1000")
        harness.until(lambda: b"9" in box.get("/logs").body)
        self.assertIn(b"6789\n", self.open(box, eid, "?from=6").read_until(b"9\n"))

    def test_a_command_that_has_ended(self):
        box = self.box()
        eid = box.start(shell="echo done; exit 4")
        harness.until(lambda: not box.get("/execs/%d" % eid).json["running"], "its end")
        shown, words, code = self.open(box, eid).end()
        self.assertEqual((shown, words["exit"]["exit_code"], code), (b"done\n", 4, 1000))

    def test_ping_and_close(self):
        ws = self.shell()
        ws.send(PING, b"are you there")
        while True:
            opcode, payload = ws.frame()
            if opcode == PONG:
                break
        self.assertEqual(payload, b"are you there")
        ws.send(CLOSE, struct.pack("!H", 1000))
        self.assertEqual(ws.close_code(), 1000)

    def test_fragments(self):
        ws = self.shell()
        ws.send(BINARY, b"echo fr", last=False)
        ws.send(PING, b"x")
        ws.send(0, b"ag''ments\n")
        while True:
            opcode, payload = ws.frame()
            if b"fragments\r\n" in payload:
                break

    def test_more_than_any_buffer_both_ways(self):
        """Neither side may have to hold what the other does not take. (In the background nobody is waited for.)"""
        line = "stty raw -echo; echo ready; head -c 3000000 | sha1sum; head -c 3000000 /dev/zero"
        _, ws = self.handed_over(self.box(), "sh", "-c", line)
        ws.read_until(b"ready")
        data = os.urandom(3000000)
        for at in range(0, len(data), 60000):
            ws.send(BINARY, data[at:at + 60000])
        shown, words, _ = ws.end()
        self.assertIn(hashlib.sha1(data).hexdigest().encode(), shown)
        self.assertEqual((shown.count(b"\0"), words["exit"]["exit_code"]), (3000000, 0))

    def test_kept_or_killed_when_the_client_goes(self):
        box = self.box()
        kept = box.start(cmd=["sleep", "1000"], tty=True)
        self.open(box, kept).close()
        killed, ws = self.handed_over(box, "sleep", "1000")
        # The stream is gone, the WebSocket is not: it goes on.
        ws.say(resize={"rows": 5, "cols": 5})
        ws.send(PING)
        self.assertEqual(ws.frame()[0], PONG)
        self.assertTrue(box.get("/execs/%d" % killed).json["running"])
        ws.close()
        harness.until(lambda: box.get("/execs/%d" % killed).status == 404
                      or not box.get("/execs/%d" % killed).json["running"], "its end")
        self.assertTrue(box.get("/execs/%d" % kept).json["running"])


class Hostile(Case):
    def assertRefused(self, status, call):
        with self.assertRaises(Refused) as caught:
            call()
        self.assertEqual(caught.exception.status, status)

    def test_handshake(self):
        box = self.box()
        eid = box.start(cmd=["sleep", "1000"], tty=True)
        for status, headers in (
            (426, {"Upgrade": None}), (426, {"Connection": None}), (426, {"Upgrade": "h2c"}),
            (426, {"Sec_WebSocket_Version": "8"}), (400, {"Sec_WebSocket_Key": "short"}),
            (400, {"Sec_WebSocket_Key": None}),
        ):
            with self.subTest(str(headers)):
                self.assertRefused(status, lambda: self.open(box, eid, **headers))
        self.assertRefused(404, lambda: self.open(box, 9999))
        self.assertRefused(400, lambda: self.open(box, eid, "?from=x"))
        self.assertRefused(400, lambda: self.open(box, eid, "?other=1"))

    def test_pages_of_other_sites(self):
        box = harness.Box(self.d, token=self.d.token("ws-page"))
        self.addCleanup(box.delete)
        eid = box.start(cmd=["sleep", "1000"], tty=True)
        self.assertRefused(403, lambda: self.open(box, eid, Origin="https://evil.example"))
        self.open(box, eid)

    def test_who_may(self):
        box = self.box()
        eid = box.start(cmd=["sleep", "1000"], tty=True)
        path = "%s/execs/%d/ws" % (box.path, eid)
        stranger, reader = self.d.token("ws-a"), self.d.token("ws-b", "--scopes", "read")
        self.assertRefused(404, lambda: WebSocket(self.d, path, token=stranger))
        self.assertRefused(403, lambda: WebSocket(self.d, path, token=reader))
        self.assertRefused(401, lambda: WebSocket(self.d, path, token="nobody"))

    def test_frames(self):
        rows = (
            (1002, lambda ws: ws.send(BINARY, b"x", masked=False)),
            (1002, lambda ws: ws.send(0x42, b"x")),  # a reserved bit
            (1002, lambda ws: ws.send(3, b"x")),
            (1002, lambda ws: ws.send(0, b"x")),
            (1002, lambda ws: ws.send(PING, b"x" * 126)),
            (1002, lambda ws: ws.send(PING, b"x", last=False)),
            (1002, lambda ws: (ws.send(BINARY, b"x", last=False), ws.send(BINARY, b"x"))),
            (1002, lambda ws: ws.sock.sendall(b"\x82\xfe\x00\x01mask" + b"x")),
            (1002, lambda ws: ws.sock.sendall(b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff")),
            (1009, lambda ws: ws.sock.sendall(b"\x82\xff\x00\x00\x00\x00\x40\x00\x00\x00")),
            (1009, lambda ws: [ws.send(BINARY if i == 0 else 0, b"x" * 30000, last=False) for i in range(3)]),
        )
        box = self.box()
        for i, (code, call) in enumerate(rows):
            with self.subTest(i):
                ws = self.shell("cat", box=box)
                call(ws)
                self.assertEqual(ws.close_code(), code)
        self.assertEqual(box.sh("echo fine")["stdout"], "fine\n")

    def test_words(self):
        ws = self.shell()
        for text in (b"", b"[]", b"{}", b"{\"resize\":1}", b"{\"resize\":{\"rows\":0,\"cols\":1}}",
                     b"{\"resize\":{\"rows\":99999,\"cols\":1}}", b"{\"signal\":\"NONE\"}", b"{\"signal\":-1}",
                     b"{\"signal\":true}", b"{\"signal\":9,\"resize\":{}}", b"\xff\xfe", b"{" * 5000,
                     b"{\"signal\":9,\"signal\":9}"):
            with self.subTest(text[:40]):
                ws.send(TEXT, text)
                opcode, payload = ws.frame()
                while opcode == BINARY:
                    opcode, payload = ws.frame()
                self.assertEqual((opcode, json.loads(payload)["error"]["kind"]), (TEXT, "invalid"))
        ws.type("echo st''ill\n")
        ws.read_until(b"still\r\n")

    def test_a_client_that_sends_and_never_reads(self):
        """Its pings fill what waits for it, and then the daemon reads no more; others go on."""
        box = self.box()
        ws = self.shell("cat", box=box)
        ws.sock.settimeout(1)
        with self.assertRaises(socket.timeout):
            while True:
                ws.sock.sendall(b"\x89\xfd" + bytes(4) + b"x" * 125)
        self.assertEqual(box.sh("echo fine")["stdout"], "fine\n")

    def test_gone_in_the_middle(self):
        box = self.box()
        for sent in (b"", b"\x82", b"\x82\xfe\x80\x00mask", b"\x82\x85mask" + b"hello"):
            with self.subTest(sent):
                ws = self.shell("cat", box=box)
                ws.sock.sendall(sent)
                ws.close()
        self.assertEqual(box.sh("echo fine")["stdout"], "fine\n")

    def test_a_sandbox_that_ends(self):
        box = self.box()
        ws = self.shell("sleep", "1000", box=box)
        box.delete()
        shown, words, code = ws.end()
        self.assertTrue("error" in words or "exit" in words, words)


class CommandLine(Case):
    """`cloche exec -t`: no process, and no request for each key."""

    def run_on_terminal(self, *args):
        ours, its = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        p = subprocess.Popen([harness.cl.CLOCHE, *args], stdin=its, stdout=its, stderr=its,
                             env={**os.environ, "CLOCHE_URL": "unix:" + self.d.sock})
        os.close(its)
        self.addCleanup(p.kill)
        return p, ours

    def read_until(self, fd, text):
        shown = b""
        while text not in shown:
            shown += os.read(fd, 4096)
        return shown

    def requests(self):
        return sum(float(line.split()[-1]) for line in self.d.get("/metrics").body.decode().splitlines()
                   if line.startswith("cloche_http_requests_total"))

    def test_keys_cost_no_requests(self):
        box = self.box()
        p, ours = self.run_on_terminal("exec", "-t", box.id, "sh")
        os.write(ours, b"echo re''ady\n")
        self.read_until(ours, b"ready")
        before = self.requests()
        for i in range(20):
            os.write(ours, b"x")
            self.read_until(ours, b"x")
        self.assertLessEqual(self.requests() - before, 2)
        os.write(ours, b"\x15exit 6\n")
        self.assertEqual(p.wait(harness.DEADLINE), 6)

    def test_killed_with_its_client(self):
        box = self.box()
        p, ours = self.run_on_terminal("exec", "-t", box.id, "sh", "-c", "echo ready; sleep 1000")
        self.read_until(ours, b"ready")
        p.kill()
        p.wait()
        harness.until(lambda: not any(x.get("running") for x in box.get("/execs").json), "its end")

    def test_short_commands(self):
        """Also one that has ended before its terminal is attached."""
        box = self.box()
        for i in range(10):
            p, ours = self.run_on_terminal("exec", "-t", box.id, "sh", "-c", "echo sh''ort; exit 9")
            self.assertIn(b"short", self.read_until(ours, b"short"))
            self.assertEqual(p.wait(harness.DEADLINE), 9)


if __name__ == "__main__":
    unittest.main()

"""The HTTP server itself: what is malformed, half-closed, sent ahead, too slow or too much."""

import json
import os
import re
import resource
import socket
import time
import unittest

import harness


def head(first, *lines):
    return "\r\n".join((first, "Host: localhost") + lines + ("", "")).encode("latin-1")


class Raw(harness.Case):
    def talk(self, data, end=False, unix=False, d=None):
        """Sends bytes as they are; everything that comes back until the other side closes."""
        with (d or self.d).raw(unix) as s:
            try:
                s.sendall(data)
                if end:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return self.read_all(s)

    def read_all(self, s):
        got = b""
        try:
            while piece := s.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        return got

    def read_answer(self, s):
        """One answer with a length."""
        got = b""
        while b"\r\n\r\n" not in got:
            piece = s.recv(65536)
            self.assertTrue(piece, got)
            got += piece
        first, _, rest = got.partition(b"\r\n\r\n")
        length = int(first.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
        while len(rest) < length:
            rest += s.recv(65536)
        return int(first.split()[1]), rest

    def auth(self, name="http"):
        if name not in self.d.keys:
            self.d.keys[name] = self.d.token(name)
        return "Authorization: Bearer " + self.d.keys[name]


class Malformed(Raw):
    def refused(self, data, status=b"400"):
        got = self.talk(data + head("GET /healthz HTTP/1.1"))
        self.assertTrue(got.startswith(b"HTTP/1.1 " + status + b" "), got[:300])
        self.assertEqual(got.count(b"HTTP/1.1 "), 1, got)
        first, _, body = got.partition(b"\r\n\r\n")
        self.assertIn(b"connection: close", first.lower())
        error = json.loads(body)["error"]
        self.assertTrue(error["message"])
        return error

    def test_heads(self):
        """Refused with an error of our own, one head, and the end: nothing behind is taken for a request."""
        run = "POST /v1/run HTTP/1.1"
        for data in (
            b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
            b"GET /healthz HTTP/1.1\r\nHost: localhost\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n",
            b"GET /healthz HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: local\0host\r\n\r\n",
            b"GET /heal\0thz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n",
            b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /healthz\r\nHost: localhost\r\n\r\n",
            b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
            b"GET /healthz HTTP/1.1 \r\nHost: localhost\r\n\r\n",
            b"G(T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            head("GET /healthz HTTP/1.1", "Host: elsewhere"),
            head(run, "Content-Length: 0", "Transfer-Encoding: chunked"),
            head(run, "Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n",
            head(run, "Content-Length: 4", "Content-Length: 4") + b"true",
            head(run, "Content-Length: 4, 4") + b"true",
            head(run, "Content-Length: +4") + b"true",
            head(run, "Content-Length: 0x4") + b"true",
            head(run, "Content-Length: 99999999999999999999"),
            head(run, "Transfer-Encoding: gzip, chunked"),
            head(run, "Transfer-Encoding: identity"),
            head("POST /v1/run HTTP/1.0", "Transfer-Encoding: chunked"),
        ):
            with self.subTest(data=data):
                self.assertEqual(self.refused(data)["kind"], "invalid")

    def test_chunks(self):
        """Whether the body is kept in memory or goes on into a sandbox."""
        box = self.box(token=self.auth() and self.d.keys["http"])
        for first in ("POST /v1/run HTTP/1.1", "PUT %s/files?path=a HTTP/1.1" % box.path):
            for body in (b"zz\r\n", b"-1\r\n", b"4\ntrue\r\n0\r\n\r\n", b"4\r\ntrueX\r\n", b"\r\n",
                         b"4 \r\ntrue\r\n0\r\n\r\n", b"1000000000000000\r\n", b"0\r\nX y\r\n\r\n",
                         b"4\r\ntrue\r\n0\r\nX"):
                with self.subTest(first=first, body=body):
                    self.refused(head(first, self.auth(), "Transfer-Encoding: chunked") + body)
        self.assertError(box.get("/files?path=a"), 404)

    def test_too_large_heads(self):
        for data in (b"GET /" + b"a" * 20000, head("GET / HTTP/1.1", "X: " + "a" * 20000)):
            self.assertEqual(self.refused(data, b"431")["kind"], "too_large")
        many = head("GET /healthz HTTP/1.1", *["X%d: a" % i for i in range(200)])
        self.refused(many)

    def test_leading_empty_lines_are_allowed(self):
        got = self.talk(b"\r\n\r\n" + head("GET /healthz HTTP/1.1"), end=True)
        self.assertTrue(got.startswith(b"HTTP/1.1 200 "), got)


class Order(Raw):
    def test_half_closed(self):
        """A client that sends no more still gets its answers, late ones too."""
        run = json.dumps({"shell": "sleep 1; echo late"}).encode()
        slow = head("POST /v1/run HTTP/1.1", self.auth(), "Content-Length: %d" % len(run)) + run
        for unix in False, True:
            with self.subTest(unix=unix):
                got = self.talk(head("GET /healthz HTTP/1.1") * 3, end=True, unix=unix)
                self.assertEqual(got.count(b"HTTP/1.1 200 "), 3, got)
                got = self.talk(slow, end=True, unix=unix)
                self.assertIn(b'"stdout":"late\\n"', got)

    def test_a_client_that_goes_ends_its_run(self):
        box = self.box()
        with box.stream("POST", "/exec", {"shell": "sleep 1234"}, {"Accept": "text/event-stream"}) as s:
            next(s.events())
        harness.until(lambda: not self.running(box), "the end of the command")

    def running(self, box):
        return [e for e in box.get("/execs").json if e["running"]]

    def test_requests_ahead(self):
        """Requests wait in the client's own socket, and are answered in order."""
        count = 3000
        with self.d.raw() as s:
            sent = 0
            s.setblocking(False)
            one = head("GET /openapi.json HTTP/1.1", "X: " + "x" * 8000)
            while sent < count:
                try:
                    s.sendall(one)
                    sent += 1
                except BlockingIOError:
                    break
            self.assertLess(sent, count, "answers that nobody reads are kept")
            self.assertEqual(self.d.get("/healthz").status, 200)

    def test_answers_in_order(self):
        paths = ["/healthz", "/nosuch", "/v1/run", "/healthz"]
        with self.d.raw() as s:
            s.sendall(b"".join(head("GET %s HTTP/1.1" % p) for p in paths * 50))
            s.shutdown(socket.SHUT_WR)
            got = self.read_all(s)
        self.assertEqual(re.findall(rb"HTTP/1\.1 (\d+)", got), [b"200", b"404", b"405", b"200"] * 50)

    def test_expect(self):
        body = b'{"cmd":["true"]}'
        lines = ("Content-Length: %d" % len(body), "Expect: 100-continue")
        with self.d.raw() as s:
            s.sendall(head("POST /v1/run HTTP/1.1", self.auth(), *lines))
            self.assertEqual(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            s.sendall(body)
            self.assertEqual(self.read_answer(s)[0], 200)
        got = self.talk(head("POST /v1/run HTTP/1.1", *lines))
        self.assertTrue(got.startswith(b"HTTP/1.1 401 "), got)
        self.assertEqual(got.count(b"HTTP/1.1 "), 1)

    def test_head_and_old_clients(self):
        with self.d.raw() as s:
            s.sendall(head("HEAD /openapi.json HTTP/1.1") + head("GET /healthz HTTP/1.1"))
            s.shutdown(socket.SHUT_WR)
            got = self.read_all(s)
        first, _, rest = got.partition(b"\r\n\r\n")
        self.assertRegex(first, b"Content-Length: [1-9]")
        self.assertTrue(rest.startswith(b"HTTP/1.1 200 "), rest[:100])
        got = self.talk(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        self.assertNotIn(b"chunked", got)
        box = self.box()
        got = self.talk(b"POST %s/exec HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
                        b"Content-Length: 20\r\n\r\n{\"shell\":\"echo old\"}" % box.path.encode(), unix=True)
        self.assertNotIn(b"chunked", got)
        self.assertIn(b"old", got)


class Refused(Raw):
    """Who asks is known before anything of the body is read."""

    def test_no_body_is_awaited(self):
        made = self.d.post("/sandboxes", {"templateID": "base"}).json["sandboxID"]
        self.addCleanup(self.d.delete, "/sandboxes/" + made)
        wrong = ("E2b-Sandbox-Id: " + made, "E2b-Sandbox-Port: 49983", "X-Access-Token: wrong")
        types = ("Content-Type: application/json",)
        for first, lines, status in (
            ("POST /v1/run HTTP/1.1", (), b"401"),
            ("POST /v1/run HTTP/1.1", ("Authorization: Bearer wrong",), b"401"),
            ("PUT /v1/sandboxes/x/files?path=a HTTP/1.1", (), b"401"),
            ("POST /mcp HTTP/1.1", (), b"401"),
            ("POST /sandboxes HTTP/1.1", (), b"401"),
            ("POST /nosuch HTTP/1.1", (), b"404"),
            ("POST /process.Process/List HTTP/1.1", wrong + types, b"502"),
            ("POST /filesystem.Filesystem/Stat HTTP/1.1", wrong[:2] + types, b"401"),
            ("POST /init HTTP/1.1", wrong, b"502"),
            ("POST /files?path=a HTTP/1.1", wrong, b"502"),
            ("POST /execute HTTP/1.1", (wrong[0], "E2b-Sandbox-Port: 49999"), b"401"),
        ):
            for length in ("Content-Length: 10000000", "Transfer-Encoding: chunked"):
                with self.subTest(first=first, length=length):
                    begun = time.monotonic()
                    got = self.talk(head(first, *lines, length) + b"1\r\na")
                    self.assertTrue(got.startswith(b"HTTP/1.1 " + status), got)
                    self.assertEqual(got.count(b"HTTP/1.1 "), 1)
                    self.assertLess(time.monotonic() - begun, 8)

    def test_strangers_have_ten_seconds_in_all(self):
        """Neither a slow head nor a slow body is kept alive by its bytes."""
        made = self.d.post("/sandboxes", {"templateID": "base"}).json["sandboxID"]
        self.addCleanup(self.d.delete, "/sandboxes/" + made)
        begun = time.monotonic()
        slow = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
                head("POST /v1/run HTTP/1.1", "Content-Length: 60000"),
                head("GET /healthz HTTP/1.1", "Content-Length: 60000"),
                head("POST /nosuch HTTP/1.1", "Content-Length: 60000")]
        sockets = [self.d.raw() for _ in slow]
        for s, data in zip(sockets, slow):
            self.addCleanup(s.close)
            s.sendall(data)
            s.settimeout(0.2)
        left = list(sockets)

        def all_cut():
            for s in list(left):
                try:
                    s.sendall(b"X: a\r\n")
                    while s.recv(65536):
                        pass
                    left.remove(s)
                except socket.timeout:
                    pass
                except OSError:
                    left.remove(s)
            return not left

        harness.until(all_cut, "the end of slow requests", 60)
        self.assertGreater(time.monotonic() - begun, 5)


class Front(Raw):
    def memory(self, d):
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    line = f.read()
                if b"role\0front" in line and d.dir.encode() in line:
                    with open("/proc/%s/statm" % name, encoding="ascii") as f:
                        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                continue
        return self.skipTest("the front cannot be seen from here")


class Faults(Raw):
    def test_errors(self):
        """A harness can tell whose fault it was, and whether to try again."""
        rows = [("GET", "/v1/nosuch", None, "caller", False), ("POST", "/v1/run", b"{", "caller", False),
                ("POST", "/v1/run", b'{"cmd":["true"],"memory":"12Q"}', "caller", False),
                ("PUT", "/v1/run", b"", "caller", False)]
        for method, path, body, fault, retryable in rows:
            error = self.d.request(method, path, body).error
            self.assertEqual((error["fault"], error["retryable"]), (fault, retryable), error)
        box = self.box()
        error = box.get("/ports/9/").error
        self.assertEqual((error["fault"], error["retryable"]), ("program", True), error)

    def test_records(self):
        for body, fault in (({"shell": "true"}, None), ({"shell": "exit 3"}, "program"),
                            ({"shell": "sleep 9", "timeout": "100ms"}, "program"), ({"cmd": ["nosuch"]}, "caller")):
            self.assertEqual(self.d.post("/v1/run", body).json["fault"], fault, body)


class Json(Front):
    def test_values_are_counted(self):
        """Before they are built: neither memory nor time grows with what is refused."""
        before = self.memory(self.d)
        for values in (b"[" + b"1," * (7 << 20) + b"1]", b"{" + b'"":{},' * (1 << 20) + b"}", b"[[]," * (1 << 20),
                       b'{"a":"' + b'","b":"' * (1 << 20)):
            reply = self.d.post("/v1/run", b'{"cmd":["true"],"files":' + values + b"}")
            self.assertIn(reply.status, (400, 413), reply)
            self.assertLess(self.memory(self.d) - before, 48 << 20)
        many = {"cmd": ["true"], "env": {"V%d" % i: "x" for i in range(60000)}}
        self.assertEqual(self.assertError(self.d.post("/v1/run", many), 413, "too_large")["message"],
                         "the body has more than 50000 values")

    def test_many_values_that_arrive_at_once(self):
        """They are built in several turns, and nothing more has to arrive for that."""
        body = b'{"cmd":["true"],"nosuch":[' + b"1," * 20000 + b"1]}"
        self.assertEqual(self.assertError(self.d.post("/v1/run", body), 400, "invalid")["field"], "nosuch")

    def test_memory_comes_back(self):
        before = self.memory(self.d)
        text = "x" * (10 << 20)
        for _ in range(4):
            self.d.post("/v1/run", {"cmd": ["true"], "files": [{"path": "a", "content": text}]})
        harness.until(lambda: self.memory(self.d) - before < 16 << 20, "memory that is given back")

    def test_largest(self):
        """16 MB in one request: others are answered meanwhile."""
        text = "x" * (15 << 20)
        reply = self.d.post("/v1/run", {"shell": "wc -c < a", "files": [{"path": "a", "content": text}]})
        self.assertEqual(reply.json["stdout"].strip(), str(len(text)), reply)


class Connections(Front):
    def test_an_idle_connection_is_small(self):
        count = 300
        before = self.memory(self.d)
        kept = []
        for _ in range(count):
            s = self.d.raw()
            self.addCleanup(s.close)
            s.sendall(head("GET /healthz HTTP/1.1"))
            self.assertEqual(self.read_answer(s)[0], 200)
            kept.append(s)
        self.assertLess((self.memory(self.d) - before) / count, 8192)

    def test_strangers_lock_out_nobody(self):
        d = harness.Daemon(config="http:\n  max_connections: 100\n")
        self.addCleanup(d.remove)
        d.start()
        self.addCleanup(d.stop)
        key = d.token("tenant")
        auth = "Authorization: Bearer " + key
        kept = d.raw()
        self.addCleanup(kept.close)
        kept.sendall(head("GET /v1/sandboxes HTTP/1.1", auth))
        self.assertEqual(self.read_answer(kept)[0], 200)
        hostile = [b"", b"GET /healthz HTTP/1.1\r\nHo", head("POST /v1/run HTTP/1.1", "Content-Length: 60000"),
                   head("GET /openapi.json HTTP/1.1") * 500]
        for i in range(400):
            s = d.raw()
            self.addCleanup(s.close)
            s.setblocking(False)
            try:
                s.send(hostile[i % 4] if i % 16 == 3 else hostile[i % 3])
            except OSError:
                pass
        self.assertEqual(d.get("/v1/sandboxes", token=key).status, 200)
        self.assertEqual(d.get("/v1/sandboxes").status, 200)
        # A tenant's connection is not closed to make room for strangers.
        kept.sendall(head("GET /v1/sandboxes HTTP/1.1", auth))
        self.assertEqual(self.read_answer(kept)[0], 200)

    def test_a_tenant_locks_out_nobody(self):
        d = harness.Daemon(config="http:\n  max_connections: 100\n")
        self.addCleanup(d.remove)
        d.start()
        self.addCleanup(d.stop)
        first, second = d.token("first"), d.token("second")
        # They wait for a body that does not come, so that they are not idle.
        lines = ("Authorization: Bearer " + first, "Content-Length: 5")
        waiting = []
        for _ in range(120):
            s = d.raw()
            self.addCleanup(s.close)
            s.sendall(head("POST /v1/run HTTP/1.1", *lines))
            waiting.append(s)
        self.assertEqual(self.read_answer(waiting[-1])[0], 429)
        self.assertEqual(d.get("/v1/sandboxes", token=second).status, 200)
        self.assertEqual(d.get("/v1/sandboxes").status, 200)

    def test_idle_connections_of_others_do_not_matter(self):
        """Many idle connections of one tenant, then another tenant at its bound: its own oldest one goes."""
        d = harness.Daemon(config="http:\n  max_connections: 2800\n")
        self.addCleanup(d.remove)
        d.start()
        self.addCleanup(d.stop)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        statuses = {}
        for name, count in (("many", 1100), ("few", 740)):
            request = head("GET /v1/volumes HTTP/1.1", "Authorization: Bearer " + d.token(name))
            for _ in range(count):
                s = d.raw()
                self.addCleanup(s.close)
                s.sendall(request)
                statuses[name] = self.read_answer(s)[0]
        self.assertEqual(statuses, {"many": 200, "few": 200})


class Returned(Raw):
    """Whatever a tenant was given comes back, however its requests end."""

    def held(self, d, tenant):
        for row in d.get("/v1/stats").json["tenants"]:
            if row["tenant"] == tenant:
                return {k: v for k, v in row.items() if isinstance(v, int) and v}
        return {}

    def test_all_shares(self):
        d = harness.Daemon()
        self.addCleanup(d.remove)
        d.start()
        self.addCleanup(d.stop)
        key = d.token("hostile")
        tenant = next(t["tenant"] for t in d.get("/v1/stats", token=key).json["tenants"])
        auth = "Authorization: Bearer " + key
        box = harness.Box(d, token=key)
        loud = json.dumps({"shell": "head -c 3000000 /dev/zero | tr '\\0' x; sleep 300"}).encode()
        body = ("Content-Type: application/json", "Content-Length: %d" % len(loud))
        upload = box.path + "/files?path=f"
        values = b'{"cmd":["true"],"x":[' + b'[1,{"a":2}],' * 8000 + b"1]}"
        eid = box.start(cmd=["cat"], tty=True)
        requests = [
            head("POST /v1/run HTTP/1.1", auth, *body) + loud,
            head("POST %s/exec HTTP/1.1" % box.path, auth, *body) + loud,
            head("POST %s/exec HTTP/1.1" % box.path, auth, "Accept: text/event-stream", *body) + loud,
            head("POST /v1/run HTTP/1.1", auth, "Content-Length: 900000") + b'{"cmd":["' + b"x" * 800000,
            head("POST /v1/run HTTP/1.1", auth, "Transfer-Encoding: chunked") + b"5\r\n[1,2,\r\nzz",
            head("POST /v1/run HTTP/1.1", auth, "Content-Length: %d" % len(values)) + values,
            head("POST /v1/run HTTP/1.1", auth, "Content-Length: 900000") + values[:-2],
            head("PUT %s HTTP/1.1" % upload, auth, "Content-Length: 9000000") + b"x" * 500000,
            head("PUT %s HTTP/1.1" % upload, auth, "Transfer-Encoding: chunked") + b"5\r\nabcde\r\n",
            head("POST /v1/sandboxes HTTP/1.1", auth, "Content-Length: 2") + b"{}",
            head("GET %s/events HTTP/1.1" % box.path, auth),
            head("GET %s/ports/9/ HTTP/1.1" % box.path, auth),
            head("GET %s/execs/%d/ws HTTP/1.1" % (box.path, eid), auth, "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + "A" * 22 + "=="),
            head("GET /v1/sandboxes HTTP/1.1", auth) * 50,
        ]
        for wait in (0, 0.3):
            kept = []
            for unix in (False, True):
                for data in requests:
                    s = d.raw(unix)
                    s.setblocking(False)
                    try:
                        s.send(data)
                    except OSError:
                        pass
                    kept.append(s)
            time.sleep(wait)
            for s in kept:
                if wait:  # a reset, not an end that may be half of the connection's
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                s.close()
        self.assertTrue(self.held(d, tenant))

        def is_all_gone():
            for one in d.get("/v1/sandboxes", token=key).json["sandboxes"]:
                d.delete("/v1/sandboxes/" + one["id"], token=key)
            return not self.held(d, tenant)

        try:
            harness.until(is_all_gone, "the shares")
        except AssertionError:
            self.fail("still held: %s" % self.held(d, tenant))


if __name__ == "__main__":
    unittest.main()

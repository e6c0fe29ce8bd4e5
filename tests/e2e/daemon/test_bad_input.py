"""What clients send that is too large, too slow, broken off or senseless: clear answers, no harm."""

import http.client
import json
import os
import resource
import socket
import unittest

import harness


class BadInput(harness.Case):
    def setUp(self):
        self.addCleanup(self.still_well)

    def still_well(self):
        self.assertEqual(self.d.get("/healthz").status, 200)

    def talk(self, data, end=False):
        """Sends bytes as they are; what comes back until the other side is done or quiet."""
        with self.d.raw() as s:
            try:
                s.sendall(data)
                if end:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            s.settimeout(harness.DEADLINE)
            try:
                return s.recv(65536)
            except OSError:
                return b""

    def head(self, first, *lines):
        return "\r\n".join((first, "Host: localhost") + lines + ("", "")).encode()

    def test_bytes_that_are_no_text(self):
        """Whatever stands in a head: it is answered, and nobody else notices."""
        made = self.d.post("/sandboxes", {"templateID": "base"}).json["sandboxID"]
        self.addCleanup(self.d.delete, "/sandboxes/" + made)
        key = self.d.token("no-text")
        ends = lambda: self.d.read_log().count('"role ended"')
        before = ends()
        for lines in (
            ["GET /health HTTP/1.1", "Host: localhost", "E2b-Sandbox-Id: \xff"],
            ["GET /x HTTP/1.1", "Host: localhost", "E2b-Sandbox-Id: \xff", "E2b-Sandbox-Port: 80"],
            ["GET /x HTTP/1.1", "Host: 80-\xff.localhost"],
            ["GET /sandboxes/%s HTTP/1.1" % made, "Host: localhost:\xff", "X-API-Key: " + key],
            ["POST /sandboxes HTTP/1.1", "Host: localhost:\xff", "X-API-Key: " + key,
             "Content-Length: 21"],
            ["GET /templates/aliases/%ff HTTP/1.1", "Host: localhost", "X-API-Key: " + key],
            ["GET /v1/\xff HTTP/1.1", "Host: localhost", "Authorization: Bearer \xff"],
            ["GET /v1/sandboxes HTTP/1.1", "Host: \xff", "Origin: \xff"],
        ):
            with self.subTest(lines=lines):
                text = "\r\n".join(lines + ["", ""]).encode("latin-1")
                self.assertRegex(self.talk(text + b'{"templateID":"base"}'), b"^HTTP/1.1 ")
        self.d.delete("/v1/sandboxes", token=key)
        self.assertEqual(ends(), before, self.d.read_log()[-2000:])

    def test_heads_that_can_be_read_in_two_ways(self):
        """Refused, and what comes behind them on the connection is not taken for a request."""
        behind = b"abcd" + self.head("GET /healthz HTTP/1.1")
        for lines in (
            ("Content-Length: 4", "Content-Length: 40"),
            ("Content-Length: 4", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: xchunked",),
            ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
            ("Content-Length: 4", "Host: elsewhere"),
            ("Content-Length: 4", "Authorization: Bearer a", "Authorization: Bearer b"),
            ("Content-Length: 4", "Authorization : Bearer a"),
            ("Content-Length: 4", "X-A: a\rX-B: b"),
        ):
            with self.subTest(lines=lines), self.d.raw() as s:
                s.sendall(self.head("POST /v1/run HTTP/1.1", *lines) + behind)
                got = b""
                try:
                    while piece := s.recv(65536):
                        got += piece
                except ConnectionResetError:
                    pass
                self.assertRegex(got, b"^HTTP/1.1 400 ")
                self.assertEqual(got.count(b"HTTP/1.1 "), 1, got)

    def test_upload_without_length_is_bounded(self):
        d = harness.Daemon(config="http:\n  max_upload: 64K\n")
        self.addCleanup(d.remove)
        d.start()
        self.addCleanup(d.stop)
        box = harness.Box(d)
        self.assertEqual(box.put("/files?path=/tmp/a", b"x" * 65537).status, 413)
        self.assertLess(box.put("/files?path=/tmp/a", iter([b"x" * 4096] * 16)).status, 300)
        try:
            self.assertEqual(box.put("/files?path=/tmp/b", iter([b"x" * 4096] * 32)).status, 413)
        except (OSError, http.client.HTTPException):
            pass  # it hangs up
        self.assertEqual(box.sh("find /tmp -size +64k")["stdout"], "")

    def test_paths_of_which_there_are_none(self):
        """Errors of /v1 have one form."""
        for method, path in (("GET", "/v1/nosuch"), ("POST", "/v1/sandboxes/x/nosuch"),
                             ("GET", "/v1/sandboxes/")):
            reply = self.d.request(method, path)
            self.assertIsNone(self.assertError(reply, 404, "not_found")["field"])
        self.assertError(self.d.post("/v1/tools/call", {}), 400, "invalid", "tool")
        self.assertError(self.d.post("/mcp/agents/coder", {"task": "x"}), 400, "invalid")
        self.assertEqual(self.d.get("/nosuch").status, 404)
        self.assertEqual(self.d.get("/v1/agentsandmore").status, 404)

    def test_not_json(self):
        rows = [b"{", b'{"cmd":', b"[1,", b"\xff\xfe", b'{"a":1}x', b'{"a":"\\u0000"}',
                b'{"a":1,"a":2}', b"nul", b'"' + b"a" * 1000, b"{'cmd':1}", b"\x00" * 100]
        for body in rows:
            with self.subTest(body=body[:20]):
                reply = self.d.post("/v1/run", body)
                self.assertError(reply, 400, "invalid")

    def test_not_an_object(self):
        for body in (b"[]", b"1", b'"x"', b"null", b"true"):
            with self.subTest(body=body):
                self.assertError(self.d.post("/v1/sandboxes", body), 400, "invalid")

    def test_deep(self):
        for depth in (65, 1000, 100000):
            body = b"[" * depth + b"]" * depth
            self.assertError(self.d.post("/v1/sandboxes", body), 400, "invalid")
        deep = b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
        self.assertError(self.d.post("/v1/sandboxes", deep), 400, "invalid")

    def test_too_large(self):
        reply = self.d.post("/v1/sandboxes", b'{"name":"' + b"a" * (2 << 20) + b'"}')
        self.assertError(reply, 413, "too_large")
        reply = self.d.post("/v1/run", b'{"code":"' + b"a" * (80 << 20) + b'"}')
        self.assertError(reply, 413, "too_large")
        answer = self.talk(self.head("POST /v1/run HTTP/1.1", "Content-Length: 999999999999"))
        self.assertIn(b"401", answer.split(b"\r\n")[0])  # who it is comes first
        connection = self.d.connect()
        connection.putrequest("POST", "/v1/run")
        connection.putheader("Content-Length", "999999999999")
        connection.endheaders()
        self.assertError(harness.Response(connection.getresponse()), 413, "too_large")
        connection.close()

    def test_too_large_in_chunks(self):
        connection = self.d.connect()
        status = None
        try:
            connection.request("POST", "/v1/sandboxes", body=(b"a" * 65536 if i else b'"' for i in range(64)),
                               encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
            status = connection.getresponse().status
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer came while we were still sending
        self.assertIn(status, (413, None))
        connection.close()

    def test_body_where_none_belongs(self):
        reply = self.d.request("GET", "/v1/sandboxes", b"x" * 1000)
        self.assertIn(reply.status, (200, 413))

    def test_large_heads(self):
        for data in (b"GET /" + b"a" * 400000 + b" HTTP/1.1\r\n\r\n",
                     self.head("GET / HTTP/1.1", "X: " + "a" * 400000),
                     self.head("GET / HTTP/1.1", *["X%d: a" % i for i in range(40000)])):
            answer = self.talk(data)
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:100])

    def test_many_arguments(self):
        query = "&".join("a%d=1" % i for i in range(100))
        self.assertError(self.d.get("/v1/sandboxes?" + query), 400, "invalid")

    def test_words_that_no_guest_takes(self):
        """They are refused by name, and nothing else that runs there is lost."""
        many, names = ["true"] + ["a"] * 20000, {"V%d" % i: "x" for i in range(20000)}
        rows = [("cmd", {"cmd": many}), ("env", {"cmd": ["true"], "env": names}), ("shell", {"shell": "#" * 600000}),
                ("cwd", {"cmd": ["true"], "cwd": "/" + "a" * 5000}), ("cmd", {"code": "", "args": many})]
        named = [("tag", {"cmd": ["true"], "tag": "t" * 300}), ("user", {"cmd": ["true"], "user": "u" * 300}),
                 ("session", {"shell": "true", "session": "s" * 300})]
        box = self.box()
        eid = box.start(cmd=["sleep", "100"])
        for field, body in rows + named:
            with self.subTest(field, where="exec"):
                self.assertError(box.exec(**body), 400, "invalid", field)
        long = "a" * 5000
        for field, door, body in (("path", "mkdir", {}), ("from", "move", {"to": "x"}), ("to", "move", {"from": "x"}),
                                  ("path", "chmod", {"mode": "644"}), ("glob", "search", {}), ("content", "search", {})):
            with self.subTest(field, where=door):
                reply = self.d.post("%s/files/%s" % (box.path, door), {**body, field: long})
                self.assertError(reply, 400, "invalid", field)
        found = self.d.get("%s/execs/%d" % (box.path, eid)).json
        self.assertTrue(found["running"], found)
        for field, body in rows + [("env", {"cmd": ["true"], "env": {"A": "x" * 100000}})]:
            for warm in "auto", "off":
                with self.subTest(field, where="run", warm=warm):
                    self.assertError(self.d.post("/v1/run", dict(body, warm=warm)), 400, "invalid", field)
        for field, body in (("env", {"env": names}), ("workdir", {"workdir": "/" + "a" * 5000})):
            with self.subTest(field, where="create"):
                self.assertError(self.d.post("/v1/sandboxes", body), 400, "invalid", field)
        self.assertError(self.d.post("/v1/run", {"cmd": ["true"], "capture": [long]}), 400, "invalid", "capture")
        denied = self.d.post("/v1/run", {"cmd": ["true"], "files": [{"path": "/etc/x", "content": ""}]})
        self.assertError(denied, 403, "denied", "files")

    def test_malformed(self):
        rows = [
            b"GET\r\n\r\n", b"GET / HTTP/7.7\r\n\r\n",
            b"GET  / HTTP/1.1\r\nHost\r\n\r\n", b"get / http/1.1\r\nHost: localhost\r\n\r\n",
            self.head("GET /%zz HTTP/1.1"), self.head("GET /?%zz HTTP/1.1"),
            self.head("GET http://evil.example/ HTTP/1.1"), self.head("GET * HTTP/1.1"),
            self.head("POST /v1/run HTTP/1.1", "Content-Length: -1"),
            self.head("POST /v1/run HTTP/1.1", "Content-Length: x"),
            self.head("POST /v1/run HTTP/1.1", "Transfer-Encoding: chunked") + b"zz\r\n",
            self.head("POST /v1/run HTTP/1.1", "Transfer-Encoding: chunked",
                      "Content-Length: 3") + b"abc",
        ]
        for data in rows:
            with self.subTest(data=data[:40]):
                answer = self.talk(data, end=True)
                self.assertTrue(answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4",
                                                                    b"HTTP/1.1 5")), answer[:100])

    def test_methods_and_paths(self):
        reply = self.d.request("PUT", "/v1/run", b"")
        self.assertError(reply, 405, "method_not_allowed")
        self.assertEqual(reply.headers["Allow"], "POST")
        for path in ("/nothing", "/v1", "/v1/", "/v1/run/", "/v1/sandboxes//exec", "//v1/run"):
            self.assertIn(self.d.get(path).status, (404, 405), path)
        self.assertEqual(self.d.request("HEAD", "/healthz").status, 200)
        self.assertEqual(self.d.request("HEAD", "/healthz").body, b"")

    def test_broken_off(self):
        body = json.dumps({"cmd": ["true"]}).encode()
        for cut in (0, 1, len(body) - 1):
            with self.d.raw(unix=True) as s:
                s.sendall(self.head("POST /v1/run HTTP/1.1", "Content-Length: %d" % len(body)))
                s.sendall(body[:cut])

    def test_bytes_one_by_one(self):
        data = self.head("GET /healthz HTTP/1.1")
        with self.d.raw() as s:
            for i in range(len(data)):
                s.sendall(data[i:i + 1])
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200"))

    def test_one_after_the_other_on_a_connection(self):
        connection = self.d.connect()
        for i in range(20):
            connection.request("POST", "/v1/run" if i % 2 else "/nothing", b'{"cmd":["true"]}')
            reply = harness.Response(connection.getresponse())
            self.assertEqual(reply.status, 200 if i % 2 else 404, reply)
        connection.close()

    def test_requests_ahead_of_answers(self):
        with self.d.raw() as s:
            s.sendall(self.head("GET /healthz HTTP/1.1") * 5)
            got = b""
            while got.count(b"HTTP/1.1 200") < 5:
                more = s.recv(65536)
                self.assertTrue(more, got)
                got += more

    def test_idle_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        want = 2000 if hard == resource.RLIM_INFINITY or hard >= 4096 else 400
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want + 200), hard))
        idle = []
        try:
            for i in range(want):
                idle.append(self.d.raw())
                if i % 3 == 0:
                    idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHo")
            self.assertEqual(self.d.get("/healthz").status, 200)
            idle[-1].sendall(self.head("GET /healthz HTTP/1.1"))
            self.assertTrue(idle[-1].recv(4096).startswith(b"HTTP/1.1 "))
        finally:
            for s in idle:
                s.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        harness.until(lambda: self.connections() < 100, "the end of idle connections")

    def connections(self):
        for line in self.d.get("/metrics").body.decode().splitlines():
            if line.startswith("cloche_connections "):
                return int(line.split()[1])
        return None

    def test_gone_clients_leave_no_connection(self):
        box = self.box()
        idle = self.d.connect()  # the oldest one stays: the others must not wait for its end
        idle.request("GET", "/healthz")
        idle.getresponse().read()
        before = self.connections()
        sse = {"Accept": "text/event-stream"}
        for _ in range(10):
            with box.stream("POST", "/exec", {"shell": "echo a; sleep 1000"}, sse) as s:
                next(s.events())
            with box.stream("GET", "/files?path=/usr/bin/env"):
                pass
        harness.until(lambda: self.connections() <= before + 1, "the end of their connections")
        idle.close()

    def test_endless_upload_is_bounded_by_the_disk(self):
        box = self.box(disk="8M")
        with self.d.raw(unix=True) as s:
            s.sendall(self.head("PUT %s/files?path=endless HTTP/1.1" % box.path,
                                "Transfer-Encoding: chunked"))
            piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
            answer = b""
            try:
                for _ in range(4096):
                    s.sendall(piece)
            except OSError:
                pass
            else:
                self.fail("256 MB went into a disk of 8 MB")
            try:
                answer = s.recv(4096)
            except OSError:
                pass
        if answer:
            self.assertTrue(answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer[:100])
        self.assertError(box.get("/files?path=endless"), 404)

    def test_memory_stays_flat(self):
        front = self.front()
        if not front:
            self.skipTest("the front cannot be seen from here")
        for _ in range(20):
            self.d.post("/v1/run", os.urandom(200000))
        before = self.rss(front)
        for _ in range(100):
            self.d.post("/v1/run", os.urandom(200000))
        self.assertLess(self.rss(front) - before, 64 << 20)

    def front(self):
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    line = f.read()
            except OSError:
                continue
            if b"role\0front" in line and self.d.dir.encode() in line:
                return name
        return None

    def rss(self, pid):
        with open("/proc/%s/statm" % pid, encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    unittest.main()

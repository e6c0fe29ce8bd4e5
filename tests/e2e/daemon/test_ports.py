"""Previews: requests that go on to a port inside, and upgrades."""

import http.client
import unittest

import harness

SERVER = r"""
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, code, body, **headers):
        self.send_response(code)
        for k, v in headers.items(): self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)
    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while True:
                n = int(self.rfile.readline(), 16)
                data += self.rfile.read(n); self.rfile.readline()
                if not n: return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))
    def do_GET(self):
        if self.path.startswith("/chunks"):
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(3): self.wfile.write(b"4\r\nabc%d\r\n" % i)
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/head":
            self.answer(200, str(self.headers).encode(), Set_Cookie="a=b")
        elif self.path == "/hop":
            self.answer(200, b"x", Connection="X-Hop, close", X_Hop="1", Keep_Alive="timeout=5",
                        Proxy_Authenticate="Basic", X_Kept="1")
        elif self.path == "/twice":
            self.send_response(200)
            for k, v in (("Vary", "A"), ("Vary", "B"), ("Content-Length", "3"), ("X-Content-Type-Options", "nosniff")):
                self.send_header(k, v)
            self.end_headers()
            if self.command != "HEAD": self.wfile.write(b"xyz")
        elif self.path == "/trailers":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n")
        elif self.path == "/big":
            self.answer(200, b"z" * 3000000)
        elif self.path == "/bad":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx")
            self.close_connection = True
        elif self.path == "/short":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
            self.close_connection = True
        elif self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Upgrade", "echo")
            self.send_header("Connection", "Upgrade, X-Hop"); self.send_header("X-Hop", "1")
            self.send_header("Content-Length", "7"); self.send_header("X-Kept", "1"); self.end_headers()
            while True:
                data = self.connection.recv(65536)
                if not data: break
                self.connection.sendall(data)
            self.close_connection = True
        else:
            self.answer(404 if self.path == "/404" else 200, self.path.encode())
    do_HEAD = do_GET
    def do_POST(self): self.answer(200, self.command.encode() + b" " + self.body())
    do_PUT = do_DELETE = do_PATCH = do_POST
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H)
print("ready", flush=True)
s.serve_forever()
"""


class Ports(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.inner = harness.Box(harness.shared())
        cls.inner.put("/files?path=server.py", SERVER.encode())
        eid = cls.inner.start(cmd=["python3", "server.py"])
        with cls.inner.stream("GET", "/execs/%d/stream" % eid) as s:
            events = s.events()
            next(events)
            name, data = next(events)
            if data.get("text") != "ready\n":
                raise AssertionError("the inner server: %s %s" % (name, data))

    @classmethod
    def tearDownClass(cls):
        cls.inner.delete()

    def port(self, rest="", method="GET", body=None, headers=None, port=8000):
        return self.d.request(method, "%s/ports/%d%s" % (self.inner.path, port, rest), body, headers)

    def test_get(self):
        reply = self.port("/a/b%20c?x=1&y=%2F")
        self.assertEqual((reply.status, reply.body), (200, b"/a/b%20c?x=1&y=%2F"))
        self.assertIn("sandbox", reply.headers["Content-Security-Policy"])
        self.assertEqual(self.port("").body, b"/")
        self.assertEqual(self.port("/404").status, 404)

    def test_methods_and_bodies(self):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            reply = self.port("/x", method, b"body")
            self.assertEqual((reply.status, reply.body), (200, method.encode() + b" body"))
        big = b"q" * 2000000
        self.assertEqual(self.port("/x", "POST", big).body, b"POST " + big)
        head = self.port("/x", "HEAD")
        self.assertEqual((head.status, head.body), (200, b""))

    def test_chunks_both_ways(self):
        self.assertEqual(self.port("/chunks").body, b"abc0abc1abc2")
        connection = self.d.connect()
        connection.request("POST", self.inner.path + "/ports/8000/x", body=iter([b"a" * 9, b"b"]),
                           encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        reply = harness.Response(connection.getresponse())
        connection.close()
        self.assertEqual(reply.body, b"POST " + b"a" * 9 + b"b")

    def test_repeated_fields(self):
        reply = self.port("/twice")
        self.assertEqual(reply.headers.get_all("Vary"), ["A", "B"])
        self.assertEqual([len(reply.headers.get_all(n)) for n in ("Date", "X-Content-Type-Options")], [1, 1])
        self.assertEqual(self.port("/twice", "HEAD").headers["Content-Length"], "3")

    def test_trailers_are_left_out(self):
        self.assertEqual(self.port("/trailers").body, b"a")

    def test_large_answer(self):
        self.assertEqual(len(self.port("/big").body), 3000000)

    def test_what_is_ours_stays_here(self):
        key = self.d.token("preview", "--scopes", "admin,run,read")
        seen = self.port("/head", headers={
            "Cookie": "session=1", "X-Mine": "yes", "X-Access-Token": "secret", "X-API-Key": key,
            "Authorization": "Bearer " + key})
        text = seen.body.decode().lower()
        self.assertIn("x-mine: yes", text)
        self.assertIn("x-forwarded-prefix", text)
        for secret in ("authorization", "cookie", "x-api-key", "x-access-token", "session=1"):
            self.assertNotIn(secret, text)
        self.assertIsNone(seen.headers["Set-Cookie"])

    def raw(self, lines, rest="/head"):
        """What one request as it stands is answered, until the connection ends."""
        with self.d.raw(unix=True) as s:
            s.sendall(b"GET %s/ports/8000%s HTTP/1.1\r\n%s\r\n\r\n" % (
                self.inner.path.encode(), rest.encode(), b"\r\n".join(lines)))
            text = b""
            while more := s.recv(65536):
                text += more
        return text

    def test_fields_of_one_connection_are_not_passed_on(self):
        text = self.raw([b"Host: localhost", b"Connection: close , x-one", b"Connection: X-Two",
                         b"X-One: secret1", b"X-Two: secret2", b"X-Three: kept", b"TE: trailers",
                         b"Keep-Alive: secret3", b"Proxy-Authorization: secret4"])
        self.assertIn(b" 200 ", text.split(b"\r\n")[0])
        self.assertIn(b"x-three: kept", text.lower())
        for secret in (b"secret", b"x-one", b"x-two", b"trailers"):
            self.assertNotIn(secret, text.lower())
        reply = self.port("/hop")
        self.assertEqual((reply.body, reply.headers["X-Kept"]), (b"x", "1"))
        for name in ("X-Hop", "Keep-Alive", "Proxy-Authenticate"):
            self.assertIsNone(reply.headers[name])

    def test_heads_that_can_be_read_in_two_ways(self):
        for lines in ([b"Host: localhost", b"Host: localhost:1"],
                      [b"Host: localhost", b"Content-Length: 3", b"Transfer-Encoding: chunked"],
                      [b"Host: localhost", b"Transfer-Encoding: gzip, chunked"],
                      [b"Host: localhost", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
                      [b"Host: localhost", b"Content-Length: 0", b"Content-Length: 3"],
                      [b"Host: localhost", b"Content-Length: +3"],
                      [b"Host: localhost", b"Content-Length: 3, 3"],
                      [b"Host: localhost", b"X-One : 1"]):
            text = self.raw(lines)
            self.assertIn(b" 400 ", text.split(b"\r\n")[0] + b" ", (lines, text))
        for rest in ("/a b", "/a HTTP/1.1 x", "/a\x7f", "/a\x01", "/a?b c"):
            text = self.raw([b"Host: localhost", b"Connection: close"], rest)
            self.assertTrue(text == b"" or b" 400 " in text.split(b"\r\n")[0], (rest, text))
        folded = self.raw([b"Host: localhost", b"X-Folded: a", b"\tX-Smuggled: b", b"Connection: close"])
        self.assertNotIn(b"\nx-smuggled:", folded.lower())

    def test_nothing_listens(self):
        self.assertError(self.port("/", port=8001), 502, "bad_gateway")
        self.assertError(self.port("/", port=0), 400)
        self.assertError(self.port("/", port=99999), 400)

    def test_malformed_answers(self):
        self.assertError(self.port("/bad"), 502)
        with self.assertRaises(http.client.IncompleteRead):
            self.port("/short")

    def test_upgrade(self):
        with self.d.raw(unix=True) as s:
            s.sendall(b"GET %s/ports/8000/ws HTTP/1.1\r\nHost: localhost\r\n"
                      b"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n" % self.inner.path.encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(4096)
            self.assertTrue(head.startswith(b"HTTP/1.1 101"), head)
            self.assertIn(b"x-kept: 1", head.lower())
            self.assertIn(b"upgrade: echo", head.lower())
            self.assertNotIn(b"x-hop", head.lower())
            self.assertNotIn(b"content-length", head.lower())
            for size in (5, 100000):
                data, got = b"e" * size, b""
                s.sendall(data)
                while len(got) < size:
                    more = s.recv(65536)
                    self.assertTrue(more)
                    got += more
                self.assertEqual(got, data)
        self.assertEqual(self.port("/after").body, b"/after")


if __name__ == "__main__":
    unittest.main()

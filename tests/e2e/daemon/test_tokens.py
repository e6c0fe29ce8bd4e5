"""API keys: made once, kept hashed, limited, taken back."""
import contextlib
import json
import os
import stat
import socket
import subprocess

import cl
import harness
import served


class Tokens(served.Case):
    settings = "pool_size: 0\nceilings: {memory: 1G}\nsandbox: {memory_limit: 256M, disk_limit: 64M}\n"

    def test_the_key_is_shown_once_and_stored_nowhere(self):
        key, _ = self.token("plain")
        self.assertRegex(key, "^cl_[a-z0-9]+_[0-9a-f]{40}$")
        path = os.path.join(self.daemon.state, "tokens")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="utf-8") as lines:
            text = lines.read()
        self.assertIn(" plain ", text)
        self.assertNotIn(key, text)
        self.assertNotIn(key.rsplit("_", 1)[1], text)
        self.assertNotIn(key, self.cloche("token", "ls", ok=0).out)
        self.assertNotIn(key, self.cloche("audit", "tail", "--json", "-n", "1000").out)

    def test_a_key_for_e2b(self):
        key, _ = self.token("for-e2b", "--e2b")
        self.assertRegex(key, "^e2b_[0-9a-f]{40}$")

    def test_who_has_none(self):
        r = self.cloche("ps", env=self.over_tcp(), ok=125)
        self.assertIn("CLOCHE_TOKEN", r.err)
        bad = {**self.over_tcp(), "CLOCHE_TOKEN": "cl_aaaaaaaaaa_" + "0" * 40}
        self.cloche("ps", env=bad, ok=125)

    def test_scopes(self):
        _, env = self.token("reader", "--scopes", "read")
        self.cloche("ps", env=env, ok=0)
        self.cloche("create", env=env, ok=125)

    def test_ceilings_and_quota(self):
        _, env = self.token("small", "--memory", "512M", "--sandboxes", "1")
        self.cloche("create", "--memory", "600M", env=env, ok=125)
        box = self.cloche("create", env=env, ok=0).out.strip()
        self.cloche("exec", box, "true", env=env, ok=0)
        self.assertIn("limit", self.cloche("create", env=env, ok=125).err)
        self.cloche("rm", box, env=env, ok=0)
        box = self.cloche("create", env=env, ok=0).out.strip()
        self.cloche("rm", box, env=env, ok=0)

    def test_the_operators_ceiling_holds_for_all(self):
        self.cloche("create", "--memory", "2G", ok=125)

    def test_one_tenant_does_not_see_another(self):
        _, one = self.token("tenant-1")
        _, two = self.token("tenant-2")
        box = self.cloche("create", env=one, ok=0).out.strip()
        self.assertEqual(self.cloche("ps", "-q", env=two, ok=0).out, "")
        theirs = self.cloche("exec", box, "true", env=two, ok=125).err
        nobodys = self.cloche("exec", "a" * 20, "true", env=two, ok=125).err
        self.assertEqual(theirs, nobodys)
        self.cloche("rm", box, env=two)
        self.cloche("exec", box, "true", env=one, ok=0)
        self.cloche("rm", box, env=one, ok=0)

    def test_revoked(self):
        _, env = self.token("short-lived")
        self.cloche("token", "revoke", "short-lived", ok=0)
        self.assertTrue(served.wait_for(lambda: self.cloche("ps", env=env).code == 125))
        self.assertIn("no token", self.cloche("token", "revoke", "short-lived", ok=125).err)

    def test_expired(self):
        key = self.cloche("token", "create", "--expires", "1s", "brief", ok=0).out.split()[-1]
        env = {**self.over_tcp(), "CLOCHE_TOKEN": key}
        self.assertTrue(served.wait_for(lambda: self.cloche("ps", env=env).code == 125))

    def test_list(self):
        self.token("listed", "--trust", "3", "--rate", "600")
        rows = {t["name"]: t for t in json.loads(self.cloche("token", "ls", "--json", ok=0).out)}
        self.assertEqual(rows["listed"]["trust"], 3)
        self.assertEqual(rows["listed"]["rate_per_minute"], 600)
        self.assertRegex(self.cloche("token", "ls", ok=0).out, r"(?m)^\w+ +listed +run,files,read")

    def test_refusals(self):
        self.token("twice")
        self.assertIn("already", self.cloche("token", "create", "twice", ok=125).err)
        for args in (("--trust", "9"), ("--scopes", "fly"), ("--memory", "12Q"),
                     ("--expires", "soon")):
            with self.subTest(args=args):
                self.cloche("token", "create", *args, "unmade", ok=125)
        self.cloche("token", "create", "bad name", ok=125)
        self.assertNotIn("unmade", self.cloche("token", "ls", ok=0).out)


# A server that answers every connection with an upgrade and then says nothing.
TUNNEL = r"""
import socket
s = socket.create_server(("127.0.0.1", 8000))
open("/tmp/up", "w").write("up")
kept = []
while True:
    c, _ = s.accept()
    c.recv(65536)
    c.sendall(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    kept.append(c)
"""


class Revoked(harness.Case):
    """With a token end the connections that it has opened."""

    def revoke(self, name):
        done = subprocess.run([cl.CLOCHE, "token", "revoke", name], env=self.d.env(),
                              capture_output=True, timeout=harness.DEADLINE, check=False)
        self.assertEqual(done.returncode, 0, done)

    def raw(self, method, path, key, body=b"", **headers):
        """A connection over TCP whose answer has begun."""
        s = self.d.raw()
        self.addCleanup(s.close)
        fields = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
        if key:
            fields["Authorization"] = "Bearer " + key
        lines = ["%s %s HTTP/1.1" % (method, path)]
        lines += ["%s: %s" % (name.replace("_", "-"), value) for name, value in fields.items()]
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(65536)
            self.assertTrue(piece, head)
            head += piece
        self.assertIn(head.split()[1], (b"200", b"101"), head)
        return s

    def assertEnds(self, s, what):
        s.settimeout(harness.DEADLINE)
        with contextlib.suppress(ConnectionResetError):
            try:
                while s.recv(65536):
                    pass
            except socket.timeout:
                self.fail(what + " goes on")

    def open_ones(self, box, key):
        number, tty = box.start(shell="sleep 1000"), box.start(shell="sleep 1000", tty=True)
        box.start(cmd=["python3", "-c", TUNNEL])
        harness.until(lambda: box.sh("cat /tmp/up")["stdout"], "a server inside")
        sse = {"Accept": "text/event-stream"}
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
                   "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}}}
        session = self.d.post("/mcp", hello, token=key,
                              headers={"Accept": "application/json, text/event-stream"})
        made = self.d.post("/sandboxes", {"templateID": "base"}, headers={"X-API-Key": key}).json
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + made["sandboxID"])
        start = json.dumps({"process": {"cmd": "sleep", "args": ["1000"]}}).encode()
        return {
            "events": self.raw("GET", "/v1/events", key),
            "an exec stream": self.raw("POST", box.path + "/exec", key, b'{"cmd": ["sleep", "1000"]}',
                                       Content_Type="application/json", **sse),
            "an attached stream": self.raw("GET", box.path + "/execs/%d/stream" % number, key),
            "a terminal": self.raw("GET", box.path + "/execs/%d/ws" % tty, key, **upgrade),
            "a tunnel": self.raw("GET", box.path + "/ports/8000/", key, **upgrade),
            "an MCP stream": self.raw("GET", "/mcp", key, **sse,
                                      Mcp_Session_Id=session.headers["Mcp-Session-Id"]),
            "an E2B process": self.raw(
                "POST", "/process.Process/Start", None,
                bytes([0]) + len(start).to_bytes(4, "big") + start,
                Content_Type="application/connect+json", X_Access_Token=made["envdAccessToken"],
                E2b_Sandbox_Id=made["sandboxID"], E2b_Sandbox_Port="49983"),
        }

    def test_expired(self):
        """Nothing else happens to the token file meanwhile."""
        other = self.d.token("lasts")
        key = self.d.token("expires", "--expires", "2s")
        s = self.raw("GET", "/v1/events", key)
        kept = self.raw("GET", "/v1/events", other)
        self.assertEnds(s, "a stream of an expired token")
        kept.settimeout(0.2)
        with contextlib.suppress(socket.timeout):
            self.assertTrue(kept.recv(65536), "another token's stream ended")

    def test_streams(self):
        key, other = self.d.token("revoked"), self.d.token("kept")
        streams = self.open_ones(self.box(token=key), key)
        kept = self.raw("GET", "/v1/events", other)
        self.revoke("revoked")
        for what, s in streams.items():
            self.assertEnds(s, what)
        kept.settimeout(0.2)
        with contextlib.suppress(socket.timeout):
            self.assertTrue(kept.recv(65536), "another token's stream ended")

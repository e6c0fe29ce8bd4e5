"""Who may ask: tokens, scopes, tenants, ceilings, rates, Host and Origin."""

import base64
import hashlib
import http.client
import os
import subprocess
import sys
import urllib.parse
import unittest

import cl
import harness


class Auth(harness.Case):
    def tcp(self, path, headers=None, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        connection.request(method, path, headers=headers or {})
        reply = harness.Response(connection.getresponse())
        connection.close()
        return reply

    def test_revoked_key_of_a_sandbox(self):
        """With its token go the keys of an E2B sandbox; they would be a way around otherwise."""
        key = self.d.token("to-revoke")
        made = self.d.post("/sandboxes", {"templateID": "base", "timeout": 300},
                           headers={"X-API-Key": key}).json
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + made["sandboxID"])
        enter = {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}
        look = lambda **more: self.d.get("/files?path=/etc/hosts", headers={**enter, **more}).status
        self.assertEqual(look(), 200)
        gone = subprocess.run([cl.CLOCHE, "token", "revoke", "to-revoke"], env=self.d.env(),
                              capture_output=True, timeout=harness.DEADLINE, check=False)
        self.assertEqual(gone.returncode, 0, gone)
        harness.until(lambda: self.d.get("/v1/policies", token=key).status == 401, "the end of a token")
        self.assertEqual(look(), 401)
        port = self.d.get("/", headers={**enter, "E2b-Sandbox-Port": "8000"})
        self.assertEqual(port.status, 401, port)

    @unittest.skipIf(os.geteuid(), "needs root, to be somebody else")
    def test_other_users_are_no_operators(self):
        """Of the peers of the Unix socket only the daemon's own user needs no token, whatever the group."""
        code = ("import os, socket, sys\n"
                "os.setgroups([0]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]))\n"
                "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                "s.sendall(b'GET /v1/audit HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n"
                "print(s.recv(4096).decode().split()[1])\n")
        for gid, uid, expect in ((0, 0, "200"), (0, 65534, "401"), (65534, 65534, "401")):
            done = subprocess.run([sys.executable, "-c", code, self.d.sock, str(gid), str(uid)],
                                  capture_output=True, text=True, timeout=harness.DEADLINE, check=False)
            self.assertEqual(done.stdout.strip(), expect, done)

    def test_tcp_needs_a_token(self):
        reply = self.tcp("/v1/sandboxes")
        self.assertError(reply, 401, "unauthenticated")
        self.assertIn("Bearer", reply.headers["WWW-Authenticate"])
        self.assertEqual(self.tcp("/healthz").status, 200)

    def test_wrong_tokens(self):
        key = self.d.token("wrong")
        for bad in ("x", key + "0", key[:-1], key.replace("cl_", "xx_"), "e2b_" + "0" * 40, "",
                    "a" * 3000, "cl__", key[:-1] + ("0" if key[-1] != "0" else "1")):
            reply = self.tcp("/v1/sandboxes", {"Authorization": "Bearer " + bad})
            self.assertError(reply, 401, "unauthenticated")
        self.assertError(self.tcp("/v1/sandboxes", {"Authorization": "Basic " + key}), 401)

    def test_forms(self):
        key = self.d.token("forms")
        self.assertRegex(key, "^cl_[a-z0-9]+_[0-9a-f]{40}$")
        for headers in ({"Authorization": "Bearer " + key}, {"authorization": "bearer " + key},
                        {"X-API-Key": key}):
            self.assertEqual(self.tcp("/v1/sandboxes", headers).status, 200)
        e2b = self.d.token("forms-e2b", "--e2b")
        self.assertRegex(e2b, "^e2b_[0-9a-f]{40}$")
        self.assertEqual(self.tcp("/v1/sandboxes", {"X-API-Key": e2b}).status, 200)

    def test_token_over_the_unix_socket_narrows(self):
        key = self.d.token("narrow", "--scopes", "read")
        headers = {"Authorization": "Bearer " + key}
        self.assertEqual(self.d.get("/v1/sandboxes", headers=headers).status, 200)
        self.assertError(self.d.post("/v1/sandboxes", {}, headers=headers), 403, "denied")
        self.assertError(self.d.get("/v1/sandboxes", headers={"X-API-Key": "bogus"}), 401)

    def test_revoked(self):
        key = self.d.token("revoked")
        done = subprocess.run(
            [cl.CLOCHE, "token", "revoke", "revoked"], env=self.d.env(), capture_output=True,
            timeout=harness.DEADLINE,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        harness.until(lambda: self.d.get("/v1/sandboxes", token=key).status == 401, "the end")

    def test_scopes(self):
        read = self.d.token("s-read", "--scopes", "read")
        run = self.d.token("s-run", "--scopes", "run")
        files = self.d.token("s-files", "--scopes", "files")
        box = self.box(run)
        rows = [
            ("GET", "/v1/sandboxes", None, {read}),
            ("POST", "/v1/run", {"cmd": ["true"]}, {run}),
            ("POST", box.path + "/exec", {"cmd": ["true"]}, {run}),
            ("GET", box.path + "/files?path=.&list=1", None, {files}),
            ("PUT", box.path + "/files?path=f", b"", {files}),
            ("DELETE", box.path + "/execs/1", None, {run}),
            ("GET", "/v1/tokens", None, set()),
            ("GET", "/v1/audit", None, set()),
        ]
        for method, path, body, may in rows:
            for key in (read, run, files):
                with self.subTest(path=path, scope=key in may):
                    reply = self.d.request(method, path, body, token=key)
                    if key in may:
                        self.assertNotEqual(reply.status, 403, reply)
                    else:
                        self.assertError(reply, 403, "denied")

    def test_tenants_do_not_see_each_other(self):
        a, b = self.d.token("tenant-a"), self.d.token("tenant-b")
        box = self.box(a)
        snap = box.post("/snapshot", {"name": "of-a"})
        self.assertEqual(snap.status, 201, snap)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + snap.json["id"])
        unknown = "/v1/sandboxes/" + "a" * 20
        for what in ("", "/stats", "/health", "/execs", "/files?path=.", "/logs", "/wait"):
            theirs = self.d.get(box.path + what, token=b)
            nobody = self.d.get(unknown + what, token=b)
            self.assertEqual((theirs.status, theirs.body), (nobody.status, nobody.body))
        for what in ("/pause", "/stop", "/snapshot", "/fork", "/exec"):
            body = {"cmd": ["true"]} if what == "/exec" else {}
            self.assertError(self.d.post(box.path + what, body, token=b), 404)
        self.assertError(self.d.delete(box.path, token=b), 404)
        self.assertEqual(self.d.get("/v1/sandboxes", token=b).json["sandboxes"], [])
        self.assertEqual(self.d.get("/v1/snapshots", token=b).json["snapshots"], [])
        path = "/v1/snapshots/" + snap.json["id"]
        self.assertError(self.d.get(path + "/tar", token=b), 404)
        self.assertGreaterEqual(
            self.d.post("/v1/sandboxes", {"snapshot": snap.json["id"]}, token=b).status, 400
        )
        self.d.delete("/v1/sandboxes", token=b)
        self.assertEqual(self.d.get(box.path, token=a).json["state"], "running")

    def test_tokens_of_one_tenant(self):
        """They own together; scopes, ceilings, rates and names in the audit log are each token's own."""
        maker = self.d.token("team-maker", "--tenant", "team", "--memory", "512M")
        reader = self.d.token("team-reader", "--tenant", "team", "--scopes", "read")
        other = self.d.token("teams", "--tenant", "teams")
        box = self.box(maker, memory="64M")
        snap = box.post("/snapshot", {"name": "of-team"}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + snap["id"])
        self.assertEqual(self.d.get(box.path, token=reader).json["id"], box.id)
        self.assertEqual([s["id"] for s in self.d.get("/v1/sandboxes", token=reader).json["sandboxes"]],
                         [box.id])
        self.assertEqual([s["id"] for s in self.d.get("/v1/snapshots", token=reader).json["snapshots"]],
                         [snap["id"]])
        self.assertError(self.d.delete(box.path, token=reader), 403)
        self.assertError(self.d.post(box.path + "/exec", {"cmd": ["true"]}, token=reader), 403)
        self.assertError(self.d.get(box.path, token=other), 404)
        self.assertEqual(self.d.get("/v1/sandboxes", token=other).json["sandboxes"], [])
        self.assertError(self.d.post("/v1/sandboxes", {"memory": "600M"}, token=maker), 403)
        totals = self.d.get("/v1/stats", token=reader).json["tenants"]
        self.assertEqual([(t["tenant"], t["sandboxes"], t["memory"]) for t in totals],
                         [("@team", 1, 64 << 20)])
        self.assertIn("@team", [t["tenant"] for t in self.d.get("/v1/stats").json["tenants"]])
        self.assertEqual([t["tenant"] for t in self.d.get("/v1/stats", token=other).json["tenants"]],
                         ["@teams"])
        tokens = {t["name"]: t for t in self.d.get("/v1/tokens").json["tokens"]}
        self.assertEqual(tokens["team-maker"]["tenant"], "team")
        records = self.d.get("/v1/audit?target=" + box.id).json["records"]
        self.assertEqual(records[0]["who"], tokens["team-maker"]["id"] + " team-maker")
        revoked = subprocess.run([cl.CLOCHE, "token", "revoke", "team-maker"], env=self.d.env())
        self.assertEqual(revoked.returncode, 0)
        harness.until(lambda: self.d.get(box.path, token=maker).status == 401, "the revocation")
        self.assertEqual(self.d.get(box.path, token=reader).json["state"], "running")

    def test_ceiling_and_quota(self):
        key = self.d.token("ceiling", "--memory", "256M", "--disk", "64M", "--sandboxes", "1")
        reply = self.d.post("/v1/sandboxes", {"memory": "512M", "disk": "32M"}, token=key)
        self.assertGreaterEqual(reply.status, 400, reply)
        self.box(key, memory="128M", disk="32M")
        reply = self.d.post("/v1/sandboxes", {"memory": "128M", "disk": "32M"}, token=key)
        self.assertError(reply, 429, "limit")

    def test_ceiling_below_the_defaults(self):
        """Who asks for nothing gets what it may have; who asks for more is refused."""
        key = self.d.token("below", "--memory", "96M", "--pids", "50", "--timeout", "2s")
        shown = [t for t in self.d.get("/v1/tokens").json["tokens"] if t["name"] == "below"][0]
        self.assertEqual(shown["ceiling"], {"memory": 96 << 20, "cpus": None, "pids": 50, "disk": None, "timeout": 2.0})
        box = self.box(key)
        limits = box.get("").json["limits"]
        self.assertEqual((limits["memory"], limits["disk"], limits["pids"], limits["timeout"]),
                         (96 << 20, 48 << 20, 50, 2.0))
        reply = self.d.post("/v1/run", {"cmd": ["sleep", "60"]}, token=key)
        self.assertEqual((reply.status, reply.json["status"]), (200, "timeout"), reply)
        made = self.d.request("POST", "/sandboxes", {"templateID": "base"}, token=key,
                              headers={"X-API-Key": key})
        self.assertEqual(made.status, 201, made)
        for asked in (0, 3, "1h"):
            reply = box.exec(cmd=["true"], timeout=asked)
            self.assertError(reply, 403, "denied", "timeout")
        self.assertEqual(box.exec(cmd=["true"], timeout=1).status, 200)
        path = "/execs/%d" % box.start(cmd=["sleep", "60"])
        harness.until(lambda: box.get(path).json["status"] == "timeout", "its end")

    def test_rate(self):
        key = self.d.token("rate", "--rate", "30")
        seen = [self.d.get("/v1/images", token=key) for _ in range(60)]
        refused = [r for r in seen if r.status == 429]
        self.assertTrue(refused, "60 requests at once, 30 a minute, none refused")
        self.assertGreaterEqual(int(refused[0].headers["Retry-After"]), 1)
        self.assertEqual(refused[0].error["kind"], "limit")
        self.assertEqual(self.d.get("/v1/images").status, 200)

    def test_host_names(self):
        port = self.d.port
        for host in ("localhost", "localhost:%d" % port, "127.0.0.1", "[::1]", "x.localhost"):
            self.assertEqual(self.tcp("/healthz", {"Host": host}).status, 200, host)
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
            self.assertError(self.tcp("/healthz", {"Host": host}), 403, "denied", "Host")

    def test_origins(self):
        key = self.d.token("origin")
        headers = {"Authorization": "Bearer " + key}
        for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"):
            reply = self.tcp("/v1/sandboxes", dict(headers, Origin=origin))
            self.assertEqual(reply.status, 200, origin)
        for origin in ("null", "http://evil.example", "http://a.localhost", "localhost"):
            reply = self.tcp("/v1/sandboxes", dict(headers, Origin=origin))
            self.assertError(reply, 403, "denied", "Origin")

    def test_tokens_cannot_be_made_here(self):
        self.assertError(self.d.post("/v1/tokens", {}), 501, "unsupported")
        listed = self.d.get("/v1/tokens")
        self.assertEqual(listed.status, 200)
        self.assertNotIn(b"blake2b", listed.body)

    def test_refusals_are_audited(self):
        key = self.d.token("audited", "--scopes", "read")
        self.assertError(self.d.post("/v1/sandboxes", {}, token=key), 403)
        records = self.d.get("/v1/audit?limit=200").json["records"]
        mine = [r for r in records if r["verdict"] == "deny" and "audited" in r["who"]]
        self.assertTrue(mine, records[-3:])
        self.assertNotIn(key, str(records))

    def test_what_another_door_made_is_closed_to_signatures(self):
        """A sandbox of an MCP session has no token for E2B's door: nothing that anybody signs opens it."""
        key = self.d.token("mcp-owner")
        ask = {"Accept": "application/json, text/event-stream"}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
                 "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
        session = self.d.post("/mcp", hello, headers=ask, token=key).headers["Mcp-Session-Id"]
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                "params": {"name": "write_file", "arguments": {"path": "/workspace/secret", "content": "hidden"}}}
        reply = self.d.post("/mcp", call, headers=dict(ask, **{"Mcp-Session-Id": session}), token=key)
        self.assertEqual(reply.status, 200, reply)
        boxes = self.d.get("/v1/sandboxes", token=key).json
        box = (boxes["sandboxes"] if isinstance(boxes, dict) else boxes)[0]["id"]
        for token in ("", "ea_" + "-" * 40):
            digest = hashlib.sha256(("/workspace/secret:read:user:" + token).encode()).digest()
            query = urllib.parse.urlencode({"path": "/workspace/secret", "username": "user", "signature":
                                            "v1_" + base64.b64encode(digest).decode().rstrip("=")})
            for headers in ({"E2b-Sandbox-Id": box, "E2b-Sandbox-Port": "49983"}, {}):
                reply = self.d.get("/files?" + query, headers=headers)
                self.assertEqual(reply.status, 401, (token, headers, reply))
        for port in ("3000", "49999"):
            reply = self.d.get("/health", headers={"E2b-Sandbox-Id": box, "E2b-Sandbox-Port": port})
            self.assertEqual(reply.status, 502, reply)
        self.d.delete("/v1/sandboxes/" + box, token=key)

    def test_a_fork_of_what_another_door_made_has_closed_ports(self):
        key = self.d.token("fork-owner")
        mine = {"X-API-Key": key}
        box = self.d.post("/v1/sandboxes", {}, token=key).json["id"]
        reply = self.d.post("/sandboxes/%s/fork" % box, {}, headers=mine)
        self.assertEqual(reply.status, 201, reply)
        fork = reply.json[0]["sandbox"]
        self.assertTrue(fork["trafficAccessToken"], fork)
        port = {"E2b-Sandbox-Id": fork["sandboxID"], "E2b-Sandbox-Port": "3000"}
        closed = self.d.get("/", headers=port)
        entered = self.d.get("/", headers=dict(port, **{"E2b-Traffic-Access-Token": fork["trafficAccessToken"]}))
        self.assertEqual((closed.status, entered.status), (502, 502))  # nothing listens there
        self.assertIn("not found", closed.json["message"])
        self.assertNotIn("not found", entered.json["message"])
        for name in (box, fork["sandboxID"]):
            self.d.delete("/v1/sandboxes/" + name, token=key)


class Configured(unittest.TestCase):
    """A daemon of its own, with a configuration."""

    def test_hosts_origins_and_rate_by_address(self):
        config = (
            "http:\n  allowed_hosts: [box.example]\n"
            "  allowed_origins: ['https://page.example']\n"
            "rate_limits:\n  address_per_minute: 60\n  address_burst: 20\n"
        )
        daemon = harness.Daemon(config=config)
        self.addCleanup(daemon.remove)
        daemon.start()
        self.addCleanup(daemon.stop)
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
        connection.request("GET", "/healthz", headers={
            "Host": "box.example", "Origin": "https://page.example"})
        self.assertEqual(harness.Response(connection.getresponse()).status, 200)
        seen = set()
        for _ in range(60):
            connection.request("GET", "/healthz", headers={"Host": "localhost"})
            seen.add(harness.Response(connection.getresponse()).status)
        connection.close()
        self.assertEqual(seen, {200, 429})
        self.assertEqual(daemon.get("/healthz").status, 200)  # the operator's socket is not limited

    def test_time_of_a_tool_call_has_the_operators_ceiling(self):
        daemon = harness.Daemon(config="ceilings: {timeout: 1s}\nsandbox: {timeout: 1s}\n")
        self.addCleanup(daemon.remove)
        daemon.start()
        self.addCleanup(daemon.stop)
        ask = {"Accept": "application/json, text/event-stream"}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
                 "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
        ask["Mcp-Session-Id"] = daemon.post("/mcp", hello, headers=ask).headers["Mcp-Session-Id"]
        for tool, code in (("run_command", {"command": "sleep 50"}),
                           ("run_code", {"language": "python", "code": "import time; time.sleep(50)"})):
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                    "params": {"name": tool, "arguments": dict(code, timeout=40)}}
            reply = daemon.post("/mcp", call, headers=ask).json["result"]
            self.assertEqual(reply["structuredContent"]["status"], "timeout", reply)


if __name__ == "__main__":
    unittest.main()

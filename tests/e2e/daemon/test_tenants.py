"""What one tenant, or a token without a scope, must not reach through any door; and what is written down."""

import base64
import hashlib
import json
import time
import urllib.parse

import harness

BOX = "/v1/sandboxes/{id}"
EXEC = BOX + "/execs/{eid}"
READ, RUN, FILES, ADMIN = "read", "run", "files", "admin"

# Every route of REST and the scope that it asks for. A new route gets a row here.
SCOPES = {
    READ: """GET /metrics
        GET /v1/sandboxes  GET /v1/stats  GET {box}  GET {box}/execs  GET {exec}  GET {exec}/stream
        GET {box}/wait  GET {box}/stats  GET {box}/health  GET {box}/logs  GET /v1/events
        GET /v1/snapshots  GET /v1/policies  GET /v1/images  GET /v1/volumes  GET /v1/volumes/{name}
        GET {box}/network  GET /v1/secrets  GET /v1/secrets/{name}
        GET /v1/agents  GET /v1/agents/{id}  GET /v1/trust
        GET /v1/agents/{id}/messages  GET /v1/agents/{id}/keys
        GET /v1/agent-types  GET /v1/agent-runs  GET /v1/agent-runs/{id}  POST /v1/tools/check
        GET /v1/images/inspect""",
    RUN: """POST /v1/run  POST /v1/run/batch  POST /v1/sandboxes  DELETE /v1/sandboxes
        PATCH {box}  DELETE {box}  POST {box}/exec  DELETE {exec}  GET {exec}/ws  POST {exec}/stdin
        PUT {exec}/stdin  POST {exec}/close_stdin  POST {exec}/signal  POST {exec}/resize
        POST {box}/start  POST {box}/stop  POST {box}/restart  POST {box}/pause  POST {box}/resume
        POST {box}/snapshot  POST {box}/fork  POST {box}/timeout  DELETE /v1/snapshots/{id}
        GET {box}/ports/{port}  POST {box}/ports/{port}/x
        PUT {box}/network  POST /v1/secrets  PUT /v1/secrets/{name}  DELETE /v1/secrets/{name}
        POST /v1/agents/{id}/messages  DELETE /v1/agents/{id}/messages  POST /v1/agents/{id}/verify
        DELETE /v1/agent-runs/{id}  POST /v1/tools/call  DELETE /v1/images  POST /v1/images/pull  POST /v1/images/tag
        POST /v1/volumes  DELETE /v1/volumes/{name}""",
    FILES: """GET {box}/files  PUT {box}/files  DELETE {box}/files  POST {box}/files/mkdir
        POST {box}/files/move  POST {box}/files/chmod  POST {box}/files/search  GET {box}/files/tar
        PUT {box}/files/tar  GET {box}/files/watch  GET /v1/diff  GET /v1/snapshots/{id}/tar  PUT /v1/snapshots/{id}/tar
        PUT /v1/images  GET /v1/images/tar  POST /v1/tools/call""",
    ADMIN: """GET /v1/tokens  POST /v1/tokens  DELETE /v1/tokens/{id}  GET /v1/audit
        POST {box}/network/answer  POST /v1/images/prune
        POST /v1/agents  PATCH /v1/agents/{id}  DELETE /v1/agents/{id}""",
}


def rows():
    for scope, text in SCOPES.items():
        words = text.replace("{exec}", EXEC).replace("{box}", BOX).split()
        for method, path in zip(words[::2], words[1::2]):
            yield scope, method, path


class Scopes(harness.Case):
    def test_each_route_asks_for_its_scope(self):
        """A token with all scopes but the one is refused, and a token with it alone is not."""
        box = self.box()
        keys = {s: self.d.token("without-" + s, "--scopes", ",".join({READ, RUN, FILES} - {s}))
                for s in (READ, RUN, FILES, ADMIN)}
        for scope, method, path in rows():
            path = path.format(id=box.id, eid="1", port="8000", name="n")
            with self.subTest(method=method, path=path):
                reply = self.d.request(method, path, b"{}" if method == "POST" else None, token=keys[scope])
                error = self.assertError(reply, 403, "denied")
                self.assertIn("scope " + scope, error["message"])

    def test_no_route_is_forgotten(self):
        known = {(method, path) for _, method, path in rows()}
        known |= {(m, p) for m, p in (("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.json"))}
        described = self.d.get("/openapi.json").json["paths"]
        missing = [(m.upper(), p) for p, methods in described.items() for m in methods
                   if p.startswith("/v1") and "/ports/" not in p and m in ("get", "put", "post", "patch", "delete")
                   and (m.upper(), p) not in known]
        self.assertEqual(missing, [], "routes without a row in SCOPES")

    def test_tools_ask_for_their_scopes(self):
        """MCP: each tool and each resource has the scope of the request that it stands for."""
        needs = {"run_command": RUN, "run_code": RUN, "read_file": FILES, "write_file": FILES,
                 "list_files": FILES, "list_sandboxes": READ}
        for scope in (RUN, FILES, READ):
            key = self.d.token("mcp-without-" + scope, "--scopes", ",".join({READ, RUN, FILES} - {scope}))
            ask = {"Accept": "application/json, text/event-stream"}
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
                     "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                                "clientInfo": {"name": "t", "version": "1"}}}
            ask["Mcp-Session-Id"] = self.d.post("/mcp", hello, headers=ask, token=key).headers["Mcp-Session-Id"]
            listed = {t["name"]: t for t in self.call(key, ask, "tools/list", {})["result"]["tools"]}
            for name in (n for n, s in needs.items() if s == scope and n in listed):
                with self.subTest(tool=name):
                    arguments = {k: "x" for k in listed[name]["inputSchema"].get("required", [])}
                    said = json.dumps(self.call(key, ask, "tools/call", {"name": name, "arguments": arguments}))
                    self.assertIn("may not use " + name, said)
            if scope == FILES:
                self.call(key, ask, "tools/call", {"name": "run_command", "arguments": {"command": "true"}})
                box = self.d.get("/v1/sandboxes", token=key).json["sandboxes"][0]["id"]
                said = self.call(key, ask, "resources/read", {"uri": "cloche://sandboxes/%s/files/etc/hosts" % box})
                self.assertIn("may not read files", said["error"]["message"])
            self.d.delete("/v1/sandboxes", token=key)

    def call(self, key, headers, method, params):
        body = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        reply = self.d.post("/mcp", body, headers=headers, token=key)
        self.assertEqual(reply.status, 200, reply)
        return reply.json


class E2b(harness.Case):
    """Two tenants with E2B's API: each has one sandbox."""

    def setUp(self):
        self.keys = [self.d.token("e2b-%s-%d" % (self.id().rpartition(".")[2][:20], i), "--e2b") for i in range(2)]
        self.mine, self.other = (self.create(key) for key in self.keys)

    def create(self, key, **more):
        made = self.control("POST", "/sandboxes", {"templateID": "base", "timeout": 300, **more}, key=key)
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + made.json["sandboxID"])
        return made.json

    def control(self, method, path, body=None, key=None):
        return self.d.request(method, path, body, headers={"X-API-Key": key or self.keys[0]})

    def envd(self, method, path, body=None, box=None, **headers):
        box = box or self.mine
        headers = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983",
                   "X-Access-Token": box["envdAccessToken"], **headers}
        return self.d.request(method, path, body, headers={k: v for k, v in headers.items() if v is not None})

    def test_metrics_of_others(self):
        ids = [self.mine["sandboxID"], self.other["sandboxID"]]
        reply = self.control("GET", "/sandboxes/metrics?sandbox_ids=" + ",".join(ids))
        self.assertEqual((reply.status, list(reply.json["sandboxes"])), (200, ids[:1]), reply)
        self.assertEqual(self.control("GET", "/sandboxes/%s/metrics" % ids[0]).status, 200)
        self.assertEqual(self.control("GET", "/sandboxes/%s/metrics" % ids[1]).status, 404)

    def test_sandboxes_of_others(self):
        theirs, nobody = self.other["sandboxID"], "a" * 20
        for method, path, body in (
            ("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 1}),
            ("POST", "/refreshes", {}), ("POST", "/pause", {}), ("POST", "/resume", {}), ("POST", "/connect", {}),
            ("POST", "/snapshots", {}), ("POST", "/fork", {}), ("PUT", "/network", {}),
        ):
            with self.subTest(method=method, path=path):
                replies = [self.control(method, "/sandboxes/%s%s" % (i, path), body) for i in (theirs, nobody)]
                self.assertEqual([r.status for r in replies], [404, 404])
                self.assertEqual(replies[0].body.replace(theirs.encode(), b""),
                                 replies[1].body.replace(nobody.encode(), b""))
        for path in ("/sandboxes", "/v2/sandboxes"):
            self.assertEqual([s["sandboxID"] for s in self.control("GET", path).json], [self.mine["sandboxID"]])
        self.assertEqual(self.control("GET", "/sandboxes/" + theirs, key=self.keys[1]).json["state"], "running")

    def test_access_tokens(self):
        """An access token opens its own sandbox and no other; without it nothing tells which ids exist."""
        stat = ("POST", "/filesystem.Filesystem/Stat", {"path": "/"})
        self.assertEqual(self.envd(*stat).status, 200)
        theirs, nobody = dict(self.other), dict(self.other, sandboxID="a" * 20)
        token = self.mine["envdAccessToken"]
        for bad in (token, token[:-1], token + "0", "x", "", None):
            with self.subTest(token=bad):
                replies = [self.envd(*stat, box=box, **{"X-Access-Token": bad}) for box in (theirs, nobody)]
                self.assertIn(replies[0].status, (401, 502), replies[0])
                self.assertEqual(replies[0].status, replies[1].status)
                self.assertEqual(replies[0].body.replace(theirs["sandboxID"].encode(), b""),
                                 replies[1].body.replace(nobody["sandboxID"].encode(), b""))
        self.assertNotEqual(self.envd(*stat, **{"X-Access-Token": token[:-1]}).status, 200)

    def test_every_change_in_a_sandbox_is_audited(self):
        """What a client does in a sandbox by its access token is written down, whatever the method."""
        box = self.mine["sandboxID"]
        self.assertEqual(self.envd("POST", "/filesystem.Filesystem/MakeDir", {"path": "/tmp/made"}).status, 200)
        self.assertEqual(self.envd("POST", "/files?path=/tmp/up", b"x", **{
            "Content-Type": "application/octet-stream"}).status, 200)
        self.assertEqual(self.envd("POST", "/filesystem.Filesystem/Remove", {"path": "/tmp/made"}).status, 200)
        records = self.d.get("/v1/audit?limit=1000&target=" + box).json["records"]
        targets = [r["target"] for r in records if r["verdict"] == "allow"]
        for path in ("/filesystem.Filesystem/MakeDir", "/files", "/filesystem.Filesystem/Remove"):
            self.assertIn("%s:49983 %s" % (box, path), targets)

    def signed(self, method, operation, expiry=None, body=None, **change):
        text = "/tmp/signed:%s:user:%s" % (operation, self.mine["envdAccessToken"])
        text += ":%s" % expiry if expiry else ""
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        query = {"path": "/tmp/signed", "username": "user", "signature": "v1_" + digest, **change}
        if expiry:
            query["signature_expiration"] = expiry
        headers = {"Content-Type": "application/octet-stream"} if body else {}
        return self.d.request(method, "/files?" + urllib.parse.urlencode(query), body, headers=headers).status

    def test_signatures(self):
        now = int(time.time())
        self.assertEqual(self.signed("POST", "write", body=b"x"), 200)
        self.assertEqual(self.signed("GET", "read", now + 600), 200)
        self.assertEqual(self.signed("GET", "read", now - 600), 401)  # over
        self.assertEqual(self.signed("POST", "read", body=b"y"), 401)  # for reading only
        self.assertEqual(self.signed("GET", "write"), 401)
        self.assertEqual(self.signed("GET", "read", path="/etc/passwd"), 401)
        self.assertEqual(self.signed("GET", "read", username="root"), 401)

    def test_a_fork_has_keys_of_its_own(self):
        fork = self.control("POST", "/sandboxes/%s/fork" % self.mine["sandboxID"], {}).json[0]["sandbox"]
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + fork["sandboxID"])
        self.assertNotEqual(fork["envdAccessToken"], self.mine["envdAccessToken"])

    def test_users_that_are_not_there(self):
        reply = self.envd("GET", "/files?path=/etc/hosts&username=stranger")
        self.assertEqual(reply.status, 401, reply)

    def test_closed_ports(self):
        """allowPublicTraffic: false. The ports and the interpreter ask for the traffic token."""
        box = self.create(self.keys[0], network={"allowPublicTraffic": False, "maskRequestHost": "x:${PORT}"})
        token = {"E2b-Traffic-Access-Token": box["trafficAccessToken"]}
        for changed in (False, True):
            for number, path in (("3000", "/"), ("49999", "/contexts"), ("49999", "/health")):
                port = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": number}
                for bad, why in (({}, "is missing"), ({"E2b-Traffic-Access-Token": "ta_" + "0" * 40}, "is invalid")):
                    reply = self.d.get(path, headers={**port, **bad})
                    self.assertEqual((reply.status, reply.json["code"]), (403, 403), reply)
                    self.assertIn(why, reply.json["message"])
                self.assertIn(self.d.get(path, headers={**port, **token}).status, (200, 502))
            # New rules for the way out change nothing about the way in.
            rules = {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": True, "maskRequestHost": "y", "httpsPorts": []}
            path = "/sandboxes/" + box["sandboxID"]
            self.assertEqual(self.control("PUT", path + "/network", rules).status, 204)
            self.assertEqual(self.control("GET", path).json["network"],
                             {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False, "maskRequestHost": "x:${PORT}", "httpsPorts": []})

    def test_the_lifetime_of_forks(self):
        for bad in (2 ** 62, -1, 366 * 86400 + 1, "60", 1.5):
            reply = self.control("POST", "/sandboxes/%s/fork" % self.mine["sandboxID"], {"timeout": bad})
            self.assertEqual(reply.status, 400, reply)
            self.assertIn("timeout", reply.json["message"])

    def start(self, process, box=None, **headers):
        """The error of Process.Start in the last envelope, or None."""
        body = json.dumps({"process": process}).encode()
        reply = self.envd("POST", "/process.Process/Start", b"\0" + len(body).to_bytes(4, "big") + body, box=box, **{
            "Content-Type": "application/connect+json", **headers})
        self.assertEqual(reply.status, 200, reply)
        return json.loads(reply.body[reply.body.rindex(b"\x02\0\0\0") + 5:] or b"{}").get("error")

    def test_errors_name_what_is_wrong(self):
        for process, text in (({"cmd": "/nowhere/prog"}, "cmd '/nowhere/prog' cannot be started: No such file"),
                              ({"cmd": "/bin/true", "cwd": "/nowhere"}, "cwd '/nowhere' does not exist"),
                              ({"cmd": "/bin/true", "cwd": 7}, "process.cwd: not a string"),
                              ({"cmd": "/bin/true", "args": [7]}, "process.args: not a list of strings")):
            error = self.start(process)
            self.assertEqual(error["code"], "invalid_argument", error)
            self.assertIn(text, error["message"])

    def test_a_deadline_counts_from_the_request(self):
        """The body comes late; all the same the answer is there before the client's own clock ends."""
        body = json.dumps({"process": {"cmd": "/bin/sleep", "args": ["60"]}}).encode()
        body = b"\0" + len(body).to_bytes(4, "big") + body
        with self.d.raw() as s:
            began = time.monotonic()
            s.sendall(("POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\n"
                       "E2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\nConnect-Timeout-Ms: 3000\r\n"
                       "Content-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n" % (
                           self.mine["sandboxID"], self.mine["envdAccessToken"], len(body))).encode())
            time.sleep(1.5)
            s.sendall(body)
            seen = b""
            while b"deadline_exceeded" not in seen:
                part = s.recv(65536)
                self.assertTrue(part, seen)
                seen += part
            self.assertLess(time.monotonic() - began, 3)

    def test_python_where_only_python3_is(self):
        for template in ("base", "code-interpreter-v1"):
            box = self.create(self.keys[0], templateID=template)["sandboxID"]
            reply = self.d.post("/v1/sandboxes/%s/exec" % box, {"shell": "command -v python3 && python -c 'print(6 * 7)'"})
            self.assertIn(reply.json["stdout"][-3:], ("", "42\n"), reply)
            self.assertEqual(reply.json["stderr"], "")

    def test_a_new_boot_after_a_pause_without_memory(self):
        box = self.create(self.keys[0])
        path = "/sandboxes/" + box["sandboxID"]

        def boot():
            reply = self.envd("GET", "/files?path=/proc/sys/kernel/random/boot_id", box=box)
            self.assertEqual(reply.status, 200, reply)
            self.assertRegex(reply.body.decode(), r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$")
            return reply.body

        seen = [boot()]
        for memory, same in ((True, True), (False, False)):
            self.assertEqual(self.control("POST", path + "/pause", {"memory": memory}).status, 204)
            self.assertEqual(self.control("POST", "/v2" + path + "/connect", {}).status, 201)
            seen.append(boot())
            self.assertEqual(seen[-1] == seen[-2], same, seen)


if __name__ == "__main__":
    harness.unittest.main()

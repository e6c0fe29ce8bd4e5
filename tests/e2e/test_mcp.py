"""MCP: /mcp byte for byte, sessions and tenants, and `cloche mcp` on pipes."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import cl
import puppet

META = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"
ENVELOPE = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}
SESSIONS = 512  # of one token
GUEST = os.path.join(puppet.BUILD, "cloche-guest")


def dump(message):
    return json.dumps(message, separators=(",", ":")).encode()


def request(method, params=None, id=1):
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def error(code, text, id=None, **more):
    """As the door prints it."""
    body = {"code": code, "message": text, **more}
    if id is None:
        return {"jsonrpc": "2.0", "error": body, "id": None}
    return {"jsonrpc": "2.0", "id": id, "error": body}


HELLO = request(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    id=0,
)


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    def events(self):
        lines = self.body.decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


@unittest.skipUnless(os.access(GUEST, os.X_OK), "the guest is not built")
class Served(cl.Case):
    """One daemon for all tests of a class."""

    config = None

    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.mkdtemp(prefix="mcp-", dir=cl.base_dir())
        os.chmod(cls.top, 0o755)
        path = os.path.join(cls.top, "config.yaml") if cls.config else None
        if path:
            with open(path, "w", encoding="utf-8") as out:
                out.write(cls.config)
        cls.daemon = puppet.Broker(cls.top, config=path, front=None)
        puppet.await_true(lambda: '"serving"' in cls.daemon.log() or cls.daemon.process.poll() is not None,
                          "the daemon does not serve")

    @classmethod
    def tearDownClass(cls):
        cl.run("rm", "-a", cwd=cls.top, env=cl.caller_env(CLOCHE_URL="unix:" + cls.daemon.socket))
        cls.daemon.stop()
        shutil.rmtree(cls.top, ignore_errors=True)

    def send(self, body=b"", verb="POST", **headers):
        sent = {"Accept": BOTH, "Content-Type": "application/json", "Host": "localhost"}
        sent.update({k.replace("_", "-"): v for k, v in headers.items()})
        c = Connection(self.daemon.socket)
        try:
            c.request(verb, "/mcp", body if isinstance(body, bytes) else dump(body),
                      {k: v for k, v in sent.items() if v is not None})
            return Answer(c.getresponse())
        finally:
            c.close()

    def session(self, **headers):
        a = self.send(HELLO, **headers)
        self.assertEqual(a.status, 200, a.body)
        return a.headers["Mcp-Session-Id"]

    def fill(self):
        """Opens as many sessions as one token may have, and ends none."""
        c = Connection(self.daemon.socket)
        for _ in range(SESSIONS):
            c.request("POST", "/mcp", dump(HELLO), {"Accept": BOTH, "Content-Type": "application/json"})
            a = Answer(c.getresponse())
            self.assertEqual(a.status, 200, a.body)
        c.close()

    def box(self, id):
        c = Connection(self.daemon.socket)
        c.request("GET", "/v1/sandboxes/" + id)
        found = Answer(c.getresponse()).json()
        c.close()
        return found

    def call(self, session, name, arguments=None):
        a = self.send(request("tools/call", {"name": name, "arguments": arguments or {}}), Mcp_Session_Id=session)
        self.assertEqual(a.status, 200, a.body)
        return a.json()["result"]["structuredContent"]

    def end(self, session, **headers):
        self.assertEqual(self.send(verb="DELETE", Mcp_Session_Id=session, **headers).status, 200)

    def check(self, answer, status, message):
        """Status and every byte of the body."""
        self.assertEqual((answer.status, answer.body.decode()), (status, dump(message).decode()))


class Legacy(Served):
    def setUp(self):
        super().setUp()
        self.mcp = self.session()
        self.addCleanup(lambda: self.send(verb="DELETE", Mcp_Session_Id=self.mcp))

    def ask(self, message, **headers):
        return self.send(message, Mcp_Session_Id=self.mcp, **headers)

    def tool(self, name, arguments, id=5, **meta):
        a = self.ask(request("tools/call", {"name": name, "arguments": arguments, **meta}, id))
        self.assertEqual(a.status, 200, a.body)
        return a

    def test_initialize(self):
        a = self.send(HELLO)
        result = a.json()["result"]
        self.assertEqual(a.json()["id"], 0)
        self.assertEqual(result["protocolVersion"], "2025-11-25")
        self.assertEqual(result["serverInfo"]["name"], "cloche")
        self.assertRegex(a.headers["Mcp-Session-Id"], "^[0-9a-f]{32}$")
        self.end(a.headers["Mcp-Session-Id"])

    def test_versions(self):
        """What it knows it echoes, for the rest it offers its newest; never a modern one."""
        for asked, given in (("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"),
                             ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25"),
                             ("2026-07-28", "2025-11-25")):
            params = dict(HELLO["params"], protocolVersion=asked)
            a = self.send(request("initialize", params))
            self.assertEqual(a.json()["result"]["protocolVersion"], given)
            self.end(a.headers["Mcp-Session-Id"])
        self.check(self.send(request("initialize", {}, 4)), 400,
                   error(-32602, "initialize needs protocolVersion", 4))

    def test_ids(self):
        for id in (0, 1, -7, "", "x", "0", 2**53):
            self.check(self.ask(request("ping", id=id)), 200, {"jsonrpc": "2.0", "id": id, "result": {}})

    def test_malformed(self):
        parse = error(-32700, "Parse error: the message is not JSON")
        for body in (b"", b"{", b"\xff\xfe", b"{}{}", b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}'):
            self.check(self.ask(body), 400, parse)
        invalid = "Invalid Request: "
        self.check(self.ask(b"7"), 400, error(-32600, invalid + "not an object"))
        self.check(self.ask(b"[]"), 400, error(
            -32600, invalid + "batches are not supported, send one message at a time"))
        self.check(self.ask(dump([request("ping"), request("ping", id=2)])), 400, error(
            -32600, invalid + "batches are not supported, send one message at a time"))
        for id in (None, True, 1.5, [], {}):
            self.check(self.ask({"jsonrpc": "2.0", "id": id, "method": "ping"}), 400, error(
                -32600, invalid + "id must be a string or a whole number"))
        self.check(self.ask({"jsonrpc": "1.0", "id": 3, "method": "ping"}), 400, error(
            -32600, invalid + 'jsonrpc must be "2.0"', 3))
        self.check(self.ask({"jsonrpc": "2.0", "id": 3, "method": 7}), 400, error(
            -32600, invalid + "method must be a short string", 3))
        self.check(self.ask({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": []}), 400, error(
            -32600, invalid + "params must be an object", 3))

    def test_unknown_method(self):
        self.check(self.ask(request("no/such", id="a")), 200,
                   error(-32601, "Method not found: no/such", "a"))
        self.check(self.ask(request("server/discover", id=0)), 404, error(
            -32601, "Method not found: server/discover without an envelope in _meta", 0))

    def test_headers(self):
        refused = lambda text: error(-32000, text)
        both = "Not Acceptable: Client must accept both application/json and text/event-stream"
        for accept in ("application/json", "text/event-stream", "text/html", None):
            self.check(self.ask(request("ping"), Accept=accept), 406, refused(both))
        for kind in ("text/plain", "application/jsonx", None):
            self.check(self.ask(request("ping"), Content_Type=kind), 415, refused(
                "Unsupported Media Type: Content-Type must be application/json"))
        self.assertEqual(self.ask(request("ping"), Content_Type="application/json; charset=utf-8").status, 200)
        self.check(self.ask(request("ping", id=9), MCP_Protocol_Version="1999-01-01"), 400, error(
            -32000, "Bad Request: Unsupported protocol version: 1999-01-01", 9))
        self.assertEqual(self.ask(request("ping"), MCP_Protocol_Version="2025-06-18").status, 200)

    def test_sessions(self):
        missing = "Bad Request: the header Mcp-Session-Id is missing"
        self.check(self.send(request("ping", id=2)), 400, error(-32000, missing, 2))
        self.check(self.send(verb="DELETE"), 400, error(-32000, missing))
        for id in ("0" * 32, "short", "x" * 32, "client:t", "../../etc"):
            self.check(self.send(request("ping", id=2), Mcp_Session_Id=id), 404,
                       error(-32001, "Session not found", 2))
        other = self.session()
        self.end(other)
        self.check(self.send(request("ping", id=2), Mcp_Session_Id=other), 404,
                   error(-32001, "Session not found", 2))

    def test_notifications(self):
        for message in ({"jsonrpc": "2.0", "method": "notifications/initialized"},
                        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}},
                        {"jsonrpc": "2.0", "method": "notifications/unheard-of"},
                        {"jsonrpc": "2.0", "id": 99, "result": {}}):
            a = self.ask(message)
            self.assertEqual((a.status, a.body), (202, b""))

    def test_verbs(self):
        for verb in ("PUT", "PATCH"):
            a = self.send(verb=verb, Mcp_Session_Id=self.mcp)
            self.check(a, 405, error(-32000, "Method not allowed."))
            self.assertEqual(a.headers["Allow"], "GET, POST, DELETE")

    def test_standalone_stream(self):
        self.check(self.send(verb="GET", Mcp_Session_Id=self.mcp, Accept="application/json"), 406,
                   error(-32000, "Not Acceptable: Client must accept text/event-stream"))
        c = Connection(self.daemon.socket)
        self.addCleanup(c.close)
        c.request("GET", "/mcp", headers={"Accept": "text/event-stream", "Mcp-Session-Id": self.mcp})
        open_stream = c.getresponse()
        self.assertEqual((open_stream.status, open_stream.headers["Content-Type"]), (200, "text/event-stream"))
        self.check(self.send(verb="GET", Mcp_Session_Id=self.mcp, Accept="text/event-stream"), 409,
                   error(-32000, "Conflict: Only one SSE stream is allowed per session"))
        self.end(self.mcp)
        self.assertNotIn(b"data:", open_stream.read())

    def test_hosts_and_origins(self):
        forbidden = error(-32000, "Forbidden: Host or Origin is none of this server's")
        self.check(self.ask(request("ping"), Host="evil.example"), 403, forbidden)
        self.check(self.ask(request("ping"), Origin="http://evil.example"), 403, forbidden)
        for host in ("localhost", "localhost:7070", "127.0.0.1:1", "[::1]:7070"):
            self.assertEqual(self.ask(request("ping"), Host=host).status, 200, host)
        self.assertEqual(self.ask(request("ping"), Origin="http://localhost:3000").status, 200)

    def test_too_large(self):
        """It is refused before it was read, so sending it may fail."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(self.daemon.socket)
        head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Type: application/json\r\n"
        s.sendall((head % BOTH + "Content-Length: %d\r\n\r\n" % (17 << 20)).encode())
        got = b""
        try:
            for _ in range(17):
                s.sendall(b"x" * (1 << 20))
        except OSError:
            pass
        try:
            while b"\r\n" not in got:
                data = s.recv(4096)
                if not data:
                    break
                got += data
        except ConnectionResetError:
            pass
        s.close()
        self.assertIn(b" 413 ", got.split(b"\r\n")[0])

    def test_bad_params(self):
        cases = [
            ("tools/call", {}, "Unknown tool: (no name)"),
            ("tools/call", {"name": "nope"}, "Unknown tool: nope"),
            ("tools/list", {"cursor": "x"}, "unknown cursor"),
            ("resources/list", {"cursor": "x"}, "unknown cursor"),
            ("prompts/get", {}, "prompts/get needs name"),
            ("prompts/get", {"name": "nope"}, "Unknown prompt: nope"),
            ("prompts/get", {"name": "solve_with_code"}, "prompt solve_with_code needs the argument task"),
            ("logging/setLevel", {"level": "loud"},
             "level must be debug, info, notice, warning, error, critical, alert or emergency"),
            ("completion/complete", {}, "completion/complete needs ref and argument"),
        ]
        for method, params, text in cases:
            self.check(self.ask(request(method, params, 3)), 200, error(-32602, text, 3))
        uri = "cloche://sandboxes/nope/files/etc/passwd"
        self.check(self.ask(request("resources/read", {"uri": uri}, 3)), 200,
                   error(-32002, "Resource not found", 3, data={"uri": uri}))

    def test_options_are_judged(self):
        params = dict(HELLO["params"], _meta={"cloche/options": {"memory": "12Q"}})
        a = self.send(request("initialize", params, 6))
        self.assertEqual(a.status, 400)
        self.assertRegex(a.json()["error"]["message"], "memory")
        params["_meta"] = {"cloche/options": {"mount": ["/:/host"]}}
        a = self.send(request("initialize", params, 6))
        self.assertEqual(a.status, 501)

    def test_options_are_bounded(self):
        """A session keeps them for days, and a token may have many sessions."""
        params = dict(HELLO["params"], _meta={"cloche/options": {"env": ["X=" + "y" * 70000]}})
        a = self.send(request("initialize", params, 6))
        self.assertRegex(a.json()["error"]["message"], "more than 65536 bytes")
        params["_meta"] = {"cloche/options": {"env": ["X=" + "y" * 30000]}}
        a = self.send(request("initialize", params, 6))
        self.assertEqual(a.status, 200, a.body)
        self.end(a.headers["Mcp-Session-Id"])

    def test_tool(self):
        a = self.tool("run_code", {"code": "print('x' * 3)"})
        self.assertEqual(a.headers["Content-Type"], "application/json")
        result = a.json()["result"]
        self.assertEqual(result["structuredContent"]["stdout"], "xxx\n")
        self.assertEqual(json.loads(result["content"][0]["text"]), result["structuredContent"])

    def test_model_cannot_widen(self):
        for name, value in (("net", "public"), ("memory", "64G"), ("mount", ["/:/h"]), ("level", "process"),
                            ("image", "/"), ("user", "root"), ("policy", "x"), ("workspace", "/"), ("pids", 1)):
            for tool, more in (("run_command", {"command": "id"}), ("sandbox_create", {})):
                result = self.tool(tool, {**more, name: value}).json()["result"]
                self.assertIs(result["isError"], True)
                self.assertIn(name, result["content"][0]["text"])

    def test_progress_is_a_stream(self):
        a = self.tool("run_command", {"command": "sleep 1.5; echo done"}, id="p", _meta={"progressToken": "tok"})
        self.assertEqual(a.headers["Content-Type"], "text/event-stream")
        events = a.events()
        self.assertEqual(events[0]["method"], "notifications/progress")
        self.assertEqual(events[0]["params"]["progressToken"], "tok")
        self.assertEqual((events[-1]["id"], events[-1]["result"]["structuredContent"]["stdout"]), ("p", "done\n"))

    def is_running(self, mark):
        text = self.tool("run_command", {"command": "cat /proc/[0-9]*/cmdline; true"}).json()
        return ("sleep?" + mark) in text["result"]["structuredContent"]["stdout"]

    def test_cancelled_by_message(self):
        self.tool("run_command", {"command": "true"})
        answers = []
        t = threading.Thread(target=lambda: answers.append(
            self.tool("run_command", {"command": "exec sleep 8765"}, id="long")))
        t.start()
        puppet.await_true(lambda: self.is_running("8765"))
        a = self.ask({"jsonrpc": "2.0", "method": "notifications/cancelled",
                      "params": {"requestId": "long", "reason": "enough"}})
        self.assertEqual(a.status, 202)
        t.join(60)
        self.assertEqual(answers[0].events(), [])
        puppet.await_true(lambda: not self.is_running("8765"))

    def test_cancelled_by_hanging_up(self):
        self.tool("run_command", {"command": "true"})
        c = Connection(self.daemon.socket)
        body = dump(request("tools/call", {"name": "run_command", "arguments": {"command": "exec sleep 8766"}}))
        c.request("POST", "/mcp", body, {"Accept": BOTH, "Content-Type": "application/json",
                                         "Mcp-Session-Id": self.mcp})
        puppet.await_true(lambda: self.is_running("8766"))
        c.close()
        puppet.await_true(lambda: not self.is_running("8766"))

    def test_many_at_once_make_one_sandbox(self):
        threads = [threading.Thread(target=self.tool, args=("run_command", {"command": "true"}, i))
                   for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        boxes = self.tool("sandbox_list", {}).json()["result"]["structuredContent"]["sandboxes"]
        self.assertEqual(len(boxes), 1)

    def test_session_outlives_the_front(self):
        """Who was served before a restart finds files and sandbox again, by the same session."""
        self.tool("write_file", {"path": "kept", "content": "yes"})
        self.daemon.process.send_signal(signal.SIGTERM)
        self.daemon.process.wait(60)
        before = self.daemon.log().count('"serving"')
        self.daemon.start()
        puppet.await_true(lambda: self.daemon.log().count('"serving"') > before)
        result = self.tool("read_file", {"path": "kept"}).json()["result"]
        self.assertEqual(result["structuredContent"]["content"], "yes")

    def test_sessions_that_nobody_ends(self):
        """They make room for new ones. A client with a sandbox finds it again, one without begins anew."""
        without = self.session()
        self.tool("write_file", {"path": "kept", "content": "yes"})
        self.fill()
        self.assertEqual(self.send(request("ping"), Mcp_Session_Id=without).status, 404)
        result = self.tool("read_file", {"path": "kept"}).json()["result"]
        self.assertEqual(result["structuredContent"]["content"], "yes")

    def test_sessions_at_work_stay(self):
        busy = self.session()
        line = "touch on; while [ -e on ]; do sleep 0.05; done; echo done"
        slow = request("tools/call", {"name": "run_command", "arguments": {"command": line}})
        c = Connection(self.daemon.socket)
        self.addCleanup(c.close)
        c.request("POST", "/mcp", dump(slow), {"Accept": BOTH, "Content-Type": "application/json", "Mcp-Session-Id": busy})
        puppet.await_true(lambda: "on" in str(self.call(busy, "list_files")["files"]))
        self.fill()
        self.call(busy, "run_command", {"command": "rm on"})
        result = Answer(c.getresponse()).json()["result"]
        self.assertEqual(result["structuredContent"]["stdout"], "done\n")
        self.end(busy)

    def test_age(self):
        """ceilings.ttl holds for the sandboxes of MCP as for all others; it is 24 h by default."""
        self.tool("run_command", {"command": "true"})
        box = self.box(self.call(self.mcp, "sandbox_list")["sandboxes"][0]["sandbox_id"])
        self.assertTrue(box["expires_at"], box)

    def test_tenants(self):
        """Another token's sessions and sandboxes are answered like unknown ones."""
        tokens = []
        env = cl.caller_env(CLOCHE_STATE_DIR=self.daemon.state, CLOCHE_RUNTIME_DIR=self.daemon.runtime)
        for name in ("a", "b"):
            r = self.ok("token", "create", name, env=env)
            tokens.append("Bearer " + r.out.strip().split("\n")[-1])
        a, b = tokens
        puppet.await_true(lambda: self.send(HELLO, Authorization=b).status == 200)
        mine = self.session(Authorization=a)
        unknown = error(-32001, "Session not found", 1)
        self.check(self.send(request("ping"), Mcp_Session_Id=mine, Authorization=b), 404, unknown)
        self.check(self.send(request("ping"), Mcp_Session_Id=mine), 404, unknown)
        call = request("tools/call", {"name": "sandbox_list"})
        self.assertEqual(self.send(call, Mcp_Session_Id=mine, Authorization=a).status, 200)
        a401 = self.send(HELLO, Authorization="Bearer nonsense")
        self.assertEqual(a401.status, 401)
        self.assertEqual(a401.headers["WWW-Authenticate"], 'Bearer error="invalid_token"')
        self.end(mine, Authorization=a)

    def test_small_ceiling(self):
        """Defaults fit into what a token may have; a command takes no longer than it may."""
        env = cl.caller_env(CLOCHE_STATE_DIR=self.daemon.state, CLOCHE_RUNTIME_DIR=self.daemon.runtime)
        r = self.ok("token", "create", "--memory", "64M", "--timeout", "1s", "small", env=env)
        bearer = "Bearer " + r.out.strip().split("\n")[-1]
        puppet.await_true(lambda: self.send(HELLO, Authorization=bearer).status == 200)
        mine = self.session(Authorization=bearer)
        call = request("tools/call", {"name": "run_command", "arguments": {"command": "sleep 100", "timeout": 50}})
        result = self.send(call, Mcp_Session_Id=mine, Authorization=bearer).json()["result"]
        self.assertIs(result["structuredContent"]["timed_out"], True)
        params = dict(HELLO["params"], _meta={"cloche/options": {"memory": "1G"}})
        wide = self.send(request("initialize", params), Authorization=bearer).headers["Mcp-Session-Id"]
        result = self.send(call, Mcp_Session_Id=wide, Authorization=bearer).json()["result"]
        self.assertIs(result["isError"], True)
        self.assertIn("more than this token", result["content"][0]["text"])
        self.end(mine, Authorization=bearer)
        self.end(wide, Authorization=bearer)


class Closed(Served):
    """Clients that went away without a word."""

    config = "sandbox: {ttl: 5s, idle_timeout: 1s}\nceilings: {ttl: 5s, idle_timeout: 1s}\n"

    def test_paused_for_its_client(self):
        """As long as the session is known, idleness only pauses; its age ends it."""
        mine = self.session()
        self.call(mine, "write_file", {"path": "kept", "content": "yes"})
        box = self.call(mine, "sandbox_list")["sandboxes"][0]["sandbox_id"]
        puppet.await_true(lambda: self.box(box)["state"] == "paused", "it is not paused")
        self.assertEqual(self.call(mine, "read_file", {"path": "kept"})["content"], "yes")
        puppet.await_true(lambda: self.box(box)["state"] == "destroyed", "its age does not end it")
        self.assertIn("its time was over", self.box(box)["reason"])

    def test_ends_when_idle(self):
        lost = self.session()
        self.call(lost, "run_command", {"command": "true"})
        box = self.call(lost, "sandbox_list")["sandboxes"][0]["sandbox_id"]
        self.fill()
        puppet.await_true(lambda: self.box(box)["state"] == "destroyed", "it does not end")
        self.assertIn("its client was gone", self.box(box)["reason"])


class Modern(Served):
    def ask(self, method, params=None, meta=None, id=1, body=None, **headers):
        params = dict(params or {})
        params["_meta"] = dict(ENVELOPE, **(meta or {}))
        sent = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
        name = params.get("uri") if method == "resources/read" else params.get("name")
        if name:
            sent["Mcp_Name"] = name
        sent.update(headers)
        return self.send(body or request(method, params, id), **sent)

    def test_discover(self):
        a = self.ask("server/discover", id="probe")
        result = a.json()["result"]
        self.assertEqual(result["supportedVersions"], ["2026-07-28"])
        self.assertEqual((result["resultType"], result["ttlMs"], result["cacheScope"]), ("complete", 0, "private"))
        self.assertEqual(result["_meta"][META + "serverInfo"]["name"], "cloche")
        self.assertIsNone(a.headers["Mcp-Session-Id"])

    def test_order_of_refusals(self):
        no_envelope = request("tools/list", {}, 1)
        self.check(self.ask("tools/list", body=no_envelope), 400, error(
            -32602, "_meta must have the string " + META + "protocolVersion", 1))
        self.check(self.ask("tools/list", body=request("tools/list", {"_meta": {
            META + "protocolVersion": "2026-07-28"}}, 1)), 400, error(
            -32602, "_meta must have the object " + META + "clientCapabilities", 1))
        self.check(self.ask("tools/list", MCP_Protocol_Version="2026-08-01"), 400, error(
            -32020, "MCP-Protocol-Version differs from the version in _meta", 1))
        self.check(self.ask("tools/list", meta={META + "protocolVersion": "2027-01-01"},
                            MCP_Protocol_Version="2027-01-01"), 400, error(
            -32022, "Unsupported protocol version", 1,
            data={"supported": ["2026-07-28"], "requested": "2027-01-01"}))
        self.check(self.ask("tools/list", MCP_Protocol_Version=None), 400, error(
            -32020, "the header MCP-Protocol-Version is missing", 1))
        wrong = error(-32020, "the header Mcp-Method is missing, or differs from the method", 1)
        self.check(self.ask("tools/list", Mcp_Method=None), 400, wrong)
        self.check(self.ask("tools/list", Mcp_Method="tools/call"), 400, wrong)
        wrong = error(-32020, "the header Mcp-Name is missing, or differs from params.name", 1)
        self.check(self.ask("tools/call", {"name": "sandbox_list"}, Mcp_Name=None), 400, wrong)
        self.check(self.ask("tools/call", {"name": "sandbox_list"}, Mcp_Name="run_code"), 400, wrong)
        for gone in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"):
            self.check(self.ask(gone, id="x"), 404, error(-32601, "Method not found: " + gone, "x"))

    def test_wrapped_name(self):
        a = self.ask("tools/call", {"name": "sandbox_list"}, Mcp_Name=" =?base64?c2FuZGJveF9saXN0?= ")
        self.assertEqual(a.status, 200, a.body)

    def test_call(self):
        for _ in range(2):
            a = self.ask("tools/call", {"name": "run_command", "arguments": {"command": "echo x >>f; cat f"}},
                         meta={META + "clientInfo": {"name": "same", "version": "1"}})
            self.assertEqual(a.json()["result"]["resultType"], "complete")
        self.assertEqual(a.json()["result"]["structuredContent"]["stdout"], "x\nx\n")
        other = self.ask("tools/call", {"name": "run_command", "arguments": {"command": "ls"}},
                         meta={META + "clientInfo": {"name": "other", "version": "1"}})
        self.assertEqual(other.json()["result"]["structuredContent"]["stdout"], "")

    def test_same_name_of_another_owner(self):
        """A sandbox that a token prepared under a client's name does not become the operator's."""
        env = cl.caller_env(CLOCHE_STATE_DIR=self.daemon.state, CLOCHE_RUNTIME_DIR=self.daemon.runtime)
        bearer = {}
        for name, scopes in (("tenant", "run,files,read"), ("boss", "run,files,read,admin")):
            r = self.ok("token", "create", "--scopes", scopes, name, env=env)
            bearer[name] = "Bearer " + r.out.strip().split("\n")[-1]
            puppet.await_true(lambda: self.send(HELLO, Authorization=bearer[name]).status == 200)
        client = {META + "clientInfo": {"name": "popular", "version": "1"}}
        tool = lambda name, arguments, **headers: self.ask(
            "tools/call", {"name": name, "arguments": arguments}, meta=client, **headers
        ).json()["result"]["structuredContent"]
        look = {"command": "echo mine >~/mark; ls ~"}
        tool("run_command", {"command": "touch ~/bait"}, Authorization=bearer["tenant"])
        self.assertEqual(tool("run_command", look, Authorization=bearer["boss"])["stdout"], "mark\n")
        self.assertEqual(tool("run_command", look)["stdout"], "mark\n")
        self.assertEqual(len(tool("sandbox_list", {})["sandboxes"]), 1)
        self.assertEqual(len(tool("sandbox_list", {}, Authorization=bearer["tenant"])["sandboxes"]), 1)

    def test_log_only_if_asked(self):
        call = {"name": "run_command", "arguments": {"command": "getent hosts example.com"}}
        self.assertEqual(self.ask("tools/call", call).headers["Content-Type"], "application/json")
        logged = self.ask("tools/call", call, meta={META + "logLevel": "warning"}).events()
        self.assertEqual(logged[0]["method"], "notifications/message")

    def test_missing_resource(self):
        self.check(self.ask("resources/read", {"uri": "cloche://x"}), 200,
                   error(-32602, "Resource not found", 1, data={"uri": "cloche://x"}))

    def test_notification(self):
        a = self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
                      MCP_Protocol_Version="2026-07-28")
        self.assertEqual((a.status, a.body), (202, b""))


class Pipes(cl.Case):
    """`cloche mcp` without any daemon: its own starts when it is needed and is gone afterwards."""

    def setUp(self):
        super().setUp()
        self.runtime = self.mkdir("r")
        os.chmod(self.runtime, 0o700)
        self.env = cl.caller_env(XDG_RUNTIME_DIR=self.runtime, CLOCHE_STATE_DIR=self.path("none"),
                                 CLOCHE_RUNTIME_DIR=self.path("none"))

    def talk(self, *lines, options=()):
        text = b"".join(line if isinstance(line, bytes) else dump(line) + b"\n" for line in lines)
        with open(self.path("in"), "wb") as f:
            f.write(text)
        with open(self.path("in"), "rb") as stdin:
            r = cl.run("mcp", *options, stdin=stdin, env=self.env, timeout=60)
        self.assertEqual(r.code, 0, str(r))
        return [json.loads(line) for line in r.out.splitlines()]

    def test_answers_without_a_daemon(self):
        got = self.talk(HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}, request("tools/list", id="l"),
                        request("ping", id=2), request("resources/list", id=3), request("nope", id=4), b"[]\n",
                        b"{\n", b"\r\n", request("server/discover", {"_meta": ENVELOPE}, 5),
                        request("tools/list", {"_meta": {META + "protocolVersion": "2030-01-01",
                                                         META + "clientCapabilities": {}}}, 6))
        self.assertEqual([m.get("id") for m in got], [0, "l", 2, 3, 4, None, None, 5, 6])
        self.assertEqual(got[0]["result"]["protocolVersion"], "2025-11-25")
        self.assertEqual(len(got[1]["result"]["tools"]), 17)
        self.assertEqual([m["error"]["code"] for m in got if "error" in m], [-32601, -32600, -32700, -32022])
        self.assertEqual(os.listdir(self.runtime), [])

    def test_long_line(self):
        got = self.talk(b'{"x":"' + b"x" * (17 << 20) + b'"}\n', request("ping", id=2))
        self.assertEqual([m.get("id") for m in got], [None, 2])

    @unittest.skipUnless(os.access(GUEST, os.X_OK), "the guest is not built")
    def test_own_daemon(self):
        call = request("tools/call", {"name": "run_code", "arguments": {"code": "print(6 * 7)"}}, 7)
        got = self.talk(HELLO, call)
        self.assertEqual(got[-1]["id"], 7)
        self.assertEqual(got[-1]["result"]["structuredContent"]["stdout"], "42\n", got)
        puppet.await_true(lambda: os.listdir(self.runtime) == [], "its directory stays")

    @unittest.skipUnless(os.access(GUEST, os.X_OK), "the guest is not built")
    def test_killed(self):
        """Whoever is killed with -9 leaves nothing: the daemon sees its pipe end."""
        p = cl.start("mcp", "--private", stdin=subprocess.PIPE, env=self.env)
        call = request("tools/call", {"name": "run_command", "arguments": {"command": "exec sleep 9876"}}, 7)
        first = request("tools/call", {"name": "run_command", "arguments": {"command": "true"}}, 6)
        p.stdin.write(dump(first) + b"\n" + dump(call) + b"\n")
        p.stdin.flush()
        self.assertEqual(json.loads(p.stdout.readline())["id"], 6)
        p.kill()
        p.communicate()
        puppet.await_true(lambda: os.listdir(self.runtime) == [], "its directory stays")

    def test_output_that_cannot_be_written(self):
        """epoll refuses such a stdout. The server ends instead of trying again and again."""
        with open("/dev/full", "wb") as full:
            r = cl.run("mcp", input=dump(request("ping")) + b"\n", stdout=full, env=self.env)
        self.assertEqual(r.code, 0, str(r))

    def test_options(self):
        self.refused("mcp", "--no-such", says="unknown option", env=self.env)
        self.refused("mcp", "--apply", says="not for cloche mcp", env=self.env)
        self.refused("mcp", "--workspace", "/", says="workspace", env=self.env)
        self.refused("mcp", "word", says="no option", env=self.env)
        for option, value in (("--env", b"A=\xff"), ("--hostname", b"a\xff")):
            self.refused("mcp", option, os.fsdecode(value), says="is not UTF-8", env=self.env)
        self.assertIn("usage: cloche mcp", self.ok("mcp", "--help", env=self.env).out)

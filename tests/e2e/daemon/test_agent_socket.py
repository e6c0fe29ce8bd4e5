"""The agent's socket inside a sandbox: mail by HTTP and MCP, without any network; and what hostile code makes of it."""

import json
import os
import subprocess
import sys

import test_messages as messages
import harness
import served

# One request over the socket, as a program inside makes it.
ASK = r"""
import http.client, json, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect('/run/cloche/agent.sock')
method, path, body, headers = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
c = Unix('agent')
c.request(method, path, body.encode() or None, headers)
r = c.getresponse()
print(json.dumps([r.status, r.read().decode()]))
"""


class Inside(messages.Case):
    def agent(self, trust=3, **options):
        name = self.fresh(trust)[0]
        self.d.delete("/v1/agents/" + name)
        self.register(name, trust, outside=False)
        made = self.d.post("/v1/sandboxes", {"agent": name, **options})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + made.json["id"])
        return name, made.json["id"]

    def run_in(self, box, *cmd):
        return self.d.post("/v1/sandboxes/%s/exec" % box, {"cmd": list(cmd), "timeout": 60}).json

    def ask(self, box, method, path, body=None, **headers):
        done = self.run_in(box, "python3", "-c", ASK, method, path, json.dumps(body) if body is not None else "",
                           json.dumps(headers))
        self.assertEqual(done["exit_code"], 0, done)
        status, text = json.loads(done["stdout"])
        return status, json.loads(text) if text else None

    def mcp(self, box, method, **params):
        status, answer = self.ask(box, "POST", "/mcp", {"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
        self.assertEqual((status, answer["id"]), (200, 7), answer)
        return answer

    def tool(self, box, name, **arguments):
        result = self.mcp(box, "tools/call", name=name, arguments=arguments)["result"]
        return result["isError"], result.get("structuredContent", result["content"][0]["text"])

    def test_from_one_sandbox_to_another(self):
        a, box_a = self.agent(net="none")
        b, box_b = self.agent(root="ro")
        status, sent = self.ask(box_a, "POST", "/v1/messages", {"to": b, "content": "over the wall"})
        self.assertEqual((status, sent["from"]), (201, a), sent)
        status, got = self.ask(box_b, "GET", "/v1/messages?wait=5")
        message, = got["messages"]
        self.assertEqual((message["from"], message["content"], message["trust"]), (a, "over the wall", 3))
        self.assertEqual(self.ask(box_b, "POST", "/v1/verify", {"message": message}), (200, {"valid": True, "why": None}))
        self.assertEqual(self.ask(box_b, "DELETE", "/v1/messages?through=%d" % message["seq"])[0], 204)
        self.assertEqual(self.ask(box_b, "GET", "/v1/messages")[1]["messages"], [])
        self.assertEqual(self.read(b), [])
        status, known = self.ask(box_a, "GET", "/v1/agents")
        self.assertEqual(known["self"]["id"], a)
        self.assertIn({"id": "box", "trust": 1, "may_talk": True, "may_delegate": True}, known["agents"])

    def test_mcp(self):
        a, box_a = self.agent()
        b, box_b = self.agent(1)
        self.assertEqual(self.mcp(box_a, "initialize", protocolVersion="2025-06-18")["result"]["protocolVersion"], "2025-06-18")
        tools = {t["name"] for t in self.mcp(box_a, "tools/list")["result"]["tools"]}
        self.assertEqual(tools, {"send", "receive", "delegate", "list_agents"})
        failed, task = self.tool(box_a, "delegate", to=b, task="count the files", id="job-1")
        self.assertFalse(failed, task)
        failed, got = self.tool(box_b, "receive", wait=5)
        self.assertEqual((got["messages"][0]["kind"], got["messages"][0]["content"]), ("task", "count the files"))
        failed, why = self.tool(box_b, "send", to=a, content="on my own")
        self.assertTrue(failed, why)
        failed, sent = self.tool(box_b, "send", to=a, content="3", reply_to="job-1")
        self.assertFalse(failed, sent)
        failed, back = self.tool(box_a, "receive", wait=5)
        self.assertEqual((back["messages"][0]["reply_to"], back["messages"][0]["content"]), ("job-1", "3"))
        # Asking for what comes behind it says that it has arrived.
        self.assertEqual(self.tool(box_a, "receive", after=back["messages"][0]["seq"])[1]["messages"], [])
        self.assertEqual(self.read(a), [])
        self.assertEqual(self.tool(box_a, "list_agents")[1]["self"]["id"], a)
        self.assertTrue(self.tool(box_a, "send", to=b)[0])
        self.assertTrue(self.tool(box_a, "delegate", to=a, task="me")[0])
        self.assertIn("error", self.mcp(box_a, "tools/call", name="run_shell", arguments={}))
        self.assertIn("error", self.mcp(box_a, "resources/list"))

    def test_no_other_door(self):
        a, box = self.agent()
        key = self.daemon.token("inside", "--scopes", "run,read,files,admin")
        for method, path in (
            ("GET", "/v1/sandboxes"), ("GET", "/v1/tokens"), ("POST", "/v1/run"), ("GET", "/healthz"), ("GET", "/metrics"),
            ("GET", "/v1/agents/root/messages"), ("POST", "/v1/agents/root/messages"), ("POST", "/v1/agents"),
            ("DELETE", "/v1/agents/root"), ("GET", "/v1/trust"), ("GET", "/sandboxes"), ("GET", "/v1/audit"),
        ):
            status, answer = self.ask(box, method, path, {} if method == "POST" else None,
                                      Authorization="Bearer " + key, **{"X-API-Key": key})
            self.assertIn(status, (404, 405, 501), (method, path, answer))
        status, sent = self.ask(box, "POST", "/v1/messages", {"to": "writer", "content": "x", "from": "root"})
        self.assertEqual((status, sent["error"]["field"]), (400, "from"))
        self.assertEqual(self.ask(box, "GET", "/v1/agents", Authorization="Bearer " + key)[1]["self"]["id"], a)
        # And nobody outside has the agent's.
        self.assertEqual(self.d.get("/v1/messages").status, 404)

    def test_the_example(self):
        env = {"PATH": os.path.dirname(served.CLOCHE) + ":" + os.environ["PATH"]}
        done = subprocess.run([sys.executable, os.path.join(served.TOP, "examples/two_agents.py")], capture_output=True,
                              text=True, env=self.daemon.client_env(env), timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "example-counter (trust 1) answers: 6\n"), done)

    def test_only_for_agents(self):
        box = self.d.post("/v1/sandboxes", {}).json["id"]
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + box)
        done = self.run_in(box, "python3", "-c", ASK, "GET", "/v1/agents", "", "{}")
        self.assertIn("FileNotFoundError", done["stderr"])

    def test_removed_or_registered_again(self):
        a, box = self.agent()
        self.assertEqual(self.ask(box, "GET", "/v1/agents")[0], 200)
        self.d.delete("/v1/agents/" + a)
        self.assertEqual(self.ask(box, "GET", "/v1/messages")[0], 403)
        self.register(a, 5, outside=False)
        self.send("root", a, "for the new one")
        for method, path, body in (("GET", "/v1/messages", None), ("POST", "/v1/messages", {"to": "root", "content": "x"})):
            self.assertEqual(self.ask(box, method, path, body)[0], 403)
        self.assertEqual([m["content"] for m in self.read(a)], ["for the new one"])

    def test_outlives_the_daemon_and_a_stop(self):
        a, box = self.agent()
        self.daemon.kill()
        self.daemon.start()
        harness.until(lambda: self.d.get("/v1/agents/%s/keys" % a).status == 200, "the signer")
        self.assertEqual(self.ask(box, "POST", "/v1/messages", {"to": "writer", "content": "still here"})[0], 201)
        self.assertEqual(self.d.post("/v1/sandboxes/%s/stop" % box).status, 200)
        self.assertEqual(self.d.post("/v1/sandboxes/%s/start" % box).status, 200)
        harness.until(lambda: self.run_in(box, "test", "-S", "/run/cloche/agent.sock")["exit_code"] == 0, "the socket")
        self.assertEqual(self.ask(box, "GET", "/v1/agents")[1]["self"]["id"], a)

    def test_with_a_network_and_its_ca(self):
        a, box = self.agent(4, net="public")
        done = self.d.put("/v1/sandboxes/%s/network" % box, {"net": "allow", "allow": ["example.com inspect"]})
        self.assertEqual(done.status, 200, done)
        self.assertEqual(self.run_in(box, "test", "-f", "/run/cloche/ca.crt")["exit_code"], 0)
        self.assertEqual(self.ask(box, "GET", "/v1/agents")[1]["self"]["id"], a)

    def test_a_fork_is_the_same_agent(self):
        a, box = self.agent()
        self.ask(box, "GET", "/v1/agents")
        forks = self.d.post("/v1/sandboxes/%s/fork" % box, {"count": 1}).json["sandboxes"]
        fork = forks[0]["sandbox"]["id"]
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + fork)
        harness.until(lambda: self.run_in(fork, "test", "-S", "/run/cloche/agent.sock")["exit_code"] == 0, "the socket")
        self.assertEqual(self.ask(fork, "GET", "/v1/agents")[1]["self"]["id"], a)

    def test_a_flood_stops_at_the_bounds(self):
        a, box = self.agent()
        b, other = self.agent()
        flood = r"""
import socket, time
open_ones = []
for i in range(200):
    s = socket.socket(socket.AF_UNIX); s.setblocking(False)
    try: s.connect('/run/cloche/agent.sock'); s.send(b'GET /v1/messages?wait=60 HTTP/1.1\r\nHost: x\r\n\r\n' if i % 2 else b'\xff' * 1000)
    except OSError as e: pass
    open_ones.append(s)
print('flooded'); import sys; sys.stdout.flush()
time.sleep(1)
"""
        self.assertIn("flooded", self.run_in(box, "python3", "-c", flood)["stdout"])
        self.assertEqual(self.ask(other, "POST", "/v1/messages", {"to": a, "content": "hello?"})[0], 201)
        harness.until(lambda: self.ask(box, "GET", "/v1/messages")[0] == 200, "its socket")

    def test_garbage_on_the_socket(self):
        a, box = self.agent()
        junk = r"""
import socket
for bytes_ in (b'\0' * 100, b'GET / HTTP/9.9\r\n\r\n', b'POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n',
               b'POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
               b'POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n[1]', b'A' * 100000):
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect('/run/cloche/agent.sock')
    try: s.sendall(bytes_); s.shutdown(1); print(s.recv(100)[:12])
    except OSError as e: print(e)
    s.close()
"""
        out = self.run_in(box, "python3", "-c", junk)
        self.assertEqual(out["exit_code"], 0, out)
        self.assertNotIn("200", out["stdout"])
        self.assertEqual(self.ask(box, "GET", "/v1/agents")[0], 200)

"""Tool calls of agents at the daemon: /v1/tools/check and /v1/tools/call, and the rules of sessions of MCP."""

import base64
import json
import os

import harness

HOST = {"/home/me/app": "/workspace", "/home/me/data": "/data"}
_daemon = None


def setUpModule():
    global _daemon
    _daemon = harness.Daemon("tools:\n  rules:\n    - deny Bash command=git ** push because people push\n"
                             "    - ask * path=**/*.env\n    - deny mcp__github__*\n")
    _daemon.start()


def tearDownModule():
    _daemon.stop()
    _daemon.remove()


class Tools(harness.Case):
    @property
    def d(self):
        return _daemon

    def check(self, tool, arguments, **more):
        r = self.d.post("/v1/tools/check", dict(more, tool=tool, arguments=arguments))
        self.assertEqual(r.status, 200, r)
        return r.json

    def call(self, tool, arguments, **more):
        return self.d.post("/v1/tools/call", dict(more, tool=tool, arguments=arguments))

    def done(self, tool, arguments, **more):
        r = self.call(tool, arguments, **more)
        self.assertEqual(r.status, 200, r)
        result = r.json["result"]
        self.assertFalse(result["isError"], result)
        return result["structuredContent"]

    def audited(self, tool):
        r = self.d.get("/v1/audit?target=" + tool)
        return [(e["verdict"], e["why"]) for e in r.json["records"] if e["what"] == "tool"] if r.status == 200 else r


class Check(Tools):
    def test_verdicts(self):
        self.assertEqual(self.check("Bash", {"command": "git pull"})["verdict"], "allow")
        no = self.check("Bash", {"command": "cd x; git -C y push"})
        self.assertEqual((no["verdict"], no["reason"]), ("deny", "people push"))
        self.assertEqual(self.check("run_shell_command", {"command": "git push"})["verdict"], "deny")
        self.assertEqual(self.check("Bash", {"command": "git $X"})["verdict"], "ask")
        self.assertEqual(self.check("Write", {"file_path": "/a/x.env", "content": ""})["verdict"], "ask")
        self.assertEqual(self.check("mcp__github__x", {})["verdict"], "deny")

    def test_a_request_may_only_narrow(self):
        more = {"tool_rule": ["deny Read", "allow Bash"]}
        self.assertEqual(self.check("Read", {"file_path": "/x"}, **more)["verdict"], "deny")
        self.assertEqual(self.check("Bash", {"command": "git push"}, **more)["verdict"], "deny")
        bad = self.check("Read", {"file_path": "/x"}, tool_rule=["nonsense"])
        self.assertEqual(bad["verdict"], "deny")

    def test_rewriting(self):
        def call(tool, arguments):
            answer = self.check(tool, arguments, paths=HOST)
            self.assertEqual(answer["verdict"], "rewrite")
            return answer["call"]["tool"], answer["call"]["arguments"]

        self.assertEqual(call("Read", {"file_path": "/home/me/app/a", "limit": 5}), ("read_file", {"path": "/workspace/a"}))
        self.assertEqual(call("Write", {"file_path": "/home/me/data/./x", "content": "é"}),
                         ("write_file", {"path": "/data/x", "content": "é"}))
        self.assertEqual(call("Edit", {"file_path": "/etc/x", "old_string": "a", "new_string": "b"}),
                         ("edit_file", {"path": "/etc/x", "old": "a", "new": "b"}))
        self.assertEqual(call("Grep", {"pattern": "x+", "path": "/home/me/app"}),
                         ("search_files", {"content": "x+", "regex": True, "path": "/workspace"}))
        self.assertEqual(call("Glob", {"pattern": "*.py"}), ("search_files", {"glob": "*.py"}))
        self.assertEqual(call("WebFetch", {"url": "https://x/'$(id)"}),
                         ("run_command", {"command": "curl -sSfL --max-time 30 -- 'https://x/'\\''$(id)'"}))
        line = "cat '/home/me/app/a b' \"/home/me/data/c\" > /home/me/app/out; cp /home/me/apple $(x /home/me/app)"
        self.assertEqual(call("Bash", {"command": line, "timeout": 1500}), ("run_command", {"command":
            "cat '/workspace/a b' '/data/c' > '/workspace/out'; cp /home/me/apple $(x /home/me/app)", "timeout": 1.5}))
        self.assertEqual(self.check("mcp__other__tool", {}, paths=HOST)["verdict"], "allow")

    def test_bad_requests(self):
        self.assertEqual(self.d.post("/v1/tools/check", {"arguments": {}}).status, 400)
        self.assertEqual(self.d.post("/v1/tools/check", {"tool": "x", "nonsense": 1}).status, 400)
        self.assertEqual(self.d.post("/v1/tools/check", {"tool": "x", "paths": {"/a": 1}}).status, 400)


class Call(Tools):
    def test_round_trip(self):
        path = "/home/me/app/dir/a.txt"
        how = {"paths": HOST, "session": "round"}
        self.assertEqual(self.done("Write", {"file_path": path, "content": "one two two\n"}, **how)["path"], path)
        self.assertEqual(self.done("Read", {"file_path": path}, **how)["content"], "one two two\n")
        r = self.call("Edit", {"file_path": path, "old_string": "two", "new_string": "3"}, **how).json["result"]
        self.assertIn("2 times", r["content"][0]["text"])
        edited = self.done("Edit", {"file_path": path, "old_string": "two", "new_string": "3", "replace_all": True}, **how)
        self.assertEqual(edited, {"path": path, "replaced": 2, "size": 8})
        ran = self.done("Bash", {"command": "cat %s; pwd" % path}, **how)
        self.assertEqual(ran["stdout"], "one 3 3\n/workspace\n")
        found = self.done("Grep", {"pattern": "one", "path": "/home/me/app"}, **how)["matches"]
        self.assertEqual([m["path"] for m in found], [path])
        self.assertEqual(self.done("run_code", {"code": "print(6*7)"}, **how)["stdout"], "42\n")

    def test_what_a_model_sees(self):
        how = {"session": "clean"}
        line = "printf 'a\\033[31mb\\033]0;t\\007\\377\\342\\200\\256c AKIAABCDEFGHIJKLMNOP\\n' | tee f"
        shown = "ab\ufffdc [secret removed]\n"
        counts = {"invalid": 1, "control": 2, "invisible": 1, "secrets": 1}
        ran = self.done("Bash", {"command": line}, **how)
        self.assertEqual((ran["stdout"], ran["cleaned"]), (shown, counts))
        self.done("Bash", {"command": "tr -d '\\377' <f >g"}, **how)
        self.assertNotIn("cleaned", self.done("Bash", {"command": "echo a"}, **how))
        read = self.done("read_file", {"path": "g"}, **how)
        self.assertEqual((read["content"], read["cleaned"]["secrets"]), ("abc [secret removed]\n", 1))
        raw = self.done("read_file", {"path": "g", "raw": True}, **how)
        self.assertEqual(raw["encoding"], "base64")
        self.assertIn(b"\x1b[31mb", base64.b64decode(raw["content"]))
        found = self.done("Grep", {"pattern": "AKIA"}, **how)["matches"]
        self.assertNotIn("AKIA", json.dumps(found))

    def test_raw_output(self):
        """On request the bytes as they are; else each change is counted, names of files included."""
        def made(tool, **arguments):
            return self.done(tool, arguments, session="raw")

        dirty = b"a\x1b[31mb\xe2\x80\xaec\xff\n"
        line = "printf 'a\\033[31mb\\342\\200\\256c\\377\\n'; printf e\\\\033 >&2"
        said = made("run_command", command=line, raw=True)
        self.assertEqual((base64.b64decode(said["stdout"]), said["encoding"]), (dirty, "base64"))
        self.assertNotIn("cleaned", said)
        said = made("run_command", command=line)
        self.assertEqual(said["stdout"], "abc\ufffd\n")
        self.assertNotIn("encoding", said)
        self.assertEqual(said["cleaned"]["invisible"], 1)
        code = "import sys; sys.stdout.buffer.write(%r)" % dirty
        self.assertEqual(base64.b64decode(made("run_code", code=code, raw=True)["stdout"]), dirty)
        started = made("process_start", command=line)["process_id"]
        said = made("process_poll", process_id=started, wait=5, raw=True)
        self.assertEqual((base64.b64decode(said["stdout"]), said["encoding"]), (dirty, "base64"))
        made("run_code", code="import os; os.mkdir('/workspace/d'); open('/workspace/d/a\\x1b[31mb\\u202e', 'w').write('x')")
        said = made("list_files", path="d")
        self.assertEqual([f["path"] for f in said["files"]], ["/workspace/d/ab"])
        self.assertGreater(said["cleaned"]["control"] + said["cleaned"]["invisible"], 1)
        said = made("search_files", path="d", content="x")
        self.assertEqual(said["matches"][0]["path"], "/workspace/d/ab")
        self.assertGreater(said["cleaned"]["invisible"], 0)

    def test_sessions_share_nothing(self):
        self.done("Write", {"file_path": "/workspace/x", "content": "1"}, session="a")
        r = self.call("Read", {"file_path": "/workspace/x"}, session="b").json["result"]
        self.assertTrue(r["isError"])

    def test_refused(self):
        self.assertError(self.call("Bash", {"command": "git push"}), 403, "denied")
        self.assertIn("people push", self.call("Bash", {"command": "git push"}).json["error"]["message"])
        ask = {"file_path": "/workspace/a.env", "content": "x"}
        self.assertError(self.call("Write", ask), 403, "denied")
        self.done("Write", ask, approved=True)
        self.assertError(self.call("Bash", {"command": "git push"}, approved=True), 403, "denied")
        self.assertError(self.call("mcp__other__tool", {}), 404)
        self.assertTrue(self.call("Read", {}).json["result"]["isError"])

    def test_every_verdict_is_in_the_audit_log(self):
        self.check("NoteDeny", {"path": "/x"}, tool_rule=["deny NoteDeny because of it"])
        self.check("NoteAllow", {})
        harness.until(lambda: self.audited("NoteAllow"))
        self.assertEqual(self.audited("NoteAllow"), [("allow", "")])
        self.assertEqual(self.audited("NoteDeny"), [("deny", "of it")])

    def test_a_token_without_the_scopes(self):
        token = self.d.token("reader", "--scopes", "read")
        r = self.d.post("/v1/tools/call", {"tool": "Bash", "arguments": {"command": "true"}}, token=token)
        self.assertEqual(r.status, 403)
        self.assertEqual(self.d.post("/v1/tools/check", {"tool": "x"}, token=token).status, 200)


GUARD = """command: [python3, /tmp/.cloche/guard.py]
timeout: 5s
files:
  - path: /tmp/.cloche/guard.py
    content: |
      import json, sys, time
      call = json.load(sys.stdin)
      text = json.dumps(call["arguments"])
      if "sleep" in text: time.sleep(60)
      if "crash" in text: sys.exit(1)
      if "chatter" in text: print("well,")
      if "odd" in text: print(json.dumps({"verdict": "maybe"})); sys.exit()
      for word in ("deny", "ask"):
          if word in text: print(json.dumps({"verdict": word, "reason": "guard says " + word})); sys.exit()
      print(json.dumps({"verdict": "allow"}))
"""
SECOND = """command: [python3, -c, 'import json, sys; t = sys.stdin.read(); print(json.dumps({"verdict": "deny" if "second" in t else "allow", "reason": "2"}))']
"""


class Interceptors(harness.Case):
    """External programs judge, in sandboxes of their own, in order; whatever else they do is a denial."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon()
        types = os.path.join(cls.daemon.dir, "types")
        os.mkdir(types)
        for name, text in (("guard", GUARD), ("second", SECOND)):
            with open(os.path.join(types, name + ".yaml"), "w", encoding="utf-8") as f:
                f.write(text)
        cls.daemon.config = "agents: {types: %s}\ntools: {interceptors: [guard, second]}\n" % types
        cls.daemon.start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.daemon.remove()

    def verdict(self, word):
        r = self.daemon.post("/v1/tools/check", {"tool": "Tool-" + word, "arguments": {"x": word}})
        self.assertEqual(r.status, 200, r)
        return r.json["verdict"], r.json["reason"]

    def test_verdicts_of_a_chain(self):
        self.assertEqual(self.verdict("fine")[0], "allow")
        self.assertEqual(self.verdict("deny"), ("deny", "guard says deny"))
        self.assertEqual(self.verdict("ask"), ("ask", "guard says ask"))
        self.assertEqual(self.verdict("second"), ("deny", "2"))

    def test_fails_closed(self):
        for word in ("crash", "chatter", "odd", "sleep"):
            verdict, reason = self.verdict(word)
            self.assertEqual((verdict, "guard gave no verdict" in reason), ("deny", True), word)

    def test_calls_and_sessions_obey(self):
        r = self.daemon.post("/v1/tools/call", {"tool": "Bash", "arguments": {"command": "echo deny"}})
        self.assertError(r, 403, "denied")
        r = self.daemon.post("/v1/tools/call", {"tool": "Bash", "arguments": {"command": "echo hello"}})
        self.assertEqual(r.json["result"]["structuredContent"]["stdout"], "hello\n")

    def test_an_entry_for_each_verdict(self):
        self.verdict("second")

        def entries():
            found = self.daemon.get("/v1/audit?target=Tool-second").json["records"]
            return [e["verdict"] for e in found if e["what"] == "tool"]

        harness.until(lambda: len(entries()) >= 2)
        self.assertEqual(entries()[-2:], ["allow", "deny"])


class Limits(harness.Case):
    """How often tools may be called, and what an agent may call: the operator's, for each token and agent."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon("""tools:
  limits: [3/1h Read, 2/24h writer/Bash, 1000/1s Glob]
  rules:
    - deny reviewer/Write because reviewers only read
    - deny */Edit
""")
        cls.daemon.start()
        for name in ("writer", "reviewer"):
            assert cls.daemon.post("/v1/agents", {"id": name, "trust": 2}).status == 201

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.daemon.remove()

    def call(self, tool, token=None, **more):
        arguments = {"command": "true"} if tool == "Bash" else {"file_path": "/workspace/x", "content": "x"}
        return self.daemon.post("/v1/tools/call", dict(more, tool=tool, arguments=arguments), token=token)

    def test_a_limit_of_a_token(self):
        token = self.daemon.token("limited", "--scopes", "run,files,read")
        for _ in range(5):  # a check is no call
            self.daemon.post("/v1/tools/check", {"tool": "Read", "arguments": {}}, token=token)
        self.assertEqual([self.call("Read", token).status for _ in range(3)], [200] * 3)
        late = self.call("read_file", token)  # another name of the same tool
        self.assertError(late, 429, "limit")
        self.assertIn("the limit 3/1h Read is reached", late.error["message"])
        self.assertGreater(int(late.headers["Retry-After"]), 60)
        self.assertEqual(self.call("Read").status, 200)  # of somebody else
        self.assertEqual(self.call("Write", token).status, 200)

        def noted():
            found = self.daemon.get("/v1/audit?target=read_file").json["records"]
            return [e["verdict"] for e in found if e["what"] == "tool" and "3/1h" in e["why"]]

        self.assertEqual(harness.until(noted), ["deny"])

    def test_a_limit_of_an_agent(self):
        self.assertEqual([self.call("Bash", agent="writer").status for _ in range(3)], [200, 200, 429])
        self.assertEqual(self.call("Bash", agent="reviewer").status, 200)
        self.assertEqual(self.call("Bash").status, 200)

    def test_what_an_agent_may(self):
        refused = self.call("Write", agent="reviewer")
        self.assertError(refused, 403, "denied")
        self.assertIn("reviewers only read", refused.error["message"])
        self.assertEqual(self.call("Write", agent="writer").status, 200)
        self.assertError(self.call("Edit", agent="writer"), 403, "denied")
        self.assertNotEqual(self.call("Edit").status, 403)

    def test_only_agents_of_ones_own(self):
        token = self.daemon.token("other", "--scopes", "run,files,read")
        for name in ("writer", "nobody"):
            self.assertError(self.call("Bash", token, agent=name), 404, "not_found", "agent")

    def test_sessions(self):
        """An agent of MCP is what its client says it is, not what its model says."""
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
            "_meta": {"cloche/options": {"agent": "reviewer"}}}}
        accept = {"Accept": "application/json, text/event-stream"}
        opened = self.daemon.post("/mcp", begin, headers=accept)
        self.assertEqual(opened.status, 200, opened)
        how = dict(accept, **{"Mcp-Session-Id": opened.headers["Mcp-Session-Id"],
                              "MCP-Protocol-Version": "2025-11-25"})
        said = self.daemon.post("/mcp", dict(call, params={"name": "write_file", "arguments": {
            "path": "x", "content": "y"}}), headers=how)
        self.assertIn("reviewers only read", said.body.decode())

    def test_wrong_lines(self):
        for line in ("Bash", "0/1m Bash", "5/1 Bash more", "5/0s Bash", "x/1m Bash", "5/1m", "9999999/1m Bash"):
            daemon = harness.Daemon("tools: {limits: ['%s']}\n" % line)
            with self.assertRaisesRegex(AssertionError, "tools.limits"):
                daemon.start()
            daemon.remove()


class Missing(harness.Case):
    def test_an_interceptor_that_is_not_there_denies(self):
        daemon = harness.Daemon("tools: {interceptors: [nobody]}\n")
        daemon.start()
        try:
            r = daemon.post("/v1/tools/check", {"tool": "x", "arguments": {}})
            self.assertEqual(r.json["verdict"], "deny")
        finally:
            daemon.stop()
            daemon.remove()


class Sessions(Tools):
    """The tools of MCP are judged by the operator's rules and by those of `cloche mcp --tool-rule`."""

    def test_rules_of_a_session(self):
        how = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

        def ask(method, params, **headers):
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            return self.d.request("POST", "/mcp", body, dict(how, **headers))

        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        bad = ask("initialize", dict(hello, _meta={"cloche/options": {"tool_rule": ["nonsense"]}}))
        self.assertEqual(bad.status, 400)
        r = ask("initialize", dict(hello, _meta={"cloche/options": {"tool_rule": ["deny write_file because no"]}}))
        session = {"Mcp-Session-Id": r.headers["Mcp-Session-Id"]}

        def tool(name, **arguments):
            return ask("tools/call", {"name": name, "arguments": arguments}, **session).json["result"]

        self.assertIn("refuses this call: no", tool("write_file", path="x", content="")["content"][0]["text"])
        self.assertIn("people push", tool("run_command", command="git push")["content"][0]["text"])
        self.assertIn("nobody", tool("run_command", command="$X")["content"][0]["text"])
        self.assertFalse(tool("run_command", command="echo ok")["isError"])

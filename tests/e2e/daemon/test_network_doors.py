"""Networks of sandboxes by ceiling and by door: tokens, E2B, runs, MCP."""

import json
import os
import signal
import subprocess
import unittest

import cl
import harness
import netlab
from harness import until

CONFIG = """
network: {mode: public, e2b_default: %s, deny: [forbidden.example.com]}
"""
FETCH = "curl -sS -m 20 -o /dev/null -w '%%{http_code}' %s"
_daemon = None
_tokens = []


def setUpModule():
    global _daemon
    _daemon = harness.Daemon(lab=netlab.shared(), config=CONFIG % "public")
    unittest.addModuleCleanup(_daemon.remove)
    unittest.addModuleCleanup(_daemon.stop)
    _daemon.start()


class Doors(harness.Case):
    @property
    def d(self):
        return _daemon

    def code(self, box, url):
        return box.sh(FETCH % url)["stdout"]

    def token(self, *options):
        _tokens.append(options)
        return self.d.token("t%d" % len(_tokens), *options)


class Ceilings(Doors):
    def test_token(self):
        rows = (((), ("none",), "none"), (("--net", "none"), ("none",), "none"),
                (("--net", "allow"), ("none", "allow"), "allow"), (("--net", "public"), ("none", "allow", "public"), None))  # fmt: skip
        for options, may, most in rows:
            key = self.token(*options)
            for mode in ("none", "allow", "public"):
                with self.subTest(options=options, mode=mode):
                    reply = self.d.post("/v1/sandboxes", {"net": mode}, token=key)
                    if mode in may:
                        self.assertEqual(reply.status, 201, reply)
                        self.assertEqual(reply.json["network"], mode)
                        self.d.delete("/v1/sandboxes/" + reply.json["id"])
                        continue
                    error = self.assertError(reply, 403, "denied", "net")
                    self.assertIn("this token may have, '%s'" % most, error["message"])
                    run = self.d.post("/v1/run", {"cmd": ["true"], "net": mode}, token=key)
                    self.assertError(run, 403, "denied", "net")
        box = harness.Box(self.d, self.token())
        self.assertError(box.put("/network", {"net": "allow", "allow": ["example.com"]}), 403, "denied", "net")
        box.delete()

    def test_rules_of_all_stages(self):
        key = self.token("--net", "allow", "--net-allow", "example.com,forbidden.example.com,*.evil.com")
        box = self.box(key, net="allow", allow=["example.com", "example.org", "forbidden.example.com"], deny=["a.evil.com"])
        self.assertEqual(self.code(box, "http://example.com/"), "200")
        for host, why in (("example.org", "token"), ("forbidden.example.com", "operator"), ("b.evil.com", "--allow b.evil.com")):
            with self.subTest(host=host):
                r = box.sh(FETCH % ("http://%s/" % host))
                self.assertEqual([d["target"] for d in r["denials"]], [host], r)
                self.assertIn(why, r["denials"][0]["explain"])
        self.assertError(box.put("/network", {"net": "public"}), 403, "denied", "net")
        self.assertEqual(self.code(box, "http://example.com/"), "200")

    def test_trust_and_tenant(self):
        with self.assertRaisesRegex(AssertionError, "try --trust 4"):
            self.token("--trust", "3", "--net", "public")
        low = self.token("--trust", "2", "--net", "allow", "--tenant", "team")
        self.token("--trust", "4", "--net", "public", "--tenant", "team")
        self.assertError(self.d.post("/v1/sandboxes", {"net": "public"}, token=low), 403, "denied", "net")
        self.box(low, net="allow", allow=["example.com"])

    def test_operator(self):
        d = harness.Daemon(lab=netlab.shared(), config="network: {mode: allow, allow: [example.com]}\n").start()
        try:
            self.assertError(d.post("/v1/sandboxes", {"net": "public"}), 403, "denied", "net")
            key = d.token("wide", "--net", "public")
            self.assertError(d.post("/v1/sandboxes", {"net": "public"}, token=key), 403, "denied", "net")
            box = harness.Box(d, key, net="allow", allow=["*"])
            self.assertEqual(self.code(box, "http://example.com/"), "200")
            r = box.sh(FETCH % "http://example.org/")
            self.assertIn("operator", r["denials"][0]["explain"], r)
            # E2B's clients ask for the internet unasked: they get what there is.
            wide = d.token("e2b", "--e2b")
            made = d.post("/sandboxes", {"templateID": "base"}, headers={"X-API-Key": wide})
            self.assertEqual(made.status, 201, made)
            seen = d.get("/sandboxes/" + made.json["sandboxID"], headers={"X-API-Key": wide}).json
            self.assertIn("'allow' is the most", seen["networkNote"])
            box = harness.Box.__new__(harness.Box)
            box.daemon, box.token, box.path = d, wide, "/v1/sandboxes/" + made.json["sandboxID"]
            self.assertEqual(self.code(box, "http://example.com/"), "200")
            self.assertNotEqual(self.code(box, "http://example.org/"), "200")
            self.rewrite(d, "network: {mode: none}\n")
            until(lambda: box.get("/network").json["mode"] == "none", "the reload")
            self.assertNotEqual(self.code(box, "http://example.com/"), "200")
            d.stop()
        finally:
            d.process.kill()
            d.remove()

    def rewrite(self, d, text):
        path = os.path.join(d.dir, "cloche.yaml")
        with open(path + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(path + ".new", path)
        d.process.send_signal(signal.SIGHUP)


class E2B(Doors):
    def create(self, key, status=201, **body):
        made = self.d.post("/v2/sandboxes", {"templateID": "base", **body}, headers={"X-API-Key": key})
        self.assertEqual(made.status, status, made)
        if status != 201:
            return made
        box = harness.Box.__new__(harness.Box)
        box.daemon, box.token, box.id = self.d, key, made.json["sandboxID"]
        box.path = "/v1/sandboxes/" + box.id
        self.addCleanup(box.delete)
        return box

    def detail(self, box):
        return self.d.get("/sandboxes/" + box.id, headers={"X-API-Key": box.token}).json

    def update(self, box, **body):
        return self.d.put("/sandboxes/%s/network" % box.id, body, headers={"X-API-Key": box.token}).status

    def test_defaults(self):
        key = self.token("--e2b")
        for body in ({}, {"allow_internet_access": True}, {"allow_internet_access": None}):
            box = self.create(key, **body)
            self.assertEqual(box.get("").json["network"], "public", body)
            self.assertEqual(self.detail(box)["allowInternetAccess"], True)
            self.assertNotIn("networkNote", self.detail(box))
        self.assertEqual(self.code(box, "https://example.com/"), "200")
        closed = self.create(key, allow_internet_access=False)
        self.assertEqual(self.code(closed, "http://example.com/"), "000")
        narrow = self.create(self.token("--e2b", "--net", "none"), allow_internet_access=True)
        seen = self.detail(narrow)
        self.assertEqual((seen["allowInternetAccess"], narrow.get("").json["network"]), (False, "none"))
        self.assertIn("'none' is the most", seen["networkNote"])

    def test_lists(self):
        key = self.token("--e2b")
        box = self.create(key, network={"allowOut": ["example.com", "*.example.com"], "denyOut": ["0.0.0.0/0"]})
        self.assertEqual([self.code(box, "http://%s/" % h) for h in ("example.com", "v4.example.com", "example.org")],
                         ["200", "200", "000"])  # fmt: skip
        # Allowing beats denying, and what is not denied is allowed.
        self.assertEqual(self.update(box, allowOut=["93.184.216.34"], denyOut=["93.184.216.0/24"]), 204)
        self.assertEqual([self.code(box, "http://%s/" % h) for h in ("93.184.216.34", "93.184.216.35", "8.8.8.8")],
                         ["200", "000", "200"])  # fmt: skip
        self.assertEqual(self.detail(box)["network"]["denyOut"], ["93.184.216.0/24"])
        self.assertEqual(self.update(box), 204)
        self.assertEqual(self.code(box, "http://93.184.216.35/"), "200")
        self.assertEqual(self.update(box, allow_internet_access=False), 204)
        self.assertEqual(self.code(box, "http://93.184.216.35/"), "000")
        self.create(key, 400, network={"allowOut": ["example.com"]})
        self.create(key, 400, network={"denyOut": ["example.com"]})
        self.assertEqual(self.update(box, denyOut=["x"]), 400)


class Runs(Doors):
    def test_run(self):
        cmd = ["sh", "-c", "readlink /proc/self/ns/net; " + FETCH % "https://example.com/"]
        seen = set()
        for _ in range(3):
            r = self.d.post("/v1/run", {"cmd": cmd, "net": "allow", "allow": ["example.com"]}).json
            self.assertEqual(r["stdout"].splitlines()[1], "200", r)
            self.assertEqual((r["layers"]["network"], r["layers"]["recycled"]), ("tproxy", []))
            self.assertGreater(r["net_rx_bytes"], 100)
            seen.add(r["stdout"].splitlines()[0])
        r = self.d.post("/v1/run", {"cmd": cmd}).json
        self.assertEqual((r["stdout"].splitlines()[1], r["layers"]["network"]), ("000", "none"))
        seen.add(r["stdout"].splitlines()[0])
        self.assertEqual(len(seen), 4)
        r = self.d.post("/v1/run", {"code": "import urllib.request as u; print(u.urlopen('http://evil.com/'))", "net": "allow",
                                    "allow": ["example.com"]}).json  # fmt: skip
        self.assertEqual([d["target"] for d in r["denials"]], ["evil.com"], r)

    def test_batch(self):
        tasks = [{"shell": FETCH % "http://example.com/", **more} for more in ({}, {"net": "allow", "allow": ["example.com"]})]
        reply = self.d.post("/v1/run/batch", {"tasks": tasks})
        self.assertEqual([r["result"]["stdout"] for r in reply.json], ["000", "200"], reply)


class MCP(Doors):
    HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

    def talk(self, args, calls):
        lines = [{"id": 0, "method": "initialize", "params": self.HELLO}, {"method": "notifications/initialized"}]
        lines += [{"id": i + 1, "method": "tools/call", "params": call} for i, call in enumerate(calls)]
        lab = self.d.lab
        p = cl.start(command=[*lab.under, cl.CLOCHE, "mcp", "--private", *args], env=cl.caller_env(), stdin=subprocess.PIPE)
        try:
            answers = {}
            for line in lines:
                p.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
                p.stdin.flush()
                while "id" in line and line["id"] not in answers:
                    answer = json.loads(p.stdout.readline())
                    answers[answer.get("id")] = answer
            return [json.dumps(answers[i + 1]) for i in range(len(calls))]
        finally:
            p.communicate()

    def test_flags(self):
        def run(url, **more):
            return {"name": "run_command", "arguments": {"command": FETCH % url, **more}}

        got = self.talk(["--allow", "example.com"],
                        [run("http://example.com/"), run("http://example.org/"), run("http://example.org/", net="public"),
                         run("http://example.org/", allow=["example.org"])])  # fmt: skip
        self.assertIn("200", got[0])
        self.assertIn("--allow example.org", got[1])
        self.assertIn("cannot be set from here", got[2])
        self.assertIn("cannot be set from here", got[3])
        self.assertIn("000", self.talk([], [run("http://example.com/")])[0])

    def test_by_the_token(self):
        def ask(key, method, params, **more):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            headers = {"Accept": "application/json, text/event-stream", **more}
            return self.d.post("/mcp", body, token=key, headers=headers)

        def call(key, options):
            hello = ask(key, "initialize", {**self.HELLO, "_meta": {"cloche/options": options}})
            session = {"Mcp-Session-Id": hello.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
            arguments = {"command": FETCH % "http://example.com/"}
            return ask(key, "tools/call", {"name": "run_command", "arguments": arguments}, **session).body.decode()

        options = {"net": "allow", "allow": ["example.com"]}
        self.assertIn("200", call(self.token("--net", "allow"), options))
        self.assertIn("this token may have", call(self.token(), options))


if __name__ == "__main__":
    unittest.main()

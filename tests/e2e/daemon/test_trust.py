"""Registered agents and their trust levels: who may register, who may talk to whom, what a level's sandbox has."""

import json

import harness
import served

# Seed 001, pattern 7, and its holes: level 0 cannot delegate to level 0, which it may not talk to; 4 not to 1.
TALKS = {0: (), 1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (2, 3, 4), 5: (0, 1, 2, 3, 4, 5)}
NET = {0: "none", 1: "none", 2: "allow", 3: "allow", 4: "public", 5: "public"}


class Case(served.Case):
    assertError = harness.Case.assertError

    @classmethod
    def setUpClass(cls):
        cls.daemon = served.Daemon("pool_size: 0\nnetwork:\n  mode: public\n")
        cls.addClassCleanup(cls.daemon.end)
        cls.daemon.start()
        for level in range(6):
            cls.register("level%d" % level, level)

    @classmethod
    def register(cls, name, trust, **more):
        made = cls.daemon.post("/v1/agents", {"id": name, "trust": trust, **more})
        if made.status != 201:
            raise AssertionError(made)
        return made.json

    @property
    def d(self):
        return self.daemon

    def rule(self, x, y, **how):
        return self.d.get("/v1/trust?from=%s&to=%s" % (x, y), **how).json["rule"]


class Trust(Case):
    def test_matrix(self):
        levels = self.d.get("/v1/trust").json["levels"]
        self.assertEqual({x["trust"]: tuple(x["talks_to"]) for x in levels}, TALKS)
        self.assertEqual({x["trust"]: x["network"] for x in levels}, NET)
        self.assertEqual([x["sandbox"] for x in levels], ["vm"] + ["container"] * 5)
        for x in range(6):
            for y in range(6):
                rule = self.rule("level%d" % x, "level%d" % y)
                self.assertEqual(rule["may_talk"], y in TALKS[x], rule)
                self.assertEqual(rule["may_delegate"], y in TALKS[x] and y <= x, rule)

    def test_unregistered_is_level_0(self):
        self.assertEqual(self.rule("nobody", "level1"), {
            "from": "", "to": "level1", "from_trust": 0, "to_trust": 1, "may_talk": False, "may_delegate": False})
        self.assertTrue(self.rule("level5", "nobody")["may_talk"])
        self.register("gone", 3)
        self.assertTrue(self.rule("gone", "level1")["may_talk"])
        self.assertEqual(self.d.delete("/v1/agents/gone").status, 204)
        self.assertFalse(self.rule("gone", "level1")["may_talk"])
        self.assertEqual(self.d.delete("/v1/agents/gone").status, 404)

    def test_only_admins_change(self):
        key = self.daemon.token("plain", "--trust", "5")
        for refused in (
            self.d.post("/v1/agents", {"id": "mine", "trust": 1}, token=key),
            self.d.request("PATCH", "/v1/agents/level1", {"trust": 5}, token=key),
            self.d.delete("/v1/agents/level1", token=key),
        ):
            self.assertError(refused, 403, "denied")
        admin = self.daemon.token("boss", "--trust", "3", "--scopes", "run,read,admin")
        made = self.d.post("/v1/agents", {"id": "bossy", "trust": 3}, token=admin)
        self.assertEqual((made.status, made.json["owner"] != ""), (201, True), made)
        audit = self.d.get("/v1/audit?limit=1000").json["records"]
        self.assertIn(("agent.put", "bossy", "done"), {(r["what"], r["target"], r["verdict"]) for r in audit})
        self.assertIn(("POST /v1/agents", "deny"), {(r["what"], r["verdict"]) for r in audit})

    def test_not_above_the_owners_tokens(self):
        key = self.daemon.token("low", "--trust", "2")
        owner = [t["id"] for t in self.d.get("/v1/tokens").json["tokens"] if t["name"] == "low"][0]
        self.assertError(self.d.post("/v1/agents", {"id": "proud", "trust": 3, "owner": owner}), 403, "denied", "trust")
        self.register("humble", 2, owner=owner)
        self.assertError(self.d.request("PATCH", "/v1/agents/humble", {"trust": 3}), 403, "denied", "trust")
        changed = self.d.request("PATCH", "/v1/agents/humble", {"trust": 1})
        self.assertEqual((changed.status, changed.json["trust"]), (200, 1), changed)
        self.assertEqual([a["id"] for a in self.d.get("/v1/agents", token=key).json["agents"]], ["humble"])
        # Others' agents are as if they were not there.
        self.assertError(self.d.get("/v1/agents/level5", token=key), 404, "not_found")
        self.assertFalse(self.rule("level5", "humble", token=key)["may_talk"])
        self.assertError(self.d.post("/v1/sandboxes", {"agent": "level5"}, token=key), 404, "not_found", "agent")

    def test_a_token_that_goes_takes_its_trust_along(self):
        self.daemon.token("brief", "--trust", "3")
        owner = [t["id"] for t in self.d.get("/v1/tokens").json["tokens"] if t["name"] == "brief"][0]
        self.assertEqual(self.register("heir", 3, owner=owner)["effective_trust"], 3)
        self.cloche("token", "revoke", owner, ok=0)
        harness.until(lambda: self.d.get("/v1/agents/heir").json["effective_trust"] == 0, "level 0")
        self.assertFalse(self.rule("heir", "level1")["may_talk"])
        self.assertEqual(self.d.get("/v1/agents/heir").json["trust"], 3)

    def test_bad_input(self):
        for body, field in (
            ({"trust": 1}, "id"), ({"id": "x"}, "trust"), ({"id": "x", "trust": 6}, "trust"),
            ({"id": "X", "trust": 1}, "id"), ({"id": "1x", "trust": 1}, "id"), ({"id": "a b", "trust": 1}, "id"),
            ({"id": "a:b", "trust": 1}, "id"), ({"id": "", "trust": 1}, "id"), ({"id": "x" * 64, "trust": 1}, "id"),
            ({"id": "x", "trust": 1, "owner": "-"}, "owner"),
            ({"id": "x", "trust": 1, "owner": "a/b"}, "owner"), ({"id": "x", "trust": 1, "level": 3}, "level"),
        ):
            refused = self.d.post("/v1/agents", body)
            self.assertEqual((refused.status, refused.error["field"]), (400, field), (body, refused))
        self.assertError(self.d.post("/v1/agents", {"id": "level1", "trust": 1}), 409, "conflict", "id")
        self.assertError(self.d.post("/v1/agents", {"id": "x", "trust": 1, "owner": "nobody1234"}), 403, "denied")

    def make(self, **options):
        made = self.d.post("/v1/sandboxes", {"image": "host", **options})
        if made.status == 201:
            self.addCleanup(self.d.delete, "/v1/sandboxes/" + made.json["id"])
        return made

    def test_defaults_of_levels(self):
        for level, net in ((0, "none"), (1, "none"), (2, "none"), (4, "public"), (5, "none")):
            box = self.make(agent="level%d" % level).json
            self.assertEqual((box["network"], box["agent"]), (net, "level%d" % level))
            self.assertEqual("vm" in box["layers"]["missing"], level == 0, box["layers"])

    def test_ceilings_of_levels(self):
        for level, asked, granted in (
            (0, "allow", None), (1, "allow", None), (1, "isolated", None), (2, "allow", "allow"), (3, "public", None),
            (4, "public", "public"), (5, "public", "public"),
        ):
            more = {"allow": ["example.com"]} if asked == "allow" else {}
            made = self.make(agent="level%d" % level, net=asked, **more)
            if granted:
                self.assertEqual((made.status, made.json["network"]), (201, granted), made)
            else:
                self.assertError(made, 403, "denied", "net")
        box = self.make(agent="level3").json["id"]
        self.assertError(self.d.put("/v1/sandboxes/%s/network" % box, {"net": "public"}), 403, "denied", "net")

    def test_a_lower_level_narrows_what_runs(self):
        self.register("falling", 4)
        box = self.make(agent="falling").json["id"]
        self.assertEqual(self.d.get("/v1/sandboxes/" + box).json["network"], "public")
        self.d.request("PATCH", "/v1/agents/falling", {"trust": 1})
        harness.until(lambda: self.d.get("/v1/sandboxes/" + box).json["network"] == "none", "no network")
        # Registered again is another agent, whatever its name.
        self.d.request("PATCH", "/v1/agents/falling", {"trust": 4})
        harness.until(lambda: self.d.get("/v1/sandboxes/" + box).json["network"] == "public", "its network")
        self.d.delete("/v1/agents/falling")
        self.register("falling", 4)
        harness.until(lambda: self.d.get("/v1/sandboxes/" + box).json["network"] == "none", "no network")

    def test_tokens_of_levels(self):
        for level, net, allow in ((0, "none", ()), (1, "none", ()), (4, "public", ()),
                                  (3, "allow", ("--net-allow", "example.com"))):
            key = self.daemon.token("of%d" % level, "--trust", str(level), *(("--net", net) if net != "none" else ()), *allow)
            made = self.d.post("/v1/sandboxes", {}, token=key)
            self.assertEqual(made.status, 201, made)
            self.assertEqual(made.json["network"], net, made)
            self.assertEqual("vm" in made.json["layers"]["missing"], level == 0)
            self.d.delete("/v1/sandboxes/" + made.json["id"], token=key)

    def test_levels_at_run(self):
        """POST /v1/run has the level's default and ceiling, of the token and of the agent that it is for."""
        for level in (0, 1, 5):
            r = self.d.post("/v1/run", {"shell": "true", "agent": "level%d" % level})
            self.assertEqual(r.status, 200, r)
            self.assertEqual("vm" in r.json["layers"]["missing"], level == 0, r.json["layers"])
        for level, net in ((0, "allow"), (1, "isolated"), (3, "public")):
            r = self.d.post("/v1/run", {"shell": "true", "agent": "level%d" % level, "net": net})
            self.assertError(r, 403, "denied", "net")
        r = self.d.post("/v1/run", {"agent_type": "shell", "task": "true", "agent": "level0"})
        self.assertIn("vm", r.json["layers"]["missing"])
        self.assertError(self.d.post("/v1/run", {"shell": "true", "agent": "nobody"}), 404, "not_found", "agent")
        key = self.daemon.token("runs", "--trust", "4", "--net", "public")
        self.assertError(self.d.post("/v1/run", {"shell": "true", "agent": "level1"}, token=key), 404, "not_found", "agent")
        kinds = {}
        for level in (1, 4):
            key = self.daemon.token("run%d" % level, "--trust", str(level), *(("--net", "public") if level == 4 else ()))
            r = self.d.post("/v1/run", {"shell": "ls /run/cloche 2>&1; cat /etc/resolv.conf"}, token=key)
            self.assertEqual(r.status, 200, r)
            kinds[level] = r.json["layers"].get("network", r.json["layers"].get("net"))
        self.assertNotEqual(kinds[1], kinds[4], kinds)

    def test_levels_at_e2b(self):
        for level, net in ((0, "none"), (1, "none"), (4, "public")):
            key = self.daemon.token("e2b%d" % level, "--e2b", "--trust", str(level), *(("--net", net) if net != "none" else ()))
            made = self.d.request("POST", "/sandboxes", {"templateID": "base"}, headers={"X-API-Key": key})
            self.assertEqual(made.status, 201, made)
            box = self.d.get("/v1/sandboxes/" + made.json["sandboxID"]).json
            self.addCleanup(self.d.delete, "/v1/sandboxes/" + box["id"])
            self.assertEqual((box["network"], "vm" in box["layers"]["missing"]), (net, level == 0), box)

    def test_levels_at_mcp(self):
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "run_command", "arguments": {"command": "true"}}}
        accept = {"Accept": "application/json, text/event-stream"}

        def made(**options):
            begin["params"]["_meta"] = {"cloche/options": options}
            opened = self.d.post("/mcp", begin, headers=accept)
            if "Mcp-Session-Id" not in opened.headers:
                return opened.body.decode()
            before = {b["id"] for b in self.d.get("/v1/sandboxes").json["sandboxes"]}
            self.d.post("/mcp", call, headers=dict(accept, **{"Mcp-Session-Id": opened.headers["Mcp-Session-Id"],
                                                              "MCP-Protocol-Version": "2025-11-25"}))
            box = next(b for b in self.d.get("/v1/sandboxes").json["sandboxes"] if b["id"] not in before)
            self.addCleanup(self.d.delete, "/v1/sandboxes/" + box["id"])
            return box["agent"], box["network"], "vm" in box["layers"]["missing"]

        self.assertEqual(made(agent="level0"), ("level0", "none", True))
        self.assertEqual(made(agent="level4"), ("level4", "public", False))
        self.assertEqual(made(), (None, "none", False))
        self.assertIn("trust level 1", made(agent="level1", net="public"))
        self.assertIn("you have no agent", made(agent="nobody"))
        self.d.post("/v1/agents", {"id": "outsider", "trust": 1, "outside": True})
        self.assertEqual(made(agent="outsider")[:2], (None, "none"))
        self.assertIn("trust level 1", made(agent="outsider", net="public"))

    def test_command_line(self):
        self.assertEqual(self.cloche("agent", "register", "--trust", "2", "cli", ok=0).out, "cli\n")
        self.assertRegex(self.cloche("agent", "trust", ok=0).out, r"cli +2 +2 +limited")
        self.assertIn("may talk to level1", self.cloche("agent", "trust", "cli", "level1", ok=0).out)
        self.assertIn("may not talk to level3", self.cloche("agent", "trust", "cli", "level3", ok=0).out)
        self.cloche("agent", "trust", "cli", "3", ok=0)
        self.assertEqual(json.loads(self.cloche("agent", "trust", "--json", "cli", "3", ok=0).out)["trust"], 3)
        self.cloche("agent", "register", "--trust", "6", "cli2", ok=125)
        self.cloche("agent", "unregister", "cli", ok=0)
        self.cloche("agent", "unregister", "cli", ok=125)


class Kept(Case):
    def test_outlives_the_daemon(self):
        self.register("lasting", 3)
        self.daemon.stop(destroy=False)
        self.daemon.start()
        self.assertEqual(self.d.get("/v1/agents/lasting").json["trust"], 3)

    def test_a_damaged_list_registers_nobody(self):
        path = self.daemon.state + "/agents"
        self.daemon.stop(destroy=False)
        with open(path, "rb") as f:
            whole = f.read()
        for damaged in (whole[:-1], b"", b"X" + whole[1:], whole + b"\0"):
            with open(path, "wb") as f:
                f.write(damaged)
            self.daemon.start()
            self.assertEqual(self.d.get("/v1/agents").json["agents"], [])
            self.assertError(self.d.post("/v1/agents", {"id": "new", "trust": 1}), 500)
            self.daemon.stop(destroy=False)
        with open(path, "wb") as f:
            f.write(whole)
        self.daemon.start()
        self.assertEqual(self.d.get("/v1/agents/level1").json["trust"], 1)

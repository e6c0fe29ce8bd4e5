"""The network of a daemon's sandboxes, in a laboratory internet."""

import unittest

import harness
import netlab
from harness import until

CONFIG = """
network: {mode: public, allow: ["10.0.0.5:80"], deny: [forbidden.example.com], names_max: 64}
"""
_daemon = None


def setUpModule():
    global _daemon
    _daemon = harness.Daemon(lab=netlab.shared(), config=CONFIG)
    unittest.addModuleCleanup(_daemon.remove)
    unittest.addModuleCleanup(_daemon.stop)
    _daemon.start()


class Network(harness.Case):
    @property
    def d(self):
        return _daemon

    @property
    def lab(self):
        return _daemon.lab

    def fetch(self, box, url, *options):
        return box.sh("curl -sS -m 20 -o /tmp/out -w '%%{http_code}' %s %s" % (" ".join(options), url))

    def assertReached(self, box, url):
        r = self.fetch(box, url)
        self.assertEqual((r["exit_code"], r["stdout"], r["denials"]), (0, "200", []), r)
        return r

    def assertRefused(self, box, url, target=None, says=""):
        """It fails at once, and the record says why."""
        r = self.fetch(box, url)
        self.assertTrue(r["exit_code"] in (6, 7, 35, 56) or r["stdout"] == "403", r)
        if target is not None:
            found = [d for d in r["denials"] if d["target"] == target]
            self.assertEqual(len(found), 1, r)
            self.assertIn(says, found[0]["explain"])
        return r

    def address(self, box, name):
        return box.sh("getent ahostsv4 %s | head -n 1 | cut -d' ' -f1" % name)["stdout"].strip()


class Rules(Network):
    def test_allow(self):
        box = self.box(net="allow", allow=["example.com", "private.example.com"])
        self.assertEqual((box.get("").json["network"], box.get("").json["layers"]["network"]), ("allow", "tproxy"))
        for scheme in ("http", "https"):
            r = self.assertReached(box, scheme + "://example.com/")
            self.assertGreater(r["net_tx_bytes"], 60, r)
            self.assertGreater(r["net_rx_bytes"], 100, r)
            self.assertEqual(r["layers"]["network"], "tproxy")
        self.lab.ask("forget")
        self.assertRefused(box, "http://evil.com/", "evil.com", "--allow evil.com")
        self.assertEqual(self.lab.ask("queries"), [])
        self.assertRefused(box, "http://93.184.216.34/", "93.184.216.34:80", "--allow 93.184.216.34:80")
        self.assertRefused(box, "https://private.example.com/", "private.example.com:443", "10.0.0.5")
        self.assertEqual(self.lab.ask("requests"), [])
        r = self.fetch(box, "http://127.0.0.1/")
        self.assertEqual((r["exit_code"], r["denials"]), (7, []), r)
        seen = box.get("/network").json
        self.assertEqual((seen["mode"], seen["layer"]), ("allow", "tproxy"))
        self.assertEqual((seen["allow"], seen["deny"]), (["example.com", "private.example.com"], []))
        self.assertGreater(seen["tx_bytes"], 120)
        denied = {(a["name"], a["event"]): a for a in seen["attempts"] if a["verdict"] == "deny"}
        self.assertEqual(denied["evil.com", "lookup"]["remedy"], "--allow evil.com")
        self.assertIn(("private.example.com", "denied"), denied)

    def test_public(self):
        box = self.box(net="public", deny=["evil.com"])
        self.assertReached(box, "https://example.com/")
        self.assertReached(box, "http://93.184.216.34/")
        for url, target in (("http://evil.com/", "evil.com"), ("http://forbidden.example.com/", "forbidden.example.com"),
                            ("http://10.0.0.5/", "10.0.0.5:80"), ("http://169.254.169.254/", "169.254.169.254:80"),
                            ("http://192.0.2.2:8081/", "192.0.2.2:8081")):  # fmt: skip
            with self.subTest(url=url):
                self.assertRefused(box, url, target)

    def test_none(self):
        box = self.box()
        self.assertEqual((box.get("").json["network"], box.get("").json["layers"]["network"]), ("none", "none"))
        self.assertRefused(box, "http://example.com/", "example.com")
        seen = box.get("/network").json
        self.assertEqual((seen["mode"], seen["layer"], seen["attempts"]), ("none", "none", []))

    def test_why_it_failed(self):
        box = self.box(net="allow", allow=["example.com"])
        r = self.fetch(box, "https://example.com:81/")
        self.assertIn("example.com:81: cannot connect: Connection refused", r["notes"])
        self.lab.ask("dns", state="servfail")
        try:
            r = self.fetch(box, "https://example.com/")
        finally:
            self.lab.ask("dns", state="up")
        self.assertNotEqual(r["exit_code"], 0)
        self.assertIn("example.com:443", "".join(r["notes"]), r)
        until(lambda: self.fetch(box, "https://example.com/")["stdout"] == "200", "the name server's return")

    def test_bad_input(self):
        for body, field in (({"net": "open"}, "net"), ({"net": 1}, "net"), ({"net": "allow", "allow": ["a b.com"]}, "allow"),
                            ({"net": "allow", "allow": 5}, "allow"), ({"deny": ["a.com"]}, "deny"),
                            ({"net": "public", "deny": ["0x7f.1"]}, "deny"), ({"net": "none", "allow": ["a.com"]}, "allow"),
                            ({"net": "allow", "net_tx": "x"}, "net_tx"), ({"net": "allow", "net_rx": -1}, "net_rx"),
                            ({"net": "allow", "net_rate": "5"}, "net_rate"), ({"net": "allow", "net_names": 0}, "net_names"),
                            ({"net": "allow", "net_connections": "many"}, "net_connections"),
                            ({"net": "allow", "net_requests": 0}, "net_requests"), ({"net_tx": "1M"}, "net_tx"),
                            ({"net": "allow", "allow": ["localhost"]}, "allow"),
                            ({"net": "allow", "allow": ["udp://a.com:1-9"]}, "allow")):  # fmt: skip
            with self.subTest(body=body):
                self.assertError(self.d.post("/v1/sandboxes", body), 400, "invalid", field)
                self.assertError(self.d.post("/v1/run", {"cmd": ["true"], **body}), 400, "invalid", field)
        self.assertError(self.d.post("/v1/sandboxes", {"net": "allow", "net_log": "x"}), 403, field="net_log")
        box = self.box()
        for body, field in (({}, "net"), ({"net": "x"}, "net"), ({"net": "none", "mode": "none"}, "mode"),
                            ({"mode": "allow", "allow": ["*.*"]}, "allow"), ({"net": "allow", "memory": "1G"}, "memory")):  # fmt: skip
            with self.subTest(body=body):
                self.assertError(box.put("/network", body), 400, "invalid", field)


class Changes(Network):
    def test_from_none_and_back(self):
        box = self.box()
        self.assertRefused(box, "http://example.com/", "example.com")
        self.assertEqual(box.put("/network", {"net": "allow", "allow": ["example.com"]}).json["layer"], "tproxy")
        self.assertReached(box, "http://example.com/")
        self.assertRefused(box, "http://example.org/", "example.org")
        self.assertEqual(box.put("/network", {"mode": "public"}).json["mode"], "public")
        self.assertReached(box, "http://example.org/")
        self.assertReached(box, "http://93.184.216.34/")
        self.assertEqual(box.put("/network", {"net": "none"}).json["mode"], "none")
        self.assertRefused(box, "http://example.com/")
        self.assertEqual((box.get("").json["network"], box.get("").json["layers"]["network"]), ("none", "none"))
        self.assertEqual(box.put("/network", {"net": "allow", "allow": ["10.0.0.5"]}).json["layer"], "tproxy")
        self.assertReached(box, "http://10.0.0.5/")

    def test_narrowing_closes_connections(self):
        box = self.box(net="allow", allow=["example.com", "example.org"])
        body = {"net": "allow", "allow": ["example.org"]}
        ids = [box.start(shell="curl -sS -m 30 -o /tmp/o 'http://%s/slow?s=25'" % host) for host in ("example.com", "example.org")]
        until(lambda: box.get("/network").json["open"] == 2, "two connections")
        self.assertEqual(box.put("/network", body).status, 200)
        self.assertEqual(until(lambda: box.get("/network").json["open"] == 1, "the end of one", 5), True)
        ended = until(lambda: [e for e in (box.get("/execs/%s" % i).json for i in ids) if not e["running"]], "curl")
        self.assertEqual([e["id"] for e in ended], [ids[0]], ended)

    def test_paused_and_stopped(self):
        box = self.box(net="allow", allow=["example.com"])
        self.assertEqual(self.address(box, "example.com"), "198.18.0.1")
        box.post("/pause")
        self.assertEqual(box.put("/network", {"net": "allow", "allow": ["example.org"]}).status, 200)
        box.post("/resume")
        self.assertRefused(box, "http://example.com/", "example.com")
        self.assertReached(box, "http://example.org/")
        self.assertEqual(self.address(box, "example.org"), "198.18.0.2")
        self.assertEqual(box.post("/stop").status, 200)
        self.assertEqual(box.put("/network", {"net": "allow", "allow": ["example.com", "example.org"]}).status, 200)
        self.assertEqual(box.post("/start").status, 200)
        self.assertReached(box, "http://example.com/")
        self.assertEqual([self.address(box, n) for n in ("example.org", "example.com")], ["198.18.0.2", "198.18.0.1"])
        plain = self.box()
        plain.post("/pause")
        self.assertError(plain.put("/network", {"net": "public"}), 409)

    def test_forks_have_their_own(self):
        box = self.box(net="allow", allow=["*.example.com", "example.com"])
        self.assertEqual([self.address(box, n) for n in ("a.example.com", "b.example.com")], ["198.18.0.1", "198.18.0.2"])
        made = box.post("/fork", {"count": 2}).json["sandboxes"]
        forks = [harness.Box.__new__(harness.Box) for _ in made]
        for fork, one in zip(forks, made):
            fork.daemon, fork.token, fork.id = self.d, None, one["sandbox"]["id"]
            fork.path = "/v1/sandboxes/" + fork.id
            self.addCleanup(fork.delete)
            self.assertEqual(fork.get("").json["network"], "allow")
        box.put("/network", {"net": "none"})
        for i, fork in enumerate(forks):
            self.assertEqual(self.address(fork, "c%d.example.com" % i), "198.18.0.3")
            self.assertEqual(self.address(fork, "b.example.com"), "198.18.0.2")
            self.assertReached(fork, "http://example.com/")
            self.assertRefused(fork, "http://evil.com/", "evil.com")
        self.assertRefused(box, "http://example.com/")
        kept = box.post("/snapshot", {}).json
        self.addCleanup(lambda: self.d.delete("/v1/snapshots/" + kept["id"]))
        late = self.box(snapshot=kept["id"], net="public")
        self.assertEqual(self.address(late, "b.example.com"), "198.18.0.2")


class Ask(Network):
    FETCH = "curl -sS -m 50 -o /dev/null -w '%%{http_code}' %s"

    def questions(self, box, count=1):
        return until(lambda: [q for q in [box.get("/network").json["questions"]] if len(q) == count], "the question")[0]

    def answer(self, box, question, allow, token=None):
        return self.d.post(box.path + "/network/answer", {"question": question, "allow": allow}, token=token)

    def ended(self, box, eid):
        until(lambda: not box.get("/execs/%d" % eid).json["running"], "curl")
        return box.get("/files?path=code").body.decode()

    def ask(self, box, url):
        return box.start(shell=self.FETCH % url + " > code")

    def test_an_admin_answers(self):
        owner, admin = self.d.token("asks", "--net", "allow"), self.d.token("answers", "--scopes", "admin")
        box = self.box(owner, net="ask", allow=["example.org"], deny=["evil.com"])
        seen = box.get("/network").json
        self.assertEqual((seen["mode"], seen["requested"], seen["questions"]), ("allow", "ask", []))
        self.assertReached(box, "http://example.org/")
        for allow, token, code in ((True, admin, "200"), (False, None, "403"), (True, admin, "200")):
            with self.subTest(allow=allow, token=token), \
                    self.d.stream("GET", "/v1/events?from=1&sandbox=" + box.id, token=admin) as s:  # fmt: skip
                eid = self.ask(box, "http://example.com/")
                q, = self.questions(box)
                told = next(e for n, e in s.events() if n == "network.question" and e["question"] == q["question"])
                self.assertEqual((told["target"], told["port"], told["remedy"]), ("example.com", 80, "--allow example.com:80"))
                self.assertError(self.answer(box, q["question"], True, owner), 403, "denied")
                self.assertEqual(self.questions(box), [q])
                self.assertEqual(self.answer(box, q["question"], allow, token).status, 204)
                self.assertEqual(self.ended(box, eid), code)
                self.assertError(self.answer(box, q["question"], True), 404)
        audit = self.d.get("/v1/audit?limit=200&target=" + box.path).json["records"]
        said = [(r["who"].split()[-1], r["why"]) for r in audit if r["verdict"] == "allow"]
        self.assertEqual(said[0:5:2], [("answers", "question 1: allow"), ("operator", "question 2: refuse"),
                                                ("answers", "question 3: allow")])  # fmt: skip
        # What a rule denies is no question, nor what the operator denies.
        for host in ("evil.com", "forbidden.example.com"):
            self.assertRefused(box, "http://%s/" % host)
        # Nor does an answer open what is not public.
        eid = self.ask(box, "http://private.example.com/")
        q, = self.questions(box)
        self.assertEqual(self.answer(box, q["question"], True).status, 204)
        self.assertNotEqual(self.ended(box, eid), "200")
        self.assertEqual(self.questions(box, 0), [])

    def test_changes(self):
        box = self.box(net="allow", allow=["example.org"])
        self.assertRefused(box, "http://example.com/")
        self.assertEqual(box.put("/network", {"net": "ask"}).json["requested"], "ask")
        eid = box.start(shell="curl -sS -m 50 -o /dev/null 'http://example.com/slow?s=40'; echo ended > code")
        q, = self.questions(box)
        self.assertEqual(self.answer(box, q["question"], True).status, 204)
        until(lambda: box.get("/network").json["open"] == 1, "the connection")
        # An answer lasts no longer than the mode, and no longer than no rule denies it.
        self.assertEqual(box.put("/network", {"net": "ask", "deny": ["example.com"]}).status, 200)
        self.assertEqual(self.ended(box, eid), "ended\n")
        waits = self.ask(box, "http://example.org/")
        q, = self.questions(box)
        self.assertEqual(box.put("/network", {"net": "allow", "allow": ["example.com"]}).json["requested"], "allow")
        self.assertEqual(self.ended(box, waits), "000")
        self.assertReached(box, "http://example.com/")
        self.assertRefused(box, "http://example.org/", "example.org")
        none = self.d.token("asks-none")
        self.assertError(self.d.post("/v1/sandboxes", {"net": "ask"}, token=none), 403, "denied", "net")

    def test_the_token_decides_first(self):
        box = self.box(self.d.token("asks-few", "--net", "allow", "--net-allow", "*.example.com"), net="ask")
        self.assertRefused(box, "http://example.org/")
        self.assertEqual(box.get("/network").json["questions"], [])
        eid = self.ask(box, "http://www.example.com/")
        q, = self.questions(box)
        self.assertEqual(self.answer(box, q["question"], True).status, 204)
        self.assertEqual(self.ended(box, eid), "200")

    def test_many(self):
        """A program cannot flood those who answer."""
        box = self.box(net="ask")
        box.start(shell="for i in $(seq 40); do for k in 1 2; do curl -s -m 50 http://n$i.example.com/ & done; done; wait")
        self.assertEqual(len({q["target"] for q in self.questions(box, 32)}), 32)


if __name__ == "__main__":
    unittest.main()

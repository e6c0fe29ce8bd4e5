"""Sandboxes use secrets: the server gets the value, the program never does."""

import glob
import json
import os
import re
import signal
import unittest

import cl
import harness
import netlab

VALUE = "sk-VALUE-abcdefgh-0123456789"
OTHER = "sk-OTHER-ijklmnop-9876543210"
FROM_FILE = "sk-FILE-qrstuvwx-5555555555"
AUTH = '-H "Authorization: Bearer $KEY"'

_daemon = None
_lab = None


def setUpModule():
    global _daemon, _lab
    _lab = netlab.shared()
    _daemon = harness.Daemon(lab=_lab)
    _daemon.config = settings(_daemon)
    _daemon.start()
    harness.until(lambda: _daemon.put("/v1/secrets/KEY", {"value": VALUE, "hosts": ["example.com"]}).status == 200,
                  "the signer")


def tearDownModule():
    _daemon.stop()
    _daemon.remove()


def settings(daemon):
    def file(name, text):
        path = os.path.join(daemon.dir, name)
        with open(path, "w", encoding="ascii") as out:
            out.write(text + "\n")
        os.chmod(path, 0o400)
        return path

    return (
        "pool_size: 0\nkeys: {master: {file: %s}}\n"
        "secrets:\n  CONFIGURED: {from: {file: %s}, hosts: [example.com], header: 'X-Api-Key: {}'}\n"
        "  LOST: {from: {file: /nonexistent/value}, hosts: [example.com]}\n"
        % (file("master", "ab" * 32), file("value", FROM_FILE))
    )


def role(name):
    """The pid of a role of this daemon, or None."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if parent == _daemon.process.pid and (name.encode() in words or words[0].endswith(b"-" + name.encode())):
            return int(pid)
    return None


class Case(harness.Case):
    @property
    def d(self):
        return _daemon

    def setUp(self):
        _lab.ask("forget")

    def store(self, name, **more):
        made = self.d.put("/v1/secrets/" + name, {"value": VALUE, "hosts": ["example.com"], **more})
        self.assertEqual(made.status, 200, made)
        self.addCleanup(self.d.delete, "/v1/secrets/" + name)

    def curl(self, box, args, url="https://example.com/"):
        return box.sh(f"curl -sS -m 20 -H 'X-Keep: 1' {args} '{url}'")

    def placeholder(self, box, name="KEY"):
        text = box.sh("printenv " + name)["stdout"].strip()
        self.assertRegex(text, "^[A-Za-z0-9_-]{40,}$")
        return text

    def seen(self):
        """The requests that reached servers, as one text."""
        return json.dumps(_lab.ask("requests"))

    def auth(self, box, args=AUTH, url="https://example.com/"):
        """The header that the server gets."""
        _lab.ask("forget")
        r = self.curl(box, args, url)
        rows = _lab.ask("requests")
        self.assertEqual(len(rows), 1, (rows, r))
        self.assertNotIn(VALUE, json.dumps(r))
        self.assertNotIn(OTHER, json.dumps(r))
        return {k.lower(): v for k, v in rows[0]["headers"].items()}.get("authorization")

    def records(self, box):
        return box.get("/network").json["attempts"]


class Use(Case):
    def test_value_goes_in(self):
        box = self.box(secrets=["KEY", "CONFIGURED"])
        mark = self.placeholder(box)
        r = self.curl(box, AUTH + ' -H "X-Api-Key: $CONFIGURED"')
        self.assertEqual(r["exit_code"], 0, r)
        headers = _lab.ask("requests")[0]["headers"]
        self.assertEqual((headers["Authorization"], headers["X-Api-Key"]), ("Bearer " + VALUE, FROM_FILE))
        # The server sent both back: they became placeholders again.
        self.assertIn("Bearer " + mark, r["stdout"])
        for value in (VALUE, FROM_FILE):
            self.assertNotIn(value, json.dumps(r))
        made = box.get("").json
        self.assertEqual((made["secrets"], made["network"]), (["KEY", "CONFIGURED"], "allow"))
        uses = harness.until(lambda: [a for a in self.records(box) if a["secret"]], "a record")
        self.assertEqual({(a["secret"], a["name"], a["verdict"], a["inspected"]) for a in uses},
                         {("KEY", "example.com", "allow", True), ("CONFIGURED", "example.com", "allow", True)})

        def audited():
            rows = self.d.get("/v1/audit?limit=1000&target=" + box.id).json["records"]
            return {(r["why"], r["target"]) for r in rows if r["what"] == "secret.use"}
        want = {(name, box.id + " example.com:443") for name in ("KEY", "CONFIGURED")}
        harness.until(lambda: audited() == want, "audit entries")

    def test_only_there(self):
        """Whatever a program does with its placeholder, no value goes anywhere else, and none comes back."""
        self.store("BASIC", header="basic", hosts=["allowed.com"])
        self.store("QUERY", header="query:key", hosts=["v4.example.com"])
        self.store("PLAIN", hosts=["example.com:80"])
        box = self.box(secrets=["KEY", "BASIC", "QUERY", "PLAIN"], allow=["*.example.com", "example.com", "example.org", "allowed.com"])
        attacks = [
            ("", "https://example.com/?q=MARK"), ("", "https://example.com/MARK/x"), ("-d MARK", "https://example.com/echo"),
            ('-H "X-Other: MARK"', "https://example.com/"), ('-H "Authorization: MARK"', "https://example.com/"),
            ('-H "Authorization: Bearer MARK x"', "https://example.com/"), ('-H "Cookie: MARK"', "https://example.com/"),
            ('-u "x:MARK"', "https://example.com/"), ('-H "Authorization: Bearer MARK"', "http://example.com/"),
            ('-H "Authorization: Bearer MARK"', "https://example.com:8443/"),
            ('-H "Authorization: Bearer MARK"', "https://example.org/"),
            ('-H "Authorization: Bearer MARK"', "https://v6.example.com/"),
            ('-H "Authorization: Bearer MARK" -H "Host: example.com"', "https://example.org/"),
            ('-H "Authorization: Bearer MARK" -H "Host: example.org"', "https://example.com/"),
            ('-H "Authorization: Bearer MARK" --resolve example.com:443:93.184.216.34', "https://example.com/"),
            ('-H "Authorization: Bearer MARK" --connect-to example.com:443:example.org:443', "https://example.com/"),
            ('-k --http1.1 -H "Authorization: Bearer MARK" -H "Transfer-Encoding: chunked" -d MARK', "https://example.com/echo"),
        ]
        mark = self.placeholder(box)
        plain = self.placeholder(box, "PLAIN")
        attacks.insert(0, (f'-H "Authorization: Bearer {plain}"', "http://example.com/"))
        line = "; ".join(f"curl -sS -m 20 -H 'X-Keep: 1' {args} '{url}'; echo" for args, url in attacks).replace("MARK", mark)
        r = box.sh(line)
        self.assertNotIn(VALUE, json.dumps(r))
        rows = _lab.ask("requests")
        self.assertGreaterEqual(len(rows), 11, r)
        for row in rows:
            if VALUE in json.dumps(row):
                # The one place where it belongs; a body and a path are not it.
                self.assertEqual((row["scheme"], row["host"], row["sni"], row["port"]), ("https", "example.com", "example.com", 443))
                self.assertEqual(row["headers"]["Authorization"], "Bearer " + VALUE)
                self.assertEqual(json.dumps(row).count(VALUE), 1)
        self.assertEqual(sum(VALUE in json.dumps(row) for row in rows), 1, rows)  # the last attack's header
        why = [a["why"] or "" for a in self.records(box)]
        for place in ("the URL", "header X-Other", "the body"):
            self.assertTrue(any("placeholder of secret KEY is in " + place in w or
                                "placeholder of secret (one of them) is in " + place in w for w in why), (place, why))

    def test_other_places_of_a_header(self):
        self.store("BASIC", header="basic")
        self.store("QUERY", header="query:key")
        box = self.box(secrets=["BASIC", "QUERY"])
        r = self.curl(box, '-u "x-access-token:$BASIC"')
        self.assertEqual(r["exit_code"], 0, r)
        r2 = box.sh('curl -sS -m 20 "https://example.com/?a=1&key=$QUERY&b=2"')
        rows = _lab.ask("requests")
        self.assertEqual(rows[0]["headers"]["Authorization"],
                         "Basic " + harness.b64(f"x-access-token:{VALUE}".encode()))
        self.assertEqual(rows[1]["path"], f"/?a=1&key={VALUE}&b=2")
        self.assertNotIn(VALUE, json.dumps([r, r2]))
        self.assertNotIn(harness.b64(f"x-access-token:{VALUE}".encode()), json.dumps(r))

    def test_answers(self):
        """The server hands the value back: compressed, split, in a redirect, in a WebSocket's headers, in HTTP/2."""
        box = self.box(secrets=["KEY"], allow=["example.org"])
        out = box.sh(
            f"for i in gzip drip headers; do curl -sS -m 20 --compressed {AUTH} https://example.com/$i; echo; done; "
            f"curl -sS -m 20 -r 100-300 {AUTH} https://example.com/headers; "
            f"curl -sSL --location-trusted -H 'X-Keep: 1' -m 20 {AUTH} 'https://example.com/redirect?to=https://example.org/'"
        )
        self.assertEqual(out["exit_code"], 0, out)
        self.assertNotIn(VALUE, json.dumps(out))
        self.assertGreaterEqual(out["stdout"].count(self.placeholder(box)), 3, out)
        rows = _lab.ask("requests")
        self.assertEqual((rows[-1]["host"], rows[-1]["headers"]["Authorization"]),
                         ("example.org", "Bearer " + self.placeholder(box)))

    def test_of_another_sandbox(self):
        one, two = self.box(secrets=["KEY"]), self.box(secrets=["KEY"])
        theirs = self.placeholder(two)
        self.assertNotEqual(self.placeholder(one), theirs)
        self.assertEqual(self.auth(one, f'-H "Authorization: Bearer {theirs}"'), "Bearer " + theirs)
        none = self.box(net="allow", allow=["example.com"])
        self.assertEqual(self.auth(none, f'-H "Authorization: Bearer {theirs}"'), "Bearer " + theirs)

    def test_of_tokens(self):
        """Each gets its own secret of that name."""
        self.store("MINE")
        key = self.d.token("owner", "--net", "public")
        made = self.d.put("/v1/secrets/MINE", {"value": OTHER, "hosts": ["example.com"]}, token=key)
        self.assertEqual(made.status, 200, made)
        for token, value in ((key, OTHER), (None, VALUE)):
            self.assertEqual(self.auth(self.box(token, secrets=["MINE"]), '-H "Authorization: Bearer $MINE"'),
                             "Bearer " + value)

    def test_run(self):
        r = self.d.post("/v1/run", {"shell": f"curl -sS -H 'X-Keep: 1' {AUTH} https://example.com/", "secrets": ["KEY"]})
        self.assertEqual(r.json["exit_code"], 0, r)
        self.assertNotIn(VALUE.encode(), r.body)
        self.assertEqual(_lab.ask("requests")[0]["headers"]["Authorization"], "Bearer " + VALUE)

    def test_command_line(self):
        made = cl.command(*_lab.under, cl.CLOCHE, "create", "--secret", "KEY", "--secret", "CONFIGURED",
                          env={**self.d.env(), "CLOCHE_URL": "unix:" + self.d.sock})
        self.assertEqual(made.code, 0, made)
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + made.out.strip())
        self.assertEqual(self.d.get("/v1/sandboxes/" + made.out.strip()).json["secrets"], ["KEY", "CONFIGURED"])

    def test_refusals(self):
        key = self.d.token("stranger", "--net", "public")
        offline = self.d.token("offline")
        for body, token, status in (
            ({"secrets": ["NONE"]}, None, 404), ({"secrets": ["KEY"]}, key, 404), ({"secrets": ["KEY"]}, offline, 403),
            ({"secrets": ["KEY"], "net": "none"}, None, 400), ({"secrets": ["a-b"]}, None, 400),
            ({"secrets": ["KEY", "KEY"]}, None, 400), ({"secrets": ["K%d" % i for i in range(17)]}, None, 429),
            ({"secrets": [{"name": "KEY"}]}, None, 400), ({"secrets": "KEY"}, None, 400), ({"secret": ["KEY"]}, None, 403),
        ):
            refused = self.d.post("/v1/sandboxes", body, token=token)
            self.assertEqual(refused.status, status, (body, refused))
        self.store("HOMELESS", hosts=[])
        self.assertError(self.d.post("/v1/sandboxes", {"secrets": ["HOMELESS"]}), 400, field="secrets")
        # The operator's own are for the tokens that the settings name.
        self.assertEqual(self.d.post("/v1/sandboxes", {"secrets": ["CONFIGURED"]}, token=key).status, 404)


class Rules(Case):
    """E2B's network.rules: headers that are set in requests, with secrets in them."""

    def test_headers(self):
        headers = {"X-API-KEY": self.d.token("e2b", "--e2b")}
        made = self.d.post("/secrets", {"name": "Rule-Key", "value": OTHER}, headers=headers)
        self.assertEqual(made.status, 201, made)
        rules = {"example.com": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.secrets.rule-key}",
                                                            "X-Plain": "text"}}}]}
        network = {"allowOut": ["example.com", "example.org"], "denyOut": ["0.0.0.0/0"], "rules": rules}
        made = self.d.post("/sandboxes", {"templateID": "base", "timeout": 60, "network": network}, headers=headers)
        self.assertEqual(made.status, 201, made)
        box = harness.Box.__new__(harness.Box)
        box.daemon, box.token, box.id = self.d, None, made.json["sandboxID"]
        box.path = "/v1/sandboxes/" + box.id
        self.addCleanup(box.delete)
        r = box.sh("for h in https://example.com/ https://example.org/ http://example.com/; do "
                   "curl -sS -m 20 -H 'X-Keep: 1' -H 'Authorization: own' $h; done; env")
        self.assertNotIn(OTHER, json.dumps(r))
        seen = [{k.lower(): v for k, v in row["headers"].items()} for row in _lab.ask("requests")]
        self.assertEqual([(h["authorization"], h.get("x-plain")) for h in seen],
                         [("Bearer " + OTHER, "text"), ("own", None), ("own", None)])
        self.assertEqual(box.get("").json["secrets"], [])
        # What is not named any more is not set any more; an unknown secret changes nothing.
        changed = self.d.put(f"/sandboxes/{box.id}/network", {**network, "rules": {"example.com": [
            {"transform": {"headers": {"A": "${e2b.secrets.none}"}}}]}}, headers=headers)
        self.assertEqual(changed.status, 404, changed)
        self.assertEqual(self.auth(box, ""), "Bearer " + OTHER)
        del network["rules"]
        self.assertEqual(self.d.put(f"/sandboxes/{box.id}/network", network, headers=headers).status, 204)
        self.assertEqual(self.auth(box, ""), None)
        bad = {**network, "rules": {"example.com": [{"transform": {"headers": {"Host": "x"}}}]}}
        refused = self.d.post("/sandboxes", {"templateID": "base", "network": bad}, headers=headers)
        self.assertEqual(refused.status, 501, refused)


class Life(Case):
    def test_rotation(self):
        self.store("TURN")
        box = self.box(secrets=["TURN", "KEY"])
        mark = self.placeholder(box, "TURN")
        line = '-H "Authorization: Bearer $TURN"'
        self.assertEqual(self.auth(box, line), "Bearer " + VALUE)
        self.d.put("/v1/secrets/TURN", {"value": OTHER})
        harness.until(lambda: self.auth(box, line) == "Bearer " + OTHER, "the new value")
        self.assertEqual(self.placeholder(box, "TURN"), mark)
        self.d.delete("/v1/secrets/TURN")
        harness.until(lambda: self.auth(box, line) == "Bearer " + mark, "no value")
        self.assertEqual(self.auth(box), "Bearer " + VALUE)

    def test_rotation_of_a_file(self):
        box = self.box(secrets=["CONFIGURED"])

        def got():
            _lab.ask("forget")
            self.curl(box, '-H "X-Api-Key: $CONFIGURED"')
            return _lab.ask("requests")[0]["headers"]["X-Api-Key"]
        self.assertEqual(got(), FROM_FILE)
        path = os.path.join(self.d.dir, "value")
        for text in (OTHER, FROM_FILE):
            os.chmod(path, 0o600)
            with open(path, "w", encoding="ascii") as out:
                out.write(text)
            self.d.process.send_signal(signal.SIGHUP)
            harness.until(lambda: got() == text, "the value of the file")

    def test_uses(self):
        """The bound holds over a restart of egress and of the daemon."""
        self.store("FEW", uses=3)
        box = self.box(secrets=["FEW"])
        line = '-H "Authorization: Bearer $FEW"'
        self.assertEqual(self.auth(box, line), "Bearer " + VALUE)
        harness.until(lambda: any(a["secret"] for a in self.records(box)), "the record")
        self.assertEqual(box.put("/network", {"net": "allow", "allow": ["example.org"]}).status, 200)
        old = role("egress")
        os.kill(old, signal.SIGKILL)
        harness.until(lambda: role("egress") not in (None, old), "another egress")
        harness.until(lambda: self.curl(box, line)["exit_code"] == 0, "the network")
        harness.until(lambda: sum(a["count"] for a in self.records(box) if a["secret"]) == 2, "the record")
        self.d.stop(destroy=False)
        self.d.start()
        harness.until(lambda: self.curl(box, line)["exit_code"] == 0, "the network")
        r = self.curl(box, line + " -w '%{http_code}'")
        self.assertIn("403", r["stdout"])
        self.assertIn("secret FEW was used 3 times", r["stdout"])
        self.assertEqual(self.seen().count(VALUE), 3)

    def test_restarts(self):
        """Egress makes another CA, which programs trust from then on; the placeholder stays."""
        box = self.box(secrets=["KEY"])
        before = box.sh("cat /run/cloche/ca.crt; sha256sum </etc/ssl/certs/ca-certificates.crt")["stdout"]
        mark = self.placeholder(box)
        old = role("egress")
        os.kill(old, signal.SIGKILL)
        harness.until(lambda: role("egress") not in (None, old), "another egress")
        harness.until(lambda: self.curl(box, AUTH)["exit_code"] == 0, "the network")
        self.assertEqual(self.auth(box), "Bearer " + VALUE)
        after = box.sh("cat /run/cloche/ca.crt; sha256sum </etc/ssl/certs/ca-certificates.crt")["stdout"]
        self.assertNotEqual(before, after)
        self.d.process.kill()
        self.d.process.wait()
        self.d.start()
        harness.until(lambda: self.curl(box, AUTH)["exit_code"] == 0, "the network")
        self.assertEqual(self.auth(box), "Bearer " + VALUE)
        self.assertEqual(self.placeholder(box), mark)
        self.assertEqual(box.sh("grep -c BEGIN /run/cloche/ca-certificates.crt")["stdout"],
                         box.sh("echo $(($(grep -c BEGIN /run/cloche/ca-certificates.crt)))")["stdout"])

    def test_signer_killed(self):
        box = self.box(secrets=["KEY"])
        old = role("signer")
        os.kill(old, signal.SIGKILL)
        self.assertEqual(self.auth(box), "Bearer " + VALUE)
        harness.until(lambda: role("signer") not in (None, old), "another signer")
        harness.until(lambda: self.d.put("/v1/secrets/first", {"value": "x"}).status == 200, "the signer")
        self.assertEqual(self.auth(self.box(secrets=["KEY"])), "Bearer " + VALUE)

    def test_live(self):
        """Secrets and inspection come to a sandbox that runs, and go again."""
        box = self.box(net="allow", allow=["example.com"])
        self.assertEqual(box.sh("ls /run/cloche | grep -v agent.sock; env | grep -c /run/cloche")["stdout"].split(), ["0"])
        rules = {"net": "allow", "allow": ["example.com", "example.org GET"]}
        self.assertEqual(box.put("/network", rules).status, 200)
        r = box.sh("for i in '' '-X POST'; do curl -sS -o /dev/null -w '%{http_code} ' $i https://example.org/; done")
        self.assertEqual(r["stdout"], "200 403 ", r)
        changed = box.put("/network", {**rules, "secrets": ["KEY"]})
        self.assertEqual((changed.status, changed.json["secrets"]), (200, ["KEY"]), changed)
        mark = self.placeholder(box)
        self.assertEqual(self.auth(box), "Bearer " + VALUE)
        # Not named: as before. An unknown one changes nothing.
        self.assertEqual(box.put("/network", rules).json["secrets"], ["KEY"])
        self.assertEqual(box.put("/network", {**rules, "secrets": ["NONE"]}).status, 404)
        self.assertEqual(self.auth(box), "Bearer " + VALUE)
        self.assertEqual(box.put("/network", {**rules, "secrets": ["KEY", "CONFIGURED"]}).status, 200)
        self.assertEqual(self.placeholder(box), mark)
        # A paused one can be narrowed, but learns of no new placeholder.
        self.assertEqual(box.post("/pause").status, 200)
        self.assertEqual(box.put("/network", {**rules, "allow": ["example.com"]}).status, 200)
        self.assertEqual(box.put("/network", {**rules, "secrets": []}).status, 409)
        self.assertEqual(box.post("/resume").status, 200)
        self.assertEqual(box.put("/network", {**rules, "secrets": []}).json["secrets"], [])
        self.assertEqual(self.auth(box, f'-H "Authorization: Bearer {mark}"'), "Bearer " + mark)
        self.assertEqual(box.sh("printenv KEY")["exit_code"], 1)

    def test_refused_change(self):
        """The signer has no value for one of them: nothing changes."""
        self.assertError(self.d.post("/v1/sandboxes", {"secrets": ["LOST"]}), 500)
        box = self.box(secrets=["KEY"])
        refused = box.put("/network", {"net": "allow", "secrets": ["KEY", "LOST"]})
        self.assertError(refused, 500)
        self.assertIn("LOST", refused.error["message"])
        self.assertEqual(box.get("/network").json["secrets"], ["KEY"])
        old = role("egress")
        os.kill(old, signal.SIGKILL)
        harness.until(lambda: role("egress") not in (None, old), "another egress")
        harness.until(lambda: self.curl(box, AUTH)["exit_code"] == 0, "the network")
        self.assertEqual(self.auth(box), "Bearer " + VALUE)

    def test_forks_and_snapshots(self):
        box = self.box(secrets=["KEY"])
        mark = self.placeholder(box)
        self.curl(box, AUTH + " -o /home/user/answer")
        forked = box.post("/fork", {"count": 1}).json["sandboxes"][0]["sandbox"]
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + forked["id"])
        fork = harness.Box.__new__(harness.Box)
        fork.daemon, fork.token, fork.id, fork.path = self.d, None, forked["id"], "/v1/sandboxes/" + forked["id"]
        self.assertNotEqual(self.placeholder(fork), mark)
        self.assertEqual(self.auth(fork), "Bearer " + VALUE)
        self.assertEqual(self.auth(fork, f'-H "Authorization: Bearer {mark}"'), "Bearer " + mark)
        snapshot = box.post("/snapshot", {"name": "with-secrets"}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + snapshot["id"])
        tar = self.d.get(f"/v1/snapshots/{snapshot['id']}/tar").body
        self.assertIn(b"home/user/answer", tar)
        self.assertNotIn(VALUE.encode(), tar)
        again = self.box(snapshot=snapshot["id"], secrets=["KEY"])
        self.assertNotIn(self.placeholder(again), (mark, self.placeholder(fork)))
        self.assertEqual(self.auth(again), "Bearer " + VALUE)
        # Stopped and started, it is the same sandbox.
        for step in ("stop", "start"):
            self.assertEqual(box.post("/" + step).status, 200)
        self.assertEqual(self.placeholder(box), mark)
        self.assertEqual(self.auth(box), "Bearer " + VALUE)


class Nowhere(Case):
    def memory(self, pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
            for line in maps:
                m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
                if m and "[v" not in line:
                    mem.seek(int(m[1], 16))
                    try:
                        yield mem.read(int(m[2], 16) - int(m[1], 16))
                    except OSError:
                        pass

    def test_files_and_logs(self):
        box = self.box(secrets=["KEY", "CONFIGURED"])
        self.curl(box, AUTH + ' -H "X-Api-Key: $CONFIGURED"')
        inside = box.sh("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /run/cloche/ca.crt | tr '\\0' '\\n'; set; "
                        "grep -rl sk-VALUE / --include='*' -s --exclude-dir=sys --exclude-dir=proc --exclude-dir=usr "
                        "--exclude-dir=lib")
        self.assertIn("KEY=", inside["stdout"])
        answers = [inside] + [self.d.get(p).json for p in (
            "/v1/secrets", "/v1/audit?limit=1000", box.path, box.path + "/network", box.path + "/logs", "/v1/stats")]
        for value in (VALUE, FROM_FILE):
            self.assertNotIn(value, json.dumps(answers))
            self.assertNotIn(value, self.d.read_log())
            for path in glob.glob(self.d.dir + "/**", recursive=True):
                if os.path.isfile(path) and path != os.path.join(self.d.dir, "value"):
                    with open(path, "rb") as f:
                        self.assertNotIn(value.encode(), f.read(), path)

    @unittest.skipUnless(harness.ROOT, "only root sees the memory of roles")
    @unittest.skipIf(cl.is_sanitized(), "a sanitizer keeps what was freed")
    def test_processes(self):
        box = self.box(secrets=["KEY", "CONFIGURED"])
        self.curl(box, AUTH + ' -H "X-Api-Key: $CONFIGURED"')
        holders = {role("egress"): True, role("signer"): True}
        self.assertNotIn(None, holders)
        checked = 0
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if pid in holders or self.d.process.pid not in (pid, parent):
                continue
            found = any(FROM_FILE.encode() in part for part in self.memory(pid))
            with open(f"/proc/{pid}/environ", "rb") as f:
                found |= FROM_FILE.encode() in f.read()
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                self.assertFalse(found, f.read())
            checked += 1
        self.assertGreater(checked, 3)
        # The search finds what is there.
        self.assertTrue(any(FROM_FILE.encode() in part for part in self.memory(role("signer"))))


class Trust(Case):
    def test_files_stay_as_they_are(self):
        box = self.box(secrets=["KEY"])
        r = box.sh("cd /run/cloche; cp ca.crt /tmp/x; for f in ca.crt ca-certificates.crt /etc/ssl/certs/ca-certificates.crt; "
                   "do echo x 2>/dev/null >$f; chmod 666 $f 2>/dev/null; rm -f $f 2>/dev/null; mv /tmp/x $f 2>/dev/null; done; "
                   "mv /run/cloche /run/other 2>/dev/null; umount /run/cloche 2>/dev/null; mount -o remount,rw /run/cloche 2>/dev/null; "
                   "cmp /tmp/x ca.crt && tail -c $(wc -c </tmp/x) ca-certificates.crt | cmp - ca.crt && echo same")
        self.assertEqual(r["stdout"], "same\n", r)
        shown = box.sh("grep -E ' (/run/cloche|/etc/ssl/certs/ca-certificates.crt) ' /proc/self/mountinfo")["stdout"]
        self.assertEqual([line.split()[5].split(",")[0] for line in shown.splitlines()], ["ro", "ro"], shown)
        self.assertEqual(self.auth(box), "Bearer " + VALUE)

    def test_programs(self):
        """Programs that find the CA in different ways."""
        box = self.box(secrets=["KEY"])
        programs = {
            "bundle": "env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sS https://example.com/",
            "curl": "curl -sS https://example.com/",
            "wget": "wget -qO- https://example.com/",
            "python3": "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://example.com/\").read())'",
            "node": "node -e 'fetch(\"https://example.com/\").then((r) => r.text()).then(console.log)'",
        }
        for name, line in programs.items():
            if name != "bundle" and box.sh("command -v " + name)["exit_code"]:
                continue
            r = box.sh(line)
            self.assertEqual(r["exit_code"], 0, (name, r))


if __name__ == "__main__":
    unittest.main()

"""The decision log: what is in it, that it is whole, and what shows when it is not."""
import http.client
import json
import os
import signal
import subprocess
import threading

import served


class Audit(served.Case):
    def records(self):
        return [json.loads(line) for line in
                self.cloche("audit", "tail", "--json", "-n", "100000", ok=0).out.splitlines()]

    def file(self):
        return os.path.join(self.daemon.state, "audit", "audit.log")

    def lines(self):
        with open(self.file(), encoding="utf-8") as log:
            return log.read().splitlines(keepends=True)

    def copy(self, lines):
        """A log of these lines."""
        path = os.path.join(self.daemon.dir, "changed.log")
        with open(path, "w", encoding="utf-8") as out:
            out.write("".join(lines))
        return path

    def fill(self):
        box = self.create()
        for i in range(3):
            self.cloche("exec", box, "echo", str(i), ok=0)
        return box

    def test_decisions_are_there_in_order(self):
        box = self.fill()
        mine = [r for r in self.records() if box in r["target"]]
        self.assertIn("create", mine[0]["what"])
        self.assertEqual([r["what"] for r in mine[1:]], ["exec"] * 3)
        self.assertTrue(all(r["verdict"] == "allow" and r["who"] for r in mine))
        self.cloche("rm", box, ok=0)
        self.assertIn("destroy", [r for r in self.records() if box in r["target"]][-1]["what"])

    def act(self, key, name, box):
        """Commands and changes, all of them with the caller's name in them."""
        def ask(method, path, body):
            headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
            connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
            connection.request(method, path, json.dumps(body), headers)
            status = connection.getresponse().status
            connection.close()
            return status

        for _ in range(40):
            self.assertEqual(ask("POST", "/v1/sandboxes/%s/exec" % box, {"cmd": ["true", name]}), 200)
            self.assertEqual(ask("PATCH", "/v1/sandboxes/" + box, {"metadata": {"by": name}}), 200)

    def test_the_right_caller_is_named(self):
        """Callers that act on one sandbox at the same time."""
        key, env = self.token("owner")
        keys = {"owner": key, "admin-1": self.token("admin-1", "--scopes", "admin")[0],
                "admin-2": self.token("admin-2", "--scopes", "admin")[0]}
        box = self.cloche("create", env=env, ok=0).out.strip()
        threads = [threading.Thread(target=self.act, args=(k, n, box)) for n, k in keys.items()]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        mine = [r for r in self.records() if r["target"] == box]
        wrong = [r for r in mine if r["what"] == "exec" and r["why"].split()[1] != r["who"].split()[1]]
        self.assertEqual(wrong, [])
        for name in keys:
            for what in ("exec", "sandbox.change"):
                self.assertEqual(sum(r["what"] == what and r["who"].split()[1:] == [name] for r in mine), 40, (name, what))
        self.cloche("rm", box, env=env, ok=0)

    def e2b(self, path, body, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        self.assertIn(answer.status, (200, 201), text)
        return text

    def test_a_start_by_e2b_is_there_once(self):
        key, _ = self.token("e2b", "--e2b")
        made = json.loads(self.e2b("/sandboxes", json.dumps({"templateID": "base"}), **{
            "X-API-Key": key, "Content-Type": "application/json"}))
        message = json.dumps({"process": {"cmd": "echo", "args": ["seen once"]}}).encode()
        said = self.e2b("/process.Process/Start", bytes([0]) + len(message).to_bytes(4, "big") + message, **{
            "Content-Type": "application/connect+json", "X-Access-Token": made["envdAccessToken"],
            "E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983"})
        self.assertIn(b'"exitCode":0', said)
        mine = [r for r in self.records() if made["sandboxID"] in r["target"]]
        self.assertEqual([r["what"] for r in mine[1:]], ["exec"], mine)
        self.assertIn("seen once", mine[1]["why"])
        self.assertIn("127.0.0.1", mine[1]["from"])
        self.cloche("rm", made["sandboxID"], ok=0)

    def test_refusals_are_there(self):
        self.cloche("ps", env={**self.over_tcp(), "CLOCHE_TOKEN": "cl_zzzzzzzzzz_" + "1" * 40})
        self.assertTrue(served.wait_for(
            lambda: any(r["verdict"] == "deny" for r in self.records())))
        self.assertNotIn("1" * 40, json.dumps(self.records()))

    def test_over_rest(self):
        box = self.fill()
        answer = self.daemon.get(f"/v1/audit?target={box}&limit=2")
        self.assertEqual(answer.status, 200, answer)
        entries = next(iter(answer.json.values()))
        self.assertEqual(len(entries), 2)
        self.assertTrue(all(e["target"].startswith(box) for e in entries))

    def test_pages_over_rest(self):
        self.fill()
        seen, after = [], 0
        while after is not None:
            page = self.daemon.get("/v1/audit?limit=2&after=%d" % after)
            self.assertEqual(page.headers.get("Cloche-Next"), page.json["next"] and str(page.json["next"]))
            seen += [r["seq"] for r in page.json["records"]]
            after = page.json["next"]
        self.assertEqual(seen[:4], [1, 2, 3, 4])
        self.assertEqual(seen, list(range(1, len(seen) + 1)))
        self.assertEqual(self.daemon.get("/v1/audit?limit=1").json["records"][0]["seq"], len(seen))

    def test_foreign_strings_forge_nothing(self):
        box = self.create()
        self.cloche("exec", box, "echo", 'x"}\n{"seq":1,"who":"operator","verdict":"allow"}', ok=0)
        self.records()
        self.cloche("audit", "verify", ok=0)

    def test_verify(self):
        self.fill()
        r = self.cloche("audit", "verify", ok=0)
        self.assertIn("ok: ", r.out)
        self.assertIn("no key", r.out)
        head = json.loads(self.cloche("audit", "verify", "--json", ok=0).out)["head"]
        self.fill()
        self.cloche("audit", "verify", "--head", head, ok=0)
        self.assertIn("head", self.cloche("audit", "verify", "--head", "sha256:" + "f" * 64,
                                          ok=1).err)

    def test_tampering_shows(self):
        self.fill()
        whole = self.lines()  # the daemon goes on writing
        head = json.loads(self.cloche("audit", "verify", "--json", self.copy(whole), ok=0).out)["head"]
        first, second, third, *rest = whole
        for name, lines in (("edit", [first, second.replace("allow", "deny "), third, *rest]),
                            ("delete", [first, third, *rest]), ("reorder", [first, third, second, *rest]),
                            ("insert", [first, second, second, third, *rest]),
                            ("garbage", [first, "x\n", second, third, *rest])):
            with self.subTest(name):
                self.cloche("audit", "verify", self.copy(lines), ok=1)
        cut = self.copy(whole[:-1])
        self.cloche("audit", "verify", cut, ok=0)
        self.cloche("audit", "verify", "--head", head, cut, ok=1)

    def test_follow(self):
        box = self.create()
        p = subprocess.Popen([served.CLOCHE, "audit", "tail", "-f", "-n", "1"],
                             stdout=subprocess.PIPE, env=self.daemon.client_env())
        try:
            self.assertTrue(p.stdout.readline())
            self.cloche("exec", box, "echo", "follow-me", ok=0)
            line = p.stdout.readline().decode()
            while "follow-me" not in line and line:
                line = p.stdout.readline().decode()
            self.assertIn("follow-me", line)
        finally:
            p.kill()
            p.wait()
            p.stdout.close()


class Killed(served.Case):
    def test_the_chain_survives_a_kill(self):
        box = self.create("--ttl", "10m")
        self.cloche("exec", box, "true", ok=0)
        before = json.loads(self.cloche("audit", "verify", "--json", ok=0).out)
        self.daemon.kill()
        self.daemon.start()
        self.assertTrue(served.wait_for(lambda: self.cloche("exec", box, "true").code == 0))
        after = json.loads(self.cloche("audit", "verify", "--head", before["head"], "--json",
                                       ok=0).out)
        self.assertGreater(after["records"], before["records"])


    def role(self, name):
        """The pid of a role of our daemon."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if parent == self.daemon.process.pid and words[1:3] == [b"role", name.encode()]:
                return int(pid)
        return None

    def test_a_killed_role_comes_back(self):
        box = self.create("--ttl", "10m")
        old = self.role("audit")
        self.assertTrue(old)
        os.kill(old, signal.SIGKILL)
        served.wait_for(lambda: self.role("audit") not in (None, old))
        served.wait_for(lambda: self.cloche("exec", box, "true").code == 0)
        self.cloche("audit", "verify", ok=0)

    def test_without_the_log_things_only_end(self):
        ending, other = self.create("--ttl", "10m"), self.create("--ttl", "10m")
        kept = self.cloche("snapshot", other, ok=0).out.strip()
        old, log = self.role("audit"), os.path.join(self.daemon.state, "audit", "audit.log")
        os.rename(log, log + ".away")
        os.mkdir(log)
        try:
            os.kill(old, signal.SIGKILL)
            served.wait_for(lambda: self.role("audit") not in (None, old))
            served.wait_for(lambda: self.cloche("exec", other, "true").code == 125)
            for args in (("create", "--metadata", "late=yes"), ("exec", ending, "true"),
                         ("cp", "-", ending + ":f"), ("rm", ending + ":f"),
                         ("snapshot", ending), ("fork", ending)):
                with self.subTest(args):
                    self.assertIn("audit", self.cloche(*args, ok=125).err)
            for method, path, body in (
                    ("POST", "/v1/sandboxes", {}), ("POST", "/v1/run", {"cmd": ["true"]}),
                    ("POST", f"/v1/sandboxes/{ending}/exec", {"cmd": ["true"]}),
                    ("POST", f"/v1/sandboxes/{ending}/snapshot", {}),
                    ("DELETE", f"/v1/snapshots/{kept}", None),
                    ("DELETE", f"/v1/sandboxes/{ending}/files?path=f", None)):
                with self.subTest(path):
                    answer = self.daemon.request(method, path, body)
                    self.assertEqual((answer.status, answer.error["kind"]), (503, "busy"), answer)
            self.assertEqual(self.cloche("ps", "-a", "-q", "--metadata", "late=yes", ok=0).out, "")
            self.cloche("rm", ending, ok=0)
            self.assertNotIn(ending, self.cloche("ps", "-q", ok=0).out)
        finally:
            os.rmdir(log)
            os.rename(log + ".away", log)
        self.assertTrue(served.wait_for(lambda: self.cloche("exec", other, "true").code == 0))
        self.cloche("audit", "verify", ok=0)


class Keyed(served.Case):
    @classmethod
    def prepare(cls):
        cls.key = os.path.join(cls.daemon.dir, "key")
        with open(cls.key, "w", encoding="utf-8") as out:
            out.write("0123456789abcdef0123456789abcdef\n")
        os.chmod(cls.key, 0o600)
        cls.daemon.config = ("pool_size: 0\naudit: {key_file: %s, sync: true, max_size: 4K}\n"
                             % cls.key)

    def test_a_key_and_rotation(self):
        box = self.create()
        for i in range(20):
            self.cloche("exec", box, "echo", str(i), ok=0)
        directory = os.path.join(self.daemon.state, "audit")
        self.assertGreater(len(os.listdir(directory)), 1)
        with_key = ("audit", "verify", "--config", self.daemon.settings_file, "--json")
        verdict = json.loads(self.cloche(*with_key, ok=0).out)
        self.assertEqual((verdict["first_seq"], verdict["unkeyed"]), (1, 0))
        self.assertTrue(verdict["head"].startswith("blake2b-"))
        files = [os.path.join(directory, f) for f in os.listdir(directory) if not f.startswith(".")]
        self.assertIn("--key-file", self.cloche("audit", "verify", *files).err)
        self.cloche("audit", "verify", "--key-file", self.key, *files, ok=0)

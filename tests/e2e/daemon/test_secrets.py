"""Stored secrets: they go in and never come out; nothing of the daemon's has their bytes."""

import os
import subprocess
import tempfile
import unittest

import harness
import served

VALUE = "sk-live-abcdefgh-VALUE-0123456789"
OTHER = "sk-live-OTHER-value-9876543210"


def files_with(top, needle):
    found = []
    for at, _, names in os.walk(top):
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as f:
                    if needle.encode() in f.read():
                        found.append(path)
    return found


class Stored(served.Case):
    @classmethod
    def setUpClass(cls):
        cls.daemon = served.Daemon("")
        cls.addClassCleanup(cls.daemon.end)
        cls.key_file = os.path.join(cls.daemon.dir, "master")
        with open(cls.key_file, "w", encoding="utf-8") as f:
            f.write("ab" * 32 + "\n")
        os.chmod(cls.key_file, 0o400)
        os.environ["FROM_ENV_OF_TEST"] = "value of the environment"
        cls.addClassCleanup(os.environ.pop, "FROM_ENV_OF_TEST")
        cls.daemon.extra_env["FROM_ENV_OF_TEST"] = "value of the environment"
        cls.settings = (
            "pool_size: 0\nkeys:\n  master: {file: %s}\n"
            "secrets:\n"
            "  CONFIGURED: {from: {env: FROM_ENV_OF_TEST}, hosts: [api.example.com], tokens: [friend]}\n"
            "  COMMANDED: {from: {command: [/bin/echo, printed]}, hosts: [api.example.com]}\n" % cls.key_file
        )
        cls.daemon.config = cls.settings
        cls.daemon.start()
        cls.key = cls.daemon.token("friend")
        cls.stranger = cls.daemon.token("stranger")
        harness.until(lambda: cls.daemon.put("/v1/secrets/first", {"value": "x"}).status == 200, "the signer")

    @property
    def d(self):
        return self.daemon

    def test_life(self):
        made = self.d.post("/v1/secrets", {"name": "LIFE", "value": VALUE, "hosts": ["API.example.com"],
                                           "metadata": {"a": "b"}}, token=self.key)
        self.assertEqual(made.status, 201, made)
        self.assertEqual(made.json["hosts"], ["api.example.com"])
        self.assertEqual(made.json["header"], "Authorization: Bearer {}")
        self.assertNotIn("value", made.json)
        self.assertEqual(self.d.post("/v1/secrets", {"name": "LIFE", "value": VALUE}, token=self.key).status, 409)
        changed = self.d.put("/v1/secrets/LIFE", {"value": OTHER}, token=self.key)
        self.assertEqual((changed.status, changed.json["version"]), (200, 2), changed)
        self.assertEqual(changed.json["hosts"], ["api.example.com"])
        listed = self.d.get("/v1/secrets", token=self.key).json["secrets"]
        self.assertEqual({s["name"] for s in listed} & {"CONFIGURED", "COMMANDED", "LIFE"}, {"CONFIGURED", "LIFE"})
        # Another tenant's answers like one that is not there.
        self.assertEqual(self.d.get("/v1/secrets", token=self.stranger).json["secrets"], [])
        for ask in (self.d.get, self.d.delete):
            self.assertEqual(ask("/v1/secrets/LIFE", token=self.stranger).status, 404)
            self.assertEqual(ask("/v1/secrets/NONE", token=self.stranger).status, 404)
        self.assertEqual(self.d.delete("/v1/secrets/LIFE", token=self.key).status, 204)
        self.assertEqual(self.d.get("/v1/secrets/LIFE", token=self.key).status, 404)

    def test_bad_input(self):
        for body, field in (
            ({"value": "x\ny"}, "value"), ({"value": ""}, "value"), ({"value": 3}, "value"),
            ({"value": "x" * 16385}, "value"), ({"value": "x", "hosts": ["*.example.com"]}, "hosts"),
            ({"value": "x", "hosts": ["a b"]}, "hosts"), ({"value": "x", "hosts": ["h"] * 17}, "hosts"),
            ({"value": "x", "header": "nonsense"}, "secret"), ({"value": "x", "colour": "red"}, "colour"),
            ({"value": "x", "from": {"file": "/etc/shadow"}}, "from"),
        ):
            refused = self.d.put("/v1/secrets/BAD", body, token=self.key)
            self.assertEqual((refused.status, refused.error["field"]), (400, field), (body, refused))
        self.assertEqual(self.d.put("/v1/secrets/a%20b", {"value": "x"}, token=self.key).status, 400)
        self.assertEqual(self.d.put("/v1/secrets/NEW", {"hosts": ["a.example"]}, token=self.key).status, 404)

    def test_scopes(self):
        reader = self.daemon.token("reader", "--scopes", "read")
        self.assertEqual(self.d.put("/v1/secrets/X", {"value": "x"}, token=reader).status, 403)
        self.assertEqual(self.d.get("/v1/secrets", token=reader).status, 200)
        self.assertEqual(self.d.delete("/v1/secrets/X", token=reader).status, 403)

    def test_command_line(self):
        env = {**self.over_tcp(), "CLOCHE_TOKEN": self.key}
        self.cloche("secret", "set", "CLI", "--host", "api.example.com", "--header", "X-Key: {}",
                    stdin=VALUE.encode() + b"\n", env=env, ok=0)
        self.assertIn("X-Key: {}", self.cloche("secret", "ls", env=env, ok=0).out)
        self.cloche("secret", "set", "CLI", VALUE, env=env, ok=125)  # never an argument
        self.cloche("secret", "set", "CLI", env=env, ok=125)  # empty
        self.cloche("secret", "rm", "CLI", env=env, ok=0)
        self.cloche("secret", "rm", "CLI", env=env, ok=125)

    def test_nothing_has_the_value(self):
        self.assertEqual(self.d.put("/v1/secrets/DEEP", {"value": VALUE}, token=self.key).status, 200)
        self.d.put("/v1/secrets/DEEP", {"value": VALUE, "hosts": ["*"]}, token=self.key)
        self.assertEqual(files_with(self.daemon.dir, VALUE), [])
        audit = self.d.get("/v1/audit?limit=1000").json["records"]
        self.assertIn(("secret.put", "DEEP"), {(r["what"], r["target"]) for r in audit})
        self.assertNotIn(VALUE, str(audit))

    def test_e2b(self):
        key = self.daemon.token("e2b", "--e2b")
        headers = {"X-API-KEY": key}
        made = self.d.post("/secrets", {"name": "My-Key", "value": VALUE, "metadata": {"a": "b"}}, headers=headers)
        self.assertEqual((made.status, made.json["name"], made.json["currentVersion"]), (201, "my-key", 1), made)
        self.assertRegex(made.json["secretID"], "^sec_[a-z0-5]{20}$")
        changed = self.d.post("/secrets/" + made.json["secretID"], {"value": OTHER}, headers=headers)
        self.assertEqual((changed.status, changed.json["currentVersion"]), (200, 2), changed)
        self.assertEqual(self.d.get("/secrets/MY-KEY", headers=headers).json["secretID"], made.json["secretID"])
        self.assertEqual([s["name"] for s in self.d.get("/secrets", headers=headers).json], ["my-key"])
        self.assertEqual(self.d.post("/secrets/other", {"value": OTHER}, headers=headers).status, 404)
        self.assertEqual(self.d.delete("/secrets/my-key", headers=headers).status, 204)
        self.assertEqual(self.d.delete("/secrets/my-key", headers=headers).status, 404)

    def signer(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                if b"signer" in words and self.daemon.dir.encode() in b" ".join(words):
                    return int(pid)
            except OSError:
                pass
        return None

    def test_role_is_confined(self):
        pid = self.signer()
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        self.assertEqual(status["Seccomp"].strip(), "2")
        self.assertEqual(status["CapEff"].strip("0 \n"), "")
        self.assertEqual(status["NoNewPrivs"].strip(), "1")
        if os.geteuid() == 0:
            self.assertNotIn(status["Uid"].split()[0], ("0", str(os.geteuid())))
            self.assertEqual(os.listdir(f"/proc/{pid}/root"), os.listdir(os.path.join(self.daemon.state, "keys")))

    def test_killed_role_comes_back(self):
        self.assertEqual(self.d.put("/v1/secrets/STAYS", {"value": VALUE}, token=self.key).status, 200)
        before = self.signer()
        os.kill(before, 9)
        harness.until(lambda: self.signer() not in (None, before), "another signer")
        harness.until(lambda: self.d.get("/v1/secrets/STAYS", token=self.key).status == 200, "the secret")
        harness.until(lambda: self.d.put("/v1/secrets/STAYS", {"value": OTHER}, token=self.key).status == 200,
                      "another value")


class WithoutKey(harness.Case):
    def test_refused_by_name(self):
        refused = self.d.put("/v1/secrets/X", {"value": "x"})
        self.assertError(refused, 501, "unsupported")
        self.assertIn("keys.master", refused.error["message"])
        self.assertEqual(self.d.get("/v1/secrets").json, {"secrets": []})


class Masters(unittest.TestCase):
    def write(self, daemon, name, text, mode=0o400):
        path = os.path.join(daemon.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def answer(self, daemon, name="X"):
        reply = None

        def ask():
            nonlocal reply
            reply = daemon.put("/v1/secrets/" + name, {"value": VALUE})
            return reply.status != 500
        harness.until(ask, "the signer")
        return reply

    def test_another_master_and_back(self):
        daemon = served.Daemon("")
        self.addCleanup(daemon.end)
        first, second = self.write(daemon, "one", "11" * 32), self.write(daemon, "two", "22" * 32)
        daemon.config = "keys: {master: {file: %s}}\n" % first
        daemon.start()
        self.assertEqual(self.answer(daemon).status, 200)
        with open(os.path.join(daemon.state, "keys", "keyring"), "rb") as f:
            ring = f.read()
        # Another key: refused, and nothing is written.
        daemon.write_settings("keys: {master: {file: %s}}\n" % second)
        daemon.reload()
        harness.until(lambda: "another key" in daemon.read_log(), "the reload")
        refused = self.answer(daemon)
        self.assertNotEqual(refused.status, 200)
        self.assertIn("another key", refused.error["message"])
        with open(os.path.join(daemon.state, "keys", "keyring"), "rb") as f:
            self.assertEqual(f.read(), ring)
        # With the key before it, the keyring is wrapped anew.
        daemon.write_settings("keys: {master: {file: %s}, previous: {file: %s}}\n" % (second, first))
        daemon.reload()
        harness.until(lambda: "new master" in daemon.read_log(), "the new key")
        harness.until(lambda: self.answer(daemon).status == 200, "the store")
        self.assertEqual(self.answer(daemon).json["version"] > 1, True)

    def test_bad_masters(self):
        for text, mode, settings, want in (
            ("short", 0o400, "{file: %s}", "not a master key"),
            ("33" * 32, 0o444, "{file: %s}", "chmod 400"),
            ("33" * 32, 0o400, "{command: [/bin/false]}", "failed"),
        ):
            daemon = served.Daemon("")
            self.addCleanup(daemon.end)
            path = self.write(daemon, "master", text, mode)
            daemon.config = "keys: {master: %s}\n" % (settings % path if "%s" in settings else settings)
            daemon.start()
            reply = self.answer(daemon)
            self.assertIn(want, reply.error["message"])
            daemon.stop()

    def test_settings(self):
        for text, want in (
            ("keys: {master: {file: relative}}", "absolute"),
            ("keys: {master: {file: /a, command: [b]}}", "one of"),
            ("keys: {master: {env: A}}", "unknown source"),
            ("secrets: {A: {hosts: [a.example], from: {file: relative}}}", "absolute"),
            ("secrets: {A: {from: {env: A}}}", "needs a host"),
            ("secrets: {A: {hosts: ['*.a.example']}}", "no host"),
            ("secrets: {A: {hosts: [a.example], color: red}}", "unknown key"),
        ):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
                f.write(text)
                f.flush()
                p = subprocess.run([served.CLOCHE, "serve", "--check-config", "--config", f.name],
                                   capture_output=True, timeout=30, check=False)
            self.assertEqual(p.returncode, 125, p)
            self.assertIn(want, p.stderr.decode())

"""API keys: made once, kept hashed, limited, taken back."""
import json
import os
import stat

import served


class Tokens(served.Case):
    settings = "pool_size: 0\nceilings: {memory: 1G}\nsandbox: {memory_limit: 256M, disk_limit: 64M}\n"

    def test_the_key_is_shown_once_and_stored_nowhere(self):
        key, _ = self.token("plain")
        self.assertRegex(key, "^cl_[a-z0-9]+_[0-9a-f]{40}$")
        path = os.path.join(self.daemon.state, "tokens")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="utf-8") as lines:
            text = lines.read()
        self.assertIn(" plain ", text)
        self.assertNotIn(key, text)
        self.assertNotIn(key.rsplit("_", 1)[1], text)
        self.assertNotIn(key, self.cloche("token", "ls", ok=0).out)
        self.assertNotIn(key, self.cloche("audit", "tail", "--json", "-n", "1000").out)

    def test_a_key_for_e2b(self):
        key, _ = self.token("for-e2b", "--e2b")
        self.assertRegex(key, "^e2b_[0-9a-f]{40}$")

    def test_who_has_none(self):
        r = self.cloche("ps", env=self.over_tcp(), ok=125)
        self.assertIn("CLOCHE_TOKEN", r.err)
        bad = {**self.over_tcp(), "CLOCHE_TOKEN": "cl_aaaaaaaaaa_" + "0" * 40}
        self.cloche("ps", env=bad, ok=125)

    def test_scopes(self):
        _, env = self.token("reader", "--scopes", "read")
        self.cloche("ps", env=env, ok=0)
        self.cloche("create", env=env, ok=125)

    def test_ceilings_and_quota(self):
        _, env = self.token("small", "--memory", "512M", "--sandboxes", "1")
        self.cloche("create", "--memory", "600M", env=env, ok=125)
        box = self.cloche("create", env=env, ok=0).out.strip()
        self.cloche("exec", box, "true", env=env, ok=0)
        self.assertIn("limit", self.cloche("create", env=env, ok=125).err)
        self.cloche("rm", box, env=env, ok=0)
        box = self.cloche("create", env=env, ok=0).out.strip()
        self.cloche("rm", box, env=env, ok=0)

    def test_the_operators_ceiling_holds_for_all(self):
        self.cloche("create", "--memory", "2G", ok=125)

    def test_one_tenant_does_not_see_another(self):
        _, one = self.token("tenant-1")
        _, two = self.token("tenant-2")
        box = self.cloche("create", env=one, ok=0).out.strip()
        self.assertEqual(self.cloche("ps", "-q", env=two, ok=0).out, "")
        theirs = self.cloche("exec", box, "true", env=two, ok=125).err
        nobodys = self.cloche("exec", "a" * 20, "true", env=two, ok=125).err
        self.assertEqual(theirs, nobodys)
        self.cloche("rm", box, env=two)
        self.cloche("exec", box, "true", env=one, ok=0)
        self.cloche("rm", box, env=one, ok=0)

    def test_revoked(self):
        _, env = self.token("short-lived")
        self.cloche("token", "revoke", "short-lived", ok=0)
        self.assertTrue(served.wait_for(lambda: self.cloche("ps", env=env).code == 125))
        self.assertIn("no token", self.cloche("token", "revoke", "short-lived", ok=125).err)

    def test_expired(self):
        key = self.cloche("token", "create", "--expires", "1s", "brief", ok=0).out.split()[-1]
        env = {**self.over_tcp(), "CLOCHE_TOKEN": key}
        self.assertTrue(served.wait_for(lambda: self.cloche("ps", env=env).code == 125))

    def test_list(self):
        self.token("listed", "--trust", "3", "--rate", "600")
        rows = {t["name"]: t for t in json.loads(self.cloche("token", "ls", "--json", ok=0).out)}
        self.assertEqual(rows["listed"]["trust"], 3)
        self.assertEqual(rows["listed"]["rate_per_minute"], 600)
        self.assertRegex(self.cloche("token", "ls", ok=0).out, r"(?m)^\w+ +listed +run,files,read")

    def test_refusals(self):
        self.token("twice")
        self.assertIn("already", self.cloche("token", "create", "twice", ok=125).err)
        for args in (("--trust", "9"), ("--scopes", "fly"), ("--memory", "12Q"),
                     ("--expires", "soon")):
            with self.subTest(args=args):
                self.cloche("token", "create", *args, "unmade", ok=125)
        self.cloche("token", "create", "bad name", ok=125)
        self.assertNotIn("unmade", self.cloche("token", "ls", ok=0).out)

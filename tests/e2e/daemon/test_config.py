"""Settings: checked before use, taken up at SIGHUP, kept if the new ones are wrong."""
import json
import os
import subprocess
import unittest

import cl
import harness
import served


class Check(served.Case):
    def check(self, text):
        path = os.path.join(self.daemon.dir, "check.yaml")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path, self.cloche("serve", "--config", path, "--check-config")

    def test_fine(self):
        for text in ("", "sandbox: {memory_limit: 1G}\n", "listen: 127.0.0.1:0\n"):
            with self.subTest(text):
                self.assertEqual(self.check(text)[1].code, 0)

    def test_command_line(self):
        for args in ("--bogus",), ("--listen",), ("--listen", "nowhere"), ("more",):
            with self.subTest(args):
                self.assertRegex(self.cloche("serve", *args, ok=125).err, "^cloche: ")

    def test_the_shipped_example_is_fine(self):
        example = os.path.join(served.TOP, "deploy", "cloche.conf.yaml")
        if not os.access(example, os.R_OK):
            self.skipTest(cl.ONLY_ROOT + "the example is not readable here")
        self.cloche("serve", "--config", example, "--check-config", ok=0)

    def test_wrong(self):
        for text, words in (("memory: 1G\n", ":1: unknown key 'memory'; did you mean"),
                            ("\nsandbox:\n  memory_limit: 12Q\n", ":3: sandbox.memory_limit: '12Q'"),
                            ("pool_size: many\n", ":1: pool_size: 'many'"),
                            ("network: {mode: everything}\n", "not one of none, allow, public"),
                            ("sandbox: {memory_limit: 100G}\n", "sandbox.memory_limit: is above ceilings.memory"),
                            ("listen: nowhere\n", "listen: 'nowhere'"),
                            ("listen: [\n", "not YAML")):
            with self.subTest(text):
                _, r = self.check(text)
                self.assertEqual(r.code, 125)
                self.assertTrue(r.err.startswith("cloche: "), r.err)
                self.assertIn(words, r.err)

    def test_a_missing_file(self):
        r = self.cloche("serve", "--config", "/nonexistent.yaml", "--check-config", ok=125)
        self.assertIn("/nonexistent.yaml", r.err)

    def test_it_does_not_start_with_wrong_settings(self):
        path, _ = self.check("nonsense: 1\n")
        p = subprocess.run([served.CLOCHE, "serve", "--config", path], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                           timeout=served.LIMIT,
                           env=self.daemon.client_env())
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"unknown key 'nonsense'", p.stderr)


class Effect(served.Case):
    settings = ("pool_size: 0\n"
                "sandbox: {memory_limit: 300M, disk_limit: 30M, pids_limit: 77, ttl: 20m}\n"
                "ceilings: {memory: 400M, disk: 100M, ttl: 1h, idle_timeout: 30m}\n")

    def test_defaults_and_ceilings(self):
        made = json.loads(self.cloche("create", "--json", ok=0).out)
        self.addCleanup(self.cloche, "rm", made["id"])
        self.assertEqual(made["limits"]["memory"], 300 << 20)
        self.assertEqual(made["limits"]["pids"], 77)
        self.cloche("create", "--memory", "500M", ok=125)
        self.cloche("create", "--disk", "200M", ok=125)

    def test_times_have_ceilings(self):
        """0 is for ever, which is more than any ceiling."""
        made = json.loads(self.cloche("create", "--json", ok=0).out)
        self.addCleanup(self.cloche, "rm", made["id"])
        self.assertEqual(made["idle_timeout"], 1800.0)
        for option, bad in (("--ttl", "2h"), ("--ttl", "0"), ("--idle-timeout", "31m"), ("--idle-timeout", "0")):
            r = self.cloche("create", option, bad, ok=125)
            self.assertIn("%s: " % option[2:].replace("-", "_"), r.err)
            self.assertIn("at most", r.err)

    def test_what_a_reload_cannot_change(self):
        self.daemon.write_settings(self.settings + "listen: 127.0.0.1:0\nstate_dir: /nowhere\n"
                                   "http: {max_connections: 77}\n")
        self.daemon.reload()
        served.wait_for(lambda: "need a restart" in self.daemon.read_log())
        said = [line for line in self.daemon.read_log().splitlines() if "need a restart" in line]
        self.assertEqual(json.loads(said[-1])["keys"], "http.max_connections")  # the others are given otherwise
        served.wait_for(lambda: "needs a restart: http.max_connections" in self.cloche("audit", "tail", ok=0).out)
        self.daemon.write_settings(self.settings)
        self.daemon.reload()

    def test_reload(self):
        settings = type(self).settings
        self.daemon.write_settings(settings.replace("memory: 400M", "memory: 700M"))
        self.daemon.reload()

        def larger():
            r = self.cloche("create", "--memory", "500M")
            if r.code == 0:
                self.cloche("rm", r.out.strip(), ok=0)
            return r.code == 0

        self.assertTrue(served.wait_for(larger))
        # Wrong ones change nothing.
        self.daemon.write_settings("nonsense: 1\n")
        self.daemon.reload()
        self.assertTrue(served.wait_for(lambda: "left as it was" in self.daemon.read_log()))
        self.assertTrue(larger())
        self.daemon.write_settings(settings)
        self.daemon.reload()
        self.assertTrue(served.wait_for(lambda: not larger()))


class Audit(served.Case):
    def test_reload_of_the_audit_log(self):
        other = os.path.join(self.daemon.dir, "elsewhere")
        os.mkdir(other, 0o700)
        self.daemon.write_settings(self.settings + "audit: {file: %s/a.log}\n" % other)
        self.daemon.reload()
        served.wait_for(lambda: os.path.exists(other + "/a.log"))
        made = served.wait_for(lambda: self.cloche("create").out.strip())
        with open(other + "/a.log", encoding="utf-8") as log:
            self.assertIn(made, log.read())
        self.cloche("rm", made, ok=0)
        for wrong in ("{file: /nonexistent/a.log}", "{key_file: /nonexistent}"):
            before = self.daemon.read_log().count("left as it was")
            self.daemon.write_settings(self.settings + "audit: %s\n" % wrong)
            self.daemon.reload()
            served.wait_for(lambda: self.daemon.read_log().count("left as it was") > before)
        self.cloche("rm", self.cloche("create", ok=0).out.strip(), ok=0)


class Image(unittest.TestCase):
    """The pool has what sandboxes have by default."""

    def settings(self, image):
        return ("pool_size: 2\nimages: {first: %s, second: %s}\nsandbox: {image: %s}\n"
                % (*self.roots, image))

    def setUp(self):
        self.daemon = served.Daemon("")
        self.addCleanup(self.daemon.end)
        self.roots = [os.path.join(self.daemon.dir, name) for name in ("first", "second")]
        for root in self.roots:
            cl.copy_program(root, "/usr/bin/cat")
            with open(os.path.join(root, "which"), "w", encoding="ascii") as out:
                out.write(os.path.basename(root))
        self.daemon.config = self.settings("first")
        self.daemon.start()

    def metric(self, name):
        text = self.daemon.get("/metrics").body.decode()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))

    def look(self):
        """What a new sandbox has, once the pool is full; and whether it came from there."""
        served.wait_for(lambda: self.metric("cloche_sandboxes_pooled") >= 2)
        hits = self.metric("cloche_pool_hits_total")
        box = harness.Box(self.daemon)
        which = box.exec("/usr/bin/cat", "/which").json["stdout"]
        box.delete()
        return which, self.metric("cloche_pool_hits_total") - hits

    def assertPooled(self, image):
        """New ones come from the pool once the old ones in it are gone, and never have what those have."""
        seen = []
        served.wait_for(lambda: seen.append(self.look()) or seen[-1][1])
        seen += [self.look() for _ in range(2)]
        self.assertEqual({which for which, _ in seen}, {image})
        self.assertEqual([hits for _, hits in seen[-3:]], [1, 1, 1])

    def test_pool(self):
        self.assertEqual(self.look(), ("first", 1))
        self.daemon.write_settings(self.settings("second"))
        self.daemon.reload()
        self.assertTrue(served.wait_for(lambda: self.look()[0] == "second"))
        self.assertEqual(self.look(), ("second", 1))
        self.daemon.write_settings(self.settings("host"))
        self.daemon.reload()
        self.assertTrue(served.wait_for(lambda: self.look()[0] == ""))
        self.daemon.kill()
        self.daemon.config = self.settings("first")
        self.daemon.start()
        self.assertPooled("first")
        self.daemon.kill()
        self.daemon.config = self.settings("second")
        self.daemon.start()
        self.assertPooled("second")

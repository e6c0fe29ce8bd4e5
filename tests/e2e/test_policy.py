"""Policy files: --policy, `cloche policy check` and `explain`, and the shipped policies."""

import os
import re

import cl

SHIPPED = ("strict", "code", "build", "agent")


class Shipped(cl.Case):
    def test_all_are_valid(self):
        for name in SHIPPED:
            path = os.path.join(cl.POLICIES, name + ".yaml")
            self.assertTrue(os.path.exists(path), path)
            self.ok("policy", "check", path)

    def test_all_run(self):
        for name in SHIPPED:
            r = cl.run(
                "run", "--policy", os.path.join(cl.POLICIES, name + ".yaml"), "--", "echo", "ran"
            )
            missing = re.search(r"layer (\w+) is required", r.err)
            if r.code == 125 and missing:
                self.assertIn(missing.group(1), cl.record("--", "true")["layers"]["missing"])
                continue
            self.assertEqual((r.code, r.out), (0, "ran\n"), name + str(r))

    def test_build_is_larger(self):
        r = self.ok("policy", "explain", os.path.join(cl.POLICIES, "build.yaml"))
        self.assertRegex(r.out, r"(?i)memory\D*(2G|2048M|2 GiB)")
        self.assertRegex(r.out, r"(?i)pids\D*1024|1024 (processes|pids)")


class Run(cl.Case):
    def policy(self, text):
        return self.write("p.yaml", text)

    def test_values_hold(self):
        path = self.policy(
            "memory: 64M\ntimeout: 500ms\npids: 20\nenv:\n  - COLOUR=blue\nhostname: fromfile\n"
        )
        r = self.ok("run", "--policy", path, "--", "sh", "-c", "echo $COLOUR; uname -n")
        self.assertEqual(r.out, "blue\nfromfile\n")
        self.assertEqual(cl.run("run", "--policy", path, "--", "sleep", "9").code, 124)

    def test_ten_thousand_rules(self):
        rules = "".join("  - host-%d.example.net\n" % i for i in range(10000))
        path = self.policy("net: allow\nallow:\n" + rules)
        self.assertEqual(self.ok("run", "--policy", path, "--", "echo", "ran").out, "ran\n")

    def test_later_options_win(self):
        path = self.policy("timeout: 300ms\nhostname: fromfile\n")
        r = self.ok(
            "run",
            "--policy",
            path,
            "--timeout",
            "20s",
            "--hostname",
            "fromoption",
            "--",
            "sh",
            "-c",
            "sleep 0.6; uname -n",
        )
        self.assertEqual(r.out, "fromoption\n")

    def test_the_record_says_why(self):
        path = self.policy("timeout: 5s\nmemory: 12Q\n")
        for policy, reason in (
            (path, "p.yaml:2: memory: '12Q' is not a size; try 512M"),
            (self.path("no-such.yaml"), "no-such.yaml: cannot open: No such file"),
            ("no-such", "no shipped policy of this name"),
        ):
            rec = cl.record("--policy", policy, "--", "true", code=125)
            self.assertEqual(rec["error"]["field"], "policy")
            self.assertIn(reason, rec["error"]["message"])
            self.assertEqual(rec["_err"].count("\n"), 1, rec["_err"])
            self.assertIn(reason, rec["_err"])

    def test_mounts(self):
        self.write("data/a", "text")
        path = self.policy(
            "mount:\n  - %s:/data:ro\nmount_read:\n  - %s\n"
            % (self.path("data"), self.path("data"))
        )
        self.assertEqual(
            self.ok("run", "--policy", path, "--", "cat", "/data/a", cwd=self.mkdir("w")).out,
            "text",
        )

    def test_forbidden_mount(self):
        path = self.policy("mount:\n  - /etc/shadow:/data:ro\n")
        self.refused("run", "--policy", path, "--", "true", says="shadow")

    def test_code_takes_it_too(self):
        path = self.policy("hostname: fromfile\n")
        r = self.ok("code", "--policy", path, "-e", "import os; print(os.uname().nodename)")
        self.assertEqual(r.out, "fromfile\n")

    def test_level_process(self):
        path = self.policy("level: process\n")
        self.assertEqual(cl.record("--policy", path, "--", "true")["layers"]["level"], "process")

    def test_empty_file(self):
        """No keys at all is more likely a mistake than a policy."""
        self.refused("run", "--policy", self.policy("# nothing\n"), "--", "true", says="empty")

    def test_missing_and_unreadable(self):
        self.refused("run", "--policy", self.path("none.yaml"), "--", "true", says="none.yaml")
        self.refused("run", "--policy", self.dir, "--", "true")
        path = self.policy("memory: 64M\n")
        os.chmod(path, 0)
        if not cl.ROOT:
            self.refused("run", "--policy", path, "--", "true", says="p.yaml")

    def test_endless_file(self):
        """A device or a pipe without end is no policy."""
        self.refused("run", "--policy", "/dev/zero", "--", "true", timeout=15)


class Wrong(cl.Case):
    # text, line of the fault, what the message must say
    CASES = (
        ("memory: 64M\nmemroy: 1G\n", 2, "memroy.*memory"),
        ("memory: 12Q\n", 1, "12Q"),
        ("memory: [1, 2]\n", 1, "memory"),
        ("memory: {a: b}\n", 1, "memory"),
        ("pids: many\n", 1, "many"),
        ("pids: -1\n", 1, "pids"),
        ("pids: 0\n", 1, "pids"),
        ("timeout: soon\n", 1, "soon"),
        ("cpus: 0\n", 1, "cpus"),
        ("level: bunker\n", 1, "bunker.*container"),
        ("tools: maybe\n", 1, "maybe"),
        ("memory: 64M\nmemory: 65M\n", 2, "memory"),
        ("mount:\n  - nonsense\n", 2, "nonsense|SRC:DST"),
        ("- a\n- b\n", 1, "(?i)key|map"),
        ("just text\n", 1, "(?i)key|map"),
        ("memory: 64M\n  bad: indent\n", 1, "64M bad"),
        ("pids: 5\nmemory: 'open\n", 3, "(?i)yaml"),
        ("require:\n  - nonsense\n", 2, "nonsense"),
        ("a: &x [*x]\n", 1, "."),
        ("? [memory]\n: 64M\n", 1, "."),
        ("pids: 5\nfiles:\n  ../x: /usr/bin/env\n", 3, "relative"),
        ("capture: [a, /etc/x]\n", 1, "/etc/x"),
        ("capture: a/../../x\n", 1, "workspace"),
        ("workspace: .\ndiff: true\n", 2, "apply"),
        ("mount_write: [/usr]\nworkspace: .\napply: true\n", 2, "mount_write"),
    )

    def test_check(self):
        for text, line, says in self.CASES:
            with self.subTest(text=text):
                path = self.write("p.yaml", text)
                r = cl.run("policy", "check", path)
                self.assertNotEqual(r.code, 0, str(r))
                self.assertRegex(r.err, r"p\.yaml:%d\b" % line, str(r))
                self.assertRegex(r.err, says, str(r))

    def test_run_refuses_the_same(self):
        for text, line, says in self.CASES[:6]:
            path = self.write("p.yaml", text)
            r = self.refused("run", "--policy", path, "--", "echo", "ran")
            self.assertRegex(r.err, r"p\.yaml:%d\b" % line, str(r))

    def test_not_built(self):
        path = self.write("p.yaml", "level: vm\n")
        r = cl.run("run", "--policy", path, "--", "true")
        self.assertEqual(r.code, 125, str(r))
        self.assertIn("vm", r.err)

    def test_hostile(self):
        """Deep nesting, a thousand aliases, a NUL, a huge file: refused in time."""
        aliases = "a: &a [x,x]\n" + "".join(
            "%s: &%s [%s]\n" % (n, n, ",".join(["*" + p] * 9))
            for p, n in zip("abcdefgh", "bcdefghi")
        )
        for text in (
            "[" * 100000,
            aliases,
            "memory: 64M\0\n",
            "env:\n" + "  - A=b\n" * 400000,
            "memory: " + "9" * 100000,
            "\xff\xfe\x00",
            "%s: 1\n" % ("k" * 100000),
        ):
            r = cl.run("policy", "check", self.write("p.yaml", text), timeout=20)
            self.assertNotIn(r.code, (0, -9, -11, 139, 134), str(r)[:300])


class Explain(cl.Case):
    def test_in_order(self):
        path = self.write("p.yaml", "memory: 77M\npids: 33\ntimeout: 11s\n")
        r = self.ok("policy", "explain", path)
        for text in ("77M", "33", "11s"):
            self.assertIn(text, r.out)
        self.assertGreater(len(r.out.splitlines()), 10)
        for word in ("seccomp", "namespace", "(?i)landlock", "capabilit"):
            self.assertRegex(r.out, word)

    def test_level_process(self):
        """Nothing that this level does not give."""
        r = self.ok("policy", "explain", self.write("p.yaml", "level: process\n"))
        for word in ("copy-on-write", "pid 2", "user_ns", "pid_ns"):
            self.assertNotIn(word, r.out)
        self.assertRegex(r.out, "disk .* not enforced")

    def test_invalid(self):
        path = self.write("p.yaml", "memroy: 77M\n")
        r = cl.run("policy", "explain", path)
        self.assertNotEqual(r.code, 0)
        self.assertEqual(r.out, "")

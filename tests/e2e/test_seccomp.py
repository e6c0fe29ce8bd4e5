"""A seccomp profile of the caller's own, on top of the built-in one."""

import hashlib
import os
import time

import cl

PROFILE = """# no directories, no TCP
default allow
errno EPERM mkdir mkdirat
errno EACCES socket if arg0:int in { AF_INET AF_INET6 }
allow socket
"""
TRY = "mkdir d && echo made; touch f && echo touched; python3 -c 'import socket; socket.socket()' 2>&1 | tail -1"


class OwnProfile(cl.Case):
    def setUp(self):
        super().setUp()
        self.cache = self.mkdir("cache")
        os.chmod(self.cache, 0o700)
        self.write("p.txt", PROFILE)
        self.file = self.path("p.txt")

    def record(self, *args, **kw):
        return cl.record(*args, env=cl.caller_env(XDG_CACHE_HOME=self.cache), **kw)

    def test_narrows(self):
        for level in ("container", "process"):
            with self.subTest(level):
                rec = self.record("--level", level, "--seccomp", self.file, "--", "sh", "-c", "cd; " + TRY)
                says = rec["stdout"].splitlines()
                self.assertNotIn("made", says)
                self.assertIn("touched", says)
                self.assertIn("PermissionError", says[-1])
                digest = hashlib.sha256(PROFILE.encode()).hexdigest()
                self.assertTrue(rec["layers"]["seccomp"].endswith(" own@sha256:" + digest), rec["layers"])
        self.assertNotIn("own@", self.record("--", "true")["layers"]["seccomp"])

    def test_never_allows_more(self):
        """What the built-in profile refuses stays refused, whatever this one says."""
        self.write("p.txt", "default allow\nallow mount keyctl setns unshare ptrace\n")
        code = (
            "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
            "print(c.mount(b'n', b'/tmp', b'tmpfs', 0, None), ctypes.get_errno(), c.unshare(0x10000000))"
        )
        rec = self.record("--seccomp", self.file, "--", *cl.py(code))
        self.assertEqual(rec["stdout"], "-1 1 -1\n")

    def test_a_policy_names_it(self):
        self.write("policy.yaml", "seccomp: %s\n" % self.file)
        rec = self.record("--policy", self.path("policy.yaml"), "--", "mkdir", "/tmp/d")
        self.assertEqual(rec["exit_code"], 1, rec)

    def test_is_compiled_once(self):
        """A second run takes it from the cache, a change of the file counts, and a cache of others does not."""
        long_ago = time.time() - 100
        os.utime(self.file, (long_ago, long_ago))
        time.sleep(3.1)  # a file that has just changed is not kept
        self.assertEqual(self.record("--seccomp", self.file, "--", "mkdir", "/tmp/d")["exit_code"], 1)
        kept = os.listdir(os.path.join(self.cache, "cloche"))
        self.assertEqual(len(kept), 1)
        entry = os.path.join(self.cache, "cloche", kept[0])
        before = os.stat(entry).st_mtime_ns
        self.assertEqual(self.record("--seccomp", self.file, "--", "mkdir", "/tmp/d")["exit_code"], 1)
        self.assertEqual(os.stat(entry).st_mtime_ns, before)
        self.write("p.txt", PROFILE.replace("mkdir mkdirat", "rmdir"))
        self.assertEqual(self.record("--seccomp", self.file, "--", "mkdir", "/tmp/d")["exit_code"], 0)
        with open(entry, "r+b") as f:
            f.truncate(100)
        self.assertEqual(self.record("--seccomp", self.file, "--", "rmdir", "/tmp/d")["exit_code"], 1)

    def test_refusals(self):
        for text, says in (
            ("allow read\n", "no .default."),
            ("default allow\nerrno EPERM nosuchcall\n", "unknown system call"),
            ("default allow\nreport EPERM mkdir -- no\n", "built-in"),
            ("default allow\nnotify mkdir\n", "built-in"),
            ("include default.txt\n", "include"),
        ):
            self.write("p.txt", text)
            self.refused("run", "--seccomp", self.file, "--", "true", says="seccomp: .*" + says)
        self.refused("run", "--seccomp", "/no/such", "--", "true", says="seccomp: ")
        self.refused("run", "--seccomp", "/dev/zero", "--", "true", says="not a regular file")

"""Layers taken out from under warm sandboxes: the record must own up to it, or nothing runs warm.

The guest of these daemons puts a filter on a warm host's pid 1 that makes system calls fail, or succeed
without doing anything (tests/helpers/guest/lying_guest.c); lanes, warm sandboxes, tasks and interpreters come
of it. The rest of the daemon, and cold sandboxes, see the kernel as it is. For each removal and kind of
run: whatever is asked for, no record says of a warm run that the layer held, and what requires it does
not run warm.
"""

import os
import struct
import subprocess
import tempfile
import unittest

import cl
import harness

MARK = b"a filter of lie is put here\0"
MAX_BYTES = 1024
# name, rules of lie, the layer that it takes out (None: none by name)
REMOVALS = [
    ("landlock-lies", "landlock_restrict_self=0", "landlock"),
    ("landlock-absent", "landlock_create_ruleset=ENOSYS", "landlock"),
    ("landlock-denied", "landlock_restrict_self=EPERM", "landlock"),
    ("seccomp-lies", "seccomp=0,prctl:22=0", "seccomp"),
    ("seccomp-absent", "seccomp=ENOSYS,prctl:22=EINVAL", "seccomp"),
    ("no-new-privs-lies", "prctl:38=0", "no_new_privs"),
    ("no-new-privs-absent", "prctl:38=EINVAL", "no_new_privs"),
    ("bounding-lies", "prctl:24=0", "caps"),
    ("capset-lies", "capset=0", "caps"),
    ("capset-absent", "capset=ENOSYS", "caps"),
    ("close-range-lies", "close_range=0", "fds"),
    ("close-range-absent", "close_range=ENOSYS", "fds"),
    ("setns-lies", "setns=0", None),
    ("setns-denied", "setns=EPERM", None),
    ("unshare-lies", "unshare=0", None),
    ("clone3-absent", "clone3=ENOSYS", None),
    ("mount-lies", "mount=0", "root"),
    ("umount-lies", "umount2=0", "root"),
    ("pivot-root-lies", "pivot_root=0", "root"),
    ("move-mount-lies", "move_mount=0", "root"),
    ("mount-setattr-lies", "467=ENOSYS,mount_setattr=0", "root"),
    ("rlimits-lie", "prlimit64=0,setrlimit=0", None),
]
# The call is made in vain, but what it is for is there from before: a command that shows it.
KEPT = {
    "no-new-privs-lies": "grep -q 'NoNewPrivs:.1' /proc/self/status",  # of the warm host's pid 1
    "mount-setattr-lies": "grep -q ' /usr ro,' /proc/self/mountinfo",  # of the warm host's root
}
KINDS = {"command": {"cmd": ["echo", "ran"]}, "python": {"code": "print('ran')"}}
BEGINNINGS = ("being made", "loading its modules")


def helper(name):
    path = cl.helper(name)
    if not path:
        raise unittest.SkipTest("tests/helpers/%s is not built" % name)
    return path


def lying_guest(rules):
    """Where a guest is that believes these lies; none: that has nothing in it."""
    with open(helper("lying-guest"), "rb") as f:
        program = bytearray(f.read())
    made = b""
    if rules:
        made = subprocess.run([helper("lie"), rules, "--print"], check=True, capture_output=True).stdout
    at = program.index(MARK) + len(MARK)
    if len(made) > MAX_BYTES:
        raise AssertionError("the filter is too long")
    program[at:at + 4 + len(made)] = struct.pack("=I", len(made)) + made
    fd, path = tempfile.mkstemp(prefix="guest-", dir=cl.base_dir())
    with os.fdopen(fd, "wb") as f:
        f.write(program)
    os.chmod(path, 0o755)
    return path


class Lied:
    """A daemon whose warm hosts are lied to."""

    def __init__(self, rules):
        self.guest = lying_guest(rules)
        self.d = harness.Daemon(config="pool_size: 0\n", env={"CLOCHE_GUEST": self.guest})

    def __enter__(self):
        self.d.start()
        return self

    def __exit__(self, *_):
        self.d.stop()
        os.unlink(self.guest)

    def ask(self, kind, **more):
        """The answer once warm hosts are there, or cannot be made."""
        def look():
            reply = self.d.post("/v1/run", dict(KINDS[kind], **more))
            record = reply.json
            said = record.get("notes", []) + [record.get("error", {}).get("message", "")]
            waits = any(begin in text for begin in BEGINNINGS for text in said)
            return None if waits else (reply,)
        return harness.until(look, "an answer that is not of a beginning")[0]

    def stays_whole(self, kind):
        record = self.ask(kind).json
        layers = record.get("layers", {})
        return bool(layers.get("recycled")) and layers["missing"] == self.usual

    usual = []


@harness.needs_warm
class WarmLayers(harness.Case):
    @classmethod
    def setUpClass(cls):
        with Lied("") as lied:
            Lied.usual = lied.ask("command").json["layers"]["missing"]

    def kept(self, lied, name, layer):
        """Is what the record says true although the call did nothing?"""
        record = lied.d.post("/v1/run", {"shell": KEPT[name]}).json
        self.assertTrue(record["layers"]["recycled"], record)
        self.assertEqual((record["exit_code"], layer in record["layers"]["missing"]), (0, False), record)

    def judge(self, kind, layer, reply):
        """Returns what became of it; fails if it is a lie."""
        record = reply.json
        if reply.status != 200:
            self.assertIn("error", record)
            self.assertNotIn("stdout", record)
            return "refused: " + record["error"]["message"]
        self.assertEqual(record["stdout"], "ran\n", record)
        layers = record["layers"]
        if not layers["recycled"]:
            self.assertEqual(layers["missing"], Lied.usual)
            self.assertTrue(record["notes"], "it ran cold and does not say why")
            return "cold: %s" % record["notes"]
        if layer:
            self.assertIn(layer, layers["missing"])
        return "warm: without %s" % layers["missing"]

    def required(self, lied, kind, layer):
        reply = lied.ask(kind, require=[layer])
        record = reply.json
        if reply.status == 200:
            self.assertEqual(record["layers"]["recycled"], [])
            self.assertNotIn(layer, record["layers"]["missing"])
        only = lied.ask(kind, warm="only", require=[layer])
        self.assertNotEqual(only.status, 200, only)

    def test_without_a_lie(self):
        """Otherwise what follows says nothing."""
        with Lied("") as lied:
            for kind in KINDS:
                layers = lied.ask(kind).json["layers"]
                self.assertTrue(layers["recycled"], kind)
                self.assertEqual(layers["missing"], Lied.usual)
        with Lied("12345=EIO") as lied:  # the filter alone changes nothing
            for kind in KINDS:
                self.assertTrue(lied.stays_whole(kind), lied.ask(kind))

    def removal(self, name, rules, layer):
        """Kinds of runs that stay whole with the call refused for good do not depend on it."""
        hard = ",".join(rule.split("=")[0] + "=EIO" for rule in rules.split(","))
        with Lied(hard) as lied:
            depends = [kind for kind in KINDS if not lied.stays_whole(kind)]
        with Lied(rules) as lied:
            if name in KEPT:
                lied.ask("command")
                self.kept(lied, name, layer)
                return
            for kind in depends:
                with self.subTest(removal=name, kind=kind):
                    said = self.judge(kind, layer, lied.ask(kind))
                    if os.environ.get("CLOCHE_VERBOSE"):
                        print("   ", name, kind, said, flush=True)
                    if layer:
                        self.required(lied, kind, layer)


def add(row):
    def test(self):
        self.removal(*row)

    setattr(WarmLayers, "test_" + row[0].replace("-", "_"), test)


for removal in REMOVALS:
    add(removal)


if __name__ == "__main__":
    unittest.main()

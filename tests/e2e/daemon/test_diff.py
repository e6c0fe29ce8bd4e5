"""Which paths differ in two sandboxes, two snapshots, or one of each."""

import os
import unittest

import harness
import served
import test_disks

FIRST = ("cd /workspace; echo same > same; echo one > content; echo x > mode; ln -s a link; echo x > type;"
         " echo x > gone; mkdir -p d/e; echo x > d/e/f; ln d/e/f hard; setfattr -n user.a -v 1 same 2>/dev/null;"
         " echo h > ~/h; head -c 100000 /dev/zero > big; mkfifo p; truncate -s 1M holes")
SECOND = ("cd /workspace; touch same; echo two > content; chmod 600 mode; rm link type gone; ln -s b link;"
          " mkdir type; echo x > new; echo i > ~/i; printf x | dd of=big bs=1 seek=99999 conv=notrunc 2>/dev/null")
CHANGED = {"/workspace/content": "modified", "/workspace/mode": "modified", "/workspace/link": "modified",
           "/workspace/type": "modified", "/workspace/gone": "deleted", "/workspace/new": "added",
           "/home/user/i": "added", "/workspace/big": "modified"}


class Diff(harness.Case):
    options = {}

    def pair(self, **options):
        box = self.box(**options)
        box.sh(FIRST)
        made = box.post("/snapshot", {"name": "before"})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made.json["id"])
        box.sh(SECOND)
        return box, made.json["id"]

    def diff(self, a, b, token=None):
        reply = self.d.get("/v1/diff?from=%s&to=%s" % (a, b), token=token)
        self.assertEqual(reply.status, 200, reply)
        self.assertFalse(reply.json["truncated"])
        paths = [c["path"] for c in reply.json["changes"]]
        self.assertEqual(paths, sorted(paths))
        return {c["path"]: c["kind"] for c in reply.json["changes"]}

    def test_a_sandbox_and_its_snapshot(self):
        box, before = self.pair()
        kept = len(self.d.get("/v1/snapshots").json["snapshots"])
        self.assertEqual(self.diff(before, box.id), CHANGED)
        swap = {"added": "deleted", "deleted": "added"}
        self.assertEqual(self.diff(box.id, before), {p: swap.get(k, k) for p, k in CHANGED.items()})
        self.assertEqual(self.diff("before", box.id), CHANGED)
        self.assertEqual(self.diff(box.id, box.id), {})
        self.assertEqual(self.diff(before, before), {})
        self.assertEqual(len(self.d.get("/v1/snapshots").json["snapshots"]), kept)
        folder = os.path.join(self.d.dir, "state", "snapshots")
        harness.until(lambda: len([f for f in os.listdir(folder) if f.endswith(".meta")]) == kept, "the end of others")

    def test_a_fork_has_no_changes(self):
        box, _ = self.pair()
        fork = box.post("/fork").json["sandboxes"][0]["sandbox"]["id"]
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + fork)
        self.assertEqual(self.diff(box.id, fork), {})

    @unittest.skipUnless(harness.ROOT, "a daemon that is root: its sandboxes can write the root")
    def test_what_was_removed_from_the_image(self):
        box = self.box()
        box.sh("true")
        made = box.post("/snapshot").json["id"]
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made)
        box.sh("rm -r /usr/share/doc/bash; echo x > /usr/share/doc/new")
        found = self.diff(made, box.id)
        self.assertEqual(found.get("/usr/share/doc/bash"), "deleted")
        self.assertEqual(found.get("/usr/share/doc/new"), "added")

    @unittest.skipUnless(test_disks.has_loops(), "no loop devices, or no mkfs.ext4, or not root")
    def test_disks(self):
        box, before = self.pair(disk_type="disk", disk="64M")
        self.assertEqual(self.diff(before, box.id), CHANGED)

    def test_bad_input(self):
        box = self.box()
        for query, status in (("", 400), ("from=%s" % box.id, 400), ("from=&to=" + box.id, 400),
                              ("from=%s&to=none" % box.id, 404), ("from=%s&to=%s" % ("a" * 20, box.id), 404)):
            self.assertError(self.d.get("/v1/diff?" + query), status)
        other = self.d.token("diff-other")
        self.assertError(self.d.get("/v1/diff?from=%s&to=%s" % (box.id, box.id), token=other), 404)

    def test_many_paths_are_cut(self):
        box = self.box()
        made = box.post("/snapshot").json["id"]
        self.addCleanup(self.d.delete, "/v1/snapshots/" + made)
        box.sh("cd /workspace; seq 10050 | xargs touch")
        reply = self.d.get("/v1/diff?from=%s&to=%s" % (made, box.id)).json
        self.assertTrue(reply["truncated"])
        self.assertEqual(len(reply["changes"]), 10000)


class CommandLine(served.Case):
    def test_all(self):
        box = self.create("--name", "differs")
        self.cloche("exec", box, "sh", "-c", "echo x > /workspace/a", ok=0)
        self.cloche("snapshot", box, "earlier", ok=0)
        self.cloche("exec", box, "sh", "-c", "rm /workspace/a; echo x > /workspace/b", ok=0)
        done = self.cloche("diff", "earlier", "differs", ok=0)
        self.assertEqual(done.out, "deleted  /workspace/a\nadded    /workspace/b\n")
        self.assertEqual(self.cloche("diff", box, box, ok=0).out, "")
        self.cloche("diff", box, "nothing", ok=125)

"""A full disk: what is acknowledged holds, what cannot be written is an error, and ending always works."""

import os
import subprocess
import unittest

import cl
import harness


@unittest.skipUnless(harness.ROOT, "needs root, to mount a small file system")
class FullDisk(harness.Case):
    full = ""  # the directory, below the state directory, that has a small file system of its own

    @property
    def d(self):
        return self.own

    def setUp(self):
        self.own = harness.Daemon(config="pool_size: 0\n")
        self.state = os.path.join(self.own.dir, "state", self.full)
        os.makedirs(self.state, 0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", self.state],
                       check=True)
        self.addCleanup(self.own.remove)
        self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=True)
        self.own.start()
        self.addCleanup(self.own.stop)

    def fill(self):
        with open(os.path.join(self.state, "filler"), "wb", buffering=0) as out:
            for size in (65536, 4096, 512, 1):
                try:
                    while out.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def test_what_is_acknowledged_holds(self):
        boxes = {}
        for name in ("stop", "pause", "change", "keep", "delete", "stopped", "drop"):
            boxes[name] = harness.Box(self.d, metadata={"k": "old"})
            boxes[name].sh("echo %s > /workspace/f" % name)
        for name in ("stopped", "drop"):
            self.assertEqual(boxes[name].post("/stop").status, 200)
        self.fill()
        said = {
            "stop": boxes["stop"].post("/stop").status,
            "pause": boxes["pause"].post("/pause").status,
            "change": self.d.request("PATCH", boxes["change"].path, {"metadata": {"k": "new"}}).status,
            "stopped": boxes["stopped"].post("/start").status,
        }
        # Each is refused, or else it counts; a stop needs room for a snapshot, so that it cannot succeed.
        self.assertGreaterEqual(said["stop"], 500, said)
        self.assertGreaterEqual(said["change"], 500, said)
        for name in ("delete", "drop"):
            self.assertEqual(boxes[name].delete().status, 204)
        before = self.states(boxes)
        self.crash()
        os.unlink(os.path.join(self.state, "filler"))
        self.d.start()
        self.assertEqual(self.states(boxes), before)
        self.assertEqual(before["stop"], "running")
        self.assertEqual(before["pause"], "paused" if said["pause"] == 200 else "running")
        self.assertEqual(before["delete"], "gone")
        self.assertEqual(boxes["change"].get("").json["metadata"], {"k": "old"})
        if before["stopped"] == "stopped":
            self.assertEqual(boxes["stopped"].post("/start").status, 200)
        for name in ("stop", "change", "keep", "stopped"):
            self.assertEqual(boxes[name].sh("cat /workspace/f")["stdout"], name + "\n")
        # The disk was full, and still each end has its record.
        self.assertAudited(boxes["delete"], boxes["drop"])

    def assertAudited(self, *boxes):
        noted = self.d.get("/v1/audit?limit=1000").json["records"]
        destroyed = {r["target"] for r in noted if r["what"] == "sandbox.destroy"}
        self.assertLessEqual({box.id for box in boxes}, destroyed)
        subprocess.run([cl.CLOCHE, "audit", "verify"], env=self.d.env(), check=True,
                       stdout=subprocess.DEVNULL)

    def crash(self):
        self.d.process.kill()
        self.d.process.wait()

    def states(self, boxes):
        found = {name: box.get("") for name, box in boxes.items()}
        return {name: reply.json["state"] if reply.status == 200 and
                reply.json["state"] != "destroyed" else "gone" for name, reply in found.items()}


class FullLog(FullDisk):
    full = "audit"

    def test_what_is_acknowledged_holds(self):
        boxes = [harness.Box(self.d) for _ in range(3)]
        paused = harness.Box(self.d)
        self.fill()
        # The last block of the file has room for some records.
        harness.until(lambda: boxes[0].exec("true").status == 503, "the end of its last block")
        self.assertError(self.d.post("/v1/sandboxes", {}), 503, "busy")
        self.assertIn(paused.post("/pause").status, (200, 501))
        for box in boxes:
            self.assertEqual(box.delete().status, 204)
        self.assertAudited(*boxes)
        self.assertNotIn("no record of it", self.d.read_log())
        os.unlink(os.path.join(self.state, "filler"))
        harness.Box(self.d)


if __name__ == "__main__":
    unittest.main()

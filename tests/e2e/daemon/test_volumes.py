"""Volumes that clients make: disks that many sandboxes read, or one writes, and that outlive them."""

import glob
import http.client
import os
import signal
import threading
import unittest

import harness
import served
import test_disks
from harness import until


class Rootless(harness.Case):
    @unittest.skipIf(harness.ROOT, "a daemon that is not root")
    def test_refused_by_name(self):
        self.assertError(self.d.post("/v1/volumes", {"name": "v"}), 501, "unsupported")
        self.assertEqual(self.d.get("/v1/volumes").json, {"volumes": []})


class Case(test_disks.Case):
    def own_daemon(self, config="pool_size: 0\n"):
        return super().own_daemon(config)

    def volume(self, name, daemon=None, token=None, **options):
        d = daemon or self.d
        if "from_" in options:
            options["from"] = options.pop("from_")
        else:
            options.setdefault("size", "16M")
        reply = d.post("/v1/volumes", {"name": name, **options}, token=token)
        self.assertEqual(reply.status, 201, reply)
        self.addCleanup(d.delete, "/v1/volumes/" + reply.json["id"], token=token)
        return reply.json

    def with_volume(self, name, path="/data", writable=True, daemon=None, token=None, **options):
        box = harness.Box(daemon or self.d, token, volumes=[
            {"name": name, "path": path, "writable": writable}], **options)
        self.addCleanup(box.delete)
        return box

    def refused(self, name, writable=True, status=409, token=None):
        reply = self.d.post("/v1/sandboxes", {"volumes": [
            {"name": name, "path": "/data", "writable": writable}]}, token=token)
        self.assertError(reply, status)
        return reply

    def files(self, d):
        return sorted(os.listdir(os.path.join(d.dir, "state", "volumes")))


class Volumes(Case):
    def test_outlives_sandboxes(self):
        made = self.volume("keeps")
        self.assertEqual((made["kind"], made["size_bytes"], made["sandboxes"]), ("disk", 16 << 20, []))
        box = self.with_volume("keeps")
        record = box.sh("id -u; stat -c %u /data; echo one > /data/f; mkdir /data/d;"
                        " ln -s f /data/l; grep ' /data ' /proc/self/mountinfo")
        self.assertTrue(record["stdout"].startswith("1000\n1000\n"), record)
        for flag in ("nosuid", "nodev", "ext4"):
            self.assertIn(flag, record["stdout"])
        self.assertNotIn("disk", record["layers"]["missing"])
        box.delete()
        other = self.with_volume("keeps", "/workspace/in")
        self.assertEqual(other.sh("cat /workspace/in/l; stat -c %u /workspace/in/d")["stdout"], "one\n1000\n")

    def test_one_writes_or_many_read(self):
        self.volume("many")
        writer = self.with_volume("many")
        writer.sh("echo one > /data/f")
        self.refused("many")
        self.refused("many", writable=False)
        writer.delete()
        readers = [self.with_volume("many", writable=False) for _ in range(3)]
        for box in readers:
            record = box.sh("cat /data/f; echo two > /data/f")
            self.assertEqual(record["stdout"], "one\n")
            self.assertIn("Read-only file system", record["stderr"])
        self.refused("many")
        listed = self.d.get("/v1/volumes/many").json["sandboxes"]
        self.assertEqual({u["sandbox"] for u in listed}, {b.id for b in readers})
        for box in readers:
            box.delete()
        self.with_volume("many")

    def test_its_quota_is_its_size(self):
        self.volume("small", size="8M")
        box = self.with_volume("small")
        record = box.sh("for i in 1 2 3; do head -c 10000000 /dev/zero > /data/$i || break; done; du -sm /data")
        self.assertIn("No space left", record["stderr"])
        used = int(record["stdout"].split()[0])
        self.assertGreaterEqual(used, 8)
        self.assertLess(used, 28)

    def test_a_file_may_be_larger_than_the_sandbox(self):
        self.volume("large", size="32M")
        box = self.with_volume("large", disk="4M")
        self.assertEqual(box.sh("head -c 30000000 /dev/zero > /data/x; stat -c %s /data/x")["stdout"], "30000000\n")

    def test_a_copy_is_a_volume_of_its_own(self):
        self.volume("first")
        box = self.with_volume("first")
        box.sh("echo one > /data/f")
        self.assertError(self.d.post("/v1/volumes", {"name": "copy", "from": "first"}), 409, "conflict")
        box.delete()
        copy = self.volume("copy", from_="first")
        self.assertEqual((copy["from"], copy["size_bytes"]), ("first", 16 << 20))
        self.assertIsInstance(copy["shared"], bool)
        one, two = self.with_volume("first"), self.with_volume("copy")
        two.sh("echo two > /data/f")
        self.assertEqual(one.sh("cat /data/f")["stdout"], "one\n")
        self.assertEqual(two.sh("cat /data/f")["stdout"], "two\n")

    def test_is_not_deleted_while_a_sandbox_has_it(self):
        self.volume("held")
        box = self.with_volume("held")
        for act in (lambda: None, lambda: box.post("/pause"), lambda: box.post("/resume"),
                    lambda: box.post("/stop")):
            act()
            error = self.assertError(self.d.delete("/v1/volumes/held"), 409, "conflict")
            self.assertIn(box.id, error["message"])
        self.assertEqual(box.post("/start").json["state"], "running")
        box.delete()
        self.assertEqual(self.d.delete("/v1/volumes/held").status, 204)
        self.assertError(self.d.get("/v1/volumes/held"), 404)
        self.assertError(self.d.delete("/v1/volumes/held"), 404)
        self.refused("held", status=404)

    def test_runs_have_volumes(self):
        self.volume("runs")
        volumes = [{"name": "runs", "path": "/data", "writable": True}]
        for text in ("one", "two"):
            reply = self.d.post("/v1/run", {"cmd": ["sh", "-c", "cat /data/f; echo %s > /data/f" % text],
                                            "volumes": volumes})
            self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.json["stdout"], "one\n")

    def test_root_inside(self):
        self.volume("rooted")
        box = self.with_volume("rooted", user="root", root="ro")
        seen = box.sh("touch /data/f && chown 5:6 /data/f && cp /bin/sh /data/sh &&"
                      " chmod 4755 /data/sh; id -u; stat -c '%u %g' /data/f /data")["stdout"]
        self.assertEqual(seen, "0\n5 6\n1000 1000\n")
        box.delete()
        box = self.with_volume("rooted")
        self.assertEqual(box.sh("stat -c %u /data/f; /data/sh -pc 'id -u'")["stdout"], "5\n1000\n")

    def test_bad_input(self):
        self.volume("taken")
        for body, status, field in (
                ({}, 400, "name"), ({"name": ""}, 400, "name"), ({"name": "../x"}, 400, "name"),
                ({"name": ".x"}, 400, "name"), ({"name": "x" * 64}, 400, "name"),
                ({"name": "x", "size": "12Q"}, 400, "size"), ({"name": "x", "size": "10K"}, 400, "size"),
                ({"name": "x", "size": "1000T"}, 429, "size"), ({"name": "taken", "size": "1M"}, 409, "name"),
                ({"name": "x", "from": "nothing"}, 404, "from"),
                ({"name": "x", "from": "taken", "size": "1M"}, 400, "size"),
                ({"name": "x", "sise": "1M"}, 400, "sise")):
            self.assertError(self.d.post("/v1/volumes", body), status, field=field)
        for volumes, status in (
                ([{"name": "taken", "path": "/a"}, {"name": "taken", "path": "/b"}], 400),
                ([{"name": "taken", "path": "/a", "sub": "d"}], 400),
                ([{"name": "taken", "path": "/proc/x"}], 403), ([{"name": "taken", "path": "rel"}], 400)):
            self.assertError(self.d.post("/v1/sandboxes", {"volumes": volumes}), status, field="volumes")

    def test_another_token_knows_nothing_of_it(self):
        mine, other = self.d.token("volumes-mine"), self.d.token("volumes-other")
        made = self.volume("private", token=mine)
        self.assertEqual(self.d.get("/v1/volumes", token=other).json["volumes"], [])
        for what in ("private", made["id"]):
            self.assertError(self.d.get("/v1/volumes/" + what, token=other), 404)
            self.assertError(self.d.delete("/v1/volumes/" + what, token=other), 404)
        self.refused("private", status=404, token=other)
        self.assertError(self.d.post("/v1/volumes", {"name": "x", "from": "private"}, token=other), 404)
        own = self.volume("private", token=other)
        self.assertNotEqual(own["id"], made["id"])
        self.with_volume("private", token=mine).sh("echo mine > /data/f")
        self.assertEqual(self.with_volume("private", token=other).sh("ls -A /data")["stdout"], "")
        # The operator sees all, and by id.
        self.assertEqual(self.d.get("/v1/volumes/" + made["id"]).json["name"], "private")
        self.assertError(self.d.get("/v1/volumes/private"), 404)

    def test_ceilings(self):
        d = self.own_daemon("disks: {volume_max_bytes: 32M, volume_max_total: 100M, volume_max_count: 2}\n")
        few, some = d.token("few", "--disk-total", "20M"), d.token("some")
        self.assertError(d.post("/v1/volumes", {"name": "a", "size": "33M"}, token=some), 429, field="size")
        self.assertError(d.post("/v1/volumes", {"name": "a", "size": "21M"}, token=few), 429, field="size")
        self.volume("a", d, few, size="10M")
        self.assertError(d.post("/v1/volumes", {"name": "b", "size": "11M"}, token=few), 429, field="size")
        self.volume("a", d, some, size="32M")
        self.volume("b", d, some, size="20M")
        self.assertError(d.post("/v1/volumes", {"name": "c", "size": "1M"}, token=some), 429)
        third = d.token("third")
        error = self.assertError(d.post("/v1/volumes", {"name": "a", "size": "32M"}, token=third), 429)
        self.assertIn("share", error["message"])

    def test_audited(self):
        made = self.volume("audited")
        self.d.delete("/v1/volumes/" + made["id"])
        records = self.d.get("/v1/audit?target=audited&limit=10").json["records"]
        self.assertEqual([r["what"] for r in records], ["volume.create", "volume.delete"])


@unittest.skipUnless(test_disks.has_loops(), "no loop devices, or no mkfs.ext4, or not root")
class CommandLine(served.Case):
    def test_all(self):
        self.cloche("volume", "create", "--size", "8M", "cli", ok=0)
        box = self.create("--volume", "cli:/data:rw")
        self.cloche("exec", box, "sh", "-c", "echo x > /data/f", ok=0)
        refused = self.cloche("volume", "rm", "cli", ok=125)
        self.assertIn(box, refused.err)
        self.cloche("rm", box, ok=0)
        self.cloche("volume", "create", "--from", "cli", "cli2", ok=0)
        listed = self.cloche("volume", "ls", ok=0).out
        self.assertIn("cli2", listed)
        self.assertIn("8.0M", listed)
        box = self.create("--volume", "cli2:/data")
        self.assertEqual(self.cloche("exec", box, "cat", "/data/f", ok=0).out, "x\n")
        self.cloche("rm", box, ok=0)
        self.cloche("volume", "rm", "cli2", "cli", ok=0)


class Survive(Case):
    def test_restart_and_kill(self):
        d = self.own_daemon()
        self.volume("stays", d)
        box = self.with_volume("stays", daemon=d, ttl="1h")
        box.sh("echo one > /data/f")
        for end in (signal.SIGTERM, signal.SIGKILL):
            d.process.send_signal(end)
            d.process.wait()
            d.start()
            until(lambda: self.state(box) == "running", "its adoption")
            self.assertEqual(box.sh("cat /data/f")["stdout"], "one\n")
            # The lock is the mount's: no daemon has to remember it.
            reply = d.post("/v1/sandboxes", {"volumes": [{"name": "stays", "path": "/d"}]})
            self.assertError(reply, 409)
            self.assertError(d.delete("/v1/volumes/stays"), 409)
        box.delete()
        self.assertEqual(self.with_volume("stays", daemon=d, writable=False).sh("cat /data/f")["stdout"], "one\n")

    def test_reboot(self):
        d = self.own_daemon()
        self.volume("stays", d)
        box = self.with_volume("stays", daemon=d)
        box.sh("echo one > /data/f; sync")
        self.killed(d)
        d.start()
        self.assertEqual(self.with_volume("stays", daemon=d).sh("cat /data/f")["stdout"], "one\n")

    def test_a_journal_is_replayed_for_readers(self):
        d = self.own_daemon()
        made = self.volume("crashed", d)
        box = self.with_volume("crashed", daemon=d)
        path = os.path.join(d.dir, "state", "volumes", made["id"] + ".img")
        box.sh("echo one > /data/f; sync")
        with open(path, "rb") as f:
            before = f.read()
        box.delete()
        until(lambda: not self.loops(d), "the unmount")
        # As the host's crash leaves it: copied while it was mounted.
        with open(path, "r+b") as f:
            f.write(before)
        readers = [self.with_volume("crashed", daemon=d, writable=False) for _ in range(2)]
        for reader in readers:
            self.assertEqual(reader.sh("cat /data/f")["stdout"], "one\n")

    def test_what_is_unfinished_is_removed(self):
        d = self.own_daemon()
        made = self.volume("whole", d)
        d.stop()
        folder = os.path.join(d.dir, "state", "volumes")
        for name in ("a" * 20 + ".img", "b" * 20 + ".part", "c" * 20 + ".new"):
            with open(os.path.join(folder, name), "wb"):
                pass
        d.start()
        self.assertEqual(self.files(d), [made["id"] + ".img", made["id"] + ".meta"])

    def test_killed_while_it_is_made(self):
        d = self.own_daemon()
        for _ in range(4):
            request = threading.Thread(target=self.try_to_make, args=(d,))
            request.start()
            until(lambda: self.files(d), "a file of it")
            d.process.kill()
            request.join()
            d.process.wait()
            d.start()
            names = [v["id"] for v in d.get("/v1/volumes").json["volumes"]]
            self.assertEqual({f[:20] for f in self.files(d)}, set(names))
            for name in names:
                self.assertEqual(d.delete("/v1/volumes/" + name).status, 204)
            self.assertEqual(self.files(d), [])
            until(lambda: not self.loops(d), "the end of loop devices")

    def try_to_make(self, d):
        try:
            d.post("/v1/volumes", {"name": "early", "size": "64M"})
        except OSError:
            pass
        except http.client.HTTPException:
            pass


class Encrypted(test_disks.Keyed, Case):
    MARK = "a text that must not be found on any volume"

    def when_made(self, d, name, **options):
        options.setdefault("size", "16M")
        made = until(lambda: (r := d.post("/v1/volumes", {"name": name, **options})).status == 201 and r,
                     "the signer")
        return made.json

    def contents(self, d):
        found = b""
        for path in glob.glob(os.path.join(d.dir, "state", "volumes", "*.img")):
            with open(path, "rb") as f:
                found += f.read()
        return found

    def test_its_key_ends_with_the_last_copy(self):
        d = self.key_daemon()
        made = self.when_made(d, "v")
        self.assertTrue(made["encrypted"])
        self.assertEqual(len(self.keys(d)), 1)
        box = self.with_volume("v", daemon=d)
        box.sh("echo '%s' > /data/namedsecretly; sync" % self.MARK)
        box.delete()
        self.volume("copy", d, from_="v")
        for mark in (self.MARK.encode(), b"namedsecretly"):
            self.assertNotIn(mark, self.contents(d))
        d.process.kill()
        d.process.wait()
        d.start()
        for name in ("v", "copy"):
            box = until(lambda: self.ready(d, name), "the signer")
            self.assertEqual(box.sh("cat /data/namedsecretly")["stdout"], self.MARK + "\n")
            box.delete()
            self.assertEqual(len(self.keys(d)), 1)
            self.assertEqual(d.delete("/v1/volumes/" + name).status, 204)
        until(lambda: not self.keys(d), "the end of the key")

    def ready(self, d, name):
        try:
            return self.with_volume(name, daemon=d, writable=False)
        except AssertionError as error:
            if "not at hand" in str(error):
                return None
            raise

    def test_another_disk_does_not_open(self):
        d = self.key_daemon()
        ids = [self.when_made(d, name)["id"] for name in ("one", "two")]
        paths = [os.path.join(d.dir, "state", "volumes", i + ".img") for i in ids]
        os.rename(paths[0], paths[0] + ".away")
        os.rename(paths[1], paths[0])
        os.rename(paths[0] + ".away", paths[1])
        reply = d.post("/v1/sandboxes", {"volumes": [{"name": "one", "path": "/d"}]})
        self.assertError(reply, 403, "denied")

"""Sandboxes that live: create, find, change, states, snapshots, forks, events."""

import concurrent.futures
import os
import time
import unittest

import harness


class Sandboxes(harness.Case):
    def test_object(self):
        made = self.d.post("/v1/sandboxes", {"name": "one", "metadata": {"a": "b"}})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + made.json["id"])
        box = made.json
        self.assertRegex(box["id"], r"^[a-z0-9]{16,}$")
        self.assertEqual(
            (box["state"], box["name"], box["metadata"]), ("running", "one", {"a": "b"})
        )
        for key in ("image", "level", "provider", "created_at", "started_at", "expires_at",
                    "limits", "network", "layers", "exit_code"):
            self.assertIn(key, box)
        self.assertEqual(self.d.get("/v1/sandboxes/" + box["id"]).json["id"], box["id"])

    def test_limits_are_those_asked_for(self):
        box = self.box(memory="256M", pids=64, cpus=0.5, disk="64M")
        limits = box.get("").json["limits"]
        self.assertEqual(limits["memory"], 256 << 20)
        self.assertEqual((limits["pids"], limits["cpus"]), (64, 0.5))

    def test_tmpfs_of_its_own_size(self):
        """In a sandbox, after it was stopped and started, and in one run, which is cold then."""
        look = "stat -f -c '%T %b' /tmp /mnt/t; head -c 2M /dev/zero 2>/dev/null >/mnt/t/f; stat -c %s /mnt/t/f"
        says = "tmpfs 1024\ntmpfs 256\n1048576\n"
        tmpfs = ["/tmp:size=4M", "/mnt/t:size=1M"]
        box = self.box(tmpfs=tmpfs)
        self.assertEqual(box.sh(look)["stdout"], says)
        self.assertEqual(box.get("").json["layers"]["disk"], "tmpfs")
        box.post("/stop")
        box.post("/start")
        self.assertEqual(box.sh(look)["stdout"], says)
        self.assertEqual(self.d.post("/v1/run", {"shell": look, "tmpfs": tmpfs}).json["stdout"], says)
        for text in ("/tmp:size=100G", "/proc", "relative", "/tmp:x"):
            self.assertError(self.d.post("/v1/sandboxes", {"tmpfs": [text]}), 400, "invalid", "tmpfs")

    def test_required_layers_reach_a_sandbox_that_is_not_from_the_pool(self):
        reply = self.d.post("/v1/sandboxes", {"hostname": "own", "require": ["memory"]})
        if reply.status == 201:
            self.addCleanup(self.d.delete, "/v1/sandboxes/" + reply.json["id"])
            self.assertNotIn("memory", reply.json["layers"]["missing"])
        else:
            self.assertError(reply, 501, "unsupported", "require")

    def test_what_was_refused_is_not_in_the_list(self):
        """Nothing was made; whoever asked has the answer."""
        def failed():
            return [line for line in self.d.get("/metrics").body.decode().splitlines()
                    if line.startswith("cloche_sandboxes_failed_total ")]

        before = failed()
        for body, status in (({"volumes": [{"name": "nope", "path": "/v"}]}, 404),
                             ({"image": "nope"}, 404), ({"snapshot": "nope"}, 404),
                             ({"snapshot": "a" * 20}, 404)):
            with self.subTest(body):
                reply = self.d.post("/v1/sandboxes", {**body, "metadata": {"refused": "yes"}})
                self.assertError(reply, status, "not_found")
                self.assertEqual(self.d.get("/v1/sandboxes?metadata=refused%3Dyes").json["sandboxes"], [])
        self.assertEqual(failed(), before)

    def test_root_is_its_own(self):
        """What all have in common is made once, and must look as if it were not."""
        one, two = self.box(hostname="one"), self.box()
        self.assertIn("localhost one\n", one.sh("cat /etc/hosts")["stdout"])
        self.assertIn("localhost cloche\n", two.sh("cat /etc/hosts")["stdout"])
        if not harness.ROOT:
            return
        one.sh("echo mine > /own; rm /etc/passwd /etc/hosts; echo mine > /etc/hosts; echo x > /dev/null")
        self.assertEqual(one.sh("cat /own /etc/hosts; ls /etc/passwd 2>/dev/null")["stdout"], "mine\nmine\n")
        self.assertEqual(two.sh("ls /own 2>/dev/null; ls /etc/passwd")["stdout"], "/etc/passwd\n")
        self.assertEqual(self.box().sh("ls /own 2>/dev/null; ls /etc/passwd")["stdout"], "/etc/passwd\n")
        for place in ("/dev/x", "/etc/ssl/x", "/run/x", "/var/x"):
            self.assertNotEqual(one.sh("touch " + place)["exit_code"], 0, place)

    @unittest.skipUnless(harness.ROOT, "needs root")
    def test_devices_that_cannot_be_made(self):
        """As in many containers: the host's are shown, in what roots have in common, too."""
        daemon = harness.Daemon(under=["setpriv", "--bounding-set", "-mknod"])
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.stop)
        daemon.start()
        out = harness.Box(daemon).sh("head -c 8 /dev/urandom | wc -c; echo x > /dev/null && ls /dev/null /etc/passwd")
        self.assertEqual(out["stdout"], "8\n/dev/null\n/etc/passwd\n", out)

    def test_priority_is_the_usual(self):
        """Those of the pool are made at a lower one; it is not left to them."""
        for _ in range(3):
            box = self.box()
            record = box.post("/exec", {"cmd": ["nice"]}).json
            self.assertEqual(record["stdout"], "%d\n" % os.nice(0), record)

    def test_list_by_metadata_state_and_pages(self):
        mark = "m%d" % time.monotonic_ns()
        boxes = [self.box(metadata={"mark": mark, "n": str(i)}) for i in range(3)]
        query = "/v1/sandboxes?metadata=mark%3D" + mark
        found = self.d.get(query).json["sandboxes"]
        self.assertEqual([b["id"] for b in found], [b.id for b in boxes])
        found = self.d.get(query + "&metadata=n%3D1").json["sandboxes"]
        self.assertEqual([b["id"] for b in found], [boxes[1].id])
        self.assertEqual(self.d.get(query + "&state=paused").json["sandboxes"], [])
        seen, cursor = [], None
        for _ in range(5):
            page = self.d.get(query + "&limit=2" + ("&cursor=" + cursor if cursor else "")).json
            seen += [b["id"] for b in page["sandboxes"]]
            cursor = page["cursor"]
            if not cursor:
                break
        self.assertEqual(seen, [b.id for b in boxes])

    def test_change(self):
        box = self.box()
        path = "/v1/sandboxes/" + box.id
        reply = self.d.request("PATCH", path, {"metadata": {"x": "y"}, "ttl": 900})
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.json["metadata"], {"x": "y"})
        self.assertError(self.d.request("PATCH", path, {"bogus": 1}), 400, "invalid", "bogus")
        self.assertError(self.d.request("PATCH", path, {"net": "public"}), 400, "invalid")

    def test_destroy_is_idempotent(self):
        box = self.box()
        self.assertEqual(box.delete().status, 204)
        self.assertIn(box.delete().status, (204, 404))
        self.assertIn(box.exec("true").status, (404, 409))

    def test_unknown_ids(self):
        for name in ("nosuch", "a" * 20, "..", "%2e%2e", "a" * 500):
            reply = self.d.get("/v1/sandboxes/" + name)
            self.assertError(reply, 404, "not_found")

    def test_ttl_ends_it(self):
        box = self.box(ttl="1s")
        harness.until(
            lambda: box.get("").status == 404 or box.get("").json["state"] == "destroyed",
            "the end of its time",
        )

    def test_timeout_verb(self):
        box = self.box(ttl=300)
        before = box.get("").json["expires_at"]
        after = box.post("/timeout", {"ttl": 1000})
        self.assertEqual(after.status, 200, after)
        self.assertGreater(after.json["expires_at"], before)
        self.assertError(box.post("/timeout", {}), 400, "invalid", "ttl")

    def test_refusals(self):
        rows = [
            ({"bogus": 1}, 400, "bogus"),
            ({"memory": "lots"}, 400, "memory"),
            ({"on_timeout": "explode"}, 400, "on_timeout"),
            ({"metadata": {"a": 1}}, 400, "metadata"),
            ({"metadata": "a"}, 400, "metadata"),
            ({"name": "n" * 100}, 400, "name"),
            ({"ttl": "soon"}, 400, "ttl"),
            ({"net": "open"}, 400, "net"),
            ({"provider": "docker"}, 501, "provider"),
            ({"mount": ["/:/x"]}, 403, "mount"),
        ]
        for body, status, field in rows:
            with self.subTest(body=body):
                self.assertError(self.d.post("/v1/sandboxes", body), status, field=field)
        reply = self.d.post("/v1/sandboxes", {"volumes": [{"name": "nosuch", "path": "/x"}]})
        self.assertIn(reply.status, (400, 403, 404), reply)
        reply = self.d.post("/v1/sandboxes", {"snapshot": "nosuch"})
        self.assertIn(reply.status, (400, 404), reply)


    def test_disk_is_kept_in_memory(self):
        """What is written is kept in memory, so a change cannot make the disk the larger one."""
        box = self.box(memory="256M", disk="64M")
        self.assertError(box.daemon.request("PATCH", box.path, {"disk": "300M"}), 400, "invalid", "disk")
        self.assertEqual(box.get("").json["limits"]["disk"], 64 << 20)


class States(harness.Case):
    def pause(self, box):
        reply = box.post("/pause")
        if reply.status == 501:
            self.skipTest("this host cannot pause: " + reply.error["message"])
        self.assertEqual((reply.status, reply.json["state"]), (200, "paused"))

    def test_pause_and_resume(self):
        box = self.box()
        box.sh("echo kept > f")
        self.pause(box)
        self.assertError(box.exec("true"), 409, "conflict")
        self.assertError(box.get("/files?path=f"), 409, "conflict")
        self.assertEqual(box.post("/resume").json["state"], "running")
        self.assertEqual(box.sh("cat f")["stdout"], "kept\n")

    def test_a_snapshot_does_not_wake(self):
        """A paused sandbox stays frozen while its files are copied, and afterwards."""
        box = self.box()
        box.start(shell="while :; do date +%s.%N >> /tmp/ticks; sleep 0.02; done")
        harness.until(lambda: box.sh("cat /tmp/ticks 2>/dev/null || true")["stdout"], "ticks")
        self.assertEqual(box.post("/pause").json["state"], "paused")
        paused = time.time()
        snapshot = box.post("/snapshot", {"name": "frozen"})
        self.assertEqual(snapshot.status, 201, snapshot)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + snapshot.json["id"])
        time.sleep(0.5)
        resumed = time.time()
        self.assertEqual(box.post("/resume").json["state"], "running")
        ticks = [float(t) for t in box.sh("cat /tmp/ticks")["stdout"].split()]
        self.assertEqual([t for t in ticks if paused + 0.05 < t < resumed], [])

    def test_auto_resume(self):
        box = self.box(auto_resume=True)
        self.pause(box)
        self.assertEqual(box.sh("echo hi")["stdout"], "hi\n")

    def test_stop_and_start_keep_files(self):
        box = self.box()
        box.sh("echo kept > f")
        self.assertEqual(box.post("/stop").json["state"], "stopped")
        self.assertError(box.exec("true"), 409, "conflict")
        self.assertEqual(box.post("/start").json["state"], "running")
        self.assertEqual(box.sh("cat f")["stdout"], "kept\n")
        self.assertEqual(box.post("/restart").json["state"], "running")
        self.assertEqual(box.sh("cat f")["stdout"], "kept\n")

    def test_wait(self):
        box = self.box()
        self.assertEqual(box.get("/wait?timeout=0").json["state"], "running")
        self.assertEqual(box.get("/wait?state=running").json["state"], "running")
        with box.stream("GET", "/files/watch?path=/tmp") as s:  # anything that takes its time
            self.assertEqual(s.status, 200)
            self.assertEqual(box.delete().status, 204)
        self.assertIn(box.get("/wait?timeout=20").status, (200, 404))
        self.assertError(box.get("/wait?state=bogus"), 400)

    def test_stats_and_health(self):
        box = self.box()
        box.sh("true")
        stats = box.get("/stats").json
        for key in ("memory_bytes", "memory_limit_bytes", "memory_peak_bytes", "cpu_ms",
                    "cpu_percent", "pids", "disk_bytes", "net_rx_bytes", "net_tx_bytes",
                    "io_read_bytes", "io_write_bytes", "history"):
            self.assertIn(key, stats)
        self.assertTrue(box.get("/health").json["healthy"])
        self.assertIn(box.id, [s["id"] for s in self.d.get("/v1/stats").json["sandboxes"]])

    def test_snapshot_and_new_from_it(self):
        box = self.box()
        box.sh("mkdir -p d && echo one > d/f && ln -s f d/l && echo h > ~/h")
        snap = box.post("/snapshot", {"name": "mine"})
        self.assertEqual(snap.status, 201, snap)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + snap.json["id"])
        self.assertRegex(snap.json["digest"], "^sha256:[0-9a-f]{64}$")
        self.assertIn("/tmp", snap.json["excluded"])
        box.sh("echo two > d/f")
        other = self.box(snapshot=snap.json["id"])
        self.assertEqual(other.sh("cat d/f d/l ~/h")["stdout"], "one\none\nh\n")
        ids = [s["id"] for s in self.d.get("/v1/snapshots").json["snapshots"]]
        self.assertIn(snap.json["id"], ids)

    def test_snapshot_as_tar_and_back(self):
        box = self.box()
        box.sh("echo one > f")
        snap = box.post("/snapshot", {}).json
        self.addCleanup(self.d.delete, "/v1/snapshots/" + snap["id"])
        tar = self.d.get("/v1/snapshots/%s/tar" % snap["id"])
        self.assertEqual(tar.status, 200)
        self.assertEqual(len(tar.body), snap["size_bytes"])
        again = self.d.put("/v1/snapshots/again/tar", tar.body)
        self.assertEqual(again.status, 201, again)
        self.addCleanup(self.d.delete, "/v1/snapshots/" + again.json["id"])
        self.assertEqual(again.json["digest"], snap["digest"])
        other = self.box(snapshot=again.json["id"])
        self.assertEqual(other.sh("cat f")["stdout"], "one\n")
        bad = self.d.put("/v1/snapshots/bad/tar", b"this is no tar" * 100)
        self.assertGreaterEqual(bad.status, 400, bad)
        self.assertError(self.d.get("/v1/snapshots/nosuch/tar"), 404)

    def test_snapshot_delete(self):
        box = self.box()
        snap = box.post("/snapshot", {}).json
        self.assertEqual(self.d.delete("/v1/snapshots/" + snap["id"]).status, 204)
        self.assertError(self.d.get("/v1/snapshots/%s/tar" % snap["id"]), 404)

    def test_fork(self):
        box = self.box()
        box.sh("echo one > f")
        reply = box.post("/fork", {"count": 2})
        self.assertEqual(reply.status, 201, reply)
        forks = [row["sandbox"] for row in reply.json["sandboxes"]]
        for fork in forks:
            self.addCleanup(self.d.delete, "/v1/sandboxes/" + fork["id"])
        self.assertEqual(len({f["id"] for f in forks} | {box.id}), 3)
        for fork in forks:
            out = self.d.post("/v1/sandboxes/%s/exec" % fork["id"], {"cmd": ["cat", "f"]}).json
            self.assertEqual(out["stdout"], "one\n")
        self.assertError(box.post("/fork", {"count": 0}), 400, "invalid", "count")
        self.assertError(box.post("/snapshot", {"name": "n" * 200}), 400, "invalid", "name")
        self.assertError(box.get("/wait?state=green"), 400, "invalid", "state")

    def test_events(self):
        box = self.box()
        with self.d.stream("GET", "/v1/events?from=1&sandbox=" + box.id) as s:
            self.assertEqual(s.headers["Content-Type"], "text/event-stream")
            box.delete()
            seen = []
            for name, data in s.events():
                self.assertEqual(data["sandbox"], box.id)
                seen.append(name)
                if name == "sandbox.destroyed":
                    break
        self.assertIn("sandbox.running", seen)

    def test_events_of_another_count(self):
        """Numbers begin anew with a new front: who comes back with old ones sees all of the new ones."""
        box = self.box()
        with self.d.stream("GET", "/v1/events?from=1&sandbox=" + box.id) as s:
            _, first = next(s.events())
            self.assertEqual(first["epoch"], s.headers["Cloche-Epoch"])
        late = "/v1/events?from=%d&sandbox=%s" % (first["seq"] + 100000, box.id)
        with self.d.stream("GET", late + "&epoch=another") as s:
            self.assertEqual(next(s.events())[1], first)
        with self.d.stream("GET", late + "&epoch=" + first["epoch"]) as s:
            box.delete()
            self.assertNotEqual(next(s.events())[1], first)


class Idempotency(harness.Case):
    def send(self, path, body, key, token=None):
        return self.d.post(path, body, headers={"Idempotency-Key": key}, token=token)

    def test_the_second_gets_the_first_answer(self):
        key = os.urandom(8).hex()
        first = self.send("/v1/sandboxes", {"name": "once"}, key)
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + first.json["id"])
        again = self.send("/v1/sandboxes", {"name": "once"}, key)
        self.assertEqual((first.status, again.status, again.body), (201, 201, first.body))
        self.assertEqual(again.headers["Idempotency-Replayed"], "true")
        self.assertIsNone(first.headers["Idempotency-Replayed"])
        self.assertError(self.send("/v1/sandboxes", {"name": "twice"}, key), 409)
        other = self.send("/v1/sandboxes", {"name": "once"}, key, token=self.d.token("idem"))
        self.assertEqual(other.status, 201)
        self.assertNotEqual(other.json["id"], first.json["id"])
        self.d.delete("/v1/sandboxes/" + other.json["id"])
        run = [self.send("/v1/run", {"shell": "date +%N"}, key).json["stdout"] for _ in range(2)]
        self.assertEqual(run[0], run[1])

    def test_while_the_first_runs_and_after_a_failure(self):
        key = os.urandom(8).hex()
        box = harness.Box(self.d)
        self.addCleanup(box.delete)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            slow = pool.submit(self.send, box.path + "/exec", {"shell": "sleep 1; echo x"}, key)
            harness.until(lambda: box.get("/execs").json, "the command")
            self.assertError(self.send(box.path + "/exec", {"shell": "sleep 1; echo x"}, key), 409)
            self.assertEqual(slow.result().json["stdout"], "x\n")
        for _ in range(2):
            refused = self.send("/v1/sandboxes", {"memory": "9999G"}, key)
            self.assertEqual((refused.status, refused.headers["Idempotency-Replayed"]), (403, None))
        self.assertError(self.send("/v1/run", {"cmd": ["true"]}, "a b"), 400, "invalid", "Idempotency-Key")
        self.assertError(self.send("/v1/run", {"cmd": ["true"]}, "k" * 256), 400)

    def test_a_tenant_pushes_out_only_its_own(self):
        a, b = self.d.token("idem-a"), self.d.token("idem-b")
        body = {"code": "import os; print(os.urandom(4).hex())", "language": "python"}
        first = {key: [self.send("/v1/run", body, "0", token=key).body] for key in (a, b)}
        for i in range(1, 257):
            self.assertEqual(self.send("/v1/run", body, str(i), token=a).status, 200)
        for key in (a, b):
            first[key].append(self.send("/v1/run", body, "0", token=key).body)
        self.assertEqual(*first[b])
        self.assertNotEqual(*first[a])


if __name__ == "__main__":
    unittest.main()

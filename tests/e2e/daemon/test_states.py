"""Sandboxes through their states: who may do what when, limits, times, tenants."""

import json
import re
import time
import unittest

import cl
import harness
from harness import until


def state_of(box):
    reply = box.get("")
    return reply.json["state"] if reply.status == 200 else "gone"


class Base(harness.Case):
    def pause(self, box):
        reply = box.post("/pause")
        if reply.status == 501:
            self.skipTest("this host cannot pause: " + reply.error["message"])
        self.assertEqual(reply.status, 200, reply)
        return reply.json


class States(Base):
    def test_object(self):
        made = self.d.post("/v1/sandboxes", {"name": "n", "metadata": {"a": "b"}, "ttl": "90s"})
        self.assertEqual(made.status, 201, made)
        box = made.json
        self.addCleanup(self.d.delete, "/v1/sandboxes/" + box["id"])
        self.assertRegex(box["id"], r"^[a-z0-9]{16,}$")
        self.assertEqual(box["state"], "running")
        self.assertEqual(box["name"], "n")
        self.assertEqual(box["metadata"], {"a": "b"})
        self.assertEqual(box["network"], "none")
        for name in ("image", "level", "provider", "created_at", "started_at", "expires_at",
                     "limits", "layers", "exit_code"):
            self.assertIn(name, box)
        self.assertEqual(self.d.get("/v1/sandboxes/" + box["id"]).json["id"], box["id"])

    def test_destroy_is_complete_and_idempotent(self):
        box = self.box()
        running = box.start(shell="sleep 1000")
        self.assertTrue(running)
        for _ in range(3):
            self.assertIn(box.delete().status, (200, 204))
        self.assertEqual(state_of(box), "destroyed")
        self.assertError(box.exec("true"), 409, "conflict")
        unknown = self.d.get("/v1/sandboxes/" + "a" * 20)
        self.assertError(unknown, 404, "not_found")

    def test_pause_and_resume(self):
        box = self.box()
        counter = "i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.01; done"
        box.start(shell=counter)
        until(lambda: box.sh("cat /tmp/n")["stdout"], "the counter")
        self.assertEqual(self.pause(box)["state"], "paused")
        self.assertEqual(box.post("/pause").status, 200)
        self.assertError(box.exec("true"), 409, "conflict")
        self.assertError(box.get("/files?path=/tmp/n"), 409, "conflict")
        self.assertEqual(box.post("/resume").json["state"], "running")
        before = int(box.sh("cat /tmp/n")["stdout"] or 0)
        until(lambda: int(box.sh("cat /tmp/n")["stdout"] or 0) > before, "the counter's going on")

    def test_pause_while_one_waits_for_its_vforked_child(self):
        """The child opens a pipe that nobody writes to before it executes; until then its parent cannot be stopped."""
        box = self.box()
        box.start(cmd=["python3", "-c", "import os; os.mkfifo('/tmp/p'); os.posix_spawn('/bin/echo', ['echo', 'done'], {},"
                       " file_actions=[(os.POSIX_SPAWN_OPEN, 0, '/tmp/p', os.O_RDONLY, 0),"
                       " (os.POSIX_SPAWN_OPEN, 1, '/tmp/said', os.O_WRONLY | os.O_CREAT, 0o600)])"])
        until(lambda: box.sh("[ -p /tmp/p ] && grep -l '^State:.D' /proc/[0-9]*/status")["stdout"], "the parent's waiting")
        self.assertEqual(self.pause(box)["state"], "paused")
        self.assertEqual(box.post("/resume").json["state"], "running")
        said = box.sh(": >/tmp/p; until grep done /tmp/said; do sleep 0.01; done")
        self.assertEqual(said["stdout"], "done\n", said)

    def test_auto_resume(self):
        box = self.box(auto_resume=True)
        self.pause(box)
        self.assertEqual(box.sh("echo awake")["stdout"], "awake\n")
        self.assertEqual(state_of(box), "running")

    def test_paused_can_be_destroyed(self):
        box = self.box()
        box.start(shell="sleep 1000")
        self.pause(box)
        self.assertIn(box.delete().status, (200, 204))
        self.assertEqual(state_of(box), "destroyed")

    def test_stop_keeps_files_and_ends_processes(self):
        box = self.box()
        box.start(shell="sleep 4321")
        box.sh("echo kept > /workspace/f; echo lost > /tmp/f")
        self.assertEqual(box.post("/stop").json["state"], "stopped")
        self.assertEqual(box.post("/stop").status, 200)
        self.assertError(box.exec("true"), 409, "conflict")
        self.assertError(box.post("/pause"), 409, "conflict")
        self.assertEqual(box.post("/start").json["state"], "running")
        seen = box.sh("cat /workspace/f; ls /tmp; grep -c 4321 /proc/[0-9]*/cmdline | grep -v :0")
        self.assertTrue(seen["stdout"].startswith("kept\n"), seen)
        self.assertNotIn("lost", seen["stdout"])
        self.assertEqual(box.post("/stop").status, 200)
        self.assertIn(box.delete().status, (200, 204))

    def test_restart(self):
        box = self.box()
        box.sh("echo kept > /workspace/f")
        self.assertEqual(box.post("/restart").status, 200)
        self.assertEqual(box.sh("cat /workspace/f")["stdout"], "kept\n")

    def test_time_is_over(self):
        killed = self.box(ttl="1s")
        until(lambda: state_of(killed) in ("destroyed", "gone"), "the end of its time")

    def test_time_is_over_and_it_is_paused(self):
        self.pause(self.box())
        box = self.box(ttl="1s", on_timeout="pause")
        until(lambda: state_of(box) == "paused", "its pause")
        self.assertEqual(box.post("/resume").status, 200)

    def test_idle_for_too_long(self):
        box = self.box(idle_timeout="1s")
        until(lambda: state_of(box) in ("destroyed", "gone"), "its end")

    def test_a_background_command_is_no_idleness(self):
        box = self.box(idle_timeout="1s")
        box.start(shell="while [ ! -e /tmp/end ]; do sleep 0.1; done")
        time.sleep(2.5)  # more than twice its idle time
        self.assertEqual(state_of(box), "running")
        box.sh("touch /tmp/end")
        until(lambda: state_of(box) in ("destroyed", "gone"), "its end")

    def test_change(self):
        box = self.box()
        changed = self.d.request("PATCH", box.path, {
            "memory": "64M", "disk": "32M", "ttl": "1000s", "metadata": {"x": "y"}})
        if changed.status == 501 and not harness.ROOT:
            self.skipTest("this host cannot: " + changed.error["message"])
        self.assertEqual(changed.status, 200, changed)
        self.assertEqual(changed.json["limits"]["memory"], 64 << 20)
        self.assertEqual(changed.json["metadata"], {"x": "y"})
        self.assertEqual(box.sh("echo still here")["stdout"], "still here\n")
        self.assertError(self.d.request("PATCH", box.path, {"memory": "900T"}), 403, "denied")
        self.assertError(self.d.request("PATCH", box.path, {"colour": 1}), 400, "invalid")

    def test_stats_and_health(self):
        box = self.box()
        box.start(cmd=["sleep", "600"])
        stats = box.get("/stats").json
        # Without a cgroup the guest is asked.
        self.assertEqual(stats["pids"], 1, stats)
        self.assertGreater(stats["memory_bytes"], 0)
        self.assertEqual(stats["memory_limit_bytes"], box.get("").json["limits"]["memory"])
        for name in ("memory_bytes", "memory_limit_bytes", "cpu_ms", "cpu_percent", "pids",
                     "disk_bytes", "net_rx_bytes", "io_read_bytes", "history"):
            self.assertIn(name, stats)
        self.assertTrue(stats["history"])
        for name in ("time", "memory_bytes", "cpu_percent", "pids", "disk_bytes", "net_rx_bytes", "io_write_bytes"):
            self.assertIn(name, stats["history"][0])
        self.assertTrue(box.get("/health").json["healthy"])
        everybody = self.d.get("/v1/stats").json["sandboxes"]
        self.assertIn(box.id, [s["id"] for s in everybody])

    def test_wait(self):
        box = self.box(ttl="1s")
        reply = box.get("/wait")
        self.assertEqual(reply.status, 200, reply)
        self.assertIn(reply.json["state"], ("destroyed", "failed"))

    def test_wait_for_a_time(self):
        box = harness.Box(self.d)
        for text in ("0", "50ms", "0.05"):
            reply = box.get("/wait?timeout=" + text)
            self.assertEqual((reply.status, reply.json["state"]), (200, "running"))
        self.assertError(box.get("/wait?timeout=soon"), 400, "invalid", "timeout")
        self.assertError(box.get("/wait?timeout=2h"), 400, "invalid", "timeout")

    def test_events(self):
        with self.d.stream("GET", "/v1/events",
                           headers={"Accept": "text/event-stream"}) as events:
            box = self.box()
            seen = []
            for _, event in events.events():
                if event.get("sandbox") == box.id:
                    seen.append(event["type"])
                    if event["type"] == "sandbox.running":
                        break
        self.assertIn("sandbox.running", seen)


class Lists(Base):
    def ids(self, query):
        reply = self.d.get("/v1/sandboxes" + query)
        self.assertEqual(reply.status, 200, reply)
        return [s["id"] for s in reply.json["sandboxes"]], reply.json["cursor"]

    def test_filters_and_pages(self):
        boxes = [self.box(metadata={"suite": "pages", "odd": str(i % 2)}) for i in range(5)]
        every, cursor = self.ids("?metadata=suite=pages")
        self.assertEqual(every, [b.id for b in boxes])
        self.assertIsNone(cursor)
        odd, _ = self.ids("?metadata=suite=pages&metadata=odd=1")
        self.assertEqual(odd, [boxes[1].id, boxes[3].id])
        paged, cursor = [], ""
        for _ in range(10):
            page, cursor = self.ids("?metadata=suite=pages&limit=2&cursor=%s" % (cursor or ""))
            self.assertLessEqual(len(page), 2)
            paged += page
            if not cursor:
                break
        self.assertEqual(paged, every)
        self.assertEqual(boxes[0].post("/stop").status, 200)
        self.assertEqual(self.ids("?metadata=suite=pages&state=stopped")[0], [boxes[0].id])
        self.assertError(self.d.get("/v1/sandboxes?state=green"), 400, "invalid")
        self.assertError(self.d.get("/v1/sandboxes?metadata=suite"), 400, "invalid", "metadata")
        self.assertError(self.d.get("/v1/sandboxes?cursor=nonsense"), 400, "invalid")


class Tenants(harness.Case):
    def test_they_do_not_see_each_other(self):
        a, b = self.d.token("state-a"), self.d.token("state-b")
        box = self.box(token=a)
        foreign = self.d.get("/v1/sandboxes/" + box.id, token=b)
        unknown = self.d.get("/v1/sandboxes/" + "a" * 20, token=b)
        self.assertEqual((foreign.status, foreign.body), (unknown.status, unknown.body))
        for method, path in (("DELETE", ""), ("POST", "/pause"), ("POST", "/exec"),
                             ("GET", "/files?path=/"), ("POST", "/snapshot")):
            body = {"cmd": ["true"]} if path == "/exec" else None
            reply = self.d.request(method, box.path + path, body, token=b)
            self.assertEqual(reply.status, 404, reply)
        mine = self.d.get("/v1/sandboxes", token=b).json["sandboxes"]
        self.assertNotIn(box.id, json.dumps(mine))
        self.assertEqual(self.d.delete("/v1/sandboxes", token=b).status, 200)
        self.assertEqual(state_of(box), "running")

    def test_each_has_its_limit(self):
        key = self.d.token("state-small", "--sandboxes", "2")
        boxes = [self.box(token=key) for _ in range(2)]
        refused = self.d.post("/v1/sandboxes", {}, token=key)
        self.assertError(refused, 429)
        self.assertTrue(re.match(r"\d+$", refused.headers["Retry-After"] or ""), refused)
        boxes[0].delete()
        self.box(token=key)


class Limits(harness.Case):
    def test_disk_is_full(self):
        box = self.box(disk="8M", memory="64M")
        record = box.sh("head -c 20M /dev/zero > /workspace/x")
        self.assertEqual(record["status"], "exited")
        self.assertIn("disk", record["limits_hit"], record)
        self.assertIn("disk", [d["target"] for d in record["denials"]])
        self.assertEqual(box.sh("rm /workspace/x; false")["limits_hit"], [])

    @unittest.skipUnless(harness.ROOT, cl.ONLY_ROOT + "needs cgroups")
    def test_memory_and_processes(self):
        box = self.box(memory="64M", disk="8M", pids=20)
        record = box.sh("python3 -c 'x = bytearray(200 << 20)'")
        self.assertEqual((record["status"], record["oom_killed"]), ("oom", True), record)
        # (bash would wait for a while and try again.)
        many = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); sleep 30 & done; exit 1"
        record = box.exec("dash", "-c", many).json
        self.assertIn("pids", record["limits_hit"], record)
        self.assertFalse(box.sh("exit 3")["oom_killed"])

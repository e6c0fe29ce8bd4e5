"""One tenant keeps the daemon busy; another must hardly notice. Waits are compared with each other, never with a
clock's idea of fast: the attacks here made others wait for seconds."""

import http.client
import os
import threading
import time
import unittest
import zlib

import harness
import served
import test_kernels

# Finds the descriptor of the kernel's protocol, as hostile code would.
FORGE = """
import fcntl, os
fd = next(f for f in range(100, 130) if os.path.exists('/proc/self/fd/%d' % f) and fcntl.fcntl(f, fcntl.F_GETFL) & 3)
def put(b):
    while b:
        b = b[os.write(fd, b):]
"""


class Waits(threading.Thread):
    """How long another tenant's small requests take meanwhile."""

    def __init__(self, daemon, key):
        super().__init__(daemon=True)
        self.port, self.key, self.over, self.all = daemon.port, key, False, []
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.over:
            begun = time.monotonic()
            connection.request("GET", "/v1/sandboxes", headers={"Authorization": "Bearer " + self.key})
            connection.getresponse().read()
            self.all.append(time.monotonic() - begun)
            time.sleep(0.002)
        connection.close()

    def worst(self):
        self.over = True
        self.join()
        return max(self.all)


class Fair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(config="snapshots:\n  max_total: 64M\n").start()
        cls.addClassCleanup(cls.daemon.remove)
        cls.addClassCleanup(cls.daemon.stop)
        cls.key = cls.daemon.token("busy", "--e2b")
        cls.other = cls.daemon.token("other")

    def assert_fair(self, attack):
        """Most of an attack's work once was one piece, in which nobody else was served."""
        waits = Waits(self.daemon, self.other)
        begun = time.monotonic()
        attack()
        took = time.monotonic() - begun
        self.assertLess(waits.worst(), max(0.3, took / 8))

    def execute(self, box, code):
        status, text = box.port("POST", "/execute", {"code": FORGE + code})
        self.assertEqual(status, 200, text)
        self.assertIn("end_of_execution", text)

    def test_an_unfinished_line_is_looked_at_once(self):
        box = test_kernels.Box(self.daemon, self.key)
        self.addCleanup(box.end)
        code = "put(b'x' * ((9 << 20) - 70000))\nfor _ in range(60000): put(b'x')\nput(bytes([10]))\n"
        self.assert_fair(lambda: self.execute(box, code))

    def test_long_lines_are_not_built(self):
        box = test_kernels.Box(self.daemon, self.key)
        self.addCleanup(box.end)
        code = (
            "import inspect\nline = b'{\"id\": %d, \"type\": \"result\", \"data\": [' % {id} + b'0,' * (4 << 20)"
            " + b'0]}\\n'\nfor _ in range(3): put(line)\n"
        )
        # The id of an execution is the kernel's business; any number will do to have the line read.
        self.assert_fair(lambda: self.execute(box, code.replace("{id}", "1")))

    def test_a_long_result_arrives_whole(self):
        box = test_kernels.Box(self.daemon, self.key)
        self.addCleanup(box.end)
        value = box.run("'ab' * 100000")[1]
        self.assertEqual(value, "ab" * 100000)
        printed = box.run("print('\\u00e9' * 60000)")[0]
        self.assertEqual(printed, "\u00e9" * 60000 + "\n")

    def upload(self, box, name, mb, level=9):
        """level 0: as long as it is inflated."""
        packer = zlib.compressobj(level, zlib.DEFLATED, 31)
        head = '--B\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n' % name
        body = packer.compress(head.encode())
        for _ in range(mb):
            body += packer.compress(bytes(1 << 20))
        body += packer.compress(b"\r\n--B--\r\n") + packer.flush()
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
        connection.request("POST", "/files?path=/tmp/x&username=user", body, {
            "Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=B",
            "E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": "49983",
            "X-Access-Token": box.sandbox["envdAccessToken"],
        })
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text

    def test_gzip_bombs_are_refused(self):
        box = test_kernels.Box(self.daemon, self.key, "base")
        self.addCleanup(box.end)
        for name, mb, expect in (("other", 80, 413), ("file", 80, 413), ("file", 8, 200)):
            with self.subTest(name=name, mb=mb):
                answers = []
                self.assert_fair(lambda name=name, mb=mb: answers.append(self.upload(box, name, mb)))
                self.assertEqual(answers[0][0], expect, answers)
        status, text = self.upload(box, "other", 2, level=0)
        self.assertEqual(status, 413, text)
        self.assertIn("not named 'file'", text)


class Admission(served.Case):
    settings = "pool_size: 0\nmemory_total: 8G\ndisk_total: 8G\nsandbox:\n  memory_limit: 512M\n  disk_limit: 64M\n"

    def tearDown(self):
        self.daemon.delete("/v1/sandboxes")

    def create(self, key=None, **body):
        return self.daemon.post("/v1/sandboxes", body, token=key)

    def test_a_burst_of_one_token_does_not_delay_another(self):
        busy, other = self.daemon.token("busy"), self.daemon.token("other")
        done = []
        burst = [
            threading.Thread(target=lambda: done.append(self.create(busy, memory="16M", disk="8M").status))
            for _ in range(60)
        ]
        for thread in burst:
            thread.start()
        harness.until(lambda: done, "the first of the burst")
        self.assertEqual(self.create(other, memory="16M", disk="8M").status, 201)
        before = len(done)
        for thread in burst:
            thread.join()
        self.assertEqual(set(done), {201})
        self.assertLess(before, 45)

    def test_a_token_has_a_share_of_the_memory(self):
        greedy, late = self.daemon.token("greedy"), self.daemon.token("late")
        answers = [self.create(greedy) for _ in range(15)]
        # Of 8 GB the operator keeps a tenth, and the first token may have four fifths of the rest.
        self.assertEqual([a.status for a in answers], [201] * 11 + [429] * 4)
        self.assertIn("memory for sandboxes", answers[-1].error["message"])
        self.assertIn("Retry-After", answers[-1].headers)
        self.assertEqual(self.create(late).status, 201)
        self.assertEqual(self.create().status, 201)
        box = answers[0].json["id"]
        grown = self.daemon.request("PATCH", "/v1/sandboxes/" + box, {"memory": "2G"}, token=greedy)
        self.assertEqual(grown.status, 429, grown)
        self.daemon.delete("/v1/sandboxes")
        self.assertEqual(self.create(greedy, memory="5G").status, 201)

    def test_a_token_has_totals_of_its_own(self):
        key = self.daemon.token("small", "--memory-total", "1G", "--disk-total", "100M")
        self.assertEqual(self.create(key).status, 201)
        for body, name in (({"memory": "600M", "disk": "1M"}, "memory_total"), ({"memory": "64M"}, "disk_total")):
            refused = self.create(key, **body)
            self.assertEqual(refused.status, 429, refused)
            self.assertIn(name, refused.error["message"])
        self.assertEqual(self.create(key, memory="512M", disk="32M").status, 201)

    def test_nothing_is_booted_while_the_host_is_short_of_memory(self):
        self.daemon.write_settings(self.settings + "memory_reserve: 1000T\n")
        before = self.daemon.read_log().count("configuration read again")
        self.daemon.reload()
        harness.until(lambda: self.daemon.read_log().count("configuration read again") > before, "the reload")
        done = []
        waiting = threading.Thread(target=lambda: done.append(self.create().status))
        waiting.start()
        waiting.join(0.5)
        self.assertEqual(done, [])
        self.daemon.write_settings(self.settings)
        self.daemon.reload()
        waiting.join(harness.DEADLINE)
        self.assertEqual(done, [201])


class Groups(served.Case):
    """The cgroups of one owner are in one group, so that the kernel shares out processors among owners."""

    settings = "pool_size: 1\n"

    def made(self, name):
        """Paths of all cgroups with this in the last part of their names."""
        return [os.path.join(top, n) for top, names, _ in os.walk("/sys/fs/cgroup") for n in names if name in n]

    def groups(self, *boxes):
        """The group of each of these sandboxes; None: it has none."""
        found = []
        for box in boxes:
            places = {os.path.basename(os.path.dirname(path)) for path in self.made(box.id)}
            if not places:
                self.skipTest("sandboxes have no cgroup here")
            groups = {p for p in places if p.startswith("cloche-for-%s-" % self.daemon.tag())}
            self.assertLessEqual(len(groups), 1, places)
            found.append(groups.pop() if groups else None)
        return found

    def test_an_owner_has_one_group(self):
        one, other = self.daemon.token("one"), self.daemon.token("two")
        boxes = [harness.Box(self.daemon, key, hostname="own") for key in (one, one, other)]
        first, second, third = self.groups(*boxes)
        self.assertIsNotNone(first)
        self.assertEqual(first, second)
        self.assertIsNotNone(third)
        self.assertNotEqual(first, third)
        self.check_after_a_restart(boxes)

    def check_after_a_restart(self, boxes):
        """They are found again, and no group is left without members."""
        before = self.groups(*boxes)
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.groups(*boxes), before)
        boxes[0].get("")
        self.assertGreater(boxes[0].get("/stats").json["memory_bytes"], 0)
        self.daemon.delete("/v1/sandboxes")
        harness.until(lambda: not self.made("cloche-for-" + self.daemon.tag()), "the end of the groups")

    def test_a_warm_host_is_in_it_with_its_lanes(self):
        key = self.daemon.token("runs")
        for _ in range(2):
            harness.until(lambda: self.daemon.post("/v1/run", {"code": "print(1)", "language": "python"}, token=key)
                          .json["layers"].get("recycled"), "a warm run")
        lanes = [path for path in self.made("cloche-box-" + self.daemon.tag()) if path[-2:] == "-0" or path[-2:] == "-1"]
        if not lanes:
            self.skipTest("lanes have no cgroup here")
        for path in lanes:
            self.assertIn("/cloche-for-%s-" % self.daemon.tag(), path)


class Alone(served.Case):
    """Sandboxes of the pool are in no group: those of an owner that compute share one weight."""

    settings = "pool_size: 4\n"

    def weights(self, boxes):
        found = []
        for box in boxes:
            paths = [os.path.join(top, name, f) for top, names, _ in os.walk("/sys/fs/cgroup") for name in names
                     if name.endswith(box.id) for f in ("cpu.weight", "cpu.shares")]
            with open(next(filter(os.path.exists, paths)), encoding="ascii") as f:
                found.append(int(f.read()))
        return found

    def test_those_that_compute_share_a_weight(self):
        key = self.daemon.token("many")
        harness.until(lambda: self.daemon.get("/metrics").body.count(b"cloche_sandboxes_pooled 4"), "the pool")
        boxes = [harness.Box(self.daemon, key) for _ in range(4)]
        try:
            usual = self.weights(boxes)
        except StopIteration:
            self.skipTest("sandboxes have no cgroup here")
        self.assertEqual(usual, usual[:1] * 4)
        commands = [box.start(shell="while :; do :; done") for box in boxes[:3]]
        wanted = [usual[0] // 3] * 3 + usual[:1]
        harness.until(lambda: self.weights(boxes) == wanted, "their share of a weight")
        for box, command in zip(boxes, commands):
            box.delete("/execs/%s" % command)
        harness.until(lambda: self.weights(boxes) == usual, "the usual weight")


class LongLists(served.Case):
    """Lists that are made, and printed, in several turns."""

    settings = "pool_size: 0\n"

    def test_pages_and_the_whole_list_are_the_same(self):
        d = self.daemon
        made = {d.post("/v1/sandboxes", {"name": "s%d" % i, "memory": "64M"}).json["id"] for i in range(40)}
        pages, cursor = [], ""
        while cursor is not None:
            page = d.get("/v1/sandboxes?limit=7" + ("&cursor=" + cursor if cursor else "")).json
            pages += page["sandboxes"]
            cursor = page["cursor"]
        whole = d.get("/v1/sandboxes?limit=1000").json
        self.assertIsNone(whole["cursor"])
        self.assertEqual([s["id"] for s in whole["sandboxes"]], [s["id"] for s in pages])
        self.assertEqual({s["id"] for s in pages}, made)
        part = d.get("/v1/sandboxes?limit=35").json
        self.assertEqual([s["id"] for s in part["sandboxes"]], [s["id"] for s in pages[:35]])
        self.assertEqual(d.get("/v1/sandboxes?limit=35&cursor=" + part["cursor"]).json["sandboxes"][0]["id"], pages[35]["id"])
        for _ in range(2):  # asked, and known already
            self.assertEqual({s["id"] for s in d.get("/v1/stats").json["sandboxes"]}, made)


class Snapshots(served.Case):
    settings = "pool_size: 0\nsnapshots:\n  max_total: 30G\n  max_bytes: 256M\n"

    def test_the_owners_take_turns(self):
        busy, other = self.daemon.token("busy"), self.daemon.token("other")
        boxes = [harness.Box(self.daemon, token=busy) for _ in range(6)]
        last = harness.Box(self.daemon, token=other)
        for box in boxes:
            box.sh("yes | head -c 40M > /workspace/data")
        done = []

        def snapshot(box):
            self.assertEqual(box.post("/snapshot", {}).status, 201)
            done.append(box)

        burst = [threading.Thread(target=snapshot, args=(box,)) for box in boxes]
        for thread in burst:
            thread.start()
        harness.until(lambda: done, "the first snapshot")
        waiting = next(box for box in reversed(boxes) if box not in done)
        # A sandbox is frozen while it is copied, not while its snapshot waits.
        self.assertEqual(waiting.sh("echo awake")["stdout"], "awake\n")
        snapshot(last)
        before = len(done)
        for thread in burst:
            thread.join()
        self.assertLess(before, 6)

    def test_stalled_imports_leave_room_for_others(self):
        busy, other = self.daemon.token("stalled"), self.daemon.token("importer")
        box = harness.Box(self.daemon, token=other)
        box.sh("echo hello > /workspace/hello")
        made = box.post("/snapshot", {}).json["id"]
        tar = self.daemon.get("/v1/snapshots/%s/tar" % made, token=other).body
        stalled = []
        for _ in range(32):
            connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
            connection.putrequest("PUT", "/v1/snapshots/stalled/tar")
            for name, value in (("Authorization", "Bearer " + busy), ("Content-Type", "application/x-tar"),
                                ("Content-Length", str(200 << 20))):
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(tar[:512])
            stalled.append(connection)
        self.assertEqual(self.daemon.get("/healthz").status, 200)
        headers = {"Content-Type": "application/x-tar"}
        answer = self.daemon.request("PUT", "/v1/snapshots/mine/tar", tar, headers, token=other)
        self.assertEqual(answer.status, 201, answer)
        for connection in stalled:
            connection.close()


if __name__ == "__main__":
    unittest.main()

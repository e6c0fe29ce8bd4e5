"""Networks of sandboxes when something fails: roles, broker, name server, audit log; budgets, questions, leaks."""

import os
import signal
import time
import unittest

import harness
import netlab
from harness import until

FETCH = "curl -sS -m 20 -o /dev/null -w '%%{http_code}' %s"
CONFIG = "role_timeout: 2s\nnetwork: {mode: public}\n"


class Fault(harness.Case):
    """A daemon of its own for each class, since its parts are killed."""

    config = CONFIG
    daemon = None

    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(lab=netlab.shared(), config=cls.config)
        cls.addClassCleanup(cls.daemon.remove)
        cls.addClassCleanup(cls.daemon.stop)
        cls.daemon.start()

    @property
    def d(self):
        return self.daemon

    def code(self, box, url="http://example.com/"):
        return box.sh(FETCH % url)["stdout"]

    def assertReached(self, box, url="http://example.com/"):
        self.assertEqual(self.code(box, url), "200")

    def role(self, name):
        """Its pid."""
        parent = str(self.d.process.pid)
        for pid in os.listdir("/proc"):
            try:
                with open("/proc/%s/stat" % pid, encoding="utf-8") as stat, open("/proc/%s/cmdline" % pid, "rb") as line:
                    words, cmd = stat.read().rpartition(")")[2].split(), line.read().split(b"\0")
            except (OSError, ValueError):
                continue
            if words[1] == parent and b"role" in cmd and name.encode() in cmd:
                return int(pid)
        return None

    def layer(self, box):
        return box.get("/network").json["layer"]


class Roles(Fault):
    def test_egress_killed(self):
        box = self.box(net="allow", allow=["example.com"])
        self.assertReached(box)
        running = box.start(shell="while true; do sleep 1; done")
        stream = box.start(shell="curl -sS -m 60 'http://example.com/slow?s=50'")
        until(lambda: box.get("/network").json["open"] == 1, "the connection")
        pid = self.role("egress")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not box.get("/execs/%d" % stream).json["running"], "the end of an open connection")
        until(lambda: self.role("egress") not in (None, pid), "another egress")
        until(lambda: self.layer(box) == "tproxy", "the network's return")
        self.assertReached(box)
        self.assertTrue(box.get("/execs/%d" % running).json["running"])
        self.assertEqual(box.sh("getent ahostsv4 example.com | head -n 1 | cut -d' ' -f1")["stdout"], "198.18.0.1\n")

    def test_refused_while_it_is_gone(self):
        """Nothing waits in a backlog: connections end at once. And none is judged before the rules are there again."""
        box = self.box(net="allow", allow=["example.com"])
        self.assertReached(box)
        probe = ("import os, socket, time\n"
                 "said = []\n"
                 "while said[-1:] != ['got'] or not os.path.exists('stop'):\n"
                 "    s = socket.socket(); s.settimeout(10)\n"
                 "    try:\n"
                 "        s.connect(('198.18.0.1', 80)); s.sendall(b'GET / HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n')\n"
                 "        how = 'got' if s.recv(12) else 'closed'\n"
                 "    except OSError as e: how = type(e).__name__\n"
                 "    if said[-1:] != [how]: said.append(how)\n"
                 "    time.sleep(0.001)\n"
                 "print(*said)\n")  # fmt: skip
        box.put("/files?path=probe.py", probe.encode())
        eid = box.start(shell="python3 probe.py > said")
        until(lambda: box.get("/network").json["connections"] > 3, "the probe")
        pid = self.role("egress")
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.role("egress") not in (None, pid), "another egress")
        until(lambda: self.layer(box) == "tproxy", "the network's return")
        box.put("/files?path=stop", b"")
        ended = until(lambda: [e for e in [box.get("/execs/%d" % eid).json] if not e["running"]], "the probe's end")[0]
        said = box.get("/files?path=said").body.decode().split()
        self.assertEqual((ended["exit_code"], said[0], said[-1]), (0, "got", "got"), said)
        self.assertLessEqual(set(said), {"got", "closed", "ConnectionRefusedError", "ConnectionResetError"})
        attempts = box.get("/network").json["attempts"]
        self.assertEqual([a for a in attempts if a["verdict"] == "deny"], [])

    def test_egress_stopped(self):
        box = self.box(net="allow", allow=["example.com"])
        self.assertReached(box)
        pid = self.role("egress")
        os.kill(pid, signal.SIGSTOP)
        until(lambda: self.role("egress") not in (None, pid), "the broker's notice")
        until(lambda: self.layer(box) == "tproxy", "the network's return")
        self.assertReached(box)

    def test_front_killed(self):
        box = self.box(net="allow", allow=["example.com"])
        self.assertReached(box)
        before = box.get("/network").json
        os.kill(self.role("front"), signal.SIGKILL)
        until(lambda: self.served(), "the front's return")
        until(lambda: box.get("").json["state"] == "running", "the sandbox")
        self.assertReached(box)
        seen = box.get("/network").json
        self.assertEqual((seen["mode"], seen["layer"], seen["allow"]), ("allow", "tproxy", ["example.com"]))
        self.assertGreater(seen["tx_bytes"], before["tx_bytes"])

    def served(self):
        try:
            return self.d.get("/healthz").status == 200
        except OSError:
            return False

    def test_name_server_down(self):
        box = self.box(net="allow", allow=["*.example.com"])
        self.d.lab.ask("dns", state="down")
        try:
            r = box.sh("curl -sS -m 30 http://down.example.com/")
            self.assertNotEqual(r["exit_code"], 28, r)
            self.assertIn("down.example.com:80", "".join(r["notes"]), r)
        finally:
            self.d.lab.ask("dns", state="up")
        self.assertReached(box, "http://up.example.com/")


class Restart(Fault):
    def test_broker_killed(self):
        box = self.box(net="allow", allow=["example.com", "*.example.com"], net_connections=6)
        self.assertReached(box, "http://a.example.com/")
        self.assertReached(box)
        self.assertEqual(box.get("/network").json["connections"], 2)
        self.d.process.kill()
        self.d.process.wait()
        self.d.start()
        until(lambda: self.layer(box) == "tproxy", "the network's return")
        self.assertReached(box)
        self.assertEqual(box.sh("getent ahostsv4 a.example.com | head -n 1 | cut -d' ' -f1")["stdout"], "198.18.0.1\n")
        seen = box.get("/network").json
        self.assertEqual((seen["mode"], seen["connections"]), ("allow", 3))
        self.assertEqual(box.post("/stop").status, 200)
        self.assertEqual(box.post("/start").status, 200)
        self.assertEqual([self.code(box) for _ in range(4)], ["200", "200", "200", "000"])
        denied = [a for a in box.get("/network").json["attempts"] if a["verdict"] == "deny"]
        self.assertIn("connections", denied[-1]["why"])


class Budgets(Fault):
    def test_bytes_and_rate(self):
        box = self.box(net="allow", allow=["example.com"], net_rx="300K", net_tx="200K", net_requests=50)
        self.assertReached(box, "http://example.com/large?n=100000")
        r = box.sh("curl -sS -m 20 -o /tmp/out 'http://example.com/large?n=1000000'")
        self.assertNotEqual(r["exit_code"], 0, r)
        self.assertIn("rx_bytes", "".join(d["explain"] for d in r["denials"]), r)
        box = self.box(net="allow", allow=["example.com"], net_tx="100K")
        r = box.sh("head -c 1000000 /dev/zero | curl -sS -m 20 -o /tmp/out --data-binary @- http://example.com/echo")
        self.assertIn("tx_bytes", "".join(d["explain"] for d in r["denials"]), r)
        stats = box.get("/stats").json
        self.assertGreater(stats["net_tx_bytes"], 50000)
        self.assertGreater(box.get("/network").json["denied"], 0)
        text = self.d.get("/metrics").body.decode()
        self.assertRegex(text, r"(?m)^cloche_network_sent_bytes_total [1-9]")
        slow = self.box(net="allow", allow=["example.com"], net_rate="800Kbit")
        r = slow.sh("curl -sS -m 30 -o /dev/null -w '%{time_total}' 'http://example.com/large?n=150000'")
        self.assertGreater(float(r["stdout"]), 0.8, r)

    def test_names_and_requests(self):
        box = self.box(net="allow", allow=["*.example.com"], net_names=3, net_requests=5)
        got = box.sh("for i in 1 2 3 4 5; do getent hosts n$i.example.com > /dev/null && echo $i; done")
        self.assertEqual(got["stdout"], "1\n2\n3\n")
        self.assertIn("names", "".join(d["explain"] for d in got["denials"]), got)
        got = [self.code(box, "http://n1.example.com/") for _ in range(4)]
        self.assertNotEqual(got[-1], "200", got)


class Told(Fault):
    def test_live_events(self):
        box = self.box(net="allow", allow=["example.com"])
        with box.stream("GET", "/network", headers={"Accept": "text/event-stream"}) as s:
            events = s.events()
            first = next(events)
            self.assertEqual((first[0], first[1]["mode"]), ("network", "allow"))
            box.sh("curl -sS http://example.com/ http://evil.com/")
            seen = []
            while len(seen) < 4 and ("evil.com", "lookup") not in seen:
                _, attempt = next(events)
                seen.append((attempt["name"], attempt["event"]))
        self.assertIn(("example.com", "opened"), seen)

    def test_audit(self):
        key = self.d.token("owner", "--net", "allow")
        box = self.box(key, net="allow", allow=["example.com"])
        box.sh("curl -sS http://example.com/; curl -sS http://evil.com/")
        entries = until(lambda: [e for e in self.entries(box) if e["what"] == "net.lookup"], "the entries")
        self.assertEqual((entries[0]["verdict"], entries[0]["target"]), ("deny", box.id + " evil.com:0"))
        self.assertTrue(entries[0]["who"].endswith(" owner"), entries)
        self.assertIn("allow", [e["verdict"] for e in self.entries(box) if e["what"] == "net.connect"])

    def entries(self, box):
        return self.d.get("/v1/audit?limit=200&target=" + box.id).json["records"]


class Leaks(Fault):
    def test_nothing_is_left(self):
        def fds(pid):
            return len(os.listdir("/proc/%d/fd" % pid))

        def settled():
            counts = None
            while counts != (counts := [fds(p) for p in roles]):
                time.sleep(0.5)
            return counts

        names = os.path.join(self.d.dir, "state", "names")
        # The broker starts processes when they are first needed: as many at one time as below.
        warm = [harness.Box(self.d, net="allow", allow=["example.com"]) for _ in range(6)]
        self.assertReached(warm[0])
        for b in warm:
            b.delete()
        until(lambda: os.listdir(names) == [], "the end of the first ones")
        roles = [self.d.process.pid, self.role("egress")]
        until(lambda: self.role("front"), "the front")
        before = settled()
        boxes = [harness.Box(self.d, net="allow", allow=["example.com"]) for _ in range(6)]
        for b in boxes[:3]:
            self.assertReached(b)
        self.assertEqual(len(os.listdir(names)), 6)
        self.assertGreater(fds(roles[1]), before[1])
        # The broker keeps no listener of any of them: a copy would let connections hang.
        self.assertEqual(self.listeners(roles[0], boxes), 0)
        for b in boxes:
            self.assertEqual(b.delete().status, 204)
        until(lambda: all(fds(p) <= n for p, n in zip(roles, before)), "no more open files than before")
        self.assertEqual(os.listdir(names), [])
        left = [n for n in os.listdir(os.path.join(self.d.dir, "run", "boxes")) if any(n.startswith(b.id) for b in boxes)]
        self.assertEqual(left, [])

    def listeners(self, pid, boxes):
        """Sockets that listen in another network namespace are in no table of the broker's."""
        own = set()
        for table in ("tcp", "tcp6", "udp", "udp6", "unix", "netlink", "packet"):
            try:
                with open("/proc/%d/net/%s" % (pid, table), encoding="utf-8") as rows:
                    own.update(word for row in rows for word in row.split())
            except OSError:
                continue
        found = 0
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                link = os.readlink("/proc/%d/fd/%s" % (pid, fd))
            except OSError:
                continue
            found += link.startswith("socket:[") and link[8:-1] not in own
        return found


if __name__ == "__main__":
    unittest.main()

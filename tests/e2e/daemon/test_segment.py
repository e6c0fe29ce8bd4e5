"""The isolated segment: sandboxes of one group and one owner reach each other by name, and nothing else."""

import harness
import netlab

_daemon = None

# Tells each client the address that it comes from.
SERVER = """python3 -c "
import socket, sys
s = socket.create_server(('%s', %d))
open('/tmp/ready', 'w').write('x')
while True:
    c, a = s.accept()
    try: c.sendall(a[0].encode()); c.recv(1)
    except OSError: pass
    c.close()" """
ASK = """python3 -c "
import socket, sys
try:
    s = socket.create_connection(('%s', %d), 10)
    print(s.recv(99).decode() or 'closed')
except OSError as e:
    print(type(e).__name__)" """


def setUpModule():
    global _daemon
    _daemon = harness.Daemon(lab=netlab.shared()).start()


def tearDownModule():
    _daemon.stop()
    _daemon.remove()


class Segment(harness.Case):
    @property
    def d(self):
        return _daemon

    def member(self, name, group="g", token=None, server=7000, address="0.0.0.0", **more):
        box = self.box(token=token, name=name, net="isolated", net_group=group, **more)
        box.start(shell=SERVER % (address, server))
        self.await_file(box, "/tmp/ready")
        return box

    def await_file(self, box, path):
        return box.sh("until test -s %s; do sleep 0.02; done; cat %s" % (path, path))["stdout"]

    def ask(self, box, name, port=7000):
        return box.sh(ASK % (name, port))["stdout"].strip()

    def refused(self, box, name, port=7000):
        answer = self.ask(box, name, port)
        self.assertIn(answer, ("gaierror", "ConnectionResetError", "ConnectionRefusedError", "PermissionError"), name)
        return answer

    def test_both_ways_by_name(self):
        a, b = self.member("alpha"), self.member("Beta")
        seen = self.ask(a, "beta")
        self.assertTrue(seen.startswith("198.18."), seen)
        self.assertEqual({self.ask(a, n) for n in ("beta", "BETA.internal", b.id, b.id + ".internal")}, {seen})
        self.assertTrue(self.ask(b, "alpha").startswith("198.18."))
        # The sender's address is fixed, has its name, and leads back to it.
        name = b.sh("python3 -c \"import socket; print(socket.gethostbyaddr('%s')[0])\"" % seen)["stdout"].strip()
        self.assertEqual(name, "alpha")
        self.assertEqual(self.ask(b, seen), self.ask(b, "alpha"))
        rows = [r for r in a.get("/network").json["attempts"] if r["name"] == "beta" and r["event"] == "opened"]
        self.assertEqual({(r["verdict"], r["port"]) for r in rows}, {("allow", 7000)}, rows)

    def test_nothing_else(self):
        netlab.shared().ask("forget")
        a, b = self.member("alpha"), self.member("beta", group="other")
        alone = self.box(name="alone", net="isolated")
        open_ = self.box(name="open", net="public")
        loopback = self.member("local", address="127.0.0.1", server=7002)
        for name in ("beta", "alone", "open", b.id, "example.com", "host.docker.internal", "nobody"):
            self.refused(a, name)
        self.assertEqual(self.ask(alone, "alpha"), "gaierror")
        self.refused(open_, "alpha")
        for address in (netlab.WEB, netlab.HOST, "10.0.0.5", "169.254.169.254", "198.18.9.9", "198.19.255.253"):
            self.refused(a, address, 80)
        self.refused(a, "alpha", 7001)
        self.assertEqual(self.ask(loopback, "127.0.0.1", 7002), "127.0.0.1", "the control")
        self.refused(a, "local", 7002)
        why = [r["why"] for r in a.get("/network").json["attempts"] if r["name"] == "beta"]
        self.assertIn("no sandbox of the segment has this name", why)
        self.assertNotIn("example.com", [q["name"] for q in netlab.shared().ask("queries")])

    def test_other_owners(self):
        key, other = (self.d.token(n, "--net", "public") for n in ("one", "two"))
        a, b, c = self.member("alpha", token=key), self.member("beta", token=key), self.member("alpha", token=other)
        self.refused(c, "beta")
        self.refused(c, b.id)
        self.assertTrue(self.ask(a, "beta").startswith("198.18."))
        self.assertTrue(self.ask(c, "alpha").startswith("198.18."), "itself")

    def test_the_narrowest_network_counts(self):
        none = self.d.token("none")
        box = self.box(token=none, name="x", net="isolated", net_group="g")
        self.assertEqual(box.get("/network").json["mode"], "none")
        self.assertEqual(self.ask(box, "x"), "gaierror")

    def test_ports_by_rule(self):
        a = self.member("alpha", allow=["beta:7000", "*:7003"])
        b = self.member("beta")
        other = self.member("gamma", server=7003)
        self.assertTrue(self.ask(a, "beta").startswith("198.18."))
        self.assertTrue(self.ask(a, "gamma", 7003).startswith("198.18."))
        self.refused(a, "beta", 7001)
        self.refused(a, "gamma", 7000)
        self.assertTrue(self.ask(other, "alpha").startswith("198.18."))
        self.assertTrue(self.ask(b, "gamma", 7003).startswith("198.18."))

    def test_a_peer_goes_and_comes_back(self):
        a, b = self.member("alpha"), self.member("beta")
        hold = "python3 -c \"import socket; s = socket.create_connection(('beta', 7000)); s.recv(99); open('/tmp/in', 'w').write('x')\n"
        hold += "try: end = repr(s.recv(9))\nexcept OSError as e: end = type(e).__name__\nopen('/tmp/out', 'w').write(end)\""
        a.start(shell=hold)
        self.await_file(a, "/tmp/in")
        self.assertEqual(b.put("/network", {"net": "none"}).status, 200)
        self.assertEqual(self.await_file(a, "/tmp/out"), "ConnectionResetError")
        self.refused(a, "beta")
        self.assertEqual(b.put("/network", {"net": "isolated", "net_group": "g"}).status, 200)
        harness.until(lambda: self.ask(a, "beta").startswith("198.18."), "the way back")
        b.delete()
        self.refused(a, "beta")
        again, twin = self.member("beta"), self.member("beta")
        self.refused(a, "beta")
        self.assertTrue(self.ask(a, again.id).startswith("198.18."), "two have the name")
        twin.delete()
        harness.until(lambda: self.ask(a, "beta").startswith("198.18."), "one has the name")

    def test_bad_groups(self):
        for more, field in (({"net": "isolated", "net_group": "a b"}, "net_group"),
                            ({"net": "isolated", "net_group": ""}, "net_group"),
                            ({"net": "isolated", "net_group": "x" * 64}, "net_group"),
                            ({"net": "public", "net_group": "g"}, "net_group")):  # fmt: skip
            self.assertError(self.d.post("/v1/sandboxes", more), 400, "invalid", field)

    def test_through_the_proxy(self):
        a = self.member("alpha")
        self.member("beta")
        code = "import socket; s = socket.create_connection(('198.19.255.254', 3128)); "
        code += "s.sendall(b'CONNECT beta:7000 HTTP/1.1\\r\\nHost: beta:7000\\r\\n\\r\\n'); f = s.makefile('rb'); "
        code += "print(f.readline().split()[1]); f.readline(); print(f.read(7))"
        self.assertIn("b'200'", a.sh("python3 -c \"%s\"" % code)["stdout"])

    def test_a_new_daemon_knows_the_groups(self):
        a, b = self.member("alpha"), self.member("beta", allow=["*:7009"])
        seen = self.ask(a, "beta")
        _daemon.stop(destroy=False)
        _daemon.start()
        harness.until(lambda: self.ask(a, "beta") == seen, "the same address")
        self.refused(b, "alpha")

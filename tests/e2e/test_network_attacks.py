"""Attacks on the network of a sandbox (netattack.py): each must get through without a sandbox and be refused inside.

All attacks under one policy run in one sandbox, once for all tests of a class; the tests look at what came of it.
"""

import json
import os
import re
import signal
import subprocess

import cl
import netattack
import netlab

RESTARTS = 4  # of an egress program that dies, without a daemon
PROXIES = {"http_proxy": "http://198.19.255.254:3128", "all_proxy": "socks5://198.19.255.254:1080"}


def options(policy):
    row = netattack.POLICIES[policy]
    given = ["--net", row["net"]]
    for kind in ("allow", "deny"):
        for rule in row.get(kind, []):
            given += ["--" + kind, rule]
    return given


class Attacks(cl.Case):
    """Rows of one policy. Verdicts by (row, variant), outside and inside."""

    policy, more, only = None, [], None

    @classmethod
    def setUpClass(cls):
        cls.lab = netlab.shared()
        cls.lab.ask("dns", state="up")
        cls.lab.ask("names", names=netattack.NAMES)
        rows = [name for name, r in netattack.ROWS.items() if cls.has(name) and r["outside"]]
        cls.dir = cl.base_dir()
        cls.outside = cls.judge(
            cls.lab.command(
                "/usr/bin/python3", netattack.__file__, cls.policy, *rows, cwd=cls.dir, timeout=120,
                env=cl.caller_env(NETATTACK_TIMEOUT="10", NETATTACK_OUTSIDE="1"),
            ),
            like=netattack.MARKERS,
        )  # fmt: skip
        # A socket to a server that is not listed, as a careless caller leaves it open.
        with cls.lab.connect(80, netattack.EVIL) as left_open:
            cls.inside = cls.judge(cls.run_inside(left_open.fileno()))

    @classmethod
    def has(cls, name):
        return netattack.ROWS[name]["policy"] == cls.policy and (not cls.only or name in cls.only)

    @classmethod
    def run_inside(cls, fd):
        given = cls.more + options(cls.policy)
        rows = filter(cls.has, netattack.ROWS)
        for name, value in {**PROXIES, "NETATTACK_TIMEOUT": "10"}.items():
            given += ["--env", "%s=%s" % (name, value)]
        return cls.lab.run("run", *given, "--", "/usr/bin/python3", "-c", netattack.program(), cls.policy, *rows, cwd=cls.dir,
                           timeout=120, pass_fds=[fd])  # fmt: skip

    @classmethod
    def judge(cls, r, like=None):
        """What the servers saw decides about those that ask for it."""
        if r.code:
            raise AssertionError(str(r))
        seen = {q["name"] for q in cls.lab.ask("queries", like=like)}
        cls.lab.ask("forget")
        verdicts = {}
        for line in r.out.splitlines():
            row = json.loads(line)
            for variant, (verdict, detail) in row["results"].items():
                if verdict == "ask":
                    came = [name for name in seen if detail in name]
                    verdict, detail = ("through", "asked for " + came[0]) if came else ("refused", "no query left")
                verdicts[row["row"], variant] = verdict, detail
        cls.seen = seen
        return verdicts


def add_row(cls, name):
    def test(self):
        for variant, _, *outside in netattack.ROWS[name]["call"]():
            with self.subTest(variant):
                if netattack.ROWS[name]["outside"] and all(outside):
                    self.assertEqual(self.outside[name, variant][0], "through", "the control: %s" % (self.outside[name, variant],))
                verdict, detail = self.inside[name, variant]
                if name in netattack.WORKS:
                    self.assertEqual(verdict, "through", detail)
                elif verdict == "cannot":
                    self.skipTest(detail)
                else:
                    self.assertEqual(verdict, "refused", detail)

    test.__doc__ = netattack.ROWS[name]["title"]
    setattr(cls, "test_" + name.replace("-", "_"), test)


class Allow(Attacks):
    policy = "allow"

    def test_nothing_about_other_names_left(self):
        """Whatever was tried, no name that is not allowed was asked for outside."""
        others = {n for n in self.seen if not re.fullmatch(r"allowed\.com|([a-z0-9_-]+\.)+example\.com", n)}
        self.assertEqual(others, set())


class RootInside(Attacks):
    """The same for uid 0 of a namespace below the sandbox's, with its capabilities."""

    policy, more = "allow", ["--user", "root"]
    only = ("direct", "host-services", "other-sockets", "allowed-works")


class Public(Attacks):
    policy = "public"


class Inspect(Attacks):
    policy = "inspect"


class Nothing(Attacks):
    policy = "none"


for _name in netattack.ROWS:
    for _class in (Allow, RootInside, Public, Inspect, Nothing):
        if _class.has(_name):
            add_row(_class, _name)
del _class  # unittest would take it for another suite


# Reads words: a URL is fetched, "listen PORT" serves a page, "addresses" tells one's own.
FOLLOWER = r"""
import os, re, socket, sys, threading, urllib.request
def serve(s):
    while True:
        c, _ = s.accept()
        c.recv(1000)
        c.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nneighbor")
        c.close()
def act(line):
    if line.startswith("listen "):
        s = socket.socket(socket.AF_INET6)
        s.bind(("::", int(line.split()[1])))
        s.listen(9)
        threading.Thread(target=serve, args=(s,), daemon=True).start()
        return "listening"
    if line == "addresses":
        with open("/proc/net/fib_trie") as f, open("/proc/net/if_inet6") as g:
            v4 = re.findall(r"(\d+\.\d+\.\d+\.\d+)\n\s+/32 host", f.read())
            v6 = [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(l.split()[0])) for l in g]
        return " ".join(sorted(set(v4)) + ["[%s]" % a for a in v6])
    with urllib.request.urlopen(line, timeout=20) as r:
        return r.read().decode().replace("\n", " ")
for line in sys.stdin:
    try:
        print("ok", act(line.strip()), flush=True)
    except Exception as e:
        print("failed", type(e).__name__, getattr(e, "reason", e), flush=True)
"""


class Follower:
    """A sandbox that does what it is told, one line after another."""

    def __init__(self, test, *given):
        command = [*test.lab.under, cl.CLOCHE, "run", "-t", "60s", *given, "--", "/usr/bin/python3", "-u", "-c", FOLLOWER]
        self.p = cl.start(command=command, stdin=subprocess.PIPE, cwd=test.dir)
        test.addCleanup(self.end)

    def do(self, line):
        self.p.stdin.write((line + "\n").encode())
        self.p.stdin.flush()
        answer = self.p.stdout.readline().decode()
        if not answer:
            raise AssertionError("the sandbox ended: " + self.p.stderr.read().decode())
        return answer

    def end(self):
        """Its exit status."""
        if not self.p.stdin.closed:
            self.p.stdin.close()
            self.code = self.p.wait(20)
            self.p.stdout.close()
            self.p.stderr.close()
        return self.code

    def egress(self):
        """The pid of its egress program."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/comm" % pid, encoding="ascii") as f:
                    name = f.read().strip()
            except OSError:
                continue
            if name == "cloche-egress" and self.p.pid in ancestors(int(pid)):
                return int(pid)
        raise AssertionError("no egress program")


def ancestors(pid):
    found = []
    while pid > 1:
        try:
            with open("/proc/%d/stat" % pid, encoding="latin-1") as f:
                pid = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


class Faults(cl.Case):
    """Whatever fails, nothing else opens, programs see an error, and the sandbox goes on."""

    def setUp(self):
        super().setUp()
        self.lab = netlab.shared()
        self.lab.ask("dns", state="up")
        self.lab.ask("forget")
        self.addCleanup(self.lab.ask, "dns", state="up")

    def still_closed(self, follower):
        for url in ("http://%s/" % netattack.EVIL, "http://evil.com/", "http://127.0.0.1:%d/" % netattack.LOOPBACK):
            self.assertRegex(follower.do(url), "^failed", url)
        self.assertEqual([r for r in self.lab.ask("requests") if "evil" in r["host"] or netattack.EVIL in r["host"]], [])

    def test_resolver_fails(self):
        sandbox = Follower(self, "--allow", "allowed.com", "--allow", "*.example.com")
        for state in ("servfail", "down"):
            self.lab.ask("dns", state=state)
            self.assertRegex(sandbox.do("http://%s.example.com/" % state), "^failed")
            self.still_closed(sandbox)
            self.lab.ask("dns", state="up")
            self.assertRegex(sandbox.do("http://later-%s.example.com/" % state), "^ok")
        self.assertEqual(sandbox.end(), 0)

    def test_egress_is_killed(self):
        sandbox = Follower(self, "--allow", "allowed.com")
        self.assertRegex(sandbox.do("http://allowed.com/"), "^ok")
        for _ in range(RESTARTS):
            os.kill(sandbox.egress(), signal.SIGKILL)
            self.still_closed(sandbox)
            self.assertTrue(cl.wait_for(lambda: sandbox.do("http://allowed.com/").startswith("ok")))
        os.kill(sandbox.egress(), signal.SIGKILL)
        for _ in range(2):
            self.still_closed(sandbox)
            self.assertRegex(sandbox.do("http://allowed.com/"), "^failed")
        self.assertEqual(sandbox.end(), 0)

    def test_egress_is_stopped(self):
        sandbox = Follower(self, "--allow", "allowed.com")
        self.assertRegex(sandbox.do("http://allowed.com/"), "^ok")
        pid = sandbox.egress()
        self.lab.ask("forget")
        os.kill(pid, signal.SIGSTOP)
        sandbox.p.stdin.write(b"http://allowed.com/waits\n")
        sandbox.p.stdin.flush()
        self.assertFalse(cl.wait_for(lambda: self.lab.ask("requests"), timeout=0.3))
        os.kill(pid, signal.SIGCONT)
        self.assertRegex(sandbox.p.stdout.readline(), b"^ok .*/waits")
        self.assertEqual(sandbox.end(), 0)

    def test_a_neighbour_is_out_of_reach(self):
        """Two sandboxes, both with the widest network that there is."""
        listens = Follower(self, "--net", "public")
        tries = Follower(self, "--net", "public")
        self.assertEqual(listens.do("listen 9000"), "ok listening\n")
        own = listens.do("addresses").split()[1:]
        self.assertGreater(len(own), 2)
        for address in own:
            url = "http://%s:9000/" % address
            self.assertRegex(listens.do(url), "^ok neighbor", url)
            self.assertRegex(tries.do(url), "^failed", url)

"""Denials: what was refused is told, grouped, in words that help, and without harm to the reader."""

import cl

CALLS = {
    "unshare": "unshare(0x10000000)",
    "mount": "mount(b'x', b'/tmp', b'tmpfs', 0, None)",
    "ptrace": "ptrace(0, 0, 0, 0)",
    "bpf": "syscall(321, 0, 0, 0)",
    "setns": "setns(0, 0)",
    "keyctl": "syscall(250, 0, 0, 0, 0)",
    "io_uring_setup": "syscall(425, 1, 0)",
    "perf_event_open": "syscall(298, 0, 0, 0, 0, 0)",
    "userfaultfd": "syscall(323, 0)",
}


def libc(*calls):
    lines = ["import ctypes", "libc = ctypes.CDLL(None, use_errno=True)"]
    for call in calls:
        lines += ["r = libc." + call, "print(r, ctypes.get_errno())"]
    return cl.py("\n".join(lines))


class Syscalls(cl.Case):
    def test_reported(self):
        rec = cl.record("--", *libc(*CALLS.values()), code=0)
        self.assertNotIn("0 0", rec["stdout"].split("\n"))
        for line in rec["stdout"].splitlines():
            self.assertEqual(line.split()[0], "-1", rec["stdout"])
        seen = {d["target"]: d for d in cl.denials(rec, "syscall")}
        for name in ("unshare", "mount", "ptrace"):
            self.assertIn(name, seen)
            self.assertEqual(seen[name]["count"], 1)
            self.assertGreater(len(seen[name]["explain"]), 20)
            self.assertTrue(seen[name]["rule"])

    def test_types(self):
        for d in cl.record("--", *libc(CALLS["unshare"]))["denials"]:
            self.assertEqual(set(d) >= {"what", "target", "rule", "count", "explain"}, True, d)
            self.assertIsInstance(d["count"], int)

    def test_none_for_a_quiet_program(self):
        self.assertEqual(cl.record("--", "python3", "-c", "print(1)")["denials"], [])

    def test_none_for_ordinary_work(self):
        """Everyday programs do not fill the list with what they try in passing."""
        for command in (
            ("ls", "-l", "/"),
            ("sh", "-c", "cp /bin/true t; tar cf - t | tar tf -"),
            ("python3", "-c", "import subprocess; subprocess.run(['true'])"),
        ):
            self.assertEqual(cl.record("--", *command)["denials"], [], command)

    def test_grouped(self):
        code = (
            "import ctypes\nlibc = ctypes.CDLL(None)\n"
            "for i in range(100000): libc.unshare(0x10000000)"
        )
        rec = cl.record("--timeout", "50s", "--", *cl.py(code), code=0, timeout=60)
        found = cl.denials(rec, "syscall")
        self.assertEqual([d["target"] for d in found], ["unshare"])
        self.assertGreaterEqual(found[0]["count"], 1000)
        self.assertLessEqual(found[0]["count"], 100000)

    def test_without_json_it_still_fails_quietly(self):
        r = self.ok("run", "--", *libc(CALLS["unshare"]))
        self.assertTrue(r.out.startswith("-1 "))
        self.assertEqual(r.err, "")

    def test_many_threads_at_once(self):
        code = (
            "import ctypes, threading\nlibc = ctypes.CDLL(None)\n"
            "def work():\n    for i in range(500): libc.unshare(0x10000000)\n"
            "ts = [threading.Thread(target=work) for i in range(16)]\n"
            "[t.start() for t in ts]; [t.join() for t in ts]; print('done')"
        )
        self.assertEqual(cl.record("--", *cl.py(code), timeout=60)["stdout"], "done\n")

    def test_killed_in_the_middle(self):
        """Callers that die while their call is being looked at do not disturb the rest."""
        code = (
            "import ctypes, os, signal, time\nlibc = ctypes.CDLL(None)\n"
            "for i in range(60):\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        while True: libc.unshare(0x10000000)\n"
            "    time.sleep(0.001); os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)\n"
            "print('done')"
        )
        rec = cl.record("--", *cl.py(code), timeout=60)
        self.assertEqual(rec["stdout"], "done\n")


class Network(cl.Case):
    def test_resolve(self):
        code = (
            "import socket\n"
            "for i in range(3):\n"
            "    try: print(socket.getaddrinfo('example.com', 443))\n"
            "    except socket.gaierror as e: print('refused')"
        )
        rec = cl.record("--", *cl.py(code), timeout=20)
        self.assertEqual(rec["stdout"], "refused\n" * 3)
        found = cl.denials(rec, "resolve")
        self.assertEqual([d["target"] for d in found], ["example.com"], rec["denials"])
        self.assertGreaterEqual(found[0]["count"], 3)
        self.assertEqual(found[0]["rule"], "network none")
        explained = found[0]["explain"]
        self.assertIn("--file", explained)
        # What is advised can be had.
        had = cl.run("run", "--net", "allow", "--allow", "example.com", "--", "true").code != 125
        self.assertEqual("--net" in explained, had)

    def test_resolve_is_quick(self):
        """A look-up without a network fails at once, and does not wait for a resolver's time-out."""
        rec = cl.record("--timeout", "15s", "--", "getent", "hosts", "example.com", timeout=20)
        self.assertEqual(rec["status"], "exited")
        self.assertLess(rec["duration_ms"], 4000)

    def test_connect(self):
        code = (
            "import socket\n"
            "for a in (('192.0.2.1', 443), ('192.0.2.1', 443), ('2001:db8::1', 80)):\n"
            "    try: socket.create_connection(a, 2); print('reached')\n"
            "    except OSError as e: print(e.errno)"
        )
        rec = cl.record("--", *cl.py(code), timeout=20)
        self.assertNotIn("reached", rec["stdout"])
        found = {d["target"]: d["count"] for d in cl.denials(rec, "connect")}
        self.assertEqual(found, {"192.0.2.1:443": 2, "[2001:db8::1]:80": 1})

    def test_datagrams(self):
        code = (
            "import socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "try: s.sendto(b'x', ('192.0.2.1', 53)); print('sent')\n"
            "except OSError as e: print('refused')"
        )
        self.assertEqual(cl.record("--", *cl.py(code))["stdout"], "refused\n")

    def test_loopback_is_no_denial(self):
        code = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 9)))"
        rec = cl.record("--", *cl.py(code))
        self.assertEqual((rec["stdout"], rec["denials"]), ("111\n", []))

    def test_localhost_is_no_denial(self):
        rec = cl.record("--", "getent", "hosts", "localhost", code=0)
        self.assertEqual(rec["denials"], [])

    def test_names_are_sanitised(self):
        code = (
            "import socket\n"
            "for n in ('evil\\x1b[31m.example', 'a\\nb.example', 'x' * 60 + '.example', 'good.example'):\n"
            "    try: socket.getaddrinfo(n.encode(), 80)\n"
            "    except Exception: pass"
        )
        rec = cl.record("--", *cl.py(code), timeout=30)
        for d in rec["denials"]:
            for text in d.values():
                if isinstance(text, str):
                    self.assertFalse(any(ord(c) < 32 or ord(c) == 127 for c in text), d)
        self.assertIn("good.example", [d["target"] for d in cl.denials(rec, "resolve")])

    def test_many_targets_are_bounded(self):
        code = (
            "import socket\n"
            "for i in range(3000):\n"
            "    s = socket.socket()\n"
            "    s.connect_ex(('192.0.2.%d' % (i % 250), 1000 + i)); s.close()"
        )
        rec = cl.record("--", *cl.py(code), timeout=40)
        self.assertLessEqual(len(rec["denials"]), 300)
        self.assertGreaterEqual(len(rec["denials"]), 10)

    def test_curl_and_pip_say_something_sensible(self):
        curl = self.need_program("curl")
        rec = cl.record("--", curl, "-sS", "-m", "5", "https://example.com/", timeout=20)
        self.assertFalse(rec["success"])
        self.assertIn("example.com", [d["target"] for d in cl.denials(rec, "resolve")])

    def test_node_resolves(self):
        node = self.need_program("node")
        rec = cl.record(
            "--",
            node,
            "-e",
            "require('dns').lookup('example.com', e => console.log(e.code))",
            timeout=20,
        )
        self.assertRegex(rec["stdout"], "ENOTFOUND|EAI_AGAIN")
        self.assertIn("example.com", [d["target"] for d in cl.denials(rec, "resolve")])

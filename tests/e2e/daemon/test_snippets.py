"""Snippets of Python in a sandbox that goes on: copies of a preforked interpreter, the same to whoever runs them
as those that are started anew."""

import json
import re
import signal
import unittest

import harness

IS_WARM = "open('/proc/self/cmdline', 'rb').read().split(b'\\0')[1] == b'-'"


def plain(record):
    """What two runs of one snippet must have in common."""
    text = json.dumps([record[k] for k in ("stdout", "stderr", "exit_code", "signal", "status")])
    return re.sub(r"/tmp/\.cloche/[0-9a-f]{16}", "DIR", text)


class Box(harness.Box):
    def code(self, code, **more):
        reply = self.exec(code=code, **more)
        if reply.status != 200:
            raise AssertionError("exec: %r" % reply)
        return reply.json

    def preforks(self):
        return [e["id"] for e in self.get("/execs").json if e.get("tag") == "cloche:snippets" and e["running"]]

    def is_warm(self):
        return self.code("print(%s)" % IS_WARM)["stdout"] == "True\n"

    def warm(self):
        """Until they are copies."""
        harness.until(self.is_warm, "a snippet that is a copy")
        return self


class Snippets(harness.Case):
    def box(self, **options):
        box = Box(self.d, **options)
        self.addCleanup(box.delete)
        return box

    def test_first_cold_then_warm(self):
        box = self.box()
        self.assertFalse(box.is_warm())
        box.warm()
        for _ in range(20):
            self.assertTrue(box.is_warm())

    def test_the_same_as_a_new_interpreter(self):
        rows = [
            dict(code="import sys, os; print(sys.argv, sys.orig_argv, sys.path, __file__, os.getcwd(), __name__)",
                 args=["a", "b c", ""]),
            dict(code="import sys; print(repr(sys.stdin.read()), sys.stdin.encoding, sys.stdout.line_buffering)",
                 stdin="in\nput"),
            dict(code="import os; print(sorted(k for k in os.environ), os.getppid(), os.getsid(0) == os.getpid())",
                 env={"A": "1"}),
            dict(code="import os; print(os.getcwd(), os.umask(0), sorted(os.listdir('/proc/self/fd'))[:4])", cwd="/tmp"),
            dict(code="x = 1\n\ndef f():\n    return 1 / 0\nf()"),
            dict(code="import sys; sys.exit(3)"),
            dict(code="raise SystemExit('said')"),
            dict(code="raise KeyboardInterrupt"),
            dict(code="def"),
            dict(code="import os; os.kill(os.getpid(), 11)"),
            dict(code="import atexit; atexit.register(print, 'at exit'); print('first', end='')"),
            dict(code="import threading, time\n"
                      "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"),
            dict(code="import sys; print(__builtins__.__name__, __spec__, __annotations__, sys.modules['__main__'].__file__)"),
            dict(code="# -*- coding: latin-1 -*-\nprint('\u00e9'.encode('utf-8'))"),
            dict(code="import signal; print([signal.getsignal(s) for s in (2, 13, 15)], signal.pthread_sigmask(0, []))"),
            dict(code="import resource; print([resource.getrlimit(n) for n in (0, 4, 6, 7)])"),
            dict(code="import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"),
            dict(code="import sys; print('a'); sys.stdout.close()"),
            dict(code="import sys; print('a'); sys.stdout = None"),
            dict(code="import io, sys; print('a'); sys.stdout = io.StringIO(); print('b')"),
            dict(code="import os, sys; print('a'); sys.stdout = os.fdopen(os.dup(1), 'w'); print('b')"),
            dict(code="import os; print('x'); os.dup2(os.open('/dev/full', os.O_WRONLY), 1); raise SystemExit(3)"),
            dict(code="import sys\ndef h(*_):\n    raise ValueError('h')\nsys.excepthook = h\nprint('x')\n1 / 0"),
            dict(code="import sys\nsys.excepthook = lambda *_: sys.exit(7)\nprint('x')\n1 / 0"),
            dict(code="import sys\ndel sys.excepthook\nprint('x')\n1 / 0"),
            dict(code="raise SystemExit(2 ** 70)"),
            dict(code="import sys; sys.stderr = None; sys.exit('lost')"),
            dict(code="class A:\n    def __del__(self):\n        print('end')\na = A()\na.a = a"),
        ]
        cold = self.box()
        wanted = []
        for row in rows:  # each in a sandbox where none was before, or with nothing preforked
            for eid in cold.preforks():
                cold.post("/execs/%s/signal" % eid, {"signal": "KILL"})
            reply = cold.post("/exec", {"shell": "true"})
            self.assertEqual(reply.status, 200)
            wanted.append(plain(cold.code(row["code"], **{k: v for k, v in row.items() if k != "code"})))
        box = self.box().warm()
        for row, want in zip(rows, wanted):
            with self.subTest(code=row["code"]):
                self.assertTrue(box.is_warm())
                self.assertEqual(plain(box.code(row["code"], **{k: v for k, v in row.items() if k != "code"})), want)

    def test_nothing_is_left_of_the_one_before(self):
        box = self.box().warm()
        box.code("import json, builtins, os; json.dumps = None; builtins.leak = 1; os.environ['LEAK'] = '1'")
        record = box.code("import json, os, builtins\n"
                          "print(json.dumps([1]), hasattr(builtins, 'leak'), 'LEAK' in os.environ, 'leak' in globals())")
        self.assertEqual(record["stdout"], "[1] False False False\n", record)

    def test_random_states_differ(self):
        box = self.box().warm()
        code = "import random, uuid, os, tempfile; print(random.random(), uuid.uuid4(), os.getpid(), tempfile.mktemp())"
        seen = [box.code(code)["stdout"].split() for _ in range(20)]
        for column in range(4):
            self.assertEqual(len({row[column] for row in seen}), 20, seen)

    def test_modules_of_the_workspace_come_first(self):
        box = self.box().warm()
        box.sh("echo 'VALUE = 1' > /workspace/own.py")
        self.assertEqual(box.code("import own; print(own.VALUE)")["stdout"], "1\n")
        box.sh("echo 'VALUE  =  2' > /workspace/own.py")
        self.assertEqual(box.code("import own; print(own.VALUE)")["stdout"], "2\n")
        self.assertTrue(box.is_warm())
        box.sh("echo 'VALUE = 3' > /workspace/json.py")
        self.assertEqual(box.code("import json; print(json.VALUE)")["stdout"], "3\n")
        box.sh("rm /workspace/json.py; echo 'print(\"hook\")' > /workspace/sitecustomize.py")
        self.assertEqual(box.code("print(1)")["stdout"], "hook\n1\n")

    def test_what_an_interpreter_looks_at_when_it_starts(self):
        box = self.box().warm()
        code = "import sys; print(sys.flags.optimize, sys.flags.dont_write_bytecode, sys.flags.hash_randomization)"
        self.assertEqual(box.code(code)["stdout"], "0 0 1\n")
        record = box.code(code, env={"PYTHONOPTIMIZE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"})
        self.assertEqual(record["stdout"], "1 1 0\n")
        self.assertTrue(box.is_warm())

    def test_modules_that_are_installed_later(self):
        box = self.box().warm()
        site = box.code("import site; print(site.getusersitepackages())")["stdout"].strip()
        box.sh("mkdir -p %s && echo VALUE = 7 > %s/later.py" % (site, site))
        for _ in range(3):
            self.assertEqual(box.code("import later; print(later.VALUE)")["stdout"], "7\n")
        box.warm()

    def test_files_that_were_not_closed(self):
        box = self.box().warm()
        box.sh("echo 'f = open(\"/tmp/b\", \"w\"); f.write(\"b\")' > /workspace/holder.py")
        box.code("def make():\n    f = open('/tmp/a', 'w')\n    def put(text):\n        f.write(text)\n        return put\n"
                 "    return put\nput = make()\nput('a')\nimport holder\n"
                 "l = [open('/tmp/c', 'w')]\nl.append(l)\nl[0].write('c')")
        self.assertEqual(box.sh("cat /tmp/a /tmp/b /tmp/c")["stdout"], "abc")

    def test_another_interpreter(self):
        """The one that would be started is found by PATH, and looks for modules in HOME."""
        box = self.box().warm()
        box.sh("mkdir -p /tmp/bin ~/.local/bin; printf '#!/bin/sh\\necho other\\n' > /tmp/bin/python3; chmod +x /tmp/bin/python3")
        self.assertEqual(box.code("print(1)", env={"PATH": "/tmp/bin:/usr/bin:/bin"})["stdout"], "other\n")
        site = box.code("import site; print(site.getusersitepackages())", env={"HOME": "/tmp/home"})["stdout"].strip()
        self.assertTrue(site.startswith("/tmp/home/"), site)
        box.warm()
        box.sh("cp /tmp/bin/python3 ~/.local/bin")
        self.assertEqual(box.code("print(1)")["stdout"], "other\n")

    def test_a_hook_of_its_own(self):
        box = self.box().warm()
        box.sh("mkdir -p $(python3 -m site --user-site) && "
               "echo 'import os; print(os.getpid())' > $(python3 -m site --user-site)/usercustomize.py")
        for _ in range(3):
            own, hook = box.code("import os; print(os.getpid())")["stdout"].split()
            self.assertEqual(own, hook)

    def test_files_of_old_ones_are_removed(self):
        box = self.box()
        for _ in range(80):
            box.code("pass")
        harness.until(lambda: int(box.sh("ls /tmp/.cloche | wc -l")["stdout"]) <= 65, "the end of old files")

    def test_files_of_refused_ones_are_removed(self):
        box = self.box()
        for wrong, status in (({"cwd": "/nowhere"}, 404), ({"user": "nobody-else"}, 400)):
            self.assertEqual(box.post("/exec", {"code": "pass", **wrong}).status, status)
        harness.until(lambda: box.sh("ls /tmp/.cloche")["stdout"] == "", "the end of their files")

    def test_limits_of_time_reach_all_that_it_started(self):
        box = self.box().warm()
        code = ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
                "        os.execlp('sleep', 'sleep', '4321')\n    os._exit(0)\ntime.sleep(1000)")
        record = box.code(code, timeout="400ms")
        self.assertEqual((record["status"], record["timed_out"]), ("timeout", True), record)
        self.assertEqual(box.sh("pgrep -f '[s]leep 4321' || echo none")["stdout"], "none\n")

    def test_denials_are_its_own(self):
        box = self.box().warm()
        record = box.code("import os\ntry:\n    os.unshare\nexcept AttributeError:\n    pass\n"
                          "import ctypes; print(ctypes.CDLL(None).mount(b'x', b'/mnt', b'tmpfs', 0, None))")
        self.assertEqual(record["stdout"], "-1\n", record)
        self.assertIn("mount", [d["what"] for d in record["denials"]] + [d["target"] for d in record["denials"]], record)
        self.assertEqual(box.code("print(1)")["denials"], [])

    def test_many_at_once(self):
        box = self.box().warm()
        connections = []
        for i in range(12):
            connection = self.d.connect()
            connection.request("POST", box.path + "/exec", json.dumps({"code": "print(%d)" % i}))
            connections.append(connection)
        for i, connection in enumerate(connections):
            self.assertEqual(harness.Response(connection.getresponse()).json["stdout"], "%d\n" % i)
            connection.close()

    def test_streamed_and_in_the_background(self):
        box = self.box().warm()
        with box.stream("POST", "/exec", {"code": "print('a', flush=True); raise SystemExit(4)"},
                        {"Accept": "text/event-stream"}) as s:
            events = list(s.events())
        self.assertEqual([e[0] for e in events][-1], "exit", events)
        self.assertEqual(box.exec(code="print('b')", background=True).status, 201)
        self.assertEqual(box.exec(code="import sys; print(sys.stdout.isatty())", tty=True).json["stdout"].strip(), "True")

    def test_other_languages(self):
        box = self.box()
        self.assertEqual(box.code("echo $1 $#", language="bash", args=["x", "y"])["stdout"], "x 2\n")

    def test_without_the_prefork(self):
        """It is killed again and again: snippets run all the same."""
        box = self.box().warm()
        for i in range(6):
            for eid in box.preforks():
                box.post("/execs/%s/signal" % eid, {"signal": "KILL"})
            self.assertEqual(box.code("print(%d)" % i)["stdout"], "%d\n" % i)

    def test_a_prefork_that_never_answers(self):
        box = self.box().warm()
        before = set(box.preforks())
        box.sh("pkill -STOP -f '^python3 - ' || true")
        record = box.code("print(5)", timeout="60s")
        self.assertEqual(record["stdout"], "5\n", record)
        # Nobody else waits for it. The next one may have started already.
        self.assertFalse(before & set(box.preforks()))
        box.warm()

    def test_a_prefork_that_prints(self):
        box = self.box().warm()
        before = box.preforks()
        box.code("import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n    try:\n"
                 "        if b'python3\\0-' in open('/proc/%s/cmdline' % p, 'rb').read() and p != str(os.getpid()):\n"
                 "            to = open('/proc/%s/fd/1' % p, 'wb', 0)\n            while to.write(bytes(1 << 16)):\n"
                 "                pass\n    except OSError:\n        pass", timeout="3s")
        self.assertNotEqual(box.preforks(), before)
        box.warm()

    def test_it_does_not_keep_a_sandbox_awake(self):
        box = self.box(idle_timeout="2s").warm()
        self.assertTrue(box.preforks())
        harness.until(lambda: box.get("").status == 404 or box.get("").json["state"] == "destroyed",
                      "the end of an idle sandbox", 30)

    def test_small_sandboxes_have_none(self):
        box = self.box(memory="128M")
        for _ in range(3):
            self.assertFalse(box.is_warm())
        self.assertEqual(box.preforks(), [])

    def test_refusals(self):
        box = self.box()
        for body, field in (({"code": "1", "cmd": ["a"]}, "cmd"), ({"shell": "1", "language": "python"}, "language"),
                            ({"cmd": ["a"], "args": ["b"]}, "args"), ({"code": "1", "language": "cobol"}, "language"),
                            ({"code": 1}, "code")):
            with self.subTest(body=body):
                self.assertError(box.post("/exec", body), 400, "invalid", field)


class Restart(unittest.TestCase):
    def test_preforks_end_with_the_daemon(self):
        daemon = harness.Daemon().start()
        try:
            box = Box(daemon).warm()
            daemon.process.send_signal(signal.SIGTERM)
            daemon.process.wait(30)
            daemon.start()
            harness.until(lambda: not box.preforks(), "the end of the one before")
            self.assertEqual(box.code("print(1)")["stdout"], "1\n")
            box.warm()
            self.assertEqual(len(box.preforks()), 1)
        finally:
            daemon.stop()
            daemon.remove()


class Off(unittest.TestCase):
    def test_no_slots_no_preforks(self):
        daemon = harness.Daemon(config="warm:\n  slots: 0\n").start()
        try:
            box = Box(daemon)
            for _ in range(3):
                self.assertFalse(box.is_warm())
            self.assertEqual(box.preforks(), [])
        finally:
            daemon.stop()
            daemon.remove()

"""Contexts of the code interpreter: copies of a preforked process where that is possible, and the same
to whoever uses them where it is not."""

import http.client
import json
import threading
import time
import unittest

import harness


class Box:
    """A sandbox of the E2B door, and its interpreter's port."""

    def __init__(self, daemon, key, template="code-interpreter-v1"):
        self.daemon, self.key = daemon, key
        status, body = self.ask("POST", "/sandboxes", {"templateID": template, "timeout": 600, "secure": True})
        assert status == 201, (status, body)
        self.sandbox = json.loads(body)
        self.id = self.sandbox["sandboxID"]

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)
        headers = {"X-API-Key": self.key, "Content-Type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, text.decode()

    def port(self, method, path, body=None):
        return self.ask(method, path, body, **{
            "E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49999",
            "X-Access-Token": self.sandbox["envdAccessToken"],
        })

    def context(self, **body):
        status, text = self.port("POST", "/contexts", dict({"language": "python"}, **body))
        assert status == 200, (status, text)
        return json.loads(text)["id"]

    def run(self, code, context=None):
        """What it printed, and the value of its last expression."""
        body = {"code": code, "context_id": context} if context else {"code": code}
        status, text = self.port("POST", "/execute", body)
        assert status == 200, (status, text)
        lines = [json.loads(line) for line in text.splitlines()]
        errors = [line for line in lines if line["type"] == "error"]
        assert not errors and lines[-1]["type"] == "end_of_execution", lines
        printed = "".join(line["text"] for line in lines if line["type"] == "stdout")
        values = [line["text"] for line in lines if line["type"] == "result" and line["is_main_result"]]
        return printed, values[0] if values else None

    def shell(self, line):
        reply = self.daemon.post("/v1/sandboxes/%s/exec" % self.id, {"shell": line})
        assert reply.status == 200, reply
        return reply.json["stdout"]

    def preforks(self):
        """Parked processes that run, as the guest knows them."""
        reply = self.daemon.get("/v1/sandboxes/%s/execs" % self.id)
        assert reply.status == 200, reply
        return [e["id"] for e in reply.json if e.get("tag") == "cloche:park" and e["running"]]

    def kernels(self, language):
        reply = self.daemon.get("/v1/sandboxes/%s/execs" % self.id)
        return sum(e["running"] for e in reply.json if e.get("tag", "").startswith("cloche:kernel:")
                   and e["tag"].endswith(":" + language))

    def kill_preforks(self):
        for eid in self.preforks():
            self.daemon.post("/v1/sandboxes/%s/execs/%s/signal" % (self.id, eid), {"signal": "KILL"})

    def end(self):
        self.ask("DELETE", "/sandboxes/" + self.id)


class Kernels(unittest.TestCase):
    config = None
    preforked = 1  # processes that kernels are forked from

    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(config=cls.config).start()
        cls.key = cls.daemon.token("kernels", "--e2b")

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.daemon.remove()

    def box(self, template="code-interpreter-v1"):
        box = Box(self.daemon, self.key, template)
        self.addCleanup(box.end)
        return box

    def test_contexts_are_apart(self):
        box = self.box()
        contexts = [None] + [box.context() for _ in range(4)]
        for i, c in enumerate(contexts):
            box.run("x = %d; import random, os; r = random.random()" % i, c)
        seen = [box.run("(x, os.getpid(), os.getppid(), os.getsid(0) == os.getpid(), r)", c)[1] for c in contexts]
        self.assertEqual([s.split(",")[0] for s in seen], ["(%d" % i for i in range(5)])
        for column, count in ((1, 5), (2, 1), (3, 1), (4, 5)):
            self.assertEqual(len({s.split(",")[column] for s in seen}), count, seen)
        self.assertEqual(seen[0].split(",")[2:4], [" 1", " True"])

    def test_what_a_context_finds(self):
        box = self.box()
        context = box.context(cwd="/tmp")
        code = (
            "import os, sys\n(os.getcwd(), sys.argv, os.environ['E2B_SANDBOX'], os.environ['HOME'],"
            " sorted(int(f) for f in os.listdir('/proc/self/fd') if int(f) < 100)[:4],"
            " 'kernel' in sys.modules, __name__, sys.stdin.read(), os.umask(0o22), sys.path[0])"
        )
        self.assertEqual(box.run(code, context)[1],
                         "('/tmp', [''], 'true', '/home/user', [0, 1, 2, 3], False, '__main__', '', 18, '')")

    def test_removing_and_restarting(self):
        box = self.box()
        one, two = box.context(), box.context()
        box.run("x = 1; import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)", one)
        box.run("x = 2", two)
        self.assertEqual(box.port("DELETE", "/contexts/" + one)[0], 200)
        harness.until(lambda: not box.shell("pgrep -x sleep || true"), "the end of what the context left")
        self.assertEqual(box.run("x", two)[1], "2")
        self.assertEqual(box.port("POST", "/contexts/%s/restart" % two)[0], 200)
        self.assertEqual(box.run("'x' in globals()", two)[1], "False")

    def test_a_killed_context_is_told(self):
        box = self.box()
        context = box.context()
        body = {"code": "import os; os.kill(os.getpid(), 9)", "context_id": context}
        self.assertIn("UnexpectedEndOfExecution", box.port("POST", "/execute", body)[1])
        self.assertEqual(box.run("1 + 1", context)[1], "2")

    def test_modules_that_are_installed_later(self):
        box = self.box()
        box.context()
        site = box.run("import site; site.getusersitepackages()")[1]
        box.shell("mkdir -p %s && echo VALUE = 7 > %s/later.py" % (site, site))
        for _ in range(3):
            self.assertEqual(box.run("import later; later.VALUE", box.context())[1], "7")

    def test_without_the_preforked_process(self):
        """It is killed again and again: contexts are made all the same, and those that are there go on."""
        box = self.box()
        first = box.context()
        box.run("x = 5", first)
        for _ in range(6):
            box.kill_preforks()
            context = box.context()
            self.assertEqual(box.run("1 + 1", context)[1], "2")
            self.assertEqual(box.port("DELETE", "/contexts/" + context)[0], 200)
        self.assertEqual(box.run("x", first)[1], "5")

    def test_a_template_without_kernels_starts_none(self):
        box = self.box("base")
        self.assertEqual(box.preforks(), [])
        self.assertEqual(box.run("6 * 7")[1], "42")

    def test_bad_directories(self):
        box = self.box()
        for cwd, why in (("/nowhere", "does not exist"), ("/etc/passwd", "is not a directory"),
                         ("nowhere", "/home/user/nowhere: does not exist")):
            for language in ("python", "bash"):
                status, text = box.port("POST", "/contexts", {"language": language, "cwd": cwd})
                self.assertEqual(status, 400, text)
                self.assertTrue(text.startswith("cwd: ") and cwd in text and text.endswith(why), text)
        for body, field in (({"cwd": 7}, "cwd"), ({"language": 7}, "language"), ({"language": "cobol"}, "cobol")):
            status, text = box.port("POST", "/contexts", body)
            self.assertIn(status, (400, 422))
            self.assertIn(field, text)
        self.assertEqual(len(json.loads(box.port("GET", "/contexts")[1])), 2, "no context is left")
        self.assertEqual(box.run("1 + 1", box.context())[1], "2")

    def test_a_context_whose_sandbox_is_paused_while_it_starts(self):
        """The client learns that it failed: no kernel may go on after the resume."""
        box = self.box()
        for delay in (0, 0.01, 0.03, 0.06):
            before = {c["id"] for c in json.loads(box.port("GET", "/contexts")[1])}
            answers = []
            asked = threading.Thread(target=lambda: answers.append(box.port("POST", "/contexts", {"language": "bash"})))
            asked.start()
            time.sleep(delay)
            self.assertEqual(box.ask("POST", "/sandboxes/%s/pause" % box.id, {})[0], 204)
            asked.join()
            self.assertEqual(box.ask("POST", "/v2/sandboxes/%s/connect" % box.id, {})[0], 201)
            listed = {c["id"] for c in json.loads(box.port("GET", "/contexts")[1])}
            if answers[0][0] == 200:
                box.port("DELETE", "/contexts/" + json.loads(answers[0][1])["id"])
            else:
                self.assertEqual(listed, before)
            harness.until(lambda: box.kernels("bash") == 0, "the end of the kernel")

    def test_a_restarted_daemon_finds_them(self):
        box = self.box()
        context = box.context()
        box.run("x = 11", context)
        preforks = box.preforks()
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.start()
        self.assertEqual(box.run("x", context)[1], "11")
        self.assertEqual(box.run("1 + 1", box.context())[1], "2")
        self.assertEqual((len(preforks), box.preforks()), (self.preforked, preforks), "the preforked process is still used")


class FewKernels(Kernels):
    """The limit counts; 0 has every kernel started as a process."""

    config = "warm:\n  kernels: 0\n"
    preforked = 0

    def test_without_the_preforked_process(self):
        self.assertEqual(self.box().preforks(), [])


class Limit(unittest.TestCase):
    def test_so_many_and_no_more(self):
        daemon = harness.Daemon(config="warm:\n  kernels: 2\n").start()
        try:
            box = Box(daemon, daemon.token("kernels", "--e2b"))
            box.context()
            box.context()
            self.assertEqual(box.port("POST", "/contexts", {"language": "python"})[0], 429)
            box.end()
        finally:
            daemon.stop()
            daemon.remove()



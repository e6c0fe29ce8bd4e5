"""`cloche code --empty` and `cloche run --empty` in a daemon's prepared sandboxes: the same to whoever
calls them, only sooner; and everything that cannot be the same is done without it."""

import json
import os
import re
import signal
import subprocess
import tempfile

import cl
import harness

CODE = {
    "print": "print(42)",
    "both streams": "import sys; print('a'); sys.stderr.write('b\\n'); print('c')",
    "status": "import sys; sys.exit(3)",
    "error": "def f():\n    return 1 / 0\n\nf()",
    "syntax": "print(",
    "bytes": "import sys; sys.stdout.buffer.write(bytes(range(256)))",
    "unicode": "print('\u00e9\u20ac\U0001f600')",
    "much": "print('x' * 3000000)",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "environment": "import os; print(sorted(os.environ.items()))",
    "places": "import os, sys; print(os.getcwd(), __file__, sys.path, sys.argv, os.listdir('/tmp'))",
    "limits": "import resource as r; print([r.getrlimit(x) for x in range(16) if x != r.RLIMIT_RTTIME])",
    "ids": "import os; print(os.getuid(), os.getgroups(), os.umask(0), os.uname().nodename)",
    "input": "import sys; print(repr(sys.stdin.read()))",
    "disk": "import os; s = os.statvfs('/tmp'); print(s.f_blocks * s.f_frsize)",
    "exit 127": "import sys; sys.exit(127)",
}
COMMANDS = (
    ["true"], ["false"], ["sh", "-c", "exit 9"], ["sh", "-c", "kill -9 $$"], ["nosuchprogram"], ["/etc/passwd"],
    ["sh", "-c", "echo a; echo b >&2"], ["env"], ["pwd"], ["sh", "-c", "ulimit -a"], ["echo", "\u00e9 x", ""],
)


ALONE = {
    "print": "print(6 * 7)",
    "modules": "import json, math, re, sys\nprint(json.dumps([math.tau, re.sub('a', 'b', 'aa')]))\nsys.exit(4)",
    "error": "import json\ndef f():\n    return json.loads('{')\n\nf()",
    "arguments": "import sys; print(sys.argv, sys.stdin.read())",
    "streams": "import sys; print('a'); sys.stderr.write('b')",
    "much": "print('x' * 3000000)",
}


@harness.needs_warm
class CliWarm(harness.Case):
    def cloche(self, *args, warm=True, stdin=subprocess.DEVNULL, **how):
        env = dict(self.d.env(), CLOCHE_URL="unix:" + self.d.sock, CLOCHE_DAEMON="on" if warm else "off")
        how = dict({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}, **how)
        env.update(how.pop("env", {}))
        return subprocess.run([cl.CLOCHE, *args], env=env, stdin=stdin, timeout=120, **how)

    def record(self, *args, **how):
        done = self.cloche(args[0], "--json", *args[1:], **how)
        return json.loads(done.stdout)

    def is_warm(self, *args, **how):
        return bool(self.record(*args, **how)["layers"]["recycled"])

    def warm_up(self):
        harness.until(lambda: self.is_warm("code", "--empty", "-e", "pass") and
                      self.is_warm("run", "--empty", "true"), "a warm run")

    def assertSame(self, *args, **how):
        warm, cold = self.cloche(*args, **how), self.cloche(*args, warm=False, **how)
        for name in ("returncode", "stdout", "stderr"):
            self.assertEqual(getattr(warm, name), getattr(cold, name), (args, name))

    def test_code_is_the_same(self):
        self.warm_up()
        for name, code in CODE.items():
            with self.subTest(name):
                self.assertSame("code", "--empty", "-e", code, "arg 1", "--arg2")

    def test_commands_are_the_same(self):
        self.warm_up()
        for cmd in COMMANDS:
            with self.subTest(cmd):
                self.assertSame("run", "--empty", "--", *cmd)

    def test_options_are_the_same(self):
        self.warm_up()
        path = os.path.join(self.d.dir, "snippet.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import sys; print(__file__, sys.argv); 1 / 0")
        os.chmod(path, 0o644)
        for args in (
            ["code", "--empty", path, "x"],
            ["code", "--empty", "--env", "A=b", "--env", "COPIED", "--env", "NONE", "-e",
             "import os; print({k: v for k, v in os.environ.items() if k in ('A', 'COPIED', 'NONE')})"],
            ["run", "--empty", "--timeout", "700ms", "sleep", "100"],
            ["run", "--empty", "-t", "5s", "--output-limit", "10", "echo", "more than ten bytes"],
            ["code", "--empty", "--lang", "bash", "-e", "echo $0"],
        ):
            with self.subTest(args):
                self.assertSame(*args, env={"COPIED": "from the caller"})

    def test_the_record_says_what_was_reused(self):
        self.warm_up()
        record = self.record("code", "--empty", "-e", "print(1)")
        self.assertEqual(record["stdout"], "1\n")
        self.assertIn("cgroup" if harness.ROOT else "net_ns", record["layers"]["recycled"])
        self.assertEqual(record["layers"]["missing"],
                         self.record("code", "--empty", "-e", "print(1)", warm=False)["layers"]["missing"])

    def commands(self):
        """How many commands the daemon has started."""
        text = self.d.get("/metrics").body.decode()
        return int(re.search(r"^cloche_execs_total (\d+)$", text, re.M).group(1))

    def place(self):
        """A directory of the caller's."""
        path = tempfile.mkdtemp(dir=self.d.dir)
        os.chmod(path, 0o755)
        return path

    def assertAsked(self, times, *args, **how):
        before = self.commands()
        done = self.cloche(*args, **how)
        self.assertEqual(self.commands() - before, times, (args, done))
        return done

    def test_code_that_stands_alone_needs_no_empty(self):
        self.warm_up()
        place = self.place()
        with open(os.path.join(place, "main.py"), "w", encoding="utf-8") as file:
            file.write("print('of the caller')")
        for name, code in ALONE.items():
            with self.subTest(name):
                self.assertAsked(1, "code", "-e", code, "arg 1", cwd=place)
                self.assertSame("code", "-e", code, "arg 1", cwd=place)

    def test_code_that_may_need_the_directory_runs_here(self):
        self.warm_up()
        place = self.place()
        with open(os.path.join(place, "here.py"), "w", encoding="utf-8") as file:
            file.write("X = 7")
        for code, out in (("print(open('here.py').read())", b"X = 7\n"), ("import here; print(here.X)", b"7\n"),
                          ("import os; print(os.getcwd())", place.encode() + b"\n"),
                          ("import sys; print(sys.path[1])", place.encode() + b"\n")):
            with self.subTest(code):
                self.assertEqual(self.assertAsked(0, "code", "-e", code, cwd=place).stdout, out)
        for args in (["--json", "-e", "print(1)"], ["--no-daemon", "-e", "print(1)"], ["--apply", "-e", "print(1)"],
                     ["--lang", "sh", "-e", "echo 1"]):
            with self.subTest(args):
                self.assertAsked(0, "code", *args, cwd=place)
        with open(os.path.join(place, "json.py"), "w", encoding="utf-8") as file:
            file.write("dumps = lambda x: 'mine'")
        done = self.assertAsked(0, "code", "-e", "import json; print(json.dumps(1))", cwd=place)
        self.assertEqual(done.stdout, b"mine\n")

    def test_a_directory_that_is_not_shown_runs_here(self):
        self.warm_up()
        done = self.assertAsked(0, "code", "-e", "print(1)", cwd="/etc")
        self.assertIn(b"never shown", done.stderr)

    def test_what_takes_long_is_printed_as_it_comes(self):
        self.warm_up()
        code = "import time; print('first', flush=True); time.sleep(30)"
        place = self.place()
        before = self.commands()
        env = dict(self.d.env(), CLOCHE_URL="unix:" + self.d.sock, CLOCHE_DAEMON="on")
        with subprocess.Popen([cl.CLOCHE, "code", "-e", code], env=env, cwd=place, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            self.assertEqual(child.stdout.readline(), b"first\n")
            child.send_signal(signal.SIGTERM)
            self.assertEqual(child.wait(60), 143)
        self.assertEqual(self.commands() - before, 1)

    def test_a_signal_is_passed_on(self):
        """Also while the daemon works: the run then is one of the launcher's."""
        self.warm_up()
        code = "import time\ntime.sleep(30)"
        env = dict(self.d.env(), CLOCHE_URL="unix:" + self.d.sock, CLOCHE_DAEMON="on")
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)):
            before = self.commands()
            with self.subTest(number), subprocess.Popen(
                    [cl.CLOCHE, "code", "--empty", "-e", code], env=env, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                harness.until(lambda n=before: self.commands() > n, "the command")
                child.send_signal(number)
                self.assertEqual(child.wait(60), status)

    def test_doubts_are_cold(self):
        self.warm_up()
        for args in (
            ["code", "--empty", "--no-daemon", "-e", "pass"],
            ["code", "--empty", "--lang", "bash", "-e", "true"], ["code", "--empty", "--hostname", "x", "-e", "pass"],
            ["code", "--empty", "--require", "seccomp", "-e", "pass"],
            ["run", "--empty", "--capture", "*", "true"], ["run", "--empty", "--mount", "/usr/share:/mnt", "true"],
            ["code", "--empty", "--guard", "strict", "-e", "1"],
        ):
            with self.subTest(args):
                self.assertFalse(self.is_warm(*args))

    def test_input_that_somebody_may_still_write_is_cold(self):
        self.warm_up()
        args = ("code", "--empty", "-e", "import sys; print(len(sys.stdin.read()))")
        reader, writer = os.pipe()
        os.close(writer)
        self.assertTrue(self.is_warm(*args, stdin=reader), "nothing will come")
        os.close(reader)
        reader, writer = os.pipe()
        os.write(writer, b"four")
        os.close(writer)
        record = self.record(*args, stdin=reader)
        os.close(reader)
        self.assertEqual((record["stdout"], record["layers"]["recycled"]), ("4\n", []))

    def test_order_of_streams_that_are_one_is_kept(self):
        self.warm_up()
        code = "import sys\nfor i in range(9):\n    print(i, file=(sys.stdout, sys.stderr)[i % 2], flush=True)"
        done = self.cloche("code", "--empty", "-e", code, stderr=subprocess.STDOUT)
        self.assertEqual(done.stdout, b"".join(b"%d\n" % i for i in range(9)))

    def test_without_a_daemon(self):
        for url in ("unix:/nonexistent/socket", "unix:" + "/x" * 200, "http://127.0.0.1:1"):
            done = self.cloche("code", "--empty", "-e", "print(1)", env={"CLOCHE_URL": url})
            self.assertEqual((done.returncode, done.stdout), (0, b"1\n"), url)

    def test_a_foreign_daemon_is_not_asked(self):
        """Odd answers, and whoever is in its place: the code is run here."""
        import socket
        import threading

        self.warm_up()
        path = os.path.join(self.d.dir, "odd")
        answers = [
            b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"\0" * 1000,
            b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"stat",
            b"HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n" + b"[" * 80,
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + json.dumps({
                "status": "exited", "exit_code": 0, "signal": None, "oom_killed": False, "stdout": "!!",
                "stderr": "", "stdout_truncated": False, "stderr_truncated": False}).encode(),
        ]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            def serve():
                for answer in answers:
                    peer, _ = listener.accept()
                    with peer:
                        peer.recv(65536)
                        peer.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            for answer in answers:
                done = self.cloche("code", "--empty", "-e", "print(7)", env={"CLOCHE_URL": "unix:" + path})
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"7\n", b""), answer)
            thread.join(30)
        os.unlink(path)



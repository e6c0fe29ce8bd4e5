"""Streams and signals: live output, stdin, closed ends, and what ends a sandbox from outside."""

import json
import os
import resource
import signal
import socket
import subprocess
import time

import cl
import leaks


class Live(cl.Case):
    def test_output_before_the_end(self):
        p = cl.start(
            "run",
            "--",
            "sh",
            "-c",
            "echo first; echo second >&2; read x; echo got $x",
            stdin=subprocess.PIPE,
        )
        self.assertEqual(p.stdout.readline(), b"first\n")
        self.assertEqual(p.stderr.readline(), b"second\n")
        self.assertIsNone(p.poll())
        r = cl.finish(p, b"answer\n")
        self.assertEqual(r.out, "got answer\n")

    def test_single_bytes(self):
        p = cl.start(
            "run",
            "--",
            "sh",
            "-c",
            "printf a; read x; printf b; read x; printf c; read x",
            stdin=subprocess.PIPE,
        )
        for byte in (b"a", b"b", b"c"):
            self.assertEqual(os.read(p.stdout.fileno(), 10), byte)
            p.stdin.write(b"\n")
            p.stdin.flush()
        self.assertEqual(cl.finish(p).code, 0)

    def test_large_stdin(self):
        data = os.urandom(1 << 20) * 20
        r = self.ok("run", "--", "sh", "-c", "cat | wc -c", input=data)
        self.assertEqual(r.out.strip(), str(len(data)))

    def test_large_both_ways(self):
        data = os.urandom(1 << 20) * 8
        self.assertEqual(self.ok("run", "--", "cat", input=data).raw_out, data)
        rec = cl.record("--output-limit", "20M", "--", "base64", input=data)
        self.assertEqual(len(rec["stdout"].replace("\n", "")), (len(data) + 2) // 3 * 4)

    def test_stdin_not_read(self):
        """A command that leaves its input unread ends all the same."""
        self.assertEqual(self.ok("run", "--", "true", input=b"x" * (4 << 20)).out, "")
        self.assertEqual(
            cl.record("--", "true", input=b"x" * (4 << 20), code=0)["status"], "exited"
        )

    def test_stdin_end_is_seen(self):
        self.assertEqual(self.ok("run", "--", "cat", input="").out, "")

    def test_stdin_left_open(self):
        """cloche ends with the command although nobody closed stdin."""
        r, w = os.pipe()
        try:
            result = cl.finish(cl.start("run", "--", "echo", "done", stdin=r), timeout=10)
            self.assertEqual(result.out, "done\n")
            result = cl.finish(cl.start("run", "--json", "--", "echo", "done", stdin=r), timeout=10)
            self.assertEqual(result.code, 0)
        finally:
            os.close(r)
            os.close(w)

    def test_file_as_stdin(self):
        self.write("in.txt", "line\n")
        with open(self.path("in.txt")) as f:
            self.assertEqual(cl.finish(cl.start("run", "--", "cat", stdin=f)).out, "line\n")

    def test_socket_as_stdin_and_stdout(self):
        a, b = socket.socketpair()
        with a, b:
            p = cl.start(
                "run", "--", "sh", "-c", "read x; echo got $x", stdin=b.fileno(), stdout=b.fileno()
            )
            a.sendall(b"it\n")
            self.assertEqual(a.recv(100), b"got it\n")
            self.assertEqual(cl.finish(p).code, 0)

    def test_other_end_of_the_output_sent_away(self):
        """A command that sends its stdout through its stdin does not keep cloche from ending."""
        code = (
            "import array, socket\n"
            "fds = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1]))\n"
            "socket.socket(fileno=0).sendmsg([b'x'], [fds])\n"
            "print('sent')"
        )
        for options in ([], ["--json"]):
            a, b = socket.socketpair()
            with a, b, open(self.path("out"), "w+b") as out:
                p = cl.start("run", *options, "--", "python3", "-c", code, stdin=b, stdout=out)
                self.assertEqual(cl.finish(p, timeout=15).code, 0)
                self.assertIn("sent", self.read("out"))

    def test_no_stdout_for_the_record(self):
        r = cl.command("sh", "-c", '"$1" run --json -- true >&-', "sh", cl.CLOCHE)
        self.assertEqual(r.code, 125, str(r))
        self.assertIn("cloche: cannot write the record", r.err)

    def test_file_that_cannot_take_the_output(self):
        """Output that is lost is not a success, also if the command never knew."""
        for limited in ("echo lost", "head -c 100000 /dev/zero"):
            with open(self.path("out"), "wb") as out:
                out.seek(1 << 20)
                p = cl.start(
                    "run",
                    *("--", "sh", "-c", limited),
                    stdout=out,
                    cwd=self.mkdir("work"),
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20,) * 2),
                )
                r = cl.finish(p)
            self.assertEqual(r.code, 125, str(r))
            self.assertIn("cloche: cannot write its output: File too large\n", r.err)

    def test_command_closes_stdout(self):
        r = cl.run(
            "run", "--", "sh", "-c", "echo before; exec >&- 2>&-; sleep 0.3; exit 5", timeout=10
        )
        self.assertEqual((r.code, r.out), (5, "before\n"))
        rec = cl.record(
            "--", "sh", "-c", "echo before; exec >&- 2>&-; sleep 0.3; exit 5", timeout=10
        )
        self.assertEqual((rec["exit_code"], rec["stdout"]), (5, "before\n"))
        self.assertGreater(rec["duration_ms"], 250)

    def test_reader_goes_away(self):
        """SIGPIPE reaches the writer inside, and cloche ends with it."""
        p = cl.start("run", "--", "yes")
        self.assertEqual(p.stdout.read(2), b"y\n")
        p.stdout.close()
        self.assertEqual(p.wait(10), 141)
        p.stderr.close()

    def test_pipeline(self):
        r = cl.command("sh", "-c", '"$1" run -- seq 1 100000 | head -n 3', "sh", cl.CLOCHE)
        self.assertEqual((r.code, r.out), (0, "1\n2\n3\n"), str(r))

    def test_record_to_a_closed_pipe(self):
        p = cl.start("run", "--json", "--", "sh", "-c", "sleep 0.3; echo x")
        p.stdout.close()
        self.assertNotEqual(p.wait(10), 0)
        p.stderr.close()

    def test_stdout_full(self):
        """A record that could not be written is an error, not a success."""
        with open("/dev/full", "wb") as full:
            r = cl.finish(cl.start("run", "--json", "--", "true", stdout=full))
        self.assertEqual(r.code, 125, str(r))
        self.assertIn("cloche: ", r.err)

    def test_many_at_once(self):
        running = [
            cl.start("run", "--", "sh", "-c", "read x; echo %d" % i, stdin=subprocess.PIPE)
            for i in range(12)
        ]
        for i, p in enumerate(running):
            self.assertEqual(cl.finish(p, b"\n").out, "%d\n" % i)


class Signals(cl.Case):
    # Ready when it says so: a shell loses a SIGINT that comes while it starts a child.
    WAITING = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "if os.fork() == 0: os.execvp('sleep', ['sleep', sys.argv[1]])\n"
        "print('up', flush=True); signal.pause()"
    )

    def begin(
        self, *options, script='trap "" INT TERM HUP QUIT; echo up; sleep %s & sleep %s', code=None, **kw
    ):
        self.mark = cl.marker()
        command = cl.py(code, self.mark) if code else ("sh", "-c", script.replace("%s", self.mark))
        p = cl.start("run", *options, "--", *command, stdin=subprocess.PIPE, **kw)
        self.addCleanup(p.wait)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        self.assertEqual(p.stdout.readline(), b"up\n")
        return p

    def ended(self, p, code):
        self.assertEqual(cl.finish(p, timeout=10).code, code)
        self.assertEqual(cl.gone(self.mark, 2), [])

    def test_terminate(self):
        p = self.begin()
        p.send_signal(signal.SIGTERM)
        self.ended(p, 143)

    def test_interrupt(self):
        p = self.begin(code=self.WAITING)
        p.send_signal(signal.SIGINT)
        self.ended(p, 130)

    def test_stop_and_go_on(self):
        """ctrl-Z stops what is inside as well, also what left the command's group; fg wakes it again."""
        ticks = "echo up; setsid sh -c 'while :; do echo tick; sleep 0.05; done' & wait; sleep %s"
        for level in ("container", "process"):
            # At level process it is the group only.
            script = ticks if level == "container" else ticks.replace("setsid", "")
            # A group of its own in our session: the shell's way. Of an orphaned one nobody stops.
            p = self.begin("--level", level, script=script, process_group=0)
            self.assertEqual(p.stdout.readline(), b"tick\n")
            p.send_signal(signal.SIGTSTP)
            self.assertTrue(os.WIFSTOPPED(os.waitpid(p.pid, os.WUNTRACED)[1]))
            time.sleep(0.3)
            os.set_blocking(p.stdout.fileno(), False)
            p.stdout.read()
            time.sleep(0.4)
            self.assertFalse(p.stdout.read(), level)
            os.set_blocking(p.stdout.fileno(), True)
            p.send_signal(signal.SIGCONT)
            self.assertEqual(p.stdout.readline(), b"tick\n")
            p.send_signal(signal.SIGTERM)
            p.stdout.read()
            self.ended(p, 143)

    def test_interrupt_twice(self):
        """A command that ignores ctrl-C goes on; the second one ends it."""
        p = self.begin()
        p.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        self.ended(p, 130)

    def test_hangup(self):
        p = self.begin()
        p.send_signal(signal.SIGHUP)
        self.ended(p, 129)

    def test_command_may_clean_up(self):
        """A command that handles SIGTERM gets the chance; cloche still says that it was told to end."""
        p = self.begin(script="trap 'echo bye; exit 0' TERM; echo up; sleep %s & wait")
        p.send_signal(signal.SIGTERM)
        r = cl.finish(p, timeout=10)
        self.assertIn((r.out, r.code), (("bye\n", 143), ("bye\n", 0), ("", 143)), str(r))
        self.assertEqual(cl.gone(self.mark, 2), [])

    def test_whole_foreground_group(self):
        """ctrl-C of a shell goes to every process of the group at once."""
        p = self.begin(code=self.WAITING)
        os.killpg(p.pid, signal.SIGINT)
        self.ended(p, 130)

    def test_record_of_a_terminated_run(self):
        mark = cl.marker()
        p = cl.start("run", "--json", "--", "sh", "-c", "echo early; sleep %s" % mark)
        self.assertTrue(cl.wait_for(lambda: len(cl.host_pids(mark)) > 1))
        time.sleep(0.2)
        p.send_signal(signal.SIGTERM)
        r = cl.finish(p, timeout=10)
        self.assertEqual(r.code, 143, str(r))
        if r.out:
            rec = json.loads(r.out)
            self.assertIn(rec["status"], ("killed", "signaled"))
            self.assertEqual(rec["stdout"], "early\n")
        self.assertEqual(cl.gone(mark, 2), [])

    def test_stopped_tree(self):
        p = self.begin(script="echo up; sleep %s & kill -STOP $! $$")
        p.send_signal(signal.SIGTERM)
        self.ended(p, 143)

    def test_kill_9(self):
        """cloche killed by force: the sandbox dies with it."""
        p = self.begin()
        p.kill()
        self.assertEqual(p.wait(5), -9)
        self.assertEqual(cl.gone(self.mark, 5), [])
        p.stdin.close(), p.stdout.close(), p.stderr.close()

    def test_kill_9_at_any_moment(self):
        """Killed during the start: nothing stays, and the next run sweeps what a dead one left."""
        self.ok("run", "--", "true")
        before = leaks.cgroups()
        marks = []
        for step in range(25):
            mark = cl.marker()
            marks.append(mark)
            p = cl.start("run", "--", "sleep", mark)
            time.sleep(step * 0.0004)
            p.kill()
            p.wait(5)
            p.stdout.close(), p.stderr.close()
        for mark in marks:
            self.assertEqual(cl.gone(mark, 5), [])
        self.ok("run", "--", "true")
        left = set()

        def swept():
            nonlocal left
            left = leaks.cgroups() - before
            if left:
                cl.run("run", "--", "true")
            return not left

        cl.wait_for(swept, 10, 0.3)
        self.assertEqual(left, set())

    def test_kill_9_with_workspace_and_apply(self):
        """Nothing half-applied, no temporary names in the tree."""
        self.write("a", "1")
        p = self.begin("--apply", script="echo 2 > a; echo up; sleep %s")
        p.kill()
        p.wait(5)
        p.stdin.close(), p.stdout.close(), p.stderr.close()
        self.assertEqual(cl.gone(self.mark, 5), [])
        self.assertEqual((os.listdir(self.dir), self.read("a")), (["a"], "1"))

    def test_parents_death(self):
        """The shell that started cloche dies: cloche goes on until its own end, without a leak."""
        mark = cl.marker()
        r = cl.command(
            "sh",
            "-c",
            '"$1" run -t 1s -- sleep "$2" >/dev/null 2>&1 & exit 0',
            "sh",
            cl.CLOCHE,
            mark,
        )
        self.assertEqual(r.code, 0)
        self.assertEqual(cl.gone(mark, 8), [])

    def test_suspended(self):
        """SIGSTOP and SIGCONT to cloche do not lose the command."""
        p = self.begin(script="echo up; read x; echo $x; exit 3")
        p.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        p.send_signal(signal.SIGCONT)
        r = cl.finish(p, b"on\n")
        self.assertEqual((r.code, r.out), (3, "on\n"))

"""--tty and `cloche shell`: a real terminal inside; and what cloche says on the caller's terminal."""

import fcntl
import os
import re
import select
import termios
import time

import cl


class Tty(cl.Case):
    def terminal(self, *args, **kw):
        t = cl.Terminal(*args, **kw)
        self.addCleanup(t.stop)
        return t

    def test_is_a_terminal(self):
        t = self.terminal(
            "run",
            "--tty",
            "--",
            "sh",
            "-c",
            "test -t 0 && test -t 1 && test -t 2 && tty && echo $TERM",
        )
        t.expect(r"/dev/(pts/\d+|console)\r?\n")
        t.expect("xterm")
        self.assertEqual(t.close(), 0)

    def test_not_the_callers_terminal(self):
        """The command has a terminal of its own: it cannot push input into the caller's."""
        t = self.terminal(
            "run",
            "--tty",
            "--",
            *cl.py(
                "import fcntl, termios\n"
                "for c in b'id':\n"
                "    try: fcntl.ioctl(0, termios.TIOCSTI, bytes([c])); print('pushed')\n"
                "    except OSError as e: print('refused', e.errno)"
            )
        )
        t.expect("refused")
        self.assertEqual(t.close(), 0)
        self.assertNotIn("pushed", t.text)

    def test_without_tty_no_push_either(self):
        """Run plainly from a terminal: TIOCSTI and TIOCLINUX on the inherited one are refused."""
        code = (
            "import fcntl, termios\n"
            "for request in (termios.TIOCSTI, 0x541c):\n"
            "    try: fcntl.ioctl(0, request, b'x'); print('pushed')\n"
            "    except OSError as e: print('refused', e.errno)"
        )
        t = self.terminal("run", "--", *cl.py(code))
        self.assertEqual(t.close(), 0)
        self.assertNotIn("pushed", t.text)
        self.assertEqual(t.text.count("refused"), 2)

    def test_without_tty_no_signals_either(self):
        """A terminal with O_ASYNC signals its foreground processes, the caller's, at each key."""
        code = (
            "import fcntl, os\n"
            "fcntl.fcntl(0, 10, 9) # F_SETSIG\n"
            "flags = fcntl.fcntl(0, fcntl.F_GETFL)\n"
            "try: fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)\n"
            "except OSError as e: print('refused', e.errno)\n"
            "fcntl.ioctl(0, 0x5452, b'\\1\\0\\0\\0') # FIOASYNC\n"
            "print('as before', fcntl.fcntl(0, fcntl.F_GETFL) == flags)\n"
            "fcntl.fcntl(0, 10, 0)"
        )
        for level in ("container", "process"):
            t = self.terminal("run", "--level", level, "--", *cl.py(code))
            self.assertEqual(t.close(), 0)
            self.assertTrue(t.text.replace("\r", "").startswith("refused 1\nas before True\n"), t.text)

    def test_nobody_reads(self):
        """A terminal that takes no more (ctrl-S) does not stop the clock, and cloche can be ended."""
        mark = cl.marker()
        code = "input('ready'); import os; [os.write(1, b'x' * 4000) for i in range(10**6)]"
        t = self.terminal("run", "--tty", "-t", "2s", "--", *cl.py(code, mark))
        t.expect("ready")
        self.fill(t)
        t.send("\n")
        self.assertTrue(cl.wait_for(lambda: cl.host_pids(mark) == [t.p.pid]))
        t.p.terminate()
        t.p.wait(5)

    def fill(self, t):
        """Leaves some room on the terminal, but not for a page."""
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK
        fd = fcntl.ioctl(t.master, 0x5441, flags)  # TIOCGPTPEER
        try:
            while True:
                os.write(fd, b"x" * 512)
        except BlockingIOError:
            pass
        while not select.select([], [fd], [], 0)[1]:
            os.read(t.master, 64)
        os.close(fd)

    def test_size_and_resize(self):
        t = self.terminal(
            "run",
            "--tty",
            "--",
            "sh",
            "-c",
            "trap 'stty size' WINCH; stty size; echo up; while :; do sleep 0.05; done",
            rows=33,
            cols=77,
        )
        t.expect(r"33 77\r?\n")
        t.expect("up")
        t.resize(44, 99)
        t.expect(r"44 99\r?\n")
        t.send("\x03")
        self.assertIn(t.close(), (130, 2))

    def test_control_c(self):
        t = self.terminal(
            "run",
            "--tty",
            "--",
            "sh",
            "-c",
            "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done",
        )
        t.expect("up")
        t.send("\x03")
        t.expect("caught")
        self.assertEqual(t.close(), 9)

    def test_control_c_default(self):
        t = self.terminal("run", "--tty", "--", "sh", "-c", "echo up; exec sleep 30")
        t.expect("up")
        time.sleep(0.1)
        t.send("\x03")
        self.assertEqual(t.close(), 130)

    def test_control_keys_without_a_terminal_of_its_own(self):
        """The caller's terminal signals cloche, which passes it on, once."""
        script = "trap 'echo again' INT; trap 'exit 3' QUIT; echo up; while :; do sleep 0.1; done"
        for level in ("container", "process"):
            for key, code in (("\x03", 130), ("\x1c", 131)):
                t = self.terminal("run", "--level", level, "--", "sh", "-c", "echo up; exec sleep 50")
                t.expect("up")
                t.send(key)
                self.assertEqual(t.close(), code, level)
            t = self.terminal("run", "--level", level, "--", "sh", "-c", script)
            t.expect("up")
            t.send("\x03")
            t.expect("again")
            t.send("\x1c")
            self.assertEqual(t.close(), 3, level)

    def test_control_d(self):
        t = self.terminal("run", "--tty", "--", "sh", "-c", "echo up; cat; echo end")
        t.expect("up")
        t.send("line\n")
        t.expect("line\r?\n.*line\r?\n")
        t.send("\x04")
        t.expect("end")
        self.assertEqual(t.close(), 0)

    def test_exit_status(self):
        for script, code in (("exit 7", 7), ("kill -TERM $$", 143)):
            t = self.terminal("run", "--tty", "--", "sh", "-c", script)
            self.assertEqual(t.close(), code)

    def test_terminal_is_restored(self):
        t = self.terminal(
            "run", "--tty", "--", "sh", "-c", "stty raw -echo; echo up; sleep 0.1; kill -9 $$"
        )
        before = termios.tcgetattr(t.master)
        t.expect("up")
        t.p.wait(10)
        after = termios.tcgetattr(t.master)
        self.assertEqual(before[:4], after[:4])

    def test_no_time_limit(self):
        """A person at a terminal is not thrown out after a minute; --timeout still counts."""
        t = self.terminal("run", "--tty", "-t", "500ms", "--", "sleep", "20")
        self.assertEqual(t.close(), 124)

    def test_large_output(self):
        t = self.terminal("run", "--tty", "--", "sh", "-c", "seq 1 50000; echo end")
        t.expect(r"\b50000\r?\nend", timeout=20)
        self.assertEqual(t.close(), 0)

    def test_hangup(self):
        """Closing the terminal ends the sandbox."""
        mark = cl.marker()
        t = self.terminal("run", "--tty", "--", "sh", "-c", "echo up; sleep %s" % mark)
        t.expect("up")
        os.close(t.master)
        t.master = -1
        self.assertNotEqual(t.p.wait(10), 0)
        self.assertEqual(cl.gone(mark, 2), [])

    def test_without_a_terminal(self):
        """--tty from a script: the command still gets a terminal."""
        r = cl.run(
            "run", "--tty", "--", "sh", "-c", "test -t 0 && test -t 1 && echo yes", timeout=15
        )
        self.assertIn(r.code, (0, 125), str(r))
        if r.code == 0:
            self.assertIn("yes", r.out)
        else:
            self.assertIn("cloche: ", r.err)

    def test_input_that_ends_within_a_line(self):
        for text in ("", "line\n", "no end of line"):
            r = cl.run("run", "--tty", "--", "cat", input=text, timeout=15)
            self.assertEqual(r.code, 0, str(r))
            self.assertEqual(r.out.replace("\r", ""), text * 2)

    def test_command_that_closes_its_terminal(self):
        """It is not hung up, neither on its way out nor when it opens the terminal again."""
        script = "exec <&- >&- 2>&-; sleep 0.2; echo still here >/dev/tty; exit 3"
        t = self.terminal("run", "--tty", "--", "sh", "-c", script)
        t.expect("still here")
        self.assertEqual(t.close(), 3)

    def test_not_with_json(self):
        r = cl.run("run", "--tty", "--json", "--", "true")
        self.assertEqual(r.code, 125, str(r))
        self.assertRegex(r.err, "^cloche: tty")

    def test_background_child_does_not_hold_it(self):
        mark = cl.marker()
        t = self.terminal("run", "--tty", "--", "sh", "-c", "sleep %s & echo up" % mark)
        self.assertEqual(t.close(10), 0)
        self.assertEqual(cl.gone(mark, 2), [])


class Shell(cl.Case):
    def test_interactive(self):
        self.write("here.txt", "text")
        t = cl.Terminal("shell")
        self.addCleanup(t.stop)
        t.expect(r"[$#>] ?$")
        t.send("cat here.txt; echo $((6*7)) $(id -un)\n")
        t.expect(r"text42 user")
        t.send("exit 5\n")
        self.assertEqual(t.close(), 5)

    def test_options(self):
        t = cl.Terminal("shell", "--hostname", "inner", "--empty")
        self.addCleanup(t.stop)
        t.send("uname -n; exit\n")
        t.expect("inner\r?\n")
        self.assertEqual(t.close(), 0)

    def test_prompt_says_where_one_is(self):
        if not os.path.exists("/bin/bash"):
            self.skipTest("there is no bash")
        for options, prompt in (
            ((), "user@cloche:%s[$] $" % re.escape(self.dir)),
            (("--env", "PS1=mine> "), "mine> $"),
        ):
            t = cl.Terminal("shell", *options)
            self.addCleanup(t.stop)
            t.expect(prompt)
            t.send("exit\n")
            self.assertEqual(t.close(), 0)

    def test_job_control(self):
        t = cl.Terminal("shell")
        self.addCleanup(t.stop)
        t.expect(r"[$#>] ?$")
        t.send("sleep 30\n")
        time.sleep(0.4)
        t.send("\x1a")
        t.expect("(?i)stopped")
        t.send("fg\n")
        t.expect("sleep 30\r?\n")
        time.sleep(0.2)
        t.send("\x03")
        t.send("exit 3\n")
        self.assertEqual(t.close(), 3)


class Notes(cl.Case):
    """What is said on the caller's terminal, on stderr, after a run."""

    def test_changes(self):
        self.write("a", "1")
        t = cl.Terminal("run", "--", "sh", "-c", "echo 2 > a; echo 3 > b")
        self.assertEqual(t.close(), 0)
        lines = [line for line in t.text.splitlines() if line.startswith("cloche: ")]
        self.assertEqual(len(lines), 1, t.text)
        self.assertRegex(lines[0], r"2|a\b.*b\b")

    def test_nothing_changed_nothing_said(self):
        t = cl.Terminal("run", "--", "echo", "hi")
        self.assertEqual(t.close(), 0)
        self.assertEqual(t.text.replace("\r", ""), "hi\n")

    def test_one_line_per_kind_of_denial(self):
        code = (
            "import socket\n"
            "for i in range(50):\n"
            "    try: socket.create_connection(('192.0.2.1', 80 + i % 2), 1)\n"
            "    except OSError: pass"
        )
        t = cl.Terminal("run", "--", *cl.py(code))
        self.assertEqual(t.close(), 0)
        lines = [line for line in t.text.splitlines() if line.startswith("cloche: ")]
        self.assertTrue(1 <= len(lines) <= 2, t.text)
        self.assertIn("192.0.2.1", lines[0])

    def test_names_from_inside_are_harmless(self):
        t = cl.Terminal("run", "--diff", "--", *cl.py("open('\\x1b]0;owned\\x07', 'w')"))
        self.assertEqual(t.close(), 0)
        self.assertNotIn("\x1b", t.text)
        self.assertNotIn("\x07", t.text)

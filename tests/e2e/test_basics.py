"""Exit statuses, what goes to which stream, and the result record."""

import ctypes
import json
import os
import re
import signal

import cl

STATUSES = ("exited", "signaled", "timeout", "oom", "cpu_time", "output_limit", "killed")


class ExitStatus(cl.Case):
    def test_own(self):
        for code in (0, 1, 7, 124, 125, 126, 127, 255):
            r = cl.run("run", "--", "sh", "-c", "exit %d" % code)
            self.assertEqual(r.code, code, str(r))
            self.assertEqual(r.err, "", "cloche has nothing to say about a command's own status")

    def test_signal(self):
        for name, number in (("HUP", 1), ("KILL", 9), ("SEGV", 11), ("TERM", 15)):
            r = cl.run("run", "--", "sh", "-c", "kill -%s $$" % name)
            self.assertEqual(r.code, 128 + number, str(r))

    def test_timeout(self):
        r = cl.run("run", "--timeout", "300ms", "--", "sleep", "30")
        self.assertEqual(r.code, 124, str(r))
        self.assertIn("cloche: ", r.err)

    def test_cloche_cannot(self):
        self.refused("run", "--memory", "12Q", "--", "true", says="12Q")

    def test_not_executable(self):
        self.write("plain", "echo no\n", 0o644)
        for command in (self.path("plain"), "./plain", "/etc", "/usr/bin"):
            r = cl.run("run", "--", command)
            self.assertEqual(r.code, 126, str(r))
            self.assertEqual(r.out, "", str(r))
            self.assertRegex(r.err, r"(?m)^cloche: .*%s" % re.escape(command))

    def test_not_found(self):
        for command in ("no-such-program", "/no/such/program", "./nothing", self.path("nothing")):
            r = cl.run("run", "--", command)
            self.assertEqual(r.code, 127, str(r))
            self.assertEqual(r.out, "", str(r))
            self.assertRegex(r.err, r"(?m)^cloche: .*%s" % re.escape(command))

    def test_path_that_is_empty(self):
        for level in ("container", "process"):
            r = cl.run("run", "--level", level, "--env", "PATH=", "--", "/bin/echo", "there")
            self.assertEqual((r.code, r.out), (0, "there\n"), str(r))
            self.assertEqual(cl.run("run", "--level", level, "--env", "PATH=", "--", "echo").code, 127)

    def test_empty_name(self):
        r = cl.run("run", "--", "")
        self.assertEqual((r.code, r.out), (127, ""), str(r))
        self.assertNotIn("PATH", r.err)

    def test_names_of_commands_are_harmless(self):
        """A model may have chosen them."""
        r = cl.run("run", "--", "\x1b]0;owned\x07")
        self.assertEqual((r.code, "\x1b" in r.err, "owned" in r.err), (127, False, True), str(r))

    def test_missing_interpreter(self):
        """127 as in a shell, and told apart from a command that is not there."""
        self.write("script", "#! /no/such/interpreter -x\n", 0o755)
        self.write("dos", "#!/bin/sh\r\n", 0o755)
        with open("/bin/true", "rb") as f:
            program = f.read().replace(b"\0/lib64/ld-linux-x86-64.so.2\0", b"\0/lib64/ld-linux-x86-64.so.9\0")
        self.write("program", program, 0o755)
        for name, missing in (
            ("./script", "/no/such/interpreter"),
            ("./dos", "/bin/sh .*CR LF"),
            ("./program", "/lib64/ld-linux-x86-64.so.9"),
        ):
            with self.subTest(name):
                if name == "./program" and b"x86-64.so.9" not in program:
                    self.skipTest("another processor")
                for level in (), ("--level", "process"):
                    r = cl.run("run", *level, "--", name)
                    self.assertEqual(r.code, 127, str(r))
                    self.assertRegex(r.err, r"^cloche: %s: is to be run by %s" % (name, missing))
                rec = cl.record("--", name, code=127)
                self.assertRegex(rec["notes"][0], "^The command was found, but not .* run by: " + missing)
        self.write("bin/tool", "#!/no/such\x1b[31m\n", 0o755)
        r = cl.run("run", "--env", "PATH=/nowhere:%s:/bin" % self.path("bin"), "--", "tool")
        self.assertEqual((r.code, r.err), (127, "cloche: tool: is to be run by /no/such?[31m, which is not there in the sandbox\n"))

    def test_script_of_the_workspace(self):
        self.write("script", "#!/bin/sh\necho ran \"$@\"\n", 0o755)
        self.assertEqual(self.out("./script", "a b"), "ran a b\n")

    def test_script_without_interpreter_line(self):
        """ENOEXEC: either run by the shell, as execvp does, or refused as 126; never 0 unrun."""
        self.write("script", "echo ran\n", 0o755)
        r = cl.run("run", "--", "./script")
        self.assertIn((r.code, r.out), ((0, "ran\n"), (126, "")), str(r))

    def test_same_with_json(self):
        for script, code in (("exit 7", 7), ("kill -TERM $$", 143), ("exit 0", 0)):
            self.assertEqual(cl.record("--", "sh", "-c", script)["_code"], code)
        self.assertEqual(cl.record("-t", "200ms", "--", "sleep", "9")["_code"], 124)

    def test_not_found_says_what_may_help(self):
        self.write("bin/only-here", "#!/bin/sh\n", 0o755)
        env = cl.caller_env(PATH=self.path("bin") + ":" + cl.SHELL_PATH)
        for command, says in (
            (["echo hi && ls"], "sh -c"),
            (["only-here"], "--tools"),
            (["nowhere-at-all"], None),
            (["./echo hi", "x"], None),
        ):
            rec = cl.record("--", *command, env=env, code=127)
            self.assertEqual(len(rec["notes"]), 2 if says else 1, rec)
            self.assertIn(says or "not found", rec["notes"][-1])
        self.assertIn("sh -c", cl.run("run", "ls -l").err)
        r = cl.run("run", "--env", "PATH=/nowhere", "--", "ls")
        self.assertEqual((r.code, r.err.count("\n")), (127, 1), str(r))

    def test_not_found_with_json(self):
        """Nothing ran, so there is no record that could be taken for a run's."""
        r = cl.run("run", "--json", "--", "no-such-program")
        self.assertEqual(r.code, 127, str(r))
        if r.out:
            self.assertEqual(json.loads(r.out)["exit_code"], 127)


class Arguments(cl.Case):
    def test_verbatim(self):
        args = ["", " ", "a b", "$HOME", "*", "--memory", "-t", "\n", "'\"\\", "\u00e4\u20ac", "--"]
        r = self.ok("run", "--", *cl.py("import sys; print(sys.argv[1:])", *args))
        self.assertEqual(r.out, "%r\n" % args)

    def test_not_utf8(self):
        r = self.ok(
            "run", "--", *cl.py("import sys,os; print(os.fsencode(sys.argv[1]))"), b"\xff\xfe"
        )
        self.assertEqual(r.out, "b'\\xff\\xfe'\n")

    def test_without_dashes(self):
        self.assertEqual(self.ok("run", "echo", "hi").out, "hi\n")

    def test_options_end_at_the_command(self):
        self.assertEqual(self.ok("run", "echo", "--json", "-t", "1").out, "--json -t 1\n")

    def test_long_option_with_equals_sign(self):
        self.assertEqual(
            self.ok("run", "--timeout=9s", "--env=K=v=w", "--", "sh", "-c", "echo $K").out, "v=w\n"
        )

    def test_long_argument_list(self):
        args = ["x" * 1000] * 1000
        self.assertEqual(self.out("sh", "-c", 'echo "$#"', "sh", *args), "1000\n")

    def test_version_and_help(self):
        self.assertRegex(self.ok("version").out, r"cloche .*\d+\.\d+")
        for args in (("help",), ("--help",), ("run", "--help"), ("code", "--help")):
            self.assertIn("cloche", self.ok(*args).out)


class Streams(cl.Case):
    def test_apart(self):
        r = self.ok("run", "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((r.out, r.err), ("out\n", "err\n"))

    def test_quiet_by_default(self):
        """Not on a terminal: nothing but the command's own output, on either stream."""
        r = self.ok("run", "--", "sh", "-c", "echo x > made; printf out")
        self.assertEqual((r.out, r.err), ("out", ""))

    def test_bytes_pass_unchanged(self):
        data = bytes(range(256)) * 300
        self.assertEqual(self.ok("run", "--", "cat", input=data).raw_out, data)

    def test_prefix(self):
        r = cl.run("run", "--no-such-option", "--", "true")
        for line in r.err.splitlines():
            self.assertRegex(line, r"^(cloche: |  |\t|usage|$)", str(r))


class Record(cl.Case):
    def check_types(self, rec, fields):
        for name, types in fields.items():
            self.assertIn(name, rec)
            value = rec[name]
            wanted = tuple(type(None) if t is None else t for t in types)
            self.assertIsInstance(value, wanted, name)
            if isinstance(value, bool):
                self.assertIn(bool, wanted, name)

    def test_every_field(self):
        rec = cl.record("--", "echo", "42", code=0)
        self.check_types(rec, cl.RECORD_FIELDS)
        self.check_types(rec["layers"], cl.LAYER_FIELDS)
        for name, value in (
            ("status", "exited"),
            ("exit_code", 0),
            ("signal", None),
            ("success", True),
            ("timed_out", False),
            ("oom_killed", False),
            ("limits_hit", []),
            ("stdout", "42\n"),
            ("stderr", ""),
            ("stdout_truncated", False),
            ("stderr_truncated", False),
            ("encoding", "utf-8"),
            ("files", []),
            ("changes", []),
            ("denials", []),
            ("net_tx_bytes", 0),
            ("net_rx_bytes", 0),
        ):
            self.assertEqual(rec[name], value, name)
        self.assertGreater(rec["duration_ms"], 0)
        self.assertGreater(rec["setup_ms"], 0)
        self.assertGreater(rec["max_rss_bytes"], 100000)

    def test_layers(self):
        layers = cl.record("--", "true")["layers"]
        self.assertEqual(layers["level"], "container")
        self.assertIs(layers["user_ns"], True)
        self.assertRegex(layers["seccomp"], r"^default@sha256:[0-9a-f]{8,64}$")
        self.assertEqual(layers["caps"], "none")
        self.assertIs(layers["rootless"], not cl.ROOT)
        self.assertIn(layers["cgroup"], ("v1", "v2", "hybrid", "none"))
        self.assertIn(layers["memory"], ("cgroup", "watch"))
        self.assertEqual(layers["disk"], "tmpfs")
        self.assertGreaterEqual(set(layers["denials"]), {"connect", "resolve", "syscall"})
        self.assertEqual(layers["recycled"], [])
        if layers["memory"] == "watch":
            self.assertIn("memory", layers["missing"])
        if cl.ROOT and layers["landlock_abi"]:
            self.assertEqual(layers["missing"], [])

    def test_landlock_is_the_kernels(self):
        """The ABI that is claimed is the one that the kernel has."""
        abi = ctypes.CDLL(None).syscall(444, None, 0, 1)
        claimed = cl.record("--", "true")["layers"]["landlock_abi"]
        self.assertTrue(0 < claimed <= abi if abi > 0 else claimed == 0, (claimed, abi))

    def test_ids_unique(self):
        ids = [cl.record("--", "true")["id"] for _ in range(8)]
        self.assertEqual(len(set(ids)), 8, ids)
        for name in ids:
            self.assertRegex(name, r"^[a-z0-9]{16,}$")

    def test_failure(self):
        rec = cl.record("--", "sh", "-c", "echo bad >&2; exit 3", code=3)
        self.assertEqual(
            (rec["status"], rec["exit_code"], rec["success"], rec["stderr"]),
            ("exited", 3, False, "bad\n"),
        )

    def test_signaled(self):
        rec = cl.record("--", "sh", "-c", "kill -SEGV $$", code=139)
        self.assertEqual((rec["status"], rec["signal"], rec["success"]), ("signaled", 11, False))
        self.assertIn(rec["exit_code"], (None, 139))

    def test_killed_by_itself_is_not_oom(self):
        rec = cl.record("--", "sh", "-c", "kill -KILL $$", code=137)
        self.assertEqual((rec["status"], rec["signal"], rec["oom_killed"]), ("signaled", 9, False))

    def test_exit_137_is_not_a_signal(self):
        rec = cl.record("--", "sh", "-c", "exit 137", code=137)
        self.assertEqual((rec["status"], rec["exit_code"], rec["signal"]), ("exited", 137, None))

    def test_timeout(self):
        rec = cl.record("--timeout", "0.3", "--", "sleep", "9", code=124)
        self.assertEqual(
            (rec["status"], rec["timed_out"], rec["success"]), ("timeout", True, False)
        )
        self.assertGreaterEqual(rec["duration_ms"] + rec["setup_ms"], 200)

    def test_bytes_as_base64(self):
        rec = cl.record("--encoding", "base64", "--", "sh", "-c", r"printf '\377\000a'; echo e >&2")
        said = (rec["encoding"], rec["stdout"], rec["stderr"], rec["stdout_truncated"])
        self.assertEqual(said, ("base64", "/wBh", "ZQo=", False))
        self.refused("run", "--encoding", "base64", "--", "true", says="encoding: needs json")
        self.refused("run", "--encoding", "hex", "--", "true", says="encoding")

    def test_not_utf8(self):
        rec = cl.record("--", "printf", r"a\377\300\200\355\240\200b\303")
        self.assertEqual(re.sub("\ufffd+", "?", rec["stdout"]), "a?b?")

    def test_odd_bytes(self):
        text = "\x00\x01\x1b[31m\t\r\n\"\\/\x7f\u0085\u2028\U0001f600"
        rec = cl.record("--", *cl.py("import sys; sys.stdout.buffer.write(%r)" % text.encode()))
        self.assertEqual(rec["stdout"], text)

    def test_a_character_cut_in_two_by_the_limit(self):
        rec = cl.record(
            "--output-limit",
            "1001",
            "--",
            *cl.py("import sys; sys.stdout.buffer.write('\u20ac'.encode() * 5000)")
        )
        self.assertTrue(rec["stdout_truncated"])
        self.assertTrue(rec["stdout"].startswith("\u20ac\u20ac"))
        self.assertTrue(rec["stdout"].endswith("\u20ac\u20ac"))

    def test_streams_apart(self):
        rec = cl.record("--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((rec["stdout"], rec["stderr"]), ("out\n", "err\n"))

    def test_forged_record(self):
        """What the command prints is in stdout, whatever it looks like."""
        rec = cl.record("--", "echo", '{"id":"x","status":"exited","success":true}\n')
        self.assertTrue(rec["stdout"].startswith('{"id":"x"'))
        self.assertNotEqual(rec["id"], "x")

    def test_forged_status_by_every_fd(self):
        """Writing to any fd number cannot change what the record says."""
        code = (
            "import os\n"
            "for fd in range(3, 256):\n"
            "    try: os.write(fd, b'\\0' * 64)\n"
            "    except OSError: pass\n"
            "os._exit(9)"
        )
        rec = cl.record("--", *cl.py(code), code=9)
        self.assertEqual((rec["status"], rec["exit_code"]), ("exited", 9))

    def test_refusal(self):
        """With --json a caller finds the reason where it looks for the record, and on stderr."""
        r = cl.run("run", "--json", "--memory", "12Q", "--", "true")
        self.assertEqual(r.code, 125, str(r))
        self.assertIn("cloche: memory: '12Q'", r.err)
        error = json.loads(r.out)["error"]
        self.assertEqual((error["kind"], error["field"]), ("invalid", "memory"))
        self.assertIn("12Q", error["message"])

    def test_stdin(self):
        self.assertEqual(cl.record("--", "cat", input="given")["stdout"], "given")

    def test_duration(self):
        rec = cl.record("--", "sleep", "0.3")
        self.assertGreaterEqual(rec["duration_ms"], 295)
        self.assertLess(rec["cpu_ms"], rec["duration_ms"])

    def test_cpu(self):
        code = "import time\nwhile time.process_time() < 0.3: pass"
        self.assertGreaterEqual(cl.record("--", *cl.py(code))["cpu_ms"], 250)

    def test_cpu_of_grandchildren_nobody_waited_for(self):
        code = (
            "import os, time\n"
            "done, busy = os.pipe()\n"
            "if os.fork() == 0:\n"
            "    if os.fork() == 0:\n"
            "        while time.process_time() < 0.4: pass\n"
            "        os._exit(0)\n"
            "    os._exit(0)\n"
            "os.wait(); os.close(busy); os.read(done, 1); time.sleep(0.2)"
        )
        rec = cl.record("--", *cl.py(code))
        self.assertGreaterEqual(rec["cpu_ms"], 300)

    def test_max_rss(self):
        rec = cl.record("--", *cl.py("x = b'x' * (80 << 20)"))
        self.assertGreater(rec["max_rss_bytes"], 80 << 20)
        self.assertLess(rec["max_rss_bytes"], 200 << 20)

    def test_pids_peak(self):
        rec = cl.record("--", "sh", "-c", "for i in 1 2 3 4 5; do sleep 0.5 & done; wait")
        if rec["pids_peak"] is None:
            self.skipTest("this host cannot tell the peak of pids")
        self.assertTrue(6 <= rec["pids_peak"] <= 9, rec["pids_peak"])

    def test_disk_bytes(self):
        rec = cl.record(
            "--", "sh", "-c", "head -c 3000000 /dev/zero > a; head -c 2000000 /dev/zero > /tmp/b"
        )
        self.assertGreaterEqual(rec["disk_bytes"], 5000000)
        self.assertLess(rec["disk_bytes"], 7000000)

    def test_status_values(self):
        for args in (
            ("--", "true"),
            ("--", "sh", "-c", "kill -9 $$"),
            ("-t", "0.1", "--", "sleep", "9"),
        ):
            self.assertIn(cl.record(*args)["status"], STATUSES)

    def test_background_child_ends_with_the_command(self):
        """The run is over when the command is, and takes what it left running with it."""
        mark = cl.marker()
        rec = cl.record("--", "sh", "-c", "sleep %s >/dev/null 2>&1 & exit 4" % mark, code=4)
        self.assertEqual(rec["status"], "exited")
        self.assertEqual(cl.gone(mark), [])

    def test_launcher_killed_while_pid_1_is_stopped(self):
        """Pid 1 cannot see that its keeper is gone; the kernel kills it."""
        mark = cl.marker()
        p = cl.start("run", "--empty", "--", "sh", "-c", "echo up; sleep %s" % mark)
        self.assertEqual(p.stdout.readline(), b"up\n")
        with open("/proc/%d/task/%d/children" % (p.pid, p.pid), encoding="ascii") as f:
            children = [int(pid) for pid in f.read().split()]
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        p.kill()
        p.communicate()
        left = cl.gone(mark)
        for pid in children if left else []:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [])

    def test_background_child_holding_stdout(self):
        """A left-over that keeps the pipe open does not make the run wait for it."""
        mark = cl.marker()
        rec = cl.record("--", "sh", "-c", "echo one; sleep %s & exit 0" % mark, code=0, timeout=10)
        self.assertEqual(rec["stdout"], "one\n")
        self.assertLess(rec["duration_ms"], 9000)
        self.assertEqual(cl.gone(mark), [])

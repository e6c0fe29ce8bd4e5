"""Level process: no namespaces, yet an ordinary user, Landlock, seccomp, limits, and nobody survives."""

import os
import signal
import socket

import cl


class Process(cl.Case):
    def run_(self, *args, **kw):
        return cl.run("run", "--level", "process", *args, **kw)

    def out_(self, *command, **kw):
        r = self.run_("--", *command, **kw)
        self.assertEqual(r.code, 0, str(r))
        return r.out

    def record(self, *args, **kw):
        return cl.record("--level", "process", *args, **kw)

    def test_exit_statuses(self):
        for script, code in (
            ("exit 0", 0),
            ("exit 7", 7),
            ("kill -TERM $$", 143),
            ("kill -9 $$", 137),
        ):
            self.assertEqual(self.run_("--", "sh", "-c", script).code, code)
        self.assertEqual(self.run_("-t", "300ms", "--", "sleep", "9").code, 124)
        self.assertEqual(self.run_("--", "no-such-program").code, 127)
        self.write("plain", "x", 0o644)
        self.assertEqual(self.run_("--", self.path("plain")).code, 126)

    def test_streams(self):
        r = self.run_("--", "sh", "-c", "cat; echo err >&2", input="in")
        self.assertEqual((r.out, r.err.splitlines()[0]), ("in", "err"))

    def test_record(self):
        rec = self.record("--", "echo", "42", code=0)
        for name in cl.RECORD_FIELDS:
            self.assertIn(name, rec)
        layers = rec["layers"]
        self.assertEqual(
            (layers["level"], layers["user_ns"], layers["caps"]), ("process", False, "none")
        )
        self.assertGreater(layers["landlock_abi"], 0)
        self.assertRegex(layers["seccomp"], r"^process@sha256:")
        for layer in ("user_ns", "pid_ns", "mount_ns", "net_ns", "ipc_ns", "root"):
            self.assertIn(layer, layers["missing"])
        for layer in ("caps", "no_new_privs", "seccomp", "landlock", "fds"):
            self.assertNotIn(layer, layers["missing"])

    def test_identity(self):
        """Asked of the kernel: /proc is closed at this level."""
        code = (
            "import ctypes, os\n"
            "libc = ctypes.CDLL(None)\n"
            "head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()\n"
            "libc.capget(head, data)\n"
            "print(list(data), libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0), os.getgroups())\n"
            "print(*set(os.getresuid() + os.getresgid()))"
        )
        state, ids = self.out_(*cl.py(code)).splitlines()
        groups = "[]" if cl.ROOT else str(os.getgroups())
        self.assertEqual(state, "[0, 0, 0, 0, 0, 0] 1 2 " + groups)
        if cl.ROOT:
            self.assertEqual(len(ids.split()), 1)
            self.assertGreaterEqual(int(ids), 60000)
        else:
            self.assertEqual(set(ids.split()), {str(os.geteuid()), str(os.getegid())})

    def test_path_follows_home(self):
        script = 'mkdir -p ~/.local/bin; printf "#!/bin/sh\\necho mine" > ~/.local/bin/own-tool; '
        script += "chmod +x ~/.local/bin/own-tool; echo $PATH; own-tool"
        path, mine = self.out_("sh", "-c", script).splitlines()
        self.assertEqual(mine, "mine")
        self.assertNotIn("/home/user", path)

    def test_what_was_asked_for_wins(self):
        code = "import os; print(*(os.environ[k] for k in ('HOME', 'TMPDIR', 'PWD')), os.getcwd())"
        given = ("--env", "HOME=/h", "--env", "TMPDIR=/t", "--env", "PATH=/usr/bin")
        r = self.run_(*given, "--", "/usr/bin/env")
        for pair in given[1::2]:
            name = pair.split("=")[0]
            self.assertEqual([x for x in r.out.splitlines() if x.startswith(name + "=")], [pair])
        r = self.run_(*given, "--empty", "--workdir", "/usr", "--", *cl.py(code))
        self.assertEqual(r.out, "/h /t /usr /usr\n", str(r))
        pwd, cwd = self.run_("--empty", "--", *cl.py(code)).out.split()[2:]
        self.assertEqual(pwd, cwd)

    def test_pids_are_the_commands_own(self):
        """The nanny is not one of them, wherever it is counted."""
        code = (
            "import os, time\n"
            "n = 1\n"
            "try:\n"
            "    for _ in range(12):\n"
            "        if os.fork() == 0: time.sleep(9); os._exit(0)\n"
            "        n += 1\n"
            "except OSError: pass\n"
            "print(n)"
        )
        self.assertIn(self.record("--", "true")["pids_peak"], (1, None))
        rec = self.record("--pids", "6", "--", *cl.py(code))
        if "pids" in rec["layers"]["missing"]:
            self.skipTest("no pids controller for this user; the record says so")
        self.assertEqual((rec["stdout"], rec["limits_hit"]), ("6\n", ["pids"]))
        self.assertIn(rec["pids_peak"], (6, None))

    def test_environment_and_fds(self):
        code = (
            "import os\n"
            "def is_open(fd):\n"
            "    try: os.fstat(fd); return True\n"
            "    except OSError: return False\n"
            "print(os.environ['A'], os.environ.get('SECRET'), os.environ['LANG'], [f for f in range(4096) if is_open(f)])"
        )
        r = self.run_("--env", "A=1", "--", *cl.py(code), env=cl.caller_env(SECRET="s"))
        self.assertEqual(r.out, "1 None C.UTF-8 [0, 1, 2]\n", str(r))

    def test_reads_the_current_directory(self):
        self.write("a.txt", "text")
        self.assertEqual(self.out_("sh", "-c", "cat a.txt"), "text")

    def test_what_is_mounted_below_the_current_directory(self):
        """No overlay leaves it out here: with a forbidden place among it, nothing is shown."""
        self.need_root("mounts")
        key = self.write("home/.ssh/key", "secret")
        os.chmod(key, 0o644)
        self.write("work/a.txt", "text", 0o644)
        at = self.mkdir("work/at")
        script = 'mount --bind "$1" "$2" && cd "$3" && exec "$4" run --level process -- sh -c "cat at/key a.txt"'
        r = cl.command(
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            os.path.dirname(key),
            at,
            self.path("work"),
            cl.CLOCHE,
            env=cl.caller_env(HOME=self.path("home")),
        )
        self.assertEqual((r.code, r.out), (1, ""), str(r))
        self.assertIn("workspace is empty", r.err)

    def test_cannot_write_outside(self):
        other = self.mkdir("other")
        os.chmod(other, 0o777)
        work = self.mkdir("work")
        r = self.run_(
            "--",
            "sh",
            "-c",
            "echo x > %s/f; echo x > /tmp/../%s/g; touch /var/tmp/cloche-e2e-x" % (other, other),
            cwd=work,
        )
        self.assertNotEqual(r.code, 0)
        self.assertEqual(os.listdir(other), [])
        self.assertFalse(os.path.exists("/var/tmp/cloche-e2e-x"))

    def test_cannot_read_outside(self):
        secret = self.write("outside/secret", "key", 0o644)
        work = self.mkdir("work")
        r = self.run_(
            "--",
            "sh",
            "-c",
            "cat %s ../outside/secret /proc/self/root%s /proc/self/cwd/../outside/secret "
            "/etc/shadow /etc/machine-id /root/.bashrc" % (secret, secret),
            cwd=work,
        )
        self.assertNotEqual(r.code, 0)
        self.assertEqual(r.out, "", str(r))

    def test_writable_place(self):
        """There is somewhere to write: HOME and the temporary directory."""
        self.out_("sh", "-c", 'echo x > "$HOME/f" && cat "$HOME/f" && echo y > "${TMPDIR:-/tmp}/g"')

    def test_workspace(self):
        ws = self.mkdir("ws")
        os.chmod(ws, 0o777)
        r = self.run_("-w", ws, "--", "sh", "-c", "echo x > made")
        self.assertEqual(r.code, 0, str(r))
        self.assertEqual(self.read("ws/made"), "x\n")

    def test_sockets_are_refused(self):
        code = (
            "import socket\n"
            "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, 17, 40, 38):\n"
            "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
            "        try: socket.socket(family, kind); print('got', family, kind)\n"
            "        except OSError: pass"
        )
        self.assertEqual(self.out_(*cl.py(code)), "")

    def test_datagram_pair_reaches_nobody(self):
        """sendto() on a socketpair could address any socket of the host by its path."""
        path = self.path("sock")
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(s.close)
        s.bind(path)
        os.chmod(path, 0o777)
        s.settimeout(0.2)
        code = (
            "import socket\n"
            "try:\n"
            "    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "    a.sendto(b'evil', %r); print('sent')\n"
            "except OSError: print('refused')" % path
        )
        self.assertEqual(self.out_(*cl.py(code)), "refused\n")

    def test_other_processes(self):
        """No signals to, and nothing to read of, the processes of others."""
        code = (
            "import os, signal\n"
            "for pid in (%d, os.getppid(), 1):\n"
            "    try: os.kill(pid, 0); print('signal', pid)\n"
            "    except OSError: pass\n"
            "    for n in ('environ', 'mem', 'cwd', 'root', 'fd', 'maps', 'cmdline'):\n"
            "        try:\n"
            "            p = '/proc/%%d/%%s' %% (pid, n)\n"
            "            os.listdir(p) if n in ('cwd', 'root', 'fd') else open(p).read(1); print('read', p)\n"
            "        except OSError: pass" % os.getpid()
        )
        self.assertEqual(self.out_(*cl.py(code)), "")

    def test_survivors(self):
        """Double-forked, setsid, deaf and stopped processes end with the run."""
        mark = cl.marker()
        code = (
            "import os, signal, sys, time\n"
            "for kind in range(4):\n"
            "    if os.fork() == 0:\n"
            "        os.setsid()\n"
            "        if os.fork(): os._exit(0)\n"
            "        for s in range(1, 32):\n"
            "            if s not in (9, 19): signal.signal(s, signal.SIG_IGN)\n"
            "        if kind == 3: os.kill(os.getpid(), signal.SIGSTOP)\n"
            "        os.execvp('sleep', ['sleep', sys.argv[1]])\n"
            "time.sleep(0.3); print('end')"
        )
        r = self.run_("--", *cl.py(code, mark))
        self.assertEqual((r.code, r.out), (0, "end\n"), str(r))
        self.assertEqual(cl.gone(mark, 2), [])
        self.assertEqual(
            self.run_("-t", "500ms", "--", *cl.py(code + "\ntime.sleep(99)", mark)).code, 124
        )
        self.assertEqual(cl.gone(mark, 2), [])

    def test_forking_survivors(self):
        """Processes that keep forking away from the killer are caught as well."""
        mark = cl.marker()
        code = (
            "import os, sys, time\n"
            "end = time.time() + 15\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    while time.time() < end:\n"
            "        try:\n"
            "            if os.fork(): os._exit(0)\n"
            "        except OSError: pass\n"
            "        os.setsid()\n"
            "    os._exit(0)\n"
            "time.sleep(0.3)"
        )
        self.assertEqual(self.run_("--", *cl.py(code, mark), timeout=20).code, 0)
        self.assertEqual(cl.gone(mark, 2), [])

    def test_killed_launcher(self):
        mark = cl.marker()
        p = cl.start("run", "--level", "process", "--", "sh", "-c", "echo up; sleep %s" % mark)
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.kill()
        p.wait(5)
        p.stdout.close(), p.stderr.close()
        self.assertEqual(cl.gone(mark, 5), [])

    def test_killed_supervisor(self):
        """Whoever kills it does not set free what it held."""
        mark = cl.marker()
        script = "(setsid sleep %s &) >/dev/null 2>&1; echo up; exec sleep %s" % (mark, mark)
        p = cl.start("run", "--level", "process", "--", "sh", "-c", script)
        self.assertEqual(p.stdout.readline(), b"up\n")
        with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
            os.kill(int(f.read()), signal.SIGKILL)
        self.assertEqual(cl.finish(p).code, 137)
        left = cl.gone(mark, 2)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        # Without root and a cgroup there is no way to find those that went away.
        self.assertLessEqual(len(left), 0 if cl.ROOT or cl.has_cgroup() else 1)

    def test_memory(self):
        rec = self.record(
            "--memory",
            "64M",
            "--",
            *cl.py(
                "x = bytearray(300 << 20); x[::4096] = b'x' * len(x[::4096]); print('had it all')"
            )
        )
        self.assertNotIn("had it all", rec["stdout"])
        self.assertFalse(rec["success"])

    def test_set_id(self):
        self.write("tool", "#!/bin/sh\n", 0o755)
        r = self.run_("-w", self.dir, "--", *cl.py("import os; os.chmod('tool', 0o4755)"))
        self.assertNotEqual(r.code, 0, str(r))
        self.assertEqual(os.stat(self.path("tool")).st_mode & 0o6000, 0)

    def test_denied_calls(self):
        code = (
            "import ctypes\nlibc = ctypes.CDLL(None)\n"
            "print(libc.unshare(0x10000000), libc.mount(b'x', b'/tmp', b'tmpfs', 0, None), libc.ptrace(0, 0, 0, 0))"
        )
        rec = self.record("--", *cl.py(code))
        self.assertEqual(rec["stdout"], "-1 -1 -1\n")

    def test_what_it_cannot_give_is_refused(self):
        self.write("src/a", "x")
        for options in (
            ("--apply",),
            ("--diff",),
            ("--tty",),
            ("--root", "overlay"),
            ("--image", self.path("src")),
            ("--mount", self.path("src") + ":/data"),
            ("--hostname", "other"),
        ):
            says = options[0][2:] + ": .*process"
            self.refused("run", "--level", "process", *options, "--", "true", says=says)

    def test_code(self):
        r = cl.run("code", "--level", "process", "-e", "print(6 * 7)")
        self.assertEqual((r.code, r.out), (0, "42\n"), str(r))

    def test_nothing_is_left_in_tmp(self):
        before = set(os.listdir("/tmp"))
        self.out_("sh", "-c", 'echo x > "$HOME/f"; echo y > "${TMPDIR:-/tmp}/cloche-e2e-g"')
        names = (".cloche-lair-", "cloche-e2e-g")

        def left():  # directories of other runs on this machine come and go
            return {n for n in set(os.listdir("/tmp")) - before if n.startswith(names)}

        new = left()
        cl.wait_for(lambda: not new & left())
        self.assertEqual(new & left(), set())

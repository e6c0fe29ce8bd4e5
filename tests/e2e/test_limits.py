"""Limits: each is reached, each holds, each is reported."""

import ctypes
import json
import os
import resource
import shlex
import subprocess
import time

import cl

HOG = "import sys\nn = int(sys.argv[1]) << 20\nx = bytearray(n)\nx[::4096] = b'x' * len(x[::4096])\nprint('had it all')"


class Memory(cl.Case):
    def check_stopped(self, rec):
        """By the cgroup it is killed; where memory is watched it may also see allocations fail."""
        self.assertNotIn("had it all", rec["stdout"])
        self.assertFalse(rec["success"])
        if cl.has_cgroup() or rec["status"] == "oom":
            self.assertEqual(
                (rec["status"], rec["oom_killed"], rec["_code"]), ("oom", True, 137), rec
            )
        else:
            self.assertIn("MemoryError", rec["stderr"])
            self.assertIn("memory", rec["layers"]["missing"])

    def test_too_much(self):
        self.check_stopped(cl.record("--memory", "64M", "--", *cl.py(HOG, "300")))

    def test_growing_without_end(self):
        """Who is watched is told of it as well, and does not only see an allocation fail."""
        for code in (
            "x = []\nwhile True: x.append(bytearray(1 << 20))",
            "x = bytearray(1 << 30)\nimport time; time.sleep(9)",
        ):
            for level in ("container", "process"):
                rec = cl.record("--level", level, "-m", "96M", "--", *cl.py(code))
                said = (rec["status"], rec["oom_killed"], rec["_code"], rec["exit_code"], rec["signal"])
                self.assertEqual(said, ("oom", True, 137, None, 9), rec)

    def test_the_message_says_what_to_do(self):
        r = cl.run("run", "-m", "64M", "--", *cl.py(HOG, "300"))
        says = r"It used all of its 64 MB of memory \(largest process: \d+ MB(, 1 killed for it)?\)\. .* -m 128M\."
        self.assertRegex(r.err, r"(?m)^cloche: killed for memory\. " + says)
        rec = cl.record("-m", "64M", "--", *cl.py(HOG, "300"), code=137)
        found = [d for d in rec["denials"] if d["target"] == "memory"]
        self.assertEqual((len(found), found[0]["what"], found[0]["count"]), (1, "limit", 1))
        self.assertRegex(found[0]["explain"], says)

    def test_the_message_tells_of_many(self):
        """A make with too many jobs: how large each was is what one has to know."""
        if not cl.has_cgroup():
            self.skipTest("where memory is watched, all are killed at once")
        hog = "%s -c 'x = b\"x\" * (30 << 20); import time; time.sleep(2)' &" % cl.PYTHON
        r = cl.run("run", "-m", "128M", "--", "sh", "-c", hog * 6 + " wait; exit 1")
        self.assertRegex(r.err, r"largest process: [34]\d MB, \d+ killed for it.*-m 256M, or run less at a time")

    def test_java_is_to_be_told(self):
        """Who runs Java, in whatever way, reads how it learns of the limit; nobody else does."""
        hog = " ".join(map(shlex.quote, cl.py(HOG, "300")))
        for script, count in ((hog, 0), ("true javac; " + hog, 1)):
            rec = cl.record("-m", "64M", "--", "sh", "-c", script)
            self.assertEqual(rec["status"], "oom", rec)
            self.assertEqual(sum("JDK_JAVA_OPTIONS" in n for n in rec["notes"]), count, rec)

    def test_enough(self):
        rec = cl.record("--memory", "200M", "--", *cl.py(HOG, "100"), code=0)
        self.assertEqual((rec["stdout"], rec["oom_killed"]), ("had it all\n", False))

    def test_default_is_a_gigabyte(self):
        rec = cl.record("--", *cl.py(HOG, "700"), code=0)
        self.assertGreater(rec["max_rss_bytes"], 700 << 20)

    def test_of_all_processes_together(self):
        """Six children with 40 MB each are too many for 100 MB."""
        code = (
            "import os, time\n"
            "kids = []\n"
            "for i in range(6):\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        x = bytearray(40 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(3); os._exit(0)\n"
            "    kids.append(pid)\n"
            "bad = sum(os.waitpid(p, 0)[1] != 0 for p in kids)\n"
            "print('had it all' if not bad else 'some died'); raise SystemExit(bad)"
        )
        rec = cl.record("--memory", "100M", "--", *cl.py(code))
        self.assertNotIn("had it all", rec["stdout"])
        self.assertTrue(rec["oom_killed"], rec)

    def test_child_killed(self):
        """A child that is killed for memory is told in the record even if its parent goes on."""
        if not cl.has_cgroup():
            self.skipTest("memory is watched here, not charged to a cgroup")
        rec = cl.record(
            "--memory", "64M", "--", "sh", "-c", '"$@" || echo went on', "sh", *cl.py(HOG, "300")
        )
        self.assertTrue(rec["oom_killed"], rec)
        self.assertIn(rec["status"], ("oom", "exited"))

    def test_no_swap(self):
        """The limit is one of memory and swap together: what does not fit is not swapped out."""
        if not cl.has_cgroup():
            self.skipTest("no cgroup of its own here")
        rec = cl.record("--memory", "64M", "-t", "20s", "--", *cl.py(HOG, "90"))
        self.assertEqual(rec["status"], "oom")

    def test_shared_memory_is_charged(self):
        """Anonymous shared memory and memfds count like any other."""
        code = (
            "import mmap, os\n"
            "m = mmap.mmap(-1, 300 << 20)\n"
            "for i in range(0, len(m), 4096): m[i] = 1\n"
            "print('had it all')"
        )
        rec = cl.record("--memory", "64M", "--", *cl.py(code))
        self.assertNotIn("had it all", rec["stdout"])
        self.assertFalse(rec["success"])

    def test_memfd_is_charged(self):
        code = (
            "import os\nfd = os.memfd_create('x')\n"
            "for i in range(300): os.write(fd, b'x' * (1 << 20))\n"
            "print('had it all')"
        )
        rec = cl.record("--memory", "64M", "--disk", "32M", "--", *cl.py(code))
        self.assertNotIn("had it all", rec["stdout"])

    def test_what_waits_in_sockets_is_charged(self):
        """Connections that nobody reads from, and datagrams, keep the kernel's memory."""
        if not cl.has_cgroup():
            self.skipTest("memory is watched here, not charged to a cgroup")
        code = (
            "import socket, sys\n"
            "kind, count, readers, keep = getattr(socket, sys.argv[1]), int(sys.argv[2]), [], []\n"
            "def all_of(call, *args):\n"
            "    n = 0\n"
            "    try:\n"
            "        while n < 8 << 20: n += call(*args)\n"
            "    except OSError: pass\n"
            "    return n\n"
            "for i in range(count):\n"
            "    a, b = socket.socket(type=kind), socket.socket(type=kind)\n"
            "    a.bind(('127.0.0.1', 0))\n"
            "    if kind == socket.SOCK_STREAM: a.listen()\n"
            "    b.connect(a.getsockname())\n"
            "    readers += [a.accept()[0] if kind == socket.SOCK_STREAM else a]\n"
            "    keep += [a, b]\n"
            "    readers[-1].setblocking(False), b.setblocking(False)\n"
            "    all_of(b.send, b'x' * 50000)\n"
            "print(sum(all_of(lambda: len(r.recv(65536))) for r in readers) >> 20)"
        )
        for kind, count in (("SOCK_STREAM", "60"), ("SOCK_DGRAM", "450")):
            rec = cl.record("--memory", "64M", "--", *cl.py(code, kind, count))
            held = 0 if rec["status"] == "oom" else int(rec["stdout"])
            self.assertLess(held, 64, (kind, rec["stderr"]))

    def test_temporary_files_are_no_oom(self):
        """600 MB into a tmpfs under 512 MB of memory is a full disk, not the end of the run."""
        for where, options in (
            ("/tmp", ()),
            (".", ("--disk", "512M")),
            ("/dev/shm", ()),
            ("/home/user", ()),
        ):
            script = "head -c 600000000 /dev/zero > %s/big; echo status $?" % where
            rec = cl.record("--memory", "512M", *options, "--", "sh", "-c", script)
            self.assertEqual((rec["status"], rec["oom_killed"]), ("exited", False), (where, rec))
            self.assertNotIn("status 0", rec["stdout"], where)
            self.assertIn("No space left", rec["stderr"], where)
            self.assertIn("disk", rec["limits_hit"], where)

    def test_reserving_is_not_using(self):
        """Runtimes that reserve gigabytes of address space must live (so no RLIMIT_AS)."""
        code = "import mmap\nm = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | 0x4000, prot=0)\nprint('fine')"
        self.assertEqual(
            cl.record("--memory", "128M", "--", *cl.py(code), code=0)["stdout"], "fine\n"
        )

    def test_disk_beyond_memory_is_refused(self):
        """What is written is held in memory, so it cannot be more."""
        self.refused("run", "--memory", "512M", "--disk", "1G", "--", "true", says="disk.*memory")

    def test_too_small_to_start(self):
        r = cl.run("run", "--memory", "1K", "--", "true")
        self.assertEqual(r.code, 125, str(r))
        self.assertIn("memory", r.err)


class Cpu(cl.Case):
    BURN = "import time\nend = time.time() + %s\nwhile time.time() < end: pass"

    def test_fraction(self):
        rec = cl.record("--cpus", "0.2", "--", *cl.py(self.BURN % 1.5))
        if "cpu" in rec["layers"]["missing"]:
            self.skipTest("no cpu controller for this user; the record says so")
        self.assertLess(rec["cpu_ms"], 0.45 * rec["duration_ms"], rec)

    def test_of_all_processes_together(self):
        code = "import os\nfor i in range(3): os.fork()\n" + self.BURN % 1.5
        rec = cl.record("--cpus", "0.3", "--", *cl.py(code))
        if "cpu" in rec["layers"]["missing"]:
            self.skipTest("no cpu controller for this user; the record says so")
        self.assertLess(rec["cpu_ms"], 0.7 * rec["duration_ms"], rec)

    def test_time(self):
        rec = cl.record("--cpu-time", "400ms", "--timeout", "20s", "--", *cl.py("while True: pass"))
        self.assertEqual((rec["status"], rec["success"]), ("cpu_time", False))
        self.assertNotEqual(rec["_code"], 0)
        self.assertGreaterEqual(rec["cpu_ms"], 350)
        self.assertLess(rec["cpu_ms"], 5000)

    def test_time_of_many_children(self):
        """Short-lived children that each burn a little add up."""
        code = (
            "import os, time\n"
            "for i in range(400):\n"
            "    if os.fork() == 0:\n"
            "        while time.process_time() < 0.05: pass\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "print('had it all')"
        )
        rec = cl.record("--cpu-time", "1s", "--timeout", "25s", "--", *cl.py(code))
        self.assertEqual(rec["status"], "cpu_time", rec)
        self.assertNotIn("had it all", rec["stdout"])

    def test_time_of_children_that_nobody_waits_for(self):
        """The kernel forgets what they used; the limit holds, and the record does not forget either."""
        code = (
            "import os, signal, time\n"
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            "for i in range(600):\n"
            "    r, w = os.pipe()\n"
            "    if os.fork() == 0:\n"
            "        while time.process_time() < %s: pass\n"
            "        os._exit(0)\n"
            "    os.close(w); os.read(r, 1); os.close(r)\n"
            "print('had it all')"
        )
        for each in (0.1, 0.02):
            with self.subTest(each):
                rec = cl.record("--cpu-time", "1s", "--timeout", "25s", "--", *cl.py(code % each))
                self.assertEqual(rec["status"], "cpu_time", rec)
                self.assertNotIn("had it all", rec["stdout"])
                self.assertGreaterEqual(rec["cpu_ms"], 950)

    def test_time_of_ignorers(self):
        """SIGXCPU may be ignored; the limit holds."""
        code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
        rec = cl.record("--cpu-time", "300ms", "--timeout", "20s", "--", *cl.py(code))
        self.assertEqual(rec["status"], "cpu_time")

    def test_sleeping_costs_nothing(self):
        rec = cl.record("--cpu-time", "500ms", "--", "sleep", "0.8", code=0)
        self.assertEqual(rec["status"], "exited")


class Pids(cl.Case):
    BOMB = (
        "import os, time\n"
        "n = 0\n"
        "for i in range(%d):\n"
        "    try: pid = os.fork()\n"
        "    except OSError as e: print('stopped', e.errno); break\n"
        "    if pid == 0: time.sleep(30); os._exit(0)\n"
        "    n += 1\n"
        "print('children', n)"
    )

    def test_limit(self):
        rec = cl.record("--pids", "20", "--", *cl.py(self.BOMB % 100), code=0)
        self.assertIn("stopped 11", rec["stdout"])
        n = int(rec["stdout"].split()[-1])
        self.assertTrue(10 <= n <= 20, rec["stdout"])
        self.assertIn("pids", rec["limits_hit"])

    def test_threads_count(self):
        code = (
            "import threading, time\nn = 0\n"
            "try:\n"
            "    for i in range(100): threading.Thread(target=time.sleep, args=(5,), daemon=True).start(); n += 1\n"
            "except RuntimeError: pass\n"
            "print(n, flush=True)\nimport os; time.sleep(0.3); os._exit(0)"
        )
        rec = cl.record("--pids", "20", "--", *cl.py(code))
        self.assertLessEqual(int(rec["stdout"]), 20)
        self.assertIn("pids", rec["limits_hit"])

    def test_not_hit(self):
        self.assertEqual(cl.record("--pids", "20", "--", *cl.py(self.BOMB % 5))["limits_hit"], [])

    def test_default(self):
        rec = cl.record("--", *cl.py(self.BOMB % 400))
        n = int(rec["stdout"].split()[-1])
        self.assertTrue(240 <= n <= 256, rec["stdout"])

    def test_a_run_does_not_count_against_another(self):
        first = cl.start(
            "run",
            "--pids",
            "20",
            "--",
            "sh",
            "-c",
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 30 & done; echo up; wait",
            stdin=subprocess.PIPE,
        )
        self.assertEqual(first.stdout.readline(), b"up\n")
        rec = cl.record("--pids", "20", "--", *cl.py(self.BOMB % 12))
        first.terminate()
        cl.finish(first)
        self.assertEqual(rec["limits_hit"], [], rec)

    def test_root_without_capabilities(self):
        """As in a container: where only RLIMIT_NPROC is left, which does not bind root, it is missing."""
        self.need_root("is about uid 0")
        self.need_program("capsh")
        run = [cl.CLOCHE, "run", "--pids", "20", "--json", "--", *cl.py(self.BOMB % 100)]
        drop = "--drop=cap_sys_admin,cap_sys_resource,cap_dac_override"
        r = cl.command("capsh", drop, "--shell=/bin/sh", "--", "-c", shlex.join(run))
        if r.code == 125:
            self.skipTest("no sandbox for such a caller here: " + r.out)
        rec = json.loads(r.out)
        held = int(rec["stdout"].split()[-1]) <= 20
        self.assertEqual((rec["layers"]["rootless"], rec["layers"]["pids"]), (True, held), rec)

    def test_fork_bomb(self):
        """Processes that fork without end are held and ended by the time limit."""
        mark = cl.marker()
        code = (
            "import os, sys, time\n"
            "end = time.time() + 20\n"
            "while time.time() < end:\n"
            "    try: os.fork()\n"
            "    except OSError: time.sleep(0.01)"
        )

        # The bomb ends itself, and the caller's own limit would hold it if ours did not.
        def prepare():
            resource.setrlimit(resource.RLIMIT_NPROC, (3000, 3000))

        r = cl.finish(
            cl.start(
                "run",
                "--json",
                "--pids",
                "64",
                "--timeout",
                "2s",
                "--",
                *cl.py(code, mark),
                preexec_fn=prepare
            ),
            timeout=30,
        )
        rec = json.loads(r.out)
        self.assertEqual((rec["status"], r.code), ("timeout", 124))
        self.assertIn("pids", rec["limits_hit"])
        self.assertLess(rec["duration_ms"], 10000)
        self.assertEqual(cl.gone(mark), [])


class Disk(cl.Case):
    FILL = (
        "import os, sys\n"
        "total = 0\n"
        "for n, where in enumerate(sys.argv[1:]):\n"
        "    with open(os.path.join(where, 'fill%d' % n), 'wb', buffering=0) as f:\n"
        "        try:\n"
        "            for i in range(64): total += f.write(b'x' * (1 << 20))\n"
        "        except OSError as e: print(where, e.errno)\n"
        "print('total', total >> 20)"
    )

    def fill(self, *where, options=("--disk", "16M")):
        return cl.record(*options, "--", *cl.py(self.FILL, *where))

    def test_each_place(self):
        for where in (".", "/tmp", "/home/user", "/dev/shm", "/var/tmp", "/workspace"):
            rec = self.fill(where)
            self.assertIn("%s 28" % where, rec["stdout"], rec)
            self.assertTrue(14 <= int(rec["stdout"].split()[-1]) <= 18, (where, rec["stdout"]))
            self.assertIn("disk", rec["limits_hit"], where)
            self.assertEqual(rec["status"], "exited")

    def test_all_places_together(self):
        rec = self.fill(".", "/tmp", "/home/user", "/var/tmp")
        self.assertLessEqual(int(rec["stdout"].split()[-1]), 18, rec["stdout"])

    def test_empty(self):
        rec = self.fill(".", options=("--disk", "16M", "--empty"))
        self.assertIn("disk", rec["limits_hit"])

    def test_root_overlay(self):
        self.need_root("the root can be written only as root")
        rec = self.fill("/", options=("--disk", "16M", "--root", "overlay"))
        self.assertIn("/ 28", rec["stdout"], rec)

    def test_half_of_memory_by_default(self):
        rec = self.fill("/tmp", options=("--memory", "64M"))
        self.assertTrue(24 <= int(rec["stdout"].split()[-1]) <= 34, rec["stdout"])

    def test_sparse_and_deleted_files_do_not_cheat(self):
        code = (
            "import os\n"
            "f = os.open('/tmp/x', os.O_RDWR | os.O_CREAT); os.unlink('/tmp/x'); n = 0\n"
            "try:\n"
            "    for i in range(64): n += os.write(f, b'x' * (1 << 20))\n"
            "except OSError as e: print(e.errno)\n"
            "print(n >> 20)"
        )
        rec = cl.record("--disk", "16M", "--", *cl.py(code))
        self.assertIn("28\n", rec["stdout"])

    def test_not_hit(self):
        self.assertEqual(
            cl.record("--disk", "16M", "--", "sh", "-c", "head -c 1000000 /dev/zero > f")[
                "limits_hit"
            ],
            [],
        )

    def test_many_small_files(self):
        """Inodes are bounded, too: a million empty files do not fit."""
        code = (
            "n = 0\n"
            "try:\n"
            "    while n < 400000: open('/tmp/%d' % n, 'w').close(); n += 1\n"
            "except OSError as e: print('stopped', e.errno)\n"
            "print(n)"
        )
        rec = cl.record(
            "--memory", "128M", "--disk", "16M", "-t", "30s", "--", *cl.py(code), timeout=45
        )
        self.assertNotIn("400000", rec["stdout"], "no limit of inodes")


class Tmpfs(cl.Case):
    FILL = "head -c %s /dev/zero >%s/f 2>/dev/null; stat -c %%s %s/f"

    def test_has_its_own_size(self):
        line = self.FILL % ("5M", "/tmp", "/tmp") + "; " + self.FILL % ("3M", "/mnt/t", "/mnt/t")
        rec = cl.record("--tmpfs", "/tmp:size=4M", "--tmpfs", "/mnt/t:size=1M", "--", "sh", "-c", line)
        self.assertEqual(rec["stdout"], "%d\n%d\n" % (4 << 20, 1 << 20))
        self.assertEqual((rec["layers"]["disk"], rec["layers"]["missing"].count("disk")), ("tmpfs", 0))

    def test_does_not_count_as_disk(self):
        line = self.FILL % ("24M", "/tmp", "/tmp") + "; " + self.FILL % ("8M", "$HOME", "$HOME")
        rec = cl.record("--disk", "8M", "--tmpfs", "/tmp:size=24M", "--", "sh", "-c", line)
        self.assertEqual(rec["stdout"].split()[0], str(24 << 20))

    def test_below_the_workspace_and_above_it(self):
        self.write("kept", "here")
        r = cl.run(
            "run", "--diff", "--tmpfs", "/workspace/t:size=1M", "--tmpfs", "/tmp:size=1M", "--",
            "sh", "-c", "cat kept; stat -f -c %T t; echo x >t/x", cwd=self.path())
        self.assertEqual((r.code, r.out), (0, "heretmpfs\n"), str(r))
        self.assertFalse(os.path.exists(self.path("t")))

    def test_refusals(self):
        for text, says in (("/proc", "belongs to"), ("/tmp:size=9G", "does not fit"), ("/tmp:noexec", "PATH")):
            self.refused("run", "--tmpfs", text, "--", "true", says=says)


class OpenFiles(cl.Case):
    CODE = (
        "import os\nn = 0\n"
        "try:\n"
        "    while n < 9000: os.open('/dev/null', 0); n += 1\n"
        "except OSError as e: print('stopped', e.errno)\n"
        "os.write(1, b'%d\\n' % n)"
    )

    def test_limit(self):
        rec = cl.record("--open-files", "64", "--", *cl.py(self.CODE))
        self.assertIn("stopped 24", rec["stdout"])
        self.assertLessEqual(
            int(
                rec["stdout"].split()[0]
                if rec["stdout"][0].isdigit()
                else rec["stdout"].split()[-1]
            ),
            64,
        )

    def test_hard_limit(self):
        rec = cl.record("--open-files", "64", "--", "sh", "-c", "ulimit -Hn; ulimit -n 257")
        self.assertEqual(rec["stdout"], "256\n")
        self.assertFalse(rec["success"])

    def test_smallest(self):
        """The limit is the command's: what starts it may need more."""
        rec = cl.record("--open-files", "8", "--", "sh", "-c", "ulimit -n")
        self.assertEqual(rec["stdout"], "8\n")


class Terminals(cl.Case):
    def test_limit(self):
        """They are counted for the whole host."""
        code = (
            "import os\nn = 0\n"
            "try:\n"
            "    while n < 400: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY); n += 1\n"
            "except OSError: pass\n"
            "print(n)"
        )
        self.assertEqual(self.out(*cl.py(code)), "256\n")


class CountedForTheUser(cl.Case):
    """Objects that the kernel counts for a user, and for the owners of user namespaces above."""

    INOTIFY = (
        "import ctypes, sys\n"
        "libc, n = ctypes.CDLL(None), 0\n"
        "while n < 900 and libc.inotify_init1(0) >= 0: n += 1\n"
        "print(n, flush=True)\n"
        "sys.stdin.read()"
    )

    def test_one_sandbox_does_not_take_the_callers(self):
        libc = ctypes.CDLL(None)
        inside = cl.start("run", "--empty", *cl.py(self.INOTIFY), stdin=subprocess.PIPE)
        taken = int(inside.stdout.readline())
        fd = libc.inotify_init1(0)
        cl.finish(inside)
        self.assertGreater(taken, 16)
        self.assertLessEqual(taken, 128 if cl.ROOT else 64)
        self.assertGreaterEqual(fd, 0, "inotify instances of the caller: none is left")
        os.close(fd)


class FileSize(cl.Case):
    def test_limit(self):
        rec = cl.record(
            "--file-size", "1M", "--", "sh", "-c", "head -c 3000000 /dev/zero > f; stat -c %s f"
        )
        self.assertEqual(rec["stdout"], "1048576\n")
        self.assertIn("file_size", rec["limits_hit"])

    def test_ends_the_writer_by_its_signal(self):
        rec = cl.record(
            "--file-size", "1M", "--", "dd", "if=/dev/zero", "of=f", "bs=64k", "count=99"
        )
        self.assertFalse(rec["success"])
        self.assertIn("file_size", rec["limits_hit"])

    def test_output_is_no_file(self):
        """The limit is for files inside: what is piped out is not cut by it."""
        r = self.ok("run", "--file-size", "64K", "--", "head", "-c", "1000000", "/dev/zero")
        self.assertEqual(len(r.raw_out), 1000000)

    def test_output_into_a_file_of_the_caller(self):
        with open(self.path("out"), "wb") as f:
            p = cl.start(
                "run",
                "--file-size",
                "64K",
                "--disk",
                "1M",
                "--",
                "head",
                "-c",
                "1000000",
                "/dev/zero",
                stdout=f,
                cwd=self.mkdir("work"),
            )
            r = cl.finish(p)
        self.assertEqual((r.code, os.path.getsize(self.path("out"))), (0, 1000000), str(r))


class WallTime(cl.Case):
    TREE = (
        "import os, signal, sys, time\n"
        "def spawn(prepare):\n"
        "    if os.fork() == 0:\n"
        "        prepare()\n"
        "        os.execvp('sleep', ['sleep', sys.argv[1]])\n"
        "def double():\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "def deaf():\n"
        "    for s in range(1, 32):\n"
        "        if s not in (9, 19): signal.signal(s, signal.SIG_IGN)\n"
        "spawn(lambda: None); spawn(os.setsid); spawn(double); spawn(deaf)\n"
        "pid = os.fork()\n"
        "if pid == 0: os.execvp('sleep', ['sleep', sys.argv[1]])\n"
        "os.kill(pid, signal.SIGSTOP)\n"
        "deaf(); print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP) if sys.argv[2] == 'stop' else time.sleep(99)"
    )

    def test_whole_tree(self):
        for how in ("sleep", "stop"):
            mark = cl.marker()
            begun = time.monotonic()
            rec = cl.record("--timeout", "700ms", "--", *cl.py(self.TREE, mark, how), timeout=15)
            self.assertEqual((rec["status"], rec["_code"]), ("timeout", 124))
            self.assertEqual(rec["stdout"], "up\n")
            self.assertEqual(cl.gone(mark, 1), [])
            self.assertLess(time.monotonic() - begun, 8)

    def test_output_before_it_is_kept(self):
        rec = cl.record("-t", "0.5", "--", "sh", "-c", "echo early; echo e >&2; sleep 9")
        self.assertEqual((rec["stdout"], rec["stderr"]), ("early\n", "e\n"))

    def test_not_reached(self):
        rec = cl.record("-t", "20s", "--", "true", code=0)
        self.assertFalse(rec["timed_out"])

    def test_a_command_that_exits_124_did_not_time_out(self):
        self.assertFalse(cl.record("--", "sh", "-c", "exit 124")["timed_out"])


class Output(cl.Case):
    def test_head_and_tail(self):
        rec = cl.record("--output-limit", "64K", "--", "seq", "1", "200000", code=0)
        self.assertTrue(rec["stdout_truncated"])
        self.assertFalse(rec["stderr_truncated"])
        self.assertTrue(rec["stdout"].startswith("1\n2\n3\n"))
        self.assertTrue(rec["stdout"].endswith("\n199999\n200000\n"))
        self.assertLess(len(rec["stdout"]), (64 << 10) + 500)
        self.assertGreater(len(rec["stdout"]), 60 << 10)

    def test_stderr(self):
        rec = cl.record("--output-limit", "1K", "--", "sh", "-c", "seq 1 9999 >&2; echo fine")
        self.assertTrue(rec["stderr_truncated"])
        self.assertFalse(rec["stdout_truncated"])
        self.assertTrue(rec["stderr"].endswith("9999\n"))

    def test_exactly_at_the_limit(self):
        rec = cl.record("--output-limit", "1K", "--", "head", "-c", "1024", "/dev/zero")
        self.assertEqual((len(rec["stdout"]), rec["stdout_truncated"]), (1024, False))
        rec = cl.record("--output-limit", "1K", "--", "head", "-c", "1025", "/dev/zero")
        self.assertTrue(rec["stdout_truncated"])

    def test_default_is_a_megabyte(self):
        rec = cl.record("--", "head", "-c", "1000000", "/dev/zero")
        self.assertEqual((len(rec["stdout"]), rec["stdout_truncated"]), (1000000, False))
        self.assertTrue(cl.record("--", "head", "-c", "2000000", "/dev/zero")["stdout_truncated"])

    def test_flood(self):
        """A command that never stops writing is ended; cloche's own memory stays small."""
        rec = cl.record("--output-limit", "64K", "--timeout", "3s", "--", "yes", timeout=20)
        self.assertIn(rec["status"], ("output_limit", "timeout"))
        self.assertTrue(rec["stdout_truncated"])
        self.assertTrue(rec["stdout"].startswith("y\ny\n"))

    def test_a_file_of_the_caller_is_no_door(self):
        """stdout that is a file: the command adds to it, but cannot read, cut or overwrite it."""
        self.write("out", "secret of the caller\n")
        code = (
            "import os\n"
            "for call in (lambda: os.ftruncate(1, 0), lambda: os.lseek(1, 0, 0), lambda: os.pwrite(1, b'evil', 0),\n"
            "             lambda: os.write(1, b'read ' + os.pread(1, 99, 0)),\n"
            "             lambda: os.open('/proc/self/fd/1', os.O_WRONLY | os.O_TRUNC)):\n"
            "    try: call()\n"
            "    except OSError: pass\n"
            "print('end')"
        )
        with open(self.path("out"), "r+b") as f:
            f.seek(0, os.SEEK_END)
            r = cl.finish(cl.start("run", "--", *cl.py(code), stdout=f, cwd=self.mkdir("work")))
        self.assertEqual((r.code, self.read("out")), (0, "secret of the caller\nend\n"), str(r))

    def test_plain_pipe_has_no_limit(self):
        p = cl.start("run", "--output-limit", "1K", "--", "head", "-c", "300000000", "/dev/zero")
        total = 0
        while True:
            data = p.stdout.read(1 << 20)
            if not data:
                break
            total += len(data)
        r = cl.finish(p)
        self.assertEqual((r.code, total), (0, 300000000))

    def test_slow_reader(self):
        """A reader that stops holds the command up, and not in cloche's memory."""
        p = cl.start("run", "--", "sh", "-c", "head -c 50000000 /dev/zero; echo done >&2")
        self.assertEqual(len(p.stdout.read(1000)), 1000)
        time.sleep(0.3)
        with open("/proc/%d/statm" % p.pid) as f:
            self.assertLess(int(f.read().split()[1]) * 4096, 20 << 20)
        r = cl.finish(p)
        self.assertEqual((r.code, r.err), (0, "done\n"))

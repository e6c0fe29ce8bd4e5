"""The daemon's verbs as people and scripts use them."""
import fcntl
import hashlib
import json
import os
import pty
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import time

import harness
import served


class Sandboxes(served.Case):
    def test_create_and_list(self):
        box = self.create("--name", "one", "--metadata", "team=red", "--memory", "256M")
        listed = json.loads(self.cloche("ps", "--json", ok=0).out)
        mine = [s for s in listed if s["id"] == box]
        self.assertEqual(len(mine), 1)
        self.assertEqual(mine[0]["name"], "one")
        self.assertEqual(mine[0]["state"], "running")
        self.assertEqual(mine[0]["metadata"], {"team": "red"})
        table = self.cloche("ps", ok=0).out.splitlines()
        self.assertRegex(table[0], r"^ID +NAME +STATE")
        self.assertTrue(any(line.startswith(box) and "256M" in line for line in table))
        self.assertEqual(self.cloche("ps", "-q", "--metadata", "team=red", ok=0).out, box + "\n")
        self.assertEqual(self.cloche("ps", "-q", "--metadata", "team=blue", ok=0).out, "")

    def test_create_as_json(self):
        made = json.loads(self.cloche("create", "--json", "--ttl", "10m", ok=0).out)
        self.addCleanup(self.cloche, "rm", made["id"])
        self.assertEqual(made["state"], "running")

    def test_by_name_and_by_start_of_the_id(self):
        box = self.create("--name", "by-name")
        self.assertEqual(self.cloche("exec", "by-name", "echo", "a", ok=0).out, "a\n")
        self.assertEqual(self.cloche("exec", box[:12], "echo", "b", ok=0).out, "b\n")
        r = self.cloche("exec", "nobody", "true", ok=125)
        self.assertIn("no sandbox 'nobody'", r.err)

    def test_rm_is_complete_and_can_be_repeated(self):
        box = self.create()
        self.cloche("rm", box, ok=0)
        self.assertNotIn(box, self.cloche("ps", "-q", ok=0).out)
        self.assertEqual(self.cloche("exec", box, "true").code, 125)

    def test_rm_and_kill_say_what_they_did(self):
        boxes = [self.create() for _ in range(3)]
        self.cloche("exec", boxes[0], "sh", "-c", "mkdir d; touch d/f f", ok=0)
        r = self.cloche("rm", "--json", "-r", boxes[0] + ":d", boxes[0] + ":nope", boxes[1], ok=125)
        self.assertEqual(json.loads(r.out), {"removed": [boxes[0] + ":d", boxes[1]]})
        self.assertRegex(r.err, "^cloche: .*nope")
        number = self.cloche("exec", "-d", boxes[0], "sleep", "1000", ok=0).out.strip()
        r = self.cloche("kill", "--json", "-s", "TERM", boxes[0], number, ok=0)
        self.assertEqual(json.loads(r.out), {"signal": "TERM", "signalled": [number]})
        r = self.cloche("kill", "--json", boxes[0], "9999", ok=125)
        self.assertEqual((json.loads(r.out), r.err[:8]),
                         ({"signal": "KILL", "signalled": []}, "cloche: "))
        r = self.cloche("kill", "--json", boxes[0], ok=0)
        self.assertEqual(json.loads(r.out), {"removed": [boxes[0]]})
        r = self.cloche("rm", "--json", "-a", ok=0)
        self.assertEqual(json.loads(r.out)["removed"], [])
        self.assertGreaterEqual(json.loads(r.out)["destroyed"], 1)

    def test_a_path_that_is_too_long_is_not_cut(self):
        box = self.create()
        r = self.cloche("rm", "-r", box + ":" + "\u00fc/" * 2000, ok=125)
        self.assertIn("too long", r.err)

    def test_kill_ends_a_sandbox(self):
        box = self.create()
        self.cloche("kill", box, ok=0)
        self.assertNotIn(box, self.cloche("ps", "-q", ok=0).out)

    def test_refusals(self):
        for args, word in ((("create", "--memory", "12Q"), "12Q"),
                           (("create", "--net", "open"), "net"),
                           (("create", "--volume", "nope:/v"), "nope"),
                           (("create", "--image", "nope"), "nope"),
                           (("create", "--nonsense"), "unknown option"),
                           (("exec",), "usage: cloche exec"),
                           (("cp", "a", "b"), "ID:PATH"),
                           (("logs", "-f", "x"), "-f wants")):
            with self.subTest(args=args):
                r = self.cloche(*args, ok=125)
                self.assertTrue(r.err.startswith("cloche: "), r.err)
                self.assertIn(word, r.err)
                self.assertEqual(r.out, "")

    def test_help_of_each_verb(self):
        for verb in ("create", "ps", "exec", "cp", "ls", "cat", "rm", "kill", "pause", "resume",
                     "snapshot", "fork", "stats", "logs", "token", "audit"):
            with self.subTest(verb=verb):
                self.assertIn("usage: cloche " + verb, self.cloche(verb, "--help", ok=0).out)

    def test_no_daemon(self):
        r = self.cloche("ps", env={"CLOCHE_URL": "unix:/nonexistent/s"}, ok=125)
        self.assertIn("cloche serve", r.err)
        r = self.cloche("ps", env={"CLOCHE_URL": "https://127.0.0.1:1"}, ok=125)
        self.assertIn("TLS", r.err)


class Pooled(served.Case):
    """A sandbox that was made before anybody wanted it has the limits that were asked for later."""
    settings = "pool_size: 2\n"

    def pooled(self):
        text = self.daemon.get("/metrics").body.decode()
        return float(next(line.split()[1] for line in text.splitlines()
                          if line.startswith("cloche_sandboxes_pooled ")))

    def test_limits(self):
        for options, question, answer in (
                (("-m", "3G", "--disk", "2G"), "truncate -s 1500M f && wc -c <f", "1572864000"),
                (("--file-size", "1M"), "ulimit -f", "2048"),
                (("--open-files", "64"), "ulimit -n; ulimit -Hn", "64\n256"),
                (("--cpu-time", "9s"), "ulimit -t", "10")):
            with self.subTest(options):
                served.wait_for(lambda: self.pooled() >= 2)
                box = self.create(*options)
                self.assertEqual(self.cloche("exec", box, "sh", "-c", question, ok=0).out.strip(),
                                 answer)


class Exec(served.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = harness.Box(cls.daemon, ttl="1h").id

    def test_streams_and_status(self):
        r = self.cloche("exec", self.box, "sh", "-c", "echo out; echo err >&2; exit 7", ok=7)
        self.assertEqual((r.out, r.err), ("out\n", "err\n"))

    def test_record(self):
        r = self.cloche("exec", "--json", self.box, "sh", "-c", "echo out; echo err >&2; exit 7", ok=7)
        record = json.loads(r.out)
        self.assertEqual((record["stdout"], record["stderr"], record["exit_code"], r.err),
                         ("out\n", "err\n", 7, ""))
        r = self.cloche("exec", "--json", "--timeout", "200ms", self.box, "sleep", "60", ok=124)
        self.assertTrue(json.loads(r.out)["timed_out"])
        self.cloche("exec", "--json", "-t", self.box, "true", ok=125)
        r = self.cloche("exec", "--json", "no-such-box", "true", ok=125)
        self.assertEqual(json.loads(r.out)["error"]["kind"], "not_found")
        self.assertRegex(r.err, "^cloche: ")
        r = self.cloche("exec", "--json", "-w", "/no/such", self.box, "true", ok=125)
        self.assertEqual(json.loads(r.out)["error"]["field"], "cwd")

    def test_statuses(self):
        self.cloche("exec", self.box, "true", ok=0)
        self.cloche("exec", self.box, "/nonexistent", ok=127)
        self.cloche("exec", self.box, "sh", "-c", "kill -TERM $$", ok=143)
        r = self.cloche("exec", "--timeout", "300ms", self.box, "sleep", "100", ok=124)
        self.assertRegex(r.err, "^cloche: timed out")

    def test_input_of_any_bytes_both_ways(self):
        data = bytes(range(256)) * 8192 + b"\x00\xff" + "z\u00fc\u20ac".encode() * 3000
        r = self.cloche("exec", self.box, "cat", stdin=data, ok=0)
        self.assertEqual(hashlib.sha256(r.raw).digest(), hashlib.sha256(data).digest())

    def test_a_command_that_reads_late(self):
        r = self.cloche("exec", self.box, "sh", "-c", "echo; sleep 1; wc -c", stdin=b"x" * 1_500_000,
                        ok=0)
        self.assertEqual(r.out.strip(), "1500000")

    def test_nul_bytes_in_text(self):
        self.assertEqual(self.cloche("exec", self.box, "printf", r"a\000b", ok=0).raw, b"a\0b")

    def test_a_command_that_does_not_read(self):
        r = self.cloche("exec", self.box, "echo", "done", stdin=b"x" * 500000, ok=0)
        self.assertEqual(r.out, "done\n")

    def test_no_input(self):
        self.assertEqual(self.cloche("exec", "-n", self.box, "cat", stdin=b"x", ok=0).out, "")

    def test_environment_and_directory(self):
        r = self.cloche("exec", "-e", "A=1 2", "-w", "/tmp", self.box, "sh", "-c", "echo $A; pwd",
                        ok=0)
        self.assertEqual(r.out, "1 2\n/tmp\n")

    def test_options_behind_the_command_are_its_own(self):
        self.assertEqual(self.cloche("exec", self.box, "echo", "-n", "--json", ok=0).out, "--json")
        self.assertEqual(self.cloche("exec", self.box, "--", "echo", "-n", "--", ok=0).out, "--")
        self.cloche("exec", self.box, "--", ok=125)

    def test_background_logs_and_signal(self):
        number = self.cloche("exec", "-d", self.box, "sh", "-c", "echo begun; exec sleep 1000",
                             ok=0).out.strip()
        self.assertTrue(served.wait_for(
            lambda: self.cloche("logs", self.box, number, ok=0).out == "begun\n"))
        self.assertRegex(self.cloche("ps", self.box, ok=0).out, rf"(?m)^{number} .*running")
        self.cloche("kill", "-s", "TERM", self.box, number, ok=0)
        self.assertEqual(self.cloche("logs", "-f", self.box, number).code, 143)

    def test_losing_us_kills_the_command(self):
        p = subprocess.Popen([served.CLOCHE, "exec", self.box, "sh", "-c",
                              "echo up; exec sleep 12345"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             env=self.daemon.client_env())
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.kill()
        p.wait()
        p.stdout.close()
        self.assertTrue(served.wait_for(lambda: "running" not in "".join(
            line for line in self.cloche("ps", self.box).out.splitlines() if "12345" in line)))

    def test_stats(self):
        rows = json.loads(self.cloche("stats", "--json", self.box, ok=0).out)
        self.assertEqual(rows[0]["id"], self.box)
        self.assertGreater(rows[0]["memory_limit_bytes"], 0)
        self.assertIn(self.box, self.cloche("stats", ok=0).out)


class Terminal(served.Case):
    def read_until(self, fd, word, limit=served.LIMIT):
        end, text = time.monotonic() + limit, b""
        while word not in text:
            ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                break
            try:
                piece = os.read(fd, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        return text

    def resize(self, fd, rows, cols):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def test_a_terminal_with_its_size(self):
        box = self.create()
        ours, its = pty.openpty()
        self.resize(ours, 33, 77)
        p = subprocess.Popen([served.CLOCHE, "exec", "-t", box, "sh"], stdin=its, stdout=its,
                             stderr=its, env=self.daemon.client_env(), start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(its)
        try:
            os.write(ours, b"stty size; echo e''nd\n")
            self.assertIn(b"33 77", self.read_until(ours, b"end\r\n"))
            self.resize(ours, 44, 99)
            # The new size arrives when it arrives: the shell looks until it does.
            os.write(ours, b"until [ \"$(stty size)\" = '44 99' ]; do sleep 0.1; done; echo g''ot\n")
            self.assertIn(b"got\r\n", self.read_until(ours, b"got\r\n"))
            os.write(ours, b"exit 5\n")
            self.read_until(ours, b"never", 0.5)
            self.assertEqual(p.wait(served.LIMIT), 5)
        finally:
            p.kill()
            p.wait()
            os.close(ours)


class Files(served.Case):
    def setUp(self):
        self.box = self.create()
        self.dir = tempfile.mkdtemp(prefix="cl-files-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def test_a_file_there_and_back(self):
        data = os.urandom(3_000_001)
        with open(self.path("a"), "wb") as out:
            out.write(data)
        self.cloche("cp", self.path("a"), self.box + ":deep/down/a", ok=0)
        self.cloche("cp", self.box + ":deep/down/a", self.path("b"), ok=0)
        with open(self.path("b"), "rb") as back:
            self.assertEqual(back.read(), data)
        self.assertEqual(self.cloche("cat", self.box + ":/workspace/deep/down/a", ok=0).raw, data)
        self.assertEqual(self.cloche("ls", self.box + ":deep/down", ok=0).out, "a\n")
        self.assertEqual(sorted(os.listdir(self.dir)), ["a", "b"])

    def test_into_a_directory_it_keeps_its_name(self):
        with open(self.path("n"), "w", encoding="utf-8") as out:
            out.write("x")
        self.cloche("exec", self.box, "mkdir", "d", ok=0)
        self.cloche("cp", self.path("n"), self.box + ":d", ok=0)
        self.cloche("cp", self.path("n"), self.box + ":new/", ok=0)
        self.assertEqual(self.cloche("ls", self.box + ":new", ok=0).out.split(), ["n"])
        self.cloche("cp", self.box + ":d/n", self.dir + "/", ok=0)
        self.assertEqual(self.cloche("cat", self.box + ":d/n", ok=0).out, "x")

    def test_what_is_no_file_stays_what_it_is(self):
        """A device, say; tried with a FIFO, so that nothing of the host is lost if it fails."""
        self.cloche("exec", self.box, "sh", "-c", "echo through > into-fifo", ok=0)
        fifo = os.path.join(self.dir, "fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.cloche("cp", self.box + ":into-fifo", fifo, ok=0)
        self.assertTrue(stat.S_ISFIFO(os.stat(fifo).st_mode))
        self.assertEqual(os.read(reader, 100), b"through\n")

    def test_a_tree_there_and_back(self):
        os.makedirs(self.path("t/d/e"))
        os.symlink("d/f", self.path("t/l"))
        for name in ("t/d/f", "t/odd name \u00fc"):
            with open(self.path(name), "w", encoding="utf-8") as out:
                out.write(name)
        self.cloche("cp", self.path("t"), self.box + ":t", ok=0)
        self.cloche("cp", self.box + ":t", self.path("u"), ok=0)
        same = subprocess.run(["diff", "-r", "--no-dereference", self.path("t"), self.path("u")],
                              stdout=subprocess.PIPE, check=False)
        self.assertEqual(same.stdout, b"")

    def test_what_was_copied_as_json(self):
        with open(self.path("n"), "w", encoding="utf-8") as out:
            out.write("12345")
        self.cloche("exec", self.box, "mkdir", "d", ok=0)
        made = json.loads(self.cloche("cp", "--json", self.path("n"), self.box + ":d", ok=0).out)
        self.assertEqual(made, {"source": self.path("n"), "target": self.box + ":d/n",
                                "type": "file", "bytes": 5})
        made = json.loads(self.cloche("cp", "--json", self.box + ":d/n", self.path("m"), ok=0).out)
        self.assertEqual(made, {"source": self.box + ":d/n", "target": self.path("m"),
                                "type": "file", "bytes": 5})
        made = json.loads(self.cloche("cp", "--json", self.box + ":d", self.path("t"), ok=0).out)
        self.assertEqual((made["type"], made["target"]), ("directory", self.path("t")))
        for args in ((self.box + ":d/n", "-"), (self.box + ":nope", self.path("x"))):
            r = self.cloche("cp", "--json", *args, ok=125)
            self.assertEqual((r.out, r.err[:8]), ("", "cloche: "))

    def test_what_does_not_say_its_size(self):
        """The rest of a file that was read from, and a file that says it is empty."""
        with open(self.path("n"), "wb+") as file:
            file.write(b"first second")
            file.flush()
            os.lseek(file.fileno(), 6, os.SEEK_SET)
            subprocess.run([served.CLOCHE, "cp", "-", self.box + ":rest"], stdin=file, check=True,
                           env=self.daemon.client_env(), timeout=served.LIMIT)
        self.assertEqual(self.cloche("cat", self.box + ":rest", ok=0).out, "second")
        self.cloche("cp", "/proc/version", self.box + ":version", ok=0)
        self.assertIn("Linux", self.cloche("cat", self.box + ":version", ok=0).out)

    def test_standard_streams(self):
        self.cloche("cp", "-", self.box + ":s", stdin=b"in\0put", ok=0)
        self.assertEqual(self.cloche("cp", self.box + ":s", "-", ok=0).raw, b"in\0put")

    def test_ls_and_rm(self):
        self.cloche("exec", self.box, "sh", "-c", "mkdir -p d/e; touch f d/g", ok=0)
        self.assertEqual(sorted(self.cloche("ls", self.box, ok=0).out.split()), ["d/", "f"])
        self.assertIn("/workspace/d/g", self.cloche("ls", "--depth", "2", self.box, ok=0).out)
        self.assertRegex(self.cloche("ls", "-l", self.box, ok=0).out, r"file +0\d\d\d .* f\n")
        self.cloche("rm", self.box + ":f", ok=0)
        self.assertNotEqual(self.cloche("rm", self.box + ":d").code, 0)
        self.cloche("rm", "-r", self.box + ":d", ok=0)
        self.assertEqual(self.cloche("ls", self.box, ok=0).out, "")

    def test_what_is_not_there(self):
        r = self.cloche("cat", self.box + ":nope", ok=125)
        self.assertIn("nope", r.err)
        self.cloche("cp", self.box + ":nope", self.path("x"), ok=125)
        self.assertEqual(os.listdir(self.dir), [])
        self.cloche("cp", self.path("nope"), self.box + ":x", ok=125)


class States(served.Case):
    def test_pause_and_resume(self):
        box = self.create()
        r = self.cloche("pause", box)
        if "needs a cgroup" in r.err:
            self.skipTest("this host gives no cgroup to this daemon")
        self.assertEqual(r.code, 0, r)
        self.assertIn("paused", self.cloche("ps", ok=0).out)
        self.assertIn("paused", self.cloche("exec", box, "true", ok=125).err)
        shown = json.loads(self.cloche("resume", "--json", box, ok=0).out)
        self.assertEqual([(s["id"], s["state"]) for s in shown], [(box, "running")])
        self.cloche("exec", box, "true", ok=0)

    def test_snapshot_and_fork(self):
        box = self.create()
        self.cloche("exec", box, "sh", "-c", "echo kept > f", ok=0)
        snapshot = self.cloche("snapshot", box, "first", ok=0).out.strip()
        self.addCleanup(self.cloche, "snapshot", "rm", snapshot)
        self.assertRegex(self.cloche("snapshot", "ls", ok=0).out, rf"{snapshot} +first ")
        self.cloche("exec", box, "sh", "-c", "echo changed > f", ok=0)
        other = self.create("--snapshot", snapshot)
        self.assertEqual(self.cloche("cat", other + ":f", ok=0).out, "kept\n")
        forks = self.cloche("fork", "-n", "2", box, ok=0).out.split()
        self.assertEqual(len(forks), 2)
        for fork in forks:
            self.addCleanup(self.cloche, "rm", fork)
            self.assertEqual(self.cloche("cat", fork + ":f", ok=0).out, "changed\n")
        self.cloche("snapshot", "rm", snapshot, ok=0)
        self.assertNotIn(snapshot, self.cloche("snapshot", "ls", ok=0).out)


class SnapshotTars(served.Case):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="cl-tars-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def snapshot(self, name, command="echo kept > f"):
        box = self.create()
        self.cloche("exec", box, "sh", "-c", command, ok=0)
        made = json.loads(self.cloche("snapshot", "--json", box, name, ok=0).out)
        self.addCleanup(self.cloche, "snapshot", "rm", made["id"])
        return made

    def imported(self, *args, **more):
        made = json.loads(self.cloche("snapshot", "import", "--json", *args, ok=0, **more).out)
        self.addCleanup(self.cloche, "snapshot", "rm", made["id"])
        return made

    def test_out_and_in_again(self):
        made = self.snapshot("base")
        said = json.loads(self.cloche("snapshot", "export", "--json", "base", self.path("base.tar"),
                                      ok=0).out)
        with open(self.path("base.tar"), "rb") as file:
            tar = file.read()
        self.assertEqual(said, {"snapshot": "base", "file": self.path("base.tar"),
                                "bytes": len(tar)})
        self.assertEqual("sha256:" + hashlib.sha256(tar).hexdigest(), made["digest"])
        self.assertEqual(os.listdir(self.dir), ["base.tar"])
        for args in ((made["id"],), (made["id"], "-"), ("base", "-")):
            self.assertEqual(self.cloche("snapshot", "export", *args, ok=0).raw, tar)
        for args, stdin, name in (((self.path("base.tar"),), b"", "base"),
                                  ((self.path("base.tar"), "--name", "other"), b"", "other"),
                                  (("--name", "piped"), tar, "piped"), (("-",), tar, "imported")):
            with self.subTest(args):
                back = self.imported(*args, stdin=stdin)
                self.assertEqual((back["name"], back["digest"]), (name, made["digest"]))
                box = self.create("--snapshot", back["id"])
                self.assertEqual(self.cloche("cat", box + ":f", ok=0).out, "kept\n")
        printed = self.cloche("snapshot", "import", self.path("base.tar"), ok=0).out.strip()
        self.cloche("snapshot", "rm", printed, ok=0)

    def test_refusals(self):
        self.snapshot("refused")
        with open(self.path("bad"), "wb") as out:
            out.write(b"no archive at all" * 100)
        for args, word in ((("export", "nope", self.path("x")), "no such snapshot"),
                           (("export", "refused", self.path("no/such/x")), "cannot write"),
                           (("export", "refused", "--json"), "--json"),
                           (("export",), "usage"), (("export", "refused", "a", "b"), "usage"),
                           (("ls", "--name", "x"), "--name"),
                           (("import", self.path("bad")), ""),
                           (("import", self.path("bad"), "--name", ""), "empty"),
                           (("import", self.path("bad"), "--name", ".x"), "name"),
                           (("import", self.path("bad"), "--name", "a/b"), "name: no slashes"),
                           (("import", self.path("nope")), "cannot open")):
            with self.subTest(args):
                r = self.cloche("snapshot", *args, ok=125)
                self.assertTrue(r.err.startswith("cloche: "), r.err)
                self.assertIn(word, r.err)
                self.assertNotIn("?", r.err)  # what cannot be printed, a line's end in a message
                self.assertEqual(r.out, "")
        self.assertEqual(os.listdir(self.dir), ["bad"])

    def test_not_to_a_terminal(self):
        self.snapshot("shown")
        ours, its = pty.openpty()
        self.addCleanup(os.close, ours)
        for file in ("-", os.ttyname(its)):
            p = subprocess.run([served.CLOCHE, "snapshot", "export", "shown", file], stdout=its,
                               stderr=subprocess.PIPE, env=self.daemon.client_env(), check=False,
                               timeout=served.LIMIT)
            self.assertEqual(p.returncode, 125)
            self.assertIn(b"is a terminal", p.stderr)
        os.close(its)

    def test_into_a_fifo(self):
        made = self.snapshot("fifo")
        os.mkfifo(self.path("fifo"))
        p = subprocess.Popen([served.CLOCHE, "snapshot", "export", "fifo", self.path("fifo")],
                             env=self.daemon.client_env())
        with open(self.path("fifo"), "rb") as file:
            tar = file.read()
        self.assertEqual(p.wait(served.LIMIT), 0)
        self.assertEqual("sha256:" + hashlib.sha256(tar).hexdigest(), made["digest"])
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("fifo")).st_mode))

    def test_one_that_breaks_off_leaves_what_was_there(self):
        """Here for want of room; the daemon's end would be the same."""
        self.snapshot("large", "head -c 3000000 /dev/urandom > f")
        with open(self.path("x.tar"), "w", encoding="utf-8") as out:
            out.write("before")
        limit = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                         resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        p = subprocess.run([served.CLOCHE, "snapshot", "export", "large", self.path("x.tar")],
                           preexec_fn=limit, stderr=subprocess.PIPE, check=False,
                           env=self.daemon.client_env(), timeout=served.LIMIT)
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"cannot write", p.stderr)
        self.assertEqual(os.listdir(self.dir), ["x.tar"])
        with open(self.path("x.tar"), encoding="utf-8") as back:
            self.assertEqual(back.read(), "before")


class Volumes(served.Case):
    @classmethod
    def prepare(cls):
        cls.volume = os.path.join(cls.daemon.dir, "volume")
        os.makedirs(os.path.join(cls.volume, "sub"))
        with open(os.path.join(cls.volume, "sub", "f"), "w", encoding="utf-8") as out:
            out.write("shown")
        cls.daemon.config = (
            "pool_size: 0\nvolumes:\n"
            f"  data: {{path: {cls.volume}, read_only: false, tokens: [friend]}}\n"
            f"  docs: {{path: {cls.volume}, tokens: ['*']}}\n")

    def test_read_and_write(self):
        box = self.create("-v", "data/sub:/data:rw", "-v", "docs:/docs")
        r = self.cloche("exec", box, "sh", "-c", "cat /data/f /docs/sub/f; echo kept >/data/g", ok=0)
        self.assertEqual(r.out, "shownshown")
        with open(os.path.join(self.volume, "sub", "g"), encoding="utf-8") as back:
            self.assertEqual(back.read(), "kept\n")
        self.assertNotEqual(self.cloche("exec", box, "touch", "/docs/x").code, 0)
        self.assertFalse(os.path.exists(os.path.join(self.volume, "x")))

    def test_not_more_than_the_operator_gives(self):
        for volume in ("docs:/d:rw", "data/../..:/d", "data/nothing:/d", "other:/d", "docs:/proc"):
            with self.subTest(volume):
                self.cloche("create", "-v", volume, ok=125)

    def test_only_for_those_who_are_named(self):
        _, friend = self.token("friend")
        _, other = self.token("stranger")
        self.create("-v", "data:/d:rw", env=friend)
        self.create("-v", "docs:/d", env=other)
        self.cloche("create", "-v", "data:/d", env=other, ok=125)

"""--file and --capture: files in, files out."""

import base64
import os

import cl


def sh(script):
    return ("--", "sh", "-c", script)


class Files(cl.Case):
    def test_file_in(self):
        self.write("outside/data.csv", "1,2\n")
        work = self.mkdir("work")
        r = self.ok(
            "run",
            "--file",
            "in/data.csv=../outside/data.csv",
            *sh("cat in/data.csv /workspace/in/data.csv; echo more >> in/data.csv"),
            cwd=work
        )
        self.assertEqual(r.out, "1,2\n1,2\n")
        self.assertEqual(self.read("outside/data.csv"), "1,2\n")
        self.assertEqual(os.listdir(work), [])

    def test_file_in_with_empty(self):
        self.write("data", "x")
        r = self.ok("run", "--empty", "--file", "d=data", *sh("cat d"))
        self.assertEqual(r.out, "x")

    def test_file_in_a_directory(self):
        """It is the user's, and one that was there before keeps its mode and what it has."""
        self.write("data", "text")
        self.write("sub/old", "old")
        for mode in (0o700, 0o500):
            os.chmod(self.path("sub"), mode)
            r = self.ok(
                "run",
                "--apply",
                *("--file", "sub/in=data", "--file", "sub/too=data", "--file", "a/b/in=data"),
                *sh("cat sub/in sub/too sub/old a/b/in; stat -c %U.%a sub a a/b; touch a/b/x && rm a/b/x"),
            )
            shown = "user.%o\nuser.755\nuser.755\n" % mode
            self.assertEqual((r.out, r.err), ("texttextoldtext" + shown, ""), str(r))
            self.assertEqual(sorted(os.listdir(self.dir)), ["data", "sub"])
            self.assertEqual(os.listdir(self.path("sub")), ["old"])
            self.assertEqual(os.stat(self.path("sub")).st_mode & 0o777, mode)

    def test_file_in_a_directory_with_changes(self):
        self.write("data", "text")
        self.ok("run", "--apply", "--file", "a/b/in=data", "--file", "c/in=data", *sh("echo x > a/out; echo y > c/in"))
        found = sorted(os.path.join(d, f) for d, _, fs in os.walk(self.dir) for f in fs)
        self.assertEqual(found, [self.path(n) for n in ("a/out", "c/in", "data")])
        self.assertEqual(os.listdir(self.path("a")), ["out"])

    def test_file_in_place_of_another_kind(self):
        """What is no directory, or is one, does not give way."""
        self.write("data", "text")
        self.mkdir("dir")
        os.symlink("dir", self.path("link"))
        for name in ("link/in", "data/in", "dir"):
            self.refused("run", "--apply", "--file", name + "=data", "--", "true", says="directory")
        self.assertEqual(os.readlink(self.path("link")), "dir")

    def test_file_name_must_stay_inside(self):
        self.write("data", "x")
        for name in ("../up", "/etc/passwd", "a/../../b", "", "..", "."):
            self.refused("run", "--file", name + "=data", "--", "true")

    def test_file_missing_or_forbidden(self):
        self.refused("run", "--file", "a=none", "--", "true", says="none")
        self.refused("run", "--file", "a=/etc/shadow", "--", "cat", "a")
        self.refused("run", "--file", "a=/etc", "--", "true")
        self.refused("run", "--file", "nothing", "--", "true")

    def test_capture(self):
        rec = cl.record(
            "--capture",
            "*.csv",
            "--capture",
            "out/*",
            "--",
            "sh",
            "-c",
            "echo 1,2 > a.csv; printf '\\377\\0' > b.csv; mkdir out; echo t > out/t.txt; echo n > c.txt",
        )
        files = {f["path"]: f for f in rec["files"]}
        self.assertEqual(sorted(files), ["a.csv", "b.csv", "out/t.txt"])
        self.assertEqual(base64.b64decode(files["a.csv"]["content_base64"]), b"1,2\n")
        self.assertEqual(base64.b64decode(files["b.csv"]["content_base64"]), b"\xff\0")
        self.assertEqual(files["b.csv"]["size"], 2)

    def test_capture_of_links_and_pipes(self):
        """Only regular files of the workspace: no link out, no pipe to hang on, no device."""
        self.write("outside/secret", "key")
        work = self.mkdir("work")
        os.symlink("../outside/secret", os.path.join(work, "was-here"))
        rec = cl.record(
            "--capture",
            "*",
            "--",
            "sh",
            "-c",
            "ln -s /etc/passwd link; ln -s %s abs; mkfifo pipe; ln -s ../outside dir; "
            "ln -s /proc/self/environ env; echo ok > ok" % self.path("outside/secret"),
            cwd=work,
            timeout=15,
        )
        self.assertEqual([f["path"] for f in rec["files"]], ["ok"])

    def test_capture_below_a_link(self):
        self.write("outside/secret", "key")
        work = self.mkdir("work")
        rec = cl.record(
            "--capture", "d/*", "--", "sh", "-c", "ln -s %s d" % self.path("outside"), cwd=work
        )
        self.assertEqual(rec["files"], [])

    def test_capture_is_bounded(self):
        rec = cl.record(
            "--capture",
            "*",
            "--",
            "sh",
            "-c",
            "head -c 400000000 /dev/zero > big; truncate -s 400M sparse; echo x > small",
            timeout=60,
        )
        total = sum(len(f.get("content_base64") or "") for f in rec["files"])
        self.assertLess(total, 200 << 20)
        self.assertIn("small", [f["path"] for f in rec["files"]])

    def test_capture_many(self):
        rec = cl.record(
            "--capture", "*", "--", *cl.py("[open('f%d' % i, 'w') for i in range(900)]")
        )
        self.assertEqual(len(rec["files"]), 256)
        self.assertTrue([n for n in rec["notes"] if "More files match capture" in n], rec["notes"])
        rec = cl.record("--capture", "*", "--", "sh", "-c", "echo x > one")
        self.assertEqual(rec["notes"], [])

    def test_capture_after_failure(self):
        rec = cl.record("--capture", "log", "--", "sh", "-c", "echo why > log; exit 3", code=3)
        self.assertEqual([f["path"] for f in rec["files"]], ["log"])

    def test_capture_needs_json(self):
        self.refused("run", "--capture", "*", "--", "true", says="json")

    def test_capture_does_not_leave_the_workspace(self):
        for glob in ("../*", "/etc/passwd", "a/../../*"):
            work = self.mkdir("work%d" % len(glob))
            r = cl.run("run", "--json", "-w", work, "--capture", glob, "--", "touch", "ran")
            self.assertEqual(r.code, 125, str(r))
            self.assertEqual(os.listdir(work), [], "it was run before its glob was looked at")

"""--image: a directory as the root file system."""

import os

import cl


class Image(cl.Case):
    def setUp(self):
        super().setUp()
        self.root = self.mkdir("image")
        for program in ("/bin/sh", "/bin/cat", "/bin/ls", "/usr/bin/id", "/usr/bin/touch"):
            cl.copy_program(self.root, program)
        self.write("image/etc/marker", "from the image\n")
        self.work = self.mkdir("work")
        self.write("work/a", "mine\n")

    def image(self, script, *more):
        return cl.run(
            "run", "--image", self.root, *more, "--", "/bin/sh", "-c", script, cwd=self.work
        )

    def test_runs(self):
        r = self.image(
            "cat /etc/marker a; id -u; ls /home /usr/share 2>/dev/null; echo x > /tmp/x; cat /tmp/x"
        )
        self.assertEqual(r.code, 0, str(r))
        self.assertTrue(r.out.startswith("from the image\nmine\n1000\n"), str(r))

    def test_the_user_has_a_name(self):
        line = "user:x:1000:1000:user:/home/user:/bin/sh\n"
        show = "id -un; id -gn; cat /etc/passwd"
        r = self.image(show)
        self.assertEqual((r.code, r.out), (0, "user\nuser\nroot:x:0:0:root:/root:/bin/sh\n" + line), str(r))
        self.write("image/etc/passwd", "root:x:0:0::/:/bin/sh\nsuperuser:x:7:7::/:/bin/sh")
        r = self.image(show)
        self.assertEqual(r.out, "user\nuser\nroot:x:0:0::/:/bin/sh\nsuperuser:x:7:7::/:/bin/sh\n" + line, str(r))
        self.write("image/etc/passwd", "user:x:7:7::/:/bin/sh\n")
        self.assertTrue(self.image("cat /etc/passwd").out == "user:x:7:7::/:/bin/sh\n")
        self.assertEqual(self.read("image/etc/passwd"), "user:x:7:7::/:/bin/sh\n")

    def test_accounts_that_lead_elsewhere_are_left_alone(self):
        victim = self.write("victim", "")
        os.symlink(victim, os.path.join(self.root, "etc/passwd"))
        os.mkfifo(os.path.join(self.root, "etc/group"))
        r = self.image("id -u")
        self.assertEqual((r.code, r.out), (0, "1000\n"), str(r))
        self.assertEqual(self.read("victim"), "")

    def test_read_only(self):
        r = self.image("echo x > /etc/marker || touch /new")
        self.assertNotEqual(r.code, 0, str(r))
        self.assertEqual(self.read("image/etc/marker"), "from the image\n")

    def test_overlay(self):
        self.need_root("the image's files belong to root")
        r = self.image("echo x > /etc/marker && touch /new && cat /etc/marker", "--root", "overlay")
        self.assertEqual((r.code, r.out), (0, "x\n"), str(r))
        self.assertEqual(self.read("image/etc/marker"), "from the image\n")
        self.assertFalse(os.path.exists(self.path("image/new")))

    def test_no_litter(self):
        before = sorted(os.path.join(t, n) for t, d, f in os.walk(self.root) for n in d + f)
        self.image("true")
        after = sorted(os.path.join(t, n) for t, d, f in os.walk(self.root) for n in d + f)
        self.assertEqual(before, after)

    def test_hostile_links(self):
        """Mount targets of the image that are links must not lead onto the host."""
        victim = self.mkdir("victim")
        for name in ("proc", "dev", "tmp", "home", "workspace"):
            os.symlink(victim, os.path.join(self.root, name))
        r = self.image("cat a; echo x > /tmp/x; ls /proc/self/status")
        self.assertIn(r.code, (0, 125), str(r))
        if r.code == 0:
            self.assertTrue(r.out.startswith("mine\n"), str(r))
        self.assertEqual(os.listdir(victim), [])

    def test_what_is_mounted_in_it_is_not_shown(self):
        self.need_root("mounts in a namespace of its own")
        self.mkdir("image/keys")
        script = (
            'mount --bind /etc "$1/keys" && test -e "$1/keys/shadow" && '
            '"$0" run --image "$1" --empty -- /bin/sh -c "ls /keys; echo done"'
        )
        r = cl.command("unshare", "-m", "sh", "-c", script, cl.CLOCHE, self.root)
        self.assertEqual((r.code, r.out), (0, "done\n"), str(r))

    def test_mounted_from_a_forbidden_place(self):
        self.need_root("mounts in a namespace of its own")
        script = (
            'mount --bind /root "$1" && "$0" run --image "$1" --empty -- /bin/sh -c "echo done"'
        )
        r = cl.command("unshare", "-m", "sh", "-c", script, cl.CLOCHE, self.root)
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertIn("image: ", r.err)
        self.assertIn("forbidden", r.err)

    def test_missing(self):
        self.refused("run", "--image", self.path("none"), "--", "true", says="none")

    def test_name_is_not_a_path(self):
        self.refused("run", "--image", "debian:12", "--", "true", says="debian:12")

    def test_forbidden(self):
        self.refused("run", "--image", "/", "--", "true")

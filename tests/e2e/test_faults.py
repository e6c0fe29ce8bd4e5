"""Bad input and a host in trouble: a clear message, the right status, nothing left behind."""

import json
import os
import resource
import shutil
import subprocess

import cl
import leaks


class BadInput(cl.Case):
    def test_unknown_option(self):
        self.refused("run", "--memroy", "1G", "--", "true", says="memroy.*memory")
        self.refused("run", "-Z", "--", "true", says="-?Z")
        self.refused("run", "--m", "1G", "--", "true")
        self.refused("run", "--mem", "1G", "--", "true", says="did you mean --memory")
        self.refused("run", "--output-limt", "1G", "--", "true", says="mean --output-limit")
        self.refused("code", "--frobnicate", says="cloche help code")

    def test_unknown_verb(self):
        r = self.refused("frobnicate", says="frobnicate")
        self.assertRegex(r.err, "run|help")

    def test_no_verb(self):
        r = cl.run()
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertIn("cloche run", r.err)

    def test_missing_command(self):
        for args in (("run",), ("run", "--"), ("run", "--memory", "1G"), ("run", "--", "")):
            r = cl.run(*args)
            self.assertIn(r.code, (125, 127), str(r))
            self.assertRegex(r.err, r"^cloche: ")

    def test_missing_value(self):
        self.refused("run", "--memory", says="memory")
        self.refused("run", "--json=yes", "--", "true", says="json")

    def test_the_record_names_the_field(self):
        """Wherever --json is among the options."""
        for args, field in (
            (("--json", "-m"), "memory"),
            (("--json", "--open-files"), "open_files"),
            (("-m", "12Q", "--json", "--", "true"), "memory"),
            (("-t", "soon", "-m", "64M", "--json=true", "true"), "timeout"),
            (("--frobnicate", "--json", "true"), "frobnicate"),
            (("-Z", "--json", "true"), "Z"),
            (("--json", "-v", "/usr/share:/usr/share/no-such", "true"), "mount"),
        ):
            r = cl.run("run", *args)
            self.assertEqual(r.code, 125, str(r))
            self.assertEqual(json.loads(r.out)["error"]["field"], field, str(r))
        self.refused("run", "-m", "12Q", "--", "true", "--json")

    def test_values_of_variables_are_not_shown(self):
        r = self.refused("run", "--env", "NO-NAME=hush", "--", "true", says="NO-NAME")
        self.assertNotIn("hush", r.err)

    def test_bad_values(self):
        for option, values in (
            (
                "--memory",
                ("12Q", "-1", "", "1GG", "0x10", "1e9", "99999999999G", "NaN", " 1G", "0"),
            ),
            ("--cpus", ("0", "-1", "x", "1,5", "")),
            ("--pids", ("0", "-5", "1.5", "many", "99999999999999999999")),
            ("--timeout", ("soon", "-1s", "5x", "", "0")),
            ("--disk", ("1", "x")),
            ("--open-files", ("0", "1", "x")),
            ("--output-limit", ("x", "9999G")),
            ("--level", ("bunker", "")),
            ("--net", ("yes",)),
            ("--root", ("rw",)),
            ("--guard", ("maybe",)),
            ("--hostname", ("", "a b", "x" * 300, "-", "a/b")),
        ):
            for value in values:
                r = self.refused("run", option, value, "--", "true")
                self.assertIn(option[2:].replace("-", "_"), r.err.replace("-", "_"), str(r))

    def test_bounds_are_said(self):
        for option, value, bound in (
            ("--memory", "1K", "at least 4M"),
            ("--disk", "1", "at least 64K"),
            ("--cpus", "0.001", "at least 0.01"),
            ("--cpu-time", "1ms", "at least 10ms"),
            ("--pids", "5000000", "at most 4194304"),
            ("--output-limit", "2G", "at most 1024M"),
        ):
            self.refused("run", option, value, "--", "true", says=bound)

    def test_not_built_is_said(self):
        for option, value in (
            ("--level", "vm"),
            ("--provider", "docker"),
            ("--provider", "e2b"),
            ("--audit", "x"),
            ("--use-case", "x"),
        ):
            r = cl.run("run", option, value, "--", "echo", "ran")
            if r.code != 0:
                self.assertEqual((r.code, r.out), (125, ""), str(r))
                self.assertRegex(r.err, "not built|not usable|cannot", str(r))

    def test_rules_need_a_network(self):
        self.refused("run", "--net", "none", "--allow", "example.com", "--", "true", says="allow: net is none")
        self.refused("run", "--net-rate", "1M", "--", "true", says="net is none")

    def test_control_bytes_in_messages(self):
        r = self.refused("run", "--memory", "\x1b[31m\n", "--", "true")
        self.assertNotIn("\x1b", r.err)

    def test_long_values(self):
        self.refused("run", "--memory", "9" * 100000, "--", "true")
        self.refused("run", "--workspace", "/" + "x" * 5000, "--", "true")
        r = cl.run("run", "--", "x" * 5000)
        self.assertIn(r.code, (125, 126, 127), str(r)[:500])


class Elsewhere(cl.Case):
    """Started where cloche is not at home: inside of other sandboxes, as half a root."""

    def test_inside_of_itself(self):
        self.need_plain_build("its check for leaks wants to trace, inside")
        mount = "%s:/mnt/cloche" % os.path.dirname(cl.CLOCHE)
        for level in ("container", "process"):
            r = cl.run(
                *("run", "-v", mount, "--"),
                *("/mnt/cloche/cloche", "run", "--level", level, "--", "echo", "ran"),
            )
            self.assertEqual((r.code, r.out), (125, ""), str(r))
            self.assertRegex(r.err, "(?m)^cloche: .*sandbox", str(r))

    def test_root_of_a_user_namespace(self):
        """It has every capability there and one id, so it is an ordinary user."""
        made = cl.command("unshare", "-Ur", "true")
        if made.code != 0:
            self.skipTest("this user can have no user namespace: " + made.err)
        r = cl.command("unshare", "-Ur", cl.CLOCHE, "run", "--json", "--", "id", "-u")
        self.assertEqual(r.code, 0, str(r))
        rec = json.loads(r.out)
        self.assertEqual((rec["stdout"], rec["layers"]["rootless"]), ("1000\n", True))
        r = cl.command("unshare", "-Ur", cl.CLOCHE, "run", "--level", "process", "--", "echo", "ran")
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))

    def half_a_root(self, without, *args):
        caps = ",".join("-" + cap for cap in without)
        return cl.command(
            "setpriv", "--bounding-set=" + caps, "--inh-caps=" + caps, cl.CLOCHE, "run", *args
        )

    def test_root_of_a_container(self):
        """Without CAP_SYS_ADMIN, as Docker starts it: level process still has a user of its own."""
        self.need_root("has capabilities to lose")
        command = ("--level", "process", "--json", "--", "sh", "-c", "id -u; touch ~/x && setsid sleep 99 &")
        r = self.half_a_root(["sys_admin"], *command)
        self.assertEqual(r.code, 0, str(r))
        self.assertGreater(int(json.loads(r.out)["stdout"]), 60000)
        r = self.half_a_root(["sys_admin", "kill"], *command)
        self.assertEqual(r.code, 125, "it ran as root: %s" % r)
        self.assertIn("layer ids", r.err)


class Host(cl.Case):
    def test_workspace_that_vanished(self):
        ws = self.mkdir("ws")
        os.rmdir(ws)
        self.refused("run", "-w", ws, "--", "true", says="ws")

    def test_workspace_removed_during_the_run(self):
        ws = self.mkdir("ws")
        self.write("ws/a", "1")
        p = cl.start(
            "run",
            "-w",
            ws,
            "--",
            "sh",
            "-c",
            "echo up; read x; cat a; echo $?",
            stdin=subprocess.PIPE,
        )
        self.assertEqual(p.stdout.readline(), b"up\n")
        shutil.rmtree(ws)
        r = cl.finish(p, b"\n")
        self.assertEqual((r.code, r.out), (0, "1\n"), str(r))

    def test_apply_to_a_directory_that_vanished(self):
        ws = self.mkdir("ws")
        p = cl.start(
            "run",
            "--apply",
            "--",
            "sh",
            "-c",
            "echo up; read x; echo 1 > new",
            stdin=subprocess.PIPE,
            cwd=ws,
        )
        self.assertEqual(p.stdout.readline(), b"up\n")
        shutil.rmtree(ws)
        r = cl.finish(p, b"\n")
        self.assertNotEqual(r.code, 0, "changes were lost without a word: %s" % r)
        self.assertIn("cloche: ", r.err)
        self.assertFalse(os.path.exists(ws))

    def test_no_permission(self):
        self.need_user("root may enter every directory")
        closed = self.mkdir("closed")
        os.chmod(closed, 0)
        r = cl.run("run", "-w", closed, "--", "ls")
        self.assertNotEqual(r.code, 0, str(r))
        os.chmod(closed, 0o755)

    def test_unreadable_current_directory(self):
        """A directory that may be entered but not listed is no reason to fail without a word."""
        closed = self.mkdir("closed")
        os.chmod(closed, 0o311)
        r = cl.run("run", "--", "pwd", cwd=closed)
        self.assertIn(r.code, (0, 125), str(r))

    def test_few_descriptors(self):
        """EMFILE at any point of the start: 125 and a message, or it works."""
        self.need_plain_build("its runtime needs open files")
        outcomes = set()
        for limit in list(range(3, 24)) + [32, 64]:

            def prepare(limit=limit):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

            p = cl.start("run", "--", "echo", "ran", preexec_fn=prepare)
            r = cl.finish(p, timeout=15)
            self.assertIn((r.code, r.out), ((0, "ran\n"), (125, "")), "limit %d: %s" % (limit, r))
            if r.code == 125:
                self.assertRegex(r.err, r"(?m)^cloche: ", "limit %d: %s" % (limit, r))
            outcomes.add(r.code)
        self.assertEqual(outcomes, {0, 125})

    def test_few_processes(self):
        """A full pid table (the caller's limit of processes): 125 and a message."""
        self.need_user("RLIMIT_NPROC does not bind root; see test_full_pids_cgroup")

        def prepare():
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

        r = cl.finish(cl.start("run", "--", "echo", "ran", preexec_fn=prepare), timeout=15)
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertRegex(r.err, r"(?m)^cloche: ")

    def test_full_pids_cgroup(self):
        top = "/sys/fs/cgroup/pids"
        self.need_root("fills a cgroup of its own")
        if not os.path.isdir(top):
            self.skipTest("no pids controller of cgroup v1")
        group = os.path.join(top, "cloche-e2e-full-" + cl.marker())
        os.mkdir(group)
        self.addCleanup(os.rmdir, group)
        for room in (1, 2, 3):
            with open(group + "/pids.max", "w") as f:
                f.write(str(room))

            def prepare():
                with open(group + "/tasks", "w") as f:
                    f.write("0")

            r = cl.finish(cl.start("run", "--", "echo", "ran", preexec_fn=prepare), timeout=15)
            self.assertIn((r.code, r.out), ((0, "ran\n"), (125, "")), "room %d: %s" % (room, r))
            if room == 1:
                self.assertEqual(r.code, 125, str(r))
                self.assertRegex(r.err, r"(?m)^cloche: ")
        cl.wait_for(lambda: not open(group + "/tasks").read(), 5)

    def test_small_stack(self):
        """Too small for cloche is told; at the least that is taken, trees as deep as may be are applied."""
        self.need_plain_build("its frames are larger")
        deep = (
            "import os\n"
            "for i in range(125):\n"
            "    os.symlink('/x', 'l'); open('f', 'w').close(); os.mkdir('d'); os.chdir('d')"
        )
        for kilobytes, code in ((64, 125), (511, 125), (512, 0)):
            with self.subTest(kilobytes):

                def prepare(size=kilobytes << 10):
                    resource.setrlimit(resource.RLIMIT_STACK, (size, size))

                env = {"FILLS_THE_STACK": "x" * 100000} if code == 0 else {}
                args = ("run", "--apply", "--", *cl.py(deep))
                r = cl.finish(cl.start(*args, preexec_fn=prepare, env=cl.caller_env(**env)))
                self.assertEqual(r.code, code, str(r)[:2000])
                if code:
                    self.assertRegex(r.err, r"^cloche: stacks are limited to %d kB.*ulimit -s" % kilobytes)
                else:
                    self.assertTrue(os.path.exists(self.path("d/" * 100 + "f")))

    def test_no_space_for_apply(self):
        """The file system is full while changes are applied: told, and the status says so."""
        self.need_root("mounts a small file system in a namespace of its own")
        small = self.mkdir("small")
        script = (
            'mount -t tmpfs -o size=1m t "$1" && cd "$1" && echo old > a && '
            '"$2" run --apply -- sh -c "head -c 3000000 /dev/zero > big; echo new > a"; echo $?; ls -A | wc -l'
        )
        r = cl.command("unshare", "-m", "sh", "-c", script, "sh", small, cl.CLOCHE)
        self.assertEqual(r.out.split()[0], "125", str(r))
        self.assertRegex(r.err, "(?m)^cloche: .*(space|big)")
        self.assertLessEqual(int(r.out.split()[1]), 2, "a temporary file was left: %s" % r)

    def test_no_tmp(self):
        """Nothing is written to the host's /tmp, so a read-only or full one does not matter."""
        self.need_root("mounts in a namespace of its own")
        r = cl.command(
            "unshare",
            "-m",
            "sh",
            "-c",
            'mount -t tmpfs -o ro t /var/tmp && mount -t tmpfs -o ro t /dev/shm && "$1" run --empty -- echo ran',
            "sh",
            cl.CLOCHE,
        )
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))

    def test_proc_of_the_host_tells_less(self):
        """What is to be hidden is looked up in the host's /proc, where it may be covered or left out."""
        self.need_root("mounts in a namespace of its own")
        dark = self.path("dark")
        open(dark, "w", encoding="ascii").close()
        os.chmod(dark, 0)
        for name, change in (
            ("covered", 'mount --bind "$2" /proc/kallsyms && mount --bind "$2" /proc/cmdline'),
            ("covered by its own", "mount --bind /proc/1/environ /proc/kallsyms && mount --bind /proc/1/environ /proc/cmdline"),
            ("processes only", "mount -t proc -o subset=pid proc /proc"),
            ("not there", "umount -l /proc && mount -t tmpfs t /proc"),
        ):
            with self.subTest(name):
                script = change + ' && "$1" run --empty -- cat /proc/kallsyms /proc/cmdline'
                r = cl.command("unshare", "-m", "sh", "-c", script, "sh", cl.CLOCHE, dark)
                self.assertEqual(r.out, "", str(r))

    def test_doctor_sees_a_covered_proc(self):
        """As in a container: an ordinary user then gets no /proc of its own, so no level container."""
        self.need_root("mounts in a namespace of its own")
        user = ("setpriv", "--reuid", "60125", "--regid", "60125", "--clear-groups")
        if cl.command(*user, "test", "-x", cl.CLOCHE).code != 0:
            self.skipTest("an ordinary user cannot reach this build")
        script = 'mount -t tmpfs t /proc/sys && exec "$@"'
        under = ("unshare", "-m", "sh", "-c", script, "sh", *user, cl.CLOCHE)
        for cover, state in (under, "missing"), ((cl.CLOCHE,), "ok"):
            r = cl.command(*cover, "doctor", "--json")
            checks = {c["name"]: c for c in json.loads(r.out)["checks"]}
            self.assertEqual(checks["proc"]["state"], state, checks["proc"])
            self.assertEqual(bool(checks["proc"]["remedy"]), state == "missing")
        self.assertIn("/proc", cl.command(*under, "run", "--empty", "true").err)

    def test_what_only_root_may_read_of_etc(self):
        """Small files of /etc are copied by who starts cloche; that must not open them to everybody."""
        self.need_root("mounts in a namespace of its own")
        script = (
            'mount -t tmpfs t "$2" && cp -a /etc/. "$2" && mount --bind "$2" /etc && cd / && '
            "echo open > /etc/java-open.conf && echo shut > /etc/java-shut.conf && "
            "chmod 600 /etc/java-shut.conf && "
            '"$1" run --empty -- sh -c "cat /etc/java-open.conf /etc/java-shut.conf"'
        )
        r = cl.command("unshare", "-m", "sh", "-c", script, "sh", cl.CLOCHE, self.mkdir("etc"))
        self.assertEqual(r.out, "open\n", str(r))

    def test_launcher_without_its_daemon(self):
        """`cloche VERB` for a verb of cloched, with no cloched to be found."""
        shutil.copy(cl.CLOCHE, self.path("cloche"))
        p = cl.start(command=[self.path("cloche"), "doctor"])
        r = cl.finish(p)
        self.assertEqual(r.code, 125, str(r))
        self.assertRegex(r.err, r"^cloche: .*cloched")
        r = cl.finish(cl.start(command=[self.path("cloche"), "run", "--", "echo", "ran"]))
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))

    def test_started_by_another_name_or_path(self):
        os.symlink(cl.CLOCHE, self.path("link"))
        r = cl.finish(cl.start(command=[self.path("link"), "run", "--", "echo", "ran"]))
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))
        r = cl.finish(
            cl.start(
                command=[
                    self.path("link"),
                    "policy",
                    "check",
                    self.write("p.yaml", "memory: 64M\n"),
                ]
            )
        )
        self.assertEqual(r.code, 0, str(r))

    def test_no_proc(self):
        """A host without /proc: refused with a reason."""
        self.need_root("unmounts /proc in a namespace of its own")
        self.need_plain_build("its runtime reads /proc")
        r = cl.command(
            "unshare",
            "-m",
            "sh",
            "-c",
            'mount -t tmpfs t /proc && exec "$1" run -- echo ran',
            "sh",
            cl.CLOCHE,
        )
        self.assertIn((r.code, r.out), ((0, "ran\n"), (125, "")), str(r))
        if r.code:
            self.assertRegex(r.err, r"(?m)^cloche: ")

    def test_empty_environment(self):
        r = cl.finish(cl.start("run", "--", "echo", "ran", env={"X": "y"}))
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))

    def test_no_arguments_at_all(self):
        """argc 0, as an attacker of set-id programs would start it."""
        code = (
            "import ctypes, os\n"
            "libc = ctypes.CDLL(None)\n"
            "argv = (ctypes.c_char_p * 1)(None); env = (ctypes.c_char_p * 1)(None)\n"
            "libc.execve(%r, argv, env); os._exit(99)" % cl.CLOCHE.encode()
        )
        r = cl.command(cl.PYTHON, "-c", code)
        self.assertGreaterEqual(r.code, 0, str(r))
        self.assertNotEqual(r.code, 99)


# Calls that cloche may need on the way to a sandbox. Each is answered with ENOSYS, EPERM, and with
# success that did not happen. Those that the helper knows by name only by number are for x86_64.
CALLS = [
    "clone3",
    "unshare",
    "setns",
    "mount",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "mount_setattr",
    "umount2",
    "pivot_root",
    "chroot",
    "seccomp",
    "prctl",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "setresuid",
    "setresgid",
    "setgroups",
    "capset",
    "close_range",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    "prlimit64",
    "sethostname",
    "memfd_create",
    "setrlimit",
    "mkdirat",
    "waitid",
    "setsid",
]
NUMBERS = {
    "statx": 332,
    "signalfd4": 289,
    "eventfd2": 290,
    "pipe2": 293,
    "socketpair": 53,
    "faccessat2": 439,
    "symlinkat": 266,
    "mknodat": 259,
    "timerfd_create": 283,
    "epoll_create1": 291,
    "personality": 135,
    "name_to_handle_at": 303,
    "kcmp": 312,
}
if os.uname().machine == "x86_64":
    CALLS += NUMBERS
if cl.is_sanitized():
    CALLS.remove("prlimit64")  # the sanitizers' runtime ends the process without it
# Whoever believes these has no way to go on that a test could ask for.
ESSENTIAL = ("waitid", "pipe2", "socketpair", "clone3", "epoll_create1", "statx")

PROBE = (
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "bad = []\n"
    "status = open('/proc/self/status').read()\n"
    "get = lambda k: status.split(k + ':')[1].split()[0]\n"
    "if get('NoNewPrivs') != '1': bad.append('no_new_privs')\n"
    "if get('Seccomp') != '2': bad.append('seccomp')\n"
    "if int(get('CapEff'), 16) or int(get('CapBnd'), 16): bad.append('caps')\n"
    "if os.getresuid() != (1000,) * 3: bad.append('ids')\n"
    "if os.getpid() != 2: bad.append('pid_ns')\n"
    "if os.path.exists('/etc/shadow') or os.path.exists(sys.argv[1]): bad.append('root')\n"
    "if libc.unshare(0x10000000) == 0: bad.append('unshare')\n"
    "if set(os.listdir('/proc/self/fd')) - set('0123'): bad.append('fds')\n"
    "print('inside', bad)"
)


class LyingKernel(cl.Case):
    def setUp(self):
        super().setUp()
        self.lie = cl.helper("lie")
        if not self.lie:
            self.skipTest("tests/helpers/lie is not built")

    def lied(self, rules, *args, timeout=20):
        """Runs cloche on a kernel that answers by rules; as root in a pid namespace of its own."""
        rules = ",".join("%s=%s" % (NUMBERS.get(call, call), answer) for call, answer in rules)
        own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if cl.ROOT else []
        p = cl.start(
            command=own + [self.lie, rules, "--", cl.CLOCHE, *args], cwd=self.mkdir("work")
        )
        r = cl.finish(p, timeout=timeout)
        self.assertNotIn("lie: ", r.err)
        return r

    def probe(self, rules):
        secret = self.write("outside/secret", "x")
        return self.lied(rules, "run", "-t", "10s", "--", *cl.py(PROBE, secret))

    def check(self, errno, calls):
        """Either cloche says that it cannot, or the command ran with all that matters in place."""
        for call in calls:
            with self.subTest(call=call, errno=errno):
                r = self.probe([(call, errno)])
                if r.code == 0:
                    self.assertEqual(r.out, "inside []\n", str(r))
                else:
                    self.assertEqual(r.out, "", str(r))
                    self.assertIn(r.code, (125, 126, 127), str(r))
                    self.assertRegex(r.err, r"(?m)^cloche: ", str(r))

    def test_honest(self):
        """The control: with nothing that matters taken away the command runs."""
        r = self.probe([("kcmp" if "kcmp" in CALLS else "sethostname", "ENOSYS")])
        self.assertIn((r.code, r.out), ((0, "inside []\n"), (125, "")), str(r))
        if "kcmp" in CALLS:
            self.assertEqual(r.code, 0, str(r))

    def test_enosys(self):
        self.check("ENOSYS", CALLS)

    def test_eperm(self):
        self.check("EPERM", CALLS)

    def test_false_success(self):
        self.check("0", [c for c in CALLS if c not in ESSENTIAL])

    def test_false_landlock_is_found_out(self):
        """The filter below says that Landlock is on; the record must not."""
        lie = [("landlock_restrict_self", "0")]
        r = self.lied(lie, "run", "--json", "--", "true")
        if r.code == 0:
            layers = json.loads(r.out)["layers"]
            self.assertIn("landlock", layers["missing"])
            self.assertEqual(layers["landlock_abi"], 0)
        r = self.lied(lie, "run", "--require", "landlock", "--", "echo", "ran")
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertIn("landlock", r.err)

    def test_false_limits_are_found_out(self):
        """RLIMIT_NPROC, which may be all that limits pids, and RLIMIT_CORE."""
        for limit in (4, 6) if not cl.ROOT else (4,):
            lie = [("prlimit64:1.%d" % limit, "0")]
            r = self.lied(lie, "run", "--json", "--", "echo", "ran")
            self.assertEqual((r.code, json.loads(r.out)["error"]["kind"]), (125, "unsupported"), str(r))

    def test_optional_layer(self):
        """What the caller named optional may be missing, and the record says so."""
        r = self.lied(
            [("landlock_create_ruleset", "ENOSYS")],
            "run",
            "--json",
            "--optional",
            "landlock",
            "--",
            "true",
        )
        self.assertEqual(r.code, 0, str(r))
        self.assertIn("landlock", json.loads(r.out)["layers"]["missing"])

    def test_dev_of_an_image_is_no_disk(self):
        """It belongs to who made it, who is the user inside without root; only Landlock is in the way."""
        image = self.mkdir("image")
        for program in ("/bin/sh", "/usr/bin/head"):
            cl.copy_program(image, program)
        script = "for i in 1 2 3 4; do head -c 6000000 /dev/zero > /dev/$i && echo took; done; echo end"
        opts = ["-m", "64M", "--disk", "4M", "--empty", "--image", image]
        lie = [("landlock_create_ruleset", "ENOSYS")]
        r = self.lied(lie, "run", *opts, "--", "/bin/sh", "-c", script)
        self.assertEqual((r.code, r.out), (0, "end\n"), str(r))

    def test_no_user_namespaces(self):
        """As on hosts that forbid them: refused with the way out, never run without."""
        r = self.probe([("unshare", "EPERM"), ("clone3", "ENOSYS"), ("clone", "EPERM")])
        self.assertEqual((r.code, r.out), (125, ""), str(r))
        self.assertRegex(r.err, r"(?m)^cloche: ")

    def test_process_level_without_namespaces(self):
        lies = [
            (call, "EPERM")
            for call in ("unshare", "setns", "mount", "fsopen", "open_tree", "move_mount")
        ]
        r = self.lied(lies, "run", "--level", "process", "--", "echo", "ran")
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))

    def test_process_level_without_clone3(self):
        """As in containers, whose filters hide it."""
        r = self.lied([("clone3", "ENOSYS")], "run", "--level", "process", "--", "echo", "ran")
        self.assertEqual((r.code, r.out), (0, "ran\n"), str(r))

    def test_process_level_that_keeps_its_user(self):
        """setresuid that only says so: nothing runs, and nobody else is killed in its name."""
        self.need_root("an ordinary user keeps its id at this level")
        script = 'sleep 30 & "$@"; echo "status $?"; kill -9 $! && echo bystander lives'
        r = cl.command(
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            script,
            "sh",
            self.lie,
            "setresuid=0",
            "--",
            cl.CLOCHE,
            "run",
            "--level",
            "process",
            "--",
            "echo",
            "ran",
        )
        self.assertEqual(r.out, "status 125\nbystander lives\n", str(r))

    def test_nothing_is_left(self):
        before = leaks.cgroups() | leaks.mounts()
        for call in (
            "landlock_restrict_self",
            "seccomp",
            "mount_setattr",
            "move_mount",
            "setresuid",
            "capset",
        ):
            self.probe([(call, "EPERM")])
        left = set()

        def clean():
            nonlocal left
            left = {x for x in (leaks.cgroups() | leaks.mounts()) - before if "cloche" in x}
            return not left

        cl.wait_for(clean, 5, 0.1)
        self.assertEqual(left, set())

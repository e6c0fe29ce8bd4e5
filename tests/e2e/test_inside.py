"""The world of the command: environment, identity, /etc, /dev, /proc, processes, network, fds."""

import os
import re
import resource
import signal
import socket
import subprocess

import cl

MARK = "caller-value-that-must-stay-outside"

# What a program may find in /etc; anything else would have to be argued for here.
ETC = re.compile(
    r"""^(alternatives|ssl|ca-certificates(\.conf)?|ld\.so\..*|localtime|timezone|
    nsswitch\.conf|hosts|hostname|services|protocols|mime\.types|manpath\.config|matplotlibrc|fonts|python[23].*|perl|java.*|
    passwd|group|resolv\.conf|host\.conf|gai\.conf|shells|profile|bash\.bashrc|inputrc|
    locale\..*|default|terminfo|magic.*|os-release|debian_version|lsb-release|mtab|
    chromium.*|environment|login\.defs|ethertypes|networks|rpc|X11|
    xdg|mailcap|papersize|dictionaries-common|emacs|vim|gitconfig|npmrc|nodejs|R|ImageMagick.*|
    php|maven|libreoffice)$""",
    re.X,
)
SECRETS = (
    "shadow",
    "gshadow",
    "sudoers",
    "sudoers.d",
    "ssh",
    "ssl/private",
    "passwd-",
    "shadow-",
    "security",
    "pam.d",
    "machine-id",
    "docker",
    "kubernetes",
    "cloud",
    "wpa_supplicant",
    "NetworkManager",
    "krb5.keytab",
    "mysql",
    "postgresql",
    "letsencrypt",
    "gitconfig",
    "npmrc",
    "netrc",
    "apt/auth.conf",
    "apt/auth.conf.d",
    "fstab",
    "crypttab",
)


def environment(text):
    return dict(item.split("=", 1) for item in text.split("\0") if item)


class Environment(cl.Case):
    def inside(self, *options, env=None):
        return environment(self.ok("run", *options, "--", "env", "-0", env=env).out)

    def test_standard(self):
        env = self.inside()
        self.assertEqual(env["HOME"], "/home/user")
        self.assertEqual(env["USER"], "user")
        self.assertTrue(os.path.exists(env["SHELL"]), env["SHELL"])
        self.assertEqual(env["LANG"], "C.UTF-8")
        path = env["PATH"].split(":")
        self.assertIn("/home/user/.local/bin", path)
        self.assertIn("/usr/bin", path)
        self.assertNotIn("", path)
        self.assertNotIn(".", path)
        self.assertNotIn("TERM", env)

    def test_nothing_of_the_callers(self):
        names = (
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "OPENAI_API_KEY",
            "HTTP_PROXY",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "IFS",
            "BASH_ENV",
            "ENV",
            "NODE_OPTIONS",
            "TERM",
            "LANG",
            "LC_ALL",
            "USER",
            "SHELL",
            "PWD",
            "TMPDIR",
            "XDG_CONFIG_HOME",
            "CLOCHE_TOKEN",
            "BASH_FUNC_x%%",
            "MAIL",
        )
        env = self.inside(env=cl.caller_env(**{name: MARK for name in names}))
        self.assertEqual([k for k, v in env.items() if MARK in v], [])
        self.assertNotIn("AWS_SECRET_ACCESS_KEY", env)

    def test_not_in_proc_either(self):
        env = cl.caller_env(SECRET=MARK)
        r = self.ok(
            "run",
            "--",
            "sh",
            "-c",
            "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; true",
            env=env,
        )
        self.assertNotIn(MARK, r.out)

    def test_launchers_arguments_are_not_shown(self):
        r = self.ok(
            "run",
            "--env",
            "OTHER=" + MARK,
            "--",
            "sh",
            "-c",
            "cat /proc/1/cmdline /proc/1/environ 2>/dev/null; true",
        )
        self.assertNotIn(MARK, r.out)

    def test_set(self):
        env = self.inside("--env", "A=1", "--env", "B=x=y z", "--env", "C=", "--env", "A=2")
        self.assertEqual((env["A"], env["B"], env["C"]), ("2", "x=y z", ""))

    def test_copy(self):
        env = self.inside("--env", "WANTED", env=cl.caller_env(WANTED="v", OTHER="o"))
        self.assertEqual(env.get("WANTED"), "v")
        self.assertNotIn("OTHER", env)

    def test_copy_of_what_is_not_set(self):
        self.refused("run", "--env", "MISSING", "--", "true", says="MISSING")

    def test_override_standard(self):
        env = self.inside("--env", "LANG=de_DE.UTF-8", "--env", "PATH=/bin")
        self.assertEqual((env["LANG"], env["PATH"]), ("de_DE.UTF-8", "/bin"))

    def test_bad_name(self):
        self.refused("run", "--env", "=x", "--", "true", says="env")

    def test_threads_follow_cpus(self):
        for cpus, threads in (("1", "1"), ("2", "2"), ("0.5", "1"), ("1.5", "2")):
            self.assertEqual(self.inside("--cpus", cpus).get("OMP_NUM_THREADS"), threads, cpus)


class Identity(cl.Case):
    def test_ordinary_user(self):
        self.assertEqual(self.out("id"), "uid=1000(user) gid=1000(user) groups=1000(user)\n")

    def test_all_ids(self):
        r = self.out("cat", "/proc/self/status")
        for key in ("Uid", "Gid"):
            self.assertRegex(r, r"(?m)^%s:\s1000\s1000\s1000\s1000$" % key)
        self.assertRegex(r, r"(?m)^Groups:\s*(1000)?\s*$")
        for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertRegex(r, r"(?m)^%s:\s0+$" % key)
        self.assertRegex(r, r"(?m)^NoNewPrivs:\s1$")
        self.assertRegex(r, r"(?m)^Seccomp:\s2$")

    def test_not_the_callers_host_id(self):
        """As root each sandbox has host ids of its own; rootless it has the caller's single id."""
        r = self.out("cat", "/proc/self/uid_map")
        rows = [list(map(int, line.split())) for line in r.splitlines()]
        mapped = [row for row in rows if row[0] <= 1000 < row[0] + row[2]]
        self.assertEqual(len(mapped), 1, rows)
        host = mapped[0][1] + 1000 - mapped[0][0]
        if cl.ROOT:
            self.assertGreaterEqual(host, 60000)
            for row in rows:
                self.assertFalse(row[1] <= 0 < row[1] + row[2], "host root is mapped: %r" % rows)
        else:
            self.assertEqual(host, os.geteuid())

    def test_two_sandboxes_have_different_ids(self):
        self.need_root("rootless sandboxes share the caller's id")
        script = "cat /proc/self/uid_map; cat"
        first = cl.start("run", "--", "sh", "-c", script, stdin=subprocess.PIPE)
        line = first.stdout.readline()
        other = self.out("sh", "-c", "cat /proc/self/uid_map")
        cl.finish(first, b"")
        self.assertNotEqual(line.split()[1:2], other.encode().split()[1:2])

    def test_cannot_become_root(self):
        code = (
            "import os\n"
            "for call in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0),\n"
            "             lambda: os.setgroups([0])):\n"
            "    try: call(); print('got through')\n"
            "    except OSError: pass\n"
            "print(os.getresuid())"
        )
        self.assertEqual(self.out(*cl.py(code)), "(1000, 1000, 1000)\n")

    def test_hostname(self):
        name = self.out("hostname").strip()
        self.assertNotEqual(name, socket.gethostname())
        self.assertTrue(name)
        self.assertEqual(self.ok("run", "--hostname", "box", "--", "uname", "-n").out, "box\n")

    def test_whoami_and_home(self):
        self.assertEqual(
            self.out("sh", "-c", "whoami; echo ~; echo ~user"), "user\n/home/user\n/home/user\n"
        )


class Etc(cl.Case):
    def test_allowlist(self):
        names = self.out("ls", "-A", "/etc").split()
        self.assertEqual([n for n in names if not ETC.match(n)], [])

    def test_no_secrets(self):
        script = "; ".join("test -e /etc/%s && echo /etc/%s" % (n, n) for n in SECRETS) + "; true"
        self.assertEqual(self.out("sh", "-c", script), "")

    def test_parts(self):
        """Of directories that may hold keys and passwords as well, only what programs need."""
        parts = {
            "/etc/R": {"Makeconf", "Renviron", "ldpaths", "repositories"},
            "/etc/libreoffice": {"registry", "sofficerc"},
            "/etc/maven": {"m2.conf", "logging"},
            "/etc/ssl": {"certs", "openssl.cnf"},
            "/var/lib": {"gems", "ghc", "texmf"},
        }
        for directory, names in parts.items():
            for level in ("container", "process"):
                script = "cd %s 2>/dev/null && for f in *; do test -r $f && echo $f; done; true"
                inside = self.ok("run", "--level", level, "--", "sh", "-c", script % directory).out
                there = {n for n in names if os.access(os.path.join(directory, n), os.R_OK)}
                # The process level hides by Landlock: a name that is not listed cannot be tried.
                self.assertLessEqual(set(inside.split()), there, directory)
                if level == "container":
                    self.assertEqual(set(inside.split()), there, directory)

    def test_php_has_extensions_and_no_settings(self):
        if not os.path.isdir("/etc/php"):
            self.skipTest("php is not installed")
        out = self.out("sh", "-c", "find /etc/php -type f | xargs cat; find /etc/php -type f")
        *lines, last = out.splitlines()
        self.assertRegex(last, r"^/etc/php/[0-9.]+/cli/conf\.d/extensions\.ini$")
        settings = [n for n in lines if not re.match(r"(zend_)?extension\s*=|/etc/php/", n)]
        self.assertEqual(settings, [])
        self.assertTrue(lines)

    def test_own_passwd_and_group(self):
        r = self.out("sh", "-c", "getent passwd user; getent group user; cat /etc/passwd")
        self.assertRegex(r, r"(?m)^user:[x*!]*:1000:1000:[^:]*:/home/user:/bin/(ba)?sh$")
        self.assertLess(len(r.splitlines()), 8)
        host = {line.split(":")[0] for line in open("/etc/passwd")} - {"root", "nobody", "user"}
        inside = {line.split(":")[0] for line in r.splitlines()}
        self.assertEqual(host & inside, set())

    def test_names_resolve(self):
        self.assertRegex(self.out("getent", "hosts", "localhost"), r"^(127\.0\.0\.1|::1)\s")

    def test_certificates(self):
        if not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
            self.skipTest("the host has no ca-certificates")
        self.assertEqual(
            self.out("head", "-c", "10", "/etc/ssl/certs/ca-certificates.crt"), "-----BEGIN"
        )

    def test_host_names_nobody(self):
        """Neither the host's name nor its resolvers are told."""
        r = self.out("sh", "-c", "cat /etc/hosts /etc/resolv.conf /etc/hostname 2>/dev/null; true")
        if len(socket.gethostname()) > 3:
            self.assertNotIn(socket.gethostname(), r)


class Tree(cl.Case):
    def test_root_is_read_only(self):
        """By its mount, whatever Landlock and owners say."""
        code = "import os; print([p for p in ('/', '/usr', '/etc') if not os.statvfs(p).f_flag & os.ST_RDONLY])"
        self.assertEqual(self.out(*cl.py(code)), "[]\n")

    def test_top(self):
        names = set(self.out("ls", "-A", "/").split())
        allowed = {
            "bin",
            "sbin",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "usr",
            "etc",
            "opt",
            "dev",
            "proc",
            "tmp",
            "var",
            "run",
            "home",
            "workspace",
            "sys",
            "root",
            "mnt",
            "srv",
            "media",
            self.dir.split("/")[1],
        }
        self.assertEqual(names - allowed, set())

    def test_empty_places(self):
        for place in (
            "/root",
            "/mnt",
            "/srv",
            "/media",
            "/var/log",
            "/boot",
            "/run/secrets",
            "/run/user",
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/run/dbus",
            "/home",
        ):
            out = self.out("sh", "-c", "ls -A %s 2>/dev/null | grep -v '^user$'; true" % place)
            if not (self.dir + "/").startswith(place + "/"):
                self.assertEqual(out, "", place)

    def test_dev(self):
        names = set(self.out("ls", "-A", "/dev").split())
        self.assertEqual(
            names,
            {
                "null",
                "zero",
                "full",
                "random",
                "urandom",
                "tty",
                "ptmx",
                "pts",
                "shm",
                "fd",
                "stdin",
                "stdout",
                "stderr",
            },
        )

    def test_devices_work(self):
        script = (
            "echo x > /dev/null; head -c 3 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; "
            "head -c 8 /dev/random | wc -c; echo x > /dev/full || echo full; echo in | cat /dev/stdin"
        )
        self.assertEqual(self.out("sh", "-c", script), " 00 00 00\n8\n8\nfull\nin\n")

    def test_streams_by_their_names(self):
        """Scripts write to /dev/stdout and /dev/stderr, and read /dev/stdin."""
        script = (
            "cat /dev/stdin; echo out > /dev/stdout; echo fd > /dev/fd/1; echo err > /dev/stderr"
        )
        r = self.ok("run", "--", "sh", "-c", script, input="in\n")
        self.assertEqual((r.out, r.err), ("in\nout\nfd\n", "err\n"))
        rec = cl.record("--", "sh", "-c", script, input="in\n", code=0)
        self.assertEqual((rec["stdout"], rec["stderr"]), ("in\nout\nfd\n", "err\n"))

    def test_device_nodes_cannot_be_made(self):
        self.assertNotEqual(cl.run("run", "--", "mknod", "/tmp/n", "c", "1", "3").code, 0)

    def test_pty_inside(self):
        """A program inside can open terminals of its own (script, tmux, pexpect)."""
        code = (
            "import os\nm, s = os.openpty()\nos.write(s, b'hello\\n')\nprint(os.read(m, 99))\n"
            "print(os.ttyname(s))"
        )
        self.assertEqual(self.out(*cl.py(code)), "b'hello\\r\\n'\n/dev/pts/0\n")

    def test_sys(self):
        script = (
            "cat /sys/class/dmi/id/* /sys/firmware/*/* /sys/kernel/vmcoreinfo /sys/kernel/notes "
            "2>/dev/null | head -c 100; ls -A /sys/fs/cgroup /sys/firmware /sys/kernel/debug 2>/dev/null; true"
        )
        self.assertEqual(self.out("sh", "-c", script), "")

    def test_mounts_do_not_tell_host_paths(self):
        """Only what the caller showed has a host path in the mount table."""
        r = self.out("cat", "/proc/self/mountinfo")
        self.assertNotIn(cl.CLOCHE, r)
        for line in r.splitlines():
            self.assertNotIn("/root/", line)

    def test_everything_nosuid(self):
        bad = []
        for line in self.out("cat", "/proc/self/mountinfo").splitlines():
            options = line.split()[5].split(",")
            if "nosuid" not in options:
                bad.append(line)
        self.assertEqual(bad, [])

    def test_locale_and_time(self):
        self.assertEqual(self.out("locale", "charmap"), "UTF-8\n")
        host = cl.command("date", "+%Z %z").out
        self.assertEqual(self.out("date", "+%Z %z"), host)


class Proc(cl.Case):
    def test_pids(self):
        self.assertEqual(self.out("sh", "-c", "echo $$ $PPID"), "2 1\n")
        pids = [n for n in self.out("ls", "/proc").split() if n.isdigit()]
        self.assertEqual(pids, ["1", "2"])

    def test_init_reaps(self):
        code = (
            "import os, time\n"
            "for i in range(5):\n"
            "    if os.fork() == 0:\n"
            "        if os.fork() == 0: time.sleep(0.05); os._exit(0)\n"
            "        os._exit(0)\n"
            "for i in range(5): os.wait()\n"
            "end = time.time() + 5\n"
            "while time.time() < end and len([p for p in os.listdir('/proc') if p.isdigit()]) > 2: time.sleep(0.01)\n"
            "print(sorted(p for p in os.listdir('/proc') if p.isdigit()))"
        )
        self.assertEqual(self.out(*cl.py(code)), "['1', '2']\n")

    def test_init_cannot_be_touched(self):
        code = (
            "import os, signal\n"
            "for sig in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT):\n"
            "    try: os.kill(1, sig)\n"
            "    except OSError: pass\n"
            "for name in ('mem', 'environ', 'maps', 'root', 'cwd', 'exe', 'fd/0'):\n"
            "    try: os.stat('/proc/1/' + name) if name not in ('mem', 'environ', 'maps') else open('/proc/1/' + name).read(1); print('reached', name)\n"
            "    except OSError: pass\n"
            "print('alive')"
        )
        r = self.ok("run", "--", *cl.py(code), timeout=15)
        self.assertEqual(r.out, "alive\n")

    def test_init_is_not_fooled(self):
        """Signals whose sender is forged, or missing, are no orders of the keeper."""
        code = (
            "import ctypes, fcntl, os, signal, struct\n"
            "libc = ctypes.CDLL(None)\n"
            "for sig in (signal.SIGTERM, signal.SIGUSR1):\n"
            "    info = struct.pack('iii116x', sig, 0, -1)\n"
            "    print(libc.syscall(129, 1, int(sig), info))\n"
            "    r, w = os.pipe()\n"
            "    fcntl.fcntl(r, fcntl.F_SETOWN, 1)\n"
            "    fcntl.fcntl(r, 10, int(sig))\n"
            "    try: fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\n"
            "    except PermissionError: pass\n"  # the filter's answer; init does not count on it
            "    os.write(w, b'x')\n"
            "libc.unshare(0x10000000)\n"  # answered by init, so after it has seen the signals
            "print('alive')"
        )
        if os.uname().machine != "x86_64":
            self.skipTest("rt_sigqueueinfo has another number here")
        self.assertEqual(self.out(*cl.py(code)), "0\n0\nalive\n")

    def test_init_keeps_its_io_priority(self):
        """Not by its number, nor by its user or group, which are the command's as well."""
        code = (
            "import ctypes\n"
            "libc = ctypes.CDLL(None)\n"
            "print([libc.syscall(251, who, which, 3 << 13) for who, which in ((1, 1), (2, 1), (3, 1000), (1, 0))])"
        )
        if os.uname().machine != "x86_64":
            self.skipTest("ioprio_set has another number here")
        self.assertEqual(self.out(*cl.py(code)), "[-1, -1, -1, 0]\n")

    def test_masked(self):
        code = (
            "import os\n"
            "for n in 'kcore keys key-users timer_list sched_debug kallsyms kmsg sysrq-trigger acpi scsi '\\\n"
            "         'interrupts slabinfo vmallocinfo modules latency_stats cmdline'.split():\n"
            "    p = '/proc/' + n\n"
            "    try:\n"
            "        data = os.listdir(p) if os.path.isdir(p) else open(p, 'rb').read(64)\n"
            "        if data: print(n, data)\n"
            "    except OSError: pass"
        )
        self.assertEqual(self.out(*cl.py(code)), "")

    def test_sys_is_read_only(self):
        for name in (
            "kernel/core_pattern",
            "kernel/hostname",
            "vm/overcommit_memory",
            "net/ipv4/ip_forward",
            "kernel/ns_last_pid",
        ):
            r = cl.run("run", "--", "sh", "-c", "echo 1 > /proc/sys/%s" % name)
            self.assertNotEqual(r.code, 0, name)
        # By its mount, whatever the owner of a file may do.
        code = "import os; print([bool(os.statvfs(p).f_flag & os.ST_RDONLY) for p in ('/proc', '/proc/sys')])"
        self.assertEqual(self.out(*cl.py(code)), "[False, True]\n")

    def test_what_programs_need(self):
        script = (
            "test -r /proc/cpuinfo && test -r /proc/meminfo && test -r /proc/stat && test -r /proc/uptime && "
            "test -r /proc/self/maps && test -r /proc/self/status && readlink /proc/self/exe > /dev/null && "
            "test -r /proc/sys/vm/overcommit_memory && test -r /proc/filesystems && echo ok"
        )
        self.assertEqual(self.out("sh", "-c", script), "ok\n")

    def test_no_new_proc(self):
        r = cl.run("run", "--", "sh", "-c", "mkdir /tmp/p; mount -t proc proc /tmp/p")
        self.assertNotEqual(r.code, 0)

    def test_oom_score_cannot_be_lowered(self):
        r = cl.run("run", "--", "sh", "-c", "echo -1000 > /proc/self/oom_score_adj")
        self.assertNotEqual(r.code, 0)


class Network(cl.Case):
    def test_only_loopback(self):
        r = self.out("cat", "/proc/self/net/dev")
        self.assertEqual(re.findall(r"(?m)^\s*(\S+):", r), ["lo"])

    def test_loopback_is_up(self):
        code = (
            "import socket, threading\n"
            "for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):\n"
            "    s = socket.socket(family); s.bind((address, 0)); s.listen()\n"
            "    c = socket.create_connection(s.getsockname()[:2]); a = s.accept()[0]\n"
            "    c.sendall(b'hello'); print(a.recv(9))\n"
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))\n"
            "u.sendto(b'dgram', u.getsockname()); print(u.recv(9))"
        )
        self.assertEqual(self.out(*cl.py(code)), "b'hello'\nb'hello'\nb'dgram'\n")

    def test_nothing_else(self):
        code = (
            "import socket\n"
            "for address in (('192.0.2.1', 80), ('10.0.0.1', 53), ('169.254.169.254', 80), ('8.8.8.8', 53)):\n"
            "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
            "        s = socket.socket(socket.AF_INET, kind); s.settimeout(2)\n"
            "        try: s.connect(address); s.send(b'x'); print('reached', address)\n"
            "        except TimeoutError: print('timed out', address)\n"
            "        except OSError: pass"
        )
        self.assertEqual(self.out(*cl.py(code), timeout=40), "")

    def test_hosts_loopback_is_another(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            code = (
                "import socket; print(socket.socket().connect_ex(('127.0.0.1', %d)))"
                % s.getsockname()[1]
            )
            self.assertNotEqual(self.out(*cl.py(code)), "0\n")

    def test_hosts_abstract_socket_is_another(self):
        name = "\0cloche-e2e-" + cl.marker()
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(name)
            s.listen()
            code = "import socket; print(socket.socket(socket.AF_UNIX).connect_ex(%r))" % name
            self.assertNotEqual(self.out(*cl.py(code)), "0\n")

    def test_unix_sockets_work_inside(self):
        code = (
            "import socket\n"
            "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen()\n"
            "c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); print('ok')\n"
            "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
        )
        self.assertEqual(self.out(*cl.py(code)), "ok\nb'x'\n")

    def test_no_encapsulation(self):
        """Packets of a socket are not handed to the kernel's IPsec or tunnels."""
        code = (
            "import socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "try: s.setsockopt(17, 100, 2); print('set')\n"
            "except OSError as e: print(e.errno)"
        )
        self.assertEqual(self.out(*cl.py(code)), "92\n")

    def test_other_families(self):
        code = (
            "import socket\n"
            "for family, kind, proto in ((17, 3, 0), (40, 1, 0), (38, 5, 0), (16, 3, 6), (16, 3, 12), (15, 3, 2),\n"
            "                            (44, 3, 0), (33, 2, 0), (30, 1, 0), (29, 3, 1), (43, 1, 0), (2, 3, 1), (2, 2, 1)):\n"
            "    try: socket.socket(family, kind, proto); print('got', family, kind, proto)\n"
            "    except OSError: pass"
        )
        self.assertEqual(self.out(*cl.py(code)), "")


class Descriptors(cl.Case):
    LIST = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"

    def test_only_three(self):
        self.assertEqual(self.out(*cl.py(self.LIST)), "[0, 1, 2, 3]\n")

    def test_inherited_are_closed(self):
        """Files and directories that the caller left open do not reach the command."""
        fds = [
            os.open("/", os.O_RDONLY),
            os.open("/", os.O_PATH),
            os.open("/etc/passwd", os.O_RDONLY),
        ]
        fds += [os.dup2(fds[0], 200), os.dup2(fds[0], 63)]
        try:
            p = cl.start("run", "--", *cl.py(self.LIST), pass_fds=fds)
            self.assertEqual(cl.finish(p).out, "[0, 1, 2, 3]\n")
        finally:
            for fd in set(fds):
                os.close(fd)

    def test_workdir_leads_to_none(self):
        """A working directory that is a number of what cloche itself has open (CVE-2024-21626)."""
        for fd in range(3, 20):
            r = cl.run("run", "--empty", "--workdir", "/proc/self/fd/%d" % fd, "--", "pwd")
            self.assertEqual(r.code, 125, str(r))
            self.assertIn("cannot enter /proc/self/fd", r.err)

    def test_keeper_keeps_its_streams(self):
        """While a command runs, cloche's own 0, 1 and 2 are the caller's or nothing's."""
        p = cl.start("run", "--", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        links = [
            os.readlink("/proc/%d/fd/%d" % (p.pid, fd))
            if os.path.lexists("/proc/%d/fd/%d" % (p.pid, fd))
            else "closed"
            for fd in range(3)
        ]
        given = [
            os.readlink("/proc/self/fd/%d" % f.fileno()) for f in (p.stdin, p.stdout, p.stderr)
        ]
        cl.finish(p, b"\n")
        for link, was in zip(links, given):
            self.assertIn(link, (was, "/dev/null"))

    def test_closed_standard_ones(self):
        """With stdin, stdout or stderr closed nothing of cloche's own takes their place."""
        for closing in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            script = '"$1" run -w "$2" -- sh -c "ls -l /proc/self/fd > fds; cat fds" ' + closing
            self.mkdir("ws")
            r = cl.command("sh", "-c", script, "sh", cl.CLOCHE, self.path("ws"))
            self.assertIn(r.code, (0, 1, 125), str(r))
            if r.code != 125:
                for line in self.read("ws/fds").splitlines()[1:]:
                    self.assertRegex(line, r"(pipe|/dev/null|socket|/proc/|fds)", closing)

    def test_directory_as_stdin_is_refused(self):
        """A directory handle of the host is a way out (..), so it is not passed on."""
        for fd in (0, 1, 2):
            streams = [subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE]
            streams[fd] = os.open("/", os.O_RDONLY)
            p = cl.start(
                "run",
                "--",
                "sh",
                "-c",
                "ls /proc/self/fd/%d/" % fd,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
            )
            r = cl.finish(p)
            os.close(streams[fd])
            self.assertEqual(r.code, 125, "fd %d: %s" % (fd, r))


class Rlimits(cl.Case):
    def test_core_dumps_off(self):
        self.assertEqual(self.out("sh", "-c", "ulimit -c; ulimit -Hc"), "0\n0\n")

    def test_open_files(self):
        self.assertEqual(self.out("sh", "-c", "ulimit -n; ulimit -Hn"), "1024\n4096\n")

    def test_data_without_a_cgroup(self):
        """The command has a limit; pid 1, which watches its memory, is not to run out of it."""
        script = "ulimit -d; sed -n 's/Max data size *//p' /proc/1/limits"
        r = cl.record("-m", "64M", "--", "sh", "-c", script)
        if r["layers"]["memory"] == "cgroup":
            self.skipTest(cl.ONLY_USER + "a cgroup limits memory")
        own, supervisor = r["stdout"].splitlines()
        self.assertEqual(own, str((2 * 64 + 1024) << 10))  # what it can take between two looks
        self.assertEqual(supervisor.split()[0], "unlimited")

    def test_umask(self):
        old = os.umask(0)
        try:
            self.assertEqual(self.out("sh", "-c", "umask"), "0022\n")
        finally:
            os.umask(old)

    def test_signals_are_reset(self):
        """Blocked and ignored signals of the caller do not reach the command."""
        self.need_plain_build("its runtime has handlers of its own")

        def prepare():
            signal.pthread_sigmask(
                signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD}
            )
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)

        p = cl.start(
            "run", "--", "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status", preexec_fn=prepare
        )
        r = cl.finish(p)
        for line in r.out.splitlines():
            self.assertRegex(line, r"^\w+:\s0+$", r.out)

    def test_priority_and_affinity_stay_ordinary(self):
        """The priority is the caller's, which may be low."""
        self.assertEqual(
            self.out(*cl.py("import os; print(os.nice(0), os.sched_getscheduler(0))")),
            "%d 0\n" % os.nice(0),
        )

    def test_caller_without_limits(self):
        """The caller's own limits never widen those of the sandbox."""

        def prepare():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

        p = cl.start("run", "--", "sh", "-c", "ulimit -n; ulimit -Hn", preexec_fn=prepare)
        self.assertEqual(cl.finish(p).out, "1024\n4096\n")

"""The host side of the escape tests: canaries, the planted process, and starting programs.

A Stage is a directory tree that belongs to the user who starts the sandbox, so that it is never
the file modes that refuse an attack:

    bin/              the programs under test, where that user can execute them
    outside/          never shown to a sandbox: `secret` holds the token, sockets of the plant
    hidden-TAG/ro/    shown read-only: `file`, a fifo, sockets, set-uid and file-capability copies
    hidden-TAG/rw/    shown writable: a socket of the plant
    work/             the current directory of the runs
    ws/               a workspace with a repository in it
"""
import fcntl
import hashlib
import json
import os
import pty
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time

ORDINARY_UID = int(os.environ.get("CLOCHE_E2E_UID", "65533"))
EXTRA_GROUP = 65532
# Neither the caller nor the sandbox: its files are for root only.
OTHER_UID = 65531
NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time")
# Set in the environment of whoever starts a sandbox; the value carries the secret.
SECRET_VARIABLES = ("API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK",
                    "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "https_proxy")
# CAP_NET_RAW, effective; version 2 of the attribute
FILE_CAPS = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)


class Case:
    """A row of `cloche-probe --list`."""

    def __init__(self, line):
        name, attack, flags, layers, setup, title = line.rstrip("\n").split("\t")
        self.name, self.attack, self.title = name, int(attack), title
        self.flags = set() if flags == "-" else set(flags.split(","))
        self.layers = set() if layers == "-" else set(layers.split(","))
        words = [] if setup == "-" else setup.split()
        self.setup = words[0] if words else "common"
        self.options = words[1:]


def list_cases(probe):
    out = subprocess.run([probe, "--list"], check=True, capture_output=True, text=True).stdout
    return [Case(line) for line in out.splitlines()]


def parse_results(text):
    """Lines of the probe -> {case: (verdict, detail)}; everything else is left out."""
    results = {}
    for line in text.splitlines():
        parts = line.rstrip("\r").split("\t")
        if len(parts) == 3 and parts[1] in ("refused", "got-through", "cannot-tell"):
            results[parts[0]] = (parts[1], parts[2])
    return results


def read_line_of(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return None


def host_address():
    """An address of this host that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("198.51.100.1", 9))
            return s.getsockname()[0]
        except OSError:
            return None


class Ended:
    """What a finished program left: status, output, and hits of the plant."""

    def __init__(self, status, out, err, hits):
        self.status, self.out, self.err, self.hits = status, out, err, hits

    def record(self):
        """The result record; None where there is none, or an error in its place."""
        try:
            record = json.loads(self.out)
        except ValueError:
            return None
        return None if "error" in record else record


class Stage:
    def __init__(self, build, uid=0):
        self.uid = uid
        self.tag = secrets.token_hex(6)
        self.token = "token-" + secrets.token_hex(12)
        self.env_secret = "secret-" + secrets.token_hex(12)
        self.root = tempfile.mkdtemp(prefix="cloche-escape-")
        self.plant = None
        os.chmod(self.root, 0o755)
        self.bin, self.outside = self.path("bin"), self.path("outside")
        self.hidden = self.path("hidden-" + self.tag)
        self.work, self.ws = self.path("work"), self.path("ws")
        self.ro, self.rw = os.path.join(self.hidden, "ro"), os.path.join(self.hidden, "rw")
        self.home = self.path("home")
        for d in (self.bin, self.outside, self.ro, self.rw, self.work, self.ws, self.home):
            os.makedirs(d)
        for name in ("cloche", "cloched", "cloche-probe"):
            if os.path.exists(os.path.join(build, name)):
                shutil.copy(os.path.join(build, name), self.bin)
        self.probe = os.path.join(self.bin, "cloche-probe")
        self.cloche = os.path.join(self.bin, "cloche")
        shutil.copy(self.probe, self.work)
        shutil.copy(self.probe, self.ro)
        self.fill()
        self.plant = self.start_plant()

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def fill(self):
        self.write(os.path.join(self.outside, "secret"), self.token + "\n", 0o666)
        self.write(os.path.join(self.ro, "file"), "read-only " + self.token + "\n", 0o666)
        self.write(self.path("out"), self.token + "\n", 0o600)
        self.fill_workspace()
        for d in (self.outside, self.ro, self.rw, self.work, self.ws):
            os.chmod(d, 0o777)
        for where, dirs, files in os.walk(self.root):
            for name in [where] + [os.path.join(where, n) for n in dirs + files]:
                os.chown(name, self.uid, self.uid, follow_symlinks=False)
        if os.geteuid() == 0:
            self.fill_as_root()

    def fill_workspace(self):
        for d in (".git", ".git/hooks", "src"):
            os.mkdir(os.path.join(self.ws, d))
        self.write(os.path.join(self.ws, ".git/config"), "[core]\n\tbare = false\n", 0o644)
        self.write(os.path.join(self.ws, ".git/HEAD"), "ref: refs/heads/main\n", 0o644)
        shutil.copy(self.probe, self.ws)

    def fill_as_root(self):
        suid, caps = os.path.join(self.ro, "suid-probe"), os.path.join(self.ro, "caps-probe")
        shutil.copy(self.probe, suid)
        os.chown(suid, 0, 0)
        os.chmod(suid, 0o4755)
        shutil.copy(self.probe, caps)
        os.chmod(caps, 0o755)
        try:
            os.setxattr(caps, "security.capability", FILE_CAPS)
        except OSError:
            os.unlink(caps)
        private = os.path.join(self.ro, "private")
        self.write(private, self.token + "\n", 0o600)
        os.chown(private, OTHER_UID, OTHER_UID)

    @staticmethod
    def write(path, text, mode):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)

    def environment(self):
        env = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR", "ASAN_OPTIONS")}
        env["HOME"] = self.home if self.uid else os.environ.get("HOME", "/root")
        env.update({name: "x:" + self.env_secret for name in SECRET_VARIABLES})
        return env

    def as_user(self, argv):
        """The command as the stage's user, who may differ from ours."""
        if self.uid == 0 or os.geteuid() != 0:
            return argv
        return ["setpriv", "--reuid=%d" % self.uid, "--regid=%d" % self.uid,
                "--clear-groups", "--"] + argv

    def start_plant(self):
        p = subprocess.Popen(self.as_user([self.probe, "--plant", self.tag, self.outside, self.ro,
                                           self.rw]),
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=self.environment(), cwd=self.work,
                             preexec_fn=lambda: os.setpgid(0, 0))
        self.planted = self.read_planted(p)
        return p

    @staticmethod
    def read_planted(p):
        found = {}
        for line in p.stdout:
            if line == "planted\n":
                return found
            name, eq, value = line.rstrip("\n").partition("=")
            if eq:
                found[name] = value
        raise RuntimeError("the planted process did not come up")

    def hits(self):
        """The cases whose canary was reached since the last call."""
        found = set()
        self.plant.stdin.write("?\n")
        self.plant.stdin.flush()
        for line in self.plant.stdout:
            if line == "sync\n":
                break
            if line.startswith("hit "):
                found.add(line.split()[1])
        return found

    def canaries(self, ro, ws, rw=None, peer=None):
        """What the probe has to know; ro, ws and rw as they are named where it runs."""
        c = {"outside": self.outside, "token": self.token, "host": self.tag, "ro": ro,
             "env-secret": self.env_secret, "hidden": os.path.basename(self.hidden),
             "hostname": os.uname().nodename, "host-has": self.planted.get("has", ""),
             "boot-id": read_line_of("/proc/sys/kernel/random/boot_id"),
             "machine-id": read_line_of("/etc/machine-id"), "addr": host_address()}
        c.update({"ws": ws, "rw": rw})
        for name in ("tcp", "tcp6", "udp", "pid"):
            c[name] = self.planted.get(name)
        for name in NAMESPACES:
            try:
                c["ns-" + name] = os.readlink("/proc/self/ns/" + name).split("[")[1].rstrip("]")
            except OSError:
                pass
        if self.uid == 0:
            c["private"] = os.path.join(ro, "private")
        for name, value in (peer or {}).items():
            c[name] = value
        return ["%s=%s" % (k, v) for k, v in c.items() if v]

    def start(self, argv, stdin="tty", stdout=subprocess.PIPE, group=False, cwd=None):
        """Starts argv the way a careless caller does: terminal, open descriptors, secrets."""
        leaked = [os.open(os.path.join(self.outside, "secret"), os.O_RDWR),
                  os.open(self.outside, os.O_RDONLY | os.O_DIRECTORY),
                  os.open("/", os.O_PATH | os.O_DIRECTORY)]
        master = slave = None
        if stdin == "tty":
            master, slave = pty.openpty()
            stdin = slave
        plant_group = self.plant.pid if group else None

        def prepare():
            for n, fd in enumerate(leaked):
                os.dup2(fd, 50 + n, inheritable=True)
            if plant_group:
                os.setpgid(0, plant_group)
            else:
                os.setsid()
            if slave is not None:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if os.geteuid() == 0 and self.uid == 0:
                os.setgroups([0, EXTRA_GROUP])

        try:
            p = subprocess.Popen(self.as_user(argv), stdin=stdin, stdout=stdout,
                                 stderr=subprocess.PIPE, env=self.environment(),
                                 cwd=cwd or self.work, preexec_fn=prepare, close_fds=False)
        finally:
            for fd in leaked + ([slave] if slave is not None else []):
                os.close(fd)
        p.master = master
        return p

    def run(self, argv, timeout=120, **how):
        p = self.start(argv, **how)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            err += b"\nstopped by the test after %d s" % timeout
        if p.master is not None:
            os.close(p.master)
        return Ended(p.returncode, (out or b"").decode(errors="replace"),
                     err.decode(errors="replace"), self.hits())

    def fingerprint(self, attributes=True):
        """What must not change on the host, whatever runs; without mounts only the contents."""
        marks = {}
        for path in (os.path.join(self.outside, "secret"), os.path.join(self.ro, "file")):
            st = os.stat(path)
            with open(path, "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            marks[path] = (digest, (st.st_mode, st.st_uid, st.st_nlink, st.st_mtime_ns)
                           if attributes else ())
        for d in (self.outside, self.ro):
            marks[d] = tuple(sorted(os.listdir(d)))
        return marks

    def reset_ro(self):
        """The control changes the read-only file, being on the other side of the wall."""
        self.write(os.path.join(self.ro, "file"), "read-only " + self.token + "\n", 0o666)

    def tagged(self, tag):
        """Live processes with this tag in their command line, but not those that we started."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    cmdline = f.read()
                with open("/proc/%s/stat" % pid, "rb") as f:
                    state = f.read().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if tag.encode() in cmdline and state not in (b"Z", b"X"):
                found.append(int(pid))
        return found

    def close(self):
        if self.plant:
            self.plant.stdin.close()
            self.plant.wait(timeout=10)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def wait_gone(stage, tag, seconds):
    """Those processes with the tag that are still alive after that time."""
    end = time.monotonic() + seconds
    while True:
        left = stage.tagged(tag)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.01)


def end(pids):
    """Ends processes that a test left behind."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

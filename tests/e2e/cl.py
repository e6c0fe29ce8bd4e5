"""What the end-to-end suites share: starting cloche, reading its record, watching the host.

    r = run("run", "--", "true")            r.code, r.out, r.err (text), r.raw_out (bytes)
    rec = record("--memory", "64M", "--", "true")      the parsed --json record
    class X(cl.Case): self.dir is a private directory and the current directory of every run

Every command has a time limit; one that outlives it is killed and fails the test.
"""

import atexit
import errno
import fcntl
import functools
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import leaks

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CLOCHE = os.path.abspath(os.environ.get("CLOCHE", os.path.join(TOP, "build", "cloche")))
POLICIES = os.path.join(TOP, "policies")
PYTHON = "/usr/bin/python3"
ROOT = os.geteuid() == 0
# Skips that tell of who runs the suite, not of what the host lacks: never a failure.
ONLY_ROOT, ONLY_USER = "only for root: ", "only for an ordinary user: "
SHELL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The fields of the result record and their types; None stands for null.
RECORD_FIELDS = {
    "id": (str,),
    "status": (str,),
    "exit_code": (int, None),
    "signal": (int, None),
    "success": (bool,),
    "fault": (str, None),
    "timed_out": (bool,),
    "oom_killed": (bool,),
    "limits_hit": (list,),
    "stdout": (str,),
    "stderr": (str,),
    "stdout_truncated": (bool,),
    "stderr_truncated": (bool,),
    "encoding": (str,),
    "duration_ms": (float, int),
    "setup_ms": (float, int),
    "cpu_ms": (float, int),
    "max_rss_bytes": (int,),
    "pids_peak": (int, None),
    "disk_bytes": (int, None),
    "net_tx_bytes": (int,),
    "net_rx_bytes": (int,),
    "files": (list,),
    "changes": (list,),
    "denials": (list,),
    "layers": (dict,),
}
LAYER_FIELDS = {
    "level": (str,),
    "user_ns": (bool,),
    "seccomp": (str, None),
    "landlock_abi": (int,),
    "cgroup": (str,),
    "memory": (str,),
    "disk": (str,),
    "caps": (str,),
    "rootless": (bool,),
    "denials": (list,),
    "recycled": (list,),
    "missing": (list,),
}


def remove_base(path, maker):
    """By the process that made it, not by children that inherit the wish."""
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)


def base_dir():
    """The directory that holds everything the suites write."""
    path = os.environ.get("CLOCHE_E2E_DIR")
    if not path:
        path = tempfile.mkdtemp(prefix="cloche-e2e-")
        os.environ["CLOCHE_E2E_DIR"] = path
        atexit.register(remove_base, path, os.getpid())
    return path


def caller_env(**extra):
    """A plain environment for cloche itself."""
    env = {"PATH": SHELL_PATH, "HOME": os.path.join(base_dir(), "home"), "LANG": "C.UTF-8"}
    env["CLOCHE_DAEMON"] = "off"  # a daemon of the machine's is not what is tested
    for name in (
        "CLOCHE_STATE_DIR",
        "CLOCHE_RUNTIME_DIR",
        "XDG_RUNTIME_DIR",
        "ASAN_OPTIONS",
        "UBSAN_OPTIONS",
        "LLVM_PROFILE_FILE",
    ):
        if name in os.environ:
            env[name] = os.environ[name]
    os.makedirs(env["HOME"], exist_ok=True)
    env.update(extra)
    return {k: v for k, v in env.items() if v is not None}


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.raw_out, self.raw_err = args, code, out, err
        self.out = out.decode("utf-8", "replace")
        self.err = err.decode("utf-8", "replace")

    def __str__(self):
        return "%r: exit %s\nstdout: %.2000s\nstderr: %.2000s" % (
            self.args,
            self.code,
            self.out,
            self.err,
        )


class TooLong(AssertionError):
    pass


def argv(args):
    return [CLOCHE] + [a if isinstance(a, (str, bytes)) else str(a) for a in args]


def start(*args, cwd=None, env=None, **kw):
    """Starts cloche in a session of its own, if nothing else is said, and returns the Popen."""
    kw.setdefault("start_new_session", "process_group" not in kw)
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    command = kw.pop("command", None) or argv(args)
    p = subprocess.Popen(command, cwd=cwd or Case.current, env=env or caller_env(), **kw)
    leaks.note_process(p.pid)
    return p


def finish(p, input=None, timeout=30):
    try:
        out, err = p.communicate(input, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, err = p.communicate()
        raise TooLong(
            "still running after %ss: %s" % (timeout, Result(p.args, None, out or b"", err or b""))
        )
    return Result(p.args, p.returncode, out or b"", err or b"")


def run(*args, input=None, timeout=30, **kw):
    """Runs `cloche ARGS` to its end. input: text or bytes for stdin; none means /dev/null."""
    if isinstance(input, str):
        input = input.encode()
    if input is not None:
        kw["stdin"] = subprocess.PIPE
    return finish(start(*args, **kw), input, timeout)


def command(*args, timeout=30, input=None, **kw):
    """Runs any other program the same way."""
    if input is not None:
        kw["stdin"] = subprocess.PIPE
    return finish(start(command=list(args), **kw), input, timeout)


@functools.cache
def is_sanitized():
    with open(CLOCHE, "rb") as program:
        return b"__asan_init" in program.read()


def record(*args, verb="run", code=None, **kw):
    """Runs with --json and returns the record, with the exit status as rec['_code']."""
    r = run(verb, "--json", *args, **kw)
    if code is not None and r.code != code:
        raise AssertionError("expected exit %d of %s" % (code, r))
    if r.out.count("\n") != 1 or not r.out.endswith("\n"):
        raise AssertionError("expected one line of JSON on stdout from %s" % r)
    rec = json.loads(r.raw_out.decode("utf-8", "strict"))
    rec["_code"], rec["_err"] = r.code, r.err
    return rec


def py(code, *args):
    """A command line for a snippet of Python inside, with a quick start."""
    return (PYTHON, "-I", "-S", "-c", code) + args


class Case(unittest.TestCase):
    """A test with a private directory, in which cloche is started."""

    maxDiff = 4000
    current = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="t-", dir=base_dir())
        os.chmod(self.dir, 0o755)
        Case.current = self.dir
        self.addCleanup(self.drop)

    def drop(self):
        Case.current = None
        leaks.note_daemons(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)
        if os.path.lexists(self.dir):
            subprocess.run(["chmod", "-R", "u+rwX", self.dir], stderr=subprocess.DEVNULL)
            shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, data="", mode=None):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        if mode is not None:
            os.chmod(path, mode)
        return path

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return f.read()

    def mkdir(self, name):
        os.makedirs(self.path(name), exist_ok=True)
        return self.path(name)

    # What most tests say.
    def ok(self, *args, **kw):
        r = run(*args, **kw)
        self.assertEqual(r.code, 0, str(r))
        return r

    def out(self, *args, **kw):
        """stdout of a command run in a default sandbox, which must succeed."""
        return self.ok("run", "--", *args, **kw).out

    def refused(self, *args, says=None, **kw):
        """cloche itself must refuse: 125, a message with its prefix, nothing on stdout."""
        r = run(*args, **kw)
        self.assertEqual(r.code, 125, str(r))
        self.assertEqual(r.out, "", str(r))
        self.assertRegex(r.err, r"(?m)^cloche: ", str(r))
        if says:
            self.assertRegex(r.err, says, str(r))
        return r

    def need_plain_build(self, why):
        """The sanitizers' own runtime cannot do without what some tests take away."""
        if is_sanitized():
            self.skipTest("not for a sanitized build: " + why)

    def need_root(self, why="creates files of other users"):
        if not ROOT:
            self.skipTest(ONLY_ROOT + why)

    def need_user(self, why):
        if ROOT:
            self.skipTest(ONLY_USER + why)

    def need_program(self, name):
        path = shutil.which(name, path=SHELL_PATH)
        if not path:
            self.skipTest("%s is not installed" % name)
        return path


_cgroup = None


def has_cgroup():
    """Do limits rest on a cgroup here? (Else they are watched, and the record says so.)"""
    global _cgroup
    if _cgroup is None:
        _cgroup = record("--", "true")["layers"]["memory"] == "cgroup"
    return _cgroup


def marker():
    """A number that no other process of this machine has in its arguments."""
    return "7%011d" % random.randrange(10**11)


def host_pids(mark):
    """Processes of the host whose arguments hold the mark."""
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if mark.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def wait_for(what, timeout=10, step=0.02):
    """Polls until what() is true, and returns its last answer."""
    end = time.monotonic() + timeout
    while True:
        answer = what()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(step)


def gone(mark, timeout=5):
    """Waits until no process holds the mark; returns those that stay."""
    wait_for(lambda: not host_pids(mark), timeout)
    return host_pids(mark)


class Terminal:
    """cloche on a pseudo-terminal."""

    def __init__(self, *args, rows=24, cols=80, env=None, cwd=None, under=()):
        self.master, slave = pty.openpty()
        self.text = ""
        self.resize(rows, cols, tell=False)
        self.p = subprocess.Popen(
            [*under, *argv(args)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd or Case.current,
            env=env or caller_env(TERM="xterm"),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        leaks.note_process(self.p.pid)
        os.close(slave)

    def resize(self, rows, cols, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.master, data.encode() if isinstance(data, str) else data)

    def read_some(self, timeout):
        if not select.select([self.master], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            data = b""
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, pattern, timeout=15):
        """Reads until the pattern shows up; returns the match and drops what was before it."""
        end = time.monotonic() + timeout
        while True:
            m = re.search(pattern, self.text, re.M)
            if m:
                self.text = self.text[m.end() :]
                return m
            left = end - time.monotonic()
            if left <= 0 or not self.read_some(left):
                raise AssertionError("no %r on the terminal but %r" % (pattern, self.text[-2000:]))

    def close(self, timeout=15):
        """Reads to the end; returns the exit status."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.read_some(end - time.monotonic()):
            pass
        try:
            return self.p.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TooLong("still on its terminal: %r" % self.text[-2000:])
        finally:
            self.stop()

    def stop(self):
        if self.p.poll() is None:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.wait()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


def copy_program(root, program):
    """Copies a program and the libraries that it needs into a directory that serves as a root."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=10).stdout
    for path in [program] + re.findall(r"(/\S+)", listed):
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            shutil.copy(path, target)


def helper(name):
    """A program built from tests/helpers; None if it is not there."""
    for where in (
        os.environ.get("CLOCHE_HELPERS", ""),
        os.path.join(TOP, "build", "tests"),
        os.path.join(TOP, "build", "tests", "helpers"),
        os.path.join(TOP, "build"),
    ):
        path = os.path.join(where, name)
        if where and os.access(path, os.X_OK):
            return path
    return None


def denials(rec, what=None):
    return [d for d in rec["denials"] if what is None or d["what"] == what]

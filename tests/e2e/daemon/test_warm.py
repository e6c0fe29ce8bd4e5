"""Warm sandboxes: runs that find everything ready, and differ from cold ones in nothing but time."""

import base64
import concurrent.futures
import json
import os
import re
import shutil
import signal
import time
import unittest

import cl
import harness

# A child that makes no fault of its own, and is waited for.
SHARES_MEMORY = """
import ctypes, json, os, resource, time
libc, size, CLONE_VM = ctypes.CDLL(None), 64 << 20, 0x100
libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
spaces, stack = ctypes.create_string_buffer(b" " * size), ctypes.create_string_buffer(1 << 16)
for _ in range(4):
    pid = libc.clone(libc.atoi, ctypes.addressof(stack) + 65000 & ~15, CLONE_VM | 17, spaces)
    os.waitpid(pid, 0)
print(json.dumps([time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime]))
"""

NODE = {
    "print": "console.log(42, 'a', {b: 1}); console.error('e')",
    "exit": "process.exit(3)",
    "exit code": "process.exitCode = 4; process.on('exit', c => console.log('bye', c))",
    "throw": "function f() { throw new Error('no') }\nf()",
    "reject": "Promise.reject(new Error('r'))",
    "syntax": "let x = (;",
    "argv": "console.log(process.argv, process.execArgv, process.title, process.env.MINE)",
    "module": "console.log(__filename, require.main === module, module.id, module.children.length, module.paths[0])",
    "cache": "console.log(process.mainModule === module, Object.keys(require.cache))",
    "cwd": "console.log(process.cwd(), require('fs').readdirSync('.'), process.umask())",
    "env": "console.log(Object.keys(process.env).sort().join())",
    "stdin": "process.stdin.on('data', d => console.log(String(d))).on('end', () => console.log('end'))",
    "stdin at once": "console.log(require('fs').readFileSync(0, 'utf8'))",
    "import": "import('fs').then(m => console.log(typeof m.readFileSync))",
    "child": "console.log(require('child_process').execSync('echo hi; cat; pwd').toString())",
    "thread": "const {Worker, isMainThread} = require('worker_threads')\n"
              "if (isMainThread) new Worker(__filename).on('exit', c => console.log('done', c)); else console.log('in')",
    "globals": "console.log(Object.keys(globalThis).join(), process.eventNames(), this === module.exports)",
    "killed": "process.kill(process.pid, 'SIGKILL'); setTimeout(() => {}, 1000)",
    "trace": "console.log(new Error('t').stack)",
    "large": "console.log('x'.repeat(300000))",
}

BASH = {
    "print": "echo $0 $# \"$2\" $MINE; cat; pwd; umask; echo e >&2",
    "exit": "exit 3",
    "syntax": "if true; then",
    "killed": "kill -9 $$",
}

TERMINALS = """
import os
n = 0
try:
    while n < 400: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY); n += 1
except OSError: pass
print(n)
"""

# More memory than 256M.
EAT = "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096):\n    x[i] = 1"

# Programs of every kind: what they print, to where, and how they end must be as in a cold run.
PROGRAMS = {
    "print": "print(42)",
    "stderr": "import sys; print('a'); sys.stderr.write('b\\n')",
    "exit 3": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('it went wrong')",
    "exit none": "raise SystemExit",
    "exit 256": "import sys; sys.exit(256)",
    "os._exit": "import os; print('lost'); os._exit(4)",
    "error": "def f():\n    return 1 / 0\n\nf()",
    "nested error": "try:\n    {}['x']\nexcept KeyError as e:\n    raise ValueError('no') from e",
    "syntax": "print('a'\nprint(",
    "indent": "  x = 1\n y = 2",
    "coding": "# -*- coding: latin-1 -*-\nprint('\u00e9')",
    "unicode": "print('\u00e4\u20ac\U0001f600'); print(ascii('\u00e9'))",
    "main": "print(__name__, __file__, __spec__, __package__, __doc__, __cached__)",
    "doc": "'''words'''\nprint(__doc__)",
    "globals": "print(sorted(k for k in globals()))",
    "main module": "import __main__; x = 5; print(__main__.x, __main__.__file__)",
    "argv": "import sys; print(sys.argv, sys.path[0], sys.flags.interactive, sys.orig_argv[1:])",
    "path": "import sys; print(sys.path)",
    "executable": "import sys; print(sys.executable, sys.prefix, sys.version)",
    "stdin empty": "import sys; print(repr(sys.stdin.read()), sys.stdin.isatty())",
    "input": "try:\n    input()\nexcept EOFError as e:\n    print('EOF', e)",
    "buffering": "import os, sys; print('a'); os.write(1, b'b\\n'); print('c')",
    "isatty": "import os; print([os.isatty(fd) for fd in (0, 1, 2)])",
    "encodings": "import sys; print(sys.stdout.encoding, sys.stdin.encoding, sys.getfilesystemencoding())",
    "ids": "import os; print(os.getpid(), os.getuid(), os.getgid(), os.getgroups(), os.getsid(0))",
    "umask": "import os; m = os.umask(0); print(oct(m))",
    "cwd": "import os; print(os.getcwd(), os.listdir('.'))",
    "env": "import os; print(sorted(k for k in os.environ if k not in ('SHLVL', '_', 'OLDPWD')))",
    "home": "import os; print(os.path.expanduser('~'), os.access('/home/user', os.W_OK))",
    "fds": "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:3])",
    "limits": "import resource as r; print([r.getrlimit(x) for x in (r.RLIMIT_NOFILE, r.RLIMIT_CORE)])",
    "signals": "import signal; print([signal.getsignal(s) for s in (2, 13, 15, 17)])",
    "sigpipe": "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "segv": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "term": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi')",
    "atexit error": "import atexit; atexit.register(lambda: 1 / 0); print('hi')",
    "del": "class A:\n    def __del__(self):\n        print('gone')\na = A(); print('here')",
    "thread": "import threading; t = threading.Thread(target=print, args=('t',)); t.start()",
    "thread error": "import threading; t = threading.Thread(target=lambda: 1/0); t.start(); t.join()",
    "fork": "import os\np = os.fork()\nif p == 0:\n    os._exit(7)\nprint(os.waitpid(p, 0)[1])",
    "subprocess": "import subprocess; print(subprocess.check_output(['echo', 'x']))",
    "pool": "import multiprocessing as m\ndef f(x):\n    return x * x\n"
            "if __name__ == '__main__':\n    print(m.Pool(2).map(f, range(4)))",
    "asyncio": "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5\nprint(asyncio.run(f()))",
    "socket": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('ok')",
    "sqlite": "import sqlite3; print(sqlite3.connect(':memory:').execute('select 1+1').fetchone())",
    "big output": "print('x' * 300000)",
    "recursion": "def f(n):\n    return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError:\n    print('deep')",
    "warnings": "import warnings; warnings.warn('careful')",
    "future": "from __future__ import annotations\ndef f(x: Nowhere): pass\nprint(f.__annotations__)",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nprint(P(1))",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)",
    "inspect": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "import own": "import this_is_not_there",
    "chained exit": "import sys\ntry:\n    sys.exit(5)\nfinally:\n    print('finally')",
    "excepthook": "import sys; sys.excepthook = lambda *a: print('mine'); 1 / 0",
    "no excepthook": "import sys; sys.excepthook = None; 1 / 0",
    "lost excepthook": "import sys; del sys.excepthook; 1 / 0",
    "lost stdout": "import sys; del sys.stdout",
    "lost streams": "import sys; del sys.stdout, sys.stderr",
    "keyboard": "raise KeyboardInterrupt",
    "write closed": "import sys; sys.stdout.close(); print('x')",
    "base exception": "raise BaseException('x')",
    "gc": "import gc; print(gc.isenabled(), gc.get_threshold())",
    "locale": "import locale; print(locale.getlocale())",
    "time": "import time; print(time.tzname, time.monotonic() < 1e6)",
    "walrus": "print((x := 5) + x)",
    "not dumpable": "import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os._exit(11)",
    "other threads": "import os, threading, time\nthreading.Thread(target=time.sleep, args=(9,)).start()\n"
                     "print('x', flush=True); os._exit(12)",
    "first thread gone": "import ctypes, os, threading, time\n"
                         "threading.Thread(target=lambda: (time.sleep(.1), print('y', flush=True), os._exit(13))).start()\n"
                         "ctypes.CDLL(None).syscall(60, 5)",
    "survivor": "import os, time\nif os.fork() == 0:\n    time.sleep(9)\nprint('first', flush=True); os._exit(14)",
    "survivor that prints": "import os\nif os.fork() == 0:\n    while True:\n        pass\nos._exit(15)",
    "full pipes": "import os; os.write(1, b'x' * 65536); os.write(2, b'y' * 65536); os._exit(16)",
    "dies in exec": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo z; exit 17'])",
    "killed by its child": "import os, time\nif os.fork() == 0:\n    os.kill(os.getppid(), 9)\n    os._exit(0)\ntime.sleep(9)",
}


@harness.needs_warm
class Warm(harness.Case):
    @classmethod
    def setUpClass(cls):
        harness.until(cls.is_warm, "a warm run")

    @staticmethod
    def is_warm(token=None):
        runs = [harness.shared().post("/v1/run", {kind: what}, token=token).json
                for kind, what in (("code", "pass"), ("cmd", ["true"]))]
        return all(r.get("layers", {}).get("recycled") for r in runs)

    def run_cold(self, **body):
        reply = self.d.post("/v1/run", dict(body, warm="off"))
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.json["layers"]["recycled"], [])
        return reply.json

    def run_warm(self, **body):
        reply = self.d.post("/v1/run", body)
        self.assertEqual(reply.status, 200, reply)
        self.assertTrue(reply.json["layers"]["recycled"], "it ran cold: %r" % body)
        return reply.json

    def run_warm_soon(self, **body):
        """With limits that may have no warm host yet."""
        harness.until(lambda: self.d.post("/v1/run", dict(body, warm="only")).status == 200, "a warm run")
        return self.run_warm(**body)

    def assertSame(self, warm, cold, name):
        for field in ("status", "exit_code", "signal", "stdout", "stderr", "limits_hit", "denials", "files", "guard"):
            a, b = (re.sub("0x[0-9a-f]{6,}", "0x", json.dumps(r.get(field))) for r in (warm, cold))
            self.assertEqual(a, b, "%s: %s" % (name, field))

    # ---- the same

    def test_programs_behave_as_in_a_cold_run(self):
        for name, code in PROGRAMS.items():
            with self.subTest(name):
                self.assertSame(self.run_warm(code=code), self.run_cold(code=code), name)

    def test_commands_behave_as_in_a_cold_run(self):
        for cmd in (
            ["true"], ["false"], ["sh", "-c", "exit 9"], ["sh", "-c", "kill -9 $$"], ["nosuchprogram"],
            ["/etc/passwd"], ["/"], ["sh", "-c", "echo a; echo b >&2"], ["env"], ["pwd"], ["id"],
            ["sh", "-c", "cat; ulimit -a"], ["cat", "/proc/self/mountinfo", "/nonexistent"][:1] + ["/dev/null"],
            ["sh", "-c", "ls -la / /tmp /home/user /workspace | sed 's/ [A-Z][a-z][a-z] .*:.. / /'"],
        ):
            with self.subTest(cmd):
                warm, cold = self.run_warm(cmd=cmd, stdin="in"), self.run_cold(cmd=cmd, stdin="in")
                if cmd[0] == "sh" and "ls -la" in cmd[2]:
                    # Who owns what is not the user's may have another name.
                    self.assertEqual(len(warm["stdout"].splitlines()), len(cold["stdout"].splitlines()))
                    continue
                self.assertSame(warm, cold, cmd)

    def test_layers_are_those_of_a_cold_run(self):
        warm, cold = self.run_warm(code="pass")["layers"], self.run_cold(code="pass")["layers"]
        warm.pop("recycled"), cold.pop("recycled")
        self.assertEqual(warm, cold)

    def test_request_fields(self):
        record = self.run_warm(
            code="import os, sys; print(sys.argv[1:], os.environ['K'], os.getcwd(), sys.stdin.read())",
            args=["a b", "", "\u00e9"], env={"K": "v=w"}, cwd="/tmp", stdin="line\n" * 3,
        )
        self.assertEqual(record["stdout"], "['a b', '', '\u00e9'] v=w /tmp line\nline\nline\n\n")
        record = self.run_warm(cmd=["sh", "-c", 'echo "$K"; pwd; cat'], env={"K": "v"}, cwd="/tmp", stdin="x")
        self.assertEqual(record["stdout"], "v\n/tmp\nx")
        self.assertEqual(self.run_warm(shell="echo $((6 * 7)) | cat")["stdout"], "42\n")
        size = 2 << 20
        record = self.run_warm(code="import sys; print(len(sys.stdin.read()))", stdin="x" * size)
        self.assertEqual(record["stdout"], "%d\n" % size)

    def test_directory_to_start_in(self):
        for what in {"code": "import os; print(os.getcwd(), os.environ['PWD'])"}, {"shell": "echo $(pwd -P) $PWD"}:
            with self.subTest(what):
                self.assertEqual(self.run_warm(cwd="../tmp", **what)["stdout"].split()[0], "/tmp")
                self.assertEqual(self.run_warm(cwd="/usr/lib", **what)["stdout"], "/usr/lib /usr/lib\n")
                for cwd, status, kind in (("/nowhere", 404, "not_found"), ("sub", 404, "not_found"),
                                          ("/etc/passwd", 400, "invalid")):
                    self.assertError(self.d.post("/v1/run", dict(what, cwd=cwd)), status, kind, "cwd")
        self.assertTrue(self.run_warm(cmd=["true"], env={"PYTHONHASHSEED": "1", "PATH": "/bin"}))

    def gauges(self):
        lines = self.d.get("/metrics").body.decode().splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith(("cloche_runs_active ", "cloche_nests "))]

    def test_runs_are_counted_and_warm_hosts_are_not_runs(self):
        harness.until(lambda: self.gauges()[0] == 0, "the end of all runs")
        self.assertGreater(self.gauges()[1], 0)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(self.d.post, "/v1/run", {"cmd": ["sleep", "1"], "warm": w}) for w in ("auto", "off")]
            harness.until(lambda: self.gauges()[0] == 2, "two runs in the gauge")
            self.assertEqual([r.result().status for r in runs], [200, 200])
        harness.until(lambda: self.gauges()[0] == 0, "the end of both")

    def test_what_cannot_be_warm_is_cold(self):
        for body in (
            {"code": "pass", "warm": "off"},
            {"cmd": ["true"], "files": [{"path": "/var/tmp/a", "content": "b"}]},
            {"cmd": ["true"], "files": [{"path": "a", "content": "x" * 300000}]},
            {"cmd": ["true"], "tmpfs": ["/mnt/t:size=1M"]},
            {"code": "import socket; exit(socket.gethostname() != 'mine')", "hostname": "mine"},
            {"code": "pass", "require": ["seccomp"]},
        ):
            with self.subTest(body):
                reply = self.d.post("/v1/run", body)
                self.assertEqual(reply.status, 200, reply)
                self.assertEqual(reply.json["layers"]["recycled"], [])
                self.assertEqual(reply.json["exit_code"], 0, reply)
        self.assertError(self.d.post("/v1/run", {"code": "pass", "warm": "hot"}), 400, "invalid", "warm")

    def test_code_in_other_languages_behaves_as_in_a_cold_run(self):
        """With an interpreter that waits (node), and without."""
        rows = [("node", name, code) for name, code in NODE.items()] if shutil.which("node") else []
        rows += [("bash", name, code) for name, code in BASH.items()]
        for language, name, code in rows:
            with self.subTest(language, name=name):
                body = {"language": language, "code": code, "stdin": "in\n", "args": ["a", "b c"],
                        "env": {"MINE": "ä b"}}
                harness.until(lambda: self.d.post("/v1/run", dict(body, warm="only")).status == 200, "a warm run")
                self.assertSame(self.run_warm(**body), self.run_cold(**body), language + " " + name)

    def test_an_interpreter_that_waits_serves_one_run(self):
        if not shutil.which("node"):
            self.skipTest("no node here")
        body = {"language": "node", "code": "const fs = require('fs'); console.log(process.pid, fs.existsSync('/tmp/x'));"
                                            "fs.writeFileSync('/tmp/x', ''); globalThis.left = 1; setInterval(() => {}, 1000);"
                                            "setTimeout(() => process.exit(globalThis.left), 1)"}
        for _ in range(4):
            record = self.run_warm_soon(**body)
            self.assertEqual((record["stdout"], record["exit_code"]), ("2 false\n", 1), record)

    def test_files_come_along(self):
        files = [{"path": "a/b/f.txt", "content": "text"}, {"path": "run.sh", "content": "#!/bin/sh\ncat a/b/f.txt", "mode": "755"},
                 {"path": "bin", "content_base64": harness.b64(bytes(range(256)))}]
        look = "./run.sh; wc -c <bin; find . -type f -printf '%m %u %p\\n' | sort"
        for what in ({"shell": look}, {"language": "bash", "code": look},
                     {"code": "import subprocess, sys; sys.exit(subprocess.call(['sh', '-c', %r]))" % look},
                     {"language": "node", "code": "console.log(require('child_process').execSync(%s) + '')" % json.dumps(look)}):
            if what.get("language") == "node" and not shutil.which("node"):
                continue
            with self.subTest(what):
                body = dict(what, files=files)
                self.run_warm_soon(**body)
                self.assertSame(self.run_warm(**body), self.run_cold(**body), str(what))

    # ---- files out

    def test_captured_files_are_those_of_a_cold_run(self):
        make = ("mkdir -p d/e; echo b >d/e/b.log; echo a >a.log; chmod 600 a.log; ln -s /etc/passwd l.log; ln -s nowhere n.log;"
                "mkfifo f.log; mkdir m.log; echo h >.h.log; echo x >/tmp/t.log; ln -s /proc/self/status p.log; ln -s /dev/zero z.log;"
                "head -c 3000000 /dev/urandom >r.log; : >e.log")
        for what in (
            {"shell": make + "; exit 3", "capture": ["*.log"]},
            {"shell": make, "capture": ["**/*.log", "/workspace/d/**", "/tmp/*", "*.none"]},
            {"shell": "echo 1 >a; chmod 000 a; mkdir c; echo 2 >c/b; chmod 000 c", "capture": ["**"]},
            {"shell": "echo 1 >a; (sleep 100; echo 2 >a) & kill -9 $$", "capture": ["a"]},
            {"code": "open('a', 'w').write('1'); import os; os.chdir('/'); os._exit(4)", "capture": ["a"]},
            {"code": "open('a', 'w').write('1'); input()", "timeout": "300ms", "stdin": "x", "capture": ["a"]},
            {"code": "open('a', 'w').write('1'); import time; time.sleep(9)", "timeout": "300ms", "capture": ["a"]},
            {"language": "bash", "code": "cat >b <a", "files": [{"path": "a", "content": "in"}], "capture": ["b"]},
            {"cmd": ["nosuchprogram"], "capture": ["*"]},
        ):
            with self.subTest(what):
                warm, cold = self.run_warm_soon(**what), self.run_cold(**what)
                for record in warm, cold:
                    record["files"].sort(key=lambda f: f["path"])
                    for f in record["files"]:
                        if f["path"] == "r.log":
                            f["content_base64"] = len(f["content_base64"])
                self.assertSame(warm, cold, str(what))

    def test_captures_use_the_same_sandboxes_again(self):
        """Also those of clients that went away, and none finds what another wrote."""
        for i in range(24):
            record = self.run_warm_soon(shell="ls -A; echo %d >%d" % (i, i), capture=["*"])
            self.assertEqual((record["stdout"], [f["path"] for f in record["files"]]), ("", [str(i)]))
        for _ in range(12):
            body = json.dumps({"shell": "echo 1 >a; sleep 100", "capture": ["a"]}).encode()
            with self.d.raw(unix=True) as s:
                s.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            runs = list(pool.map(lambda i: self.run_warm_soon(shell="echo %d >a" % i, capture=["a"]), range(32)))
        self.assertEqual([base64.b64decode(r["files"][0]["content_base64"]) for r in runs], [b"%d\n" % i for i in range(32)])

    def test_guarded_code_is_warm(self):
        for what in ({"code": "print(6 * 7)", "guard": "strict"}, {"code": "import os", "guard": "strict"},
                     {"code": "import os; open('o', 'w').write('x'); print(os.getcwd())", "guard": "imports", "capture": ["o"]},
                     {"code": "1 / 0", "guard": "imports", "guard_allow": ["json"], "args": ["a b"]}):
            with self.subTest(what):
                self.assertSame(self.run_warm_soon(**what), self.run_cold(**what), str(what))

    def test_files_that_cannot_be_placed_run_cold(self):
        for paths in (("a", "a/b"), ("a", "a"), ("../a",), ("a/../b",)):
            reply = self.d.post("/v1/run", {"cmd": ["true"], "files": [{"path": p, "content": "x"} for p in paths]})
            self.assertFalse(reply.status == 200 and reply.json["layers"]["recycled"], reply)

    def test_limits_of_ones_own(self):
        """Asked for again and again they are warm, too, and hold."""
        asked = {"memory": "64M", "pids": 20, "open_files": 40, "disk": "1M"}

        def ask(**body):
            reply = self.d.post("/v1/run", dict(asked, **body))
            self.assertEqual(reply.status, 200, reply)
            return reply.json

        first = ask(code="print(1)")
        self.assertEqual((first["stdout"], first["layers"]["recycled"]), ("1\n", []))
        self.assertIn("asked for again", str(first["notes"]))
        harness.until(lambda: ask(code="print(1)")["layers"]["recycled"], "a warm run")
        record = ask(code="import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE))")
        self.assertEqual(record["stdout"], "(40, 160)\n", record)
        record = ask(code="open('/tmp/x', 'wb').write(b'x' * (3 << 20))")
        self.assertIn("No space left", record["stderr"], record)
        record = ask(code="import os, time\nfor i in range(40):\n    if os.fork() == 0:\n        time.sleep(100)")
        self.assertTrue(record["layers"]["recycled"], record)
        if harness.ROOT:
            self.assertIn("BlockingIOError", record["stderr"], record)
            record = ask(code="x = bytearray(200 << 20)")
            self.assertEqual((record["status"], record["layers"]["recycled"] == []), ("oom", False), record)
        self.assertTrue(self.is_warm(), "with the usual ones")

    # ---- apart

    def test_runs_differ_where_they_must(self):
        code = (
            "import json, os, random, secrets, tempfile, uuid, ssl, time\n"
            "import multiprocessing as m\n"
            "print(json.dumps([random.random(), os.urandom(8).hex(), secrets.token_hex(8), str(uuid.uuid4()),"
            " str(uuid.uuid1()), tempfile.mkdtemp(), ssl.RAND_bytes(8).hex(), m.current_process().authkey.hex(),"
            " os.readlink('/proc/self/ns/pid') + str(time.time())]))"
        )
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            rows = [json.loads(r["stdout"]) for r in pool.map(lambda _: self.run_warm(code=code), range(100))]
        for column in zip(*rows):
            self.assertEqual(len(set(column)), 100, column[:5])

    def test_the_end_of_what_cannot_be_looked_at(self):
        code = "import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os._exit(11)"
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            replies = pool.map(lambda _: self.d.post("/v1/run", {"code": code}), range(400))
            self.assertEqual({r.json["exit_code"] for r in replies}, {11})

    def test_children_of_a_run_differ(self):
        # One call makes two numbers of gauss, and keeps the second.
        code = (
            "import os, random\nrandom.gauss(0, 1)\nrows = []\n"
            "for _ in range(3):\n"
            "    ends = os.pipe()\n"
            "    if os.fork() == 0:\n"
            "        os.write(ends[1], b'%r %r' % (random.gauss(0, 1), random.random()))\n"
            "        os._exit(0)\n"
            "    rows += os.read(ends[0], 100).split()\n"
            "print(len({*rows, b'%r' % random.gauss(0, 1), b'%r' % random.random()}))"
        )
        self.assertEqual(self.run_warm(code=code)["stdout"], "8\n")

    def test_the_memory_that_runs_share_cannot_be_written_to(self):
        code = (
            "import os\nfound, opened = 0, []\n"
            "for line in open('/proc/self/maps'):\n"
            "    if 'memfd:' in line:\n"
            "        found += 1\n"
            "        name = '-'.join(part.lstrip('0') for part in line.split()[0].split('-'))\n"
            "        try:\n"
            "            opened.append(os.open('/proc/self/map_files/' + name, os.O_RDWR))\n"
            "        except PermissionError:\n"
            "            pass\n"
            "print(found > 0, opened)"
        )
        self.assertEqual(self.run_warm(code=code)["stdout"], "True []\n")

    def test_nothing_is_left_for_the_next(self):
        places = ("/tmp", "/var/tmp", "/dev/shm", "/home/user", "/workspace")
        leave = "import os, subprocess\n" + "".join(
            "open('%s/left', 'w').write('x')\n" % p for p in places
        ) + "subprocess.Popen(['sh', '-c', 'setsid sh -c \"sleep 1000\" &'])\n" \
            "import random; random.seed(7); os.environ['LEFT'] = '1'\nimport json; json.LEFT = 1\n"
        look = (
            "import glob, os, json\nprint([p for d in %r for p in glob.glob(d + '/*')], os.environ.get('LEFT'),"
            " hasattr(json, 'LEFT'), sorted(p for p in os.listdir('/proc') if p.isdigit()))" % (places,)
        )
        for _ in range(8):
            self.run_warm(code=leave)
        for _ in range(8):
            self.assertEqual(self.run_warm(code=look)["stdout"], "[] None False ['1', '2']\n")

    def test_the_warm_host_is_out_of_sight(self):
        record = self.run_warm(cmd=["sh", "-c", "ls -A /run/.cell /proc | grep -c zygote; ls /run/.cell; "
                                               "cat /proc/1/environ; readlink /proc/1/exe /proc/1/root; "
                                               "ls /proc/1/fd; kill -9 1; echo alive"])
        self.assertTrue(record["stdout"].endswith("alive\n"), record)
        self.assertNotIn("cloche-guest", record["stdout"])

    def test_no_mount_of_the_warm_host_lies_below_a_sandboxs_own(self):
        for body in ({"cmd": ["cat", "/proc/self/mountinfo"]},
                     {"code": "print(open('/proc/self/mountinfo').read())"}):
            places = [line.split()[4] for line in self.run_warm(**body)["stdout"].splitlines() if line]
            for place in ("/", "/tmp", "/var/tmp", "/home/user", "/workspace", "/dev/shm", "/dev/pts", "/proc/sys"):
                self.assertEqual(places.count(place), 1, place)
            self.assertFalse([place for place in places if place.startswith("/run")])

    def test_pid_1_of_a_warm_sandbox_has_nothing(self):
        for body in ({"cmd": ["cat", "/proc/1/status"]}, {"code": "print(open('/proc/1/status').read())"}):
            status = dict(line.split(":", 1) for line in self.run_warm(**body)["stdout"].splitlines() if ":" in line)
            for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                self.assertEqual(int(status[field], 16), 0, field)
            self.assertEqual((status["NoNewPrivs"].strip(), status["Seccomp"].strip()), ("1", "2"))
            # The warm host's, and one of its own.
            if "Seccomp_filters" in status:
                self.assertEqual(status["Seccomp_filters"].strip(), "2")

    def test_the_interpreter_is_filtered_before_it_is_warm(self):
        for many, body in (("2", {"cmd": ["cat", "/proc/self/status"]}),
                           ("3", {"code": "print(open('/proc/self/status').read())"})):
            found = re.search(r"Seccomp_filters:\s*(\d+)", self.run_warm(**body)["stdout"])
            if found:
                self.assertEqual(found.group(1), many)

    def test_a_variable_of_the_interpreters(self):
        code = "import os\nif os.fork() == 0:\n    os._exit(0)\nprint(os.wait()[1])"
        self.assertEqual(self.run_warm(code=code, env={"CLOCHE_ZYGOTE_FD": "3"})["stdout"], "0\n")

    def test_tokens_have_warm_hosts_of_their_own(self):
        code = "import os; print(os.readlink('/proc/self/ns/net'))"
        seen = {}
        for name in ("one", "two"):
            key = self.d.token("warm-" + name)
            harness.until(lambda: self.is_warm(key), "a warm run of " + name)
            seen[name] = {self.d.post("/v1/run", {"code": code}, token=key).json["stdout"] for _ in range(8)}
        self.assertFalse(seen["one"] & seen["two"])

    def test_a_network_that_was_used_goes(self):
        use = ("import socket\nl = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
               "c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.close(); c.close()\n"
               "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry:\n    u.sendto(b'x', ('192.0.2.1', 9))\n"
               "except OSError:\n    pass\nprint(len(open('/proc/net/tcp').readlines()) > 1)")
        look = ("import re\nprint(open('/proc/net/dev').read().split('lo:')[1].split()[:2], len(open('/proc/net/tcp').readlines()),"
                " [line.split()[12] for line in open('/proc/net/snmp') if line.startswith('Ip:')][1],"
                " open('/proc/net/sockstat').readline())")
        clean = self.run_cold(code=look)["stdout"]
        for _ in range(8):
            self.assertEqual(self.run_warm(code=use)["stdout"], "True\n")
        for _ in range(8):
            self.assertEqual(self.run_warm(code=look)["stdout"], clean)

    def test_a_network_that_keeps_a_flow_label_goes(self):
        """No packet is sent, and the kernel keeps it for longer than its socket."""
        code = ("import socket, struct\nprint(len(open('/proc/net/ip6_flowlabel').readlines()))\n"
                "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
                "s.setsockopt(socket.IPPROTO_IPV6, 32, socket.inet_pton(socket.AF_INET6, '::1')\n"
                "             + struct.pack('!I', 0x12345) + struct.pack('=BBHHHI', 0, 255, 1, 60, 60, 0))")
        for _ in range(8):
            self.assertEqual(self.run_warm(code=code)["stdout"], "1\n")

    # ---- limits and refusals

    def test_ceilings_of_a_token(self):
        key = self.d.token("warm-low", "--timeout", "70s", "--sandboxes", "1")
        harness.until(lambda: self.is_warm(key), "a warm run")
        reply = self.d.post("/v1/run", {"code": "print(1)", "timeout": "900s"}, token=key)
        self.assertEqual((reply.status, reply.error["field"]), (403, "timeout"), reply)
        box = self.d.post("/v1/sandboxes", {}, token=key)
        self.assertEqual(box.status, 201, box)
        self.assertEqual(self.d.post("/v1/run", {"code": "print(1)"}, token=key).status, 429)
        self.d.delete("/v1/sandboxes/" + box.json["id"])

    def test_memory_that_was_used(self):
        for code, least, most in (("pass", 100 << 10, 40 << 20), ("x = b'x' * (80 << 20); del x", 80 << 20, 160 << 20),
                                  ("import os\nif os.fork() == 0:\n    x = b'x' * (60 << 20)\n    os._exit(0)\n"
                                   "os.wait()", 60 << 20, 160 << 20)):
            with self.subTest(code):
                used = self.run_warm(code=code)["max_rss_bytes"]
                self.assertTrue(least <= used <= most, used)

    def test_time_that_was_used(self):
        """Of the children that it waited for as well."""
        busy = "import time\nwhile time.process_time() < .3:\n    pass\n"
        child = "import os\ndef f():\n    %s\nif os.fork() == 0:\n    f()\n    os._exit(0)\nos.wait()" % busy.strip().replace("\n", "\n    ")
        for code in (busy, child):
            self.assertGreaterEqual(self.run_warm(code=code)["cpu_ms"], 290, code)
        record = self.run_warm(code=SHARES_MEMORY)
        times = json.loads(record["stdout"])
        self.assertGreater(times[1], .05, record)
        self.assertGreaterEqual(record["cpu_ms"], sum(times) * 1000, record)

    def test_time_out_ends_the_whole_tree(self):
        for body in ({"code": "import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(1000)"},
                     {"cmd": ["sh", "-c", "setsid sleep 1000 & sleep 1000"]}):
            record = self.run_warm(timeout="500ms", **body)
            self.assertEqual((record["status"], record["timed_out"]), ("timeout", True), record)

    @unittest.skipUnless(harness.ROOT, cl.ONLY_ROOT + ": memory is a cgroup's")
    def test_files_that_others_read_are_not_ones_memory(self):
        """They stay charged to the lane whose task read them first."""
        places = [os.path.join(top, name) for top, _, names in os.walk("/usr/lib") for name in names]
        large = max((p for p in places if os.path.isfile(p) and not os.path.islink(p)), key=os.path.getsize)
        if os.path.getsize(large) < 64 << 20:
            self.skipTest("no file is large enough")
        for _ in range(8):
            with open(large, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.run_warm(code="with open(%r, 'rb') as f:\n    while f.read(1 << 20):\n        pass" % large)
        used = [self.run_warm(code="pass")["max_rss_bytes"] for _ in range(8)]
        self.assertLess(max(used), 48 << 20, used)

    @unittest.skipUnless(harness.ROOT, cl.ONLY_ROOT + ": memory is a cgroup's")
    def test_memory(self):
        self.run_warm_soon(code="pass", memory="256M")
        record = self.run_warm(code=EAT + "\nprint('got it')", memory="256M")
        self.assertEqual((record["status"], record["oom_killed"]), ("oom", True), record)
        self.assertEqual(self.run_warm(code="print(1)", memory="256M")["stdout"], "1\n")

    @unittest.skipUnless(harness.ROOT, cl.ONLY_ROOT + ": memory is a cgroup's")
    def test_limits_that_others_met(self):
        self.run_warm_soon(cmd=["true"], memory="256M")
        for _ in range(3):
            record = self.run_warm(cmd=["sh", "-c", "python3 -c '%s'; exit 0" % EAT], memory="256M")
            self.assertEqual((record["status"], record["oom_killed"], record["limits_hit"]),
                             ("exited", True, ["memory"]), record)
        for _ in range(8):
            record = self.run_warm(cmd=["sh", "-c", "kill -9 $$"], memory="256M")
            self.assertEqual((record["status"], record["oom_killed"], record["limits_hit"]),
                             ("signaled", False, []), record)

    def test_disk(self):
        record = self.run_warm(code="f = open('/tmp/f', 'wb')\ntry:\n    for i in range(4096):\n"
                                    "        f.write(b'x' * (1 << 20))\nexcept OSError as e:\n    print(e.errno)")
        self.assertIn(record["stdout"], ("28\n", "27\n"), record)

    def test_terminals(self):
        """They are counted for the whole host."""
        self.assertEqual(self.run_warm(code=TERMINALS)["stdout"], "256\n")
        self.assertEqual(self.run_warm(cmd=["python3", "-c", TERMINALS])["stdout"], "256\n")

    def test_denials(self):
        record = self.run_warm(code="import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))")
        self.assertEqual(record["stdout"], "-1\n")
        self.assertIn("syscall", [d["what"] for d in record["denials"]], record)
        record = self.run_warm(code="import socket\ntry:\n    socket.getaddrinfo('example.com', 80)\nexcept OSError:\n    print('no')")
        self.assertEqual([(d["what"], d["target"]) for d in record["denials"]], [("resolve", "example.com")], record)
        self.assertEqual(self.run_warm(code="pass")["denials"], [])

    def test_denials_of_others(self):
        flood = ("import socket, sys\nu = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                 "u.connect(('127.0.0.1', 53)); u.settimeout(5)\nfor i in range(400):\n"
                 "    n = b'flood%d' % i\n    u.send(bytes([0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, len(n)]) + n +"
                 " b'\\x07example\\x00\\x00\\x01\\x00\\x01')\n    u.recv(512)\n")
        mine = ("import socket, sys\ntry:\n    socket.getaddrinfo('mine.example', 80)\nexcept OSError:\n    pass\n"
                "print('asked', flush=True)\nimport time\ntime.sleep(1)")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            record = pool.submit(lambda: self.run_warm(code=mine))
            self.assertEqual(len(self.run_warm(code=flood)["denials"]) > 20, True)
            self.assertEqual([d["target"] for d in record.result()["denials"]], ["mine.example"])

    def test_output_limit(self):
        record = self.run_warm(code="import sys\nwhile True:\n    sys.stdout.write('x' * 65536)", output_limit="10K")
        self.assertEqual(record["status"], "output_limit", record)

    # ---- many, and faults

    def test_many_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            codes = list(pool.map(lambda i: self.run_one(i), range(96)))
        self.assertEqual(codes, ["%d\n" % i for i in range(96)])

    def run_one(self, i):
        body = {"code": "print(%d)" % i} if i % 2 else {"cmd": ["echo", str(i)]}
        reply = self.d.post("/v1/run", body)
        self.assertEqual(reply.status, 200, reply)
        return reply.json["stdout"]

    def send(self, body):
        """A request whose answer nobody reads; it ends with its connection."""
        s = self.d.raw(unix=True)
        self.addCleanup(s.close)
        body = json.dumps(body).encode()
        s.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return s

    def test_a_client_that_goes_away_ends_its_run(self):
        with self.send({"code": "import time; time.sleep(1000)", "timeout": "900s"}):
            harness.until(lambda: self.sleepers(), "the run")
        harness.until(lambda: not self.sleepers(), "its end")

    def test_long_runs_do_not_hold_up_others(self):
        """First more lanes are made, then runs are cold and say so."""
        for body in ({"code": "import time; time.sleep(1000)"}, {"cmd": ["sleep", "1000"]}):
            with self.subTest(body):
                long = [self.send(dict(body, timeout="900s")) for _ in range(20)]
                word = "print(5)" if "code" in body else ["echo", "5"]
                lanes = range(8, 16) if "code" in body else range(8)
                for _ in range(4):
                    reply = self.d.post("/v1/run", {next(iter(body)): word})
                    self.assertEqual(reply.json["stdout"], "5\n", reply)
                self.assertEqual(reply.json["layers"]["recycled"], [])
                self.assertIn("Ran cold: no warm sandbox is ready (all are taken)", reply.json["notes"])
                self.assertEqual([len(self.host_processes("lane-%d" % i)) > 0 for i in lanes], [True] * 8)
                for s in long:
                    s.close()
                harness.until(self.is_warm, "a warm run")

    def sleepers(self):
        """Processes of ours that sleep in a run's Python."""
        return [p for p in self.host_processes("python3") if self.wait_channel(p) in ("hrtimer_nanosleep",)]

    @staticmethod
    def wait_channel(pid):
        try:
            with open("/proc/%s/wchan" % pid) as f:
                return f.read()
        except OSError:
            return ""

    def host_processes(self, name):
        """Below our own daemon."""
        parents = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/stat" % pid) as f:
                    head, _, tail = f.read().rpartition(")")
            except OSError:
                continue
            parents[pid] = (tail.split()[1], head.partition("(")[2])
        found = []
        for pid, (parent, comm) in parents.items():
            while parent in parents and parent != str(self.d.process.pid):
                parent = parents[parent][0]
            if comm == name and parent == str(self.d.process.pid):
                found.append(pid)
        return found

    def test_whatever_dies_in_a_warm_host_it_goes_on(self):
        for name in ("python3", "lane-0", "lane-5", "cloche-init"):
            with self.subTest(name):
                harness.until(self.is_warm, "a warm run")
                for pid in self.host_processes(name):
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                for i in range(12):
                    self.survive(i)

    def test_how_a_run_ended_whose_lane_died(self):
        for kind in ({"code": "raise SystemExit(33)"}, {"cmd": ["sh", "-c", "exit 33"]}):
            for _ in range(16):
                self.run_warm(**kind)
        for body in ({"code": "import time; time.sleep(60)"}, {"cmd": ["sleep", "60"]}):
            with self.subTest(body), concurrent.futures.ThreadPoolExecutor(1) as pool:
                harness.until(self.is_warm, "a warm run")
                answer = pool.submit(self.d.post, "/v1/run", body)
                time.sleep(.5)
                for lane in range(16):
                    for pid in self.host_processes("lane-%d" % lane):
                        os.kill(int(pid), signal.SIGKILL)
                record = answer.result().json
                self.assertEqual((record["exit_code"], record["signal"]), (None, 9), record)
                self.assertTrue(400 < record["duration_ms"] < 50000, record)
        # Slots are made anew half a second later.
        for _ in range(3):
            time.sleep(.3)
            harness.until(self.is_warm, "a warm run")

    def survive(self, i):
        """It is answered: with its output, or with the signal that ended it."""
        reply = self.d.post("/v1/run", {"code": "print(%d)" % i} if i % 2 else {"cmd": ["echo", str(i)]})
        self.assertEqual(reply.status, 200, reply)
        if reply.json["status"] == "exited":
            self.assertEqual(reply.json["stdout"], "%d\n" % i, reply)
        else:
            self.assertEqual(reply.json["signal"], 9, reply)

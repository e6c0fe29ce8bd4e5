"""The Python client, without a daemon: through the command line, and against a server of our own.

The first class is the verification of the sandbox skill that the client takes its names from: run a
snippet, no network, too much memory is killed, and mounts by policy only.
"""

import asyncio
import base64
import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading

import cl

CLIENT = os.path.join(cl.TOP, "clients", "python")
sys.path.insert(0, CLIENT)

import cloche  # noqa: E402
from cloche import AsyncSandboxManager, ClocheError, MountPolicy, SandboxConfig  # noqa: E402
from cloche import SandboxManager, SandboxRunner, connect, validate_mount  # noqa: E402


def runner(**config):
    return SandboxRunner(SandboxConfig(**config), connect(program=cl.CLOCHE))


class Verification(cl.Case):
    def test_run_code(self):
        """As in its documentation, in a process of its own."""
        code = ("import asyncio; from cloche import SandboxRunner; r = SandboxRunner(); "
                "print(asyncio.run(r.run_code('print(42)')))")
        env = cl.caller_env(PYTHONPATH=CLIENT, CLOCHE=cl.CLOCHE, CLOCHE_RUNTIME_DIR=self.dir)
        r = cl.command(sys.executable, "-c", code, env=env)
        self.assertEqual((r.code, r.out), (0, "42\n\n"), str(r))

    def test_network_isolation(self):
        code = "import socket\nsocket.create_connection(('192.0.2.1', 80), 5)\nprint('connected')"
        result = asyncio.run(runner().run_code(code))
        self.assertFalse(result.success)
        self.assertNotIn("connected", result.stdout)
        self.assertIn("no network", result.explain())

    def test_network_is_given_only_if_asked_for(self):
        for asked, layers in ((False, ["none"]), (True, ["tproxy", "ports"])):
            result = asyncio.run(runner(network_enabled=asked).run_code("print(1)"))
            self.assertEqual(result.stdout, "1\n")
            self.assertIn(result.record["layers"]["network"], layers)

    def test_memory_limit(self):
        result = asyncio.run(runner(memory_limit="64m").run_code("x = bytearray(10 ** 9)\nprint(len(x))"))
        self.assertFalse(result.success)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.oom_killed or "MemoryError" in result.stderr, result.record)

    def test_timeout(self):
        result = asyncio.run(runner(timeout_seconds=1).run_code("while True: pass"))
        self.assertTrue(result.timed_out)
        self.assertEqual((result.success, result.exit_code), (False, 124))
        self.assertIn("timed out", str(result))


class Runner(cl.Case):
    def test_languages(self):
        self.assertEqual(runner().run_code_sync("echo $((6 * 7))", "bash").stdout, "42\n")
        self.assertEqual(asyncio.run(runner().run_command("echo a; echo b >&2")).stderr, "b\n")
        self.assertEqual(runner().run_command_sync(["printf", "%s", "a b"]).stdout, "a b")

    def test_result(self):
        result = runner().run_code_sync("import sys; print('o'); sys.exit(3)")
        self.assertEqual((result.exit_code, result.success, result.status), (3, False, "exited"))
        self.assertEqual(str(result), "Exit code 3.\nStdout: o\n\nStderr: ")
        self.assertEqual(result.layers["level"], "container")
        result = runner().run_command_sync("kill -9 $$")
        self.assertEqual((result.exit_code, result.signal), (137, 9))

    def test_files(self):
        result = runner().run_code_sync("open('out.bin', 'wb').write(open('in.txt', 'rb').read() * 2)",
                                        files={"in.txt": b"\x00\xff"}, capture=["*.bin"])
        self.assertEqual(result.files, {"out.bin": b"\x00\xff\x00\xff"}, result.record)

    def test_stdin_env_options(self):
        r = runner(env={"A": "x y"}, options={"guard": "imports"})
        self.assertEqual(r.run_code_sync("import os; print(os.environ['A'], input())", stdin="in").stdout, "x y in\n")
        self.assertEqual(r.run_code_sync("import socket").exit_code, 1)

    def test_large_code(self):
        self.assertEqual(runner().run_code_sync("x = '%s'\nprint(len(x))" % ("é" * 200000)).stdout, "200000\n")

    def test_nothing_of_the_caller(self):
        self.write("mine", "x")
        before = os.getcwd()
        os.chdir(self.dir)
        self.addCleanup(os.chdir, before)
        self.assertEqual(runner().run_command_sync("ls").stdout, "")

    def test_mounts(self):
        data = self.mkdir("data")
        self.write("data/f", "content")
        mount = [{"host_path": data, "container_path": "/mnt/data"}]
        with self.assertRaises(ClocheError) as caught:
            runner().run_command_sync("cat /mnt/data/f", extra_mounts=mount)
        self.assertEqual(caught.exception.kind, "denied")
        allowed = runner(allowed_read_paths=[self.dir])
        self.assertEqual(allowed.run_command_sync("cat /mnt/data/f", extra_mounts=mount).stdout, "content")
        mount[0]["readonly"] = False
        with self.assertRaises(ClocheError):
            allowed.run_command_sync("true", extra_mounts=mount)

    def test_cancel(self):
        """A cancelled task takes its sandbox along."""
        mark = cl.marker()

        async def go():
            task = asyncio.ensure_future(runner(timeout_seconds=600).run_command(
                "echo %s >/tmp/x; sleep 500 %s" % (mark, mark)))
            while not cl.host_pids(mark):
                await asyncio.sleep(0.05)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return True

        self.assertTrue(asyncio.run(asyncio.wait_for(go(), 60)))
        self.assertEqual(cl.gone(mark, 30), [])

    def test_parallel(self):
        async def go():
            r = runner()
            return await asyncio.gather(*(r.run_code("print(%d)" % i) for i in range(4)))

        self.assertEqual([r.stdout for r in asyncio.run(go())], ["0\n", "1\n", "2\n", "3\n"])

    def test_errors(self):
        with self.assertRaises(ClocheError) as caught:
            runner(memory_limit="12Q").run_code_sync("1")
        self.assertEqual((caught.exception.kind, caught.exception.field), ("invalid", "memory"))
        with self.assertRaises(ClocheError) as caught:
            runner().run_code_sync("1", language="klingon")
        self.assertIn("klingon", str(caught.exception))
        with self.assertRaises(ClocheError) as caught:
            SandboxRunner(connection=connect(program="/nowhere/cloche")).run_code_sync("1")
        self.assertEqual(caught.exception.kind, "unreachable")


class Mounts(cl.Case):
    def test_policy(self):
        policy = MountPolicy([self.path("r")], [self.path("w")])
        for name in ("r/sub", "w/sub"):
            self.mkdir(name)
        os.symlink("/etc", self.path("r/link"))
        self.assertTrue(policy.is_allowed(self.path("r/sub")))
        self.assertTrue(policy.is_allowed(self.path("w/sub"), writable=True))
        self.assertFalse(policy.is_allowed(self.path("r/sub"), writable=True))
        self.assertFalse(policy.is_allowed(self.path("r/../other")))
        self.assertFalse(policy.is_allowed(self.path("r/link/ssl")))
        self.assertFalse(policy.is_allowed(self.path("rr")))
        self.assertFalse(MountPolicy().is_allowed(self.path("r")))
        everything = MountPolicy(["/"], ["/"])
        for path in ("/etc/shadow", "/root/x", "/proc/1", "/dev", "/", "/etc", "~/.ssh/id", "/var/run/docker.sock"):
            self.assertFalse(everything.is_allowed(path), path)
        self.assertTrue(validate_mount(self.path("r/sub"), policy))
        self.assertFalse(validate_mount(self.path("r/missing"), policy))


class Local(cl.Case):
    """SandboxManager where no daemon runs."""

    def setUp(self):
        super().setUp()
        self.manager = SandboxManager(connection=connect(program=cl.CLOCHE))
        self.addCleanup(self.manager.destroy_all)

    def test_files_live_on(self):
        with self.manager.create(memory="256M") as box:
            box.write_file("a/b.txt", "text\n")
            box.write_file("bin", b"\x00\xff")
            self.assertEqual((box.read_text("a/b.txt"), box.read_file("bin")), ("text\n", b"\x00\xff"))
            self.assertEqual(box.execute("cat a/b.txt; echo more >>a/b.txt").stdout, "text\n")
            self.assertEqual(box.read_file("a/b.txt"), b"text\nmore\n")
            self.assertEqual([(f["name"], f["type"]) for f in box.list_files()], [("a", "directory"), ("bin", "file")])
            self.assertEqual([f["path"] for f in box.list_files("a")], ["a/b.txt"])
            box.delete_file("bin")
            with self.assertRaises(ClocheError) as caught:
                box.read_file("bin")
            self.assertEqual(caught.exception.kind, "not_found")
        self.assertEqual(self.manager.list(), [])
        with self.assertRaises(ClocheError):
            box.execute("true")

    def test_copies(self):
        with self.manager.create() as box:
            box.copy_to(self.write("in", b"\x01\x02"), "x")
            box.copy_from("x", self.path("out"))
            with open(self.path("out"), "rb") as file:
                self.assertEqual(file.read(), b"\x01\x02")

    def test_links_do_not_lead_out(self):
        secret = self.write("secret", "host secret")
        with self.manager.create() as box:
            box.execute(["ln", "-s", secret, "link"])
            with self.assertRaises(ClocheError):
                box.read_file("link")
            with self.assertRaises(ClocheError):
                box.write_file("link", "overwritten")
        self.assertEqual(self.read("secret"), "host secret")

    def test_execute(self):
        with self.manager.create(env={"A": "1"}) as box:
            result = box.execute("echo $A $B; pwd; cat", env={"B": "2"}, stdin="in", cwd="/tmp", timeout=20)
            self.assertEqual(result.stdout, "1 2\n/tmp\nin")
            self.assertTrue(box.execute("sleep 100", timeout=0.5).timed_out)

    def test_manager(self):
        first, second = self.manager.create(), self.manager.create()
        self.assertEqual(self.manager.get(first.id), first)
        self.assertEqual(set(self.manager.health_check_all().values()), {True})
        first.execute("true")
        self.assertGreater(self.manager.stats()[first.id]["memory_peak_bytes"], 0)
        first.stop()
        self.assertFalse(first.health_check())
        self.assertEqual(self.manager.list(state="running"), [second])
        first.start()
        self.assertTrue(first.health_check())
        self.manager.destroy(first.id)
        self.assertEqual(self.manager.destroy_all(), 1)
        with self.assertRaises(ClocheError):
            self.manager.get(first.id)

    def test_leaves_nothing(self):
        box = self.manager.create()
        directory = box.directory
        box.execute("mkdir -p d/e && touch d/e/f && chmod 0 d/e d")
        box.destroy()
        self.assertFalse(os.path.exists(directory))

    def test_async(self):
        async def go():
            manager = AsyncSandboxManager(connection=connect(program=cl.CLOCHE))
            async with await manager.create() as box:
                await box.write_file("f", "x")
                result = await box.execute("cat f")
                self.assertEqual((result.stdout, await box.read_file("f"), await box.health_check()), ("x", b"x", True))
                self.assertEqual([b.id for b in await manager.list()], [box.id])
            return await manager.destroy_all()

        self.assertEqual(asyncio.run(go()), 0)


class Handler(http.server.BaseHTTPRequestHandler):
    """A daemon that writes down what it is asked and answers from a table."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.seen.append((self.command, self.path, body, dict(self.headers)))
        status, data = self.server.answers.get((self.command, self.path.partition("?")[0]), (404, {
            "error": {"kind": "not_found", "message": "nothing here"}}))
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data:
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_args):
        pass

    def address_string(self):
        return "local"


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Rest(cl.Case):
    """What is said to a daemon, byte for byte; the real one has tests of its own."""

    def serve(self, server):
        server.seen, server.answers = [], {}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def setUp(self):
        super().setUp()
        self.socket = self.path("cloche.sock")
        self.server = self.serve(UnixServer(self.socket, Handler))
        self.connection = connect("unix:" + self.socket, token="secret-token")

    def test_run(self):
        self.server.answers["POST", "/v1/run"] = 200, {"stdout": "42\n", "exit_code": 0, "status": "exited"}
        r = SandboxRunner(SandboxConfig(env={"A": "1"}), self.connection)
        result = r.run_code_sync("print(42)", files={"f": b"\xff"}, capture=["*"], stdin=b"\x00")
        self.assertEqual((result.stdout, result.success), ("42\n", True))
        method, path, body, headers = self.server.seen[0]
        self.assertEqual(headers["Authorization"], "Bearer secret-token")
        self.assertEqual(json.loads(body), {
            "memory": "512M", "cpus": "1", "pids": "256", "timeout": "60000ms", "code": "print(42)",
            "language": "python", "env": {"A": "1"}, "capture": ["*"],
            "stdin_base64": base64.b64encode(b"\x00").decode(),
            "files": [{"path": "f", "content_base64": base64.b64encode(b"\xff").decode()}]})

    def test_mounts_are_refused(self):
        r = SandboxRunner(SandboxConfig(allowed_read_paths=[self.dir]), self.connection)
        with self.assertRaises(ClocheError) as caught:
            r.run_command_sync("true", extra_mounts=[{"host_path": self.dir, "container_path": "/x"}])
        self.assertEqual(caught.exception.kind, "unsupported")

    def test_sandbox(self):
        box_path = "/v1/sandboxes/abc"
        answers = self.server.answers
        answers["POST", "/v1/sandboxes"] = 201, {"id": "abc"}
        answers["POST", box_path + "/exec"] = 200, {"stdout": "o", "exit_code": 0, "status": "exited"}
        answers["GET", box_path + "/files"] = 200, b"\x00data"
        answers["PUT", box_path + "/files"] = 201, {}
        answers["DELETE", box_path] = 204, b""
        answers["GET", box_path + "/health"] = 409, {"error": {"kind": "conflict", "message": "paused"}}
        with SandboxManager(connection=self.connection).create(memory="1G", ttl="60s") as box:
            self.assertEqual(box.execute(["a", "b"], env={"K": "V"}, cwd="/d", timeout=1.5).stdout, "o")
            box.execute("line", stdin="in")
            box.write_file("a b&c", "é")
            self.assertEqual(box.read_file("x"), b"\x00data")
            self.assertFalse(box.health_check())
        asked = [(method, path) for method, path, _, _ in self.server.seen]
        self.assertEqual(asked[3], ("PUT", box_path + "/files?path=a+b%26c"))
        self.assertEqual(asked[-1], ("DELETE", box_path))
        self.assertEqual(json.loads(self.server.seen[0][2]), {"memory": "1G", "ttl": "60s"})
        self.assertEqual(json.loads(self.server.seen[1][2]),
                         {"cmd": ["a", "b"], "env": {"K": "V"}, "cwd": "/d", "timeout": "1500ms"})
        self.assertEqual(json.loads(self.server.seen[2][2]), {"shell": "line", "stdin_base64": "aW4="})
        self.assertEqual(self.server.seen[3][2], "é".encode())

    def test_list(self):
        self.server.answers["GET", "/v1/sandboxes"] = 200, {"sandboxes": [{"id": "a"}, {"id": "b"}], "cursor": None}
        found = SandboxManager(connection=self.connection).list(state="running", metadata={"k": "v"})
        self.assertEqual([box.id for box in found], ["a", "b"])
        self.assertEqual(self.server.seen[0][1], "/v1/sandboxes?state=running&metadata=k%3Dv")

    def test_errors(self):
        self.server.answers["POST", "/v1/sandboxes"] = 400, {
            "error": {"kind": "invalid", "message": "memory: no", "field": "memory"}}
        manager = SandboxManager(connection=self.connection)
        with self.assertRaises(ClocheError) as caught:
            manager.create(memory="x")
        error = caught.exception
        self.assertEqual((error.kind, error.field, error.status, str(error)), ("invalid", "memory", 400, "memory: no"))
        with self.assertRaises(ClocheError) as caught:
            manager.get("none")
        self.assertEqual(caught.exception.kind, "not_found")
        self.server.answers["GET", "/v1/sandboxes"] = 502, b"<html>"
        with self.assertRaises(ClocheError):
            manager.list()
        for url in ("ftp://x", "x", "http://"):
            with self.assertRaises(ClocheError):
                connect(url)
        with self.assertRaises(ClocheError) as caught:
            connect("unix:" + self.path("nothing")).json("GET", "/healthz")
        self.assertEqual(caught.exception.kind, "unreachable")

    def test_over_tcp(self):
        server = self.serve(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        server.answers["POST", "/prefix/v1/run"] = 200, {"stdout": "ok", "exit_code": 0}
        url = "http://127.0.0.1:%d/prefix/" % server.server_address[1]
        self.assertEqual(SandboxRunner(connection=connect(url)).run_command_sync("x").stdout, "ok")

    def test_which_is_found(self):
        names = ("CLOCHE_URL", "CLOCHE_TOKEN", "CLOCHE_RUNTIME_DIR", "XDG_RUNTIME_DIR", "CLOCHE")
        saved = {name: os.environ.pop(name, None) for name in names}
        self.addCleanup(lambda: os.environ.update({k: v for k, v in saved.items() if v is not None}))
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in names])
        os.environ["CLOCHE"] = cl.CLOCHE
        os.environ["CLOCHE_RUNTIME_DIR"] = self.dir
        self.assertEqual(connect().url, "unix:" + self.socket)
        os.environ["CLOCHE_RUNTIME_DIR"] = self.mkdir("empty")
        self.assertFalse(connect().is_daemon)
        os.environ["CLOCHE_URL"] = "http://127.0.0.1:1"
        self.assertTrue(connect().is_daemon)
        self.assertFalse(connect(program=cl.CLOCHE).is_daemon)


DEEPAGENTS = """
from collections import namedtuple
ExecuteResponse = namedtuple("ExecuteResponse", "output exit_code truncated")
FileDownloadResponse = namedtuple("FileDownloadResponse", "path content error")
FileUploadResponse = namedtuple("FileUploadResponse", "path error")
"""
USE_DEEPAGENTS = """
import deepagents_backend
b = deepagents_backend.make_backend()
sent = b.upload_files([("/workspace/a", b"A"), ("a", b"A"), ("/workspace/d/e", b"E"), ("../x", b""), ("", b"")])
assert [r.error for r in sent] == [None, "invalid_path", None, "invalid_path", "invalid_path"], sent
got = b.download_files(["/workspace/a", "a", "/workspace/none", "/workspace/d"])
assert [r.content for r in got] == [b"A", None, None, None], got
assert [r.error for r in got] == [None, "invalid_path", "file_not_found", "is_directory"], got
assert b.execute("echo out; echo err >&2; exit 3")[1:] == (3, False)
assert b.execute("sleep 9", timeout=0.5).exit_code == 124
b.box.destroy()
print("ok")
"""


class Examples(cl.Case):
    def test_run(self):
        """Each works, or says what has to be installed."""
        for name in ("langchain_tool.py", "deepagents_backend.py"):
            r = cl.command(sys.executable, os.path.join(cl.TOP, "adapters", name),
                           env=cl.caller_env(CLOCHE=cl.CLOCHE, CLOCHE_RUNTIME_DIR=self.dir))
            self.assertEqual(r.code, 0, str(r))
            self.assertRegex(r.out, r"pip install|\d", str(r))

    def test_deepagents(self):
        """Against stand-ins for its classes, which cannot be installed everywhere."""
        for path, text in (("__init__.py", ""), ("backends/__init__.py", ""),
                           ("backends/sandbox.py", "class BaseSandbox: pass\n"),
                           ("backends/protocol.py", DEEPAGENTS)):
            os.makedirs(os.path.dirname(os.path.join(self.dir, "deepagents", path)), exist_ok=True)
            self.write(os.path.join("deepagents", path), text)
        self.write("use.py", USE_DEEPAGENTS)
        r = cl.command(sys.executable, os.path.join(self.dir, "use.py"),
                       env=cl.caller_env(CLOCHE=cl.CLOCHE, CLOCHE_RUNTIME_DIR=self.dir,
                                         PYTHONPATH=os.path.join(cl.TOP, "adapters")))
        self.assertEqual((r.code, r.out), (0, "ok\n"), str(r))

    def test_old_python(self):
        """Nothing newer than Python 3.8 in what is shipped."""
        for top in ("clients/python/cloche", "guest/python"):
            folder = os.path.join(cl.TOP, top)
            for name in os.listdir(folder):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        compile(__import__("ast").parse(file.read(), name, feature_version=(3, 8)), name, "exec")

    def test_version(self):
        out = subprocess.run([cl.CLOCHE, "version"], capture_output=True, text=True, timeout=30).stdout
        self.assertIn(cloche.__version__, out)

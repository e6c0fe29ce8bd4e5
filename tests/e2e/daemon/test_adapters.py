"""Adapters for frameworks in Python, held to what those frameworks want of them; their classes are stand-ins."""

import asyncio
import http.client
import io
import json
import logging
import os
import shutil
import sys
import threading
import types
import zipfile
from collections import namedtuple
from types import SimpleNamespace
from unittest import mock

import cl
import harness

sys.path.insert(0, os.path.join(cl.TOP, "clients", "python"))
sys.path.insert(0, os.path.join(cl.TOP, "adapters"))

from cloche import ClocheError, SandboxManager  # noqa: E402


def package(name, **members):
    """A module that is there for the time of a test."""
    parts = name.split(".")
    modules = {".".join(parts[:i + 1]): types.ModuleType(parts[i]) for i in range(len(parts))}
    modules[name].__dict__.update(members)
    return modules


class Adapters(harness.Case):
    def setUp(self):
        patch = mock.patch.dict(os.environ, CLOCHE_URL="unix:" + self.d.sock)
        patch.start()
        self.addCleanup(patch.stop)

    def modules(self, modules):
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)

    def count(self):
        return len(SandboxManager().list())

    def test_mini_swe_agent(self):
        submitted = type("Submitted", (Exception,), {})
        self.modules(package("minisweagent.exceptions", Submitted=submitted))
        import mini_swe_agent
        before = self.count()
        env = mini_swe_agent.ClocheEnvironment(env={"A": "b"}, timeout=30, options={"memory": "256M"})
        try:
            done = env.execute({"command": "echo out; echo err >&2; echo $A; pwd; cd /tmp; X=1; exit 3"})
            self.assertEqual(done, {"output": "out\nerr\nb\n/workspace\n", "returncode": 3, "exception_info": ""})
            self.assertEqual(env.execute({"command": "pwd; echo $X"})["output"], "/workspace\n\n", "a new shell each")
            self.assertEqual(env.execute({"command": "echo \"it's\" 'a \"quote\"' '$(id)'"})["output"],
                             "it's a \"quote\" $(id)\n")
            late = env.execute({"command": "echo begun; sleep 100 & sleep 100"}, timeout=1)
            self.assertEqual((late["returncode"], late["extra"]["exception_type"]), (-1, "TimeoutExpired"))
            self.assertIn("timed out", late["exception_info"])
            self.assertEqual(env.execute({"command": "true"}, cwd="/nowhere")["extra"]["exception_type"], "ClocheError")
            with self.assertRaises(submitted) as caught:
                env.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo the patch"})
            self.assertEqual(caught.exception.args[0]["extra"]["submission"], "the patch\n")
            env.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; false"})
            self.assertEqual(env.get_template_vars(task="t")["task"], "t")
            self.assertIn("mini_swe_agent", env.serialize()["info"]["config"]["environment_type"])
        finally:
            env.cleanup()
        env = mini_swe_agent.ClocheEnvironment()
        del env
        self.assertEqual(self.count(), before)

    def test_nemo_gym(self):
        error = type("SandboxCreateError", (Exception,), {})
        self.modules(package("nemo_gym.sandbox", SandboxCreateError=error,
                             SandboxHandle=namedtuple("SandboxHandle", "sandbox_id provider_name raw"),
                             SandboxExecResult=namedtuple("SandboxExecResult", "stdout stderr return_code error_type")))
        import nemo_gym_provider
        asyncio.run(self.use_nemo_gym(nemo_gym_provider.ClocheProvider(memory="256M"), error))

    async def use_nemo_gym(self, provider, error):
        spec = SimpleNamespace(image=None, ttl_s=600, workdir="/tmp", env={"A": "b"}, files={"/tmp/in": "given"}, ports=[],
                               resources=SimpleNamespace(cpu=1, memory_mib=128, disk_gib=None), provider_options={})
        handle = await provider.create(spec)
        info = await handle.raw.info()
        self.assertEqual(info["limits"]["memory"], 128 << 20)
        self.assertEqual(tuple(await provider.exec(handle, "cat in; echo $A >&2; exit 4")), ("given", "b\n", 4, None))
        self.assertEqual((await provider.exec(handle, "sleep 9", timeout_s=0.3))[2:], (125, "timeout"))
        self.assertEqual((await provider.exec(handle, "true", cwd="/nowhere"))[2:], (125, "sandbox"))
        there, back = os.path.join(self.d.dir, "there"), os.path.join(self.d.dir, "back")
        with open(there, "wb") as out:
            out.write(b"\0\xff")
        await provider.upload_file(handle, there, "/tmp/x/y")
        await provider.download_file(handle, "/tmp/x/y", back)
        with open(back, "rb") as text:
            self.assertEqual(text.read(), b"\0\xff")
        with self.assertRaises(RuntimeError):
            await provider.download_file(handle, "/tmp/none", back)
        again = await provider.connect(provider.serialize_handle(handle))
        self.assertEqual(await provider.status(again), "running")
        await provider.close(handle)
        self.assertEqual(await provider.status(handle), "destroyed")
        await provider.create(spec)
        await provider.aclose()
        with self.assertRaises(error):
            await provider.create(SimpleNamespace(image="no-such-image"))

    def test_openmanus(self):
        error = type("SandboxTimeoutError", (Exception,), {})
        client = types.ModuleType("client")
        modules = package("app.sandbox.core.exceptions", SandboxTimeoutError=error)
        modules["app.sandbox"].client = modules["app.sandbox.client"] = client
        modules["app.sandbox.core"].exceptions = modules["app.sandbox.core.exceptions"]
        self.modules(modules)
        import openmanus
        openmanus.install()
        asyncio.run(self.use_openmanus(client.create_sandbox_client(), error))

    async def use_openmanus(self, client, error):
        with self.assertRaises(RuntimeError):
            await client.run_command("true")
        with self.assertRaisesRegex(RuntimeError, "volume_bindings"):
            await client.create(None, {"/": "/host"})
        config = SimpleNamespace(use_sandbox=True, image=None, work_dir="/workspace/w", memory_limit="256m", cpu_limit=0.5,
                                 timeout=60, network_enabled=False)
        await client.create(config)
        box = client.box
        self.assertEqual((await box.info())["limits"]["memory"], 256 << 20)
        self.assertEqual(await client.run_command("pwd; echo err >&2"), "/workspace/w\nerr")
        await client.write_file("a/b.txt", "text")
        self.assertEqual(await client.read_file("a/b.txt"), "text")
        with self.assertRaises(FileNotFoundError):
            await client.read_file("none")
        with self.assertRaises(error):
            await client.run_command("sleep 9", timeout=0.3)
        place = os.path.join(self.d.dir, "copied")
        await client.copy_from("a/b.txt", place)
        await client.copy_to(place, "c.txt")
        self.assertEqual(await client.run_command("cat c.txt"), "text")
        await client.cleanup()
        self.assertEqual((await box.info())["state"], "destroyed")

    def test_harbor(self):
        self.modules({**package("harbor.environments.capabilities", EnvironmentCapabilities=SimpleNamespace),
                      **package("harbor.environments.base", BaseEnvironment=Base, ExecResult=SimpleNamespace)})
        import harbor_environment
        kind = harbor_environment.ClocheEnvironment
        with self.assertRaisesRegex(FileNotFoundError, "docker_image"):
            kind(SimpleNamespace(docker_image=None))
        asyncio.run(self.use_harbor(kind(SimpleNamespace(docker_image="host"), options={"user": "user", "memory": "256M"})))

    async def use_harbor(self, env):
        self.assertEqual(env.type(), "cloche")
        self.assertEqual(env._network(), {"net": "none"})
        env.policy = SimpleNamespace(mode="allowlist", allowed_hosts=["a.example"])
        self.assertEqual(env._network(), {"net": "allow", "allow": ["a.example"]})
        env.policy = SimpleNamespace(mode="no-network")
        env.run_as = "user"
        await env.start(False)
        try:
            done = await env.exec("echo $P; echo err >&2; exit 3", env={"P": "q"}, cwd="/tmp")
            self.assertEqual((done.stdout, done.stderr, done.return_code), ("q\n", "err\n", 3))
            with self.assertRaisesRegex(RuntimeError, "timed out"):
                await env.exec("sleep 9", timeout_sec=0.3)
            top = os.path.join(self.d.dir, "tree")
            os.makedirs(os.path.join(top, "sub"))
            for name, mode in (("run.sh", 0o755), ("sub/a.txt", 0o644)):
                with open(os.path.join(top, name), "w", encoding="utf-8") as out:
                    out.write("echo ran\n")
                os.chmod(os.path.join(top, name), mode)
            os.symlink("/etc/shadow", os.path.join(top, "link"))
            await env.upload_dir(top, "/workspace/tests")
            self.assertEqual((await env.exec("cd /workspace/tests; ./run.sh; ls; ls sub")).stdout,
                             "ran\nrun.sh\nsub\na.txt\n")
            await env.exec("ln -s /etc/passwd /workspace/tests/out; mkfifo /workspace/tests/fifo")
            back = os.path.join(self.d.dir, "back-tree")
            await env.download_dir("/workspace/tests", back)
            self.assertEqual(sorted(os.listdir(back)), ["run.sh", "sub"], "no links, no FIFOs")
            await env.download_file("/workspace/tests/sub/a.txt", os.path.join(back, "new", "a.txt"))
            shutil.rmtree(back)
        finally:
            box = env.box
            await env.stop(True)
        self.assertEqual((await box.info())["state"], "destroyed")


class SweRex(harness.Case):
    def setUp(self):
        import swe_rex
        with mock.patch.dict(os.environ, CLOCHE_URL="unix:" + self.d.sock):
            self.server = swe_rex.Server(("127.0.0.1", 0), "the-key", {"memory": "256M", "timeout": "60s"})
        thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.runtime.close, {})

    def call(self, name, ask=None, body=None, **headers):
        link = http.client.HTTPConnection(*self.server.server_address[:2], timeout=60)
        headers = {"X-API-Key": "the-key", **{k.replace("_", "-"): v for k, v in headers.items()}}
        data = body if body is not None else None if ask is None else json.dumps(ask)
        link.request("GET" if data is None else "POST", "/" + name, data, headers)
        answer = link.getresponse()
        value = json.loads(answer.read())
        link.close()
        return answer.status, value

    def run_line(self, command, **more):
        status, value = self.call("run_in_session", {"command": command, **more})
        return (value["output"], value["exit_code"]) if status == 200 else value["swerexception"]["class_path"]

    def test_sessions(self):
        self.assertEqual(self.call("is_alive"), (200, {"is_alive": True, "message": ""}))
        self.assertEqual(self.run_line("true"), "swerex.exceptions.SessionDoesNotExistError")
        self.assertEqual(self.call("create_session", {})[0], 200)
        self.assertEqual(self.call("create_session", {})[1]["swerexception"]["class_path"],
                         "swerex.exceptions.SessionExistsError")
        self.assertEqual(self.run_line("cd /tmp; X=5; f() { echo f $1; }; echo err >&2"), ("err\n", 0))
        self.assertEqual(self.run_line("pwd; echo $X; f a; false"), ("/tmp\n5\nf a\n", 1))
        self.assertEqual(self.run_line("echo '0'; echo exit_code=0; exit 9"), ("0\nexit_code=0\n", 9), "output forges nothing")
        self.assertEqual(self.run_line("if then"), "swerex.exceptions.BashIncorrectSyntaxError")
        self.assertEqual(self.run_line("sleep 30 & sleep 30", timeout=0.5), "swerex.exceptions.CommandTimeoutError")
        self.assertEqual(self.run_line("false", check="raise"), "swerex.exceptions.NonZeroExitCodeError")
        self.assertEqual(self.run_line("false", check="ignore"), ("", None))
        self.assertEqual(self.call("close_session", {})[0], 200)
        self.assertEqual(self.run_line("true"), "swerex.exceptions.SessionDoesNotExistError")
        self.call("create_session", {})
        self.assertEqual(self.run_line("echo x$X"), ("x\n", 0), "a new session is empty")

    def test_commands_and_files(self):
        done = self.call("execute", {"command": ["sh", "-c", "echo out; echo err >&2; cat; exit 3"]})[1]
        self.assertEqual(done, {"stdout": "out\n", "stderr": "err\n", "exit_code": 3})
        merged = self.call("execute", {"command": "echo $A; echo e >&2", "shell": True, "env": {"A": "1"},
                                       "merge_output_streams": True})[1]
        self.assertEqual((merged["stdout"], merged["stderr"]), ("1\ne\n", ""))
        self.assertEqual(self.call("write_file", {"path": "/tmp/new/a", "content": "\u00e9"}), (200, {}))
        self.assertEqual(self.call("read_file", {"path": "/tmp/new/a"}), (200, {"content": "\u00e9"}))
        self.assertEqual(self.call("read_file", {"path": "/tmp/none"})[1]["swerexception"]["class_path"],
                         "builtins.FileNotFoundError")
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr("sub/b.txt", "B")
            out.writestr("../../etc/c.txt", "C")
        parts = (("file", 'filename="a.zip"', archive.getvalue()), ("target_path", "", b"/tmp/up"), ("unzip", "", b"true"))
        body = b"".join(b'--xx\r\nContent-Disposition: form-data; name="%s"; %s\r\n\r\n%s\r\n'
                        % (name.encode(), extra.encode(), data) for name, extra, data in parts) + b"--xx--\r\n"
        self.assertEqual(self.call("upload", body=body, Content_Type="multipart/form-data; boundary=xx"), (200, {}))
        found = self.call("execute", {"command": ["find", "/tmp/up", "-type", "f"]})[1]["stdout"]
        self.assertEqual(sorted(found.split()), ["/tmp/up/etc/c.txt", "/tmp/up/sub/b.txt"])

    def test_who_and_how_often(self):
        self.assertEqual(self.call("execute", {"command": "id"}, X_API_Key="wrong")[0], 401)
        self.assertEqual(self.call("execute", {"command": "id"}, X_API_Key="\u00e9")[0], 401)
        ask = {"command": "echo x >>/tmp/count; wc -l </tmp/count", "shell": True}
        first = self.call("execute", ask, X_Request_ID="1")
        self.assertEqual(first, self.call("execute", ask, X_Request_ID="1"))
        self.assertNotEqual(first, self.call("execute", ask, X_Request_ID="2"))
        for bad in (b"{", b"[]", b'{"command": 5}', b"{}"):
            self.assertEqual(self.call("execute", body=bad)[0], 422, bad)
        self.assertEqual(self.call("nothing", {})[0], 404)


class Base:
    """What Harbor's own base class does for its environments."""

    def __init__(self, config):
        self.task_env_config, self.environment_name, self.logger = config, "task", logging.getLogger("test")
        self._persistent_env, self.policy, self.run_as = {"KEPT": "1"}, SimpleNamespace(mode="no-network"), None
        self._effective_cpus, self._effective_memory_mb, self._effective_storage_mb = 1, 128, None
        self._validate_definition()

    network_policy = property(lambda self: self.policy)
    _network_disabled = property(lambda self: self.policy.mode == "no-network")
    _network_is_allowlist = property(lambda self: self.policy.mode == "allowlist")

    def _resolve_user(self, user):
        return self.run_as or user

    def _merge_env(self, env):
        return {**self._persistent_env, **(env or {})}

    async def _upload_environment_dir_after_start(self):
        pass


class Trees(harness.Case):
    def test_names_from_inside(self):
        """A lying guest names no file outside the directory."""
        with SandboxManager("unix:" + self.d.sock).create(memory="128M") as box:
            for name in ("..", "a/b", "", "."):
                with mock.patch.object(box, "list_files", return_value=[{"name": name, "type": "file"}]):
                    with self.assertRaises(ClocheError):
                        box.download_tree("/workspace", os.path.join(self.d.dir, "lies"))

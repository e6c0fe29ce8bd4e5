"""OpenManus: its sandbox, in place of the one that needs Docker.

    import openmanus; openmanus.install()          # before its agents are imported; adapters/ in PYTHONPATH

The settings of `[sandbox]` in its config.toml hold: use_sandbox, image, work_dir, memory_limit, cpu_limit, timeout,
network_enabled. An image must be in the daemon's store; without one the host's programs are used.
"""
import os
import posixpath
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import AsyncSandboxManager, ClocheError  # noqa: E402

TTL = "1h"


class ClocheSandboxClient:
    """The methods of OpenManus' BaseSandboxClient."""

    def __init__(self, timed_out=TimeoutError):
        self.box, self.timeout, self.work_dir, self.timed_out = None, 300, "/workspace", timed_out

    async def create(self, config=None, volume_bindings=None):
        if volume_bindings:
            raise RuntimeError("volume_bindings: a daemon shows no path that a client names; copy files in instead")
        setting = lambda name, default: getattr(config, name, None) or default  # noqa: E731
        self.timeout, self.work_dir = setting("timeout", 300), setting("work_dir", "/workspace")
        options = {"memory": str(setting("memory_limit", "512m")).upper(), "cpus": setting("cpu_limit", 1.0), "ttl": TTL,
                   "net": "public" if setting("network_enabled", False) else "none"}
        if setting("image", None):
            options["image"] = config.image
        self.box = await AsyncSandboxManager().create(**options)
        await self.box.execute(["mkdir", "-p", self.work_dir])

    def _open(self):
        if not self.box:
            raise RuntimeError("Sandbox not initialized: call create() first")
        return self.box

    def _path(self, path):
        return posixpath.join(self.work_dir, path)

    async def run_command(self, command, timeout=None):
        """What it printed; one shell after the other, in the working directory."""
        seconds = timeout or self.timeout
        result = await self._open().execute(["sh", "-c", 'exec 2>&1; eval "$1"', "sh", command], cwd=self.work_dir,
                                            timeout=seconds)
        if result.timed_out:
            raise self.timed_out("the command timed out after %s seconds" % seconds)
        return result.stdout.strip()

    async def read_file(self, path):
        try:
            return (await self._open().read_file(self._path(path))).decode("utf-8", "replace")
        except ClocheError as error:
            if error.kind == "not_found":
                raise FileNotFoundError(path) from error
            raise RuntimeError(error.message) from error

    async def write_file(self, path, content):
        await self._open().write_file(self._path(path), content)

    async def copy_from(self, container_path, local_path):
        await self._open().copy_from(self._path(container_path), local_path)

    async def copy_to(self, local_path, container_path):
        await self._open().copy_to(local_path, self._path(container_path))

    async def cleanup(self):
        box, self.box = self.box, None
        if box:
            await box.destroy()


def install():
    """Puts it in the place of OpenManus' own, for whoever imports that later."""
    from app.sandbox import client
    from app.sandbox.core import exceptions

    client.SANDBOX_CLIENT = ClocheSandboxClient(exceptions.SandboxTimeoutError)
    client.create_sandbox_client = lambda: client.SANDBOX_CLIENT
    return client.SANDBOX_CLIENT

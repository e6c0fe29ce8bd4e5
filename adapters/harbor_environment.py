"""An environment of Harbor (terminal-bench 2): each trial is a cloche sandbox.

    pip install harbor ./clients/python
    harbor run ... --environment-import-path harbor_environment:ClocheEnvironment      # with adapters/ in PYTHONPATH

The image is the task's `docker_image`, which must be in the daemon's store (`cloche image pull`), or what
`environment.kwargs.image` names; one with a Dockerfile only is built by `cloche image build -t NAME`. Commands run as root
inside, so the token needs `--root`.
"""
import os
import shlex
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import AsyncSandboxManager  # noqa: E402
from harbor.environments.base import BaseEnvironment, ExecResult  # noqa: E402
from harbor.environments.capabilities import EnvironmentCapabilities  # noqa: E402

DIRECTORIES = ("/logs/agent", "/logs/verifier", "/logs/artifacts", "/tests", "/solution")


class ClocheEnvironment(BaseEnvironment):
    def __init__(self, *args, image=None, options=None, **kwargs):
        self.image, self.options, self.box = image, dict(options or {}), None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type():
        return "cloche"

    @property
    def capabilities(self):
        return EnvironmentCapabilities(disable_internet=True, network_allowlist=True)

    def _validate_definition(self):
        self.image = self.image or self.task_env_config.docker_image
        if not self.image:
            raise FileNotFoundError("%s: the task names no docker_image; build its Dockerfile with `cloche image build -t NAME`"
                                    " and set environment.kwargs.image" % self.environment_name)

    def _network(self):
        """The policy exactly: nothing, a list of destinations, or the internet without anything private."""
        if self._network_disabled:
            return {"net": "none"}
        if self._network_is_allowlist:
            return {"net": "allow", "allow": list(self.network_policy.allowed_hosts)}
        return {"net": "public"}

    def _limits(self):
        limits = {"cpus": self._effective_cpus, "memory": self._effective_memory_mb, "disk": self._effective_storage_mb}
        return {name: value if name == "cpus" else "%dM" % value for name, value in limits.items() if value}

    async def start(self, force_build):
        options = {"image": self.image, "user": "root", "ttl": "12h", "timeout": "12h", "env": self._persistent_env,
                   **self._limits(), **self._network(), **self.options}
        self.box = await AsyncSandboxManager().create(**options)
        await self.exec("mkdir -p %s && chmod 777 %s" % ((" ".join(DIRECTORIES),) * 2), user="root")
        await self._upload_environment_dir_after_start()

    async def stop(self, delete):
        box, self.box = self.box, None
        if box:
            await (box.destroy() if delete else box.stop())

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        user = self._resolve_user(user)
        result = await self.box.execute(["bash", "-c", command], cwd=cwd, env=self._merge_env(env), timeout=timeout_sec,
                                        user="root" if user in (None, 0, "0") else str(user))
        if result.timed_out:
            raise RuntimeError("the command timed out after %s seconds: %s" % (timeout_sec, shlex.quote(command)[:200]))
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code)

    async def upload_file(self, source_path, target_path):
        await self.box.copy_to(str(source_path), str(target_path))

    async def upload_dir(self, source_dir, target_dir):
        await self.box.upload_tree(str(source_dir), str(target_dir))

    async def download_file(self, source_path, target_path):
        os.makedirs(os.path.dirname(os.path.abspath(str(target_path))), exist_ok=True)
        await self.box.copy_from(str(source_path), str(target_path))

    async def download_dir(self, source_dir, target_dir):
        await self.box.download_tree(str(source_dir), str(target_dir))

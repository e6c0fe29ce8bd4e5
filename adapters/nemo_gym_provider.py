"""A sandbox provider of NeMo Gym: `sandbox: {cloche: {kwargs}}` in its YAML files.

    pip install nemo-gym ./clients/python
    from nemo_gym.sandbox import register_provider; from nemo_gym_provider import ClocheProvider

Register it by `register_provider("cloche", ClocheProvider)`, or by the entry-point group `nemo_gym.sandbox_providers`.
kwargs are options of each sandbox: image, memory, net, ...
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import AsyncSandboxManager, ClocheError  # noqa: E402

TIMED_OUT = 125
COMMAND_SECONDS = 180


def names():
    """The records of NeMo Gym, which only it defines."""
    from nemo_gym import sandbox

    return sandbox


class ClocheProvider:
    name = "cloche"

    def __init__(self, **options):
        self.options, self.manager, self.boxes = options, AsyncSandboxManager(), {}

    async def create(self, spec):
        try:
            box = await self.manager.create(**dict(self.options, **options_of(spec)))
            self.boxes[box.id] = box
            for path, content in (getattr(spec, "files", None) or {}).items():
                await box.write_file(path, content)
        except ClocheError as error:
            raise names().SandboxCreateError(error.message) from error
        return names().SandboxHandle(sandbox_id=box.id, provider_name=self.name, raw=box)

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=None, user=None):
        """A command that fails or takes too long is a result."""
        seconds = timeout_s or COMMAND_SECONDS
        try:
            result = await handle.raw.execute(command, cwd=cwd, env=env, user=user, timeout=seconds)
        except ClocheError as error:
            return self._result("", error.message, TIMED_OUT, "sandbox")
        if result.timed_out:
            return self._result(result.stdout, result.stderr, TIMED_OUT, "timeout")
        return self._result(result.stdout, result.stderr, result.exit_code, None)

    @staticmethod
    def _result(stdout, stderr, code, error_type):
        return names().SandboxExecResult(stdout=stdout, stderr=stderr, return_code=code, error_type=error_type)

    async def upload_file(self, handle, source, target):
        await self._files(handle.raw.copy_to(str(source), str(target)))

    async def download_file(self, handle, source, target):
        await self._files(handle.raw.copy_from(str(source), str(target)))

    @staticmethod
    async def _files(call):
        try:
            await call
        except ClocheError as error:
            raise RuntimeError(error.message) from error

    async def status(self, handle):
        try:
            return (await handle.raw.info())["state"]
        except ClocheError as error:
            return "unknown" if error.kind == "unreachable" else "destroyed"

    async def close(self, handle):
        self.boxes.pop(handle.sandbox_id, None)
        await handle.raw.destroy()

    async def aclose(self):
        for box in list(self.boxes.values()):
            await box.destroy()
        self.boxes.clear()

    def serialize_handle(self, handle):
        return {"sandbox_id": handle.sandbox_id}

    async def connect(self, serialized):
        box = await self.manager.get(serialized["sandbox_id"])
        return names().SandboxHandle(sandbox_id=box.id, provider_name=self.name, raw=box)


def options_of(spec):
    """What a spec says, as options of a sandbox."""
    resources = getattr(spec, "resources", None)
    rows = (("image", getattr(spec, "image", None), "%s"), ("ttl", getattr(spec, "ttl_s", None), "%ss"),
            ("workdir", getattr(spec, "workdir", None), "%s"), ("cpus", getattr(resources, "cpu", None), "%s"),
            ("memory", getattr(resources, "memory_mib", None), "%dM"), ("disk", getattr(resources, "disk_gib", None), "%dG"))
    options = {name: form % value for name, value, form in rows if value}
    options.update(getattr(spec, "provider_options", None) or {})
    if getattr(spec, "env", None):
        options["env"] = dict(spec.env)
    return options

"""A sandbox environment of inspect_ai: `sandbox="cloche"` in a task runs its samples in cloche sandboxes.

    pip install inspect_ai ./clients/python
    inspect eval task.py --sandbox cloche        # with this file imported by task.py

A running daemon is needed (`cloche serve`; CLOCHE_URL, CLOCHE_TOKEN). There is one user inside: `user` may
be "user", and a user that does not exist is a failed command, as with other sandboxes.
"""
import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import AsyncSandboxManager, ClocheError  # noqa: E402
from inspect_ai.util import ExecResult, OutputLimitExceededError, SandboxEnvironment, sandboxenv  # noqa: E402

OUTPUT_MAX = "10M"  # of each stream of a command: the middle of more is left out
READ_MAX = 100 << 20
OPTIONS = {"memory": "2G", "disk": "2G", "output_limit": OUTPUT_MAX, "ttl": "6h"}


@sandboxenv(name="cloche")
class ClocheSandboxEnvironment(SandboxEnvironment):
    def __init__(self, box):
        self.box = box

    @classmethod
    async def sample_init(cls, task_name, config, metadata):
        return {"default": cls(await AsyncSandboxManager().create(**OPTIONS))}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted):
        for environment in environments.values():
            await environment.box.destroy()

    async def exec(self, cmd, input=None, cwd=None, env=None, user=None, timeout=None, timeout_retry=True,
                   concurrency=True):
        try:
            result = await self.box.execute(cmd, stdin=input, cwd=cwd, env=env, user=user, timeout=timeout)
        except ClocheError as error:
            if error.field == "user":
                return ExecResult(False, 1, "", error.message)
            if error.field == "cwd":
                raise as_os_error(error, cwd) from error
            raise
        if result.timed_out:
            raise TimeoutError("the command did not end within %s s" % timeout)
        if result.exit_code == 126 and "The command is not an executable file." in result.record["notes"]:
            raise PermissionError(errno.EACCES, "Permission denied", cmd[0])
        return ExecResult(result.exit_code == 0, result.exit_code, result.stdout, result.stderr)

    async def write_file(self, file, contents):
        """Directories on the way are made."""
        try:
            await self.box.write_file(file, contents)
        except ClocheError as error:
            raise as_os_error(error, file) from error

    async def read_file(self, file, text=True):
        try:
            data = await self.box.read_file(file, most=READ_MAX)
        except ClocheError as error:
            if error.kind == "limit":
                raise OutputLimitExceededError("100 MiB", None) from error
            raise as_os_error(error, file) from error
        return data.decode("utf-8") if text else data


def as_os_error(error, path):
    """What open() would have raised; any other error as it is."""
    if error.kind == "not_found" and error.field != "id":
        return FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    if error.kind == "denied":
        return PermissionError(errno.EACCES, "Permission denied", path)
    if "Is a directory" in error.message:
        return IsADirectoryError(errno.EISDIR, "Is a directory", path)
    return error

"""The same for programs with an event loop: each call in a thread, given up when it is cancelled."""
import asyncio
import functools

from .connection import Call


async def in_thread(function, *args, **options):
    """Awaits a call of ours; cancelling the task cancels the call, too."""
    call = options.setdefault("call", Call())
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(None, functools.partial(function, *args, **options))
    except asyncio.CancelledError:
        call.cancel()
        raise


async def plainly(function, *args, **options):
    """Awaits a call that is over soon."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, functools.partial(function, *args, **options))


class AsyncSandbox:
    """A Sandbox whose methods are coroutines; `async with` destroys it at the end."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.id = sandbox.id

    async def execute(self, command, **options):
        return await in_thread(self.sandbox.execute, command, **options)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        await self.destroy()


class AsyncSandboxManager:
    """A SandboxManager whose methods are coroutines."""

    def __init__(self, *args, **options):
        from .sandbox import SandboxManager

        self.manager = SandboxManager(*args, **options)

    async def create(self, **options):
        return AsyncSandbox(await plainly(self.manager.create, **options))

    async def get(self, sandbox_id):
        return AsyncSandbox(await plainly(self.manager.get, sandbox_id))

    async def list(self, **options):
        return [AsyncSandbox(box) for box in await plainly(self.manager.list, **options)]


def _forward(owner, attribute, names):
    """Methods that only have to be awaited."""
    for name in names:
        def method(self, *args, _name=name, **options):
            return plainly(getattr(getattr(self, attribute), _name), *args, **options)

        method.__name__ = name
        setattr(owner, name, method)


_forward(AsyncSandbox, "sandbox", (
    "write_file", "read_file", "read_text", "list_files", "delete_file", "start", "stop", "destroy",
    "get_stats", "health_check", "copy_to", "copy_from",
    "upload_tree", "download_tree", "info"))
_forward(AsyncSandboxManager, "manager", ("destroy", "destroy_all", "stats", "health_check_all"))

"""Run what an agent wrote in a cloche sandbox, from Python. Standard library only, Python >= 3.8.

    from cloche import SandboxManager
    with SandboxManager().create(memory="512M") as box:
        box.write_file("data.csv", "a,b\\n1,2\\n")
        result = box.execute(["python3", "-c", "print(open('data.csv').read())"])
        print(result.stdout, result.success)

    from cloche import SandboxRunner
    print(await SandboxRunner().run_code("print(42)"))           # one shot; run_code_sync without await

A daemon is used if one runs (CLOCHE_URL, else the unix sockets of the system and of the user), else
the `cloche` command. What cloche could not do raises ClocheError; a program that fails does not: its
SandboxResult says how it ended, what was refused and why.
"""
from .agents import AgentResult, SandboxedAgentExecutor
from .asynchronous import AsyncSandbox, AsyncSandboxManager
from .connection import connect
from .errors import ClocheError
from .mounts import MountPolicy, validate_mount
from .result import SandboxResult
from .runner import SandboxConfig, SandboxRunner
from .sandbox import Sandbox, SandboxManager

__all__ = [
    "AgentResult",
    "AsyncSandbox",
    "AsyncSandboxManager",
    "ClocheError",
    "MountPolicy",
    "Sandbox",
    "SandboxConfig",
    "SandboxManager",
    "SandboxResult",
    "SandboxRunner",
    "SandboxedAgentExecutor",
    "connect",
    "validate_mount",
]
__version__ = "0.2.0"

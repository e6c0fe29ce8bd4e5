#!/usr/bin/env python3
"""A LangChain tool that runs Python in a cloche sandbox.

    pip install langchain-core ./clients/python
    python3 adapters/langchain_tool.py
"""
import asyncio
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import SandboxConfig, SandboxRunner  # noqa: E402


def make_tool():
    """Give this to an agent: `tools=[make_tool()]`."""
    from langchain_core.tools import tool

    sandbox = SandboxRunner(SandboxConfig(memory_limit="512M", timeout_seconds=30))

    @tool
    async def run_python(code: str) -> str:
        """Execute Python code in an isolated sandbox without network. Print what you want to see."""
        result = await sandbox.run_code(code, language="python")
        refused = result.explain()
        return str(result) + ("\nRefused by the sandbox:\n" + refused if refused else "")

    return run_python


def main():
    try:
        run_python = make_tool()
    except ImportError:
        print("langchain-core is not installed: pip install langchain-core")
        return 0
    print(asyncio.run(run_python.ainvoke({"code": "print(sum(range(10)))"})))
    return 0


if __name__ == "__main__":
    sys.exit(main())

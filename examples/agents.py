#!/usr/bin/env python3
"""Two agents, each in a sandbox of its own: what the first one finds is the task of the second.

    PYTHONPATH=clients/python examples/agents.py            needs a daemon (`cloche serve`)
    AGENT=claude-code ...                                   another agent type than `python`; see `cloche agent ls`

The hand-over is data: it is never part of a command, and it is cleaned of escape sequences and secrets on the way.
"""
import asyncio
import os
import sys

try:
    from cloche import ClocheError, SandboxedAgentExecutor
except ImportError:
    sys.exit("pip install ./clients/python, or set PYTHONPATH=clients/python")

KIND = os.environ.get("AGENT", "python")
RESEARCH = "print('The answer is', 6 * 7)" if KIND == "python" else "Say what six times seven is, in one line."
WRITE = "print(%r.upper())" if KIND == "python" else "Write this in capital letters: %s"


async def main():
    executor = SandboxedAgentExecutor(agent_type=KIND)
    found = await executor.execute(RESEARCH, {"agentName": "researcher", "limits": {"timeoutSeconds": 60}})
    print("researcher:", str(found.output).strip())
    done = await executor.execute(WRITE % str(found.output).strip(), {"agentName": "writer"})
    print("writer:", str(done.output).strip())
    # A swarm: as long as its slowest, and one that fails does not stop the rest.
    for result in await executor.executeParallel([{"task": WRITE % word, "config": {"agentName": word}}
                                                  for word in ("one", "two", "three")]):
        print("%s: %s" % (result.agent_name, result.error or str(result.output).strip()))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ClocheError as error:
        sys.exit("cloche: %s" % error)

"""Agents in sandboxes: one, or a swarm of them, each in a sandbox of its own.

    executor = SandboxedAgentExecutor()
    result = await executor.execute("Create a REST API", {"agentName": "backend-dev", "agentType": "claude-code",
                                                          "capturePatterns": ["*.js"]})
    results = await executor.executeParallel([{"task": "Write tests", "config": {"agentName": "tester"}}, ...])

An agent type of the daemon says which program runs, in which image, with which network (`cloche agent ls`). A config
narrows its limits. Names are those of the sandbox integration of agentic-flow; snake_case is understood as well.
"""
import asyncio
import base64
import itertools
import urllib.parse

from .asynchronous import plainly
from .connection import Call, connect
from .errors import ClocheError

TRIES = 3
LIMITS = {"memoryMB": ("memory", "%dM"), "cpuCores": ("cpus", "%s"), "diskMB": ("disk", "%dM"),
          "timeoutSeconds": ("timeout", "%ss"), "memory": ("memory", "%s"), "cpus": ("cpus", "%s"),
          "timeout": ("timeout", "%s"), "pids": ("pids", "%s"), "disk": ("disk", "%s")}
NAMES = {"agent_name": "agentName", "system_prompt": "systemPrompt", "agent_type": "agentType",
         "capture_patterns": "capturePatterns", "capture_files": "captureFiles",
         "sandbox_config": "sandboxConfig", "auto_cleanup": "autoCleanup"}
KNOWN = set(NAMES.values()) | {"env", "files", "limits"}


class AgentResult:
    """output: as the agent type says, text or parsed JSON. error: why it failed, in words, or None."""

    def __init__(self, agent_name, answer=None, error=None):
        self.agent_name, self.error = agent_name, error
        self.record = (answer or {}).get("record") or {}
        self.output = (answer or {}).get("output")
        self.success = error is None
        self.fault = error.fault if error else None
        self.files = {f["path"]: base64.b64decode(f["content_base64"]) for f in self.record.get("files") or []
                      if f.get("content_base64") is not None}

    def __repr__(self):
        return "<AgentResult %s %s>" % (self.agent_name, "ok" if self.success else self.error)


class SandboxedAgentExecutor:
    """concurrency: at most so many agents at one time. agent_type: for configs that name none."""

    def __init__(self, connection=None, agent_type="claude-code", concurrency=8):
        self.connection = connection or connect()
        if not self.connection.is_daemon:
            raise ClocheError("agents need a daemon: start `cloche serve`, or set CLOCHE_URL",
                              "unsupported", fault="caller")
        self.agent_type, self.concurrency = agent_type, concurrency
        self._numbers = itertools.count(1)
        self._active = {}
        self._slots = None

    # ---- one agent ----

    async def execute(self, task, config=None, **more):
        """Runs one agent to its end; a failure is a ClocheError."""
        result = await self.try_execute(task, config, **more)
        if result.error:
            raise result.error
        return result

    async def try_execute(self, task, config=None, **more):
        """The same, but a failure is a result."""
        config = self._config(dict(config or {}, **more))
        name = config.get("agentName") or "agent"
        try:
            request = self._request(task, config)
        except ClocheError as error:
            return AgentResult(name, error=error)
        async with self._slot():
            return await self._run(name, config.get("agentType") or self.agent_type, request)

    def _slot(self):
        """One semaphore for each event loop."""
        loop = asyncio.get_running_loop()
        if not self._slots or self._slots[0] is not loop:
            self._slots = (loop, asyncio.Semaphore(self.concurrency))
        return self._slots[1]

    async def _run(self, name, kind, request):
        number, call = next(self._numbers), Call()
        self._active[number] = {"id": number, "agentName": name, "agentType": kind, "call": call}
        path = "/mcp/agents/" + urllib.parse.quote(kind, safe="")
        try:
            for attempt in range(TRIES):
                try:
                    answer = await plainly(self.connection.json, "POST", path, request, call=call)
                    return AgentResult(name, answer)
                except ClocheError as error:
                    # Only what cloche could not do is tried again: an agent that ran may have had effects.
                    if error.fault != "cloche" or call.cancelled or attempt + 1 == TRIES:
                        return AgentResult(name, error=error)
                    await asyncio.sleep(0.1 * 4 ** attempt)
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            del self._active[number]

    @staticmethod
    def _config(given):
        config = {NAMES.get(key, key): value for key, value in given.items()}
        unknown = set(config) - KNOWN
        if unknown:
            raise ClocheError("config: unknown key '%s'" % sorted(unknown)[0], "invalid", sorted(unknown)[0],
                              fault="caller")
        return config

    @staticmethod
    def _request(task, config):
        sandbox = dict(config.get("sandboxConfig") or {})
        limits = dict(sandbox.pop("limits", None) or {}, **config.get("limits") or {})
        request = {"task": task}
        sandbox.pop("provider", None)  # the daemon's own, whatever its name elsewhere
        env = dict(sandbox.pop("env", None) or {}, **config.get("env") or {})
        if sandbox:
            raise ClocheError("sandboxConfig: '%s' is the agent type's to say" % sorted(sandbox)[0], "unsupported",
                              sorted(sandbox)[0], fault="caller")
        for name, value in limits.items():
            if name not in LIMITS:
                raise ClocheError("limits: unknown key '%s'" % name, "invalid", name, fault="caller")
            field, form = LIMITS[name]
            request[field] = form % value
        for name, field in (("agentName", "agent_name"), ("systemPrompt", "system_prompt")):
            if config.get(name):
                request[field] = config[name]
        if config.get("captureFiles", True) and config.get("capturePatterns"):
            request["capture"] = list(config["capturePatterns"])
        if env:
            request["env"] = env
        if config.get("files"):
            request["files"] = [{"path": path, "content_base64": base64.b64encode(
                data.encode() if isinstance(data, str) else bytes(data)).decode()}
                for path, data in config["files"].items()]
        return request

    # ---- many ----

    async def execute_parallel(self, tasks):
        """Results in the order of the tasks, {"task", "config"} each; one that fails does not stop the rest."""
        return list(await asyncio.gather(*[self.try_execute(t["task"], t.get("config")) for t in tasks]))

    async def as_completed(self, tasks):
        """(index, result) as they end."""
        async def one(index, task):
            return index, await self.try_execute(task["task"], task.get("config"))

        for done in asyncio.as_completed([one(i, t) for i, t in enumerate(tasks)]):
            yield await done

    # ---- what runs ----

    def list_active(self):
        """What runs now: {"id", "agentName", "agentType"} each."""
        return [{k: v for k, v in a.items() if k != "call"} for a in list(self._active.values())]

    def get_context(self, number):
        """The same for one of them, or None."""
        return next((a for a in self.list_active() if a["id"] == number), None)

    def cancel_all(self):
        """Ends all that runs; their sandboxes are gone with them. How many there were."""
        active = list(self._active.values())
        for agent in active:
            agent["call"].cancel()
        return len(active)

    async def cleanup_all(self):
        """The same, and waits for their ends."""
        count = self.cancel_all()
        while self._active:
            await asyncio.sleep(0.01)
        return count

    executeParallel = execute_parallel
    listActive = list_active
    getContext = get_context
    cancelAll = cancel_all
    cleanupAll = cleanup_all

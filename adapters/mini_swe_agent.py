"""An environment of mini-swe-agent: the agent's commands run in a cloche sandbox.

    pip install mini-swe-agent ./clients/python
    mini --environment-class mini_swe_agent.ClocheEnvironment           # with adapters/ in PYTHONPATH

Keys of `environment` in its YAML file: cwd, env, timeout (seconds for each command), and `options`, which are those of a
new sandbox: image, memory, cpus, disk, net, allow, ttl, ...
"""
import os
import platform
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import ClocheError, SandboxManager  # noqa: E402

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
OPTIONS = {"memory": "2G", "ttl": "2h"}


class ClocheEnvironmentConfig:
    def __init__(self, cwd="/workspace", env=None, timeout=30, image=None, options=None):
        self.cwd, self.env, self.timeout = cwd, dict(env or {}), timeout
        self.options = dict(OPTIONS, **options or {})
        if image:
            self.options["image"] = image

    def model_dump(self, **_how):
        return dict(vars(self))


class ClocheEnvironment:
    def __init__(self, *, config_class=ClocheEnvironmentConfig, **keys):
        self.config = config_class(**keys)
        self.box = SandboxManager().create(**self.config.options)

    def execute(self, action, cwd="", *, timeout=None):
        """Each command has a shell of its own; what it prints to either stream comes in order. Nothing is raised but the end
        of the task: a model reads the rest."""
        seconds = timeout or self.config.timeout
        words = ["sh", "-c", 'exec 2>&1; eval "$1"', "sh", action.get("command", "")]
        try:
            result = self.box.execute(words, cwd=cwd or self.config.cwd, env=self.config.env, timeout=seconds)
        except ClocheError as error:
            return failed("", "ClocheError", "the command was not run: %s" % error.message)
        if result.timed_out:
            return failed(result.stdout, "TimeoutExpired", "the command timed out after %s seconds" % seconds)
        output = {"output": result.stdout, "returncode": result.exit_code, "exception_info": ""}
        self._check_finished(output)
        return output

    @staticmethod
    def _check_finished(output):
        lines = output["output"].lstrip().splitlines(keepends=True)
        if output["returncode"] == 0 and lines and lines[0].strip() == DONE:
            from minisweagent.exceptions import Submitted

            text = "".join(lines[1:])
            raise Submitted({"role": "exit", "content": text,
                             "extra": {"exit_status": "Submitted", "submission": text}})

    def get_template_vars(self, **more):
        inside = dict(platform.uname()._asdict(), node="cloche")
        return {**self.config.model_dump(), **inside, **more}

    def serialize(self):
        name = "%s.%s" % (type(self).__module__, type(self).__name__)
        return {"info": {"config": {"environment": self.config.model_dump(), "environment_type": name}}}

    def cleanup(self):
        box, self.box = self.box, None
        if box:
            box.destroy()

    def __del__(self):
        if getattr(self, "box", None):
            try:
                self.cleanup()
            except ClocheError:
                pass  # it ends by itself with its ttl


def failed(output, kind, text):
    return {"output": output, "returncode": -1, "exception_info": "An error occurred: %s" % text,
            "extra": {"exception_type": kind, "exception": text}}

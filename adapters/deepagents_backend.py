#!/usr/bin/env python3
"""A deepagents backend: the agent's shell and files live in a cloche sandbox.

    pip install deepagents ./clients/python
    python3 adapters/deepagents_backend.py
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
from cloche import ClocheError, SandboxManager  # noqa: E402

ERRORS = {"not_found": "file_not_found", "denied": "permission_denied", "invalid": "invalid_path"}


def make_backend(**options):
    """Give this to an agent: `create_deep_agent(backend=make_backend(memory="1G"))`."""
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox

    class ClocheBackend(BaseSandbox):
        """ls, read, write, edit, grep and glob are built on these three by the base class."""

        def __init__(self):
            self.box = SandboxManager().create(**options)

        @property
        def id(self):
            return self.box.id

        def execute(self, command, *, timeout=None):
            try:
                result = self.box.execute(command, timeout=timeout)
            except ClocheError as error:
                return ExecuteResponse(output=error.message, exit_code=1, truncated=False)
            cut = result.record.get("stdout_truncated") or result.record.get("stderr_truncated")
            return ExecuteResponse(output=result.stdout + result.stderr, exit_code=result.exit_code,
                                   truncated=bool(cut))

        def upload_files(self, files):
            return [FileUploadResponse(path=path, error=attempt(self.box.write_file, path, content)[1])
                    for path, content in files]

        def download_files(self, paths):
            found = [(path, *attempt(self.box.read_file, path)) for path in paths]
            return [FileDownloadResponse(path=path, content=content, error=error)
                    for path, content, error in found]

    return ClocheBackend()


def attempt(function, path, *args):
    """The answer, and None or the error's name: one file that fails does not fail the others. The
    protocol's paths are absolute."""
    if not path.startswith("/"):
        return None, "invalid_path"
    try:
        return function(path, *args), None
    except ClocheError as error:
        if "Is a directory" in error.message:
            return None, "is_directory"
        return None, ERRORS.get(error.kind, "invalid_path")


def main():
    try:
        backend = make_backend(memory="512M")
    except ImportError:
        print("deepagents is not installed: pip install deepagents")
        return 0
    try:
        backend.upload_files([("/workspace/hello.py", b"print(6 * 7)\n")])
        print(backend.execute("python3 /workspace/hello.py").output)
    finally:
        backend.box.destroy()
    return 0


if __name__ == "__main__":
    sys.exit(main())

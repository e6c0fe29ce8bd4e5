"""Which host paths a caller wants to let in at all.

This is the caller's own rule, checked before cloche is asked. cloche judges every source again by
itself, by what it opened and not by name, with a longer list of what is never shown.
"""
import os
from dataclasses import dataclass, field
from typing import List

FORBIDDEN_PATHS = [
    "/etc/shadow",
    "/etc/passwd",
    "/etc/sudoers",
    "/root",
    "/proc",
    "/sys",
    "/dev",
    "/run/docker.sock",
    "/var/run/docker.sock",
    "~/.ssh",
    "~/.aws",
    "~/.gnupg",
    "~/.config",
]


def _below(path, top):
    return path == top or path.startswith(top.rstrip("/") + "/")


def _real(path):
    return os.path.realpath(os.path.expanduser(path))


@dataclass
class MountPolicy:
    """Nothing is allowed that is not named; what is forbidden stays so, and so does what contains it."""

    allowed_read_paths: List[str] = field(default_factory=list)
    allowed_write_paths: List[str] = field(default_factory=list)
    forbidden_paths: List[str] = field(default_factory=lambda: list(FORBIDDEN_PATHS))

    def is_allowed(self, host_path, writable=False):
        path = _real(host_path)
        for forbidden in map(_real, self.forbidden_paths):
            if _below(path, forbidden) or _below(forbidden, path):
                return False
        allowed = list(self.allowed_write_paths)
        if not writable:
            allowed += self.allowed_read_paths
        return any(_below(path, _real(top)) for top in allowed)


def validate_mount(host_path, policy, writable=False):
    """True if the path exists and the policy allows it."""
    return os.path.exists(os.path.expanduser(host_path)) and policy.is_allowed(host_path, writable)

#!/usr/bin/python3
"""Runs the daemon's suites: tests/e2e/daemon/run.py [--user] [-v] [NAME...]

NAME is a suite (`run`), or suite.Class.test. --user runs daemon and tests as an ordinary user. A test
that fails is run once more by itself at the end; the machine may have been busy (CLOCHE_ONE_TRY=1: it
is not). -x ends at the first failure. CLOCHE names the
launcher (build/cloche), whose cloched and cloche-guest lie beside it.
"""

import importlib.util
import os
import shutil
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True

import cl  # noqa: E402
import harness  # noqa: E402
import leaks  # noqa: E402
import netlab  # noqa: E402

_spec = importlib.util.spec_from_file_location(
    "e2e_run", os.path.join(os.path.dirname(HERE), "run.py")
)
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)


def load(name):
    """daemon_run.py is the module of the suite `run`: test_run of the suites above has that name."""
    module, _, inner = name.partition(".")
    path = os.path.join(HERE, "test_%s.py" % module)
    key = "daemon_" + module
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    loader = unittest.TestLoader()
    if not inner:
        return loader.loadTestsFromModule(sys.modules[key])
    return loader.loadTestsFromName(inner, sys.modules[key])


def is_ours(leak):
    """Other daemons on this host make files and cgroups of their own meanwhile."""
    kind, _, path = leak.partition(" ")
    if kind == "cgroup":
        return os.path.exists(path) and any("-%s-" % tag in path for tag in leaks.tags)
    return kind != "file"


def stop_and_check(before, outcome):
    """The last test: the daemon ends when it is told to, and leaves nothing."""
    try:
        harness.stop_shared()
        netlab.stop_shared()
        left = [x for x in before.leaks(grace=5) if is_ours(x)]
        if left:
            left = [x for x in before.leaks(grace=harness.DEADLINE) if is_ours(x)]
    except AssertionError as error:
        left = [str(error)]
    if left:
        outcome.failed.append("leaks")
        print("  FAILED leaks:\n%s" % "".join("    | %s\n" % x for x in left[:100]), flush=True)
    else:
        outcome.passed += 1


def run_suites(names, outcome):
    base = e2e.prepare(cl.CLOCHE, harness.CLOCHED)
    before = leaks.Snapshot()
    begun = time.monotonic()
    try:
        for name in names:
            if not outcome.shouldStop:
                e2e.run_one(name, outcome, load)
        if outcome.failed:
            harness.stop_shared()  # a fresh one for these
        e2e.try_again(outcome, load, "daemon_")
        stop_and_check(before, outcome)
    finally:
        try:
            harness.stop_shared()
        finally:
            shutil.rmtree(base, ignore_errors=True)
    return e2e.report(outcome, time.monotonic() - begun, "daemon")


if __name__ == "__main__":
    sys.exit(e2e.main(__doc__, HERE, run_suites))

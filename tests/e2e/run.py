#!/usr/bin/python3
"""Runs the end-to-end suites: tests/e2e/run.py [--user] [-v] [NAME...]

NAME is a suite (`basics`), or suite.Class.test. --user runs them as an ordinary user, in a private
directory, with a copy of the programs. A test that fails is run once more by itself at the end; the
machine may have been busy (CLOCHE_ONE_TRY=1: it is not). -x ends at the first failure. CLOCHE names the launcher (build/cloche); with
CLOCHE_MUST_WORK=1 a test that this host cannot run is a failed one.
"""

import argparse
import glob
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import cl  # noqa: E402
import leaks  # noqa: E402
import netlab  # noqa: E402

USER_ID = int(os.environ.get("CLOCHE_E2E_UID", "60123"))
MUST_WORK = os.environ.get("CLOCHE_MUST_WORK", "") not in ("", "0")
ONE_TRY = os.environ.get("CLOCHE_ONE_TRY", "") not in ("", "0")


class Outcome(unittest.TestResult):
    """Collects what happened; prints a line for each test with -v, and each failure at once."""

    def __init__(self, verbose):
        super().__init__()
        self.verbose, self.passed, self.failed, self.skips = verbose, 0, [], []
        self.times, self.second = [], []

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.times.append((time.monotonic() - self.begun, test.id()))

    def say(self, test, word):
        if self.verbose:
            print(
                "  %-60s %s  %.2fs" % (test.id(), word, time.monotonic() - self.begun), flush=True
            )

    def addSuccess(self, test):
        self.passed += 1
        self.say(test, "ok")

    def fail(self, test, text):
        self.failed.append(test.id())
        if self.failfast:
            self.stop()
        print(
            "  FAILED %s\n%s"
            % (test.id(), "".join("    | %s\n" % line for line in text.splitlines())),
            flush=True,
        )

    def addFailure(self, test, err):
        self.fail(test, self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.fail(subtest, self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        if MUST_WORK and not reason.startswith((cl.ONLY_ROOT, cl.ONLY_USER)):
            self.fail(test, "skipped, but CLOCHE_MUST_WORK is set: " + reason)
            return
        self.skips.append((test.id(), reason))
        self.say(test, "skipped: " + reason)


def suite_names(directory=HERE):
    return sorted(os.path.basename(p)[5:-3] for p in glob.glob(os.path.join(directory, "test_*.py")))


def load(name):
    module, _, inner = name.partition(".")
    loaded = importlib.import_module("test_" + module)
    loader = unittest.TestLoader()
    return loader.loadTestsFromName(inner, loaded) if inner else loader.loadTestsFromModule(loaded)


def prepare(*programs):
    """Checks that the programs are there; returns the directory for all that is written."""
    for program in programs:
        if not os.access(program, os.X_OK):
            sys.exit("run.py: no program at %s; build it first, or set CLOCHE" % program)
    leaks.adopt_orphans()
    base = cl.base_dir()
    os.chmod(base, 0o755)
    os.umask(0o022)
    return base


def run_suites(names, outcome):
    base = prepare(cl.CLOCHE)
    cl.run("run", "--", "true", cwd=base)  # what is made once and kept is no leak
    before = leaks.Snapshot()
    begun = time.monotonic()
    try:
        for name in names:
            if not outcome.shouldStop:
                run_one(name, outcome)
        try_again(outcome, load, "test_")
        netlab.stop_shared()
        check_leaks(before, outcome)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return report(outcome, time.monotonic() - begun)


def run_one(name, outcome, load=load):
    begun, passed = time.monotonic(), outcome.passed
    failed, skips = len(outcome.failed), len(outcome.skips)
    if outcome.verbose:
        print(name, flush=True)
    load(name).run(outcome)
    print(
        "%-12s %3d passed, %d failed, %d skipped  (%.1fs)"
        % (
            name,
            outcome.passed - passed,
            len(outcome.failed) - failed,
            len(outcome.skips) - skips,
            time.monotonic() - begun,
        ),
        flush=True,
    )


def try_again(outcome, load, prefix):
    """Each test that failed, alone. prefix: of its module's name, before that of its suite."""
    if ONE_TRY:
        return
    for full in list(dict.fromkeys(outcome.failed)):
        name = full.split(" ")[0]
        if not name.startswith(prefix):
            continue
        again = Outcome(outcome.verbose)
        load(".".join(name[len(prefix):].split(".")[:3])).run(again)
        if not again.failed and again.passed:
            outcome.failed = [f for f in outcome.failed if f != full]
            outcome.passed += 1
            outcome.second.append(full)


def check_leaks(before, outcome):
    """The last test: the host is as it was, after the next run had its chance to sweep."""
    cl.run("run", "--", "true", cwd=cl.base_dir())
    left = before.leaks(grace=20, sweep=lambda: cl.run("run", "--level", "process", "--", "true", cwd=cl.base_dir()))
    counts = ", ".join("%d %s" % (n, kind) for kind, n in before.counts().items())
    if left:
        outcome.failed.append("leaks")
        print(
            "  FAILED leaks: left behind by the whole suite:\n%s"
            % "".join("    | %s\n" % item for item in left[:100]),
            flush=True,
        )
    else:
        outcome.passed += 1
        print("leaks        the host is as before: %s" % counts, flush=True)


def report(outcome, seconds, title="e2e"):
    """Says what happened; returns the exit status."""
    for took, name in sorted(outcome.times, reverse=True)[:10]:
        print("  slow: %5.2fs %s" % (took, name))
    for name, reason in outcome.skips:
        print("skipped %s: %s" % (name, reason))
    for name in outcome.second:
        print("passed at the second try: %s" % name)
    for name in outcome.failed:
        print("failed  %s" % name)
    print(
        "%s as %s, %.0fs: %d passed, %d failed, %d skipped"
        % (
            title,
            "root" if os.geteuid() == 0 else "uid %d" % os.geteuid(),
            seconds,
            outcome.passed,
            len(outcome.failed),
            len(outcome.skips),
        ),
        flush=True,
    )
    return 1 if outcome.failed else 0


def copy_tree(to):
    """What an ordinary user needs, where that user can reach it."""
    top = os.path.join(to, "tree")
    build = os.path.dirname(cl.CLOCHE)
    os.makedirs(os.path.join(top, "build", "tests"))
    shutil.copy(cl.CLOCHE, os.path.join(top, "build", "cloche"))
    for name in ("cloched", "cloche-guest", "cloche-boot", "cloche-seccomp", "cloche-remote", "cloche-image", "cloche-egress",
                 "cloche-tls", "cloche-zygote.so"):
        if os.path.exists(os.path.join(build, name)):
            shutil.copy(os.path.join(build, name), os.path.join(top, "build", name))
    if os.path.isdir(os.path.join(build, "tests", "front")):
        shutil.copytree(
            os.path.join(build, "tests", "front"), os.path.join(top, "build", "tests", "front")
        )
    for lie in filter(None, map(cl.helper, ("lie", "lying-guest"))):
        shutil.copy(lie, os.path.join(top, "build", "tests"))
    shutil.copytree(
        HERE, os.path.join(top, "tests", "e2e"), ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("policies", "guest", "clients", "examples", "adapters", "man", "tests/soak"):
        if os.path.isdir(os.path.join(cl.TOP, name)):
            shutil.copytree(os.path.join(cl.TOP, name), os.path.join(top, name))
    return top


def run_as_user(options, program):
    """Starts a program of this directory again as an arbitrary user who owns nothing but one directory."""
    if os.geteuid() != 0:
        sys.exit("run.py: --user is for root; an ordinary user needs no option")
    private = tempfile.mkdtemp(prefix="cloche-e2e-user-")
    try:
        top = copy_tree(private)
        work = os.path.join(private, "work")
        os.makedirs(os.path.join(work, "base"))
        os.chmod(private, 0o755)
        for path, dirs, names in os.walk(work):
            os.chown(path, USER_ID, USER_ID)
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": work,
            "LANG": "C.UTF-8",
            "TMPDIR": work,
            "CLOCHE": os.path.join(top, "build", "cloche"),
            "CLOCHE_E2E_DIR": os.path.join(work, "base"),
        }
        env.update({k: v for k, v in os.environ.items() if k == "ASAN_OPTIONS"})
        for name, is_set in (("CLOCHE_MUST_WORK", MUST_WORK), ("CLOCHE_ONE_TRY", ONE_TRY)):
            if is_set:
                env[name] = "1"
        argv = [
            "setpriv",
            "--reuid",
            str(USER_ID),
            "--regid",
            str(USER_ID),
            "--clear-groups",
            "--inh-caps=-all",
            sys.executable,
            os.path.join(top, "tests", "e2e", program),
        ]
        argv += (["-v"] if options.verbose else []) + (["-x"] if options.first else []) + options.names
        return subprocess.run(argv, cwd=work, env=env).returncode
    finally:
        shutil.rmtree(private, ignore_errors=True)


def main(doc=__doc__, directory=HERE, suites=run_suites):
    """The command line of the suites in a directory; suites(names, outcome) runs them."""
    known = suite_names(directory)
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--user", action="store_true", help="run as an ordinary user")
    parser.add_argument("-v", dest="verbose", action="store_true", help="a line for each test")
    parser.add_argument("-x", dest="first", action="store_true", help="end at the first failure")
    parser.add_argument("names", nargs="*", help="suites: " + " ".join(known))
    options = parser.parse_args()
    if options.user:
        return run_as_user(options, os.path.relpath(os.path.join(directory, "run.py"), HERE))
    outcome = Outcome(options.verbose)
    outcome.failfast = options.first
    return suites(options.names or known, outcome)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Attacks cloche from inside: every case of cloche-probe, at both levels.

    tests/escape/run.py [--user] [--root] [--level container|process] [-v] [CASE...]

--root: as root inside, at level container. As root the sandboxes are started by root, with --user by an ordinary user; whoever is not root
starts them himself. Zero cases may get through level container; without root and without a cgroup
of one's own, limits may. At level process those that the probe marks as weak may, too. In both the
record must list one of the case's layers in `layers.missing`.
Environment: B, the build directory.
"""
import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stage as staging  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
MUST_WORK = os.environ.get("CLOCHE_MUST_WORK", "") not in ("", "0")
LEVELS = ("container", "process")
# What level container lacks where an ordinary user has no cgroup of his own.
NO_CGROUP = {"cgroup", "cpu", "memory"}
# Exit status of the acts that do not end by themselves.
ACT_STATUS = {"act-stopped": 124, "act-deaf": 124, "act-fork-bomb": 124}
# What root inside is given (docs/root.md): as root from a namespace below the sandbox's own ...
GIVEN = {"caps-sets", "caps-bounds", "caps-use", "user-id", "chroot", "make-file-caps", "low-port"}
# ... also without a namespace of several ids, where some calls are answered and do nothing.
GIVEN_TO_ONE_ID = {"user-id", "low-port"}
ANSWERED = {"ro-chown", "device-mknod", "setid-mknod"}
# Set-id modes and file capabilities: not where a directory of the host can be written.
MARKS = {"setid-chmod", "setid-high-bits", "setid-open", "setid-tmpfile", "setid-mkdir", "setid-mknod"}
MARKS_OF_FILES = MARKS | {"make-file-caps"}
CONTROL_FILES = (".git/hooks/post-checkout", ".mcp.json", ".bashrc", ".claude/settings.json",
                 ".vscode/tasks.json", "sub/.git/hooks/pre-commit")


class Tally:
    def __init__(self, verbose):
        self.passed = self.failed = self.skipped = 0
        self.verbose = verbose

    def ok(self, name, detail=""):
        self.passed += 1
        if self.verbose:
            print("ok      %s: %s" % (name, detail))

    def weak(self, name, detail):
        """Got through, and the record says that it can."""
        self.passed += 1
        print("weak    %s: %s" % (name, detail))

    def fail(self, name, detail):
        self.failed += 1
        print("FAIL    %s: %s" % (name, detail))

    def skip(self, name, reason):
        if MUST_WORK:
            self.fail(name, reason)
            return
        self.skipped += 1
        print("skipped %s: %s" % (name, reason))

    def gap(self, name, detail):
        """Not refused, and SECURITY.md says so: neither a success nor a reason to fail."""
        self.skipped += 1
        print("skipped %s: known gap (SECURITY.md): %s" % (name, detail))

    def check(self, name, good, detail):
        (self.ok if good else self.fail)(name, detail)


class Level:
    """One level of cloche on one stage."""

    def __init__(self, stage, level, tally, cases, user=None):
        self.stage, self.level, self.tally, self.user = stage, level, tally, user
        self.container = level == "container"
        self.cases = [c for c in cases if self.container or "container-only" not in c.flags]
        # Level process has no mounts: there the current directory is what is shown read-only.
        self.cwd = stage.work if self.container else stage.ro
        self.ro = "/ro" if self.container else stage.ro
        self.ws = stage.work if self.container else None
        self.missing = set()
        self.given = set()
        if user:
            self.given = MARKS | (GIVEN_TO_ONE_ID | ANSWERED if stage.uid else GIVEN)

    def argv(self, options, args, json=True):
        argv = [self.stage.cloche, "run", "--level", self.level]
        if json:
            argv.append("--json")
        if self.container:
            argv += ["--mount", self.stage.ro + ":/ro:ro"]
        if self.user:
            argv += ["--user", self.user]
        return argv + list(options) + ["--", "./cloche-probe"] + args

    def label(self, case):
        return "%s%s %s" % (self.level, " as " + self.user if self.user else "", case.name)

    def judge(self, case, verdict, detail):
        """refused passes; got through fails unless it is a weakness that is owned up to."""
        name = self.label(case)
        if case.name in self.given:
            self.tally.check(name, verdict == "got-through", "%s, although it is given: %s" % (verdict, detail))
        elif verdict == "refused":
            self.tally.ok(name, "refused, " + detail)
        elif verdict == "got-through" and "gap" in case.flags:
            self.tally.gap(name, detail)
        elif verdict == "got-through" and "weak" in case.flags and case.layers & self.missing:
            self.tally.weak(name, "%s; missing: %s" % (
                detail, ",".join(sorted(case.layers & self.missing))))
        elif verdict == "got-through":
            self.tally.fail(name, "GOT THROUGH: %s (%s)" % (detail, case.title))
        elif detail.startswith("not here: "):
            self.tally.skip(name, detail[len("not here: "):])
        else:
            self.tally.fail(name, "cannot tell: " + detail)

    def judge_all(self, cases, results, hits, why_not=""):
        for case in cases:
            verdict, detail = results.get(case.name, ("cannot-tell", "no answer" + why_not))
            if case.name in hits:
                verdict, detail = "got-through", "the planted process was reached"
            self.judge(case, verdict, detail)

    def pick(self, setup):
        return [c for c in self.cases if c.setup == setup and "outside" not in c.flags]

    def run(self, cases, options=(), canaries=None, refusable=False, **how):
        """Runs these cases in one sandbox; judges what the record says."""
        canaries = canaries or self.stage.canaries(self.ro, self.ws)
        names = [c.name for c in cases]
        ended = self.stage.run(self.argv(options, canaries + names), cwd=self.cwd, **how)
        record = ended.record()
        if record is None and ended.status == 125 and refusable:
            # Not to start at all is a fine answer to an impossible stdin.
            why = ended.err.strip().splitlines()[-1]
            self.judge_all(cases, {n: ("refused", why) for n in names}, ended.hits)
            return None
        if record is None:
            why = ": status %s, %s" % (ended.status, ended.err.strip()[-200:])
            self.judge_all(cases, {}, ended.hits, why)
            return None
        results = staging.parse_results(record["stdout"])
        for case in cases:
            if case.name not in results and "kill-ok" in case.flags and record["status"] == "oom":
                results[case.name] = ("refused", "the sandbox was killed for memory")
        self.judge_all(cases, results, ended.hits,
                       " (%s, %s)" % (record["status"], record["stderr"].strip()[-200:]))
        return record

    def peer(self):
        """Another sandbox with things planted in it; returns its process and what it has."""
        tag = secrets.token_hex(6)
        argv = self.argv([], ["--plant", tag], json=False)
        p = self.stage.start(argv, stdin=subprocess.PIPE, cwd=self.cwd)
        text = []
        for raw in p.stdout:
            text.append(raw.decode(errors="replace"))
            if text[-1] == "planted\n":
                break
        found = dict(line.strip().split("=", 1) for line in text if "=" in line)
        return p, {"peer": tag, "peer-has": found.get("has", ""), "peer-tcp": found.get("tcp")}

    def look(self):
        """What does the record of a plain run own up to?"""
        probe_record = self.stage.run(self.argv([], ["--whoami"]), cwd=self.cwd).record()
        if probe_record is None:
            self.tally.fail(self.level, "no sandbox at all")
            return
        self.missing = set(probe_record["layers"]["missing"])
        allowed = NO_CGROUP if self.stage.uid else set()
        self.tally.check(self.level + " layers", not self.container or self.missing <= allowed,
                         "missing: " + ",".join(sorted(self.missing)))

    def common(self):
        cases = self.pick("common")
        if not cases:
            return
        p, peer = self.peer()
        try:
            self.run(cases, canaries=self.stage.canaries(self.ro, self.ws, peer=peer))
        finally:
            p.stdin.close()
            p.wait(timeout=20)

    def group(self):
        cases = self.pick("group")
        if cases:
            self.run(cases, group=True, stdin=subprocess.DEVNULL)

    def stdin_dir(self):
        cases = self.pick("stdin-dir")
        fd = os.open(self.stage.outside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if cases:
                self.run(cases, stdin=fd, refusable=True)
        finally:
            os.close(fd)

    def stdout_file(self):
        """stdout is a file of the caller that holds the token, open for appending only."""
        cases = self.pick("stdout-file")
        if not cases:
            return
        path = self.stage.path("out")
        self.stage.write(path, self.stage.token + "\n", 0o600)
        argv = self.argv([], self.stage.canaries(self.ro, self.ws) + [c.name for c in cases],
                         json=False)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            ended = self.stage.run(argv, stdout=fd, cwd=self.cwd)
        finally:
            os.close(fd)
        with open(path, encoding="utf-8", errors="replace") as f:
            self.judge_all(cases, staging.parse_results(f.read()), ended.hits, ": " + ended.err)

    def workspace(self):
        cases = self.pick("workspace")
        if not cases:
            return
        inside = "/workspace" if self.container else self.stage.ws
        self.run(cases, ["--workspace", self.stage.ws],
                 canaries=self.stage.canaries(self.ro, inside))
        hooks = os.listdir(os.path.join(self.stage.ws, ".git/hooks"))
        if self.container:
            self.tally.check("container workspace afterwards", not hooks, "hooks: %s" % hooks)

    def writable(self):
        """A directory of the host is shown writable."""
        cases = self.pick("writable")
        if cases:
            self.run(cases, ["--mount", self.stage.rw + ":/rw:rw"],
                     canaries=self.stage.canaries(self.ro, self.ws, "/rw"))

    def marks(self):
        """Root inside with a directory of the host to write to: nothing in it may be marked."""
        cases = [c for c in self.cases if c.name in MARKS_OF_FILES]
        if not cases or not self.user:
            return
        given, self.given = self.given, ANSWERED if self.stage.uid else set()
        self.run(cases, ["--mount", self.stage.rw + ":/rw:rw"])
        self.given = given

    def solos(self):
        for case in self.pick("solo"):
            self.run([case], case.options, timeout=60)

    def acts(self):
        for case in self.cases:
            if case.setup == "act":
                self.act(case)
        named = {c.name for c in self.cases}
        if self.container and "act-names" in named:
            self.act_names()
        if self.container and "act-control" in named:
            self.act_control()
        if "act-deaf" in named:
            self.kill_cloche()

    def act(self, case):
        tag = secrets.token_hex(8)
        ended = self.stage.run(self.argv(case.options, ["--act", case.name, tag]), cwd=self.cwd,
                               timeout=60)
        left = staging.wait_gone(self.stage, tag, 0.1)
        want, record = ACT_STATUS.get(case.name, 0), ended.record()
        name = self.label(case)
        if left:
            self.tally.fail(name, "%d processes are still alive" % len(left))
            staging.end(left)
        elif ended.status != want:
            self.tally.fail(name, "status %s, not %s: %s" % (ended.status, want,
                                                             ended.err.strip()[-200:]))
        elif case.name == "act-flood" and not self.grouped(record):
            self.tally.fail(name, "denials: %s" % record["denials"])
        else:
            self.tally.ok(name, "nothing is left, status %d" % ended.status)

    @staticmethod
    def grouped(record):
        """A flood is one entry with a number, and the supervisor lived through it."""
        rows = [d for d in record["denials"] if "ptrace" in d["target"]]
        return len(rows) == 1 and rows[0]["count"] > 1000 and len(record["denials"]) < 10

    def act_names(self):
        """Names from inside must not forge lines, colours or JSON."""
        args = ["--act", "act-names", "x"]
        plain = self.stage.run(self.argv(["--diff"], args, json=False), cwd=self.cwd)
        bad = [c for c in plain.err if (c < " " and c != "\n") or c == "\x7f"]
        lines = [x for x in plain.err.splitlines() if not x.startswith("cloche: ")]
        self.tally.check("container act-names on stderr",
                         not bad and not lines and not plain.status,
                         "status %s, %r" % (plain.status, plain.err[-300:]))
        record = self.stage.run(self.argv(["--diff"], args), cwd=self.cwd).record()
        self.tally.check("container act-names in the record",
                         record is not None and len(record.get("changes", [])) == 10,
                         "changes: %s" % (record and record.get("changes")))

    def act_control(self):
        """--apply takes the harmless file and leaves everything that the host would obey."""
        tree = self.stage.path("apply")
        shutil.copytree(self.stage.ws, tree)
        os.symlink(self.stage.outside, os.path.join(tree, "trap"))
        owner = "%d:%d" % (self.stage.uid, self.stage.uid)
        subprocess.run(["chown", "-hR", owner, tree], check=True)
        with open(os.path.join(tree, ".git/config"), encoding="ascii") as f:
            config = f.read()
        ended = self.stage.run(self.argv(["--apply"], ["--act", "act-control", "x"]), cwd=tree)
        found = [f for f in CONTROL_FILES + ("fifo",) if os.path.lexists(os.path.join(tree, f))]
        if os.path.lexists(os.path.join(self.stage.outside, "through")):
            found.append("a file through a link to the outside")
        with open(os.path.join(tree, ".git/config"), encoding="ascii") as f:
            found += [] if f.read() == config else [".git/config"]
        harmless = os.path.exists(os.path.join(tree, "harmless.txt"))
        self.tally.check("container act-control", not found and harmless,
                         "status %s, harmless file %s, applied: %s" % (
                             ended.status, "applied" if harmless else "lost", found))
        shutil.rmtree(tree)

    def kill_cloche(self):
        """SIGKILL to the launcher: the sandbox dies with it."""
        tag = secrets.token_hex(8)
        p = self.stage.start(self.argv([], ["--act", "act-deaf", tag], json=False), cwd=self.cwd,
                             stdin=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while len(self.stage.tagged(tag)) < 6 and time.monotonic() < end:
            time.sleep(0.02)
        came_up = len(self.stage.tagged(tag))
        # Of those with the tag, the one we started (or setpriv became) is cloche itself.
        p.kill()
        p.communicate()
        left = staging.wait_gone(self.stage, tag, 2)
        self.tally.check(self.level + " kill -9 of cloche", came_up >= 6 and not left,
                         "%d processes before, %d after" % (came_up, len(left)))
        staging.end(left)


def selftest(stage, tally):
    """`cloche selftest` finds both levels whole, and counts no gap as a success."""
    ended = stage.run([stage.cloche, "selftest", "--json"], cwd=stage.work,
                      stdin=subprocess.DEVNULL)
    try:
        report = json.loads(ended.out)
    except ValueError:
        report = {"levels": [], "ok": False}
    bad = [c["name"] for x in report["levels"] for c in x["cases"] if c["verdict"] == "NOT REFUSED"]
    gaps = [x["known_gaps"] for x in report["levels"]]
    refused = [x["refused"] for x in report["levels"]]
    tally.check("selftest", ended.status == 0 and report["ok"] and len(refused) == 2 and
                min(refused) > 100 and min(gaps) > 0 and not bad,
                "status %s, refused %s, gaps %s, not refused: %s %s" % (
                    ended.status, refused, gaps, bad, ended.err.strip()[-200:]))


def control(stage, cases):
    """The same tries outside: the cases whose refusal proves nothing on this host."""
    groups = {}
    for case in cases:
        if "outside" not in case.flags and case.setup != "workspace":
            groups.setdefault(case.setup, []).append(case)
    vacuous = []
    for setup, members in groups.items():
        canaries = stage.canaries(stage.ro, stage.work, stage.rw, {"peer": stage.tag})
        how = {"group": True, "stdin": subprocess.DEVNULL} if setup == "group" else {}
        fd = None
        if setup == "stdin-dir":
            fd = how["stdin"] = os.open(stage.outside, os.O_RDONLY | os.O_DIRECTORY)
        elif setup == "stdout-file":
            stage.write(stage.path("out"), stage.token + "\n", 0o600)
            fd = how["stdout"] = os.open(stage.path("out"), os.O_WRONLY | os.O_APPEND)
        # The shell stands in for the supervisor.
        argv = ["/bin/sh", "-c", '"$@"; exit $?', "sh", stage.probe, "--control"]
        ended = stage.run(argv + canaries + [c.name for c in members], **how)
        if fd is not None:
            os.close(fd)
        text = ended.out
        if setup == "stdout-file":
            with open(stage.path("out"), encoding="utf-8") as f:
                text = f.read()
        results = staging.parse_results(text)
        vacuous += [c.name for c in members
                    if results.get(c.name, ("",))[0] != "got-through" and c.name not in ended.hits]
        stage.reset_ro()
    return vacuous


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", action="store_true")
    parser.add_argument("--root", action="store_true")
    parser.add_argument("--level", choices=LEVELS)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    tally = Tally(args.verbose)
    if args.user and os.geteuid() != 0:
        parser.error("--user needs root: without it you are the ordinary user")
    uid = staging.ORDINARY_UID if args.user else os.geteuid()
    with staging.Stage(BUILD, uid) as stage:
        cases = staging.list_cases(stage.probe)
        unknown = set(args.case) - {c.name for c in cases}
        if unknown:
            parser.error("no case " + " ".join(unknown))
        if args.case:
            cases = [c for c in cases if c.name in args.case]
        vacuous = control(stage, cases)
        levels = [args.level] if args.level else LEVELS[:1] if args.root else LEVELS
        for level in levels:
            before = stage.fingerprint(level == "container")
            one = Level(stage, level, tally, cases, "root" if args.root else None)
            for step in (one.look, one.common, one.group, one.stdin_dir, one.stdout_file, one.workspace,
                         one.writable, one.marks, one.solos, one.acts):
                step()
            after = stage.fingerprint(level == "container")
            changed = [k for k in before if before[k] != after.get(k)]
            tally.check(level + " host afterwards", not changed, "changed: %s" % changed)
        if not args.case and not args.root:
            selftest(stage, tally)
    print("%d of %d cases prove little here, they fail outside as well: %s" % (
        len(vacuous), len(cases), " ".join(vacuous)))
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Takes layers out from under cloche and looks whether it notices.

    tests/escape/layers_out.py [--user] [-v] [NAME...]

`lie` makes a system call fail, or succeed without doing anything. For each such removal and level:
  1. a plain run ends with 125 before the command starts, or its record has the layer in `missing`;
  2. with `--require LAYER` it ends with 125 before the command starts;
  3. with `--optional LAYER` a run that does start has it in `missing`, too;
  4. `cloche selftest` does not end with 0;
  5. the self test of a sandbox that goes without the layer finds a case that is not refused.
A removal that takes nothing away on this host (the layer is made in another way) is left out.

A lie can make a program harm everybody else: one that takes root for another user's id may kill
"all processes of that user". So whatever runs below `lie` is enclosed in pid, mount, network and
further namespaces that end with it, and nothing is tried without them. That needs root.
Last line: "N passed, N failed, N skipped". Environment: B, the build directory.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stage as staging  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
MARK = "euid="  # in the output of the command, if it ran
# The shell is pid 1 there: with it everything ends.
ENCLOSE = ["unshare", "--pid", "--mount", "--net", "--uts", "--ipc", "--cgroup", "--fork",
           "--kill-child", "--mount-proc", "--", "/bin/sh", "-c",
           'ip link set lo up; "$@"; exit $?', "sh"]

BOTH = ("container", "process")
BOX = ("container",)
# name, rules of lie, the layer that it takes out (None: none by name), levels, who
REMOVALS = [
    ("landlock-lies", "landlock_restrict_self=0", "landlock", BOTH, "any"),
    ("landlock-absent", "landlock_create_ruleset=ENOSYS", "landlock", BOTH, "any"),
    ("landlock-denied", "landlock_restrict_self=EPERM", "landlock", BOTH, "any"),
    ("seccomp-lies", "seccomp=0,prctl:22=0", "seccomp", BOTH, "any"),
    ("seccomp-absent", "seccomp=ENOSYS,prctl:22=EINVAL", "seccomp", BOTH, "any"),
    ("no-new-privs-lies", "prctl:38=0", "no_new_privs", BOTH, "root"),
    ("no-new-privs-absent", "prctl:38=EINVAL", "no_new_privs", BOTH, "root"),
    ("bounding-lies", "prctl:24=0", "caps", BOTH, "root"),
    ("bounding-lies", "prctl:24=0", "caps", BOX, "user"),
    ("capset-lies", "capset=0", "caps", BOX, "any"),
    ("capset-absent", "capset=ENOSYS", "caps", BOTH, "any"),
    ("setresuid-lies", "setresuid=0", "ids", BOTH, "root"),
    ("setresgid-lies", "setresgid=0", "ids", BOTH, "root"),
    ("setgroups-lies", "setgroups=0", "ids", BOTH, "root"),
    ("setresuid-denied", "setresuid=EPERM", "ids", BOTH, "root"),
    ("close-range-lies", "close_range=0", "fds", BOTH, "any"),
    ("close-range-absent", "close_range=ENOSYS", "fds", BOTH, "any"),
    ("time-lies", "unshare:0x80=0", "time_ns", BOX, "any"),
    ("time-absent", "unshare:0x80=EINVAL", "time_ns", BOX, "any"),
    ("cgroup-ns-lies", "unshare:0x02000000=0", "cgroup_ns", BOX, "any"),
    ("cgroup-ns-absent", "unshare:0x02000000=EINVAL", "cgroup_ns", BOX, "any"),
    ("user-ns-lies", "unshare:0x10000000=0,setns:1.0x10000000=0", "user_ns", BOX, "root"),
    ("net-ns-lies", "unshare:0x40000000=0,setns:1.0x40000000=0", "net_ns", BOX, "any"),
    ("setns-lies", "setns=0", None, BOX, "root"),
    ("unshare-lies", "unshare=0", None, BOX, "any"),
    ("unshare-absent", "unshare=ENOSYS", None, BOX, "any"),
    ("clone3-absent", "clone3=ENOSYS", None, BOX, "any"),
    ("pivot-root-lies", "pivot_root=0,chroot=0", "root", BOX, "any"),
    ("umount-lies", "umount2=0", "root", BOX, "any"),
    ("move-mount-lies", "move_mount=0", "root", BOX, "any"),
    # 467 is open_tree_attr, which newer kernels have and which does the same
    ("mount-setattr-lies", "467=ENOSYS,mount_setattr=0", "root", BOX, "any"),
    ("hostname-lies", "sethostname=0", None, BOX, "any"),
    ("rlimits-lie", "prlimit64=0,setrlimit=0", None, BOTH, "any"),
]
# The layer is given up, but something else does the same: what the self test may then not find.
KEPT = {
    ("container", "capset-lies"): "an ordinary user has none after exec",
    ("container", "capset-absent"): "an ordinary user has none after exec",
}
# A lie goes on inside the sandbox: these cases make the call and are told that it worked.
ECHOES = {
    "mount_setattr": {"mount-setattr"}, "umount2": {"umount", "ro-remount"},
    "move_mount": {"move-mount"}, "sethostname": {"set-hostname"},
    "unshare": {"unshare", "nested-userns"}, "setns": {"setns"}, "pivot_root": {"pivot-root"},
    "chroot": {"chroot"}, "prlimit64": {"raise-limits", "tune-supervisor"},
}


class Tally:
    def __init__(self, verbose):
        self.counts = {"ok": 0, "FAIL": 0, "skipped": 0}
        self.verbose = verbose

    def note(self, kind, name, detail):
        self.counts[kind] += 1
        if kind != "ok" or self.verbose:
            print("%-7s %s: %s" % (kind, name, detail), flush=True)

    def check(self, good, name, detail):
        self.note("ok" if good else "FAIL", name, detail)


class Stage(staging.Stage):
    """Whatever it starts is enclosed; its `cloche` starts the real one below `lie`."""

    def __init__(self, build, uid):
        super().__init__(build, uid)
        self.real, self.lie = self.path("real-cloche"), self.path("lie")
        shutil.move(self.cloche, self.real)
        shutil.copy(find_lie(), self.lie)
        self.set_lie(None)

    def as_user(self, argv):
        return ENCLOSE + super().as_user(argv)

    def set_lie(self, rules, options=()):
        """Options go right behind the verb."""
        lie = "%s '%s' -- " % (self.lie, rules) if rules else ""
        with open(self.cloche, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nverb=$1\nshift\nexec %s%s \"$verb\" %s \"$@\"\n" % (
                lie, self.real, " ".join(options)))
        os.chmod(self.cloche, 0o755)

    def try_run(self, level, options=()):
        cwd = self.work if level == "container" else self.ro
        argv = [self.cloche, "run", "--level", level, "--json"] + list(options)
        ended = self.run(argv + ["--", "./cloche-probe", "--whoami"], cwd=cwd,
                         stdin=subprocess.DEVNULL, timeout=30)
        return ended, ended.record()

    def selftest(self, level, cases=()):
        """Exit status, cases that were not refused, message."""
        ended = self.run([os.path.join(self.bin, "cloched"), "selftest", "--level", level,
                          "--json"] + list(cases), stdin=subprocess.DEVNULL, timeout=120)
        try:
            levels = json.loads(ended.out)["levels"]
        except (ValueError, KeyError):
            levels = []
        through = [c["name"] for x in levels for c in x["cases"] if c["verdict"] == "NOT REFUSED"]
        return ended.status, through, ended.err.strip()[-160:]


def find_lie():
    for path in ("tests/helpers/lie", "lie"):
        if os.path.exists(os.path.join(BUILD, path)):
            return os.path.join(BUILD, path)
    sys.exit("layers_out: lie is not built")


def refused(ended):
    return ended.status == 125 and MARK not in ended.out


def describe(ended, record):
    if record is None:
        return "status %s, %s" % (ended.status, ended.err.strip()[-160:])
    return "status %s, missing %s" % (ended.status, record["layers"]["missing"])


def takes_nothing(stage, rules, level):
    """Does cloche make the call at all? Refuse it for good: a run that stays whole does not."""
    stage.set_lie(",".join(r.split("=")[0] + "=EIO" for r in rules.split(",")))
    ended, record = stage.try_run(level)
    return ended.status == 0 and record is not None and record["layers"]["missing"] == []


class Removal:
    def __init__(self, tally, stage, row, level):
        self.tally, self.stage, self.level = tally, stage, level
        name, self.rules, self.layer, _, _ = row
        self.title = "%s %s" % (level, name)
        self.kept = KEPT.get((level, name))
        calls = {r.split("=")[0].split(":")[0] for r in self.rules.split(",")}
        self.echoes = set().union(*(ECHOES.get(c, set()) for c in calls))

    def plain(self):
        """Refused before anything ran, or owned up to."""
        self.stage.set_lie(self.rules)
        ended, record = self.stage.try_run(self.level)
        good = refused(ended) or (record is not None and (
            self.layer is None or self.layer in record["layers"]["missing"]))
        self.tally.check(good, self.title, describe(ended, record))

    def required(self):
        ended, record = self.stage.try_run(self.level, ["--require", self.layer])
        self.tally.check(refused(ended), self.title + " required", describe(ended, record))

    def optional(self):
        """In `missing`, or not to be done without."""
        ended, record = self.stage.try_run(self.level, ["--optional", self.layer])
        good = refused(ended) or (record is not None and
                                  self.layer in record["layers"]["missing"])
        self.tally.check(good, self.title + " optional", describe(ended, record))
        return refused(ended)

    def selftest(self):
        """No sandbox, or a case that is not refused: really, and not by an echo of the lie."""
        status, through, err = self.stage.selftest(self.level)
        found = [x for x in through if x not in self.echoes]
        self.tally.check(status == 125 or (status == 1 and found), self.title + " selftest",
                         "status %s, not refused: %s %s" % (status, " ".join(found), err))

    def selftest_without(self, cases):
        """Those cases that the layer is said to refuse, in a sandbox that goes without it."""
        names = [c.name for c in cases if self.layer in c.layers and "safe" in c.flags and
                 (self.level == "container" or "container-only" not in c.flags)]
        self.stage.set_lie(self.rules, ["--optional", self.layer])
        status, through, err = self.stage.selftest(self.level, names)
        found = [x for x in through if x not in self.echoes]
        good = (status == 1 and found) or (self.kept and status == 0)
        self.tally.check(good, self.title + " selftest without", "status %s, not refused: %s %s" % (
            status, " ".join(found) or self.kept, err))

    def all(self, cases):
        if takes_nothing(self.stage, self.rules, self.level):
            self.tally.note("ok", self.title, "cloche does not depend on this call here")
            return
        self.plain()
        if self.layer:
            self.required()
            impossible = self.optional()
        self.selftest()
        if self.layer and not impossible:
            self.selftest_without(cases)


def cgroups():
    """Those of enclosed runs: their names begin with another pid namespace than ours."""
    ours, found = "cloche-%d-" % os.stat("/proc/self/ns/pid").st_ino, set()
    for top in glob.glob("/sys/fs/cgroup/*/") + ["/sys/fs/cgroup/"]:
        for depth in ("", "*/", "*/*/"):
            found.update(glob.glob(top + depth + "cloche-[0-9]*-[0-9]*/"))
    return {path for path in found if not os.path.basename(path[:-1]).startswith(ours)}


def remove_cgroups(paths, uid):
    """A lie can keep cloche from tidying up; the namespaces are gone, so nobody is in there. Those of
    others may be about to be used, but not for seconds."""
    for path in sorted(paths, reverse=True):
        try:
            if os.stat(path).st_uid == uid and time.time() - os.stat(path).st_ctime > 5:
                os.rmdir(path)
        except OSError:
            pass


def baseline(tally, stage, level):
    """Enclosed, but without a lie, all must be well: else what follows says nothing."""
    stage.set_lie(None)
    ended, record = stage.try_run(level)
    status, through, err = stage.selftest(level)
    tally.check(ended.status == 0 and record is not None and status == 0, level + " without a lie",
                "%s; selftest: status %s, %s %s" % (describe(ended, record), status, through, err))
    return status == 0


def run_all(args, tally, stage, who):
    cases = staging.list_cases(stage.probe)
    well = {level: baseline(tally, stage, level) for level in BOTH}
    for row in REMOVALS:
        name, _, _, levels, for_whom = row
        if (args.name and name not in args.name) or for_whom not in ("any", who):
            continue
        for level in levels:
            if well[level]:
                Removal(tally, stage, row, level).all(cases)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    tally = Tally(args.verbose)
    if os.geteuid() != 0:
        tally.note("skipped", "layers_out", "needs root, to enclose what it lies to")
    else:
        before, uid = cgroups(), staging.ORDINARY_UID if args.user else 0
        with Stage(BUILD, uid) as stage:
            run_all(args, tally, stage, "user" if args.user else "root")
        remove_cgroups(cgroups() - before, uid)
    print("%(ok)d passed, %(FAIL)d failed, %(skipped)d skipped" % tally.counts)
    return 1 if tally.counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())

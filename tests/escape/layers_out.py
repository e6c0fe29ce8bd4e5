#!/usr/bin/env python3
"""Takes layers out from under cloche and looks whether it notices.

    tests/escape/layers_out.py [--user] [-v] [NAME...]

`lie` makes a system call fail, or succeed without doing anything. For each such removal and level:
  1. a plain run ends with 125 before the command starts, or its record has the layer in `missing`;
  2. with `--optional LAYER` a run that does start has it in `missing`, too;
  3. `cloche selftest` does not end with 0.
A removal that takes nothing away on this host (the layer is made in another way) says so. Last line:
"N passed, N failed, N skipped". Environment: B, the build directory.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stage as staging  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
# The inode of the first pid namespace; fixed in the kernel.
FIRST_PID_NS = 0xEFFFFFFC
MARK = "euid="  # in the output of the command, if it ran

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
    ("capset-lies", "capset=0", "caps", BOX, "user"),
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
    ("mount-setattr-lies", "mount_setattr=0", "root", BOX, "any"),
    ("mount-lies", "mount=0", "root", BOX, "any"),
    ("hostname-lies", "sethostname=0", "uts_ns", BOX, "any"),
    ("rlimits-lie", "prlimit64=0,setrlimit=0", None, BOTH, "any"),
    ("dumpable-lies", "prctl:4=0", None, BOX, "any"),
]


class Tally:
    def __init__(self, verbose):
        self.counts = {"ok": 0, "FAIL": 0, "skipped": 0}
        self.verbose = verbose

    def note(self, kind, name, detail):
        self.counts[kind] += 1
        if kind != "ok" or self.verbose:
            print("%-7s %s: %s" % (kind, name, detail), flush=True)


class Bench:
    """A stage whose `cloche` is a script that starts the real one under `lie`."""

    def __init__(self, stage):
        self.stage = stage
        self.real = stage.path("real-cloche")
        self.lie = stage.path("lie")
        shutil.move(stage.cloche, self.real)
        shutil.copy(find_lie(), self.lie)

    def set_rules(self, rules):
        script = "#!/bin/sh\nexec %s '%s' -- %s \"$@\"\n" % (self.lie, rules, self.real)
        if rules is None:
            script = "#!/bin/sh\nexec %s \"$@\"\n" % self.real
        with open(self.stage.cloche, "w", encoding="ascii") as f:
            f.write(script)
        os.chmod(self.stage.cloche, 0o755)

    def run(self, level, options):
        cwd = self.stage.work if level == "container" else self.stage.ro
        argv = [self.stage.cloche, "run", "--level", level, "--json"] + options
        ended = self.stage.run(argv + ["--", "./cloche-probe", "--whoami"], cwd=cwd,
                               stdin=subprocess.DEVNULL, timeout=30)
        return ended, ended.record()

    def selftest(self, level):
        cloched = os.path.join(self.stage.bin, "cloched")
        ended = self.stage.run([cloched, "selftest", "--level", level, "--json"],
                               stdin=subprocess.DEVNULL, timeout=200)
        try:
            levels = json.loads(ended.out)["levels"]
        except (ValueError, KeyError):
            levels = []
        through = [c["name"] for x in levels for c in x["cases"] if c["verdict"] == "NOT REFUSED"]
        return ended.status, through, ended.err.strip()


def in_first_pid_namespace():
    return os.stat("/proc/self/ns/pid").st_ino == FIRST_PID_NS


def enter_pid_namespace():
    """Starts this program again where "all processes" are only our own.

    A false setresuid leaves a root program that takes itself for somebody else; if it then kills
    everything of that user, it kills everything there is.
    """
    if not in_first_pid_namespace():
        return
    if os.environ.get("LAYERS_OUT_ENTERED"):
        sys.exit("layers_out: no pid namespace of our own, so nothing is tried")
    os.environ["LAYERS_OUT_ENTERED"] = "1"
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
                          sys.executable, os.path.abspath(__file__)] + sys.argv[1:])


def find_lie():
    for path in ("tests/helpers/lie", "lie"):
        if os.path.exists(os.path.join(BUILD, path)):
            return os.path.join(BUILD, path)
    sys.exit("layers_out: lie is not built")


def refused(ended):
    return ended.status == 125 and MARK not in ended.out


def say_run(ended, record):
    if record is None:
        return "status %s, %s" % (ended.status, ended.err.strip()[-160:])
    return "status %s, missing %s" % (ended.status, record["layers"]["missing"])


def check_run(tally, name, layer, ended, record):
    """Plain: refused before anything ran, or owned up to."""
    if refused(ended):
        tally.note("ok", name, "refused: " + ended.err.strip()[-160:])
    elif layer and record and layer in record["layers"]["missing"]:
        tally.note("ok", name, "in missing")
    elif layer:
        tally.note("FAIL", name, "neither refused nor in missing: " + say_run(ended, record))
    else:
        tally.note("ok", name, "no layer by name; " + say_run(ended, record))


def check_optional(tally, name, layer, ended, record):
    if refused(ended):
        tally.note("ok", name, "cannot do without it: " + ended.err.strip()[-160:])
    elif record and layer in record["layers"]["missing"]:
        tally.note("ok", name, "in missing")
    else:
        tally.note("FAIL", name, "claimed although it is out: " + say_run(ended, record))


def check_selftest(tally, name, found, known):
    """known: what the self test finds without any lie; that alone proves nothing."""
    status, through, err = found
    fresh = [c for c in through if c not in known]
    if status == 125:
        tally.note("ok", name, "no sandbox: " + err[-160:])
    elif status == 1 and fresh:
        tally.note("ok", name, "not refused: " + " ".join(fresh))
    else:
        tally.note("FAIL", name, "status %s, nothing new found: %s" % (status, err[-160:]))


def takes_nothing(bench, rules, level):
    """Does cloche make the call at all? Refuse it for good: a run that stays whole does not."""
    denied = ",".join(r.split("=")[0] + "=EIO" for r in rules.split(","))
    bench.set_rules(denied)
    ended, record = bench.run(level, [])
    return ended.status == 0 and record is not None and record["layers"]["missing"] == []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    if os.geteuid() == 0:
        enter_pid_namespace()
    tally = Tally(args.verbose)
    uid = staging.ORDINARY_UID if args.user else os.geteuid()
    who = "user" if uid else "root"
    with staging.Stage(BUILD, uid) as stage:
        bench = Bench(stage)
        bench.set_rules(None)
        known = {}
        for name, rules, layer, levels, for_whom in REMOVALS:
            if (args.name and name not in args.name) or for_whom not in ("any", who):
                continue
            for level in levels:
                one_removal(tally, bench, known, (name, rules, layer, level))
    print("%(ok)d passed, %(FAIL)d failed, %(skipped)d skipped" % tally.counts)
    return 1 if tally.counts["FAIL"] else 0


def one_removal(tally, bench, known, removal):
    name, rules, layer, level = removal
    title = "%s %s" % (level, name)
    if level not in known:
        bench.set_rules(None)
        known[level] = bench.selftest(level)[1]
    if takes_nothing(bench, rules, level):
        tally.note("skipped", title, "cloche does not depend on this call here")
        return
    bench.set_rules(rules)
    check_run(tally, title, layer, *bench.run(level, []))
    if layer:
        check_optional(tally, title + " optional", layer,
                       *bench.run(level, ["--optional", layer]))
    check_selftest(tally, title + " selftest", bench.selftest(level), known[level])


if __name__ == "__main__":
    sys.exit(main())

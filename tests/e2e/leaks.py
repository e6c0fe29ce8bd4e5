"""What cloche could leave on a host: processes, mounts, cgroups, namespaces, files.

    before = Snapshot(); ... ; left = before.leaks()

The caller becomes a subreaper, so that an orphan of any run ends up as its child and is seen. What
ends a moment later (a task on its way out, a cgroup that the next run sweeps) is no leak: only what
stays over the whole grace period counts.

Other checkouts test on the same machine at the same time, so only what is ours counts: the cgroups of
launchers (started) and daemons (tags) that this program has started; it says so with note_process and
note_daemons. Who notes nothing is alone here, and all counts.
"""

import ctypes
import os
import time

PR_SET_CHILD_SUBREAPER = 36
FILE_PLACES = ["/tmp", "/var/tmp", "/run", "/dev/shm"]
# Directories and cgroups of test programs, not of cloche.
TEST_NAMES = ("cloche-e2e-", "cloche-bench-", "cloche-escape-", "cloche-probe-")
# What cloche makes outside of its own directories: at level process, and for `cloche mcp` without a daemon.
FILE_NAMES = (".cloche-lair-", "cloche-mcp-")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")


def adopt_orphans():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


started, tags = set(), set()


def note_process(pid):
    started.add(pid)


def daemon_tag(state):
    """What is in the names of a daemon's cgroups (daemon/broker/setup.c)."""
    st = os.stat(state)
    return "%08x" % ((st.st_ino * 2654435761 ^ st.st_dev * 40503) & 0xFFFFFFFF)


def note_daemons(top):
    """The daemons whose state is somewhere below, before the directory is removed."""
    for root, dirs, _ in os.walk(top):
        if "snapshots" in dirs and "db" in dirs:
            tags.add(daemon_tag(root))
            dirs.clear()
        elif root.count("/") - top.count("/") >= 3:
            dirs.clear()


def _is_ours(name):
    if not started:
        return True
    if _daemon_of(name):
        return _daemon_of(name) in tags
    return name.rpartition("-")[2].isdigit() and int(name.rpartition("-")[2]) in started


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "replace")
    except OSError:
        return ""


def reap():
    """Collects orphans that have ended; to be called only when no child of ours is awaited."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _descendants():
    parent = {}
    for pid in _pids():
        stat = _read("/proc/%d/stat" % pid)
        if stat:
            parent[pid] = int(stat.rpartition(")")[2].split()[1])
    found, more = set(), {os.getpid()}
    while more:
        more = {p for p, above in parent.items() if above in more and p not in found}
        found |= more
    return found


def children():
    """Processes below us: all that the suites started and that still run, orphans included."""
    return {
        "process %d (%s)"
        % (
            p,
            _read("/proc/%d/cmdline" % p).replace("\0", " ").strip()
            or _read("/proc/%d/comm" % p).strip(),
        )
        for p in _descendants()
    }


def _of_a_test(path):
    return any(part.startswith(TEST_NAMES) for part in path.split("/"))


def mounts():
    """Mounts of the host's own mount namespace, which cloche must never add to. The kernel adds one below debugfs
    as soon as anybody looks there."""
    rows = (line.split() for line in _read("/proc/self/mountinfo").splitlines())
    return {"mount " + " ".join(row[2:5]) for row in rows
            if not _of_a_test(row[4]) and row[4] != "/sys/kernel/debug/tracing"}


def _keeper_lives(name):
    """The name of a run's cgroup ends in the pid of its keeper."""
    return os.path.exists("/proc/" + name.rpartition("-")[2])


def _all_cgroups():
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        for name in dirs:
            yield name, os.path.join(top, name)


def _daemon_of(name):
    """cloche-box-DAEMON-SANDBOX, and -LANE; cloche-for-DAEMON-OWNER."""
    return name.split("-")[2] if name.startswith(("cloche-box-", "cloche-for-")) else None


def _other_daemons(ours):
    """Daemons that somebody else runs here: there are tasks in their sandboxes, and none is ours.
    Of all that they have: a cgroup that waits for use is empty."""
    tasks = {}
    for name, path in _all_cgroups():
        if _daemon_of(name):
            pids = map(int, _read(os.path.join(path, "cgroup.procs")).split())
            tasks.setdefault(_daemon_of(name), set()).update(pids)
    return {daemon for daemon, pids in tasks.items() if pids and not pids & ours}


def cgroups():
    """Cgroups of this user's runs whose keeper is gone, in every hierarchy."""
    found, others = set(), _other_daemons(_descendants())
    for name, path in _all_cgroups():
        try:
            mine = os.lstat(path).st_uid == os.geteuid()
        except OSError:
            continue
        if not mine or "cloche" not in name or _of_a_test(name) or not _is_ours(name):
            continue
        daemon = _daemon_of(name)
        if daemon in others or (not daemon and _keeper_lives(name)):
            continue
        found.add("cgroup " + path)
    return found


def namespaces():
    """Namespaces that a process of ours, or a file that it has open, keeps alive."""
    found = set()
    for pid in _descendants() | {os.getpid()}:
        for kind in NAMESPACES:
            try:
                found.add("namespace " + os.readlink("/proc/%d/ns/%s" % (pid, kind)))
            except OSError:
                pass
        try:
            for fd in os.listdir("/proc/%d/fd" % pid):
                link = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                if link.partition(":")[0] in NAMESPACES:
                    found.add("namespace " + link)
        except OSError:
            pass
    return found


def files():
    """Files of cloche in the places for temporary and run-time files; root looks at everybody's."""
    places = FILE_PLACES + [os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("HOME", "")]
    own = os.environ.get("CLOCHE_E2E_DIR", "/nowhere")
    found = set()
    for place in filter(os.path.isdir, places):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            path = os.path.join(place, name)
            if name != "cloche" and not name.startswith(FILE_NAMES) or own.startswith(path):
                continue
            try:
                if os.geteuid() not in (0, os.lstat(path).st_uid):
                    continue
            except OSError:
                continue
            found.add("file " + path)
            for top, dirs, inside in os.walk(path):
                found.update("file " + os.path.join(top, n) for n in dirs + inside)
    return found


def own_fds():
    return {"fd " + fd for fd in os.listdir("/proc/self/fd")}


SOURCES = {
    "processes": children,
    "mounts": mounts,
    "cgroups": cgroups,
    "namespaces": namespaces,
    "files": files,
    "fds": own_fds,
}


class Snapshot:
    def __init__(self):
        self.seen = {kind: look() for kind, look in SOURCES.items()}

    def leaks(self, grace=10, sweep=None):
        """What is new since the snapshot and stays: a list of texts, empty when all is well. sweep: removes
        what launchers leave that were killed, those of others as well; called until nothing is left."""
        left = None
        end = time.monotonic() + grace
        while True:
            if left and sweep:
                sweep()
            reap()
            new = set()
            for kind, look in SOURCES.items():
                new |= look() - self.seen[kind]
            left = new if left is None else left & new
            if not left or time.monotonic() > end:
                return sorted(left)
            time.sleep(0.1)

    def counts(self):
        return {kind: len(items) for kind, items in self.seen.items()}

"""The zygote of a warm host: loads modules once, and is then forked for one program after the other.

    LD_PRELOAD=cloche-zygote.so CLOCHE_ZYGOTE_FD=N python3 zygote.py MODULE...

os.fork() in main is not the C library's (src/warm/preload/preload.c): it returns only in children that were
created in a sandbox of their own, with every layer in place. Such a child reads one request from its
standard input (see perform) and runs it as `python3 path argv...` would: same __main__, same sys, same
messages, same exit status.

State that must differ between two children is made anew: that of random, numpy, OpenSSL, uuid, tempfile
and multiprocessing. The hash seed and the layout of memory are shared by all children. Objects from before
the fork stay frozen: a garbage collection that examined them would copy their pages.

A child pays for each page that it writes to, and Python writes to every object that it uses. So as much as
possible is done before the fork: see stage, and src/warm/preload/pages.h for the memory.
"""
import gc
import os
import sys

CODE_PLACE = "/var/tmp/.code"  # where /run/code leads (src/warm/warm.h)
# What most requests have (src/api/rest/run_task.c); other requests take a little longer.
USUAL_PATH, USUAL_DIRECTORY, USUAL_CWD = "/tmp/.cloche/main.py", "/tmp/.cloche", "/workspace"
USUAL_ENVIRONMENT = {"PYTHONPATH": "/workspace", "NODE_PATH": "/workspace/node_modules"}
SAMPLE = b"print(42)\n"
# A longer program, so that the pages that it needs are mapped before the fork as well.
LONGER_SAMPLE = b"""
import json, re
class Pair:
    def __init__(self, *both):
        self.both = both
    def __repr__(self):
        return f"Pair({self.both[0]!r}, {self.both[1]:.2f})"
pairs = sorted((Pair(name, len(name) / 3) for name in re.findall("[a-z]+", "one two three")), key=repr)
try:
    found = {p.both[0]: [p, *range(3)] for p in pairs if p.both[1] > 1}
    found["none"]
except KeyError as error:
    found["error"] = "%s" % error
print(json.dumps(found, default=str), "-".join(found).upper().split("E"))
"""
REHEARSALS = 18
PLACE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
number = int.from_bytes


def origins():
    """The files of this interpreter: program, libraries, modules, and the directories that modules come from."""
    site = sys.modules.get("site")
    places = {sys.executable: None, **dict.fromkeys(sys.path)}
    if hasattr(site, "getsitepackages"):
        places.update(dict.fromkeys(site.getsitepackages()))
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    modules = [path for path in modules if isinstance(path, str)]
    places.update(dict.fromkeys(map(os.path.dirname, modules)))
    for place in sys.path:
        try:
            names = os.listdir(place)
        except OSError:
            continue
        places.update((os.path.join(place, n), None) for n in names if n.endswith((".pth", ".egg-link")))
    try:
        with open("/proc/self/maps", "rb") as file:
            mapped = [line.split(None, 5)[5].strip() for line in file if b"/" in line]
    except OSError:
        mapped = []
    places.update(dict.fromkeys(map(os.fsdecode, mapped)))
    places.update(dict.fromkeys(modules))
    return [path for path in places if path.startswith("/") and "\0" not in path]


def report(fd):
    """Lists these files to the warm host, which checks now and then that they have not changed."""
    parts, size = [], 0
    for path in origins():
        part = os.fsencode(path) + b"\0"
        size += len(part)
        if size > 60000:
            break
        parts.append(part)
    os.write(fd, b"".join(parts) or b"\0")


# ---- before the fork


def stage():
    """Brings the process into the state after `python3 path`, for the usual request."""
    sys.argv = [USUAL_PATH]
    ORIG_ARGV[:] = ["python3", USUAL_PATH]
    sys.path[:1] = [USUAL_DIRECTORY, USUAL_ENVIRONMENT["PYTHONPATH"]]
    module = main_module(USUAL_PATH)
    environment = [key + b"=" + value for key, value in os.environ._data.items()]
    return module, b"\0".join([USUAL_CWD.encode(), b"1", USUAL_PATH.encode(), *environment, b""])


def with_sample(sample, usual, call, *arguments):
    """Calls a function with a sample request at standard input, and drops the output."""
    streams = os.dup(0), os.dup(1)
    ends = os.pipe()
    os.write(ends[1], b"".join(len(part).to_bytes(4, "little") + part for part in (usual, sample)))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(ends[0], 0)
    os.dup2(nowhere, 1)
    for fd in (*ends, nowhere):
        os.close(fd)
    for step, *arguments in ((call, *arguments), (os.unlink, USUAL_PATH), (os.rmdir, USUAL_DIRECTORY)):
        try:
            step(*arguments)
        except OSError:
            pass  # only makes tasks slower
    flush()
    os.chdir("/")
    for fd, stream in enumerate(streams):
        os.dup2(stream, fd)
        os.close(stream)


def rehearse():
    """Runs a sample, so that what the interpreter caches on first use is there before the fork."""
    state = list(sys.path), sys.argv, list(ORIG_ARGV), sys.modules["__main__"]
    module, usual = stage()
    with_sample(SAMPLE, usual, perform, module, usual)
    sys.path[:], sys.argv, ORIG_ARGV[:], sys.modules["__main__"] = state


def send_sampler(module, usual, reseeds):
    """Forks a child that carries out a sample request, to see which pages it needs (src/warm/preload/pages.h)."""
    pid = os.fork()
    if pid == 0:
        try:
            serve(module, usual, reseeds)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)


# ---- in a child


def exactly(count):
    got = os.read(0, count)
    if len(got) == count:
        return got
    parts = []
    while got:
        parts.append(got)
        count -= len(got)
        got = os.read(0, count)
    if count:
        os._exit(0)  # the warm host closed the stream: this child is not needed
    return b"".join(parts)


def take_order(module, blob):
    """An order, as spawn_pack_order (src/guest/exec/spawn.h) packs it: cwd, count of arguments, arguments, K=V."""
    fields = blob.split(b"\0")
    end = 2 + int(fields[1])
    path = os.fsdecode(fields[2])
    directory = path.rpartition("/")[0]
    module.__file__ = module.__loader__.path = path
    sys.argv[:] = [path, *map(os.fsdecode, fields[3:end])]
    ORIG_ARGV[1:] = sys.argv
    sys.path[0] = directory
    take_environment(fields[end:-1])
    sys.path[1:2] = python_path()
    return path, CODE_PLACE if directory == "/run/code" else directory, fields[0]


def perform(module, usual):
    """
    Reads a request and carries it out: four bytes of length, then the order; the same, then the code, which is
    written to the file where tracebacks and inspect look for it. One function, because each has pages of its own.
    """
    order = exactly(number(exactly(4), "little") + 4)
    source = exactly(number(order[-4:], "little"))
    path, directory, cwd = USUAL_PATH, USUAL_DIRECTORY, USUAL_CWD
    if order[:-4] != usual:
        path, directory, cwd = take_order(module, order[:-4])
    os.mkdir(directory)
    file = os.open(path, PLACE_FLAGS, 0o644)
    rest = source
    while rest:
        rest = rest[os.write(file, rest):]
    os.close(file)
    os.chdir(cwd)
    try:
        exec(compile(source, path, "exec", 0, True), module.__dict__)
    except BaseException as error:
        return ended_by(error)
    return 0


def serve(module, usual, reseeds):
    """What a child does."""
    if reseeds:
        reseed()
    finish(module, perform(module, usual))


def main():
    known = os.environ._data
    known.pop(b"LD_PRELOAD")  # only from here: os.fork() needs it
    known.pop(b"LD_BIND_NOW", None)
    control = int(known.pop(b"CLOCHE_ZYGOTE_FD"))
    load(sys.argv[1:])
    report(control)
    os.environ.update(USUAL_ENVIRONMENT)
    for _ in range(REHEARSALS):
        rehearse()
    forget_states()
    module, usual = stage()
    reseeds = any(name in sys.modules for name in RESEEDED)
    gc.collect()
    gc.freeze()
    for sample in (SAMPLE, LONGER_SAMPLE):
        with_sample(sample, usual, send_sampler, module, usual, reseeds)
    os.fork()
    serve(module, usual, reseeds)


main()

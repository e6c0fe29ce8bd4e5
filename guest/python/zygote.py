"""A warm interpreter: loads modules once, then lends itself to one program after the other.

    LD_PRELOAD=cloche-zygote.so CLOCHE_ZYGOTE_FD=N python3 zygote.py MODULE...

os.fork() below is not the C library's (src/zygote/preload.c): it returns only in children that were
born into a sandbox of their own, with every layer in place. Such a child reads one request from its
standard input (the terms, see decode, then the code) and runs that as
`python3 path argv...` would: same __main__, same sys, same messages, same exit status.

What must not be the same in two children is made anew: the states of random, numpy, OpenSSL, uuid,
tempfile and multiprocessing. The hash seed and the layout of memory are shared by nature.
"""
import atexit
import builtins
import gc
import os
import sys
import types
from importlib.machinery import SourceFileLoader

ORIG_ARGV = getattr(sys, "orig_argv", [])  # since 3.10
CODE_PLACE = "/var/tmp/.code"  # where /run/code leads (src/sandbox/cell.h)


def preload(names):
    for name in names:
        try:
            __import__(name)
        except Exception:
            pass  # the program that wants it will be told why


def origins():
    """What this interpreter is made of: program, libraries, modules, and where others would come from."""
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
    """Tells the nest, which looks now and then whether all of that is still the same."""
    parts, size = [], 0
    for path in origins():
        part = os.fsencode(path) + b"\0"
        size += len(part)
        if size > 60000:
            break
        parts.append(part)
    os.write(fd, b"".join(parts) or b"\0")


def read_request():
    """Four bytes of length, then as many."""

    def exactly(count):
        parts = []
        while count:
            part = os.read(0, count)
            if not part:
                os._exit(0)  # not needed any more
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    size = int.from_bytes(exactly(4), "little")
    return exactly(size)


def decode(blob):
    """NUL-separated: path, cwd, count of arguments, arguments, then K=V of the environment, as bytes."""
    fields = blob.split(b"\0")
    end = 3 + int(fields[2])
    return os.fsdecode(fields[0]), fields[1], list(map(os.fsdecode, fields[3:end])), fields[end:-1]


def reseed():
    """What does not see to that itself when it is forked, as random does."""
    loaded = sys.modules
    if "numpy.random" in loaded:
        loaded["numpy.random"].seed()
    if "uuid" in loaded:
        loaded["uuid"]._node = None
        loaded["uuid"]._last_timestamp = None
    if "tempfile" in loaded:
        loaded["tempfile"]._name_sequence = None
        loaded["tempfile"].tempdir = None
    if "_ssl" in loaded:
        loaded["_ssl"].RAND_add(os.urandom(64), 64.0)
    if "multiprocessing.process" in loaded:
        process = loaded["multiprocessing.process"]
        key = process.AuthenticationString(os.urandom(32))
        process.current_process().authkey = key


def take_environment(pairs):
    """As os.environ would be; what is as it was is left alone, for each change costs."""
    known, new = os.environ._data, {}
    for pair in pairs:
        key, _, value = pair.partition(b"=")
        if key:
            new[key] = value
            if known.get(key) != value:
                os.putenv(key, value)
    for key in known:
        if key not in new:
            os.unsetenv(key)
    known.clear()
    known.update(new)


def adopt(path, cwd, arguments, environment):
    """The process as it would be after `python3 path arguments...`."""
    take_environment(environment)
    known = os.environ._data
    if b"TZ" in known and "time" in sys.modules:
        sys.modules["time"].tzset()
    os.chdir(cwd)
    sys.argv = [path] + arguments
    ORIG_ARGV[:] = ["python3", path] + arguments
    sys.path[0] = path.rpartition("/")[0]
    if b"PYTHONPATH" in known:
        sys.path[1:1] = [part for part in os.environ["PYTHONPATH"].split(":") if part]


def main_module(path):
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", path),
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = module
    return module


def show(error):
    """The traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.excepthook(type(error), error, trace)


def exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(str(code) + "\n")
    return 1


def finish(module, status):
    """What the interpreter does at its end, but for taking itself apart."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    module.__dict__.clear()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            status = status or 120
    os._exit(status)


def die_of_interrupt():
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def place(path, source):
    """Where tracebacks and inspect look for it."""
    directory = path.rpartition("/")[0]
    os.mkdir(CODE_PLACE if directory == "/run/code" else directory)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    while source:
        source = source[os.write(file, source):]
    os.close(file)


def rehearse(times):
    """
    All that is done between a request and its code, while nobody waits. In the interpreter that the
    others come from, again and again: what it learns and writes down at the first calls need not be
    copied in each child. In a child once: what is going to be copied is.
    """
    directory = "/tmp/.rehearsal"
    environment = [key + b"=" + value for key, value in os.environ._data.items()]
    blob = b"\0".join([os.fsencode(directory + "/main.py"), b"/", b"1", b"argument", *environment, b""])
    source = b"x = [str(i) for i in range(8)]\nprint('', end='')\n"
    state = list(sys.path), sys.argv, list(ORIG_ARGV), sys.modules["__main__"]
    for _ in range(times):
        path, cwd, arguments, pairs = decode(blob)
        if times > 1:
            place(path, source)
            os.unlink(path)
            os.rmdir(directory)
        adopt(path, cwd, arguments, pairs)
        module = main_module(path)
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        module.__dict__.clear()
        sys.stdout.flush()
        sys.path[:], sys.argv, ORIG_ARGV[:], sys.modules["__main__"] = state


def run(path, source):
    module = main_module(path)
    status = 0
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        status = exit_status(error.code)
    except KeyboardInterrupt as error:
        show(error)
        status = 130
        sys.stdout.flush()
        die_of_interrupt()
    except BaseException as error:
        show(error)
        status = 1
    finish(module, status)


def main():
    known = os.environ._data
    known.pop(b"LD_PRELOAD")  # only from here: os.fork() needs it
    control = int(known.pop(b"CLOCHE_ZYGOTE_FD"))
    preload(sys.argv[1:])
    report(control)
    # What most requests have: then nothing is left to be changed.
    os.environ.update(PYTHONPATH="/workspace", NODE_PATH="/workspace/node_modules")
    rehearse(16)
    gc.collect()
    gc.freeze()
    os.fork()
    reseed()
    rehearse(1)
    path, cwd, arguments, environment = decode(read_request())
    source = read_request()
    place(path, source)
    adopt(path, cwd, arguments, environment)
    gc.unfreeze()
    run(path, source)


main()

"""A warm interpreter: loads modules once, then lends itself to one program after the other.

    LD_PRELOAD=cloche-zygote.so CLOCHE_ZYGOTE_FD=N python3 zygote.py MODULE...

os.fork() below is not the C library's (src/zygote/preload.c): it returns only in children that were
born into a sandbox of their own, with every layer in place. Such a child reads one request from its
standard input (the terms, see decode, then the code) and runs that as
`python3 path argv...` would: same __main__, same sys, same messages, same exit status.

What must not be the same in two children is made anew: the states of random, numpy, OpenSSL, uuid,
tempfile and multiprocessing. The hash seed and the layout of memory are shared by nature.
"""
import builtins
import gc
import os
import sys


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


def warm_up():
    """Touches what every program touches, while nobody waits."""
    exec(compile("x = [str(i) for i in range(8)]\n", "<warm>", "exec"), {"__builtins__": builtins})
    sys.stdout.write("")
    sys.stdout.flush()


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
    """NUL-separated: path, cwd, count of arguments, arguments, then K=V of the environment."""
    fields = os.fsdecode(blob).split("\0")
    path, cwd, count = fields[0], fields[1], int(fields[2])
    return path, cwd, fields[3 : 3 + count], fields[3 + count : -1]


def reseed():
    loaded = sys.modules
    if "random" in loaded:
        loaded["random"].seed()
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


def adopt(path, cwd, arguments, environment):
    """The process as it would be after `python3 path arguments...`."""
    os.environ.clear()
    for pair in environment:
        key, _, value = pair.partition("=")
        if key:
            os.environ[key] = value
    if "time" in sys.modules and "TZ" in os.environ:
        sys.modules["time"].tzset()
    os.chdir(cwd)
    sys.argv = [path] + arguments
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = ["python3", path] + arguments
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.path[1:1] = [part for part in os.environ.get("PYTHONPATH", "").split(":") if part]


def main_module(path):
    import types
    from importlib.machinery import SourceFileLoader

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
    import atexit

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
    os.makedirs(os.path.realpath(os.path.dirname(path)), exist_ok=True)
    with open(path, "wb") as file:
        file.write(source)


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
    preload(sys.argv[1:])
    report(int(os.environ["CLOCHE_ZYGOTE_FD"]))
    gc.collect()
    gc.freeze()
    os.fork()
    warm_up()
    path, cwd, arguments, environment = decode(read_request())
    source = read_request()
    reseed()
    place(path, source)
    adopt(path, cwd, arguments, environment)
    gc.unfreeze()
    run(path, source)


main()

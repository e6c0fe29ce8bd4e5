"""One program after the other in copies of one interpreter: what makes a copy what `python3 path` would be.

Not a module: it stands in front of those that need it (zygote.py, snippet_park.py) when they are built.
"""
import atexit
import builtins
import os
import sys
import types
from importlib.machinery import SourceFileLoader

ORIG_ARGV = getattr(sys, "orig_argv", [])  # since 3.10
RESEEDED = "numpy.random", "_ssl", "multiprocessing.process"


def load(names):
    for name in names:
        try:
            __import__(name)
        except Exception:
            pass  # the program that wants it will be told why


def forget_states():
    """Of modules that make them when they need them."""
    loaded = sys.modules
    if "uuid" in loaded:
        loaded["uuid"]._node = None
        loaded["uuid"]._last_timestamp = None
    if "tempfile" in loaded:
        loaded["tempfile"]._name_sequence = None
        loaded["tempfile"].tempdir = None


def reseed():
    """What does not see to that itself when it is forked, as random does."""
    loaded = sys.modules
    if "numpy.random" in loaded:
        loaded["numpy.random"].seed()
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
    if b"TZ" in known and "time" in sys.modules:
        sys.modules["time"].tzset()


def python_path():
    """What PYTHONPATH adds to sys.path."""
    return [part for part in os.environ.get("PYTHONPATH", "").split(":") if part]


def main_module(path):
    """What `python3 path` has as __main__."""
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
    while trace is not None and trace.tb_frame.f_code.co_filename == show.__code__.co_filename:
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


def die_of_interrupt():
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def ended_by(error):
    """The status."""
    if isinstance(error, SystemExit):
        return exit_status(error.code)
    show(error)
    if not isinstance(error, KeyboardInterrupt):
        return 1
    sys.stdout.flush()
    die_of_interrupt()
    return 130


def flush():
    status = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            status = 120
    return status


def finish(module, status):
    """Ends as the interpreter does, but for taking itself apart."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    module.__dict__.clear()
    late = flush()
    os._exit(status or late)

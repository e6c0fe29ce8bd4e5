"""One program after the other in copies of one interpreter: what makes a copy what `python3 path` would be.

Not a module: it stands in front of those that need it (zygote.py, snippet_prefork.py) when they are built.
"""
import atexit
import builtins
import os
import sys
import types
from functools import partial
from importlib.machinery import SourceFileLoader

ORIG_ARGV = getattr(sys, "orig_argv", [])  # since 3.10
RESEEDED = "numpy.random", "_ssl", "multiprocessing.process"


def register_quick(register, after_in_child=None, **hooks):
    """
    random seeds its generator in each child, by a method in Python, and that looks at so much that a fifth
    of all pages that a child writes to are for it. So here is what it does, in C.
    """
    method = getattr(after_in_child, "__module__", None), getattr(after_in_child, "__qualname__", None)
    if method == ("random", "Random.seed"):
        generator = after_in_child.__self__
        register(after_in_child=partial(setattr, generator, "gauss_next", None))
        after_in_child = super(type(generator), generator).seed
    if after_in_child:
        hooks["after_in_child"] = after_in_child
    register(**hooks)


def load(names):
    register = os.register_at_fork
    os.register_at_fork = partial(register_quick, register)
    for name in names:
        try:
            __import__(name)
        except Exception:
            pass  # the program that wants it will be told why
    os.register_at_fork = register


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


def without_us(error):
    """Its traceback, without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == show.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    return type(error), error, trace


def show(error):
    what = without_us(error)
    if hasattr(sys, "excepthook"):
        sys.excepthook(*what)
    else:
        say("sys.excepthook is missing\n")
        sys.__excepthook__(*what)


def say(text):
    """To whoever reads the errors, if that can be."""
    try:
        if getattr(sys, "stderr", None) is None:
            os.write(2, os.fsencode(text))
        else:
            sys.stderr.write(text)
    except Exception:
        pass


def exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -1 << 63 <= code < 1 << 63 else 255
    try:
        text = str(code)
    except Exception:
        text = ""
    say(text + "\n")
    return 1


def die_of_interrupt():
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def ended_by(error):
    """The status."""
    if isinstance(error, SystemExit):
        return exit_status(error.code)
    try:
        show(error)
    except SystemExit as other:
        return exit_status(other.code)
    except BaseException as other:  # of a hook of the program's own
        say("Error in sys.excepthook:\n")
        other.__context__ = None
        sys.__excepthook__(*without_us(other))
        say("\nOriginal exception was:\n")
        sys.__excepthook__(*without_us(error))
    if not isinstance(error, KeyboardInterrupt):
        return 1
    flush()
    die_of_interrupt()
    return 130


def ignore(where, error):
    say("Exception ignored in: %r\n" % (where,))
    sys.__excepthook__(*without_us(error))


def flush(is_told=False):
    """Not 0: something could not be written."""
    status = 0
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except Exception as error:
            status = 120
            if name == "stdout" and not is_told:
                ignore(stream, error.with_traceback(None))
    return status


def finish(module, status, take_apart=None):
    """Ends as the interpreter does, but for taking itself apart, unless somebody does."""
    if "threading" in sys.modules:
        threading = sys.modules["threading"]
        try:
            threading._shutdown()
        except BaseException as error:
            ignore(threading, error)
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # before 3.10: it has shown it by itself
    sys.setswitchinterval(1000)  # threads that are left must not see what comes now
    late = flush()
    # What the program printed before it put others into their places.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    module.__dict__.clear()
    if take_apart:
        take_apart()
    os._exit(flush(bool(late)) or late or status)

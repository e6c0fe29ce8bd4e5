#!/usr/bin/env python3
"""The guard: looks at a Python program before it runs and controls what it may import.

    guard.py --profile strict|imports|off [--allow MODULE]... [--deny MODULE]... [--deny-node KIND]...
             [--report FILE] -- PROGRAM [ARG...]

Theory of operation
    strict    Calculations only. The program is parsed; names, attributes, imports and kinds of nodes
              are judged before any of it runs, then it runs with a small set of builtins, with
              modules that show their public names only, and with an audit hook that refuses files,
              processes, sockets and ctypes.
    imports   Ordinary Python, but its own code (not that of installed libraries) can import, look up
              or reach by attribute only the modules that the lists leave to it. The audit hook notes
              the use of files, processes, sockets and ctypes.
    off       Runs the program as it is.

    A refusal is printed to stderr, beginning with "cloche guard:", and the exit status is 1. Each
    finding is also one line of the report file: KIND TAB CATEGORY TAB TARGET TAB LINE.

This is the early and explained no. It is not the wall: code that runs in the same process can get
around it, and can forge the report. What holds is outside of this process.
"""
import ast
import builtins
import os
import re
import sys
import sysconfig
import types

# Started with -I, Python does not look beside the script by itself.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from guard_rules import (MACHINERY, MAX_LINES, STATE, Checker, Finding, Formats, GuardDenied,
                         GuardImportError, Lists, Modules, Report, deny, program_line, safe_builtins)
import guard_rules
sys.path.pop(0)
del sys.modules["guard_rules"]  # not for the program

GUARD_FILES = (__file__, guard_rules.__file__)
PROFILES = ("strict", "imports", "off")
MAX_SHOWN = 20  # findings printed

# ---- the audit hook -------------------------------------------------------------------------------

EVENTS = {"open": "file", "subprocess.Popen": "process", "pty.spawn": "process"}
for _names, _category in (
    ("chdir chflags chmod chown fwalk getxattr link listdir listxattr lockf mkdir remove removexattr "
     "rename rmdir scandir setxattr symlink truncate utime walk", "file"),
    ("exec fork forkpty kill killpg posix_spawn spawn startfile system", "process"),
):
    EVENTS.update(("os." + _name, _category) for _name in _names.split())
PREFIXES = {"shutil": "file", "tempfile": "file", "glob": "file", "pathlib": "file", "socket": "socket",
            "urllib": "socket", "http": "socket", "ftplib": "socket", "smtplib": "socket",
            "ctypes": "ctypes", "mmap": "file", "sqlite3": "file"}


# ---- imports: while it runs -----------------------------------------------------------------------


def library_prefixes():
    """Directories whose code is not the program's own."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(key)}
    found.update(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))
    found.add(os.path.dirname(os.__file__))
    return tuple(os.path.join(os.path.realpath(p), "") for p in found) + \
        tuple(os.path.join(p, "") for p in found)


class Imports:
    """Keeps the program's own code to its lists; libraries import what they need."""

    def __init__(self, lists):
        self.lists, self.libraries = lists, library_prefixes()
        self.real_import, self.real_modules = builtins.__import__, sys.modules

    def is_library(self, filename):
        return filename.startswith("<frozen ") or filename.startswith(self.libraries)

    def asked_by_program(self, past_importlib=False):
        """Whether the code that asks, past the guard's own, is the program's."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in GUARD_FILES and not (past_importlib and name.startswith("<frozen importlib")):
                return not self.is_library(name)
            frame = frame.f_back
        return False

    def check(self, full):
        reason = self.lists.refuses(full)
        if reason:
            deny("import", full, reason)

    def absolute(self, name, scope, level):
        if not level:
            return name
        package = (scope or {}).get("__package__") or ""
        return ".".join(package.split(".")[: package.count(".") + 2 - level] + [name]).strip(".")

    def do_import(self, name, globals=None, locals=None, fromlist=(), level=0):
        if not self.asked_by_program():
            return self.real_import(name, globals, locals, fromlist, level)
        full = self.absolute(name, globals, level)
        self.check(full)
        for part in fromlist or ():
            if full + "." + str(part) in MACHINERY:
                self.check(full + "." + part)
        return self.shade(self.real_import(name, globals, locals, fromlist, level))

    def shade(self, module):
        """From now on the program does not reach denied modules through this one."""
        if type(module) is types.ModuleType:
            try:
                module.__class__ = self.shaded
            except TypeError:
                pass
        return module

    def wrap(self, real):
        def import_by_name(name, *args, **kwargs):
            if self.asked_by_program():
                package = kwargs.get("package", args[0] if args else None)
                text = name.__name__ if isinstance(name, types.ModuleType) else str(name)
                self.check(text if not text.startswith(".") else "%s%s" % (package, text))
                return self.shade(real(name, *args, **kwargs))
            return real(name, *args, **kwargs)

        return import_by_name

    def install(self):
        import importlib

        self.shaded = make_shaded(self)
        builtins.__import__ = self.do_import
        for name in ("import_module", "__import__", "reload"):
            setattr(importlib, name, self.wrap(getattr(importlib, name)))
        sys.modules = LoadedModules(self)


def make_shaded(control):
    plain = types.ModuleType.__getattribute__

    class ShadedModule(types.ModuleType):
        def __getattribute__(self, name):
            value = plain(self, name)
            if isinstance(value, types.ModuleType):
                if control.asked_by_program():
                    reason = control.lists.refuses(plain(value, "__name__"))
                    if reason:
                        deny("import", plain(value, "__name__"), reason)
                    control.shade(value)
            elif name == "__dict__" and control.asked_by_program():
                return {k: v for k, v in value.items() if not isinstance(v, types.ModuleType)
                        or not control.lists.refuses(plain(v, "__name__"))}
            return value

    return ShadedModule


class LoadedModules:
    """sys.modules, in which the program finds only what it could import."""

    def __init__(self, control):
        self._control, self._real = control, control.real_modules

    def _hides(self, name):
        return self._control.asked_by_program() and self._control.lists.refuses(str(name))

    def __getitem__(self, name):
        reason = self._hides(name)
        if reason and name in self._real:
            deny("import", name, reason)
        return self._real[name]

    def get(self, name, default=None):
        return default if self._hides(name) else self._real.get(name, default)

    def __contains__(self, name):
        return name in self._real and not self._hides(name)

    def copy(self):
        if not self._control.asked_by_program():
            return dict(self._real)
        return {k: v for k, v in list(self._real.items()) if not self._control.lists.refuses(k)}

    def __iter__(self):
        return iter(self.copy())

    def __len__(self):
        return len(self.copy())

    def keys(self):
        return self.copy().keys()

    def values(self):
        return self.copy().values()

    def items(self):
        return self.copy().items()

    def __setitem__(self, name, module):
        self._real[name] = module

    def __delitem__(self, name):
        del self._real[name]

    def pop(self, name, *default):
        return self._real.pop(name, *default)

    def setdefault(self, name, module=None):
        return self._real.setdefault(name, module)

    def update(self, *args, **kwargs):
        self._real.update(*args, **kwargs)


# ---- the audit hook -------------------------------------------------------------------------------


class Watch:
    """Sees what the interpreter reports of itself; refuses under strict, notes otherwise."""

    def __init__(self, profile, program, control):
        self.refuse, self.program, self.control = profile == "strict", program, control
        self.active, self.seen = False, {}

    def hook(self, event, args):
        if not self.active:
            return
        if event in ("import", "pickle.find_class", "compile", "code.__new__"):
            if self.control:
                self.check_import(event, args)
            return
        category = EVENTS.get(event) or PREFIXES.get(event.partition(".")[0])
        if category and not (category == "file" and self.is_own(event, args)):
            self.act(category, event, args)

    def check_import(self, event, args):
        """The ways to a module, or to looking like a library, that are no import statement."""
        if event == "import" and self.control.asked_by_program(True):
            self.control.check(str(args[0]))
        elif event == "pickle.find_class":
            self.control.check(str(args[0]))
        elif event == "compile" and isinstance(args[1], (str, bytes)):
            if self.control.is_library(os.fsdecode(args[1])) and self.control.asked_by_program():
                deny("builtin", "compile", "code must not pretend to be a library's")
        elif event == "code.__new__" and self.control.asked_by_program():
            deny("builtin", "code", "code must not pretend to be a library's")

    def is_own(self, event, args):
        """Files that the interpreter uses for itself: modules, and source lines for a message."""
        if event == "open" and args and args[0] == self.program:
            return True
        frame = sys._getframe(2)
        for _ in range(200):
            if frame is None:
                return False
            name = frame.f_code.co_filename
            if name.startswith("<frozen importlib") or name.endswith(("/linecache.py", "/zipimport.py")):
                return True
            frame = frame.f_back
        return False

    def act(self, category, event, args):
        target = args[0] if args else ""
        if category == "socket" and len(args) > 1 and not isinstance(target, str):
            target = args[1]
        text = event if isinstance(target, int) or target is None else "%s %s" % (event, target)
        if self.refuse:
            deny(category, text, "%s: not a calculation" % event)
        if text not in self.seen and len(self.seen) < MAX_LINES:
            self.seen[text] = True
            STATE.report.write("noted", category, text, program_line())


# ---- running --------------------------------------------------------------------------------------


def print_findings(profile, findings, source):
    lines = source.decode("utf-8", "replace").splitlines()
    say = ["cloche guard: refused by profile %s, nothing was run" % profile]
    for found in findings[:MAX_SHOWN]:
        STATE.report.write("refused", found.category, found.target, found.line)
        say.append('  File "%s", line %d' % (STATE.program, found.line))
        if 0 < found.line <= len(lines):
            say.append("    " + lines[found.line - 1].strip()[:200])
        say.append("  %s%s" % (found.reason, advice(profile, found)))
    if len(findings) > MAX_SHOWN:
        say.append("  ... and %d more" % (len(findings) - MAX_SHOWN))
    sys.stderr.write("\n".join(say) + "\n")


def advice(profile, found):
    if found.category == "import":
        return "; to allow it: guard_allow %s" % found.target.partition(".")[0]
    return "; other code than calculations: guard imports" if profile == "strict" else ""


def print_exception(error):
    """As the interpreter does, without the guard's own frames."""
    import traceback

    whole = traceback.TracebackException(type(error), error, error.__traceback__)
    part, depth = whole, 0
    while part is not None and depth < 50:
        part.stack[:] = [f for f in part.stack if f.filename not in GUARD_FILES
                         and not f.filename.startswith("<frozen importlib")]
        part, depth = part.__cause__ or part.__context__, depth + 1
    if isinstance(error, (GuardImportError, GuardDenied)):
        sys.stderr.write("cloche guard: refused while it ran\n")
    sys.stderr.write("".join(whole.format()))


def parse(source):
    """The tree, or a finding that says why there is none."""
    cookie = re.match(rb"(?:[^\n]*\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", source)
    if cookie and cookie.group(1).lower() not in (b"utf-8", b"utf8", b"ascii", b"latin-1"):
        return None, Finding("syntax", "coding", 1, "the source must be UTF-8")
    try:
        return ast.parse(source, STATE.program), None
    except SyntaxError as error:
        return None, Finding("syntax", "syntax", error.lineno or 0, "not Python: %s" % error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return None, Finding("syntax", "syntax", 0, "cannot be parsed: %s" % error)


def prepare_strict(source, options, lists):
    """The program's code and its globals, or None after saying why not."""
    tree, problem = parse(source)
    findings = [problem] if problem else Checker(lists, options["deny_node"]).check(tree)
    if findings:
        print_findings("strict", findings, source)
        return None
    try:
        code = compile(Formats().visit(tree), STATE.program, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        print_findings("strict", [Finding("syntax", "syntax", getattr(error, "lineno", 0) or 0,
                                          "not Python: %s" % error)], source)
        return None
    return code, {"__builtins__": safe_builtins(Modules(lists))}


def prepare_plain(source):
    return compile(source, STATE.program, "exec", dont_inherit=True), {"__builtins__": builtins}


def run(code, scope, watch):
    """Executes the program as __main__; the exit status, or None if it ended by itself."""
    main = types.ModuleType("__main__")
    main.__dict__.update(scope, __file__=STATE.program)
    sys.modules["__main__"] = main
    try:
        watch.active = True
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        watch.active = False
        print_exception(error)
        return 1
    return None


def read_options(argv):
    options = {"profile": "strict", "allow": [], "deny": [], "deny_node": [], "report": None}
    while argv and argv[0] != "--":
        name = argv.pop(0)
        key = name[2:].replace("-", "_")
        if not name.startswith("--") or key not in options or not argv:
            sys.exit("cloche guard: option %s is not known or has no value" % name)
        value = argv.pop(0)
        if isinstance(options[key], list):
            options[key].append(value)
        else:
            options[key] = value
    if len(argv) < 2 or options["profile"] not in PROFILES:
        sys.exit("cloche guard: wants --profile %s -- PROGRAM" % "|".join(PROFILES))
    return options, argv[1:]


def search_paths(options):
    """What -I left out: modules beside the program and in the workspace, unless strict."""
    if options["profile"] == "strict" and not options["allow"]:
        return
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    user = os.path.expanduser("~/.local/lib/python%d.%d/site-packages" % sys.version_info[:2])
    sys.path[:0] = [os.path.dirname(STATE.program)] + paths
    if os.path.isdir(user):
        sys.path.append(user)


def main():
    options, argv = read_options(sys.argv[1:])
    sys.argv[:] = argv
    STATE.program = argv[0]
    STATE.report = Report(options["report"])
    with open(STATE.program, "rb") as file:
        source = file.read()
    profile = options["profile"]
    search_paths(options)
    lists = Lists(profile, options["allow"], options["deny"])
    control = Imports(lists) if profile == "imports" else None
    watch = Watch(profile, STATE.program, control)
    try:
        made = prepare_strict(source, options, lists) if profile == "strict" else prepare_plain(source)
    except (SyntaxError, ValueError) as error:
        print_exception(error)
        return 1
    if made is None:
        return 1
    if control:
        control.install()
    if profile != "off":
        sys.addaudithook(watch.hook)
    return run(made[0], made[1], watch)


if __name__ == "__main__":
    sys.exit(main())

"""What the guard refuses, and how strict runs a program. The guard itself is guard.py."""
import ast
import builtins
import os
import re
import string
import sys
import types

import _string

MAX_LINES = 256  # of the report
MAX_TARGET = 120

# What `strict` can import without being told: modules that compute.
COMPUTING = frozenset(
    "abc array base64 binascii bisect calendar cmath collections contextlib copy dataclasses "
    "datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac itertools json "
    "math numbers operator pprint random re secrets statistics string struct textwrap time typing "
    "unicodedata uuid zlib __future__".split()
)
# What `imports` denies without being told: native code, processes, network, and the machinery that
# would import on somebody's behalf.
RISKY = frozenset(
    "_ctypes _frozen_importlib _frozen_importlib_external _imp _posixsubprocess _socket _ssl asyncio "
    "asyncore bdb cffi code codeop ctypes ftplib gc http imaplib imp marshal mmap multiprocessing "
    "nntplib pdb pkgutil poplib posix pty runpy smtplib socket socketserver ssl subprocess telnetlib "
    "urllib xmlrpc zipimport".split()
)
# Parts of importlib that load by other ways than an import.
MACHINERY = frozenset(
    "importlib." + part
    for part in "_abc _bootstrap _bootstrap_external abc machinery resources simple util".split()
)
# What the interpreter itself imports in the name of whoever calls it.
INTERNAL = frozenset(("_strptime", "_compat_pickle"))
# Modules that are known under the name of another.
SAME_AS = {"posixpath": "os", "ntpath": "os", "genericpath": "os", "_io": "io", "_collections_abc":
           "collections"}

# ---- what strict refuses --------------------------------------------------------------------------

# Builtins that only compute. What needs a check of its own is added by safe_builtins().
BUILTINS = (
    "ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BufferError "
    "DeprecationWarning EOFError Ellipsis Exception ExceptionGroup False FloatingPointError "
    "GeneratorExit ImportError IndexError KeyError KeyboardInterrupt LookupError MemoryError "
    "ModuleNotFoundError NameError None NotImplemented NotImplementedError OSError OverflowError "
    "PermissionError RecursionError RuntimeError RuntimeWarning StopAsyncIteration StopIteration "
    "SyntaxError SystemExit TimeoutError True TypeError UnboundLocalError UnicodeDecodeError "
    "UnicodeEncodeError UnicodeError UserWarning ValueError Warning ZeroDivisionError abs all any "
    "ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate exit "
    "filter float format frozenset hash hex id input int isinstance issubclass iter len list map max "
    "min next object oct ord pow print property quit range repr reversed round set slice sorted "
    "staticmethod str sum super tuple zip __build_class__ __debug__"
).split()
GUARDED = ("delattr", "getattr", "hasattr", "setattr", "type", "__import__")

# Methods that a class may define, and that may be called by name.
DUNDERS = frozenset(
    "__%s__" % name
    for name in (
        "init new post_init call str repr format bytes hash bool len length_hint iter next reversed "
        "contains getitem setitem delitem missing getattr setattr delattr enter exit eq ne lt le gt "
        "ge add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor radd rsub "
        "rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor iadd isub "
        "imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor neg pos abs invert "
        "complex int float index round trunc floor ceil get set delete set_name init_subclass "
        "class_getitem name doc slots qualname members version copy deepcopy"
    ).split()
)
# Names of the program's own module that it may read.
MODULE_NAMES = frozenset(("__name__", "__file__", "__doc__", "__debug__"))
# Attributes that lead from a harmless object to frames, code, globals or other classes.
LEADS_OUT = re.compile(
    r"(gi|cr|ag)_(frame|code|running|suspended|yieldfrom|await|origin)|f_(back|builtins|code|globals|"
    r"locals|trace|lineno|lasti|generator)|tb_(frame|next|lasti|lineno)|co_[a-z]+|func_[a-z]+|"
    r"im_(class|func|self)|mro|register"
)
REFUSED_NODES = {
    "AsyncFor": "asynchronous code has frames that can be walked",
    "AsyncFunctionDef": "asynchronous code has frames that can be walked",
    "AsyncWith": "asynchronous code has frames that can be walked",
    "Await": "asynchronous code has frames that can be walked",
    "TryStar": "except* is not needed for calculations",
}
IDENTIFIERS = ("id", "attr", "name", "arg", "rest")

# Public names that would undo the checks, by module.
HIDDEN = {
    "dataclasses": ("make_dataclass",),
    "string": ("Formatter",),
    "typing": ("ForwardRef", "get_type_hints", "evaluate_forward_ref"),
    "enum": ("global_enum", "global_enum_repr"),
    "uuid": ("getnode", "uuid1", "main"),
}

# ---- findings ------------------------------------------------------------------------------------


class GuardImportError(ImportError):
    """An import that the lists do not leave to the program."""


class GuardDenied(PermissionError):
    """An act that the profile refuses."""


for _class in (GuardImportError, GuardDenied):
    _class.__module__ = "builtins"  # shown without the name of this file


class Finding:
    def __init__(self, category, target, line, reason, column=0):
        self.category, self.target, self.line, self.reason = category, target, line, reason
        self.column = column


class Report:
    """Findings on their way to whoever started us: plain lines in a file, as many as fit."""

    def __init__(self, path):
        self.fd, self.left = -1, MAX_LINES
        if not path:
            return
        if not os.path.isabs(path):
            path = os.path.join(os.environ.get("TMPDIR") or "/tmp", path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.fd = os.open(path, flags, 0o600)
        except OSError:
            pass  # the report only informs

    def write(self, kind, category, target, line):
        if self.fd < 0 or self.left == 0:
            return
        self.left -= 1
        target = re.sub(r"[^ -~]", "?", str(target))[:MAX_TARGET]
        try:
            os.write(self.fd, ("%s\t%s\t%s\t%d\n" % (kind, category, target, line or 0)).encode())
        except OSError:
            self.left = 0


class Lists:
    """Which modules the program's own code may have, by top-level name; a denial wins."""

    def __init__(self, profile, allow, deny):
        self.allow, self.deny = set(allow), set(deny)
        self.named_only = profile == "imports" and bool(allow)
        self.default_allow = COMPUTING if profile == "strict" else None

    def refuses(self, full):
        """None, or the reason why this module is not for the program."""
        full = SAME_AS.get(full, full)
        top = full.partition(".")[0]
        if full in INTERNAL:
            return None
        if top in self.deny or full in self.deny:
            return "module '%s' is on the deny list" % top
        if top in self.allow and not (full in MACHINERY and full not in self.allow):
            return None
        if self.default_allow is not None:
            return None if top in self.default_allow else "module '%s' is not one that only computes" % top
        if self.named_only and full not in self.allow:
            return "module '%s' is not on the allow list" % top
        if top in RISKY or full in MACHINERY:
            return "module '%s' starts processes, opens sockets, or loads code" % full
        return None


class State:
    report = Report(None)
    program = ""


STATE = State()


def program_line():
    """The line of the program that is being executed, or 0."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == STATE.program:
            return frame.f_lineno
        frame = frame.f_back
    return 0


def deny(category, target, reason):
    STATE.report.write("refused", category, target, program_line())
    if category == "import":
        raise GuardImportError("cloche guard: %s" % reason, name=str(target))
    raise GuardDenied("cloche guard: %s" % reason)


# ---- strict: before it runs -----------------------------------------------------------------------


def refuse_attribute(name):
    """None, or why an attribute of this name is out of reach."""
    if LEADS_OUT.fullmatch(name):
        return "attribute '%s' leads out of the program" % name
    if name.startswith("__") and name.endswith("__") and name not in DUNDERS:
        return "attribute '%s' leads out of the program" % name
    if name == "obj":
        return "attribute 'obj' of an error leads out of the program"
    return None


def refuse_name(name):
    """The same for variables, functions, classes, arguments."""
    if LEADS_OUT.fullmatch(name) and name not in ("mro", "register"):
        return "name '%s' is kept for the interpreter" % name
    if name.startswith("__") and name.endswith("__") and name not in DUNDERS | MODULE_NAMES:
        return "name '%s' is kept for the interpreter" % name
    return None


class Checker:
    """Judges a parsed program; what it finds is in self.findings, in the order of lines."""

    def __init__(self, lists, denied_nodes):
        self.lists, self.findings = lists, []
        self.nodes = dict(REFUSED_NODES)
        self.nodes.update((name, "this kind of code was denied") for name in denied_nodes)

    def add(self, node, category, target, reason):
        self.findings.append(Finding(category, target, getattr(node, "lineno", 0), reason,
                                     getattr(node, "col_offset", 0)))

    def check(self, tree):
        bound = {node.id for node in ast.walk(tree)
                 if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        bound |= {getattr(node, "name", None) or getattr(node, "arg", None) for node in ast.walk(tree)
                  if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.arg, ast.ExceptHandler))}
        bound |= {alias.asname or alias.name for node in ast.walk(tree)
                  if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
        for node in ast.walk(tree):
            self.check_kind(node)
            self.check_identifiers(node)
            method = getattr(self, "check_" + type(node).__name__, None)
            if method:
                method(node, bound)
        self.findings.sort(key=lambda f: (f.line, f.column))
        return self.findings

    def check_kind(self, node):
        kind = type(node).__name__
        if kind in self.nodes:
            self.add(node, "node", kind, "%s: %s" % (kind, self.nodes[kind]))

    def check_identifiers(self, node):
        for field in IDENTIFIERS:
            name = getattr(node, field, None)
            if not isinstance(name, str) or isinstance(node, ast.alias):
                continue
            judge = refuse_attribute if field == "attr" else refuse_name
            reason = judge(name)
            if reason:
                self.add(node, "attribute" if field == "attr" else "name", name, reason)
        for name in getattr(node, "kwd_attrs", ()):
            reason = refuse_attribute(name)
            if reason:
                self.add(node, "attribute", name, reason)

    def check_Name(self, node, bound):
        name = node.id
        if isinstance(node.ctx, ast.Load) and name not in bound and hasattr(builtins, name) \
                and name not in BUILTINS and name not in GUARDED and name not in MODULE_NAMES:
            self.add(node, "builtin", name, "builtin '%s' is not one that only computes" % name)

    def check_Import(self, node, _bound):
        self.check_new_names(node)
        for alias in node.names:
            self.check_module(node, alias.name)

    def check_ImportFrom(self, node, _bound):
        if node.level:
            self.add(node, "import", "." * node.level + (node.module or ""),
                     "relative imports have nothing to be relative to")
            return
        self.check_new_names(node)
        self.check_module(node, node.module)
        for alias in node.names:
            reason = refuse_attribute(alias.name)
            if reason and node.module != "__future__":
                self.add(node, "attribute", alias.name, reason)

    def check_new_names(self, node):
        for alias in node.names:
            reason = alias.asname and refuse_name(alias.asname)
            if reason:
                self.add(node, "name", alias.asname, reason)

    def check_module(self, node, name):
        reason = self.lists.refuses(name)
        if reason:
            self.add(node, "import", name, reason)

    def check_Global(self, node, _bound):
        for name in node.names:
            if refuse_name(name):
                self.add(node, "name", name, refuse_name(name))

    check_Nonlocal = check_Global

    def check_ClassDef(self, node, _bound):
        if any(keyword.arg == "metaclass" for keyword in node.keywords):
            self.add(node, "name", "metaclass", "classes with a metaclass of their own")


class Formats(ast.NodeTransformer):
    """str.format reaches attributes by text: every use of it goes through the guard's own."""

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if node.attr not in ("format", "format_map") or not isinstance(node.ctx, ast.Load):
            return node
        call = ast.Call(func=ast.Name(id="__guard_format__", ctx=ast.Load()),
                        args=[node.value, ast.Constant(value=node.attr)], keywords=[])
        return ast.fix_missing_locations(ast.copy_location(call, node))


# ---- strict: while it runs ------------------------------------------------------------------------


def checked_name(name):
    if type(name) is not str:
        deny("attribute", "name", "the name of an attribute must be a plain string")
    reason = refuse_attribute(name)
    if reason:
        deny("attribute", name, reason)
    return name


def guarded_format(value, attribute):
    """What `value.format` gives: of text, a method that checks the attributes that it is asked for."""
    found = getattr(value, attribute)
    owner = getattr(found, "__self__", None)
    whole = SafeFormatter().vformat
    if found in (str.format, str.format_map):
        if attribute == "format":
            return lambda text, *args, **kwargs: whole(str.__str__(text), args, kwargs)
        return lambda text, mapping: whole(str.__str__(text), (), mapping)
    if isinstance(owner, str) and isinstance(found, types.BuiltinMethodType):
        text = str.__str__(owner)
        if attribute == "format":
            return lambda *args, **kwargs: whole(text, args, kwargs)
        return lambda mapping: whole(text, (), mapping)
    return found


class SafeFormatter(string.Formatter):
    def get_field(self, field_name, args, kwargs):
        first, rest = _string.formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = safe_getattr(value, key) if is_attribute else value[key]
        return value, first


def safe_getattr(value, name, *default):
    checked_name(name)
    if name in ("format", "format_map"):
        return guarded_format(value, name)
    return getattr(value, name, *default)


def safe_hasattr(value, name):
    return hasattr(value, checked_name(name))


def safe_setattr(value, name, new):
    setattr(value, checked_name(name), new)


def safe_delattr(value, name):
    delattr(value, checked_name(name))


def safe_type(value, *rest):
    if rest:
        deny("builtin", "type", "type() with three arguments makes classes past the checks")
    kind = type(value)
    return safe_type if kind is type else kind


def safe_attrgetter(*names):
    paths = [[checked_name(part) for part in str.__str__(name).split(".")] for name in names]

    def get(value):
        found = []
        for path in paths:
            item = value
            for part in path:
                item = safe_getattr(item, part)
            found.append(item)
        return found[0] if len(found) == 1 else tuple(found)

    return get


def safe_methodcaller(name, *args, **kwargs):
    checked_name(name)
    return lambda value: safe_getattr(value, name)(*args, **kwargs)


def safe_update_wrapper(wrapper, wrapped, *_ignored, **_ignored_too):
    """Copies what a wrapper shows, and nothing else that the program could name."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if isinstance(wrapper, types.FunctionType) and hasattr(wrapped, name):
            setattr(wrapper, name, getattr(wrapped, name))
    return wrapper


def safe_wraps(wrapped, *_ignored, **_ignored_too):
    return lambda wrapper: safe_update_wrapper(wrapper, wrapped)


REPLACED = {
    "operator": {"attrgetter": safe_attrgetter, "methodcaller": safe_methodcaller},
    "functools": {"update_wrapper": safe_update_wrapper, "wraps": safe_wraps},
}


class Shown(types.ModuleType):
    """A module as strict shows it: public names, no other modules, nothing to be changed."""

    def __setattr__(self, name, value):
        deny("attribute", name, "modules cannot be changed")

    def __delattr__(self, name):
        deny("attribute", name, "modules cannot be changed")


class Modules:
    """The import of strict: makes and keeps what it shows."""

    def __init__(self, lists):
        self.lists, self.shown = lists, {}
        self.real_import = builtins.__import__

    def show(self, module):
        name = module.__name__
        if name in self.shown:
            return self.shown[name]
        shown = self.shown[name] = Shown(name, module.__doc__)
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[:1] != "_"]
        for public in names:
            value = getattr(module, public, None)
            if public in HIDDEN.get(name, ()) or not hasattr(module, public):
                continue
            if isinstance(value, types.ModuleType):
                continue
            shown.__dict__[public] = REPLACED.get(name, {}).get(public, value)
        shown.__dict__["__version__"] = str(getattr(module, "__version__", ""))
        self.show_parts(module, shown)
        return shown

    def show_parts(self, module, shown):
        """Submodules that are loaded already; those of the same package only."""
        start = module.__name__ + "."
        for name, value in list(vars(module).items()):
            if isinstance(value, types.ModuleType) and value.__name__.startswith(start) \
                    and name[:1] != "_":
                shown.__dict__[name] = self.show(value)

    def load(self, name):
        return self.real_import(name, {}, {}, ("*",), 0)

    def __call__(self, name, globals=None, locals=None, fromlist=(), level=0):
        if type(name) is not str or level:
            deny("import", name, "relative imports have nothing to be relative to")
        reason = self.lists.refuses(name)
        if reason:
            deny("import", name, reason)
        leaf = self.show(self.load(name))
        parts = name.split(".")
        for depth in range(len(parts) - 1, 0, -1):
            parent = self.show(self.load(".".join(parts[:depth])))
            parent.__dict__[parts[depth]] = self.show(self.load(".".join(parts[:depth + 1])))
        for public in fromlist or ():
            if public != "*" and public not in leaf.__dict__:
                self.load_part(name, public, leaf)
        return leaf if fromlist else self.show(self.load(parts[0]))

    def load_part(self, name, public, leaf):
        """`from package import part`, where part is a module that nobody has loaded yet."""
        if public[:1] == "_" or not hasattr(self.load(name), "__path__"):
            return
        try:
            leaf.__dict__[public] = self.show(self.load(name + "." + public))
        except ImportError:
            pass


def safe_builtins(modules):
    table = {name: getattr(builtins, name) for name in BUILTINS if hasattr(builtins, name)}
    table.update(getattr=safe_getattr, hasattr=safe_hasattr, setattr=safe_setattr,
                 delattr=safe_delattr, type=safe_type, exit=sys.exit, quit=sys.exit)
    table["__import__"] = modules.__call__
    table["__guard_format__"] = guarded_format
    return table

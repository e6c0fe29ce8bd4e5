#!/usr/bin/env python3
"""A small kernel: keeps the state of Python code between executions, and shows rich results.

The protocol (the same in guest/js/kernel.js and kernel_bash.py)

    One JSON object per line, requests on stdin, answers on stdout, ASCII only. stdin and stdout are
    moved away before any user code runs: fd 0 of user code is /dev/null, fds 1 and 2 are pipes that
    the kernel reads. Start it in the directory that the context is to begin in; when stdin ends, the
    kernel ends. Whoever reads must trust nothing: user code can find the protocol's fds and forge
    lines. No answer is longer than 8 MB.

    Requests, executed one after the other
      {"id": ANY, "op": "execute", "code": "1+1", "env": {"K": "V"}?, "cwd": "/dir"?}
            env holds for this execution only; cwd is where it starts, and stays
      {"id": ANY, "op": "ping"}           -> {"id", "type": "pong"}
      {"op": "shutdown"}                  ends the kernel
      Interrupt: SIGINT to the kernel's process. What runs ends with the error KeyboardInterrupt,
      and the state stays. It counts from "started" to "end"; else it has no effect.

    Answers
      {"type": "ready", "protocol": 1, "language": "python", "version": "3.11.2", "pid": 7}   first
      {"id", "type": "started", "execution_count": 1}
      {"id", "type": "stdout"|"stderr", "text": "..."}     id null: while nothing was being executed
      {"id", "type": "result", "is_main_result": true|false, "text": "42", and any of "html",
            "markdown", "svg", "png", "jpeg", "pdf" (base64), "latex", "json", "javascript", "data",
            "chart", "extra": {mime: value}}               true: the value of the last expression
      {"id", "type": "error", "name": "ZeroDivisionError", "value": "division by zero",
            "traceback": "..."}
      {"id", "type": "end", "status": "ok"|"error", "execution_count": 1}      last of an execution
      {"id", "type": "bad_request", "message": "..."}      the line was not a request

Cells are Python as IPython takes it, as far as it is common: top-level await, a trailing ; for no
result, `!cmd`, `x = !cmd`, `%pip` and other magics,
display(), In, Out and _. Where IPython is installed, its magics and `?` are used (kernel_ipython.py), else those of
kernel_magics.py. Figures of matplotlib are shown by plt.show() and at the end of a cell, images of PIL by show() and
when they are saved to a file.
"""
import ast
import asyncio
import base64
import builtins
import codecs
import inspect
import json
import linecache
import os
import re
import select
import signal
import sys
import textwrap
import threading
import traceback
import types

KERNEL_DIR = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, KERNEL_DIR)
from kernel_magics import Magics, rewrite  # noqa: E402

STREAM_MAX = 64 << 10  # characters of one stdout or stderr message
TEXT_MAX = 256 << 10  # characters of one textual form of a result
BINARY_MAX = 4 << 20  # bytes of one base64 form
REQUEST_MAX = 64 << 20

MIME_KEYS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
    "application/json": "json", "application/javascript": "javascript", "e2b/data": "data",
    "e2b/chart": "chart",
}
METHODS = (
    ("_repr_html_", "html"), ("_repr_markdown_", "markdown"), ("_repr_svg_", "svg"),
    ("_repr_png_", "png"), ("_repr_jpeg_", "jpeg"), ("_repr_pdf_", "pdf"), ("_repr_latex_", "latex"),
    ("_repr_json_", "json"), ("_repr_javascript_", "javascript"),
)
BINARY = ("png", "jpeg", "pdf")


class StdinNotImplementedError(NotImplementedError):
    """input() in a place where nobody can answer."""


# ---- the channel ----------------------------------------------------------------------------------


class Channel:
    """The protocol's fds, out of user code's way, and the pipes behind fds 1 and 2."""

    def __init__(self):
        self.requests = os.fdopen(self.move(0), "rb")
        self.answers = self.move(1)
        self.lock = threading.RLock()
        self.id = None
        self.sending = self.interrupted = False
        self.pipes = {}
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        for fd, name in ((1, "stdout"), (2, "stderr")):
            reader, writer = os.pipe()
            os.dup2(writer, fd)
            os.close(writer)
            os.set_blocking(reader, False)
            self.pipes[reader] = (name, codecs.getincrementaldecoder("utf-8")("replace"))
        threading.Thread(target=self.pump, daemon=True).start()

    @staticmethod
    def move(fd):
        """To a number that user code's own files will not have, and not for its children."""
        import fcntl

        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)

    def send(self, kind, **fields):
        """Whole lines only: an interrupt waits for the end of one that the main thread writes."""
        line = json.dumps({"id": self.id, "type": kind, **fields}, ensure_ascii=True).encode() + b"\n"
        is_main = threading.current_thread() is threading.main_thread()
        if is_main:  # the only thread that may touch it
            self.sending = True
        with self.lock:
            while line:
                line = line[os.write(self.answers, line):]
        if is_main:
            self.sending = False
            self.check_interrupt()

    def check_interrupt(self):
        """What came while it had to wait."""
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def pump(self):
        while True:
            ready = select.select(list(self.pipes), [], [])[0]
            with self.lock:
                for fd in ready:
                    self.read_pipe(fd)

    def read_pipe(self, fd):
        """One message of what is there by now; False if there is nothing."""
        name, decoder = self.pipes[fd]
        try:
            data = os.read(fd, STREAM_MAX)
        except BlockingIOError:
            return False
        text = decoder.decode(data)
        if text:
            self.send(name, text=text)
        return bool(data)

    def drain(self):
        """All that was printed so far goes before what comes next."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        with self.lock:
            for fd in self.pipes:
                for _ in range(1000):
                    if not self.read_pipe(fd):
                        break


# ---- rich results ---------------------------------------------------------------------------------


def cut(text):
    if len(text) <= TEXT_MAX:
        return text
    return text[:TEXT_MAX] + "\n... [truncated, %d characters in all]" % len(text)


def plain_text(value):
    try:
        text = repr(value)
    except Exception as error:
        text = "<%s object whose repr() failed: %s>" % (type(value).__name__, type(error).__name__)
    if len(text) > 1 and isinstance(value, str):
        text = text[1:-1] if len(text) <= TEXT_MAX else value
    return text


def to_wire(key, value):
    """A form of a result as JSON can carry it, or None."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[0]  # with metadata
    if value is None:
        return None
    if key in BINARY:
        data = base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)
        return data if len(data) <= BINARY_MAX * 4 // 3 else None
    if key in ("json", "data", "chart") or not isinstance(value, str):
        text = json.dumps(value, default=str)
        return json.loads(text) if len(text) <= TEXT_MAX else None
    return cut(value)


def split_bundle(bundle):
    """Forms by MIME type as the protocol's keys, and those that it has no key for."""
    forms, extra = {}, {}
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    for mime, form in (bundle or {}).items():
        if mime in MIME_KEYS:
            forms[MIME_KEYS[mime]] = form
        else:
            extra[mime] = form
    return forms, extra


def collect(value, shell=None):
    """All forms that an object offers, by the protocol's keys; shell: IPython's, with its formatters."""
    if isinstance(value, type):
        return pack({"text": plain_text(value)}, None)
    if shell and not isinstance(value, str):
        forms, extra = split_bundle(shell.display_formatter.format(value))
    else:
        forms, extra = split_bundle(call(value, "_repr_mimebundle_"))
    for method, key in METHODS:
        if key not in forms:
            forms[key] = call(value, method)
    add_known(value, forms)
    forms.setdefault("text", plain_text(value))
    return pack(forms, extra)


def pack(forms, extra):
    packed = {}
    for key, form in list(forms.items()) + [("extra", extra or None)]:
        try:
            wire = to_wire(key, form)
        except (TypeError, ValueError, RecursionError):
            wire = None
        if wire is not None:
            packed[key] = wire
        elif form is not None:
            packed["text"] = "%s\n[%s left out: too large or not serialisable]" % (
                packed.get("text", forms.get("text")), key)
    return packed


def call(value, method):
    """What a representation method gives; its failure is not the cell's."""
    try:
        function = getattr(value, method, None)
        return function() if callable(function) else None
    except Exception:
        return None


def add_known(value, forms):
    """Objects that cannot show themselves, or can do more than they say."""
    module = type(value).__module__ or ""
    if module.startswith("matplotlib.") and hasattr(value, "savefig") and hasattr(value, "axes"):
        forms.update(figure_forms(value))
    if module.startswith("pandas.") and type(value).__name__ == "DataFrame":
        forms["data"] = frame_data(value)


def frame_data(frame):
    try:
        columns = frame.head(1000).to_dict(orient="list")
        return {str(name): [None if item != item else item for item in column]
                for name, column in columns.items()}
    except Exception:
        return None


def figure_forms(figure):
    import io

    image = io.BytesIO()
    figure.savefig(image, format="png", bbox_inches="tight")
    forms = {"png": image.getvalue(), "text": "<Figure size %dx%d with %d Axes>" % (
        *(figure.get_size_inches() * figure.dpi), len(figure.axes))}
    try:
        from kernel_charts import chart_of

        forms["chart"] = chart_of(figure)
    except Exception:
        pass  # a chart that cannot be described is still a picture
    return forms


class Html:
    """What display() of the small IPython stand-in wraps: one form of data."""

    key = "html"

    def __init__(self, data=None, **_options):
        self.data = data

    def _repr_mimebundle_(self, **_options):
        mime = next(mime for mime, key in MIME_KEYS.items() if key == self.key)
        return {mime: self.data, "text/plain": "<IPython.core.display.%s object>" % type(self).__name__}


def make_display_module(kernel):
    """`from IPython.display import HTML, display` where IPython is not installed."""
    module = types.ModuleType("IPython.display")
    names = {"HTML": "html", "Markdown": "markdown", "SVG": "svg", "Latex": "latex", "Math": "latex",
             "JSON": "json", "Javascript": "javascript", "Pretty": "text"}
    for name, key in names.items():
        setattr(module, name, type(name, (Html,), {"key": key}))

    class Image(Html):
        def __init__(self, data=None, filename=None, format="png", **options):
            if filename or isinstance(data, str) and os.path.exists(data):
                with open(filename or data, "rb") as file:
                    data = file.read()
            Html.__init__(self, data)
            self.key = "jpeg" if format in ("jpg", "jpeg") else format

    module.Image, module.display = Image, kernel.display
    module.clear_output = lambda *args, **options: None
    package = types.ModuleType("IPython")
    package.display, package.get_ipython = module, lambda: None  # libraries take None for "no shell"
    package.__path__ = []
    return {"IPython": package, "IPython.display": module}


class ImportHooks:
    """Changes modules as soon as they are imported, so that what they show comes to us."""

    def __init__(self, kernel):
        self.kernel, self.busy = kernel, False
        self.hooks = {"matplotlib.pyplot": self.prepare_pyplot, "PIL.Image": self.prepare_pil,
                      "IPython": self.prepare_ipython}
        for name, prepare in self.hooks.items():
            if name in sys.modules:
                prepare(sys.modules[name])

    def find_spec(self, name, path=None, target=None):
        if name not in self.hooks or self.busy:
            return None
        import importlib.util

        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec and spec.loader:
            real = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (real(module), self.hooks[name](module))
        return spec

    def prepare_pyplot(self, pyplot):
        """Draws into memory."""
        pyplot.switch_backend("agg")
        pyplot.show = lambda *args, **options: self.kernel.show_figures()
        axes = sys.modules["matplotlib.axes"].Axes
        real = axes.bxp

        def bxp(self, bxpstats, *args, **options):
            bxpstats = list(bxpstats)
            self._kernel_boxes = getattr(self, "_kernel_boxes", []) + bxpstats
            return real(self, bxpstats, *args, **options)

        axes.bxp = bxp

    def prepare_pil(self, module):
        """show() and save() to a file display; but matplotlib saves figures that are shown anyway."""
        kernel, real = self.kernel, module.Image.save

        def save(self, fp, format=None, **options):
            real(self, fp, format, **options)
            by = sys._getframe(1).f_globals.get("__name__") or ""
            if isinstance(fp, (str, os.PathLike)) and by.partition(".")[0] not in ("matplotlib", "PIL"):
                kernel.display(self)

        module.Image.save = save
        module.Image.show = lambda self, *args, **options: kernel.display(self)

    def prepare_ipython(self, _module):
        """IPython's own display() only prints where there is no shell."""
        self.kernel.get_shell()


# ---- errors ---------------------------------------------------------------------------------------


def format_error(error, count):
    """A traceback as IPython prints it, without colours."""
    name = type(error).__name__
    head = "-" * 75 + "\n%-42sTraceback (most recent call last)\n" % name
    text = safe_str(error)
    if isinstance(error, SyntaxError) and str(error.filename).startswith("<cell "):
        lines = traceback.format_exception_only(type(error), error)
        return "".join(lines).replace('  File "%s", line' % error.filename, "  Cell In[%d], line" % count)
    parts, depth = [], 0
    while error is not None and depth < 20:
        note = "" if depth == 0 else "\n\nDuring handling of the above exception, another exception " \
                                     "occurred:\n\n" if error.__cause__ is None else "\n\n"
        frames = [format_frame(*row) for row in frames_of(error.__traceback__)]
        parts.insert(0, (head if depth == 0 else "") + "\n".join(frames) +
                     "\n%s: %s" % (type(error).__name__, safe_str(error)) + ("" if depth == 0 else note))
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
        depth += 1
    return cut("".join(parts)) if parts else "%s: %s" % (name, text)


def safe_str(error):
    try:
        return cut(str(error))
    except Exception:
        return "<no message: str() failed>"


def frames_of(tb):
    """The frames that are not the kernel's own; of a deep recursion both ends."""
    rows = [(frame, line) for frame, line in traceback.walk_tb(tb)
            if os.path.dirname(frame.f_code.co_filename) != KERNEL_DIR]
    return rows if len(rows) <= 30 else rows[:15] + rows[-15:]


def format_frame(frame, line):
    name, function = frame.f_code.co_filename, frame.f_code.co_name
    match = re.fullmatch(r"<cell (\d+)>", name)
    where = "Cell In[%s], line %d" % (match.group(1), line) if match else "File %s:%d" % (name, line)
    if function != "<module>":
        where += ", in %s(%s)" % (function, ", ".join(
            frame.f_code.co_varnames[:frame.f_code.co_argcount]))
    lines = []
    for number in range(max(1, line - 2), line + 3):
        source = linecache.getline(name, number)
        if source:
            mark = "----> %d" % number if number == line else "%7d" % number
            lines.append("%s %s" % (mark.rjust(7), source.rstrip("\n")))
    return where + "\n" + "\n".join(lines) + ("\n" if lines else "")


def is_loop(frame):
    """Whether this is the event loop's own code."""
    return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "asyncio", "selectors")


# ---- the kernel -----------------------------------------------------------------------------------


class Kernel(Magics):
    def __init__(self):
        self.channel = Channel()
        self.count, self.failed = 0, False
        self.accepted = self.early = self.running = False  # how far an execution has come
        self.pid, self.loop, self.task, self.cancelled = os.getpid(), None, None, False
        self.main = types.ModuleType("__main__")
        self.scope = self.main.__dict__
        self.inputs, self.outputs, self.shell = [""], {}, None
        self.prepare()

    def prepare(self):
        """The interpreter as user code expects it."""
        sys.modules["__main__"] = self.main
        sys.argv[:] = [""]
        sys.path[:] = [""] + [p for p in sys.path if p != KERNEL_DIR] + [KERNEL_DIR]  # kernel_charts
        sys.stdin = open(os.devnull, encoding="utf-8")
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        self.scope.update(__builtins__=builtins, _="", __="", ___="")
        self.set_names()
        builtins.input = self.refuse_input
        builtins.display, builtins.get_ipython = self.display, self.get_shell
        import importlib.util

        self.has_ipython = importlib.util.find_spec("IPython") is not None
        if not self.has_ipython:
            sys.modules.update(make_display_module(self))
        sys.meta_path.insert(0, ImportHooks(self))

    def set_names(self):
        names = {"display": self.display, "get_ipython": self.get_shell, "In": self.inputs, "Out": self.outputs}
        self.scope.update(names)
        return names

    def get_shell(self):
        """IPython's shell, made when it is first needed; the kernel itself has the most common methods of one."""
        if self.has_ipython:
            self.has_ipython = False  # from now on there is a shell, or IPython does not work
            try:
                from kernel_ipython import make_shell

                self.shell = make_shell(self)
            except Exception as error:
                self.set_names()
                print("kernel: IPython cannot be used: %s" % safe_str(error), file=sys.stderr)
        return self.shell or self

    @staticmethod
    def refuse_input(_prompt=""):
        raise StdinNotImplementedError("input() was called, but nobody can answer in this kernel; "
                                       "put the value into a variable or a file")

    def on_interrupt(self, _number, frame):
        if self.running and self.channel.sending:
            self.channel.interrupted = True
        elif self.running and self.task and is_loop(frame) and not self.cancelled:
            # An exception in the middle of the event loop could lose a step of the task for good.
            self.cancelled = True
            self.task.cancel()
            self.loop.call_soon_threadsafe(lambda: None)
        elif self.running:
            raise KeyboardInterrupt
        elif self.accepted:
            self.early = True

    def show(self, value, is_main):
        self.channel.drain()
        self.channel.send("result", is_main_result=is_main, **collect(value, self.shell))

    def publish(self, bundle):
        """Shows something of which only the forms are known."""
        self.channel.drain()
        self.channel.send("result", is_main_result=False, **pack(*split_bundle(bundle)))

    def remember(self, value):
        """Out[N], _N, and _, __, ___ for the last three values."""
        scope = self.scope
        self.outputs[self.count] = scope["_%d" % self.count] = value
        scope["_"], scope["__"], scope["___"] = value, scope.get("_"), scope.get("__")

    def display(self, *values, **_options):
        for value in values:
            self.show(value, False)

    def show_figures(self):
        """Figures of pyplot that are open: shown, and closed."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        for number in pyplot.get_fignums() if hasattr(pyplot, "get_fignums") else []:
            figure = pyplot.figure(number)
            if figure.axes:
                self.show(figure, False)
        if hasattr(pyplot, "close"):
            pyplot.close("all")

    def run_code(self, code):
        """Executes a cell in the user's scope and returns the value of its last expression."""
        name = "<cell %d>" % self.count
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        codes = [compile(tree, name, "exec", flags, dont_inherit=True)]
        if last is not None:
            codes.append(compile(last, name, "eval", flags, dont_inherit=True))
        values = [self.evaluate(code) for code in codes]
        return values[1] if last is not None else None

    def evaluate(self, code):
        value = eval(code, self.scope)
        if code.co_flags & inspect.CO_COROUTINE:
            return self.wait_for(value)
        return value

    def wait_for(self, coroutine):
        """Runs top-level await in a loop that lives on between cells."""
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.cancelled = False
        task = self.task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except asyncio.CancelledError:
            if self.cancelled:
                raise KeyboardInterrupt from None
            raise
        except KeyboardInterrupt:
            self.task = None
            task.cancel()
            self.loop.run_until_complete(asyncio.wait([task], timeout=1))
            raise
        finally:
            self.task = None

    def report(self, error):
        self.failed = True
        self.channel.drain()
        self.channel.send("error", name=type(error).__name__, value=safe_str(error),
                          traceback=format_error(error, self.count))

    def run_cell(self, code):
        """One cell; errors are answers. Whatever happens, the kernel goes on."""
        try:
            try:
                self.running = True
                if self.early:
                    raise KeyboardInterrupt
                code = textwrap.dedent(code).lstrip("\n")
                self.inputs.append(code)
                value = self.run_code(rewrite(code, self))
                self.leave_children()
                if value is not None:
                    self.remember(value)
                    self.show(value, True)
                self.show_figures()
            finally:
                self.running = False
        except BaseException as error:
            self.running = self.channel.interrupted = False
            self.leave_children()
            self.report(error)

    def leave_children(self):
        """A child that user code forked must not become a second kernel."""
        if os.getpid() != self.pid:
            try:
                sys.stdout.flush()
            finally:
                os._exit(0)

    def execute(self, request):
        env = request.get("env") or {}
        saved = {name: os.environ.get(name) for name in env}
        self.count += 1
        self.failed = self.early = False
        self.accepted = True
        self.channel.send("started", execution_count=self.count)
        try:
            os.environ.update(env)
            if request.get("cwd"):
                os.chdir(request["cwd"])
            self.run_cell(request["code"])
        except OSError as error:
            self.report(error)
        finally:
            self.leave_children()
            self.accepted = False
            for name, value in saved.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            signal.signal(signal.SIGINT, self.on_interrupt)
        self.channel.drain()
        self.channel.send("end", status="error" if self.failed else "ok", execution_count=self.count)

    language = "python"

    def version(self):
        return "%d.%d.%d" % sys.version_info[:3]

    @staticmethod
    def problem(request):
        if not isinstance(request, dict):
            return "a request is a JSON object"
        if request.get("op") not in ("execute", "ping", "shutdown"):
            return "op: one of execute, ping, shutdown"
        if request["op"] == "execute" and not isinstance(request.get("code"), str):
            return "code: must be a string"
        env = request.get("env") or {}
        if not isinstance(env, dict) or not all(
                isinstance(k, str) and isinstance(v, str) and k and "=" not in k and "\0" not in k + v
                for k, v in env.items()):
            return "env: must map names to strings"
        if not isinstance(request.get("cwd") or "", str):
            return "cwd: must be a string"
        return None

    def serve(self):
        signal.signal(signal.SIGINT, self.on_interrupt)
        self.channel.send("ready", protocol=1, language=self.language, pid=self.pid,
                          version=self.version())
        while True:
            line = self.channel.requests.readline(REQUEST_MAX)
            if not line:
                return
            try:
                request = json.loads(line)
            except ValueError:
                request = None
            problem = self.problem(request)
            self.channel.id = request.get("id") if isinstance(request, dict) else None
            if problem:
                self.channel.send("bad_request", message=problem)
            elif request["op"] == "shutdown":
                return
            elif request["op"] == "ping":
                self.channel.send("pong")
            else:
                self.execute(request)
            self.channel.id = None


if __name__ == "__main__":
    Kernel().serve()
    os._exit(0)  # threads of user code do not keep the kernel alive

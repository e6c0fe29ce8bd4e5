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
result, `!cmd`, `x = !cmd`, `%cd`, `%env`, `%pwd`, `%pip`, `%time`, `%%bash`, `%%writefile`,
display(). Figures of matplotlib are shown by plt.show() and at the end of a cell.
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
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import types

KERNEL_FILE = __file__
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


class UsageError(Exception):
    """A magic that is not known or was used wrongly."""


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


def collect(value):
    """All forms that an object offers, by the protocol's keys."""
    forms, extra = {}, {}
    if isinstance(value, type):
        return pack({"text": plain_text(value)}, None)
    bundle = call(value, "_repr_mimebundle_")
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    for mime, form in (bundle or {}).items():
        if mime in MIME_KEYS:
            forms[MIME_KEYS[mime]] = form
        else:
            extra[mime] = form
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


def make_display_module(display):
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

    module.Image, module.display = Image, display
    module.clear_output = lambda *args, **options: None
    package = types.ModuleType("IPython")
    package.display, package.get_ipython = module, lambda: None
    package.__path__ = []
    return {"IPython": package, "IPython.display": module}


class PyplotFinder:
    """Makes pyplot draw into memory, and its show() speak to us, as soon as it is imported."""

    def __init__(self, kernel):
        self.kernel, self.busy = kernel, False

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.pyplot" or self.busy:
            return None
        import importlib.util

        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec and spec.loader:
            real = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (real(module), self.prepare(module))
        return spec

    def prepare(self, pyplot):
        pyplot.switch_backend("agg")
        pyplot.show = lambda *args, **options: self.kernel.show_figures()
        axes = sys.modules["matplotlib.axes"].Axes
        real = axes.bxp

        def bxp(self, bxpstats, *args, **options):
            bxpstats = list(bxpstats)
            self._kernel_boxes = getattr(self, "_kernel_boxes", []) + bxpstats
            return real(self, bxpstats, *args, **options)

        axes.bxp = bxp


# ---- magics ---------------------------------------------------------------------------------------

MAGIC = re.compile(r"^(\s*)(?:([\w.\[\]'\", ]+?)\s*=\s*)?([!%])(?![=%\s])(.*)$")


def rewrite(code):
    """IPython's lines as Python; only what does not parse as it is needs it."""
    if code.lstrip().startswith("%%"):
        first, _, rest = code.lstrip().partition("\n")
        return "get_kernel().cell_magic(%r, %r)" % (first[2:].strip(), rest)
    try:
        ast.parse(code)
        return code
    except (SyntaxError, ValueError):
        pass
    lines, out, index = code.split("\n"), [], 0
    while index < len(lines):
        line = lines[index]
        match = MAGIC.match(line)
        while match and line.endswith("\\") and index + 1 < len(lines):
            index += 1
            line = line[:-1] + lines[index]
            match = MAGIC.match(line)
            out.append("")
        out.append(rewrite_line(match) if match else line)
        index += 1
    return "\n".join(out)


def rewrite_line(match):
    indent, target, sign, rest = match.groups()
    if sign == "!" and target:
        return "%s%s = get_kernel().capture(%r)" % (indent, target, rest)
    call_text = "get_kernel().%s(%r)" % ("system" if sign == "!" else "magic", rest)
    return "%s%s%s" % (indent, target + " = " if target else "", call_text)


class Magics:
    """`!cmd` and the few % that people use in cells; mixed into the kernel."""

    def expand(self, text):
        """{name} and $name of the user's variables, as IPython puts them into commands."""
        scope = self.scope

        def value(match):
            name = match.group(1) or match.group(2)
            return str(scope[name]) if name in scope else match.group(0)

        return re.sub(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", value, text)

    def run_shell(self, command, **options):
        sys.stdout.flush()
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        process, text = None, self.expand(command)
        self.channel.sending = True  # an interrupt in the middle of Popen would leave a child behind
        try:
            process = subprocess.Popen([shell, "-c", text], start_new_session=True,
                                       stdin=subprocess.DEVNULL, **options)
            self.channel.sending = False
            self.channel.check_interrupt()
            out = process.communicate()[0]
        except BaseException:
            self.channel.sending = False
            if process and process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise
        self.scope["_exit_code"] = process.returncode
        return out

    def system(self, command):
        if command.startswith("!"):
            command = command[1:]
        self.run_shell(command)

    def capture(self, command):
        return self.run_shell(command, stdout=subprocess.PIPE).decode("utf-8", "replace").splitlines()

    def magic(self, text):
        name, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        method = getattr(self, "magic_" + name, None)
        if name in ("matplotlib", "load_ext", "autoreload", "config", "reload_ext"):
            return None
        if method is None:
            raise UsageError("Line magic function `%%%s` not found." % name)
        return method(rest)

    def magic_cd(self, rest):
        os.chdir(os.path.expanduser(self.expand(rest) or "~"))
        print(os.getcwd())

    def magic_pwd(self, _rest):
        return os.getcwd()

    def magic_env(self, rest):
        name, equals, value = rest.replace(" ", "=", 1).partition("=") if rest else ("", "", "")
        if not name:
            return dict(os.environ)
        if not equals:
            return os.environ.get(name)
        os.environ[name] = self.expand(value.strip())
        print("env: %s=%s" % (name, os.environ[name]))
        return None

    def magic_pip(self, rest):
        self.run_shell("%s -m pip %s" % (shlex.quote(sys.executable), rest))

    def magic_ls(self, rest):
        self.run_shell("ls " + rest)

    def magic_time(self, rest):
        begun, cpu = time.perf_counter(), time.process_time()
        value = self.run_code(rewrite(rest))
        print("CPU times: %.3g s\nWall time: %.3g s" % (
            time.process_time() - cpu, time.perf_counter() - begun))
        return value

    def cell_magic(self, first, body):
        name, _, rest = first.partition(" ")
        if name in ("bash", "sh", "script"):
            self.run_shell(body)
        elif name == "writefile":
            with open(os.path.expanduser(rest.strip()), "w", encoding="utf-8") as file:
                file.write(body)
            print("Writing " + rest.strip())
        elif name == "time":
            return self.magic_time(body)
        elif name in ("capture", "python", "python3"):
            return self.run_code(rewrite(body))
        else:
            raise UsageError("Cell magic `%%%%%s` not found." % name)
        return None


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
            if frame.f_code.co_filename != KERNEL_FILE]
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
        self.prepare()

    def prepare(self):
        """The interpreter as user code expects it."""
        sys.modules["__main__"] = self.main
        sys.argv[:] = [""]
        sys.path[:] = [""] + [p for p in sys.path if p != os.path.dirname(os.path.abspath(KERNEL_FILE))]
        sys.path.append(os.path.dirname(os.path.abspath(KERNEL_FILE)))  # kernel_charts
        sys.stdin = open(os.devnull, encoding="utf-8")
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        self.scope.update(display=self.display, get_kernel=lambda: self, __builtins__=builtins)
        builtins.input = self.refuse_input
        builtins.display, builtins.get_kernel = self.display, lambda: self
        import importlib.util

        if importlib.util.find_spec("IPython") is None:
            sys.modules.update(make_display_module(self.display))
        finder = PyplotFinder(self)
        sys.meta_path.insert(0, finder)
        if "matplotlib.pyplot" in sys.modules:
            finder.prepare(sys.modules["matplotlib.pyplot"])

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
        self.channel.send("result", is_main_result=is_main, **collect(value))

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
                value = self.run_code(rewrite(textwrap.dedent(code).lstrip("\n")))
                self.leave_children()
                if value is not None:
                    self.scope["_"] = value
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

"""IPython's `!cmd`, `%magic`, `%%magic` and `object?` in cells: found and rewritten as Python.

Where IPython is installed it does that itself (kernel_ipython.py); else Magics, which is mixed into the kernel, has the
most common ones. `!cmd` always runs here.
"""
import ast
import contextlib
import inspect
import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
import timeit

MAGIC = re.compile(r"^(\s*)(?:([\w.\[\]'\", ]+?)\s*=\s*)?([!%])(?![=%\s])(.*)$")
HELP = re.compile(r"^\s*(?:\?{1,2}\s*([\w.]+)|([\w.]+)\s*\?{1,2})\s*$")
PIP = re.compile(r"^\s*pip3?\s+(-{0,2}[a-z].*)$")
QUIET = ("matplotlib", "load_ext", "autoreload", "config", "reload_ext", "pylab", "precision", "xmode", "colors")
SHOWN = {"html": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml",
         "javascript": "application/javascript", "js": "application/javascript"}


class UsageError(Exception):
    """A magic that is not known or was used wrongly."""


def rewrite(code, kernel):
    """A cell as Python; only what does not parse as it is needs it."""
    pip = PIP.match(code)
    if pip and "\n" not in code.strip() and "pip" not in kernel.scope:
        code = "%pip " + pip.group(1)
    if not code.lstrip().startswith("%%"):
        try:
            ast.parse(code)
            return code
        except (SyntaxError, ValueError):
            pass
    shell = kernel.get_shell()
    return rewrite_here(code) if shell is kernel else shell.transform_cell(code)


def rewrite_here(code):
    if code.lstrip().startswith("%%"):
        first, _, rest = code.lstrip().partition("\n")
        name, _, line = first[2:].strip().partition(" ")
        return "get_ipython().run_cell_magic(%r, %r, %r)" % (name, line.strip(), rest)
    lines, out, index = code.split("\n"), [], 0
    while index < len(lines):
        line = lines[index]
        match = MAGIC.match(line)
        while match and line.endswith("\\") and index + 1 < len(lines):
            index += 1
            line = line[:-1] + lines[index]
            match = MAGIC.match(line)
            out.append("")
        asked = HELP.match(line)
        if asked:
            line = "get_ipython().run_line_magic('pinfo', %r)" % (asked.group(1) or asked.group(2))
        out.append(rewrite_line(match) if match else line)
        index += 1
    return "\n".join(out)


def rewrite_line(match):
    indent, target, sign, rest = match.groups()
    name, _, line = rest.strip().partition(" ")
    if sign == "%":
        text = "run_line_magic(%r, %r)" % (name, line.strip())
    else:
        text = "%s(%r)" % ("getoutput" if target else "system", rest)
    return "%s%sget_ipython().%s" % (indent, target + " = " if target else "", text)


def time_text(seconds):
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= unit or unit == 1e-9:
            return "%.3g %s" % (seconds / unit, name)
    return ""


def describe(value, name):
    """What `name?` prints."""
    lines = []
    with contextlib.suppress(TypeError, ValueError):
        lines.append("Signature: %s%s" % (name, inspect.signature(value)))
    lines.append("Type:      " + type(value).__name__)
    if not callable(value) and not inspect.ismodule(value):
        lines.append("String form: " + str(value)[:500])
    with contextlib.suppress(TypeError, OSError):
        lines.append("File:      " + inspect.getfile(value))
    lines.append("Docstring: " + (inspect.getdoc(value) or "<no docstring>"))
    return "\n".join(lines)


class Captured:
    """What %%capture NAME puts into a variable."""

    def __init__(self, out, err):
        self.stdout, self.stderr = out, err

    def __str__(self):
        return self.stdout

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __call__ = show


class Magics:
    def expand(self, text):
        """{name} and $name of the user's variables, as IPython puts them into commands."""
        scope = self.scope

        def value(match):
            name = match.group(1) or match.group(2)
            return str(scope[name]) if name in scope else match.group(0)

        return re.sub(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", value, text)

    def run_shell(self, command, **options):
        """Runs a command whose variables are in place already."""
        sys.stdout.flush()
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        process = None
        self.channel.sending = True  # an interrupt in the middle of Popen would leave a child behind
        try:
            process = subprocess.Popen([shell, "-c", command], start_new_session=True,
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

    # ---- the methods of IPython's shell that rewritten cells call ----

    def system(self, command):
        self.run_shell(self.expand(command[1:] if command.startswith("!") else command))

    def getoutput(self, command):
        return self.capture(self.expand(command))

    def capture(self, command):
        return self.run_shell(command, stdout=subprocess.PIPE).decode("utf-8", "replace").splitlines()

    def run_line_magic(self, name, line):
        method = getattr(self, "magic_" + name, None)
        if name in QUIET:
            return None
        if method is None:
            raise UsageError("Line magic function `%%%s` not found." % name)
        return method(line)

    def run_cell_magic(self, name, line, cell):
        method = getattr(self, "cell_" + name, None)
        if name in SHOWN:
            return self.publish({SHOWN[name]: cell, "text/plain": "<%s>" % name})
        if method is None:
            raise UsageError("Cell magic `%%%%%s` not found." % name)
        return method(line, cell)

    def magic(self, text):
        name, _, line = text.strip().lstrip("%").partition(" ")
        return self.run_line_magic(name, line.strip())

    def run_text(self, code):
        return self.run_code(rewrite(code, self))

    # ---- of lines ----

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

    magic_set_env = magic_env

    def magic_pip(self, rest):
        self.run_shell("%s -m pip %s" % (shlex.quote(sys.executable), self.expand(rest)))

    def magic_ls(self, rest):
        self.run_shell("ls " + self.expand(rest))

    def magic_sx(self, rest):
        return self.getoutput(rest)

    def magic_time(self, rest):
        begun, cpu = time.perf_counter(), time.process_time()
        value = self.run_text(rest)
        print("CPU times: %.3g s\nWall time: %.3g s" % (
            time.process_time() - cpu, time.perf_counter() - begun))
        return value

    def time_code(self, rest, body):
        """-n LOOPS -r REPEATS, then the statement; body: of %%timeit, for which the line is the preparation."""
        words, options = rest.split(), {"-n": 0, "-r": 7}
        while words and words[0][:2] in options:
            text = words.pop(0)
            number = text[2:] or (words.pop(0) if words else "")
            if not number.isdigit():
                raise UsageError("%%timeit: %s needs a number" % text[:2])
            options[text[:2]] = int(number)
        code = " ".join(words) if body is None else body
        timer = timeit.Timer(rewrite(code, self), "pass" if body is None else " ".join(words) or "pass",
                             globals=self.scope)
        loops, repeats = options["-n"] or timer.autorange()[0], max(options["-r"], 1)
        each = [t / loops for t in timer.repeat(repeats, loops)]
        mean = sum(each) / repeats
        spread = (sum((t - mean) ** 2 for t in each) / repeats) ** 0.5
        print("%s +- %s per loop (mean +- std. dev. of %d run%s, %d loop%s each)" % (
            time_text(mean), time_text(spread), repeats, "s"[repeats == 1:], loops, "s"[loops == 1:]))

    def magic_timeit(self, rest):
        self.time_code(rest, None)

    def magic_run(self, rest):
        """A program as __main__; its names are the cell's afterwards."""
        words = [w for w in shlex.split(self.expand(rest)) if w not in ("-i", "-e")]
        if not words:
            raise UsageError("%run: which file?")
        path = os.path.expanduser(words[0])
        path = path if os.path.exists(path) or path.endswith(".py") else path + ".py"
        argv, main, sys.argv[:] = sys.argv[:], self.main, [path] + words[1:]
        try:
            names = runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
            names = {}
        finally:
            sys.argv[:] = argv
            sys.modules["__main__"] = main
        self.scope.update((n, v) for n, v in names.items() if not n.startswith("__"))

    def user_names(self):
        return sorted(n for n, v in self.scope.items() if not n.startswith("_") and v is not self.inputs and
                      v is not self.outputs and n not in ("display", "get_ipython"))

    def magic_who(self, _rest):
        print("\t ".join(self.user_names()) or "Interactive namespace is empty.")

    def magic_who_ls(self, _rest):
        return self.user_names()

    def magic_whos(self, _rest):
        print("%-16s%-16s%s\n%s" % ("Variable", "Type", "Data/Info", "-" * 44))
        for name in self.user_names():
            value = self.scope[name]
            print("%-16s%-16s%s" % (name, type(value).__name__, repr(value)[:60].split("\n")[0]))

    def magic_reset(self, _rest):
        for name in self.user_names():
            del self.scope[name]

    def magic_history(self, _rest):
        print("\n".join(self.inputs[1:-1]))

    def magic_lsmagic(self, _rest):
        for prefix, sign in (("magic_", "%"), ("cell_", "%%")):
            names = sorted(n[len(prefix):] for n in dir(self) if n.startswith(prefix) and n != "cell_magic")
            print("Available %s magics:\n%s" % ("line" if sign == "%" else "cell",
                                                " ".join(sign + n for n in names)))

    def magic_pinfo(self, rest):
        try:
            value = eval(rest, self.scope)
        except (NameError, AttributeError):
            print("Object `%s` not found." % rest)
        else:
            print(describe(value, rest))

    # ---- of cells ----

    def cell_bash(self, _line, cell):
        self.run_shell(cell)

    cell_sh = cell_script = cell_bash

    def cell_writefile(self, line, cell):
        words = line.split()
        path, mode = os.path.expanduser(words[-1] if words else ""), "a" if "-a" in words[:-1] else "w"
        with open(path, mode, encoding="utf-8") as file:
            file.write(cell)
        print("%s %s" % ("Appending to" if mode == "a" else "Writing", path))

    def cell_time(self, _line, cell):
        return self.magic_time(cell)

    def cell_timeit(self, line, cell):
        self.time_code(line, cell)

    def cell_capture(self, line, cell):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.run_text(cell)
        name = next((w for w in line.split() if not w.startswith("-")), None)
        if name:
            self.scope[name] = Captured(out.getvalue(), err.getvalue())

    def cell_python(self, _line, cell):
        return self.run_text(cell)

    cell_python3 = cell_python

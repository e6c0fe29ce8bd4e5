"""The kernels of the code interpreter, spoken to as the daemon does: JSON lines, without a sandbox.

Each test starts a kernel of its own. Nothing waits for a clock: an interrupt is sent when the cell
has printed that it is there.
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

import cl

GUEST = os.path.join(cl.TOP, "guest")
COMMANDS = {
    "python": (cl.PYTHON, os.path.join(GUEST, "python", "kernel.py")),
    "bash": (cl.PYTHON, os.path.join(GUEST, "python", "kernel_bash.py")),
    "javascript": ("node", os.path.join(GUEST, "js", "kernel.js")),
}
PATIENCE = 60


class Cell:
    """What one execution answered."""

    def __init__(self, messages):
        self.messages = messages
        self.out, self.err = self.text("stdout"), self.text("stderr")
        self.results = [m for m in messages if m["type"] == "result"]
        self.main = next((m for m in self.results if m["is_main_result"]), None)
        self.error = next((m for m in messages if m["type"] == "error"), None)
        self.status = messages[-1]["status"]

    def text(self, kind):
        return "".join(m["text"] for m in self.messages if m["type"] == kind)


class Kernel:
    def __init__(self, language, cwd, **env):
        self.p = subprocess.Popen(
            COMMANDS[language], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=cwd, env=cl.caller_env(**env), start_new_session=True)
        self.buffer, self.sent = b"", 0
        self.ready = self.read()

    def read(self):
        end = time.monotonic() + PATIENCE
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.p.stdout], [], [], left)[0]:
                raise AssertionError("the kernel says nothing")
            data = os.read(self.p.stdout.fileno(), 1 << 20)
            if not data:
                raise AssertionError("the kernel ended: %r" % self.p.stderr.read(4000))
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        line.decode("ascii")
        return json.loads(line)

    def send(self, request):
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        self.p.stdin.write(data + b"\n")
        self.p.stdin.flush()

    def run(self, code, interrupt_at=None, **fields):
        """Executes; with interrupt_at, sends SIGINT when that has been printed."""
        self.sent += 1
        self.send({"id": self.sent, "op": "execute", "code": code, **fields})
        messages, seen = [], ""
        while not messages or messages[-1]["type"] != "end":
            message = self.read()
            if message["id"] is None and message["type"] in ("stdout", "stderr"):
                continue
            assert message["id"] == self.sent, message
            messages.append(message)
            seen += message.get("text", "") if message["type"] == "stdout" else ""
            if interrupt_at and interrupt_at in seen:
                interrupt_at = None
                self.p.send_signal(signal.SIGINT)
        return Cell(messages)

    def end_input(self):
        if self.p.stdin:
            self.p.stdin.close()
        self.p.stdin = None

    def stop(self):
        """A kernel ends with its input, and takes what it started along."""
        self.end_input()
        try:
            self.p.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.communicate()
            raise


class Case(cl.Case):
    language = "python"

    def setUp(self):
        super().setUp()
        if not shutil.which(COMMANDS[self.language][0]):
            self.skipTest("%s is not installed" % COMMANDS[self.language][0])
        self.k = self.start()

    def start(self, **env):
        kernel = Kernel(self.language, self.dir, **env)
        self.addCleanup(kernel.stop)
        return kernel

    def main(self, code, **fields):
        cell = self.k.run(code, **fields)
        self.assertIsNone(cell.error, cell.error)
        self.assertIsNotNone(cell.main, cell.messages)
        return cell.main

    def value(self, code, **fields):
        return self.main(code, **fields)["text"]

    def fails(self, code, name, value=None):
        cell = self.k.run(code)
        self.assertEqual(cell.status, "error", cell.messages)
        self.assertEqual(cell.error["name"], name)
        if value is not None:
            self.assertEqual(cell.error["value"], value)
        return cell.error


class Protocol(Case):
    def test_ready(self):
        self.assertEqual((self.k.ready["type"], self.k.ready["language"]), ("ready", "python"))
        self.assertEqual((self.k.ready["protocol"], self.k.ready["pid"]), (1, self.k.p.pid))

    def test_order(self):
        cell = self.k.run("print('a'); display(1); print('b'); 2")
        self.assertEqual([m["type"] for m in cell.messages],
                         ["started", "stdout", "result", "stdout", "result", "end"])
        self.assertEqual([cell.messages[0]["execution_count"], cell.messages[-1]["execution_count"]], [1, 1])
        self.assertEqual(self.k.run("").messages[0]["execution_count"], 2)

    def test_bad_requests(self):
        for line in (b"", b"{", b"[]", b"7", b'"x"', b"{}", b'{"op":"dance"}', b'{"op":"execute"}',
                     b'{"op":"execute","code":1}', b'{"op":"execute","code":"1","env":[1]}',
                     b'{"op":"execute","code":"1","env":{"A":1}}', b'{"op":"execute","code":"1","env":{"":"x"}}',
                     b'{"op":"execute","code":"1","cwd":3}', b"\xff\xfe"):
            self.k.send(line)
            self.assertEqual(self.k.read()["type"], "bad_request", line)
        self.assertEqual(self.value("6 * 7"), "42")

    def test_ping(self):
        self.k.send({"id": "x", "op": "ping"})
        self.assertEqual(self.k.read(), {"id": "x", "type": "pong"})

    def test_ends_with_its_input(self):
        self.k.end_input()
        self.assertEqual(self.k.p.wait(PATIENCE), 0)

    def test_shutdown(self):
        self.k.send({"op": "shutdown"})
        self.assertEqual(self.k.p.wait(PATIENCE), 0)

    def test_queue(self):
        for n in (1, 2, 3):
            self.k.send({"id": n, "op": "execute", "code": "print(%d)" % n})
        ends = []
        while len(ends) < 3:
            message = self.k.read()
            if message["type"] == "end":
                ends.append(message["id"])
        self.assertEqual(ends, [1, 2, 3])


class Python(Case):
    def test_state(self):
        self.k.run("x = 41\ndef f(): return x + 1")
        self.assertEqual(self.value("f()"), "42")

    def test_no_result(self):
        for code in ("x = 1", "None", "5;", "", "# nothing", "import os"):
            self.assertEqual(self.k.run(code).results, [], code)

    def test_print_is_one_message(self):
        cell = self.k.run("print('hello')")
        self.assertEqual([m["text"] for m in cell.messages if m["type"] == "stdout"], ["hello\n"])

    def test_streams(self):
        cell = self.k.run("import sys, os\nprint('o'); print('e', file=sys.stderr)\n"
                          "os.write(1, b'raw\\n'); os.write(2, 'é€😀'.encode())")
        self.assertEqual((cell.out, cell.err), ("o\nraw\n", "e\né€😀"))

    def test_children_print(self):
        cell = self.k.run("import subprocess\nsubprocess.run('echo out; echo err >&2', shell=True)")
        self.assertEqual((cell.out, cell.err), ("out\n", "err\n"))

    def test_large_output(self):
        cell = self.k.run("print('x' * 3000000)")
        self.assertEqual(len(cell.out), 3000001)
        self.assertLessEqual(max(len(m.get("text", "")) for m in cell.messages), 65536)

    def test_large_result(self):
        text = self.value("'y' * 5000000")
        self.assertLess(len(text), 300000)
        self.assertIn("truncated, 5000000 characters", text[-100:])

    def test_text(self):
        self.assertEqual(self.value("'abc'"), "abc")
        self.assertEqual(self.value("{'a': 1}"), "{'a': 1}")
        self.assertEqual(self.value("class A:\n    def __repr__(self): 1/0\nA()"),
                         "<A object whose repr() failed: ZeroDivisionError>")

    def test_forms(self):
        self.k.run("class R:\n    def __repr__(self): return 'r'\n"
                   + "".join("    def _repr_%s_(self): return %r\n" % pair for pair in (
                       ("html", "<b>"), ("markdown", "*"), ("svg", "<svg/>"), ("png", b"p"), ("jpeg", b"j"),
                       ("pdf", b"d"), ("latex", "$x$"), ("json", {"k": 1}), ("javascript", "1"))))
        main = self.main("R()")
        self.assertEqual({k: v for k, v in main.items() if k not in ("id", "type")}, {
            "is_main_result": True, "text": "r", "html": "<b>", "markdown": "*", "svg": "<svg/>",
            "png": base64.b64encode(b"p").decode(), "jpeg": base64.b64encode(b"j").decode(),
            "pdf": base64.b64encode(b"d").decode(), "latex": "$x$", "json": {"k": 1}, "javascript": "1"})

    def test_mimebundle(self):
        self.k.run("class B:\n    def _repr_mimebundle_(self, **k):\n"
                   "        return {'text/plain': 't', 'text/html': 'h', 'application/x-own': {'a': 1}}")
        main = self.main("B()")
        self.assertEqual((main["text"], main["html"], main["extra"]), ("t", "h", {"application/x-own": {"a": 1}}))

    def test_broken_forms(self):
        self.k.run("class B:\n    def _repr_html_(self): 1/0\n    def _repr_json_(self): return {1: {2}}\n"
                   "    def __repr__(self): return 'b'\n    def __getattr__(self, n): return 7")
        self.assertEqual(self.value("B()").split("\n")[0], "b")

    def test_display(self):
        cell = self.k.run("display(1, 'two')\nfrom IPython.display import HTML, display as d\nd(HTML('<i>'))")
        self.assertEqual([r["is_main_result"] for r in cell.results], [False] * 3)
        self.assertEqual(cell.results[2]["html"], "<i>")

    def test_error(self):
        error = self.fails("def f(n):\n    return 1 / n\n\nf(0)", "ZeroDivisionError", "division by zero")
        self.assertIn("Traceback (most recent call last)", error["traceback"])
        self.assertIn("Cell In[1], line 4", error["traceback"])
        self.assertIn("----> 2     return 1 / n", error["traceback"])
        self.assertTrue(error["traceback"].endswith("ZeroDivisionError: division by zero"))
        self.assertNotIn("kernel.py", error["traceback"])

    def test_kinds_of_errors(self):
        self.fails("1 +", "SyntaxError")
        self.fails("raise SystemExit(3)", "SystemExit", "3")
        self.fails("def f(): f()\nf()", "RecursionError")
        self.fails("class E(Exception):\n    def __str__(self): 1/0\nraise E", "E")
        self.fails("try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('v') from e", "ValueError", "v")
        self.fails("input()", "StdinNotImplementedError")
        self.fails("import sys; sys.exit('bye')", "SystemExit", "bye")
        self.assertEqual(self.value("6 * 7"), "42")

    def test_environment(self):
        self.k = self.start(KEPT="outer")
        self.assertEqual(self.value("import os; os.environ['KEPT'], os.environ['A']",
                                    env={"KEPT": "inner", "A": "1"}), "('inner', '1')")
        self.assertEqual(self.value("os.environ['KEPT'], 'A' in os.environ"), "('outer', False)")
        self.assertEqual(self.k.run("!echo $A", env={"A": "sub"}).out, "sub\n")
        self.fails("1/0", "ZeroDivisionError")
        self.assertEqual(self.value("'A' in os.environ"), "False")

    def test_cwd(self):
        self.mkdir("d")
        self.assertEqual(self.value("import os; os.path.basename(os.getcwd())", cwd=self.path("d")), "d")
        self.assertEqual(self.k.run("1", cwd="/nowhere").error["name"], "FileNotFoundError")

    def test_magics(self):
        self.mkdir("d")
        self.k.run("name = 'w'")
        self.assertEqual(self.k.run("!echo a {name} $name").out, "a w w\n")
        self.assertEqual(self.value("x = !printf 'a\\nb'\nx"), "['a', 'b']")
        self.assertIn("/d", self.k.run("%cd d").out)
        self.assertTrue(self.value("%pwd").endswith("/d"))
        self.k.run("%env MINE=yes")
        self.assertEqual(self.value("%env MINE"), "yes")
        self.assertEqual(self.k.run("%%bash\nfor i in 1 2; do echo $i; done").out, "1\n2\n")
        self.k.run("%%writefile f.txt\nline")
        self.assertEqual(self.value("open('f.txt').read()"), "line")
        self.assertEqual(self.k.run("if True:\n    !echo nested").out, "nested\n")
        self.assertEqual(self.k.run("%matplotlib inline").error, None)
        self.fails("%nothing", "UsageError")
        self.assertEqual(self.value("'''\n!not a command\n'''"), "\\n!not a command\\n")
        self.assertEqual(self.value("x = 7\nx \\\n% 4"), "3")

    def test_await(self):
        self.assertEqual(self.value("import asyncio\nawait asyncio.sleep(0)\nawait asyncio.gather(asyncio.sleep(0, 5))"),
                         "[5]")
        self.assertEqual(self.value("async def f(): return 3\nasyncio.run(f())"), "3")

    def test_indented(self):
        self.assertEqual(self.value("    x = 1\n    x + 1"), "2")

    def test_fork(self):
        cell = self.k.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('child' if not pid else 'parent')")
        self.assertEqual(sorted(cell.out.split()), ["child", "parent"])
        self.assertEqual(self.value("1"), "1")

    def test_threads_and_processes(self):
        self.assertEqual(self.value("from concurrent.futures import ThreadPoolExecutor as T\n"
                                    "sum(T(4).map(abs, [-1, -2]))"), "3")
        self.assertEqual(self.value("import multiprocessing as m\nc = m.get_context('fork')\nq = c.Queue()\n"
                                    "p = c.Process(target=q.put, args=(9,)); p.start(); p.join(); q.get()"), "9")

    def test_modules_of_the_directory(self):
        self.write("helper.py", "value = 42")
        self.assertEqual(self.value("import helper; helper.value"), "42")

    def test_stdin_is_empty(self):
        self.assertEqual(self.value("import sys; sys.stdin.read()"), "")
        self.assertEqual(self.k.run("!cat").out, "")

    def test_main_module(self):
        self.assertEqual(self.value("class A: pass\nimport pickle\ntype(pickle.loads(pickle.dumps(A()))) is A"), "True")

    def interrupt(self, code):
        cell = self.k.run(code, interrupt_at="here")
        self.assertEqual(cell.error and cell.error["name"], "KeyboardInterrupt", cell.messages[:5])

    def test_interrupts(self):
        self.k.run("x = 1")
        self.interrupt("print('here'); import time\nwhile True: time.sleep(1)")
        self.interrupt("print('here')\nwhile True: pass")
        self.interrupt("!echo here; sleep 1000")
        self.interrupt("import asyncio\nprint('here'); await asyncio.sleep(1000)")
        self.interrupt("print('here')\nwhile True: display(1)")
        self.assertEqual(self.value("x"), "1")

    def test_interrupt_while_idle(self):
        self.k.run("x = 1")
        self.k.p.send_signal(signal.SIGINT)
        self.k.send({"id": 0, "op": "ping"})
        self.assertEqual(self.k.read()["type"], "pong")
        self.assertEqual(self.value("x"), "1")

    def test_handler_is_restored(self):
        self.k.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); x = 2")
        self.interrupt("print('here')\nwhile True: pass")
        self.assertEqual(self.value("x"), "2")


PIL = """class Image:
    def save(self, fp, format=None, **options):
        if isinstance(fp, str):
            open(fp, "wb").write(b"png")
        else:
            fp.write(b"png")
    def show(self):
        raise OSError("no screen")
    def resave(self, fp):
        self.save(fp)
    def _repr_png_(self):
        import io
        b = io.BytesIO()
        self.save(b, "PNG")
        return b.getvalue()
"""


class Cells(Case):
    """What cells may say besides Python; the same with IPython and without."""

    def test_history(self):
        self.assertEqual(self.value("41"), "41")
        self.assertEqual(self.value("_ + 1"), "42")
        self.assertEqual(self.value("(_1, Out[2], __, In[1])"), "(41, 42, 41, '41')")
        self.assertEqual(self.value("sorted(Out)"), "[1, 2, 3]")

    def test_times(self):
        self.assertRegex(self.k.run("%timeit -n 3 -r2 1 + 1").out, r"per loop \(mean .* of 2 runs, 3 loops each\)")
        self.assertRegex(self.k.run("%%timeit -n 2 -r 1\nx = 1\nx + 1").out, "1 run, 2 loops each")
        cell = self.k.run("%%time\n6 * 7")
        self.assertEqual((cell.main["text"], "Wall time" in cell.out), ("42", True))

    def test_names(self):
        self.k.run("mine = 1\nyours = 'two'")
        self.assertEqual(self.k.run("%who").out.split(), ["mine", "yours"])
        self.assertIn("two", self.k.run("%whos").out)
        self.k.run("%reset -f")
        self.fails("mine", "NameError")

    def test_run(self):
        self.write("prog.py", "import sys\nmade = sys.argv[1:]\nprint(__name__)")
        self.assertEqual(self.k.run("%run prog.py a b").out, "__main__\n")
        self.assertEqual(self.value("made"), "['a', 'b']")
        self.assertEqual(self.value("__name__"), "__main__")
        self.write("bad.py", "1 / 0")
        self.fails("%run bad.py", "ZeroDivisionError")

    def test_help(self):
        for cell in ("len?", "?len"):
            self.assertIn("number of items", self.k.run(cell).out)
        self.assertIn("not found", self.k.run("nothing_of_this_name?").out)
        self.fails("x = 1 ? 2 : 3", "SyntaxError")

    def test_capture(self):
        self.assertEqual(self.k.run("%%capture kept\nprint('inside')").out, "")
        self.assertEqual(self.value("kept.stdout"), "inside\\n")
        self.fails("%%capture\n1 / 0", "ZeroDivisionError")
        self.assertEqual(self.k.run("print('out')").out, "out\n")

    def test_pip(self):
        self.k.run("import sys; sys.executable = '/bin/echo'")
        for cell in ("%pip list", "pip list"):
            self.assertIn("-m pip list", self.k.run(cell).out)
        self.assertEqual(self.value("pip, x = 7, 2\npip -x"), "5")

    def test_forms_of_cells(self):
        for magic, key in (("html", "html"), ("markdown", "markdown"), ("latex", "latex"), ("js", "javascript")):
            self.assertEqual(self.k.run("%%" + magic + "\n<b>").results[0][key].strip(), "<b>")

    def test_shell_object(self):
        self.assertEqual(self.k.run("get_ipython().system('echo there')").out, "there\n")
        self.assertEqual(self.value("get_ipython().run_line_magic('pwd', '')"), os.path.realpath(self.dir))
        cell = self.k.run("from IPython.display import HTML, display\ndisplay(HTML('<i>'))")
        self.assertEqual([r.get("html") for r in cell.results], ["<i>"], cell.messages)

    def test_images(self):
        """Stands in for PIL: show() and save() to a file display, a save to memory does not."""
        self.mkdir("PIL")
        self.write("PIL/__init__.py", "")
        self.write("PIL/Image.py", PIL)
        self.k.run("from PIL import Image\nimage = Image.Image()")
        png = base64.b64encode(b"png").decode()
        for cell in ("image.show()", "image.save('a.png')", "import pathlib\nimage.save('b.png', format='PNG')", "image"):
            self.assertEqual([r.get("png") for r in self.k.run(cell).results], [png], cell)
        self.assertEqual(self.k.run("import io\nimage.save(io.BytesIO())").results, [])
        self.assertEqual(self.k.run("image.resave('c.png')").results, [], "the library saves for itself")


class WithIPython(Cells):
    language = "ipython"

    def setUp(self):
        for python in (cl.PYTHON, sys.executable):
            if not subprocess.run([python, "-c", "import IPython"], capture_output=True, env=cl.caller_env()).returncode:
                COMMANDS["ipython"] = (python, COMMANDS["python"][1])
        if "ipython" not in COMMANDS:
            self.skipTest("IPython is not installed")
        super().setUp()

    def test_its_own(self):
        self.assertIn("%alias_magic", self.value("%lsmagic"))
        self.assertEqual(self.value("x = !printf 'a b'\nx.fields(1)"), "['b']")
        self.assertEqual(self.k.run("%cd /\n%bookmark -l\n%matplotlib inline").error, None)
        self.assertEqual(self.value("type(get_ipython()).__name__"), "KernelShell")


class WithoutIPython(Cells):
    """IPython that cannot be used: the kernel has the usual magics itself."""

    def setUp(self):
        super().setUp()
        self.mkdir("IPython")
        self.write("IPython/__init__.py", "raise RuntimeError('broken')")
        self.k = self.start(PYTHONPATH=self.dir)

    def test_shell_object(self):
        self.assertEqual(self.value("get_ipython() is not None"), "True")


class Figures(Case):
    def setUp(self):
        super().setUp()
        if subprocess.run([cl.PYTHON, "-c", "import matplotlib.pyplot"], capture_output=True,
                          env=cl.caller_env()).returncode:
            self.skipTest("matplotlib is not installed")
        self.k.run("import matplotlib.pyplot as plt")

    def figure(self, code):
        cell = self.k.run(code)
        self.assertIsNone(cell.error, cell.error)
        shown = [r for r in cell.results if "png" in r]
        self.assertEqual(len(shown), 1, [r["text"] for r in cell.results])
        self.assertTrue(base64.b64decode(shown[0]["png"]).startswith(b"\x89PNG"))
        return shown[0]

    def test_show(self):
        cell = self.k.run("plt.plot([1, 2], [3, 4])\nplt.show()\nprint('after')")
        self.assertEqual([m["type"] for m in cell.messages], ["started", "result", "stdout", "end"])
        self.assertEqual(cell.err, "")

    def test_at_the_end(self):
        self.assertIs(self.figure("plt.plot([1, 2]);")["is_main_result"], False)
        self.assertEqual(self.k.run("1").results[0]["text"], "1")

    def test_line(self):
        chart = self.figure("plt.plot([1, 2], [3, 4], label='a'); plt.title('T'); plt.xlabel('Time (s)'); "
                            "plt.ylabel('y');")["chart"]
        self.assertEqual((chart["type"], chart["title"], chart["x_label"], chart["x_unit"], chart["y_unit"]),
                         ("line", "T", "Time (s)", "s", None))
        self.assertEqual(chart["elements"], [{"label": "a", "points": [[1, 3], [2, 4]]}])
        self.assertEqual((chart["x_scale"], len(chart["x_ticks"]) > 1), ("linear", True))
        self.assertEqual(len(chart["x_ticks"]), len(chart["x_tick_labels"]))

    def test_other_charts(self):
        chart = self.figure("plt.scatter([1, 2], [3, 4]);")["chart"]
        self.assertEqual((chart["type"], chart["elements"][0]["points"]), ("scatter", [[1, 3], [2, 4]]))
        chart = self.figure("plt.bar(['a', 'b'], [1, 2], label='g');")["chart"]
        self.assertEqual((chart["type"], chart["elements"]), ("bar", [
            {"label": "a", "value": 1, "group": "g"}, {"label": "b", "value": 2, "group": "g"}]))
        chart = self.figure("plt.pie([1, 3], labels=['x', 'y']);")["chart"]
        self.assertEqual((chart["type"], [(e["label"], e["angle"]) for e in chart["elements"]]),
                         ("pie", [("x", 90), ("y", 270)]))
        chart = self.figure("plt.boxplot([[1, 2, 3, 4, 100]]);")["chart"]
        box = chart["elements"][0]
        self.assertEqual((chart["type"], box["median"], box["first_quartile"], box["third_quartile"],
                          box["min"], box["max"], box["outliers"]), ("box_and_whisker", 3, 2, 4, 1, 4, [100]))
        chart = self.figure("f, a = plt.subplots(1, 2); a[0].plot([1], [2]); a[1].bar(['q'], [1]);")["chart"]
        self.assertEqual((chart["type"], [e["type"] for e in chart["elements"]]), ("superchart", ["line", "bar"]))

    def test_dates_and_categories(self):
        chart = self.figure("import datetime\nplt.plot([datetime.date(2020, 1, d) for d in (1, 2)], [1, 2]);")["chart"]
        self.assertEqual((chart["x_scale"], chart["elements"][0]["points"][0]), ("datetime", ["2020-01-01", 1]))
        self.assertEqual(self.figure("plt.plot(['a', 'b'], [1, 2]);")["chart"]["x_scale"], "categorical")

    def test_figure_as_value(self):
        main = self.main("f = plt.figure(); f.gca().plot([1], [2]); plt.close(f)\nf")
        self.assertIn("png", main)


class Bash(Case):
    language = "bash"

    def test_state(self):
        self.k.run("x=5; declare -A m=([k]=v); f() { echo \"f:$1\"; }; cd /usr")
        self.assertEqual(self.k.run('echo "$x ${m[k]} $PWD"; f 1').out, "5 v /usr\nf:1\n")

    def test_streams(self):
        cell = self.k.run("echo out; echo err >&2; printf 'é'; cat")
        self.assertEqual((cell.out, cell.err, cell.status), ("out\né", "err\n", "ok"))

    def test_status(self):
        self.assertEqual(self.fails("(exit 3)", "CommandError")["value"], "exit status 3")
        self.fails("if", "CommandError")
        self.assertEqual(self.k.run("echo on").out, "on\n")

    def test_exit(self):
        self.k.run("x=1")
        self.fails("exit 4", "ShellExited")
        self.assertEqual(self.k.run("echo ${x:-gone}").out, "gone\n")

    def test_environment(self):
        self.assertEqual(self.k.run("echo $A", env={"A": "it's"}).out, "it's\n")
        self.assertEqual(self.k.run("echo ${A-unset}").out, "unset\n")
        self.mkdir("d")
        self.assertTrue(self.k.run("pwd", cwd=self.path("d")).out.endswith("/d\n"))

    def test_interrupts(self):
        self.k.run("x=1")
        for code in ("echo here; sleep 1000; echo no", "echo here; while :; do for i in 1; do :; done; done; echo no"):
            cell = self.k.run(code, interrupt_at="here")
            self.assertEqual((cell.error["name"], cell.out), ("KeyboardInterrupt", "here\n"))
        self.assertEqual(self.k.run("echo $x").out, "1\n")

    def test_interrupt_in_a_function(self):
        cell = self.k.run("f() { echo here; while :; do sleep 1; done; }; f", interrupt_at="here")
        self.assertEqual(cell.error["name"], "KeyboardInterrupt")
        self.assertEqual(self.k.run("echo on").out, "on\n")

    def test_queue_survives_large_code(self):
        self.assertEqual(self.k.run("x='%s'; echo ${#x}" % ("y" * 300000)).out, "300000\n")


class JavaScript(Case):
    language = "javascript"

    def test_state(self):
        self.k.run("const x = 41; let y = 1; class P {}; function f() { return x + y }")
        self.assertEqual(self.value("f()"), "42")
        self.assertEqual(self.value("const x = 5; x"), "5")
        self.assertEqual(self.value("new P()"), "P {}")

    def test_streams(self):
        cell = self.k.run("console.log('a', {b: 1}); console.error('e'); process.stdout.write('é😀')")
        self.assertEqual((cell.out, cell.err), ("a { b: 1 }\né😀", "e\n"))

    def test_children_print(self):
        self.assertEqual(self.k.run("require('child_process').execSync('echo sub', {stdio: 'inherit'}); 0").out, "sub\n")

    def test_values(self):
        self.assertEqual(self.value("'text'"), "text")
        self.assertEqual(self.main("({k: [1, 2]})")["json"], {"k": [1, 2]})
        self.assertEqual(self.k.run("undefined").results, [])
        self.assertEqual(self.value("Promise.resolve(7)"), "7")
        self.assertIn("truncated, 5000000", self.value("'y'.repeat(5000000)")[-100:])

    def test_await(self):
        self.assertEqual(self.value("const {a, b: [c]} = await Promise.resolve({a: 1, b: [2]})\na + c"), "3")
        self.assertEqual(self.value("a * 10 + c"), "12")
        self.assertEqual(self.k.run("await new Promise(r => setTimeout(r, 1)); console.log('later')").out, "later\n")

    def test_import(self):
        self.assertEqual(self.value("import fs from 'fs'; import {join as j} from 'path'\nj('a', 'b') + typeof fs.stat"),
                         "a/bfunction")
        self.assertEqual(self.value("require('path').basename('/x/y')"), "y")

    def test_errors(self):
        error = self.fails("function g() {\n  throw new TypeError('bad')\n}\ng()", "TypeError", "bad")
        self.assertIn("<cell 1>:2", error["traceback"])
        self.assertNotIn("kernel.js", error["traceback"])
        self.fails("1 +", "SyntaxError")
        self.fails("await Promise.reject(new RangeError('r'))", "RangeError", "r")
        self.fails("throw 'text'", "Error", "'text'")
        self.assertEqual(self.value("6 * 7"), "42")

    def test_display(self):
        cell = self.k.run("display.html('<b>'); display([1]); undefined")
        self.assertEqual(cell.results[0]["html"], "<b>")
        self.assertEqual([r["is_main_result"] for r in cell.results], [False, False])
        main = self.main("({[Symbol.for('Jupyter.display')]: () => ({'image/png': Buffer.from('p'), 'x/y': 1})})")
        self.assertEqual((main["png"], main["extra"]), (base64.b64encode(b"p").decode(), {"x/y": 1}))

    def test_environment(self):
        self.assertEqual(self.value("process.env.A", env={"A": "1"}), "1")
        self.assertEqual(self.value("String(process.env.A)"), "undefined")
        self.mkdir("d")
        self.assertTrue(self.value("process.cwd()", cwd=self.path("d")).endswith("/d"))

    def test_late_errors(self):
        self.k.run("setTimeout(() => { throw new Error('late') }, 0); Promise.reject(new Error('lost')); 0")
        self.assertEqual(self.value("1"), "1")

    def test_interrupts(self):
        self.k.run("let x = 1")
        for code in ("console.log('here'); while (true) {}", "console.log('here'); await new Promise(() => {})"):
            cell = self.k.run(code, interrupt_at="here")
            self.assertEqual(cell.error and cell.error["name"], "KeyboardInterrupt", cell.messages)
        self.assertEqual(self.value("x"), "1")

    def test_exit(self):
        self.k.run("let x = 1")
        self.assertEqual(self.fails("process.exit(3)", "KernelEnded")["name"], "KernelEnded")
        self.assertEqual(self.value("typeof x"), "undefined")
        self.k.send({"op": "shutdown"})
        self.assertEqual(self.k.p.wait(PATIENCE), 0)

    def test_bad_requests(self):
        for line in (b"", b"{", b"[]", b'{"op":"execute","code":1}'):
            self.k.send(line)
            self.assertEqual(self.k.read()["type"], "bad_request", line)
        self.assertEqual(self.value("1"), "1")


del Case

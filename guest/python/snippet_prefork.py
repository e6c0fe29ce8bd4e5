# Snippets of Python in a long-lived sandbox: each runs in a copy of a preforked interpreter, as `python3 path` would.
#
#     python3 - MODULE... <this, after prefork.py and program.py
#
# PYTHONPATH is not set for the prefork: its directories may change at any time, and each copy looks at them itself.

import io

# Variables that decide which interpreter is started, or that an interpreter reads when it starts.
STARTING = b"PYTHON", b"LANG", b"LC_", b"PATH=", b"HOME=", b"LD_", b"GLIBC_TUNABLES=", b"MALLOC_"
HOOKS = "sitecustomize", "usercustomize"  # modules that a new interpreter would have loaded
WRITERS = {io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom}


def variables(pairs):
    """Those of the variables that an interpreter reads when it starts, except PYTHONPATH."""
    return {p for p in pairs if p.startswith(STARTING) and not p.startswith(b"PYTHONPATH=")}


class Snippets(Service):
    def __init__(self):
        self.known = variables(key + b"=" + value for key, value in os.environ._data.items())

    def warm_up(self):
        forget_states()
        exec(compile("print(end='')\n", "<warm>", "exec"), {})
        self.modules = set(sys.modules)
        self.loaded = {name.partition(".")[0] for name in sys.modules}.union(HOOKS)
        self.is_plain = not any(self.is_own(sys.modules.get(name)) for name in HOOKS)
        reseed()

    @staticmethod
    def is_own(module):
        """Can the sandbox's user change it? Then it may do something else for each program."""
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and os.access(file, os.W_OK)

    def hides_nothing(self, directory):
        """False: this directory has modules that were already loaded from elsewhere."""
        try:
            names = os.listdir(directory)
        except OSError:
            return True
        return self.loaded.isdisjoint(name.partition(".")[0] for name in names)

    def can(self, order):
        path = dict(pair.partition(b"=")[::2] for pair in order.environment).get(b"PYTHONPATH", b"")
        directories = [os.path.dirname(order.argv[1]), *filter(None, path.split(b":"))]
        return self.is_plain and variables(order.environment) == self.known and all(
            self.hides_nothing(os.fsdecode(directory)) for directory in directories)

    def do(self, order):
        path, *arguments = map(os.fsdecode, order.argv[1:])
        order.take_streams()
        take_environment(order.environment)
        sys.argv = [path, *arguments]
        ORIG_ARGV[:] = [os.fsdecode(order.argv[0]), *sys.argv]
        sys.path[:0] = [os.path.dirname(path), *python_path()]
        module = main_module(path)
        if order.become_command():
            try:
                finish(module, self.run(path, module), self.take_apart)
            finally:
                os._exit(1)  # interrupted while it ended

    def take_apart(self):
        """Flushes the files that the program left open, and drops the modules that it loaded."""
        for stream in [thing for thing in gc.get_objects() if type(thing) in WRITERS]:
            try:
                stream.flush()
            except Exception:
                pass
        for name in [name for name in sys.modules if name not in self.modules]:
            del sys.modules[name]
        gc.collect()

    @staticmethod
    def run(path, module):
        try:
            with open(path, "rb") as file:
                source = file.read()
            exec(compile(source, path, "exec", 0, True), module.__dict__)
        except BaseException as error:
            return ended_by(error)
        return 0


del sys.path[0]  # the directory in which this process was started
serve(Snippets(), sys.argv[1:])

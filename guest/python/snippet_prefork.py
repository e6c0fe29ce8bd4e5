# Snippets of Python in a sandbox that goes on: each a copy of a parked interpreter, as `python3 path` would be.
#
#     python3 - MODULE... <this, after prefork.py and program.py
#
# PYTHONPATH is not set for the parked one: what lies there may change at any time, and is looked at by each copy.

import io

# Variables that decide which interpreter is started, or that it looks at when it starts.
STARTING = b"PYTHON", b"LANG", b"LC_", b"PATH=", b"HOME=", b"LD_", b"GLIBC_TUNABLES=", b"MALLOC_"
HOOKS = "sitecustomize", "usercustomize"  # modules that it would have loaded
WRITERS = {io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom}


def variables(pairs):
    """Those that it looks at, but for where modules are."""
    return {p for p in pairs if p.startswith(STARTING) and not p.startswith(b"PYTHONPATH=")}


class Snippets(Trade):
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
        """Of whoever uses the sandbox: it may do something else for each program."""
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and os.access(file, os.W_OK)

    def hides_nothing(self, directory):
        """Would modules come from there that were loaded from elsewhere?"""
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
                os._exit(1)  # it was interrupted at its end

    def take_apart(self):
        """What the program made and did not close is closed, as far as there may be something to be written."""
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


del sys.path[0]  # the directory that it was started in
serve(Snippets(), sys.argv[1:])

"""Kernels that are there in milliseconds: copies of a preforked interpreter (prefork.py) that has loaded kernel.py.

    kernel_prefork.py MODULE...
"""
import importlib.util
import json
import os
import sys
import time

sys.dont_write_bytecode = True
import kernel  # noqa: E402
import prefork  # noqa: E402

sys.dont_write_bytecode = False
for own in ("kernel", "kernel_magics", "prefork"):  # the user's modules may have these names
    del sys.modules[own]


class Kernels(prefork.Service):
    own = os.path.dirname(os.path.abspath(__file__))  # a new daemon places its files anew

    def warm_up(self):
        exec(compile("x = [str(i) for i in range(8)]", "<warm>", "exec"), {})
        json.loads(json.dumps({"type": "ready", "list": [1, 2.5, None]}))
        importlib.util.find_spec("IPython")
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()

    def do(self, order):
        """From here on a kernel like any other."""
        order.take_streams()
        os.environ.clear()
        for pair in order.environment:
            name, _, value = pair.partition(b"=")
            os.environb[name] = value
        time.tzset()
        if order.become_command():
            kernel.Kernel().serve()


if __name__ == "__main__":
    prefork.serve(Kernels(), sys.argv[1:])

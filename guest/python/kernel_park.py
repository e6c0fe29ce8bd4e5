"""Kernels that are there in milliseconds: loads everything once, then makes copies of itself.

    kernel_park.py MODULE...      started with a socket as fd 3 (src/guest/park.h has the protocol)

One copy always waits for an order on that socket. It was forked twice and has lost its parent, so that
pid 1, which sends the order, gets to know how it ends. There are two processes that make copies: the
first as soon as kernel.py is loaded; the second, its child, when it has loaded the modules as well,
which may take seconds, and then takes the first one's place.

A copy must not have modules that a new interpreter would not load: if a directory has changed that
modules come from, it ends instead of becoming a kernel, and so does this process; another is started.
"""
import gc
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
import kernel  # noqa: E402

sys.dont_write_bytecode = False
del sys.modules["kernel"]  # the name is free for a module of the user's

SOCKET = 3
EXIT_CHANGED = 3
TAKEN, CHANGED = b"t", b"c"  # what a copy says
ORDER_MAX = 1 << 20


def places():
    """Directories whose entries decide which modules are found."""
    site = sys.modules.get("site")
    names = set(sys.path)
    if site is not None and hasattr(site, "getusersitepackages"):
        names.update([site.getusersitepackages(), *site.getsitepackages()])
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            names.add(os.path.dirname(file))
    names.discard(os.path.dirname(os.path.abspath(__file__)))  # a new daemon places its files anew
    return names


def look(names):
    """When they last changed."""
    seen = {}
    for name in names:
        try:
            status = os.stat(name)
            seen[name] = (status.st_dev, status.st_ino, status.st_mtime_ns)
        except OSError:
            seen[name] = None
    return seen


def preload(names):
    for name in names:
        try:
            __import__(name)
        except BaseException:
            pass  # whoever imports it will be told why


def become(order, fds):
    """From here on a kernel like any other."""
    cwd, *environment = order.split(b"\0")[:-1]
    for number in range(3):
        os.dup2(fds[number], number)
        os.close(fds[number])
    os.chdir(cwd)
    os.umask(0o022)
    os.environ.clear()
    for pair in environment:
        name, _, value = pair.partition(b"=")
        os.environb[name] = value
    time.tzset()
    os.write(fds[3], b"1")
    os.close(fds[3])
    kernel.Kernel().serve()


def warm_up():
    """Touches what every kernel touches, while nobody waits."""
    exec(compile("x = [str(i) for i in range(8)]", "<warm>", "exec"), {})
    json.loads(json.dumps({"type": "ready", "list": [1, 2.5, None]}))
    importlib.util.find_spec("IPython")
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def wait_for_order(parent, told, seen):
    """In a copy, which waits until somebody needs it."""
    os.setsid()
    warm_up()
    while os.getppid() == parent:
        time.sleep(0.0005)
    with socket.socket(fileno=SOCKET) as orders:
        order, fds, _, _ = socket.recv_fds(orders, ORDER_MAX, 4)
    if not order:
        return
    changed = look(seen) != seen
    os.write(told, CHANGED if changed else TAKEN)
    os.close(told)
    if not changed:
        become(order, fds)


def make_copy(seen):
    """One that waits; returns its process and where it says that it is taken."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        parent = os.getpid()
        try:
            copy = os.fork()
            if copy:
                os.write(writer, struct.pack("i", copy))
            else:
                os.close(reader)
                wait_for_order(parent, writer, seen)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(middle, 0)
    said = os.read(reader, 4)
    return struct.unpack("i", said)[0] if len(said) == 4 else 0, reader


class Park:
    """Always has one copy that waits."""

    def __init__(self, seen):
        gc.collect()
        gc.freeze()
        self.deaths, self.seen = 0, seen
        self.copy, self.told = make_copy(seen)

    def next(self):
        """The copy is taken, or has died."""
        said = os.read(self.told, 1)
        os.close(self.told)
        self.deaths = 0 if said else self.deaths + 1
        if said == CHANGED or self.deaths > 3:
            os._exit(EXIT_CHANGED if said else 1)
        self.copy, self.told = make_copy(self.seen)

    def end(self):
        if self.copy:
            os.kill(self.copy, signal.SIGKILL)


def load(names, ready, seen):
    """The second process."""
    preload(names)
    park = Park({**look(places()), **seen})
    os.write(ready, b"1")
    os.close(ready)
    while True:
        park.next()


def main(names):
    seen = look(places())
    park = Park(seen)
    sys.stdout.write(json.dumps({"type": "ready"}) + "\n")
    sys.stdout.flush()
    reader, writer = os.pipe()
    second = os.fork()
    if second == 0:
        os.close(reader)
        time.sleep(0.1)  # whoever wants the first kernel goes first
        try:
            load(names, writer, seen)
        finally:
            os._exit(1)
    os.close(writer)
    waits = [reader]
    while True:
        ready = select.select([park.told, *waits], [], [])[0]
        if park.told in ready:
            park.next()
        elif os.read(reader, 1):
            park.end()
            status = os.waitpid(second, 0)[1]
            if os.WIFEXITED(status):
                os._exit(os.WEXITSTATUS(status))
            park = Park(seen)  # it was killed, for memory perhaps: as before, only slower
            waits = []
        else:
            waits = []


if __name__ == "__main__":
    main(sys.argv[1:])

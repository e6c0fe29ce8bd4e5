"""Parked interpreters: load everything once, then make copies of themselves for others to use.

Started with a socket as fd 3; src/guest/park.h has the protocol. kernel_park.py imports this, and it stands
in front of snippet_park.py when that is built.

One copy always waits for an order on that socket. It was forked twice and has lost its parent, so that
pid 1, which sends the order, gets to know how it ends. There are two processes that make copies: the
first as soon as it is there; the second, its child, when it has loaded the modules as well,
which may take seconds, and then takes the first one's place.

A copy must not have modules that a new interpreter would not load: if a directory has changed that
modules come from, it ends instead of doing its work, and so does this process; another is started.
"""
import gc
import os
import select
import signal
import socket
import struct
import sys
import time

SOCKET = 3
EXIT_CHANGED = 3
TAKEN, CHANGED, REFUSED = b"t", b"c", b"r"  # what a copy says
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


class Order:
    """What a copy is to become."""

    def __init__(self, message, fds):
        fields = message.split(b"\0")[:-1]
        end = 2 + int(fields[1])
        self.cwd, self.argv, self.environment = fields[0], fields[2:end], fields[end:]
        self.streams, self.report = fds[:3], fds[3]

    def take_streams(self):
        for number, fd in enumerate(self.streams):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(self.cwd)
        os.umask(0o022)

    def become_command(self):
        """True when pid 1 knows this process."""
        os.write(self.report, b"1")
        known = os.read(self.report, 1)
        os.close(self.report)
        return bool(known)


class Trade:
    """What copies are for."""

    own = None  # a directory whose changes do not matter

    def warm_up(self):
        """Touches what everyone touches, while nobody waits."""

    def can(self, order):
        """False: it would not be what a new interpreter is."""
        return True

    def do(self, order):
        """Does not come back."""


def wait_for_order(trade, parent, told, seen):
    """In a copy, which waits until somebody needs it."""
    os.setsid()
    trade.warm_up()
    while os.getppid() == parent:
        time.sleep(0.0005)
    with socket.socket(fileno=SOCKET) as orders:
        message, fds, _, _ = socket.recv_fds(orders, ORDER_MAX, 4)
    if not message:
        return
    order = Order(message, fds)
    said = CHANGED if look(seen) != seen else TAKEN if trade.can(order) else REFUSED
    os.write(told, said)
    os.close(told)
    if said == TAKEN:
        trade.do(order)


def make_copy(trade, seen):
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
                wait_for_order(trade, parent, writer, seen)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(middle, 0)
    said = os.read(reader, 4)
    return struct.unpack("i", said)[0] if len(said) == 4 else 0, reader


class Park:
    """Always has one copy that waits."""

    def __init__(self, trade, seen):
        gc.collect()
        gc.freeze()
        self.trade, self.deaths, self.seen = trade, 0, seen
        self.copy, self.told = make_copy(trade, seen)

    def next(self):
        """The copy is taken, or has died."""
        said = os.read(self.told, 1)
        os.close(self.told)
        self.deaths = 0 if said else self.deaths + 1
        if said == CHANGED or self.deaths > 3:
            os._exit(EXIT_CHANGED if said else 1)
        self.copy, self.told = make_copy(self.trade, self.seen)

    def end(self):
        if self.copy:
            os.kill(self.copy, signal.SIGKILL)


def load_and_serve(trade, names, ready, seen):
    """The second process."""
    preload(names)
    park = Park(trade, {**look(places() - {trade.own}), **seen})
    os.write(ready, b"1")
    os.close(ready)
    while True:
        park.next()


def serve(trade, names):
    seen = look(places() - {trade.own})
    park = Park(trade, seen)
    os.write(1, b"ready\n")
    reader, writer = os.pipe()
    second = os.fork()
    if second == 0:
        os.close(reader)
        time.sleep(0.1)  # whoever wants the first copy goes first
        try:
            load_and_serve(trade, names, writer, seen)
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
            park = Park(trade, seen)  # it was killed, for memory perhaps: as before, only slower
            waits = []
        else:
            waits = []

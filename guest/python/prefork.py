"""Parked interpreters: load everything once, then make copies of themselves for others to use.

Started with a socket as fd 3; src/guest/exec/prefork.h has the protocol, and src/warm/warm.h says what else is
prepared ahead. kernel_prefork.py imports this, and it stands
in front of snippet_prefork.py when that is built.

One copy always waits for an order on that socket. It was forked twice and has lost its parent, so that
pid 1, which sends the order, gets to know how it ends. There are two processes that make copies: the
first as soon as it is there; the second, its child, when it has loaded the modules as well,
which may take seconds, and from then on the first makes no more.

A copy must not have modules that a new interpreter would not load: if a directory has changed that
modules come from, it ends instead of doing its work, and so does this process; another is started.
"""
import gc
import os
import select
import socket
import sys
import time

SOCKET = 3
EXIT_CHANGED = 3
TAKEN, CHANGED, REFUSED = b"t", b"c", b"r"  # what a copy says
ORDER_MAX = 1 << 20


def programs():
    """Directories where this interpreter was looked for, up to the one where it was found."""
    for name in os.get_exec_path():
        yield name
        if os.path.exists(os.path.join(name, "python3")):
            return


def places():
    """Directories whose entries decide which modules are found, and by which interpreter."""
    site = sys.modules.get("site")
    names = {*sys.path, *programs()}
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


def make_copy(trade, seen, ours):
    """One that waits; returns where it says that it is taken. ours: what it must not have open."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        parent = os.getpid()
        try:
            if os.fork() == 0:
                for fd in (reader, *ours):
                    os.close(fd)
                wait_for_order(trade, parent, writer, seen)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(middle, 0)
    return reader


class Park:
    """Always has one copy that waits."""

    def __init__(self, trade, seen, ours):
        sys.stdout.flush()  # what modules have printed is nobody's output
        gc.collect()
        gc.freeze()
        self.trade, self.deaths, self.seen, self.ours = trade, 0, seen, ours
        self.told = make_copy(trade, seen, ours)

    def next(self, another=True):
        """The copy is taken, or has died."""
        said = os.read(self.told, 1)
        os.close(self.told)
        self.deaths = 0 if said else self.deaths + 1
        if said == CHANGED or self.deaths > 3:
            os._exit(EXIT_CHANGED if said else 1)
        self.told = make_copy(self.trade, self.seen, self.ours) if another else None


def load_and_serve(trade, names, ready, seen):
    """The second process."""
    preload(names)
    park = Park(trade, {**look(places() - {trade.own}), **seen}, [ready])
    os.write(ready, b"1")  # and at its end the other one sees that of the pipe
    while True:
        park.next()


def serve(trade, names):
    seen = look(places() - {trade.own})
    ours = []
    park = Park(trade, seen, ours)
    os.write(1, b"ready\n")
    reader, writer = os.pipe()
    second = os.fork()
    if second == 0:
        os.close(reader)
        os.close(park.told)
        time.sleep(0.1)  # whoever wants the first copy goes first
        try:
            load_and_serve(trade, names, writer, seen)
        finally:
            os._exit(1)
    os.close(writer)
    ours.append(reader)
    watched, loaded = [reader], False
    while True:
        told = [park.told] if park.told is not None else []
        ready = select.select(told + watched, [], [])[0]
        if park.told in ready:
            park.next(another=not loaded)  # what was made before may be taken, or not: never ended
        elif os.read(reader, 1):
            loaded = True
        else:
            status = os.waitpid(second, 0)[1]
            if loaded and os.WIFEXITED(status):
                os._exit(os.WEXITSTATUS(status))
            watched, loaded = [], False  # it was killed, for memory perhaps: as before, only slower
            if park.told is None:
                park = Park(trade, seen, ours)

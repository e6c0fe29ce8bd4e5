"""Preforked interpreters: load everything once, then make copies of themselves on request.

Started with a socket as fd 3; src/guest/exec/prefork.c has the protocol, and src/warm/warm.h says what else is
prepared ahead. kernel_prefork.py imports this file; for snippet_prefork.py it is put in front when that is built.

One copy always waits for an order on that socket. The copy was forked twice and has lost its parent, so that
pid 1, which sends the order, learns how the copy ends. Two processes make copies: the first one at once; the
second, its child, when it has loaded the modules as well, which may take seconds. From then on the first
makes no more copies.

A copy must not have modules that a new interpreter would not load: if a directory has changed that modules
come from, the copy ends instead of doing its work, and so does this process; another one is started.
"""
import gc
import os
import select
import socket
import sys
import time

SOCKET = 3
EXIT_CHANGED = 3
TAKEN, CHANGED, REFUSED = b"t", b"c", b"r"  # what a copy reports
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
    """The state of these directories: which ones they are, and when they last changed."""
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
            pass  # the program that imports it gets the error


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
        """True: pid 1 has made this process a command."""
        os.write(self.report, b"1")
        known = os.read(self.report, 1)
        os.close(self.report)
        return bool(known)


class Service:
    """What copies do."""

    own = None  # a directory whose changes do not matter

    def warm_up(self):
        """Touches the memory that every copy needs, before a request waits for it."""

    def can(self, order):
        """False: the copy would differ from a new interpreter."""
        return True

    def do(self, order):
        """Carries out the order; does not return."""


def wait_for_order(service, parent, told, seen):
    """In a copy: waits for its order and carries it out."""
    os.setsid()
    service.warm_up()
    while os.getppid() == parent:
        time.sleep(0.0005)
    with socket.socket(fileno=SOCKET) as orders:
        message, fds, _, _ = socket.recv_fds(orders, ORDER_MAX, 4)
    if not message:
        return
    order = Order(message, fds)
    said = CHANGED if look(seen) != seen else TAKEN if service.can(order) else REFUSED
    os.write(told, said)
    os.close(told)
    if said == TAKEN:
        service.do(order)


def make_copy(service, seen, ours):
    """Makes a copy that waits; returns the pipe on which it reports. ours: fds that the copy must not have open."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        parent = os.getpid()
        try:
            if os.fork() == 0:
                for fd in (reader, *ours):
                    os.close(fd)
                wait_for_order(service, parent, writer, seen)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(middle, 0)
    return reader


class Copies:
    """Always keeps one copy that waits."""

    def __init__(self, service, seen, ours):
        sys.stdout.flush()  # output of the modules must not show up in a copy
        gc.collect()
        gc.freeze()
        self.service, self.deaths, self.seen, self.ours = service, 0, seen, ours
        self.told = make_copy(service, seen, ours)

    def next(self, another=True):
        """The copy is taken, or has died."""
        said = os.read(self.told, 1)
        os.close(self.told)
        self.deaths = 0 if said else self.deaths + 1
        if said == CHANGED or self.deaths > 3:
            os._exit(EXIT_CHANGED if said else 1)
        self.told = make_copy(self.service, self.seen, self.ours) if another else None


def load_and_serve(service, names, ready, seen):
    """The second process."""
    preload(names)
    copies = Copies(service, {**look(places() - {service.own}), **seen}, [ready])
    os.write(ready, b"1")  # the first process sees the end of this pipe when this one ends
    while True:
        copies.next()


def serve(service, names):
    seen = look(places() - {service.own})
    ours = []
    copies = Copies(service, seen, ours)
    os.write(1, b"ready\n")
    reader, writer = os.pipe()
    second = os.fork()
    if second == 0:
        os.close(reader)
        os.close(copies.told)
        time.sleep(0.1)  # a request that waits for the first copy goes first
        try:
            load_and_serve(service, names, writer, seen)
        finally:
            os._exit(1)
    os.close(writer)
    ours.append(reader)
    watched, loaded = [reader], False
    while True:
        told = [copies.told] if copies.told is not None else []
        ready = select.select(told + watched, [], [])[0]
        if copies.told in ready:
            copies.next(another=not loaded)  # a copy that already waits is never ended
        elif os.read(reader, 1):
            loaded = True
        else:
            status = os.waitpid(second, 0)[1]
            if loaded and os.WIFEXITED(status):
                os._exit(os.WEXITSTATUS(status))
            watched, loaded = [], False  # killed, perhaps for memory: go on as before it was there, only slower
            if copies.told is None:
                copies = Copies(service, seen, ours)

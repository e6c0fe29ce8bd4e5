#!/usr/bin/python3
"""Bodies and answers must move by 1 kB/s, averaged over 30 seconds.     make test-slow

All at once: a body that trickles is answered with 408, one at twice the rate goes on, an answer that nobody reads is
cut off, one that is read at twice the rate goes on. Takes a good minute.
"""
import os
import shutil
import socket
import sys
import threading
import time

from common import harness

WINDOW = 30
SIZE = 32 << 20
LATE = 2 * WINDOW + 15  # it may begin just after a window
TICK = 0.5


def head(first, key, *lines):
    return "\r\n".join((first + " HTTP/1.1", "Host: localhost", "Authorization: Bearer " + key) + lines + ("", "")).encode()


class Case(threading.Thread):
    """Moves so many bytes each second until the daemon ends it; when that was, and what came."""

    def __init__(self, daemon, begin, per_second, reads):
        super().__init__(daemon=True)
        self.step, self.reads = int(per_second * TICK), reads
        self.ended, self.got, self.begun = None, b"", time.monotonic()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", daemon.port))
        self.socket.sendall(begin)
        self.start()

    def move(self):
        """One step; false: the daemon has ended it."""
        if not self.reads:
            self.socket.sendall(b" " * self.step)
        elif not self.step:
            return True
        try:
            part = self.socket.recv(self.step if self.reads else 65536)
        except BlockingIOError:
            return True
        self.got += part
        return part != b""

    def run(self):
        try:
            while time.monotonic() - self.begun < LATE:
                self.socket.setblocking(self.reads)
                if not self.move():
                    break
                time.sleep(TICK)
            else:
                return
        except OSError:
            pass
        self.ended = time.monotonic() - self.begun

    def read_rest(self):
        """What came before the daemon ended it."""
        count = 0
        self.socket.settimeout(10)
        try:
            while part := self.socket.recv(1 << 20):
                count += len(part)
        except ConnectionResetError:
            pass
        return count


def main():
    bad = []

    def expect(fine, what):
        if not fine:
            bad.append(what)
        print(("ok " if fine else "not ok ") + what, flush=True)

    d = harness.Daemon().start()
    try:
        key = d.token("rates")
        box = d.post("/v1/sandboxes", {"disk": "64M"}, token=key).json["id"]
        d.put("/v1/sandboxes/%s/files?path=big" % box, b"x" * SIZE, token=key)
        body = head("POST /v1/run", key, "Content-Length: 1000000")
        answer = head("GET /v1/sandboxes/%s/files?path=big" % box, key)
        cases = {name: Case(d, *how) for name, how in {
            "slow body": (body, 4, False), "fast body": (body, 2048, False),
            "unread answer": (answer, 0, True), "read answer": (answer, 4096, True)}.items()}
        for c in cases.values():
            c.join(LATE + 30)
        slow, unread = cases["slow body"], cases["unread answer"]
        expect(slow.ended and WINDOW - 2 < slow.ended, "a body that trickles ends, after %s s" % slow.ended)
        expect(b" 408 " in slow.got[:20], "its client is told: %r" % slow.got[:40])
        rest = unread.read_rest()
        expect(rest < SIZE, "an answer that nobody reads is cut off, after %d bytes" % rest)
        for name in "fast body", "read answer":
            expect(cases[name].ended is None, "%s: goes on (%s)" % (name, cases[name].ended))
    finally:
        d.stop()
        d.remove()
    print("%d passed, %d failed, 0 skipped" % (5 - len(bad), len(bad)))
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(os.environ.get("CLOCHE_E2E_DIR", "/nowhere"), ignore_errors=True)

"""What a program sees that an agent might have written: run it with `cloche code examples/look.py`."""
import os
import socket


def attempt(what, action):
    """Prints what came of it: a refusal is what the sandbox is for."""
    try:
        print(f"  {what:<36} {action()}")
    except OSError as error:
        print(f"  {what:<36} refused: {error.strerror or error}")


def connect():
    with socket.create_connection(("1.1.1.1", 443), timeout=3) as link:
        return f"connected to {link.getpeername()[0]}"


def write(path):
    with open(path, "w", encoding="utf-8") as out:
        return f"{out.write('hello')} bytes written"


print(f"I am uid {os.getuid()}, process {os.getpid()}, on host '{os.uname().nodename}'; "
      f"6 * 7 = {6 * 7}.")
attempt("processes that I see", lambda: sum(name.isdigit() for name in os.listdir("/proc")))
attempt("read /etc/shadow", lambda: open("/etc/shadow", encoding="utf-8").read(20))
attempt("read /var/log/dpkg.log", lambda: open("/var/log/dpkg.log", encoding="utf-8").read(20))
attempt("write /usr/bin/ls", lambda: write("/usr/bin/ls"))
attempt("write into this directory", lambda: write("look-was-here") + " (a copy; gone afterwards)")
attempt("connect to 1.1.1.1:443", connect)
attempt("look up example.com", lambda: socket.getaddrinfo("example.com", 443)[0][4])
attempt("see the host's first process", lambda: os.readlink("/proc/1/root"))
attempt("become root", lambda: os.setuid(0))

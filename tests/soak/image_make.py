#!/usr/bin/env python3
"""`cloche image make` and `refresh` from the host's own sources of packages, and root inside what they make. Takes
minutes, and needs apt with a mirror in reach.
"""
import os
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLOCHE = os.environ.get("CLOCHE", os.path.join(TOP, "build", "cloche"))

SCRIPTS = {
    "accounts": "useradd -m one && su one -c 'id -un' && groupadd g && usermod -aG g one && id one",
    "packages": "dpkg --audit && dpkg --verify base-files && apt-get check && apt-cache policy >/dev/null && "
                "dpkg-query -W apt | grep -q apt",
    "python": "python3 -m venv --without-pip /opt/v && /opt/v/bin/python -c 'import ssl, sqlite3; print(40 + 2)'",
}


def main():
    state = tempfile.mkdtemp(prefix="cloche-make-")
    env = dict(os.environ, CLOCHE_STATE_DIR=state)

    def run(*args, code=0):
        r = subprocess.run([CLOCHE, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           timeout=600)
        if r.returncode != code:
            sys.exit("image_make: %s: exit %d\n%s%s" % (" ".join(args), r.returncode, r.stdout, r.stderr[-3000:]))
        return r.stdout

    try:
        if not shutil.which("apt-get") or subprocess.run(["apt-get", "-qq", "indextargets"], stdout=subprocess.DEVNULL).returncode:
            print("image_make: skipped: apt-get is not installed")
            return
        made = run("image", "make", "own:1", "--packages", "apt ca-certificates python3 python3-venv").split()[0]
        for name, script in SCRIPTS.items():
            print("image_make: %s: %s" % (name, run("run", "--image", "own:1", "--root", "overlay", "--empty", "--memory", "1G",
                                                    "--", "bash", "-ec", script).strip().replace("\n", " | ")))
        again = run("image", "refresh", "own:1").split()
        assert again == [made, "own:1"], again
        context = os.path.join(state, "ctx")
        os.mkdir(context)
        with open(os.path.join(context, "Dockerfile"), "w") as f:
            f.write("FROM own:1\nRUN useradd --create-home --shell /bin/bash agent\nUSER agent\nWORKDIR /workspace\n"
                    "RUN python3 -m venv --without-pip ~/v\nENV PATH=\"/home/agent/v/bin:${PATH}\"\n"
                    "CMD [\"python\", \"-c\", \"import sys; print(sys.prefix)\"]\n")
        run("image", "build", "-t", "agent:1", context)
        shown = run("run", "--empty", "--user", "root", "--image", "agent:1", "--", "/home/agent/v/bin/python", "-c", "import sys; print(sys.prefix)")
        assert shown == "/home/agent/v\n", shown
        print("1 passed, 0 failed, 0 skipped")
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()

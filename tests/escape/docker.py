"""A Docker daemon for one comparison: private socket, directories, network and cgroups.

To be used in mount, pid and network namespaces of one's own: what it mounts and which interfaces it
makes go away with them. Its cgroups do not, so close() removes those.
"""
import glob
import io
import os
import secrets
import shutil
import subprocess
import tarfile
import time

IMAGE = "cloche-probe"
BRIDGE = "cmp0"
BRIDGE_ADDRESS = "10.91.0.1/24"
START_SECONDS = 30


class NoDocker(Exception):
    """Says why there is none."""


def bridge():
    """Docker's usual network, made beforehand: then the daemon needs no packet filter for it."""
    for words in (["link", "add", "name", BRIDGE, "type", "bridge"],
                  ["address", "add", BRIDGE_ADDRESS, "dev", BRIDGE],
                  ["link", "set", BRIDGE, "up"],
                  ["route", "add", "default", "dev", BRIDGE]):
        done = subprocess.run(["ip"] + words, capture_output=True, text=True)
        if done.returncode:
            raise NoDocker("no network bridge: " + done.stderr.strip())


def image(probe):
    """A root file system with the static probe and an empty /tmp."""
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w") as tar:
        for name, mode in (("tmp", 0o1777), ("etc", 0o755), ("workspace", 0o755), ("ro", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        tar.add(probe, "cloche-probe")
    return blob.getvalue()


class Daemon:
    def __init__(self, directory, probe):
        for program in ("dockerd", "docker", "ip"):
            if not shutil.which(program):
                raise NoDocker(program + " is not installed")
        bridge()
        self.dir = os.path.join(directory, "docker")
        os.mkdir(self.dir)
        self.cgroup = "cloche-compare-" + secrets.token_hex(6)
        self.client = ["docker", "--config", self.dir, "-H", "unix://" + self.path("socket")]
        self.process = self.start()
        try:
            self.wait()
            self.tell(["import", "-", IMAGE], input=image(probe))
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self):
        argv = ["dockerd", "-H", "unix://" + self.path("socket"), "--data-root", self.path("data"),
                "--exec-root", self.path("exec"), "--pidfile", self.path("pid"),
                "--config-file", self.path("daemon.json"), "--storage-driver", "vfs",
                "--bridge", BRIDGE, "--iptables=false", "--ip6tables=false", "--ip-masq=false",
                "--cgroup-parent", "/" + self.cgroup]
        with open(self.path("daemon.json"), "w", encoding="ascii") as f:
            f.write("{}\n")
        with open(self.path("log"), "wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self):
        end = time.monotonic() + START_SECONDS
        while subprocess.run(self.client + ["info"], capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.path("log"), encoding="utf-8", errors="replace") as f:
                    last = (f.read().strip().splitlines() or ["no log"])[-1]
                raise NoDocker("dockerd does not start here: " + last[-200:])
            time.sleep(0.2)

    def tell(self, words, **how):
        done = subprocess.run(self.client + words, capture_output=True, timeout=60, **how)
        if done.returncode:
            raise NoDocker("docker %s: %s" % (words[0], done.stderr.decode().strip()[-200:]))
        return done.stdout.decode().strip()

    def version(self):
        return self.tell(["version", "--format", "{{.Server.Version}}"])

    def close(self):
        """Ends the daemon, which ends its containerd, and takes mounts and cgroups away."""
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            points = [line.split()[4] for line in f]
        for point in reversed([x for x in points if x.startswith(self.dir + "/")]):
            subprocess.run(["umount", "-l", point], capture_output=True)
        for top in glob.glob("/sys/fs/cgroup/*/" + self.cgroup) + glob.glob(
                "/sys/fs/cgroup/" + self.cgroup):
            for where, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(where)
                except OSError as error:
                    print("left behind: %s: %s" % (where, error.strerror))

"""Makes images as registries and archives hold them, also malformed ones."""

import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
BUSYBOX = "/bin/busybox"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def entry(name, kind=tarfile.REGTYPE, data=b"", **more):
    """An entry of a layer: attributes of tarfile.TarInfo, and its content."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def directory(name, **more):
    return entry(name, tarfile.DIRTYPE, **more)


def link(name, to, kind=tarfile.SYMTYPE, **more):
    return entry(name, kind, linkname=to, **more)


def layer(*entries, form=tarfile.PAX_FORMAT):
    """The tar of a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def shell_entries():
    """A root with a shell."""
    with open(BUSYBOX, "rb") as file:
        program = file.read()
    names = ("sh", "cat", "ls", "id", "touch", "stat", "find", "sleep", "pwd", "env", "rm")
    return [directory("bin"), entry("bin/busybox", data=program, mode=0o755)] + [
        link("bin/" + name, "busybox") for name in names
    ]


def compress(data, how):
    if how == "gzip":
        return gzip.compress(data, 1)
    if how == "zstd":
        return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


class Layout:
    """An OCI layout in a directory; `run` has the configuration's "config"."""

    def __init__(self, path, layers, run=None, compression="gzip", name="latest", change=None):
        self.path = path
        self.blobs = {}
        config = {
            "architecture": ARCH,
            "os": "linux",
            "config": run or {},
            "rootfs": {"type": "layers", "diff_ids": [digest(l) for l in layers]},
            "history": [{"created_by": "made by a \x1b[31mtest"} for _ in layers],
        }
        blobs = [compress(l, compression) for l in layers]
        kind = LAYER + ("" if compression == "none" else "+" + compression)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.add(json.dumps(config).encode(), CONFIG),
            "layers": [self.add(b, kind) for b in blobs],
        }
        if change:
            change(manifest, self)
        self.id = manifest["config"]["digest"]
        self.manifest = self.add(json.dumps(manifest).encode(), MANIFEST)
        top = dict(self.manifest, annotations={"org.opencontainers.image.ref.name": name})
        other = dict(top, platform={"os": "linux", "architecture": "m68k"})
        self.index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, top]}
        other["digest"] = digest(b"not there")
        self.write("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        self.write("index.json", json.dumps(self.index).encode())

    def write(self, name, data):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(data)

    def add(self, data, kind):
        name = digest(data)
        self.write("blobs/sha256/" + name[7:], data)
        return {"mediaType": kind, "digest": name, "size": len(data)}


def saved(layers, run=None, tags=("saved/image:1",)):
    """An archive as `docker save` writes it."""
    config = {
        "architecture": ARCH,
        "os": "linux",
        "config": run or {},
        "rootfs": {"type": "layers", "diff_ids": [digest(l) for l in layers]},
    }
    text = json.dumps(config).encode()
    names = [digest(l)[7:] + "/layer.tar" for l in layers]
    manifest = [{"Config": digest(text)[7:] + ".json", "RepoTags": list(tags), "Layers": names}]
    return layer(
        *(entry(n, data=l) for n, l in zip(names, layers)),
        entry(manifest[0]["Config"], data=text),
        entry("manifest.json", data=json.dumps(manifest).encode()),
    )

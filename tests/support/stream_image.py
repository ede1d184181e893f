#!/usr/bin/env python3
"""Prints an image as the program of Nix's streamLayeredImage does: a conf names store paths, which become layers.

Beside itself it notes in a file `runs` what it was run with.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import datetime

FORMAT = tarfile.PAX_FORMAT


def main(conf_path):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "runs"), "a") as runs:
        print(conf_path, file=runs)
    with open(conf_path) as file:
        conf = json.load(file)
    layers = [(paths, store_layer(paths, conf)) for paths in conf["store_layers"]]
    with open(os.path.join(conf["customisation_layer"], "layer.tar"), "rb") as file:
        layers.append(([conf["customisation_layer"]], file.read()))
    digests = [hashlib.sha256(layer).hexdigest() for _, layer in layers]
    image = {
        "created": conf["created"],
        "architecture": conf["architecture"],
        "os": "linux",
        "config": conf["config"],
        "rootfs": {"diff_ids": ["sha256:" + digest for digest in digests], "type": "layers"},
        "history": [{"created": conf["created"], "comment": f"store paths: {paths}"} for paths, _ in layers],
    }
    names = [digest + "/layer.tar" for digest in digests]
    manifest = [{"Config": "config.json", "RepoTags": [conf["repo_tag"]], "Layers": names}]
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        for name, (_, layer) in zip(names, layers):
            add(tar, name, layer)
        add(tar, "config.json", json.dumps(image, indent=4).encode())
        add(tar, "manifest.json", json.dumps(manifest).encode())


def store_layer(paths, conf):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=FORMAT) as tar:
        for name in ["/nix", "/nix/store"]:
            root = tarfile.TarInfo(name)
            root.type, root.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(stamped(root, conf))
        for path in (found for top in paths for found in below(top)):
            entry = tar.gettarinfo(path)
            entry.name = "/" + entry.name
            if entry.islnk():
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", os.stat(path).st_size
            with open(path, "rb") if entry.isfile() else io.BytesIO() as content:
                tar.addfile(stamped(entry, conf), content)
    return out.getvalue()


def below(path):
    yield path
    if os.path.isdir(path) and not os.path.islink(path):
        for name in sorted(os.listdir(path)):
            yield from below(os.path.join(path, name))


def stamped(entry, conf):
    entry.mtime = int(datetime.fromisoformat(conf["mtime"]).timestamp())
    entry.uid, entry.gid = int(conf["uid"]), int(conf["gid"])
    entry.uname, entry.gname = conf["uname"], conf["gname"]
    return entry


def add(tar, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


main(sys.argv[1])

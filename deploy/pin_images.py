"""Pins the images of compose.yaml, compose.tls.yaml and Dockerfile by digest.

`python deploy/pin_images.py` asks the registries, by skopeo, crane or docker, whichever
is installed, and writes `compose.pinned.yaml` and `compose.tls.pinned.yaml`, which go
last on the command line of compose (the second one only with compose.tls.yaml, or it
would start that file's services without their settings), and `Dockerfile.pinned`. They
belong to one deployment and are not committed: a digest is only as good as the registry
that it was read from.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

BASE = Path(__file__).parents[1]
#: Each prints the digest of an image's list for all platforms.
PROGRAMS = {
    "skopeo": ("inspect", "--format", "{{.Digest}}", "docker://{image}"),
    "crane": ("digest", "{image}"),
    "docker": (
        *("buildx", "imagetools", "inspect"),
        *("--format", "{{.Manifest.Digest}}", "{image}"),
    ),
}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SERVICE = re.compile(r"^  (\w+):\n(?:    .*\n|\n)*?    image: (\S+)$", re.MULTILINE)
_FROM = re.compile(r"^FROM (\S+)", re.MULTILINE)


def main() -> int:
    program = next(filter(shutil.which, PROGRAMS), None)
    if program is None:
        print(f"Install one of {', '.join(PROGRAMS)}.", file=sys.stderr)
        return 1
    services = _find_services("compose.yaml")
    https_services = _find_services("compose.tls.yaml")
    dockerfile = (BASE / "Dockerfile").read_text()
    images = {*services.values(), *https_services.values(), *_FROM.findall(dockerfile)}
    pinned = {}
    for image in sorted(images):
        if (digest := find_digest(program, image)) is None:
            print(f"{program} finds no digest of {image}; nothing is written.")
            return 1
        pinned[image] = f"{image}@{digest}"
        print(pinned[image])
    builds = dict.fromkeys(
        ("web", "worker"), "build: {context: ., dockerfile: Dockerfile.pinned}"
    )
    images_of = {name: f"image: {pinned[image]}" for name, image in services.items()}
    _write_services("compose.pinned.yaml", images_of | builds)
    https = {name: f"image: {pinned[image]}" for name, image in https_services.items()}
    _write_services("compose.tls.pinned.yaml", https)
    text = _FROM.sub(lambda found: f"FROM {pinned[found[1]]}", dockerfile)
    (BASE / "Dockerfile.pinned").write_text(text)
    return 0


def _find_services(file: str) -> dict[str, str]:
    """The image of each service that names one."""
    return dict(_SERVICE.findall((BASE / file).read_text()))


def _write_services(file: str, services: dict[str, str]) -> None:
    lines = [f"  {name}:\n    {line}\n" for name, line in services.items()]
    (BASE / file).write_text("services:\n" + "".join(lines))


def find_digest(program: str, image: str) -> str | None:
    """None if the registry cannot be reached or does not know the image."""
    named = image if "/" in image else f"library/{image}"
    full = named if "." in named.split("/")[0] else f"docker.io/{named}"
    arguments = [
        part.format(image=full) if "{image}" in part else part
        for part in PROGRAMS[program]
    ]
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    found = _DIGEST.fullmatch(done.stdout.strip())
    return found[0] if done.returncode == 0 and found else None


if __name__ == "__main__":
    sys.exit(main())

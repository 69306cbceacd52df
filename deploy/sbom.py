"""The software bill of materials of a release: CycloneDX 1.6, as JSON.

`make sbom` writes `dist/parley.cdx.json`: the Python packages of
`requirements-image.txt` with their hashes, the scripts and fonts of `static/vendor`,
and the images that `Dockerfile` begins from, with their digests if
`deploy/pin_images.py` has found them. What is in these is for a scanner of images to
say.

Source: https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

BASE = Path(__file__).parents[1]
#: A line such as `django==5.2.8 ; marker \`, with the hashes below it.
_PACKAGE = re.compile(r"^([\w.-]+)==([^\s;\\]+)((?:.*\\\n)*.*)$", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
#: Name, tag and digest of the image; the name may have a port.
_FROM = re.compile(
    r"^FROM ([^\s@]+):([^\s:@/]+)(?:@(sha256:[0-9a-f]{64}))?(?= |$)", re.MULTILINE
)
_VENDORED = re.compile(r"^\| `([^`]+)` \(npm\) \| (\S+) \| (\S+) \|", re.MULTILINE)


def build_bom() -> dict[str, Any]:
    project = tomllib.loads((BASE / "pyproject.toml").read_text())["project"]
    product = {
        "type": "application",
        "bom-ref": project["name"],
        "name": project["name"],
        "version": project["version"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
    }
    components = [*base_images(BASE), *python_packages(), *vendored_packages()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": product,
        },
        "components": components,
    }


def base_images(folder: Path) -> list[dict[str, Any]]:
    """Each once, though several stages begin from it."""
    pinned = folder / "Dockerfile.pinned"
    text = (pinned if pinned.exists() else folder / "Dockerfile").read_text()
    return [
        _component(
            f"pkg:docker/{name}@{quote(digest)}?tag={tag}"
            if digest
            else f"pkg:docker/{name}@{tag}",
            name,
            digest or tag,
            type="container",
        )
        for name, tag, digest in dict.fromkeys(_FROM.findall(text))
    ]


def python_packages() -> list[dict[str, Any]]:
    """With all hashes that an installation accepts: one for each file of a version."""
    text = (BASE / "requirements-image.txt").read_text()
    return [
        _component(
            f"pkg:pypi/{name.lower()}@{version}",
            name,
            version,
            externalReferences=[
                {
                    "type": "distribution",
                    "url": f"pkg:pypi/{name.lower()}@{version}",
                    "hashes": [
                        {"alg": "SHA-256", "content": digest}
                        for digest in _HASH.findall(rest)
                    ],
                }
            ],
        )
        for name, version, rest in _PACKAGE.findall(text)
    ]


def vendored_packages() -> list[dict[str, Any]]:
    text = (BASE / "static" / "vendor" / "README.md").read_text()
    return [
        _component(
            f"pkg:npm/{quote(name, safe='/')}@{version}",
            name,
            version,
            licenses=[{"license": {"id": licence}}],
        )
        for name, version, licence in _VENDORED.findall(text)
    ]


def _component(purl: str, name: str, version: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **more,
    }


if __name__ == "__main__":
    path = BASE / "dist" / "parley.cdx.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(build_bom(), indent=2) + "\n")
    print(path.relative_to(BASE))

"""The samples for a hardened deployment, run as far as this machine can."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from cryptography.fernet import Fernet
from psycopg import sql

from tests.programs import need_program
from tests.scaled import POSTGRES, need_servers
from tests.serving import BASE

DEPLOY = BASE / "deploy"
ROLE, PASSWORD = "parley_of_a_test", "it's \\ a password"


@pytest.mark.slow
@pytest.mark.smoke
def test_the_deployment_check_has_no_warning(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=BASE,
        env={
            **os.environ,
            "BEHIND_HTTPS": "true",
            "SECRET_KEY": "a" * 30 + "-of-the-tests-1234567890",
            "PARLEY_DATA": str(tmp_path),
            "PARLEY_READ_DOTENV": "false",
            "DJANGO_SETTINGS_MODULE": "project.settings",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_keys_come_from_a_command(tmp_path: Path):
    from project.environment.key_command import read_keys

    keys = [Fernet.generate_key().decode() for _ in range(2)]
    (tmp_path / "keys").write_text(",\n".join(keys))
    command = shlex.join(["cat", str(tmp_path / "keys")])
    assert read_keys("NAME", command) == keys


def test_an_error_of_the_command_shows_nothing_of_its_output(tmp_path: Path):
    from project.environment.key_command import read_keys

    script = tmp_path / "kms"
    script.write_text("#!/bin/sh\necho planted-key\necho planted-key >&2\nexit 3\n")
    script.chmod(0o700)
    with pytest.raises(SystemExit) as stop:
        read_keys("NAME", str(script))
    assert str(stop.value) == f"NAME: '{script}' failed with the exit code 3."


# Images


def test_images_are_pinned_by_the_digests_of_their_registries(tmp_path: Path):
    skopeo = tmp_path / "skopeo"
    skopeo.write_text(f"#!/bin/sh\necho sha256:{'ab' * 32}\n")
    skopeo.chmod(0o700)
    done = _pin(tmp_path)
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load((tmp_path / "compose.pinned.yaml").read_text())
    compose = yaml.safe_load((BASE / "compose.yaml").read_text())["services"]
    assert compose.keys() == written["services"].keys()
    https = yaml.safe_load((tmp_path / "compose.tls.pinned.yaml").read_text())
    image = f"clamav/clamav:stable@sha256:{'ab' * 32}"
    assert https == {"services": {"clamav": {"image": image}}}
    for name, service in compose.items():
        if image := service.get("image"):
            pinned = written["services"][name]["image"]
            assert pinned == f"{image}@sha256:{'ab' * 32}"
        else:
            build = written["services"][name]["build"]
            assert build["dockerfile"] == "Dockerfile.pinned"
    lines = (tmp_path / "Dockerfile.pinned").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert len(bases) == 2
    assert all(base.endswith("@sha256:" + "ab" * 32) for base in bases)


def test_without_a_registry_nothing_is_written(tmp_path: Path):
    skopeo = tmp_path / "skopeo"
    skopeo.write_text("#!/bin/sh\nexit 1\n")
    skopeo.chmod(0o700)
    assert _pin(tmp_path).returncode == 1
    assert not {path.name for path in tmp_path.iterdir()} & {
        "compose.pinned.yaml",
        "compose.tls.pinned.yaml",
        "Dockerfile.pinned",
    }


def _pin(folder: Path) -> subprocess.CompletedProcess[str]:
    """In a copy of the project, from another folder."""
    for name in ("compose.yaml", "compose.tls.yaml", "Dockerfile"):
        shutil.copy(BASE / name, folder)
    (folder / "deploy").mkdir()
    return subprocess.run(
        [sys.executable, shutil.copy(DEPLOY / "pin_images.py", folder / "deploy")],
        cwd=folder / "deploy",
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )


def test_no_digest_is_committed():
    for name in ("compose.yaml", "compose.tls.yaml", "Dockerfile"):
        assert "sha256:" not in (BASE / name).read_text()


# Components


def test_the_bill_of_materials_lists_each_pinned_package(tmp_path: Path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, sbom; print(json.dumps(sbom.build_bom()))",
        ],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        check=True,
    )
    bom = json.loads(done.stdout)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    text = (BASE / "requirements-image.txt").read_text()
    pinned = set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))
    listed = {each["name"] for each in bom["components"]}
    assert pinned <= listed
    hashes = [
        found["content"]
        for each in bom["components"]
        for found in each.get("externalReferences", [{"hashes": []}])[0]["hashes"]
    ]
    assert sorted(hashes) == sorted(re.findall("sha256:([0-9a-f]{64})", text))
    assert {"mermaid", "katex", "streaming-markdown"} <= listed
    images = [each for each in bom["components"] if each["type"] == "container"]
    assert [each["name"] for each in images] == ["python"]


def test_the_bill_of_materials_names_pinned_images_by_digest(tmp_path: Path):
    digest = f"sha256:{'a' * 64}"
    for pin in ("", f"@{digest}"):
        name = "Dockerfile.pinned" if pin else "Dockerfile"
        base = f"FROM a.test:5000/python:3.12-slim{pin}"
        (tmp_path / name).write_text(f"{base} AS builder\n{base}\n")
        code = (
            "import json, pathlib, sys, sbom;"
            " print(json.dumps(sbom.base_images(pathlib.Path(sys.argv[1]))))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            cwd=DEPLOY,
            capture_output=True,
            text=True,
            check=True,
        )
        [image] = json.loads(done.stdout)
        assert image["name"] == "a.test:5000/python"
        assert image["version"] == (digest if pin else "3.12-slim")


# Services


@pytest.mark.needs_program("nginx")
def test_the_sample_for_https_is_accepted_by_nginx(tmp_path: Path):
    need_program("openssl")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
            *("-subj", "/CN=localhost", "-days", "1"),
            *("-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")),
        ],
        check=True,
        capture_output=True,
    )
    text = (DEPLOY / "nginx-tls.conf").read_text()
    for old, new in (
        ("/etc/parley-certificates", str(tmp_path)),
        ("/tmp/parley", str(tmp_path)),
        ("web:8000", "127.0.0.1:8000"),  # a name of the network of compose
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "nginx.conf").write_text(text)
    done = subprocess.run(
        [need_program("nginx"), "-t", "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_redis_gets_its_password_by_its_configuration(tmp_path: Path):
    service = yaml.safe_load((BASE / "compose.yaml").read_text())["services"]["redis"]
    command = shlex.split(service["command"].replace("$$", "$"))
    assert command[:2] == ["sh", "-c"]
    script = command[2].replace("/tmp/redis.conf", str(tmp_path / "redis.conf"))
    script = script.replace("exec redis-server", "exec cat")
    done = subprocess.run(
        ["sh", "-c", script],
        env={"PATH": os.environ["PATH"], "REDISCLI_AUTH": "abc123"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        'save ""',
        "appendonly no",
        "requirepass abc123",
    ]


@pytest.fixture
def role_url() -> Iterator[str]:
    need_servers()
    need_program("psql")
    parts = psycopg.conninfo.conninfo_to_dict(POSTGRES)
    names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user"}
    server = {name: str(parts[key]) for name, key in names.items() if key in parts}
    drop = [
        sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(ROLE)),
        sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(ROLE)),
    ]
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        for statement in drop:
            connection.execute(statement)
        subprocess.run(
            [DEPLOY / "create_role.sh"],
            env={
                **os.environ,
                **server,
                "PARLEY_ROLE": ROLE,
                "PARLEY_ROLE_PASSWORD": PASSWORD,
            },
            check=True,
            capture_output=True,
        )
        yield f"postgres://{ROLE}@{parts['host']}:{parts.get('port', 5432)}/{ROLE}"
        for statement in drop:
            connection.execute(statement)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.smoke
def test_a_role_without_rights_is_enough(role_url: str, tmp_path: Path):
    """It creates all tables and triggers, and may not leave the database."""
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=BASE,
        env={
            **os.environ,
            "DATABASE_URL": role_url,
            "REDIS_URL": "redis://127.0.0.1:1/0",  # not used by this command
            "PARLEY_DATA": str(tmp_path),
            "PARLEY_READ_DOTENV": "false",
            "PGPASSWORD": PASSWORD,
            "DJANGO_SETTINGS_MODULE": "project.settings",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with psycopg.connect(role_url, password=PASSWORD) as connection:
        tables = "SELECT count(*) FROM conversations_turn"
        assert connection.execute(tables).fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY conversations_turn FROM PROGRAM 'true'")

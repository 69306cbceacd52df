from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from project.startup.data_folder import InUse, create_private, lock_folder, make_private
from tests.serving import BASE


class NoEntropy(Exception):
    pass


def test_a_private_file_is_written_once(tmp_path: Path):
    path = tmp_path / "secret"
    create_private(path, lambda: "first")
    create_private(path, lambda: "second")
    assert path.read_text() == "first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_making_leaves_no_file(tmp_path: Path):
    def fail() -> str:
        raise NoEntropy

    with pytest.raises(NoEntropy):
        create_private(tmp_path / "secret", fail)
    assert list(tmp_path.iterdir()) == []


def test_the_slower_process_keeps_the_faster_ones_file(tmp_path: Path):
    path = tmp_path / "secret"

    def overtaken() -> str:
        create_private(path, lambda: "the faster")
        return "the slower"

    create_private(path, overtaken)
    assert path.read_text() == "the faster"


def test_only_the_rights_of_others_are_taken(tmp_path: Path):
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_locked_folder_names_its_holder(tmp_path: Path):
    with lock_folder(tmp_path), pytest.raises(InUse) as refusal:
        lock_folder(tmp_path)
    assert str(refusal.value) == f"{tmp_path} is in use by process {os.getpid()}"


def test_a_lock_ends_with_its_file(tmp_path: Path):
    lock_folder(tmp_path).close()
    with lock_folder(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_ends_with_its_process(tmp_path: Path):
    program = "import os, sys; from pathlib import Path;"
    program += "from project.startup.data_folder import *;"
    program += "file = lock_folder(Path(sys.argv[1])); os._exit(1)"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    with lock_folder(tmp_path):
        pass


def test_a_process_may_open_as_many_files_as_the_system_lets_it():
    completed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import resource;"
            "from project.startup.data_folder import raise_open_file_limit;"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1000));"
            "raise_open_file_limit();"
            "print(resource.getrlimit(resource.RLIMIT_NOFILE))",
        ],
        cwd=BASE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout == "(1000, 1000)\n"

"""A real LDAP directory (OpenLDAP's slapd) in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ldap3

from tests.integration.sign_in.authority import ServerFiles
from tests.programs import need_program
from tests.serving import PATIENCE, free_port

BASE = "dc=acme,dc=org"
PEOPLE = f"ou=people,{BASE}"
READER, READER_PASSWORD = f"cn=parley,{BASE}", "of-the-reader"
_CONFIG = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
pidfile {folder}/slapd.pid
{tls}
database mdb
suffix "{base}"
rootdn "{reader}"
rootpw {password}
directory {folder}/db
overlay memberof
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{reader}" read by anonymous auth by * none
"""


class Directory:
    """With `files`, `port` speaks StartTLS, and `tls_port` TLS from the start."""

    def __init__(self, folder: Path, files: ServerFiles | None = None) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self._folder, self._files = folder, files

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    @contextmanager
    def run(self) -> Iterator[None]:
        program = _find_slapd()
        (self._folder / "db").mkdir()
        config = self._folder / "slapd.conf"
        config.write_text(
            _CONFIG.format(
                folder=self._folder,
                base=BASE,
                reader=READER,
                password=READER_PASSWORD,
                tls=self._tls_settings(),
            )
        )
        urls = self.url
        if self._files:
            urls += f" ldaps://127.0.0.1:{self.tls_port}"
        command = [program, "-h", urls, "-f", str(config), "-d", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._wait()
            self._fill()
            yield
        finally:
            process.kill()
            process.wait()

    def _tls_settings(self) -> str:
        if self._files is None:
            return ""
        certificate, key = self._files
        return f"TLSCertificateFile {certificate}\nTLSCertificateKeyFile {key}"

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert time.monotonic() < until, "slapd did not start"
                time.sleep(0.1)

    @contextmanager
    def _connect(self) -> Iterator[ldap3.Connection]:
        connection = ldap3.Connection(self.url, READER, READER_PASSWORD)
        assert connection.bind()
        yield connection
        connection.unbind()

    def _fill(self) -> None:
        with self._connect() as connection:
            connection.add(BASE, ["dcObject", "organization"], {"dc": "acme", "o": "A"})
            connection.add(PEOPLE, "organizationalUnit")

    def add_person(self, name: str, password: str, **attributes: str) -> None:
        with self._connect() as connection:
            values = {"cn": name, "sn": name.title(), "userPassword": password}
            dn = f"uid={name},{PEOPLE}"
            connection.delete(dn)  # of the first try of a repeated test
            connection.add(dn, "inetOrgPerson", {**values, **attributes})
            assert connection.result["description"] == "success", connection.result

    def add_group(self, name: str, *members: str) -> str:
        dn = f"cn={name},{BASE}"
        people = [f"uid={each},{PEOPLE}" for each in members]
        with self._connect() as connection:
            connection.delete(dn)  # of the first try of a repeated test
            connection.add(dn, "groupOfNames", {"member": people})
            assert connection.result["description"] == "success", connection.result
        return dn

    def rename_person(self, name: str, new: str) -> None:
        with self._connect() as connection:
            connection.delete(f"uid={new},{PEOPLE}")
            connection.modify_dn(f"uid={name},{PEOPLE}", f"uid={new}")


def _find_slapd() -> str:
    """Outside of most users' path."""
    return (
        "/usr/sbin/slapd" if Path("/usr/sbin/slapd").exists() else need_program("slapd")
    )

"""Makes a certificate authority for a test, with openssl, in the test's temporary folder."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

DAYS = "2"


class Certificate(NamedTuple):
    """PEM files: the certificate, its key, and both in one, which is what Kafka calls a key store."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; clients that trust :attr:`certificate` trust these."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        openssl("req", "-x509", *_new_key(self._key), "-subj", f"/CN={name}", *usage, "-days", DAYS,
                "-out", self.certificate)  # fmt: skip

    def issue(self, name: str, *hosts: str) -> Certificate:
        """A certificate for these hosts: ``DNS:localhost``, ``IP:127.0.0.1``; without one, a client's."""
        certificate = Certificate(*(self._folder / f"{name}.{kind}" for kind in ("pem", "key", "both.pem")))
        names = ["-addext", f"subjectAltName={','.join(hosts)}"] if hosts else []
        openssl("req", "-x509", *_new_key(certificate.key), "-subj", f"/CN={name}", *names, "-CA", self.certificate,
                "-CAkey", self._key, "-addext", "basicConstraints=critical,CA:FALSE", "-days", DAYS,
                "-out", certificate.certificate)  # fmt: skip
        certificate.both.write_text(certificate.key.read_text() + certificate.certificate.read_text())
        return certificate


def openssl(*arguments: str | Path) -> None:
    """Run openssl; if it fails, the error has its output."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr}"


def _new_key(path: Path) -> list[str | Path]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", path]

"""Writes a Java trust store with the machine's own certificate authorities.

A Java from a Python package has its own list of authorities. Behind a company's proxy that list is not enough, but the
machine's is.
"""

import hashlib
import os
import re
import ssl
import struct
from pathlib import Path

# The usual password in Java. It protects nothing, because the file has only public certificates.
PASSWORD = "changeit"
MAGIC, FORMAT, TRUSTED = 0xFEEDFEED, 2, 2
BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def machine_bundle() -> Path | None:
    """The file with the authorities that this machine trusts; None if there is none."""
    named = [os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile]
    usual = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]
    return next((Path(name) for name in [*named, *usual] if name and Path(name).is_file()), None)


def write(bundle: Path, target: Path) -> None:
    """Write the certificates of the PEM file `bundle` to `target` in the JKS format."""
    blocks = BLOCK.findall(bundle.read_text(encoding="utf-8", errors="replace"))
    parts = [struct.pack(">III", MAGIC, FORMAT, len(blocks))]
    for number, block in enumerate(blocks):
        certificate = ssl.PEM_cert_to_DER_cert(block)
        parts += [struct.pack(">I", TRUSTED), _text(f"authority-{number}"), struct.pack(">Q", 0), _text("X.509")]
        parts += [struct.pack(">I", len(certificate)), certificate]
    body = b"".join(parts)
    seal = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    target.write_bytes(body + seal)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data

"""Options that may hold a secret, read from files of their own: ``token_file`` says where ``token`` is.

So secrets need be neither in the configuration nor in the environment, both of which are easily shown around.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from omdml.errors import ConfigurationError
from omdml.streams.bounded_files import SECRET_BYTES, read_regular
from omdml.workers.configuration.checks.mistakes import Mistakes

SECRETS = ("sasl_plain_password", "ssl_password", "token")
IN_FILES = {"log": SECRETS[:2], "store": ("url",), "node": SECRETS[2:], "webhook": ("url",)}
# A path may be the address of a server, password included, and so may that of an index.
OF_NAMED = {"catalogues": ("path",), "models": ("candidates",)}
ENDING = "_file"
# Options without which a section, or access to the node, means something else.
NEEDED = ("path", "token")
# No token is shorter (workers/configuration/access.py), so what is shorter can be shown: it is the name of a file.
SHORTEST_TOKEN = 16


def read_secrets(table: dict[str, Any], mistakes: Mistakes) -> None:
    """Put what the files say into a table of the configuration, in place of their names.

    Mistakes are a file that is missing, empty or no text, and an option that is given both ways.
    """
    for section, options in IN_FILES.items():
        _read(table.get(section), options, section, mistakes)
    node = table.get("node")
    tokens = node.get("tokens") if isinstance(node, dict) else None
    for name, token in tokens.items() if isinstance(tokens, dict) else ():
        _read(token, IN_FILES["node"], f"node.tokens.{name}", mistakes)
    for section, options in OF_NAMED.items():
        entries = table.get(section)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            _read(entry, options, f"{section}.{name}", mistakes)


def _read(section: Any, options: tuple[str, ...], where: str, mistakes: Mistakes) -> None:
    for option in options if isinstance(section, dict) else ():
        if (path := section.pop(option + ENDING, None)) is None:
            continue
        if option in section:
            mistakes.note(f"{where} has {option} and {option}{ENDING}: expected one of them")
            continue
        if option in NEEDED:
            # If the file cannot be read, this stands in for its content. Otherwise the option would be reported as
            # missing, too.
            section[option] = secrets.token_hex()
        with mistakes.noted():
            section[option] = _text(path, f"{where}.{option}{ENDING}")


def _text(path: object, where: str) -> str:
    """What the file says, without white space around it."""
    if not isinstance(path, str):
        raise ConfigurationError(f"{where} is not text, expected the name of a file")
    if not _is_path(path) and not (where.endswith(".token_file") and len(path) < SHORTEST_TOKEN):
        raise ConfigurationError(f"{where}: there is no such file. Its value is not shown here, because it may be the "
                                 "secret itself: expected the name of a file that holds the secret")  # fmt: skip
    try:
        text = read_regular(path, SECRET_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        # The file holds no text, or its name holds a NUL.
        reason = getattr(error, "strerror", None) or "it is not text"
        make = ""
        if isinstance(error, FileNotFoundError) and where.endswith(".token_file"):
            make = f": make it with `openssl rand -hex 32 > {path}`"
        raise ConfigurationError(f"{where} {path!r}: cannot be read ({reason}){make}") from None
    if not text:
        raise ConfigurationError(f"{where} {path!r}: the file is empty")
    return text


def _is_path(text: str) -> bool:
    """Whether this is surely no secret but the path of a file: of one that is there, or in a folder that is."""
    with suppress(OSError, ValueError):
        folder = Path(text).parent
        return os.path.lexists(text) or ("/" in text and folder != Path("/") and folder.is_dir())
    return False

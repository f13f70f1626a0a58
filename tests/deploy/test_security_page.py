"""The page about security shows commands that do what it says."""

from __future__ import annotations

import argparse
import re

from tests.support.pages.documents import block_that_begins, read
from tests.support.servers.secured import rights


def test_the_page_gives_an_archiver_the_rights_of_its_table():
    options = argparse.ArgumentParser()
    for name in ("bootstrap-server", "command-config", "allow-principal", "topic", "group", "resource-pattern-type"):
        options.add_argument(f"--{name}")
    options.add_argument("--operation", action="append")
    options.add_argument("--add", action="store_true", required=True)
    given = []
    for line in block_that_begins(read("deploy/SECURITY.md"), "kafka-acls.sh").splitlines():
        args = options.parse_args(line.split()[1:])
        resource = f"topic {args.topic}" if args.topic else f"group {args.group}"
        operations = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).lower() for operation in args.operation]
        user = args.allow_principal.removeprefix("User:")
        given.append([user, resource + "*" * (args.resource_pattern_type == "prefixed"), ", ".join(operations)])
    assert given == [row for row in rights() if row[0] == "archiver"]

"""Each fetched program of the local services is either complete in the cache or absent."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local import ServiceError
from deploy.local.fetching import cache, fetch, truststore
from deploy.local.fetching.tool import run
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
FETCHER = """
import sys, time
from pathlib import Path
from deploy.local.fetching import cache

def build(into):
    (into / "half").write_text("")
    with open(sys.argv[1], "a") as builds:
        builds.write("built\\n")
    print("building", flush=True)
    sys.stdin.readline()
    (into / "whole").write_text("")

print(cache.once("piece", build), flush=True)
"""


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMDML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetcher(builds: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", FETCHER, str(builds)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def has_open(pid: int, file: Path) -> bool:
    """Whether a process has this file open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        # The descriptor may have been closed after it was listed.
        with suppress(FileNotFoundError):
            if descriptor.readlink() == file:
                return True
    return False


def test_two_processes_that_fetch_at_once_fetch_once(cached: Path, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    first = fetcher(builds)
    assert first.stdout is not None
    assert first.stdout.readline() == "building\n"
    second = fetcher(builds)
    until(lambda: has_open(second.pid, cached / "piece.lock"))
    events = [process.communicate("\n", timeout=30)[0].splitlines() for process in (first, second)]
    assert builds.read_text() == "built\n"
    assert [lines[-1] for lines in events] == [str(cached / "piece")] * 2


def test_a_fetch_that_was_killed_half_way_is_done_again_from_the_start(cached: Path, tmp_path: Path) -> None:
    cut_off = fetcher(tmp_path / "builds")
    assert cut_off.stdout is not None
    assert cut_off.stdout.readline() == "building\n"
    cut_off.send_signal(signal.SIGKILL)
    cut_off.communicate()
    assert not (cached / "piece").exists()

    fetcher(tmp_path / "builds").communicate("\n", timeout=30)

    assert sorted(path.name for path in (cached / "piece").iterdir()) == ["half", "whole"]
    assert not list(cached.glob("*.part-*"))


def test_a_fetch_that_failed_leaves_nothing_and_can_be_tried_again(cached: Path) -> None:
    def fail(into: Path) -> None:
        raise ServiceError("no", where="here", do="try again")

    with pytest.raises(ServiceError):
        cache.once("piece", fail)
    assert [path.name for path in cached.iterdir()] == ["piece.lock"]
    assert cache.once("piece", lambda into: None) == cached / "piece"


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMDML_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ServiceError, match="set OMDML_CACHE to a folder that you can write to"):
        cache.once("piece", lambda into: None)


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(ServiceError, match=r"(?s)a piece: 'sh -c .*status 3.*\| out of luck.*What to do: try again"):
        run(["sh", "-c", "echo out of luck >&2; exit 3"], where="a piece", do="try again")


def test_a_program_on_path_is_taken_before_anything_is_fetched(
    cached: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert fetch.redis().path == program
    assert not cached.exists()


def test_a_trust_store_holds_every_certificate_of_its_bundle(tmp_path: Path) -> None:
    bundle, store = tmp_path / "bundle.crt", tmp_path / "trust.jks"
    block = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    bundle.write_text(f"# one\n{block}# two\n{block}")
    truststore.write(bundle, store)
    data = store.read_bytes()
    assert data[:12].hex() == "feedfeed0000000200000002"
    assert data.count(b"\x00\x05X.509\x00\x00\x00\x03ABC") == 2

"""``make fuzz``: the tests of :mod:`tests.test_fuzz` and :mod:`tests.test_fuzz_files`, led by which lines they reach.

FUZZ_S=60 says how many seconds each takes. libFuzzer (atheris) makes bytes, hypothesis turns them into examples. One
that fails is kept in ``.hypothesis``, where ``pytest tests/test_fuzz*.py`` finds it again; the bytes of one that hangs
or takes too much memory are in ``.hypothesis/fuzz``.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys

from tests.support.processes import ROOT

SECONDS = os.environ.get("FUZZ_S", "60")
FOUND = ROOT / ".hypothesis" / "fuzz"
LIMITS = ["-timeout=120", "-rss_limit_mb=3000", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={FOUND}/"]
TESTS = ("tests.test_fuzz", "tests.test_fuzz_files")


def fuzz(name: str) -> None:
    """Run one test until its time is up or an example fails; ends this process."""
    import atheris

    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "omdml/kernels").rglob("*.py")]
    kernels = [".".join(path.parts) for path in paths]
    # The kernels are left out, because numba reads their bytecode.
    with atheris.instrument_imports(include=["omdml", "streams", "workers"], exclude=kernels):
        tests = next(module for module in map(importlib.import_module, TESTS) if hasattr(module, name))
    FOUND.mkdir(parents=True, exist_ok=True)
    atheris.Setup([name, f"-max_total_time={SECONDS}", *LIMITS], getattr(tests, name).hypothesis.fuzz_one_input)
    atheris.Fuzz()


def driven(module: str) -> list[str]:
    """The tests of a module that hypothesis gives examples."""
    tests = vars(importlib.import_module(module))
    return [name for name, test in tests.items() if name.startswith("test_") and hasattr(test, "hypothesis")]


def main() -> int:
    """Run all tests, each in a process of its own; returns how many failed."""
    failed = 0
    for name in sorted(name for module in TESTS for name in driven(module)):
        run = subprocess.run([sys.executable, "-m", "tests.fuzz", name], capture_output=True, text=True, cwd=ROOT)
        examples = re.search(r"number_of_executed_units: (\d+)", run.stderr)
        count = int(examples[1]) if examples else 0
        print(f"{'failed' if run.returncode else 'passed'} {count:>9,} examples  {name}", flush=True)
        if run.returncode:
            failed += 1
            print((run.stdout + run.stderr)[-4000:], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(fuzz(sys.argv[1]) if sys.argv[1:] else main())

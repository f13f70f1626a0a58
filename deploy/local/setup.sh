#!/usr/bin/env bash
# Makes .venv with the project in it, as an ordinary user:
#   deploy/local/setup.sh demo | dev | fuzz | lowest | dist | sbom | constraints
#   demo         what the demo needs
#   dev          every extra: tests, lint, benchmarks
#   fuzz         these, and what 'make fuzz' needs
#   lowest       .venv-lowest: the oldest versions that pyproject.toml allows of what users get, and pytest
#   dist         dist/: the wheel and the source archive, the same bytes for the same commit and setuptools
#   sbom         dist/: what an installation with constraints.txt consists of, in CycloneDX's format
#   constraints  writes constraints.txt again, from the newest versions that pyproject.toml allows
# PYTHON names the Python to use; without it python3.11 is taken, otherwise python3.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=''
everything=demo,dev,docs,papers,parquet

refuse() { printf 'setup: %s\n' "$*" >&2; exit 1; }
say() { printf 'setup: %s\n' "$*" >&2; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3}; do
        if new_enough "$candidate"; then command -v "$candidate"; return; fi
    done
    refuse "no Python 3.11 or newer among: ${PYTHON:-python3.11 python3}. Install one, or say where it is:" \
        "make PYTHON=/path/to/python3.11 ..."
}

# make_venv FOLDER: a virtual environment with pip in it, even if Debian's python3-venv is missing.
make_venv() {
    local python wheel
    python=$(find_python)
    say "making $1 with $("$python" -V), some seconds ..."
    rm -rf "$1"
    mkdir "$1"
    touch "$1/.unfinished"
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv "$1"
    else
        say "this Python has no ensurepip: taking pip out of Debian's package python3-pip-whl"
        wheel=$("$python" -m deploy.local fetch pip)
        "$python" -m venv --without-pip "$1"
        "$1/bin/python" "$wheel/pip" install --quiet --no-index --disable-pip-version-check "$wheel"
    fi
}

install() {
    local began=$SECONDS
    if [ -e .venv/.unfinished ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then make_venv .venv; fi
    touch .venv/.unfinished # if this is interrupted, the next run begins again
    say "installing the project with $1, a minute or two ..."
    # Python compiles a module when it is first imported. Most of these 12,000 files never are.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[$1]" ||
        refuse "pip could not install the project (see above); 'make clean' starts over"
    rm .venv/.unfinished
    say "ready after $((SECONDS - began)) s"
}

constraints() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    make_venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check ".[$everything,fuzz]"
    {
        echo "# Exact versions of everything in the development environment, on Python 3.11: 'make constraints' writes them."
        "$scratch/venv/bin/python" -m pip freeze --exclude omdml
    } >"$scratch/constraints.txt"
    cp "$scratch/constraints.txt" constraints.txt
}

# The folders beside omdml are packages in it by links. A checkout without links has small files in their place.
require_links() {
    local folder
    for folder in streams workers; do
        [ -d "omdml/$folder" ] || refuse "omdml/$folder is no link to the folder $folder: this checkout was made without" \
            "symbolic links. Run: git config core.symlinks true && git checkout -- omdml/streams omdml/workers." \
            "On Windows turn on its developer mode before that, or work in WSL"
    done
}

# The lowest versions of what users install, as constraints. Development tools have their usual versions.
lower_bounds() {
    "$(find_python)" - <<'END'
import re, tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
for line in sorted({*project["dependencies"], *(one for name in ("demo", "batch", "parquet", "onnx") for one in extras[name])}):
    name, bound = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", line).groups()
    print(f"{name}=={bound}")
END
}

lowest() {
    local began=$SECONDS
    make_venv .venv-lowest
    touch .venv-lowest/.unfinished
    lower_bounds >.venv-lowest/constraints.txt
    grep -E '^(pytest|pytest-xdist|hypothesis|httpx|jsonschema|onnx|openapi-spec-validator|PyYAML)==' constraints.txt >.venv-lowest/tools.txt
    .venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        -c .venv-lowest/constraints.txt -e '.[demo,batch,parquet,onnx]' -r .venv-lowest/tools.txt ||
        refuse "the lowest versions that pyproject.toml allows do not fit together (see above): raise a bound there"
    rm .venv-lowest/.unfinished
    say "ready after $((SECONDS - began)) s"
}

dist() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    make_venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check 'setuptools>=77'
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH
    # The last commit is built: files that are not committed would get into the archive otherwise.
    git archive --prefix=source/ HEAD | tar -x -C "$scratch"
    mkdir -p dist
    local target kind
    target=$(pwd)/dist
    for kind in sdist wheel; do
        (cd "$scratch/source" && "$scratch/venv/bin/python" -c 'import sys, setuptools.build_meta as build
getattr(build, sys.argv[1])(sys.argv[2])' "build_$kind" "$target" >/dev/null)
    done
    (cd dist && sha256sum omdml-*)
}

sbom() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    make_venv "$scratch/venv"
    make_venv "$scratch/tool"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt .
    "$scratch/tool/bin/python" -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
    # The tools that made the environment do not belong to an installation.
    "$scratch/venv/bin/python" -m pip uninstall --quiet --yes setuptools pip
    mkdir -p dist
    "$scratch/tool/bin/cyclonedx-py" environment --pyproject pyproject.toml --mc-type application --output-reproducible \
        --output-format JSON --output-file dist/omdml.cdx.json "$scratch/venv/bin/python"
    say "wrote dist/omdml.cdx.json"
}

# Whether the stamp $1 is there and newer than what it was made from.
done_already() { [ -e "$1" ] && [ ! pyproject.toml -nt "$1" ] && [ ! constraints.txt -nt "$1" ]; }

# No command below stands in a condition: there bash would go on after an error inside it.
main() {
    require_links
    exec 9>.venv.lock # if two run at once, the second one waits, and finds the work done
    flock 9
    case "${1:-}" in
    demo | dev | fuzz) if done_already ".venv/.$1"; then return; fi ;;&
    demo)
        install demo
        touch .venv/.demo
        ;;
    dev)
        install "$everything"
        touch .venv/.demo .venv/.dev
        ;;
    fuzz)
        install "$everything,fuzz"
        touch .venv/.demo .venv/.dev .venv/.fuzz
        ;;
    lowest)
        if [ -e .venv-lowest/.made ] && [ ! pyproject.toml -nt .venv-lowest/.made ]; then return; fi
        lowest
        touch .venv-lowest/.made
        ;;
    dist | sbom | constraints) "$1" ;;
    *) refuse "say demo, dev, fuzz, lowest, dist, sbom or constraints" ;;
    esac
}

main "$@"

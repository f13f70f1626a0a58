#!/usr/bin/env bash
# Makes .venv with the project in it, as an ordinary user:  deploy/local/setup.sh demo | dev | fuzz | constraints
#   demo         what the demo needs
#   dev          every extra: tests, lint, benchmarks
#   fuzz         these, and what leads 'make fuzz'
#   constraints  writes constraints.txt anew from the newest versions that pyproject.toml allows
# PYTHON names the Python to use; without it python3.11 is taken, else python3.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=''
everything=demo,dev,papers,parquet

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

# make_venv FOLDER: a virtual environment with pip in it, also where Debian's python3-venv is missing.
make_venv() {
    local python wheel
    python=$(find_python)
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
    say "made $1 with $("$python" -V)"
}

install() {
    local began=$SECONDS
    if [ -e .venv/.unfinished ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then make_venv .venv; fi
    touch .venv/.unfinished # what is cut off from here on is made anew
    say "installing the project with $1, a minute or two ..."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$1]" ||
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

# Whether the stamp $1 is there and newer than what it was made from.
done_already() { [ -e "$1" ] && [ ! pyproject.toml -nt "$1" ] && [ ! constraints.txt -nt "$1" ]; }

# No command below stands in a condition: there bash would go on after an error inside it.
main() {
    exec 9>.venv.lock # two at once: the second waits, and finds the work done
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
    constraints) constraints ;;
    *) refuse "say demo, dev, fuzz or constraints" ;;
    esac
}

main "$@"

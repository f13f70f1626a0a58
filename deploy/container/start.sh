#!/bin/sh
# The image holds compiled kernels, and its root may be read-only; numba wants to write where it reads them.
set -eu
cp -R -u /opt/omdml/kernels/. "$NUMBA_CACHE_DIR/" 2>/dev/null || {
    echo "omdml: the kernels' cache NUMBA_CACHE_DIR=$NUMBA_CACHE_DIR cannot be written: mount a volume or tmpfs there" \
        "that user $(id -u) may write to" >&2
    exit 2
}
exec /opt/omdml/bin/omdml "$@"

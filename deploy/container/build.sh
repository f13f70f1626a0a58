#!/usr/bin/env bash
# Builds the image omdml:VERSION from this repository:  [BASE=IMAGE] deploy/container/build.sh [OPTION...]
# It takes docker if its daemon answers, otherwise podman, otherwise buildah, and hands the options on to it.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
options=(-f deploy/container/Dockerfile -t "omdml:$version" ${BASE:+--build-arg "BASE=$BASE"} "$@" .)
if docker info >/dev/null 2>&1; then
    DOCKER_BUILDKIT=1 exec docker build "${options[@]}"
fi
for tool in podman buildah; do
    if command -v "$tool" >/dev/null; then
        # Only Docker's format knows health checks.
        exec "$tool" build --format docker --ignorefile deploy/container/Dockerfile.dockerignore "${options[@]}"
    fi
done
echo "make image: neither docker (with a daemon), podman nor buildah is here: install one" >&2
exit 1

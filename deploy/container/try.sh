#!/usr/bin/env bash
# Builds the image on a Debian root that mmdebstrap makes, and runs a worker and a node from it against a real Kafka and
# Valkey:  deploy/container/try.sh   (make image-test). Takes ten minutes and root:
#   apt-get install --no-install-recommends podman buildah crun conmon mmdebstrap
# BASE=IMAGE takes a base that podman has or can fetch, instead of making one.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${OMDML_TRY:-}" != inside ]; then
    for tool in podman crun conmon unshare; do
        command -v "$tool" >/dev/null || { echo "make image-test: $tool is missing: see the head of $0" >&2; exit 1; }
    done
    [ "$(id -u)" = 0 ] || { echo "make image-test: be root" >&2; exit 1; }
    # Only these processes see what is mounted below.
    exec env OMDML_TRY=inside unshare --mount --propagation private "$0" "$@"
fi

# crun accepts only control groups of version 2. Limits and health timers need more than this, so they are not tried.
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
settings=$(mktemp -d)
trap 'rm -rf "$settings"' EXIT
export CONTAINERS_CONF=$settings/containers.conf STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
cat >"$CONTAINERS_CONF" <<'END'
[containers]
cgroups = "disabled"
netns = "host"
default_ulimits = []
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
END
mkdir -p /etc/containers
[ -e /etc/containers/policy.json ] || echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json

if [ -z "${BASE:-}" ]; then
    BASE=localhost/debian-python:bookworm
    if ! podman image exists "$BASE"; then
        mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$settings/root.tar"
        podman import --quiet "$settings/root.tar" "$BASE"
    fi
fi
# A machine behind a mirror has its certificates and pip's settings here.
options=(--network host)
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ ! -e "$file" ] || options+=(--volume "$file:$file:ro")
done
BASE=$BASE deploy/container/build.sh "${options[@]}"
.venv/bin/python -m tests.fault.image

"""``python -m deploy.local``: fetch real services, or run them in the foreground."""

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

from deploy.local import KafkaServer, PostgresServer, RedisServer, Server, ServiceError, ValkeyServer, ports
from deploy.local.fetching import fetch

KINDS: dict[str, Callable[[int | None], Server]] = {
    "kafka": lambda port: KafkaServer(port=port),
    "redis": lambda port: RedisServer(port=port),
    "valkey": lambda port: ValkeyServer(port=port),
    "postgres": lambda port: PostgresServer(port=port),
}
# The ports at which clients look by default.
USUAL_PORTS = {"kafka": 9092, "redis": 6379, "valkey": 6379, "postgres": 5432}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "fetch":
            _fetch(options.piece)
        else:
            _up(options)
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    get = commands.add_parser("fetch", help="download what the services need into the cache, and print the paths")
    get.add_argument("piece", nargs="?", choices=["all", "pip"], default="all", help="all services, or a wheel of pip")
    up = commands.add_parser("up", help="run services until Ctrl-C")
    up.add_argument("service", nargs="*", metavar="{kafka,redis,valkey,postgres}", help="default: kafka and valkey")
    for kind in KINDS:
        up.add_argument(f"--{kind}-port", type=int, metavar="PORT", help="default: the usual port, or any free one")
    up.add_argument("--topic", help="topic to create in kafka")
    up.add_argument("--partitions", type=int, default=4, metavar="N", help="partitions of that topic (default: 4)")
    return parser


def _fetch(piece: str) -> None:
    paths = {"pip": fetch.pip_wheel()} if piece == "pip" else fetch.everything()
    for name, path in paths.items():
        print(path if piece == "pip" else f"{name:<9}{path}")


def _usual_port(name: str) -> int | None:
    """The usual port of a service. None if something listens there already: the server then chooses a free port."""
    return USUAL_PORTS[name] if ports.is_free(USUAL_PORTS[name]) else None


def _up(options: argparse.Namespace) -> None:
    chosen = options.service or ["kafka", "valkey"]
    unknown = sorted(set(chosen) - set(KINDS))
    if unknown:
        raise ServiceError(
            f"there is no service {', '.join(unknown)}",
            where="python -m deploy.local up",
            do=f"choose among {', '.join(KINDS)}",
        )
    # SIGINT too, because a shell's background process starts with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as stack:
        for name in dict.fromkeys(chosen):
            port = getattr(options, f"{name}_port") or _usual_port(name)
            # On a busy machine Kafka takes a minute. Standard output has only what is there already.
            print(f"starting {name} ...", file=sys.stderr, flush=True)
            server = stack.enter_context(KINDS[name](port))
            print(f"{name:<9}{getattr(server, 'url', server.address)}", flush=True)
            if port is None:
                print(f"{'':<9}(port {USUAL_PORTS[name]} was taken: write this address into omdml.toml)", flush=True)
            if options.topic and isinstance(server, KafkaServer):
                server.create_topic(options.topic, partitions=options.partitions)
                print(f"{'topic':<9}{options.topic}, {options.partitions} partitions", flush=True)
        with suppress(KeyboardInterrupt):
            print("Ctrl-C ends the services and deletes their data", flush=True)
            threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())

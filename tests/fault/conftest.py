"""Real servers for the tests of this folder."""

from tests.support.services import (  # noqa: F401
    _servers_up_again,
    any_redis,
    kafka,
    kafka_cluster,
    new_topic,
    redis_server,
    redis_url,
    valkey_server,
)

"""Real Kafka, Redis, Valkey and PostgreSQL on this machine, without containers and without root.

Importing this package needs only the standard library. ``README.md`` beside this file says how to use it.
"""

from deploy.local.cluster import KafkaCluster
from deploy.local.errors import ServiceError
from deploy.local.kafka import KafkaServer
from deploy.local.postgres import PostgresServer
from deploy.local.redis import RedisServer, ValkeyServer
from deploy.local.replicated import ReplicatedValkey
from deploy.local.server import Server

__all__ = [
    "KafkaCluster",
    "KafkaServer",
    "PostgresServer",
    "RedisServer",
    "ReplicatedValkey",
    "Server",
    "ServiceError",
    "ValkeyServer",
]

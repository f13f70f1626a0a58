"""A Kafka with SASL over TLS and the rights that deploy/SECURITY.md lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from deploy.local import KafkaServer
from tests.support.processes import ROOT
from tests.support.servers.certificates import Authority

USERS = ("admin", "worker", "node", "router", "creator", "operator", "archiver", "stranger")
MODULES = "org.apache.kafka.common.security"


def password(user: str) -> str:
    return f"{user}-secret-4711"


class SecuredKafka(KafkaServer):
    """A broker behind SASL_SSL, known by a certificate for 127.0.0.1 alone.

    Parameters
    ----------
    folder
        For certificates.
    clients
        ``required``: who connects must show a certificate of the same authority, as :meth:`options` does then.
    """

    def __init__(self, folder: Path, clients: str = "none") -> None:
        self.authority = Authority(folder)
        self._own_side = {}
        if clients == "required":
            client = self.authority.issue("client")
            self._own_side = {"ssl_certfile": str(client.certificate), "ssl_keyfile": str(client.key)}
        self.certificate = self.authority.issue("broker", "IP:127.0.0.1")
        scram = f'{MODULES}.scram.ScramLoginModule required username="admin" password="{password("admin")}";'
        plain = f'{MODULES}.plain.PlainLoginModule required user_worker="{password("worker")}";'
        added = [("--add-scram", f"SCRAM-SHA-512=[name={user},password={password(user)}]") for user in USERS]
        super().__init__(
            protocol="SASL_SSL",
            properties={
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.certificate.both),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
                "listener.name.sasl_ssl.ssl.client.auth": clients,
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
                "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # ANONYMOUS is the controller, on a listener of its own.
                "super.users": "User:admin;User:ANONYMOUS",
            },
            client_options=login("admin", self.authority.certificate) | self._own_side,
            format_options=[part for pair in added for part in pair],
        )

    def options(self, user: str, **changes: Any) -> dict[str, Any]:
        """The options of a user's configuration of the log."""
        return {"servers": self.servers, **login(user, self.authority.certificate), **self._own_side, **changes}

    def give_rights(self) -> None:
        """Give the rights in the table of deploy/SECURITY.md."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers, **self.client_options)
        try:
            admin.create_acls([acl for row in rights() for acl in acls(*row)])
        finally:
            admin.close()


def login(user: str, authority: Path) -> dict[str, Any]:
    """The options of kafka-python's clients for a user."""
    return {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": user, "sasl_plain_password": password(user),
            "ssl_cafile": str(authority), "security_protocol": "SASL_SSL"}  # fmt: skip


def rights() -> list[list[str]]:
    """The rows of the table of deploy/SECURITY.md: user, resource, operations."""
    table = (ROOT / "deploy" / "SECURITY.md").read_text().partition("| user | resource | operations |\n")[2]
    return [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()[1:]]


def acls(user: str, resource: str, operations: str) -> list[ACL]:
    """The rights in one row of that table."""
    kind, _, name = resource.partition(" ")
    of_names = ACLResourcePatternType.PREFIXED if name.endswith("*") else ACLResourcePatternType.LITERAL
    pattern = ResourcePattern(ResourceType[kind.upper()], name.removesuffix("*"), of_names)
    return [ACL(f"User:{user}", "*", ACLOperation[operation.upper()], ACLPermissionType.ALLOW, pattern)
            for operation in operations.split(", ")]  # fmt: skip

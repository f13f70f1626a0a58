"""Sending the events of dead letters again, in Kafka: the event and the mark of its letter are one transaction, and a
later sender fences the one before, so no event is sent twice."""

from __future__ import annotations

from omdml.streams.kafka.routing.transaction import KafkaTransactions
from omdml.streams.letters import Dismissed, Letter, Resent, headers_again


class KafkaSender:
    """Sends letters of a Kafka topic again: one transaction a letter."""

    def __init__(self, transactions: KafkaTransactions, topic: str, letters: str) -> None:
        self._transactions, self._topic, self._letters = transactions, topic, letters

    def send(self, letter: Letter, key: str, secret: bytes) -> None:
        """The event and the mark, or neither."""
        with self._transactions as transaction:
            transaction.send(self._topic, letter.payload, key, headers_again(letter, secret))
            transaction.send(self._letters, Resent(letter.position).encode(), key)

    def dismiss(self, letter: Letter) -> None:
        """The mark, in a transaction of its own."""
        with self._transactions as transaction:
            transaction.send(self._letters, Dismissed(letter.position).encode(), letter.model)

    def close(self) -> None:
        """Close the connection to the cluster."""
        self._transactions.close()

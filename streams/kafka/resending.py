"""Sending the events of dead letters again, in Kafka: events and the marks of their letters are one transaction, and a
later sender fences the one before, so no event is sent twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from omdml.streams.kafka.routing.transaction import KafkaTransactions
from omdml.streams.kafka.topic import administering, require_there
from omdml.streams.letters import Dismissed, Letter, Resent
from omdml.streams.resent_events import headers_again


class KafkaSender:
    """Sends letters of a Kafka topic again.

    Parameters
    ----------
    in_parts
        Models that learn each event on its own partition. Copies of their events go to the partition of the event,
        because only the part there knows what became of it.
    """

    def __init__(
        self, transactions: KafkaTransactions, topic: str, letters: str, in_parts: Collection[str] = ()
    ) -> None:
        self._transactions, self._topic, self._letters = transactions, topic, letters
        self._in_parts = in_parts

    def send(self, letters: Sequence[tuple[Letter, str]], secret: bytes) -> None:
        """Send all of these events and marks, or none."""
        # Otherwise the producer would wait for the topic, and then say that it got no answer.
        with administering(self._transactions.options, f"looking for topic {self._topic!r}") as admin:
            require_there(admin, self._transactions.options, self._topic)
        with self._transactions as transaction:
            for letter, key in letters:
                place = letter.partition.number if key in self._in_parts else None
                transaction.send(self._topic, letter.payload, key, headers_again(letter, secret), partition=place)
                transaction.send(self._letters, Resent(letter.position).encode(), key)

    def dismiss(self, letters: Sequence[Letter]) -> None:
        """Write all of these marks, or none."""
        with self._transactions as transaction:
            for letter in letters:
                transaction.send(self._letters, Dismissed(letter.position).encode(), letter.model)

    def close(self) -> None:
        """Close the connection to the cluster."""
        self._transactions.close()

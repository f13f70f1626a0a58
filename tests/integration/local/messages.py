"""Sends a message to Kafka, and reads one."""

from kafka import KafkaConsumer, KafkaProducer

WAIT_S = 30.0


def send(servers: str, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    producer.send(topic, value).get(timeout=WAIT_S)
    producer.close()


def read_one(servers: str, topic: str) -> bytes:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1000)
    )
    try:
        return next(consumer).value
    finally:
        consumer.close()

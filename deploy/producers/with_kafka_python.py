"""Events from standard input to Kafka, by kafka-python: python with_kafka_python.py SERVERS TOPIC < events.jsonl."""

import json
import sys

from kafka import KafkaProducer

servers, topic = sys.argv[1:]
clicks = KafkaProducer(bootstrap_servers=servers, acks="all")
deliveries = []
for line in sys.stdin.buffer:
    model = json.loads(line)["model"]
    deliveries.append(clicks.send(topic, line.strip(), key=model.encode()))
clicks.flush()
for delivery in deliveries:
    # Raises an error for an event that the broker did not take.
    delivery.get()

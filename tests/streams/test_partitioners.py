"""Partitioners: the numbers that other clients choose."""

import pytest

from omdml.streams.partitioners import PARTITIONERS, by_crc32, by_murmur2

# From the test vectors of Kafka's Utils.murmur2 (signed 32 bits) and of CRC-32 (IEEE 802.3).
MURMUR2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
CRC32 = {b"123456789": 0xCBF43926, b"The quick brown fox jumps over the lazy dog": 0x414FA339}


@pytest.mark.parametrize("partitions", [1, 4, 12])
def test_murmur2_chooses_as_kafka_clients_do(partitions: int) -> None:
    for key, value in MURMUR2.items():
        assert by_murmur2(key, partitions) == (value & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("partitions", [1, 4, 12])
def test_crc32_chooses_as_librdkafka_does(partitions: int) -> None:
    for key, value in CRC32.items():
        assert by_crc32(key, partitions) == value % partitions


def test_a_multiple_of_partitions_splits_each_and_mixes_none() -> None:
    for choose in PARTITIONERS.values():
        for number in range(200):
            key = f"model-{number}".encode()
            assert choose(key, 12) % 4 == choose(key, 4)

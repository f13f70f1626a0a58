"""Partitioners: the numbers that other clients choose."""

import pytest

from omdml.streams.partitioners import PARTITIONERS, by_crc32, by_murmur2

# From the test vectors of Kafka's Utils.murmur2 (signed 32 bits).
MURMUR2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
# What librdkafka 2.16.0 itself chose among 5, 12 and 123 partitions: by its default, consistent_random, and by
# murmur2_random.
LIBRDKAFKA = {
    "shop": ((1, 6, 6), (0, 0, 18)),
    "shop-1": ((3, 0, 3), (3, 2, 65)),
    "user-42": ((0, 7, 4), (0, 4, 16)),
    "größe": ((3, 5, 29), (4, 8, 101)),
    "店": ((2, 4, 115), (3, 8, 86)),
}


@pytest.mark.parametrize("partitions", [1, 4, 12])
def test_murmur2_chooses_as_kafka_clients_do(partitions: int) -> None:
    for key, value in MURMUR2.items():
        assert by_murmur2(key, partitions) == (value & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(("name", "chosen"), LIBRDKAFKA.items())
def test_both_choose_as_librdkafka_does(name: str, chosen: tuple[tuple[int, ...], ...]) -> None:
    ours = [tuple(choose(name.encode(), count) for count in (5, 12, 123)) for choose in (by_crc32, by_murmur2)]
    assert ours == list(chosen)


def test_a_multiple_of_partitions_splits_each_and_mixes_none() -> None:
    for choose in PARTITIONERS.values():
        for number in range(200):
            key = f"model-{number}".encode()
            assert choose(key, 12) % 4 == choose(key, 4)

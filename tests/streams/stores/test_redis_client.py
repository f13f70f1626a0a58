"""How commands are written to Redis: as the client's own way does, in one piece each. And what a cut handshake is."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions
from redis.connection import Encoder, PythonRespSerializer

from omdml.errors import StoreError, StoreRefused
from omdml.streams.stores.redis.client import LARGE, WholeCommands, connect, reaching
from omdml.streams.stores.redis.keys import read_position

WORDS = st.one_of(
    st.binary(max_size=40), st.text(st.characters(codec="utf-8"), max_size=20), st.integers(), st.floats(),
    st.binary(max_size=9).map(lambda data: memoryview(data * 2000)),
)  # fmt: skip
NAMES = st.sampled_from(["GET", "SCRIPT LOAD", b"XADD", "CONFIG GET"])


@given(name=NAMES, words=st.lists(WORDS, max_size=8))
def test_a_command_is_the_bytes_that_the_client_itself_would_write_in_one_piece(name, words):
    client = PythonRespSerializer(6000, Encoder("utf-8", "strict", False).encode)
    (packed,) = WholeCommands().pack(name, *words)
    assert packed == b"".join(client.pack(name, *words))


def test_a_large_value_is_sent_as_it_is_and_not_copied():
    client = PythonRespSerializer(6000, Encoder("utf-8", "strict", False).encode)
    words = "key", b"a" * LARGE, "between", b"b" * LARGE
    pieces = WholeCommands().pack("SET", *words)
    assert b"".join(pieces) == b"".join(client.pack("SET", *words))
    assert [pieces[1] is words[1], pieces[3] is words[3]] == [True, True]


@pytest.mark.parametrize("word", [None, True, [1], {"a": 1}])
def test_what_has_no_agreed_form_is_refused_as_the_client_does(word):
    with pytest.raises(exceptions.DataError):
        WholeCommands().pack("SET", "key", word)


def test_a_handshake_that_a_stopping_server_breaks_off_is_an_outage():
    def hang_up():
        with suppress(OSError):
            while True:
                listener.accept()[0].close()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=hang_up, daemon=True).start()
        client = connect(f"rediss://127.0.0.1:{listener.getsockname()[1]}", retries=0)
        with pytest.raises(StoreError, match="is it up") as caught, reaching("there"):
            client.ping()
    assert not isinstance(caught.value, StoreRefused)


def test_an_error_quotes_a_strange_value_in_a_few_characters():
    with pytest.raises(StoreError, match=r"which omdml did not write .*: restore or remove that key") as caught:
        read_position([b"t", b"x" * 5000, b"0"])
    assert len(str(caught.value)) < 500

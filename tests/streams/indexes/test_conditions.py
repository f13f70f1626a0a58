"""What an index cannot say of a condition is left to the node: the words of PostgreSQL and LanceDB."""

import pytest

from omdml.streams.indexes.lancedb import conditions as of_lancedb
from omdml.streams.indexes.postgresql import conditions as of_postgresql
from omdml.streams.protocols.index import Compared, Joined

PRICE = Compared("price", "lt", (20.0,))


def test_conditions_are_joined_in_the_words_of_each_database():
    condition = Joined("any", (PRICE, Joined("not", (Compared("brand", "eq", ("o'neill", "x")),))))
    assert of_postgresql.sql_of(condition) == (
        "(COALESCE(attributes @@ %s::jsonpath, false) OR NOT COALESCE(attributes @@ %s::jsonpath, false))",
        ['$."price" < 20.0', '$."brand" == "o\'neill" || $."brand" == "x"'],
    )
    number, text = "json_get_string(attributes, 'price')", "json_get_string(attributes, 'brand')"
    assert of_lancedb.sql_of(condition) == (
        f"(((TRY_CAST({number} AS DOUBLE) < 20.0) AND json_extract(attributes, '$.\"price\"') NOT LIKE '\"%')"
        f" OR ((({text} = 'o''neill' OR {text} = 'x') AND json_extract(attributes, '$.\"brand\"') LIKE '\"%')"
        " IS NOT TRUE))"
    )


@pytest.mark.parametrize(
    ("kind", "condition"),
    [(of_lancedb, Compared('a "b"', "exists")), (of_lancedb, Compared("a\\b", "has", ("red",))),
     (of_postgresql, Compared("brand", "eq", ("a\0b",))), (of_postgresql, Compared("a\0b", "exists"))],
)  # fmt: skip
def test_what_cannot_be_written_is_not_said_even_in_the_middle(kind, condition):
    assert kind.sql_of(condition) is None
    assert kind.sql_of(Joined("all", (PRICE, Joined("not", (condition,))))) is None

"""Simulated people: what they search for, what they mark, how often they err."""

from __future__ import annotations

from collections import Counter

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.demo.people.habits import Habits
from omdml.workers.demo.people.labels import Labels, read_labels
from omdml.workers.demo.people.person import Person

COLOURS = ("red", "green", "blue", "grey")
# The label of each item.
OF = {f"i{number}": COLOURS[number % 4] for number in range(400)}
PAGE = [f"i{number}" for number in range(60)]


@pytest.fixture
def labels():
    return Labels(OF, seed=0)


def marked(labels, habits=Habits(), searches=300, seed="0", shown=PAGE):  # noqa: B008 - a tuple
    """The comparisons that a person makes in many searches."""
    person = Person(labels, habits, seed)
    return [comparison for _ in range(searches) for comparison in person.compare(person.think(), shown)]


def right(comparison):
    """Whether both marks of a comparison say the truth."""
    return OF[comparison.relevant] == OF[comparison.query] != OF[comparison.irrelevant]


def test_held_out_items_are_of_every_label_in_proportion(labels):
    assert Counter(OF[item] for item in labels.held_out) == dict.fromkeys(COLOURS, 12)
    assert not set(labels.held_out) & set(labels.open)
    assert len(labels.held_out) + len(labels.open) == len(labels) == 400


def test_no_more_than_about_two_hundred_are_held_out():
    many = Labels({f"i{number}": COLOURS[number % 4] for number in range(10_000)}, seed=0)
    assert len(many.held_out) == 200


def test_another_seed_holds_out_others(labels):
    assert Labels(OF, seed=0).held_out == labels.held_out
    assert Labels(OF, seed=1).held_out != labels.held_out


def test_nobody_searches_for_a_held_out_item_or_marks_one(labels):
    shown = [*labels.held_out, "unlabelled", *PAGE]
    touched = {item for comparison in marked(labels, shown=shown) for item in comparison}
    assert touched
    assert touched <= set(labels.open)


def test_who_never_errs_says_the_truth_and_never_prefers_the_query_to_others(labels):
    comparisons = marked(labels, Habits(wrong=0.0))
    assert len(comparisons) == 900
    assert all(right(comparison) and comparison.query != comparison.relevant for comparison in comparisons)


def test_who_always_errs_says_the_opposite(labels):
    comparisons = marked(labels, Habits(wrong=1.0))
    assert comparisons
    assert all(
        OF[comparison.irrelevant] == OF[comparison.query] != OF[comparison.relevant] for comparison in comparisons
    )


def test_the_wrong_share_of_marks_is_wrong(labels):
    comparisons = marked(labels, Habits(wrong=0.05, marks=1), searches=8000)
    # With one mark of each kind, a comparison needs both to be right, or both to be wrong.
    inverted = sum(OF[comparison.irrelevant] == OF[comparison.query] for comparison in comparisons) / len(comparisons)
    assert inverted == pytest.approx(0.05**2 / (0.95**2 + 0.05**2), abs=0.002)
    assert len(comparisons) / 8000 == pytest.approx(0.95**2 + 0.05**2, abs=0.015)


def test_marks_go_to_the_page_as_often_as_habits_say(labels):
    habits = Habits(marks=1, relevant_shown=0.25, irrelevant_shown=0.75, wrong=0.0)
    comparisons = marked(labels, habits, searches=4000)
    # What is found elsewhere may happen to be on the page.
    elsewhere = len(PAGE) / 400
    for kind, share in (("relevant", 0.25), ("irrelevant", 0.75)):
        on_page = sum(getattr(comparison, kind) in PAGE for comparison in comparisons) / len(comparisons)
        assert on_page == pytest.approx(share + (1 - share) * elsewhere, abs=0.03)


def test_a_page_without_a_wrong_item_is_no_obstacle(labels):
    reds = [item for item in PAGE if OF[item] == "red"]
    for shown in (reds, []):
        comparisons = marked(labels, Habits(wrong=0.0), shown=shown)
        assert len(comparisons) == 900
        assert all(map(right, comparisons))


def test_the_same_seed_says_the_same(labels):
    assert marked(labels, seed="a") == marked(labels, seed="a") != marked(labels, seed="b")


@pytest.mark.parametrize("label_of", [{}, {"a": "x", "b": "x", "c": "x"}, {"a": "x", "b": "x", "c": "y", "d": "y"}])
def test_labels_that_make_no_comparison_are_refused(label_of):
    with pytest.raises(ConfigurationError, match="people need at least two labels"):
        Labels(label_of, seed=0)


def test_labels_with_one_item_are_never_searched_for():
    few = Labels({"a": "x", "b": "x", "c": "x", "d": "y"}, seed=0)
    assert len(few.held_out) == 1
    assert set(few.queries) < {"a", "b", "c"}


def test_labels_are_read_from_csv(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text('\ufefflabel,note,id\nred,"a, b",i1\nblue,,i2\n', encoding="utf-8")
    assert read_labels(path) == {"i1": "red", "i2": "blue"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,label\na,b\n", "expected id and label"),
        ("", "expected id and label"),
        ("id,label\na,b\na,c\n", "line 3: id 'a' occurs twice"),
        ("id,label\na\n", "line 2: id 'a' has label None"),
    ],
)
def test_a_file_that_holds_no_labels_is_refused_with_the_line(tmp_path, text, message):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_labels(path)


def test_a_missing_file_of_labels_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"labels .*nowhere.csv: cannot be read"):
        read_labels(tmp_path / "nowhere.csv")

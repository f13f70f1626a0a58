"""In front of a vector database whose raw vectors stay as they are: what each way of using clicks brings.

Held-out queries among all items, after 10,000 triplets of training labels; mAP, means of the seeds. Re-ranking is of
the best 200.

====================  =============================================================================================
plain                 raw vectors by Euclidean distance
query side            ``M q`` of the live metric, raw vectors by inner product
query side, again     its best 200, ranked again exactly under the live metric
plain, again          the best 200 by Euclidean distance, ranked again exactly
one number            the query side, and one stored number for each item: its learned length
all                   every item under the live metric
Rocchio               plain, after the person marked the first 10 answers of this very query
Qdrant                the same marks, by Qdrant's relevance feedback (its naive strategy); its one weight that counts
                      here is chosen by queries of the training part
adapter               a linear map of the query (identity plus rank 64), by triplet loss in ten passes (Adam)
====================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.clicks import Array, Case, begun, embedding, triplets
from benchmarks.quality import SETS, data_folder, split
from omdml.blas import one_blas_thread
from omdml.builders import from_labels
from omdml.evaluate import average_precision
from omdml.metrics import CosineMetric, Metric
from omdml.retrieval.query_side import query_vectors, shares_in_order, side_by_side

COUNT, AGAIN, MARKED, HELD_OUT = 10_000, 200, 10, 1_000
SEEDS = (0, 1, 2)
METHODS = ("LOMDML", "DCA")
ROCCHIO = (1.0, 0.75, 0.15)
# Weights of Qdrant's feedback that are tried, and by how many queries.
WEIGHTS, TUNED = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3), 100
RANK, PASSES, BATCH, RATE = 64, 10, 256, 3e-3
WAYS = ("plain", "query side", "query side, again", "plain, again", "one number", "all", "Rocchio", "Qdrant", "adapter")


def mean_precision(scores: Array, case: Case) -> float:
    """MAP of the test queries by scores (queries, items), the largest first; a query is not its own answer."""
    scores = scores.astype(np.float64)
    scores[np.arange(len(case.test)), case.test] = -np.inf
    lists = np.argsort(-scores, axis=1, kind="stable")[:, :-1]
    return float(average_precision(case.labels[lists] == case.labels[case.test][:, None]).mean())


def again(first: Array, exact: Array, case: Case) -> Array:
    """Scores that put the best of ``first`` ahead, in the order of ``exact``, and leave the others as they are."""
    rows = np.arange(len(first))
    first = first.astype(np.float64)
    first[rows, case.test] = -np.inf
    places = np.argsort(np.argsort(-first, axis=1, kind="stable"), axis=1).astype(np.float64)
    ranks = np.argsort(np.argsort(-exact, axis=1, kind="stable"), axis=1)
    return np.where(places < AGAIN, 2.0 * len(case.labels) - ranks, -places)


def minus_distances(queries: Array, items: Array) -> Array:
    """Scores (queries, items), without terms that are the same for all items."""
    return 2 * queries @ items.T - (items**2).sum(axis=1)


def with_one_number(metric: Metric, turned: Array, items: Array, embedded: Array, middle: Array) -> Array:
    """The query side's scores, corrected by one stored number for each item, which holds what they lack."""
    products = turned @ items.T
    if not isinstance(metric, CosineMetric):
        return 2 * products - ((embedded - middle) ** 2).sum(axis=1)
    total = np.zeros(len(items))
    for name, matrix in metric.experts.items():
        lengths = np.linalg.norm((items - metric.mean) @ matrix.T if len(matrix) else items - metric.mean, axis=1)
        total += metric.shares[name] * lengths / lengths.mean()
    return (products - turned @ metric.mean[:, None]) / total


def rocchio(plain: Array, case: Case) -> Array:
    """Scores of the queries moved towards the relevant ones of their first answers, and away from the others."""
    items, queries = case.side_by_side.astype(np.float64), []
    for row, (page, relevant) in zip(case.test, marks_of(plain, case, case.test), strict=True):
        moved = ROCCHIO[0] * items[row]
        for marks, weight in ((relevant, ROCCHIO[1]), (~relevant, -ROCCHIO[2])):
            if marks.any():
                moved = moved + weight * (items[page[marks]].mean(axis=0) - (items[row] if weight > 0 else 0))
        queries.append(moved)
    return minus_distances(np.stack(queries), items)


def marks_of(plain: Array, case: Case, queries: Array) -> Iterator[tuple[Array, Array]]:
    """For each of these queries, the first answers, and which of them the person marks as relevant."""
    scores = plain.astype(np.float64)
    scores[np.arange(len(queries)), queries] = -np.inf
    for row, page in zip(queries, np.argsort(-scores, axis=1, kind="stable")[:, :MARKED], strict=True):
        yield page, case.labels[page] == case.labels[row]


def relevance_feedback(case: Case, queries: Array, weight: float) -> Array:
    """Scores by Qdrant's naive strategy: similarity to the query, and ``weight`` times the sum over all pairs of a
    relevant and an irrelevant answer of how much more similar an item is to the relevant one.

    The squares of items cancel in these differences, so this is a search for a query that moved.
    """
    items, moved = case.side_by_side.astype(np.float64), []
    plain = minus_distances(items[queries], items)
    for row, (page, relevant) in zip(queries, marks_of(plain, case, queries), strict=True):
        near, far = items[page[relevant]], items[page[~relevant]]
        moved.append(items[row] + weight * (len(far) * near.sum(axis=0) - len(near) * far.sum(axis=0)))
    return minus_distances(np.stack(moved), items)


def qdrant(case: Case) -> Array:
    """Scores by Qdrant's relevance feedback, with the weight that is best for queries of the training part."""
    asked = case._replace(test=np.random.default_rng(case.seed).choice(case.train, TUNED, replace=False))
    precisions = [mean_precision(relevance_feedback(asked, asked.test, weight), asked) for weight in WEIGHTS]
    return relevance_feedback(case, case.test, WEIGHTS[int(np.argmax(precisions))])


def check_qdrant() -> str:
    """Compare the formula with Qdrant's client in its local mode, if that is installed; returns a sentence."""
    try:
        from qdrant_client import QdrantClient, models
    except ImportError:
        return "The formula of Qdrant's feedback was not compared: pip install qdrant-client"
    draw = np.random.default_rng(0)
    items, labels = draw.normal(size=(200, 8)).astype(np.float32), draw.integers(0, 4, 200)
    case = Case({"features": {"x": items}}, labels, np.arange(150), np.arange(150, 200), 0)
    client = QdrantClient(":memory:")
    client.create_collection("c", vectors_config=models.VectorParams(size=8, distance=models.Distance.EUCLID))
    client.upsert("c", [models.PointStruct(id=row, vector=x.tolist()) for row, x in enumerate(items)])
    ours = np.argsort(-relevance_feedback(case, case.test, 0.1), axis=1, kind="stable")
    plain, same = minus_distances(items[case.test], items), 0
    for row, (page, relevant), order in zip(case.test, marks_of(plain, case, case.test), ours, strict=True):
        feedback = models.RelevanceFeedbackInput(
            target=items[row].tolist(),
            feedback=[models.FeedbackItem(example=items[item].tolist(), score=float(mark))
                      for item, mark in zip(page, relevant, strict=True)],
            strategy=models.NaiveFeedbackStrategy(naive=models.NaiveFeedbackStrategyParams(a=1.0, b=1.0, c=0.1)),
        )  # fmt: skip
        answer = client.query_points("c", models.RelevanceFeedbackQuery(relevance_feedback=feedback), limit=10)
        same += [point.id for point in answer.points] == order[:10].tolist()
    return f"Qdrant's client in its local mode answers {same} of {len(case.test)} queries as the formula does."


def adapted(rows: Array, case: Case) -> Array:
    """Scores of the queries under an adapter that was trained on all triplets at once."""
    items = case.side_by_side.astype(np.float32)
    draw, width = np.random.default_rng(case.seed), items.shape[1]
    down = draw.normal(0, 1 / np.sqrt(width), (width, RANK)).astype(np.float32)
    up = np.zeros((RANK, width), np.float32)
    squares = (items**2).sum(axis=1)
    margin = float(np.abs(squares - squares.mean()).mean())
    moments = [np.zeros_like(part) for part in (down, up, down, up)]
    step = 0
    for _ in range(PASSES):
        for batch in np.array_split(rows[draw.permutation(len(rows))], -(-len(rows) // BATCH)):
            query, near, far = (items[batch[:, column]] for column in range(3))
            apart, hidden = near - far, query @ down
            gaps = 2 * ((query + hidden @ up) * apart).sum(axis=1) - squares[batch[:, 1]] + squares[batch[:, 2]]
            apart = apart * (gaps < margin)[:, None] / len(batch)
            gradients = (-(query.T @ (apart @ up.T)), -(hidden.T @ apart))
            step += 1
            for place, (part, gradient) in enumerate(zip((down, up), gradients, strict=True)):
                first, second = moments[place], moments[place + 2]
                first += 0.1 * (gradient - first)
                second += 0.001 * (gradient**2 - second)
                part -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    queries = items[case.test]
    return minus_distances(queries + queries @ down @ up, items)


def scores_of(name: str, seed: int, method: str, others: bool) -> tuple[dict[str, float], tuple[float, ...]]:
    """MAP of each way, and the shares of held-out triplets in order."""
    features, labels, train, test = split(name, seed)
    case = Case({"features": features}, labels, train, test, seed)
    rows = triplets(case, COUNT, 0.0)
    learner = begun(method, features, case)
    learner.learn_many(rows, features)
    metric, items = learner.metric, case.side_by_side.astype(np.float64)
    sample = {modality: x[case.train] for modality, x in features.items()}
    queries = {modality: x[case.test] for modality, x in features.items()}
    embedded, turned = embedding(metric, features), query_vectors(metric, queries, sample).astype(np.float64)
    assert np.array_equal(side_by_side(metric, features), case.side_by_side.astype(np.float32))
    plain, exact = minus_distances(items[case.test], items), minus_distances(embedded[case.test], embedded)
    ways = {
        "plain": plain,
        "query side": turned @ items.T,
        "query side, again": again(turned @ items.T, exact, case),
        "plain, again": again(plain, exact, case),
        "one number": with_one_number(metric, turned, items, embedded, embedded[case.train].mean(axis=0)),
        "all": exact,
    }
    if others:
        ways |= {"Rocchio": rocchio(plain, case), "Qdrant": qdrant(case), "adapter": adapted(rows, case)}
    rest = np.setdiff1d(np.arange(len(case.labels)), np.concatenate([case.train, case.test]))
    # A triplet needs two items of a label.
    _, places, counts = np.unique(case.labels[rest], return_inverse=True, return_counts=True)
    rest = rest[counts[places] > 1]
    held_out = from_labels(case.labels, HELD_OUT, seed + 1, among=rest)
    results = {way: mean_precision(scores, case) for way, scores in ways.items()}
    return results, shares_in_order(metric, held_out, features, sample)


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = SEEDS) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Query side: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    table = Table("set", "learner", *WAYS, *(f"in order: {way}" for way in ("plain", "query side", "exact")))
    table.title = f"mAP after {COUNT:,} triplets, means of seeds {list(seeds)}; shares of held-out triplets in order"
    with one_blas_thread():
        for name in names:
            for method in METHODS:
                runs = [scores_of(name, seed, method, others=method == METHODS[0]) for seed in seeds]
                means = {way: np.mean([scores[way] for scores, _ in runs]) for way in runs[0][0]}
                shares = np.mean([shares for _, shares in runs], axis=0)
                cells = [f"{means[way]:.3f}" if way in means else "" for way in WAYS]
                table.add_row(name, method, *cells, *(f"{share:.3f}" for share in shares))
    console.print(table)
    console.print(check_qdrant())

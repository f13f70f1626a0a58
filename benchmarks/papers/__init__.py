"""The papers' tables run again. The part of a name before ``_`` is the paper, and the folder of its tables."""

# In the order of the page.
TABLES = (
    "law_fantope",
    "law_page",
    "omdml_peers",
    "omdml_kernels",
    "omdml_times",
    "omdml_bound",
    "omdml_million",
    "rank_digits",
    "setnet_sets",
    "setnet_rerank",
    "ablations",
    "cpmtml_faces",
    "cpmtml_related",
    "drift",
)


def module_of(table: str) -> str:
    """The name of a table's module."""
    return f"benchmarks.papers.{table.replace('_', '.', 1)}"

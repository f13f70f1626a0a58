"""The papers' tables run again; in the order of the page."""

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

"""The papers' tables run again; in the order of the page."""

TABLES = ("law_fantope", "law_page", "rank_digits", "ablations", "drift")

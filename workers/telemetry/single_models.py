"""Figures of single models, at /metrics/models: for a person, or for a rare scrape of its own. Its size is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from omdml.errors import ConfigurationError, shortened

# The most models on one page.
MOST = 1000
PATH = "/metrics/models"
# Makes the values of one model, by the names of its gauges.
MakeValues = Callable[[], Mapping[str, float]]


class SingleModels:
    """Makes the pages of a process.

    Parameters
    ----------
    process
        ``worker`` or ``node``.
    meanings
        What each gauge means, by the end of its name.

    Attributes
    ----------
    ask
        Returns the models in memory, and for each a function that makes its values. Any thread may call it.
    """

    def __init__(self, process: str, meanings: Mapping[str, str]) -> None:
        self._process, self._meanings = process, meanings
        self.ask: Callable[[], Mapping[str, MakeValues]] = dict

    def page(self, query: str = "") -> CollectorRegistry:
        """The models that a URL's query asks for: ``model=NAME``, ``model=shop-*`` or nothing; ConfigurationError."""
        fields = parse_qs(query, keep_blank_values=True)
        patterns = fields.pop("model", ["*"])
        if fields or len(patterns) != 1:
            raise ConfigurationError(
                f"{PATH}?{shortened(query)}: expected nothing, or model=NAME once; * in it stands for any letters"
            )
        registry = CollectorRegistry()
        registry.register(ModelGauges(self._process, self._meanings, self.ask, patterns[0]))
        return registry


class ModelGauges(Collector):
    """The gauges of those models whose names a pattern covers, the first ``MOST`` by name."""

    def __init__(
        self, process: str, meanings: Mapping[str, str], ask: Callable[[], Mapping[str, MakeValues]], pattern: str
    ) -> None:
        self._process, self._meanings, self._ask, self._pattern = process, meanings, ask, pattern

    def collect(self) -> Iterator[Any]:
        """Sample the models of this page now."""
        models = self._ask()
        names = sorted(name for name in models if fnmatchcase(name, self._pattern))
        text = f"Models that this page leaves out, because it shows {MOST:,} at most; ?model=NAME shows others"
        yield GaugeMetricFamily(f"omdml_{self._process}_model_left_out", text, value=max(0, len(names) - MOST))
        values = {name: models[name]() for name in names[:MOST]}
        for meaning, text in self._meanings.items():
            family = GaugeMetricFamily(f"omdml_{self._process}_model_{meaning}", text, labels=["model"])
            for name, values_of in values.items():
                if meaning in values_of:
                    family.add_metric([name], float(values_of[meaning]))
            yield family

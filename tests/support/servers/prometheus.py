"""A real Prometheus under the rules of ``deploy/prometheus``, in which time runs faster."""

from __future__ import annotations

import os
import re
import signal
import time

import httpx
import yaml

from deploy.local import Server
from deploy.local.fetching import fetch
from tests.support.processes import ROOT

# How many times faster; set it lower on a slow or busy machine.
FASTER = int(os.environ.get("FASTER", "20"))
SCRAPE = f"{15_000 // FASTER}ms"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RULES = (ROOT / "deploy/prometheus/rules.yml").read_text()


def faster(text: str, times: int = FASTER) -> str:
    """Rules or a query with each window, each ``for`` and each threshold of 30 s or more divided by ``times``.

    Smaller numbers are no times to wait: counts, shares, and the seconds that people wait for an answer.
    """

    def length(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) * SECONDS[match[3]] * 1000 // times}ms"

    text = re.sub(r"(\[|\bfor: )(\d+)([smhd])\b", length, text)
    return re.sub(r"> (\d{2,})\b", lambda match: f"> {int(match[1]) / times:g}", text)


class Prometheus(Server):
    """A Prometheus that scrapes these ports of 127.0.0.1, by job, and evaluates the rules, ``times`` times faster."""

    name = "prometheus"

    def __init__(self, jobs: dict[str, list[int]], times: int = FASTER) -> None:
        super().__init__()
        self.jobs, self.times = jobs, times
        # Tests ask all the time. A client of its own for each question would read this system's certificates each time.
        self._client = httpx.Client(base_url=f"http://{self.address}", verify=False)

    def _prepare(self) -> None:
        (self.data / "rules.yml").write_text(faster(RULES, self.times))
        self._configure()

    def _configure(self) -> None:
        scraped = [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in self.jobs.items()
        ]
        every = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}
        content = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scraped}
        (self.data / "prometheus.yml").write_text(yaml.safe_dump(content))

    def _command(self):
        options = ("--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", f"--web.listen-address={self.address}")
        more = ("--enable-feature=exemplar-storage", "--log.level=warn")
        return [fetch.prometheus().path, *options, *more], dict(os.environ)

    def _ready(self, log: str) -> bool:
        try:
            return self._client.get("/-/ready", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._client.close()
        super().close()

    def look_again(self) -> None:
        """Have Prometheus scrape the targets that ``jobs`` has now."""
        self._configure()
        os.kill(self.pid, signal.SIGHUP)

    def get(self, path: str, **parameters: str) -> dict:
        """The data of an answer of its API; fails if it refuses."""
        answer = self._client.get(f"/api/v1/{path}", params=parameters, timeout=10)
        assert answer.status_code == 200, (parameters, answer.text)
        return answer.json()["data"]

    def ask(self, query: str) -> list[float]:
        """The numbers in the answer to a query."""
        return [float(sample["value"][1]) for sample in self.get("query", query=query)["result"]]

    def traces(self, metric: str) -> set[str]:
        """Trace ids of the exemplars of a metric, of the last ten minutes."""
        now = time.time()
        response = self.get("query_exemplars", query=metric, start=str(now - 600), end=str(now + 60))
        return {exemplar["labels"]["trace_id"] for series in response for exemplar in series["exemplars"]}

    def alerts(self) -> dict[str, str]:
        """The state of each alert that fires, or will if it stays true: ``firing`` or ``pending``."""
        alerts = sorted(self.get("alerts")["alerts"], key=lambda alert: alert["state"], reverse=True)
        return {alert["labels"]["alertname"]: alert["state"] for alert in alerts}

    def firing(self) -> set[str]:
        """The names of the alerts that are firing."""
        return {name for name, state in self.alerts().items() if state == "firing"}

    def fired_since(self, begin: float) -> dict[str, tuple[float, float]]:
        """When each alert that fired since then did so first and last, by this machine's clock to half a second."""
        query = 'max by (alertname) (ALERTS{alertstate="firing"})'
        answer = self.get("query_range", query=query, start=str(begin), end=str(time.time()), step="500ms")
        return {
            series["metric"]["alertname"]: (series["values"][0][0], series["values"][-1][0])
            for series in answer["result"]
        }

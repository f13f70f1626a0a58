"""One click is followed through all stages: record, worker, snapshot, node, exemplars in Prometheus, spans by OTLP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support import records
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.servers.prometheus import Prometheus
from tests.support.worlds import catalogue, events

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STAGES = ["feedback.accept", "worker.learn", "snapshot.publish", "node.swap"]


class Receiver:
    """A real receiver of OTLP over HTTP; ``spans`` are those of the click's trace, with the service, by their names."""

    def __init__(self):
        self.spans = {}
        receiver = self

        class Takes(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                    named = {attribute.key: attribute.value.string_value for attribute in part.resource.attributes}
                    for scope in part.scope_spans:
                        for span in scope.spans:
                            if span.trace_id.hex() == TRACE:
                                receiver.spans[span.name] = (named["service.name"], span)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


class Followed:
    """A worker and a node on a log."""

    def __init__(self, folder, log, environment):
        catalogue(folder / "items")
        self.ports = {"worker": free_port(), "node": free_port()}
        (folder / "omdml.toml").write_text(
            f'{log}\n[store]\nurl = "dir:{folder}/state"\n'
            f'[catalogues.items]\npath = "items"\n'
            '[logging]\nlevel = "debug"\n'
            f'[worker]\nbind = "127.0.0.1:{self.ports["worker"]}"\n[node]\nbind = "127.0.0.1:{self.ports["node"]}"\n'
            '[guard]\non = false\n[models.shop]\nlearner = "lomdml"\nrank = 3\n'
        )
        self.worker, self.node = (
            ForkedProcess(folder, name, "--config", "omdml.toml", name=name, environment=environment)
            for name in self.ports
        )
        self.url = f"http://127.0.0.1:{self.ports['node']}"
        wait_for(lambda: self.answers("/readyz"), "the node to be ready", 60, self.node)
        # For the first version that a node loads it is not known how long its clicks took.
        wait_for(lambda: "model_live" in self.node.said, "the node to load a version", 60, self.node)

    def answers(self, path):
        try:
            return httpx.get(self.url + path, verify=False).status_code == 200
        except httpx.HTTPError:
            return False

    def click(self):
        body, header = next(events(1)).replace(b'"at":1.0,', b"").replace(b',"at":1.0', b""), f"00-{TRACE}-{CLIENT}-01"
        answer = httpx.post(f"{self.url}/feedback", content=body, headers={"traceparent": header})
        assert answer.status_code == 202, answer.text

    def metrics(self, name):
        accept = {"accept": "application/openmetrics-text"}
        return httpx.get(f"http://127.0.0.1:{self.ports[name]}/metrics", headers=accept).text

    def close(self):
        for process in (self.worker, self.node):
            process.stop()


@pytest.fixture
def follow(tmp_path):
    begun = []

    def begin(log, **environment):
        begun.append(Followed(tmp_path, log, environment))
        return begun[-1]

    yield begin
    for service in begun:
        service.close()


def test_a_click_is_followed_to_exemplars_in_prometheus_and_spans(follow, kafka, new_topic, receiver):
    topic = new_topic(1)
    log = f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"'
    service = follow(log, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_BSP_SCHEDULE_DELAY="200")
    jobs = {f"omdml-{name}": [port] for name, port in service.ports.items()}
    with Prometheus(jobs) as prometheus:
        service.click()
        for metric in ("omdml_node_freshness_seconds_bucket", "omdml_worker_learn_seconds_bucket"):
            wait_for(lambda metric=metric: prometheus.traces(metric) == {TRACE}, f"an exemplar of {metric}", 60)
    wait_for(lambda: sorted(receiver.spans) == sorted(STAGES), f"the spans {STAGES}", 60)
    assert [receiver.spans[name][0] for name in STAGES] == ["omdml-node", "omdml-worker", "omdml-worker", "omdml-node"]
    accept, learn, publish, swap = (receiver.spans[name][1] for name in STAGES)
    assert accept.parent_span_id.hex() == CLIENT
    assert learn.parent_span_id == accept.span_id
    assert publish.parent_span_id == swap.parent_span_id == learn.span_id
    begins = [span.start_time_unix_nano for span in (accept, learn, publish, swap)]
    assert begins == sorted(begins)
    assert all(span.start_time_unix_nano < span.end_time_unix_nano for span in (accept, learn, publish, swap))
    (record,) = records.read_topic(kafka.servers, topic)
    assert dict(record.headers)["traceparent"] == f"00-{TRACE}-{accept.span_id.hex()}-01".encode()
    assert f"trace_id={TRACE}" in service.worker.said


def test_a_click_in_a_log_of_files_is_followed_without_opentelemetry(follow, tmp_path):
    service = follow('[log]\nkind = "file"\npath = "log/"', OTEL_EXPORTER_OTLP_ENDPOINT="")
    service.click()
    for name in service.ports:
        wait_for(lambda name=name: TRACE in service.metrics(name), f"an exemplar of the {name}", 60)
    (line,) = [line for file in (tmp_path / "log").rglob("*.jsonl") for line in file.read_bytes().splitlines()]
    assert json.loads(line)["record"]["headers"] == [["traceparent", f"00-{TRACE}-{CLIENT}-01"]]


def test_a_receiver_that_is_away_keeps_no_click_from_being_learned(follow):
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    service = follow('[log]\nkind = "file"\npath = "log/"', OTEL_BSP_SCHEDULE_DELAY="200", **away)
    service.click()
    wait_for(lambda: "event=spans_not_sent" in service.worker.said, "the worker to say so", 60, service.worker)
    wait_for(lambda: TRACE in service.metrics("node"), "the node to know the click", 60, service.node)
    assert [process.stop() for process in (service.worker, service.node)] == [0, 0]

// Health: this node, the models it answers with, and the whole installation as omdml status and omdml doctor see it.
import { copyAsCurl, get } from "../api.js";
import { bytes, day, el, redraw, refill, seconds, table, trying, whole } from "../dom.js";
import { whileSeen } from "../live.js";

const NODE_MS = 5000;
const ALL_MS = 30000;
const RANK = { error: 0, warning: 1, ok: 2 };
const TAG = { error: "bad", warning: "warn", ok: "good" };

// The sections of deploy/RUNBOOK.md, by what the doctor checks.
const RUNBOOK = {
  "log": "OmdmlWaitsForDependency", "log's safety": "Kafka: topic settings and retention", "store": "OmdmlWaitsForDependency",
  "store's safety": "Redis and Valkey: persistence and memory", "letters": "OmdmlDeadLetters", "checkpoints": "OmdmlModelsWait",
  "serving": "OmdmlSnapshotRefused", "partitions": "OmdmlPartitionUnowned", "reading": "OmdmlNobodyLearns", "node": "OmdmlTargetDown",
  "rates": "Sizing",
};

const tag = (kind, text) => el("span", { className: `tag ${kind}` }, text);
const fact = (name, value, kind = "") => el("div", { className: "fact" }, el("span", {}, name), el("b", { className: kind }, value));

export async function healthPage(place) {
  // Screen readers tell what was found, but not at each look when that was.
  const verdict = el("div", { className: "row", aria: { live: "polite" } });
  const lookedAt = el("span", { className: "soft" });
  const facts = el("div", { className: "facts" });
  const findings = el("ul", { className: "findings" });
  const well = el("details", { hidden: true }, el("summary", {}, "Checks that found nothing wrong"), el("ul", { className: "findings" }));
  const partitions = el("div", {}, el("p", { className: "soft" }, "Looking ..."));
  const board = el("span");
  const models = el("div");
  const node = el("p", { className: "row" });
  place.append(el("div", { className: "stack" },
    el("section", { className: "card stack" },
      el("div", { className: "row" }, el("h2", { className: "grow" }, "Installation"), verdict, lookedAt, board,
        el("button", { className: "quiet", type: "button", on: { click: () => copyAsCurl("/status") } }, "Copy as curl")),
      facts, findings, well),
    el("section", { className: "card stack" }, el("div", { className: "row" }, el("h2", { className: "grow" }, "Models on this node"), node), models),
    el("section", { className: "card stack" }, el("h2", {}, "Feedback log"), partitions)));

  async function refreshNode() {
    const [alive, able, status] = await Promise.all([state("/healthz"), state("/readyz"), get("/models")]).catch((error) => {
      // What was seen before says nothing of a node that does not answer now.
      node.replaceChildren(tag("bad", error.message));
      models.replaceChildren();
      throw error;
    });
    refill(node, tag(alive === null ? "good" : "bad", alive ?? "running"), tag(able === null ? "good" : "bad", able ?? "ready"),
      tag(status.stale_seconds > 0 ? "warn" : "good", status.stale_seconds > 0 ? `${seconds(status.stale_seconds)} behind` : "up to date"));
    redraw(models, table([["model", ""], ["state", ""], ["version", "number"], ["learner", ""], ["items", "number"], ["click to live, typically", "number"], ["click to live, 99 of 100", "number"], ["live since", ""], ["note", "wide"]],
      status.models.map((model) => (model.ready
        ? [model.model, tag("good", "answers"), whole(model.version), model.learner, whole(model.items), seconds(model.freshness?.p50_s), seconds(model.freshness?.p99_s), day(model.live_since),
          model.refused ? `version ${whole(model.refused.live)} cannot be served: ${model.refused.reason}`
            : model.store_fell_back ? "the store has an older version than this, or none. While the store is empty, do not restart this node: see the runbook, OmdmlStoreChanged" : model.pinned ? "pinned" : ""]
        : [model.model, tag("bad", "does not answer"), "", "", "", "", "", "", model.refused?.reason ?? "nothing was published yet"])), "Models"));
  }

  async function refreshAll() {
    const looked = facts.childElementCount > 0;
    if (!looked) verdict.replaceChildren(el("span", { className: "soft" }, "Looking at log, store and models ..."));
    let seen;
    try {
      seen = await get("/status");
    } catch (error) {
      refill(verdict, tag("bad", error.message));
      lookedAt.textContent = "";
      if (!looked) partitions.replaceChildren(el("p", { className: "soft" }, "Nothing is known of it yet."));
      return;
    }
    const { status } = seen;
    const { errors, warnings } = status;
    refill(verdict, errors ? tag("bad", `${errors} ${errors === 1 ? "error" : "errors"}`) : tag("good", "no errors"),
      ...(warnings ? [el("span", { className: "unseen" }, ", "), tag("warn", `${warnings} ${warnings === 1 ? "warning" : "warnings"}`)] : []));
    lookedAt.textContent = `seen at ${new Date(status.at * 1000).toLocaleTimeString()}`;
    refill(facts, ...factsOf(status));
    const sorted = seen.findings.toSorted((finding, other) => RANK[finding.level] - RANK[other.level]);
    const item = (finding) => el("li", {}, tag(TAG[finding.level], finding.level), el("b", {}, finding.check), el("span", { className: "text" }, finding.text, finding.level === "ok" ? "" : more(finding.check, seen.links?.runbook)));
    refill(board, ...(seen.links?.grafana ? [outside(seen.links.grafana, "Grafana")] : []));
    refill(findings, ...sorted.filter((finding) => finding.level !== "ok").map(item));
    const fine = sorted.filter((finding) => finding.level === "ok");
    well.hidden = fine.length === 0;
    well.firstChild.textContent = `${fine.length} ${fine.length === 1 ? "check" : "checks"} found nothing wrong`;
    refill(well.lastChild, ...fine.map(item));
    drawLog(status);
  }

  function drawLog({ log, problems }) {
    if (!log) {
      partitions.replaceChildren(el("p", {}, tag("bad", "not readable"), ` ${problems.log ?? ""}`));
      return;
    }
    const rows = log.partitions.map((partition) => [String(partition.number), whole(partition.lag), partition.owner ? partition.owner : tag("bad", "nobody reads it"), partition.models === null ? "" : whole(partition.models), partition.wrong]);
    refill(partitions, el("p", { className: "soft" }, `${log.name}, ${log.workers.length} ${log.workers.length === 1 ? "worker" : "workers"}`),
      rows.length ? table([["partition", ""], ["events not saved yet", "number"], ["owner", ""], ["models", "number"], ["problem", "wide"]], rows, "Partitions") : el("p", {}, "No partition yet: the first event makes the log."));
  }

  await Promise.all([trying(refreshNode), refreshAll()]);
  const ends = [whileSeen(() => trying(refreshNode), NODE_MS), whileSeen(refreshAll, ALL_MS)];
  return () => { for (const end of ends) end(); };
}

const outside = (href, text) => el("a", { href, target: "_blank", rel: "noreferrer" }, text);

/** Where to read more about a finding: a link if the configuration has the runbook's address, otherwise the file and its section. */
function more(check, runbook) {
  const section = RUNBOOK[check];
  if (!section) return "";
  const anchor = section.toLowerCase().replace(/[^\w -]/g, "").replaceAll(" ", "-");
  return el("span", { className: "soft" }, " ", runbook ? outside(`${runbook}#${anchor}`, `See the runbook: ${section}`) : `See RUNBOOK.md, section ${section}`);
}

/** The installation in a few numbers. What could not be asked says so among the findings. */
function factsOf({ log, models, letters, store }) {
  const list = (names) => (names.length ? names.slice(0, 5).join(", ") + (names.length > 5 ? ` and ${whole(names.length - 5)} more` : "") : "none");
  return [
    ...(log ? [fact("events waiting", whole(log.lag) + (log.more ? " or more" : "")), fact("workers", whole(log.workers.length), log.workers.length ? "" : "wrong")] : []),
    ...(models ? [
      fact("models", whole(models.count)), fact("models that wait", list(models.waiting), models.waiting.length ? "wrong" : ""),
      fact("withheld", list(models.withheld), models.withheld.length ? "wrong" : ""), fact("pinned", list(models.pinned)),
    ] : []),
    ...(letters ? [fact("open dead letters", whole(letters.open) + (letters.whole ? "" : " or more"), letters.open ? "wrong" : "")] : []),
    ...(store ? [fact(store.kind, store.used_bytes === null ? (store.free_bytes === null ? (store.durable ? "durable" : "not durable") : `${bytes(store.free_bytes)} free`) : `${bytes(store.used_bytes)} used`)] : []),
  ];
}

/** Null if all is well, otherwise what the node says. */
async function state(path) {
  try {
    await get(path);
    return null;
  } catch (error) {
    return error.message;
  }
}

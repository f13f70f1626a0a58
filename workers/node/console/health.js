// Health: whether this node can answer, and how fresh each model is.
import { get } from "./api.js";
import { day, el, seconds, table, trying, whole } from "./dom.js";

const EVERY_MS = 3000;

export async function healthPage(place) {
  const ready = el("p", { className: "row" });
  const models = el("div");
  place.append(el("div", { className: "stack" },
    el("section", { className: "card stack" }, el("h2", {}, "This node"), ready),
    el("section", { className: "card stack" }, el("h2", {}, "Models"), models),
    el("section", { className: "card stack" }, el("h2", {}, "More"),
      el("p", {}, "Workers, the log, dead letters and the store are seen from the machine that has the configuration: ", el("code", {}, "omdml status"), " on one screen, ", el("code", {}, "omdml doctor"), " with the sentence that mends each fault."))));

  async function refresh() {
    const [alive, able, told] = await Promise.all([state("/healthz"), state("/readyz"), get("/models")]);
    const tag = (good, text) => el("span", { className: `tag ${good ? "good" : "bad"}` }, text);
    ready.replaceChildren(tag(alive === null, alive ?? "its threads make progress"), tag(able === null, able ?? "ready: every model it waits for can answer"),
      el("span", { className: "soft" }, told.stale_seconds > 0 ? `the most outdated model is ${seconds(told.stale_seconds)} behind` : "all models are up to date"));
    models.replaceChildren(table([["model", ""], ["state", ""], ["version", "number"], ["learner", ""], ["items", "number"], ["click to live, p50", "number"], ["p99", "number"], ["live since", ""], ["note", "wide"]],
      told.models.map((one) => one.ready
        ? [one.model, tag(true, "answers"), whole(one.version), one.learner, whole(one.items), seconds(one.freshness?.p50_s), seconds(one.freshness?.p99_s), day(one.live_since),
            one.refused ? `version ${whole(one.refused.live)} cannot be served: ${one.refused.reason}` : one.pinned ? "pinned" : ""]
        : [one.model, tag(false, "does not answer"), "", "", "", "", "", "", one.refused?.reason ?? "nothing was published yet"]), "Models"));
  }

  await refresh();
  const timer = setInterval(() => trying(refresh), EVERY_MS);
  return () => clearInterval(timer);
}

/** Null if all is well, else what the node says. */
async function state(path) {
  try {
    await get(path);
    return null;
  } catch (error) {
    return error.message;
  }
}

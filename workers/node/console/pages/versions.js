// Versions: what was live when, before and after side by side, and moving what answers.
import { copyAsCurl, copyInstead, get, post } from "../api.js";
import { allow, choices, day, el, isSecond, percent, redraw, refill, say, table, tell, trying, whole } from "../dom.js";
import { Seldom } from "../live.js";
import { anyItem } from "../picker.js";
import { arrow, fieldsOf, itemOf, labelOf, named, picture } from "../picture.js";
import { whatOf } from "./watch.js";

const SHOWN = 10;
const LINES = 200;
// The choice that follows whatever answers.
const LIVE = "live";
// While versions come, the page waits so long between two looks at the history.
const LOOK_MS = 2000;

export async function versionsPage(place, { model, query: begin, remember, onStep }) {
  const path = `/models/${encodeURIComponent(model)}`;
  const items = await get("/items", { model, limit: 1 });
  const held = el("div", { className: "stack" });
  const compared = el("div", { className: "two" });
  const trouble = el("div", { className: "trouble row", hidden: true, aria: { role: "alert" } });
  const shown = el("span", { className: "asked", hidden: true });
  const historyTable = el("div");
  const later = { change: () => trying(compare), blur: () => looking.ask() };
  const from = el("select", { aria: { label: "Before" }, on: later });
  const to = el("select", { aria: { label: "After" }, on: later });
  const query = el("input", { type: "search", value: begin, aria: { label: "Query: an item's id" }, on: { change: () => trying(compare) } });
  const any = el("button", { type: "button", on: { click: () => trying(compareAny) } }, "Any item");
  const reason = el("input", { type: "text", maxLength: 200 });
  const copy = copyInstead();
  // What the keyboard may be on stays, and changes: a screen reader would tell each new one.
  const title = el("h2", { className: "grow" });
  const follows = el("span");
  const pin = el("button", { type: "button", on: { click: (event) => (described?.pinned ? move(event, "unpin", null) : move(event, "pin", described?.version ?? null)) } });
  const back = action("Roll back by one", "rollback", null);
  const facts = el("span", { className: "soft" });
  const what = el("button", { className: "quiet", type: "button", on: { click: (event) => (copy.asked(event) ? copyAsCurl(`${path}/inspect`) : trying(inspect)) } }, "What it holds");
  const now = el("section", { className: "card stack" }, el("div", { className: "row" }, title, follows), el("div", { className: "row" }, facts, what), held,
    el("p", { className: "soft" }, "Roll back: an older version answers. Pin: a version stays, whatever is learned. Unpin: the newest answers again. Learning goes on all the time."),
    el("div", { className: "row" }, el("label", { className: "reason grow" }, "Reason for a move (optional, for the history) ", reason), copy.element, pin, back));
  const page = el("div", { className: "stack" }, now,
    el("section", { className: "card stack" },
      el("div", { className: "row" }, el("h2", { className: "grow" }, "Before and after"), shown,
        el("div", { className: "pair" }, el("label", {}, "Query ", query), any), el("div", { className: "pair" }, el("label", {}, "before ", from), el("label", {}, "after ", to)),
        el("button", { className: "quiet", type: "button", on: { click: () => copyAsCurl(`${path}/compare`, { parameters: comparison() }) } }, "Copy as curl")), trouble, compared),
    el("section", { className: "card stack" }, el("h2", {}, "History, newest first"), historyTable));

  let described = null;
  // The newest line of the history that this page shows.
  let seen = 0;
  let turn = 0;

  /** Ask again. If nobody on this page `asked` for it, rows do not move under a hand that may press one of their buttons. */
  async function refresh(asked = true) {
    const [{ models }, { lines }] = await Promise.all([get("/models"), get(`${path}/history`, { last: LINES })]);
    described = models.find((entry) => entry.model === model) ?? null;
    drawNow(lines.some((line) => line.what === "published" && line.version < described?.version));
    // A line about a publication stays as long as the version is kept. Lines about moves stay longer.
    const versions = [...new Set(lines.filter((line) => ["published", "held"].includes(line.what)).map((line) => line.version))].sort((a, b) => a - b);
    // A node makes the start again. A model that began with a parent has no other start than what is kept.
    const comparable = [...new Set([...(described?.begins_with ? [] : [0]), ...versions])].sort((a, b) => a - b);
    options(from, comparable, comparable[0]);
    options(to, [...comparable, LIVE], LIVE);
    if (asked || !historyTable.matches(":hover, :has(:focus-visible)")) {
      seen = Math.max(0, ...lines.map((line) => line.serial));
      drawHistory(lines, versions);
    }
    if (to.value === LIVE && query.value) await compare(false);
  }

  function drawHistory(lines, versions) {
    redraw(historyTable, table([["version", "number"], ["what", ""], ["go to", ""], ["when", ""], ["who", ""], ["why", "wide"]], lines.toReversed().map((line) => [
      whole(line.version), whatOf(line),
      versions.includes(line.version) ? el("span", { className: "row" }, action("Roll back", "rollback", line.version), action("Pin", "pin", line.version)) : "no longer kept",
      day(line.at), line.actor ?? "", line.reason ?? "",
    ]), "History"));
  }

  function drawNow(older) {
    const { ready, pinned, version } = described ?? {};
    title.textContent = ready ? `Version ${whole(version)} of ${model} answers` : `${model} has no version yet`;
    follows.className = `tag ${pinned ? "bad" : "good"}`;
    follows.textContent = pinned ? "pinned: newer versions do not go live" : "follows what is learned";
    pin.textContent = pinned ? "Unpin" : "Pin this";
    allow(back, older);
    facts.textContent = ready ? `learner ${described.learner}, ${whole(described.items)} items, live since ${day(described.live_since)}` : "";
  }

  function action(text, verb, version) {
    const label = version === null ? text : `${text}${verb === "rollback" ? " to" : ""} version ${whole(version)}`;
    return el("button", { type: "button", aria: { label }, on: { click: (event) => move(event, verb, version) } }, text);
  }

  function move(event, verb, version) {
    if (isSecond(event)) return;
    // The node refuses what would undo a move of somebody else that this page does not show yet.
    const body = { ...(version === null ? {} : { version }), ...(reason.value ? { reason: reason.value } : {}), seen };
    if (copy.asked(event)) copyAsCurl(`${path}/${verb}`, { body });
    else trying(async () => {
      const moved = await post(`${path}/${verb}`, body).catch((error) => {
        if (error.error === "moved") trying(refresh);
        throw error;
      });
      reason.value = "";
      say(`Version ${whole(moved.version)} answers${moved.pinned ? ", pinned" : ""}.`);
      await refresh();
    });
  }

  async function inspect() {
    const content = await get(`${path}/inspect`);
    const weights = Object.entries(content.weights).map(([name, weight]) => [name, percent(weight)]);
    const tensors = content.tensors.map((tensor) => [tensor.name, tensor.shape.join(" × "), tensor.norm.toPrecision(4), tensor.largest.toPrecision(4), tensor.smallest.toPrecision(4), tensor.directions?.toFixed(1) ?? ""]);
    held.replaceChildren(el("p", { className: "soft" }, `Version ${whole(content.version)}:`),
      ...(weights.length ? [table([[content.weighed, ""], ["weight", "number"]], weights, "Weights")] : []),
      table([["matrix", ""], ["shape", ""], ["norm", "number"], ["largest", "number"], ["smallest", "number"], ["directions", "number"]], tensors, "Matrices"),
      el("p", { className: "soft" }, `digest ${content.digest}, catalogue ${content.generation}`));
  }

  async function compareAny(asked = true) {
    const before = query.value;
    const { id } = await anyItem(model, items.total);
    // If somebody has typed meanwhile, this answer is not the one that is asked for.
    if (query.value !== before) return;
    query.value = id;
    await compare(asked);
  }

  /** What went wrong stays on the page until a comparison is answered. */
  function refuse(error) {
    // The answers of the query before would look like answers to this one.
    compared.replaceChildren();
    trouble.hidden = false;
    trouble.replaceChildren(el("p", { className: "grow" }, error.message), el("button", { type: "button", on: { click: () => trying(compare) } }, "Try again"));
  }

  const comparison = () => ({ id: query.value, before: from.value, k: SHOWN, ...(to.value === LIVE ? {} : { after: to.value }) });

  /** Compare again. Screen readers are told if somebody on this page `asked` for it. */
  async function compare(asked = true) {
    if (!query.value || !from.value || !to.value) return;
    const ownTurn = (turn += 1);
    const id = query.value;
    remember(id);
    let answers;
    try {
      answers = await Promise.all([itemOf(model, id, items), ...[from, to].map((select) =>
        post("/search", { model, id, k: SHOWN, fields: fieldsOf(items), ...(select.value === LIVE ? {} : { version: Number(select.value) }) }))]);
    } catch (error) {
      if (ownTurn === turn) refuse(error);
      throw error;
    }
    if (ownTurn !== turn) return;
    trouble.hidden = true;
    const [item, before, after] = answers;
    shown.hidden = !items.pictures && labelOf(item) === id;
    refill(shown, ...(items.pictures ? [picture(model, item, true)] : []), ...(labelOf(item) === id ? [] : [named(item)]));
    const ranks = new Map(before.items.map((result, rank) => [result.id, rank]));
    const column = (answer, compareTo) => el("div", { className: "stack" }, el("h3", {}, titleOf(answer.version)),
      el("ol", { className: "results small" }, ...answer.items.map((result, rank) => el("li", { className: "card" }, items.pictures && picture(model, result, true),
        el("p", { className: "about" }, el("b", {}, `${rank + 1}.`), compareTo ? arrow(compareTo.get(result.id) ?? -1, rank) : null), named(result)))));
    refill(compared, column(before, null), column(after, ranks));
    if (asked) tell(`${titleOf(before.version)}, and ${titleOf(after.version)}: ${after.items.filter((result, rank) => ranks.get(result.id) !== rank).length} of ${after.items.length} items moved.`);
  }

  // A button does not change under the pointer: somebody about to press "Pin this" must not press "Unpin".
  const looking = new Seldom(() => (now.matches(":active") ? looking.ask() : trying(() => refresh(false))), LOOK_MS);
  historyTable.addEventListener("pointerleave", () => looking.ask());
  historyTable.addEventListener("focusout", () => looking.ask());
  const forget = onStep((step) => { if (step.model === model) looking.ask(); });
  const end = () => {
    forget();
    looking.close();
  };
  // Until the store has answered there is nothing to move.
  await refresh().catch((error) => {
    end();
    throw error;
  });
  place.append(page);
  await trying(() => (begin ? compare(false) : compareAny(false)));
  return end;
}

function titleOf(version) {
  return version ? `Version ${whole(version)}` : "Before the first click (version 0)";
}

/** Fill a choice of versions, unless somebody chooses now; what was chosen stays if it is still kept. */
function options(select, versions, otherwise) {
  if (document.activeElement === select) return;
  const chosen = versions.some((version) => String(version) === select.value) ? select.value : String(otherwise);
  choices(select, versions.toReversed().map((version) => [String(version), choice(version)]), chosen);
}

function choice(version) {
  if (version === LIVE) return "the live one";
  return version ? whole(version) : "0, the start";
}

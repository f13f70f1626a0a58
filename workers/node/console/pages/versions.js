// Versions: what was live when, before and after side by side, and moving what answers.
import { copyAsCurl, copyInstead, get, post } from "../api.js";
import { day, el, isSecond, percent, redraw, say, table, trying, whole } from "../dom.js";
import { Seldom } from "../live.js";
import { anyItem } from "../picker.js";
import { arrow, fieldsOf, itemOf, labelOf, named, picture } from "../picture.js";
import { whatOf } from "./watch.js";

const SHOWN = 10;
const LINES = 200;
// The choice that follows whatever answers.
const LIVE = "live";
// Between two looks at the history while versions come.
const LOOK_MS = 2000;

export async function versionsPage(place, { model, query: begin, remember, onStep }) {
  const path = `/models/${encodeURIComponent(model)}`;
  const items = await get("/items", { model, limit: 1 });
  const now = el("div", { className: "stack" });
  const held = el("div", { className: "stack" });
  const compared = el("div", { className: "two" });
  const asked = el("span", { className: "asked", hidden: true });
  const told = el("div");
  const from = el("select", { aria: { label: "Before" }, on: { change: () => trying(compare) } });
  const to = el("select", { aria: { label: "After" }, on: { change: () => trying(compare) } });
  const query = el("input", { type: "search", value: begin, aria: { label: "Query: an item's id" }, on: { change: () => trying(compare) } });
  const any = el("button", { type: "button", on: { click: () => trying(compareAny) } }, "Any item");
  const reason = el("input", { type: "text", maxLength: 200, placeholder: "Optional, for the history" });
  const copy = copyInstead();
  const page = el("div", { className: "stack" }, el("section", { className: "card stack" }, now, held,
      el("div", { className: "row" }, el("label", { className: "reason grow" }, "Reason for a move ", reason), copy.element),
      el("p", { className: "soft" }, "Roll back: an older version answers. Pin: a version stays, whatever is learned. Unpin: the newest answers again. Learning goes on all the time.")),
    el("section", { className: "card stack" },
      el("div", { className: "row" }, el("h2", { className: "grow" }, "Before and after"), asked, el("label", {}, "Query ", query), any, el("label", {}, "before ", from), el("label", {}, "after ", to),
        el("button", { className: "quiet", type: "button", on: { click: () => copyAsCurl(`${path}/compare`, { parameters: comparison() }) } }, "Copy as curl")), compared),
    el("section", { className: "card stack" }, el("h2", {}, "History, newest first"), told));

  let described = null;
  // The newest line of the history that this page shows.
  let seen = 0;
  let turn = 0;

  /** Ask again. If nobody on this page `asked` for it, rows do not move under a hand that may press one of their buttons. */
  async function refresh(asked = true) {
    const [{ models }, { lines }] = await Promise.all([get("/models"), get(`${path}/history`, { last: LINES })]);
    described = models.find((one) => one.model === model) ?? null;
    drawNow(lines.some((line) => line.what === "published" && line.version < described?.version));
    // Of what was published, lines stay as long as the version is kept; lines about moves stay longer.
    const kept = [...new Set(lines.filter((line) => ["published", "held"].includes(line.what)).map((line) => line.version))].sort((a, b) => a - b);
    // A node makes the start again. A model that began with a parent has no other than what is kept.
    const comparable = [...new Set([...(described?.begins_with ? [] : [0]), ...kept])].sort((a, b) => a - b);
    options(from, comparable, comparable[0]);
    options(to, [...comparable, LIVE], LIVE);
    if (asked || !told.matches(":hover, :has(:focus-visible)")) {
      seen = Math.max(0, ...lines.map((line) => line.serial));
      drawHistory(lines, kept);
    }
    if (to.value === LIVE && query.value) await compare();
  }

  function drawHistory(lines, kept) {
    redraw(told, table([["when", ""], ["what", ""], ["version", "number"], ["who", ""], ["why", "wide"], ["go to", ""]], lines.toReversed().map((line) => [
      day(line.at), whatOf(line), whole(line.version), line.actor ?? "", line.reason ?? "",
      kept.includes(line.version) ? el("span", { className: "row" }, action("Roll back", "rollback", line.version), action("Pin", "pin", line.version)) : "no longer kept",
    ]), "History"));
  }

  function drawNow(older) {
    const back = action("Roll back by one", "rollback", null);
    back.disabled = !older;
    const pinned = Boolean(described?.pinned);
    const focused = [...now.querySelectorAll("button")].indexOf(document.activeElement);
    now.replaceChildren(el("div", { className: "row" },
      el("h2", { className: "grow" }, described?.ready ? `Version ${whole(described.version)} of ${model} answers` : `${model} has no version yet`),
      pinned ? el("span", { className: "tag bad" }, "pinned: newer versions do not go live") : el("span", { className: "tag good" }, "follows what is learned"),
      pinned ? action("Unpin", "unpin", null) : action("Pin this", "pin", described?.version ?? null), back),
    el("div", { className: "row" }, el("span", { className: "soft" }, described?.ready ? `learner ${described.learner}, ${whole(described.items)} items, live since ${day(described.live_since)}` : ""),
      el("button", { className: "quiet", type: "button", on: { click: (event) => (copy.asked(event) ? copyAsCurl(`${path}/inspect`) : trying(inspect)) } }, "What it holds")));
    now.querySelectorAll("button")[focused]?.focus();
  }

  function action(text, verb, version) {
    // The node refuses what would undo a move of somebody else that this page does not show yet.
    const body = () => ({ ...(version === null ? {} : { version }), ...(reason.value ? { reason: reason.value } : {}), seen });
    return el("button", {
      type: "button", on: {
        click: (event) => !isSecond(event) && (copy.asked(event) ? copyAsCurl(`${path}/${verb}`, { body: body() }) : trying(async () => {
          const moved = await post(`${path}/${verb}`, body()).catch((error) => {
            if (error.error === "moved") trying(refresh);
            throw error;
          });
          reason.value = "";
          say(`Version ${whole(moved.version)} answers${moved.pinned ? ", pinned" : ""}.`);
          await refresh();
        })),
      },
    }, text);
  }

  async function inspect() {
    const content = await get(`${path}/inspect`);
    const weights = Object.entries(content.weights).map(([name, weight]) => [name, percent(weight)]);
    const tensors = content.tensors.map((one) => [one.name, one.shape.join(" × "), one.norm.toPrecision(4), one.largest.toPrecision(4), one.smallest.toPrecision(4), one.directions?.toFixed(1) ?? ""]);
    held.replaceChildren(el("p", { className: "soft" }, `Version ${whole(content.version)}:`),
      ...(weights.length ? [table([[content.weighed, ""], ["weight", "number"]], weights, "Weights")] : []),
      table([["matrix", ""], ["shape", ""], ["norm", "number"], ["largest", "number"], ["smallest", "number"], ["directions", "number"]], tensors, "Matrices"),
      el("p", { className: "soft" }, `digest ${content.digest}, catalogue ${content.generation}`));
  }

  async function compareAny() {
    const before = query.value;
    const { id } = await anyItem(model, items.total);
    // Whoever typed meanwhile asks for something else.
    if (query.value !== before) return;
    query.value = id;
    await compare();
  }

  const comparison = () => ({ id: query.value, before: from.value, k: SHOWN, ...(to.value === LIVE ? {} : { after: to.value }) });

  async function compare() {
    if (!query.value || !from.value || !to.value) return;
    const mine = (turn += 1);
    const id = query.value;
    remember(id);
    let answers;
    try {
      answers = await Promise.all([itemOf(model, id, items), ...[from, to].map((one) =>
        post("/search", { model, id, k: SHOWN, fields: fieldsOf(items), ...(one.value === LIVE ? {} : { version: Number(one.value) }) }))]);
    } catch (error) {
      // The answers of the query before would look like answers to this one.
      if (mine === turn) compared.replaceChildren();
      throw error;
    }
    if (mine !== turn) return;
    const [item, before, after] = answers;
    asked.hidden = !items.pictures && labelOf(item) === id;
    asked.replaceChildren(...(items.pictures ? [picture(model, item, true)] : []), ...(labelOf(item) === id ? [] : [named(item)]));
    const ranks = new Map(before.items.map((one, rank) => [one.id, rank]));
    const column = (title, answer, compareTo) => el("div", { className: "stack" }, el("h3", {}, title),
      el("ol", { className: "results small" }, ...answer.items.map((one, rank) => el("li", { className: "card" }, items.pictures && picture(model, one, true),
        el("p", { className: "about" }, el("b", {}, `${rank + 1}.`), compareTo ? arrow(compareTo.get(one.id) ?? -1, rank) : null), named(one)))));
    compared.replaceChildren(column(titleOf(before.version), before, null), column(titleOf(after.version), after, ranks));
  }

  // A click is lost if its button is replaced before it ends.
  const looking = new Seldom(() => (now.matches(":active") ? looking.ask() : trying(() => refresh(false))), LOOK_MS);
  told.addEventListener("pointerleave", () => looking.ask());
  told.addEventListener("focusout", () => looking.ask());
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
  await trying(begin ? compare : compareAny);
  return end;
}

function titleOf(version) {
  return version ? `Version ${whole(version)}` : "Before the first click (version 0)";
}

/** Fill a choice of versions; what was chosen stays if it is still kept. */
function options(select, versions, otherwise) {
  const chosen = versions.some((version) => String(version) === select.value) ? select.value : String(otherwise);
  select.replaceChildren(...versions.toReversed().map((version) => el("option", { value: String(version), selected: String(version) === chosen }, choice(version))));
}

function choice(version) {
  if (version === LIVE) return "the live one";
  return version ? whole(version) : "0, the start";
}

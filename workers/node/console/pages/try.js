// Try: pick an item, words or a picture, look at what is similar, mark what fits and what does not, and see the order change.
import { copyAsCurl, get, post } from "../api.js";
import { Cards } from "../cards.js";
import { describeFields } from "../describe.js";
import { allow, el, say, seconds, tell, trying } from "../dom.js";
import { Seldom } from "../live.js";
import { legend, shares } from "../parts.js";
import { anyItem, Picker } from "../picker.js";
import { arrow, fieldsOf, itemOf, labelOf, moreOf, named, picture } from "../picture.js";

const SHOWN = 20;
// If nobody types for so long, the page asks for the items that are meant.
const PAUSE_MS = 150;
// If no version came for so long after marks were sent, the page says why there may be none.
const LATE_MS = 4000;
// Marks that are held out are never learned. A version that comes later than this may have learned another person's marks.
const TOLD_MS = 60000;
// While others teach the model, the page waits so long between two searches that nobody on it asked for.
const FOLLOW_MS = 1000;
const MARKED = { relevant: "marked as fitting", irrelevant: "marked as not fitting" };
const SENT = "What was sent cannot be taken back: it is learned. To correct it, mark the same items the other way. An operator can also learn the log again without it (omdml learn-on).";
const PINNED = "The version that answers is pinned. What you sent is learned, and counts in answers once somebody unpins the version, on the page Versions.";
// What was not sent yet, by model and query, and the last item that was searched from, by model. Both last as long as the
// tab: whoever looks at another page, or gives a new token, finds them again.
const unsent = new Map();
const begunFrom = new Map();
// Whether somebody has sent marks from this tab. Until then the page says what to do.
let hasSent = false;
// All searches of a tab are one session, so that an experiment shows it one order.
const SESSION = crypto.randomUUID?.() ?? String(Math.random());
// The ids of events, as text, that were sent without an answer. The node may have taken them all the same: if the same
// marks are sent again, they have the same id, and are learned once.
const unanswered = new Map();
let sendings = 0;

export async function tryPage(place, { model, query, remember, onStep }) {
  const items = await get("/items", { model, limit: 1 });
  const state = { query: null, shown: [], marks: new Map(), serial: null, version: null, asked: 0, moved: 0, sent: false, waiting: null, explain: true, interleaved: null };

  const cards = new Cards("Results", "keys");
  const results = cards.element;
  const about = el("p", { className: "soft" });
  const shown = el("div", { className: "shown" });
  const key = el("p", { className: "soft legend" });
  const counted = el("span", { aria: { live: "polite" } });
  const does = (key, what) => el("span", {}, el("kbd", {}, key), ` ${what}`);
  const marking = [does("R", "fits"), does("I", "does not fit"), does("U", "takes a mark back"), does("Enter", "sends")];
  const help = el("p", { className: "keys soft", id: "keys" }, does("← → ↑ ↓", "another result"), ...marking, does("Q", "searches from it"), does("E", "explains it"));
  const send = el("button", { className: "main", type: "button", ariaDisabled: "true", on: { click: () => trying(sendMarks) } }, "Send");
  const clear = el("button", { type: "button", ariaDisabled: "true", on: { click: () => { state.marks.clear(); drawMarks(); } } }, "Clear");
  const curl = el("button", { className: "quiet", type: "button", ariaDisabled: "true", on: { click: () => copyAsCurl("/feedback", { body: event() }) } }, "Copy as curl");
  const undo = el("button", { type: "button", ariaDisabled: "true", on: { click: () => undoMark() } }, "Undo");
  const bar = el("div", { className: "send card" }, el("p", { className: "grow" }, counted), curl, undo, clear, send, help);
  const news = el("p", { className: "news", hidden: true });
  const steps = el("ol", { className: "steps", hidden: hasSent }, ...["Mark what fits ✓ and what does not ✗", "Send", "Watch the order change"].map((step) => el("li", {}, step)));
  const trouble = el("div", { className: "trouble row", hidden: true, aria: { role: "alert" } });
  const picker = new Picker(model, (item) => trying(() => search(item)));
  let typing = 0;
  const find = el("input", {
    type: "search", placeholder: items.labels ? "Find an item" : "Find an id", autocomplete: "off", aria: { label: `Find an item by its id${items.labels ? " or label" : ""}` },
    on: {
      input: () => { picker.isSought = true; clearTimeout(typing); typing = setTimeout(() => picker.show(find.value.trim()), PAUSE_MS); },
      keydown: (press) => { if (press.key === "Enter" && find.value.trim()) { clearTimeout(typing); picker.pickFirst(find.value.trim()); } },
    },
  });
  const random = el("button", { type: "button", on: { click: () => trying(async () => search(await anyItem(model, items.total))) } }, "Any item");
  const searchCurl = el("button", {
    className: "quiet", type: "button", on: { click: () => copyAsCurl("/search", inAddress() ? { parameters: wanted() } : { body: { ...wanted(), ...(state.query?.picture ? { picture: "BASE64 OF THE PICTURE" } : {}) } }) },
  }, "Copy as curl");

  place.append(el("div", { className: "try" },
    el("section", { className: "query card", aria: { label: "Query" } }, shown, el("div", { className: "row find" }, find, random), ...describeFields(items.describes, describe), picker.element),
    el("section", { className: "answers", aria: { label: "Answers" } },
      el("div", { className: "row" }, el("h2", { className: "grow" }, "Most similar first"), about, searchCurl), steps, trouble, news, key, results, bar)));

  let late = 0;
  const event = () => ({
    type: "ranking", model, query: state.query.id,
    relevant: marked("relevant"), irrelevant: marked("irrelevant"),
  });
  const marked = (kind) => [...state.marks].filter(([, mark]) => mark === kind).map(([id]) => id);

  async function search(item) {
    const { id } = item;
    if (id !== state.query?.id) begin({ id });
    begunFrom.set(model, item);
    shown.replaceChildren(...(items.pictures ? [picture(model, item, true)] : []), el("div", {}, el("p", { className: "soft" }, "Similar to"), named(item), labelOf(item) !== id && el("p", { className: "soft id" }, id)));
    picker.choose(id);
    await first(labelOf(item));
  }

  /** Search by words, vectors or a picture; `looks` shows what was asked, `description` says what it is. */
  async function describe(query, looks, description) {
    begin(query);
    shown.replaceChildren(looks, el("p", { className: "soft" }, `Similar to ${description}`));
    picker.choose("");
    await first(description);
  }

  /** Search for a query that is new; `description` says what it is. */
  async function first(description) {
    const { query } = state;
    const answered = await again().catch((error) => {
      // Results of the query before would look like an answer to this one.
      if (state.query === query) wipe();
      throw error;
    });
    if (answered) tell(`${state.shown.length} results similar to ${description}.`);
  }

  function wipe() {
    state.shown = [];
    results.replaceChildren();
    results.ariaBusy = "false";
    key.replaceChildren();
    about.textContent = "";
  }

  /** What went wrong stays on the page until a search is answered. A node that comes back makes the page search again. */
  function refuse(error) {
    state.serial = null;
    trouble.hidden = false;
    const gone = error.error === "unknown_item";
    const lost = gone && state.marks.size ? ` Marks about it that were not sent (${state.marks.size}) cannot be learned, and were taken away.` : "";
    trouble.replaceChildren(el("p", { className: "grow" }, error.message + lost), el("button", { type: "button", on: { click: () => trying(again) } }, "Try again"));
    if (!gone) return;
    // The catalogue was replaced, or the item deleted: neither the results nor the grid can be trusted.
    state.marks.clear();
    drawMarks();
    wipe();
    begunFrom.delete(model);
    picker.show(find.value.trim());
  }

  function begin(query) {
    state.shown = [];
    // Until the answer comes, the results are those of the query before.
    results.ariaBusy = "true";
    about.replaceChildren(el("span", { className: "late" }, "Searching ..."));
    news.hidden = true;
    steps.hidden = hasSent || query.id === undefined;
    if (state.waiting?.late) state.waiting = null;
    state.query = query;
    state.marks = unsentOf(query.id);
    remember(query.id ?? "");
    drawMarks();
  }

  /** The marks of a query that were not sent; `marks` take their place. */
  function unsentOf(id, marks) {
    const name = JSON.stringify([model, id]);
    if (marks) unsent.set(name, marks);
    else if (!unsent.has(name)) unsent.set(name, new Map());
    for (const [other, others] of unsent) if (other !== name && others !== state.marks && !others.size) unsent.delete(other);
    return unsent.get(name);
  }

  const fromItem = () => state.query?.id !== undefined;
  const fields = fieldsOf(items);
  // What comes beside the items can be named in a body only.
  const inAddress = () => fromItem() && fields.length === 0;
  const wanted = () => ({ model, k: SHOWN, ...(fields.length ? { fields } : {}), ...(state.explain ? { explain: true } : {}), ...state.query });
  const ask = () => (inAddress() ? get : post)("/search", { ...wanted(), session: SESSION });

  /** Search again under what is live; cards slide to their new places. False if a later search took its place. */
  async function again() {
    const asked = (state.asked += 1);
    const answer = await ask().catch((error) => {
      if (error.error !== "no_parts") {
        if (asked === state.asked) refuse(error);
        throw error;
      }
      // The distance of this model is no sum: it is asked without parts from now on.
      state.explain = false;
      return ask();
    });
    if (asked !== state.asked) return false;
    const before = state.shown.map((item) => item.id);
    state.shown = answer.items.map((item) => ({ ...item, was: before.indexOf(item.id) }));
    key.replaceChildren(el("span", {}, numbersOf(answer)), ...legend(answer.items));
    trouble.hidden = true;
    state.serial = answer.serial;
    state.version = answer.version;
    state.interleaved = answer.interleaved ?? null;
    state.moved = before.length ? state.shown.filter((item, rank) => item.was !== rank).length : 0;
    drawResults(before.length > 0);
    about.textContent = `version ${answer.version.toLocaleString("en")}, answered in ${seconds(answer.took_s)}`;
    return true;
  }

  function drawResults(compare) {
    results.dataset.of = state.query.id ?? "";
    results.ariaBusy = "false";
    cards.replace(state.shown.map((item, rank) => card(item, rank, compare)), compare);
    drawMarks();
  }

  function card(item, rank, compare) {
    const moved = compare ? arrow(item.was, rank) : null;
    const name = [`${rank + 1}. ${labelOf(item)}`, moved && (moved.ariaLabel ?? moved.textContent)].filter(Boolean).join(", ");
    const button = (mark, className, text, key, label) => el("button", {
      className, type: "button", tabIndex: -1, data: { mark }, aria: { pressed: "false", keyshortcuts: key, label: `${label}: ${labelOf(item)}` }, on: { click: () => setMark(item.id, mark) },
    }, text);
    return el("div", { className: "card", data: { id: item.id, name }, aria: { role: "gridcell" } },
      el("button", { className: "look", type: "button", tabIndex: -1, title: "Search from here", aria: { keyshortcuts: "Q", label: `Search from ${labelOf(item)}` }, on: { click: () => trying(() => search(item)) } },
        items.pictures ? picture(model, item, true) : named(item)),
      el("p", { className: "about" }, el("b", {}, `${rank + 1}.`), moved, el("span", { className: "number", title: "Distance" }, item.distance.toPrecision(3))),
      items.pictures ? named(item) : el("p", { className: "soft more", dir: "auto" }, moreOf(item).join(", ")),
      shares(item.parts),
      fromItem() && el("div", { className: "marks" }, button("relevant", "yes", "✓ fits", "R", "Fits"), button("irrelevant", "no", "✗ not", "I", "Does not fit")));
  }

  /** Say of a result what a pointer on it shows. */
  function explain(card, item) {
    const { title } = card.querySelector(".id");
    const shown = [title === labelOf(item) ? "" : title, `distance ${item.distance.toPrecision(3)}`, card.querySelector(".parts")?.title];
    say(`${card.dataset.name}: ${shown.filter(Boolean).join(", ")}.`);
  }

  function setMark(id, mark) {
    // Until a new search is answered, the results are those of the query before.
    if (!fromItem() || results.dataset.of !== state.query.id) return;
    const before = state.marks.get(id);
    // The mark that was set last is the last one of the map, and the first that undo takes back.
    state.marks.delete(id);
    if (before !== mark) state.marks.set(id, mark);
    drawMarks();
  }

  function undoMark() {
    const last = [...state.marks.keys()].at(-1);
    if (last === undefined) {
      if (state.sent) say(SENT);
      return;
    }
    state.marks.delete(last);
    drawMarks();
  }

  function drawMarks() {
    for (const element of cards.all) {
      const mark = state.marks.get(element.dataset.id);
      element.ariaLabel = [element.dataset.name, MARKED[mark]].filter(Boolean).join(", ");
      element.classList.toggle("relevant", mark === "relevant");
      element.classList.toggle("irrelevant", mark === "irrelevant");
      for (const button of element.querySelectorAll("[data-mark]")) button.setAttribute("aria-pressed", String(button.dataset.mark === mark));
    }
    const fits = marked("relevant").length;
    const not = marked("irrelevant").length;
    const ready = fits > 0 && not > 0;
    const places = new Set(cards.all.map((element) => element.dataset.id));
    const elsewhere = [...state.marks.keys()].filter((id) => !places.has(id)).length;
    const counts = `${fits} marked as fitting, ${not} as not fitting.${elsewhere ? ` ${elsewhere} of these ${elsewhere === 1 ? "is" : "are"} not on this page now.` : ""}`;
    const none = fits + not === 0;
    allow(send, ready);
    allow(curl, ready);
    allow(clear, !none);
    allow(undo, !none || state.sent);
    for (const hint of marking) hint.hidden = !fromItem();
    const words = !fromItem() ? "Marks need an item to compare with: open a result, and mark what is similar to it."
      : ready ? `${counts} Once sent, they cannot be taken back.`
        : none ? "Mark what fits and what does not." : `${counts} Mark at least one ${fits ? "that does not fit" : "that fits"}.`;
    // Screen readers would read it again even if the same text is only written again.
    if (counted.textContent !== words) counted.textContent = words;
  }

  function idOf(event) {
    const text = JSON.stringify(event);
    if (!unanswered.has(text)) unanswered.set(text, `${SESSION}-${sendings += 1}`);
    return unanswered.get(text);
  }

  async function sendMarks() {
    if (send.ariaDisabled === "true") return;
    const sent = event();
    const pairs = sent.relevant.length * sent.irrelevant.length;
    const { marks, interleaved } = state;
    // Two clicks send once. Marks that are set meanwhile are sent the next time.
    state.marks = unsentOf(sent.query, new Map());
    drawMarks();
    // Until the node says when it took the marks, nobody can say whether a version has learned them.
    const waiting = { since: performance.now(), takenAt: Infinity, late: false };
    state.waiting = waiting;
    try {
      waiting.takenAt = (await post("/feedback", { ...sent, id: idOf(sent) })).at;
      unanswered.delete(JSON.stringify(sent));
    } catch (error) {
      if (state.waiting === waiting) state.waiting = null;
      const all = unsentOf(sent.query, new Map([...marks, ...unsentOf(sent.query)]));
      if (state.query.id === sent.query) state.marks = all;
      drawMarks();
      throw error;
    }
    // In an experiment, what fits is also a vote for the side that brought it, unless it has ended since the search.
    if (interleaved) {
      post("/clicks", { search: interleaved.search, ids: sent.relevant })
        .catch((error) => { if (error.error !== "unknown_search") say(error.message, true); });
    }
    state.sent = hasSent = steps.hidden = true;
    drawMarks();
    if (state.waiting !== waiting) return;
    say(`Sent: ${pairs} ${pairs === 1 ? "comparison" : "comparisons"}. Waiting for the next version.`);
    // It may be live already.
    if (newest && hasLearned(newest)) follow.ask(true);
    clearTimeout(late);
    late = setTimeout(async () => {
      if (state.waiting !== waiting) return;
      waiting.late = true;
      follow.ask();
      const { models } = await get("/models").catch(() => ({ models: [] }));
      if (state.waiting === waiting) say(models.find((entry) => entry.model === model)?.pinned ? PINNED : "No new version yet. About one mark in fifty is kept for judging and never learned. If the next marks bring no version, either, look at Health.");
    }, LATE_MS);
  }

  let newest = null;
  // Another store behind the same address may have another version of the same serial.
  const answers = (step) => step.serial === state.serial && step.version === state.version;
  /** Whether a version has learned the marks that were sent last, and not only those of other people. */
  const hasLearned = (step) => state.waiting !== null && step.newest_event_at >= state.waiting.takenAt;
  // Nothing moves under a hand that marks, or is about to, nor while somebody waits for what their marks move.
  const keepsStill = () => (state.waiting && !state.waiting.late) || (results.childElementCount && (state.marks.size || results.matches(":hover, :has(:focus-visible)")));
  const follow = new Seldom(async () => {
    if (newest === null) return;
    const { waiting } = state;
    const learned = hasLearned(newest);
    if (!learned && (answers(newest) || keepsStill())) return;
    if (learned) state.waiting = null;
    if (!answers(newest) && !(await trying(again))) return;
    const passed = learned ? performance.now() - waiting.since : Infinity;
    if (passed < TOLD_MS) {
      const sentence = `Version ${state.version.toLocaleString("en")} went live. This page shows it ${seconds(passed / 1000)} after you sent the marks; ${state.moved} of ${state.shown.length} items moved.`;
      news.textContent = sentence;
      news.hidden = false;
      say(sentence, false, !inSight(news));
    }
  }, FOLLOW_MS);
  results.addEventListener("pointerleave", () => follow.ask());
  results.addEventListener("focusout", () => follow.ask());
  const forget = onStep((step) => {
    if (step.model !== model || !state.query) return;
    newest = step;
    follow.ask(hasLearned(step));
  });

  const keys = (press) => {
    if (press.repeat || press.ctrlKey || press.metaKey || press.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(press.target.tagName)) return;
    const key = press.key.toLowerCase();
    const mark = { r: "relevant", i: "irrelevant" }[key];
    const card = cards.cardOf(press.target);
    // Until a new search is answered, the cards are those of the query before.
    const item = state.shown.find(({ id }) => id === card?.dataset.id);
    if (card && mark) setMark(card.dataset.id, mark);
    else if (item && key === "q") trying(() => search(item));
    else if (item && key === "e") explain(card, item);
    else if (key === "u") undoMark();
    else if (key === "enter" && !press.target.closest?.("a, button")) trying(sendMarks);
    else return;
    press.preventDefault();
  };
  document.addEventListener("keydown", keys);

  await picker.show("");
  const end = () => {
    forget();
    follow.close();
    clearTimeout(late);
    clearTimeout(typing);
    picker.close();
    document.removeEventListener("keydown", keys);
  };
  const start = () => (query ? itemOf(model, query, items) : begunFrom.get(model) ?? anyItem(model, items.total));
  let item;
  try {
    item = await start();
  } catch (error) {
    end();
    throw error;
  }
  // If somebody has searched meanwhile, that search stays.
  if (!state.query) await trying(() => search(item));
  return end;
}

/** What the numbers of an answer are. */
function numbersOf({ items, interleaved }) {
  if (!items.length) return "There is no other item.";
  if (!interleaved) return "The number is the distance: the smaller, the more similar.";
  const { against, against_version } = interleaved;
  return `Mixed with ${against} version ${against_version.toLocaleString("en")} for an experiment. The number is the distance in the ranking that the item comes from, so numbers need not rise.`;
}

/** Whether somebody sees all of it now, and nothing covers it. */
function inSight(element) {
  const { left, top, bottom } = element.getBoundingClientRect();
  return [top, bottom - 1].every((y) => element.contains(document.elementFromPoint(left + 9, y)));
}

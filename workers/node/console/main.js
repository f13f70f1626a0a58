// The frame: which page and which model, and what is live.
import { askForToken, get, signIn, takeToken } from "./api.js";
import { choices, el, hush, say, trying, whole } from "./dom.js";
import { experimentsPage } from "./pages/experiments.js";
import { healthPage } from "./pages/health.js";
import { lettersPage } from "./pages/letters.js";
import { follow, Seldom, whileSeen } from "./live.js";
import { tryPage } from "./pages/try.js";
import { versionsPage } from "./pages/versions.js";
import { watchPage } from "./pages/watch.js";

const PAGES = {
  try: ["Try", tryPage], watch: ["Watch", watchPage], versions: ["Versions", versionsPage], ab: ["A/B", experimentsPage],
  letters: ["Dead letters", lettersPage], health: ["Health", healthPage],
};
const AGAIN_MS = 2000;
const AWAY_MS = 5000;
const LOST = { away: "this node is out of reach", refused: "this node refuses the token" };
const place = document.getElementById("page");
const choice = document.getElementById("model");
const live = document.getElementById("live");
const tabs = document.getElementById("tabs");
const listeners = new Set();
const remarkListeners = new Set();
let leave = () => {};
let turn = 0;
let drawn = 0;
let patterns = [];
// The generation of the catalogue whose items the page shows.
let generation = "";

const adding = (set) => (listener) => {
  set.add(listener);
  return () => set.delete(listener);
};
const onStep = adding(listeners);
const onRemark = adding(remarkListeners);

/** Page, model and query stand in the address, so that they outlast a reload and can be sent to a colleague. */
function where() {
  const [page, model, query = ""] = location.hash.slice(1).split("/").map(decoded);
  return { page: page in PAGES ? page : "try", model: model || choice.options[0]?.value || "", query };
}

const addressOf = (...parts) => `#${parts.filter(Boolean).map(encodeURIComponent).join("/")}`;

/** Put the query that a page shows into the address; empty if it has none that an address can hold. Back leads to the one before. */
function remember(query) {
  const { page, model, query: before } = where();
  if (query === before) return;
  history[before ? "pushState" : "replaceState"](null, "", addressOf(page, model, query));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** Show the page that the address names. If it could not be shown before, what was said about that stays until it can. */
async function show(again = false) {
  const ownTurn = (turn += 1);
  const { page, model, query } = where();
  leave();
  leave = () => {};
  if (model && ![...choice.options].some((option) => option.value === model)) choice.append(el("option", { value: model }, model));
  choice.value = model;
  document.title = `${PAGES[page][0]} · ${model || "omdml"}`;
  Object.entries(PAGES).forEach(([name, [title]], at) => {
    const tab = tabs.children[at] ?? tabs.appendChild(el("a", {}, title));
    Object.assign(tab, { href: addressOf(name, model), ariaCurrent: name === page ? "page" : null });
  });
  if (!again) hush();
  generation = "";
  // Not a div: Orca would leave the heading for the first choice that appears on the page.
  const inside = el("section", {}, el("h1", { className: "unseen", tabIndex: -1 }, `${PAGES[page][0]}: ${model}`));
  if (!again) place.replaceChildren(inside);
  drawLive(null);
  try {
    const left = await (model || page === "health" ? PAGES[page][1] : noModel)(inside, { model, query, remember: (shown) => { if (ownTurn === turn) remember(shown); }, onStep, onRemark });
    if (ownTurn !== turn) {
      left();
      return;
    }
    leave = left;
    if (again) place.replaceChildren(inside);
  } catch (error) {
    if (ownTurn !== turn) return;
    refuse(inside, error, () => show());
    if (place.textContent !== inside.textContent) place.replaceChildren(inside);
    // What is missing may be the first version, the store, or the node itself.
    const retry = new Seldom(() => show(true), AGAIN_MS);
    const ends = [onStep((step) => { if (step.model === model) retry.ask(); }), () => retry.close()];
    if (error.status === 0 || error.status >= 500) ends.push(whileSeen(() => show(true), AWAY_MS));
    leave = () => { for (const end of ends) end(); };
  }
}

/** The element at which the keyboard and screen readers begin a page. */
const beginning = () => place.querySelector("h1") ?? place;

function refuse(inside, error, again) {
  const title = inside.querySelector("h1") ?? el("h1", { className: "unseen" }, "omdml");
  inside.replaceChildren(title, el("p", { className: "card" }, error.message, " ", el("button", { type: "button", on: { click: again } }, "Try again")));
}

/** A node whose models are all of patterns loads none before somebody asks for it. */
function noModel(inside) {
  const name = el("input", { type: "text", required: true, autocomplete: "off", aria: { label: "Name of a model" } });
  const submit = (event) => {
    event.preventDefault();
    location.hash = addressOf(where().page, name.value.trim());
  };
  inside.append(el("section", { className: "card stack" }, el("h2", {}, "No model is loaded yet"),
    el("p", {}, `This node loads a model when somebody asks for it by name. It may have models named ${patterns.join(", ")}.`),
    el("form", { className: "row", on: { submit } }, name, el("button", {}, "Open"))));
  return () => {};
}

async function drawLive(step) {
  const { model } = where();
  if (step && step.model !== model) return;
  const ownTurn = (drawn += 1);
  // A node that has just loaded the model may have done so with another catalogue. One that was deleted may have no version.
  const asked = !step || ["model_live", "model_deleted"].includes(step.what);
  const known = asked ? await get("/models").catch(() => null) : { models: [step] };
  if (!known) return;
  if (asked) renew(known.models);
  // An answer may be older than a step that came meanwhile.
  if (ownTurn !== drawn) return;
  if (!step) drawChoice(known.models);
  const { version, pinned } = known.models.find((entry) => entry.model === model) ?? {};
  live.classList.remove("lost");
  live.replaceChildren(...(version === undefined ? ["nothing is live"] : ["version ", el("b", {}, whole(version)), pinned ? " is pinned" : " is live"]));
  live.classList.remove("moved");
  if (step) requestAnimationFrame(() => live.classList.add("moved"));
}

/** Draw the page again if another catalogue took the place of the one that it shows, because it has other items. */
function renew(models) {
  const now = models.find((entry) => entry.model === where().model)?.generation;
  if (!now || now === generation) return;
  const replaced = generation !== "";
  generation = now;
  if (replaced) show();
}

/** The models of this node; another one may answer at its address since it was asked. */
function drawChoice(models) {
  const { model } = where();
  const names = [...new Set([...models.map((entry) => entry.model), model])].filter(Boolean);
  choices(choice, names.map((name) => [name, name]), model);
}

function lost(how) {
  if (!how) {
    drawLive(null);
    return;
  }
  drawn += 1;
  live.classList.add("lost");
  live.replaceChildren(LOST[how]);
}

async function begin() {
  takeToken();
  let answer;
  try {
    answer = await get("/models");
  } catch (error) {
    // Whoever closes the question for the token is not asked again at once.
    if (error.error === "unauthorized") {
      refuse(place, error, begin);
      return;
    }
    say(error.message, true);
    setTimeout(begin, AGAIN_MS);
    return;
  }
  await signIn();
  patterns = answer.patterns;
  drawChoice(answer.models);
  choice.addEventListener("change", () => { location.hash = addressOf(where().page, choice.value); });
  addEventListener("hashchange", async () => {
    if (takeToken()) await signIn();
    const shown = show();
    // What had the focus led here, or is gone with the page before.
    if (document.activeElement === document.body || tabs.contains(document.activeElement)) beginning().focus({ preventScroll: true });
    await shown;
  });
  // The address holds the page that is shown, and no other place.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    beginning().focus();
  });
  document.getElementById("token-button").addEventListener("click", async () => {
    if (await askForToken()) await show();
  });
  follow((step) => {
    drawLive(step);
    for (const listener of listeners) listener(step);
  }, (remark) => {
    for (const listener of remarkListeners) listener(remark);
  }, lost);
  await show();
}

begin();

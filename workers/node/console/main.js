// The frame: which page and which model, and what is live.
import { get, signIn, takeToken } from "./api.js";
import { el, hush, say, trying, whole } from "./dom.js";
import { experimentsPage } from "./experiments.js";
import { healthPage } from "./health.js";
import { lettersPage } from "./letters.js";
import { follow } from "./live.js";
import { tryPage } from "./try.js";
import { versionsPage } from "./versions.js";
import { watchPage } from "./watch.js";

const PAGES = {
  try: ["Try", tryPage], watch: ["Watch", watchPage], versions: ["Versions", versionsPage], ab: ["A/B", experimentsPage],
  letters: ["Dead letters", lettersPage], health: ["Health", healthPage],
};
const AGAIN_MS = 2000;
const place = document.getElementById("page");
const choice = document.getElementById("model");
const live = document.getElementById("live");
const listeners = new Set();
let leave = () => {};
let turn = 0;

const onStep = (listener) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The page and the model stand in the address, so that both can be sent to a colleague. */
function where() {
  const [page, model] = location.hash.slice(1).split("/").map(decodeURIComponent);
  return { page: page in PAGES ? page : "try", model: model || choice.options[0]?.value || "" };
}

async function show() {
  const mine = (turn += 1);
  const { page, model } = where();
  leave();
  leave = () => {};
  if (model && ![...choice.options].some((one) => one.value === model)) choice.append(el("option", { value: model }, model));
  choice.value = model;
  document.title = `${PAGES[page][0]} · ${model || "omdml"}`;
  document.getElementById("tabs").replaceChildren(...Object.entries(PAGES).map(([name, [title]]) =>
    el("a", { href: `#${name}/${encodeURIComponent(model)}`, ...(name === page ? { ariaCurrent: "page" } : {}) }, title)));
  hush();
  const inside = el("div", {}, el("h1", { className: "unseen" }, `${PAGES[page][0]}: ${model}`));
  place.replaceChildren(inside);
  drawLive(null);
  try {
    const left = await PAGES[page][1](inside, { model, onStep });
    if (mine === turn) leave = left;
    else left();
  } catch (error) {
    if (mine !== turn) return;
    inside.replaceChildren(el("p", { className: "card" }, error.message, " ", el("button", { type: "button", on: { click: show } }, "Try again")));
  }
}

async function drawLive(step) {
  const { model } = where();
  if (step && step.model !== model) return;
  const version = step ? step.version : (await get("/models").catch(() => ({ models: [] }))).models.find((one) => one.model === model)?.version;
  live.classList.remove("lost");
  live.replaceChildren(...(version === undefined ? ["nothing is live"] : ["version ", el("b", {}, whole(version)), " is live"]));
  live.classList.remove("moved");
  if (step) requestAnimationFrame(() => live.classList.add("moved"));
}

function lost(is) {
  if (is) {
    live.classList.add("lost");
    live.replaceChildren("this node is out of reach");
  } else drawLive(null);
}

async function begin() {
  takeToken();
  const told = await get("/models").catch((error) => {
    say(error.message, true);
    return null;
  });
  if (!told) {
    setTimeout(begin, AGAIN_MS);
    return;
  }
  await signIn();
  choice.replaceChildren(...told.models.map((one) => el("option", { value: one.model }, one.model)));
  choice.addEventListener("change", () => { location.hash = `${where().page}/${encodeURIComponent(choice.value)}`; });
  addEventListener("hashchange", () => trying(show));
  follow((step) => {
    drawLive(step);
    for (const listener of listeners) listener(step);
  }, lost);
  await show();
}

begin();

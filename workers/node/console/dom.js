// Makes elements, writes numbers, and shows messages.

/** An element. Properties are set as they are; `on` holds listeners, `data` and `aria` attributes. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  const { on = {}, aria = {}, data = {}, ...rest } = properties;
  for (const [name, value] of Object.entries(rest)) element[name] = value;
  for (const [name, value] of Object.entries(aria)) element.setAttribute(name === "role" ? name : `aria-${name}`, value);
  for (const [name, value] of Object.entries(data)) element.dataset[name] = value;
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A table; columns are [title, kind], kind "number" or "". Cells are texts, numbers or elements. */
export function table(columns, rows, caption = "") {
  const cell = (tag, value, kind) => el(tag, { className: kind, ...(tag === "th" ? { scope: "col" } : {}) }, value ?? "");
  return el("div", { className: "scroll", tabIndex: 0, aria: { role: "region", label: caption || "Table" } },
    el("table", {},
      el("thead", {}, el("tr", {}, ...columns.map(([title, kind]) => cell("th", title, kind)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((value, at) => cell("td", value, columns[at][1])))))));
}

/** Put a new table in the place of the one that was there; how far somebody scrolled it, and the focus, stay. */
export function redraw(place, replacement) {
  const before = place.firstElementChild;
  if (!before) {
    place.append(replacement);
    return;
  }
  const left = before.scrollLeft;
  const focused = before.contains(document.activeElement);
  before.ariaLabel = replacement.ariaLabel;
  refill(before, ...replacement.childNodes);
  before.scrollLeft = left;
  if (focused && !before.contains(document.activeElement)) before.focus({ preventScroll: true });
}

/** Put these into a place, unless it has the same already: a screen reader loses where it reads if that is replaced. */
export function refill(place, ...contents) {
  const wrapper = el("div", {}, ...contents);
  if (wrapper.innerHTML !== place.innerHTML) place.replaceChildren(...wrapper.childNodes);
}

/** Give a choice these options, each a value and a text, unless it has them already: an open list would close, or jump. */
export function choices(select, options, chosen) {
  if (JSON.stringify(options) === JSON.stringify([...select.options].map((option) => [option.value, option.textContent]))) return;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
}

/** Say whether a button can do something now. If not, it keeps the focus, unlike a disabled one: it may be what was just pressed. */
export function allow(button, allowed) {
  button.ariaDisabled = String(!allowed);
}

addEventListener("click", (click) => {
  if (click.target.closest?.("[aria-disabled='true']")) click.stopImmediatePropagation();
}, { capture: true });

export const whole = (number) => Math.round(number).toLocaleString("en");
export const seconds = (s) => (s === null || s === undefined ? "–" : s < 0.00995 ? `${(s * 1000).toFixed(1)} ms` : s < 0.9995 ? `${Math.round(s * 1000)} ms` : s < 90 ? `${s.toFixed(1)} s` : `${whole(s / 60)} min`);
export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);
export const bytes = (count) => (count < 1e6 ? `${whole(count / 1e3)} kB` : count < 1e9 ? `${(count / 1e6).toFixed(1)} MB` : `${(count / 1e9).toFixed(1)} GB`);
export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const day = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });

const A_CHARACTER_MS = 70;
let passing = 0;

/** Say something at the bottom of the page, for a while; only to screen readers if everybody else sees it elsewhere. */
export function say(text, bad = false, seen = true) {
  const place = document.getElementById("said");
  place.replaceChildren(el("p", { className: bad ? "bad" : seen ? "" : "unseen" }, text));
  clearTimeout(passing);
  // As long as it takes to read it.
  passing = setTimeout(hush, Math.max(bad ? 12000 : 5000, text.length * A_CHARACTER_MS));
}

/** Take the message at the bottom of the page away. */
export function hush() {
  document.getElementById("said").replaceChildren();
}

/** Tell screen readers what everybody else sees. */
export function tell(text) {
  document.getElementById("heard").replaceChildren(text);
}

/** Whether a click is the second of a double click. It would fall on what the first one puts in its place. */
export const isSecond = (click) => click.detail > 1;

/** Run what the node may refuse. If it does, show its message, and return undefined. */
export async function trying(work) {
  try {
    return await work();
  } catch (error) {
    say(error.message, true);
    return undefined;
  }
}

// What a distance is made of, as a bar.
import { el } from "./dom.js";

const SERIES = 6;
// What the parts of a model of dca are; other models have the names of modalities.
const MEANS = { plain: "as before the first click", items: "learned, what fits compared with all items", far: "learned, what fits compared with what does not" };
// A part keeps its colour when another one vanishes, and Watch draws its weight in the same.
export const colourOf = (names, at) => (names.every((name) => name in MEANS) ? Object.keys(MEANS).indexOf(names[at]) : at) % SERIES + 1;
const inPercent = (name, share) => `${name} ${Math.round(100 * share)} %`;

/** The shares that modalities or experts have in a distance; nothing if it is made of one. Scores have parts below 0: their size counts. */
export function shares(parts) {
  const names = Object.keys(parts ?? {});
  const sizes = names.map((name) => Math.abs(parts[name]));
  const whole = sizes.reduce((sum, size) => sum + size, 0);
  if (names.length < 2 || whole === 0) return null;
  const words = names.map((name, at) => inPercent(name, sizes[at] / whole)).join(", ");
  return el("div", { className: "parts", title: words, aria: { role: "img", label: `Distance: ${words}` } },
    ...names.map((_, at) => swatch(colourOf(names, at), sizes[at] / whole)));
}

/** Which colour stands for what. In an experiment, two models may have made the bars, each of other parts. */
export function legend(items) {
  const groups = new Map(items.map(({ parts }) => Object.keys(parts ?? {})).filter((names) => names.length > 1).map((names) => [names.join(), names]));
  const keys = (names) => names.map((name, at) => el("span", { className: "key" }, swatch(colourOf(names, at), 0), name in MEANS ? `${name}: ${MEANS[name]}` : name));
  return [...groups.values()].flatMap((names, at) => [el("span", {}, at ? "or of:" : "A bar shows what it is made of:"), ...keys(names)]);
}

function swatch(colour, share) {
  const element = el("span", { className: `share series-${colour}` });
  // A policy of the page forbids styles in its text, not these.
  if (share) element.style.flexGrow = share;
  return element;
}

// A number and its uncertainty, as a mark between two bounds on a scale.
import { el } from "./dom.js";

/** `low`, `at` and `high` are places on the scale, from 0 to 1. `ends` are the words below it; `words` describe all of it. */
export function interval({ low, at, high }, ends, words) {
  const range = el("div", { className: "range" });
  const point = el("div", { className: "point" });
  // A policy of the page forbids styles in its text, not these.
  range.style.left = percentOf(low);
  range.style.right = percentOf(1 - high);
  point.style.left = percentOf(at);
  return el("div", { className: "scale", aria: { role: "img", label: words } }, el("div", { className: "track" }, el("div", { className: "half" }), range, point),
    el("p", { className: "ends" }, ...ends.map((end) => el("span", {}, end))));
}

const percentOf = (share) => `${100 * share}%`;

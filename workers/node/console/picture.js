// An item as people see it: its picture, or its id if it has none.
import { address } from "./api.js";
import { el } from "./dom.js";

/** A thumbnail out of an atlas, a square of cells that many items share. */
function thumbnail(model, id, cells, [first, cell]) {
  const element = el("span", { className: "picture", role: "img", aria: { label: id } });
  const place = (number) => `${(number / (cells - 1)) * 100}%`;
  element.style.backgroundImage = `url("${address("/atlas", { model, first })}")`;
  element.style.backgroundSize = `${cells * 100}%`;
  element.style.backgroundPosition = `${place(cell % cells)} ${place(Math.floor(cell / cells))}`;
  return element;
}

/** An item in a part of a list, as `GET /items` answers: out of an atlas if there is one. */
export function listed(model, part, at) {
  const cell = part.cells?.[at];
  return cell ? thumbnail(model, part.items[at], part.atlas.cells, cell) : picture(model, part.items[at], part.pictures);
}

/** The attributes that answers are to bring, if `items`, an answer of `GET /items`, have labels. */
export const fieldsOf = (items) => (items.attributes.includes("label") ? items.attributes : []);

/** What an item is called: its attribute `label` if it has one. A pointer on it shows its id and its other attributes. */
export function named({ id, attributes: { label = id, ...others } = {} }) {
  const more = Object.entries(others).map((pair) => pair.join(" "));
  return el("p", { className: "id", dir: "auto", title: [id, ...more].join(", ") }, String(label));
}

export function picture(model, id, pictures) {
  const words = () => el("span", { className: "picture words" }, id);
  if (!pictures) return words();
  return el("img", {
    className: "picture", alt: id, loading: "lazy", decoding: "async", src: address("/picture", { model, id }),
    on: { error: (event) => event.target.replaceWith(words()) },
  });
}

/** How far an item moved to this rank from the rank that it had; -1 if it had none. */
export function arrow(was, rank) {
  if (was === -1) return el("span", { className: "moved-new" }, "new");
  if (was === rank) return null;
  const [className, way, sign] = was > rank ? ["moved-up", "up", "↑"] : ["moved-down", "down", "↓"];
  const places = Math.abs(was - rank);
  return el("span", { className, aria: { label: `${way} ${places}`, role: "img" } }, `${sign}${places}`);
}

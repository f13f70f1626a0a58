// An item as people see it: its picture, or what it is called. An item has an `id`, and `attributes` if they are known.
import { address, fetchPicture, get } from "./api.js";
import { el } from "./dom.js";

/** One item of `part`, an answer of `GET /items`. */
export const itemAt = ({ items, labels }, at) => ({ id: items[at], attributes: labels?.[at] ? { label: labels[at] } : {} });

/** The item with this id; `items` is an answer of `GET /items`. Only labels have to be asked for. */
export async function itemOf(model, id, items) {
  const part = items.labels ? await get("/items", { model, id }) : { items: [] };
  return part.items.length ? itemAt(part, 0) : { id };
}

/** What an item is called: its attribute `label` if it has one. */
export const labelOf = ({ id, attributes }) => String(attributes?.label ?? id);

// Pictures that a browser did not get are asked for one after another: side by side, a node would refuse them again.
let asking = Promise.resolve();
// Atlases that were asked for and did not come yet, by address. All of their thumbnails wait together.
const atlases = new Map();

/** Ask again for a picture, unless nobody would see it by then. Returns whether the browser has it then. */
function askAgain(url, isShown = () => true) {
  asking = asking.then(() => isShown() && fetchPicture(url));
  return asking;
}

/** Load an atlas as an image, because a background does not report that its picture did not come. */
function loadAtlas(url) {
  const { href } = url;
  if (!atlases.has(href)) {
    const loaded = new Promise((load, error) => { el("img", { src: href, on: { load, error } }); });
    atlases.set(href, loaded.catch(() => askAgain(url)).finally(() => atlases.delete(href)));
  }
  return atlases.get(href);
}

/** A thumbnail out of an atlas, a square of cells that many items share. */
function thumbnail(model, item, cells, [first, cell]) {
  const element = el("span", { className: "picture", role: "img", aria: { label: labelOf(item) } });
  const place = (number) => `${(number / (cells - 1)) * 100}%`;
  const url = address("/atlas", { model, first });
  loadAtlas(url).then(() => { element.style.backgroundImage = `url("${url}")`; });
  element.style.backgroundSize = `${cells * 100}%`;
  element.style.backgroundPosition = `${place(cell % cells)} ${place(Math.floor(cell / cells))}`;
  return element;
}

/** The picture of an item of a part of a list: out of an atlas if there is one. */
export function listed(model, part, at) {
  const item = itemAt(part, at);
  const cell = part.cells?.[at];
  return cell ? thumbnail(model, item, part.atlas.cells, cell) : picture(model, item, part.pictures);
}

/** The attributes that answers are to bring. `items` is an answer of `GET /items`: without pictures, attributes are what people see. */
export const fieldsOf = (items) => (items.labels || !items.pictures ? items.attributes : []);

/** The attributes of an item beside its label, as words. */
export const moreOf = ({ attributes = {} }) => Object.entries(attributes).filter(([name]) => name !== "label").map((pair) => pair.join(" "));

/** What an item is called. A pointer on it shows its id and its other attributes. */
export function named(item) {
  return el("p", { className: "id", dir: "auto", title: [item.id, ...moreOf(item)].join(", ") }, labelOf(item));
}

/** The picture of an item; words until it comes if it did not come at once. */
export function picture(model, item, pictures) {
  const words = () => el("span", { className: "picture words", dir: "auto" }, labelOf(item));
  if (!pictures) return words();
  const url = address("/picture", { model, id: item.id });
  const image = (failed) => el("img", { className: "picture", alt: labelOf(item), src: url, on: { error: failed } });
  return image(async (event) => {
    const instead = words();
    event.target.replaceWith(instead);
    if (await askAgain(url, () => instead.isConnected)) instead.replaceWith(image((again) => again.target.replaceWith(words())));
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

// A grid of any number of items, to pick one. The page holds, and asks for, only the items that are in sight.
import { get } from "./api.js";
import { el, say, tell, trying, whole } from "./dom.js";
import { itemAt, labelOf, listed } from "./picture.js";

// The least side of an item in pixels: items fill the width.
const SIDE = 56;
const GAP = 6;
const PART = 200;

/** Any item; `total` is how many there were a while ago. */
export async function anyItem(model, total) {
  const any = (count) => get("/items", { model, offset: Math.floor(Math.random() * count), limit: 1 });
  let part = await any(total);
  // Items may have gone since then.
  if (!part.items.length) part = await any(part.total);
  if (!part.items.length) throw new Error("There is no item to search from: the catalogue is empty.");
  return itemAt(part, 0);
}

export class Picker {
  /** `picked` is called with an item. */
  constructor(model, picked) {
    Object.assign(this, { model, find: "", total: 0, at: 0, chosen: "", isSought: false });
    this.picked = (item) => { this.isSought = false; picked(item); };
    this.parts = new Map();
    this.cells = new Map();
    this.sheet = el("div", { className: "sheet" });
    this.element = el("div", { className: "grid", tabIndex: -1, aria: { role: "listbox", label: "Items" } }, this.sheet);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.sized = new ResizeObserver(() => this.draw(true));
    this.sized.observe(this.element);
  }

  close() {
    this.sized.disconnect();
  }

  async show(find) {
    this.find = find;
    this.parts.clear();
    this.at = 0;
    this.element.scrollTop = 0;
    const asked = this.part(0);
    const first = await trying(() => asked);
    // A later call may have been answered before this one.
    if (!first || this.parts.get(0) !== asked) return;
    this.total = first.total;
    // Whoever has picked an item since typing hears of its results instead.
    if (first.total && this.isSought && find) tell(`${whole(first.total)} ${first.total === 1 ? "item" : "items"} found.`);
    if (!first.total && find) say(`No item has "${find}" in its id${first.labels ? " or label" : ""}.`);
    this.draw(true);
  }

  /** Pick the first item that this finds. */
  async pickFirst(find) {
    await this.show(find);
    if (this.find === find && this.total) this.picked(itemAt(await this.part(0), 0));
  }

  /** A part of the ids. Each part is asked for only once. */
  part(number) {
    if (!this.parts.has(number)) {
      const asked = get("/items", { model: this.model, find: this.find, offset: number * PART, limit: PART });
      asked.catch(() => this.parts.delete(number));
      this.parts.set(number, asked);
    }
    return this.parts.get(number);
  }

  get columns() {
    return Math.max(1, Math.floor((this.element.clientWidth - GAP) / (SIDE + GAP)));
  }

  /** From the left of an item to that of the next, in pixels. */
  get step() {
    return Math.floor((this.element.clientWidth - GAP) / this.columns);
  }

  draw(again = false) {
    // A click is lost if what it began on is gone before it ends.
    if (again && this.element.matches(":active")) {
      requestAnimationFrame(() => this.draw(true));
      return;
    }
    const { columns, step } = this;
    if (again) {
      this.at = Math.max(0, Math.min(this.at, this.total - 1));
      this.sheet.replaceChildren();
      this.cells.clear();
      this.sheet.style.height = `${Math.ceil(this.total / columns) * step + GAP}px`;
    }
    const top = Math.max(0, Math.floor(this.element.scrollTop / step) - 2);
    const bottom = Math.ceil((this.element.scrollTop + this.element.clientHeight) / step) + 2;
    const from = top * columns;
    const to = Math.min(this.total, bottom * columns);
    for (const [at, cell] of this.cells) {
      if (at < from || at >= to) {
        cell.remove();
        this.cells.delete(at);
      }
    }
    for (let at = from; at < to; at += 1) if (!this.cells.has(at)) this.add(at, columns, step);
  }

  async add(at, columns, step) {
    const cell = el("button", { type: "button", tabIndex: at === this.at ? 0 : -1, aria: { role: "option", selected: "false", setsize: this.total, posinset: at + 1 } });
    cell.style.width = cell.style.height = `${step - GAP}px`;
    cell.style.left = `${GAP + (at % columns) * step}px`;
    cell.style.top = `${GAP + Math.floor(at / columns) * step}px`;
    this.cells.set(at, cell);
    this.sheet.append(cell);
    const { find } = this;
    const part = await this.part(Math.floor(at / PART)).catch(() => null);
    const item = part?.items.length > at % PART ? itemAt(part, at % PART) : null;
    if (!item || this.find !== find || !cell.isConnected) return;
    const { id } = item;
    cell.append(listed(this.model, part, at % PART));
    cell.title = labelOf(item) === id ? id : `${labelOf(item)}, ${id}`;
    cell.dataset.id = id;
    cell.setAttribute("aria-selected", String(id === this.chosen));
    cell.addEventListener("click", () => {
      this.at = at;
      this.picked(item);
    });
  }

  choose(id) {
    this.chosen = id;
    for (const cell of this.cells.values()) cell.setAttribute("aria-selected", String(cell.dataset.id === id));
  }

  move(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -this.at, End: this.total - 1 - this.at };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = Math.min(this.total - 1, Math.max(0, this.at + steps[event.key]));
    const row = Math.floor(next / this.columns) * this.step;
    if (row < this.element.scrollTop || row + this.step > this.element.scrollTop + this.element.clientHeight) {
      this.element.scrollTop = row - this.element.clientHeight / 2;
      this.draw();
    }
    const before = this.cells.get(this.at);
    if (before) before.tabIndex = -1;
    this.at = next;
    const cell = this.cells.get(next);
    if (cell) {
      cell.tabIndex = 0;
      cell.focus();
    }
  }
}

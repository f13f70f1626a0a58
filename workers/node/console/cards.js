// Results as a grid: one stop of the Tab key for all of them, and the arrow keys lead from one to another.
// No listbox: screen readers do not find the buttons in its options.
import { el } from "./dom.js";

const SLIDE_MS = 260;

export class Cards {
  /** `help` is the id of the element that explains the keys. */
  constructor(label, help) {
    this.element = el("div", { className: "results", aria: { role: "grid", label, describedby: help } });
    this.element.addEventListener("keydown", (press) => this.move(press));
    this.element.addEventListener("focusin", ({ target }) => this.enterAt(this.cardOf(target)));
  }

  get all() {
    return [...this.element.querySelectorAll("[role=gridcell]")];
  }

  /** The card that this element is, or is in. */
  cardOf(element) {
    return this.all.find((card) => card.contains(element));
  }

  /** Make this the card that the Tab key leads to. */
  enterAt(entry) {
    for (const card of this.all) card.tabIndex = card === entry ? 0 : -1;
  }

  move(press) {
    const { all } = this;
    const at = all.indexOf(this.cardOf(press.target));
    const columns = all.filter((card) => card.offsetTop === all[0].offsetTop).length;
    const places = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: all.length - 1 };
    if (at < 0 || !(press.key in places) || press.ctrlKey || press.metaKey || press.altKey) return;
    press.preventDefault();
    all[places[press.key]]?.focus();
  }

  /**
   * Put these cards in the place of those that were there. If they answer the same query (`again`), they slide to their
   * new places, and the keyboard stays at the same item.
   */
  replace(cards, again) {
    const places = new Map(this.all.map((card) => [card.dataset.id, card.getBoundingClientRect()]));
    const entry = this.all.find((card) => card.tabIndex === 0)?.dataset.id;
    const focused = this.cardOf(document.activeElement);
    const pressed = [...focused?.querySelectorAll("button") ?? []].indexOf(document.activeElement);
    // How many are beside each other depends on the screen, so each is a row of its own.
    this.element.replaceChildren(...cards.map((card) => el("div", { className: "line", aria: { role: "row" } }, card)));
    const same = again ? cards.find((card) => card.dataset.id === entry) : undefined;
    this.enterAt(same ?? cards[0]);
    // If somebody searched from a result, the keyboard goes on at the first result of the new search.
    if (focused) (same ? same.querySelectorAll("button")[pressed] ?? same : cards[0])?.focus();
    if (!again || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const card of cards) {
      const was = places.get(card.dataset.id);
      const is = card.getBoundingClientRect();
      if (!was) card.animate([{ opacity: 0, transform: "scale(.9)" }, {}], { duration: SLIDE_MS, easing: "ease-out" });
      else if (was.left !== is.left || was.top !== is.top) {
        card.animate([{ transform: `translate(${was.left - is.left}px, ${was.top - is.top}px)` }, {}], { duration: SLIDE_MS, easing: "ease-out" });
      }
    }
  }
}

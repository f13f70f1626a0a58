// Watch: how learning goes, from what went live on this node since it started.
import { get } from "./api.js";
import { clock, day, el, percent, seconds, table, trying, whole } from "./dom.js";
import { Seldom } from "./live.js";

const KEPT = 2000;
const ROWS = 12;
// Between two drawings, as versions may come twenty times a second, and between two looks at the history.
const DRAW_MS = 500;
const HISTORY_MS = 5000;
const LINES = 500;
const TOLD = 30;
const SERIES = 6;
const ALONE_S = 30;

export async function watchPage(place, { model, onStep }) {
  let { steps } = await get(`/models/${encodeURIComponent(model)}/steps`);
  const big = el("div", { className: "big" });
  const grid = el("div", { className: "charts" });
  const decisions = el("ul", { className: "moves", tabIndex: 0, aria: { label: "Guard, drift and moves" } });
  place.append(big, grid);
  const charts = [
    new Chart("Mistakes", "How many comparisons the model ordered wrongly, just before it learned them", percent, () => [
      ["lately", (step) => step.figures.recent_mistake_rate], ["since the start", (step) => step.figures.mistake_rate],
    ]),
    new Chart("Held-out events in the right order", "How many of the events that are never learned this version orders as people did, and how many the start does", percent, () => [
      ["now", (step) => step.figures.held_out_right], ["at the start", (step) => step.figures.held_out_right_at_start],
    ], "Nothing to show yet: about one event in fifty is held out, and the guard needs some of them."),
    new Chart("Weights", "How much each modality, or expert, counts", (value) => (value === null || value === undefined ? "–" : value.toFixed(3)), () =>
      [...new Set(steps.flatMap((step) => Object.keys(step.weights)))].slice(0, SERIES).map((name) => [name, (step) => step.weights[name]])),
    new Chart("Click to live", "From the click until this node answers with it, and where the time went", seconds, () => [
      ["whole", (step) => step.freshness_s], ...["log", "learn", "publish", "fetch", "swap"].map((stage) => [stage, (step) => step.stages?.[stage]]),
    ]),
    new Chart("Events a second", "Comparisons learned between versions that went live here", (value) => (value === null || value === undefined ? "–" : value < 10 ? String(Number(value.toPrecision(2))) : whole(value)), () => [
      ["a second", (step, before) => (before && step.at > before.at && step.version >= before.version ? (step.version - before.version) / (step.at - before.at) : null)],
    ]),
  ];
  grid.append(...charts.map((chart) => chart.element), el("section", { className: "card" }, el("h2", {}, "Guard, drift and moves"),
    el("p", { className: "soft" }, "Versions that were withheld or taken back and why; drift; versions that operators moved"), decisions));

  function draw() {
    const last = steps.at(-1);
    const figure = (value, name) => el("div", {}, el("b", {}, value), el("span", {}, name));
    const fresh = steps.slice(-50).map((step) => step.freshness_s).filter((s) => s !== null).sort((a, b) => a - b);
    big.replaceChildren(
      figure(last ? whole(last.version) : "–", "version that is live"),
      figure(percent(last?.figures.recent_mistake_rate), "mistakes lately"),
      figure(fresh.length ? seconds(fresh[Math.floor(fresh.length / 2)]) : "–", "click to live, median of the last 50"),
      figure(last ? clock(last.at) : "–", "went live"),
    );
    for (const chart of charts) chart.draw(steps);
  }

  async function drawDecisions() {
    const { lines } = await get(`/models/${encodeURIComponent(model)}/history`, { last: LINES });
    const told = lines.filter((line) => line.what !== "published").slice(-TOLD).reverse();
    decisions.replaceChildren(...told.map((line) => el("li", {},
      el("span", { className: `tag ${BAD.has(line.what) ? "warn" : ""}` }, WHAT[line.what] ?? line.what), `version ${whole(line.version)}`,
      el("span", { className: "soft" }, [line.actor, day(line.at)].filter(Boolean).join(", ")), line.reason ? el("p", {}, line.reason) : null)),
    ...(told.length ? [] : [el("li", {}, "Nothing was withheld, nothing drifted, and nobody moved a version.")]));
  }

  const drawing = new Seldom(draw, DRAW_MS);
  const looking = new Seldom(() => trying(drawDecisions), HISTORY_MS);
  const forget = onStep((step) => {
    if (step.model !== model || step.number <= (steps.at(-1)?.number ?? 0)) return;
    steps.push(step);
    if (steps.length > KEPT) steps = steps.slice(-KEPT / 2);
    drawing.ask();
    looking.ask();
  });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => { for (const chart of charts) chart.wipe(); draw(); };
  scheme.addEventListener("change", repaint);
  draw();
  looking.ask();
  return () => {
    forget();
    drawing.close();
    looking.close();
    scheme.removeEventListener("change", repaint);
    for (const chart of charts) chart.close();
  };
}

const WHAT = { held: "withheld" };
const BAD = new Set(["held", "taken back", "drift"]);

/** Lines over time, and the same as a table for who does not see lines. */
class Chart {
  constructor(title, about, told, series, nothing = "Nothing went live yet. Send feedback, or mark something under Try.") {
    Object.assign(this, { told, series, names: "", plot: null });
    this.canvas = el("div", { aria: { role: "img", label: `${title}, as lines; the table below has the numbers` } });
    this.rows = el("div");
    this.details = el("details", { on: { toggle: () => this.fill() } }, el("summary", {}, "As a table"), this.rows);
    this.empty = el("p", { className: "soft" }, nothing);
    this.element = el("section", { className: "card" }, el("h2", {}, title), el("p", { className: "soft" }, about), this.empty, this.canvas, this.details);
    this.title = title;
    this.sized = new ResizeObserver(() => this.plot?.setSize({ width: this.width, height: 210 }));
    this.sized.observe(this.element);
  }

  get width() {
    return Math.max(200, this.element.clientWidth - 30);
  }

  draw(steps) {
    const series = this.series();
    this.columns = [steps.map((step) => step.at), ...series.map(([, of]) => steps.map((step, at) => of(step, steps[at - 1]) ?? null))];
    this.labels = series.map(([name]) => name);
    const empty = !this.columns.slice(1).some((column) => column.some((value) => value !== null));
    this.empty.hidden = !empty;
    this.canvas.hidden = empty;
    this.fill();
    if (empty) return;
    if (this.plot && this.names === this.labels.join()) {
      this.plot.setData(this.columns);
      return;
    }
    this.plot?.destroy();
    this.names = this.labels.join();
    this.plot = this.made();
  }

  made() {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    return new globalThis.uPlot({
      width: this.width, height: 210, cursor: { y: false },
      // One point alone would stretch over years.
      scales: { x: { range: (_, low, high) => (low === high ? [low - ALONE_S, high + ALONE_S] : [low, high]) }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 1) * 1.08 || 1] } },
      axes: [axis, { ...axis, size: 72, values: (_, values) => values.map(this.told) }],
      series: [{ value: (_, at) => (at ? clock(at) : "") }, ...this.labels.map((label, at) => ({
        label, stroke: colour(`--series-${(at % SERIES) + 1}`), width: at === 0 ? 2 : 1.3, spanGaps: true, points: { show: this.columns[0].length < 12 }, value: (_, value) => this.told(value),
      }))],
    }, this.columns, this.canvas);
  }

  /** The newest rows; only while somebody looks at them. */
  fill() {
    if (!this.details.open || !this.columns) return;
    const [times, ...columns] = this.columns;
    const rows = times.map((at, row) => [clock(at), ...columns.map((column) => this.told(column[row]))]);
    this.rows.replaceChildren(table([["time", ""], ...this.labels.map((label) => [label, "number"])], rows.slice(-ROWS).reverse(), `${this.title}, the newest`));
  }

  /** Forget the lines; the next drawing makes them anew. */
  wipe() {
    this.plot?.destroy();
    this.plot = null;
    this.names = "";
  }

  close() {
    this.wipe();
    this.sized.disconnect();
  }
}

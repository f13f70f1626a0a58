// Watch: how learning goes, from what went live on this node since it started.
import { copyAsCurl, get } from "../api.js";
import { clock, day, el, percent, redraw, refill, seconds, table, tell, trying, whole } from "../dom.js";
import { interval } from "../interval.js";
import { Seldom, whileSeen } from "../live.js";
import { colourOf } from "../parts.js";

const KEPT = 1000;
const ROWS = 12;
// The least time between two drawings, because versions may come twenty times a second. Then the time between two looks
// at the history, while versions come and while none comes.
const DRAW_MS = 500;
const HISTORY_MS = 5000;
const WITHHELD_MS = 15000;
const LINES = 500;
const TOLD = 30;
const SERIES = 6;
const ALONE_S = 30;
const RATE_S = 10;

export async function watchPage(place, { model, onStep, onRemark }) {
  // What goes live while the page is made is not lost.
  const early = [];
  let decided = "";
  const stopEarly = onStep((step) => early.push(step));
  const path = `/models/${encodeURIComponent(model)}`;
  let { steps } = await get(`${path}/steps`).catch((error) => {
    stopEarly();
    throw error;
  });
  const figures = ["version that is live", "mistakes of late", "from click to live, typically", "last change"].map((name) => [el("b"), name]);
  const big = el("div", { className: "big grow" }, ...figures.map(([value, name]) => el("div", {}, value, el("span", {}, name))));
  const curl = el("button", { className: "quiet", type: "button", on: { click: () => copyAsCurl(`${path}/steps`) } }, "Copy as curl");
  const grid = el("div", { className: "charts" });
  const guard = el("div", { className: "guard" });
  const decisions = el("ul", { className: "moves", tabIndex: 0, aria: { label: "What was withheld, taken back or moved, newest first" } });
  place.append(el("div", { className: "figures" }, big, curl), grid);
  const charts = [
    new Chart("Mistakes", "How often the model was wrong about a click just before it learned it", percent, () => [
      ["of late", learned("recent_mistake_rate")], ["since the start", learned("mistake_rate")],
    ]),
    new Chart("Clicks kept for judging", "About one click in fifty is never learned. How many of them does the live version order as people did, and how many did the start?", percent, () => [
      ["now", (step) => step.figures.held_out_right], ["at the start", (step) => step.figures.held_out_right_at_start],
    ], "Nothing to show yet: 32 such clicks are needed, so about 1,600 clicks in all."),
    new Chart("Weights", "How much each part of the model counts. The parts are the descriptions of an item, or for dca the plain distance and two learned ones.", (value) => (value === null || value === undefined ? "–" : value.toFixed(3)), () =>
      [...new Set(steps.flatMap((step) => Object.keys(step.weights)))].slice(0, SERIES).map((name, at, names) => [name, (step) => (step.what === "model_deleted" ? null : step.weights[name] ?? 0), colourOf(names, at)])),
    new Chart("Hedge's loss", "How wrong the parts of the model were so far. Each part counts by its weight. The loss stays below the bound.", count, () => [
      ["loss", learned("hedge_loss")], ["bound", learned("hedge_loss_bound")],
    ], "Nothing to show yet: only learners that set weights by Hedge have it (dca, lomdml and omdml)."),
    new Chart("Click to live", "The time from a click until this node answers with it, and its stages: in the log, learning, publishing, fetching, swapping in", seconds, () => [
      ["whole", waited], ...["log", "learn", "publish", "fetch", "swap"].map((stage) => [stage, (step) => waited(step) === null ? null : step.stages?.[stage]]),
    ]),
    new Chart("Comparisons a second", "How many comparisons are learned in a second, as a mean over ten seconds. One click can stand for several comparisons.", count, () => [
      // A mean holds for all of the time before it: a line that slopes through a pause would say that clicks came.
      ["comparisons", rate, 1, globalThis.uPlot.paths.stepped({ align: -1 })],
    ]),
  ];
  grid.append(...charts.map((chart) => chart.element), el("section", { className: "card" }, el("h2", {}, "The guard, and who moved what"),
    el("p", { className: "soft" }, "The guard compares new versions with an earlier one. A worse one does not stay live."), guard, decisions));

  function draw() {
    const last = steps.at(-1);
    const fresh = steps.slice(-50).map(waited).filter((s) => s !== null).sort((a, b) => a - b);
    figures[0][0].textContent = last ? whole(last.version) : "–";
    figures[1][0].textContent = percent(last && learned("recent_mistake_rate")(last));
    figures[2][0].textContent = fresh.length ? seconds(fresh[Math.floor(fresh.length / 2)]) : "–";
    figures[3][0].textContent = last ? clock(last.at) : "–";
    for (const chart of charts) chart.draw(steps);
  }

  async function drawDecisions() {
    const [{ lines }, judged] = await Promise.all([get(`${path}/history`, { last: LINES }), get(`${path}/guard`)]);
    refill(guard, ...judgement(judged));
    // Every version is judged. Screen readers tell only another decision.
    if (decided && decided !== judged.decision) tell(`The guard: ${wordsOf(judged.decision)}.`);
    decided = judged.decision;
    const shown = lines.filter((line) => line.what !== "published").slice(-TOLD).reverse();
    refill(decisions, ...shown.map((line) => el("li", {},
      el("span", { className: `tag ${BAD.has(line.what) ? "warn" : ""}` }, whatOf(line)), `version ${whole(line.version)}`,
      el("span", { className: "soft" }, [line.actor, day(line.at)].filter(Boolean).join(", ")), line.reason ? el("p", {}, line.reason) : null)),
    ...(shown.length ? [] : [el("li", {}, "Nothing was withheld, mistakes did not become more frequent, and nobody moved a version.")]));
  }

  const drawing = new Seldom(draw, DRAW_MS);
  const looking = new Seldom(() => trying(drawDecisions), HISTORY_MS);
  const hear = (step) => {
    const last = steps.at(-1);
    // A node that was started again counts from 1.
    if (step.model !== model || (last && step.number <= last.number && step.at <= last.at)) return;
    steps.push(step);
    if (steps.length > KEPT) steps = steps.slice(-KEPT / 2);
    drawing.ask();
    looking.ask();
  };
  const forget = onStep(hear);
  stopEarly();
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => { for (const chart of charts) chart.wipe(); draw(); };
  scheme.addEventListener("change", repaint);
  draw();
  looking.ask(true);
  early.forEach(hear);
  const ignore = onRemark((remark) => { if (remark.model === model) looking.ask(true); });
  // Remarks that came while this page did not listen.
  const unwatch = whileSeen(() => looking.ask(), WITHHELD_MS);
  return () => {
    unwatch();
    forget();
    ignore();
    drawing.close();
    looking.close();
    scheme.removeEventListener("change", repaint);
    for (const chart of charts) chart.close();
  };
}

const count = (value) => (value === null || value === undefined ? "–" : value < 10 ? String(Number(value.toPrecision(2))) : whole(value));

/** Seconds from a click until answers know it. A node that just started did not answer before. */
const waited = (step) => (step.what === "model_live" ? null : step.freshness_s);

/** A figure of what was learned; the start made no mistakes, because nobody had clicked. */
const learned = (name) => (step) => (step.version ? step.figures[name] : null);

/** Comparisons a second since the first of the steps of the last seconds; since the step before if that is longer ago. */
function rate(step, at, steps) {
  let from = at - 1;
  while (from > 0 && step.at - steps[from - 1].at <= RATE_S && steps[from - 1].version <= steps[from].version) from -= 1;
  const before = steps[from];
  return before && step.at > before.at && step.version >= before.version ? (step.version - before.version) / (step.at - before.at) : null;
}

const WHAT = { held: "withheld", drift: "more mistakes" };
/** What a line of the history is about. */
export const whatOf = (line) => WHAT[line.what] ?? line.what;
const DECISIONS = {
  allowed: ["good", "the newest version may answer"], withheld: ["warn", "newer versions are withheld"],
  "taken back": ["warn", "an earlier version answers again"], "not judged": ["", "nothing was judged yet"],
};
const wordsOf = (decision) => DECISIONS[decision]?.[1] ?? decision;
const BAD = new Set(["held", "taken back", "drift"]);

/** The guard's last decision, and by how much a version was better or worse than the one it was compared with. */
function judgement({ decision, at, reason, sentence, margin, doubt, version, reference }) {
  const kind = DECISIONS[decision]?.[0] ?? "";
  const most = 1.15 * (Math.abs(margin) + doubt) || 1;
  const on = (value) => 0.5 + value / most / 2;
  return [
    el("p", { className: "row" }, el("span", { className: `tag ${kind}` }, wordsOf(decision)), at === null ? null : el("span", { className: "soft" }, day(at))),
    reason ? el("p", {}, reason) : null, el("p", {}, sentence),
    margin === null ? null : interval({ low: on(margin - doubt), at: on(margin), high: on(margin + doubt) },
      [`version ${whole(reference)} is better`, "equal", `version ${whole(version)} is better`], sentence),
  ].filter(Boolean);
}

/** Lines over time, and the same figures as a table for people who do not see lines. */
class Chart {
  constructor(title, about, format, series, nothing = "Nothing was learned since this node started. Send feedback, or mark something under Try.") {
    Object.assign(this, { format, series, names: "", plot: null });
    this.canvas = el("div", { aria: { role: "img", label: `${title}, as lines; the table below has the numbers` } });
    this.rows = el("div");
    this.details = el("details", { on: { toggle: () => this.fill() } }, el("summary", {}, "As a table", el("span", { className: "unseen" }, `: ${title}`)), this.rows);
    this.empty = el("p", { className: "soft" }, nothing);
    this.element = el("section", { className: "card chart" }, el("h2", {}, title), el("p", { className: "soft" }, about), this.empty, this.canvas, this.details);
    this.title = title;
    this.sized = new ResizeObserver(() => this.plot?.setSize({ width: this.width, height: 210 }));
    this.sized.observe(this.element);
  }

  get width() {
    return Math.max(200, this.element.clientWidth - 30);
  }

  draw(steps) {
    const series = this.series();
    this.columns = [steps.map((step) => step.at), ...series.map(([, of]) => steps.map((step, at) => of(step, at, steps) ?? null))];
    this.labels = series.map(([name]) => name);
    this.colours = series.map(([, , colour], at) => colour ?? (at % SERIES) + 1);
    this.paths = series.map(([, , , paths]) => paths);
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
      // The last time under the lines is wider than what is left beside them.
      padding: [null, 36, null, null],
      // One point alone would stretch over a day.
      scales: { x: { range: ({ data: [times] }, low, high) => (times.length === 1 ? [times[0] - ALONE_S, times[0] + ALONE_S] : [low, high]) }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 1) * 1.08 || 1] } },
      axes: [{ ...axis, space: 100, values: (_, values) => values.map(clock) }, { ...axis, size: 72, values: (_, values) => values.map(this.format) }],
      // Beside the lines, the newest values, unless a pointer is at others.
      series: [{ value: (plot, at, _, index) => clock(index === null ? plot.data[0].at(-1) : at) }, ...this.labels.map((label, at) => ({
        label, stroke: colour(`--series-${this.colours[at]}`), paths: this.paths[at], width: at === 0 ? 2 : 1.3, spanGaps: true, points: { show: this.columns[0].length < 12 }, value: (plot, value, series, index) => this.format(index === null ? plot.data[series].at(-1) : value),
      }))],
    }, this.columns, this.canvas);
  }

  /** The newest rows; only while somebody looks at them. */
  fill() {
    if (!this.details.open || !this.columns) return;
    const [times, ...columns] = this.columns;
    const rows = times.map((at, row) => [clock(at), ...columns.map((column) => this.format(column[row]))]);
    redraw(this.rows, table([["time", ""], ...this.labels.map((label) => [label, "number"])], rows.slice(-ROWS).reverse(), `${this.title}, the newest`));
  }

  /** Forget the lines; the next drawing makes them again. */
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

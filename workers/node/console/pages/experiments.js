// A/B: two models, or versions, answer a share of the searches together; clicks say which one is better.
import { copyAsCurl, get } from "../api.js";
import { day, el, percent, table, trying, whole } from "../dom.js";
import { interval } from "../interval.js";
import { whileSeen } from "../live.js";

const EVERY_MS = 5000;
const SURE = 0.95;
const EXAMPLE = `[experiments.metric]
model = "MODEL"
against = "OTHER MODEL"
# or: against_version = 1200
# A tenth of the sessions take part.
share = 0.1`;

export async function experimentsPage(place, { model }) {
  const inside = el("div", { className: "stack" });
  place.append(inside);
  let drawn = "";

  async function refresh() {
    const { experiments } = await get("/experiments");
    // Nothing is drawn again, and no focus is lost, as long as nothing changes.
    if (JSON.stringify(experiments) === drawn) return;
    drawn = JSON.stringify(experiments);
    const ours = experiments.filter((one) => one.model === model);
    const others = experiments.filter((one) => one.model !== model);
    inside.replaceChildren(...[...ours, ...others].map(card), ...(experiments.length ? [] : [nothing(model)]));
  }

  await refresh();
  return whileSeen(() => trying(refresh), EVERY_MS);
}

const curl = () => el("button", { className: "quiet", type: "button", on: { click: () => copyAsCurl("/experiments") } }, "Copy as curl");

function nothing(model) {
  return el("section", { className: "card stack" }, el("div", { className: "row" }, el("h2", { className: "grow" }, "No experiment runs on this node"), curl()),
    el("p", {}, "An experiment mixes the results of two models, or of two versions of one, in a share of the searches. People see one list. Each click counts for the side that brought the item. This page then says which side is better, and how sure that is."),
    el("p", {}, "Add this to the node's configuration, and restart it:"), el("pre", { className: "event" }, EXAMPLE.replace("MODEL", model)));
}

function card(one) {
  const { counts } = one;
  const versions = one.against === one.model;
  const names = versions ? ["the live version", `version ${whole(one.against_version)}`] : [one.model, one.against_version === null ? one.against : `${one.against} version ${whole(one.against_version)}`];
  return el("section", { className: "card stack" },
    el("div", { className: "row" }, el("h2", { className: "grow" }, `${one.name}: ${names[0]} or ${names[1]}${versions ? ` of ${one.model}` : ""}`),
      one.better === null ? el("span", { className: "tag" }, "not decided yet") : el("span", { className: "tag good" }, `${names[one.better === "second" ? 1 : 0]} is better`),
      curl()),
    el("p", { className: "verdict" }, sentence(one, names)), scale(one, names),
    table([["side", ""], ["searches won", "number"], ["clicks", "number"]],
      [[names[0], whole(counts.first), whole(counts.clicks[0])], [names[1], whole(counts.second), whole(counts.clicks[1])], ["neither", whole(counts.ties), ""]], `Searches with clicks: ${one.name}`),
    el("p", { className: "soft" }, `${percent(one.searched_share)} of the searches of ${one.model} take part. ${whole(counts.searches)} were answered by both together on this node since ${day(counts.since)}${counts.failed ? `; ${whole(counts.failed)} more were answered by ${names[0]} alone` : ""}. ${one.kept ? "The counts are kept when the node restarts." : "The counts begin again when the node restarts."}`));
}

function sentence(one, names) {
  if (one.share === null) return "No search was won yet. Clicks come by POST /clicks, from click.js or from your own pages.";
  const share = `Of the searches that one side won, ${names[1]} won ${percent(one.share)} (between ${percent(one.low)} and ${percent(one.high)})`;
  if (one.better === null) return `${share}. This is no sure difference yet: the confidence is ${percent(one.confidence)}, and ${percent(SURE)} is needed.`;
  return `${share}. The confidence is ${percent(one.confidence)}, however often somebody looks.`;
}

/** How often the second side wins. Half is in the middle. */
function scale(one, names) {
  if (one.share === null) return null;
  return interval({ low: one.low, at: one.share, high: one.high }, [`${names[0]} always wins`, "equal", `${names[1]} always wins`], sentence(one, names));
}

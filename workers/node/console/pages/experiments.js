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
    const ours = experiments.filter((experiment) => experiment.model === model);
    const others = experiments.filter((experiment) => experiment.model !== model);
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

function card(experiment) {
  const { counts } = experiment;
  const versions = experiment.against === experiment.model;
  const names = versions ? ["the live version", `version ${whole(experiment.against_version)}`] : [experiment.model, experiment.against_version === null ? experiment.against : `${experiment.against} version ${whole(experiment.against_version)}`];
  return el("section", { className: "card stack" },
    el("div", { className: "row" }, el("h2", { className: "grow" }, `${experiment.name}: ${names[0]} or ${names[1]}${versions ? ` of ${experiment.model}` : ""}`),
      experiment.better === null ? el("span", { className: "tag" }, "not decided yet") : el("span", { className: "tag good" }, `${names[experiment.better === "second" ? 1 : 0]} is better`),
      curl()),
    el("p", { className: "verdict" }, sentence(experiment, names)), scale(experiment, names),
    table([["side", ""], ["searches won", "number"], ["clicks", "number"]],
      [[names[0], whole(counts.first), whole(counts.clicks[0])], [names[1], whole(counts.second), whole(counts.clicks[1])], ["neither", whole(counts.ties), ""]], `Searches with clicks: ${experiment.name}`),
    el("p", { className: "soft" }, `${percent(experiment.searched_share)} of the searches of ${experiment.model} take part. ${whole(counts.searches)} were answered by both together on this node since ${day(counts.since)}${counts.failed ? `; ${whole(counts.failed)} more were answered by ${names[0]} alone` : ""}. ${experiment.kept ? "The counts are kept when the node restarts." : "The counts begin again when the node restarts."}`));
}

function sentence(experiment, names) {
  if (experiment.share === null) return "No search was won yet. Clicks come by POST /clicks, from click.js or from your own pages.";
  const share = `Of the searches that one side won, ${names[1]} won ${percent(experiment.share)} (between ${percent(experiment.low)} and ${percent(experiment.high)})`;
  if (experiment.better === null) return `${share}. This is no sure difference yet: the confidence is ${percent(experiment.confidence)}, and ${percent(SURE)} is needed.`;
  return `${share}. The confidence is ${percent(experiment.confidence)}, however often somebody looks.`;
}

/** How often the second side wins. Half is in the middle. */
function scale(experiment, names) {
  if (experiment.share === null) return null;
  return interval({ low: experiment.low, at: experiment.share, high: experiment.high }, [`${names[0]} always wins`, "equal", `${names[1]} always wins`], sentence(experiment, names));
}

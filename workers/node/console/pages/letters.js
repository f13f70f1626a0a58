// Dead letters: events that could not be learned, why, and what to do about them.
import { copyAsCurl, copyInstead, get, post } from "../api.js";
import { choices, day, el, isSecond, say, trying, whole } from "../dom.js";

const LAST = 100;
const WHY = "Events that could not be learned are kept here. Correct the cause first; then send them again, or dismiss those that nobody can correct.";

export async function lettersPage(place, { model }) {
  const state = { open: true, reason: "", ours: false };
  const summary = el("p", { className: "soft", aria: { live: "polite" } });
  const list = el("ul", { className: "letters" });
  const reasons = el("select", { aria: { label: "Reason" }, on: { change: () => { state.reason = reasons.value; trying(refresh); } } }, el("option", { value: "" }, "any"));
  const check = (text, name) => el("label", { className: "check" }, el("input", {
    type: "checkbox", checked: state[name], on: { change: (event) => { state[name] = event.target.checked; trying(refresh); } },
  }), text);
  const again = el("button", { type: "button", on: { click: () => trying(refresh) } }, "Look again");
  const every = el("div", { className: "row" });
  const copy = copyInstead();
  copy.element.hidden = true;
  place.append(el("div", { className: "stack" },
    el("section", { className: "card stack" },
      el("div", { className: "row" }, el("h2", { className: "grow" }, "Dead letters"), el("label", {}, "Reason ", reasons), check("only open", "open"), check(`only model ${model}`, "ours"), again),
      el("p", { className: "soft" }, WHY), el("div", { className: "row" }, el("div", { className: "grow" }, summary), copy.element, every)),
    list));

  const wanted = () => ({ last: LAST, reason: state.reason, ...(state.open ? { open: true } : {}), ...(state.ours ? { model } : {}) });

  async function refresh() {
    summary.textContent = "Reading the newest dead letters ...";
    let answer;
    try {
      answer = await get("/letters", wanted());
    } catch (error) {
      summary.textContent = error.message;
      throw error;
    }
    const known = [...new Set([...Object.keys(answer.reasons), state.reason])].filter(Boolean).sort();
    choices(reasons, [["", "any"], ...known.map((name) => [name, answer.reasons[name] ? `${name} (${whole(answer.reasons[name])})` : name])], state.reason);
    const shown = answer.letters.length < answer.total ? `, the newest ${whole(answer.letters.length)} are shown` : "";
    summary.textContent = answer.total
      ? `${whole(answer.total)} ${answer.total === 1 ? "letter" : "letters"}${shown}, ${whole(answer.open)} open.${answer.whole ? "" : " Older ones were not read; omdml letters list shows all."}`
      : `No ${state.open ? "open " : ""}dead letters${state.reason || state.ours ? " of this kind" : ""}: every event could be learned.`;
    const open = answer.letters.filter((letter) => !letter.since_then).map((letter) => letter.position);
    every.replaceChildren(...(open.length > 1 ? [settle("Send all of these again", "resend", open), settle("Dismiss all of these", "dismiss", open)] : []),
      el("button", { className: "quiet", type: "button", on: { click: () => copyAsCurl("/letters", { parameters: wanted() }) } }, "Copy as curl"));
    copy.element.hidden = !answer.letters.length;
    list.replaceChildren(...answer.letters.map(card));
  }

  function card(letter) {
    const more = el("div", { aria: { live: "polite" } });
    const which = `: ${letter.reason} at ${placeOf(letter.position)}`;
    return el("li", { className: "card stack" },
      el("div", { className: "row" },
        el("span", { className: `tag ${letter.since_then ? "" : "bad"}` }, letter.reason),
        letter.since_then ? el("span", { className: "tag good" }, letter.since_then) : null,
        el("span", { className: "grow soft" }, [letter.model, letter.at && day(letter.at), `at ${placeOf(letter.position)}`].filter(Boolean).join(" · ")),
        el("button", { className: "quiet", type: "button", aria: { label: `Explain${which}` }, on: { click: (event) => (copy.asked(event) ? copyAsCurl("/letters/explain", { parameters: { position: letter.position } }) : trying(() => explain(letter, more))) } }, "Explain"),
        ...(letter.since_then ? [] : [settle("Send again", "resend", [letter.position], which), settle("Dismiss", "dismiss", [letter.position], which)])),
      el("p", {}, letter.error), payload(letter.event), more);
  }

  async function explain(letter, more) {
    const full = await get("/letters/explain", { position: letter.position });
    const rows = [["Position", full.position], ["Key", full.key], ["Headers", Object.entries(full.headers).map((pair) => pair.join("=")).join(", ")],
      ["Now", full.learnable ? "It would be learned now: send it again." : full.why]].filter(([, text]) => text);
    more.replaceChildren(el("dl", {}, ...rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
      ...(full.event === letter.event ? [] : [payload(full.event)]));
  }

  function settle(text, verb, positions, which = "") {
    const body = { positions };
    return el("button", { type: "button", aria: { label: text + which }, on: {
      click: (event) => !isSecond(event) && (copy.asked(event) ? copyAsCurl(`/letters/${verb}`, { body }) : trying(async () => {
        const focused = [...list.children].findIndex((entry) => entry.contains(document.activeElement));
        const { settled, left } = await post(`/letters/${verb}`, body);
        const [why] = Object.keys(left);
        const done = verb === "resend" ? "sent again" : "dismissed";
        say(settled ? `${whole(settled)} ${done}.${why ? ` Others were left: ${why}` : ""}` : `Nothing was ${done}: ${why}`, !settled);
        await refresh();
        // Whoever goes on with the keyboard does so at the next letter.
        if (focused >= 0) (list.children[Math.min(focused, list.children.length - 1)]?.querySelector("button") ?? again).focus();
      })),
    } }, text);
  }

  await trying(refresh);
  return () => {};
}

/** An event, which whoever has no pointer can scroll. */
const payload = (text) => el("pre", { className: "event", tabIndex: 0, aria: { role: "group", label: "Event" } }, text);

/** A position without the long id of its log. */
function placeOf(position) {
  return position.split("/").slice(-2).join("/");
}

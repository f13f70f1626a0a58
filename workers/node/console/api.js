// The node's public interface. The console is a client of it, and nothing else.
import { el, say } from "./dom.js";

// The console is served below the node's own paths, whatever a proxy puts before both.
const ROOT = new URL("..", document.baseURI.replace(/[?#].*$/, ""));
const KEPT = "omdml token";
// The errors of a node that did nothing yet: other requests came first, or the token made too many.
const LATER = ["busy", "too_many"];
// The pause before such a request is sent again, and how often it is sent at most.
const BUSY_MS = 1000;
const BUSY_TURNS = 10;
const NEEDED = "Some requests need a token.";
const REPLACED = "The node does not accept the token that this tab has. It was replaced, or it belongs to another node.";

export class Refused extends Error {
  constructor(status, error, message) {
    super(message);
    Object.assign(this, { status, error });
  }
}

let token = "";
try {
  token = sessionStorage.getItem(KEPT) ?? "";
} catch {
  // Some browsers are told to keep nothing for pages. Then the token lasts as long as the page.
}

// When somebody last touched this page, and when somebody last closed the question for the token without an answer.
let touchedAt = 0;
let declinedAt = -1;
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { touchedAt = performance.now(); }, { capture: true, passive: true });

function keep(given) {
  token = given;
  try {
    sessionStorage.setItem(KEPT, given);
  } catch {
    // As above.
  }
}

/** Move the token out of the address; the rest stays. Browsers do not send what is behind the #. Returns whether there was one. */
export function takeToken() {
  const [part] = location.hash.match(/[#/]token=.*/) ?? [];
  if (!part) return false;
  keep(new URLSearchParams(part.slice(1)).get("token"));
  history.replaceState(null, "", location.pathname + location.search + location.hash.replace(part, ""));
  return true;
}

export function address(path, parameters = {}) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined && value !== "") url.searchParams.set(name, value);
  return url;
}

export const get = (path, parameters) => withToken(() => patiently(() => ask(address(path, parameters), { headers: authorization() })));

export const post = (path, body) => withToken(() => patiently(() => ask(address(path), {
  method: "POST",
  headers: { "content-type": "application/json", ...authorization() },
  body: JSON.stringify(body),
})));

/**
 * Requests for pictures and streams of events can send no token. A cookie that may only read takes its place. Returns
 * whether the node accepts the token, if there is one.
 */
export async function signIn() {
  const response = token ? await fetch(address("/session"), { method: "POST", headers: authorization() }).catch(() => null) : null;
  return response?.status !== 401;
}

/** Ask for a picture, and repeat that as for other requests; returns whether the browser has it then. It keeps pictures for a while. */
export const fetchPicture = (url) => patiently(async () => (await send(url)).blob()).then(() => true, () => false);

async function withToken(request) {
  const before = token;
  try {
    return await request();
  } catch (error) {
    if (error.error !== "unauthorized") throw error;
    // If several requests are refused, the first of them asks. Pages that look again by themselves do not ask a second time.
    if (token === before && (declinedAt > touchedAt || !(await askForToken(before ? REPLACED : NEEDED)))) throw error;
    return request();
  }
}

/** A node does one operator's request after another: whoever comes from Dead letters to Health waits for the first. */
async function patiently(request) {
  for (let turn = 1; ; turn += 1) {
    try {
      return await request();
    } catch (error) {
      if (!LATER.includes(error.error) || turn === BUSY_TURNS) throw error;
      await new Promise((resolve) => { setTimeout(resolve, BUSY_MS); });
    }
  }
}

async function ask(url, options) {
  const response = await send(url, { cache: "no-store", ...options });
  return response.json().catch(() => ({}));
}

/** The node's answer; throws an error if the node refuses. */
async function send(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch {
    throw new Refused(0, "unreachable", `This node does not answer at ${url.origin}: is it running?`);
  }
  if (response.ok) return response;
  const { error, message } = await response.json().catch(() => ({}));
  throw new Refused(response.status, error ?? "", message ?? `${response.status} ${response.statusText}`);
}

function authorization() {
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Ask for the token, and say why; returns whether one was given. */
export async function askForToken(why = NEEDED) {
  const dialog = document.getElementById("ask");
  const field = document.getElementById("token");
  // Several requests may ask at once; the answer is for all.
  if (!dialog.open) {
    field.value = "";
    document.getElementById("ask-why").textContent = why;
    dialog.returnValue = "cancel";
    dialog.showModal();
  }
  await new Promise((resolve) => { dialog.addEventListener("close", resolve, { once: true }); });
  if (dialog.returnValue !== "ok") {
    declinedAt = performance.now();
    return false;
  }
  keep(field.value.trim());
  await signIn();
  return true;
}

/** A box that makes the buttons beside it copy their requests instead of sending them, as a click with Shift does. */
export function copyInstead() {
  const box = el("input", { type: "checkbox" });
  return { element: el("label", { className: "check soft" }, box, "Buttons copy as curl instead"), asked: (event) => box.checked || event.shiftKey };
}

/** Copy a request as a command line; who runs it puts the token into OMDML_TOKEN. */
export async function copyAsCurl(path, { parameters = {}, body } = {}) {
  const quoted = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;
  const words = ["curl", quoted(address(path, parameters))];
  if (body !== undefined) {
    words.push("-H 'content-type: application/json'", "-d", quoted(JSON.stringify(body)));
  }
  if (token) words.push('-H "authorization: Bearer $OMDML_TOKEN"');
  try {
    await navigator.clipboard.writeText(words.join(" "));
    say("Copied.");
  } catch {
    say(words.join(" "));
  }
}

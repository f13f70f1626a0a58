// What people look for without an item to begin from: words, a picture of their own, and vectors.
import { el, trying, whole } from "./dom.js";

// Nodes look at 512 pixels and take 6 MiB. What they can read is sent as it is; the rest is drawn again with at most this
// many pixels a side.
const READ = ["image/jpeg", "image/png", "image/webp", "image/gif"];
const MOST_BYTES = 4e6;
const SIDE = 1024;
const QUALITY = 0.9;

/** Fields for what a search may bring; `ask` gets a query for POST /search, an element that shows it, and what it is. */
export function describeFields({ texts, picture, vectors }, ask) {
  const fields = [];
  if (texts.length) {
    const words = el("input", { type: "search", placeholder: "Describe it in words", autocomplete: "off", aria: { label: "Search by words" } });
    const submit = (event) => {
      event.preventDefault();
      const typed = words.value.trim();
      if (typed) trying(() => ask({ text: Object.fromEntries(texts.map((name) => [name, typed])) }, el("span", { className: "picture words" }, typed), "these words"));
    };
    fields.push(el("form", { className: "row find", on: { submit } }, words, el("button", {}, "Search")));
  }
  if (picture) {
    const use = (file) => file && trying(async () => {
      const canvas = await drawn(file);
      const sent = READ.includes(file.type) && file.size <= MOST_BYTES ? file : await asJpeg(canvas);
      await ask({ picture: await base64(sent) }, canvas, "this picture");
    });
    const file = el("input", { className: "unseen", type: "file", accept: "image/*", on: { change: () => { use(file.files[0]); file.value = ""; } } });
    fields.push(el("label", { className: "drop", on: {
      dragover: (event) => event.preventDefault(),
      drop: (event) => { event.preventDefault(); use(event.dataTransfer.files[0]); },
    } }, "Search by a picture", file));
  }
  const names = Object.keys(vectors);
  const numbers = el("textarea", { rows: 3, spellcheck: false, placeholder: example(names), aria: { label: "Vectors" } });
  const submit = (event) => {
    event.preventDefault();
    trying(() => ask({ features: featuresOf(numbers.value, vectors) }, el("span", { className: "picture words" }, "vectors"), "these vectors"));
  };
  fields.push(el("details", {}, el("summary", {}, "Search by vectors"), el("form", { className: "stack", on: { submit } },
    el("p", { className: "soft" }, names.map((name) => `${name}: ${whole(vectors[name])} numbers`).join(", "), names.length > 1 ? ". One of them is enough." : "."),
    numbers, el("button", {}, "Search"))));
  return fields;
}

const example = (names) => (names.length === 1 ? "0.93, 0.11, ..." : `{"${names[0]}": [0.93, 0.11, ...]}`);

/** The vectors in a text, by modality: an object of lists, or the numbers alone if there is one modality. */
function featuresOf(text, vectors) {
  const names = Object.keys(vectors);
  const features = parsed(text.trim(), names);
  for (const [name, vector] of Object.entries(features)) {
    if (!names.includes(name)) throw new Error(`The items have no vectors called "${name}". They have: ${names.join(", ")}.`);
    if (!Array.isArray(vector) || !vector.every(Number.isFinite)) throw new Error(`${name}: expected a list of numbers, as in [0.93, 0.11].`);
    if (vector.length !== vectors[name]) throw new Error(`${name}: you gave ${whole(vector.length)} numbers, and the items' vectors have ${whole(vectors[name])}.`);
  }
  if (!Object.keys(features).length) throw new Error("Paste at least one vector.");
  return features;
}

function parsed(text, names) {
  if (!text.startsWith("{")) {
    if (names.length > 1) throw new Error(`Say which vectors these are, as in ${example(names)}.`);
    const words = text.replace(/^\[|\]$/g, "").split(/[\s,;]+/).filter(Boolean);
    const bad = words.find((word) => !Number.isFinite(Number(word)));
    if (bad) throw new Error(`"${bad}" is no number.`);
    return words.length ? { [names[0]]: words.map(Number) } : {};
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is no JSON (${error.message}). Expected something like ${example(names)}.`);
  }
}

async function drawn(file) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is no picture that this browser can open: use a JPEG, PNG, WebP or GIF file.`);
  });
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = el("canvas", {
    className: "picture", width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)),
    aria: { role: "img", label: file.name },
  });
  const drawing = canvas.getContext("2d");
  // JPEG has no transparency. Nodes put pictures on white too.
  drawing.fillStyle = "white";
  drawing.fillRect(0, 0, canvas.width, canvas.height);
  drawing.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}

const asJpeg = (canvas) => new Promise((resolve) => { canvas.toBlob(resolve, "image/jpeg", QUALITY); });

function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

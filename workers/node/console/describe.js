// What people look for without an item to begin from: words, and a picture of their own.
import { el, trying } from "./dom.js";

// Nodes look at 512 pixels and take 6 MiB. What they can read is sent as it is; the rest is drawn again with at most this
// many pixels a side.
const READ = ["image/jpeg", "image/png", "image/webp", "image/gif"];
const MOST_BYTES = 4e6;
const SIDE = 1024;
const QUALITY = 0.9;

/** Fields for what the catalogue can describe; `ask` gets a query for POST /search, and an element that shows it. */
export function describeFields({ texts, picture }, ask) {
  const fields = [];
  if (texts.length) {
    const words = el("input", { type: "search", placeholder: "Describe it in words", autocomplete: "off", aria: { label: "Search by words" } });
    const submit = (event) => {
      event.preventDefault();
      const said = words.value.trim();
      if (said) trying(() => ask({ text: Object.fromEntries(texts.map((name) => [name, said])) }, el("span", { className: "picture words" }, said)));
    };
    fields.push(el("form", { className: "row find", on: { submit } }, words, el("button", {}, "Search")));
  }
  if (picture) {
    const use = (file) => file && trying(async () => {
      const canvas = await drawn(file);
      const sent = READ.includes(file.type) && file.size <= MOST_BYTES ? file : await asJpeg(canvas);
      await ask({ picture: await base64(sent) }, canvas);
    });
    const file = el("input", { type: "file", accept: "image/*", on: { change: () => { use(file.files[0]); file.value = ""; } } });
    fields.push(el("label", { className: "drop", on: {
      dragover: (event) => event.preventDefault(),
      drop: (event) => { event.preventDefault(); use(event.dataTransfer.files[0]); },
    } }, "Search by a picture ", file));
  }
  return fields;
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

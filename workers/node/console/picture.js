// An item as people see it: its picture, or its id if it has none.
import { address } from "./api.js";
import { el } from "./dom.js";

export function picture(model, id, pictures) {
  const words = () => el("span", { className: "picture words" }, id);
  if (!pictures) return words();
  return el("img", {
    className: "picture", alt: id, loading: "lazy", decoding: "async", src: address("/picture", { model, id }),
    on: { error: (event) => event.target.replaceWith(words()) },
  });
}

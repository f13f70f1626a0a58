// What goes live on the node, as it happens.
import { address } from "./api.js";

/** The newest step of each model, and each from now on; again the newest after a break. Answers what ends it. `lost` is told whether the node is out of reach. */
export function follow(heard, lost) {
  const source = new EventSource(address("/events"));
  source.addEventListener("step", (event) => heard(JSON.parse(event.data)));
  source.addEventListener("open", () => lost(false));
  source.addEventListener("error", () => lost(true));
  return () => source.close();
}

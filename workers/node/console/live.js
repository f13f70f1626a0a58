// What goes live on the node, as it happens, as long as somebody looks at the page.
import { address } from "./api.js";

/**
 * The newest step of each model, and each from now on; again the newest after a break. Answers what ends it.
 * `lost` is told whether the node is out of reach. A tab that nobody sees asks for nothing.
 */
export function follow(heard, lost) {
  let source = null;
  const open = () => {
    source = new EventSource(address("/events"));
    source.addEventListener("step", (event) => heard(JSON.parse(event.data)));
    source.addEventListener("open", () => lost(false));
    source.addEventListener("error", () => lost(true));
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const seen = () => {
    if (document.hidden) close();
    else if (!source) open();
  };
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

/** Call `work` at most once in `pauseMs`: at once after a pause, otherwise at its end, and never in a tab that nobody sees. */
export class Seldom {
  constructor(work, pauseMs) {
    Object.assign(this, { work, pauseMs, timer: 0, last: -Infinity });
  }

  /** Ask for the work; `now` is for somebody who waits for it. */
  ask(now = false) {
    const wait = now ? 0 : this.last + this.pauseMs - performance.now();
    if (wait <= 0) this.run();
    else this.timer ||= setTimeout(() => this.run(), wait);
  }

  run() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.last = performance.now();
    this.work();
  }

  close() {
    clearTimeout(this.timer);
  }
}

/** Call `work` now and then while the page is seen, and at once when it is seen again. Answers what ends it. */
export function whileSeen(work, everyMs) {
  const look = () => { if (!document.hidden) work(); };
  const timer = setInterval(look, everyMs);
  document.addEventListener("visibilitychange", look);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

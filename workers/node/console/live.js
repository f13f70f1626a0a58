// What goes live on the node, as it happens, as long as somebody looks at the page.
import { address, signIn } from "./api.js";

// The pauses before a new stream is opened: if none could be opened, and if one that was open has ended.
const AGAIN_MS = 2000;
const SOON_MS = 500;

/**
 * Calls back with the newest step of each model, then with each later step; after a break again with the newest ones.
 * Returns a function that ends this. `remarked` gets what happened without changing what is live. `lost` gets "away" if
 * the node is out of reach, "refused" if it does not accept the token, and "" if it answers. A tab that nobody sees asks
 * for nothing.
 */
export function follow(heard, remarked, lost) {
  let source = null;
  let timer = 0;
  let reason = "away";
  let wasOpen = false;
  let ended = false;
  const open = () => {
    source = new EventSource(address("/events"));
    source.addEventListener("step", (event) => heard(JSON.parse(event.data)));
    source.addEventListener("remark", (event) => remarked(JSON.parse(event.data)));
    source.addEventListener("open", () => {
      reason = "away";
      wasOpen = true;
      lost("");
    });
    source.addEventListener("error", () => {
      if (wasOpen) {
        // Some proxies end a stream after a while. Only a node that does not open another one is out of reach.
        wasOpen = false;
        close();
        timer = setTimeout(openOrClose, SOON_MS);
        return;
      }
      lost(reason);
      if (source?.readyState !== EventSource.CLOSED) return;
      // Browsers try again by themselves if nobody answers, but not after an error, which a proxy without a node sends.
      close();
      timer = setTimeout(async () => {
        reason = (await signIn()) ? "away" : "refused";
        if (ended) return;
        lost(reason);
        openOrClose();
      }, AGAIN_MS);
    });
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const openOrClose = () => {
    if (document.hidden) close();
    else if (!source) open();
  };
  document.addEventListener("visibilitychange", openOrClose);
  openOrClose();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", openOrClose);
    close();
  };
}

/**
 * Calls `work` at most once in `pauseMs`, and soon after somebody has asked for it.
 *
 * All consoles hear of a version in the same moment. Each waits for up to a quarter of the pause, so that the node does
 * not get all of their requests at once.
 */
export class Seldom {
  constructor(work, pauseMs) {
    Object.assign(this, { work, pauseMs, timer: 0, last: -Infinity });
  }

  /** Ask for the work; with `now` it is not delayed, because somebody waits for it. */
  ask(now = false) {
    if (now) {
      this.run();
      return;
    }
    const rest = Math.max(0, this.last + this.pauseMs - performance.now());
    this.timer ||= setTimeout(() => this.run(), rest + (Math.random() * this.pauseMs) / 4);
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

/** Call `work` now and then while the page is seen, and at once when it is seen again. Returns a function that ends this. */
export function whileSeen(work, everyMs) {
  const look = () => { if (!document.hidden) work(); };
  const timer = setInterval(look, everyMs);
  document.addEventListener("visibilitychange", look);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

// The little of a browser that click.js needs, and a person in it: node browser_stub.js URL < click.js
// Prints how many beacons were sent, and with which status the node answered each.
"use strict";
const listeners = {};
const listen = (name, act) => { (listeners[name] = listeners[name] || []).push(act); };
const fire = (name, event) => (listeners[name] || []).forEach((act) => act(event));

const list = { dataset: { omdmlQuery: "i0" } };
const items = ["i1", "i2", "i3", "i4"].map((id) => {
  const item = { dataset: { omdmlItem: id } };
  item.closest = (selector) => (selector === "[data-omdml-item]" ? item : list);
  return item;
});
list.querySelectorAll = () => items;
const elsewhere = { closest: () => null };

const answers = [];
global.window = { addEventListener: listen };
global.document = {
  currentScript: { src: process.argv[2], dataset: { model: "shop", user: "anna" } },
  addEventListener: listen,
  visibilityState: "visible",
};
const navigator = {
  sendBeacon(address, body) {
    answers.push(() => fetch(address, { method: "POST", body, headers: { "content-type": "text/plain;charset=UTF-8" } }));
    return true;
  },
};
const leave = () => {
  document.visibilityState = "hidden";
  fire("visibilitychange", {});
  fire("pagehide", {});
  document.visibilityState = "visible";
};

new Function("navigator", require("fs").readFileSync(0, "utf8"))(navigator);
fire("click", { target: items[1] });
fire("click", { target: items[1] });
fire("click", { target: items[2] });
fire("click", { target: elsewhere });
fire("visibilitychange", {});
leave();
leave();
fire("click", { target: items[3] });
leave();

(async () => {
  const statuses = [];
  for (const send of answers) statuses.push((await send()).status);
  console.log(JSON.stringify({ beacons: answers.length, statuses }));
})();

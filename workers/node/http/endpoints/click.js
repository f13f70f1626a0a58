// Sends what people click on a page of results to omdml, when they leave the page.
//
//   <ol data-omdml-query="17"> <li data-omdml-item="4">...</li> <li data-omdml-item="256">...</li> </ol>
//   <script src="https://NODE/click.js" data-model="shop"></script>
//
// data-omdml-search="..." on the list is the answer's interleaved.search, if it has one: clicks then count for its experiment, too.
// data-user="..." on the script says whose clicks these are, so that they can be forgotten.
// data-feedback="/omdml/feedback" on the script sends there instead: an address of the shop's own, which adds the node's token.
(function () {
  "use strict";
  var MOST = 1000; // items that a page may have
  var script = document.currentScript;
  var model = script.dataset.model;
  var address = script.dataset.feedback || new URL("feedback", script.src).href;
  var clicks = new URL("clicks", new URL(address, document.baseURI)).href; // beside the address of feedback
  var clicked = new Map(); // list of results -> items clicked since it was last sent
  var sent = new WeakMap(); // list of results -> items clicked before that

  document.addEventListener("click", function (event) {
    var item = event.target.closest("[data-omdml-item]");
    var list = item && item.closest("[data-omdml-query]");
    if (!list) return;
    if (!clicked.has(list)) clicked.set(list, new Set());
    clicked.get(list).add(item.dataset.omdmlItem);
  }, true);

  function send() {
    clicked.forEach(function (items, list) {
      var before = sent.get(list) || new Set();
      var shown = new Set(Array.from(list.querySelectorAll("[data-omdml-item]"), function (item) {
        return item.dataset.omdmlItem;
      }));
      // Clicks on this list that were sent earlier are no news. Their items were not passed over, so they are left out.
      var left = Array.from(shown).filter(function (item) { return items.has(item) || !before.has(item); }).slice(0, MOST);
      var page = { type: "page", model: model, query: list.dataset.omdmlQuery, shown: left };
      if (script.dataset.user) page.user = script.dataset.user;
      page.clicked = left.filter(function (item) { return items.has(item); });
      if (page.clicked.length) navigator.sendBeacon(address, JSON.stringify(page));
      var search = list.dataset.omdmlSearch;
      if (search && page.clicked.length) navigator.sendBeacon(clicks, JSON.stringify({ search: search, ids: page.clicked }));
      items.forEach(function (item) { before.add(item); });
      sent.set(list, before);
    });
    clicked.clear();
  }

  document.addEventListener("visibilitychange", function () {
    if (document.visibilityState === "hidden") send();
  });
  window.addEventListener("pagehide", send);
})();

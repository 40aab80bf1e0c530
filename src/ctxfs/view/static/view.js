"use strict";
// The page works without this file, which adds the charts, the keys, and updates while a session runs.
// Here nothing from a session is ever put on the page as markup: texts are set as textContent.
(() => {
  const $ = (id) => document.getElementById(id), charts = window.ctxfsCharts;
  const lastCall = () => Number($("call")?.dataset.calls || charts.calls());

  // Replace a part of the page by the server's new version, which escapes all texts of sessions; unless it is no longer wanted.
  async function renew(id, address, wanted = () => true) {
    const answer = await fetch(address, { headers: { "HX-Request": "true", "HX-Target": id } });
    const html = await answer.text();
    if (!answer.ok || !$(id) || !wanted()) return false;
    $(id).outerHTML = html;
    htmx.process($(id));
    if (id === "call") { markChosen(); charts.redraw(); }
    return true;
  }

  // The call requested last: keys pressed faster than the answers come add up, and only the last answer is shown.
  let asked = null;
  async function open(call, item) {
    if (!window.htmx) { location.hash = item ? `item-${item}` : `call-${call}`; return; }  // a page without a server
    const query = new URLSearchParams(location.search);
    query.set("call", call);
    query.delete("rows");
    if (item) { query.set("item", item); for (const name of ["how", "line", "char", "find"]) query.delete(name); }
    const address = `${$("facts").dataset.here}?${query}`, mine = (asked = { call });
    try {
      if (!await renew("call", address, () => asked === mine)) return;
      history.replaceState({ htmx: true }, "");  // what htmx loads again when the user goes back
      history.pushState({ htmx: true }, "", address);
      if (item && await renew("item", address, () => asked === mine)) { markChosen(); showItem(); }
    } finally {
      if (asked === mine) asked = null;
    }
  }

  function step(by) {
    const call = (asked?.call || charts.chosenCall()) + by;
    if ($("call") && call >= 1 && call <= lastCall()) open(call);
  }

  // Only if `ctxfs view` was started with --write: the server expects a token that only this page knows.
  async function change(button) {
    const said = button.parentElement.querySelector(".said"), known = document.querySelector("meta[name=ctxfs-write]");
    const query = new URLSearchParams({ do: button.dataset.do, item: button.dataset.item });
    const answer = await fetch(`${$("facts").dataset.here}/change?${query}`, { method: "POST", headers: { "X-Ctxfs-Write": known.content } });
    if (!answer.ok) { said.textContent = await answer.text(); return; }
    location.reload();
  }

  // While parts of the page are replaced, the element that the user is at keeps the focus and its place on the screen.
  async function steady(replace) {
    const call = $("call"), focused = document.activeElement, inside = call?.contains(focused);
    const at = inside ? focused : [...document.querySelectorAll("#call a, #item a, #item .content")].find((one) => one.getBoundingClientRect().top >= 0);
    const named = at && (at.rel ? `a[rel="${at.rel}"]` : at.hasAttribute("href") ? `a[href='${CSS.escape(at.getAttribute("href"))}']` : "");
    const nth = named ? [...call.querySelectorAll(named)].indexOf(at) : -1, top = at?.getBoundingClientRect().top;
    await replace();
    const now = at?.isConnected ? at : named && nth >= 0 ? $("call").querySelectorAll(named)[nth] : null;
    if (inside && $("call") !== call) {
      if (!now) $("call").tabIndex = -1;
      (now || $("call")).focus({ preventScroll: true });
    }
    if (now) scrollBy({ top: now.getBoundingClientRect().top - top, behavior: "instant" });
  }

  // While a session runs, the server sends an event whenever it has grown.
  function follow() {
    const facts = $("facts");
    if (!facts || !facts.dataset.here || !("live" in facts.dataset) || !window.EventSource) return;
    const source = new EventSource(`${facts.dataset.here}/events?version=${facts.dataset.version}`);
    source.addEventListener("grew", async () => {
      const panel = $("call"), named = new URLSearchParams(location.search).get("call");
      const atEnd = panel && panel.dataset.call === panel.dataset.calls && !named;
      const address = location.pathname + location.search;
      await steady(async () => {
        await renew("facts", address);
        if (atEnd) await renew("call", address);
        await charts.load();
      });
    });
  }

  const KEYS = {
    j: () => step(1), k: () => step(-1),
    g: () => lastCall() && open(1), G: () => lastCall() && open(lastCall()),
    "0": () => charts.zoomTo(0, Infinity),
    "+": () => charts.zoomBy(0.5), "-": () => charts.zoomBy(2),
    "/": () => (document.querySelector("[data-key='/']") || $("find"))?.focus(),
    "?": () => $("help")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  // Keys that were typed before the page was complete; those after "/" are the search text.
  const early = window.keysTyped?.() || [];
  function typedBefore() {
    for (const key of early) {
      const field = document.activeElement;
      if (field?.matches("input[type=search]") && key.length === 1) {
        field.value += key;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      } else if (field?.closest("dialog") && key === "Escape") field.closest("dialog").close();
      else KEYS[key]?.();
    }
  }
  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); });
    const act = event.target.closest("[data-do]");
    if (act) change(act);
    const link = event.target.closest("#call a.step");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); step(link.rel === "next" ? 1 : -1); }
    if (event.target.closest(".to-row")) showRow(event);
    if (event.target.closest("#help-button")) $("help").showModal();
    if (event.target.closest("#theme-button")) { window.ctxfsTheme(); charts.draw(); }
    if (event.target.closest("#all-calls")) charts.zoomTo(0, Infinity);
  });
  // Text typed into a panel's field while the panel's next version is loading is kept, and then requested in turn.
  let typed = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const field = document.activeElement;
    typed = field?.id && field.matches("input[type=search]") && event.target.contains(field) ? field : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    const field = typed && $(typed.id);
    if (!field || field === typed || field.value === typed.value) { typed = null; return; }
    field.value = typed.value;
    field.setSelectionRange(typed.selectionStart, typed.selectionEnd);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (typed) $(typed.id)?.dispatchEvent(new Event("change", { bubbles: true }));
    typed = null;
    if (event.target.id === "call") charts.redraw();
    if (event.target.id === "item" || event.target.id === "call") markChosen();
    if (event.target.id === "item") showItem();
  });
  // Where the panels stand below each other, a chosen item is shown and gets the focus; its link goes back to its row.
  const isNarrow = () => matchMedia("(max-width: 60rem)").matches;
  function showItem() {
    const item = $("item");
    if (!isNarrow() || !item) return;
    item.scrollIntoView();
    if (item.contains(document.activeElement)) return;
    item.tabIndex = -1;
    item.focus({ preventScroll: true });
  }
  function showRow(event) {
    const row = document.querySelector(".row a[aria-current]");
    if (!row) return;  // it is not among the rows that are shown: the link leads to their panel
    event.preventDefault();
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
  }
  function markChosen() {
    const item = new URLSearchParams(location.search).get("item");
    for (const row of document.querySelectorAll(".row a[data-item]")) {
      if (row.dataset.item === item) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(charts.draw, 120); });
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", charts.draw);
  charts.onOpen(open);
  const reveal = () => { const shown = location.hash.startsWith("#item-") && $(location.hash.slice(1)); if (shown) shown.open = true; };
  addEventListener("hashchange", reveal);
  // Going back, htmx loads the page again where it was scrolled to: at the row, since the item is gone there.
  addEventListener("popstate", () => {
    const item = new URLSearchParams(location.search).get("item");
    if (isNarrow() && !item) document.querySelector(".row a[aria-current]")?.scrollIntoView({ block: "center", behavior: "instant" });
  });
  const begin = () => {
    charts.load();
    follow();
    reveal();
    if (!isNarrow() || !new URLSearchParams(location.search).get("item")) return;
    history.scrollRestoration = "manual";  // going forward, too, shows the item
    showItem();
  };
  addEventListener("DOMContentLoaded", typedBefore);  // by then htmx has set up the page's fields
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin); else begin();
})();

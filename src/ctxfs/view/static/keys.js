"use strict";
// Loaded before the rest of the page: keys typed while a journal is being read wait here until view.js takes them.
window.keysTyped = (() => {
  const typed = [];
  const keep = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    typed.push(event.key);
  };
  addEventListener("keydown", keep);
  return () => { removeEventListener("keydown", keep); return typed; };
})();
// Light or dark: the system's choice, unless the reader made another one, which this browser keeps.
window.ctxfsTheme = (() => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("ctxfs-theme"); } catch { return null; } };  // a file has none
  const set = (theme) => { if (theme) root.dataset.theme = theme; };
  set(kept());
  return () => {
    const theme = (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
    set(theme);
    try { localStorage.setItem("ctxfs-theme", theme); } catch { /* then it holds for this page */ }
  };
})();

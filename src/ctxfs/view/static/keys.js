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

(() => {
  "use strict";
  const root = document.documentElement;
  const night = matchMedia("(prefers-color-scheme: dark)");
  // A file opened from a disk may not be allowed to remember anything; the page then follows the system each time.
  const memory = (action) => { try { return action(localStorage); } catch { return null; } };
  const saved = memory((store) => store.getItem("rlvr-theme"));
  const show = (theme) => {
    root.dataset.theme = theme;
    const text = document.querySelector("#theme .word");
    if (text) text.textContent = theme === "dark" ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  };
  show(saved === "dark" || saved === "light" ? saved : night.matches ? "dark" : "light");
  night.addEventListener("change", (event) => {
    if (!memory((store) => store.getItem("rlvr-theme"))) show(event.matches ? "dark" : "light");
  });
  document.addEventListener("DOMContentLoaded", () => {
    show(root.dataset.theme);
    document.getElementById("theme").addEventListener("click", () => {
      const theme = root.dataset.theme === "dark" ? "light" : "dark";
      memory((store) => store.setItem("rlvr-theme", theme));
      show(theme);
    });
  });
})();

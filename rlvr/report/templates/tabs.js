(() => {
  "use strict";
  for (const list of document.querySelectorAll(".tabs")) {
    const tabs = [...list.querySelectorAll("[role=tab]")];
    const choose = (chosen, focus) => {
      for (const tab of tabs) {
        const on = tab === chosen;
        tab.setAttribute("aria-selected", on);
        tab.tabIndex = on ? 0 : -1;
        document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
      }
      if (focus) chosen.focus();
    };
    const keys = { ArrowRight: 1, ArrowLeft: -1 };
    for (const tab of tabs) {
      tab.addEventListener("click", () => choose(tab, false));
      tab.addEventListener("keydown", (event) => {
        if (!(event.key in keys)) return;
        event.preventDefault();
        choose(tabs[(tabs.indexOf(tab) + keys[event.key] + tabs.length) % tabs.length], true);
      });
    }
  }
})();

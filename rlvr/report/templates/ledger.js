(() => {
  "use strict";
  const buttons = [...document.querySelectorAll("[data-filter]")];
  const groups = [...document.querySelectorAll(".whole tbody")];
  const status = document.getElementById("shown");
  const show = (verdict) => {
    let count = 0;
    for (const group of groups) {
      const rows = [...group.querySelectorAll("tr[data-verdict]")];
      for (const row of rows) row.hidden = verdict !== "" && row.dataset.verdict !== verdict;
      const left = rows.filter((row) => !row.hidden).length;
      group.hidden = left === 0;
      count += left;
    }
    for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.filter === verdict);
    status.textContent = verdict === "" ? "" : `${count} shown`;
  };
  for (const button of buttons) button.addEventListener("click", () => show(button.dataset.filter));
})();

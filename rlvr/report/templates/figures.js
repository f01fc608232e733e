(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("figures");
  const twins = read("twins");
  const boxes = [...document.querySelectorAll(".plot")];

  // Figures come in light tones; at night each tone becomes its dark twin. The copy keeps the original for the way back.
  const painted = (value, dark) => {
    if (typeof value === "string") return dark ? twins[value] ?? value : value;
    if (Array.isArray(value)) return value.map((item) => painted(item, dark));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, painted(item, dark)]));
    }
    return value;
  };

  const draw = (box) => {
    const spec = painted(specs[box.dataset.figure], document.documentElement.dataset.theme === "dark");
    Plotly.react(box, spec.data, { ...spec.layout, autosize: true }, { displayModeBar: false, doubleClick: false });
    box.dataset.drawn = "yes";
    box.dataset.width = box.clientWidth;
  };

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.dataset.drawn) draw(target);
  }, { rootMargin: "600px" });
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const changed = target.clientWidth && target.dataset.width !== String(target.clientWidth);
      if (target.dataset.drawn && changed) { target.dataset.width = target.clientWidth; Plotly.Plots.resize(target); }
    }
  });
  for (const box of boxes) { seen.observe(box); sized.observe(box); }
  document.addEventListener("themechange", () => boxes.filter((box) => box.dataset.drawn).forEach(draw));
  addEventListener("beforeprint", () => boxes.filter((box) => !box.dataset.drawn).forEach(draw));
})();

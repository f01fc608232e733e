(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("figures");
  const twins = read("twins");
  const NARROW = 640;
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

  // On a narrow screen names at the ends of lines would take the room of the lines; the legend stands above them instead.
  const fitted = (layout, width) => {
    const ends = layout.annotations?.some((note) => note.name === "end");
    if (!ends || width >= NARROW) return layout;
    const annotations = layout.annotations.filter((note) => note.name !== "end");
    return { ...layout, annotations, margin: { ...layout.margin, r: 16 } };
  };

  const draw = (box) => {
    const spec = painted(specs[box.dataset.figure], document.documentElement.dataset.theme === "dark");
    const labelled = !box.closest("figure").querySelector(".legend.narrow");
    const layout = labelled ? spec.layout : fitted(spec.layout, innerWidth);
    Plotly.react(box, spec.data, { ...layout, autosize: true }, { displayModeBar: false, doubleClick: false });
    box.dataset.drawn = "yes";
    box.dataset.width = box.clientWidth;
    box.dataset.narrow = innerWidth < NARROW;
  };

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.dataset.drawn) draw(target);
  }, { rootMargin: "600px" });
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const changed = target.clientWidth && target.dataset.width !== String(target.clientWidth);
      if (!target.dataset.drawn || !changed) continue;
      target.dataset.width = target.clientWidth;
      if (target.dataset.narrow === String(innerWidth < NARROW)) Plotly.Plots.resize(target); else draw(target);
    }
  });
  for (const box of boxes) { seen.observe(box); sized.observe(box); }
  document.addEventListener("themechange", () => boxes.filter((box) => box.dataset.drawn).forEach(draw));
  addEventListener("beforeprint", () => boxes.filter((box) => !box.dataset.drawn).forEach(draw));
})();

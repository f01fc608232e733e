(() => {
  "use strict";
  if (!document.getElementById("browser")) return;
  const data = JSON.parse(document.getElementById("rollouts").textContent);
  const arms = Object.keys(data.arms);
  const at = (id) => document.getElementById(id);
  // A group that is partly right is the first to look at: it is where most methods learn.
  const mixed = (group) => group.right > 0 && group.right < group.of;
  const last = arms[arms.length - 1];
  const telling = data.arms[last].findIndex((step) => step.groups.some(mixed));
  const state = { arm: last, step: Math.max(0, telling), verdict: "all", kind: "", problem: null };

  // Everything a model wrote goes through here: textContent only, never markup.
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const shown = (value) => (value === null ? "unknown" : Number(value.toPrecision(3)).toString().replace("-", "−"));
  const signed = (value) => (value === null ? "unknown" : (value > 0 ? "+" : "") + shown(value));
  const visible = { "\n": "↵", "\t": "⇥", "\r": "␍", "\0": "␀" };

  const fits = (row) =>
    (state.verdict === "all" || (state.verdict === "right") === row.v) && (state.kind === "" || row.k === state.kind);
  const current = () => data.arms[state.arm][state.step];

  const token = (text, row, index, scale) => {
    const push = row.s[index] ?? null;
    const span = make("span", "tok", visible[text] ?? text);
    if (text in visible) span.classList.add("control-character");
    if (push) {
      span.classList.add(push > 0 ? "up" : "down");
      span.style.setProperty("--amount", `${8 + 54 * Math.min(1, Math.abs(push) / (scale || 1))}%`);
    }
    span.dataset.index = index;
    return span;
  };

  const pieces = (row) => row.t ?? Array.from(row.c);

  const answer = (row, scale) => {
    const box = make("div", fits(row) ? "answer" : "answer other");
    const facts = make("p", "facts");
    if (row.x > 1) facts.append(make("span", "times", `× ${row.x}`));
    facts.append(make("span", `verdict ${row.v ? "right" : "wrong"}`, `${row.v ? "✓ " : "✗ "}${data.kinds[row.k] ?? row.k}`));
    facts.append(make("span", "", `reward ${shown(row.r)}`), make("span", "", `advantage ${signed(row.a)}`));
    if (row.f === "length") facts.append(make("span", "", "cut off at the limit"));
    const text = make("p", "text");
    pieces(row).forEach((piece, index) => text.append(token(piece, row, index, scale)));
    if (row.cut) text.append(make("span", "cut", ` … and ${row.cut} more tokens`));
    box.append(facts);
    if (row.t) box.append(make("p", "prompt", row.c));
    box.append(text);
    text.addEventListener("pointerover", (event) => tell(event.target, row));
    text.addEventListener("click", (event) => tell(event.target, row));
    return box;
  };

  const tell = (span, row) => {
    const index = Number(span.dataset?.index ?? NaN);
    if (Number.isNaN(index)) return;
    document.querySelectorAll(".tok.mark").forEach((other) => other.classList.remove("mark"));
    span.classList.add("mark");
    const logp = row.l?.[index] ?? null;
    const push = row.s[index] ?? null;
    const words = push > 0 ? "made likelier" : push < 0 ? "made less likely" : "left alone";
    const chance = logp === null ? "no probability: nothing was sampled here"
      : `log-probability ${shown(logp)} (probability ${Math.exp(logp).toPrecision(4)})`;
    at("readout").replaceChildren(
      make("code", "", pieces(row)[index]), ` token ${index + 1}: ${chance}; signal ${signed(push)}, ${words}.`);
  };

  const drawGroup = (group, scale) => {
    const box = at("group");
    at("readout").textContent = "Point at a token, or tap it, to read its numbers.";
    if (!group) return box.replaceChildren(make("p", "nothing", "No answer of this step fits the filters."));
    const right = `${group.right} of ${group.of} answers right`;
    const facts = make("p", "facts", group.of > 1 ? right : "one answer");
    if (group.of > 1 && (group.right === 0 || group.right === group.of)) facts.append(make("span", "", "nothing to compare"));
    box.replaceChildren(facts, make("p", "prompt", group.prompt), ...group.rows.map((row) => answer(row, scale)));
    box.scrollTop = 0;
  };

  // The end of a prompt asks the question, its beginning tells prompts apart.
  const brief = (text) => {
    const letters = Array.from(text.replace(/\s+/g, " "));
    return letters.length <= 27 ? letters.join("") : `${letters.slice(0, 11).join("")} … ${letters.slice(-13).join("")}`;
  };

  const drawProblems = (groups, scale) => {
    const list = at("problems");
    list.replaceChildren(...groups.map((group, index) => {
      const button = make("button");
      button.type = "button";
      button.setAttribute("aria-pressed", index === state.problem);
      button.append(make("span", "ask", brief(group.prompt)));
      const dots = make("span", "dots");
      for (const row of group.rows) for (let i = 0; i < row.x && dots.childElementCount < 24; i++) dots.append(make("i", row.v ? "right" : ""));
      dots.append(make("span", "", `${group.right}/${group.of} right`));
      button.append(dots);
      button.addEventListener("click", () => { state.problem = index; draw(); list.children[index]?.focus({ preventScroll: true }); });
      return button;
    }));
    drawGroup(groups[state.problem], scale);
  };

  const choices = (id, options, chosen, pick) => at(id).replaceChildren(...options.map(([value, text, colour]) => {
    const button = make("button", "", text);
    button.type = "button";
    button.setAttribute("aria-pressed", value === chosen);
    if (colour) button.style.setProperty("--c", `var(${colour})`);
    button.addEventListener("click", () => {
      pick(value);
      state.problem = null;
      draw();
      [...at(id).children].find((other) => other.getAttribute("aria-pressed") === "true")?.focus({ preventScroll: true });
    });
    return button;
  }));

  const draw = () => {
    const steps = data.arms[state.arm];
    state.step = Math.min(state.step, steps.length - 1);
    choices("pick-arm", arms.map((arm) => [arm, data.labels[arm], data.colours[arm]]), state.arm, (arm) => { state.arm = arm; });
    choices("pick-step", steps.map((step, index) => [index, String(step.step)]), state.step, (index) => { state.step = index; });
    choices("pick-verdict", [["all", "all"], ["right", "right"], ["wrong", "wrong"]], state.verdict, (verdict) => { state.verdict = verdict; });
    const { groups, scale, of } = current();
    const left = groups.filter((group) => group.rows.some(fits));
    state.problem ??= Math.max(0, left.findIndex(mixed));
    const count = (list, keep) => list.reduce((sum, group) => sum + group.rows.filter(keep).reduce((n, row) => n + row.x, 0), 0);
    at("count").textContent = `${count(groups, fits)} of ${count(groups, () => true)} answers fit, in ${left.length} of ` +
      `${groups.length} problems shown (the step had ${of}).` + (state.verdict !== "all" || state.kind ? " The rest of a group is greyed." : "");
    at("scale-low").textContent = scale ? shown(-scale) : "";
    at("scale-high").textContent = scale ? signed(scale) : "";
    drawProblems(left, scale);
  };

  const kinds = at("pick-kind");
  kinds.append(new Option("every kind", ""), ...Object.entries(data.kinds).map(([kind, text]) => new Option(text, kind)));
  kinds.addEventListener("change", () => { state.kind = kinds.value; state.problem = null; draw(); });
  draw();
})();

// Additions to the HTML page: keep what a person has opened or typed when a part is replaced, count in the title, move in
// lists with j and k, accept dropped files, draw the curves of costs. Without this script, every page still works.
"use strict";
(() => {
  const keep = {
    // A part that is replaced keeps its opened details and typed texts. A form keeps its number, because the second click of a
    // double click may come after the replacement.
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") && !(name === "class" && node.classList.contains("at"))
      && !(name === "value" && node.name === "number"),
    beforeNodeMorphed: (node) => {
      if (node.nodeType !== 1) return true;
      if (node.classList.contains("curve")) return node.dataset.drawn === undefined;
      const typed = (node.tagName === "TEXTAREA" || node.tagName === "INPUT") && node.type !== "hidden" && node.value !== node.defaultValue;
      return !typed;
    },
  };
  Object.assign(Idiomorph.defaults, { ignoreActiveValue: true });
  Object.assign(Idiomorph.defaults.callbacks, keep);

  const base = document.title.replace(/^\(\d+\) /, "");
  const count = () => {
    const needs = document.getElementById("needs");
    if (needs) document.title = (needs.dataset.count > 0 ? `(${needs.dataset.count}) ` : "") + base;
  };

  const ago = (seconds) => {
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
    return "now";
  };
  const age = () => {
    for (const time of document.querySelectorAll("time[data-ago]")) time.textContent = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
  };
  setInterval(age, 30000);

  const rows = () => [...document.querySelectorAll("[data-keys] > *")].filter((row) => row.querySelector("a"));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const step = { j: 1, k: -1 }[event.key];
    if (step) {
      const all = rows();
      if (!all.length) return;
      const at = all.findIndex((row) => row.classList.contains("at") || row.contains(document.activeElement));
      const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
      for (const row of all) row.classList.toggle("at", row === next);
      next.querySelector("a").focus();
      next.scrollIntoView({ block: "nearest" });
    } else if (event.key === "/") {
      const search = document.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); }
    }
  });

  for (const area of document.querySelectorAll("textarea[data-drop]")) {
    const files = area.form.querySelector("input[type=file]");
    area.addEventListener("dragover", (event) => { event.preventDefault(); area.classList.add("over"); });
    area.addEventListener("dragleave", () => area.classList.remove("over"));
    area.addEventListener("drop", (event) => {
      area.classList.remove("over");
      if (event.dataTransfer.files.length) { event.preventDefault(); files.files = event.dataTransfer.files; }
    });
  }

  const curve = () => {
    const place = document.querySelector("figure[data-curve]");
    if (!place || typeof uPlot === "undefined" || place.dataset.drawn === place.dataset.curve) return;
    const { days, lines, what } = JSON.parse(place.dataset.curve);
    place.dataset.drawn = place.dataset.curve;
    place.replaceChildren();
    if (!lines.length) return;
    const style = getComputedStyle(document.body), ink = style.getPropertyValue("--soft"), rule = style.getPropertyValue("--line");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const colours = dark ? ["#8fb0ff", "#5cc98a", "#e0ac4b", "#c89af0", "#5cc3d2", "#f090b0", "#c8b77a", "#9aa5b1", "#666"]
      : ["#2f5bd7", "#1a7f4b", "#9a6200", "#8a4bb8", "#0f7c8c", "#b0436a", "#7a6a3a", "#5b6670", "#999"];
    const axis = { stroke: ink, grid: { stroke: rule }, ticks: { stroke: rule } };
    const plot = new uPlot({
      width: place.clientWidth, height: 220, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, what === "money" ? 0.01 : 1)] } },
      series: [{ value: (_, at) => at ? new Date(at * 1000).toISOString().slice(0, 10) : "" },
        ...lines.map((line, at) => ({ label: line.name, stroke: colours[at % colours.length], width: 2, points: { size: 5 } }))],
      axes: [axis, { ...axis, size: 64 }],
    }, [days, ...lines.map((line) => line.values)], place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  };

  document.addEventListener("htmx:afterSettle", () => { count(); curve(); });
  count();
  addEventListener("load", curve);
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // the forms of a cached page have been sent already
})();

"use strict";
// Shows the values under the pointer in charts over time, and opens all details for printing. The page is complete without it.
(() => {
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  const scaled = (value, unit) => {
    let size = Math.abs(value), step = 0;
    while (size >= 999.5 && step < prefixes.length - 1) { size /= 1000; step += 1; }
    const digits = size >= 99.95 || (step === 0 && Number.isInteger(value)) ? 0 : size >= 9.995 ? 1 : 2;
    return `${value < 0 ? "\u2212" : ""}${size.toFixed(digits)}\u202f${prefixes[step]}${unit}`.replace(/\u202f$/, "");
  };
  const lasting = (seconds) => {
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= size) return `${(seconds / size).toFixed(1)}\u202f${unit}`;
    }
    return `${seconds.toFixed(0)}\u202fs`;
  };
  const count = (value) => {
    const [mark, size] = [["tn", 1e12], ["bn", 1e9], ["M", 1e6]].find(([, least]) => Math.abs(value) >= least) ?? ["", 1];
    return mark ? `${scaled(value / size, "")}\u202f${mark}` : scaled(value, "");
  };
  const write = {
    bytes: (value) => scaled(value, "B"), rate: (value) => scaled(value, "B/s"), count,
    share: (value) => `${(value * 100).toFixed(1)}\u202f%`, seconds: lasting,
  };
  const moment = (seconds, step) => {
    const text = new Date(seconds * 1000).toISOString();
    return step >= 86400 ? text.slice(0, 10) : `${text.slice(0, 10)} ${text.slice(11, 16)} UTC`;
  };
  for (const figure of document.querySelectorAll("figure.chart")) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    if (data.kind !== "time") continue;
    const plot = figure.querySelector(".plot"), drawings = plot.querySelectorAll("svg");  // one of them is visible
    const reading = document.createElement("div");
    reading.className = "reading";
    reading.hidden = true;
    plot.append(reading);
    const last = data.times.length - 1, first = data.times[0], span = data.times[last] + data.step - first;
    let at = last;
    const show = (svg, index) => {
      at = Math.max(0, Math.min(last, index));
      const width = svg.viewBox.baseVal.width, cursor = svg.querySelector(".cursor");
      const x = data.left + (data.times[at] + data.step / 2 - first) / span * (width - data.left - data.right);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      const head = document.createElement("b");
      head.textContent = moment(data.times[at], data.step);
      const rows = data.lines.map(([name, values]) => [name, values[at]]).filter(([, value]) => value !== null);
      reading.replaceChildren(head, ...(rows.length ? rows : [["no data", null]]).map(([name, value]) => {
        const row = document.createElement("span"), label = document.createElement("i"), number = document.createElement("em");
        label.style.fontStyle = number.style.fontStyle = "normal";
        label.textContent = name;
        number.textContent = value === null ? "" : write[data.unit](value);
        row.append(label, number);
        return row;
      }));
      reading.hidden = false;
      svg.classList.add("live");
      const part = x / width;
      reading.style.left = part < 0.5 ? `calc(${part * 100}% + 10px)` : "auto";
      reading.style.right = part < 0.5 ? "auto" : `calc(${(1 - part) * 100}% + 10px)`;
    };
    for (const svg of drawings) {
      const hide = () => { reading.hidden = true; svg.classList.remove("live"); };
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
        const x = (event.clientX - box.left) / box.width * width;
        show(svg, Math.floor((x - data.left) / (width - data.left - data.right) * span / data.step));
      });
      svg.addEventListener("pointerleave", hide);
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) show(svg, at); });
      svg.addEventListener("blur", hide);
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -24, PageDown: 24, Home: -last, End: last }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        show(svg, at + step);
      });
    }
  }
  const closed = new Set();
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) { closed.add(part); part.open = true; }
  });
  addEventListener("afterprint", () => { for (const part of closed) part.open = false; closed.clear(); });
})();

"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 22, GAP = 190, FAINTEST = 0.04, COLOURS = 8;
  const state = { pair: 0, layer: 0, heads: new Set(), joined: null, row: null, key: null };

  const colour = (head) => `var(--series-${(head % COLOURS) + 1})`;
  const layer = () => data.layers[state.layer];
  const isCausal = (name) => /^decoder\.\d+\.attention$/.test(name);
  const rowsOf = (pair, name) => pair[name.startsWith("encoder") ? "source" : "predicted"];
  const keysOf = (pair, name) => pair[isCausal(name) ? "read" : "source"];

  // Weights of one head as rows of numbers from 0 to 1, by token.
  const decoded = new Map();
  function bytesOf(pair, name) {
    const key = `${pair} ${name}`;
    if (!decoded.has(key)) {
      const text = atob(data.pairs[pair].weights[name]);
      decoded.set(key, Uint8Array.from(text, (c) => c.charCodeAt(0)));
    }
    return decoded.get(key);
  }
  function byToken(pair, name, head) {
    const of = data.pairs[pair], bytes = bytesOf(pair, name);
    const n = rowsOf(of, name).tokens.length, m = keysOf(of, name).tokens.length;
    return Array.from({ length: n }, (_, i) =>
      Array.from({ length: m }, (_, j) => bytes[(head * n + i) * m + j] / 255));
  }
  // Sums over the keys of a word, means over its rows.
  function byWord(weights, rows, keys) {
    const found = rows.texts.map(() => keys.texts.map(() => 0));
    const counts = rows.texts.map(() => 0);
    rows.words.forEach((word) => { counts[word] += 1; });
    weights.forEach((row, i) => row.forEach((weight, j) => {
      found[rows.words[i]][keys.words[j]] += weight / counts[rows.words[i]];
    }));
    return found;
  }
  function shown(head) {
    const of = data.pairs[state.pair], name = layer().name;
    const weights = byToken(state.pair, name, head);
    return state.joined ? byWord(weights, rowsOf(of, name), keysOf(of, name)) : weights;
  }
  const labels = (side) => (state.joined ? side.texts : side.tokens);

  function element(parent, tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  function drawLines() {
    const of = data.pairs[state.pair], name = layer().name, svg = $("lines");
    const rows = labels(rowsOf(of, name)), keys = labels(keysOf(of, name));
    svg.replaceChildren();
    const weights = [...state.heads].sort((a, b) => a - b).map((head) => [head, shown(head)]);
    const lines = element(svg, "g", {});
    const columns = element(svg, "g", {});
    element(columns, "text", { class: "heading", x: -10, y: 0, "text-anchor": "end" },
      name.startsWith("encoder") ? "word" : "predicted");
    element(columns, "text", { class: "heading", x: GAP + 10, y: 0 }, "attends to");
    const at = (i) => (i + 1) * ROW;
    const of_row = state.row !== null, of_key = state.key !== null;
    for (const [head, map] of weights) {
      map.forEach((row, i) => row.forEach((weight, j) => {
        if (weight < FAINTEST || (of_row && i !== state.row) || (of_key && j !== state.key)) return;
        const line = element(lines, "line", {
          x1: 0, y1: at(i), x2: GAP, y2: at(j), "stroke-opacity": weight.toFixed(3),
          "data-head": head + 1,
        });
        line.style.stroke = colour(head);
      }));
    }
    const add = (texts, side, x, anchor, chosen) => texts.forEach((text, i) => {
      const dim = chosen !== null && chosen !== i;
      const word = element(columns, "text", {
        x, y: at(i), "text-anchor": anchor, tabindex: 0, role: "button",
        class: dim ? "dim" : "", "data-side": side, "data-index": i,
        "aria-pressed": chosen === i,
      }, text);
      const look = () => { state.row = side === "row" ? i : null; state.key = side === "key" ? i : null; };
      word.addEventListener("mouseenter", () => tell(side, i));
      word.addEventListener("focus", () => tell(side, i));
      const choose = () => {
        if (chosen === i) { state.row = null; state.key = null; } else look();
        drawLines();
        $("lines").querySelector(`[data-side="${side}"][data-index="${i}"]`).focus();
      };
      word.addEventListener("click", choose);
      word.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
      });
    });
    add(rows, "row", -10, "end", state.row);
    add(keys, "key", GAP + 10, "start", state.key);
    const box = columns.getBBox(), height = at(Math.max(rows.length, keys.length)) + ROW;
    svg.setAttribute("viewBox", `${box.x - 4} ${-ROW} ${box.width + 8} ${height}`);
    svg.setAttribute("width", box.width + 8);
    svg.setAttribute("height", height);
  }

  // In words: the keys that a row looks at most, of each head that is shown, or the other way.
  function tell(side, index) {
    const of = data.pairs[state.pair], name = layer().name;
    const rows = labels(rowsOf(of, name)), keys = labels(keysOf(of, name));
    const told = [...state.heads].sort((a, b) => a - b).map((head) => {
      const map = shown(head);
      const values = side === "row" ? map[index] : map.map((row) => row[index]);
      const others = side === "row" ? keys : rows;
      const best = values.map((value, i) => [value, i]).sort((a, b) => b[0] - a[0]).slice(0, 3);
      return `head ${head + 1}: ` + best.filter(([value]) => value > 0)
        .map(([value, i]) => `${others[i]} ${value.toFixed(2)}`).join(", ");
    });
    $("told").textContent = side === "row"
      ? `${rows[index]} attends to: ${told.join("; ")}`
      : `${keys[index]} is attended to by: ${told.join("; ")}`;
  }

  function drawGrid() {
    const grid = $("grid"), kind = layer().kind;
    const of_kind = data.layers.map((one, i) => [one, i]).filter(([one]) => one.kind === kind);
    const heads = Math.max(...of_kind.map(([one]) => one.heads));
    grid.style.gridTemplateColumns = `max-content repeat(${heads}, 102px)`;
    grid.replaceChildren();
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    for (const [one, number] of of_kind) {
      const title = document.createElement("span");
      title.textContent = `Layer ${one.number}`;
      grid.append(title);
      for (let head = 0; head < heads; head += 1) {
        const button = document.createElement("button");
        button.type = "button";
        if (head >= one.heads) { grid.append(document.createElement("span")); continue; }
        button.setAttribute("aria-label", `Layer ${one.number}, head ${head + 1}`);
        button.title = `Layer ${one.number}, head ${head + 1}`;
        const current = number === state.layer && state.heads.size === 1 && state.heads.has(head);
        button.setAttribute("aria-current", current);
        button.append(heatMap(byToken(state.pair, one.name, head), ink, one.name));
        button.addEventListener("click", () => {
          state.layer = number;
          state.heads = new Set([head]);
          update();
        });
        grid.append(button);
      }
    }
  }
  function heatMap(weights, ink, name) {
    const canvas = document.createElement("canvas");
    const n = weights.length, m = weights[0].length;
    canvas.width = m;
    canvas.height = n;
    const context = canvas.getContext("2d");
    weights.forEach((row, i) => row.forEach((weight, j) => {
      const later = isCausal(name) && j > i;
      context.globalAlpha = later ? 0.25 : weight;
      context.fillStyle = later ? "#888888" : ink;
      context.fillRect(j, i, 1, 1);
    }));
    return canvas;
  }

  function drawHeads() {
    const field = $("heads");
    field.querySelectorAll("button").forEach((button) => button.remove());
    for (let head = 0; head < layer().heads; head += 1) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "head";
      button.textContent = head + 1;
      button.style.setProperty("--of-head", colour(head));
      button.setAttribute("aria-pressed", state.heads.has(head));
      button.addEventListener("click", () => {
        if (!state.heads.delete(head)) state.heads.add(head);
        update();
        $("heads").querySelectorAll("button")[head].focus();
      });
      field.append(button);
    }
  }

  function fill(select, options, chosen) {
    select.replaceChildren(...options.map(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      option.dir = "auto";
      return option;
    }));
    select.value = chosen;
  }
  function update() {
    const kinds = [...new Set(data.layers.map((one) => one.kind))];
    fill($("pair"), data.pairs.map((one, i) => [i, one.source.texts.join(" ")]), state.pair);
    fill($("kind"), kinds.map((kind) => [kind, kind]), layer().kind);
    const of_kind = data.layers.map((one, i) => [one, i]).filter(([one]) => one.kind === layer().kind);
    fill($("layer"), of_kind.map(([one, i]) => [i, one.number]), state.layer);
    state.heads = new Set([...state.heads].filter((head) => head < layer().heads));
    $("joined").checked = state.joined;
    $("told").textContent = "Point at a word, or choose it, to see what it attends to.";
    drawHeads();
    drawLines();
    drawGrid();
  }
  function all() { state.heads = new Set(Array.from({ length: layer().heads }, (_, i) => i)); }
  const unpinned = () => { state.row = null; state.key = null; };

  $("pair").addEventListener("change", (event) => { state.pair = +event.target.value; unpinned(); update(); });
  $("kind").addEventListener("change", (event) => {
    const number = layer().number;
    const fits = (one) => one.kind === event.target.value;
    const same = data.layers.findIndex((one) => fits(one) && one.number === number);
    state.layer = same >= 0 ? same : data.layers.findIndex(fits);
    unpinned();
    all();
    update();
  });
  $("layer").addEventListener("change", (event) => { state.layer = +event.target.value; all(); update(); });
  $("joined").addEventListener("change", (event) => { state.joined = event.target.checked; unpinned(); update(); });
  $("save").addEventListener("click", () => {
    const copy = $("lines").cloneNode(true), style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    // What is behind it on the page, without which light words would be on white.
    const behind = document.createElementNS(SVG, "rect");
    behind.setAttribute("width", "100%");
    behind.setAttribute("height", "100%");
    behind.setAttribute("fill", value("--surface"));
    copy.prepend(behind);
    copy.querySelectorAll("line").forEach((line) => {
      line.setAttribute("stroke", value(line.style.stroke.slice(4, -1)));
      line.setAttribute("stroke-width", 2);
      line.removeAttribute("style");
    });
    copy.querySelectorAll("text").forEach((text) => {
      text.setAttribute("fill", value(text.getAttribute("class") === "" ? "--ink" : "--muted"));
      text.setAttribute("font-family", "sans-serif");
      text.setAttribute("font-size", 14);
      text.setAttribute("dominant-baseline", "central");
    });
    // As attention_figure.py writes it: without what XML may not hold.
    const text = new XMLSerializer().serializeToString(copy)
      .replace(/[^\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = "attention.svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawGrid);

  const start = data.start;
  state.joined = start.joined;
  const first = data.layers.findIndex((one) => one.name === start.layer);
  state.layer = first >= 0 ? first : data.layers.length - 1;
  if (start.heads) state.heads = new Set(start.heads); else all();
  if (Number.isInteger(start.row)) state.row = start.row;
  update();
})();

"use strict";
// The charts of a session or a recording. view.js loads their data, and opens a call when one is clicked.
// Texts from a session are drawn or set as textContent, never as markup.
window.ctxfsCharts = (() => {
  const $ = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const whole = new Intl.NumberFormat("en-US");
  const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
  const short = (n) => compact.format(n).replace("K", "k"); // as the figures beside the charts
  const PARTS = { system: "--c-system", summary: "--c-summary", user: "--c-user", replies: "--c-replies", placeholders: "--c-placeholders", results: "--c-results" };
  const BILLS = { read: ["--c-read", "cache read"], written: ["--c-written", "cache write"], input: ["--c-input", "uncached"], output: ["--c-output", "reply"] };
  const WITHOUT = { label: "without eviction, estimated", colour: "--dim", dashed: true };
  const LANES = { compacted: "--c-summary", evicted: "--c-results", "read back": "--c-user", restored: "--good", "cache missed": "--bad" };
  const AXIS = 102, NARROW_AXIS = 52;  // beside the lanes of events are their names; a recording has none
  let plots = [], data = null, strip = null, opens = () => {};

  const dollars = (usd) => `$${usd.toFixed(usd < 0.00005 || usd >= 0.1 ? 2 : 4)}`; // nearly as ctxfs.text.figures.usd
  const chosenCall = () => Number($("call")?.dataset.call || 0);

  function stacked(columns) {
    const sums = new Array(columns[0]?.length || 0).fill(0);
    return columns.map((column) => column.map((value, i) => (sums[i] += value)));
  }

  function steps(count) {
    const width = Math.max(1, 1200 / Math.max(1, count));
    return count <= 240 ? uPlot.paths.bars({ size: [width > 6 ? 0.82 : 1, 28], gap: 0 }) : uPlot.paths.stepped({ align: 1 });
  }

  function layers(named) {
    // The highest sum is drawn first, and each lower one on top of it.
    const sums = stacked(named.map((one) => one.values)), path = steps(data.calls.length);
    const series = [], columns = [];
    for (let i = named.length - 1; i >= 0; i--) {
      series.push({ label: named[i].label, fill: colour(named[i].colour), stroke: colour(named[i].colour), width: 0, paths: path, points: { show: false } });
      columns.push(sums[i]);
    }
    return { series, columns };
  }

  function axes(format, size = AXIS) {
    const base = { stroke: colour("--faint"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: colour("--line"), width: 1 };
    return [
      { ...base, grid: { show: false }, size: 24, values: (_, ticks) => ticks.map((n) => (Number.isInteger(n) && n > 0 ? whole.format(n) : "")) },
      { ...base, grid, size, values: (_, ticks) => ticks.map(format) },
    ];
  }

  function lines(plot, marks, labelled) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    for (const mark of marks) {
      const y = Math.round(plot.valToPos(mark.at, "y", true));
      if (y < bbox.top || y > bbox.top + bbox.height) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(mark.colour);
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      if (!labelled) continue;
      ctx.textAlign = "right";
      const above = y - bbox.top > 16 * devicePixelRatio;
      ctx.fillText(mark.label, bbox.left + bbox.width - 4 * devicePixelRatio, y + (above ? -5 : 14) * devicePixelRatio);
    }
    ctx.restore();
  }

  function chosen(plot) {
    const call = chosenCall(), { ctx, bbox } = plot;
    if (!call || call < plot.scales.x.min || call > plot.scales.x.max) return;
    const x = Math.round(plot.valToPos(call, "x", true));
    ctx.save();
    ctx.fillStyle = colour("--ink");
    ctx.fillRect(x - devicePixelRatio / 2, bbox.top, devicePixelRatio, bbox.height);
    ctx.restore();
  }

  function plot(figure, options, columns) {
    const box = figure.querySelector(".plot");
    box.replaceChildren();
    const made = new uPlot({
      width: box.clientWidth, height: box.clientHeight, legend: { show: false }, padding: [8, 6, 0, 0],
      cursor: { sync: { key: "calls" }, drag: { x: true, y: false, setScale: true }, points: { show: false }, y: false },
      ...options,
      scales: { x: { time: false, range: (_, min, max) => [Math.max(0.5, min), Math.max(min + 1, max)] }, y: { range: (_, _min, max) => [0, max || 1] }, ...options.scales },
      hooks: {
        ...options.hooks,
        draw: [...(options.hooks?.draw || []), chosen],
        setScale: [(from, key) => key === "x" && zoomed(from)],
        setCursor: [(from) => from.cursor.event && readout(from.cursor.idx)],
      },
    }, columns, box);
    made.over.addEventListener("click", () => {
      if (made.cursor.idx != null && made.select.width === 0) opens(data.calls[made.cursor.idx], options.itemAt?.(made));
    });
    plots.push(made);
    return made;
  }

  function legend(figure, entries) {
    const place = figure.querySelector(".legend");
    place.replaceChildren(...entries.map(({ label, colour: name, dashed }) => {
      const entry = document.createElement("span"), chip = document.createElement("i");
      if (dashed) { chip.className = "dashed"; chip.style.borderColor = `var(${name})`; } else chip.style.background = `var(${name})`;
      entry.append(chip, label);
      return entry;
    }));
  }

  let zooming = false;
  function zoomed(from) {
    const { min, max } = from.scales.x;
    if (min == null || !data) return;
    const all = min <= 0.5 && max >= data.calls.length + 0.5;
    if ($("all-calls")) $("all-calls").hidden = all;
    if (zooming) return;
    zooming = true;
    for (const other of plots) if (other !== from) other.setScale("x", { min, max });
    zooming = false;
    brush();
  }

  // The strip shows all calls and marks the part that the charts show; dragging over it chooses another part.
  function brush() {
    if (!strip || !plots[0]) return;
    const { min, max } = plots[0].scales.x, left = strip.valToPos(min, "x"), all = $("all-calls").hidden;
    strip.setSelect(all ? { left: 0, width: 0, top: 0, height: 0 } : { left, width: Math.max(2, strip.valToPos(max, "x") - left), top: 0, height: strip.over.clientHeight }, false);
  }

  function drawStrip(figure, totals) {
    const box = figure.querySelector(".plot");
    box.replaceChildren();
    strip?.destroy();
    const none = { show: false }, [, left] = axes(() => "");
    strip = new uPlot({
      width: box.clientWidth, height: box.clientHeight, legend: none, padding: [2, 6, 2, 0],
      cursor: { x: false, y: false, points: none, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: false, range: () => [0.5, Math.max(1.5, data.calls.length + 0.5)] }, y: { range: (_, _min, max) => [0, max || 1] } },
      axes: [{ show: false }, { ...left, grid: none, values: () => [] }],
      series: [{}, { fill: colour("--line"), stroke: colour("--faint"), width: 1, points: none, paths: uPlot.paths.stepped({ align: 1 }) }],
      hooks: { setSelect: [(made) => made.select.width > 0 && zoomTo(made.posToVal(made.select.left, "x"), made.posToVal(made.select.left + made.select.width, "x"))] },
    }, [[...data.calls.map((call) => call - 0.5), data.calls.length + 0.5], [...totals, totals.at(-1)]], box);  // each call is as wide as its bar
    strip.over.addEventListener("dblclick", () => zoomTo(0, Infinity));
  }

  const zoomTo = (min, max) => plots[0]?.setScale("x", { min: Math.max(0.5, min), max: Math.min(data.calls.length + 0.5, max) });

  function readout(idx) {
    const place = $("readout");
    if (idx == null || !place || !data) return;
    if (data.lines) {
      place.textContent = `Call ${whole.format(data.calls[idx])}: ${data.lines.map((line) => `${line.name} ${whole.format(line.values[idx])}`).join(", ")}`;
      return;
    }
    const parts = data.layers.filter((layer) => layer.tokens[idx]).map((layer) => `${layer.name} ${whole.format(layer.tokens[idx])}`);
    const total = data.layers.reduce((sum, layer) => sum + layer.tokens[idx], 0);
    const texts = [`Call ${whole.format(data.calls[idx])}: ${whole.format(total)} tokens`, parts.join(", ")];
    if (data.bills?.usd) texts.push(`paid ${dollars(data.bills.usd[idx])}`);
    if (data.without?.[idx] != null) texts.push(`about ${dollars(data.without[idx])} without eviction`);
    for (const lane of data.lanes) {
      const place = lane.calls.indexOf(data.calls[idx]);
      if (place >= 0) texts.push(lane.counts[place] > 1 ? `${lane.name} ${lane.counts[place]}` : lane.name);
    }
    place.textContent = texts.join(" · ");
  }

  // Of a recording: ours and never evicting stand out, the others are grey; each line has its name at its end.
  const STYLES = { economic: { hue: "--c-results", width: 2.5 }, none: { hue: "--ink", width: 1.8, dash: [6, 4] } };
  const OTHER = { hue: "--c-other", width: 1 };
  const styleOf = (line) => STYLES[line.name] || OTHER;
  const ENDS = 118;

  function ends(made, named) {
    const { ctx, bbox } = made, ratio = devicePixelRatio, last = data.calls.length - 1;
    const x = made.valToPos(Math.min(data.calls[last], made.scales.x.max), "x", true) + 6 * ratio;
    const wanted = named.map((line) => ({ line, y: made.valToPos(line.values[last], "y", true), own: line.name in STYLES }));
    wanted.sort((a, b) => b.own - a.own || a.y - b.y);  // ours first: a grey name that has no room is only in the table
    ctx.save();
    ctx.textAlign = "left"; ctx.textBaseline = "middle";
    const taken = [];
    for (const { line, y, own } of wanted) {
      const near = (at) => taken.some((other) => Math.abs(other - at) < 12 * ratio);
      // Only where no other line is nearer: a name beside the wrong line is worse than none.
      const its = (at) => wanted.every((other) => Math.abs(other.y - at) >= Math.abs(y - at));
      const places = [0, 12, -12, 24, -24].map((by) => Math.max(bbox.top + 6 * ratio, Math.min(bbox.top + bbox.height - 4 * ratio, y + by * ratio)));
      const at = places.find((one) => !near(one) && (own || its(one)));  // ours have the colour of their line
      if (at === undefined) continue;
      taken.push(at);
      ctx.font = `${own ? "600 " : ""}${11 * ratio}px system-ui, sans-serif`;
      ctx.fillStyle = colour(own ? styleOf(line).hue : "--faint");
      let name = line.name === "none" ? "never evicting" : line.name === "economic" ? "ctxfs" : line.name;
      while (name.length > 4 && ctx.measureText(name).width > (ENDS - 10) * ratio) name = `${name.slice(0, -2)}…`;
      ctx.fillText(name, x, at);
    }
    ctx.restore();
  }

  function drawLines(figure, named, marks) {
    const top = Math.max(...named.map((line) => line.values.reduce((most, value) => Math.max(most, value), 0)));
    const near = marks.filter((mark) => mark.at <= 2.2 * top);
    named = named.toSorted((a, b) => (a.name in STYLES) - (b.name in STYLES));  // ours are drawn last, on top
    plot(figure, {
      series: [{}, ...named.map((line) => ({ label: line.name, stroke: colour(styleOf(line).hue), width: styleOf(line).width, dash: styleOf(line).dash, points: { show: false } }))],
      axes: axes(short, NARROW_AXIS), padding: [8, ENDS, 0, 0],
      scales: { y: { range: () => [0, Math.max(top, ...near.map((mark) => mark.at)) * 1.06 || 1] } },
      hooks: { draw: [(made) => lines(made, near, true), (made) => ends(made, named)] },
    }, [data.calls, ...named.map((line) => line.values)]);
  }

  function drawPolicies(context, cost) {
    drawLines(context, data.lines, data.window ? [{ at: data.window, label: `an agent compacts at ${short(data.window)}`, colour: "--bad" }] : []);
    drawLines(cost, data.costs, []);
  }

  function draw() {
    const context = $("chart-context"), events = $("chart-events"), cost = $("chart-cost");
    if (!context || !data || !data.calls.length) return;
    const range = plots[0] && !$("all-calls").hidden ? { ...plots[0].scales.x } : null;
    plots.forEach((old) => old.destroy());
    plots = [];
    const x = { min: 0.5, max: data.calls.length + 0.5 };
    if (data.lines) {
      drawPolicies(context, cost);
      for (const made of plots) made.setScale("x", range || x);
      return;
    }
    const named = data.layers.map((layer) => ({ label: layer.name, values: layer.tokens, colour: PARTS[layer.name] || "--c-other" }));
    const { series, columns } = layers(named);
    const marks = [];
    if (data.window) marks.push({ at: data.window, label: `window ${short(data.window)}`, colour: "--bad" });
    for (const step of data.steps) marks.push({ at: step, label: `higher price above ${short(step)}`, colour: "--warn" });
    const top = Math.max(...columns[0]), near = marks.filter((mark) => mark.at <= 2.2 * top);
    plot(context, {
      series: [{}, ...series], axes: axes(short),
      scales: { y: { range: () => [0, Math.max(top, ...near.map((mark) => mark.at)) * 1.06 || 1] } },
      hooks: { draw: [(made) => lines(made, near, false)] },  // the legend has their names
    }, [data.calls, ...columns]);
    legend(context, [...named.toReversed(), ...near.map((mark) => ({ ...mark, dashed: true }))]);
    const beyond = marks.filter((mark) => !near.includes(mark)).map((mark) => mark.label);
    if (beyond.length) context.querySelector(".legend").append(`far above this chart: ${beyond.join(", ")}`);
    drawLanes(events);
    drawCost(cost);
    drawStrip($("chart-overview"), columns[0]);
    for (const made of plots) made.setScale("x", range || x);
  }

  function drawLanes(figure) {
    const shown = data.lanes.filter((lane) => lane.calls.length);
    figure.hidden = !shown.length;
    if (!shown.length) return;
    figure.querySelector(".plot").style.height = `${shown.length * 18 + 10}px`;
    const ticks = (made) => {
      const { ctx, bbox } = made, row = bbox.height / shown.length;
      const width = Math.max(1.5 * devicePixelRatio, Math.min(6 * devicePixelRatio, (bbox.width / (made.scales.x.max - made.scales.x.min)) * 0.5));
      ctx.save();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = "right"; ctx.textBaseline = "middle";
      shown.forEach((lane, n) => {
        const middle = bbox.top + row * (n + 0.5);
        ctx.fillStyle = colour("--faint");
        ctx.fillText(`${lane.name} ${whole.format(lane.total)}`, bbox.left - 8 * devicePixelRatio, middle);
        ctx.fillStyle = colour(LANES[lane.name]);
        const foot = middle + 6 * devicePixelRatio;
        lane.calls.forEach((call, i) => {  // as high as it has events: one is a third of the most, so that it is seen
          if (call < made.scales.x.min || call > made.scales.x.max + 1) return;
          const share = lane.most > 1 ? (lane.counts[i] - 1) / (lane.most - 1) : 0.6, height = (5 + 8 * share) * devicePixelRatio;
          ctx.fillRect(made.valToPos(call, "x", true) - width / 2, foot - height, width, height);
        });
      });
      ctx.restore();
    };
    const none = { show: false };
    const [bottom, left] = axes(() => "");
    plot(figure, {
      series: [{}, { show: false }], padding: [2, 6, 2, 0],
      axes: [{ ...bottom, ...none }, { ...left, grid: none, values: () => [] }],
      hooks: { draw: [ticks] },
      itemAt: ({ cursor, over }) => shown[Math.floor(cursor.top / over.clientHeight * shown.length)]?.set.get(data.calls[cursor.idx]),
    }, [data.calls, data.calls.map(() => 0)]);
  }

  // Where the line without eviction ends, since there would have been no such call: the legend says it, since bars are here.
  function tooLong(made) {
    const call = data.too_long_from, { ctx, bbox } = made;
    if (!call || call < made.scales.x.min || call > made.scales.x.max) return;
    const x = Math.round(made.valToPos(call - 0.5, "x", true));
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--bad");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
    ctx.restore();
  }

  function drawCost(figure) {
    figure.hidden = !data.bills;
    if (!data.bills) return;
    const caption = figure.querySelector("figcaption").firstChild;
    if (data.bills.usd) {
      const own = [{ label: "dollars", values: data.bills.usd, colour: "--c-written" }];
      const { series, columns } = layers(own);
      caption.textContent = "Cost, dollars by call ";
      const has = data.without?.length && data.lanes.some((lane) => lane.name !== "cache missed" && lane.calls.length);
      if (has) {
        series.push({ label: WITHOUT.label, stroke: colour(WITHOUT.colour), width: 1.5, dash: [4, 3], points: { show: false } });
        columns.push(data.calls.map((_, i) => data.without[i] ?? null));
      }
      // What was paid stays readable: a line that goes far beyond it leaves the chart, and the legend says how far it goes.
      const paid = Math.max(...data.bills.usd), most = has ? Math.max(...data.without) : 0, top = Math.min(Math.max(paid, most), 3 * paid || most);
      if (has) {
        const beyond = most > top ? ` (up to ${dollars(most)}, above this chart)` : "";
        const ended = data.too_long_from ? [{ label: `it would not have fitted from call ${whole.format(data.too_long_from)} on`, colour: "--bad", dashed: true }] : [];
        legend(figure, [{ label: "paid", colour: "--c-written" }, { ...WITHOUT, label: WITHOUT.label + beyond }, ...ended]);
      }
      plot(figure, {
        series: [{}, ...series], axes: axes((n) => (n ? `$${Number(n.toPrecision(3))}` : "0")),
        scales: { y: { range: () => [0, top * 1.06 || 1] } },
        hooks: { draw: [tooLong] },
      }, [data.calls, ...columns]);
      return;
    }
    const named = Object.entries(BILLS).map(([name, [hue, label]]) => ({ label, values: data.bills.tokens[name], colour: hue }));
    const { series, columns } = layers(named);
    caption.textContent = "Billed, tokens by call (no price is known for this model) ";
    plot(figure, { series: [{}, ...series], axes: axes(short) }, [data.calls, ...columns]);
    legend(figure, named.toReversed());
  }

  async function load() {
    const section = $("timeline");
    if (!section || !window.uPlot || !$("chart-context")) return;
    if ($("data")) return start(JSON.parse($("data").textContent));
    const answer = await fetch(section.dataset.src, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    start(await answer.json());
  }

  function start(columns) {
    data = columns;
    for (const lane of data.lanes || []) {
      lane.set = new Map(lane.calls.map((call, i) => [call, lane.items[i]]));
      lane.total = lane.counts.reduce((sum, count) => sum + count, 0);
      lane.most = Math.max(0, ...lane.counts);
    }
    draw();
  }

  function zoomBy(factor) {
    if (!plots[0]) return;
    const { min, max } = plots[0].scales.x, middle = chosenCall() || (min + max) / 2, half = Math.max(1.5, ((max - min) * factor) / 2);
    zoomTo(middle - half, middle + half);
  }

  const redraw = () => plots.forEach((one) => one.redraw(false));
  const calls = () => data?.calls.length || 0;
  return { load, draw, redraw, zoomTo, zoomBy, calls, chosenCall, onOpen: (call) => { opens = call; } };
})();

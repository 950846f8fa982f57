// Every page: charts are drawn when they come near the screen or the browser is idle, and all of them
// before printing; views to click through when they are opened. Libraries are packed, in the page or in a file beside it.
(() => {
  const charts = document.querySelectorAll(".chart");
  const GLOBALS = { plotly: "Plotly", circuitsvis: "CircuitsVis", "explorer-code": "ArithLensExplorer" };
  const LEAST = 0.75, MOST = 1.35, ROOM = 360;  // how much smaller or larger than drawn; pixels in which small print stands beside it
  const shown = {
    displaylogo: false,
    modeBarButtonsToRemove: ["lasso2d", "select2d"],
  };
  async function draw(chart) {
    if (chart.dataset.drawn) return;
    chart.dataset.drawn = "yes";
    if (!window.Plotly && !await load("plotly")) { chart.textContent = "plotly.js, which lies beside this page, is missing: copy both."; return; }
    const narrow = innerWidth < 700 && document.getElementById(chart.id + "-narrow");
    const source = narrow || document.getElementById(chart.id + "-data");
    const text = await unpacked(source.textContent), pairs = JSON.parse(await unpacked(document.getElementById(chart.id + "-dark").textContent));
    const dark = text.replace(/#[0-9a-f]{6}\b|"white"|rgba\(\d+,\d+,\d+,/g, colour => pairs[colour] ?? colour);
    figures.set(chart, { light: text, dark });
    const figure = JSON.parse(text);
    if (narrow) Object.assign(chart.style, { width: `${figure.layout.width}px`, height: `${figure.layout.height}px` });
    fit(chart);
    paint(chart);
    measure();
  }
  // In the colours of the screen; on paper in the light ones.
  const figures = new Map(), isDark = matchMedia("screen and (prefers-color-scheme: dark)");
  function paint(chart, dark = isDark.matches) {
    const { data, layout } = JSON.parse(figures.get(chart)[dark ? "dark" : "light"]);
    Plotly.react(chart, data, layout, shown);
  }
  isDark.addEventListener("change", () => [...figures.keys()].forEach(chart => paint(chart)));
  addEventListener("afterprint", () => { if (isDark.matches) [...figures.keys()].forEach(chart => paint(chart)); });
  // A figure is as wide as its column, within bounds; below them the column scrolls.
  function fit(chart) {
    const { width, height } = chart.style, box = chart.parentNode;
    box.style.width = "";
    box.classList.remove("beside");
    const wide = box.clientWidth / parseFloat(width);
    if (!wide) return;
    const scale = Math.max(LEAST, Math.min(MOST, wide));
    chart.style.transform = `scale(${scale})`;
    Object.assign(box.style, { height: `${Math.ceil(parseFloat(height) * scale) + 2}px`, overflow: scale > wide ? "" : "hidden" });
    const beside = (wide - scale) * parseFloat(width) > ROOM;
    box.classList.toggle("beside", beside);
    if (beside) box.style.width = `${Math.ceil(parseFloat(width) * scale)}px`;
  }
  function run(text) {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
  }
  const loaded = {};
  function load(bundle) { return loaded[bundle] ??= unpack(bundle); }
  async function unpack(bundle) {
    const packed = document.getElementById(bundle)?.textContent ?? window.ArithLensBundles?.[bundle], name = GLOBALS[bundle];
    if (!packed) return false;
    run(`${await unpacked(packed)};window.${name}=${name}`);
    return true;
  }
  function unpacked(packed) {
    const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  // Numbers are compressed in the page, and saved as text.
  document.addEventListener("click", async event => {
    const link = event.target.closest("a[download$='.csv.gz']");
    if (!link) return;
    event.preventDefault();
    const text = await unpacked(link.href.split(",")[1]), href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    Object.assign(document.createElement("a"), { href, download: link.download.replace(".gz", "") }).click();
  });
  const near = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) {
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  charts.forEach(chart => { fit(chart); near.observe(chart); });
  const idle = window.requestIdleCallback ?? (task => setTimeout(task, 300));
  async function drawNext() {  // what is folded is drawn when it is opened: hidden text has no size
    const next = [...charts].find(chart => !chart.dataset.drawn && chart.offsetParent && chart.checkVisibility?.() !== false);
    if (next) { await draw(next); idle(drawNext); }
  }
  addEventListener("load", () => idle(drawNext));
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details.rows").forEach(details => { details.open = true; });
    if (isDark.matches) [...figures.keys()].forEach(chart => paint(chart, false));
    charts.forEach(draw);
  });

  // A link to what is folded opens it.
  const reveal = () => { for (let part = document.getElementById(location.hash.slice(1)); part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true; };
  addEventListener("hashchange", reveal);
  reveal();

  const boxes = document.querySelectorAll(".box");
  const measure = () => boxes.forEach(box =>
    box.classList.toggle("wide", box.style.overflow !== "hidden" && box.scrollWidth > box.clientWidth + box.scrollLeft + 2));
  addEventListener("resize", () => { charts.forEach(fit); measure(); });
  document.addEventListener("scroll", measure, true);
  document.addEventListener("toggle", () => { charts.forEach(fit); measure(); }, true);
  measure();

  async function open(details) {
    if (!details.open || details.dataset.drawn) return;
    details.dataset.drawn = "yes";
    for (const bundle of details.dataset.bundles.split(" ")) if (!await load(bundle)) {
      details.append(`${bundle}.js, which lies beside this page, is missing: copy both.`);
      return;
    }
    run(await unpacked(details.querySelector("script").textContent));
  }
  document.querySelectorAll("details.views").forEach(details => {
    details.addEventListener("toggle", () => open(details));
    open(details);
  });
})();

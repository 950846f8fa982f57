// Every page: charts are drawn when they come near the screen, and all of them before printing; views
// to click through when they are opened. Libraries are packed, in the page or in a file beside it.
(() => {
  const charts = document.querySelectorAll(".chart");
  const GLOBALS = { plotly: "Plotly", circuitsvis: "CircuitsVis", "explorer-code": "ArithLensExplorer" };
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
    const figure = JSON.parse(await unpacked(source.textContent));
    if (narrow) fit(chart, figure.layout);
    Plotly.newPlot(chart, figure.data, figure.layout, shown);
    measure();
  }
  // A phone's figure is as wide as a column of paper; it is made smaller where the screen is.
  function fit(chart, layout) {
    const scale = Math.min(1, chart.parentNode.clientWidth / layout.width);
    chart.style.width = `${layout.width}px`;
    chart.style.height = `${layout.height}px`;
    chart.style.transformOrigin = "0 0";
    chart.style.transform = `scale(${scale})`;
    chart.parentNode.style.height = `${Math.ceil(layout.height * scale) + 2}px`;
    chart.parentNode.style.overflow = "hidden";
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
  charts.forEach(chart => near.observe(chart));
  addEventListener("beforeprint", () => charts.forEach(draw));

  const boxes = document.querySelectorAll(".box");
  const measure = () => boxes.forEach(box =>
    box.classList.toggle("wide", box.style.overflow !== "hidden" && box.scrollWidth > box.clientWidth + 2));
  addEventListener("resize", measure);
  document.addEventListener("toggle", measure, true);
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

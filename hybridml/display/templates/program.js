// `data-keys` of an element: its own key (a line "l", an operation "n", a kernel "k"), then those of what it belongs to.
(function () {
  // In the frame of a notebook: dark where the text around the frame is light, whatever the system prefers.
  if (window.frameElement) {
    const [red, green, blue] = getComputedStyle(window.frameElement).color.match(/[\d.]+/g).map(Number);
    document.documentElement.style.colorScheme = red + green + blue > 382 ? "dark" : "light";
  }

  const elements = [...document.querySelectorAll("[data-keys]")];
  const keysOf = (element) => element.dataset.keys.split(" ");
  const byKey = new Map();
  for (const element of elements) {
    for (const key of keysOf(element)) {
      if (!byKey.has(key)) byKey.set(key, []);
      byKey.get(key).push(element);
    }
  }
  const under = (event) => event.target.closest("[data-keys]");

  let lit = [];
  function light(element) {
    for (const other of lit) other.classList.remove("on");
    lit = element ? byKey.get(keysOf(element)[0]) : [];
    for (const other of lit) other.classList.add("on");
  }

  function scrollTo(pane, element) {
    const frame = pane.getBoundingClientRect();
    const box = element.getBoundingClientRect();
    pane.scrollTop += box.top - frame.top - frame.height / 3;
    if (box.left < frame.left || box.right > frame.right) {
      pane.scrollLeft += box.left - frame.left - frame.width / 3;
    }
  }

  function showDetail(key) {
    for (const detail of document.querySelectorAll(".detail")) {
      detail.style.display = detail.id === key ? "block" : "none";
    }
    document.querySelector(".details").scrollTop = 0;
  }

  function choose(clicked) {
    light(clicked);
    for (const pane of document.querySelectorAll(".source, .graph, .ir")) {
      const first = lit.find((element) => pane.contains(element));
      if (first && !pane.contains(clicked)) scrollTo(pane, first);
    }
    const kernel = keysOf(clicked).find((key) => key[0] === "k");
    if (kernel) showDetail(kernel);
  }

  document.addEventListener("mouseover", (event) => light(under(event)));
  document.addEventListener("focusin", (event) => light(under(event)));
  document.addEventListener("click", (event) => under(event) && choose(under(event)));
  showDetail("k0");

  // Each pane is one stop of the tab key; arrow keys move within it.
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  for (const pane of document.querySelectorAll(".source, .graph, .ir")) {
    const stops = [...pane.querySelectorAll("[data-keys]")];
    if (stops.length) stops[0].setAttribute("tabindex", 0);
    pane.addEventListener("keydown", (event) => {
      const at = stops.indexOf(under(event));
      if (at < 0) return;
      if (event.key === "Enter" || event.key === " ") choose(stops[at]);
      else if (event.key in step) {
        const next = stops[Math.min(Math.max(at + step[event.key], 0), stops.length - 1)];
        stops[at].setAttribute("tabindex", -1);
        next.setAttribute("tabindex", 0);
        next.focus();
      } else return;
      event.preventDefault();
    });
  }

  const pane = document.querySelector(".graph");
  const drawing = pane.querySelector("svg.drawing");
  const width = Number(drawing.getAttribute("width"));
  const height = Number(drawing.getAttribute("height"));
  let zoom = 1;
  function setZoom(value) {
    zoom = value;
    drawing.setAttribute("width", width * zoom);
    drawing.setAttribute("height", height * zoom);
  }
  const fit = () => Math.min(1, (pane.clientWidth - 20) / width);
  for (const button of document.querySelectorAll("[data-zoom]")) {
    const by = Number(button.dataset.zoom);
    button.addEventListener("click", () => setZoom(by ? zoom * by : fit()));
  }
  if (width > pane.clientWidth) setZoom(Math.max(0.7, Math.min(1, pane.clientWidth / width)));
  const first = pane.querySelector("[data-keys]");
  if (first) scrollTo(pane, first);
})();

// Obstacles for people on the page that is shown, as lines of text.
function obstacles() {
  const found = [];
  const describe = (node) => `${node.localName}${node.className && node.className.baseVal === undefined ? "." + node.className : ""} "${(node.textContent ?? "").trim().slice(0, 40)}"`;
  const is_shown = (node) => {
    const box = node.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  };

  // Colours as the browser paints them, whatever notation they have.
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const memory = new Map();
  const rgba = (text) => {
    if (!memory.has(text)) {
      brush.clearRect(0, 0, 1, 1);
      brush.fillStyle = text;
      brush.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
      memory.set(text, [r, g, b, a / 255]);
    }
    return memory.get(text);
  };
  const over = (top, under) => top.slice(0, 3).map((each, i) => each * top[3] + under[i] * (1 - top[3]));
  const ground_of = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) {
        layers.push(colour);
      }
      if (colour[3] === 1) {
        break;
      }
    }
    return layers.reverse().reduce((under, top) => over(top, under), rgba("canvas").slice(0, 3));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || seen.has(node) || !is_shown(node) || node.closest("noscript, :disabled, option")) {
      continue;
    }
    seen.add(node);
    const style = getComputedStyle(node);
    const ground = ground_of(node);
    const ink = rgba(node.closest("svg") ? style.fill : style.color);
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) {
      opacity *= Number(getComputedStyle(at).opacity);
    }
    const measured = contrast(over([ink[0], ink[1], ink[2], ink[3] * opacity], ground), ground);
    const size = parseFloat(style.fontSize);
    const is_large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (measured < (is_large ? 3 : 4.5)) {
      found.push(`contrast ${measured.toFixed(2)}: ${describe(node)}`);
    }
  }

  const name_of = (node) => {
    const by = node.getAttribute("aria-labelledby");
    if (by) {
      return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    }
    return (node.getAttribute("aria-label") ?? "").trim() || [...(node.labels ?? [])].map((label) => label.textContent).join(" ").trim() || (node.textContent ?? "").trim() || (node.title ?? "").trim();
  };
  for (const node of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0'], [role=img], [role=log]")) {
    if (!is_shown(node) && node.localName !== "input") {
      continue;
    }
    if (!name_of(node)) {
      found.push(`no name: ${describe(node)}`);
    }
    const box = node.getBoundingClientRect();
    const is_in_text = node.localName === "a" || node.classList.contains("link") || node.classList.contains("toggle");
    if (matchMedia("(pointer: coarse)").matches && ["button", "select"].includes(node.localName) && !is_in_text && Math.min(box.width, box.height) < 24) {
      found.push(`too small for a finger, ${box.width} by ${box.height}: ${describe(node)}`);
    }
  }
  for (const node of document.querySelectorAll("table")) {
    if (!node.caption) {
      found.push(`a table without a caption: ${describe(node)}`);
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids.filter((each, i) => ids.indexOf(each) !== i))) {
    found.push(`two elements have the id ${id}`);
  }
  for (const node of document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]")) {
    for (const attribute of ["aria-labelledby", "aria-describedby", "for"]) {
      for (const id of (node.getAttribute(attribute) ?? "").split(/\s+/).filter(Boolean)) {
        if (!document.getElementById(id)) {
          found.push(`${attribute}="${id}" names nothing: ${describe(node)}`);
        }
      }
    }
  }
  if (document.querySelectorAll("h1").length !== 1) {
    found.push(`${document.querySelectorAll("h1").length} titles of the first order`);
  }
  if (!document.documentElement.lang || !document.title) {
    found.push("no language or no title");
  }
  if (document.querySelectorAll("main").length !== 1) {
    found.push("not one main part");
  }
  let level = 0;
  for (const node of document.querySelectorAll("h1, h2, h3, h4")) {
    const now = Number(node.localName[1]);
    if (now > level + 1 && level > 0) {
      found.push(`${node.localName} after h${level}: ${describe(node)}`);
    }
    level = now;
  }
  return found;
}

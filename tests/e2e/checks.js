// What an audit of accessibility looks at first; returns what is wrong, one line each.
() => {
  const wrong = [];
  const say = (what, element) => wrong.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (element) => element.checkVisibility({ visibilityProperty: true });

  if (!document.documentElement.lang) wrong.push("no language");
  if (!document.title) wrong.push("no title");
  if (all("main").length !== 1 || all("h1").length !== 1) wrong.push("not one main and one h1");
  if (!all("header").length || !all("footer").length) wrong.push("no header or footer");

  let level = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6").filter(shown)) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say("a level of headings is left out", heading);
    if (!heading.textContent.trim()) say("an empty heading", heading);
    level = own;
  }

  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id is there twice");
  for (const element of all("[aria-labelledby]")) {
    for (const id of element.getAttribute("aria-labelledby").split(/\s+/)) {
      if (!document.getElementById(id)) say("labelled by nothing", element);
    }
  }

  const named = (element) =>
    (element.getAttribute("aria-label") || "").trim() ||
    element.hasAttribute("aria-labelledby") ||
    [...(element.labels || [])].some((label) => label.textContent.trim()) ||
    (!["SELECT", "INPUT"].includes(element.tagName) && element.textContent.trim());
  for (const element of all("a, button, select, input, summary, [role=slider], [role=region], [role=group], nav")) {
    if (!named(element)) say("no name", element);
  }
  for (const element of all("img")) if (!element.hasAttribute("alt")) say("no alternative", element);
  for (const element of all("svg:not(svg svg)")) {
    const hidden = element.closest("[aria-hidden=true]");
    if (!hidden && !(element.getAttribute("role") === "img" && named(element))) say("no alternative", element);
  }
  for (const element of all("[aria-hidden=true]")) {
    if (element.querySelector("a, button, input, select, [tabindex]")) say("focus in what is hidden", element);
  }
  for (const element of all("table")) {
    if (!element.caption || !element.caption.textContent.trim()) say("no caption", element);
    for (const heading of element.querySelectorAll("th")) if (!heading.scope) say("no scope", heading);
  }
  for (const element of all("[tabindex]")) if (element.tabIndex > 0) say("positive tabindex", element);
  for (const element of all("*").filter(shown)) {
    const style = getComputedStyle(element);
    const scrolls = ["auto", "scroll"].includes(style.overflowX) && element.scrollWidth > element.clientWidth + 1;
    if (scrolls && element.tabIndex < 0 && !element.querySelector("[tabindex='0'], button, a")) {
      say("scrolls and cannot be focused", element);
    }
    if (element.matches("button, select, input, summary")) {
      const box = element.getBoundingClientRect();
      if (element.type !== "checkbox" && (box.width < 24 || box.height < 24)) say("too small to touch", element);
    }
  }

  // Contrast of every text against the first solid background beneath it.
  const channels = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (seen.has(element) || !walker.currentNode.data.trim() || !shown(element)) continue;
    if (element.closest(".vh, script, style, title, option")) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    const front = channels(element.closest("svg") ? style.fill : style.color);
    const [dark, bright] = [light(front), light(behind(element))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < (large ? 3 : 4.5)) say(`contrast ${contrast.toFixed(2)}`, element);
  }
  return wrong;
}

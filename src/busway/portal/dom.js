// Elements from code. Text is always text: nothing that a message holds is read as HTML.

const PROPERTIES = new Set(["value", "checked", "disabled", "selected"]);

export function h(tag, attributes = {}, ...children) {
  return built(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return built(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function built(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") || PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

export function replace(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

// Make the content of an element like these new nodes, and keep what is alike: who has the focus on a
// button, has selected a text or scrolled a table keeps that while numbers change.
export function redraw(element, ...children) {
  const wanted = present(children).map((child) =>
    child instanceof Node ? child : document.createTextNode(child),
  );
  wanted.forEach((node, place) => {
    const there = element.childNodes[place];
    if (!there) element.append(node);
    else if (!isAlike(there, node)) there.replaceWith(node);
    else if (there instanceof Element) adopt(there, node);
    else if (there.data !== node.data) there.data = node.data;
  });
  while (element.childNodes.length > wanted.length) element.lastChild.remove();
  return element;
}

const isAlike = (there, node) => there.nodeName === node.nodeName && there.dataset?.key === node.dataset?.key;

function adopt(there, node) {
  for (const { name } of [...there.attributes]) if (!node.hasAttribute(name)) there.removeAttribute(name);
  for (const { name, value } of node.attributes)
    if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  there.onclick = node.onclick;
  if ("disabled" in node) there.disabled = node.disabled;
  redraw(there, ...node.childNodes);
}

let fields = 0;

// A label with its control, tied together by an id.
export function field(label, control, hint = null) {
  return h("div", { class: "field" }, labelled(label, control), control, described(control, hint));
}

export function check(label, control, hint = null) {
  control.type = "checkbox";
  return h("div", { class: "field check" }, control, labelled(label, control), described(control, hint));
}

function labelled(label, control) {
  control.id = `field-${++fields}`;
  return h("label", { for: control.id }, label);
}

function described(control, hint) {
  if (!hint) return null;
  const note = h("small", { id: `${control.id}-hint` }, hint);
  control.setAttribute("aria-describedby", note.id);
  return note;
}

export function table(heads, rows, { css = "list" } = {}) {
  const head = (each) => {
    const [label, kind] = Array.isArray(each) ? each : [each, null];
    return h("th", { scope: "col", class: kind }, label);
  };
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", { class: css }, h("thead", {}, h("tr", {}, heads.map(head))), h("tbody", {}, rows)),
  );
}

export const badge = (kind, text) => h("span", { class: `badge ${kind}` }, text);

export function tabs(items, current) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Parts of this entity" },
    items.map(([name, label, href]) =>
      h("a", { href, "aria-current": name === current ? "page" : null }, label),
    ),
  );
}

// Several buttons of which one is pressed: `choose` is called with its name.
export function choices(names, current, choose) {
  const buttons = names.map((name) =>
    h(
      "button",
      { type: "button", class: "quiet", "aria-pressed": String(name === current), onclick: () => pick(name) },
      name,
    ),
  );
  function pick(name) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
    choose(name);
  }
  return buttons;
}

// Nothing to show: why, and what to do next.
export function empty(text, ...actions) {
  return h("div", { class: "empty" }, h("p", {}, text), actions);
}

export const problem = (error) => h("p", { class: "problem", role: "alert" }, error.message);

// Elements from code. Text is always text: nothing that a message holds is read as HTML.

export function h(tag, attributes = {}, ...children) {
  return built(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return built(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function built(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected")
      element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return element;
}

let fields = 0;

// A label with its control, tied together by an id.
export function field(label, control, hint = null) {
  const id = `field-${++fields}`;
  control.id = id;
  const note = hint && h("small", { id: `${id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}

export function check(label, control, hint = null) {
  const id = `field-${++fields}`;
  control.id = id;
  control.type = "checkbox";
  const note = hint && h("small", { id: `${id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field check" }, control, h("label", { for: id }, label), note);
}

export function notice(text, kind = "info") {
  const shown = h("div", { class: `notice ${kind}` }, text);
  const close = h(
    "button",
    { class: "quiet", "aria-label": "Close this notice", onclick: () => shown.remove() },
    "×",
  );
  shown.append(close);
  document.getElementById("notices").append(shown);
  if (kind !== "error") setTimeout(() => shown.remove(), 6000);
}

// Ask before something is done that cannot be undone. `act` may be asynchronous; its errors are shown in the dialog.
export function dialog(title, content, action, act, kind = "primary") {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const cancel = h(
      "button",
      { type: "button", onclick: () => box.close() },
      action === null ? "Close" : "Cancel",
    );
    const go = action === null ? null : h("button", { type: "submit", class: kind }, action);
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      content,
      problem,
      h("div", { class: "buttons" }, cancel, go),
    );
    const box = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let result = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        await act();
        result = true;
        box.close();
      } catch (error) {
        problem.textContent = error.message;
      } finally {
        go.disabled = false;
      }
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}

export function tabs(items, current) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Parts of this entity" },
    items.map(([name, label, href]) =>
      h("a", { href, "aria-current": name === current ? "page" : null }, label),
    ),
  );
}

export function empty(text, ...actions) {
  return h("div", { class: "empty" }, h("p", {}, text), actions);
}

// Notices at the edge of the page, and questions before something is done.
import { h } from "./dom.js";

const NOTICE_MS = 6000;

export function notice(text, kind = "info") {
  const shown = h("div", { class: `notice ${kind}` }, text);
  shown.append(
    h("button", { class: "quiet", "aria-label": "Close this notice", onclick: () => shown.remove() }, "×"),
  );
  document.getElementById("notices").append(shown);
  if (kind !== "error") setTimeout(() => shown.remove(), NOTICE_MS);
}

// Do it; say so if it fails.
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    notice(error.message, "error");
    return undefined;
  }
}

// `act` may be asynchronous; its errors are shown in the dialog, which stays open. Without an action there
// is only something to look at.
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
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (go === null) {
        box.close();
        return;
      }
      go.disabled = true;
      problem.textContent = "";
      try {
        await act();
        result = true;
        box.close();
      } catch (error) {
        problem.textContent = error.message;
      } finally {
        go.disabled = false;
      }
    };
    box.onclose = () => {
      box.remove();
      resolve(result);
    };
    document.body.append(box);
    box.showModal();
  });
}

export const confirm = (title, text, action, act) => dialog(title, h("p", {}, text), action, act, "danger");

export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", onclick: copy }, label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it and copy"; // browsers allow it on https and localhost only
    }
    setTimeout(() => (button.textContent = label), 2000);
  }
  return button;
}

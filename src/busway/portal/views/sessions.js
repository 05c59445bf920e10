// Sessions that have messages or a state.
import * as api from "../api.js";
import { h, replace, empty, table } from "../dom.js";
import { attempt, dialog } from "../dialogs.js";
import { bytesOf, count, entityHref, hexOf, textOf } from "../format.js";

export async function show(page, entity) {
  const list = h("div", {});
  const search = h("input", {
    type: "search",
    placeholder: "Search sessions",
    "aria-label": "Search sessions",
    oninput: () => attempt(load),
  });
  const sessions = `${api.pathOf(entity.path)}/$explorer/sessions`;
  replace(
    page,
    h("div", { class: "row" }, search, h("button", { onclick: () => attempt(load) }, "Refresh")),
    list,
  );

  async function load() {
    const wanted = search.value;
    const found = await api.get(`${sessions}?search=${encodeURIComponent(wanted)}`);
    if (wanted !== search.value) return; // somebody has typed on
    if (found.total === 0) {
      replace(
        list,
        empty(
          wanted
            ? "No session has that in its id."
            : "No session has messages or a state. Send a message with a session id to see it here.",
        ),
      );
      return;
    }
    const isCut = found.total > found.sessions.length;
    replace(
      list,
      h(
        "p",
        { class: "hint" },
        `${count(found.total)} sessions${isCut ? `, the first ${found.sessions.length} are shown` : ""}.`,
      ),
      table(["Session", ["Partition", "number"], ""], found.sessions.map(row)),
    );
  }

  const row = (each) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, each.session_id),
      h("td", { class: "number" }, each.partition),
      h(
        "td",
        {},
        h("a", { href: entityHref(entity.path, "explorer", { session: each.session_id }) }, "Messages"),
        " ",
        h("button", { class: "link", onclick: () => attempt(() => state(each.session_id)) }, "State"),
      ),
    );

  async function state(id) {
    const found = await api.get(`${sessions}/${encodeURIComponent(id)}`);
    const bytes = found.state_base64 === null ? null : bytesOf(found.state_base64);
    const text = bytes && (textOf(bytes) ?? hexOf(bytes));
    await dialog(
      `State of ${id}`,
      bytes === null ? h("p", {}, "It has no state.") : h("pre", { tabindex: "0" }, text),
      null,
    );
  }

  await load();
  return () => {};
}

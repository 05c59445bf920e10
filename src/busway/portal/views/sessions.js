// Sessions that have messages or a state.
import * as api from "../api.js";
import { h, replace, empty, dialog } from "../dom.js";
import { bytesOf, count, hexOf, textOf } from "../format.js";

export async function show(page, entity) {
  const list = h("div", {});
  const search = h("input", {
    type: "search",
    placeholder: "Search sessions",
    "aria-label": "Search sessions",
    onchange: () => load(),
  });
  replace(page, h("div", { class: "row" }, search, h("button", { onclick: () => load() }, "Refresh")), list);

  async function load() {
    const found = await api.get(
      `${api.explorer(entity.path)}/sessions?search=${encodeURIComponent(search.value)}`,
    );
    if (found.total === 0) {
      replace(list, empty("No session has messages or a state."));
      return;
    }
    replace(
      list,
      h(
        "p",
        { class: "hint" },
        `${count(found.total)} sessions${found.total > found.sessions.length ? `, the first ${found.sessions.length} shown` : ""}.`,
      ),
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "list" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "Session"),
              h("th", { scope: "col", class: "number" }, "Partition"),
              h("th", { scope: "col" }, ""),
            ),
          ),
          h(
            "tbody",
            {},
            found.sessions.map((each) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, each.session_id),
                h("td", { class: "number" }, each.partition),
                h(
                  "td",
                  {},
                  h(
                    "a",
                    {
                      href: `#/entity/${encodeURIComponent(entity.path)}/explorer?session=${encodeURIComponent(each.session_id)}`,
                    },
                    "Messages",
                  ),
                  " ",
                  h("button", { class: "link", onclick: () => state(each.session_id) }, "State"),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  async function state(id) {
    const found = await api.get(`${api.explorer(entity.path)}/sessions/${encodeURIComponent(id)}`);
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

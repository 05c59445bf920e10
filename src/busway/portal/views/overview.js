// What an entity holds and does now, and how a program reaches it.
import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { count, rate, size, span, time } from "../format.js";
import { chart } from "../charts.js";
import * as live from "../live.js";
import { LANGUAGES, snippet } from "../snippets.js";

export function show(page, entity) {
  const figures = h("dl", { class: "figures" });
  const charts = h("div", { class: "charts" });
  replace(page, figures, charts, snippets(entity));
  let oldest = entity.oldest_active;

  function fill(found) {
    const now = found?.entities.find((each) => each.path === entity.path) || entity;
    const depth = now.depth;
    const limit = now.max_size_mb === null ? null : now.max_size_mb * 1024 * 1024;
    const age =
      oldest && depth.active ? Math.max(0, Date.parse(found?.now || entity.now) - Date.parse(oldest)) : null;
    const item = (name, value, css) => h("div", { class: css }, h("dt", {}, name), h("dd", {}, value));
    replace(
      figures,
      item("Status", h("span", { class: now.status === "Active" ? "badge good" : "badge warn" }, now.status)),
      item(
        "Availability",
        h("span", { class: now.availability === "Available" ? "badge good" : "badge bad" }, now.availability),
      ),
      item("Active", count(depth.active)),
      item("Scheduled", count(depth.scheduled)),
      item("Deferred", count(depth.deferred)),
      item("Dead letters", count(depth.dead_letter), depth.dead_letter ? "warn" : null),
      (depth.transfer > 0 || depth.transfer_dead_letter > 0) &&
        item("In transfer", `${count(depth.transfer)} + ${count(depth.transfer_dead_letter)} dead`),
      item("Size", size(depth.bytes)),
      limit !== null &&
        item(
          "Maximum size",
          now.partitioned
            ? `${size(limit)} (${size(limit / now.partition_count)} × ${now.partition_count})`
            : size(limit),
        ),
      item("Oldest active", age === null ? "–" : `${span(age)} ago`),
      item("Created", time(now.created)),
    );
    const history = live.historyOf(entity.path);
    const seconds = history.length > 1 ? history.at(-1).at - history[0].at : 0;
    replace(
      charts,
      chart(
        "Messages per second",
        [
          { name: "in", css: "one", values: history.map((each) => each.in) },
          { name: "out", css: "two", values: history.map((each) => each.out) },
        ],
        rate,
        seconds,
      ),
      chart(
        "Depth",
        [{ name: "messages", css: "one", values: history.map((each) => each.depth) }],
        (value) => count(value === null ? null : Math.round(value)),
        seconds,
      ),
    );
  }

  const leave = live.listen(fill);
  const ages = setInterval(async () => {
    try {
      oldest = (await api.get(api.explorer(entity.path))).oldest_active;
    } catch {
      /* the header tells that the server is away */
    }
  }, 5000);
  return () => {
    leave();
    clearInterval(ages);
  };
}

function snippets(entity) {
  const code = h("pre", { tabindex: "0" });
  const choose = (language) => {
    code.textContent = snippet(language, entity);
    for (const button of buttons)
      button.setAttribute("aria-pressed", String(button.textContent === language));
  };
  const buttons = LANGUAGES.map((language) =>
    h("button", { class: "quiet", onclick: () => choose(language) }, language),
  );
  const copy = h(
    "button",
    {
      onclick: async () => {
        await navigator.clipboard?.writeText(code.textContent);
        copy.textContent = "Copied";
      },
    },
    "Copy",
  );
  choose(LANGUAGES[0]);
  return h("section", {}, h("h2", {}, "Connect"), h("div", { class: "row" }, buttons, copy), code);
}

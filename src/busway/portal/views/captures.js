// Entities whose journals are kept, how far their readers are, and the latest report made from them.
import * as api from "../api.js";
import { h, replace, redraw, badge, empty, field, table } from "../dom.js";
import { attempt, confirm, dialog, notice } from "../dialogs.js";
import { count, entityHref, size, time } from "../format.js";
import { repeat } from "../polling.js";

const EVERY_MS = 3000;

export function show(page) {
  const report = h("div", { class: "card" });
  const list = h("div", {});
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Captures"),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "primary", onclick: () => begin(load) }, "Capture an entity"),
      ),
    ),
    report,
    list,
  );

  async function load() {
    await attempt(async () => {
      redraw(report, reportOf((await api.get("/$busway/report")).report));
      const captured = await capturedEntities();
      const rows = await Promise.all(captured.map((path) => described(path)));
      redraw(
        list,
        rows.length === 0
          ? empty(
              "No entity is captured. A captured entity keeps a journal of what happens to its messages, which busway pipeline capture copies into a lake.",
              h("button", { class: "primary", onclick: () => begin(load) }, "Capture an entity"),
            )
          : table(
              ["Entity", "Since", ["Events", "number"], ["Size", "number"], "Readers", ""],
              rows.map((each) => row(each, load)),
            ),
      );
    });
  }

  return repeat(EVERY_MS, load);
}

function reportOf(found) {
  if (!found)
    return [
      h("b", {}, "No report yet"),
      h("p", { class: "hint" }, [
        "The data pipeline makes one from what was captured: ",
        h("code", {}, "busway pipeline report --lake ./lake --publish"),
      ]),
    ];
  return h(
    "div",
    { class: "row" },
    h("b", {}, "Latest report"),
    h("span", { class: "small" }, `${time(found.published)}, ${size(found.size)}`),
    h("button", { onclick: openReport }, "Open"),
  );
}

// A browser sends no token with an address: the server gives one that opens the report once.
const openReport = () =>
  attempt(async () => {
    const { path } = await api.send("POST", "/$busway/report/link", {});
    window.open(path, "_blank", "noopener");
  });

const capturedEntities = async () =>
  (await api.get("/$busway/entities?captured=1")).entities.map((each) => each.path);

async function described(path) {
  const journal = `${api.pathOf(path)}/$journal`;
  try {
    const [told, readers] = await Promise.all([api.get(journal), api.get(`${journal}/consumers`)]);
    const sum = (name) => told.partitions.reduce((total, each) => total + each[name], 0);
    return { path, since: told.since, events: sum("rows"), bytes: sum("bytes"), readers };
  } catch (error) {
    return { path, since: null, events: null, bytes: null, readers: [], problem: error.message };
  }
}

function row({ path, since, events, bytes, readers, problem }, changed) {
  const reader = (each) =>
    h(
      "li",
      {},
      `${each.name} `,
      each.lag_rows > 0 ? badge("warn", `${count(each.lag_rows)} events behind`) : badge("good", "has all"),
    );
  return h(
    "tr",
    { "data-key": path },
    h("th", { scope: "row" }, h("a", { href: entityHref(path) }, path)),
    h("td", {}, time(since)),
    h("td", { class: "number" }, count(events)),
    h("td", { class: "number" }, size(bytes)),
    h(
      "td",
      {},
      problem ?? (readers.length ? h("ul", { class: "plain" }, readers.map(reader)) : "no reader holds it"),
    ),
    h("td", {}, h("button", { class: "link", onclick: () => end(path, changed) }, "Stop")),
  );
}

const switched = (path, on) => api.send("PUT", `${api.pathOf(path)}/$journal`, { capture: on });

function begin(changed) {
  const name = h("input", { required: true, autocomplete: "off", placeholder: "orders" });
  return dialog(
    "Capture an entity",
    h(
      "div",
      { class: "form" },
      field(
        "Queue, topic or topic/Subscriptions/name",
        name,
        "From now on its journal is kept, for as long as the server's limits say.",
      ),
    ),
    "Capture",
    async () => {
      await switched(name.value.trim(), true);
      notice(`${name.value.trim()} is captured from now on.`);
      await changed();
    },
  );
}

const end = (path, changed) =>
  confirm(`Stop the capture of ${path}?`, "What was told so far stays for its readers.", "Stop", async () => {
    await switched(path, false);
    await changed();
  });

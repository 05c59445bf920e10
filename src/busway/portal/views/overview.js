// What an entity holds and does now, and how a program reaches it.
import * as api from "../api.js";
import { h, replace, redraw, badge, choices } from "../dom.js";
import { copyButton } from "../dialogs.js";
import { count, rate, size, span, time } from "../format.js";
import { chart } from "../charts.js";
import * as histories from "../histories.js";
import { repeat } from "../polling.js";
import { LANGUAGES, VARIABLE, snippet } from "../snippets.js";

const EVERY_MS = 2000;
const MEGABYTE = 1024 * 1024;

export function show(page, entity) {
  const figures = h("dl", { class: "figures" });
  const charts = h("div", { class: "charts" });
  replace(page, figures, charts, connect(entity));

  async function load() {
    try {
      const now = await api.get(`${api.pathOf(entity.path)}/$explorer`);
      histories.note(now);
      fill(now);
    } catch {
      /* the header tells that the server is away; what was seen last stays */
    }
  }

  function fill(now) {
    redraw(figures, figuresOf(now));
    redraw(charts, chartsOf(histories.historyOf(now.path)));
  }

  fill(entity);
  return repeat(EVERY_MS, load);
}

function figuresOf(now) {
  const { depth } = now;
  const item = (name, value, more = null, css = null) =>
    h("div", { class: css }, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)));
  const limit = now.max_size_mb === null ? null : now.max_size_mb * MEGABYTE;
  const isLimited = now.availability !== "Available";
  const received = now.waits.reduce((sum, each) => sum + each, 0);
  const away = now.partitions.filter((each) => !each.available).length;
  return [
    item("Status", badge(now.status === "Active" ? "good" : "warn", now.status)),
    item(
      "Availability",
      badge(isLimited ? "bad" : "good", now.availability),
      isLimited && `${away} of ${now.partitions.length} partitions away`,
    ),
    item("Active", count(depth.active)),
    item("Scheduled", count(depth.scheduled)),
    item("Deferred", count(depth.deferred)),
    item("Dead letters", count(depth.dead_letter), null, depth.dead_letter ? "warn" : null),
    (depth.transfer > 0 || depth.transfer_dead_letter > 0) &&
      item("In transfer", count(depth.transfer), `${count(depth.transfer_dead_letter)} dead letters`),
    item("Size", size(depth.bytes)),
    // P-15
    limit !== null &&
      item(
        "Maximum size",
        size(limit),
        now.partitioned && `${size(limit / now.partition_count)} × ${now.partition_count}`,
      ),
    item(
      "Oldest active",
      now.oldest_active ? span(Math.max(0, Date.parse(now.now) - Date.parse(now.oldest_active))) : "–",
      now.oldest_active && "ago",
    ),
    now.type !== "topic" &&
      item(
        "Average latency",
        received ? span(now.waited_ms / received) : "–",
        received ? `of ${count(received)} messages` : "none received yet",
      ),
    item("Created", time(now.created).slice(0, 10), time(now.created).slice(11)),
  ];
}

function chartsOf(history) {
  const seconds = history.length > 1 ? history.at(-1).at - history[0].at : 0;
  const line = (name, css, key) => ({ name, css, values: history.map((each) => each[key]) });
  return [
    chart("Messages", [line("in", "one", "in"), line("out", "two", "out")], rate, seconds),
    chart("Depth", [line("messages", "one", "depth")], (value) => count(value && Math.round(value)), seconds),
    chart("Latency", [line("average", "one", "average"), line("95 %", "two", "most")], span, seconds),
  ];
}

// The key is shown when it is asked for: people share their screens.
function connect(entity) {
  const shown = h("pre", { class: "wrapped", tabindex: "0", "aria-label": "Connection string" });
  const code = h("pre", { tabindex: "0", "aria-label": "Program" });
  const full = () => api.connectionString();
  let isOpen = false;
  const fillString = () => {
    const text = isOpen ? full() : full().replace(/(SharedAccessKey=)[^;]+/, "$1…");
    shown.textContent = `export ${VARIABLE}='${text}'`;
    reveal.textContent = isOpen ? "Hide key" : "Show key";
  };
  const reveal = h("button", {
    type: "button",
    onclick: () => {
      isOpen = !isOpen;
      fillString();
    },
  });
  const choose = (language) => (code.textContent = snippet(language, entity));
  fillString();
  choose(LANGUAGES[0]);
  return h(
    "section",
    {},
    h(
      "div",
      { class: "row" },
      h("h2", {}, "Connect"),
      reveal,
      copyButton(() => `export ${VARIABLE}='${full()}'`, "Copy with key"),
    ),
    shown,
    h(
      "div",
      { class: "row", role: "group", "aria-label": "Language" },
      choices(LANGUAGES, LANGUAGES[0], choose),
      copyButton(() => code.textContent),
    ),
    code,
  );
}

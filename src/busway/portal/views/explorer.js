// Messages of an entity: peeked at page by page, shown in full at the side, received, settled, purged.
import * as api from "../api.js";
import { h, replace, empty, field } from "../dom.js";
import { attempt, confirm, dialog, notice } from "../dialogs.js";
import { count, entityHref } from "../format.js";
import * as messages from "../messages.js";
import { compose } from "./compose.js";
import { messageDetail } from "./message.js";
import { messageRow, messageHeads } from "./message_row.js";

const PAGE = 50;
const PREVIEW_BYTES = 200;
const WHOLE_BYTES = 256 * 1024; // of a body that is opened; larger ones are loaded when asked for
const KINDS = [
  ["active", "Active", "main", "active"],
  ["scheduled", "Scheduled", "main", "scheduled"],
  ["deferred", "Deferred", "main", "deferred"],
  ["dead-letter", "Dead letters", "dead-letter", null],
  ["transfer", "Transfer", "transfer", null],
  ["transfer-dead-letter", "Transfer dead letters", "transfer-dead-letter", null],
];

export async function show(page, entity, query) {
  const kind = KINDS.find(([name]) => name === query.get("state")) || KINDS[0];
  const [name, , queue, state] = kind;
  const filters = { session: query.get("session") ?? "", partition: query.get("partition") ?? "" };
  const isDead = queue.endsWith("dead-letter");
  const canSend = queue === "main" && entity.type !== "subscription";
  const held = new Map();
  const chosen = new Set();
  let following = 0;

  const status = h("p", { class: "hint", role: "status" });
  const rows = h("tbody", {});
  const side = h("aside", { class: "detail", "aria-label": "Message" });
  const list = h("div", { class: "messages" });
  const more = h("button", { onclick: () => attempt(load) }, "Load more");
  const all = h("input", {
    type: "checkbox",
    "aria-label": "Choose all that are shown",
    onchange: chooseAll,
  });
  const tableOf = h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Messages" },
    h("table", { class: "list" }, h("thead", {}, messageHeads(entity, isDead, all)), rows),
  );
  replace(
    page,
    kinds(entity, name),
    filterHint(entity, name, filters),
    h("div", { class: "row" }, actions()),
    status,
    h("div", { class: "split" }, list, side),
  );

  function actions() {
    const isLockable = ["active", "dead-letter", "transfer-dead-letter"].includes(name);
    return [
      canSend && h("button", { class: "primary", onclick: () => compose(entity, refresh) }, "Send message"),
      isLockable &&
        (queue !== "main" || !entity.requires_session) &&
        h("button", { onclick: receiveOne }, "Receive and lock one"),
      state === "deferred" && h("button", { onclick: lockChosen }, "Lock chosen"),
      isDead && h("button", { onclick: () => resubmit([...chosen]) }, "Resubmit chosen"),
      isDead && h("button", { onclick: () => resubmit(null) }, "Resubmit all"),
      queue !== "transfer" && h("button", { class: "danger", onclick: purge }, "Purge"),
      h("button", { onclick: refresh }, "Refresh"),
    ];
  }

  async function load() {
    const asked = { from: following ?? 0, count: PAGE, preview: PREVIEW_BYTES };
    if (state !== null) asked.state = state;
    for (const [filter, value] of Object.entries(filters)) if (value !== "") asked[filter] = value;
    const found = await messages.peek(entity.path, queue, asked);
    following = found.next;
    rows.append(...found.messages.map(rowOf));
    const isLast = found.messages.length === 0 || following === null;
    if (rows.children.length === 0) replace(list, nothing());
    else replace(list, tableOf, !isLast && more);
    status.textContent = rows.children.length
      ? `${count(rows.children.length)} messages shown${isLast ? "" : "; there may be more"}.`
      : "";
  }

  function rowOf(message) {
    const number = message.sequence_number;
    return messageRow(message, entity, isDead, {
      open: () => open(number),
      choose: (isChosen) => (isChosen ? chosen.add(number) : chosen.delete(number)),
    });
  }

  function chooseAll() {
    for (const each of rows.querySelectorAll("input")) if (each.checked !== all.checked) each.click();
  }

  async function refresh() {
    chosen.clear();
    all.checked = false;
    following = 0;
    rows.replaceChildren();
    await attempt(load);
  }

  // --- One message ---------------------------------------------------------------------------------

  // Its number is in the address, so that a reload or somebody else sees it, too.
  async function open(number, bytes = WHOLE_BYTES) {
    const asked = { from: number, count: 1, preview: bytes };
    const found = await attempt(() => messages.peek(entity.path, queue, asked));
    if (!found) return;
    const message = found.messages.find((each) => each.sequence_number === number);
    history.replaceState(
      null,
      "",
      entityHref(entity.path, "explorer", { state: name, ...filters, message: number }),
    );
    for (const row of rows.children)
      row.toggleAttribute("aria-current", row.dataset.number === String(number));
    replace(
      side,
      message
        ? messageDetail(message, {
            lock: held.get(number),
            settle: (settlement) => settle(message, settlement),
            resubmit: isDead ? () => resubmit([number]) : null,
            loadAll: () => open(number, "all"),
            close,
          })
        : h("p", { class: "hint" }, "That message is no longer here."),
    );
    side.querySelector("h2")?.focus();
  }

  function close() {
    replace(side);
    for (const row of rows.children) row.removeAttribute("aria-current");
    history.replaceState(null, "", entityHref(entity.path, "explorer", { state: name, ...filters }));
  }

  function receiveOne() {
    return attempt(async () => {
      const got = await messages.receive(entity.path, queue);
      if (got === null) {
        notice("There is no message to receive now.");
        return;
      }
      held.set(got.number, got);
      notice(`Message ${got.id ?? got.number} is locked for you until ${got.until}.`);
      await open(got.number);
    });
  }

  function lockChosen() {
    return attempt(async () => {
      if (chosen.size === 0) throw new Error("Choose deferred messages first.");
      for (const number of chosen) {
        const got = await messages.lockDeferred(entity.path, queue, number);
        held.set(number, { number, token: got.lock_token });
      }
      notice(`${chosen.size} messages are locked for you.`);
      await open([...chosen][0]);
    });
  }

  async function settle(message, settlement) {
    const number = message.sequence_number;
    const reason = h("input", {});
    const description = h("input", {});
    const act = async () => {
      const { token } = held.get(number);
      await messages.settle(entity.path, queue, token, settlement, reason.value, description.value);
      held.delete(number);
      close();
      await refresh();
    };
    if (settlement !== "dead-letter") {
      await attempt(act);
      return;
    }
    const form = h("div", { class: "form" }, field("Reason", reason), field("Description", description));
    await dialog("Dead-letter this message", form, "Dead-letter", act);
  }

  // --- Many messages -------------------------------------------------------------------------------

  async function resubmit(numbers) {
    if (numbers?.length === 0) {
      notice("Choose messages first.");
      return;
    }
    const what = numbers === null ? "all dead letters" : `${count(numbers.length)} of the dead letters`;
    const to =
      entity.type === "subscription"
        ? `the topic ${entity.path.split("/Subscriptions/")[0]}, so that all of its subscriptions may get them`
        : entity.path;
    await dialog(
      `Resubmit ${what}?`,
      h("p", {}, `Each goes back to ${to}, and leaves the dead letters in the same commit.`),
      "Resubmit",
      async () => {
        const moved = await messages.resubmit(entity.path, queue, numbers);
        notice(`${count(moved)} messages are resubmitted.`);
        close();
        await refresh();
      },
    );
  }

  async function purge() {
    const depth = api.ownEntity() ? null : (await api.get(`${api.pathOf(entity.path)}/$explorer`)).depth;
    const there = depth && depth[name.replaceAll("-", "_")];
    const words = there === null ? "All messages here" : `${count(there)} messages`;
    await confirm(
      `Purge ${kind[1].toLowerCase()} of ${entity.path}?`,
      `${words} are deleted, except those that somebody has locked. This cannot be undone.`,
      "Purge",
      async () => {
        const deleted = await messages.purge(entity.path, queue, state);
        notice(`${count(deleted)} messages are deleted.`);
        close();
        await refresh();
      },
    );
  }

  function nothing() {
    if (filters.session !== "" || filters.partition !== "")
      return empty(
        "No such messages.",
        h("a", { href: entityHref(entity.path, "explorer", { state: name }) }, "Show all"),
      );
    if (isDead)
      return empty("No dead letters. Messages come here when they cannot be delivered or processed.");
    if (state === "scheduled")
      return empty("Nothing is scheduled. Send a message with a time to see it here.");
    if (state === "deferred")
      return empty("Nothing is deferred. Receive a message and defer it to see it here.");
    return empty(
      entity.type === "subscription"
        ? "No messages. Send one to the topic that one of the rules of this subscription takes."
        : "No messages. Send one here, or with the program in the Overview.",
      canSend && h("button", { class: "primary", onclick: () => compose(entity, refresh) }, "Send message"),
    );
  }

  await load();
  if (query.has("message")) await open(Number(query.get("message")));
  return () => {};
}

function kinds(entity, current) {
  const isThere = ([name]) =>
    !name.startsWith("transfer") || name === current || entity.depth?.[name.replaceAll("-", "_")];
  return h(
    "nav",
    { class: "row kinds", "aria-label": "Which messages" },
    KINDS.filter(isThere).map(([name, label]) =>
      h(
        "a",
        {
          href: entityHref(entity.path, "explorer", { state: name }),
          class: "chip",
          "aria-current": name === current ? "page" : null,
        },
        label,
        entity.depth && h("span", { class: "number" }, ` ${count(entity.depth[name.replaceAll("-", "_")])}`),
      ),
    ),
  );
}

function filterHint(entity, name, { session, partition }) {
  const only = [session !== "" && `session ${session}`, partition !== "" && `partition ${partition}`].filter(
    Boolean,
  );
  if (only.length === 0)
    return (
      entity.requires_session &&
      h(
        "p",
        { class: "hint" },
        "Messages of sessions are received by whoever holds the session, with an SDK.",
      )
    );
  return h(
    "p",
    { class: "hint" },
    `Only ${only.join(", ")}. `,
    h("a", { href: entityHref(entity.path, "explorer", { state: name }) }, "Show all"),
  );
}

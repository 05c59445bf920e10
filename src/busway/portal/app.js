// The shell: signing in, the list on the left, and which view an address opens.
import * as api from "./api.js";
import { h, replace, field, notice } from "./dom.js";
import { count } from "./format.js";
import * as live from "./live.js";
import * as namespace from "./views/namespace.js";
import * as entity from "./views/entity.js";
import * as stores from "./views/stores.js";
import * as connections from "./views/connections.js";
import * as keys from "./views/keys.js";
import * as captures from "./views/captures.js";

const PLACES = [
  ["", "Overview", namespace],
  ["stores", "Stores", stores],
  ["connections", "Connections", connections],
  ["keys", "Access keys", keys],
  ["captures", "Captures", captures],
];

const app = document.getElementById("app");
let leave = () => {};

function start() {
  if (!api.isSignedIn()) {
    showSignIn();
    return;
  }
  const main = h("main", { id: "main", tabindex: "-1" });
  const list = h("nav", { class: "entities", "aria-label": "Entities" });
  const search = h("input", {
    type: "search",
    placeholder: "Search entities",
    "aria-label": "Search entities",
    oninput: () => fillList(),
  });
  const title = h(
    "a",
    { class: "brand", href: "#/" },
    h("img", { src: "/portal/busway.svg", alt: "", width: 22, height: 22 }),
    h("span", { class: "name" }, "Busway"),
  );
  const state = h("span", { class: "state" });
  const places = h("nav", { class: "places", "aria-label": "Namespace" });
  const side = h(
    "details",
    { class: "side", open: matchMedia("(min-width: 800px)").matches },
    h("summary", {}, "Entities"),
    search,
    list,
  );
  replace(
    app,
    h(
      "header",
      {},
      title,
      places,
      state,
      h(
        "button",
        {
          class: "quiet",
          onclick: () => {
            live.stop();
            api.signOut();
            start();
          },
        },
        "Sign out",
      ),
    ),
    h("div", { class: "columns" }, side, main),
  );

  function fillList() {
    const found = live.latest;
    if (!found) return;
    const wanted = search.value.toLowerCase();
    const current = decodeURIComponent(location.hash.split("/")[2] || "");
    const item = (each) =>
      h(
        "a",
        {
          href: `#/entity/${encodeURIComponent(each.path)}`,
          class: each.type,
          "aria-current": each.path === current ? "page" : null,
        },
        h("span", { class: "path" }, each.type === "subscription" ? each.path.split("/").at(-1) : each.path),
        each.availability === "Limited" && h("span", { class: "badge bad" }, "Limited"),
        h("span", { class: "number" }, count(each.depth.messages)),
      );
    const shown = found.entities.filter((each) => each.path.toLowerCase().includes(wanted));
    const group = (name, kinds) => {
      const some = shown.filter((each) => kinds.includes(each.type));
      return some.length > 0 && h("section", {}, h("h2", {}, name), some.map(item));
    };
    replace(
      list,
      group("Queues", ["queue"]),
      group("Topics", ["topic", "subscription"]),
      shown.length === 0 &&
        h(
          "p",
          { class: "hint" },
          found.entities.length ? "No entity has that in its name." : "No entities yet.",
        ),
    );
  }

  function fillPlaces() {
    const current = location.hash.split("/")[1] || "";
    replace(
      places,
      PLACES.map(([name, label]) =>
        h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, label),
      ),
    );
  }

  function told(found, problem) {
    if (problem && problem.status === 401 && !api.ownEntity()) {
      live.stop();
      api.signOut();
      start();
      notice(problem.message, "error");
      return;
    }
    replace(
      state,
      problem
        ? h(
            "span",
            { class: "badge bad" },
            problem.status === 0 ? "not connected" : `error ${problem.status}`,
          )
        : h("span", { class: "badge good" }, "connected"),
      found && ` ${found.namespace} · ${found.tier}`,
    );
    fillList();
  }

  async function show() {
    leave();
    leave = () => {};
    fillPlaces();
    fillList();
    const [place = "", ...rest] = location.hash
      .replace(/^#\//, "")
      .split("?")[0]
      .split("/")
      .map(decodeURIComponent);
    const query = new URLSearchParams(location.hash.split("?")[1] || "");
    const view = place === "entity" ? entity : (PLACES.find(([name]) => name === place) || PLACES[0])[2];
    if (place === "entity" && matchMedia("(max-width: 799px)").matches) side.open = false;
    const page = h("div", {});
    replace(main, page);
    document.title = place === "entity" ? `${rest[0]} · Busway` : "Busway";
    try {
      leave = (await view.show(page, rest, query)) || (() => {});
    } catch (error) {
      replace(
        page,
        h("h1", {}, "This cannot be shown"),
        h("p", { class: "problem", role: "alert" }, error.message),
        h("p", {}, h("a", { href: "#/" }, "Back to the overview")),
      );
    }
  }

  window.onhashchange = show;
  if (api.ownEntity() && !location.hash)
    location.hash = `#/entity/${encodeURIComponent(api.ownEntity())}/explorer`;
  live.listen(told);
  show();
}

function showSignIn() {
  window.onhashchange = null;
  const secret = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert" });
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        problem.textContent = "";
        try {
          api.signIn(secret.value);
          await (api.ownEntity()
            ? api.get(`${api.explorer(api.ownEntity())}/messages?count=1`)
            : api.get("/$busway/entities?top=1"));
          start();
        } catch (error) {
          api.signOut();
          problem.textContent =
            error.status === 401
              ? `${error.message} Is it the connection string of this server?`
              : error.message;
        }
      },
    },
    h("img", { src: "/portal/busway.svg", alt: "", width: 44, height: 44 }),
    h("h1", {}, "Busway"),
    field(
      "Connection string, or key",
      secret,
      "The command busway connection-string prints one. It stays in this tab.",
    ),
    problem,
    h("button", { class: "primary" }, "Sign in"),
  );
  replace(app, h("main", { id: "main", class: "sign-in" }, form));
  secret.focus();
}

start();

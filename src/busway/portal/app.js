// The shell: which view an address opens, and what is around it.
import * as api from "./api.js";
import { h, replace, redraw, badge, problem as shownProblem } from "./dom.js";
import { notice } from "./dialogs.js";
import * as live from "./live.js";
import { entityList } from "./entity_list.js";
import { showSignIn } from "./sign_in.js";
import * as namespace from "./views/namespace.js";
import * as entity from "./views/entity.js";
import * as health from "./views/health.js";
import * as connections from "./views/connections.js";
import * as keys from "./views/keys.js";
import * as captures from "./views/captures.js";

const PLACES = [
  ["", "Entities", namespace],
  ["health", "Health", health],
  ["connections", "Connections", connections],
  ["keys", "Access keys", keys],
  ["captures", "Captures", captures],
];

const app = document.getElementById("app");
let leave = () => {};

function start() {
  if (!api.isSignedIn()) {
    showSignIn(app, start);
    return;
  }
  const main = h("main", { id: "main", tabindex: "-1" });
  const state = h("div", { class: "state" });
  const places = h("nav", { class: "places", "aria-label": "Namespace" });
  const list = entityList();
  replace(
    app,
    h(
      "header",
      {},
      h(
        "a",
        { class: "brand", href: "#/" },
        h("img", { src: "/portal/busway.svg", alt: "", width: 22, height: 22 }),
        "Busway",
      ),
      places,
      state,
      h("button", { class: "quiet", onclick: signOut }, "Sign out"),
    ),
    h("div", { class: "columns" }, list.element, main),
  );

  function fillPlaces(current) {
    redraw(
      places,
      PLACES.map(([name, label]) =>
        h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, label),
      ),
    );
  }

  function told(found, problem) {
    if (problem?.status === 401 && !api.ownEntity()) {
      signOut();
      notice(problem.message, "error");
      return;
    }
    redraw(
      state,
      problem
        ? badge("bad", problem.status === 0 ? "not connected" : `error ${problem.status}`)
        : badge("good", "connected"),
      found && h("span", { class: "where" }, `${found.namespace} · ${found.tier}`),
    );
    list.fill(found);
  }

  async function show() {
    leave();
    leave = () => {};
    const { place, rest, query } = address();
    const view = place === "entity" ? entity : (PLACES.find(([name]) => name === place) || PLACES[0])[2];
    fillPlaces(place);
    list.fill(live.latest);
    list.chosen(place === "entity");
    const focused = document.activeElement?.getAttribute("href");
    const page = h("div", {});
    replace(main, page);
    document.title = place === "entity" ? `${rest[0]} · Busway` : "Busway";
    try {
      const left = (await view.show(page, rest, query)) || (() => {});
      if (page.isConnected) leave = left;
      else left(); // somebody has gone on meanwhile
    } catch (error) {
      replace(
        page,
        h("h1", {}, "This cannot be shown"),
        shownProblem(error),
        h("p", {}, h("a", { href: "#/" }, "Back to the entities")),
      );
    }
    keepFocus(main, focused);
  }

  window.onhashchange = show;
  if (api.ownEntity() && !location.hash)
    location.hash = `#/entity/${encodeURIComponent(api.ownEntity())}/explorer`;
  live.listen(told);
  show();
}

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [place = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { place, rest, query: new URLSearchParams(query || "") };
}

// Who used the keyboard on a link goes on at the same link, or at the beginning of the new page.
function keepFocus(main, href) {
  if (document.activeElement !== document.body) return;
  const same = href && [...main.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
  (same || main).focus({ preventScroll: true });
}

function signOut() {
  leave();
  leave = () => {};
  live.stop();
  api.signOut();
  window.onhashchange = null;
  history.replaceState(null, "", "/portal/");
  document.title = "Busway";
  for (const open of document.querySelectorAll("dialog")) open.close();
  document.getElementById("notices").replaceChildren();
  start();
}

// A link to "#main" would be an address of its own.
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
};

document.onkeydown = (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.querySelector(".side")?.setAttribute("open", "");
  document.querySelector(".side input")?.focus();
};

start();

// The first page: a connection string or a key, which stays in this tab.
import * as api from "./api.js";
import { h, replace, field } from "./dom.js";

export function showSignIn(app, done) {
  window.onhashchange = null;
  const secret = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert" });

  async function submit(event) {
    event.preventDefault();
    problem.textContent = "";
    try {
      api.signIn(secret.value);
      await (api.ownEntity()
        ? api.get(`${api.pathOf(api.ownEntity())}/$explorer/messages?count=1`)
        : api.get("/$busway/entities?top=1"));
    } catch (error) {
      api.signOut();
      const hint = error.status === 401 ? " Is it the connection string of this server?" : "";
      problem.textContent = error.message + hint;
      return;
    }
    done();
  }

  replace(
    app,
    h(
      "main",
      { id: "main", class: "sign-in", tabindex: "-1" },
      h(
        "form",
        { onsubmit: submit },
        h("img", { src: "/portal/busway.svg", alt: "", width: 44, height: 44 }),
        h("h1", {}, "Busway"),
        field("Connection string, or key", secret, [
          "In the folder of the server, ",
          h("code", {}, "busway connection-string"),
          " prints it. It stays in this tab, and is gone when you sign out or close it.",
        ]),
        problem,
        h("button", { class: "primary" }, "Sign in"),
      ),
    ),
  );
  secret.focus();
}

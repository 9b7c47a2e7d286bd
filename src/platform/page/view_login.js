// Log in with a token.
import { Refused, ask, session } from "./api.js";
import { h, render } from "./dom.js";

export function show_login(root) {
  let trouble = session.why;
  let is_busy = false;

  async function log_in(event) {
    event.preventDefault();
    const field = root.querySelector("#token");
    const token = field.value.trim();
    if (!token) {
      field.focus();
      return;
    }
    is_busy = true;
    draw();
    try {
      await ask("/v1/me", { token });
      session.why = "";
      session.begin(token);
    } catch (error) {
      is_busy = false;
      trouble = error instanceof Refused && error.status === 401 ? "The server does not know this token." : error.message;
      draw();
      field.select();
    }
  }

  function draw() {
    render(
      root,
      h(
        "form",
        { class: "login", onsubmit: log_in },
        h("h1", null, h("span", { class: "brand-mark", "aria-hidden": "true" }), "tesser"),
        h("label", { for: "token" }, "Your token"),
        h("input", {
          id: "token",
          type: "password",
          autocomplete: "off",
          spellcheck: "false",
          autocapitalize: "off",
          "aria-describedby": "token-help",
          "aria-invalid": trouble ? "true" : null,
          mount: (node) => queueMicrotask(() => node.focus()),
        }),
        trouble ? h("p", { class: "error-box", role: "alert" }, trouble) : null,
        h("button", { type: "submit", class: "primary", disabled: is_busy }, is_busy ? "Logging in…" : "Log in"),
        h(
          "p",
          { id: "token-help", class: "muted" },
          "An administrator gives tokens; whoever runs the server has one in ",
          h("code", null, "admin.token"),
          " in its data directory. It is kept for this tab alone, until you log out or close it.",
        ),
      ),
    );
  }
  draw();
  return () => {};
}

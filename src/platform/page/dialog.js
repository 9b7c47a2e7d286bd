// Asking before something is done, and saying when it was refused.
import { Away } from "./api.js";
import { notice } from "./components.js";
import { h, render } from "./dom.js";

/** Does something that changes the cluster; `changed()` is called when the server has taken it. */
export async function act(request, changed) {
  try {
    await request();
    changed();
  } catch (error) {
    notice(error instanceof Away ? "The server does not answer; nothing was changed." : error.message, "wrong");
  }
}

/** Asks; gives the values of the form, or null. */
export function dialog({ title, text, action, field, is_dangerous = false }) {
  return new Promise((resolve) => {
    const node = document.createElement("dialog");
    node.setAttribute("aria-labelledby", "dialog-title");
    render(
      node,
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "dialog-title" }, title),
        h("p", null, text),
        field
          ? h("p", { class: "field" }, h("label", { for: "dialog-field" }, field.label), h("input", { ...field, label: null, id: "dialog-field", required: true }))
          : null,
        h(
          "div",
          { class: "actions" },
          h("button", { type: "submit", value: "", formnovalidate: true }, "Cancel"),
          h("button", { type: "submit", value: "yes", class: is_dangerous ? "danger filled" : "primary" }, action),
        ),
      ),
    );
    node.addEventListener("close", () => {
      const values = field ? { [field.name]: node.querySelector("#dialog-field").value } : {};
      node.remove();
      resolve(node.returnValue === "yes" ? values : null);
    });
    document.body.append(node);
    node.showModal();
  });
}

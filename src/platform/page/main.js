// The frame around the views: who is logged in, where one is, whether the server answers.
import { Refused, ask, connection, session } from "./api.js";
import { icon } from "./components.js";
import { h, render } from "./dom.js";
import { clock } from "./format.js";
import { NOBODY, role_words } from "./me.js";
import { show_cluster } from "./view_cluster.js";
import { show_job } from "./view_job.js";
import { show_jobs } from "./view_jobs.js";
import { show_login } from "./view_login.js";
import { show_queue } from "./view_queue.js";

const page = document.getElementById("page");
const PLACES = [
  ["jobs", "Jobs", "jobs"],
  ["queue", "Queue", "queue"],
  ["cluster", "Cluster", "cluster"],
];

let stop = () => {};
let shown = ""; // which view, of whom
let me = null;

/** `#/jobs/ID?state=...` as its parts. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  let id = "";
  try {
    id = decodeURIComponent(rest.join("/"));
  } catch {
    // not an address of ours
  }
  return { view: view || "jobs", id, query: new URLSearchParams(query) };
}

function draw_frame(view) {
  render(
    page,
    h("a", { class: "skip", href: "#main", onclick: skip_to_main }, "Skip to the content"),
    session.token ? header(view) : null,
    connection.is_away ? away_bar() : null,
    h("main", { key: "main", id: "main", tabindex: "-1", mount: () => {} }),
  );
}

function skip_to_main(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function header(view) {
  return h(
    "header",
    { key: "top", class: "top" },
    h("a", { class: "brand", href: "#/jobs" }, h("span", { class: "brand-mark", "aria-hidden": "true" }), "tesser"),
    h(
      "nav",
      { "aria-label": "Views" },
      PLACES.map(([name, title, drawing]) =>
        h(
          "a",
          { href: `#/${name}`, "aria-current": view === name ? "page" : null },
          icon(drawing),
          h("span", null, title),
        ),
      ),
    ),
    h(
      "details",
      { class: "person" },
      h("summary", { "aria-label": "Who is logged in" }, icon("person"), h("span", null, me?.user ?? "")),
      h(
        "div",
        { class: "menu" },
        me ? h("p", null, h("strong", null, me.user), h("br"), role_words(me)) : null,
        h("button", { type: "button", onclick: () => session.end() }, "Log out"),
      ),
    ),
  );
}

function away_bar() {
  return h(
    "p",
    { key: "away", class: "away", role: "alert" },
    `The server does not answer since ${clock(connection.since)}. What is shown may be old; this page goes on by itself when it is back.`,
  );
}

async function find_me() {
  try {
    me = await ask("/v1/me");
  } catch (error) {
    if (!(error instanceof Refused)) {
      me = null; // asked again when the server is back
    }
  }
}

async function go() {
  const { view, id, query } = place();
  if (session.token && !me) {
    await find_me();
  }
  const wanted = session.token ? `${view} ${id}` : "login";
  draw_frame(view);
  if (wanted === shown && view !== "jobs") {
    return;
  }
  const is_same_view = wanted === shown;
  shown = wanted;
  const main = document.getElementById("main");
  if (is_same_view && stop.moved) {
    stop.moved(query);
    return;
  }
  stop();
  render(main);
  const context = { me: () => me ?? NOBODY };
  if (!session.token) {
    document.title = "Log in · tesser";
    stop = show_login(main);
  } else if (view === "jobs" && id) {
    stop = show_job(main, id, context);
  } else if (view === "queue") {
    stop = show_queue(main, context);
  } else if (view === "cluster") {
    stop = show_cluster(main, context);
  } else {
    stop = show_jobs(main, query, context);
  }
  scrollTo(0, 0);
}

// Menus close when one does something else.
addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details[open]")) {
    if (!menu.contains(event.target)) {
      menu.open = false;
    }
  }
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const menu = document.querySelector("details[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
});
addEventListener("hashchange", go);
session.addEventListener("change", () => {
  me = null;
  shown = "";
  go();
});
connection.addEventListener("change", () => draw_frame(place().view));
connection.addEventListener("back", async () => {
  if (!me && session.token) {
    await find_me();
    draw_frame(place().view);
  }
});
go();

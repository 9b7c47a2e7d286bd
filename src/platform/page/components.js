// Pieces that several views are made of.
import { Away, Refused, connection } from "./api.js";
import { h } from "./dom.js";
import { full_time, moment, percent, relative } from "./format.js";
import { group_of, is_running, state_meaning, state_word } from "./states.js";

export function state_chip(state) {
  return h("span", { class: `chip ${group_of(state)}`, title: `${state}: ${state_meaning(state)}` }, state_word(state));
}

/** Of a job that runs beyond its team's quota, on what others do not use now. */
export function borrowed_tag() {
  return h("span", { class: "tag", title: "Beyond its team's quota: it gives its places back when their owners need them" }, "borrowed");
}

export const job_address = (id) => `#/jobs/${encodeURIComponent(id)}`;

export function job_link(id, attributes) {
  return h("a", { href: job_address(id), class: "job-link", ...attributes }, id);
}

/** A time, shown as how long ago it was. */
export function ago(time) {
  return time ? h("time", { datetime: time, title: full_time(time) }, relative(time)) : "–";
}

export function at(time) {
  return time ? h("time", { datetime: time, title: full_time(time) }, moment(time)) : "–";
}

/** A bar that is filled by a share; `text` says the same to those who do not see it. */
export function meter(share, text, kind = "") {
  return h(
    "span",
    { class: `meter ${kind}`, role: "img", "aria-label": text, title: text },
    h("span", { style: { width: `${100 * Math.min(1, Math.max(0, share))}%` } }),
  );
}

export function progress_of(job) {
  const { step, steps } = job.progress ?? {};
  return Number.isFinite(step) && steps > 0 ? Math.min(1, step / steps) : null;
}

export function progress_text(job) {
  const share = progress_of(job);
  return share === null ? "" : percent(share);
}

/** A bar of how far a job is; null where nobody knows. */
export function progress_meter(job) {
  const share = progress_of(job);
  return share === null ? null : meter(share, `${progress_text(job)} of its steps`, is_running(job.state) ? "" : "quiet");
}

/** What went wrong, in the server's words. That it is away is said above all views. */
export function error_box(error) {
  if (!error || (error instanceof Away && connection.is_away)) {
    return null;
  }
  const what =
    error instanceof Away
      ? "The server does not answer."
      : error instanceof Refused
        ? error.message
        : "Something is wrong with this page; loading it again may help.";
  return h(
    "p",
    { class: "error-box", role: "alert" },
    what,
    error.code ? h("span", { class: "code" }, error.code) : null,
  );
}

export function empty(title, ...text) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, text));
}

export const loading = () => h("p", { class: "loading" }, "Loading…");

/** Icons: a line drawing of ours for each name, 16 by 16. */
const PATHS = {
  halt: "M5 3.5v9M11 3.5v9",
  resume: "M4.5 3l8 5-8 5z",
  delete: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  download: "M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10",
  down: "M8 3v9.5M4 8.5l4 4 4-4",
  jobs: "M3 4h10M3 8h10M3 12h10",
  queue: "M3 3.5h5M3 8h8M3 12.5h10",
  cluster: "M2.5 2.5h4.6v4.6H2.5zM8.9 2.5h4.6v4.6H8.9zM2.5 8.9h4.6v4.6H2.5zM8.9 8.9h4.6v4.6H8.9z",
  person: "M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8zM3 13.5c.6-2.6 2.5-3.8 5-3.8s4.4 1.2 5 3.8",
};

export function icon(name) {
  return h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: PATHS[name] }));
}

/** Says something in passing. */
export function notice(text, kind = "") {
  const node = document.createElement("p");
  node.textContent = text;
  node.className = `notice ${kind}`;
  document.getElementById("notices").append(node);
  setTimeout(() => node.remove(), kind === "wrong" ? 12_000 : 5_000);
}

// What one may do with a job: halt, resume, delete, download.
import { ask, download, job_path } from "./api.js";
import { icon, notice } from "./components.js";
import { act, dialog } from "./dialog.js";
import { h } from "./dom.js";
import { bytes } from "./format.js";
import { is_final, is_over } from "./states.js";

const DOWNLOADS = [
  ["results", "Results"],
  ["checkpoints", "Newest checkpoint"],
  ["definition", "Code as submitted"],
];

/** Buttons for a job. `changed()` is called when the server has taken something. */
export function job_actions(job, { may_change, changed }) {
  const is_halting = job.wanted !== "run";
  const can_halt = may_change && !is_over(job.state) && !is_halting;
  const can_resume = may_change && job.state === "HALTED" && job.wanted !== "delete";
  return h(
    "div",
    { class: "actions" },
    can_halt
      ? h("button", { type: "button", onclick: () => halt(job, changed), key: "halt" }, icon("halt"), "Halt")
      : null,
    can_resume
      ? h(
          "button",
          { type: "button", class: "primary", onclick: () => resume(job, changed), key: "resume" },
          icon("resume"),
          "Resume",
        )
      : null,
    h(
      "details",
      { class: "menu-button", key: "download" },
      h("summary", null, icon("download"), "Download"),
      h(
        "div",
        { class: "menu" },
        DOWNLOADS.map(([what, title]) =>
          h(
            "button",
            {
              type: "button",
              onclick: (event) => {
                event.currentTarget.closest("details").open = false;
                fetch_file(job.id, what, title);
              },
            },
            title,
          ),
        ),
      ),
    ),
    may_change && job.wanted !== "delete"
      ? h(
          "button",
          { type: "button", class: "danger", onclick: () => remove(job, changed), key: "delete" },
          icon("delete"),
          "Delete",
        )
      : null,
  );
}

async function halt(job, changed) {
  const sure = await dialog({
    title: `Halt ${job.id}?`,
    text: "Its learners are told to end and its places are given back. Checkpoints stay, and it can be resumed from the newest.",
    action: "Halt",
  });
  if (sure) {
    await act(() => ask(job_path(job.id), { method: "PATCH", body: { wanted: "halt" } }), changed);
  }
}

async function resume(job, changed) {
  const given = await dialog({
    title: `Resume ${job.id}?`,
    text: "It waits for places again and goes on from its newest checkpoint.",
    action: "Resume",
    field: {
      name: "learners",
      label: "Learners",
      type: "number",
      min: "1",
      max: "10000",
      value: String(job.learners_wanted),
    },
  });
  if (given) {
    const learners = Number(given.learners);
    await act(() => ask(job_path(job.id), { method: "PATCH", body: { wanted: "run", learners } }), changed);
  }
}

async function remove(job, changed) {
  const sure = await dialog({
    title: `Delete ${job.id}?`,
    text: is_final(job.state)
      ? "Its log, curves, checkpoints and results are removed with it. This cannot be undone."
      : "It is ended first. Its log, curves, checkpoints and results are removed with it. This cannot be undone.",
    action: "Delete",
    is_dangerous: true,
  });
  if (sure) {
    await act(() => ask(job_path(job.id), { method: "DELETE" }), changed);
  }
}

async function fetch_file(id, what, title) {
  const progress = document.createElement("p");
  const words = document.createElement("span");
  const cancel = document.createElement("button");
  const stop = new AbortController();
  progress.className = "notice";
  words.textContent = `${title}: beginning`;
  cancel.type = "button";
  cancel.textContent = "Cancel";
  cancel.onclick = () => stop.abort();
  progress.append(words, cancel);
  document.getElementById("notices").append(progress);
  try {
    const count = await download(job_path(id, `/${what}`), `${id}-${what}.tar`, {
      progress: (count) => (words.textContent = `${title}: ${bytes(count)}`),
      signal: stop.signal,
    });
    notice(`${title}: ${bytes(count)} downloaded.`);
  } catch (error) {
    if (error.name !== "AbortError") {
      notice(`${title}: ${error.message}`, "wrong");
    }
  }
  progress.remove();
}

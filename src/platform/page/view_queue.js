// Who waits, in the order of the queue, and for what.
import { ask } from "./api.js";
import { ago, borrowed_tag, empty, error_box, job_link, loading } from "./components.js";
import { h, render } from "./dom.js";
import { duration, full_time, plural, resources, whole } from "./format.js";
import { repeat } from "./repeat.js";

const EVERY = 3000;
const ON_A_PAGE = 100;

export function show_queue(root) {
  let jobs = null;
  let waiting = 0;
  let next = "";
  let limit = ON_A_PAGE;
  let error = null;
  document.title = "Queue · tesser";

  const poll = repeat(
    async (signal) => {
      ({ jobs, next, waiting } = await ask("/v1/queue", { query: { limit }, signal }));
      error = null;
      draw();
    },
    { every: EVERY, failed: (what) => ((error = what), draw()) },
  );
  const ticking = setInterval(draw, 1000);

  function draw() {
    document.title = jobs?.length ? `Queue (${whole(waiting)}) · tesser` : "Queue · tesser";
    render(
      root,
      h(
        "div",
        { class: "title-row" },
        h("h1", null, "Queue"),
        jobs?.length ? h("p", { class: "muted" }, `${plural(waiting, "job")} wait${waiting === 1 ? "s" : ""} for places`) : null,
      ),
      error_box(error),
      jobs === null
        ? error
          ? null
          : loading()
        : jobs.length > 0
          ? h("ol", { class: "queue" }, jobs.map(entry))
          : empty("Nobody waits.", "Every job that was submitted has its places or is over."),
      next
        ? h(
            "p",
            { class: "pages" },
            h("button", { type: "button", onclick: () => ((limit = Math.min(1000, limit * 2)), poll.now()) }, "Show more"),
          )
        : null,
    );
  }

  draw();
  return () => {
    poll.stop();
    clearInterval(ticking);
  };
}

function entry(job) {
  return h(
    "li",
    { key: job.id },
    h("span", { class: "place", title: "Place in the queue" }, job.place_in_queue > 0 ? whole(job.place_in_queue) : "–"),
    h(
      "div",
      { class: "queue-job" },
      h(
        "p",
        { class: "queue-head" },
        job_link(job.id),
        job.is_borrowed ? borrowed_tag() : null,
        job.state === "RESUMED" ? h("span", { class: "tag" }, "resumed") : null,
      ),
      h("p", { class: "reason" }, job.reason || "The scheduler has not looked at it yet."),
      h(
        "p",
        { class: "muted" },
        [job.team, job.user, `priority ${job.priority}`].filter(Boolean).join(" · "),
      ),
    ),
    h(
      "div",
      { class: "queue-needs" },
      h("span", null, needs(job)),
      h("span", { class: "muted" }, "waits since ", ago(job.changed)),
    ),
    h("div", { class: "queue-start" }, start(job)),
  );
}

function needs(job) {
  return job.learners_wanted > 1 ? `${whole(job.learners_wanted)} × ${resources(job.each)}` : resources(job.each);
}

function start(job) {
  if (!job.starts_by) {
    return h("span", { class: "muted" }, "start unknown");
  }
  const left = Date.parse(job.starts_by) - Date.now();
  return [
    h("span", { class: "muted" }, "starts by"),
    h("time", { datetime: job.starts_by, title: full_time(job.starts_by) }, left > 0 ? `in ${duration(left)}` : "any moment"),
  ];
}

// All jobs, newest first: what runs, what waits and why, what has ended.
import { ask } from "./api.js";
import { ago, borrowed_tag, empty, error_box, job_link, loading, progress_meter, state_chip } from "./components.js";
import { h, render } from "./dom.js";
import { duration, plural, resources, whole } from "./format.js";
import { repeat } from "./repeat.js";
import { GROUPS, is_over, is_running, is_waiting } from "./states.js";
import { summary } from "./summary.js";

const EVERY = 2000;
const ON_A_PAGE = 50;
const FILTERS = [
  ["", "All"],
  ["running", "Running"],
  ["waiting", "Waiting"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["halted", "Halted"],
];

export function show_jobs(root, query, context) {
  let filter = filter_of(query);
  let jobs = null;
  let next = "";
  let overview = { nodes: null, teams: null };
  let error = null;
  let typing = 0;
  document.title = "Jobs · tesser";

  function filter_of(parameters) {
    return {
      group: parameters.get("state") in GROUPS ? parameters.get("state") : "",
      team: parameters.get("team") ?? "",
      text: parameters.get("text") ?? "",
      after: parameters.get("after") ?? "",
    };
  }

  function take(wanted) {
    if (wanted.after !== filter.after || wanted.group !== filter.group || wanted.team !== filter.team) {
      jobs = null;
    }
    filter = wanted;
    draw();
  }

  function set_filter(change) {
    // At once: another change may come before the browser says that the address is another.
    take({ ...filter, after: "", ...change });
    const parameters = new URLSearchParams();
    for (const [name, value] of [
      ["state", filter.group],
      ["team", filter.team],
      ["text", filter.text],
      ["after", filter.after],
    ]) {
      if (value) {
        parameters.set(name, value);
      }
    }
    const text = parameters.toString();
    location.hash = text ? `#/jobs?${text}` : "#/jobs";
  }

  const poll = repeat(
    async (signal) => {
      const asked = filter;
      const answer = await ask("/v1/jobs", {
        query: {
          state: asked.group ? GROUPS[asked.group].join(",") : "",
          team: asked.team,
          text: asked.text.trim(),
          after: asked.after,
          limit: ON_A_PAGE,
        },
        signal,
      });
      if (asked === filter) {
        ({ jobs, next } = answer);
        error = null;
        draw();
      }
    },
    { every: EVERY, failed: (what) => ((error = what), draw()) },
  );
  const poll_overview = repeat(
    async (signal) => {
      const [quota, nodes] = await Promise.all([ask("/v1/quota", { signal }), ask("/v1/nodes", { signal })]);
      overview = { teams: quota.teams, nodes: nodes.nodes };
      draw();
    },
    { every: 4000 },
  );
  const ticking = setInterval(draw, 1000);

  function draw() {
    render(
      root,
      h("div", { class: "title-row" }, h("h1", null, "Jobs")),
      summary(overview, context.me()),
      filters(),
      error_box(error),
      jobs === null ? (error ? null : loading()) : jobs.length > 0 ? table(jobs) : nothing(),
      pages(),
    );
  }

  function filters() {
    const teams = [...new Set((overview.teams ?? []).map((team) => team.team).concat(filter.team || []))].sort();
    return h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h(
        "fieldset",
        { class: "segments" },
        h("legend", { class: "unseen" }, "State"),
        FILTERS.map(([group, title]) =>
          h(
            "label",
            { class: filter.group === group ? "chosen" : "" },
            h("input", {
              type: "radio",
              name: "state",
              value: group,
              checked: filter.group === group,
              onchange: () => set_filter({ group }),
            }),
            title,
          ),
        ),
      ),
      teams.length > 1
        ? h(
            "select",
            { "aria-label": "Team", value: filter.team, onchange: (event) => set_filter({ team: event.target.value }) },
            h("option", { value: "" }, "All teams"),
            teams.map((team) => h("option", { value: team, key: team }, team)),
          )
        : null,
      h("input", {
        type: "search",
        "aria-label": "Text in the name, description or user",
        placeholder: "Name, description or user",
        oninput: (event) => {
          clearTimeout(typing);
          typing = setTimeout(() => set_filter({ text: event.target.value }), 250);
        },
        update: (node) => {
          if (node !== document.activeElement && node.value !== filter.text) {
            node.value = filter.text; // from the address, or nothing
          }
        },
      }),
    );
  }

  function nothing() {
    const is_filtered = filter.group || filter.team || filter.text;
    return is_filtered
      ? empty(
          "No job is like that.",
          h("button", { type: "button", onclick: () => set_filter({ group: "", team: "", text: "" }) }, "Show all jobs"),
        )
      : empty("There are no jobs yet.", "Submit one with ", h("code", null, "tesser submit job.yaml"), ".");
  }

  function pages() {
    if (!next && !filter.after) {
      return null;
    }
    return h(
      "nav",
      { class: "pages", "aria-label": "Pages" },
      h("button", { type: "button", disabled: !filter.after, onclick: () => set_filter({}) }, "Newest"),
      h("button", { type: "button", disabled: !next, onclick: () => set_filter({ after: next }) }, "Older"),
    );
  }

  function stop() {
    poll.stop();
    poll_overview.stop();
    clearInterval(ticking);
    clearTimeout(typing);
  }
  stop.moved = (parameters) => {
    take(filter_of(parameters));
    poll.now();
  };
  draw();
  return stop;
}

function table(jobs) {
  return h(
    "table",
    { class: "jobs" },
    h("caption", { class: "unseen" }, "Jobs, newest first"),
    h(
      "thead",
      null,
      h("tr", null, ["Job", "State", "Progress", "Learners", "Team", "Time"].map((title) => h("th", { scope: "col" }, title))),
    ),
    h("tbody", null, jobs.map(row)),
  );
}

function row(job) {
  return h(
    "tr",
    { key: job.id },
    h(
      "td",
      { class: "job-cell" },
      job_link(job.id),
      job.description ? h("span", { class: "description" }, job.description) : null,
    ),
    h("td", { class: "state-cell" }, state_chip(job.state), job.is_borrowed ? borrowed_tag() : null, wish(job), reason(job)),
    h("td", { class: "progress-cell" }, progress(job)),
    h(
      "td",
      { class: "learners-cell" },
      h("span", null, job.learners_wanted > 1 ? `${whole(job.learners_wanted)} × ` : ""),
      resources(job.each),
    ),
    h("td", { class: "team-cell" }, h("span", null, job.team), h("span", { class: "muted" }, job.user)),
    h("td", { class: "time-cell" }, time(job)),
  );
}

function wish(job) {
  const text =
    job.wanted === "delete" ? "being deleted" : job.wanted === "halt" && !is_over(job.state) ? "being halted" : "";
  return text ? h("span", { class: "wish" }, text) : null;
}

function reason(job) {
  const place = job.place_in_queue > 0 ? `Place ${whole(job.place_in_queue)}: ` : "";
  const text = is_waiting(job.state) ? place + job.reason : job.state === "FAILED" ? job.reason : "";
  return text ? h("span", { class: "reason", title: text }, text) : null;
}

function progress(job) {
  if (!job.progress || !Number.isFinite(job.progress.step)) {
    return null;
  }
  const { step, steps, seconds_left } = job.progress;
  const left = seconds_left !== null && is_running(job.state) ? `${duration(1000 * seconds_left)} left` : "";
  return [
    progress_meter(job),
    h(
      "span",
      { class: "muted" },
      [steps ? `${whole(step)} of ${whole(steps)}` : plural(step, "step"), left].filter(Boolean).join(" · "),
    ),
  ];
}

function time(job) {
  const begin = Date.parse(job.started ?? "");
  const ran = job.started ? duration(Date.parse(job.ended ?? "") - begin || Date.now() - begin) : "";
  return [
    h("span", null, ran ? `${is_running(job.state) ? "runs" : "ran"} ${ran}` : is_waiting(job.state) ? "waits" : "–"),
    h("span", { class: "muted" }, "submitted ", ago(job.submitted)),
  ];
}

// A job's curves: one chart for each kind of figure, the losses first; they grow as the job goes on.
import { ask, job_path } from "./api.js";
import { Chart } from "./chart.js";
import { empty, error_box } from "./components.js";
import { h, render } from "./dom.js";
import { value, whole } from "./format.js";
import { repeat } from "./repeat.js";
import { Curve } from "./thinning.js";

const POINTS = 250; // stretches of a curve that the server is asked for
const STRETCHES = 1000; // that are kept of it here, which takes what comes later as it is
const EVERY = 2000;
const LEARNERS_AT_ONCE = 8;
const A_PAGE = 10_000;

/** Shows the curves of a job in an element; `is_over()` says whether nothing more comes. Gives `stop` and `look`. */
export function metrics_panel(root, id, { is_over, learners }) {
  let curves = new Map(); // by name and learner
  let cursor = null;
  let error = null;
  let has_all = false;
  let learner = learners() > LEARNERS_AT_ONCE ? "0" : "";
  let by_time = false;
  let smoothing = 0;
  let range = null;
  let begin = null; // the first time, in milliseconds
  const logs = new Set(); // charts with a logarithmic scale
  const charts = new Map(); // by kind
  let poll = start();

  function start() {
    return repeat(
      async (signal) => {
        const is_first = cursor === null;
        const answer = await ask(job_path(id, "/metrics"), {
          query: is_first ? { learner, points: POINTS } : { learner, cursor, limit: A_PAGE },
          signal,
        });
        ({ cursor } = answer);
        take(answer.metrics);
        const was_complete = has_all;
        has_all = answer.metrics.length === 0 || is_first;
        const is_new = answer.metrics.length > 0 || error !== null || is_first || was_complete !== has_all;
        error = null;
        if (is_new) {
          draw();
        }
        return !(answer.ended && is_over());
      },
      { every: () => (has_all ? EVERY : 100), failed: (what) => ((error = what), draw()) },
    );
  }

  function again(change) {
    change();
    curves = new Map();
    cursor = null;
    begin = null;
    range = null;
    poll.stop();
    poll = start();
    draw();
  }

  function take(metrics) {
    for (const metric of metrics) {
      const key = `${metric.learner}\n${metric.name}`;
      let found = curves.get(key);
      if (!found) {
        found = { name: metric.name, learner: metric.learner, curve: new Curve(STRETCHES) };
        curves.set(key, found);
      }
      const time = Date.parse(metric.time);
      begin = begin === null ? time : Math.min(begin, time);
      found.curve.add({ step: metric.step, time, y: metric.value, x: metric.step });
    }
  }

  function read(x, kind) {
    for (const [each, { chart }] of charts) {
      chart.read(x, each === kind);
    }
  }

  function draw() {
    const kinds = kinds_of([...curves.values()]);
    render(
      root,
      h(
        "div",
        { class: "section-head" },
        h("h2", { id: "curves-title" }, "Curves"),
        kinds.length > 0 ? tools() : null,
      ),
      error_box(error),
      kinds.length > 0
        ? h("div", { class: "charts" }, kinds.map((kind, i) => panel(kind, i === 0)))
        : error
          ? null
          : empty(
              cursor === null ? "Loading…" : is_over() ? "This job gave no metrics." : "No metrics yet.",
              cursor === null
                ? null
                : ["A manifest's ", h("code", null, "metrics"), " say how the platform finds them in logs and files."],
            ),
    );
    for (const kind of charts.keys()) {
      if (!kinds.some((each) => each.kind === kind)) {
        charts.get(kind).chart.stop();
        charts.delete(kind);
      }
    }
  }

  function tools() {
    const count = learners();
    return h(
      "div",
      { class: "tools" },
      range ? h("button", { type: "button", onclick: () => set_range(null) }, "Whole run") : null,
      count > 1
        ? h(
            "select",
            {
              "aria-label": "Learners",
              value: learner,
              onchange: (event) => again(() => (learner = event.target.value)),
            },
            count <= LEARNERS_AT_ONCE ? h("option", { value: "" }, "All learners") : null,
            Array.from({ length: Math.min(count, 1000) }, (_, rank) => h("option", { value: String(rank) }, `Learner ${rank}`)),
          )
        : null,
      h(
        "label",
        { class: "slider" },
        "Smooth",
        h("input", {
          type: "range",
          min: "0",
          max: "0.98",
          step: "0.02",
          value: String(smoothing),
          oninput: (event) => ((smoothing = Number(event.target.value)), draw()),
        }),
      ),
      h(
        "fieldset",
        { class: "segments" },
        h("legend", { class: "unseen" }, "Across"),
        [
          [false, "Steps"],
          [true, "Time"],
        ].map(([is_time, title]) =>
          h(
            "label",
            { class: by_time === is_time ? "chosen" : "" },
            h("input", {
              type: "radio",
              name: "across",
              checked: by_time === is_time,
              onchange: () => ((by_time = is_time), (range = null), draw()),
            }),
            title,
          ),
        ),
      ),
    );
  }

  function set_range(wanted) {
    range = wanted;
    draw();
  }

  function panel({ kind, curves: list }, is_first) {
    const is_log = logs.has(kind);
    const has_positive = list.some(({ curve }) => curve.highest && curve.highest.y > 0);
    return h(
      "figure",
      { key: kind, class: is_first ? "first" : "" },
      h(
        "figcaption",
        null,
        h("h3", null, kind),
        h(
          "button",
          {
            type: "button",
            class: "toggle",
            "aria-pressed": String(is_log),
            disabled: !has_positive && !is_log,
            title: "Logarithmic scale",
            "aria-label": `Logarithmic scale of ${kind}`,
            onclick: () => {
              is_log ? logs.delete(kind) : logs.add(kind);
              draw();
            },
          },
          "log",
        ),
      ),
      legend(list),
      h("div", {
        class: "chart-box",
        mount: (node) => {
          const chart = new Chart(node, { height: is_first ? 260 : 190, on_read: (x) => read(x, kind), on_range: set_range });
          charts.set(kind, { chart });
        },
        update: () => queueMicrotask(() => charts.get(kind)?.chart.show(given(kind, list, is_log))),
      }),
    );
  }

  function given(kind, list, is_log) {
    const series = [];
    list.forEach(({ curve, name, learner: rank }, index) => {
      const points = curve.points().map((point) => ({ ...point, x: by_time ? (point.time - begin) / 1000 : point.step }));
      const label = label_of(name, rank, list);
      const add = (more) => series.push({ label, index, ...more, by_x: [...more.points].sort((a, b) => a.x - b.x) });
      if (smoothing > 0) {
        add({ points, is_faint: true });
        add({ points: smoothed(points, smoothing) });
      } else {
        add({ points });
      }
    });
    return { name: kind, series, is_log, by_time, range };
  }

  draw();
  return {
    /** The job may have gone on. */
    look: () => {
      poll.stop();
      poll = start();
    },
    stop: () => {
      poll.stop();
      charts.forEach(({ chart }) => chart.stop());
    },
  };
}

function legend(list) {
  return h(
    "ul",
    { class: "legend" },
    list.slice(0, 16).map(({ name, learner, curve }, index) =>
      h(
        "li",
        { class: `s${index % 8}`, key: `${learner} ${name}` },
        h("span", { class: "swatch" }),
        list.length > 1 ? h("span", null, label_of(name, learner, list)) : null,
        h("b", null, value(curve.last.y)),
        h("span", { class: "muted" }, `at step ${whole(curve.last.step)}`),
        curve.lowest ? h("span", { class: "muted extra" }, `lowest ${value(curve.lowest.y)}`) : null,
      ),
    ),
  );
}

function label_of(name, learner, list) {
  const has_names = list.some((each) => each.name !== name);
  const has_learners = list.some((each) => each.learner !== learner);
  return has_names && has_learners ? `${name}, learner ${learner}` : has_learners ? `Learner ${learner}` : name;
}

/** Metrics whose names end alike belong together: `loss` and `evaluation/loss`. */
function kinds_of(list) {
  const kinds = new Map();
  for (const each of list) {
    const kind = /^[\w.-]+(\/[\w.-]+)+$/.test(each.name) ? each.name.split("/").at(-1) : each.name;
    kinds.set(kind, [...(kinds.get(kind) ?? []), each]);
  }
  return [...kinds]
    .map(([kind, curves]) => ({
      kind,
      curves: curves.sort(
        (a, b) => a.name.length - b.name.length || a.name.localeCompare(b.name) || a.learner - b.learner,
      ),
    }))
    .sort((a, b) => weight(a.kind) - weight(b.kind) || a.kind.localeCompare(b.kind));
}

function weight(kind) {
  if (/loss/i.test(kind)) {
    return kind.toLowerCase() === "loss" ? 0 : 1;
  }
  return /^(learning_rate|lr|seconds|time|epoch)$/i.test(kind) ? 3 : 2;
}

/** An average that forgets: each point counts `keep` times as much as the one after it. */
function smoothed(points, keep) {
  let sum = 0;
  let weights = 0;
  return points.map((point) => {
    if (point.y === null) {
      return point;
    }
    sum = sum * keep + point.y;
    weights = weights * keep + 1;
    return { ...point, y: sum / weights };
  });
}

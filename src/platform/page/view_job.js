// One job: how far it is, its curves, its log, its history.
import { Refused, ask, job_path } from "./api.js";
import { at, borrowed_tag, error_box, loading, progress_meter, progress_of, progress_text, state_chip } from "./components.js";
import { h, render } from "./dom.js";
import { duration, plural, resources, whole } from "./format.js";
import { history_panel } from "./history_panel.js";
import { job_actions } from "./job_actions.js";
import { log_panel } from "./log_panel.js";
import { may_change } from "./me.js";
import { metrics_panel } from "./metrics_panel.js";
import { repeat } from "./repeat.js";
import { is_over, is_running, is_waiting, state_word } from "./states.js";

const EVERY = 1000;
const MOST_LEARNERS = 64; // in the list, until it is opened

export function show_job(root, id, context) {
  let job = null;
  let changes = null;
  let error = null;
  let is_gone = false;
  let shows_all = false;
  let curves = null;
  let log = null;
  document.title = `${id} · tesser`;

  const poll = repeat(
    async (signal) => {
      try {
        const before = job;
        [job, { changes }] = await Promise.all([
          ask(job_path(id), { signal }),
          ask(job_path(id, "/history"), { signal }),
        ]);
        error = null;
        if (before && is_over(before.state) && !is_over(job.state)) {
          curves?.look();
          log?.look();
        }
      } catch (what) {
        is_gone = what instanceof Refused && what.status === 404 && job !== null;
        throw what;
      } finally {
        draw();
      }
    },
    { every: () => (job && is_over(job.state) && job.wanted !== "delete" ? 4000 : EVERY), failed: (what) => ((error = what), draw()) },
  );
  const ticking = setInterval(draw, 1000);

  function draw() {
    if (is_gone) {
      document.title = `${id} · deleted · tesser`;
      curves?.stop();
      log?.stop();
      render(
        root,
        back(),
        h("div", { class: "empty" }, h("p", { class: "empty-title" }, `${id} is deleted.`), h("p", null, h("a", { href: "#/jobs" }, "To all jobs"))),
      );
      return;
    }
    if (!job) {
      render(root, back(), h("h1", { class: "job-name" }, id), error ? error_box(error) : loading());
      return;
    }
    document.title = [id, state_word(job.state), is_running(job.state) ? progress_text(job) : "", "tesser"].filter(Boolean).join(" · ");
    const over = () => is_over(job.state);
    const learners = () => job.learners_wanted;
    render(
      root,
      back(),
      head(),
      error_box(error),
      h(
        "div",
        { key: "columns", class: "job-columns" },
        h(
          "div",
          { class: "main-column" },
          h("section", {
            key: "curves",
            class: "curves-section",
            "aria-labelledby": "curves-title",
            mount: (node) => queueMicrotask(() => (curves = metrics_panel(node, id, { is_over: over, learners }))),
          }),
          h("section", {
            key: "log",
            class: "log-section",
            "aria-labelledby": "log-title",
            mount: (node) => queueMicrotask(() => (log = log_panel(node, id, { is_over: over, learners }))),
          }),
        ),
        h("div", { class: "side-column" }, facts(), learners_list(), history_panel(changes)),
      ),
    );
  }

  const back = () => h("p", { class: "back" }, h("a", { href: "#/jobs" }, "← All jobs"));

  function head() {
    const share = progress_of(job);
    const step = job.progress?.step;
    return h(
      "div",
      { class: "job-head" },
      h(
        "div",
        { class: "title-row" },
        h("div", null, h("h1", { class: "job-name" }, id), job.description ? h("p", { class: "description" }, job.description) : null),
        job_actions(job, { may_change: may_change(context.me(), job), changed: () => poll.now() }),
      ),
      h(
        "div",
        { class: "status-row" },
        state_chip(job.state),
        job.is_borrowed ? borrowed_tag() : null,
        h("span", { class: "muted" }, status_words()),
      ),
      job.reason
        ? h(
            "p",
            { class: `reason-box ${job.state === "FAILED" ? "failed" : ""}` },
            job.code ? h("span", { class: "code" }, job.code) : null,
            job.reason,
          )
        : null,
      Number.isFinite(step)
        ? h(
            "div",
            { class: "job-progress" },
            progress_meter(job),
            h(
              "p",
              null,
              h("strong", null, share !== null ? progress_text(job) : `Step ${whole(step)}`),
              h(
                "span",
                { class: "muted" },
                [
                  share !== null ? `step ${whole(step)} of ${whole(job.progress.steps)}` : "",
                  job.progress.seconds_left !== null && is_running(job.state)
                    ? `${duration(1000 * job.progress.seconds_left)} left`
                    : "",
                ]
                  .filter(Boolean)
                  .join(" · "),
              ),
            ),
          )
        : null,
    );
  }

  function status_words() {
    const words = [];
    if (job.wanted === "delete") {
      words.push("being deleted");
    } else if (job.wanted === "halt" && !is_over(job.state)) {
      words.push("being halted");
    }
    if (is_waiting(job.state) && job.place_in_queue > 0) {
      words.push(`place ${whole(job.place_in_queue)} in the queue`);
    }
    if (job.started) {
      const begin = Date.parse(job.started);
      const end = job.ended ? Date.parse(job.ended) : Date.now();
      words.push(`${job.ended ? "ran" : "runs for"} ${duration(end - begin)}`);
    } else {
      words.push(`submitted ${duration(Date.now() - Date.parse(job.submitted))} ago`);
    }
    if (job.restarts > 0) {
      words.push(`${job.restarts} of ${plural(job.restarts_most, "restart")} used`);
    }
    return words.join(" · ");
  }

  function facts() {
    const pairs = [
      ["Team", job.team],
      ["User", job.user],
      ["Priority", String(job.priority)],
      ["Learners", `${whole(job.learners_wanted)} with ${resources(job.each)} each`],
      ["Attempt", job.attempt > 0 ? whole(job.attempt) : "none yet"],
      ["Submitted", at(job.submitted)],
      ["Started", job.started ? at(job.started) : "not yet"],
      ["Ended", job.ended ? at(job.ended) : "not yet"],
    ];
    return h(
      "section",
      { class: "facts", "aria-labelledby": "facts-title" },
      h("h2", { id: "facts-title" }, "Job"),
      h("dl", null, pairs.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))),
    );
  }

  function learners_list() {
    if (job.learners.length === 0) {
      return null;
    }
    const shown = shows_all ? job.learners : job.learners.slice(0, MOST_LEARNERS);
    return h(
      "section",
      { class: "learners", "aria-labelledby": "learners-title" },
      h("h2", { id: "learners-title" }, "Learners"),
      h(
        "ol",
        null,
        shown.map((learner) =>
          h(
            "li",
            { key: learner.rank },
            h("span", { class: "rank" }, String(learner.rank)),
            h("span", { class: "learner-node" }, learner.node || "no node yet"),
            h("span", { class: `learner-state ${learner.state}` }, learner.state),
          ),
        ),
      ),
      job.learners.length > shown.length
        ? h(
            "button",
            { type: "button", class: "link", onclick: () => ((shows_all = true), draw()) },
            `and ${whole(job.learners.length - shown.length)} more`,
          )
        : null,
    );
  }

  draw();
  return () => {
    poll.stop();
    clearInterval(ticking);
    curves?.stop();
    log?.stop();
  };
}

// The end of a job's log, as it grows. Rows are elements that are added and taken away, since there are thousands.
import { ask, job_path } from "./api.js";
import { PLAIN, plain_text } from "./ansi.js";
import { error_box, notice } from "./components.js";
import { h, render } from "./dom.js";
import { clock, full_time, plural, whole } from "./format.js";
import { LogLines } from "./log_lines.js";
import { repeat } from "./repeat.js";

const FIRST_TAIL = 500;
const MOST_TAIL = 20_000;
const MOST_ROWS = 5000;
const A_PAGE = 2000;
const LARGEST_PAGE = 10_000;
const WAIT = 20; // seconds that the server waits for a line
const MOST_SHOWN = 4000; // characters of a row, until it is opened
const MOST_SAVED = 200_000_000; // characters
const NEAR_END = 40; // pixels

/** Shows the log of a job in an element; `is_over()` says whether nothing more comes. Gives `stop` and `look`. */
export function log_panel(root, id, { is_over, learners }) {
  let lines = new LogLines(MOST_ROWS);
  let cursor = null;
  let tail = FIRST_TAIL;
  let learner = "";
  let text = "";
  let error = null;
  let has_ended = false;
  let is_paused = false;
  let follows = true;
  let unseen = 0; // rows that came while one read further up
  let saving = null;
  let has_begun = false; // something has come, or is known not to be there
  let is_from_start = false;
  const nodes = new Map(); // by row number
  let box = null;
  let poll = start();

  function start() {
    return repeat(
      async (signal) => {
        const query = cursor === null ? { tail } : { cursor, wait: has_begun ? WAIT : 0 };
        const answer = await ask(job_path(id, "/logs"), { query: { learner, limit: A_PAGE, ...query }, signal });
        if (cursor === null) {
          is_from_start = answer.lines.every((line) => line.sequence > 0) && answer.lines.some((line) => line.sequence === 1);
        }
        ({ cursor } = answer);
        has_begun = true;
        has_ended = answer.ended && is_over();
        error = null;
        show(lines.add(answer.lines, answer.missed));
        draw();
        return !has_ended;
      },
      { every: 100, failed: (what) => ((error = what), draw()) },
    );
  }

  function again(change) {
    change();
    poll.stop();
    lines = new LogLines(Math.max(MOST_ROWS, tail));
    cursor = null;
    has_begun = false;
    unseen = 0;
    follows = true;
    nodes.clear();
    box?.replaceChildren();
    poll = start();
    is_paused = false;
    draw();
  }

  function show(changed) {
    const added = document.createDocumentFragment();
    let count = 0;
    for (const row of changed) {
      const node = nodes.get(row.number);
      if (node) {
        fill(node, row);
      } else {
        const made = document.createElement("div");
        nodes.set(row.number, made);
        fill(made, row);
        added.append(made);
        count += 1;
      }
    }
    box.append(added);
    const first = lines.rows[0]?.number ?? 0;
    for (const [number, node] of nodes) {
      if (number >= first) {
        break;
      }
      node.remove();
      nodes.delete(number);
    }
    if (follows) {
      to_end();
    } else {
      unseen += count;
    }
  }

  function fill(node, row) {
    const when = row.time ? span("when", clock(row.time)) : span("when", "");
    if (row.time) {
      when.title = full_time(row.time);
    }
    const who = span("who", learners() > 1 ? String(row.learner) : "");
    who.title = `Learner ${row.learner}, attempt ${row.attempt}`;
    const what = document.createElement("span");
    what.className = "what";
    if (row.note) {
      what.append(span("note-mark", "tesser"), " ");
    }
    fill_text(what, row.spans, MOST_SHOWN);
    node.className = `line${row.note ? " note" : ""}`;
    node.hidden = !fits(row);
    node.replaceChildren(when, who, what);
  }

  function fits(row) {
    return !text || plain_text(row.shown).toLowerCase().includes(text);
  }

  function filter(wanted) {
    text = wanted.toLowerCase();
    for (const row of lines.rows) {
      const node = nodes.get(row.number);
      if (node) {
        node.hidden = !fits(row);
      }
    }
    if (follows) {
      to_end();
    }
    draw();
  }

  function to_end() {
    follows = true;
    unseen = 0;
    box.scrollTop = box.scrollHeight;
  }

  function scrolled() {
    const at_end = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
    if (at_end !== follows) {
      follows = at_end;
      unseen = 0;
      draw();
    }
  }

  function pause() {
    is_paused = !is_paused;
    poll.stop();
    if (!is_paused) {
      to_end();
      poll = start();
    }
    draw();
  }

  async function save() {
    if (saving) {
      saving.abort();
      return;
    }
    saving = new AbortController();
    draw();
    try {
      const parts = [];
      let at = "";
      let size = 0;
      while (size < MOST_SAVED) {
        const answer = await ask(job_path(id, "/logs"), {
          query: { learner, cursor: at, limit: LARGEST_PAGE },
          signal: saving.signal,
        });
        if (answer.lines.length === 0 && answer.missed.length === 0) {
          break;
        }
        const part = answer.lines
          .map((line) => `${line.time} ${line.learner}${line.note ? " tesser:" : ""} ${line.text}\n`)
          .join("");
        parts.push(part);
        size += part.length;
        at = answer.cursor;
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
      link.download = `${id}.log`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      if (size >= MOST_SAVED) {
        notice(`The log is larger than what was saved; tesser logs ${id} gives all of it.`);
      }
    } catch (what) {
      if (what.name !== "AbortError") {
        notice(`The log was not saved: ${what.message}`, "wrong");
      }
    }
    saving = null;
    draw();
  }

  function draw() {
    const count = learners();
    const is_empty = has_begun && lines.rows.length === 0;
    render(
      root,
      h(
        "div",
        { class: "section-head" },
        h("h2", { id: "log-title" }, "Log"),
        h(
          "div",
          { class: "tools" },
          count > 1
            ? h(
                "select",
                {
                  "aria-label": "Learner of the log",
                  value: learner,
                  onchange: (event) => again(() => (learner = event.target.value)),
                },
                h("option", { value: "" }, "All learners"),
                Array.from({ length: Math.min(count, 1000) }, (_, rank) =>
                  h("option", { value: String(rank) }, `Learner ${rank}`),
                ),
              )
            : null,
          h("input", {
            type: "search",
            "aria-label": "Show lines with",
            placeholder: "Show lines with",
            oninput: (event) => filter(event.target.value),
          }),
          h(
            "button",
            { type: "button", "aria-pressed": String(is_paused), disabled: has_ended, onclick: pause },
            is_paused ? "Go on" : "Pause",
          ),
          h("button", { type: "button", onclick: save }, saving ? "Stop saving" : "Save"),
        ),
      ),
      error_box(error),
      h(
        "div",
        { class: "log-frame" },
        h(
          "div",
          { class: `log-head${is_empty ? " empty-log" : ""}` },
          has_begun && !is_from_start && lines.rows.length > 0 && tail < MOST_TAIL
            ? h(
                "button",
                { type: "button", class: "link", onclick: () => again(() => (tail = Math.min(MOST_TAIL, tail * 4))) },
                "Show earlier lines",
              )
            : null,
          h(
            "span",
            { class: "muted" },
            is_empty
              ? is_over()
                ? "This job wrote nothing."
                : "Nothing has been written yet."
              : !has_begun
                ? error
                  ? ""
                  : "Loading…"
                : `${plural(lines.rows.length, "line")}${is_paused ? ", paused" : has_ended ? ", ended" : ", live"}`,
          ),
        ),
        h("div", {
          class: `log${count > 1 ? " ranks" : ""}`,
          role: "log",
          "aria-live": "off",
          "aria-labelledby": "log-title",
          tabindex: "0",
          mount: (node) => {
            box = node;
            node.addEventListener("scroll", scrolled, { passive: true });
          },
        }),
        !follows && has_begun
          ? h(
              "button",
              { type: "button", class: "to-end", onclick: () => (to_end(), draw()) },
              unseen > 0 ? `${whole(unseen)} new below` : "To the end",
            )
          : null,
      ),
    );
  }

  draw();
  return {
    look: () => {
      if (!is_paused) {
        poll.stop();
        has_ended = false;
        poll = start();
      }
    },
    stop: () => {
      poll.stop();
      saving?.abort();
    },
  };
}

function span(name, text) {
  const node = document.createElement("span");
  node.className = name;
  node.textContent = text;
  return node;
}

function fill_text(into, spans, most) {
  let left = most;
  for (const { text, style } of spans) {
    if (left <= 0) {
      break;
    }
    const shown = text.length > left ? text.slice(0, left) : text;
    left -= shown.length;
    into.append(style === PLAIN ? document.createTextNode(shown) : span(class_of(style), shown));
  }
  const length = spans.reduce((sum, each) => sum + each.text.length, 0);
  if (length > most) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "link";
    more.textContent = `… ${whole(length - most)} more characters`;
    more.onclick = () => {
      into.replaceChildren();
      fill_text(into, spans, Infinity);
    };
    into.append(" ", more);
  }
}

function class_of(style) {
  const names = [];
  if (style.inverse) {
    names.push("inverse");
  }
  if (style.background && !style.inverse) {
    names.push(`fill-${style.background}`);
  } else if (style.colour) {
    names.push(`ink-${style.colour}`);
  }
  for (const name of ["bold", "faint", "italic", "underline", "struck"]) {
    if (style[name]) {
      names.push(name);
    }
  }
  return names.join(" ");
}

// Every state a job was in: a line of time, and the list with reasons.
import { at, state_chip } from "./components.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { group_of, is_over, state_word } from "./states.js";

export function history_panel(changes) {
  if (!changes) {
    return null;
  }
  const spans = changes.map((change, i) => {
    const begin = Date.parse(change.time);
    const is_last = i + 1 === changes.length;
    const end = is_last ? (is_over(change.state) ? begin : Date.now()) : Date.parse(changes[i + 1].time);
    return { change, is_last, length: Math.max(0, end - begin), lasts: !(is_last && is_over(change.state)) };
  });
  const all = spans.reduce((sum, span) => sum + span.length, 0) || 1;
  return h(
    "section",
    { class: "history", "aria-labelledby": "history-title" },
    h("h2", { id: "history-title" }, "History"),
    h(
      "div",
      { class: "strip", "aria-hidden": "true" },
      spans.map(({ change, length }, i) =>
        length > 0
          ? h("span", {
              key: i,
              class: `piece ${group_of(change.state)} ${change.state.toLowerCase()}`,
              style: { "flex-grow": String(length / all) },
              title: `${state_word(change.state)} ${duration(length)}`,
            })
          : null,
      ),
    ),
    h(
      "ol",
      { class: "changes" },
      [...spans]
        .reverse()
        .map(({ change, is_last, length, lasts }, i) =>
          h(
            "li",
            { key: changes.length - i, class: group_of(change.state) },
            h(
              "div",
              { class: "change-head" },
              state_chip(change.state),
              h(
                "span",
                { class: "muted lasted" },
                lasts ? `${is_last ? "for " : ""}${duration(length)}` : "",
              ),
              h("span", { class: "muted when" }, at(change.time)),
            ),
            change.reason || change.code
              ? h(
                  "p",
                  { class: "reason" },
                  change.code ? h("span", { class: "code" }, change.code) : null,
                  change.reason,
                )
              : null,
            change.attempt > 1 && change.state === "DEPLOYING"
              ? h("p", { class: "muted" }, `Attempt ${change.attempt}`)
              : null,
          ),
        ),
    ),
  );
}

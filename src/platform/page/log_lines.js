// A job's log as rows to show: progress bars in one row, cut lines whole, so many rows at most. Pure.
import { PLAIN, spans_of } from "./ansi.js";
import { event_text } from "./event_text.js";

const MOST_TEXT = 20_000; // of a row that cut lines make

export class LogLines {
  rows = []; // {number, learner, attempt, time, text, shown, note, spans}
  dropped = 0; // rows that had to go from the front
  #most;
  #last = new Map(); // by learner: its last row
  #next = 0;

  constructor(most = 5000) {
    this.#most = most;
  }

  get last_number() {
    return this.#next - 1;
  }

  /** Adds what an answer of the API holds; gives the rows that are new or another than before. */
  add(lines, missed = []) {
    const changed = new Set();
    for (const gap of missed) {
      changed.add(
        this.#push({
          learner: gap.learner,
          attempt: 0,
          time: null,
          note: true,
          text: `${gap.count} older lines are gone: the log has grown beyond its limit`,
        }),
      );
    }
    for (const line of lines) {
      changed.add(this.#take(line));
    }
    const surplus = this.rows.length - this.#most;
    if (surplus > 0) {
      for (const row of this.rows.splice(0, surplus)) {
        changed.delete(row);
      }
      this.dropped += surplus;
    }
    return [...changed];
  }

  #take(line) {
    const before = this.#last.get(line.learner);
    if (before && !line.note && !before.note && before.attempt === line.attempt) {
      if (before.is_cut && before.text.length < MOST_TEXT) {
        return this.#change(before, line, before.text + line.text);
      }
      if (before.returns) {
        return this.#change(before, line, line.text === "" ? before.text : line.text);
      }
    }
    return this.#push(line);
  }

  #change(row, line, text) {
    row.text = text;
    row.time = line.time;
    row.returns = line.return;
    row.is_cut = line.cut;
    this.#style(row);
    return row;
  }

  #push(line) {
    const before = this.#last.get(line.learner);
    const row = {
      number: this.#next++,
      learner: line.learner,
      attempt: line.attempt,
      time: line.time,
      text: line.text,
      note: line.note,
      returns: line.return ?? false,
      is_cut: line.cut ?? false,
      begin: !line.note && before && !before.note && before.attempt === line.attempt ? before.end : PLAIN,
      end: PLAIN,
    };
    this.#style(row);
    this.rows.push(row);
    this.#last.set(line.learner, row);
    return row;
  }

  #style(row) {
    row.shown = event_text(row.text) ?? row.text;
    const { spans, style } = spans_of(row.shown, row.begin);
    row.spans = spans;
    row.end = style;
  }
}

// Events of a run (docs/formats/events.md) as people read them. Pure.
import { bytes, duration } from "./format.js";

/** A line that a tesser program has written as JSON, in words; null for any other line. */
export function event_text(line) {
  if (!line.startsWith('{"event":')) {
    return null;
  }
  try {
    const event = JSON.parse(line);
    const text = Object.hasOwn(WORDS, event.event) ? WORDS[event.event](event) : null;
    return typeof text === "string" ? text : null;
  } catch {
    return null; // cut, or of something else
  }
}

const number = (value) => (value === null ? "not finite" : String(Number(value.toPrecision(4))));
const values = (named) =>
  Object.entries(named)
    .map(([name, value]) => `  ${name} ${number(value)}`)
    .join("");

const WORDS = {
  start: (event) =>
    `${event.program}: ${event.samples} samples, batch ${event.batch_size}, steps ${event.step + 1} to ` +
    `${event.until_step}, seed ${event.seed}${event.resumed_from ? `, resumed from ${event.resumed_from}` : ""}`,
  step: (event) =>
    `epoch ${event.epoch}  step ${event.step}  loss ${number(event.loss)}${values(event.metrics)}`,
  evaluation: (event) =>
    `epoch ${event.epoch}, step ${event.step}: evaluation:${values(event.results)} (${event.samples} samples)`,
  checkpoint: (event) => `checkpoint ${event.path} (${bytes(event.bytes)})`,
  note: (event) => event.message,
  end: (event) =>
    `${event.interrupted ? "stopped" : "done"} after step ${event.step}` +
    `${event.final_loss === undefined ? "" : `, loss ${number(event.final_loss)}`}: ${event.steps} steps in ` +
    `${duration(1000 * event.seconds)}, ${event.samples_per_second.toFixed(1)} samples/s`,
  error: (event) => `error: ${event.message}`,
};

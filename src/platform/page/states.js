// The states of a job (docs/platform.md) in words and groups. Pure.

export const STATES = [
  "QUEUED",
  "PENDING",
  "DEPLOYING",
  "DOWNLOADING",
  "PROCESSING",
  "STORING",
  "COMPLETED",
  "FAILED",
  "HALTED",
  "RESUMED",
];

const WORDS = {
  QUEUED: ["Queued", "waits for places"],
  PENDING: ["Pending", "has places; its guardian starts"],
  DEPLOYING: ["Deploying", "learners start"],
  DOWNLOADING: ["Downloading", "data is fetched"],
  PROCESSING: ["Running", "commands run"],
  STORING: ["Storing", "results are stored"],
  COMPLETED: ["Completed", "has done what it was to do"],
  FAILED: ["Failed", "has ended without doing it"],
  HALTED: ["Halted", "stopped; can go on from its checkpoint"],
  RESUMED: ["Resumed", "waits for places again"],
};

export const GROUPS = {
  waiting: ["QUEUED", "RESUMED"],
  running: ["PENDING", "DEPLOYING", "DOWNLOADING", "PROCESSING", "STORING"],
  completed: ["COMPLETED"],
  failed: ["FAILED"],
  halted: ["HALTED"],
};

export const state_word = (state) => WORDS[state]?.[0] ?? state;
export const state_meaning = (state) => WORDS[state]?.[1] ?? "";
export const is_waiting = (state) => GROUPS.waiting.includes(state);
export const is_running = (state) => GROUPS.running.includes(state);
export const is_final = (state) => state === "COMPLETED" || state === "FAILED";
/** Nothing more comes to its log and curves, unless it is resumed. */
export const is_over = (state) => is_final(state) || state === "HALTED";

/** The group a state belongs to; it chooses the colour. */
export function group_of(state) {
  return Object.keys(GROUPS).find((group) => GROUPS[group].includes(state)) ?? "halted";
}

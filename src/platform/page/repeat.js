// Looking again and again: while the tab is seen, at once when the server is back, more slowly while it is away.
// Hidden tabs ask nothing, since browsers share a handful of connections among all tabs of a server.
import { Away, Refused, connection } from "./api.js";

const LONGEST_PAUSE = 5000;
const SHORTEST_PAUSE = 100;

/**
 * Calls `task(signal)` now and `every` milliseconds after it has ended, until stop(). What it throws goes to
 * `failed(error)`; a refusal that another try would not mend (not found, forbidden) ends it. A task ends it by
 * returning false.
 */
export function repeat(task, { every, failed }) {
  const ended = new AbortController();
  let wake = () => {};
  let round = null; // the controller of the task at work

  const pause = (milliseconds) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  const on_visible = () => {
    if (document.hidden) {
      round?.abort(new DOMException("the tab is hidden", "AbortError"));
    } else {
      wake();
    }
  };
  const on_back = () => wake();
  document.addEventListener("visibilitychange", on_visible);
  connection.addEventListener("back", on_back);

  async function run() {
    let failures = 0;
    while (!ended.signal.aborted) {
      if (document.hidden) {
        await pause(3_600_000);
        continue;
      }
      round = new AbortController();
      const stop_round = () => round.abort(ended.signal.reason);
      ended.signal.addEventListener("abort", stop_round);
      let wait = typeof every === "function" ? every() : every;
      try {
        if ((await task(round.signal)) === false) {
          break;
        }
        failures = 0;
      } catch (error) {
        if (ended.signal.aborted) {
          break;
        }
        if (!round.signal.aborted) {
          failures += 1;
          wait = Math.min(LONGEST_PAUSE, 500 * 2 ** Math.min(failures, 4));
          if (error instanceof Refused) {
            wait = Math.max(wait, error.retry_after * 1000);
          }
          failed?.(error);
          if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
            break;
          }
          if (!(error instanceof Refused) && !(error instanceof Away)) {
            console.error(error);
          }
        }
      } finally {
        ended.signal.removeEventListener("abort", stop_round);
        round = null;
      }
      await pause(Math.max(wait, SHORTEST_PAUSE));
    }
    document.removeEventListener("visibilitychange", on_visible);
    connection.removeEventListener("back", on_back);
  }
  run();
  return {
    now: () => wake(),
    stop: () => {
      ended.abort(new DOMException("not needed any more", "AbortError"));
      wake();
    },
  };
}

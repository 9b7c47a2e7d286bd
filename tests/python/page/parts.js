// Tests of the page's own arithmetic, run in the browser by test_parts.py: each by its name.
const NOW = Date.parse("2026-12-01T00:00:00Z");

function equal(found, expected) {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value));
  if (a !== b) {
    throw new Error(`${a} instead of ${b}`);
  }
}

function holds(condition, what) {
  if (!condition) {
    throw new Error(`not so: ${what}`);
  }
}

const TESTS = {
  "times as people read them": ({ format }) => {
    equal(format.duration(0), "0.0 s");
    equal(format.duration(9949), "9.9 s");
    equal(format.duration(9960), "10 s");
    equal(format.duration(59_600), "1 min");
    equal(format.duration(200_000), "3 min 20 s");
    equal(format.duration(7_500_000), "2 h 5 min");
    equal(format.duration(97 * 3600_000), "4 d 1 h");
    equal(format.duration(NaN), "–");
    const at = (away) => new Date(NOW + away).toISOString();
    equal(format.relative(at(-3000), NOW), "just now");
    equal(format.relative(at(-59_000), NOW), "59 s ago");
    equal(format.relative(at(-2.99 * 3600_000), NOW), "2 h ago");
    equal(format.relative(at(2 * 86_400_000), NOW), "in 2 d");
    equal(format.relative("", NOW), "–");
    equal(format.clock("2026-11-29T04:03:02.9Z"), "04:03:02");
    equal(format.day_and_time("2026-11-29T04:03:02Z", NOW), "29 Nov 04:03");
    equal(format.day_and_time("2025-11-29T04:03:02Z", NOW), "29 Nov 2025 04:03");
    equal(format.moment("2026-12-01T04:03:02Z", NOW), "04:03:02");
    equal(format.moment("2026-11-30T04:03:02Z", NOW), "30 Nov 04:03");
    equal(format.full_time("2026-11-29T04:03:02.123456Z"), "2026-11-29 04:03:02.123 (UTC)");
  },

  "amounts and figures as people read them": ({ format }) => {
    equal(format.bytes(0), "0 B");
    equal(format.bytes(1536 * 2 ** 20), "1.5 GiB");
    equal(format.bytes(64 * 2 ** 30), "64 GiB");
    equal(format.cpus(500), "0.5");
    const each = { millicpus: 1000, memory_bytes: 0, accelerators: {} };
    equal(format.resources(each), "1 cpu");
    equal(
      format.resources({ ...each, millicpus: 4000, memory_bytes: 2 ** 33, accelerators: { v100: 2 } }),
      "4 cpus, 8 GiB, 2 v100",
    );
    equal(format.whole(1234567), "1,234,567");
    equal(format.value(0), "0");
    equal(format.value(0.0312345), "0.03123");
    equal(format.value(-12345.678), "-12,346");
    equal(format.value(1.25e-7), "1.25e-7");
    equal(format.value(null), "not finite");
    equal(format.percent(0.999), "99 %");
    equal(format.plural(1, "node"), "1 node");
    equal(format.plural(2000, "node"), "2,000 nodes");
  },

  "sums of resources, the scarcest kind first": ({ amounts }) => {
    const one = { millicpus: 500, memory_bytes: 7, accelerators: { v100: 1 } };
    const sum = amounts.total([one, one, { millicpus: 0, memory_bytes: 0, accelerators: { h200: 3 } }]);
    equal(sum, { millicpus: 1000, memory_bytes: 14, accelerators: { v100: 2, h200: 3 } });
    equal(
      amounts.amounts_of(sum).map(({ title, count }) => [title, count]),
      [
        ["h200", 3],
        ["v100", 2],
        ["cpus", 1000],
        ["memory", 14],
      ],
    );
  },

  "a curve of any length stays small and keeps its extremes": ({ thinning }) => {
    const curve = new thinning.Curve(100);
    const y = (x) => (x === 150_000 ? null : Math.sin(x / 1000) + (x === 77_777 ? 50 : x === 222_222 ? -50 : 0));
    for (let x = 0; x < 300_000; x += 1) {
      curve.add({ x, y: y(x) });
    }
    const points = curve.points();
    const values = points.map((point) => point.y).filter((value) => value !== null);
    holds(points.length >= 100 && points.length <= 500, `${points.length} points`);
    holds(Math.max(...values) > 48 && Math.min(...values) < -48, "extremes");
    equal([points[0].x, points.at(-1).x, points.length - values.length], [0, 299_999, 1]);
    holds(
      points.every((point, i) => i === 0 || point.x > points[i - 1].x),
      "in their order",
    );
    equal([curve.count, curve.last.x, curve.lowest.x, curve.highest.x], [300_000, 299_999, 222_222, 77_777]);
  },

  "curves break where steps go back and where a value is not finite": ({ thinning }) => {
    const points = [
      [1, 1],
      [2, 1],
      [3, null],
      [4, 1],
      [2, 5],
      [3, 5],
    ].map(([x, y]) => ({ x, y }));
    const pieces = thinning.pieces_of(points).map((piece) => [piece.begins_anew, ...piece.points.map((point) => point.x)]);
    equal(pieces, [
      [false, 1, 2],
      [false, 4],
      [true, 2, 3],
    ]);
  },

  "of many points those that can be seen": ({ thinning }) => {
    const points = Array.from({ length: 10_000 }, (_, x) => ({ x, y: x === 5001 ? 9 : x % 2 }));
    const seen = thinning.visible(points, 0, 10_000, 100);
    holds(seen.length <= 400, `${seen.length} points`);
    holds(
      seen.some((point) => point.y === 9),
      "the peak",
    );
    equal(thinning.visible(points.slice(0, 300), 0, 300, 100).length, 300);
    equal(thinning.nearest(points, 17.4).x, 17);
    equal(thinning.nearest(points, 1e9).x, 9999);
    equal(thinning.nearest([], 3), null);
  },

  "what steers a terminal becomes colours or goes": ({ ansi }) => {
    const shown = (line) => ansi.spans_of(line).spans.map(({ text, style }) => [text, style.colour]);
    equal(shown("plain"), [["plain", ""]]);
    equal(shown("\x1b[31mred\x1b[0m and \x1b[1;92mbright\x1b[m"), [
      ["red", "red"],
      [" and ", ""],
      ["bright", "bright-green"],
    ]);
    equal(shown("\x1b[38;5;208morange\x1b[39m"), [["orange", "yellow"]]);
    equal(shown("\x1b[38;2;0;0;250mblue"), [["blue", "blue"]]);
    equal(shown("\x1b[2K\x1b[1Gmoved\x1b[5A"), [["moved", ""]]);
    equal(shown("\x1b]8;;x:y\x07link\x1b]8;;\x1b\\"), [["link", ""]]);
    equal(shown("\x1b]0;a title without an end"), []);
    equal(shown("a\x1b[3"), [["a", ""]]);
    equal(shown("bell\x07 tab\tstays\x00"), [["bell tab\tstays", ""]]);
    equal(shown("\x1b(B\x1b7<b>"), [["<b>", ""]]);
    equal(ansi.spans_of("\x1b[7;41mx").style.background, "red");
    equal(ansi.plain_text("\x1b[1mbold\x1b[0m"), "bold");
  },

  "rows of a log": ({ log_lines }) => {
    const lines = new log_lines.LogLines(4);
    const plain = { attempt: 1, time: null, note: false, return: false, cut: false };
    const line = (learner, text, more) => ({ ...plain, learner, text, ...more });
    const rows = () => lines.rows.map((row) => row.text);
    const bar = { return: true };
    lines.add([line(0, "10%", bar), line(1, "other"), line(0, "50%", bar), line(0, "100%")]);
    equal(rows(), ["100%", "other"]);
    lines.add([line(1, "a", { cut: true }), line(1, "b")]);
    equal(rows(), ["100%", "other", "ab"]);
    const [first] = lines.add([line(0, "1", bar)]);
    const [second] = lines.add([line(0, "")]);
    holds(first === second && second.text === "1", "an empty line ends a bar and leaves it");
    const note = line(0, "a note", { note: true });
    lines.add([line(0, "\x1b[31mred"), line(0, "still red"), note], [{ learner: 0, first: 1, count: 7 }]);
    equal(rows(), ["7 older lines are gone: the log has grown beyond its limit", "\x1b[31mred", "still red", "a note"]);
    equal(lines.dropped, 4);
    equal(
      lines.rows.map((row) => row.spans[0].style.colour),
      ["", "red", "red", ""],
    );
  },

  "events of a run in words": ({ event_text: { event_text } }) => {
    equal(
      event_text('{"event":"step","step":7,"epoch":2,"loss":0.123456,"metrics":{"accuracy":1,"lost":null}}'),
      "epoch 2  step 7  loss 0.1235  accuracy 1  lost not finite",
    );
    equal(
      event_text('{"event":"evaluation","step":9,"epoch":1,"results":{"loss":null},"samples":30}'),
      "epoch 1, step 9: evaluation:  loss not finite (30 samples)",
    );
    equal(event_text('{"event":"checkpoint","step":9,"path":"/c/9","seconds":1,"bytes":2048}'), "checkpoint /c/9 (2 KiB)");
    equal(
      event_text('{"event":"end","interrupted":true,"step":9,"steps":4,"seconds":2,"samples_per_second":5.25,"final_loss":0.5}'),
      "stopped after step 9, loss 0.5: 4 steps in 2.0 s, 5.3 samples/s",
    );
    equal(event_text('{"event":"error","message":"the disk is full","exit_code":1}'), "error: the disk is full");
    for (const other of ["plain", '{"event":"step","step":7', '{"event":"step"}', '{"event":"toString"}', '{"event":7}']) {
      equal(event_text(other), null);
    }
    equal(event_text('{"event":"note","message":{"a":1}}'), null);
  },

  "figures on axes": ({ scale }) => {
    equal(scale.round_ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
    equal(scale.round_ticks(-3, 7, 4), [-2.5, 0, 2.5, 5]);
    equal(scale.round_ticks(5, 5, 4), [5]);
    equal(scale.log_ticks(0.01, 100, 5), [0.01, 0.1, 1, 10, 100]);
    equal(scale.log_ticks(1, 9, 5), [1, 1.5, 2, 3, 5, 7]);
    equal(scale.time_ticks(0, 7200, 4), [0, 1800, 3600, 5400, 7200]);
    equal([scale.tick_text(0.25, 0.25), scale.tick_text(1, 0.25)], ["0.25", "1.00"]);
    equal([scale.tick_text(2500, 500), scale.tick_text(15000, 5000)], ["2500", "15,000"]);
    equal([scale.tick_text(1.5e6, 5e5), scale.tick_text(-0.5, 0.5)], ["1.5M", "−0.5"]);
    equal([45, 90, 5400, 90000].map(scale.time_tick_text), ["45 s", "1:30", "1 h 30", "1 d 1 h"]);
    const place = scale.scale(1, 100, 0, 200, true);
    equal([place(10), Math.round(place.back(100))], [100, 10]);
    equal(scale.padded(0, 10, false)[0], 0);
  },

  "what is drawn again keeps its elements": ({ dom: { h, render } }) => {
    const root = document.createElement("div");
    const list = (keys, more) => render(root, h("ul", null, keys.map((key) => h("li", { key }, key, more))), "end");
    list(["a", "b", "c"]);
    const [a, , c] = root.querySelectorAll("li");
    list(["c", "x", "a"], "!");
    const after = [...root.querySelectorAll("li")];
    holds(after[0] === c && after[2] === a, "elements with a key move");
    equal(
      after.map((node) => node.textContent),
      ["c!", "x!", "a!"],
    );
    render(root, h("input", { value: "given", disabled: true }), null, false, h("svg", { id: "s" }, h("path", null)));
    const input = root.querySelector("input");
    input.value = "by hand";
    render(root, h("input", { value: "given", disabled: false }), "<b>", h("svg", null, h("path", null)));
    holds(root.querySelector("input") === input, "elements without a key stay by their order");
    equal([input.value, input.disabled], ["by hand", false]);
    equal([root.querySelectorAll("b").length, root.querySelector("svg").hasAttribute("id")], [0, false]);
    holds(root.querySelector("path").namespaceURI.endsWith("svg"), "drawings are drawings");
    let clicks = 0;
    render(root, h("button", { onclick: () => (clicks += 1), style: { color: "red", width: "1px" } }));
    root.querySelector("button").click();
    render(root, h("button", { style: { color: "blue" } }));
    root.querySelector("button").click();
    equal([clicks, root.querySelector("button").style.cssText], [1, "color: blue;"]);
  },

  "who may change a job": ({ me }) => {
    const job = { team: "vision", user: "ann" };
    const one = (user, role, is_administrator = false) =>
      me.may_change({ user, is_administrator, teams: role ? [{ team: "vision", role }] : [] }, job);
    equal([one("ann", "member"), one("ben", "administrator"), one("x", "", true)], [true, true, true]);
    equal([one("ben", "member"), one("ann", "viewer"), one("ann", "")], [false, false, false]);
  },
};

async function run(name) {
  const base = document.querySelector("script[type=module]").src.replace(/[^/]*$/, "");
  const names = ["amounts", "ansi", "dom", "event_text", "format", "log_lines", "me", "scale", "thinning"];
  const modules = await Promise.all(names.map((each) => import(`${base}${each}.js`)));
  try {
    TESTS[name](Object.fromEntries(names.map((each, i) => [each, modules[i]])));
    return "";
  } catch (error) {
    return `${error.message}\n${error.stack}`;
  }
}

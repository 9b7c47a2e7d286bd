// Curves as SVG: axes, a read-out under the pointer, the finger or the arrow keys, and a range that is dragged out.
import { h, render } from "./dom.js";
import { duration, full_time, value, whole } from "./format.js";
import { log_ticks, padded, round_ticks, scale, tick_text, time_tick_text, time_ticks } from "./scale.js";
import { nearest, pieces_of, visible } from "./thinning.js";

const TOP = 10;
const RIGHT = 14;
const BOTTOM = 26;
const FIGURE_WIDTH = 6.7; // of a digit of an axis
const MOST_READ = 12; // series in a read-out

/**
 * A chart in an element. Its owner gives `show()` what there is and hears, by `on_read(x)` and `on_range(range)`, what
 * the reader points at and selects, so that several charts can follow one another.
 */
export class Chart {
  #node;
  #svg_node = null;
  #given = null;
  #width = 0;
  #height;
  #places = null;
  #drawn = null; // the curves as they were drawn last, which stay while one only reads them
  #read_at = null; // x, or null
  #is_pointed_at = false;
  #drag = null;
  #on_read;
  #on_range;
  #observer;

  constructor(node, { height, on_read, on_range }) {
    this.#node = node;
    this.#height = height;
    this.#on_read = on_read;
    this.#on_range = on_range;
    this.#observer = new ResizeObserver(() => {
      if (node.clientWidth !== this.#width) {
        this.#draw();
      }
    });
    this.#observer.observe(node);
  }

  stop() {
    this.#observer.disconnect();
  }

  /**
   * `name` of the chart; `series`: {label, index, points: {x, y, step, time}} with x in steps or, when `by_time`,
   * seconds; `is_log`; `range` of x, or null for all.
   */
  show(given) {
    this.#given = given;
    this.#draw();
  }

  /** Shows what is at x; the figures of it, too, when this is the chart that is pointed at. */
  read(x, is_pointed_at) {
    if (x !== this.#read_at || is_pointed_at !== this.#is_pointed_at) {
      this.#read_at = x;
      this.#is_pointed_at = is_pointed_at;
      this.#draw();
    }
  }

  #draw() {
    const given = this.#given;
    this.#width = this.#node.clientWidth;
    if (!given || this.#width === 0) {
      return;
    }
    const bounds = bounds_of(given);
    if (!bounds) {
      this.#places = null;
      render(this.#node, h("p", { class: "chart-empty" }, "No finite value yet"));
      return;
    }
    const { x_from, x_to, y_from, y_to } = bounds;
    const bottom = this.#height - BOTTOM;
    const y_ticks = given.is_log ? log_ticks(y_from, y_to, 5) : round_ticks(y_from, y_to, this.#height > 200 ? 5 : 4);
    const y_step = y_ticks.length > 1 ? y_ticks[1] - y_ticks[0] : 0;
    const y_texts = y_ticks.map((tick) =>
      given.is_log && tick < 1 ? String(tick).replace("e-", "e−") : tick_text(tick, given.is_log ? Math.min(tick, 1) : y_step),
    );
    const left = Math.max(28, 12 + FIGURE_WIDTH * Math.max(...y_texts.map((text) => text.length)));
    const x = scale(x_from, x_to, left, this.#width - RIGHT);
    const y = scale(y_from, y_to, bottom, TOP, given.is_log);
    this.#places = { x, y, left, right: this.#width - RIGHT, bottom, x_from, x_to };
    const x_count = Math.max(2, Math.floor((this.#width - left) / 90));
    const x_ticks = given.by_time
      ? time_ticks(x_from, x_to, x_count)
      : round_ticks(x_from, x_to, x_count).filter(Number.isInteger);
    const x_step = x_ticks.length > 1 ? x_ticks[1] - x_ticks[0] : 0;

    const columns = Math.max(50, Math.floor(this.#width - left));
    if (this.#drawn?.given !== given || this.#drawn.width !== this.#width) {
      // The sparse ones, as of evaluations, stand before the dense ones.
      const curves = [...given.series]
        .sort((a, b) => b.points.length - a.points.length)
        .map((series) => this.#series(series, x, y, columns, given));
      this.#drawn = { given, width: this.#width, curves };
    }
    render(
      this.#node,
      h(
        "svg",
        {
          class: "chart",
          viewBox: `0 0 ${this.#width} ${this.#height}`,
          width: this.#width,
          height: this.#height,
          tabindex: "0",
          role: "img",
          "aria-label": description(given, bounds),
          onpointermove: (event) => this.#move(event),
          onpointerdown: (event) => this.#down(event),
          onpointerup: (event) => this.#up(event),
          onpointercancel: () => this.#leave(),
          // A finger that is lifted leaves what it has shown.
          onpointerleave: (event) => (event.pointerType === "touch" ? null : this.#leave()),
          ondblclick: () => this.#on_range(null),
          onkeydown: (event) => this.#key(event),
          onblur: () => this.#on_read(null),
          update: (node) => (this.#svg_node = node),
        },
        h(
          "g",
          { class: "grid" },
          y_ticks.map((tick) => h("path", { d: `M${left} ${round(y(tick))}H${this.#width - RIGHT}` })),
        ),
        h(
          "g",
          { class: "figures" },
          y_ticks.map((tick, i) => h("text", { x: left - 8, y: round(y(tick) + 3.5), "text-anchor": "end" }, y_texts[i])),
          x_ticks.map((tick) =>
            h(
              "text",
              { x: round(x(tick)), y: bottom + 17, "text-anchor": anchor(x(tick), this.#width) },
              given.by_time ? time_tick_text(tick) : tick_text(tick, x_step),
            ),
          ),
        ),
        h("path", { class: "axis", d: `M${left} ${bottom + 0.5}H${this.#width - RIGHT}` }),
        h("g", { class: "curves" }, this.#drawn.curves),
        this.#selection(),
        this.#crosshair(),
      ),
      this.#read_out(),
    );
  }

  #series(series, x, y, columns, given) {
    const { x_from, x_to } = this.#places;
    const parts = with_old_parts(pieces_of(series.points));
    const drawn = (points) => {
      const inside = cut_to(points, x_from, x_to).filter((point) => !given.is_log || point.y > 0);
      return visible(inside, x_from, x_to, columns);
    };
    const style = `s${series.index % 8}${series.index >= 8 ? " dashed" : ""}`;
    return [
      parts.map(({ points: all, is_old }) => {
        const points = drawn(all);
        const old = is_old ? " old" : "";
        if (points.length === 1) {
          return h("circle", { class: `dot ${style}${old}`, cx: round(x(points[0].x)), cy: round(y(points[0].y)), r: 2.2 });
        }
        const d = points.map((point, k) => `${k ? "L" : "M"}${round(x(point.x))} ${round(y(point.y))}`).join("");
        return d ? h("path", { class: `${series.is_faint ? "faint " : ""}${style}${old}`, d }) : null;
      }),
      series.points
        .filter((point) => point.y === null && point.x >= x_from && point.x <= x_to)
        .slice(0, 200)
        .map((point) =>
          h("path", { class: "broken", d: `M${round(x(point.x) - 3.5)} ${TOP}l7 7m0 -7l-7 7` }, h("title", null, "not finite")),
        ),
    ];
  }

  #crosshair() {
    if (this.#read_at === null || !this.#places) {
      return null;
    }
    const { x, y, bottom, x_from, x_to } = this.#places;
    if (this.#read_at < x_from || this.#read_at > x_to) {
      return null;
    }
    const found = this.#found();
    const at = found[0]?.point.x ?? this.#read_at;
    return h(
      "g",
      { class: "crosshair" },
      h("path", { d: `M${round(x(at))} ${TOP}V${bottom}` }),
      found
        .filter(({ point }) => point.y !== null && (!this.#given.is_log || point.y > 0))
        .map(({ series, point }) => h("circle", { class: `s${series.index % 8}`, cx: round(x(point.x)), cy: round(y(point.y)), r: 3.5 })),
    );
  }

  /** Of each series the point that is nearest to where one reads. */
  #found() {
    return this.#given.series
      .filter((series) => !series.is_faint)
      .map((series) => ({ series, point: nearest(series.by_x, this.#read_at) }))
      .filter(({ point }) => point !== null);
  }

  #read_out() {
    if (this.#read_at === null || !this.#is_pointed_at || !this.#places) {
      return null;
    }
    const { x, left, right, x_from, x_to } = this.#places;
    const found = this.#found();
    if (found.length === 0 || this.#read_at < x_from || this.#read_at > x_to) {
      return null;
    }
    const first = found[0].point;
    const place = x(Math.min(Math.max(first.x, x_from), x_to));
    const is_left = place > (left + right) / 2;
    return h(
      "div",
      {
        class: "read-out",
        role: "status",
        style: is_left
          ? { right: `${this.#width - place + 12}px`, left: "auto" }
          : { left: `${place + 12}px`, right: "auto" },
      },
      h(
        "p",
        null,
        h("strong", null, `Step ${whole(first.step)}`),
        h("span", { title: full_time(first.time) }, this.#given.by_time ? duration(1000 * first.x) : ""),
      ),
      h(
        "ul",
        null,
        found
          .slice(0, MOST_READ)
          .map(({ series, point }) =>
            h(
              "li",
              { class: `s${series.index % 8}` },
              h("span", { class: "swatch" }),
              h("span", null, series.label),
              h("b", null, value(point.y)),
            ),
          ),
        found.length > MOST_READ ? h("li", null, `and ${found.length - MOST_READ} more`) : null,
      ),
    );
  }

  #selection() {
    if (!this.#drag || this.#drag.to === null || !this.#places) {
      return null;
    }
    const from = Math.min(this.#drag.from, this.#drag.to);
    const { bottom } = this.#places;
    return h("rect", {
      class: "selection",
      x: round(from),
      y: TOP,
      width: round(Math.abs(this.#drag.to - this.#drag.from)),
      height: bottom - TOP,
    });
  }

  #place_of(event) {
    const box = this.#svg_node.getBoundingClientRect();
    const { left, right } = this.#places;
    return Math.min(right, Math.max(left, event.clientX - box.left));
  }

  #move(event) {
    if (!this.#places) {
      return;
    }
    const place = this.#place_of(event);
    if (this.#drag && Math.abs(place - this.#drag.from) > 4) {
      this.#drag.to = place;
    }
    this.#on_read(this.#places.x.back(place));
  }

  #down(event) {
    if (event.pointerType === "mouse" && event.button === 0 && this.#places) {
      this.#drag = { from: this.#place_of(event), to: null };
      this.#svg_node.setPointerCapture(event.pointerId);
    } else {
      this.#move(event);
    }
  }

  #up(event) {
    const drag = this.#drag;
    this.#drag = null;
    if (drag?.to !== null && drag && this.#places) {
      const range = [drag.from, this.#place_of(event)].sort((a, b) => a - b).map((place) => this.#places.x.back(place));
      this.#on_range(range);
    }
  }

  #leave() {
    this.#drag = null;
    this.#on_read(null);
  }

  #key(event) {
    const points = this.#given.series.find((series) => !series.is_faint)?.by_x ?? [];
    if (event.key === "Escape") {
      this.#on_read(null);
      this.#on_range(null);
      return;
    }
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if ((step === undefined && event.key !== "Home" && event.key !== "End") || points.length === 0) {
      return;
    }
    event.preventDefault();
    const now = this.#read_at === null ? points.length - 1 : points.indexOf(nearest(points, this.#read_at));
    const next = event.key === "Home" ? 0 : event.key === "End" ? points.length - 1 : now + (this.#read_at === null ? 0 : step);
    this.#on_read(points[Math.min(points.length - 1, Math.max(0, next))].x);
  }
}

/** What a restart went on from an earlier step for, and so did again, stands behind what came after it. */
function with_old_parts(pieces) {
  const parts = [];
  let redone_from = Infinity;
  for (const { points, begins_anew } of [...pieces].reverse()) {
    const first_old = points.findIndex((point) => point.x >= redone_from);
    if (first_old < 0) {
      parts.push({ points, is_old: false });
    } else {
      parts.push({ points: points.slice(0, first_old + 1), is_old: false });
      parts.push({ points: points.slice(first_old), is_old: true });
    }
    if (begins_anew) {
      redone_from = Math.min(redone_from, points[0].x);
    }
  }
  return parts.filter((part) => part.points.length > 0).sort((a, b) => b.is_old - a.is_old);
}

const round = (number) => Math.round(number * 10) / 10;

function anchor(place, width) {
  return place > width - RIGHT - 16 ? "end" : "middle";
}

function cut_to(points, from, to) {
  const first = points.findIndex((point) => point.x >= from);
  const last = points.findLastIndex((point) => point.x <= to);
  return first < 0 || last < 0 ? [] : points.slice(Math.max(0, first - 1), last + 2);
}

/** What is to be seen of the values; null when there is nothing. */
function bounds_of({ series, is_log, range }) {
  let [x_low, x_high, y_low, y_high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { points } of series) {
    for (const { x, y } of points) {
      if (range && (x < range[0] || x > range[1])) {
        continue;
      }
      x_low = Math.min(x_low, x);
      x_high = Math.max(x_high, x);
      if (y !== null && (!is_log || y > 0)) {
        y_low = Math.min(y_low, y);
        y_high = Math.max(y_high, y);
      }
    }
  }
  if (!(y_high >= y_low)) {
    return null;
  }
  [x_low, x_high] = range ?? [x_low, x_high];
  const [y_from, y_to] = padded(y_low, y_high, is_log);
  return { x_from: x_low, x_to: x_high > x_low ? x_high : x_low + 1, y_from, y_to, y_low, y_high };
}

function description({ name, series }, { y_low, y_high }) {
  const ends = series
    .filter((each) => !each.is_faint)
    .slice(0, 4)
    .map((each) => `${each.label} is ${value(each.points.at(-1)?.y ?? null)} at step ${each.points.at(-1)?.step ?? 0}`);
  return `Curve of ${name}, from ${value(y_low)} to ${value(y_high)}: ${ends.join("; ")}. Arrow keys read its values.`;
}

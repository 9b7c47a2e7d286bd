// Axes: from values to places, and where to write figures. Pure.

/** Round figures between two numbers, about `count` of them. */
export function round_ticks(from, to, count) {
  if (!(to > from)) {
    return [from];
  }
  const raw = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i += 1) {
    ticks.push(Number((i * step).toPrecision(12)) + 0); // no −0
  }
  return ticks;
}

/** Powers of ten between two positive numbers, with 2 and 5 between where there are few; at most `count`. */
export function log_ticks(from, to, count) {
  const first = Math.floor(Math.log10(from));
  const last = Math.ceil(Math.log10(to));
  const every = Math.max(1, Math.ceil((last - first) / Math.max(1, count)));
  const factors = last - first <= 1 ? [1, 1.5, 2, 3, 5, 7] : last - first <= 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(12));
      if (tick >= from * (1 - 1e-9) && tick <= to * (1 + 1e-9)) {
        ticks.push(tick);
      }
    }
  }
  return ticks.length > 1 ? ticks : [from, to];
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Round times (in seconds from a beginning). */
export function time_ticks(from, to, count) {
  const raw = (to - from) / Math.max(1, count);
  const step =
    TIME_STEPS.find((each) => each >= raw) ?? Math.ceil(raw / 86400) * 86400;
  if (raw < 1) {
    return round_ticks(from, to, count);
  }
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9; i += 1) {
    ticks.push(i * step + 0); // no −0
  }
  return ticks;
}

/** A figure on an axis whose ticks are `step` apart: as few digits as tell them apart. */
export function tick_text(tick, step) {
  const size = Math.abs(tick);
  if (size !== 0 && (size >= 1e5 || size < 1e-4)) {
    for (const [unit, name] of [
      [1e12, "T"],
      [1e9, "G"],
      [1e6, "M"],
      [1e3, "k"],
    ]) {
      if (size >= unit) {
        return `${Number((tick / unit).toPrecision(6))}${name}`;
      }
    }
    return tick.toExponential().replace("e+", "e").replace("-", "−");
  }
  const digits = step > 0 ? Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9))) : 4;
  const is_whole = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
  const text = tick.toFixed(is_whole ? digits : digits + 1).replace("-", "−");
  return size >= 1e4 ? text.replace(/\B(?=(\d{3})+(?!\d))/, ",") : text;
}

/** Seconds as "45 s", "1:30", "2 h", "1 d 6 h". */
export function time_tick_text(seconds) {
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) {
    return `${Number(seconds.toFixed(2))} s`;
  }
  if (seconds < 3600) {
    return `${Math.floor(seconds / 60)}:${two(Math.round(seconds % 60))}`;
  }
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.round((seconds % 3600) / 60);
  if (seconds < 86400) {
    return minutes ? `${hours} h ${two(minutes)}` : `${hours} h`;
  }
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(hours / 24)} d`;
}

/** A scale from [from, to] to [begin, end], linear or by powers of ten. */
export function scale(from, to, begin, end, is_log = false) {
  const move = is_log ? Math.log10 : (number) => number;
  const low = move(from);
  const span = move(to) - low || 1;
  const place = (number) => begin + ((move(number) - low) / span) * (end - begin);
  place.back = (at) => {
    const moved = low + ((at - begin) / (end - begin)) * span;
    return is_log ? 10 ** moved : moved;
  };
  return place;
}

/** A little more than what is shown, so that curves do not touch the frame. */
export function padded(low, high, is_log) {
  if (is_log) {
    const spread = high > low ? (high / low) ** 0.06 : 1.5;
    return [low / spread, high * spread];
  }
  const spread = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 1;
  const from = low - spread;
  return [low >= 0 && from < 0 ? 0 : from, high + spread];
}

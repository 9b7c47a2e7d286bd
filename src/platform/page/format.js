// Times, amounts and numbers as people read them. Pure functions.

/** Milliseconds as "4.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
export function duration(milliseconds) {
  if (!Number.isFinite(milliseconds)) {
    return "–";
  }
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 9.95) {
    return `${seconds.toFixed(1)} s`;
  }
  const whole = Math.round(seconds);
  if (whole < 60) {
    return `${whole} s`;
  }
  return two_units(whole, [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ]);
}

function two_units(seconds, units) {
  const first = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[first];
  const count = Math.floor(seconds / size);
  if (first + 1 >= units.length) {
    return `${count} ${name}`;
  }
  const [smaller, smaller_size] = units[first + 1];
  const rest = Math.floor((seconds % size) / smaller_size);
  return rest > 0 ? `${count} ${name} ${rest} ${smaller}` : `${count} ${name}`;
}

/** A time (as the API writes it) as "just now", "5 min ago", "in 2 h". */
export function relative(time, now = Date.now()) {
  const away = now - Date.parse(time);
  if (!Number.isFinite(away)) {
    return "–";
  }
  const amount = Math.abs(away);
  if (amount < 5000) {
    return "just now";
  }
  const [name, size] =
    amount < 60e3 ? ["s", 1e3] : amount < 3600e3 ? ["min", 60e3] : amount < 86400e3 ? ["h", 3600e3] : ["d", 86400e3];
  const count = Math.floor(amount / size);
  return away > 0 ? `${count} ${name} ago` : `in ${count} ${name}`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

/** "14:03:27" here. */
export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "–" : `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** "29 Nov 14:03" here; with the year when it is another. */
export function day_and_time(time, now = Date.now()) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) {
    return "–";
  }
  const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const year = date.getFullYear() === new Date(now).getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${months[date.getMonth()]}${year} ${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** "14:03:27" when it was today, else "29 Nov 14:03". */
export function moment(time, now = Date.now()) {
  return new Date(time).toDateString() === new Date(now).toDateString() ? clock(time) : day_and_time(time, now);
}

/** In full, for titles: "2026-11-29 14:03:27.123 (UTC+2)". */
export function full_time(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) {
    return "";
  }
  const east = -date.getTimezoneOffset();
  const zone = `UTC${east < 0 ? "−" : "+"}${Math.floor(Math.abs(east) / 60)}${east % 60 ? `:${pad(Math.abs(east) % 60)}` : ""}`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${clock(time)}.${pad(date.getMilliseconds(), 3)} (${east === 0 ? "UTC" : zone})`;
}

/** Bytes as "512 MiB". */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let amount = count;
  let unit = 0;
  while (amount >= 1024 && unit + 1 < units.length) {
    amount /= 1024;
    unit += 1;
  }
  return `${trimmed(amount, amount < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

/** Thousandths of a processor as "4" or "0.5". */
export function cpus(millicpus) {
  return trimmed(millicpus / 1000, 2);
}

function trimmed(number, digits) {
  const text = number.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** "4 cpus, 8 GiB, 1 v100": what one learner has, or all. */
export function resources(amounts) {
  const parts = [`${cpus(amounts.millicpus)} ${amounts.millicpus === 1000 ? "cpu" : "cpus"}`];
  if (amounts.memory_bytes > 0) {
    parts.push(bytes(amounts.memory_bytes));
  }
  for (const [type, count] of Object.entries(amounts.accelerators)) {
    if (count > 0) {
      parts.push(`${count} ${type}`);
    }
  }
  return parts.join(", ");
}

/** "1,234,567". */
export function whole(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A measured value in few digits: "0.0312", "1.25e-7", "12,345". */
export function value(number) {
  if (number === null || !Number.isFinite(number)) {
    return "not finite";
  }
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
    return number.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  if (Number.isInteger(number)) {
    return number < 0 ? `-${whole(-number)}` : whole(number);
  }
  const digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
  const text = trimmed(number, Math.min(digits, 6));
  return size >= 1000 ? text.replace(/^(-?)(\d+)/, (_, sign, front) => sign + whole(front)) : text;
}

export function percent(share) {
  return `${Math.floor(Math.min(1, Math.max(0, share)) * 100)} %`;
}

export function plural(count, one, many = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

// Curves of any length in bounded memory, with their extremes. Pure.
//
// Points are taken in the order in which they come, `width` of them a bucket; a bucket keeps its first, lowest, highest
// and last. When there are too many buckets, pairs become one. The server thins in the same way (metrics_thinner.h).

export class Curve {
  #buckets = [];
  #most;
  #width = 1;

  /** @param most buckets; at most four points each stay. */
  constructor(most = 1000) {
    this.#most = Math.max(2, most);
  }

  count = 0;
  last = null;
  lowest = null;
  highest = null;

  /** A point: `x`, `y` (null where it is not finite), and whatever else belongs to it. */
  add(point) {
    this.count += 1;
    this.last = point;
    if (point.y !== null) {
      this.lowest = !this.lowest || point.y < this.lowest.y ? point : this.lowest;
      this.highest = !this.highest || point.y > this.highest.y ? point : this.highest;
    }
    const bucket = this.#buckets.at(-1);
    if (bucket && bucket.count < this.#width) {
      join(bucket, bucket_of(point));
      return;
    }
    this.#buckets.push(bucket_of(point));
    if (this.#buckets.length > this.#most) {
      const pairs = [];
      for (let i = 0; i < this.#buckets.length; i += 2) {
        const pair = this.#buckets[i];
        if (i + 1 < this.#buckets.length) {
          join(pair, this.#buckets[i + 1]);
        }
        pairs.push(pair);
      }
      this.#buckets = pairs;
      this.#width *= 2;
    }
  }

  /** What was kept, in the order in which it came. */
  points() {
    const points = [];
    for (const { first, low, high, last, broken } of this.#buckets) {
      const kept = [first, low, high, last, broken].filter((point) => point !== null);
      kept.sort((a, b) => a.order - b.order);
      for (let i = 0; i < kept.length; i += 1) {
        if (i === 0 || kept[i] !== kept[i - 1]) {
          points.push(kept[i].point);
        }
      }
    }
    return points;
  }
}

let order = 0;

function bucket_of(point) {
  order += 1;
  const kept = { point, order };
  const is_finite = point.y !== null;
  return {
    count: 1,
    first: kept,
    last: kept,
    low: is_finite ? kept : null,
    high: is_finite ? kept : null,
    broken: is_finite ? null : kept, // the first that is not finite
  };
}

function join(bucket, later) {
  bucket.count += later.count;
  bucket.last = later.last;
  bucket.broken ??= later.broken;
  if (later.low && (!bucket.low || later.low.point.y < bucket.low.point.y)) {
    bucket.low = later.low;
  }
  if (later.high && (!bucket.high || later.high.point.y > bucket.high.point.y)) {
    bucket.high = later.high;
  }
}

/**
 * Points in pieces that can be drawn as lines: a new one begins where x goes back, as after a restart from a
 * checkpoint, and where a value was not finite.
 */
export function pieces_of(points) {
  const pieces = [];
  let piece = null;
  let is_repeat = false; // whether the next piece begins anew in x
  for (const point of points) {
    if (point.y === null) {
      piece = null;
      continue;
    }
    if (piece && point.x < piece.points.at(-1).x) {
      piece = null;
      is_repeat = true;
    }
    if (!piece) {
      piece = { points: [], begins_anew: is_repeat };
      is_repeat = false;
      pieces.push(piece);
    }
    piece.points.push(point);
  }
  return pieces;
}

/** Of a piece, what can be seen on so many columns between two x: each column's first, lowest, highest and last. */
export function visible(points, from, to, columns) {
  if (points.length <= 4 * columns || !(to > from)) {
    return points;
  }
  const kept = [];
  let column = -Infinity;
  let bucket = null;
  const flush = () => {
    if (bucket) {
      const list = [bucket.first, bucket.low, bucket.high, bucket.last].filter((kept) => kept !== null);
      list.sort((a, b) => a.order - b.order);
      list.forEach((each, i) => {
        if (i === 0 || each !== list[i - 1]) {
          kept.push(each.point);
        }
      });
    }
  };
  for (const point of points) {
    const at = Math.floor(((point.x - from) / (to - from)) * columns);
    if (at === column) {
      join(bucket, bucket_of(point));
    } else {
      flush();
      bucket = bucket_of(point);
      column = at;
    }
  }
  flush();
  return kept;
}

/** The point whose x is nearest; points are in order of x. */
export function nearest(points, x) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  if (points.length === 0) {
    return null;
  }
  return Math.abs(points[low].x - x) <= Math.abs(points[high].x - x) ? points[low] : points[high];
}

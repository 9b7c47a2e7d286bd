// Amounts of resources: sums, and what of them is worth showing. Pure.
import { bytes, cpus, whole } from "./format.js";

export function total(list) {
  const sum = { millicpus: 0, memory_bytes: 0, accelerators: {} };
  for (const each of list) {
    sum.millicpus += each.millicpus;
    sum.memory_bytes += each.memory_bytes;
    for (const [type, count] of Object.entries(each.accelerators)) {
      sum.accelerators[type] = (sum.accelerators[type] ?? 0) + count;
    }
  }
  return sum;
}

export function times(each, factor) {
  return {
    millicpus: each.millicpus * factor,
    memory_bytes: each.memory_bytes * factor,
    accelerators: Object.fromEntries(Object.entries(each.accelerators).map(([type, count]) => [type, count * factor])),
  };
}

/**
 * What a cluster or a quota counts, the scarcest kind first: accelerators by type, then processors and memory.
 * Each: `key`, `title`, `count`, `of(resources)`, `text(number)`.
 */
export function amounts_of(capacity) {
  const list = Object.entries(capacity.accelerators)
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([type, count]) => ({
      key: `accelerator ${type}`,
      title: type,
      count,
      of: (held) => held.accelerators[type] ?? 0,
      text: whole,
    }));
  if (capacity.millicpus > 0) {
    list.push({
      key: "cpus",
      title: "cpus",
      count: capacity.millicpus,
      of: (held) => held.millicpus,
      text: cpus,
    });
  }
  if (capacity.memory_bytes > 0) {
    list.push({
      key: "memory",
      title: "memory",
      count: capacity.memory_bytes,
      of: (held) => held.memory_bytes,
      text: bytes,
    });
  }
  return list;
}

export function share_text(amount, used) {
  return `${amount.text(used)} of ${amount.text(amount.count)} ${amount.title} in use`;
}

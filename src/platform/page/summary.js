// At a glance: how much runs and waits, and how full the cluster and the quota are.
import { meter } from "./components.js";
import { h } from "./dom.js";
import { amounts_of, share_text, total } from "./amounts.js";
import { whole } from "./format.js";

export function summary({ nodes, teams }, me) {
  if (!teams || !nodes) {
    return h("dl", { class: "tiles" }, [0, 1, 2, 3].map(() => h("div", { class: "tile waiting-tile" })));
  }
  const count = (name) => teams.reduce((sum, team) => sum + team[name], 0);
  const ready = nodes.filter((node) => node.is_ready);
  const capacity = total(ready.map((node) => node.capacity));
  const held = total(nodes.map((node) => node.held));
  const own = me.teams.length === 1 ? teams.find((team) => team.team === me.teams[0].team) : null;
  return h(
    "dl",
    { class: "tiles" },
    tile("Running", whole(count("running")), null, "#/jobs?state=running"),
    tile("Waiting", whole(count("waiting")), null, "#/queue"),
    tile(
      "Nodes ready",
      h("span", null, whole(ready.length), h("small", null, ` of ${whole(nodes.length)}`)),
      null,
      "#/cluster",
    ),
    amounts_of(capacity)
      .slice(0, 3)
      .map((amount) => amount_tile(`${amount.title} in use`, amount, held)),
    own?.quota
      ? amounts_of(own.quota)
          .slice(0, 2)
          .map((amount) => amount_tile(`Quota of ${own.team}: ${amount.title}`, amount, own.held))
      : null,
  );
}

function amount_tile(title, amount, held) {
  const used = amount.of(held);
  const share = amount.count > 0 ? used / amount.count : 0;
  return tile(
    title,
    h("span", null, amount.text(used), h("small", null, ` of ${amount.text(amount.count)}`)),
    meter(share, share_text(amount, used), share > 1 ? "over" : ""),
  );
}

function tile(title, value, more, address) {
  return h(
    "div",
    { class: "tile", key: title },
    h("dt", null, address ? h("a", { href: address }, title) : title),
    h("dd", null, value, more),
  );
}
